"""Where cstool keeps for the next time what takes long: folders for one state of what it was made by."""

import contextlib
import os
import shutil
import time
from pathlib import Path

from cstool.private_folder import make_private_folder

STALE_AFTER_S = 30 * 24 * 3600
"""age at which a folder of another state is removed [s]"""


def cache_root() -> Path:
    """Return the folder of everything that cstool caches, which the user may choose."""
    chosen = os.environ.get("CSTOOL_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "cstool"


def make_cache_folder(kind: str, state: str) -> Path:
    """Make the folder `<kind>-<state>` below the root, for this user alone, and remove those of states long unused.

    Raises:
        OSError: there can be none that nobody else can change
    """
    folder = cache_root() / f"{kind}-{state}"
    make_private_folder(folder)
    with contextlib.suppress(OSError):  # of a file system that cannot be written, with all that it has
        os.utime(folder)
    _remove_stale(folder, kind)
    return folder


def _remove_stale(folder: Path, kind: str) -> None:
    oldest_s = time.time() - STALE_AFTER_S
    for sibling in folder.parent.glob(f"{kind}-*"):
        try:
            if sibling != folder and sibling.stat().st_mtime < oldest_s:
                shutil.rmtree(sibling, ignore_errors=True)
        except OSError:
            continue
