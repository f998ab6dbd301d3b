"""A recorded simulation, repeated moment by moment.

A moment is anything to stop at: an event of the trace, a statement of the source, the begin of a cycle, an act of the
host, the end. Moments are numbered from 1. A repetition depends on the journal alone, so the same moment has the same
number in each, with any watches.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal, NamedTuple

from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fabric.host import Command, Host
from cstool.csl.fabric.pe import ProcessingElement
from cstool.csl.fabric.program import FabricProgram, PEProgram
from cstool.csl.fabric.simulation import PATIENCE, Simulation
from cstool.csl.fabric.time_model import TIME_MODELS
from cstool.csl.fabric.wavelet import Events
from cstool.csl.sdk.journal import Journal, begin_command

NOBODY = -1
"""index in place of a PE's, in moments of the whole fabric"""


class Moment(NamedTuple):
    """One moment.

    Args:
        time: its cycle; of a statement, the one that its code has come to
        pe: index of the PE, or `NOBODY`
        kind: "task", "task_end", "op", "op_end", "hop", "queue" (`fabric.trace`), "statement", "cycle", "host",
            "begin", "end"
        fields: of a trace's event; a statement's place; the words of an act of the host
    """

    time: int
    pe: int
    kind: str
    fields: tuple[Any, ...]


OnMoment = Callable[["Replay", Moment], None]


@dataclass
class Ending:
    """The end of a simulation.

    Args:
        kind: "over": the host stopped it; "failed"; "cut": the script asked for no more
        message: the error
        hint: a remedy
        report: the report on the deadlock
        warnings: of the host, a line each
    """

    kind: Literal["over", "failed", "cut"]
    message: str = ""
    hint: str | None = None
    report: str | None = None
    warnings: list[str] = field(default_factory=list)


class _Cycles(Events):
    """Events that tell when a cycle begins."""

    def __init__(self, begins: Callable[[int], None]) -> None:
        super().__init__()
        self._begins = begins

    def cycle(self) -> bool:
        """Let all events of the next cycle happen; False if there is none."""
        time = self.next_time()
        if time is not None and time != self.now:
            self._begins(time)
        return super().cycle()


class Replay:
    """One repetition.

    Args:
        journal: the recorded requests
        program: the program of the journal
        on_moment: called at every moment; it may raise to end the repetition
        on_line: called with cycle, PE and text of a line that a program says or prints

    Attributes:
        number: moments so far
        cycle, before: the present one, and the one before it in which anything happened
        host_act: the host's act after which no cycle has begun; "" if there is none
        simulation: the simulation
        host: its host
        frame: frame of the compiled code, at a statement
        depth: functions of the program that stand one in the other, at a statement
        begun: depth and place of the last statement of the running code, and of the statements around it, by PE;
            statements that only return a value are not among them
        ending: the end, once it has come
    """

    def __init__(
        self, journal: Journal, program: FabricProgram, on_moment: OnMoment, on_line: Callable[[int, int, str], None]
    ) -> None:
        settings = journal.settings
        self._journal = journal
        self._on_moment = on_moment
        self.number = self.cycle = self.before = 0
        self.host_act = ""
        self.frame: FrameType | None = None
        self.depth = 0
        self.begun: dict[int, list[tuple[int, str]]] = {}
        self.ending: Ending | None = None
        self._return_lines: dict[int, frozenset[int]] = {}
        self.simulation = Simulation(
            program,
            max_cycles=settings.limit,
            patience=None if settings.limit else PATIENCE,
            on_trace=self._trace,
            on_say=on_line,
            on_print=on_line,
            on_statement=self._statement,
            events=_Cycles(self._begins),
            time_model=TIME_MODELS[settings.time],
        )
        self.host = Host(self.simulation, self._host, modelled=settings.modelled)

    def run(self) -> None:
        """Repeat it, from the first moment, "begin", to the last one, "end"."""
        self._moment(Moment(0, NOBODY, "begin", ()))
        try:
            self.ending = self._requests()
        except SimulationError as error:
            self.ending = Ending("failed", error.message, error.hint, error.report)
        self.frame = None
        self._moment(Moment(self.cycle, NOBODY, "end", ()))

    def _requests(self) -> Ending:
        host = self.host
        commands: dict[int, Command] = {}  # by number of the request
        for header, words in self._journal.requests:
            command = begin_command(host, header, words)
            if command is not None:
                commands[header["id"]] = command
                if header["block"]:
                    host.finish(command)
            elif header["op"] == "poll":
                host.poll()
            elif header["op"] == "wait" and header["task"] in commands:
                host.finish(commands[header["task"]])
            elif header["op"] == "stop":
                return Ending("over", warnings=host.stop())
        host.settle()
        return Ending("cut")

    # --- moments ---

    def _moment(self, moment: Moment) -> None:
        self.number += 1
        self._on_moment(self, moment)

    def _begins(self, time: int) -> None:
        self.before, self.cycle = self.cycle, time
        self._moment(Moment(time, NOBODY, "cycle", ()))
        self.host_act = ""

    def _trace(self, time: int, pe: int, kind: str, *fields: Any) -> None:
        if kind == "task":
            self.begun.pop(pe, None)
        self._moment(Moment(time, pe, kind, fields))

    def _statement(self, pe: ProcessingElement, line: int) -> None:
        place = pe.program.statements[line]
        frame: FrameType | None = sys._getframe(1)
        self.frame, self.depth, file = frame, 0, pe.program.name
        while frame is not None and frame.f_code.co_filename == file:
            self.depth += 1
            frame = frame.f_back
        begun = self.begun.setdefault(pe.index, [])
        self._moment(Moment(pe.clock(), pe.index, "statement", (place,)))
        while begun and begun[-1][0] >= self.depth:
            begun.pop()
        if line not in self._returns(pe.program):
            begun.append((self.depth, place))

    def _returns(self, program: PEProgram) -> frozenset[int]:
        """Lines of the code of a program at which a statement begins that only returns a value."""
        if id(program) not in self._return_lines:
            lines = program.code.splitlines()
            starts = sorted(program.statements)
            self._return_lines[id(program)] = frozenset(
                at
                for at, after in zip(starts, [*starts[1:], len(lines) + 1], strict=True)
                if any(line.lstrip().startswith("return ") for line in lines[at - 1 : after - 1])
            )
        return self._return_lines[id(program)]

    def _host(self, cycle: int, text: str) -> None:
        self._moment(Moment(cycle, NOBODY, "host", (text,)))
        self.host_act = text
