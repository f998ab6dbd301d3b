"""`cstool estimate`: needs of a model on the modelled cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cstool.foundation.errors import EstimateError
from cstool.foundation.terminal.command import command, with_messages
from cstool.foundation.terminal.options import JsonOption, flag, is_typed, option
from cstool.foundation.terminal.render import print_json
from cstool.model.commands.completion import complete_system
from cstool.model.commands.options import ModelParamsOption, SetOption
from cstool.model.verbs.asked import check_trace_file
from cstool.plan.commands.compile import ParamsGroup
from cstool.plan.commands.estimate_flags import (
    INFER_ALLOWED,
    INFER_FLAGS,
    CostFlags,
    GpuFlags,
    HostFlags,
    InferFlags,
    JobFlags,
    OutputFlags,
    VariantFlags,
)
from cstool.plan.commands.estimate_optimize import check_files, optimize
from cstool.plan.verbs.estimating import (
    EstimateRequest,
    draw_estimates,
    estimate_all,
    estimate_options,
    write_timeline,
)
from cstool.training.commands.host import estimate_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cstool.plan.verbs.estimating import Estimates

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
    job: JobFlags,
    output: OutputFlags,
    validate: Annotated[
        bool, flag("--validate", "Compare the model with published results, and print its errors.")
    ] = False,
    hosts: HostFlags,
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
        if hosts.link is not None and (hosts.ranks or 1) == 1:
            raise EstimateError(f"--link: must stand beside --ranks of 2 or more, got --ranks {hosts.ranks or 1}")
        about: dict[str, Any] = {"calibrates": hosts.calibrate, "ranks": hosts.ranks, "link": hosts.link}
        estimate_host(params, set_ or (), tokens=job.tokens, as_json=as_json, **about)
        return
    _refuse_apart(typed, ("--calibrate", "--ranks", "--link"), f"--system host, got --system {system}")
    if params is None:
        raise EstimateError("--params is missing", "cstool estimate --params FILE, or cstool estimate --validate")
    if mode == "infer":
        from cstool.plan.commands.estimate_infer import estimate_infer

        _refuse(typed, "--mode infer", INFER_ALLOWED)
        estimate_infer(params, set_ or (), infers, system, job.num_csx, as_json)
        return
    _refuse_apart(typed, INFER_FLAGS, "--mode infer")
    if gpus.gpu is not None and gpus.gpus is None:
        raise EstimateError(f"--gpu: must stand beside --gpus, the number of them, got {gpus.gpu} alone")
    check_files(output.plot, output.csv)
    if output.trace is not None:
        check_trace_file(output.trace)

    modelled = {name: value for name, value in vars(job).items() if name not in ("num_csx", "sparsity")}
    options = estimate_options(system=system, frozen=variants.frozen, adapters=variants.adapters, **modelled)
    request = EstimateRequest(
        params,
        set_ or (),
        options,
        job.num_csx,
        job.sparsity,
        costs=vars(costs),
        gpus=gpus.gpus,
        gpu=gpus.gpu or "a100",
        compares_recompute=variants.recompute_table,
    )
    _tell(estimate_all(request), output, as_json)


def _tell(found: Estimates, output: OutputFlags, as_json: bool) -> None:
    """Write the files that were asked for, and print the report."""
    from cstool.plan.commands.estimate_document import estimate_document, write_estimates
    from cstool.plan.commands.estimate_report import print_estimates

    if output.trace is not None:
        write_timeline(found.estimate, output.trace)
    if output.csv is not None:
        write_estimates(output.csv, found)
    if output.plot:
        draw_estimates(found, output.plot, output.theme)
    if as_json:
        print_json(estimate_document(found))
    else:
        print_estimates(found)


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


def _refuse_apart(typed: Sequence[str], flags: Sequence[str], beside: str) -> None:
    """Refuse flags that have an effect beside another one alone."""
    for name in flags:
        if name in typed:
            raise EstimateError(f"{name}: must stand beside {beside}")
