"""Breakpoints and watches: the moments of each, and the reason that it gives."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from cstool.csl.debugger.memory import Range, find, values_text
from cstool.csl.debugger.replay import Moment, Replay
from cstool.csl.debugger.sources import Sources, line_of
from cstool.csl.fabric.dsd import Mem1d, Mem4d
from cstool.csl.fabric.memory import bounds
from cstool.csl.fabric.microthread import Thread
from cstool.csl.fabric.pe import ProcessingElement, place_of
from cstool.csl.fabric.program import FabricProgram
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import counted, nearest

ACTS = {"arrives": ("came",), "leaves": ("sent",), "": ("came", "sent")}
"""acts at queues (`trace.ACTS`) by the word of a breakpoint on a color"""


@dataclass
class Point:
    """A breakpoint.

    Args:
        number: its number
        text: as the user would type it
        pes: PEs that it is narrowed to; None: all

    Attributes:
        note: words that are added when it is made
    """

    number: int
    text: str
    pes: frozenset[int] | None
    note: str = field(default="", init=False)

    @property
    def command(self) -> str:
        """The line that makes it."""
        return f"break {self.text}"

    def at(self, moment: Moment) -> bool:
        """Whether a moment is at one of its PEs."""
        return self.pes is None or moment.pe in self.pes

    def hit(self, moment: Moment, replay: Replay) -> str | None:
        """The reason to stop at a moment, which is where the replay is; None: there is none."""
        raise NotImplementedError

    def refresh(self, replay: Replay) -> None:
        """Take the present state as known."""


@dataclass
class TaskPoint(Point):
    """Stops where a task begins.

    Args:
        task: name of its function; "": any task
    """

    task: str

    def hit(self, moment: Moment, replay: Replay) -> str | None:  # noqa: ARG002
        """The breakpoint itself, if a task begins."""
        begins = moment.kind == "task" and self.task in ("", moment.fields[0]) and self.at(moment)
        return f"breakpoint {self.number}: {self.text}" if begins else None


@dataclass
class LinePoint(Point):
    """Stops before the statements of a line.

    Args:
        file: the file
        line: the line
    """

    file: str
    line: int

    def hit(self, moment: Moment, replay: Replay) -> str | None:  # noqa: ARG002
        """The breakpoint itself, if a statement of the line comes."""
        if moment.kind != "statement" or not self.at(moment) or line_of(moment.fields[0]) != (self.file, self.line):
            return None
        return f"breakpoint {self.number}: {self.text}"


@dataclass
class ColorPoint(Point):
    """Stops where a wavelet of a color comes to a PE, or leaves one.

    Args:
        color: the color
        acts: acts at queues
    """

    color: int
    acts: tuple[str, ...]

    def hit(self, moment: Moment, replay: Replay) -> str | None:  # noqa: ARG002
        """The breakpoint itself, if such a wavelet moves."""
        if moment.kind != "queue" or moment.fields[0] not in self.acts or moment.fields[2] != self.color:
            return None
        return f"breakpoint {self.number}: {self.text}" if self.at(moment) else None


@dataclass
class CyclePoint(Point):
    """Stops at a cycle, or at the first one behind it in which anything happens.

    Args:
        cycle: the cycle
    """

    cycle: int

    def hit(self, moment: Moment, replay: Replay) -> str | None:
        """The breakpoint itself, at its cycle."""
        there = moment.kind == "cycle" and replay.before < self.cycle <= moment.time
        return f"breakpoint {self.number}: {self.text}" if there else None


@dataclass
class Watch(Point):
    """Stops after a variable has another value.

    Args:
        ranges: the elements that are watched, by PE
    """

    ranges: dict[int, Range]
    _known: dict[int, bytes] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The line that makes it."""
        return self.text

    def refresh(self, replay: Replay) -> None:
        """Take the present values as known."""
        self._known = {pe: each.raw(replay.simulation.pes[pe]) for pe, each in self.ranges.items()}

    def hit(self, moment: Moment, replay: Replay) -> str | None:
        """The old and the new value, and the statement or operation that wrote it; of the first PE among several."""
        pes = replay.simulation.pes
        changed: list[tuple[int, bytes]] = []  # with the bytes before
        for pe in (moment.pe,) if moment.pe >= 0 else self.ranges:
            if pe in self.ranges and (now := self.ranges[pe].raw(pes[pe])) != self._known[pe]:
                changed.append((pe, self._known[pe]))
                self._known[pe] = now
        if not changed:
            return None
        pe, before = changed[0]
        elements, end = self.ranges[pe], pes[pe]
        more = f"\n    and at {counted(len(changed) - 1, 'more PE')}" if len(changed) > 1 else ""
        change = self._change(end, elements, before, elements.raw(end))
        return f"{change}\n    {_writer(end, elements, moment, replay)}{more}"

    def _change(self, pe: ProcessingElement, elements: Range, before: bytes, now: bytes) -> str:
        value = elements.value(pe)
        old, new = (np.frombuffer(each, value.dtype) for each in (before, now))
        size = value.dtype.itemsize
        changed = [at for at in range(len(old)) if before[at * size : (at + 1) * size] != now[at * size :][:size]]
        first = changed[0]
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        was, is_ = values_text(old[first : first + 1].reshape(())), values_text(new[first : first + 1].reshape(()))
        where = pe.simulation.program.name(pe.index)
        return f"watch {self.number}: {elements.element(first)} at {where} was {was}, is {is_}{more}"


def _writer(pe: ProcessingElement, elements: Range, moment: Moment, replay: Replay) -> str:
    """The writer of elements of a PE just before a moment, in words."""
    begun = replay.begun.get(pe.index, [])
    if moment.kind in ("statement", "task_end") and begun:
        # Of a call, what was done behind it is the caller's.
        depth = replay.depth if moment.kind == "statement" else 1
        places = [place for at, place in reversed(begun) if at >= depth] or [begun[-1][1]]
        return f"written by the statement at {', or by that around it, '.join(dict.fromkeys(places))}"
    if replay.host_act:
        return f"written by the {replay.host_act}"
    for thread in pe.datapath.all():
        if _writes(pe, thread, elements):
            return f"written by @{thread.name}, {place_of(pe, thread)}, {thread.label}"
    return "written since the cycle before" + (f"; the last statement was {begun[-1][1]}" if begun else "")


def _writes(pe: ProcessingElement, thread: Thread, elements: Range) -> bool:
    dest = pe.registers.held_by(thread.operands[-1 if thread.call else 0])
    if not isinstance(dest, Mem1d | Mem4d) or not thread.count:
        return False
    low, high = bounds(dest, thread.count, dest.width)
    first = elements.address
    return low < first + max(1, int(np.prod(elements.shape))) * elements.width and first < high


# --- as the user types them ---


def place_text(program: FabricProgram, pes: frozenset[int] | None) -> str:
    """PEs behind a breakpoint: ` at 1.0`, or ` at 0.0:3.1`; nothing for all of them."""
    if pes is None:
        return ""
    first, last = (program.name(each)[3:] for each in (min(pes), max(pes)))
    return f" at {first}" if first == last else f" at {first}:{last}"


def pes_named(program: FabricProgram, text: str) -> list[int]:
    """The PEs of `X.Y`, of the rectangle `X.Y:X.Y` (both in it), or of `all`, in order.

    Raises:
        CstoolError: it has another form, or names PEs outside the program
    """
    width, height = program.width, program.height
    if text == "all":
        return list(range(width * height))
    corners: list[tuple[int, int]] = []
    for part in text.split(":"):
        x, dot, y = part.strip().partition(".")
        if not (dot and x.isdecimal() and y.isdecimal()) or len(corners) > 1:
            raise CstoolError(
                f"a PE must be X.Y, a rectangle X.Y:X.Y, or all, got {text!r}", "for example 1.0, 0.0:3.1"
            )
        column, row = int(x) - program.origin[0], int(y) - program.origin[1]
        if not (0 <= column < width and 0 <= row < height):
            within = f"{program.name(0)} to {program.name(width * height - 1)}"
            raise CstoolError(f"a PE must be within {within}, got {part.strip()}")
        corners.append((column, row))
    (left, top), (right, bottom) = corners[0], corners[-1]
    if right < left or bottom < top:
        raise CstoolError(f"a rectangle must be from its upper left PE to its lower right one, got {text}")
    return [y * width + x for y in range(top, bottom + 1) for x in range(left, right + 1)]


def split_at(text: str) -> tuple[str, str | None]:
    """The words before ` at PE`, and the PE; None: there is no PE."""
    before, at, pe = f" {text}".rpartition(" at ")
    return (before.strip(), pe.strip()) if at else (text.strip(), None)


class Points:
    """All breakpoints and watches.

    Args:
        program: the compiled program
        sources: its sources
    """

    def __init__(self, program: FabricProgram, sources: Sources) -> None:
        self._program = program
        self._sources = sources
        self.all: list[Point] = []
        self._number = 0

    def add(self, words: str, file: str | None) -> Point:
        """A breakpoint, as `break` takes it. `file`: of lines without a file.

        Raises:
            CstoolError: it has another form, or nothing has that name
        """
        what, at = split_at(words)
        pes = None if at is None else frozenset(pes_named(self._program, at))
        behind = place_text(self._program, pes)
        kind, *rest = what.split() or [""]
        number = self._number + 1
        point: Point
        if kind == "color":
            color, way = self._color(rest)
            text = f"color {color}" + (f" {way}" if way else "") + behind
            point = ColorPoint(number, text, pes, color, ACTS[way])
        elif kind == "cycle":
            cycle = whole("a cycle", " ".join(rest))
            point = CyclePoint(number, f"cycle {cycle}", None, cycle)
        elif kind == "pe":
            pes = frozenset(pes_named(self._program, " ".join(rest)))
            point = TaskPoint(number, f"pe{place_text(self._program, pes).removeprefix(' at')}", pes, "")
        elif what and (":" in what or what.isdecimal()):
            name, _, line = what.rpartition(":")
            found = self._sources.file_named(name) if name else file
            if found is None:
                raise CstoolError("break LINE: must be where a file is known, none is yet", "break FILE:LINE names it")
            wanted = whole("a line", line)
            there = self._sources.line_with_code(found, wanted)
            point = LinePoint(number, f"{found}:{there}{behind}", pes, found, there)
            point.note = "" if there == wanted else f" (line {wanted} has no code)"
        elif what in self._sources.functions and what not in self.tasks():
            found, there = self._sources.functions[what]
            point = LinePoint(number, f"{found}:{there}{behind}", pes, found, there)
            point.note = f" (the first statement of {what})"
        elif what:
            point = TaskPoint(number, f"{self._task(what)}{behind}", pes, what)
        else:
            raise CstoolError("break: must be followed by what it stops at", "help break lists it")
        return self._added(point)

    def watch(self, words: str, chosen: int) -> Point:
        """A watch, as `watch` takes it; without a PE, of the chosen one.

        Raises:
            CstoolError: a program has no such variable
        """
        what, at = split_at(words)
        if not what:
            raise CstoolError("watch: must be followed by a variable", "for example watch y[2] at 1.0")
        pes = [chosen] if at is None else pes_named(self._program, at)
        ranges = {}
        for pe in pes:
            program = self._program.program_of(pe)
            if program is not None:
                ranges[pe] = find(program, what)
        text = f"watch {what}{place_text(self._program, frozenset(pes))}"
        return self._added(Watch(self._number + 1, text, frozenset(pes), ranges))

    def delete(self, words: str) -> list[Point]:
        """Take away a breakpoint by its number, or `all`; return them.

        Raises:
            CstoolError: there is no such breakpoint
        """
        numbers = [point.number for point in self.all]
        if words == "all":
            gone = self.all
        else:
            number = whole("a breakpoint", words)
            gone = [point for point in self.all if point.number == number]
            if not gone:
                has = ", ".join(map(str, numbers)) or "none"
                raise CstoolError(
                    f"delete: must be followed by the number of a breakpoint, or all, got {words}", f"there are: {has}"
                )
        self.all = [point for point in self.all if point not in gone]
        return gone

    def tasks(self) -> list[str]:
        """Names of tasks, and of functions that the host may launch."""
        return sorted(_tasks(self._program))

    def hit(self, moment: Moment, replay: Replay) -> str | None:
        """The reasons to stop at a moment, a line each; None: there is none."""
        reasons = [reason for point in self.all if (reason := point.hit(moment, replay)) is not None]
        return "\n".join(reasons) or None

    def refresh(self, replay: Replay) -> None:
        """Take the present state as known."""
        for point in self.all:
            point.refresh(replay)

    def state(self) -> tuple[list[Point], int]:
        """All of them, and the number of the last one that was made."""
        return self.all, self._number

    def adopt(self, points: list[Point], number: int) -> None:
        """Take these in place of the present ones."""
        self.all, self._number = points, number

    def _added(self, point: Point) -> Point:
        self._number = point.number
        self.all.append(point)
        return point

    def _color(self, rest: list[str]) -> tuple[int, str]:
        way = rest[1] if len(rest) == 2 else ""
        if not rest or len(rest) > 2 or way not in ACTS:
            got = " ".join(rest) or "nothing"
            raise CstoolError(f"break color: must be followed by N, N arrives or N leaves, got {got}")
        color = whole("a color", rest[0])
        known = sorted(self._program.routes)
        if color not in known:
            names = ", ".join(map(str, known)) or "none"
            raise CstoolError(f"a color must have a route in this program, got {color}", f"with routes: {names}")
        return color, way

    def _task(self, name: str) -> str:
        names = self.tasks()
        if name not in names:
            near = nearest(name, [*names, *self._sources.functions])
            hint = f"did you mean {near}?" if near else f"its tasks: {', '.join(names)}"
            raise CstoolError(
                f"break: must be followed by a task, a function, FILE:LINE, color N, pe X.Y or cycle N, got {name}",
                hint,
            )
        return name


def _tasks(program: FabricProgram) -> set[str]:
    found: set[str] = set()
    for each in program.programs:
        found |= {task.function for task in (*each.tasks.values(), *each.control_tasks.values())}
        found |= {symbol.function for symbol in each.symbols.values() if symbol.kind == "function"}
    return found


def whole(what: str, text: str) -> int:
    """A whole number.

    Raises:
        CstoolError: it is none
    """
    plain = text.replace(",", "")
    if not (plain.isascii() and plain.isdecimal()):
        raise CstoolError(f"{what} must be a whole number, got {text or 'nothing'}")
    return int(plain)


def names(points: Iterable[Point]) -> list[str]:
    """Breakpoints, a line each."""
    return [f"{point.number:3}  {point.text}" for point in points]
