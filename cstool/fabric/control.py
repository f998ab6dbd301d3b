"""The payload of a control wavelet: what it says to routers, and what to the CEs behind them.

What is documented: a control wavelet carries one command, or up to `COMMANDS`, each NOP, SWITCH_ADV, SWITCH_RST or
TEARDOWN; a flag for CEs to ignore it; the id of a control task (an entry point); and, with a single command, 16 bits of
data, the lower half (SDK 2.10 documentation: library <control>, "Switches and Control Entrypoints"; F09).

Where the other bits stand is not documented. The layout here is ours; <control> and the routers share it, and a program
that packs its payloads through <control> cannot tell. From the lowest bit on:

    bits   0-15   data of the control task; in a list: eight commands of two bits, the next one lowest
    bits  16-21   entry point: id of the control task
    bits  22-23   the command; in a list: 0
    bit   24      CEs ignore the wavelet
    bit   25      it is a list
"""

from collections.abc import Sequence
from enum import IntEnum


class Command(IntEnum):
    """What a router does for the color that a control wavelet came by."""

    NOP = 0
    SWITCH_ADV = 1
    SWITCH_RST = 2
    TEARDOWN = 3


COMMANDS = 8
"""commands that a list has room for"""
COMMAND_BITS = 2
COMMAND_MASK = (1 << COMMAND_BITS) - 1
DATA_MASK = 0xFFFF
ENTRY_SHIFT = 16
ENTRY_MASK = 0x3F
COMMAND_SHIFT = 22
CE_IGNORE = 1 << 24
LIST = 1 << 25


def encode_task(entry: int) -> int:
    """`encode_control_task_payload`: no command; starts a control task on all CEs that it reaches."""
    return (entry & ENTRY_MASK) << ENTRY_SHIFT


def encode_single(command: int, ce_ignore: bool, entry: int | None = None, data: int = 0) -> int:
    """`encode_single_payload`: one command, and a control task with its 16 bits of data; without an entry point, id 0."""
    return (
        (data & DATA_MASK)
        | encode_task(entry or 0)
        | (command & COMMAND_MASK) << COMMAND_SHIFT
        | (CE_IGNORE if ce_ignore else 0)
    )


def encode_list(commands: Sequence[int], ce_ignore: bool, entry: int | None = None) -> int:
    """`encode_payload`: up to `COMMANDS` commands, the first one for the first router, and a control task without data."""
    if len(commands) > COMMANDS:
        raise ValueError(f"a control wavelet has room for {COMMANDS} commands, got {len(commands)}")
    packed = sum((command & COMMAND_MASK) << COMMAND_BITS * place for place, command in enumerate(commands))
    return packed | encode_task(entry or 0) | (CE_IGNORE if ce_ignore else 0) | LIST


def command(payload: int) -> int:
    """The command that the next router executes."""
    return (payload if payload & LIST else payload >> COMMAND_SHIFT) & COMMAND_MASK


def popped(payload: int) -> int:
    """The payload without the command that was executed; behind the last one come NOPs."""
    if payload & LIST:
        return payload & ~DATA_MASK | (payload & DATA_MASK) >> COMMAND_BITS
    return payload & ~(COMMAND_MASK << COMMAND_SHIFT)


def entry(payload: int) -> int:
    """Id of the control task that the wavelet starts."""
    return payload >> ENTRY_SHIFT & ENTRY_MASK


def data(payload: int) -> int:
    """What the control task gets, 16 bits; 0 where commands stand in its place."""
    return 0 if payload & LIST else payload & DATA_MASK


def ce_ignored(payload: int) -> bool:
    """Whether CEs ignore the wavelet."""
    return payload & CE_IGNORE != 0
