"""`cstool estimate`: what a model would need on the modelled cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cstool.cli.compile import PLOT_ENDINGS, ModelParamsOption, PlotOption, ThemeChoice, ThemeOption
from cstool.cli.completion import complete_system
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.cli.run import ExecutionModeChoice, ExecutionModeOption, RecomputeChoice
from cstool.errors import EstimateError
from cstool.verbs.trace_file import check_trace_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cstool.estimation import Estimator
    from cstool.params import Params

SPARSITY_KEY = "trainer.init.sparsity"
EPILOG = """\
Example: cstool estimate --params gpt3_175b --num_csx 1,2,4..192 --tokens 300B
Example: cstool estimate --params gpt3_xl --sparsity 0,0.5,0.9"""
FLAGS = {"set_": "--set", "as_json": "--json"}
"""flags whose parameters are called something else"""
HOST_FLAGS = ("--system", "--calibrate", "--json", "--debug", "--params", "--tokens", "--set")
"""that have an effect beside `--system host`; the first four without a params file, too"""
HOST = "host"
"""what `--system` calls this machine"""


def estimate(
    ctx: typer.Context,
    params: ModelParamsOption = None,
    system: Annotated[
        str,
        typer.Option(
            "--system",
            metavar="NAME|FILE",
            help="What each CSX is: cs1, cs2, cs3, a system file; or host.",
            autocompletion=complete_system,
        ),
    ] = "cs2",
    num_csx: Annotated[
        str | None,
        typer.Option(
            "--num_csx",
            metavar="N,N..N",
            help="Numbers of systems; 4..192 doubles from 4 up to 192.",
            show_default="that of the file",
        ),
    ] = None,
    batch_per_csx: Annotated[
        int | None,
        typer.Option(
            "--batch_per_csx",
            metavar="N",
            min=1,
            help="Samples of each system, so that batches grow with systems.",
            show_default="the batch of the file is shared out",
        ),
    ] = None,
    sparsity: Annotated[
        str | None,
        typer.Option("--sparsity", metavar="S,S,...", help="Shares of zeros of the linear layers, side by side."),
    ] = None,
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="N", help="Tokens to train with, such as 300B: how many days?")
    ] = None,
    memoryx: Annotated[
        str | None,
        typer.Option(
            "--memoryx", metavar="SIZE", help="Capacity of MemoryX, such as 12TB.", show_default="the largest there is"
        ),
    ] = None,
    execution_mode: ExecutionModeOption = ExecutionModeChoice.auto,
    recompute: Annotated[
        RecomputeChoice,
        typer.Option("--recompute", help="Compute activations again where that is faster, or where it is needed."),
    ] = RecomputeChoice.fastest,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Write a step as a timeline in Chrome's trace format, .json."),
    ] = None,
    plot: PlotOption = None,
    theme: ThemeOption = ThemeChoice.light,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows of all tables into a file.")
    ] = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="Set the model beside published results, and print its errors.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="With --system host: measure what this machine can do once more.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override any key of the params file, by its dotted path."),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Predict a training step: does it fit, how long, what bounds it, how does it scale, what does it draw.

    Everything is modelled for the wafer; nothing is measured. Nothing runs, and no data is needed. With --system host,
    what this machine can do is measured once, and the step is predicted for it.
    """
    with errors_as_messages(debug):
        typed = [FLAGS.get(name, f"--{name}") for name in ctx.params if _is_typed(ctx, name)]
        if validate:
            _refuse(typed, "--validate", ("--validate", "--json", "--debug"))
            _validate(as_json)
            return
        if system.lower() == HOST:
            _refuse(typed, "--system host", HOST_FLAGS if params is not None else HOST_FLAGS[:4])
            _host(params, list(set_ or ()), calibrate, tokens, as_json)
            return
        if calibrate:
            raise EstimateError(f"--calibrate: must stand beside --system host, got --system {system}")
        if params is None:
            raise EstimateError("--params is missing", "cstool estimate --params FILE, or cstool estimate --validate")
        _check_files(plot or (), trace, csv)
        from cstool.estimation import (
            Estimator,
            make_request,
            parse_counts,
            parse_sparsities,
            scale,
            smallest_compute_bound,
            sweep_sparsity,
        )
        from cstool.estimation.request import samples_per_csx

        def estimator(overrides: list[str]) -> Estimator:
            return Estimator(
                make_request(
                    _load(params, overrides),
                    system,
                    batch_per_csx=batch_per_csx,
                    execution_mode=execution_mode.value,
                    recompute=recompute.value,
                    memoryx=memoryx,
                    tokens=tokens,
                )
            )

        overrides = list(set_ or ())
        shares = [] if sparsity is None else parse_sparsities(sparsity)
        base = estimator([*overrides, f"{SPARSITY_KEY}={shares[0]}"] if shares else overrides)
        counts = [base.request.params.num_csx] if num_csx is None else parse_counts(num_csx)
        samples_per_csx(base.request, counts[-1], is_alone=False)
        found = base.at(counts[0])
        rows = scale(base, counts) if len(counts) > 1 else []
        others = {share: estimator([*overrides, f"{SPARSITY_KEY}={share}"]) for share in shares[1:]}
        estimators = dict.fromkeys(shares[:1], base) | others
        sparse = sweep_sparsity(estimators, counts[0]) if len(shares) > 1 else []
        smallest = smallest_compute_bound(base, found)
        from cstool.cli.estimate_report import (
            csv_text,
            estimate_document,
            print_estimate,
            print_scaling,
            print_sparsities,
            write_csv,
        )
        from cstool.cli.render import print_json
        from cstool.compiler.density import sparsity_notes
        from cstool.estimation import Row

        if trace is not None:
            from cstool.estimation.timeline import draw_timeline

            draw_timeline(found).write(trace)
        if csv is not None:
            single = [] if rows or sparse else [Row(counts[0], found)]
            write_csv(csv, csv_text(rows or single, sparse, shares[0] if shares else None))
        if plot:
            from cstool.cli.estimate_picture import plot_estimate

            plot_estimate(plot, theme.value, found, rows, sparse)
        if as_json:
            print_json(estimate_document(found, smallest, rows, sparse))
            return
        print_estimate(found, smallest, sparsity_notes(base.request.params, found.artifact))
        if rows:
            print_scaling(rows)
        if sparse:
            print_sparsities(sparse)


def _is_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse(typed: Sequence[str], beside: str, allowed: Sequence[str]) -> None:
    """Refuse flags that would have no effect.

    Raises:
        EstimateError: one of them was typed
    """
    for flag in typed:
        if flag not in allowed:
            raise EstimateError(f"{flag}: must be left out beside {beside}, where it has no effect")


def _host(params: Path | None, overrides: list[str], calibrates: bool, tokens: str | None, as_json: bool) -> None:
    """Measure this machine, or predict a step on it."""
    from cstool.cli.estimate_host import estimate_host
    from cstool.estimation.request import parse_tokens

    loaded = None if params is None else _load(params, overrides)
    wanted = None if tokens is None else parse_tokens(tokens)
    estimate_host(loaded, calibrates=calibrates, tokens=wanted, as_json=as_json)


def _load(path: Path, overrides: list[str]) -> Params:
    """Return the params of a file.

    Raises:
        EstimateError: it has several trainers
        ParamsError: it breaks rules
    """
    from cstool.params import load_all_params

    trainers = load_all_params(path, overrides=overrides, flags={})
    if len(trainers) > 1:
        raise EstimateError(f"--params: must be of one trainer, got {len(trainers)} in {path}", "estimate them apart")
    return trainers[0]


def _check_files(plots: Sequence[Path], trace: Path | None, csv: Path | None) -> None:
    """Check what files are called, before anything takes time.

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
    for path in plots:
        if path.suffix.lower() not in PLOT_ENDINGS:
            raise EstimateError(f"--plot: must end in .svg or .png, got {path}")
    if trace is not None:
        check_trace_file(trace)


def _validate(as_json: bool) -> None:
    """Set the model beside what is published."""
    from cstool.cli.published_report import print_published, published_document
    from cstool.cli.render import print_json
    from cstool.estimation.published import load_published, predict

    predictions = [predict(result) for result in load_published()]
    if as_json:
        print_json(published_document(predictions))
    else:
        print_published(predictions)
