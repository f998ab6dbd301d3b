"""From params to an artifact: the passes in their order, and the message when nothing fits."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TypedDict, Unpack

from cstool.foundation.errors import ArtifactError, CompileError
from cstool.model.batch_split import nearest_divisors
from cstool.model.graphs import SampleForm, declared_form, trained_graph
from cstool.model.ir import Artifact, MemoryXNeed, read_artifact, rules_of, verify_plans
from cstool.model.optimizers import costed_optimizer
from cstool.model.params import Params
from cstool.model.system import System, load_system, system_names
from cstool.plan.compiler.artifact import make_artifact
from cstool.plan.compiler.cache import artifact_path, compile_inputs, explain_miss, find_cached, keep_artifact
from cstool.plan.compiler.density import count_nonzeros
from cstool.plan.compiler.fusion import fuse_kernels, match_kernels
from cstool.plan.compiler.memory import add_backward, plan_memory
from cstool.plan.compiler.modes import NothingFits, choose_mode
from cstool.plan.compiler.pipelining import place_stages, route_edges
from cstool.plan.compiler.program import Pass, Program, Request, memoryx_need, shapes_of, unbalanced
from cstool.plan.compiler.streaming import plan_streaming

log = logging.getLogger("cstool")


def infer_shapes(program: Program) -> Program:
    """Infer shapes, segment by segment; the program stays as it is.

    Raises:
        ValueError: an op's output is declared with another shape than its inputs and weights make, or an op's inputs do
            not go together
    """
    for segment in program.graph.segments:
        shapes = shapes_of(program.graph, segment)
        for op in segment.ops:
            for name, inferred in zip(op.outputs, rules_of(op).shapes(op, shapes), strict=True):
                if shapes[name] != inferred:
                    raise ValueError(f"{op.name}: makes {inferred}, is declared to make {shapes[name]}")
    return program


KERNEL_PASSES: tuple[Pass, ...] = (infer_shapes, fuse_kernels, match_kernels)
"""passes up to kernel matching: where `--validate_only` stops"""
MEMORY_PASSES: tuple[Pass, ...] = (*KERNEL_PASSES, add_backward, plan_memory)
PASSES: tuple[Pass, ...] = (*MEMORY_PASSES, plan_streaming, place_stages, route_edges, choose_mode)
"""all passes in their order"""
SHORTEST = 8
"""a hint names no sequence shorter than one part in so many"""
AfterPass = Callable[[str, Program], None]


class GraphOptions(TypedDict, total=False):
    """Options of a compilation that decide on the graph.

    Args:
        expert_imbalance: tokens of the busiest expert, as a multiple of the mean
    """

    expert_imbalance: float


class Options(GraphOptions, total=False):
    """Options of a compilation.

    Args:
        execution_mode: "auto", "pipelined" or "weight_streaming"
        recompute: "needed", "fastest", "none" or "all"
        micro_batch_size: so many samples must fit; None for as many as fit, at most the params' number
        form: of samples; None for the params' form
        like: the program of the same model and options but for batch and number of systems: its graph and results of
            searches are taken over
    """

    like: Program | None
    execution_mode: str
    recompute: str
    micro_batch_size: int | None
    form: SampleForm | None


def compile_model(
    params: Params, system: System, *, after_pass: AfterPass | None = None, **options: Unpack[Options]
) -> Artifact:
    """Compile the model of a params file for a system.

    Args:
        after_pass: see `run_passes`
        options: see `Options`

    Raises:
        CompileError: the model does not fit, with changes that would; or the systems do not divide the batch
    """
    program = make_program(params, system, **options)
    return _compile(params, program, compile_inputs(params.model, program), after_pass)


def compile_or_load(
    params: Params, system: System, compile_dir: Path, **options: Unpack[Options]
) -> tuple[Artifact, Path]:
    """The artifact of a model, and its file: compiled once for the same input, into a folder that is made if missing.

    Raises:
        CompileError: as `compile_model`
        ArtifactError: the folder cannot be written
    """
    program = make_program(params, system, **options)
    inputs = compile_inputs(params.model, program)
    path = artifact_path(compile_dir, inputs)
    found = find_cached(compile_dir, inputs)
    if found is not None:
        log.info(f'Found existing cached compile with hash: "{path.stem}"')
        return found, path
    log.info(f"Compiling the model for {system.name}.")
    if (changed := explain_miss(compile_dir, inputs)) is not None:
        log.info(changed)
    artifact = _compile(params, program, inputs, None)
    keep_artifact(compile_dir, artifact)
    log.info(f"Compile artifacts successfully written to {compile_dir}. Compile hash is: {path.stem}")
    return artifact, path


def _compile(params: Params, program: Program, inputs: Mapping[str, str], after_pass: AfterPass | None) -> Artifact:
    """Run all passes; if the model does not fit, report a change with which it would."""
    request = program.request
    try:
        program = run_passes(program, PASSES, after_pass)
    except NothingFits as error:
        changes = _changes_that_fit(params, request, SampleForm.of(program.graph))
        hint = "either of these fits: " if len(changes) > 1 else "this fits: "
        raise CompileError(f"{params.path}: {error.message}", hint + "; ".join(changes) if changes else None) from None
    assert program.mode is not None
    artifact = replace(make_artifact(program, program.mode), inputs=MappingProxyType(dict(inputs)))
    verify_plans(artifact)  # the graph was verified when it was built
    return artifact


def load_compiled(params: Params, path: Path) -> Artifact:
    """Return an artifact that was compiled before, for a run of these params; `require_model` can tell the model's.

    Raises:
        ArtifactError: it cannot be used, or was compiled for another number of systems or another batch
    """
    artifact = read_artifact(path)
    loader = params.compiled_dataloader
    asked = {"num_csx": params.num_csx, "batch_size": artifact.batch_size if loader is None else loader.batch_size}
    for name, value in asked.items():
        if getattr(artifact, name) != value:
            raise ArtifactError(
                f"{path}: must be compiled for {name} {value}, got one for {getattr(artifact, name)}",
                "leave out --artifact, and the run compiles for itself",
            )
    return artifact


def count_memoryx(params: Params, system: System, **options: Unpack[Options]) -> MemoryXNeed:
    """Memory of the model of a params file in MemoryX; see `Options`.

    Raises:
        CompileError: there is no batch, or the systems do not divide it
    """
    return memoryx_need(make_program(params, system, **options))


def compile_to_kernels(params: Params) -> Program:
    """Compile up to kernel matching: a quick check that every op has a kernel, on any system."""
    return run_passes(make_program(params, load_system(system_names()[0])), KERNEL_PASSES)


def make_program(
    params: Params,
    system: System,
    *,
    execution_mode: str = "auto",
    recompute: str = "fastest",
    micro_batch_size: int | None = None,
    form: SampleForm | None = None,
    expert_imbalance: float = 1.0,
    like: Program | None = None,
) -> Program:
    """The model of a params file, and target and options, before all passes; `Options` has the arguments.

    Raises:
        CompileError: there is no batch, or the systems do not divide it, or are more than a cluster has
    """
    loader = params.compiled_dataloader
    if loader is None:
        raise CompileError(f"{params.path}: trainer.fit.train_dataloader is missing: its batch_size is compiled for")
    batch_size, num_csx = loader.batch_size, params.num_csx
    if num_csx > system.max_systems:
        raise CompileError(
            f"{params.path}: num_csx must be at most {system.max_systems}, the systems of a cluster of {system.name}, "
            f"got {num_csx}"
        )
    if batch_size % num_csx:
        rule = f"num_csx must divide batch_size ({batch_size})"
        raise CompileError(f"{params.path}: {rule}, got {num_csx}", nearest_divisors(batch_size, num_csx))
    samples = batch_size // num_csx
    if micro_batch_size is not None and micro_batch_size > samples:
        rule = f"micro_batch_size must be at most the samples of a system ({samples})"
        raise CompileError(f"{params.path}: {rule}, got {micro_batch_size}")
    request = Request(
        system=system,
        num_csx=num_csx,
        batch_size=batch_size,
        micro_batch_size=params.micro_batch_size if micro_batch_size is None else micro_batch_size,
        is_micro_batch_exact=micro_batch_size is not None,
        execution_mode=execution_mode,
        operand_bits=params.operand_bits,
        optimizer=costed_optimizer(params.optimizer),
        recompute=recompute,
        waits_for_norm=params.precision.gradients_wait,
        expert_imbalance=expert_imbalance,
    )
    if like is not None:
        return replace(like, request=replace(request, optimizer=like.request.optimizer))
    return _program(params, request, form or declared_form(params))


def _program(params: Params, request: Request, form: SampleForm) -> Program:
    graph = unbalanced(trained_graph(params, form), request.expert_imbalance)
    return Program(graph, request, count_nonzeros(params, graph))


def run_passes(program: Program, passes: tuple[Pass, ...], after_pass: AfterPass | None = None) -> Program:
    """Run passes one after the other; `after_pass` is given the name of each and the program after it."""
    for compiler_pass in passes:
        program = compiler_pass(program)
        if after_pass is not None:
            after_pass(compiler_pass.__name__, program)
    return program


def _changes_that_fit(params: Params, request: Request, form: SampleForm) -> list[str]:
    """Return up to two changes with which the model compiles; each has been tried.

    None is named beside a better one: of systems the newest, and shorter samples, which are another training, only
    where nothing else fits.
    """
    found: list[str] = []
    for text, changed, changed_form in _changes(request, form):
        is_newest = changed.system == request.system or all("--system" not in other for other in found)
        if not is_newest or (changed_form != form and found):
            continue
        try:
            program = run_passes(_program(params, changed, changed_form), PASSES)
        except CompileError:
            continue
        if request.is_micro_batch_exact and not changed.is_micro_batch_exact:
            assert program.mode is not None
            text = f"micro_batch_size {program.micro_batches[program.mode]}"
        found.append(text)
        if len(found) == 2:
            break
    return found


def _changes(request: Request, form: SampleForm) -> Iterator[tuple[str, Request, SampleForm]]:
    """Yield possible changes, in words, and the request and form of samples with each."""
    if request.is_micro_batch_exact:
        yield "another micro_batch_size", replace(request, is_micro_batch_exact=False), form
    if request.execution_mode != "auto":
        other = "pipelined" if request.execution_mode == "weight_streaming" else "weight_streaming"
        yield f"--execution_mode {other}", replace(request, execution_mode=other), form
    for name in reversed(system_names()):
        system = load_system(name)
        if system != request.system and system.max_systems >= request.num_csx:
            yield f"--system {name}", replace(request, system=system), form
    if form.tokens is not None:
        shorter = form.tokens // 2
        while shorter >= max(1, form.tokens // SHORTEST):
            key = "max_sequence_length" if form.targets is None else "src_max_sequence_length"
            yield f"{key} {shorter}", request, replace(form, tokens=shorter)
            shorter //= 2
