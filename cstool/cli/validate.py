"""`cstool validate`: the same run, sparse and dense, and one verdict."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from cstool.cli.compile import PlotOption, ThemeChoice, ThemeOption, check_plots
from cstool.cli.completion import complete_params
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.cli.run import LogLevel, NumCsxOption, SetOption, parse_lanes
from cstool.cli.screen import screen_on
from cstool.errors import CstoolError
from cstool.verbs.asked import load_trainer, typed

EPILOG = "Example: cstool validate --params gpt_tiny --sparsity 0.5 --num_steps 20 --plot sparse.svg"


def validate(
    params: Annotated[
        Path,
        typer.Option(
            "--params",
            "-p",
            metavar="FILE",
            help="Params file (YAML), or the name of a stock one.",
            autocompletion=complete_params,
        ),
    ],
    sparsity: Annotated[
        float | None,
        typer.Option("--sparsity", metavar="S", help="Share of zeros; takes the place of that of the file."),
    ] = None,
    num_steps: Annotated[
        int | None,
        typer.Option(
            "--num_steps", metavar="K", help="Steps of each run.", show_default="those of the file, at most 100"
        ),
    ] = None,
    num_csx: NumCsxOption = None,
    max_loss_gap: Annotated[
        float,
        typer.Option(
            "--max_loss_gap", metavar="X", help="By how much the sparse run's held-out loss may be larger [nats]."
        ),
    ] = 0.1,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="T",
            help="Relative difference that sparse and dense kernels may come to.",
            show_default="9.5e-7 per step",
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option("--sweep", metavar="S,S,...", help="Measure these sparsities, too; the verdict is not of them."),
    ] = None,
    set_: SetOption = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed of all random numbers.")] = None,
    lanes: Annotated[
        str, typer.Option("--lanes", metavar="auto|N", help="Threads of this host. Losses do not depend on it.")
    ] = "auto",
    model_dir: Annotated[
        Path | None,
        typer.Option(
            "--model_dir",
            "-o",
            metavar="DIR",
            help="New folder in which the runs stay.",
            show_default="a temporary one",
        ),
    ] = None,
    plot: PlotOption = None,
    theme: ThemeOption = ThemeChoice.light,
    as_json: JsonOption = False,
    logging: Annotated[
        LogLevel,
        typer.Option("--logging", case_sensitive=False, metavar="LEVEL", help="DEBUG, INFO, WARNING or ERROR."),
    ] = LogLevel.WARNING,
    debug: DebugOption = False,
    checkpoint_path: Annotated[Path | None, typer.Option("--checkpoint_path", hidden=True)] = None,
) -> None:
    """Compare sparse training with dense training: numerics, held-out loss, cost of a step.

    The exit code is 0 if sparse kernels compute what dense ones do and the held-out loss is close enough to that of a
    dense run, 1 if not, 2 if there is something to fix. Everything is measured on this host.
    """
    lane_count = parse_lanes(lanes)
    with errors_as_messages(debug):
        if checkpoint_path is not None:
            # Who types it knows the vendor's command of this name.
            evaluate = f"cstool run --mode eval --params {params} --checkpoint_path {checkpoint_path}"
            rule = "is not for validate, whose runs begin afresh, sparse and dense"
            raise CstoolError(f"--checkpoint_path: {rule}", f"to evaluate a checkpoint, `{evaluate}`")
        shares = _parse_sweep(sweep)
        check_plots(plot or (), CstoolError)
        loaded = load_trainer(params, set_ or (), typed("--", num_csx=num_csx, seed=seed))
        from cstool.verbs.comparison import draw_verdict, validate_logged

        verdict = validate_logged(
            loaded,
            lambda: screen_on(sys.stderr),
            logging.value,
            sparsity=sparsity,
            num_steps=num_steps,
            max_loss_gap=max_loss_gap,
            tolerance=tolerance,
            sweep=shares,
            lanes=lane_count,
            model_dir=model_dir,
        )
        if as_json:
            from cstool.cli.render import print_json

            print_json(verdict.as_dict())
        else:
            from cstool.cli.validate_report import print_verdict

            print_verdict(verdict)
        draw_verdict(verdict, plot or (), theme.value)
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
