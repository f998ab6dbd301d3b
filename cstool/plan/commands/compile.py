"""`cstool compile`: map a model onto the wafer, and report the result."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cstool.foundation.errors import CompileError, CstoolError
from cstool.foundation.terminal.command import Group, command, spread_lists, with_messages
from cstool.foundation.terminal.options import JsonOption, PlotOption, ThemeOption, argument, flag, option
from cstool.foundation.terminal.render import print_json, print_line
from cstool.model.commands.completion import complete_artifact
from cstool.model.commands.options import (
    CompileDirOption,
    ExecutionModeOption,
    ModelParamsOption,
    NumCsxOption,
    RecomputeOption,
    SetOption,
    SystemOption,
)
from cstool.model.verbs.asked import load_trainers, typed

if TYPE_CHECKING:
    from collections.abc import Sequence


class ParamsGroup(Group):
    """A group that takes a params file where no command is named; its --set takes several values in a row."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after writing each list flag once per value."""
        return super().parse_args(ctx, args if set(args[:1]) & set(self.commands) else spread_lists(args))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        """Return the words of the usage line."""
        return ["--params FILE [OPTIONS] | COMMAND [ARGS]..."]


ColorOption = Annotated[
    Literal["work", "sram"], flag("--color_by", "Quantity shown by the colours of the picture's regions.")
]
compile_app = typer.Typer(cls=ParamsGroup, invoke_without_command=True, no_args_is_help=True)


@compile_app.callback(
    epilog="Example: cstool compile --params gpt2_small --plot gpt2_small.svg\n"
    "Example: cstool compile --params gpt2_small --system cs3 --num_csx 2 --out gpt2_small.json\n"
    "Example: cstool compile --params fc_mnist --emit csl -o fc_mnist_csl"
)
@with_messages
def compile_(
    ctx: typer.Context,
    params: ModelParamsOption = None,
    system: SystemOption = "cs2",
    num_csx: NumCsxOption = None,
    execution_mode: ExecutionModeOption = "auto",
    micro_batch_size: Annotated[
        int | None, option("--micro_batch_size", "N", "Samples on a wafer at a time.", min=1)
    ] = None,
    recompute: RecomputeOption = "fastest",
    compile_dir: CompileDirOption = None,
    out: Annotated[Path | None, option("--out", "FILE", "Write the artifact to this file, not into a folder.")] = None,
    validate_only: Annotated[bool, flag("--validate_only", "Check that every op has a kernel, go no further.")] = False,
    print_after: Annotated[
        list[str] | None, option("--print_after", "PASS", "Print the program on stderr after this pass, or after all.")
    ] = None,
    plot: PlotOption = None,
    color_by: ColorOption = "work",
    theme: ThemeOption = "light",
    pes: Annotated[str | None, option("--pes", "W,H", "Use a corner of the wafer, of so many PEs.")] = None,
    emit: Annotated[
        Literal["csl"] | None,
        option("--emit", "csl", "Write a program in CSL, too, for the simulated fabric."),
    ] = None,
    output: Annotated[
        Path | None, option("--output -o", "DIR", "Folder of that program.", show_default="MODEL_csl")
    ] = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Map the model of a params file onto the wafer, and report the result.

    It writes an artifact, which cstool run executes. Times and memory are modelled for the wafer; nothing is
    measured. The same input is compiled once. With --emit csl the layout is that of weight streaming, on cs3 and
    --pes 8,8 if not told otherwise.
    """
    from cstool.plan.commands.compile_report import artifact_document, print_artifact
    from cstool.plan.verbs.compiling import check_kernels, compile_trainers, plot_artifact

    if ctx.invoked_subcommand is not None:
        return
    if params is None:
        raise CompileError("--params is missing", "cstool compile --params FILE")
    check_plots(plot or ())

    trainers = load_trainers(params, set_ or (), typed("--", num_csx=num_csx, compile_dir=compile_dir))
    if out is not None and len(trainers) > 1:
        raise CompileError(f"--out: must be for one trainer, got {len(trainers)} in {params}", "use --compile_dir")
    if plot and len(trainers) > 1:
        raise CompileError(f"--plot: must be for one trainer, got {len(trainers)} in {params}", "plot them apart")
    corner = None if pes is None else parse_pes(pes)
    if output is not None and emit is None:
        raise CompileError("--output: must come with --emit, which says what is written", "--out has the artifact")
    if emit is not None:
        if len(trainers) > 1:
            raise CompileError(f"--emit: must be for one trainer, got {len(trainers)} in {params}", "emit them apart")
        if execution_mode == "pipelined":
            raise CompileError("--execution_mode: must be weight_streaming with --emit csl, got pipelined")
        execution_mode, corner = "weight_streaming", corner or (8, 8)
        source = ctx.get_parameter_source("system")
        if source is not None and source.name == "DEFAULT":
            system = "cs3"
    if validate_only:
        found = check_kernels(trainers)
        if as_json:
            print_json(found[0] if len(found) == 1 else {"trainers": found})
            return
        for each in found:
            print_line(f"{each.model}: {each.ops:,} ops in {each.kernels:,} kernels, each of which there is")
        return

    every = compile_trainers(
        trainers,
        system,
        out=out,
        show_after=print_after or (),
        show=lambda name, text: print(f"-- after {name}\n{text}", file=sys.stderr),
        pes=corner,
        execution_mode=execution_mode,
        recompute=recompute,
        micro_batch_size=micro_batch_size,
    )
    documents = []
    for number, compiled in enumerate(every, start=1):
        plot_artifact(compiled.artifact, plot or (), color_by, theme)
        written = None
        if emit is not None:
            from cstool.cli.verbs.on_fabric import emit_csl

            written = emit_csl(compiled.artifact, output or Path(f"{compiled.artifact.graph.name}_csl"))
        if as_json:
            more = {} if written is None else {"csl": written.partition(":")[0]}
            documents.append(artifact_document(compiled) | {"notes": compiled.notes} | more)
            continue
        if len(trainers) > 1:
            print(f"{'' if number == 1 else chr(10)}Trainer {number} of {len(trainers)} (trainer.{number - 1})")
        print_artifact(compiled)
        if written is not None:
            print()
            print_line(f"written {written}")
            print_line(f"`cstool fabric run {written.partition(':')[0]} --arch wse3` runs it")
    if as_json:
        print_json(documents[0] if len(trainers) == 1 else {"trainers": documents})


@command(compile_app, "diff", "cstool compile diff a.json b.json")
def diff(
    old: Annotated[Path, argument("A", "An artifact.", complete_artifact)],
    new: Annotated[Path, argument("B", "Another artifact.", complete_artifact)],
    as_json: JsonOption = False,
) -> None:
    """List the differences between two artifacts, the most important first.

    The exit code is 0 if they are equal, 1 if they differ, 2 if one cannot be read.
    """
    from cstool.plan.commands.compile_report import print_differences
    from cstool.plan.verbs.compiling import diff_artifacts

    changes = diff_artifacts(old, new)
    if as_json:
        found = [{"what": change.what, "old": change.old, "new": change.new} for change in changes]
        print_json({"equal": not changes, "differences": found})
    else:
        print_differences(changes)
    if changes:
        raise typer.Exit(1)


@command(compile_app, "show", "cstool compile show gpt2_small.json --plot floorplan.png")
def show(
    file: Annotated[Path, argument("ARTIFACT", "An artifact of cstool compile.", complete_artifact)],
    plot: PlotOption = None,
    color_by: ColorOption = "work",
    theme: ThemeOption = "light",
    as_json: JsonOption = False,
) -> None:
    """Report on an artifact, or draw it."""
    from cstool.plan.commands.compile_report import artifact_document, print_artifact
    from cstool.plan.verbs.compiling import load_compiled, plot_artifact

    check_plots(plot or ())

    compiled = load_compiled(file)
    plot_artifact(compiled.artifact, plot or (), color_by, theme)
    if as_json:
        print_json(artifact_document(compiled))
    else:
        print_artifact(compiled)


def parse_pes(text: str) -> tuple[int, int]:
    """Width and height of a rectangle, as `8,4`.

    Raises:
        CompileError: it has another form
    """
    width, _, height = text.partition(",")
    if not (width.isdecimal() and height.isdecimal()):
        raise CompileError(f"--pes: must be W,H, columns and rows of PEs, got {text!r}", "for example --pes 8,8")
    return int(width), int(height)


def check_plots(plots: Sequence[Path], error: type[CstoolError] = CompileError) -> None:
    """Check the names of pictures, before any long work.

    Raises:
        CstoolError: one is neither .svg nor .png
    """
    for path in plots:
        if path.suffix.lower() not in (".svg", ".png"):
            raise error(f"--plot: must end in .svg or .png, got {path}")
