"""The engine, compiled: by one process, once for each state of its sources, ahead of time or when it is needed."""

import os
import subprocess
import time
from contextlib import suppress

from cstool.csl.fast.kernels import ENTRIES, engine_folder, signature_of
from cstool.foundation.atomic_file import NoLocksError, lock_file, write_replacing
from cstool.foundation.safe_python import python

_MARK = "whole"
_WAIT_S = 0.2
_LEAST_PRIORITY = 19


def is_compiled() -> bool:
    """Whether the machine code is there."""
    folder = engine_folder().path
    return folder is not None and (folder / _MARK).is_file()


def compile_engine() -> None:
    """Make the machine code, or load it; where another process makes it, wait for that one."""
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
        import cstool.csl.fast.engine  # noqa: F401 - it makes all entries

        for each in ENTRIES:
            each.compile(signature_of(each))
        if lock is not None and folder is not None:
            with suppress(OSError):
                write_replacing(folder / _MARK, "")
    finally:
        if lock is not None:
            os.close(lock)


def begin_compiling() -> None:
    """Let a process of least priority make the machine code for the runs to come; it says nothing, nor if it fails."""
    nowhere = subprocess.DEVNULL
    with suppress(OSError, ValueError):
        subprocess.Popen(
            python("-m", "cstool.csl.fast.ahead"), stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
        )


def main() -> None:
    """Compile, when cores are idle."""
    os.nice(_LEAST_PRIORITY)
    compile_engine()


if __name__ == "__main__":
    main()
