"""The trace file of a run: the recordings of its threads, on lanes that people can read."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from cstool.foundation.chrome_trace import Trace
from cstool.foundation.errors import TraceError
from cstool.foundation.words import counted
from cstool.training.machine.recorder import OFF, Recorder, Span
from cstool.training.run.session import Session

log = logging.getLogger("cstool")

PROCESSES = ("Appliance", "Input workers", "MemoryX", "SwarmX")
"""in the order in which they are shown, before the systems"""
KINDS = ("steps", "batches", "updates", "receive", "commits", "reads and writes", "reduce", "compute")
"""of lanes, in the order in which they are shown"""


@contextmanager
def recorded(session: Session, start: int, last: int) -> Iterator[Recorder]:
    """Record steps within the context, and write the trace at its end, if one is asked for.

    It is written however the context ends: then it has the recording so far.

    Raises:
        TraceError: it cannot be written
    """
    if session.order.trace is None:
        yield OFF
        return
    recorder = Recorder(start, last)
    try:
        yield recorder
    except BaseException:
        try:
            _write(session, recorder)
        except TraceError as error:
            log.warning(error.message)
        raise
    if recorder.step:
        recorder.tapes += session.appliance.others.tapes()
    _write(session, recorder)


@contextmanager
def recorded_step(session: Session, recorder: Recorder, step: int) -> Iterator[None]:
    """Record a step, if it is one of the steps to record."""
    if not recorder.covers(step):
        yield
        return
    if step == recorder.first:
        session.appliance.record(recorder)
    with recorder.step_span(step):
        yield
    if step == recorder.last:
        recorder.is_on = False
        session.appliance.record(OFF)


def _write(session: Session, recorder: Recorder) -> None:
    path = session.order.trace
    assert path is not None
    if not recorder.step:
        log.info(f"No trace was written to {path}: the run ended before step {recorder.first}.")
        return
    several = recorder.step > recorder.first
    steps = f"steps {recorder.first} to {recorder.step}" if several else f"step {recorder.first}"
    machine = f"{session.params.num_csx} CSX, {counted(len(session.cluster.lanes), 'lane')}"
    trace_of(recorder, f"{session.params.model.name}, {steps}, {machine}").write(path)
    log.info(f"Trace of {steps} written to {path} (measured on this host).")


def trace_of(recorder: Recorder, title: str) -> Trace:
    """The recorded spans as a trace.

    Args:
        recorder: other threads may still record their work
    """
    trace = Trace(title, "measured")
    tapes = list(recorder.tapes)
    lanes: dict[tuple[str, str, str], list[Span]] = {}
    for tape in tapes:
        for span in list(tape.spans):
            lanes.setdefault((span.process, span.kind, tape.thread), []).append(span)
    for place in sorted(lanes, key=lambda place: _place(*place)):
        process, kind, thread = place
        lane = f"{thread}: {kind}" if thread else kind
        for span in lanes[place]:
            trace.span(process, lane, span.name, span.start_s, span.end_s, **span.arguments)
    for tape in tapes:
        for at_s, size_bytes in list(tape.streamed):
            trace.counter("MemoryX", "streamed", at_s, bytes=size_bytes)
        for found in list(tape.gradients):
            trace.counter("SwarmX", "gradients in flight", found.at_s, waiting=found.waiting)
            trace.counter("SwarmX", "buffers", found.at_s, used=found.buffers)
            trace.counter("SwarmX", "memory of buffers", found.at_s, bytes=found.buffer_bytes)
    return trace


def _place(process: str, kind: str, thread: str) -> tuple[int, list[int | str], int, list[int | str]]:
    """Sort key of a lane: process, kind, thread."""
    number = PROCESSES.index(process) if process in PROCESSES else len(PROCESSES)
    return number, _in_order(process), KINDS.index(kind), _in_order(thread)


def _in_order(name: str) -> list[int | str]:
    """Sort key of a name: numbers in it count as numbers."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
