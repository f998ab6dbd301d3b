"""The task picker of a PE: which tasks are activated or blocked, and which one runs next.

- A local task is eligible if it is activated and not blocked; activating it twice before it runs is activating it once.
- A data task is eligible if the head of its queue is a wavelet, no operation reads that queue, and neither the task nor
  its queue is blocked. A control task likewise, by the control wavelet at the head of any queue that names it.
- What is blocked keeps its events (F14).
- Among several, the one with the next higher id after the last one runs, round robin: none can starve. What the
  hardware does is not published.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from cstool.fabric import control
from cstool.fabric.memory import decode
from cstool.fabric.operations import BYTES
from cstool.fabric.program import Task
from cstool.fabric.queues import InputQueue

SWITCH = 3
"""Cycles from when a task can run until it does. Ours: "within a few cycles" is all that is published (F14)."""

QUEUES_FROM = 64
"""Ids from here on are input queues."""

TEARDOWN_TASK = 29
"""The local task that a teardown, or a flushed queue, activates. Ours: 29 and 30 belong to the system (F06)."""


class Call(NamedTuple):
    """A function that the host launches."""

    time: int
    function: str
    arguments: tuple[int | float, ...]


class Picked(NamedTuple):
    """What runs next: a task with its arguments."""

    task: Task
    arguments: tuple[int | float, ...]


class Picker:
    """Tasks of one PE.

    Args:
        tasks: by id
        blocked: ids that start blocked
        activated: ids that start activated
        queues: input queues that tasks read
    """

    __slots__ = ("_ids", "active", "blocked", "calls", "last", "queues", "tasks", "unblocked")

    def __init__(
        self,
        tasks: "dict[int, Task]",
        blocked: "frozenset[int]",
        activated: Sequence[int],
        queues: Sequence[InputQueue],
    ) -> None:
        self.tasks = tasks
        self.blocked = set(blocked)
        self.active: dict[int, int] = dict.fromkeys(activated, -1)
        self.unblocked: dict[int, int] = {}
        self.queues = queues
        self.calls: deque[Call] = deque()
        self.last = -1

    def activate(self, task: int, time: int) -> None:
        """An event for a task; a further one before it runs is none."""
        if task not in self.active:
            self.active[task] = time

    def unblock(self, task: int, time: int) -> None:
        """End the blocking of a task or queue."""
        if task in self.blocked:
            self.blocked.discard(task)
            self.unblocked[task] = time

    def _open(self, task: int, queue: int | None, now: int) -> bool:
        """Whether neither a task nor its queue is blocked, and was not until this very cycle."""
        if task in self.blocked or self.unblocked.get(task, -1) >= now:
            return False
        if queue is None:
            return True
        return queue + QUEUES_FROM not in self.blocked and self.unblocked.get(queue + QUEUES_FROM, -1) < now

    def candidate(self, now: int) -> tuple[int, InputQueue | None] | None:
        """Id and queue of what would run if the main thread were free; the id of a call of the host is -1."""
        best: tuple[int, InputQueue | None] | None = None
        best_rank = QUEUES_FROM
        for task, time in self.active.items():
            if time < now and self._open(task, None, now):
                rank = (task - self.last - 1) % QUEUES_FROM
                if rank < best_rank:
                    best, best_rank = (task, None), rank
        for queue in self.queues:
            items = queue.items
            if not items or items[0][0] >= now:
                continue
            if items[0][2]:
                if queue.user is not None and queue.user.on_control is not None:
                    continue
                found: int | None = control.decode(items[0][1]).task
                if found not in self.tasks:
                    # Nothing to do for it: it is dropped as if a task of no cycles had taken it.
                    found = -2
            else:
                found = queue.task if queue.user is None else None
            if found is None or not self._open(found, queue.number, now):
                continue
            rank = (found - self.last - 1) % QUEUES_FROM
            if rank < best_rank:
                best, best_rank = (found, queue), rank
        if best is None and self.calls and self.calls[0].time < now:
            return -1, None
        return best

    def waiting(self, now: int) -> bool:
        """Whether something would be eligible if it had not come in this very cycle."""
        return self.candidate(now + 1) is not None

    def take(self, task: int, queue: InputQueue | None) -> Picked | None:
        """Take the event of a candidate; None if there is nothing to run for it."""
        if queue is None:
            self.last = task
            del self.active[task]
            return Picked(self.tasks[task], ())
        data = queue.take()
        if task < 0:
            return None
        self.last = task
        found = self.tasks[task]
        if found.kind == "control":
            data = control.decode(data).data
        return Picked(found, arguments(found.argument, data))


def arguments(letters: Sequence[str], data: int) -> tuple[int | float, ...]:
    """What a task gets of the 32 bits of a wavelet: low bits first."""
    found: list[int | float] = []
    for letter in letters:
        found.append(decode(letter, data))
        data >>= 8 * BYTES[letter]
    return tuple(found)
