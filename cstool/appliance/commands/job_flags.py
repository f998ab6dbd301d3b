"""The flags of jobs: of `cstool job submit`, of `cstool run --appliance`, and flags that several commands share."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cstool.foundation.errors import ClusterError, InferenceError
from cstool.foundation.safe_python import this_program
from cstool.foundation.terminal.options import argument, flag, option
from cstool.model.commands.options import parse_lanes

if TYPE_CHECKING:
    from cstool.appliance.verbs.job_order import JobRequest
    from cstool.training.commands.launch_flags import LaunchFlags
    from cstool.training.commands.run_flags import RunFlags


def complete_job(ctx: Any, incomplete: str) -> list[str]:
    """Return job names that complete a beginning, the newest first: jobs of --root, if that was typed."""
    from cstool.appliance.verbs.jobs import job_names

    return job_names(ctx.params.get("root"), incomplete)


Priority = Literal["p1", "p2", "p3"]
BackendName = Literal["local", "slurm"]

RootOption = Annotated[
    Path | None,
    option("--root", "DIR", "Folder of the appliance.", show_default="$CSTOOL_APPLIANCE, or one in your home"),
]
NameArgument = Annotated[str, argument("NAME", "Name of a job, or a beginning that no other name has.", complete_job)]
NamesArgument = Annotated[
    list[str], argument("NAME...", "Names of jobs, or beginnings that no other names have.", complete_job)
]


@dataclass(frozen=True)
class JobFlags:
    """Flags for kind and place of a job; None where a flag was not typed."""

    priority: Annotated[
        Priority | None,
        option(
            "--priority --job_priority",
            None,
            "job: p1 goes before p2 and p3, p2 before p3.",
            show_default="job_priority of the params file, or p2",
        ),
    ] = None
    note: Annotated[str | None, option("--note", "TEXT", "job: a line of text, shown with the job.")] = None
    memory: Annotated[
        str | None,
        option(
            "--memory",
            "SIZE",
            "job: memory of all its processes, such as 4GiB; a job that takes more is ended.",
            show_default="estimated",
        ),
    ] = None
    disk: Annotated[
        str | None,
        option("--disk", "SIZE", "job: growth of model_dir, such as 10GB.", show_default="estimated"),
    ] = None
    preempt: Annotated[
        bool | None,
        flag("--preempt", "job: if it has to wait, stop jobs of a lower priority; they save, and go on later."),
    ] = None
    backend: Annotated[
        BackendName | None,
        option(
            "--backend",
            None,
            "job: run by the supervisor of this host, or by Slurm.",
            show_default="as the appliance was started",
        ),
    ] = None
    root: RootOption = None

    @property
    def typed(self) -> list[str]:
        """The flags that were typed."""
        return [f"--{field.name}" for field in fields(self) if getattr(self, field.name) is not None]


@dataclass(frozen=True)
class SubmitFlags:
    """Further flags of `cstool job submit`; `cstool run` has them for `--launch`, too."""

    max_restarts: Annotated[
        int | None,
        option("--max_restarts", "N", "job: most restarts after a crash, from the last commit or checkpoint."),
    ] = None
    time: Annotated[
        str | None,
        option(
            "--time",
            "LIMIT",
            "job: time limit, as 90 (minutes), 1:30:00 or 2-12 (days-hours); then the job saves, and has failed.",
        ),
    ] = None
    sbatch: Annotated[
        list[str] | None,
        option("--sbatch", "OPTIONS", "slurm: further options of sbatch, as --sbatch=--account=NAME; may be repeated."),
    ] = None


@dataclass(frozen=True)
class ApplianceFlags:
    """The flags of `cstool run` that make it a job."""

    appliance: Annotated[
        bool | None,
        flag("--appliance", "Submit the run as a job, and follow it to its end; see `cstool job --help`."),
    ] = None
    on_interrupt: Annotated[
        Literal["cancel", "detach"] | None,
        flag(
            "--on_interrupt", "job: effect of Ctrl-C: cancel the job, or only stop following it.", show_default="cancel"
        ),
    ] = None


def job_request(flags: RunFlags, job: JobFlags, more: SubmitFlags | LaunchFlags) -> JobRequest:
    """The request of a job, beside its params.

    Raises:
        CstoolError: it is nothing that can wait in a queue
    """
    from cstool.appliance.verbs.job_order import JobRequest
    from cstool.training.verbs.run import RunRequest

    if flags.mode == "infer":
        raise InferenceError(
            "--mode: must be one that trains or evaluates, got infer for a job",
            "`cstool run --mode infer` answers at once; a job waits for its turn",
        )
    if flags.transport == "mpi":
        raise ClusterError("--transport: must be auto or in_process for a job, which is one process, got mpi")
    if more.sbatch and job.backend == "local":
        raise ClusterError("--sbatch: must go with --backend slurm, got local")
    run = {field.name: getattr(flags, field.name) for field in fields(RunRequest)}
    return JobRequest(
        run=RunRequest(**run | {"lanes": parse_lanes(flags.lanes)}),
        typed=["cstool", *sys.argv[1:]],
        program=this_program(),
        params_file=str(flags.params),
        memory=job.memory,
        disk=job.disk,
        time=more.time,
        priority=job.priority,
        labels=flags.job_labels or (),
        note=job.note or "",
        preempts=bool(job.preempt),
        max_restarts=more.max_restarts,
        backend_options=more.sbatch or (),
    )


def check_no_job(appliance: ApplianceFlags, job: JobFlags) -> None:
    """Check that no flag of a job was typed for a run that is none.

    Raises:
        ClusterError: one was
    """
    typed = [*(["--on_interrupt"] if appliance.on_interrupt else []), *job.typed]
    if typed:
        raise ClusterError(f"{typed[0]}: must go with --appliance, got it alone", "or with `cstool job submit`")


def check_job(launch: LaunchFlags, as_json: bool) -> None:
    """Check that no flag was typed that makes no sense of a job that is followed.

    Raises:
        ClusterError: one was
    """
    for name in ("launch", "ranks", "nodes", "partition"):
        if getattr(launch, name) is not None:
            raise ClusterError(
                f"--{name}: must not be with --appliance, got both", "a job is one process, with a lane for each core"
            )
    if as_json:
        raise ClusterError(
            "--json: must not be with --appliance, got both",
            "`cstool job submit --json --wait` prints a document about the job",
        )


def say_of_a_job(line: str) -> None:
    """Write a line about a job to stderr."""
    print(line, file=sys.stderr, flush=True)
