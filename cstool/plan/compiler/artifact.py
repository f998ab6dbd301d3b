"""From a program to an artifact, and the cycles of its step on all systems."""

from dataclasses import replace
from types import MappingProxyType

from cstool import __version__
from cstool.model.ir import SCHEMA, Artifact, ExecutionMode
from cstool.plan.compiler.modes import alternatives
from cstool.plan.compiler.program import Program, memoryx_need
from cstool.plan.timing.pe import ceil_div
from cstool.plan.timing.wafer import cluster_step


def with_step(program: Program, mode: ExecutionMode) -> Program:
    """Return a program that has a plan for a mode with the cycles of a step of all systems in it."""
    seconds = cluster_step(make_artifact(program, mode), program.request.optimizer.update_ops).seconds
    cycles = round(seconds * program.request.system.clock_hz)
    return program.with_known(mode, step_cycles=cycles)


def make_artifact(program: Program, mode: ExecutionMode) -> Artifact:
    """Artifact of a program in a mode for which it has a plan, without its inputs; nothing is verified."""
    request, is_pipelined = program.request, mode is ExecutionMode.PIPELINED
    plan, placed = (None, program.pipelined) if is_pipelined else (program.streaming, None)
    if placed is not None:
        used = max(stage.used_bytes for stage in placed.stages)
        active = placed.replicas[0] * placed.replicas[1] * sum(stage.region.pes for stage in placed.stages)
    else:
        assert plan is not None
        used, active = sum(entry.bytes for entry in plan.sram), _active_pes(program)
    return Artifact(
        schema=SCHEMA,
        cstool=__version__,
        inputs=MappingProxyType({}),
        system=replace(request.system, sources=MappingProxyType({})),
        num_csx=request.num_csx,
        batch_size=request.batch_size,
        tokens=program.tokens,
        operand_bits=request.operand_bits,
        graph=program.graph,
        kernels=program.kernels,
        mode=mode,
        reasons=program.reasons,
        alternatives=alternatives(program),
        waits_for_norm=request.waits_for_norm,
        micro_batch_size=program.micro_batches[mode],
        recompute=program.recompute[mode],
        streaming=plan,
        pipelined=placed,
        memoryx=memoryx_need(program),
        step_cycles=program.step_cycles.get(mode, 0),
        active_pes=active,
        sram_used_bytes=used,
    )


def _active_pes(program: Program) -> int:
    """Number of PEs with work in weight streaming: PEs with tokens, and elements of the widest activation."""
    plan = program.streaming
    assert plan is not None
    layout, size = plan.layout, program.micro_batches[ExecutionMode.WEIGHT_STREAMING]
    tokens = ceil_div(size, layout.groups) * program.tokens
    rows: int = min(layout.rows, ceil_div(tokens, layout.tokens_per_pe))
    widest = max(life.width for lives in program.lives for life in lives if life.is_operand)
    columns: int = ceil_div(widest, ceil_div(widest, layout.columns))
    return rows * columns * layout.groups
