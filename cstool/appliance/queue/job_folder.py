"""The folder of a job: its order, which does not change; its output; the record of each attempt."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cstool.appliance.queue.job import PRIORITIES, JobOrder, Needs
from cstool.appliance.queue.names import check_label_map, check_name, check_note, is_name
from cstool.appliance.queue.records import ATTEMPTS, LOCK, open_folder, opened_folder, read_plain
from cstool.foundation.atomic_file import sync_folder
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import size_text

FORMAT = 1
"""version of `job.json`"""
_TUPLES = ("typed", "program", "run_words", "compile_words", "backend_options")
_PATHS = ("working_dir", "model_dir", "compile_dir")
_LARGEST_FILE = 16_000_000
"""bytes of an order, or of params"""
LAST_BYTES = 4096
"""length of the end of the errors that is searched for a message [bytes]"""
_ASIDE = ".tmp"
_AGAIN = "submit the job again"
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOSE = stat.S_IWGRP | stat.S_IWOTH


class User(NamedTuple):
    """The user of a job: its processes run as this user."""

    user_id: int
    group_id: int
    group_ids: tuple[int, ...]


@dataclass(frozen=True)
class JobFolder:
    """The folder of a job; it need not be there."""

    path: Path

    @property
    def name(self) -> str:
        """Of the job."""
        return self.path.name

    @property
    def job_file(self) -> Path:
        """The order, whose SHA-256 the queue has."""
        return self.path / "job.json"

    @property
    def params_file(self) -> Path:
        """The job's own copy of its params."""
        return self.path / "params.yaml"

    @property
    def lock(self) -> Path:
        """The lock: held by the process that runs the job."""
        return self.path / LOCK

    @property
    def attempts(self) -> Path:
        """The attempts' folders."""
        return self.path / ATTEMPTS

    @property
    def ended(self) -> Path:
        """Marker of a job that has ended: it is never started again, even if the queue says otherwise."""
        return self.path / "ended"

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return os.path.lexists(self.ended)

    def mark_ended(self) -> None:
        """Write down that the job has ended; where that cannot be, nothing is said."""
        with suppress(OSError), opened_folder(self.path) as folder:
            os.close(os.open(self.ended.name, _NEW_FILE, 0o600, dir_fd=folder))

    @property
    def report(self) -> Path:
        """Folder of the compiler's reports, where the job compiled for itself."""
        return self.path / "compile"

    def log(self, stream: Literal["out", "err"]) -> Path:
        """Return the file of its output, or of its errors and log lines."""
        return self.path / stream

    def last_attempt(self, stage: str) -> int:
        """Return the number of the last attempt that began; 0 where none did."""
        try:
            names = os.listdir(self.attempts)
        except OSError:
            return 0
        numbers = (name.removeprefix(f"{stage}-") for name in names if name.startswith(f"{stage}-"))
        return max((int(number) for number in numbers if number.isascii() and number.isdigit()), default=0)

    def make(self, order: JobOrder) -> str:
        """Make the folder with the order in it: whole, and on the disk, or not at all.

        Returns:
            SHA-256 of `job_file`, in hexadecimal digits

        Raises:
            CstoolError: it cannot be written, or is there
        """
        check_name(self.name)
        check_label_map(order.labels)
        check_note(order.note)
        if order.priority not in PRIORITIES:
            raise CstoolError(f"priority: must be one of {', '.join(PRIORITIES)}, got {order.priority!r}")
        text = order_text(order).encode()
        params = order.params.encode("utf-8", "surrogateescape")
        for what, content in (("params", params), ("order", text)):
            if len(content) > _LARGEST_FILE:
                raise CstoolError(
                    f"{what}: a job must take at most {size_text(_LARGEST_FILE)}, got {len(content):,} bytes"
                )
        aside = self.path.with_name(f".{self.name}.{secrets.token_hex(4)}{_ASIDE}")
        is_there = False
        try:
            os.mkdir(aside, 0o700)
            os.chmod(aside, 0o700)  # whatever the umask, and not a group's as what a shared folder holds
            _write(aside / self.params_file.name, params)
            _write(aside / self.job_file.name, text)
            sync_folder(aside)
            os.rename(aside, self.path)  # an empty folder of that name, which nobody made, would be replaced
            is_there = True
            sync_folder(self.path.parent)
        except BaseException as error:
            shutil.rmtree(self.path if is_there else aside, ignore_errors=True)
            if isinstance(error, OSError):
                raise CstoolError(f"{self.path}: cannot be written, got: {error.strerror}") from error
            raise
        return hashlib.sha256(text).hexdigest()

    def order(self, digest: str) -> JobOrder:
        """Read the order.

        Args:
            digest: as `make` returned it

        Raises:
            CstoolError: it is not there or cannot be read, it was edited, or others than its owner can change it
        """
        with self._opened() as folder:
            text = _read(folder, self.job_file)
            if hashlib.sha256(text).hexdigest() != digest:
                raise CstoolError(f"{self.job_file}: must stay as it was submitted, it was edited", _AGAIN)
            try:
                order = order_of(text)
            except ValueError as error:
                raise CstoolError(f"{self.job_file}: must be the order of a job, {error}", _AGAIN) from error
            if _read(folder, self.params_file) != order.params.encode("utf-8", "surrogateescape"):
                raise CstoolError(f"{self.params_file}: must stay as it was submitted, it was edited", _AGAIN)
        return order

    def owner(self) -> User | None:
        """Return its owner; None for this process's user. The job runs as its owner, independent of the queue's entry.

        Raises:
            CstoolError: it belongs to another user, and this process may not become that user
            OSError: it cannot be looked at
        """
        entry = os.stat(self.path, follow_symlinks=False)
        if not stat.S_ISDIR(entry.st_mode):
            raise CstoolError(f"{self.path}: must be the folder of a job, it is none")
        if entry.st_uid == os.geteuid():
            return None
        if os.geteuid() != 0:
            rule = f"must belong to the user of the supervisor (uid {os.geteuid()}), it is of uid {entry.st_uid}"
            raise CstoolError(f"{self.path}: {rule}", "an appliance that several users share is started by root")
        try:
            known = pwd.getpwuid(entry.st_uid)
        except KeyError as error:
            rule = f"must belong to a user of this host, it is of uid {entry.st_uid}"
            raise CstoolError(f"{self.path}: {rule}") from error
        return User(known.pw_uid, known.pw_gid, tuple(os.getgrouplist(known.pw_name, known.pw_gid)))

    def last_words(self) -> str:
        """Return the end of its errors; empty where there are none.

        The folder may be another user's, and the reader may be root: only a plain file of that very folder is read.
        """
        with suppress(OSError), opened_folder(self.path) as folder:
            return read_plain("err", LAST_BYTES, inside=folder, is_end=True).decode("utf-8", "replace")
        return ""

    def remove(self) -> None:
        """Remove it with its content; nothing is reported where it is missing, or cannot be removed."""
        shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the folder, which its owner alone can change, for as long as it takes."""
        try:
            descriptor = open_folder(self.path)
        except FileNotFoundError:
            raise CstoolError(f"{self.path}: the folder of the job must be there, it is not", _AGAIN) from None
        except OSError as error:
            raise CstoolError(f"{self.path}: the folder of the job cannot be read, got: {error.strerror}") from error
        try:
            _check_mode(self.path, os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)


def is_leftover(name: str) -> bool:
    """Say whether a folder among the job folders was never completed, for example because of a power cut."""
    return name.startswith(".") and name.endswith(_ASIDE) and is_name(name[1:].partition(".")[0])


def order_text(order: JobOrder) -> str:
    """Return an order as JSON, ASCII alone, with a line for each field."""
    found: dict[str, Any] = {"format": FORMAT}
    for field in fields(order):
        value = getattr(order, field.name)
        if field.name in _PATHS:
            value = str(value)
        elif field.name in ("environment", "labels"):
            value = dict(value)
        elif field.name == "needs":
            value = {**asdict(value), "sources": dict(value.sources)}
        found[field.name] = value
    return json.dumps(found, indent=1) + "\n"


def order_of(text: bytes) -> JobOrder:
    """Return the order of a text that `order_text` made.

    Raises:
        ValueError: it is none, or of another cstool
    """
    try:
        found = json.loads(text)
        version = found.pop("format")
        if version == FORMAT and found["priority"] in PRIORITIES:
            found |= {name: tuple(found[name]) for name in _TUPLES}
            found |= {name: Path(found[name]) for name in _PATHS}
            return JobOrder(**{**found, "needs": Needs(**found["needs"])})
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError("it is no order") from error
    raise ValueError("it is no order" if version == FORMAT else "it is of another cstool")


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, _NEW_FILE, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _read(folder: int, path: Path) -> bytes:
    """Read a file of the folder's owner; its content is not trusted."""
    try:
        descriptor = os.open(path.name, _FILE, dir_fd=folder)
    except FileNotFoundError:
        raise CstoolError(f"{path}: must stay as it was submitted, it was removed", _AGAIN) from None
    except OSError as error:
        raise CstoolError(f"{path}: cannot be read, got: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        entry = os.fstat(descriptor)
        if not stat.S_ISREG(entry.st_mode) or entry.st_size > _LARGEST_FILE:
            raise CstoolError(f"{path}: must stay as it was submitted, it was replaced", _AGAIN)
        if entry.st_uid != os.fstat(folder).st_uid:  # a link to a file of somebody else
            raise CstoolError(f"{path}: must belong to who submitted the job, it belongs to uid {entry.st_uid}", _AGAIN)
        _check_mode(path, entry)
        return file.read(_LARGEST_FILE)


def _check_mode(path: Path, entry: os.stat_result) -> None:
    if entry.st_mode & _LOOSE:
        mode = stat.S_IMODE(entry.st_mode)
        raise CstoolError(f"{path}: nobody but its owner must be able to write to it (mode {mode:04o})", _AGAIN)
