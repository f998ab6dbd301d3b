"""Commands that start a Python process: with -P, so that no file of the working directory stands in for a module.

The working directory may come from anyone: a folder with a `mpi4py.py` in it, or a model trained by others.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "PYTHONSAFEPATH"


def python(*words: str) -> list[str]:
    """Return the command of this Python with these arguments."""
    return [sys.executable, "-P", *words]


def this_program() -> list[str]:
    """Return the words that start this program, ahead of the arguments typed behind its name."""
    return python(*sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv[1:])])


@contextmanager
def safe_children() -> Iterator[None]:
    """Within the context, make -P hold for Python processes that a library starts by a command of its own."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
