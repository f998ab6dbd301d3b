"""Small files, and links, written whole or not at all; locks; names that stay in their folder."""

import contextlib
import datetime
import errno
import fcntl
import os
import secrets
import socket
from pathlib import Path
from typing import TypeGuard

from cstool.foundation.errors import CstoolError

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""errors of a file system without locks, such as one of a network that was mounted without"""


class NoLocksError(CstoolError):
    """The file system has no locks, and the task needs one."""


def write_replacing(path: Path, content: str | bytes) -> None:
    """Write a small file, text in UTF-8, replacing an old one in one go; file names in it keep any bytes.

    Raises:
        OSError: it cannot be written; the old one is as it was
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def replace_link(link: Path, target: Path) -> None:
    """Make a symbolic link, or replace one, in one go; do nothing where that is impossible.

    Links are for convenience: a copied folder may have folders in their place, a file system may have none.
    """
    aside = link.with_name(f".{link.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        aside.unlink(missing_ok=True)
        try:
            aside.symlink_to(target)
            aside.replace(link)
        finally:
            aside.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names of a folder, or raise OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_file(path: Path, *, shared: bool = False) -> int:
    """Hold a lock file, alone or with others that share it; return its descriptor, whose closing releases the lock.

    Raises:
        BlockingIOError: another process holds it; `strerror` names the process
        NoLocksError: its file system has no locks
        OSError: it cannot be made
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            take_lock(descriptor, path, shared=shared)
        except BaseException as error:
            if isinstance(error, BlockingIOError):
                owner = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()
                error.strerror = owner or "another process"
            if isinstance(error, NoLocksError):  # the file is of no use
                with contextlib.suppress(OSError):
                    path.unlink()
            os.close(descriptor)
            raise
        # The file may have been removed before it was locked: then others find another one.
        if is_named(descriptor, path):
            now = datetime.datetime.now()
            owner = f"process {os.getpid()} on {socket.gethostname()} since {now:%Y-%m-%d %H:%M:%S}\n"
            with contextlib.suppress(OSError):  # a full disk: the lock counts, not its text
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, owner.encode(), 0)
            return descriptor
        os.close(descriptor)


def take_lock(descriptor: int, path: Path, *, shared: bool = False, waits: bool = False) -> None:
    """Take the lock of an open file. It is released once all descriptors of the file are closed.

    Args:
        descriptor: descriptor of the file
        path: path of the file, for the message
        shared: whether to share it with others that do so, too
        waits: whether to wait while another process holds it

    Raises:
        BlockingIOError: another process holds it
        NoLocksError: its file system has no locks
        OSError: it cannot be taken
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise NoLocksError(
            f"{path}: must be on a file system with locks (flock), got: {error.strerror}",
            "a local disk has them; so has NFS or Lustre, where it is mounted so (local_lock=flock, flock)",
        ) from error


def is_named(descriptor: int, path: Path) -> bool:
    """Tell whether a path leads to an open file, and not by a link."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def is_inner_name(name: object) -> TypeGuard[str]:
    """Tell whether a name leads to a file in the folder, or in folders in it, and never elsewhere."""
    return isinstance(name, str) and "\0" not in name and not {"", ".", ".."} & {*name.split("/")}


def is_plain_name(name: object) -> TypeGuard[str]:
    """Tell whether a name leads to a file in the folder itself."""
    return is_inner_name(name) and "/" not in name
