"""`cstool estimate`: needs of a model on the modelled cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cstool.foundation.errors import EstimateError
from cstool.foundation.terminal.command import Group, command, spread_lists, with_messages
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
from cstool.plan.commands.compile import check_plots
from cstool.plan.commands.estimate_cost import CostFlags
from cstool.plan.commands.estimate_gpu import GpuFlags
from cstool.plan.commands.estimate_infer import ALLOWED, INFER_FLAGS, InferFlags, estimate_infer
from cstool.plan.commands.estimate_optimize import optimize
from cstool.plan.commands.estimate_variants import VariantFlags
from cstool.training.commands.host import estimate_host

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLE_COUNTS = "such as 4, or 1,2,4..192, where .. doubles"
HOST_FLAGS = ("--system", "--calibrate", "--json", "--debug", "--params", "--tokens", "--set", "--ranks", "--link")
"""flags that have an effect beside `--system host`; the first four without a params file, too"""
HOST = "host"
"""name of this machine in `--system`"""


class EstimateGroup(Group):
    """A group that estimates where no command is named; its --set takes several values in a row."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after writing each list flag once per value."""
        return super().parse_args(ctx, args if set(args[:1]) & set(self.commands) else spread_lists(args))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        """Return the words of the usage line."""
        return ["--params FILE [OPTIONS] | COMMAND [ARGS]..."]


estimate_app = typer.Typer(cls=EstimateGroup, invoke_without_command=True)
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
    from cstool.plan.commands.estimate_cost import print_cost, print_cost_scaling
    from cstool.plan.commands.estimate_gpu import (
        gpu_validation_document,
        gpus_document,
        print_gpu_validation,
        print_gpus,
    )
    from cstool.plan.commands.estimate_report import (
        estimate_document,
        print_estimate,
        print_scaling,
        print_sparsities,
        write_csv,
    )
    from cstool.plan.commands.estimate_variants import print_choices, print_estimate_only
    from cstool.plan.commands.published_report import print_published, published_document
    from cstool.plan.verbs.estimate_cost import check_cost, job_costs
    from cstool.plan.verbs.estimate_gpu import beside_gpus, validate_gpus
    from cstool.plan.verbs.estimate_variants import recompute_choices, without_lora
    from cstool.plan.verbs.estimating import compare_published, draw_estimates, estimate_all, write_timeline

    names = {parameter.name: parameter.opts[0] for parameter in ctx.command.params}
    typed = [names[name] for name in ctx.params if is_typed(ctx, name)]
    if validate:
        _refuse(typed, "--validate", ("--validate", "--json", "--debug"))
        compared, left_out = compare_published()
        on_gpus = validate_gpus()
        if as_json:
            print_json(published_document(compared, left_out) | {"gpus": gpu_validation_document(on_gpus)})
        else:
            print_published(compared, left_out)
            print_gpu_validation(on_gpus)
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
        _refuse(typed, "--mode infer", ALLOWED)
        estimate_infer(params, set_ or (), infers, system=system, num_csx=num_csx, as_json=as_json)
        return
    for name in INFER_FLAGS:
        if name in typed:
            raise EstimateError(f"{name}: must stand beside --mode infer")
    if gpus.gpu is not None and gpus.gpus is None:
        raise EstimateError(f"--gpu: must stand beside --gpus, the number of them, got {gpus.gpu} alone")
    _check_files(plot or (), trace, csv)
    inputs = check_cost(tokens, **vars(costs))
    overrides, of_file = without_lora(params, set_ or ())
    shares = () if sparsity is None else tuple(parse_sparsities(sparsity))
    counts = () if num_csx is None else tuple(parse_counts(num_csx))
    gpu_counts = () if gpus.gpus is None else parse_counts(gpus.gpus, "--gpus", "GPUs")
    asked: dict[str, Any] = {
        "system": system,
        "batch_per_csx": batch_per_csx,
        "memoryx": memoryx,
        "tokens": tokens,
        "execution_mode": execution_mode,
        "recompute": recompute,
        "expert_imbalance": expert_imbalance,
        "software": software,
        "workers": num_workers_per_csx,
        "frozen": variants.frozen,
        "adapters": variants.adapters or of_file,
    }
    found = estimate_all(params, overrides, num_csx=counts, sparsities=shares, **asked)
    priced = job_costs(found, params, inputs, overrides=overrides)
    beside = None
    if gpu_counts:
        beside = beside_gpus(found, params, gpu_counts, gpu=gpus.gpu or "a100", overrides=overrides)
    again: list[Any] = []
    if variants.recompute_table:
        again = recompute_choices(
            params, overrides, num_csx=found.estimate.num_csx, sparsity=shares[0] if shares else None, **asked
        )
    if trace is not None:
        write_timeline(found.estimate, trace)
    if csv is not None:
        single = () if found.scaling or found.sparsities else (found.first,)
        write_csv(csv, found.scaling or single, found.sparsities, shares[0] if shares else None)
    if plot:
        draw_estimates(found, plot, theme)
    if as_json:
        document = estimate_document(found, priced, again)
        print_json(document if beside is None else document | {"gpus": gpus_document(beside)})
        return
    print_estimate(found)
    print_estimate_only(variants, of_file)
    if priced:
        print_cost(priced[0])
    if again:
        print_choices(again)
    if found.scaling:
        print_scaling(found.scaling)
    if len(priced) > 1:
        print_cost_scaling(priced)
    if found.sparsities:
        print_sparsities(found.sparsities)
    if beside is not None:
        print_gpus(beside)


def _refuse(typed: Sequence[str], beside: str, allowed: Sequence[str]) -> None:
    """Refuse flags that would have no effect."""
    for name in typed:
        if name not in allowed:
            raise EstimateError(f"{name}: must be left out beside {beside}, where it has no effect")


def parse_counts(text: str, flag: str = "--num_csx", of: str = "systems") -> list[int]:
    """Return the numbers of systems of `1,2,4..192`: listed ones, and from `a..b` a, doubled until b, and b.

    >>> parse_counts("1,2,4..192")
    [1, 2, 4, 8, 16, 32, 64, 128, 192]

    Args:
        text: as typed
        flag: behind which
        of: name of the counted things

    Raises:
        EstimateError: it is nothing of the kind
    """
    found: list[int] = []
    for part in text.split(","):
        ends = part.strip().split("..")
        if len(ends) > 2 or not all(end.isdecimal() and int(end) for end in ends):
            raise EstimateError(f"{flag}: must be numbers of {of}, got {text}", EXAMPLE_COUNTS)
        first, last = int(ends[0]), int(ends[-1])
        if first > last:
            raise EstimateError(f"{flag}: must go up in {part.strip()}, got {text}", EXAMPLE_COUNTS)
        while first < last:
            found.append(first)
            first *= 2
        found.append(last)
    return sorted(set(found))


def parse_sparsities(text: str) -> list[float]:
    """Return the shares of zeros of `0,0.5,0.9`, ascending.

    Raises:
        EstimateError: one of them is not from 0 to below 1
    """
    found = []
    for part in text.split(","):
        try:
            share = float(part)
        except ValueError:
            share = -1.0
        if not 0.0 <= share < 1.0:
            rule = "must be shares of zeros from 0 to below 1"
            raise EstimateError(f"--sparsity: {rule}, got {part.strip()}", "such as 0,0.5,0.9")
        found.append(share)
    return sorted(set(found))


def _check_files(plots: Sequence[Path], trace: Path | None, csv: Path | None) -> None:
    """Check the names of files, before any long work.

    Raises:
        EstimateError: a picture is neither .svg nor .png, rows are not .csv, two go into one file
        TraceError: a trace is not .json, or has no folder that can be written
    """
    if csv is not None and csv.suffix.lower() != ".csv":
        raise EstimateError(f"--csv: must end in .csv, got {csv}")
    if csv is not None and csv.exists() and not csv.is_file():
        raise EstimateError(f"--csv: must be a file, got {'a folder' if csv.is_dir() else 'what is none'}: {csv}")
    if len({path.absolute() for path in plots}) < len(plots):
        raise EstimateError(f"--plot: must be another file than --plot, got {plots[-1]}")
    check_plots(plots, EstimateError)
    if trace is not None:
        check_trace_file(trace)
