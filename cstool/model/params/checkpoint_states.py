"""The parts of a checkpoint that can be had apart."""

from collections.abc import Iterable

STATES = ("model", "optimizer", "dataloader")
"""by name; `optimizer` includes the step, and so the learning rate"""
ALL_STATES = frozenset(STATES)


def parse_states(written: str | Iterable[str]) -> frozenset[str]:
    """Return the parts that a text or a list asks for.

    Args:
        written: `all`, or names, in a text with commas between them

    Raises:
        ValueError: there is no such part; the message has the valid names
    """
    names = [name.strip() for name in (written.split(",") if isinstance(written, str) else written)]
    if [name.lower() for name in names] == ["all"]:
        return ALL_STATES
    unknown = set(names) - ALL_STATES
    if unknown or not names:
        raise ValueError(
            f"must be all or some of {', '.join(STATES)}, got {min(unknown, default='') or 'an empty name'}"
        )
    return frozenset(names)


def written_states(states: frozenset[str]) -> str:
    """Return parts as a text that `parse_states` understands."""
    return "all" if states == ALL_STATES else ",".join(state for state in STATES if state in states)
