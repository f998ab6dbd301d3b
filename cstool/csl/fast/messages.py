"""Errors of the fast engine, and lines that programs print, in the words of the reference engine."""

from typing import TYPE_CHECKING, Any

from cstool.csl.fabric import errors, scalar
from cstool.csl.fabric.arch import ARCHS
from cstool.csl.fabric.errors import Said, SimulationError
from cstool.csl.fabric.waiting import MAIN
from cstool.csl.fast import codes
from cstool.csl.fast import state as s
from cstool.csl.fast.build import HostEvent, Stop
from cstool.csl.fast.instructions import FILES
from cstool.csl.fast.interpreter import shown
from cstool.csl.fast.operations import NAMES

if TYPE_CHECKING:
    from cstool.csl.fast.simulation import FastSimulation


OPERATIONS = (*NAMES, "map")
"""names of operations by number"""
HELD = 2
"""values that an event itself holds"""


def error_of(simulation: "FastSimulation", stop: Stop) -> SimulationError:
    """The error that the reference engine raises there."""
    program, (a, b, c, d, *_) = simulation.program, stop.arguments
    match stop.code:
        case codes.NOT_CONFIGURED:
            return errors.not_configured(program, stop.pe, a, b)
        case codes.OFF_RECTANGLE:
            return errors.off_rectangle(program, stop.pe, a, b)
        case codes.NOBODY_TAKES:
            return errors.nobody_takes(program, stop.pe, a, b)
        case codes.CONFLICT:
            return errors.conflict(program, stop.pe, a, (b, c), d)
        case codes.FULL:
            return SimulationError("the engine has no room for more: its pools are full", "--engine reference has")
    f, snapshot = simulation.built.words, simulation.snapshot
    pe = simulation.built.pe(stop.pe)
    number = int(f[f[pe + s.P_CLASS] + s.C_NUMBER])
    record = stop.task or int(f[pe + s.P_RUNNING])
    of = program.programs[number]
    task = snapshot.task(of, number, record)
    if stop.code in (codes.FAILED, codes.DIVISOR, codes.INDEX, codes.SHIFTED):
        return _failed(simulation, stop)
    return errors.at_task(program, stop.pe, task, _said(simulation, stop, pe, of.arch))


def _failed(simulation: "FastSimulation", stop: Stop) -> SimulationError:
    """The error of a check in the code, which names its place itself."""
    a, b, c, *_ = stop.arguments
    text = text_of(simulation, a)
    failing = _Failing(f"{simulation.program.name(stop.pe)}")
    match stop.code:
        case codes.FAILED:
            failing.fail(*text)
        case codes.DIVISOR:
            (scalar.remainder if c else scalar.quotient)(failing, text, b, 0)  # type: ignore[arg-type]
        case codes.INDEX:
            scalar.outside(failing, text, b, c)  # type: ignore[arg-type]
        case codes.SHIFTED:
            scalar.shift(failing, text, b)  # type: ignore[arg-type]
    assert failing.error is not None
    return failing.error


class _Failing:
    """A PE whose check has failed: it keeps the error."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.error: SimulationError | None = None

    def fail(self, message: str, place: str) -> None:
        self.error = SimulationError(f"{self._name}, {place}: {message}")


def _said(simulation: "FastSimulation", stop: Stop, pe: int, arch_name: str) -> Said:
    a, b, c, d, *_ = stop.arguments
    arch, operations = ARCHS[arch_name], OPERATIONS
    f = simulation.built.words
    match stop.code:
        case codes.UNBOUND_COLOR:
            return errors.unbound_color(a)
        case codes.NO_INPUT_QUEUE:
            return errors.no_input_queue(operations[b], a)
        case codes.NO_SUCH_OUTPUT_QUEUE:
            return errors.no_output_queue(operations[b], a, arch)
        case codes.NO_OUTPUT_COLOR:
            return errors.no_output_color(operations[b], a)
        case codes.NOT_EMPTY:
            return errors.not_empty(a, bool(b), c, d, arch)
        case codes.NOTHING_TO_FLUSH:
            return errors.nothing_to_flush(a, bool(b))
        case codes.NO_LOCAL_TASK:
            number = int(f[f[pe + s.P_CLASS] + s.C_NUMBER])
            return errors.no_local_task(a, simulation.program.programs[number].tasks.get(a))
        case codes.READ_TWICE:
            first, second = (operations[int(f[thread + s.T_OPERATION])] for thread in (a, c))
            number = int(f[c + s.T_NUMBER])
            user = MAIN if number < 0 else f"microthread {number}"
            return errors.read_twice(first, simulation.snapshot.input_queue(b).label, second, user)
        case codes.NO_COLOR:
            return errors.no_color(a)
        case codes.NOT_LOADED:
            return errors.empty_register(FILES[a], b)
        case codes.OUTSIDE_BY_OPERATION:
            return errors.operand_outside(operations[a], b, c)
        case codes.OUTSIDE_BY_CODE:
            return errors.outside_sram()
        case codes.NO_SATURATE:
            return errors.not_saturated(operations[a])
        case codes.ENDLESS:
            assert simulation.limit is not None
            return errors.endless(simulation.limit)
    return Said(f"the engine stops with code {stop.code} and {stop.arguments}", "this is an error of cstool itself")


def line_of(simulation: "FastSimulation", event: HostEvent) -> str:
    """A piece of text that a program says or prints."""
    content, count = text_of(simulation, event.a), event.b
    f = simulation.built.words
    return shown(content, f[event.c : event.c + count].tolist() if count > HELD else [event.c, event.d][:count])


def is_print(simulation: "FastSimulation", event: HostEvent) -> bool:
    """Whether a line goes to <simprint>; else it goes to <debug>."""
    return bool(text_of(simulation, event.a)[0] == "print")


def text_of(simulation: "FastSimulation", number: int) -> Any:
    """A text of the translated code, by its number among the texts of all programs."""
    for code in simulation.built.codes:
        if number < len(code.texts):
            return code.texts[number]
        number -= len(code.texts)
    raise LookupError(number)
