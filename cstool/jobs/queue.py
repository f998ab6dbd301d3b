"""The queue of an appliance: its jobs and what happened to them, in one SQLite database that many processes share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

if TYPE_CHECKING:
    from cstool.jobs.job import Event, Job, JobOrder, Needs
    from cstool.jobs.root import Root

CAPACITY, DRAINED_SETTING, KEEPS, BACKEND = "capacity", "drained", "keeps", "backend"
"""names of settings; see `Queue.get`"""


class Changes(TypedDict, total=False):
    """Fields of a job that `Queue.change` may set; see `Job`."""

    backend_id: str
    needs: Needs
    priority: str
    note: str
    phase: str
    stage: str
    reason: str
    asked: str
    attempt: int
    restarts: int
    cpus: tuple[int, ...]
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    expected_start: float | None
    expected_end: float | None
    peak_bytes: int


class Queue:
    """The queue. A context manager; safe for many processes, and for threads of one.

    Every method is one short transaction: it happens whole, or not at all. While another process writes, it waits.

    Every method raises CstoolError where the file cannot be read or written, such as on a full disk, or is damaged.

    Args:
        root: of the appliance
        makes: whether to make it where there is none

    Raises:
        CstoolError: there is none, it is of another cstool, or cannot be used
    """

    def __init__(self, root: Root, *, makes: bool = True) -> None:
        self.path: Path = root.queue_file

    def __enter__(self) -> Queue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it; more than once does no harm."""
        raise NotImplementedError

    def add(self, name: str, order: JobOrder, digest: str, backend: str, *, user: str, user_id: int) -> Job:
        """Add a job, QUEUED, with the event SUBMITTED.

        Its stage is COMPILE where the order has words for that, else EXECUTE.

        Args:
            digest: of its `job.json`; see `JobFolder.make`
            backend: name of its back end
            user, user_id: who submits it
        """
        raise NotImplementedError

    def job(self, name: str) -> Job:
        """Return a job by its name, or by an unambiguous beginning of it.

        Raises:
            CstoolError: there is none, or there are several
        """
        raise NotImplementedError

    def jobs(
        self,
        *,
        active: bool = False,
        phases: Collection[str] | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """Return jobs, the newest last.

        Args:
            active: only those that have not ended
            phases: only those in one of these
            user: only this user's
            labels: only those that have all these
            limit: the newest so many of them
        """
        raise NotImplementedError

    def events(self, job: str | None = None, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return what happened, the oldest first.

        Args:
            job: whole name; None for all jobs and the appliance, "" for the appliance alone
            after: number of an event; only those after it
            limit: the newest so many of them
        """
        raise NotImplementedError

    def change(
        self,
        name: str,
        phases: Collection[str],
        /,
        *,
        event: tuple[str, str, Mapping[str, Any]] | None = None,
        if_attempt: int | None = None,
        if_asked: str | None = None,
        **fields: Unpack[Changes],
    ) -> Job | None:
        """Change a job, if it is as the caller believes, and return it as it is then; None where nothing happened.

        The time of the event becomes its `ended_at` where it ends, and its `started_at` where that event is STARTED
        and it had none, unless they are given.

        Args:
            name: whole
            phases: it must be in one of these
            event: kind, text and data of the event that says so, in the same transaction
            if_attempt, if_asked: it must have this attempt, this asked; None for any
            fields: what becomes of it
        """
        raise NotImplementedError

    def ask(self, name: str, what: str) -> Job:
        """Ask a job to stop, and return it as it is then.

        One that is QUEUED is CANCELLED at once. A running one gets it as `asked`, with the event STOP_ASKED; CANCEL_NOW
        overrides CANCEL, and that PREEMPT. What is asked again, or overridden already, changes nothing.

        Args:
            name: or an unambiguous beginning
            what: `CANCEL`, `CANCEL_NOW` or `PREEMPT`, which does nothing to a job that waits

        Raises:
            CstoolError: there is no such job, or it has ended
        """
        raise NotImplementedError

    def label(self, name: str, changes: Mapping[str, str | None]) -> Job:
        """Set labels of a job, or remove those that are None, with the event LABELLED; return it as it is then.

        Raises:
            CstoolError: there is no such job, or it would have too many; a label is none
        """
        raise NotImplementedError

    def set_expected(self, times: Mapping[str, tuple[float | None, float | None]], reasons: Mapping[str, str]) -> None:
        """Set when jobs that have not ended are expected to start and end, and why they wait; no events.

        Where that differs by less than a second from what is known, nothing is written.

        Args:
            times: name -> expected start and end [s since 1970]
            reasons: name -> why it waits; of jobs that are QUEUED alone
        """
        raise NotImplementedError

    def position(self, name: str) -> int | None:
        """Return which of the waiting jobs it is, by priority, then by number: 1 is next; None where it does not wait."""
        raise NotImplementedError

    def positions(self) -> dict[str, int]:
        """Return the position of all jobs that wait; see `position`."""
        raise NotImplementedError

    def history_s(self, compile_key: str, cores: int) -> float | None:
        """Return the median time of a step [s], of the last jobs that succeeded with the same model and cores.

        It counts jobs that ran straight, from their first start to their end, start-up and all. None where there are
        none.
        """
        raise NotImplementedError

    def get(self, key: str) -> Any:
        """Return a setting, as JSON has it; None where it was never put.

        Settings: CAPACITY, of the appliance; DRAINED_SETTING, whether nothing new starts; BACKEND, the usual one;
        KEEPS, {"jobs": ended jobs that `prune` keeps, "events": events that it keeps}.
        """
        raise NotImplementedError

    def put(self, key: str, value: Any) -> None:
        """Set a setting to something that JSON knows."""
        raise NotImplementedError

    def note(self, kind: str, text: str, data: Mapping[str, Any] | None = None) -> None:
        """Add an event about the appliance."""
        raise NotImplementedError

    def prune(self) -> list[str]:
        """Remove ended jobs, those that ended first, and events beyond what is kept (KEEPS); return the jobs' names.

        Their folders are for the caller to remove. So that others need not wait long, a call removes at most 200 jobs
        and 5,000 events besides theirs; whoever calls it now and then gets there.
        """
        raise NotImplementedError

    def version(self) -> int:
        """Return a number that changes whenever something in the queue does. It costs next to nothing."""
        raise NotImplementedError
