"""Options of `cstool estimate` that belong together; each field is an option."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cstool.foundation.terminal.options import PlotOption, ThemeOption, flag, option
from cstool.model.commands.options import (
    ExecutionModeOption,
    ExpertImbalanceOption,
    MemoryXSizeOption,
    Recompute,
    SoftwareOption,
    SoftwareWorkersOption,
)

INFER_FLAGS = ("--prompt_tokens", "--new_tokens", "--batch")
INFER_ALLOWED = ("--mode", "--params", "--system", "--num_csx", "--set", "--json", "--debug", *INFER_FLAGS)
"""flags that have an effect beside `--mode infer`"""


@dataclass(frozen=True)
class JobFlags:
    """Systems, batch and model of an estimated job, and what is modelled of it."""

    num_csx: Annotated[
        str | None,
        option(
            "--num_csx",
            "N,N..N",
            "Numbers of systems; 4..192 doubles from 4 up to 192.",
            show_default="the number in the file",
        ),
    ] = None
    batch_per_csx: Annotated[
        int | None,
        option(
            "--batch_per_csx",
            "N",
            "Samples of each system; the batch grows with the number of systems.",
            min=1,
            max=2**31 - 1,
            show_default="a share of the batch of the file",
        ),
    ] = None
    sparsity: Annotated[
        str | None, option("--sparsity", "S,S,...", "Shares of zeros of the linear layers, side by side.")
    ] = None
    tokens: Annotated[
        str | None, option("--tokens", "N", "Tokens to train with, such as 300B; adds the days that it takes.")
    ] = None
    memoryx: MemoryXSizeOption = None
    execution_mode: ExecutionModeOption = "auto"
    recompute: Annotated[
        Recompute,
        flag("--recompute", "Compute activations again where that is faster, where it is needed, never, or always."),
    ] = "fastest"
    expert_imbalance: ExpertImbalanceOption = 1.0
    software: SoftwareOption = None
    num_workers_per_csx: SoftwareWorkersOption = None


@dataclass(frozen=True)
class OutputFlags:
    """Files to write beside the report."""

    trace: Annotated[
        Path | None, option("--trace", "FILE", "Write a step as a timeline in Chrome's trace format, .json.")
    ] = None
    plot: PlotOption = None
    theme: ThemeOption = "light"
    csv: Annotated[Path | None, option("--csv", "FILE", "Write the rows of all tables into a file.")] = None


@dataclass(frozen=True)
class HostFlags:
    """Options of `--system host`."""

    calibrate: Annotated[bool, flag("--calibrate", "With --system host: measure this machine once more.")] = False
    ranks: Annotated[
        int | None,
        option("--ranks", "N", "With --system host: processes that share the systems, as mpirun starts them.", min=1),
    ] = None
    link: Annotated[
        str | None,
        option(
            "--link",
            "RATE[,LATENCY]",
            "With --ranks: each rank has a host like this one, with links such as 10Gb/s or 1Gb/s,5ms.",
            show_default="all on this host",
        ),
    ] = None


@dataclass(frozen=True)
class LimitFlags:
    """Limits that a plan must keep."""

    days: Annotated[float | None, option("--days", "D", "The job takes at most D days.")] = None
    power: Annotated[
        str | None, option("--power", "P", "Systems and servers draw at most this power, such as 500kW.")
    ] = None
    budget: Annotated[
        str | None, option("--budget", "B", "With --price: the job costs at most this amount, such as 2M.")
    ] = None
    confident: Annotated[
        bool, flag("--confident", "Days and budget must hold at the slow end of the range of the estimate.")
    ] = False


@dataclass(frozen=True)
class SpaceFlags:
    """Systems, batches and shares of zeros that a plan may have."""

    num_csx: Annotated[
        int | None,
        option("--num_csx", "N", "At most N systems.", min=1, show_default="all of a cluster"),
    ] = None
    batch_size: Annotated[
        str | None,
        option(
            "--batch_size",
            "N,N..N",
            "Allowed global batches; 512..4096 doubles from 512 up to 4096.",
            show_default="the batch in the file",
        ),
    ] = None
    batch_per_csx: Annotated[
        str | None, option("--batch_per_csx", "N,N..N", "Allowed batches of each system, instead.")
    ] = None
    sparsity: Annotated[
        str | None,
        option(
            "--sparsity",
            "S,S,...",
            "Allowed shares of zeros of the linear layers.",
            show_default="the share in the file",
        ),
    ] = None


@dataclass(frozen=True)
class CostFlags:
    """Prices of a job, and rates of failures."""

    price: Annotated[
        float | None,
        option("--price", "P", "With --tokens: price of a system for an hour, in any currency."),
    ] = None
    mtbf: Annotated[
        float | None,
        option("--mtbf", "HOURS", "With --tokens: mean time between failures of one system."),
    ] = None
    restart_minutes: Annotated[
        float | None,
        option(
            "--restart_minutes",
            "MIN",
            "With --mtbf: time from a failure to the next step, without reading the checkpoint.",
            show_default="10",
        ),
    ] = None
    checkpoint_hours: Annotated[
        float | None,
        option(
            "--checkpoint_hours",
            "HOURS",
            "With --tokens: work between two checkpoints.",
            show_default="the interval in the file, or the best one",
        ),
    ] = None
    checkpoint_rate: Annotated[
        str | None,
        option("--checkpoint_rate", "SIZE", "With --tokens: bytes of a checkpoint written in a second."),
    ] = None
    worker_rate: Annotated[
        float | None,
        option("--worker_rate", "N", "With --tokens: tokens a second of an input worker."),
    ] = None


@dataclass(frozen=True)
class ModelVariantFlags:
    """The part of the model that is trained, in place of the file's."""

    frozen: Annotated[
        str | None,
        option("--frozen", "WHAT,...", "Weights that are not trained, by pattern, or first:N layers."),
    ] = None
    adapters: Annotated[
        str | None,
        option("--adapters", "rank=R,layers=L,...", "Low-rank adapters, all else frozen."),
    ] = None


@dataclass(frozen=True)
class VariantFlags(ModelVariantFlags):
    """Hypothetical changes of an estimate."""

    recompute_table: Annotated[
        bool, flag("--recompute_table", "Compare the choices of --recompute, by time and SRAM.")
    ] = False


@dataclass(frozen=True)
class GpuFlags:
    """Kind and number of GPUs."""

    gpu: Annotated[
        str | None,
        option("--gpu", "NAME|FILE", "With --gpus: their kind, a100 or a GPU file.", show_default="a100"),
    ] = None
    gpus: Annotated[str | None, option("--gpus", "N,N..N", "Compare with N GPUs on the same job; N..N doubles.")] = None


@dataclass(frozen=True)
class InferFlags:
    """Lengths of prompts and answers, and numbers of users."""

    prompt_tokens: Annotated[
        int | None, option("--prompt_tokens", "N", "With --mode infer: tokens of a prompt.", min=1, show_default="1024")
    ] = None
    new_tokens: Annotated[
        int | None, option("--new_tokens", "N", "With --mode infer: tokens of an answer.", min=1, show_default="256")
    ] = None
    batch: Annotated[
        str | None,
        option("--batch", "N,N,...", "With --mode infer: number of users at a time.", show_default="1"),
    ] = None
