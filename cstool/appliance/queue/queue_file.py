"""The file of the queue: its permissions, transactions that wait for each other, and its problems in words."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from cstool.appliance.queue.queue_lock import PATIENCE_S, QueueLock, pause
from cstool.appliance.queue.queue_rows import TABLES, DamagedRow
from cstool.foundation.errors import CstoolError

if TYPE_CHECKING:
    from cstool.appliance.queue.root import Root

T = TypeVar("T")
FORMAT = 1
"""version of the tables; `PRAGMA user_version`"""
_APPLICATION_ID = 0x63734A51
"""says that a database is a queue of cstool: "csJQ\""""
_SQLITE_PATIENCE_S = 1.0
"""SQLite's own waiting time; after it we look whether we are to go on, and signals are heard [s]"""
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_PASSING_EXTENDED = {sqlite3.SQLITE_READONLY_RECOVERY, sqlite3.SQLITE_READONLY_CANTLOCK}
"""errors that pass when another process has got on: its transaction, or the recovery of one that was killed"""
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_LEAST_ROOM = 2**17
"""a disk with less room [bytes] is full: SQLite reports some of the consequences as errors of other kinds"""


class QueueFile:
    """The database, open. A context manager, which closes it.

    Writers, and processes that close it, hold `Root.queue_lock`. So SQLite, whose own locks make no queue, never has to
    wait, and no two processes copy the log into the database at a time. Two at a time
    may, rarely, damage it in versions before 3.51.3 (https://www.sqlite.org/wal.html#walresetbug).

    Args:
        root: of the appliance
        makes: whether to make it where there is none

    Raises:
        CstoolError: there is none, it is of another cstool, or cannot be used
    """

    def __init__(self, root: Root, *, makes: bool) -> None:
        self.path, self._root = root.queue_file, root
        self._mode = 0o600 if root.shared_with is None else 0o660
        self._turn = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        if not makes and not os.path.lexists(self.path):
            raise CstoolError(f"{self.path}: the queue must be there, it is not", "cstool appliance start makes one")
        with self._problems_in_words():
            self._lock = QueueLock(root.queue_lock, self._mode)
            try:
                with self._lock.held():
                    self._retrying(self._open)
            except BaseException:
                self._lock.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work`, which only reads, and may be called again."""
        with self._turn, self._problems_in_words():
            return self._retrying(lambda: work(self._opened()))

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work`, in one transaction, which is on the disk then; it may be called again."""

        def transaction() -> T:
            connection = self._opened()
            with _transaction(connection):
                return work(connection)

        with self._turn, self._problems_in_words(), self._lock.held():
            return self._retrying(transaction)

    def close(self) -> None:
        """Close it; more than once does no harm."""
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is None:
                return
            # Whoever closes it last copies the log into the database. If that is not to be, the next one does.
            with contextlib.ExitStack() as stack:
                with contextlib.suppress(CstoolError, OSError):
                    stack.enter_context(self._lock.held())
                connection.close()
            self._lock.close()

    def _open(self) -> None:
        if not os.path.lexists(self.path):
            self._make()
        self._check()
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw",
            uri=True,
            timeout=_SQLITE_PATIENCE_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            # Whatever another program has written: what is no UTF-8 is a text that makes no sense.
            connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA synchronous = FULL")
            prepare(connection, self.path)
        except BaseException:
            connection.close()
            raise
        self._connection, self._identity = connection, _identity(self.path)

    def _make(self) -> None:
        """Make it, empty, where this user may."""
        if self._root.shared_with is not None and os.geteuid() != 0:
            raise CstoolError(
                f"{self.path}: the queue must be there, it is not", "root makes one: cstool appliance start"
            )
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._mode)
        try:
            os.fchmod(descriptor, self._mode)  # whatever the umask; SQLite gives the files beside it the same
        finally:
            os.close(descriptor)

    def _check(self) -> None:
        """Check the kind and the owner of the file, before SQLite follows a link."""
        entry = os.lstat(self.path)
        shared = self._root.shared_with is not None
        if not stat.S_ISREG(entry.st_mode) or entry.st_nlink != 1:
            raise CstoolError(f"{self.path}: the queue must be a file, and no link, it is something else")
        if entry.st_uid != (0 if shared else os.geteuid()):
            owner = "root" if shared else "this user"
            raise CstoolError(f"{self.path}: the queue must belong to {owner}, it belongs to uid {entry.st_uid}")
        if entry.st_mode & (stat.S_IWOTH if shared else stat.S_IWOTH | stat.S_IWGRP):
            mode = stat.S_IMODE(entry.st_mode)
            raise CstoolError(f"{self.path}: others must not be able to write to the queue (mode {mode:04o})")

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise ValueError("the queue is closed")
        if _identity(self.path) != self._identity:
            raise CstoolError(
                f"{self.path}: the queue must stay where it is while it is in use, it was removed or replaced",
                "what uses it must be started again",
            )
        return self._connection

    def _retrying(self, work: Callable[[], T]) -> T:
        """Repeat work while other processes hold the database, such as a program that knows nothing of our lock."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return work()
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", None) or 0
                if code & 0xFF not in _PASSING and code not in _PASSING_EXTENDED:
                    raise
                if time.monotonic() > deadline:
                    raise CstoolError(
                        f"{self.path}: who uses the queue must let go of it, it was held for {PATIENCE_S:g} s",
                        "another program than cstool has it open",
                    ) from error
            pause()

    @contextlib.contextmanager
    def _problems_in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            found = problem_of(self.path, error)
            if found is None:
                raise
            raise found from error
        except DamagedRow as error:
            raise damage(self.path, str(error)) from error
        except UnicodeDecodeError as error:  # SQLite's message has a name of the file's tables
            raise damage(self.path, "a name in it is no text") from error
        except OSError as error:
            where = self.path if error.filename is None else os.fsdecode(error.filename)
            raise CstoolError(f"{where}: cannot be read or written, got: {error.strerror}") from error


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables where there are none, and check existing ones.

    Raises:
        CstoolError: they are of another program, or of a newer cstool, or the file system cannot have them
    """
    application, version, schema = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version", "schema_version")
    )
    if not application and not version and not schema:
        with _transaction(connection):
            for statement in TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
    elif application != _APPLICATION_ID:
        raise CstoolError(f"{path}: must be a queue of cstool, it is another database")
    elif version > FORMAT:
        raise CstoolError(
            f"{path}: the queue must be of format {FORMAT}, got {version}",
            "a newer cstool made it: use that, or another --root",
        )
    # A database knows what it is; where it is lost, such as in a copy, it comes back.
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise CstoolError(
            f"{path}: its file system must let processes share memory, it does not", "--root on a local disk"
        )


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that happens whole, or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite may have gone back already, such as on a full disk
            connection.execute("ROLLBACK")
        raise


def problem_of(path: Path, error: sqlite3.Error) -> CstoolError | None:
    """Return the problem with the file of a queue; None where the program is to blame."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code in _DAMAGED or (code == sqlite3.SQLITE_ERROR and str(error).startswith("no such ")):
        return damage(path, str(error))
    if code == sqlite3.SQLITE_FULL or (code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(path)):
        return CstoolError(
            f"{path}: cannot be written, its disk is full", "nothing was lost; make room, then try again"
        )
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return CstoolError(f"{path}: cannot be read or written, got: {error}")
    return None


def damage(path: Path, what: str) -> CstoolError:
    """Return the error for a queue that is damaged."""
    return CstoolError(
        f"{path}: the queue must be whole, it is damaged: {what}",
        "stop the appliance and move the file aside, and those beside it; what the jobs wrote is in their folders",
    )


def _is_full(path: Path) -> bool:
    try:
        room = os.statvfs(path.parent)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < _LEAST_ROOM or (room.f_files > 0 and room.f_favail == 0)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is, found without opening it: to close it would let go of SQLite's locks."""
    try:
        entry = os.lstat(path)
    except FileNotFoundError:
        return None
    return entry.st_dev, entry.st_ino
