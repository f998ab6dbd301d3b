"""`cstool compile`: map a model onto the wafer, and tell what came of it."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cstool.cli.command import Command, Group
from cstool.cli.completion import complete_artifact, complete_params
from cstool.cli.render import print_line
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.cli.run import (
    CompileDirOption,
    ExecutionModeChoice,
    ExecutionModeOption,
    NumCsxOption,
    RecomputeChoice,
    RecomputeOption,
    SetOption,
    SystemOption,
    spread_lists,
)
from cstool.errors import CompileError, CstoolError
from cstool.verbs.asked import load_trainers, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cstool.verbs.results import Params


class ColorChoice(StrEnum):
    """What the colours of regions say."""

    work = "work"
    sram = "sram"


class CompileGroup(Group):
    """A group that compiles where no command is named; its --set takes several values in a row."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after writing each list flag once per value."""
        return super().parse_args(ctx, args if set(args[:1]) & set(self.commands) else spread_lists(args))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        """Return the words of the usage line."""
        return ["--params FILE [OPTIONS] | COMMAND [ARGS]..."]


class ThemeChoice(StrEnum):
    """The page of a picture."""

    light = "light"
    dark = "dark"


PlotOption = Annotated[
    list[Path] | None,
    typer.Option("--plot", metavar="FILE", help="Draw it into a file, .svg or .png; may be given several times."),
]
ColorOption = Annotated[ColorChoice, typer.Option("--color_by", help="What the colours of the picture's regions say.")]
ThemeOption = Annotated[ThemeChoice, typer.Option("--theme", help="The page of the picture: light or dark.")]
compile_app = typer.Typer(cls=CompileGroup, invoke_without_command=True, no_args_is_help=True)


ModelParamsOption = Annotated[
    Path | None,
    typer.Option(
        "--params",
        "-p",
        metavar="FILE",
        help="Params file (YAML), or the name of a stock one; no data is needed.",
        autocompletion=complete_params,
    ),
]


@compile_app.callback(
    epilog="Example: cstool compile --params gpt2_small --plot gpt2_small.svg\n"
    "Example: cstool compile --params gpt2_small --system cs3 --num_csx 2 --out gpt2_small.json"
)
def compile_(
    ctx: typer.Context,
    params: ModelParamsOption = None,
    system: SystemOption = "cs2",
    num_csx: NumCsxOption = None,
    execution_mode: ExecutionModeOption = ExecutionModeChoice.auto,
    micro_batch_size: Annotated[
        int | None,
        typer.Option("--micro_batch_size", metavar="N", min=1, help="Samples that are on a wafer at a time."),
    ] = None,
    recompute: RecomputeOption = RecomputeChoice.fastest,
    compile_dir: CompileDirOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the artifact to this file, not into a folder.")
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate_only", help="Check that every op has a kernel, go no further.")
    ] = False,
    print_after: Annotated[
        list[str] | None,
        typer.Option(
            "--print_after", metavar="PASS", help="Print the program on stderr after this pass, or after all."
        ),
    ] = None,
    plot: PlotOption = None,
    color_by: ColorOption = ColorChoice.work,
    theme: ThemeOption = ThemeChoice.light,
    set_: SetOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Map the model of a params file onto the wafer, and report what came of it.

    The artifact that it writes is what cstool run executes. Times and memory are modelled for the wafer; nothing is
    measured. The same input is compiled once.
    """
    if ctx.invoked_subcommand is not None:
        return
    with errors_as_messages(debug):
        if params is None:
            raise CompileError("--params is missing", "cstool compile --params FILE")
        check_plots(plot or ())
        from cstool.cli.render import print_json

        trainers = load_trainers(params, set_ or (), typed("--", num_csx=num_csx, compile_dir=compile_dir))
        if out is not None and len(trainers) > 1:
            raise CompileError(f"--out: must be for one trainer, got {len(trainers)} in {params}", "use --compile_dir")
        if plot and len(trainers) > 1:
            raise CompileError(f"--plot: must be for one trainer, got {len(trainers)} in {params}", "plot them apart")
        if validate_only:
            _validate(trainers, as_json)
            return
        from cstool.cli.compile_report import artifact_document, print_artifact
        from cstool.verbs.compiling import CompileRequest, compile_trainers, draw_artifact

        request = CompileRequest(
            system=system,
            execution_mode=execution_mode.value,
            recompute=recompute.value,
            micro_batch_size=micro_batch_size,
            out=out,
            show_after=tuple(print_after or ()),
        )
        documents = []
        for number, compiled in enumerate(compile_trainers(trainers, request, _print_program), start=1):
            draw_artifact(compiled.artifact, plot or (), color_by.value, theme.value)
            if as_json:
                documents.append(artifact_document(compiled) | {"notes": compiled.notes})
                continue
            if len(trainers) > 1:
                print(f"{'' if number == 1 else chr(10)}Trainer {number} of {len(trainers)} (trainer.{number - 1})")
            print_artifact(compiled)
        if as_json:
            print_json(documents[0] if len(trainers) == 1 else {"trainers": documents})


@compile_app.command("diff", cls=Command, epilog="Example: cstool compile diff a.json b.json")
def diff(
    old: Annotated[
        Path, typer.Argument(metavar="A", help="An artifact.", show_default=False, autocompletion=complete_artifact)
    ],
    new: Annotated[
        Path, typer.Argument(metavar="B", help="Another one.", show_default=False, autocompletion=complete_artifact)
    ],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Say what is different between two artifacts, what matters most first.

    The exit code is 0 if nothing is, 1 if something is, 2 if they cannot be read.
    """
    with errors_as_messages(debug):
        from cstool.cli.compile_report import print_differences
        from cstool.verbs.compiling import diff_artifacts

        changes = diff_artifacts(old, new)
        if as_json:
            from cstool.cli.render import print_json

            found = [{"what": change.what, "old": change.old, "new": change.new} for change in changes]
            print_json({"equal": not changes, "differences": found})
        else:
            print_differences(changes)
    if changes:
        raise typer.Exit(1)


@compile_app.command("show", cls=Command, epilog="Example: cstool compile show gpt2_small.json --plot floorplan.png")
def show(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="ARTIFACT", help="What was compiled.", show_default=False, autocompletion=complete_artifact
        ),
    ],
    plot: PlotOption = None,
    color_by: ColorOption = ColorChoice.work,
    theme: ThemeOption = ThemeChoice.light,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Report on an artifact, or draw it."""
    with errors_as_messages(debug):
        check_plots(plot or ())
        from cstool.cli.compile_report import artifact_document, print_artifact
        from cstool.verbs.compiling import draw_artifact, load_compiled

        compiled = load_compiled(file)
        draw_artifact(compiled.artifact, plot or (), color_by.value, theme.value)
        if as_json:
            from cstool.cli.render import print_json

            print_json(artifact_document(compiled))
        else:
            print_artifact(compiled)


def _print_program(name: str, text: str) -> None:
    print(f"-- after {name}\n{text}", file=sys.stderr)


def _validate(trainers: Sequence[Params], as_json: bool) -> None:
    from cstool.cli.render import print_json
    from cstool.verbs.compiling import check_kernels

    found = check_kernels(trainers)
    if as_json:
        documents = [each._asdict() for each in found]
        print_json(documents[0] if len(documents) == 1 else {"trainers": documents})
        return
    for each in found:
        print_line(f"{each.model}: {each.ops:,} ops in {each.kernels:,} kernels, each of which there is")


def check_plots(plots: Sequence[Path], error: type[CstoolError] = CompileError) -> None:
    """Check what pictures are called, before anything takes time.

    Raises:
        CstoolError: one is neither .svg nor .png
    """
    for path in plots:
        if path.suffix.lower() not in (".svg", ".png"):
            raise error(f"--plot: must end in .svg or .png, got {path}")
