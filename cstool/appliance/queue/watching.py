"""Use of the machine by the processes of a job: their numbers, their memory, and the disk space of a folder.

This module is part of the keeper: it imports little, to be light.
"""

from __future__ import annotations

import os
import stat
import time

PROC = "/proc"
READINGS = 3
"""number of readings in a row, of which the least counts; see `Memory`"""
_FORGET_S = 5.0
"""time for which a process is remembered as not ours: its number may be given to one of ours [s]"""
_EXACT_SHARE, _URGENT_SHARE = 0.02, 0.1
"""at most this share of the time goes into exact readings, and where there may be too much"""


class Tree:
    """The processes that descend from one, however they were started.

    It must be a subreaper (prctl(2)): then an orphan becomes its child, and stays in the tree.

    Args:
        root: the number of the process; it is not part of its tree
    """

    def __init__(self, root: int, proc: str = PROC) -> None:
        self._root, self._proc = root, proc
        self._others: set[int] = set()
        self._forget_at = 0.0

    def scan(self) -> dict[int, tuple[str, int]]:
        """Return state letter and parent of each process of the tree, by number; see proc(5).

        Processes that are not of the tree are looked at once: no process enters the tree but by being born in it.
        """
        now = time.monotonic()
        if now >= self._forget_at:
            self._others, self._forget_at = set(), now + _FORGET_S
        there = {int(name) for name in os.listdir(self._proc) if name.isdecimal()}
        self._others &= there
        found = {}
        for number in there - self._others - {self._root}:
            entry = self._entry(number)
            if entry is not None:
                found[number] = entry
        return {number: entry for number, entry in found.items() if self._descends(number, found)}

    def children(self) -> dict[int, str]:
        """Return the state letters of the children of the root, by number: it may end these processes alone."""
        return {number: state for number, (state, parent) in self.scan().items() if parent == self._root}

    def _descends(self, number: int, found: dict[int, tuple[str, int]]) -> bool:
        """Follow the parents; a process that has no parent any more, for a moment, is looked at again the next time."""
        at = number
        for _ in range(len(found)):
            at = found[at][1]
            if at == self._root:
                return True
            if at in self._others or at <= 1:
                self._others.add(number)
                return False
            if at not in found:
                return False
        return False

    def _entry(self, number: int) -> tuple[str, int] | None:
        try:
            with open(f"{self._proc}/{number}/stat", "rb") as file:
                # The name of the program is in brackets and may have some itself.
                state, parent = file.read().rpartition(b")")[2].split(maxsplit=2)[:2]
            return state.decode(), int(parent)
        except (OSError, ValueError):
            return None


class Memory:
    """The memory of several processes together, without the cache of files, which the system takes back at need.

    Shared memory counts once: the sum of Pss_Anon and Pss_Shmem of smaps_rollup, see proc(5). As that takes the time
    to look at all pages, the sum of RssAnon and RssShmem is read first: it is never less, and the same for one process.

    Between vfork and exec two processes are one, and each has all of its memory. So where there are several, the least
    of a few readings counts.
    """

    def __init__(self, proc: str = PROC) -> None:
        self.peak_bytes = 0
        """the most that counted"""
        self._proc = proc
        self._exact_at = 0.0
        self._last: list[int] = []

    def read(self, numbers: list[int], budget_bytes: int | None) -> bool:
        """Read once; return whether they have more than the budget."""
        resident = [self._resident(number) for number in numbers]
        taken = sum(resident)
        is_over = budget_bytes is not None and taken > budget_bytes
        if sum(map(bool, resident)) > 1:
            if not is_over and taken <= self.peak_bytes:
                self._last.clear()
                return False
            now = time.monotonic()
            if now < self._exact_at:
                return False
            taken = sum(map(self._proportional, numbers))
            after = time.monotonic()
            self._exact_at = after + (after - now) / (_URGENT_SHARE if is_over else _EXACT_SHARE)
            self._last = [*self._last[1 - READINGS :], taken]
            if len(self._last) < READINGS:
                return False
            taken = min(self._last)
        self.peak_bytes = max(self.peak_bytes, taken)
        return budget_bytes is not None and taken > budget_bytes

    def _resident(self, number: int) -> int:
        return self._sum(number, "status", (b"RssAnon:", b"RssShmem:")) or 0

    def _proportional(self, number: int) -> int:
        found = self._sum(number, "smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))
        # Older kernels do not have it, and processes of other users do not show it.
        return self._resident(number) if found is None else found

    def _sum(self, number: int, name: str, keys: tuple[bytes, ...]) -> int | None:
        try:
            with open(f"{self._proc}/{number}/{name}", "rb") as file:
                found = [int(line.split()[1]) * 1024 for line in file if line.startswith(keys)]
        except (OSError, ValueError, IndexError):  # it is gone
            return None
        return sum(found) if found else None


def disk_bytes(folder: str) -> int:
    """Size of a folder on the disk [bytes]; a file with several names counts once, unreadable ones not at all."""
    taken, folders = 0, [folder]
    seen: set[tuple[int, int]] = set()
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:  # it is gone, or not there yet
            continue
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
            except OSError:
                continue
            if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                if (found.st_dev, found.st_ino) in seen:
                    continue
                seen.add((found.st_dev, found.st_ino))
            taken += found.st_blocks * 512  # of that size whatever the file system has, see stat(2)
    return taken
