"""The logs of a job, opened with the permissions of the viewer, not of the page's server."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from cstool.appliance.page.viewer import may_reach, may_read
from cstool.foundation.plain_text import lines

STREAMS = ("out", "err")
TAIL_BYTES = 65536
"""length of the end of a log that the page shows"""
_ACCESS_LIST = "system.posix_acl_access"


def open_log(folder: Path, name: str, user_id: int | None) -> BinaryIO | None:
    """Open a log of a job for a viewer.

    The page may be served by root, and the folder is its owner's: a link in it is not followed, and the permissions of
    the opened file count, so that the page shows no file that the viewer could not open.

    Args:
        folder: of the job
        name: of the file
        user_id: of the viewer; None: unknown

    Returns:
        The file, or None where there is none

    Raises:
        PermissionError: the viewer may not read it, or the server of the page may not
    """
    if not may_reach(user_id, folder.parent):
        raise PermissionError
    try:
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except PermissionError:
        raise
    except OSError:
        return None
    try:
        if not may_read(user_id, os.fstat(inside), bits=1):
            raise PermissionError
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside)
    except PermissionError:
        raise
    except OSError:
        return None
    finally:
        os.close(inside)
    entry = os.fstat(descriptor)
    is_owner = user_id in (0, entry.st_uid)
    # Bits of the group are something else where there is an access list.
    allowed = may_read(user_id, entry) and (is_owner or not _has_access_list(descriptor))
    if not allowed or not stat.S_ISREG(entry.st_mode):
        os.close(descriptor)
        if not allowed:
            raise PermissionError
        return None
    return open(descriptor, "rb")


def may_read_log(folder: Path, name: str, user_id: int | None) -> bool:
    """Say whether a viewer may read a log, or would if it was there."""
    try:
        file = open_log(folder, name, user_id)
    except PermissionError:
        return False
    if file is not None:
        file.close()
    return True


def tail(file: BinaryIO, most_bytes: int = TAIL_BYTES) -> str:
    """Return the last whole lines of a log, as they may be shown."""
    size = os.fstat(file.fileno()).st_size
    file.seek(max(size - most_bytes, 0))
    content = file.read(most_bytes)
    if size > most_bytes:
        content = content.partition(b"\n")[2] or content
    return lines(content.decode("utf-8", "replace"))


def _has_access_list(descriptor: int) -> bool:
    try:
        return _ACCESS_LIST in os.listxattr(descriptor)
    except OSError:
        return False
