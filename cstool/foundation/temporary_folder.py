"""Temporary folders, removed at the end; folders of killed processes are removed by the next process."""

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cstool.foundation.atomic_file import NoLocksError, lock_file, take_lock

LOCK = ".lock"
"""lock file in such a folder; its process holds it as a sign of life"""
AGE_S = 2.0
"""age below which a lock may be about to be taken [s]"""


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a temporary folder for this user alone, and remove it in the end.

    Args:
        prefix: of its name; before, folders of this prefix are removed that belong to this user and to no live process
        parent: its parent folder; None for the system's folder of temporary files

    Raises:
        OSError: it cannot be made
    """
    parent = parent or Path(tempfile.gettempdir())
    _remove_left(parent, prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        with contextlib.suppress(NoLocksError):
            stack.callback(os.close, lock_file(folder / LOCK))
        yield folder


def _remove_left(parent: Path, prefix: str) -> None:
    """Remove folders whose process is gone. One without a lock may be about to get it."""
    for folder in parent.glob(f"{prefix}*"):
        # The folder can stay for any reason: already gone, in use, not ours to remove.
        with contextlib.suppress(OSError, NoLocksError):
            entry = folder.lstat()
            if not stat.S_ISDIR(entry.st_mode) or entry.st_uid != os.geteuid():
                continue
            if time.time() - (folder / LOCK).lstat().st_mtime < AGE_S:
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                take_lock(lock, folder / LOCK)
                shutil.rmtree(folder)
            finally:
                os.close(lock)
