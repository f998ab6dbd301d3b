"""Events on the fabric, cycle by cycle: recorded by the hook of a simulation, kept in a file, read again.

The hook is `on_trace(time, pe_index, kind, *fields)`:

- `"task"`: a task begins; its name. `"task_end"`: likewise.
- `"op"`: an operation begins; its thread ("main", "microthread 3"), its name, its place in the source. `"op_end"`:
  likewise, without the place.
- `"hop"`: a wavelet leaves a router; the port it leaves by, its color, its data, whether it is a control wavelet.
- `"queue"`: an act of `ACTS` at a queue; the act, the queue's number or None, then as of a hop.
- `"turn"`: a color at a router has another route from now on; the color, its input ports, its output ports (sets, as of
  `program.Route`), the switch position.

The hook `on_line`, `Recorder.line`, tells a line of the source as it begins. A `RunContext` has the rest.
An event takes 26 bytes of memory at most, and less in the file.
"""

import io
import json
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.arch import ARCHS, PORTS
from cstool.csl.fabric.arrays import DAMAGE, check_numbers, read_arrays, read_file
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.fabric.run_context import RunContext, context_of, read_context
from cstool.csl.fabric.time_model import SIMULATOR, TIME_MODELS, TimeModel
from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import TraceError

FORMAT = 4
KINDS = ("task", "task_end", "op", "op_end")
ACTS = ("written", "full", "sent", "refused", "came", "starved", "taken")
"""an output queue: a wavelet goes in, an operation waits for room, a wavelet goes onto the ramp, the router has no room
for one; an input queue: a wavelet comes, an operation waits for one, a wavelet is taken (its data is not told: 0)"""
NO_QUEUE = 255
"""number of the own queue of a color (WSE-2)"""
MOST_EVENTS = 5_000_000
"""events that are kept; later ones are not recorded, and the file says so"""
_MARK = (("time", "Q"), ("pe", "I"), ("kind", "B"), ("thread", "H"), ("name", "I"), ("place", "I"))
_HOP = (("time", "Q"), ("pe", "I"), ("port", "B"), ("color", "B"), ("data", "I"), ("control", "B"))
_QUEUE = (("time", "Q"), ("pe", "I"), ("act", "B"), ("queue", "B"), ("color", "B"), ("data", "I"), ("control", "B"))
_TURN = (("time", "Q"), ("pe", "I"), ("color", "B"), ("rx", "B"), ("tx", "B"), ("position", "B"))
_LINE = (("time", "Q"), ("pe", "I"), ("place", "I"))
_TABLES = {"mark": _MARK, "hop": _HOP, "queue": _QUEUE, "turn": _TURN, "line": _LINE}
Columns = dict[str, NDArray[Any]]


class Recorder:
    """The hook of a simulation: `Simulation(program, on_trace=recorder)`.

    Args:
        program: the simulated program
        most: events that are kept
        time_model: of the simulation
    """

    def __init__(self, program: FabricProgram, most: int = MOST_EVENTS, time_model: TimeModel = SIMULATOR) -> None:
        self._program = program
        self._time_model = time_model
        self._left = most
        self._words: dict[str, int] = {}
        self._places = {"": 0}
        self._tables = {table: {name: array(letter) for name, letter in columns} for table, columns in _TABLES.items()}
        self._hops = self._tables["hop"]
        self.context = context_of(program)

    def __call__(self, time: int, pe: int, kind: str, *fields: Any) -> None:
        """Note one event."""
        if self._left <= 0:
            self._left = -1
            return
        self._left -= 1
        if kind == "hop":
            for column, value in zip(self._hops.values(), (time, pe, *fields), strict=True):
                column.append(value)
            return
        if kind == "queue":
            act, queue, *wavelet = fields
            row = (time, pe, ACTS.index(act), NO_QUEUE if queue is None else queue, *wavelet)
            self._add("queue", *row)
            return
        if kind == "turn":
            self._add("turn", time, pe, *fields)
            return
        thread, name, *place = fields if len(fields) > 1 else ("main", fields[0])
        mark = (time, pe, KINDS.index(kind), self._word(thread), self._word(name), self._place("".join(place)))
        self._add("mark", *mark)

    def line(self, time: int, pe: int, place: str) -> None:
        """Note that a line of the source begins."""
        self._left -= 1
        if self._left >= 0:
            self._add("line", time, pe, self._place(place))

    def _add(self, table: str, *row: int) -> None:
        for column, value in zip(self._tables[table].values(), row, strict=True):
            column.append(value)

    def _word(self, text: str) -> int:
        return self._words.setdefault(text, len(self._words))

    def _place(self, text: str) -> int:
        return self._places.setdefault(text, len(self._places))

    def save(self, path: Path) -> None:
        """Write the recording.

        Raises:
            TraceError: it cannot be written
        """
        program = self._program
        about = {
            "format": FORMAT,
            "arch": program.arch,
            "time": self._time_model.name,
            "width": program.width,
            "height": program.height,
            "words": list(self._words),
            "places": list(self._places),
            "programs": [each.name for each in program.programs],
            "is_cut": self._left < 0,
            "context": self.context.plain(),
        }
        arrays = {
            f"{table}_{name}": np.asarray(each)
            for table, columns in self._tables.items()
            for name, each in columns.items()
        }
        arrays |= self.context.arrays()
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        np.savez_compressed(buffer, about=text, tiles=program.tiles, **arrays)  # type: ignore[arg-type]
        try:
            write_replacing(path, buffer.getvalue())
        except OSError as error:
            raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from error


@dataclass(frozen=True)
class Recorded:
    """A trace that was read.

    Args:
        arch: of the wafer
        time: name of the model of time
        width, height: PEs of the rectangle
        programs: names of programs
        tiles: [height, width], index into `programs` for each PE; -1 for none
        words: names of threads, tasks and operations
        places: places in the source, "pe.csl:40:5"; the first one is "", for none
        marks: columns of begins and ends: time, pe, kind (in `KINDS`), thread and name (in `words`), place (in
            `places`)
        hops: columns of wavelets: time, pe, port, color, data, control
        queues: columns of acts at queues: time, pe, act (in `ACTS`), queue, color, data, control
        turns: columns of changes of routes: time, pe, color, rx, tx, position
        lines: columns of lines that begin: time, pe, place (in `places`)
        context: the program, the host and the end of the run
        is_cut: whether later events were not recorded
    """

    arch: str
    time: str
    width: int
    height: int
    programs: tuple[str, ...]
    tiles: NDArray[np.int32]
    words: tuple[str, ...]
    places: tuple[str, ...]
    marks: Columns
    hops: Columns
    queues: Columns
    turns: Columns
    lines: Columns
    context: RunContext
    is_cut: bool

    @property
    def last(self) -> int:
        """The last cycle of all: of an event of any kind, and of the run."""
        tables = (self.marks, self.hops, self.queues, self.turns, self.lines)
        return max(self.context.cycles, *(int(each["time"].max(initial=0)) for each in tables))

    @property
    def end(self) -> int:
        """The last cycle of tasks, operations and wavelets."""
        return max((int(times.max()) for times in (self.marks["time"], self.hops["time"]) if len(times)), default=0)


class Place(NamedTuple):
    """A PE by column and row."""

    x: int
    y: int

    def __str__(self) -> str:
        return f"PE {self.x}.{self.y}"


def read_trace(path: Path) -> Recorded:
    """Read the file of a `Recorder`.

    Raises:
        TraceError: the file is missing, or no trace
    """
    try:
        arrays = read_arrays(read_file(path))
        about = json.loads(arrays["about"].tobytes())
        if about["format"] != FORMAT:
            raise ValueError
        marks, hops, queues, turns, lines = (
            {name: arrays[f"{table}_{name}"] for name, _ in columns} for table, columns in _TABLES.items()
        )
        programs, words = tuple(map(str, about["programs"])), tuple(map(str, about["words"]))
        width, height = int(about["width"]), int(about["height"])
        found = Recorded(
            arch=ARCHS[about["arch"]].name,
            time=TIME_MODELS[about["time"]].name,
            width=width,
            height=height,
            programs=programs,
            tiles=arrays["tiles"],
            words=words,
            places=tuple(map(str, about["places"])),
            marks=marks,
            hops=hops,
            queues=queues,
            turns=turns,
            lines=lines,
            context=read_context(about["context"], arrays, (height, width), len(programs)),
            is_cut=bool(about["is_cut"]),
        )
        _check(found)
        return found
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except DAMAGE as error:
        hint = "`cstool fabric run DIR --trace FILE` records one"
        raise TraceError(f"{path}: must be a trace of a fabric, it is not, or is damaged", hint) from error


def _check(trace: Recorded) -> None:
    """Check that the parts of a trace go together, or raise ValueError."""
    pes = trace.width * trace.height
    below = {"pe": pes, "kind": len(KINDS), "thread": len(trace.words), "name": len(trace.words), "port": len(PORTS)}
    below |= {"act": len(ACTS), "place": len(trace.places)}
    check_numbers(trace.tiles, (trace.height, trace.width), len(trace.programs))
    for columns in (trace.marks, trace.hops, trace.queues, trace.turns, trace.lines):
        count = len(columns["time"])
        for name, column in columns.items():
            if column.shape != (count,) or column.dtype.kind not in "iu":
                raise ValueError(f"{name} is no column of numbers")
            if count and not (int(column.min()) >= 0 and int(column.max()) < below.get(name, 2**64)):
                raise ValueError(f"{name} has a number of nothing")
