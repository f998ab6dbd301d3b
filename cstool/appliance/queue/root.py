"""The root folder of an appliance: the place of its queue and its jobs, and its permissions.

The usual one is one user's alone. A shared one is made by root for a group: its members add to the queue, so they
trust each other with its order, and no more than that: a job's folder belongs to its submitter, and the job runs as
that user. Nothing here trusts text that a member may write, such as the queue's name of a job.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cstool.appliance.queue.names import check_name
from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import CstoolError
from cstool.foundation.folders import SharedFolderError, checked_way, make_private_folder

if TYPE_CHECKING:
    from cstool.appliance.queue.job_folder import JobFolder

_MARKER, _JOBS, _QUEUE = "appliance.json", "jobs", "queue.db"
_SHARED_MODE, _SHARED_JOBS_MODE = 0o2770, 0o3770
"""a member's files in them belong to the group; in the second, no other user may rename or remove them"""
_ELSEWHERE = "--root or CSTOOL_APPLIANCE names another"
_LARGEST_MARKER = 4096


@dataclass(frozen=True)
class Root:
    """A root folder that was checked; see `open_root`.

    Args:
        folder: absolute, without links
        shared_with: the group whose members submit; None for a root of one user alone
    """

    folder: Path
    shared_with: str | None = None

    @property
    def queue_file(self) -> Path:
        """The queue, an SQLite database. Only `Queue` may open it: to close it in another way lets go of its locks."""
        return self.folder / _QUEUE

    @property
    def queue_lock(self) -> Path:
        """The lock of writers to the queue."""
        return self.folder / "queue.lock"

    @property
    def supervisor_lock(self) -> Path:
        """The supervisor holds it as long as it lives."""
        return self.folder / "supervisor.lock"

    @property
    def supervisor_log(self) -> Path:
        """The log of the supervisor."""
        return self.folder / "supervisor.log"

    @property
    def compiled(self) -> Path:
        """Artifacts of a root of one user."""
        return self.folder / "compiled"

    @property
    def jobs(self) -> Path:
        """The jobs' folders."""
        return self.folder / _JOBS

    def job(self, name: str) -> JobFolder:
        """Return the folder of a job, which need not be there.

        Raises:
            CstoolError: that is no name of a job
        """
        from cstool.appliance.queue.job_folder import JobFolder

        return JobFolder(self.jobs / check_name(name))


def usual_root() -> Path:
    """Return $CSTOOL_APPLIANCE, else $XDG_STATE_HOME/cstool/appliance, else ~/.local/state/cstool/appliance."""
    chosen, state = os.environ.get("CSTOOL_APPLIANCE"), os.environ.get("XDG_STATE_HOME")
    if chosen:
        return Path(chosen).expanduser()
    return (Path(state) if state else Path.home() / ".local" / "state") / "cstool" / "appliance"


def open_root(folder: Path | None, *, makes: bool) -> Root:
    """Check the root folder of an appliance.

    Args:
        folder: None for the usual one
        makes: whether to make one for this user alone where there is none

    Raises:
        CstoolError: there is none, it is no folder, or others than its owner can change it
    """
    path = Path(os.path.abspath(usual_root() if folder is None else folder))
    try:
        if not makes:
            os.stat(path)
        if os.path.lexists(path):
            path = path if path == path.parent else checked_way(path)
            if _is_for_a_group(path):
                return _open_shared(path)
        make_private_folder(path)
        path = Path(os.path.realpath(path))
        _check_use(path, makes=makes)
        if makes:
            (path / _JOBS).mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError as error:
        raise _no_appliance(path) from error
    except OSError as error:
        raise _problem(path, error) from error
    return Root(path)


def make_shared_root(folder: Path | None, group: str) -> Root:
    """Make the root folder of an appliance to which the members of a group submit; only root may.

    One that is there, and is shared with this group, stays as it is.

    Raises:
        CstoolError: this is not root, there is no such group, there is another folder, or it cannot be made
    """
    if os.geteuid() != 0:
        raise CstoolError(f"--group {group}: only root can share an appliance, this is {user_name(os.geteuid())}")
    try:
        group_id = grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        raise CstoolError(f"--group: must be a group of this machine, got {group!r}") from None
    path = Path(os.path.abspath(usual_root() if folder is None else folder))
    try:
        _make_way(path.parent)
        path = checked_way(path)
        _check_reach(path.parent, group, group_id)
        if os.path.lexists(path) and _is_for_a_group(path):
            found = _open_shared(path)
            if found.shared_with != group:
                raise CstoolError(f"{path}: is shared with the group {found.shared_with}, not with {group}", _ELSEWHERE)
            return found
        make_private_folder(path)
        if os.path.lexists(path / _QUEUE) and not os.path.lexists(path / _MARKER):
            raise CstoolError(
                f"{path}: is the appliance of {user_name(0)} alone, it cannot be shared later", _ELSEWHERE
            )
        _check_use(path, makes=True)
        return _share(path, group, group_id)
    except OSError as error:
        raise _problem(path, error) from error


def _share(path: Path, group: str, group_id: int) -> Root:
    """Make the folders and files of a shared root; it is open to the group when it is whole."""
    from cstool.appliance.queue.queue import Queue

    jobs = path / _JOBS
    jobs.mkdir(mode=0o700, exist_ok=True)
    os.chown(jobs, 0, group_id)
    os.chmod(jobs, _SHARED_JOBS_MODE)
    write_replacing(path / _MARKER, json.dumps({"shared_with": group}) + "\n")
    os.chmod(path / _MARKER, 0o644)
    os.chown(path, 0, group_id)
    os.chmod(path, 0o2700)  # what is made in it has the group
    root = Root(path, group)
    Queue(root).close()
    os.chmod(path, _SHARED_MODE)
    return root


def _is_for_a_group(path: Path) -> bool:
    """Tell whether a folder, not a link to one, is root's and open to a group."""
    entry = os.lstat(path)
    return stat.S_ISDIR(entry.st_mode) and entry.st_uid == 0 and entry.st_mode & 0o2020 == 0o2020


def _open_shared(path: Path) -> Root:
    """Check a root folder that a group shares: it and its marker are root's, and only root can write to it."""
    entry = os.lstat(path)
    if entry.st_mode & stat.S_IWOTH:
        raise CstoolError(
            f"{path}: others than the group must not write to an appliance (mode {stat.S_IMODE(entry.st_mode):04o})"
        )
    group = _group(entry.st_gid)
    if os.geteuid() != 0 and entry.st_gid not in (os.getegid(), *os.getgroups()):
        raise CstoolError(
            f"{path}: is shared with the group {group}, {user_name(os.geteuid())} is not one of it",
            "who became a member must log in again",
        )
    if _marked_group(path) != group:
        raise CstoolError(
            f"{path}: its {_MARKER} must be root's and say that it is shared with the group {group}, it does not",
            _ELSEWHERE,
        )
    return Root(path, group)


def _marked_group(path: Path) -> str | None:
    """The group that root's marker names; None where it is not root's, or damaged."""
    try:
        descriptor = os.open(path / _MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        entry = os.fstat(descriptor)
        if not stat.S_ISREG(entry.st_mode) or entry.st_uid != 0 or entry.st_mode & 0o022:
            return None
        try:
            found = json.loads(file.read(_LARGEST_MARKER))
        except (ValueError, RecursionError):
            return None
    group = found.get("shared_with") if isinstance(found, dict) else None
    return group if isinstance(group, str) else None


def _check_use(path: Path, *, makes: bool) -> None:
    """Check that a folder is an appliance, or may become one."""
    entries = {entry.name for entry in os.scandir(path)}
    if entries & {_JOBS, _QUEUE}:
        return
    if not makes:
        raise _no_appliance(path)
    if entries - {_MARKER, "queue.lock"}:
        raise CstoolError(f"{path}: must be an appliance, or empty, it holds other files", _ELSEWHERE)


def _make_way(folder: Path) -> None:
    """Make folders that all may pass, independent of the umask; existing ones stay as they are."""
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    for each in reversed(missing):
        each.mkdir(mode=0o755)
        each.chmod(0o755)


def _check_reach(folder: Path, group: str, group_id: int) -> None:
    """Check that the members of a group can pass all folders on the way."""
    for each in reversed((folder, *folder.parents)):
        entry = os.lstat(each)
        if not entry.st_mode & stat.S_IXOTH and not (entry.st_gid == group_id and entry.st_mode & stat.S_IXGRP):
            mode = stat.S_IMODE(entry.st_mode)
            raise CstoolError(
                f"{each}: the group {group} must be able to pass it, it is closed to it (mode {mode:04o})"
            )


def _no_appliance(path: Path) -> CstoolError:
    return CstoolError(
        f"{path}: there is no appliance", f"cstool appliance start makes one, and so does a first job; {_ELSEWHERE}"
    )


def _problem(path: Path, error: OSError) -> CstoolError:
    where = path if error.filename is None else os.fsdecode(error.filename)
    if isinstance(error, SharedFolderError):
        return CstoolError(f"{where}: nobody else must be able to change an appliance: {error.strerror}", _ELSEWHERE)
    return CstoolError(f"{where}: the folder of an appliance cannot be used, got: {error.strerror}", _ELSEWHERE)


def _group(group_id: int) -> str:
    try:
        return grp.getgrgid(group_id).gr_name
    except KeyError:
        return str(group_id)


def user_name(user_id: int) -> str:
    """Return the name of a user, or the number where there is none."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"uid {user_id}"
