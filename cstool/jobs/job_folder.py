"""The folder of a job: what was asked for, which does not change; what it wrote; how each attempt went."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cstool.jobs.job import JobOrder


@dataclass(frozen=True)
class AttemptFolder:
    """The folder of one attempt, `attempts/execute-1`. What is in it is written and read by the keeper's side."""

    path: Path

    @property
    def began(self) -> Path:
        """Who keeps it, since when."""
        return self.path / "began.json"

    @property
    def stop(self) -> Path:
        """What was asked of it."""
        return self.path / "stop.json"

    @property
    def end(self) -> Path:
        """How it ended."""
        return self.path / "end.json"


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
        """Who runs the job holds it."""
        return self.path / "lock"

    @property
    def attempts(self) -> Path:
        """The attempts' folders."""
        return self.path / "attempts"

    def log(self, stream: Literal["out", "err"]) -> Path:
        """Return where it writes its output, or its errors and log lines."""
        return self.path / stream

    def attempt(self, stage: str, number: int) -> AttemptFolder:
        """Return the folder of an attempt, which need not be there.

        Args:
            stage: `COMPILE` or `EXECUTE`
            number: from 1
        """
        return AttemptFolder(self.attempts / f"{stage}-{number}")

    def last_attempt(self, stage: str) -> int:
        """Return the number of the last attempt that began; 0 where none did."""
        raise NotImplementedError

    def make(self, order: JobOrder) -> str:
        """Make the folder with the order in it: whole, and on the disk, or not at all.

        Returns:
            SHA-256 of `job_file`, in hexadecimal digits

        Raises:
            CstoolError: it cannot be written, or is there
        """
        raise NotImplementedError

    def order(self, digest: str) -> JobOrder:
        """Read the order.

        Args:
            digest: as `make` returned it

        Raises:
            CstoolError: it is not there or cannot be read, it was edited, or others than its owner can change it
        """
        raise NotImplementedError

    def owner_id(self) -> int:
        """Return whose it is, and so as whom the job runs: the user's number.

        Raises:
            CstoolError: it is not there, or others than its owner can change it
        """
        raise NotImplementedError

    def remove(self) -> None:
        """Remove it with all that is in it; where it is not there, or cannot be removed, nothing is said."""
        raise NotImplementedError
