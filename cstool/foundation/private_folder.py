"""Folders that only this user, and root, can write to: their files may be trusted as much as this program."""

import errno
import grp
import os
import pwd
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path

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
    entry = os.lstat(found)
    if entry.st_uid != os.geteuid():
        raise SharedFolderError(found, f"it belongs to {_user(entry.st_uid)}")
    if _is_open(entry):
        raise SharedFolderError(found, f"others may write to it (mode {stat.S_IMODE(entry.st_mode):04o})")


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


def _check(path: Path, entry: os.stat_result) -> None:
    """Check that in a folder on the way other users can change only their own entries."""
    if entry.st_uid not in (0, os.geteuid()):
        raise SharedFolderError(path, f"it belongs to {_user(entry.st_uid)}")
    if stat.S_ISLNK(entry.st_mode):
        return
    if not stat.S_ISDIR(entry.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    # In a sticky folder, such as /tmp, only the owner of an entry may rename or remove it.
    if _is_open(entry) and not entry.st_mode & stat.S_ISVTX:
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
