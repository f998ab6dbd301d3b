"""The two stages of a job as processes: their commands, whose they are, and the last that they said."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from cstool.appliance.queue.job import COMPILE, JobOrder, Needs
from cstool.appliance.queue.job_folder import JobFolder
from cstool.appliance.queue.keeping import Kept, User
from cstool.foundation.errors import CstoolError

LAST_BYTES = 4096
"""length of the end of stderr that is searched for the error [bytes]"""


def command_of(order: JobOrder, stage: str, params: Path, cpus: Sequence[int]) -> list[str]:
    """The command of a stage: it reads the job's own copy of the params, and has a lane for each of its cores."""
    if stage == COMPILE:
        return [*order.program, *order.compile_words, "--params", str(params)]
    return [*order.program, *order.run_words, "--params", str(params), "--lanes", str(len(cpus))]


def owner_of(folder: Path) -> User | None:
    """The user that a job runs as: the owner of its folder, not the queue's entry; None for this process's user.

    Raises:
        CstoolError: it belongs to another user, and this process may not become that user
        OSError: the folder cannot be looked at
    """
    entry = os.stat(folder, follow_symlinks=False)
    if not stat.S_ISDIR(entry.st_mode):
        raise CstoolError(f"{folder}: must be the folder of a job, it is none")
    if entry.st_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise CstoolError(
            f"{folder}: must belong to the user of the supervisor (uid {os.geteuid()}), it is of uid {entry.st_uid}",
            "an appliance that several users share is started by root",
        )
    try:
        known = pwd.getpwuid(entry.st_uid)
    except KeyError as error:
        raise CstoolError(f"{folder}: must belong to a user of this host, it is of uid {entry.st_uid}") from error
    return User(known.pw_uid, known.pw_gid, tuple(os.getgrouplist(known.pw_name, known.pw_gid)))


def last_words(folder: Path, log: Path) -> str:
    """The end of a log in a job's folder; empty where there is none.

    The folder may be another user's, and the reader may be root: only a plain file of that very folder is
    read.
    """
    with suppress(OSError):
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            file = os.open(log.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside)
        finally:
            os.close(inside)
        try:
            entry = os.fstat(file)
            if stat.S_ISREG(entry.st_mode):
                return os.pread(file, LAST_BYTES, max(0, entry.st_size - LAST_BYTES)).decode("utf-8", "replace")
        finally:
            os.close(file)
    return ""


class Keeping(Protocol):
    """The supervisor's operations on keepers; see the module `keeping`."""

    def start(
        self,
        folder: JobFolder,
        order: JobOrder,
        stage: str,
        attempt: int,
        *,
        command: Sequence[str],
        cpus: Sequence[int],
        needs: Needs,
        user: User | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start the keeper of an attempt."""

    def trouble(self, keeper: subprocess.Popen[bytes]) -> str | None:
        """Say why a keeper could not begin."""

    def look(self, folder: JobFolder, stage: str, attempt: int) -> Kept:
        """Return the known state of an attempt."""

    def ask(self, folder: JobFolder, stage: str, attempt: int, what: str) -> None:
        """Have an attempt stopped."""

    def kill(self, folder: JobFolder, stage: str, attempt: int, *, spares_keeper: bool) -> list[int]:
        """Kill the processes that hold the lock of a job."""
