"""Views of a recorded trace: one PE, one link, and all of it as a file for Perfetto."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cstool.csl.fabric.arch import PORTS, RAMP
from cstool.csl.fabric.trace import KINDS, Place, Recorded
from cstool.foundation.chrome_trace import Trace
from cstool.foundation.words import counted

BESIDE = 8
"""largest gap in cycles between two wavelets of one color in a run"""
CYCLE_S = 1e-6
"""a cycle in the file for Perfetto is a microsecond there, so that its times are cycles"""


class Span(NamedTuple):
    """A stretch of time on one thread of a PE.

    Args:
        begin, end: cycles
        thread: "main" or "microthread 3"
        name: "task sum" or "@fadds"
        is_over: whether it ended; else `end` is the end of the trace
    """

    begin: int
    end: int
    thread: str
    name: str
    is_over: bool = True


class Run(NamedTuple):
    """Wavelets of one color that leave a router by one port, close behind each other.

    Args:
        begin, end: cycles of the first and the last
        port: their output port
        color: their color
        wavelets: number of wavelets
        controls: control wavelets among them
    """

    begin: int
    end: int
    port: int
    color: int
    wavelets: int
    controls: int


class Hop(NamedTuple):
    """One wavelet that leaves a router."""

    time: int
    color: int
    data: int
    control: bool


def spans(trace: Recorded, pe: int) -> list[Span]:
    """Spans of a PE, by begin; outer ones first."""
    marks, mine = trace.marks, np.flatnonzero(trace.marks["pe"] == pe)
    begun: dict[tuple[str, str], list[int]] = {}
    found = []
    # Later acts of a task may be noted ahead of events that happen meanwhile.
    for row in mine[np.argsort(marks["time"][mine], kind="stable")]:
        time, kind = int(marks["time"][row]), KINDS[marks["kind"][row]]
        thread, word = trace.words[marks["thread"][row]], trace.words[marks["name"][row]]
        name = f"task {word}" if kind.startswith("task") else f"@{word}"
        open_ones = begun.setdefault((thread, name), [])
        if not kind.endswith("_end"):
            open_ones.append(time)
        elif open_ones:
            found.append(Span(open_ones.pop(), time, thread, name))
    for (thread, name), times in begun.items():
        found += [Span(time, trace.end, thread, name, is_over=False) for time in times]
    return sorted(found, key=lambda span: (span.begin, -span.end, span.name.startswith("@"), span.name))


def hops(trace: Recorded, pe: int, port: int) -> list[Hop]:
    """Wavelets that left the router of a PE by a port."""
    columns = trace.hops
    rows = np.flatnonzero((columns["pe"] == pe) & (columns["port"] == port))
    picked = (columns[name][rows].tolist() for name in ("time", "color", "data", "control"))
    return [Hop(time, color, data, bool(control)) for time, color, data, control in zip(*picked, strict=True)]


def runs(trace: Recorded, pe: int, port: int) -> list[Run]:
    """The same, wavelets close behind each other as one run, by begin."""
    last: dict[int, Run] = {}
    found = []
    for hop in hops(trace, pe, port):
        run = last.get(hop.color)
        if run is not None and hop.time - run.end <= BESIDE:
            last[hop.color] = run._replace(end=hop.time, wavelets=run.wavelets + 1, controls=run.controls + hop.control)
            continue
        if run is not None:
            found.append(run)
        last[hop.color] = Run(hop.time, hop.time, port, hop.color, 1, int(hop.control))
    return sorted([*found, *last.values()])


def chrome_trace(trace: Recorded, title: str, places: Sequence[Place] = ()) -> Trace:
    """The trace for Perfetto: a process for each PE, a lane for each thread and each port that wavelets left by.

    Args:
        trace: all of it
        title: of the file
        places: PEs to show; () for all with events
    """
    made = Trace(title, "simulated")
    for pe in _wanted(trace, places):
        program = int(trace.tiles[divmod(pe, trace.width)])
        at = Place(pe % trace.width, pe // trace.width)
        process = str(at) if program < 0 else f"{at} {trace.programs[program]}"
        for span in spans(trace, pe):
            more = {} if span.is_over else {"unfinished": "the trace ends before it"}
            made.span(process, span.thread, span.name, span.begin * CYCLE_S, span.end * CYCLE_S, **more)
        for port in range(len(PORTS)):
            lane = "wavelets in, from the router" if port == RAMP else f"wavelets out to the {PORTS[port]}"
            for run in runs(trace, pe, port):
                # Runs of several colors may lie in each other's gaps: each color has a lane.
                on, end = f"{lane}, color {run.color}", (run.end + 1) * CYCLE_S
                made.span(process, on, counted(run.wavelets, "wavelet"), run.begin * CYCLE_S, end, color=run.color)
    return made


def _wanted(trace: Recorded, places: Sequence[Place]) -> Iterator[int]:
    if places:
        yield from (place.y * trace.width + place.x for place in places)
        return
    yield from np.union1d(trace.marks["pe"], trace.hops["pe"]).tolist()
