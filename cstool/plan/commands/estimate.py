"""`cstool estimate`: needs of a model on the modelled cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cstool.foundation.errors import EstimateError
from cstool.foundation.terminal.command import command, with_messages
from cstool.foundation.terminal.options import JsonOption, PlotOption, ThemeOption, flag, is_typed, option
from cstool.foundation.terminal.render import print_json
from cstool.model.commands.completion import complete_system
from cstool.model.commands.options import (
    ExecutionModeOption,
    ExpertImbalanceOption,
    MemoryXSizeOption,
    ModelParamsOption,
    Recompute,
    SetOption,
    SoftwareOption,
    SoftwareWorkersOption,
)
from cstool.model.verbs.asked import check_trace_file
from cstool.plan.commands.compile import ParamsGroup
from cstool.plan.commands.estimate_flags import (
    INFER_ALLOWED,
    INFER_FLAGS,
    CostFlags,
    GpuFlags,
    InferFlags,
    VariantFlags,
)
from cstool.plan.commands.estimate_optimize import check_files, optimize
from cstool.plan.verbs.estimating import EstimateRequest, draw_estimates, estimate_all, write_timeline
from cstool.training.commands.host import estimate_host

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST_FLAGS = ("--system", "--calibrate", "--json", "--debug", "--params", "--tokens", "--set", "--ranks", "--link")
"""flags that have an effect beside `--system host`; the first four without a params file, too"""
HOST = "host"
"""name of this machine in `--system`"""


estimate_app = typer.Typer(cls=ParamsGroup, invoke_without_command=True)
command(
    estimate_app,
    "optimize",
    "cstool estimate optimize --params gpt3_175b --tokens 300B --days 30",
    "cstool estimate optimize --params gpt3_13b --tokens 300B --power 500kW",
)(optimize)


@estimate_app.callback(
    epilog="Example: cstool estimate --params gpt3_175b --num_csx 1,2,4..192 --tokens 300B\n"
    "Example: cstool estimate --params gpt3_xl --sparsity 0,0.5,0.9\n"
    "Example: cstool estimate --params llama3_8b --system cs3 --mode infer --prompt_tokens 2048 --new_tokens 512"
)
@with_messages
def estimate(
    ctx: typer.Context,
    *,
    params: ModelParamsOption = None,
    mode: Annotated[Literal["train", "infer"], flag("--mode", "Estimate training, or inference.")] = "train",
    system: Annotated[
        str,
        option(
            "--system", "NAME|FILE", "The kind of each CSX: cs1, cs2, cs3, a system file; or host.", complete_system
        ),
    ] = "cs2",
    num_csx: Annotated[
        str | None,
        option(
            "--num_csx",
            "N,N..N",
            "Numbers of systems; 4..192 doubles from 4 up to 192.",
            show_default="the number in the file",
        ),
    ] = None,
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
    ] = None,
    sparsity: Annotated[
        str | None, option("--sparsity", "S,S,...", "Shares of zeros of the linear layers, side by side.")
    ] = None,
    tokens: Annotated[
        str | None, option("--tokens", "N", "Tokens to train with, such as 300B; adds the days that it takes.")
    ] = None,
    memoryx: MemoryXSizeOption = None,
    execution_mode: ExecutionModeOption = "auto",
    recompute: Annotated[
        Recompute,
        flag("--recompute", "Compute activations again where that is faster, where it is needed, never, or always."),
    ] = "fastest",
    expert_imbalance: ExpertImbalanceOption = 1.0,
    software: SoftwareOption = None,
    num_workers_per_csx: SoftwareWorkersOption = None,
    trace: Annotated[
        Path | None, option("--trace", "FILE", "Write a step as a timeline in Chrome's trace format, .json.")
    ] = None,
    plot: PlotOption = None,
    theme: ThemeOption = "light",
    csv: Annotated[Path | None, option("--csv", "FILE", "Write the rows of all tables into a file.")] = None,
    validate: Annotated[
        bool, flag("--validate", "Compare the model with published results, and print its errors.")
    ] = False,
    calibrate: Annotated[bool, flag("--calibrate", "With --system host: measure this machine once more.")] = False,
    ranks: Annotated[
        int | None,
        option("--ranks", "N", "With --system host: processes that share the systems, as mpirun starts them.", min=1),
    ] = None,
    link: Annotated[
        str | None,
        option(
            "--link",
            "RATE[,LATENCY]",
            "With --ranks: each rank has a host like this one, with links such as 10Gb/s or 1Gb/s,5ms.",
            show_default="all on this host",
        ),
    ] = None,
    costs: CostFlags,
    variants: VariantFlags,
    gpus: GpuFlags,
    infers: InferFlags,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict a training step: whether it fits, its time, its bound, its scaling, its power.

    Everything is modelled for the wafer; nothing is measured. Nothing runs, and no data is needed. With --system host,
    this machine is measured once, and the step is predicted for it.
    """
    if ctx.invoked_subcommand is not None:
        return
    names = {parameter.name: parameter.opts[0] for parameter in ctx.command.params}
    typed = [names[name] for name in ctx.params if is_typed(ctx, name)]
    if validate:
        _refuse(typed, "--validate", ("--validate", "--json", "--debug"))
        _validate(as_json)
        return
    if system.lower() == HOST:
        _refuse(typed, "--system host", HOST_FLAGS if params is not None else HOST_FLAGS[:4])
        if link is not None and (ranks or 1) == 1:
            raise EstimateError(f"--link: must stand beside --ranks of 2 or more, got --ranks {ranks or 1}")
        estimate_host(params, set_ or (), calibrates=calibrate, tokens=tokens, ranks=ranks, link=link, as_json=as_json)
        return
    for name in ("--calibrate", "--ranks", "--link"):
        if name in typed:
            raise EstimateError(f"{name}: must stand beside --system host, got --system {system}")
    if params is None:
        raise EstimateError("--params is missing", "cstool estimate --params FILE, or cstool estimate --validate")
    if mode == "infer":
        from cstool.plan.commands.estimate_infer import estimate_infer

        _refuse(typed, "--mode infer", INFER_ALLOWED)
        estimate_infer(params, set_ or (), infers, system, num_csx, as_json)
        return
    for name in INFER_FLAGS:
        if name in typed:
            raise EstimateError(f"{name}: must stand beside --mode infer")
    if gpus.gpu is not None and gpus.gpus is None:
        raise EstimateError(f"--gpu: must stand beside --gpus, the number of them, got {gpus.gpu} alone")
    check_files(plot, csv)
    if trace is not None:
        check_trace_file(trace)

    from cstool.plan.commands.estimate_document import estimate_document, write_estimates
    from cstool.plan.commands.estimate_report import print_estimates
    from cstool.plan.estimation import EstimateOptions

    options = EstimateOptions(
        system,
        batch_per_csx,
        memoryx,
        tokens,
        execution_mode,
        recompute,
        expert_imbalance,
        software,
        num_workers_per_csx,
        variants.frozen,
        variants.adapters,
    )
    found = estimate_all(
        EstimateRequest(
            params,
            set_ or (),
            options,
            num_csx,
            sparsity,
            costs=vars(costs),
            gpus=gpus.gpus,
            gpu=gpus.gpu or "a100",
            compares_recompute=variants.recompute_table,
        )
    )
    if trace is not None:
        write_timeline(found.estimate, trace)
    if csv is not None:
        write_estimates(csv, found)
    if plot:
        draw_estimates(found, plot, theme)
    if as_json:
        print_json(estimate_document(found))
    else:
        print_estimates(found, variants)


def _validate(as_json: bool) -> None:
    """Print published results beside the model."""
    from cstool.plan.commands.estimate_gpu import gpu_validation_document, print_gpu_validation
    from cstool.plan.commands.published_report import print_published, published_document
    from cstool.plan.verbs.estimating import validate_estimates

    compared, left_out, gpus = validate_estimates()
    if as_json:
        print_json(published_document(compared, left_out) | {"gpus": gpu_validation_document(gpus)})
    else:
        print_published(compared, left_out)
        print_gpu_validation(gpus)


def _refuse(typed: Sequence[str], beside: str, allowed: Sequence[str]) -> None:
    """Refuse flags that would have no effect."""
    for name in typed:
        if name not in allowed:
            raise EstimateError(f"{name}: must be left out beside {beside}, where it has no effect")
