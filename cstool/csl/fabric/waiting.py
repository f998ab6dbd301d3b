"""Waits when nothing moves any more, for a deadlock report: `PE.waiting()`, `Network.waiting()`.

A wait is a node of `wait_graph`, which links waits. It has words, and advice where a chain of waits ends in it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from cstool.csl.fabric.arch import PORTS, RAMP
from cstool.csl.fabric.wavelet import Wavelet
from cstool.foundation.words import counted

Node = tuple[Any, ...]
MAIN = "main"
"""the thread that tasks run on; others are "microthread 0" and so on"""


@dataclass(frozen=True)
class _AtPE:
    """A wait.

    Args:
        pe: index of its PE, y * width + x
    """

    pe: int
    _key: ClassVar[tuple[str, ...]]
    """the kind of its node, and the fields that tell the node from others of that kind on the PE"""
    _alike: ClassVar[tuple[str, ...]]
    """fields that waits have in common that are reported as one: all but the PE and the counts"""

    @property
    def node(self) -> Node:
        """Its node."""
        return self._key[0], self.pe, *(getattr(self, name) for name in self._key[1:])

    @property
    def likeness(self) -> Node:
        """Equal for waits that are reported as one."""
        return self._key[0], *(getattr(self, name) for name in self._alike)


@dataclass(frozen=True)
class ThreadWait(_AtPE):
    """An operation that has begun and cannot go on, or cannot begin.

    Args:
        thread: `MAIN`, or "microthread N"
        operation: its name without the @: "fmovs"
        kind: "receive" and "send" wavelets; "pop" and "push" elements of a FIFO; "thread": a microthread that is taken
        task: name of the task that runs it, or that started it; "" if unknown
        place: its place in the source: "pe.csl:40:5"; the task's place if its own is unknown
        queue: the input or output queue; None: the color's own
        color: color of the queue
        number: of the FIFO ("pop", "push") or of the microthread ("thread")
        done: elements done
        extent: elements of all
        activates: tasks that its end would activate, by id
        unblocks: tasks (input queues, plus 64) that its end would unblock
    """

    _key = ("thread", "thread")
    _alike = ("thread", "operation", "kind", "place", "color", "number")
    thread: str
    operation: str
    kind: Literal["receive", "send", "pop", "push", "thread"]
    task: str = ""
    place: str = ""
    queue: int | None = None
    color: int | None = None
    number: int | None = None
    done: int = 0
    extent: int = 0
    activates: tuple[int, ...] = ()
    unblocks: tuple[int, ...] = ()

    @property
    def node(self) -> Node:
        """Its node. One that has not begun stands behind the others of its thread."""
        return super().node if self.kind != "thread" else ("thread", self.pe, f"behind microthread {self.number}")

    @property
    def advice(self) -> str:
        """Advice where a chain ends in it."""
        if self.kind in ("pop", "push"):
            return "the other end of the FIFO: nothing takes from it, or puts into it, any more"
        return f"what was to receive color {self.color}, and how many wavelets that is"

    def __str__(self) -> str:
        started = f", started by task {self.task}" if self.task else ""
        main = f"task {self.task}" if self.task else "main thread"
        who = main if self.thread == MAIN else f"{self.thread}{started}"
        at = f", {self.place}," if self.place else ""
        done = f"{self.done:,} of {self.extent:,}"
        queue = "" if self.queue is None else f" (queue {self.queue})"
        what = {
            "receive": f"for color {self.color}{queue}, {done} wavelets came",
            "send": f"to send color {self.color}{queue}, {done} wavelets sent",
            "pop": f"for FIFO {self.number}, which is empty, {done} elements done",
            "push": f"for FIFO {self.number}, which is full, {done} elements done",
            "thread": f"for microthread {self.number}, which is busy",
        }
        return f"{who}: @{self.operation}{at} waits {what[self.kind]}"


@dataclass(frozen=True)
class TaskWait(_AtPE):
    """A task that is activated, or has wavelets, and does not run.

    Args:
        task: its id
        name: name of its function
        place: its place in the source
        blocked: whether it is blocked; False: it waits for the main thread
        wavelets: in its queue, for a data task
        color: color of these wavelets
    """

    _key = ("task", "task")
    _alike = ("name", "place", "blocked")
    task: int
    name: str
    place: str = ""
    blocked: bool = True
    wavelets: int = 0
    color: int | None = None
    advice = "who is to unblock it: @unblock, or .unblock of an operation that ends"

    def __str__(self) -> str:
        at = f" ({self.place})" if self.place else ""
        has = f"has {counted(self.wavelets, 'wavelet')} of color {self.color}" if self.wavelets else "is activated"
        return f"task {self.name}{at} {has}, but {'is blocked' if self.blocked else 'the main thread is busy'}"


@dataclass(frozen=True)
class QueueWait(_AtPE):
    """Wavelets that came up the ramp, and that neither an operation nor a data task takes.

    Args:
        queue: the input queue; -1: the color's own
        color: of the wavelets
        count: number of wavelets
        blocked: whether the queue is blocked
    """

    _key = ("queue", "queue")
    _alike = ("queue", "color", "blocked")
    queue: int
    color: int
    count: int
    blocked: bool = False

    @property
    def advice(self) -> str:
        """Advice where a chain ends in it."""
        return f"a task bound to color {self.color}, or an operation that receives it: nothing takes what came"

    def __str__(self) -> str:
        but = "is blocked" if self.blocked else "nothing takes them"
        queue = "the color's own input queue" if self.queue < 0 else f"input queue {self.queue}"
        return f"{queue} holds {counted(self.count, 'wavelet')} of color {self.color}, but {but}"


@dataclass(frozen=True)
class BufferWait(_AtPE):
    """Wavelets that do not move, in the buffer of a router.

    Args:
        port: the input port whose buffer holds them
        color: their color
        wavelets: contents of the buffer, the head first
        position: switch position of the color
        outputs: ports that the head wants to leave by; () if it may not leave at all
        blocked: output ports that cannot take it: the buffer or queue behind them is full
        reason: the reason of the wait, a phrase: "position 0 takes from EAST only", "color is in teardown", ...
        never: whether no switch position takes wavelets from this port
    """

    _key = ("buffer", "port", "color")
    _alike = ("port", "color", "position", "blocked")
    port: int
    color: int
    wavelets: tuple[Wavelet, ...]
    position: int
    outputs: tuple[int, ...]
    blocked: tuple[int, ...]
    reason: str
    never: bool = False

    @property
    def advice(self) -> str:
        """Advice where a chain ends in it."""
        if self.never:
            come = "its own PE sends" if self.port == RAMP else f"wavelets come from the {PORTS[self.port]}"
            return f"the rx of color {self.color} at this router: {come}, and {PORTS[self.port]} is not in it"
        if not self.outputs:
            return f"which control wavelet, from whom, was to move the switch of color {self.color} at this router"
        return f"what takes color {self.color} behind this router: each wavelet that is sent must be received"

    def __str__(self) -> str:
        held = counted(len(self.wavelets), "wavelet")
        by = "from its own PE" if self.port == RAMP else f"from the {PORTS[self.port]}"
        return f"router: {held} of color {self.color} {by} cannot go on: {self.reason}"


PEWait = ThreadWait | TaskWait | QueueWait
Wait = PEWait | BufferWait
