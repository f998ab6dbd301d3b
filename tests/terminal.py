"""A terminal with a person in front of it: what is on its screen while and after a command runs."""

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pyte

ROWS = 300
"""so many that nothing scrolls away"""


class Shown(NamedTuple):
    """What a person has seen."""

    code: int
    lines: list[str]
    """of the screen at the end, without blanks at their ends"""
    passing: list[str]
    """lines that were drawn over later, such as bars"""


def on_terminal(columns: int, command: Callable[[], int], *, stdout: int | None = None) -> Shown:
    """Run a command on a terminal that is so wide; return what was seen.

    Args:
        stdout: a file descriptor that goes elsewhere
    """
    written = bytearray()
    with attached(columns, written, stdout):
        code = command()
    screen = pyte.Screen(columns, ROWS)
    stream = pyte.Stream(screen)
    passing: list[str] = []
    for piece in written.decode().split("\r"):
        row = screen.buffer[screen.cursor.y]
        line = "".join(row[x].data for x in range(columns)).rstrip()
        passing += [line] if line else []
        stream.feed(f"\r{piece}")
    lines = [line.rstrip() for line in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    return Shown(code, lines, [line for line in passing if line not in lines])


@contextmanager
def attached(columns: int, written: bytearray, stdout: int | None) -> Iterator[None]:
    """Take what this process writes on the file descriptors 0, 1 and 2 as a terminal would."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    sys.stdout.flush()
    sys.stderr.flush()
    kept, streams = [os.dup(number) for number in range(3)], (sys.stdout, sys.stderr)

    def read() -> None:
        with suppress(OSError):  # Linux says so when nobody can write any more
            while piece := os.read(master, 65536):
                written.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number, goes_to in enumerate((slave, slave if stdout is None else stdout, slave)):
            os.dup2(goes_to, number)
        os.close(slave)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = streams
        for number, before in enumerate(kept):
            os.dup2(before, number)
            os.close(before)
        # With the last descriptor of the other end closed the reader comes to the end.
        reader.join()
        os.close(master)
