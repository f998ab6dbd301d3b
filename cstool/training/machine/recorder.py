"""The real course of a few steps, recorded by the threads that run them.

Every thread has a tape of its own, so threads never wait for each other, and results are the same with and without.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from cstool.model.ir import Panel
from cstool.training.kernels.call import Weights
from cstool.training.machine.csx import GrainSlot
from cstool.training.machine.plan import PlannedOp

FIRST, LAST = 2, 4
"""steps of a run that are recorded, if it has that many: kernels and buffers are there from the first one on"""
SHORTEST_WAIT_S = 1e-5
"""a shorter wait is not recorded: most panels are there when they are asked for [s]"""
NOTHING = nullcontext()
"""a span that is not recorded"""


Arguments: TypeAlias = dict[str, str | int | float]
"""facts of a span beside its name"""


class Span(NamedTuple):
    """A span of time; times are of `time.perf_counter`."""

    process: str
    kind: str
    """of the work there: a thread has a lane for each"""
    name: str
    start_s: float
    end_s: float
    arguments: Arguments


class Gradients(NamedTuple):
    """Number of gradients at a time."""

    at_s: float
    waiting: int
    """in SwarmX, for their sibling"""
    buffers: int
    """of gradients that are computed, wait or are applied"""
    buffer_bytes: int
    """of all buffers, including unused ones"""


class Tape:
    """The recording of one thread.

    Args:
        thread: name of its lanes; empty if there is one thread only
    """

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self.spans: list[Span] = []
        self.gradients: list[Gradients] = []
        self.streamed: list[tuple[float, int]] = []
        """(when, bytes that MemoryX had sent out by then)"""
        self.depth = 0
        """spans that have begun and not ended"""

    @contextmanager
    def span(self, process: str, kind: str, name: str, arguments: Arguments) -> Iterator[None]:
        """Record the work within a context, however it ends."""
        self.depth += 1
        start_s = time.perf_counter()
        try:
            yield
        finally:
            self.spans.append(Span(process, kind, name, start_s, time.perf_counter(), arguments))
            self.depth -= 1

    def wait(self, process: str, kind: str, start_s: float, arguments: Arguments) -> None:
        """Record a wait since a time [s], unless that is short."""
        end_s = time.perf_counter()
        if end_s - start_s >= SHORTEST_WAIT_S:
            self.spans.append(Span(process, kind, "wait", start_s, end_s, arguments))


class Recorder:
    """Records the steps 2 to 4 of a run, or all of one that has fewer than four.

    The recording spans from the beginning of the first of them to the end of the last, and the updates and the commit
    of the last to their end.
    """

    def __init__(self, start: int, last: int) -> None:
        is_short = last - start < LAST
        self.first, self.last = (start + 1, last) if is_short else (start + FIRST, start + LAST)
        self.step = 0
        """the last step whose recording began; 0 before the first"""
        self.is_on = start < last and is_short
        """whether it is time to record; batches are read before the first step"""
        self.streamed_bytes = 0
        """traffic out of MemoryX so far [bytes]"""
        self.tapes: list[Tape] = []
        self._steps = self._new(Tape(""))
        self._of_thread = threading.local()

    @classmethod
    def of(cls, first: int, last: int) -> Recorder:
        """A recorder of the steps from the first to the last, which is off."""
        found = cls(0, 0)
        found.first, found.last = first, last
        return found

    def covers(self, step: int) -> bool:
        """Return whether a step is to be recorded."""
        return self.first <= step <= self.last

    def step_span(self, step: int) -> AbstractContextManager[None]:
        """Record a step, from here on all its spans."""
        self.step, self.is_on = step, True
        return self._steps.span("Appliance", "steps", f"step {step}", {"step": step})

    def here(self) -> Tape:
        """The tape of this thread."""
        tape: Tape | None = getattr(self._of_thread, "tape", None)
        if tape is None:
            tape = self._of_thread.tape = self._new(Tape(threading.current_thread().name.replace("_", " ")))
        return tape

    def lane(self, index: int, systems: Sequence[int]) -> LaneTape:
        """Make a tape for a lane that works for some systems."""
        return self._new(LaneTape(self, index, systems))

    def use(self, tape: Tape) -> None:
        """Have this thread go on with a tape."""
        self._of_thread.tape = tape

    def batch(self, number: int) -> AbstractContextManager[None]:
        """Record the reading of a batch, if it is time."""
        return self.here().span("Input workers", "batches", "read", {"batch": number}) if self.is_on else NOTHING

    def waited_for_input(self, start_s: float) -> None:
        """Record a wait of the appliance for a batch since a time [s], if it is time."""
        if self.is_on:
            self._steps.wait("Appliance", "steps", start_s, {"what": "input"})

    def in_memoryx(self, step: int, kind: str, name: str, **more: int) -> AbstractContextManager[None]:
        """Record the work for an update or the commit of a step, if that step is recorded."""
        return self.here().span("MemoryX", kind, name, {"step": step, **more}) if self.covers(step) else NOTHING

    def waited_for_commit(self, step: int, start_s: float) -> None:
        """Record a wait of an update for the commit before it since a time [s], if its step is recorded."""
        if self.covers(step):
            self.here().wait("MemoryX", "updates", start_s, {"step": step, "what": "commit"})

    def request(self, what: str, size_bytes: int, start_s: float) -> None:
        """Record a request to the file of MemoryX that ends now."""
        tape = self.here()
        if self.is_on or tape.depth:
            end_s = time.perf_counter()
            tape.spans.append(Span("MemoryX", "reads and writes", what, start_s, end_s, {"bytes": size_bytes}))

    def _new(self, tape: _TapeT) -> _TapeT:
        self.tapes.append(tape)
        return tape


class LaneTape(Tape):
    """The recording of one lane, while its recorder is on."""

    def __init__(self, recorder: Recorder, index: int, systems: Sequence[int]) -> None:
        super().__init__(f"lane {index}")
        self.recorder = recorder
        self.index = index
        self.systems = [f"CSX {system}" for system in systems]

    def begin(self) -> None:
        """Have the thread that calls go on with this tape."""
        if self.recorder.is_on:
            self.recorder.use(self)

    def kernel(
        self, planned: PlannedOp, phase: str, slot: GrainSlot, panel: Panel | None
    ) -> AbstractContextManager[None]:
        """Record the work on a grain of an op, with one panel of its matrix, or of one without."""
        if not self.recorder.is_on:
            return NOTHING
        assert slot.grain is not None
        arguments: Arguments = {"step": self.recorder.step, "grain": slot.grain}
        if panel is not None:
            arguments["panel"] = panel.index
        return self.span(f"CSX {slot.system}", "compute", f"{planned.op.name} {phase}", arguments)

    def settle(self, planned: PlannedOp, slot: GrainSlot) -> None:
        """Settle the deltas of an op, and take that down if there is anything to do."""
        if planned.settles:
            with self.kernel(planned, "settle", slot, None):
                slot.settle(planned)

    def keep(self, call: Callable[[int], None]) -> None:
        """Call a function that waits for other lanes with the number of this one; record the duration."""
        began = time.perf_counter()
        call(self.index)
        if self.recorder.is_on:
            self._waited(began, {"step": self.recorder.step, "what": "other lanes"})

    def acquire(self, call: Callable[[Panel], Weights], panel: Panel) -> Weights:
        """Acquire a panel, and record the wait for it."""
        began = time.perf_counter()
        weights = call(panel)
        if not self.recorder.is_on:
            return weights
        recorder = self.recorder
        if isinstance(weights, np.ndarray):
            size_bytes = weights.nbytes
        else:
            size_bytes = weights.values.nbytes + weights.pattern.size_bytes
        what: Arguments = {"step": recorder.step, "what": panel.weight, "panel": panel.index, "bytes": size_bytes}
        self._waited(began, what)
        if self.index == 0:  # every lane acquires every panel, which streams once; of experts only the needed ones
            recorder.streamed_bytes += size_bytes
            self.streamed.append((time.perf_counter(), recorder.streamed_bytes))
        return weights

    def _waited(self, start_s: float, arguments: Arguments) -> None:
        for system in self.systems:
            self.wait(system, "compute", start_s, arguments)

    def gradient(self, process: str, kind: str, panel: Panel, op: str, **more: int) -> AbstractContextManager[None]:
        """Record the addition, or the receiving, of gradients of a panel."""
        if not self.recorder.is_on:
            return NOTHING
        arguments: Arguments = {"step": self.recorder.step, "weight": panel.weight, "panel": panel.index, **more}
        return self.span(process, kind, f"{op} {kind}", arguments)

    def count(self, waiting: int, buffers: int, buffer_bytes: int) -> None:
        """Record the number of gradients, see `Gradients`."""
        if self.recorder.is_on:
            self.gradients.append(Gradients(time.perf_counter(), waiting, buffers, buffer_bytes))


_TapeT = TypeVar("_TapeT", bound=Tape)
OFF = Recorder(0, 0)
"""records nothing"""
