"""The same task for many jobs, in this process or in several."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from cstool.foundation.errors import DataError
from cstool.foundation.safe_python import safe_children

Job = TypeVar("Job")

_WATCH_S = 0.2
_task: Callable[[Any], None] | None = None


@safe_children()
def do_each(task: Callable[[Job], None], jobs: Sequence[Job], processes: int, done: Callable[[Job], None]) -> None:
    """Do a task for every job.

    Args:
        task: goes to each process once
        jobs: in the order in which they are begun
        processes: number of processes; with one, or for one job, it is this one
        done: told of each job that is done, in this process

    Raises:
        DataError: a process was killed.
        Exception: the first error that a task raises; jobs that were not begun are not done then
    """
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            task(job)
            done(job)
        return
    before = set(multiprocessing.active_children())
    # A fork would take over locks that threads of this process hold.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(processes, len(jobs)), context, _begin, (task, os.getpid()))
    try:
        futures = {pool.submit(_do, job): job for job in jobs}
        for future in as_completed(futures):
            future.result()
            done(futures[future])
    except BrokenProcessPool:
        raise DataError(
            "--processes: every process must live until its work is done, one was killed",
            "fewer processes need less memory; what they finished is kept, the same command goes on from there",
        ) from None
    except KeyboardInterrupt:
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(task: Callable[[Any], None], parent: int) -> None:
    global _task
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told, too, and ends its children
    _task = task
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: int) -> None:
    """End this process when its parent is gone: its work would go unread."""
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)


def _do(job: Any) -> None:
    assert _task is not None
    _task(job)
