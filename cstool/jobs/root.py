"""The root folder of an appliance: where its queue and its jobs are, and who may use it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cstool.jobs.job_folder import JobFolder


@dataclass(frozen=True)
class Root:
    """A root folder that was checked; see `open_root`.

    Args:
        folder: absolute, without links
        shared_with: the group whose members submit; None where it is one user's alone
    """

    folder: Path
    shared_with: str | None = None

    @property
    def queue_file(self) -> Path:
        """The queue, an SQLite database. Only `Queue` may open it: to close it in another way lets go of its locks."""
        return self.folder / "queue.db"

    @property
    def queue_lock(self) -> Path:
        """Who writes to the queue holds it."""
        return self.folder / "queue.lock"

    @property
    def supervisor_lock(self) -> Path:
        """The supervisor holds it as long as it lives."""
        return self.folder / "supervisor.lock"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor says."""
        return self.folder / "supervisor.log"

    @property
    def compiled(self) -> Path:
        """Artifacts of a root of one user."""
        return self.folder / "compiled"

    @property
    def jobs(self) -> Path:
        """The jobs' folders."""
        return self.folder / "jobs"

    def job(self, name: str) -> JobFolder:
        """Return the folder of a job, which need not be there.

        Raises:
            CstoolError: that is no name of a job
        """
        raise NotImplementedError


def usual_root() -> Path:
    """Return $CSTOOL_APPLIANCE, else $XDG_STATE_HOME/cstool/appliance, else ~/.local/state/cstool/appliance."""
    raise NotImplementedError


def open_root(folder: Path | None, *, makes: bool) -> Root:
    """Check the root folder of an appliance.

    Args:
        folder: None for the usual one
        makes: whether to make one for this user alone where there is none

    Raises:
        CstoolError: there is none, it is no folder, or others than its owner can change it
    """
    raise NotImplementedError


def make_shared_root(folder: Path | None, group: str) -> Root:
    """Make the root folder of an appliance to which the members of a group submit; only root may.

    One that is there, and is shared with this group, stays as it is.

    Raises:
        CstoolError: this is not root, there is no such group, there is another folder, or it cannot be made
    """
    raise NotImplementedError
