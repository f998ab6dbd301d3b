"""Memory that this process may still take: the machine's free memory, the limits of control groups, and a budget."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cstool.foundation.errors import ClusterError

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
BUDGET_VARIABLE = "CSTOOL_MEMORY"
"""of the environment: memory limit of this process and its children together [bytes]; not set for no budget"""
UNCOUNTED_BYTES = 52 * 2**20
"""of a budget, memory of a run that is not accounted for: libraries and kernels that are loaded later, stacks of
threads and the arenas of malloc for each, batches that are read ahead (measured: up to 47 MiB, see `python -m
benchmarks.job_memory`)"""


class _Kind(NamedTuple):
    """The file layout of a version of control groups (Linux kernel documentation, cgroup-v2 and cgroup-v1/memory)."""

    root: str
    limit: str
    usage: str
    prefix: str
    """of the keys of memory.stat that count the groups below, too"""


_V1 = _Kind("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
_V2 = [_Kind(root, "memory.max", "memory.current", "") for root in ("", "unified")]


def available_memory_bytes(proc: Path = PROC, groups: Path = GROUPS) -> int:
    """Memory that can be used without swapping, and within the budget if there is one [bytes].

    Raises:
        ClusterError: the budget is no number of bytes
    """
    found = [_of_machine(proc), *_of_groups(proc, groups)]
    if (budget_bytes := memory_budget_bytes()) is not None:
        found.append(budget_bytes - _resident_bytes(proc) - UNCOUNTED_BYTES)
    return max(0, min(found))


def memory_budget_bytes() -> int | None:
    """Memory limit of this process and its children together [bytes]; None if it is not set.

    Raises:
        ClusterError: the variable is no number of bytes
    """
    text = os.environ.get(BUDGET_VARIABLE, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ClusterError(
            f"{BUDGET_VARIABLE}: must be a number of bytes, got {text!r}", "without it a run takes what is free"
        )
    return int(text)


def _resident_bytes(proc: Path) -> int:
    """Resident memory of this process and its children, shared memory counted for each [bytes].

    `children` of proc(5) is there where the kernel was built for it (CONFIG_PROC_CHILDREN); else none are counted.
    """
    total, numbers = 0, ["self"]
    while numbers:
        folder = proc / numbers.pop()
        try:
            status = (folder / "status").read_text().splitlines()
            total += next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))
            for children in folder.glob("task/*/children"):
                numbers += children.read_text().split()
        except (OSError, StopIteration):
            # It ended meanwhile.
            continue
    return total


def _of_machine(proc: Path) -> int:
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _of_groups(proc: Path, groups: Path) -> Iterator[int]:
    """Yield the memory that each group of this process leaves to it."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        # Entries of version 2 name no controllers.
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
