"""From params and flags to the order of a job: checked as a run checks them, with what it needs of the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cstool.verbs.run import RunRequest

if TYPE_CHECKING:
    from cstool.jobs.job import Capacity, JobOrder
    from cstool.params import Params

History = Callable[[str, int], float | None]
"""seconds per step of jobs that ended, by compile_key and cores; see `Queue.history_s`"""


@dataclass(frozen=True)
class JobRequest:
    """What is asked for beside params; None, or nothing, where nothing was typed.

    Args:
        run: how the params are run; its lanes are the cores of the job
        typed: the command as it was typed
        program: words that start cstool, such as [python, -m, cstool]
        params_file: where the params came from, for people
        memory: what all processes of the job may take, such as "2GiB"
        disk: what its model_dir may grow by, such as "10GB"
        time: limit, as sbatch takes it: minutes, h:mm:ss, days-hours
        priority: p1, p2 or p3; None for that of the params, or else p2
        labels: KEY=VALUE each; they win over those of the params
        note: free text, one line
        preempts: whether running jobs of a lower priority may be stopped for it
        max_restarts: how often it is started again after it crashed; None for 0
        compile_dir: of artifacts where the params name no folder; None for that of a run, in model_dir
        backend_options: options of the back end
    """

    run: RunRequest = field(default_factory=RunRequest)
    typed: Sequence[str] = ()
    program: Sequence[str] = ()
    params_file: str = ""
    memory: str | None = None
    disk: str | None = None
    time: str | None = None
    priority: str | None = None
    labels: Sequence[str] = ()
    note: str = ""
    preempts: bool = False
    max_restarts: int | None = None
    compile_dir: Path | None = None
    backend_options: Sequence[str] = ()


def make_order(
    trainers: Sequence[Params],
    request: JobRequest,
    *,
    capacity: Capacity | None = None,
    history: History | None = None,
) -> JobOrder:
    """Return the order of a job, once all is checked that can be before it waits for its turn.

    Args:
        trainers: of one params file
        request: what else was asked for
        capacity: of the appliance; None where nobody knows
        history: knows how long steps took; None for nothing

    Raises:
        CstoolError: whatever the user can act on: as of a run, or what is asked for cannot be had
    """
    raise NotImplementedError
