"""How much memory this process may still take: what the machine has, and what control groups leave of it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


class _Kind(NamedTuple):
    """Where a version of control groups says what (Linux kernel documentation, cgroup-v2 and cgroup-v1/memory)."""

    root: str
    limit: str
    usage: str
    prefix: str
    """of the keys of memory.stat that count the groups below, too"""


_V1 = _Kind("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
_V2 = [_Kind(root, "memory.max", "memory.current", "") for root in ("", "unified")]


def available_memory_bytes(proc: Path = PROC, groups: Path = GROUPS) -> int:
    """Memory that can be used without swapping [bytes]."""
    return max(0, min([_of_machine(proc), *_of_groups(proc, groups)]))


def _of_machine(proc: Path) -> int:
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _of_groups(proc: Path, groups: Path) -> Iterator[int]:
    """Yield what each group that this process is in leaves to it."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        # Those of version 2 name no controllers.
        kinds = [_V1] if "memory" in controllers.split(",") else [] if controllers else _V2
        for kind in kinds:
            root = groups / kind.root
            group = root / place.lstrip("/")
            for folder in [group, *group.parents]:
                left = _left(folder, kind)
                if left is not None:
                    yield left
                if folder == root:
                    break


def _left(folder: Path, kind: _Kind) -> int | None:
    """Memory that a group leaves [bytes]; None where it has no limit, or is not to be seen from here."""
    try:
        limit = (folder / kind.limit).read_text().strip()
        if limit == "max":
            return None
        usage = int((folder / kind.usage).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        # The page cache of a group goes when the group needs the room.
        cached = sum(int(stat.get(f"{kind.prefix}{key}", 0)) for key in ("active_file", "inactive_file"))
        return int(limit) - usage + cached
    except (OSError, ValueError):
        return None
