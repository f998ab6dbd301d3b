"""The cache of cstool for results that take long: folders, each for one state of the sources of its results."""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from cstool.foundation.private_folder import make_private_folder

STALE_AFTER_S = 30 * 24 * 3600
"""age at which a folder of another state is removed [s]"""


def cache_root() -> Path:
    """Return the folder of all caches of cstool, which the user may choose."""
    chosen = os.environ.get("CSTOOL_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "cstool"


def digest_of_sources(package: Path, rooms: Iterable[str], modules: Iterable[Path]) -> hashlib.blake2b:
    """Return a digest of the sources of a package, for more to be added to.

    Args:
        package: its folder; names of files count relative to it
        rooms: folders of it; all modules in them count
        modules: further files of it that count
    """
    digest = hashlib.blake2b(digest_size=8)
    of_rooms = (path for room in rooms for path in sorted((package / room).rglob("*.py")))
    for path in (*of_rooms, *modules):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest


def make_cache_folder(folder: Path) -> None:
    """Make a folder `<kind>-<state>` below the root, for this user alone; long unused ones of its kind are removed.

    Raises:
        OSError: the folder cannot be made, or cannot be kept private
    """
    make_private_folder(folder)
    with contextlib.suppress(OSError):  # of a file system that cannot be written, with all that it has
        os.utime(folder)
    kind, _, _ = folder.name.rpartition("-")
    oldest_s = time.time() - STALE_AFTER_S
    for sibling in folder.parent.glob(f"{kind}-*"):
        try:
            if sibling != folder and sibling.stat().st_mtime < oldest_s:
                shutil.rmtree(sibling, ignore_errors=True)
        except OSError:
            continue
