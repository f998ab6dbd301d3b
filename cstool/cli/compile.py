"""`cstool compile`: map a model onto the wafer, and tell what came of it."""

from __future__ import annotations

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
    RecomputeChoice,
    RecomputeOption,
    SystemOption,
    spread_lists,
)
from cstool.errors import ArtifactError, CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cstool.compiler.program import Program
    from cstool.ir import Artifact
    from cstool.params import Params

PLOT_ENDINGS = (".svg", ".png")


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
    num_csx: Annotated[int | None, typer.Option("--num_csx", metavar="N", help="Number of CSX systems.")] = None,
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
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override any key of the params file, by its dotted path."),
    ] = None,
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
        flags: dict[str, tuple[str, Any]] = {}
        if num_csx is not None:
            flags["trainer.init.backend.cluster_config.num_csx"] = ("--num_csx", num_csx)
        if compile_dir is not None:
            flags["trainer.init.backend.compile_dir"] = ("--compile_dir", str(compile_dir.absolute()))
        _check_plots(plot or ())
        from cstool.cli.render import print_json
        from cstool.params import load_all_params

        trainers = load_all_params(params, overrides=set_ or (), flags=flags)
        if out is not None and len(trainers) > 1:
            raise CompileError(f"--out: must be for one trainer, got {len(trainers)} in {params}", "use --compile_dir")
        if plot and len(trainers) > 1:
            raise CompileError(f"--plot: must be for one trainer, got {len(trainers)} in {params}", "plot them apart")
        if validate_only:
            _validate(trainers, as_json)
            return
        from cstool.cli.compile_report import artifact_document, print_artifact
        from cstool.compiler.density import sparsity_notes
        from cstool.system import load_system

        machine, documents = load_system(system), []
        for number, trainer in enumerate(trainers, start=1):
            asked = {
                "execution_mode": execution_mode.value,
                "recompute": recompute.value,
                "micro_batch_size": micro_batch_size,
            }
            artifact, path = _compile(trainer, machine, asked, out, print_after or ())
            notes = sparsity_notes(trainer, artifact)
            _plot(artifact, plot or (), color_by.value, theme.value)
            if as_json:
                documents.append(artifact_document(artifact, path) | {"notes": notes})
                continue
            if len(trainers) > 1:
                print(f"{'' if number == 1 else chr(10)}Trainer {number} of {len(trainers)} (trainer.{number - 1})")
            print_artifact(artifact, path, notes)
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
        from cstool.compiler.difference import differences
        from cstool.ir import read_artifact

        changes = differences(read_artifact(old), read_artifact(new))
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
        _check_plots(plot or ())
        from cstool.cli.compile_report import artifact_document, print_artifact
        from cstool.ir import read_artifact

        artifact = read_artifact(file)
        _plot(artifact, plot or (), color_by.value, theme.value)
        if as_json:
            from cstool.cli.render import print_json

            print_json(artifact_document(artifact, file))
        else:
            print_artifact(artifact, file, [])


def _compile(
    params: Params, system: Any, asked: dict[str, Any], out: Path | None, print_after: Sequence[str]
) -> tuple[Artifact, Path]:
    """Return the artifact and the file that it is in."""
    from cstool import compiler
    from cstool.ir import write_artifact

    if out is None and not print_after:
        return compiler.compile_or_load(params, system, params.artifacts_dir, **asked)
    artifact = compiler.compile_model(params, system, after_pass=_printer(print_after), **asked)
    if out is not None:
        write_artifact(artifact, out)
        return artifact, out
    return artifact, compiler.keep_artifact(params.artifacts_dir, artifact)


def _printer(names: Sequence[str]) -> Callable[[str, Program], None] | None:
    """Return what prints the program after these passes.

    Raises:
        CompileError: one of them is no pass
    """
    if not names:
        return None
    import sys
    from difflib import get_close_matches

    from cstool.compiler.compile import PASSES
    from cstool.compiler.text import program_text

    known = [each.name for each in PASSES]
    for name in names:
        if name not in (*known, "all"):
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else None
            raise CompileError(f"--print_after: must be all or one of {', '.join(known)}, got {name!r}", hint)

    def print_program(name: str, program: Program) -> None:
        if name in names or "all" in names:
            print(f"-- after {name}\n{program_text(program)}", file=sys.stderr)

    return print_program


def _validate(trainers: Sequence[Params], as_json: bool) -> None:
    from cstool import compiler
    from cstool.cli.render import print_json

    programs = [compiler.match_kernels(trainer) for trainer in trainers]
    found = [
        {
            "model": program.graph.name,
            "ops": sum(segment.count * len(segment.ops) for segment in program.graph.segments),
            "kernels": sum(s.count * len(k) for s, k in zip(program.graph.segments, program.kernels, strict=True)),
        }
        for program in programs
    ]
    if as_json:
        print_json(found[0] if len(found) == 1 else {"trainers": found})
        return
    for each in found:
        print_line(f"{each['model']}: {each['ops']:,} ops in {each['kernels']:,} kernels, each of which there is")


def _check_plots(plots: Sequence[Path]) -> None:
    """Check what pictures are called, before anything takes time.

    Raises:
        CompileError: neither .svg nor .png
    """
    for path in plots:
        if path.suffix.lower() not in PLOT_ENDINGS:
            raise CompileError(f"--plot: must end in .svg or .png, got {path}")


def _plot(artifact: Artifact, plots: Sequence[Path], color_by: str, theme: str) -> None:
    if not plots:
        return
    from cstool.pictures.draw import draw_picture

    for path in plots:
        try:
            draw_picture(artifact, path, color_by, theme)
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be written: {error.strerror}") from error
