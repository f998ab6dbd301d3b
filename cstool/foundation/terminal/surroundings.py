"""Surroundings of a process at its start: open streams, and memory.

On stdout and stderr control characters are shown in place of obeyed, from any source.
"""

import io
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TextIO, cast

from cstool.foundation.errors import CstoolError
from cstool.foundation.plain_text import lines

_STREAMS = ("stdin", "stdout", "stderr")
_MIB = 2**20

LEAST_BYTES = 192 * _MIB
"""address space for NumPy and HDF5"""
KERNELS_BYTES = 768 * _MIB
"""address space for compiled kernels and their compiler as well"""
THREAD_BYTES = 128 * _MIB
"""address space that a thread reserves: its stack, its arena, and its buffer of BLAS"""
_COMPUTING = frozenset({"run", "validate", "convert", "host"})
"""words of the commands that load compiled kernels: `checkpoint convert`, `estimate --system host`"""


def open_streams() -> None:
    """Open the null device for each standard stream that was closed when the process began.

    Otherwise the next file that is opened would take its place, and prints would go into that file. Characters outside
    the encoding of a terminal are shown as a question mark.
    """
    for descriptor, name in enumerate(_STREAMS):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, so this one
            if name != "stdin":  # reads of it report that it is closed
                setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def drop(stream: TextIO) -> None:
    """Discard later output to a stream, and so the interpreter's last flush of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def lack_of_room(arguments: Sequence[str]) -> CstoolError | None:
    """Return an error if the address space of this process is too small for a command; else None.

    Libraries do not take that well: OpenBLAS asks for memory for ever, LLVM aborts, and others are not found.

    Args:
        arguments: arguments of the command line
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    command = next((word for word in arguments if not word.startswith("-")), "")
    computes = _COMPUTING.intersection(arguments)
    threads = max(os.cpu_count() or 1, _asked_lanes(arguments))
    need = KERNELS_BYTES + THREAD_BYTES * threads if computes else LEAST_BYTES
    if limit >= need:
        return None
    return CstoolError(
        f"the address space of this process is limited to {limit // 1024:,} kB, and cstool {command} must have "
        f"{need // 1024:,}",
        "ulimit -v unlimited lifts the limit of a shell; memory alone is limited by a control group",
    )


def _asked_lanes(arguments: Sequence[str]) -> int:
    """Return the number behind `--lanes`; 0 if there is none, or an invalid one, which is refused later."""
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--lanes=") else [word])]
    found = [number for word, number in pairwise(words) if word == "--lanes" and number.isascii() and number.isdigit()]
    return int(found[-1][:9]) if found else 0


class HarmlessStream:
    """A stream of text that obeys line ends and tabs alone; all else it leaves to the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self.behind = stream

    def write(self, text: str) -> int:
        """Write a text; control characters in it are shown."""
        return self.behind.write(lines(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream that takes everything: for drawing on a terminal, and for text that goes through a pipe."""
    return stream.behind if isinstance(stream, HarmlessStream) else stream


@contextmanager
def harmless_streams() -> Iterator[None]:
    """Let stdout and stderr be harmless."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, HarmlessStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
