"""`cstool run`: train and evaluate what a params file asks for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cstool.appliance.commands.job_flags import (
    ApplianceFlags,
    JobFlags,
    check_job,
    check_no_job,
    job_request,
    say_of_a_job,
)
from cstool.foundation.safe_python import python
from cstool.foundation.terminal.command import same_command
from cstool.foundation.terminal.completion import complete_artifact, complete_checkpoint
from cstool.foundation.terminal.options import (
    LOGGING,
    CompileDirOption,
    ExecutionModeOption,
    LogLevel,
    NumCsxOption,
    RecomputeOption,
    SeedOption,
    SetOption,
    SystemOption,
    flag,
    lanes_option,
    option,
    params_option,
    parse_lanes,
)
from cstool.foundation.terminal.render import print_json
from cstool.foundation.terminal.report import missing_option
from cstool.foundation.terminal.screen import screen_on
from cstool.inference.commands.infer_flags import InferFlags
from cstool.model.verbs.asked import check_trace_file, load_trainers, typed
from cstool.training.commands.launch_flags import LaunchFlags, command_of_a_rank, launch_words

if TYPE_CHECKING:
    from cstool.verbs.results import Params

PARAMS_HELP = "Params file (YAML), or the name of a stock one; to infer, a checkpoint has them as well."
TRACE_HELP = (
    "Record what happens on this host in steps 2 to 4 of the run (in all, if it has fewer than 4) into a .json file "
    "that Perfetto opens."
)


@dataclass(frozen=True)
class RunFlags:
    """The flags of all modes, and of those that train or evaluate."""

    params: Annotated[Path | None, params_option(PARAMS_HELP)] = None
    mode: Annotated[
        Literal["train", "eval", "train_and_eval", "eval_all", "infer"], option("--mode -m", None, "Mode of the run.")
    ] = "train"
    model_dir: Annotated[Path | None, option("--model_dir -o", "DIR", "Folder of checkpoints and logs.")] = None
    num_csx: NumCsxOption = None
    checkpoint_path: Annotated[
        Path | None,
        option(
            "--checkpoint_path",
            "CHECKPOINT",
            "Start from this one (a file, DIR:STEP or DIR:latest), not from the latest.",
            complete_checkpoint,
        ),
    ] = None
    load_checkpoint_states: Annotated[
        str | None,
        option(
            "--load_checkpoint_states",
            "STATES",
            "Comma-separated parts of the checkpoint to load; model loads the weights only.",
        ),
    ] = None
    disable_strict_checkpoint_loading: Annotated[
        bool | None,
        flag("--disable_strict_checkpoint_loading", "Load a checkpoint even if it lacks weights or has others."),
    ] = None
    max_steps: Annotated[int | None, option("--max_steps", "N", "Train up to this step, counted from step 0.")] = None
    num_steps: Annotated[
        int | None, option("--num_steps", "N", "Train this many steps from here on; wins over --max_steps.")
    ] = None
    eval_steps: Annotated[int | None, option("--eval_steps", "N", "Batches of an evaluation.")] = None
    seed: SeedOption = None
    set_: SetOption = None
    system: SystemOption = "cs2"
    execution_mode: ExecutionModeOption = "auto"
    recompute: RecomputeOption = "fastest"
    compile_dir: CompileDirOption = None
    compile_only: Annotated[bool | None, flag("--compile_only", "Compile, do not run.")] = None
    validate_only: Annotated[
        bool | None, flag("--validate_only", "Check that every op has a kernel, do not compile.")
    ] = None
    artifact: Annotated[Path | None, option("--artifact", "FILE", "Run this artifact.", complete_artifact)] = None
    lanes: Annotated[str, lanes_option("Threads of this host. Results do not depend on it.")] = "auto"
    sparse_kernels: Annotated[
        Literal["auto", "always", "never", "measure"],
        flag(
            "--sparse_kernels",
            "Kernels of sparse weights; auto: the faster ones, as measured here once.",
        ),
    ] = "auto"
    precision: Annotated[
        Literal["float32", "bfloat16"] | None,
        flag("--precision", "Operands of products on this host; the params file says it if this does not."),
    ] = None
    memoryx: Annotated[
        Literal["auto", "ram", "file"] | None,
        flag("--memoryx", "Where weights and optimizer state are; auto: in a file from half of the free memory on."),
    ] = None
    memoryx_memory: Annotated[
        str | None, option("--memoryx_memory", "SIZE", "Memory of the buffers of that file, 2GiB if not said.")
    ] = None
    memoryx_nodes: Annotated[
        int | None,
        option("--memoryx_nodes", "N", "How many ranks keep a part of MemoryX each.", show_default="all of them"),
    ] = None
    trace: Annotated[Path | None, option("--trace", "FILE", TRACE_HELP)] = None
    transport: Annotated[
        Literal["auto", "in_process", "mpi"],
        flag("--transport", "How systems reach MemoryX; auto: MPI where mpirun or srun started several processes."),
    ] = "auto"
    num_workers_per_csx: Annotated[int | None, typer.Option("--num_workers_per_csx", hidden=True)] = None
    mount_dirs: Annotated[list[str] | None, typer.Option("--mount_dirs", hidden=True)] = None
    python_paths: Annotated[list[str] | None, typer.Option("--python_paths", hidden=True)] = None
    job_labels: Annotated[
        list[str] | None, option("--job_labels", "KEY=VALUE", "job: labels, by which `cstool job list` finds it.")
    ] = None
    disable_version_check: Annotated[bool | None, typer.Option("--disable_version_check", hidden=True)] = None


def run(
    context: typer.Context,
    flags: RunFlags,
    launch: LaunchFlags,
    appliance: ApplianceFlags,
    job: JobFlags,
    asked: InferFlags,
    as_json: Annotated[bool, flag("--json", "Print one JSON document on stdout, the log on stderr.")] = False,
    logging: Annotated[LogLevel | None, LOGGING] = None,
) -> None:
    """Train or evaluate the model of a params file, or let it write.

    Without a checkpoint given, a run continues from the latest one in its model_dir.
    Only flags that are typed override the file. A file with several trainers runs them in order.
    With --appliance it is a job that waits for its turn, and is followed to its end.
    """
    from cstool.inference.commands.infer import infer
    from cstool.training.verbs.ranks import is_to_launch, joined_ranks
    from cstool.training.verbs.run import RunRequest, run_all

    if appliance.appliance:
        raise typer.Exit(_submit(context, flags, launch, appliance, job, asked, as_json, logging))
    check_no_job(appliance, job)
    if is_to_launch(launch.request, flags.transport):
        raise typer.Exit(_launch(context, flags, launch, logging))
    with joined_ranks(flags.transport) as link:
        lanes = parse_lanes(flags.lanes)
        infers = flags.mode == "infer"
        if infers:
            asked.check_others(context)
        else:
            asked.check_mode(flags.mode)
        if flags.trace is not None:
            check_trace_file(flags.trace)
        trainers, checkpoint_path = load_run(context, flags, logging)
        if infers:
            # Of several trainers the last one has the model that the file comes to.
            infer(trainers[-1], asked, checkpoint_path=checkpoint_path, lanes=lanes, as_json=as_json, link=link)
            return
        request = RunRequest(
            **{field.name: getattr(flags, field.name) for field in fields(RunRequest)} | {"lanes": lanes}
        )
        stream = sys.stderr if as_json else sys.stdout
        results = run_all(trainers, request, lambda: screen_on(stream), command=same_command(context), link=link)
        if as_json:
            documents = [result.as_dict() for result in results]
            print_json(documents[0] if len(trainers) == 1 else {"trainers": documents})


def load_run(
    context: typer.Context, flags: RunFlags, logging: str | None, *, is_job: bool = False
) -> tuple[Sequence[Params], Path | None]:
    """Load the trainers of the params file, or of the checkpoint that answers; return its path as well.

    Args:
        is_job: labels that are typed are those of the job, beside those of the file

    Raises:
        CstoolError: neither can be had
    """
    from cstool.inference.verbs.answer import trained_params

    given = {name: value for name, value in vars(flags).items() if not (is_job and name == "job_labels")}
    overrides = flags.set_ or (), typed("--", **given, logging=logging)
    if flags.params is not None:
        return load_trainers(flags.params, *overrides), flags.checkpoint_path
    if flags.mode != "infer" or flags.checkpoint_path is None:
        raise missing_option(context, "--params", "-p")
    path, found = trained_params(flags.checkpoint_path, *overrides)
    return (found,), path


def _launch(context: typer.Context, flags: RunFlags, launch: LaunchFlags, logging: str | None) -> int:
    """Have several processes do it, once the params are fine; return the exit code."""
    from cstool.training.verbs.ranks import launch_ranks
    from cstool.training.verbs.slurm import run_as_job

    if flags.mode == "infer":
        InferFlags.check_others(context)
    lanes = parse_lanes(flags.lanes)
    trainers, _ = load_run(context, flags, logging)
    continues = flags.checkpoint_path is None and flags.load_checkpoint_states is None

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if launch.launch == "slurm":
        return run_as_job(
            command_of_a_rank(context),
            trainers,
            flags.mode,
            launch.request,
            typed=["cstool", *sys.argv[1:]],
            flags=launch_words(context),
            lanes=lanes,
            continues=continues,
            say=say,
        )
    return launch_ranks(
        python(*sys.orig_argv[1:]),
        trainers,
        flags.mode,
        ranks=launch.ranks,
        max_restarts=launch.max_restarts or 0,
        continues=continues,
        say=say,
    )


def _submit(
    context: typer.Context,
    flags: RunFlags,
    launch: LaunchFlags,
    appliance: ApplianceFlags,
    job: JobFlags,
    asked: InferFlags,
    as_json: bool,
    logging: str | None,
) -> int:
    """Submit it as a job, and follow that; return its exit code."""
    from cstool.appliance.verbs.jobs import submit_and_follow

    check_job(launch, as_json)
    request = job_request(flags, job, max_restarts=launch.max_restarts, time=launch.time, sbatch=launch.sbatch)
    asked.check_mode(flags.mode)
    trainers, _ = load_run(context, flags, logging, is_job=True)
    return submit_and_follow(job.root, job.backend, trainers, request, appliance.on_interrupt or "cancel", say_of_a_job)
