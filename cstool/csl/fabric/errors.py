"""Errors of the simulated fabric. PEs are named x.y, counted from 0 at the north-west corner."""

from typing import NamedTuple

from cstool.csl.fabric.arch import PORTS, RAMP, SRAM_BYTES, Arch
from cstool.csl.fabric.program import FabricProgram, Task
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import counted


class SimulationError(CstoolError):
    """The simulated program did something that the wafer cannot do, or that would never end.

    Args:
        message: *where: rule, got value*, one line
        hint: a remedy
        report: text of several lines that shows the state of the fabric, where there is one
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None, report: str | None = None) -> None:
        super().__init__(message, hint)
        self.report = report


def not_configured(program: FabricProgram, pe: int, color: int, side: int) -> SimulationError:
    """A wavelet comes by port `side` to a router that has no route for its color."""
    y, x = divmod(pe, program.width)
    origin = "from its own PE" if side == RAMP else f"from the {PORTS[side]}"
    return SimulationError(
        f"{program.name(pe)}: a router must have a route for each color that comes to it, "
        f"got a wavelet of color {color} {origin} and no route",
        f"@set_color_config({x}, {y}, ...) gives it one"
        + ("" if side == RAMP else f"; or the PE to the {PORTS[side]} must not send the color this way"),
    )


def off_rectangle(program: FabricProgram, pe: int, color: int, port: int) -> SimulationError:
    """A wavelet leaves the rectangle by `port`."""
    return SimulationError(
        f"{program.name(pe)}: routes must stay within the rectangle of {program.width} x {program.height} PEs, "
        f"got a wavelet of color {color} to the {PORTS[port]}",
        f"take {PORTS[port]} out of the color's tx at this PE",
    )


def nobody_takes(program: FabricProgram, pe: int, color: int, side: int) -> SimulationError:
    """A wavelet that came by port `side` goes down the ramp, and no input queue has its color."""
    found = program.program_of(pe)
    nobody = "its PE has no program" if found is None else f"{found.name} has none for it"
    return SimulationError(
        f"{program.name(pe)}: a color that goes down the ramp must have an input queue, "
        f"got a wavelet of color {color} from {PORTS[side]} to RAMP, and {nobody}",
        "bind an input queue to the color there, or take RAMP out of its tx at this PE",
    )


def conflict(program: FabricProgram, pe: int, color: int, sides: tuple[int, int], time: int) -> SimulationError:
    """Two input ports have a wavelet of one color for the same router, in one cycle."""
    first, second = (PORTS[side] for side in sides)
    return SimulationError(
        f"{program.name(pe)}: a color must come from one port at a time, "
        f"got color {color} used by two routes in conflict, from {first} and from {second} in cycle {time}",
        "routers do not choose between two inputs of a color: use two colors, or switch positions that take turns",
    )


class Said(NamedTuple):
    """What is wrong at a PE: the rule and what was there, without the place; and a remedy."""

    message: str
    hint: str | None = None


def at_task(program: FabricProgram, pe: int, task: Task | None, said: Said) -> SimulationError:
    """An error with its PE, and the task and its place, if there is one."""
    where = program.name(pe)
    if task is not None:
        where += f", task {task.function}" + (f" ({task.place})" if task.place else "")
    return SimulationError(f"{where}: {said.message}", said.hint)


def outside_sram() -> Said:
    """Code read or wrote a scalar outside the SRAM."""
    return Said(
        f"a pointer must stay inside the {SRAM_BYTES} bytes of SRAM, this task used one that does not",
        "look at what it adds to pointers, and at indices of many-item pointers",
    )


def operand_outside(operation: str, low: int, high: int) -> Said:
    """The elements of an operand, from byte `low` to before `high`, are not all in the SRAM."""
    return Said(
        f"@{operation} must stay inside the {SRAM_BYTES} bytes of SRAM, its operand has bytes {low} to {high - 1}",
        "the operand's base address, offset, extent or stride is not what it should be",
    )


def empty_register(file: str, number: int) -> Said:
    """An operation uses a register that nothing was loaded into."""
    return Said(f"an operation uses DSR {number} of file {file}, @load_to_dsr must have loaded it, it has not")


def not_saturated(operation: str) -> Said:
    """An operation has no saturating form."""
    return Said(f"@{operation} with .saturate is not simulated")


def no_input_queue(operation: str, number: int) -> Said:
    """An operation reads a queue that is bound to no color."""
    return Said(f"@{operation} reads input queue {number}, @initialize_queue must bind a color to it, none is bound")


def no_output_queue(operation: str, number: int, arch: Arch) -> Said:
    """An operation writes to a queue that the generation does not have."""
    has = len(arch.output_queues)
    return Said(f"@{operation} writes to output queue {number}, {arch.name} must have it, it has {has}")


def no_output_color(operation: str, number: int) -> Said:
    """An operation writes to a queue that is bound to no color."""
    return Said(
        f"@{operation} writes to output queue {number}, @initialize_queue must bind a color to it, none is bound"
    )


def read_twice(operation: str, label: str, other: str, other_label: str) -> Said:
    """Two operations read one queue (WSE-2)."""
    return Said(
        f"@{operation} reads {label}, no other operation may read it at the same time, @{other} on {other_label} does"
    )


def not_empty(number: int, output: bool, wavelets: int, color: int | None, arch: Arch) -> Said:
    """A queue that holds wavelets is bound to another color."""
    return Said(
        f"{'output' if output else 'input'} queue {number} gets another color, it must be empty, "
        f"it has {counted(wavelets, 'wavelet')}",
        "@queue_flush says when it is empty"
        if arch.name == "wse3"
        else f"take all wavelets of color {color} first, or give each color a queue",
    )


def unbound_color(color: int) -> Said:
    """A wavelet comes down the ramp, and its queue has got another color."""
    return Said(f"a wavelet of color {color} came, an input queue must be bound to the color, none is any more")


def nothing_to_flush(number: int, output: bool) -> Said:
    """A queue that is bound to no color is flushed."""
    return Said(f"@queue_flush of {'output' if output else 'input'} queue {number}: no color is bound to it")


def no_local_task(number: int, found: Task | None) -> Said:
    """An id is activated that has no local task."""
    what = "no task" if found is None else f"data task {found.function}"
    return Said(f"a local task must be bound to id {number} that is activated, {what} is")


def no_color(color: int) -> Said:
    """A register of a color is written that the router does not have."""
    return Said(f"a register of color {color} is written, the router of this PE must have that color, it has not")


def endless(limit: int) -> Said:
    """The code of a task has gone beyond the last cycle."""
    return Said(f"must end within {limit} cycles, it goes on", f"{LONGER}; look at its loops: what ends them?")


LONGER = "--max_cycles N (CSTOOL_FABRIC_MAX_CYCLES=N) lets it go on to cycle N"
"""how to raise a limit, for hints"""
