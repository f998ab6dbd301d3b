"""Warnings of a run that depend on the machine that it is on: a busy one, or one without instructions for bfloat16."""

_OF_THE_MACHINE = (
    "WARNING:   Input starvation detected: ",
    "WARNING:   Products take bfloat16 operands, with float32 sums, by emulated: slower than float32 here",
)


def without_machine_warnings(stderr: str) -> list[str]:
    """Return the other lines of what was logged."""
    return [line for line in stderr.splitlines() if not any(text in line for text in _OF_THE_MACHINE)]
