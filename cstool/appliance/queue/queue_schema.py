"""The tables of the queue, and which versions of them this cstool knows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from cstool.appliance.queue.job import CANCEL, CANCEL_NOW, COMPILE, EXECUTE, PHASES, PREEMPT, PRIORITIES
from cstool.foundation.errors import CstoolError

FORMAT = 1
"""version of the tables; `PRAGMA user_version`"""
_APPLICATION_ID = 0x63734A51
"""says that a database is a queue of cstool: "csJQ\""""


def _listed(words: Iterable[str]) -> str:
    return f"({', '.join(repr(word) for word in words)})"


_TABLES = (
    # Numbers are never used again, also not those of jobs and events that were removed: AUTOINCREMENT.
    f"""
    CREATE TABLE jobs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        user TEXT NOT NULL,
        user_id INTEGER NOT NULL,
        digest TEXT NOT NULL,
        backend TEXT NOT NULL,
        backend_id TEXT NOT NULL,
        model TEXT NOT NULL,
        mode TEXT NOT NULL,
        params_file TEXT NOT NULL,
        model_dir TEXT NOT NULL,
        compile_key TEXT NOT NULL,
        max_steps INTEGER,
        needs TEXT NOT NULL,
        priority TEXT NOT NULL CHECK (priority IN {_listed(PRIORITIES)}),
        preempts INTEGER NOT NULL,
        preemptible INTEGER NOT NULL,
        max_restarts INTEGER NOT NULL,
        labels TEXT NOT NULL,
        note TEXT NOT NULL,
        phase TEXT NOT NULL CHECK (phase IN {_listed(PHASES)}),
        stage TEXT NOT NULL CHECK (stage IN {_listed((COMPILE, EXECUTE))}),
        reason TEXT NOT NULL,
        asked TEXT NOT NULL CHECK (asked IN {_listed(("", CANCEL, CANCEL_NOW, PREEMPT))}),
        attempt INTEGER NOT NULL,
        restarts INTEGER NOT NULL,
        cpus TEXT NOT NULL,
        submitted_at REAL NOT NULL,
        started_at REAL,
        ended_at REAL,
        exit_code INTEGER,
        expected_start REAL,
        expected_end REAL,
        peak_bytes INTEGER NOT NULL
    )
    """,
    "CREATE INDEX jobs_phase ON jobs (phase, priority, number)",
    "CREATE INDEX jobs_ended ON jobs (ended_at, number) WHERE ended_at IS NOT NULL",
    "CREATE INDEX jobs_alike ON jobs (compile_key, phase, number)",
    """
    CREATE TABLE events (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        job TEXT NOT NULL,
        kind TEXT NOT NULL,
        text TEXT NOT NULL,
        data TEXT NOT NULL
    )
    """,
    "CREATE INDEX events_job ON events (job, number)",
    "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables where there are none, and check existing ones.

    Raises:
        CstoolError: they are of another program, or of a newer cstool, or the file system cannot have them
    """
    application, version = _number(connection, "application_id"), _number(connection, "user_version")
    if not application and not version and not _number(connection, "schema_version"):
        _make(connection)
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


def _make(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    (number,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(number)
