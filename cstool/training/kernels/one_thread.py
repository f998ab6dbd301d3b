"""One thread for BLAS. Lanes are the only parallelism of a run, and with two threads BLAS may give other bits."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from threadpoolctl import threadpool_info, threadpool_limits

from cstool.foundation.errors import ClusterError

T = TypeVar("T")


class _State:
    """Of this process: BLAS has one number of threads for all its callers."""

    lock = threading.Lock()
    users = 0
    limits: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute each product in the thread that calls BLAS, until the last user of this context has left it.

    Raises:
        ClusterError: another thread of this process holds BLAS to more
    """
    with _State.lock:
        if not _State.users:
            _State.limits = _in_a_thread(lambda: threadpool_limits(1, user_api="blas"))
            most = max((found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"), default=1)
            if most > 1:
                _in_a_thread(_State.limits.restore_original_limits)
                raise ClusterError(
                    f"BLAS: must compute with one thread while a model runs, a thread of this process has set {most}",
                    "`with threadpool_limits(...):` lets go of it in the end, a call without `with` does not",
                )
        _State.users += 1
    try:
        yield
    finally:
        with _State.lock:
            _State.users -= 1
            if not _State.users:
                # Where the interpreter ends meanwhile, no thread begins, and nobody computes any more.
                with suppress(RuntimeError):
                    _in_a_thread(_State.limits.restore_original_limits)


def _in_a_thread(work: Callable[[], T]) -> T:
    """Do something in a thread that ends with it.

    The first thread that limits OpenBLAS is the only one that can, as long as it lives (threadpoolctl 3.7 and later).
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()
