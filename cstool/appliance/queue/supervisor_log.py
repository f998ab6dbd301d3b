"""The log of a supervisor: a line with its time for each thing it did, and never more than a limit."""

from __future__ import annotations

import datetime
import os
from contextlib import suppress
from pathlib import Path

from cstool.foundation.plain_text import one_line

LOG_NAME = "supervisor.log"
LIMIT_BYTES = 1_000_000
"""largest size of the log before it is put aside as `supervisor.log.1`, where it replaces the one before [bytes]"""


class SupervisorLog:
    """A log file. Lines that cannot be written, as on a full disk, are lost: a log is no reason to stop.

    Args:
        folder: of the log
        limit_bytes: see `LIMIT_BYTES`
    """

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.path, self._limit_bytes = folder / LOG_NAME, limit_bytes
        self._before = ""

    def say(self, text: str) -> None:
        """Write a line, unless it is the same as the one before."""
        if text == self._before:
            return
        self._before = text
        now = datetime.datetime.now().astimezone()
        line = f"{now:%Y-%m-%dT%H:%M:%S.%f%z} {os.getpid()}: {one_line(text)}\n"
        with suppress(OSError):
            descriptor = self.open()
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)

    def open(self) -> int:
        """Open it to append, also for the stderr of a child; it is emptied first where it is too long.

        It is copied and emptied, not renamed: processes that have it open go on in the same file.

        Raises:
            OSError: it cannot be opened
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self.path, flags, 0o600)
        with suppress(OSError):
            if os.fstat(descriptor).st_size > self._limit_bytes:
                self._put_aside(descriptor)
        return descriptor

    def _put_aside(self, descriptor: int) -> None:
        """Copy the end of the log to `supervisor.log.1`, and empty it."""
        aside = self.path.with_name(f"{LOG_NAME}.1")
        size = os.fstat(descriptor).st_size
        kept = os.pread(descriptor, self._limit_bytes, max(0, size - self._limit_bytes))
        aside.unlink(missing_ok=True)
        try:
            copy = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.write(copy, kept)
            finally:
                os.close(copy)
        finally:
            os.ftruncate(descriptor, 0)
