"""Small artifacts of both modes, made by hand: every op is a kernel of its own, numbers are round."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from cstool.model import ir
from cstool.model.ir import Artifact, Graph
from cstool.model.system import Fabric, load_system
from tests.models import decoder

CS2 = load_system("cs2")
SYSTEM = replace(
    CS2,
    name="small",
    wafer="WSE-0",
    fabric=Fabric(width=40, height=30),
    pe=replace(CS2.pe, efficiency=0.75),
    power_w=23000.0,
    idle_power_w=16000.0,
    memoryx=replace(CS2.memoryx, units_bytes=(4 * 10**12, 2_400 * 10**12)),
    sources=MappingProxyType({}),
)
SRAM = (
    ir.SramEntry("code", 5 * 1024, "as the system file says"),
    ir.SramEntry("stack", 1024, "as the system file says"),
    ir.SramEntry("activations", 4_000, "10 tokens x 400 B"),
)
SRAM_BYTES = sum(entry.bytes for entry in SRAM)


def make_kernels(graph: Graph) -> tuple[tuple[ir.FusedKernel, ...], ...]:
    return tuple(
        tuple(
            ir.FusedKernel(op.name, ir.KernelKind.ELEMENTWISE, (op.name,), op.inputs, op.outputs, op.weights)
            for op in segment.ops
        )
        for segment in graph.segments
    )


def cycles(longest: int) -> ir.KernelCycles:
    """Of a kernel whose phases take as long each, all for another reason, and whose forward pass runs twice."""
    half = longest // 2
    return ir.KernelCycles(
        ir.PhaseCycles(longest, half, half, 0, 0),
        ir.PhaseCycles(half, longest, half, 0, 0),
        ir.PhaseCycles(half, 0, 0, longest - 6, 6),
        recomputes=1,
    )


def streaming_artifact(graph: Graph | None = None, **changes: Any) -> Artifact:
    """A decoder of two layers in weight streaming."""
    graph = graph or decoder(layers=2)
    kernels = make_kernels(graph)
    streamed = tuple(
        tuple(
            ir.StreamedKernel(kernel.name, 8, 16, 30, 128, 256, 512, cycles(1_000), SRAM_BYTES) for kernel in of_segment
        )
        for of_segment in kernels
    )
    artifact = Artifact(
        schema=ir.SCHEMA,
        cstool="1.0.0",
        inputs=MappingProxyType({"num_csx": "2", "model.name": "gpt2"}),
        system=SYSTEM,
        num_csx=2,
        batch_size=16,
        tokens=8,
        operand_bits=16,
        graph=graph,
        kernels=kernels,
        mode=ir.ExecutionMode.WEIGHT_STREAMING,
        reasons=("weight_streaming was asked for",),
        alternatives=(
            ir.Alternative(ir.ExecutionMode.WEIGHT_STREAMING, 2_000_000, "2 micro-batches of 4"),
            ir.Alternative(ir.ExecutionMode.PIPELINED, None, "weights need 3 MB"),
        ),
        waits_for_norm=True,
        micro_batch_size=4,
        recompute=ir.Recompute(0),
        streaming=ir.StreamingPlan(
            layout=ir.Layout(2, 20, 30, 1),
            kernels=streamed,
            sram=SRAM,
            fullest_kernel=kernels[0][0].name,
            colors=MappingProxyType({"weights": 0, "deltas": 3}),
            prefetch_bytes=4_096,
            micro_batches=2,
            streamed_bytes=1_000_000,
            gradient_bytes=500_000,
        ),
        pipelined=None,
        memoryx=ir.MemoryXNeed(4_000, 8_000, 4_000, 2_400 * 10**12),
        step_cycles=2_000_000,
        active_pes=1_000,
        sram_used_bytes=SRAM_BYTES,
    )
    return replace(artifact, **changes)


def pipelined_artifact(graph: Graph | None = None, **changes: Any) -> Artifact:
    """A decoder of one layer, pipelined, two replicas: stages are columns of the wafer."""
    graph = graph or decoder(layers=1)
    names = [
        segment.name_of(op.name, repetition)
        for segment in graph.segments
        for repetition in range(segment.count)
        for op in segment.ops
    ]
    stages = tuple(
        ir.Stage(
            *(name, "elementwise", ir.Region(n, 0, 1, 15), "inputs over columns", cycles(100 + n)),
            *(n == 0, n + 1, False, SRAM),
        )
        for n, name in enumerate(names)
    )
    routes = tuple(
        ir.Route(f"activation {n}", n, n + 1, "activation", n % 5, 2, ((n, 3), (n + 1, 3)))
        for n in range(len(names) - 1)
    )
    plan = ir.PipelinedPlan(
        replicas=(1, 2),
        replica_width=40,
        replica_height=15,
        stages=stages,
        routes=(ir.Route("input_ids", -1, 0, "input", 20, 1, ((0, 2), (0, 2))), *routes),
        kernel_colors=MappingProxyType({"partial sums": 8}),
        bottleneck=len(names) - 1,
        update_cycles=1_000,
        wire_pes=len(names) - 1,
    )
    return replace(
        streaming_artifact(graph),
        mode=ir.ExecutionMode.PIPELINED,
        reasons=("pipelined takes less time per step than weight_streaming, 4.00x, modelled",),
        alternatives=(ir.Alternative(ir.ExecutionMode.PIPELINED, 500_000, f"{len(names)} stages, 2 replicas"),),
        streaming=None,
        pipelined=plan,
        step_cycles=500_000,
        active_pes=2 * 15 * len(names),
        **changes,
    )


def plan(artifact: Artifact, **changes: Any) -> Artifact:
    name = "pipelined" if artifact.streaming is None else "streaming"
    return replace(artifact, **{name: replace(getattr(artifact, name), **changes)})
