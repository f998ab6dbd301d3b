"""`cstool validate`: the same run, sparse and dense, and one verdict."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from cstool.foundation.errors import CstoolError
from cstool.foundation.terminal.options import LOGGING, JsonOption, LogLevel, PlotOption, ThemeOption, option
from cstool.foundation.terminal.render import print_json
from cstool.foundation.terminal.screen import screen_on
from cstool.model.commands.options import NumCsxOption, SeedOption, SetOption, lanes_option, params_option, parse_lanes
from cstool.model.verbs.asked import load_trainer, typed
from cstool.plan.commands.compile import check_plots


def validate(
    params: Annotated[Path, params_option("Params file (YAML), or the name of a stock one.")],
    sparsity: Annotated[
        float | None, option("--sparsity", "S", "Share of zeros, in place of the share in the file.")
    ] = None,
    num_steps: Annotated[
        int | None, option("--num_steps", "K", "Steps of each run.", show_default="the steps of the file, at most 100")
    ] = None,
    num_csx: NumCsxOption = None,
    max_loss_gap: Annotated[
        float,
        option("--max_loss_gap", "X", "Largest excess of the sparse run's held-out loss over the dense one [nats]."),
    ] = 0.1,
    tolerance: Annotated[
        float | None,
        option(
            "--tolerance",
            "T",
            "Largest relative difference between sparse and dense kernels.",
            show_default="9.5e-7 per step",
        ),
    ] = None,
    sweep: Annotated[
        str | None, option("--sweep", "S,S,...", "Measure these sparsities, too; they do not affect the verdict.")
    ] = None,
    set_: SetOption = None,
    seed: SeedOption = None,
    lanes: Annotated[str, lanes_option("Threads of this host. Losses do not depend on it.")] = "auto",
    model_dir: Annotated[
        Path | None,
        option("--model_dir -o", "DIR", "New folder that keeps the runs.", show_default="a temporary one"),
    ] = None,
    plot: PlotOption = None,
    theme: ThemeOption = "light",
    as_json: JsonOption = False,
    logging: Annotated[LogLevel, LOGGING] = "WARNING",
    checkpoint_path: Annotated[Path | None, typer.Option("--checkpoint_path", hidden=True)] = None,
) -> None:
    """Compare sparse training with dense training: numerics, held-out loss, cost of a step.

    The exit code is 0 if sparse kernels agree with dense ones and the held-out loss is close enough to the loss of a
    dense run, 1 if not, 2 for an error that you can fix. Everything is measured on this host.
    """
    from cstool.training.commands.validate_report import print_verdict
    from cstool.training.verbs.comparison import draw_verdict, validate_logged

    lane_count = parse_lanes(lanes)
    if checkpoint_path is not None:
        # A user who types it knows the vendor's command of this name.
        evaluate = f"cstool run --mode eval --params {params} --checkpoint_path {checkpoint_path}"
        rule = "is not for validate, whose runs begin afresh, sparse and dense"
        raise CstoolError(f"--checkpoint_path: {rule}", f"to evaluate a checkpoint, `{evaluate}`")
    shares = _parse_sweep(sweep)
    check_plots(plot or (), CstoolError)
    loaded = load_trainer(params, set_ or (), typed("--", num_csx=num_csx, seed=seed))

    verdict = validate_logged(
        loaded,
        lambda: screen_on(sys.stderr),
        logging,
        sparsity=sparsity,
        num_steps=num_steps,
        max_loss_gap=max_loss_gap,
        tolerance=tolerance,
        sweep=shares,
        lanes=lane_count,
        model_dir=model_dir,
    )
    if as_json:
        print_json(verdict.as_dict())
    else:
        print_verdict(verdict)
    draw_verdict(verdict, plot or (), theme)
    if not verdict.holds:
        raise typer.Exit(1)


def _parse_sweep(text: str | None) -> tuple[float, ...]:
    """Return the sparsities of a sweep, none twice."""
    if text is None:
        return ()
    try:
        return tuple(dict.fromkeys(map(float, text.split(","))))
    except ValueError:
        hint = "for example --sweep 0.5,0.75,0.9"
        raise CstoolError(f"--sweep: must be numbers with commas between them, got {text!r}", hint) from None
