"""The 32 bits of a control wavelet: commands to routers on its way, and a task for the CEs that it reaches.

A router executes the first command that is left. Where its color pops, later routers do not see that command.

    22 to 29    commands 0 to 7, three bits each, begin here: the command, and in the third bit that the CE does not
    0 to 15     get the wavelet. They go on in the lower half; the third bit of command 2 is bit 0
    16 to 21    the control task that it activates
    0 to 15     data for that task, where there is but one command
    31          a mark: the lower half holds commands, though commands 1 and 2 say nothing

So a payload whose bits 25 to 29 are empty has data in its lower half, unless it is marked.

Documented is that data is the lower half (SDK 2.10 documentation, tutorial "Switches and Control Entrypoints"), that
there are eight commands at most, and their names (SDK 2.10 documentation, `<control>`). The places of commands are as
in the vendor's `benchmark-libs/allreduce` (a teardown for one router, hidden from CEs, is 0x9df9249) and in payloads
that xdslproject/wse-stencil packs by hand. The mark is ours.
"""

from typing import NamedTuple

NOP, ADVANCE, RESET, TEARDOWN = range(4)
"""Commands: nothing, to the next switch position, to position 0, stop and call the CE."""

MAX_COMMANDS = 8

ENTRYPOINT_SHIFT = 16
NO_TASK = 31
"""The id that names no task: 31 is reserved on both generations (SDK 2.10 documentation, task ids)."""

_BITS = 3
_CE_IGNORE = 4
_HIGH_SHIFT = 22
_HIGH_BITS = 8
_HIGH_MASK = (1 << _HIGH_BITS) - 1
_TASK_MASK = 0x3F
_MARK = 1 << 31


class Control(NamedTuple):
    """A payload, as the next router and CE on its way take it.

    Args:
        command: `NOP`, `ADVANCE`, `RESET` or `TEARDOWN`
        ce_ignore: whether a router that sends it down its ramp drops it there
        task: control task of the CE; `NO_TASK` is none
        data: argument of that task
    """

    command: int
    ce_ignore: bool
    task: int
    data: int


def decode(payload: int) -> Control:
    """Decode `payload` as the next router and CE do."""
    first = payload >> _HIGH_SHIFT
    data = 0 if _has_more(payload) else payload & 0xFFFF
    return Control(first & 3, bool(first & _CE_IGNORE), payload >> ENTRYPOINT_SHIFT & _TASK_MASK, data)


def encode(commands: tuple[tuple[int, bool], ...], task: int = NO_TASK, data: int = 0) -> int:
    """A payload.

    Args:
        commands: up to eight of (command, ce_ignore)
        task: control task id, or `NO_TASK`
        data: 16 bits, where there is at most one command
    """
    bits = 0
    for at, (command, ignore) in enumerate(commands):
        bits |= (command | (_CE_IGNORE if ignore else 0)) << _BITS * at
    return _packed(bits, task) if len(commands) > 1 else bits << _HIGH_SHIFT | task << ENTRYPOINT_SHIFT | data


def pop(payload: int) -> int:
    """`payload` without its first command; `NOP` follows the last."""
    if not _has_more(payload):
        return payload & (_TASK_MASK << ENTRYPOINT_SHIFT | 0xFFFF)
    bits = payload >> _HIGH_SHIFT & _HIGH_MASK | (payload & 0xFFFF) << _HIGH_BITS
    return _packed(bits >> _BITS, payload >> ENTRYPOINT_SHIFT & _TASK_MASK)


def _packed(bits: int, task: int) -> int:
    """A payload of several commands."""
    payload = (bits & _HIGH_MASK) << _HIGH_SHIFT | task << ENTRYPOINT_SHIFT | bits >> _HIGH_BITS
    return payload if _has_more(payload) or not payload & 0xFFFF else payload | _MARK


def _has_more(payload: int) -> bool:
    """Whether there are commands behind the first, so that the lower half is not data."""
    return bool(payload & _MARK or payload >> _HIGH_SHIFT + _BITS & _HIGH_MASK >> _BITS)
