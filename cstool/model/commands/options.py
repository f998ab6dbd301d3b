"""Options that commands of several products have: of params, systems, checkpoints, the modelled wafer."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cstool.foundation.terminal.options import argument, flag, option
from cstool.model.commands.completion import complete_checkpoint, complete_params, complete_system

ExecutionMode = Literal["auto", "pipelined", "weight_streaming"]
Recompute = Literal["needed", "fastest", "none", "all"]


def checkpoint_argument(metavar: str) -> Any:
    """Argument that names a checkpoint."""
    return argument(metavar, "A checkpoint: its file, DIR:STEP or DIR:latest.", complete_checkpoint)


def params_option(text: str) -> Any:
    """The option that names a params file."""
    return option("--params -p", "FILE", text, complete_params)


def lanes_option(text: str) -> Any:
    """The option for the number of threads that compute; see `parse_lanes`."""
    return option("--lanes", "auto|N", text)


MODEL_FILE = "Params file (YAML), or the name of a stock one; no data is needed."
"""help of a params file whose model alone counts"""
CheckpointArgument = Annotated[str, checkpoint_argument("FILE")]
CompileDirOption = Annotated[
    Path | None, option("--compile_dir -c", "DIR", "Folder of artifacts.", show_default="MODEL_DIR/cached_compile")
]
ExecutionModeOption = Annotated[ExecutionMode, flag("--execution_mode", "How the model uses the modelled wafer.")]
ExpertImbalanceOption = Annotated[
    float,
    option("--expert_imbalance", "F", "Tokens of the busiest expert of each layer, as a multiple of the mean."),
]
MemoryXSizeOption = Annotated[
    str | None,
    option("--memoryx", "SIZE", "Capacity of MemoryX, such as 12TB.", show_default="the largest unit"),
]
ModelParamsOption = Annotated[Path | None, params_option(MODEL_FILE)]
NumCsxOption = Annotated[int | None, option("--num_csx", "N", "Number of CSX systems.")]
RecomputeOption = Annotated[
    Recompute,
    flag(
        "--recompute",
        "Modelled wafer: compute activations again if nothing fits otherwise, where that is faster, never, or always.",
    ),
]
SeedOption = Annotated[int | None, option("--seed", "N", "Seed of all random numbers.")]
SetOption = Annotated[
    list[str] | None, option("--set", "KEY=VALUE", "Override any key of the params file, by its dotted path.")
]
SoftwareOption = Annotated[
    str | None,
    option(
        "--software",
        "RELEASE",
        "Software of the hosts that feed the systems, such as 2.0.",
        show_default="hosts keep up",
    ),
]
SoftwareWorkersOption = Annotated[
    int | None,
    option("--num_workers_per_csx", "N", "With --software: input workers of each system.", min=1, show_default="1"),
]
SystemOption = Annotated[
    str, option("--system", "NAME|FILE", "The kind of each CSX: cs1, cs2, cs3, or a system file.", complete_system)
]


def parse_lanes(text: str) -> int | None:
    """Return the number of lanes that was asked for, or None for `auto`.

    Raises:
        typer.BadParameter: neither `auto` nor a positive count.
    """
    if text == "auto":
        return None
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise typer.BadParameter(f"must be auto or a positive count, got {text}", param_hint="--lanes")
