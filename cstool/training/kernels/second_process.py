"""A second process that compiles kernels: beside a run that waits for them, or, as a program, for the runs to come.

A thread would not do: compiling holds Python's lock. Where such a process fails, a run compiles all by itself.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cstool.foundation.atomic_file import NoLocksError, lock_file
from cstool.foundation.safe_python import python
from cstool.training.kernels._cache import kernel_folder
from cstool.training.kernels.compile import BFLOAT16_KERNELS, all_kernels, compile_from_the_end, compile_missing

_WATCH_S = 0.2
_LEAST_PRIORITY = 19
_running: list[subprocess.Popen[bytes]] = []


@contextmanager
def second_process(needs: Collection[str]) -> Iterator[None]:
    """Within the context, another process compiles kernels into the cache that this one has not come to.

    There is at most one: a context within another takes over its process, and ends it.

    Args:
        needs: see `compile_kernels`
    """
    if not _running:
        _begin(needs)
    try:
        yield
    finally:
        while _running:
            process = _running.pop()
            # At most it compiles kernels that are here by now.
            process.kill()
            process.wait()


def _begin(needs: Collection[str]) -> None:
    if not sys.executable:
        return
    words = [f"import {__name__} as it", f"it.follow({os.getpid()}, {[*needs]})"]
    # Most of its memory stays, and looking for garbage again and again takes a fifth of the time before it begins.
    code = "; ".join(["import gc, sys", "gc.set_threshold(50_000)", "sys.path[:] = sys.argv[1:]", *words])
    path = [folder or os.getcwd() for folder in sys.path]
    nowhere = subprocess.DEVNULL
    with suppress(OSError, ValueError):
        _running.append(subprocess.Popen(python("-c", code, *path), stdin=nowhere, stdout=nowhere, stderr=nowhere))


def follow(parent: int, needs: Collection[str]) -> None:
    """Be the second process of the process `parent`, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told, too, and ends this one
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    compile_from_the_end(needs)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)


def main() -> None:
    """Leave a process behind that compiles the kernels of runs in float32, if no other one does, when cores are idle.

    It says nothing, whatever happens: runs compile the kernels that they miss.
    """
    if os.fork():
        return
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    os.nice(_LEAST_PRIORITY)
    with suppress(OSError):
        # Linux may share the cores out by sessions first. Source: sched(7), the autogroup feature.
        Path("/proc/self/autogroup").write_text(str(_LEAST_PRIORITY))
    folder = kernel_folder().path
    with suppress(OSError, NoLocksError):
        if folder is not None:
            lock_file(folder / "ahead.lock")  # until the process ends
            compile_missing(need for need in all_kernels() if BFLOAT16_KERNELS not in need.split())


if __name__ == "__main__":
    main()
