"""Waits of the threads, tasks and queues of one PE, as reports on deadlocks need them."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from cstool.csl.fabric.microthread import Thread
from cstool.csl.fabric.scheduler import QUEUES_FROM
from cstool.csl.fabric.waiting import MAIN, PEWait, QueueWait, TaskWait, ThreadWait

if TYPE_CHECKING:
    from cstool.csl.fabric.pe import ProcessingElement


def waits_of(pe: "ProcessingElement") -> Iterator[PEWait]:
    """All waits of a PE; none if it has nothing to do."""
    for thread in pe.datapath.all():
        wait = _wait_of(pe, thread)
        if wait is not None:
            yield wait
    yield from _queued(pe)
    blocked = pe.main.picker.blocked
    for task_id in sorted(pe.main.picker.active):
        task = pe.program.tasks[task_id]
        yield TaskWait(pe.index, task_id, task.function, task.place, task_id in blocked)
    yield from _arrived(pe)


def _wait_of(pe: "ProcessingElement", thread: Thread) -> ThreadWait | None:
    """The wait of an operation that has begun; None if it can go on."""
    activate, unblock = thread.settings.activate, thread.settings.unblock
    wait = partial(
        ThreadWait,
        pe=pe.index,
        thread=thread.label,
        operation=thread.name,
        task=thread.task.function if thread.task else "",
        place=_place_of(pe, thread),
        done=thread.done,
        extent=thread.count,
        activates=() if activate is None else (activate,),
        unblocks=() if unblock is None else (unblock,),
    )
    for queue in thread.inputs:
        if not queue.items or queue.items[0][2]:
            return wait(kind="receive", queue=queue.number, color=queue.color)
    output, pushed = thread.output, thread.pushed
    if output is not None and len(output.items) >= output.capacity:
        return wait(kind="send", queue=output.number, color=thread.up.color if thread.up else None)
    for ring in thread.popped:
        if not ring.length:
            return wait(kind="pop", number=pe.fifos.index(ring))
    if pushed is not None and pushed.length >= pushed.buffer.capacity:
        return wait(kind="push", number=pe.fifos.index(pushed))
    return None


def _place_of(pe: "ProcessingElement", thread: Thread) -> str:
    """Place of an operation in the source: from the comment on its line of the code, else the place of its task."""
    lines = pe.program.code.splitlines()
    _, comment, place = lines[thread.line - 1].rpartition("  # ") if 0 < thread.line <= len(lines) else ("",) * 3
    return place if comment else thread.task.place if thread.task else ""


def _queued(pe: "ProcessingElement") -> Iterator[PEWait]:
    """Operations that wait for a busy microthread: the main thread waits with them."""
    for number, queued in sorted(pe.datapath.queued.items()):
        for thread, _ in queued:
            yield ThreadWait(
                pe.index,
                MAIN,
                thread.name,
                "thread",
                thread.task.function if thread.task else "",
                _place_of(pe, thread),
                number=number,
                extent=thread.count,
            )


def _arrived(pe: "ProcessingElement") -> Iterator[PEWait]:
    """Queues with wavelets that no operation reads, and their tasks."""
    blocked = pe.main.picker.blocked
    for color, queue in sorted(pe.ramp.inputs.items()):
        if not queue.items or queue.user is not None:
            continue
        count = len(queue.items)
        is_blocked = queue.number is not None and queue.number + QUEUES_FROM in blocked
        if queue.task is None:
            yield QueueWait(pe.index, -1 if queue.number is None else queue.number, color, count, is_blocked)
        else:
            task = pe.program.tasks[queue.task]
            is_blocked = is_blocked or queue.task in blocked
            yield TaskWait(pe.index, queue.task, task.function, task.place, is_blocked, count, color)
