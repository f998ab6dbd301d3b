"""Folders of this user: private ones, which only this user and root can write to; caches; temporary ones.

The files in a private folder may be trusted as much as this program. A cache has folders for results that take long,
each for one state of the sources of its results. A temporary folder is removed at the end; folders of killed processes
are removed by the next process.
"""

import errno
import grp
import hashlib
import os
import pwd
import shutil
import stat
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cstool.foundation.atomic_file import NoLocksError, lock_file, take_lock

STALE_AFTER_S = 30 * 24 * 3600
"""age at which a cache of another state is removed [s]"""
LOCK = ".lock"
"""lock file in a temporary folder; its process holds it as a sign of life"""
LOCK_AGE_S = 2.0
"""age below which a lock may be about to be taken [s]"""
_MAX_LINKS = 40


class SharedFolderError(OSError):
    """Another user can change the files in a folder, or put another folder in its place."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(errno.EPERM, problem, str(path))


def make_private_folder(folder: Path) -> None:
    """Make a folder for this user alone (mode 0700), and its parents; an existing one must be such a folder.

    It must belong to this user. Other users must not be able to change it or its parents, or they could put another one
    in its place. Links are followed one at a time, each checked like the folder that it lies in.

    Raises:
        SharedFolderError: another user can change it; its `strerror` has the user or the mode, its `filename` the path
        OSError: it cannot be made, or is no folder
    """
    found = _resolved(Path(os.path.abspath(folder)))
    _check(found, os.lstat(found), is_own=True)


def checked_way(folder: Path) -> Path:
    """Return a folder without links on the way to it, every part of the way checked as by `make_private_folder`.

    The folder itself is not checked, and need not be there.

    Raises:
        SharedFolderError: another user can put another one in its place
        OSError: its parents cannot be made
    """
    whole = Path(os.path.abspath(folder))
    return _resolved(whole.parent) / whole.name


def _resolved(folder: Path) -> Path:
    """Return the folder without links; every part of the way to it is checked, and made if it is missing."""
    parts = deque(folder.parts[1:])
    found, links = Path(folder.anchor), 0
    _check(found, os.lstat(found))
    while parts:
        below = found / parts.popleft()
        if below.name == "..":  # of a link's target
            found = found.parent
            continue
        with suppress(FileExistsError):
            if not os.path.lexists(below):
                os.mkdir(below, 0o700)
        entry = os.lstat(below)
        _check(below, entry)
        if not stat.S_ISLNK(entry.st_mode):
            found = below
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
        target = Path(os.readlink(below))
        parts.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
        found = Path(target.anchor) if target.is_absolute() else found
    return found


def _check(path: Path, entry: os.stat_result, *, is_own: bool = False) -> None:
    """Check a folder on the way: other users may change only their own entries in it; with `is_own`, none."""
    if entry.st_uid not in ((os.geteuid(),) if is_own else (0, os.geteuid())):
        raise SharedFolderError(path, f"it belongs to {_user(entry.st_uid)}")
    if stat.S_ISLNK(entry.st_mode):
        return
    if not stat.S_ISDIR(entry.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    # In a sticky folder, such as /tmp, only the owner of an entry may rename or remove it.
    if _is_open(entry) and (is_own or not entry.st_mode & stat.S_ISVTX):
        raise SharedFolderError(path, f"others may write to it (mode {stat.S_IMODE(entry.st_mode):04o})")


def _is_open(entry: os.stat_result) -> bool:
    """Tell whether users other than the owner may write to a folder."""
    by_group = bool(entry.st_mode & stat.S_IWGRP) and not _is_own_group(entry.st_gid)
    return by_group or bool(entry.st_mode & stat.S_IWOTH)


def _is_own_group(group_id: int) -> bool:
    """Tell whether a group has this user alone, as where each user has a group of that name and a umask of 002."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    is_primary = user.pw_gid == group_id and group.gr_name == user.pw_name
    return is_primary and set(group.gr_mem) <= {user.pw_name}


def _user(user_id: int) -> str:
    try:
        return f"{pwd.getpwuid(user_id).pw_name} (uid {user_id})"
    except KeyError:
        return f"uid {user_id}"


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
    with suppress(OSError):  # of a file system that cannot be written, with all that it has
        os.utime(folder)
    kind, _, _ = folder.name.rpartition("-")
    oldest_s = time.time() - STALE_AFTER_S
    for sibling in folder.parent.glob(f"{kind}-*"):
        try:
            if sibling != folder and sibling.stat().st_mtime < oldest_s:
                shutil.rmtree(sibling, ignore_errors=True)
        except OSError:
            continue


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
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name, ExitStack() as stack:
        folder = Path(name)
        with suppress(NoLocksError):
            stack.callback(os.close, lock_file(folder / LOCK))
        yield folder


def _remove_left(parent: Path, prefix: str) -> None:
    """Remove folders whose process is gone. One without a lock may be about to get it."""
    for folder in parent.glob(f"{prefix}*"):
        # The folder can stay for any reason: already gone, in use, not ours to remove.
        with suppress(OSError, NoLocksError):
            entry = folder.lstat()
            if not stat.S_ISDIR(entry.st_mode) or entry.st_uid != os.geteuid():
                continue
            if time.time() - (folder / LOCK).lstat().st_mtime < LOCK_AGE_S:
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                take_lock(lock, folder / LOCK)
                shutil.rmtree(folder)
            finally:
                os.close(lock)
