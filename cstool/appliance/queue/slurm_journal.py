"""The journal of a job under Slurm: its batch job's changes, written where it ran, for updates of the queue elsewhere.

The nodes of a cluster share files, but not the queue: SQLite's locks and its WAL are for the processes of one host
(https://sqlite.org/wal.html). So a batch job writes each change into its job's folder, a line of JSON each, and the
next command that looks at the queue tells it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.appliance.queue.job import COMPILE, COMPILING, ENDED_PHASES, EXECUTE, PHASE_AFTER, QUEUED, RUNNING
from cstool.appliance.queue.records import is_count, read_plain
from cstool.foundation.plain_text import one_line

if TYPE_CHECKING:
    from cstool.appliance.queue.outcome import Outcome

LARGEST_BYTES = 2**20
"""largest part of a journal that is read [bytes]; a job has a few lines of a few hundred"""
_LONGEST = 500


@dataclass(frozen=True)
class Entry:
    """A change of a job.

    Args:
        at: when [s since 1970]
        kind, text: of the event
        phase, stage, attempt: of the job from then on
        reason: for its waiting, or its end
        restarts: number of restarts that count
        exit_code: of its process; None where it has none
        peak_bytes: most memory that it was seen to take
        cpus: cores that it has
        nodes: of its run
        stopped: whether Slurm, or a user of its commands, had it stop: then only Slurm knows the job's further fate
    """

    at: float
    kind: str
    text: str
    phase: str
    stage: str
    attempt: int
    reason: str = ""
    restarts: int = 0
    exit_code: int | None = None
    peak_bytes: int = 0
    cpus: tuple[int, ...] = ()
    nodes: str = ""
    stopped: bool = False

    @classmethod
    def of(cls, over: Outcome, at: float, attempt: int, **others: Any) -> Entry:
        """The entry of an outcome, with further fields."""
        shared = (over.event, over.text, over.phase, over.stage, attempt, over.reason)
        return cls(at, *shared, exit_code=over.exit_code, peak_bytes=over.peak_bytes, **others)

    @property
    def place(self) -> tuple[int, int, int]:
        """The entry's place in the life of a job; the places of entries increase."""
        return place_of(self.phase, self.stage, self.attempt)


def place_of(phase: str, stage: str, attempt: int) -> tuple[int, int, int]:
    """A job's place in its life; later places are greater.

    >>> place_of("QUEUED", "execute", 0) < place_of("RUNNING", "execute", 1) < place_of("QUEUED", "execute", 1)
    True
    """
    if phase in ENDED_PHASES:
        return (2, 0, 0)
    return (int(stage == EXECUTE), attempt, int(phase == QUEUED))


class Journal:
    """The journal in a job's folder. It has one writer, and any number of readers.

    Args:
        path: of the file
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unwritten: list[Entry] = []

    def add(self, entry: Entry) -> bool:
        """Add an entry. On a full disk it is kept, and written before the next one; return whether all is written."""
        self._unwritten.append(entry)
        return self.flush()

    def flush(self) -> bool:
        """Write the lines that could not be written before; return whether all are written."""
        if not self._unwritten:
            return True
        # A line that was cut, by a disk that was full, ends at the first end of line.
        text = "".join(f"\n{json.dumps(asdict(entry))}\n" for entry in self._unwritten)
        try:
            descriptor = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            try:
                content = text.encode()
                if os.write(descriptor, content) < len(content):
                    return False
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            return False
        self._unwritten.clear()
        return True

    def read(self) -> list[Entry]:
        """Read all entries; a damaged line is none, and a path that is no plain file, such as a link, has none."""
        try:
            content = read_plain(self._path, LARGEST_BYTES)
        except OSError:
            return []
        found = (_parsed(line) for line in content.decode("utf-8", "replace").split("\n") if line)
        return [entry for entry in found if entry is not None]


def _parsed(line: str) -> Entry | None:
    try:
        values = json.loads(line)
        entry = Entry(**values)
    except (ValueError, TypeError, RecursionError):
        return None
    return _plain(entry) if _is_sound(entry) else None


def _is_sound(entry: Any) -> bool:
    """Whether all fields of an entry are valid: a job may write anything into its folder."""
    words = all(isinstance(each, str) for each in (entry.kind, entry.text, entry.reason, entry.nodes))
    numbers = all(is_count(each) for each in (entry.attempt, entry.restarts, entry.peak_bytes))
    return bool(
        words
        and numbers
        and PHASE_AFTER.get(entry.kind) == entry.phase
        and entry.stage in (COMPILE, EXECUTE)
        and (
            entry.phase not in (COMPILING, RUNNING)
            or entry.phase == {COMPILE: COMPILING, EXECUTE: RUNNING}[entry.stage]
        )
        and (entry.exit_code is None or is_count(entry.exit_code, 255))
        and isinstance(entry.cpus, list | tuple)
        and all(is_count(cpu) for cpu in entry.cpus)
        and isinstance(entry.stopped, bool)
        and isinstance(entry.at, int | float)
        and 0 <= entry.at < 2**53
    )


def _plain(entry: Entry) -> Entry:
    values = {field.name: getattr(entry, field.name) for field in fields(entry)}
    for name in ("text", "reason", "nodes"):
        values[name] = one_line(values[name])[:_LONGEST]
    return Entry(**{**values, "cpus": tuple(entry.cpus), "at": float(entry.at)})
