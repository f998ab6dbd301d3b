"""The engine, compiled: by one process, once for each state of its sources, ahead of time or when it is needed."""

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from cstool.csl.fast.kernels import ENTRIES, engine_folder, signature_of
from cstool.foundation.atomic_file import NoLocksError, lock_file, write_replacing
from cstool.foundation.safe_python import python

CACHE_VARIABLE = "CSTOOL_CACHE_DIR"
"""names the folder of caches (`foundation.folders`)"""
_MARK = "whole"
_WAIT_S = 0.2
_LEAST_PRIORITY = 19


def is_compiled() -> bool:
    """Whether the machine code is there."""
    folder = engine_folder().path
    return folder is not None and (folder / _MARK).is_file()


def compile_engine() -> None:
    """Make the machine code, or load it; where another run makes it, wait for that one."""
    folder = engine_folder().path
    lock = None
    while folder is not None and not is_compiled():
        try:
            lock = lock_file(folder / "compile.lock")
            break
        except BlockingIOError:
            time.sleep(_WAIT_S)
        except (OSError, NoLocksError):
            break
    try:
        _compile(folder)
    finally:
        if lock is not None:
            os.close(lock)


def _compile(folder: Path | None) -> None:
    """Compile all entries, and note that they are there."""
    import cstool.csl.fast.engine  # noqa: F401 - it makes all entries

    for each in ENTRIES:
        each.compile(signature_of(each))
    if folder is not None and not is_compiled():
        with suppress(OSError):
            write_replacing(folder / _MARK, "")


def begin_compiling() -> None:
    """Let a process of least priority make the machine code for the runs to come; it says nothing, nor if it fails.

    Not in a folder that somebody chose: it may be removed as soon as this run is over.
    """
    if CACHE_VARIABLE in os.environ:
        return
    nowhere = subprocess.DEVNULL
    with suppress(OSError, ValueError):
        subprocess.Popen(
            python("-m", "cstool.csl.fast.ahead"), stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
        )


def main() -> None:
    """Compile when cores are idle, unless another process does. Runs do not wait for this one: they are sooner."""
    folder = engine_folder().path
    if folder is None or is_compiled():
        return
    os.nice(_LEAST_PRIORITY)
    with suppress(OSError, NoLocksError):
        lock_file(folder / "ahead.lock")  # until the process ends
        _compile(folder)


if __name__ == "__main__":
    main()
