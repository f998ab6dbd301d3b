"""The output of a run: files that grow to a limit, and then begin anew."""

from __future__ import annotations

import os
from contextlib import suppress

_CHUNK_BYTES = 2**16


class LimitedLog:
    """A file that a run appends to. When it is too long, its text moves to `<name>.1`, and it is cut to nothing.

    The run keeps the file open, so the file stays, and a reader that follows it sees it become shorter. On a full disk
    the older text goes first, and if that does not help, this one.

    Args:
        folder: descriptor of the folder that it is in
        limit_bytes: 0 for no limit [bytes]
    """

    def __init__(self, folder: int, name: str, limit_bytes: int) -> None:
        self._folder, self._name, self._limit_bytes = folder, name, limit_bytes
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self.descriptor = os.open(name, flags, 0o600, dir_fd=folder)

    def limit(self) -> None:
        """Begin anew if it is too long."""
        if not 0 < self._limit_bytes < os.fstat(self.descriptor).st_size:
            return
        older = f"{self._name}.1"
        for _ in range(2):
            try:
                self._copy(older)
                break
            except OSError:
                self._remove(older)
        os.ftruncate(self.descriptor, 0)

    def _copy(self, name: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(name, flags, 0o600, dir_fd=self._folder)
        try:
            at = 0
            # As long as something comes, but not for as long as something comes.
            while at < 2 * self._limit_bytes and (chunk := os.pread(self.descriptor, _CHUNK_BYTES, at)):
                at += os.write(target, chunk)
        finally:
            os.close(target)

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self._folder)
