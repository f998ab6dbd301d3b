"""Where compiled kernels are kept: one folder per state of the sources, the compiler and the CPU."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import llvmlite.binding as llvm

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

    Numba keys its cache by the file of the kernel alone, and so would serve a stale one when a function that the
    kernel imports has changed.
    """
    digest = hashlib.blake2b(digest_size=8)
    folder = Path(__file__).parent
    for path in (*sorted(folder.rglob("*.py")), folder.parent / "philox.py"):
        digest.update(f"{path.relative_to(folder.parent).as_posix()}\0".encode())
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


def use_cache_folder() -> Path:
    """Make the folder of kernels and tell Numba of it; an unwritable one is replaced by a temporary one.

    Returns:
        the folder in use
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"cstool-{os.getuid()}-{folder.name}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_stale(folder)
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    loaded = sys.modules.get("numba")
    if loaded is not None:
        loaded.config.CACHE_DIR = str(folder)
    return folder


def remove_stale(folder: Path) -> None:
    """Remove the siblings of a folder of kernels that nobody has used for `STALE_AFTER_S`."""
    oldest_s = time.time() - STALE_AFTER_S
    for sibling in folder.parent.glob("kernels-*"):
        try:
            if sibling != folder and sibling.stat().st_mtime < oldest_s:
                shutil.rmtree(sibling, ignore_errors=True)
        except OSError:
            continue
