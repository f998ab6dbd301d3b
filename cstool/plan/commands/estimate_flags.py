"""Options of `cstool estimate` that belong together; each field is an option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cstool.foundation.terminal.options import flag, option

INFER_FLAGS = ("--prompt_tokens", "--new_tokens", "--batch")
INFER_ALLOWED = ("--mode", "--params", "--system", "--num_csx", "--set", "--json", "--debug", *INFER_FLAGS)
"""flags that have an effect beside `--mode infer`"""


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
    """Hypothetical changes of the model. They are for estimates alone: `cstool run` trains all weights."""

    frozen: Annotated[
        str | None,
        option("--frozen", "WHAT,...", "Estimate only: weights that are not trained, by pattern, or first:N layers."),
    ] = None
    adapters: Annotated[
        str | None,
        option("--adapters", "rank=R,layers=L,...", "Estimate only: low-rank adapters, all else frozen."),
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
