"""The task picker of a PE: activated and blocked tasks, and the choice of the next one to run.

- A local task is eligible if it is activated and not blocked; activating it twice before it is picked is activating it
  once. A task begins some cycles after it was picked (`TimeModel.switch`).
- A data task is eligible if the head of its queue is a wavelet, no operation reads that queue, and neither the task nor
  its queue is blocked. A control task likewise, by the control wavelet at the head of any queue that names it.
- A blocked task or queue keeps its events (F14).
- Among several, the one with the next higher id after the last one runs, round robin: none can starve. The order of the
  hardware is not published. Tasks of high priority (`<tile_config/task_priority>`) come before all others.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from cstool.csl.fabric import control
from cstool.csl.fabric.memory import decode
from cstool.csl.fabric.operations import BYTES
from cstool.csl.fabric.program import Symbol, Task
from cstool.csl.fabric.queues import InputQueue

QUEUES_FROM = 64
"""Ids from here on are input queues."""

TEARDOWN_TASK = 29
"""The local task that a teardown, or a flushed queue, activates. Ours: 29 and 30 belong to the system (F06)."""


CALL, NOBODY = -1, -2
"""Ids that stand for no task: a call of the host, and a control wavelet that names none and is dropped."""


class Call(NamedTuple):
    """A function that the host launches."""

    time: int
    symbol: Symbol
    arguments: tuple[int | float, ...]


class Picked(NamedTuple):
    """The next to run: a task with its arguments."""

    task: Task
    arguments: tuple[int | float, ...]


class Picker:
    """Tasks of one PE.

    Args:
        tasks: by id
        controls: by id, what control wavelets name: the same, or a table of its own
        blocked: ids that start blocked
        activated: ids that start activated
        queues: input queues that tasks read

    Attributes:
        high: ids of high priority
        ran: ids of tasks that have run
    """

    __slots__ = ("active", "blocked", "calls", "controls", "high", "last", "queues", "ran", "tasks", "unblocked")

    def __init__(
        self,
        tasks: Mapping[int, Task],
        controls: Mapping[int, Task],
        blocked: frozenset[int],
        activated: Sequence[int],
        queues: list[InputQueue],
    ) -> None:
        self.tasks = tasks
        self.controls = controls
        self.blocked = set(blocked)
        self.active: dict[int, int] = dict.fromkeys(activated, -1)
        self.unblocked: dict[int, int] = {}
        self.queues = queues
        self.calls: deque[Call] = deque()
        self.last = -1
        self.high: set[int] = set()
        self.ran: set[int] = set()

    def activate(self, task: int, time: int) -> None:
        """Activate a task; without effect on one that is activated and has not run yet."""
        self.active[task] = min(time, self.active.get(task, time))

    def unblock(self, task: int, time: int) -> None:
        """End the blocking of a task or queue."""
        if task in self.blocked:
            self.blocked.discard(task)
            self.unblocked[task] = time

    def _since(self, time: int, task: int, queue: int | None) -> int | None:
        """Cycle from which an event of `time` may run its task; None while the task, or its queue, is blocked."""
        blocked, unblocked = self.blocked, self.unblocked
        if task in blocked:
            return None
        if unblocked:
            time = max(time, unblocked.get(task, -1))
        if queue is None:
            return time
        if queue + QUEUES_FROM in blocked:
            return None
        return max(time, unblocked.get(queue + QUEUES_FROM, -1)) if unblocked else time

    def _events(self) -> Iterator[tuple[int, InputQueue | None, int]]:
        """All eligible tasks: id, queue, and the cycle since when."""
        for task, time in self.active.items():
            since = self._since(time, task, None)
            if since is not None:
                yield task, None, since
        for queue in self.queues:
            if not queue.items:
                continue
            time, data, is_control = queue.items[0]
            if is_control:
                if queue.user is not None and queue.user.on_control is not None:
                    continue
                found: int | None = control.decode(data).task
                if found not in self.controls:
                    found = NOBODY
            else:
                found = queue.task if queue.user is None else None
            if found is None:
                continue
            since = self._since(time, found, queue.number)
            if since is not None:
                yield found, queue, since

    def candidate(self, now: int) -> tuple[int, InputQueue | None] | None:
        """Id and queue of the next task to run if the main thread is free at `now`; `CALL` is the id of a host call.

        Events of this very cycle do not count: the order inside a cycle must not matter.
        """
        best: tuple[int, InputQueue | None] | None = None
        best_rank = 2 * QUEUES_FROM
        for task, queue, since in self._events():
            rank = (task - self.last - 1) % QUEUES_FROM + (0 if task in self.high else QUEUES_FROM)
            if since < now and rank < best_rank:
                best, best_rank = (task, queue), rank
        if best is None and self.calls and self.calls[0].time < now:
            return CALL, None
        return best

    def next_time(self) -> int | None:
        """Cycle since when there is an eligible task; None if there is none."""
        times = [since for _, _, since in self._events()]
        if self.calls:
            times.append(self.calls[0].time)
        return min(times, default=None)

    def take(self, task: int, queue: InputQueue | None) -> Picked | None:
        """Take the event of a candidate; None if there is no task for it."""
        if queue is None:
            self.last = task
            self.ran.add(task)
            del self.active[task]
            return Picked(self.tasks[task], ())
        is_control = queue.items[0][2]
        data = queue.take()
        if task < 0:
            return None
        self.last = task
        self.ran.add(task)
        found = (self.controls if is_control else self.tasks)[task]
        if found.kind == "control":
            data = control.decode(data).data
        return Picked(found, arguments(found.argument, data))


def arguments(letters: Sequence[str], data: int) -> tuple[int | float, ...]:
    """Arguments of a task from the 32 bits of a wavelet: low bits first."""
    found: list[int | float] = []
    for letter in letters:
        found.append(decode(letter, data))
        data >>= 8 * BYTES[letter]
    return tuple(found)
