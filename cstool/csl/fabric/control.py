"""The 32 bits of a control wavelet: commands to routers on its way, and a task for the CEs that it reaches.

A router executes the first command that is left. Where its color pops, later routers do not see that command.

    bit 31      the lower half holds commands, not data
    22 to 29    the first 8 of the bits of all commands
    16 to 21    the control task that it activates
    0 to 15     data for that task, or the other 16 bits of all commands

Eight commands of three bits: the command, and in the third bit that the CE does not get the wavelet. A payload with
more in bits 22 to 29 than its first command, and a lower half that is not empty, holds commands there without bit 31,
too: only a single command comes with data. So programs may pack eight commands by hand.

Documented is that data is the lower half (SDK 2.10 documentation, tutorial "Switches and Control Entrypoints"), that
there are eight commands at most, and their names (SDK 2.10 documentation, `<control>`). Programs that pack commands by
hand show where their bits are (xdslproject/wse-stencil, `switches.csl`). Bit 31 is ours.
"""

from typing import NamedTuple

NOP, ADVANCE, RESET, TEARDOWN = range(4)
"""Commands: nothing, to the next switch position, to position 0, stop and call the CE."""

MAX_COMMANDS = 8
SHORT_COMMANDS = 2
"""commands of a payload that has room for data in its lower half"""

ENTRYPOINT_SHIFT = 16
NO_TASK = 31
"""The id that names no task: 31 is reserved on both generations (SDK 2.10 documentation, task ids)."""

_BITS = 3
_CE_IGNORE = 4
_HIGH_SHIFT = 22
_HIGH_BITS = 8
_HIGH_MASK = (1 << _HIGH_BITS) - 1
_TASK_MASK = 0x3F
_LONG = 1 << 31


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
    data = 0 if _is_long(payload) else payload & 0xFFFF
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
    if len(commands) > SHORT_COMMANDS:
        data = bits >> _HIGH_BITS
    long = _LONG if len(commands) > SHORT_COMMANDS else 0
    return long | (bits & _HIGH_MASK) << _HIGH_SHIFT | task << ENTRYPOINT_SHIFT | data


def pop(payload: int) -> int:
    """`payload` without its first command; `NOP` follows the last."""
    commands = payload >> _HIGH_SHIFT & _HIGH_MASK
    low = payload & 0xFFFF
    long = _LONG if _is_long(payload) else 0
    if long:
        commands |= low << _HIGH_BITS
    commands >>= _BITS
    if long:
        low = commands >> _HIGH_BITS
    return long | (commands & _HIGH_MASK) << _HIGH_SHIFT | payload & _TASK_MASK << ENTRYPOINT_SHIFT | low


def _is_long(payload: int) -> bool:
    several = payload >> _HIGH_SHIFT + _BITS & (_HIGH_MASK >> _BITS)
    return bool(payload & _LONG or (several and payload & 0xFFFF))
