"""The output of a run for TensorBoard: its scalars, in a file of its own in the folder of the events."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cstool.training.run.report.event_file import restart_event, scalars_event, version_event

log = logging.getLogger("cstool")
PREFIX = "events.out.tfevents."


class Events:
    """Writes scalars as TensorBoard reads them. Use as a context manager.

    The file is made with the first scalars. It holds whole records at any time. Records that cannot be written are
    lost, with one warning: curves are not worth a run. Once there is room again, later scalars are written.

    Args:
        folder: of the file; None for no events
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.path: Path | None = None
        """the file; None until there is one"""
        self._descriptor: int | None = None
        self._size_bytes = 0
        self._restarts_at: int | None = None
        self._warned = False

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    def train_from(self, step: int) -> None:
        """Make earlier files' records of a step, and of later steps, invalid: they run again."""
        self._restarts_at = step

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write some scalars.

        Args:
            step: of the run, from 1; of an evaluation that after which it was made
            values: by tag
        """
        if self.folder is None or not values:
            return
        now = time.time()
        record = scalars_event(now, step, values)
        try:
            if self._descriptor is None:
                self._open(self.folder, now)
            if self._restarts_at is not None:
                self._append(restart_event(now, self._restarts_at))
                self._restarts_at = None
            self._append(record)
        except OSError as error:
            if not self._warned:
                self._warned = True
                log.warning(
                    f"{self.folder}: events cannot be written, got: {error.strerror}. The run goes on; TensorBoard "
                    "will lack what comes until they can."
                )

    def _open(self, folder: Path, now: float) -> None:
        """Make a file whose name comes after the existing ones: TensorBoard reads them in that order."""
        folder.mkdir(parents=True, exist_ok=True)
        begun = (path.name.removeprefix(PREFIX).partition(".")[0] for path in folder.glob(f"{PREFIX}*"))
        newest = max((int(second) for second in begun if second.isdecimal()), default=0)
        path = folder / f"{PREFIX}{max(int(now), newest + 1)}.{socket.gethostname()}"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self.path, self._size_bytes = path, 0

    def _append(self, record: bytes) -> None:
        """Write a record, or nothing of it."""
        assert self._descriptor is not None
        if not self._size_bytes:
            record = version_event(time.time()) + record
        try:
            written = 0
            while written < len(record):
                written += os.write(self._descriptor, record[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size_bytes)
            raise
        self._size_bytes += len(record)
