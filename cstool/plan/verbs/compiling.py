"""Compile a params file: the plan of a model on the modelled wafer; the verbs behind `cstool compile`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cstool.foundation.errors import ArtifactError, CompileError
from cstool.foundation.words import check_choice, did_you_mean
from cstool.model.verbs.asked import asked_params

if TYPE_CHECKING:
    from cstool.model.ir import Artifact
    from cstool.model.params import Params
    from cstool.model.system import System
    from cstool.plan.compiler.difference import Change
    from cstool.plan.compiler.program import Program

EXECUTION_MODES = ("auto", "pipelined", "weight_streaming")
RECOMPUTE = ("needed", "fastest", "none", "all")


@dataclass(frozen=True)
class Compiled:
    """An artifact, the file that it is in, and notes on its sparsity."""

    artifact: Artifact
    path: Path
    notes: tuple[str, ...] = ()

    @property
    def utilization(self) -> float:
        """Share of the wafers' peak that the products of a step come to: none of them twice, no zeros."""
        from cstool.plan.timing.wafer import useful_flops

        artifact = self.artifact
        peak_flops = artifact.num_csx * artifact.system.peak_flops(artifact.operand_bits)
        return useful_flops(artifact) / (peak_flops * artifact.step_s)


class KernelCount(NamedTuple):
    """A model whose ops all have a kernel: its name, and the numbers of both."""

    model: str
    ops: int
    kernels: int


def compile_model(
    params: str | Path | Params,
    system: str | Path | System = "cs2",
    *,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    num_csx: int | None = None,
    execution_mode: Literal["auto", "pipelined", "weight_streaming"] = "auto",
    recompute: Literal["needed", "fastest", "none", "all"] = "fastest",
    micro_batch_size: int | None = None,
) -> Artifact:
    """Compile the model of a params file for a system; nothing runs, and no data is needed.

    Args:
        params: a params file of one trainer, or params that are loaded
        system: kind of each CSX: cs1, cs2, cs3, a system file, or a system
        overrides: values by dotted key
        num_csx: number of CSX systems
        execution_mode: how the model uses the wafer; "auto" takes the faster one
        recompute: compute activations again where nothing fits otherwise ("needed"), wherever that is faster, never
            ("none"), or in every layer ("all")
        micro_batch_size: so many samples must fit; None for as many as fit, at most the params' number

    Returns:
        The compiler's results: the model on the wafer

    Raises:
        CompileError: the model does not fit, with changes that would; or the systems do not divide the batch
        ParamsError: the file breaks rules, or there is no such system
    """
    check_choice("execution_mode", execution_mode, EXECUTION_MODES)
    check_choice("recompute", recompute, RECOMPUTE)
    from cstool.model.system import System, load_system
    from cstool.plan import compiler

    asked = asked_params(params, overrides, num_csx=num_csx)
    return compiler.compile_model(
        asked,
        system if isinstance(system, System) else load_system(str(system)),
        execution_mode=execution_mode,
        recompute=recompute,
        micro_batch_size=micro_batch_size,
    )


def compile_trainers(
    trainers: Sequence[Params],
    system: str,
    *,
    out: Path | None,
    show_after: Sequence[str],
    show: Callable[[str, str], None],
    pes: tuple[int, int] | None = None,
    **asked: Any,
) -> Iterator[Compiled]:
    """Compile the models of trainers, one after the other, and keep the artifacts. The same input is compiled once.

    Args:
        trainers: of one file
        system: name of a system, or a system file
        out: the file of the artifact; None for the folder of the params, where an existing artifact is reused
        show_after: names of passes after which the program is shown, or "all"
        show: is told the name of a pass, and the program after it
        pes: width and height of the corner of the wafer that is used; None for all of it
        asked: execution_mode, recompute and micro_batch_size as of `compile_model`

    Raises:
        CompileError: a model does not fit, or there is no such pass
        ArtifactError: an artifact cannot be written
    """
    from cstool.model.ir import write_artifact
    from cstool.model.system import load_system
    from cstool.plan import compiler
    from cstool.plan.compiler.density import sparsity_notes

    loaded = load_system(system) if pes is None else corner_of(load_system(system), *pes)
    for params in trainers:
        if out is None and not show_after:
            artifact, path = compiler.compile_or_load(params, loaded, params.artifacts_dir, **asked)
        else:
            after_pass = _shows(show_after, show)
            artifact = compiler.compile_model(params, loaded, after_pass=after_pass, **asked)
            if out is not None:
                write_artifact(artifact, out)
                path = out
            else:
                path = compiler.keep_artifact(params.artifacts_dir, artifact)
        yield Compiled(artifact, path, tuple(sparsity_notes(params, artifact)))


def corner_of(system: System, width: int, height: int) -> System:
    """A system of which a corner of the wafer is used.

    Raises:
        CompileError: the wafer is smaller
    """
    from dataclasses import replace

    fabric = system.fabric
    if not (1 <= width <= fabric.width and 1 <= height <= fabric.height):
        raise CompileError(f"--pes: must be 1,1 to {fabric.width},{fabric.height}, got {width},{height}")
    return replace(system, fabric=replace(fabric, width=width, height=height))


def _shows(names: Sequence[str], show: Callable[[str, str], None]) -> Callable[[str, Program], None] | None:
    if not names:
        return None
    from cstool.plan.compiler.compile import PASSES
    from cstool.plan.compiler.text import program_text

    known = [each.__name__ for each in PASSES]
    for name in names:
        if name not in (*known, "all"):
            rule = f"must be all or one of {', '.join(known)}, got {name!r}"
            raise CompileError(f"--print_after: {rule}", did_you_mean(name, known))

    def after_pass(name: str, program: Program) -> None:
        if name in names or "all" in names:
            show(name, program_text(program))

    return after_pass


def check_kernels(trainers: Sequence[Params]) -> list[KernelCount]:
    """Check that every op of the trainers' models has a kernel.

    Raises:
        CompileError: one has none
    """
    from cstool.plan import compiler

    found = []
    for program in map(compiler.compile_to_kernels, trainers):
        segments = program.graph.segments
        ops = sum(segment.count * len(segment.ops) for segment in segments)
        kernels = sum(s.count * len(k) for s, k in zip(segments, program.kernels, strict=True))
        found.append(KernelCount(program.graph.name, ops, kernels))
    return found


def load_compiled(file: Path) -> Compiled:
    """Read an artifact.

    Raises:
        ArtifactError: it is none
    """
    from cstool.model.ir import read_artifact

    return Compiled(read_artifact(file), file)


def diff_artifacts(old: Path, new: Path) -> list[Change]:
    """List the differences between two artifacts, the most important first.

    Raises:
        ArtifactError: one of them is none
    """
    from cstool.model.ir import read_artifact
    from cstool.plan.compiler.difference import differences

    return list(differences(read_artifact(old), read_artifact(new)))


def plot_artifact(artifact: Artifact, paths: Sequence[Path], color_by: str, theme: str) -> None:
    """Draw an artifact into files, .svg or .png, its regions coloured by "work" or "sram", on a "light" or "dark" page.

    Raises:
        ArtifactError: a file cannot be written
    """
    if paths:
        from cstool.plan.pictures.draw import draw_artifact, write_pictures

        write_pictures(lambda: draw_artifact(artifact, color_by), paths, theme, ArtifactError)
