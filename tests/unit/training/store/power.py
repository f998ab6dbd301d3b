"""A disk that forgets what nobody made sure of when the power fails."""

import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock


class Killed(BaseException):
    """The process is no more."""


class Power:
    """Stands between this process and its files, until `close`.

    It notes which bytes and names the system was told of but not asked to make sure of, and can end the process
    (by `Killed`) at any call: a write half done, another call before or after it.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        """since `kill_at`"""
        self._kill_at: int | None = None
        self._lost_bytes: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        """by the inode: what was there before each write"""
        self._lost_names: dict[Path, bytes | None] = {}
        """what files of these names held before they were replaced"""
        patches = {name: self._guarding(name) for name in ("pwritev", "fdatasync", "fsync", "replace")}
        self._patch = mock.patch.multiple(os, **patches)
        self._patch.start()

    def close(self) -> None:
        self._patch.stop()

    def kill_at(self, number: int | None) -> None:
        """End the process at call `number // 2` from here on; None: let it live."""
        self._kill_at, self.calls = number, []

    def fail(self, folder: Path, copy: Path, lost: Callable[[], bool]) -> None:
        """Copy a folder as it might be after a failure of the power.

        Args:
            folder: with files
            copy: a folder that is not there yet
            lost: says of each thing that nobody made sure of whether it is lost
        """
        shutil.copytree(folder, copy)
        for path, before in self._lost_names.items():
            if path.parent == folder and lost():
                (copy / path.name).unlink()
                if before is not None:
                    (copy / path.name).write_bytes(before)
        for path in copy.iterdir():
            with open(path, "r+b") as file:
                for offset, before in reversed(self._lost_bytes[os.stat(folder / path.name).st_ino]):
                    if lost():
                        os.pwrite(file.fileno(), before, offset)

    def _guarding(self, name: str) -> Callable[..., Any]:
        original, note = getattr(os, name), getattr(self, f"_note_{name}")

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            dies = self._kill_at is not None and len(self.calls) - 1 == self._kill_at // 2
            if dies and name == "pwritev":
                descriptor, (data,), *rest = arguments
                arguments = (descriptor, [data[: len(data) // 2]], *rest)
            elif dies and self._kill_at is not None and self._kill_at % 2 == 0:
                raise Killed
            note(*arguments)
            result = original(*arguments)
            if dies:
                raise Killed
            return result

        return call

    def _note_pwritev(self, descriptor: int, buffers: list[memoryview], offset: int, _flags: int = 0) -> None:
        before = os.pread(descriptor, sum(map(len, buffers)), offset)
        self._lost_bytes[os.fstat(descriptor).st_ino].append((offset, before))

    def _note_fdatasync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self._lost_bytes.pop(found.st_ino, None)
        if stat.S_ISDIR(found.st_mode):
            self._lost_names.clear()

    _note_fsync = _note_fdatasync

    def _note_replace(self, _old: Path, new: Path) -> None:
        self._lost_names[new] = new.read_bytes() if new.exists() else None
