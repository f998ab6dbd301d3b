"""Control groups of version 2 for jobs, where this process may make some: then the kernel keeps their budgets.

A process may make groups in its own where that was delegated to it: a service of systemd with `Delegate=yes`, or
`systemd-run --user --scope -p Delegate=yes`. Groups with processes of their own can hand no memory to groups below
(kernel documentation, cgroup-v2, "No Internal Process Constraint"), so the supervisor, and the guard that started it,
move into a group below first. Other processes are never moved: where some are in the way, there are no groups.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
PROC = Path("/proc")
_OURS, _JOB = "cstool-supervisor", "cstool-job-"
"""name of the supervisor's group, and prefix of the names of job groups"""


class Groups:
    """A control group with one group per job below it; see `find`."""

    def __init__(self, home: Path) -> None:
        self._home = home

    @staticmethod
    def find(mounts: Sequence[Path] = MOUNTS, proc: Path = PROC) -> Groups | None:
        """Return where groups can be made, after this process has made room; None where they cannot."""
        with suppress(OSError, ValueError):
            own = _own_group(mounts, proc)
            if own is not None:
                home = own.parent if own.name == _OURS else own
                if "memory" in (home / "cgroup.controllers").read_text().split() and _make_room(home):
                    return Groups(home)
        return None

    def add(self, name: str, process: int, memory_bytes: int, cpus: Sequence[int]) -> Path | None:
        """Make a group for a job, and move a process into it; None where that fails, and the process stays.

        Args:
            process: its number; its children are in the group, too
            memory_bytes: limit; beyond it the kernel ends one of its processes; it may not swap [bytes]
        """
        group = self._home / f"{_JOB}{name}"
        try:
            group.mkdir()
            (group / "memory.max").write_text(f"{memory_bytes}\n")
            for file, value in (("memory.swap.max", "0"), ("cpuset.cpus", ",".join(map(str, cpus)))):
                with suppress(OSError):  # not every kernel has them; the process is pinned anyway
                    (group / file).write_text(f"{value}\n")
            (group / "cgroup.procs").write_text(f"{process}\n")
        except OSError:
            with suppress(OSError):
                group.rmdir()
            return None
        return group

    def sweep(self) -> None:
        """Remove the groups of jobs that have no processes any more."""
        with suppress(OSError):
            for group in self._home.glob(f"{_JOB}*"):
                with suppress(OSError):  # it has some
                    group.rmdir()


def _own_group(mounts: Sequence[Path], proc: Path) -> Path | None:
    """Return the folder of the group that this process is in; None without version 2."""
    lines = (proc / "self" / "cgroup").read_text().splitlines()
    place = next((line[3:] for line in lines if line.startswith("0::/")), None)
    for mount in mounts:
        if place is not None and (mount / "cgroup.controllers").exists():
            return mount / place.lstrip("/")
    return None


def _make_room(home: Path) -> bool:
    """Have the groups below a group get memory and cores, without processes in the group itself."""
    moved = [int(line) for line in (home / "cgroup.procs").read_text().split()]
    if not {*moved} <= {os.getpid(), os.getppid()}:
        return False
    ours = home / _OURS
    with suppress(FileExistsError):
        ours.mkdir()
    try:
        for process in moved:
            (ours / "cgroup.procs").write_text(f"{process}\n")
        (home / "cgroup.subtree_control").write_text("+memory\n")
    except OSError:
        for process in moved:
            with suppress(OSError):
                (home / "cgroup.procs").write_text(f"{process}\n")
        with suppress(OSError):
            ours.rmdir()
        return False
    with suppress(OSError):
        (home / "cgroup.subtree_control").write_text("+cpuset\n")
    return True
