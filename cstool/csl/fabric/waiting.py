"""Waits on a PE when nothing moves any more: `PE.waiting()` gives them to a deadlock report.

`network.Waiting` is its kind for routers. The waits are plain facts; `wait_graph` links them with each other.
"""

from dataclasses import dataclass
from typing import Literal

MAIN = "main"
"""the thread that tasks run on; others are "microthread 0" and so on"""


@dataclass(frozen=True)
class ThreadWait:
    """An operation that has begun and cannot go on, or cannot begin.

    Args:
        pe: index of its PE, y * width + x
        thread: `MAIN`, or "microthread N"
        operation: its name without the @: "fmovs"
        kind: "receive" and "send" wavelets; "pop" and "push" elements of a FIFO; "thread": a microthread that is taken
        task: name of the task that runs it, or that started it; "" if unknown
        place: its place in the source: "pe.csl:40:5"; the task's place if its own is unknown
        queue: the input or output queue
        color: color of the queue
        number: of the FIFO ("pop", "push") or of the microthread ("thread")
        done: elements done
        extent: elements of all
        activates: tasks that its end would activate, by id
        unblocks: tasks (input queues, plus 64) that its end would unblock
    """

    pe: int
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


@dataclass(frozen=True)
class TaskWait:
    """A task that is activated, or has wavelets, and does not run.

    Args:
        pe: index of its PE
        task: its id
        name: name of its function
        place: its place in the source
        blocked: whether it is blocked; False: it waits for the main thread
        wavelets: in its queue, for a data task
        color: color of these wavelets
    """

    pe: int
    task: int
    name: str
    place: str = ""
    blocked: bool = True
    wavelets: int = 0
    color: int | None = None


@dataclass(frozen=True)
class QueueWait:
    """Wavelets that came up the ramp, and that neither an operation nor a data task takes.

    Args:
        pe: index of the PE
        queue: the input queue
        color: of the wavelets
        count: number of wavelets
        blocked: whether the queue is blocked
    """

    pe: int
    queue: int
    color: int
    count: int
    blocked: bool = False
