"""Files of MPI processes that were killed: some megabytes of memory for each run, and small ones in /tmp."""

import fcntl
import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_SHARED_MEMORY = re.compile(r"mpich_shm_[0-9a-f]+_\d+")
"""files in /dev/shm by which ranks on one host reach each other; the ranks have them open for as long as they live"""
_TOPOLOGY = re.compile(r"hydra_hwloc_xmlfile_\w{6}")
"""files in /tmp in which a proxy of hydra, the mpirun of MPICH, tells its ranks of the cores; it removes its own"""
_PROXY = "hydra_pmi_proxy"
AGE_S = 2.0
"""age below which a file may be about to be opened [s]"""
_FIRST_NAMESPACE = "pid:[4026531836]"
"""of processes, as Linux has it: a process in it sees all of them, a process in a container does not"""


class Places(NamedTuple):
    """Where to look."""

    shared: Path = Path("/dev/shm")
    temporary: Path = Path("/tmp")
    processes: Path = Path("/proc")


PLACES = Places()


def remove_leftovers(places: Places = PLACES) -> None:
    """Remove files of MPI on this host: of this user, and provably in no use any more."""
    for path in _own_files(places.shared, _SHARED_MEMORY):
        _remove_if_closed(path)
    topologies = list(_own_files(places.temporary, _TOPOLOGY))
    # These are open only briefly: either their maker lives, or they are leftovers.
    with suppress(OSError):
        if topologies and not _has_proxies(places.processes):
            for path in topologies:
                path.unlink(missing_ok=True)


def _own_files(folder: Path, names: re.Pattern[str]) -> Iterator[Path]:
    """Files of this user that are old enough."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if names.fullmatch(entry.name):
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
                    if is_own and time.time() - status.st_mtime >= AGE_S:
                        yield Path(entry.path)


def _remove_if_closed(path: Path) -> None:
    """Remove a file that no process has open or mapped, be it in a container: then alone the system gives a lease."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # The signal to the holder of a lease when another process opens the file; SIGIO would end this one.
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            path.unlink()
        finally:
            os.close(descriptor)


def _has_proxies(processes: Path) -> bool:
    """Whether this user has proxies of hydra; also where that cannot be known."""
    if os.readlink(processes / "self/ns/pid") != _FIRST_NAMESPACE:
        return True
    for name in os.listdir(processes):
        if name.isdecimal():
            with suppress(FileNotFoundError, ProcessLookupError):
                process = processes / name
                is_own = process.stat().st_uid == os.geteuid()
                if is_own and (process / "comm").read_text().strip() == _PROXY:
                    return True
    return False
