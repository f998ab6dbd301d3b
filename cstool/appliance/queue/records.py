"""Records of a keeper in the folder of a job, and how other users read them without trust in that folder.

```
JOB/lock                      held (F_OFD_SETLK) for as long as a keeper or its run live
JOB/attempts/execute-1/       made once, by the keeper of that attempt
    began.json  stop.json  end.json
```

The keeper belongs to the owner of the job, and so does all of this; a supervisor that is root reads it. Every folder
and file is opened without following links and without waiting. A record is a small JSON object; other content is
taken for no record. This module is part of the keeper: it imports little, to be light.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeGuard

LOCK, ATTEMPTS, BEGAN, STOP, END = "lock", "attempts", "began.json", "stop.json", "end.json"
LARGEST_BYTES = 2**16
"""no record is larger [bytes]"""
RESERVED_BYTES = 1024
"""room that is kept free on the disk for the record of an end [bytes]"""
_RESERVED = "end.reserved"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# struct flock of fcntl(2): l_type, l_whence, l_start, l_len, l_pid; l_pid must be 0. All of the file is locked.
_LOCK = struct.Struct("hhqqi4x")


def open_folder(path: str | os.PathLike[str], *names: str, inside: int | None = None) -> int:
    """Open a folder, or one in it, by names that are no links; the way to `path` itself is trusted.

    Args:
        inside: descriptor of the folder that a relative path begins in

    Raises:
        OSError: there is no such folder, or it is a link
    """
    descriptor = os.open(path, _FOLDER, dir_fd=inside)
    for name in names:
        try:
            below = os.open(name, _FOLDER, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


@contextmanager
def opened_folder(path: str | os.PathLike[str], *names: str, inside: int | None = None) -> Iterator[int]:
    """Have a folder open for a while; see `open_folder`."""
    descriptor = open_folder(path, *names, inside=inside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_plain(
    path: str | os.PathLike[str], most_bytes: int, *, inside: int | None = None, is_end: bool = False
) -> bytes:
    """Return the beginning, or the end, of a plain file, without following a link, or waiting for a pipe or a lease.

    Args:
        inside: as of `open_folder`

    Raises:
        OSError: there is none, or it cannot be read
    """
    descriptor = os.open(path, _FILE, dir_fd=inside)
    try:
        entry = os.fstat(descriptor)
        if not stat.S_ISREG(entry.st_mode):
            raise FileNotFoundError(errno.ENOENT, "no plain file", path)
        return os.pread(descriptor, most_bytes, max(0, entry.st_size - most_bytes) if is_end else 0)
    finally:
        os.close(descriptor)


def is_count(found: object, at_most: int = 2**63 - 1) -> TypeGuard[int]:
    """Say whether a value that anybody may have written is a whole number from 0 to a limit."""
    return isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= at_most


def this_boot_id() -> str:
    """Return an identifier of this boot of the host; "" where the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip().decode()
    except OSError:
        return ""


def attempt_name(stage: str, attempt: int) -> str:
    """Return the name of the folder of an attempt."""
    return f"{stage}-{attempt}"


def take_lock(folder: int) -> int | None:
    """Take the lock of a job for good; return its descriptor, or None where another process holds it.

    The lock belongs to the open file, as a lock of flock does: a process that inherits the descriptor holds it, too.
    Unlike flock, this lock tells whether it is held without being taken for a moment.

    Raises:
        OSError: it cannot be made
    """
    descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    return descriptor


def is_locked(folder: int) -> bool:
    """Say whether a process holds the lock of a job, without disturbing processes that are about to take it."""
    try:
        descriptor = os.open(LOCK, _FILE, dir_fd=folder)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return bool(_LOCK.unpack(found)[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def read_record(folder: int, name: str) -> dict[str, Any] | None:
    """Return a record; None where there is none, or where it is damaged, too large, or no file."""
    try:
        text = read_plain(name, LARGEST_BYTES + 1, inside=folder)
        found = json.loads(text, parse_constant=_refuse) if len(text) <= LARGEST_BYTES else None
        return found if isinstance(found, dict) else None
    except (OSError, ValueError, RecursionError):
        return None


def write_record(folder: int, name: str, record: dict[str, Any], aside: str | None = None) -> None:
    """Write a record, whole or not at all, and wait until the disk has it.

    Args:
        aside: name of the file that it is written to before it gets its name

    Raises:
        OSError: it cannot be written
    """
    aside = f"{name}.{os.getpid()}.tmp" if aside is None else aside
    # As long as what was reserved: on a full disk a file may be written over, but may not grow.
    content = json.dumps(record).encode().ljust(RESERVED_BYTES - 1) + b"\n"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        _write(descriptor, content)
        os.ftruncate(descriptor, len(content))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def reserve_end(folder: int) -> None:
    """Take the room for the record of an end while there is some, or raise OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(_RESERVED, flags, 0o600, dir_fd=folder)
    try:
        _write(descriptor, b" " * RESERVED_BYTES)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_end(folder: int, record: dict[str, Any]) -> None:
    """Write the record of an end into the room that was reserved for it, or raise OSError."""
    write_record(folder, END, record, _RESERVED)


def remove_attempt(folder: int, name: str) -> None:
    """Undo the beginning of an attempt; files that cannot be removed stay.

    Args:
        folder: the folder of all attempts
    """
    with suppress(OSError):
        with opened_folder(name, inside=folder) as attempt:
            for entry in os.listdir(attempt):
                os.unlink(entry, dir_fd=attempt)
        os.rmdir(name, dir_fd=folder)


def _write(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _refuse(constant: str) -> None:
    raise ValueError(constant)
