"""A terminal with a person in front of it: what is on its screen while and after a command runs."""

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


class Terminal:
    """Takes what a command writes on the file descriptors 0, 1 and 2 of this process as a terminal would."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._written = bytearray()

    @contextmanager
    def attached(self, *, stdout: int | None = None) -> Iterator[None]:
        """Be the terminal of this process; `stdout` is a file descriptor that goes elsewhere."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, self.columns, 0, 0))
        sys.stdout.flush()
        sys.stderr.flush()
        kept, streams = [os.dup(number) for number in range(3)], (sys.stdout, sys.stderr)
        reader = threading.Thread(target=self._read, args=(master,))
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

    def shown(self, code: int) -> Shown:
        """Return what all that was written has made of the screen."""
        screen = pyte.Screen(self.columns, ROWS)
        stream = pyte.Stream(screen)
        passing: list[str] = []
        for piece in self._written.decode().split("\r"):
            row = screen.buffer[screen.cursor.y]
            line = "".join(row[x].data for x in range(self.columns)).rstrip()
            passing += [line] if line else []
            stream.feed(f"\r{piece}")
        lines = [line.rstrip() for line in screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return Shown(code, lines, [line for line in passing if line not in lines])

    def _read(self, master: int) -> None:
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # Linux says so when nobody can write any more
                return
            if not piece:
                return
            self._written += piece


def on_terminal(columns: int, command: Callable[[], int], *, stdout: int | None = None) -> Shown:
    """Run a command on a terminal that is so wide; return what was seen."""
    terminal = Terminal(columns)
    with terminal.attached(stdout=stdout):
        code = command()
    return terminal.shown(code)
