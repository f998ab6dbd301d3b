"""The datapath of one PE: an element a cycle, of a microthread or else of the operation that the main thread waits for.

A second operation on a busy microthread waits for it, and the task stands still at the statement until then.
"""

from typing import TYPE_CHECKING

from cstool.csl.fabric import vector
from cstool.csl.fabric.errors import read_twice
from cstool.csl.fabric.microthread import PRIORITIES, Thread
from cstool.csl.fabric.queues import InputQueue
from cstool.csl.fabric.wavelet import Event

if TYPE_CHECKING:
    from cstool.csl.fabric.pe import ProcessingElement


MAIN_FIRST = tuple(frozenset(names.split()) for names in ("", "low", "low", "low medium", "low medium high"))
"""priorities of microthreads that the main thread goes before, by its own, from LOW to HIGH"""


class Datapath:
    """Operations in progress.

    Args:
        pe: the PE

    Attributes:
        threads: operations of microthreads; operations of equal priority take turns
        synchronous: the operation that the main thread waits for
        queued: the operation that waits for a busy microthread, if any
        ticked: the last cycle in which an element was done
        main_first: priorities of microthreads that the main thread goes before
        elements: elements of vector operations done, including operations on memory alone
    """

    def __init__(self, pe: "ProcessingElement") -> None:
        self._pe = pe
        self.threads: list[Thread] = []
        self.synchronous: Thread | None = None
        self.queued: Thread | None = None
        self.ticked = -1
        self.elements = 0
        self._events = pe.simulation.events
        self._ramp = pe.ramp
        self._numbered: dict[int, Thread] = {}
        self.main_first: frozenset[str] = MAIN_FIRST[0]
        self._one_priority = True
        self._event: Event = (self._tick, ())
        self._planned = -1  # the cycle that a tick was asked for last
        self._last: Thread | None = None  # whose element was the last one
        self._turn_quarters = pe.time_model.turn
        self._turning = 0  # quarters of a cycle of turns that are not taken yet
        self._free = 0  # no element before this cycle

    def all(self) -> list[Thread]:
        """Operations that have begun: the main thread's first."""
        return self.threads if self.synchronous is None else [self.synchronous, *self.threads]

    def busy(self) -> bool:
        """Whether an operation has begun, and not ended."""
        return bool(self.threads) or self.synchronous is not None

    def free_number(self) -> int:
        """The highest idle microthread; the highest of all if there is none."""
        count = self._pe.arch.microthreads
        return next((number for number in reversed(range(count)) if number not in self._numbered), count - 1)

    # --- operations begin and end ---

    def ask(self, thread: Thread, time: int) -> bool:
        """Begin the operation of a microthread, once it is free; true if it is busy: the task must stand still."""
        if thread.number not in self._numbered:
            self.begin(thread, time)
            return False
        assert self.queued is None, "a task that waits for a microthread must not go on"
        self.queued = thread
        return True

    def begin(self, thread: Thread, time: int) -> None:
        """Begin an operation: its thread is busy from `time` on."""
        pe = self._pe
        thread.begin(time + vector.START)
        for queue, color in zip(thread.inputs, thread.colors, strict=True):
            queue.shared = queue.user is not None
            if queue.user is not None and pe.arch.name == "wse2":
                raise pe.error(read_twice(thread.name, queue.label, queue.user.name, queue.user.label), thread.task)
            if pe.program.recolored:
                self._ramp.recolor(queue, color)
            queue.user = thread
        if thread.number is None:
            self.synchronous = thread
        else:
            self._numbered[thread.number] = thread
            self.threads.append(thread)
            self._set_priorities()
        if pe.trace is not None:
            pe.trace(time, pe.index, "op", thread.label, thread.name, pe.place_of(thread))
        self.tick_at(thread.ready)

    def finish(self, thread: Thread, time: int) -> None:
        """End an operation."""
        pe, number = self._pe, thread.number
        thread.close()
        if thread is self._last:
            self._last = None
        self.elements += thread.done
        for queue in thread.inputs:
            if queue.user is thread:
                queue.user = self._other_user(queue, thread)
        if pe.trace is not None:
            pe.trace(time, pe.index, "op_end", thread.label, thread.name)
        pe.registers.save(thread.operands, thread.done)
        if number is not None:
            self.threads.remove(thread)
            self._set_priorities()
            del self._numbered[number]
        pe.main.complete(thread.settings, time)
        for queue in thread.inputs:
            if queue.user is None and queue.items:
                pe.main.wake(time)
        if number is None:
            self.synchronous = None
            pe.main.go_on(max(time, thread.ready if thread.call else 0))
        elif self.queued is not None and self.queued.number == number:
            pe.main.let_go(time)

    def _other_user(self, queue: InputQueue, ended: Thread) -> Thread | None:
        """Another operation that reads a queue; None if there is none (several may on WSE-3)."""
        others = [*self.threads, self.synchronous]
        return next((each for each in others if each is not None and each is not ended and queue in each.inputs), None)

    def begin_queued(self, time: int) -> bool:
        """Begin the operation that waits for a microthread, if there is one; false if it must wait on."""
        thread = self.queued
        if thread is None:
            return True
        if thread.number in self._numbered:
            return False
        self.queued = None
        self.begin(thread, time)
        return True

    def _set_priorities(self) -> None:
        self._one_priority = len({thread.settings.priority for thread in self.threads}) < 2

    # --- cycles ---

    def tick_at(self, time: int) -> None:
        """Look at the threads in cycle `time`."""
        if time != self._planned:
            self._planned = time
            self._events.put(time, self._event)

    def stir(self) -> None:
        """Look at all threads again after a change that several may wait for."""
        for thread in self.threads:
            thread.stalled = False
        if self.synchronous is not None:
            self.synchronous.stalled = False

    def _tick(self) -> None:
        """One cycle: an element of one thread, and a wavelet from one output queue."""
        now = self._events.now
        if self.ticked == now:
            return
        self.ticked = now
        moved = False
        threads = self.threads
        if now >= self._free:
            first = threads if self._one_priority else self._by_priority()
            if self.main_first:
                moved = self._advance_around_main(first, now)
            else:
                moved = (bool(first) and self._advance(first, now)) or self._advance_main(now)
        ramp = self._ramp
        sent = bool(ramp.sending) and ramp.sent_at != now and ramp.drain(now)
        if ramp.flushing:
            ramp.flush_empty(now + 1)
        if ramp.sending and (moved or sent):
            self.tick_at(now + 1)
        if now < self._free - 1:
            self.tick_at(self._free)
        elif moved or (sent and (threads or self.synchronous is not None)):
            self.tick_at(now + 1)

    def _main_ends(self) -> int:
        """The cycle in which the main thread has done its own work; a past one where it waits."""
        pe = self._pe
        return pe.base + pe.cycles + pe.main.lost if self.synchronous is None else -1

    def _advance_main(self, now: int) -> bool:
        """Do an element of the operation that the main thread waits for, if there is one that can go on."""
        main = self.synchronous
        if main is None or main.stalled or main.ready > now or not main.step(now):
            return False
        if main is not self._last:
            self._turn(main, now)
        return True

    def _advance_around_main(self, threads: list[Thread], now: int) -> bool:
        """`_advance` where the main thread goes before some threads."""
        later = [thread for thread in threads if thread.settings.priority in self.main_first]
        first = [thread for thread in threads if thread not in later]
        if self._advance(first, now) or self._advance_main(now):
            return True
        ends = self._main_ends()
        if now < ends and later:
            self.tick_at(ends)
            return False
        return self._advance(later, now)

    def _advance(self, threads: list[Thread], now: int) -> bool:
        """Do an element of the first of some threads that can go on; false if none can."""
        pe, mine = self._pe, self.threads
        taken = self.synchronous is None and now < pe.base + pe.cycles + pe.main.lost  # `_main_ends`, without a call
        for thread in threads:
            if not thread.stalled and thread.ready <= now and thread.step(now):
                if len(mine) > 1 and thread.done < thread.count and thread in mine:
                    # The one that has waited longest goes first.
                    mine.remove(thread)
                    mine.append(thread)
                if taken:
                    # The main thread has work of its own, and loses this cycle.
                    pe.main.lost += 1
                if thread is not self._last:
                    self._turn(thread, now)
                return True
        return False

    def _turn(self, thread: Thread, now: int) -> None:
        """An element was done: the datapath turns to its operation, if another one has done the element before."""
        if self._last is not None:
            quarters = self._turning + self._turn_quarters
            self._free, self._turning = now + 1 + quarters // 4, quarters % 4
        self._last = thread if thread.done < thread.count else None

    def _by_priority(self) -> list[Thread]:
        return sorted(self.threads, key=lambda thread: PRIORITIES[thread.settings.priority])
