"""Where compiled kernels are kept: one folder per state of the sources, the compiler and the CPU."""

import contextlib
import functools
import hashlib
import os
import shutil
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm

from cstool.private_folder import make_private_folder

STALE_AFTER_S = 30 * 24 * 3600
"""age at which the kernels of another state of the sources are removed [s]"""


def cache_root() -> Path:
    """Return the folder of everything that cstool caches, which the user may choose."""
    chosen = os.environ.get("CSTOOL_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "cstool"


def sources_digest() -> str:
    """Return a digest of all that decides what a kernel compiles to.

    A kernel has compiled into it what it imports, so the source of the kernel alone would not do.
    """
    digest = hashlib.blake2b(digest_size=8)
    rooms = Path(__file__).parents[1]
    sources = [path for room in ("kernels", "optimizers") for path in sorted((rooms / room).rglob("*.py"))]
    for path in (*sources, rooms / "activations.py", rooms / "random_keys.py"):
        digest.update(f"{path.relative_to(rooms).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    for package in ("numba", "llvmlite", "numpy"):
        digest.update(f"{package} {version(package)}\n".encode())
    digest.update(f"{sys.version_info[:2]} {llvm.get_host_cpu_name()}\n".encode())
    digest.update(llvm.get_host_cpu_features().flatten().encode())
    for told in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        digest.update(f"{os.environ.get(told)}\n".encode())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the folder of the kernels of these sources on this CPU."""
    return cache_root() / f"kernels-{sources_digest()}"


class KernelFolder(NamedTuple):
    """The folder of kernels of this process.

    Args:
        path: None where there is none that only this user can change; kernels are then compiled for this process alone
        problem: why there is none, as in "/home/ada/.cache: it belongs to bob (uid 1001)"
    """

    path: Path | None
    problem: str | None = None


@functools.cache
def kernel_folder() -> KernelFolder:
    """Make the folder of kernels; what lies in it is run, so it must be this user's alone."""
    folder = cache_folder()
    try:
        make_private_folder(folder)
    except OSError as error:
        return KernelFolder(None, f"{error.filename or folder}: {error.strerror}")
    with contextlib.suppress(OSError):  # of a file system that cannot be written, with kernels all the same
        os.utime(folder)
    remove_stale(folder)
    return KernelFolder(folder)


def remove_stale(folder: Path) -> None:
    """Remove the siblings of a folder of kernels that nobody has used for `STALE_AFTER_S`."""
    oldest_s = time.time() - STALE_AFTER_S
    for sibling in folder.parent.glob("kernels-*"):
        try:
            if sibling != folder and sibling.stat().st_mtime < oldest_s:
                shutil.rmtree(sibling, ignore_errors=True)
        except OSError:
            continue
