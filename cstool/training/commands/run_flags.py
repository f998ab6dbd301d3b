"""The flags of `cstool run`, and the params that they and a file make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cstool.foundation.errors import CstoolError
from cstool.foundation.terminal.options import flag, option
from cstool.foundation.terminal.report import missing_option
from cstool.model.commands.completion import complete_artifact, complete_checkpoint
from cstool.model.commands.options import (
    CompileDirOption,
    ExecutionModeOption,
    NumCsxOption,
    RecomputeOption,
    SeedOption,
    SetOption,
    SystemOption,
    lanes_option,
    params_option,
)
from cstool.model.verbs.asked import load_trainers, typed
from cstool.training.verbs.ranks import Transport

if TYPE_CHECKING:
    from cstool.model.params import Params

PARAMS_HELP = "Params file (YAML), or the name of a stock one; to infer, the params in a checkpoint do as well."
TRACE_HELP = (
    "Record the work of this host in steps 2 to 4 of the run (in all steps, if it has fewer than 4) into a .json file "
    "for Perfetto."
)


@dataclass(frozen=True)
class RunFlags:
    """The flags of all modes, and of the modes that train or evaluate."""

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
            "Start from this checkpoint (a file, DIR:STEP or DIR:latest), not from the latest.",
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
    lora: Annotated[
        str | None,
        option(
            "--lora", "rank=R,alpha=A,targets=L,...", "Train low-rank adapters beside frozen layers, or targets=all."
        ),
    ] = None
    frozen: Annotated[
        str | None, option("--frozen", "WHAT,...", "Weights that are not trained, by pattern, or first:N layers.")
    ] = None
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
    executor: Annotated[
        Literal["table", "python", "fabric"],
        flag(
            "--executor",
            "Who calls kernels: a table, where few weights are all in memory, or Python. Same results. fabric: CSL on "
            "the simulated fabric computes, for small models.",
        ),
    ] = "table"
    precision: Annotated[
        Literal["float32", "bfloat16", "int8", "q8_0", "q4_0", "mxfp4"] | None,
        flag(
            "--precision",
            "Operands of products on this host; if not given, as in the params file. Of 8 or 4 bits only to infer.",
        ),
    ] = None
    memoryx: Annotated[
        Literal["auto", "ram", "file"] | None,
        flag(
            "--memoryx",
            "Place of weights and optimizer state; auto: a file if they need half of the free memory or more.",
        ),
    ] = None
    memoryx_memory: Annotated[
        str | None, option("--memoryx_memory", "SIZE", "Memory of the buffers of that file, 2GiB if not given.")
    ] = None
    memoryx_nodes: Annotated[
        int | None,
        option("--memoryx_nodes", "N", "Number of ranks that keep a part of MemoryX each.", show_default="all ranks"),
    ] = None
    trace: Annotated[Path | None, option("--trace", "FILE", TRACE_HELP)] = None
    transport: Annotated[
        Transport,
        flag(
            "--transport",
            "Transport between systems and MemoryX; auto: MPI if mpirun or srun started several processes.",
        ),
    ] = "auto"
    num_workers_per_csx: Annotated[int | None, typer.Option("--num_workers_per_csx", hidden=True)] = None
    mount_dirs: Annotated[list[str] | None, typer.Option("--mount_dirs", hidden=True)] = None
    python_paths: Annotated[list[str] | None, typer.Option("--python_paths", hidden=True)] = None
    job_labels: Annotated[
        list[str] | None, option("--job_labels", "KEY=VALUE", "job: labels, by which `cstool job list` finds the job.")
    ] = None
    disable_version_check: Annotated[bool | None, typer.Option("--disable_version_check", hidden=True)] = None


def load_run(
    context: typer.Context, flags: RunFlags, logging: str | None, *, is_job: bool = False
) -> tuple[Sequence[Params], Path | None]:
    """Load the trainers of the params file, or of the checkpoint that answers; return its path as well.

    Args:
        is_job: typed labels are labels of the job, beside the file's

    Raises:
        CstoolError: neither can be had
    """
    from cstool.training.verbs.trained import trained_params

    given = {name: value for name, value in vars(flags).items() if not (is_job and name == "job_labels")}
    if flags.precision not in (None, "float32", "bfloat16"):
        if flags.mode != "infer":
            rule = f"must be float32 or bfloat16 with --mode {flags.mode}, got {flags.precision}"
            raise CstoolError(f"--precision: {rule}", "weights of 8 or 4 bits are for --mode infer")
        given["precision"] = "float32"
    overrides = flags.set_ or (), typed("--", **given, logging=logging)
    if flags.params is not None:
        return load_trainers(flags.params, *overrides), flags.checkpoint_path
    if flags.mode != "infer" or flags.checkpoint_path is None:
        raise missing_option(context, "--params", "-p")
    path, found = trained_params(flags.checkpoint_path, *overrides)
    return (found,), path
