"""The supervisor's side of the keepers: start one, see what became of an attempt, pass on what is asked of a job."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cstool.jobs.job import JobOrder, Needs

if TYPE_CHECKING:
    from cstool.jobs.job_folder import JobFolder

ABSENT, BEGINNING, ALIVE, ENDED, DEAD = "absent", "beginning", "alive", "ended", "dead"
"""see `Kept`"""
MEMORY, DISK, TIME = "memory", "disk", "time"
"""what a job may have been stopped for by its keeper; see `End.why`"""
HELD = 3
"""exit code of a keeper that did nothing: another one is at it, or the attempt began already"""


class User(NamedTuple):
    """Whose job it is: what its processes run as."""

    user_id: int
    group_id: int
    group_ids: tuple[int, ...]


@dataclass(frozen=True)
class End:
    """How an attempt ended.

    Args:
        exit_code: of the run; None where a signal ended it
        signal: the one that ended it; None where it exited
        why: what the keeper stopped it for, `MEMORY`, `DISK` or `TIME`; "" where it did not
        asked: the last that the keeper was asked for and passed on: "", PREEMPT, CANCEL, CANCEL_NOW
        peak_bytes: most memory that its processes were seen to take together [bytes]
        seconds: how long it ran [s]
        at: when it ended, by the clock [s since 1970]
    """

    exit_code: int | None
    signal: int | None
    why: str
    asked: str
    peak_bytes: int
    seconds: float
    at: float


@dataclass(frozen=True)
class Kept:
    """What is known of an attempt.

    Args:
        state: `ABSENT`: it never began, start it; `BEGINNING`: it did not begin, but somebody holds the job, such as
            its keeper or what is left of an attempt before; `ALIVE`: keeper or run live; `ENDED`: see `end`;
            `DEAD`: it began, nobody is at it, and nobody recorded how it ended
        end: how it ended, where the state is `ENDED`
        boot_id: of the host when it began, see `this_boot_id`; "" where it never began, or nobody knows
        began_at: by the clock [s since 1970]; None where nobody knows
        memory_guard: "cgroup" or "watch": who keeps its memory within the budget; "" where nobody knows
    """

    state: str
    end: End | None = None
    boot_id: str = ""
    began_at: float | None = None
    memory_guard: str = ""


def this_boot_id() -> str:
    """Return what tells this boot of the host from others."""
    raise NotImplementedError


def start(
    folder: JobFolder,
    order: JobOrder,
    stage: str,
    attempt: int,
    *,
    command: Sequence[str],
    cpus: Sequence[int],
    needs: Needs,
    user: User | tuple[int, int, tuple[int, ...]] | None = None,
) -> subprocess.Popen[bytes]:
    """Start the keeper of an attempt, which starts the command; it does so once, however often it is asked.

    Args:
        attempt: counts from 1
        command: words of the whole command
        cpus: cores that it is pinned to
        needs: what it may take; its seconds and sources do not matter here
        user: whose job it is, where that is another one; only root may

    Returns:
        The keeper. Its exit code is 0 where it recorded the end of the attempt, `HELD` where it did nothing, another
        one where it could not begin, see `trouble`.

    Raises:
        CstoolError: it cannot be started
    """
    raise NotImplementedError


def trouble(keeper: subprocess.Popen[bytes]) -> str | None:
    """Say why a keeper could not begin; None while it lives, and where it exited with 0 or `HELD`."""
    raise NotImplementedError


def look(folder: JobFolder, stage: str, attempt: int) -> Kept:
    """Return what is known of an attempt; whatever lies in the folder, this neither blocks nor raises."""
    raise NotImplementedError


def ask(folder: JobFolder, stage: str, attempt: int, what: str) -> None:
    """Have an attempt stopped: CANCEL and PREEMPT after its step, saved, CANCEL_NOW at once. Asking again is harmless.

    Raises:
        CstoolError: it cannot be written
    """
    raise NotImplementedError
