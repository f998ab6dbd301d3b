"""Cycles of a GPT's ops on the simulated fabric beside the compiler's estimates: rows of docs/csl/models.md.

`python -m benchmarks.fabric_models --only gpt` prints them. An op is one call forward and one backward, alone on the
PEs. *estimate*: `cstool.plan.timing` for the same op and rectangle, operands of 32 bits, PEs as fast as their
instructions, and nothing but the fabric: weights are in the PEs of the north end when an op begins. Both are modelled,
measured on no wafer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cstool.cli.verbs.on_fabric import gpt_of
from cstool.csl.models.gpt_host import GptOnFabric
from cstool.csl.models.gpt_program import HOST_KINDS
from cstool.csl.models.simulated import SimulatedFabric
from cstool.model.ir import Artifact, Layout, Op, work_of
from cstool.model.system import load_system
from cstool.model.verbs.asked import asked_params
from cstool.plan.compiler import compile_model
from cstool.plan.timing.pe import Pe
from cstool.plan.timing.streaming import hop_latency_cycles, stream_of, streamed_phases
from cstool.plan.verbs.compiling import corner_of

COLUMNS, ROWS = 8, 4
SIZES: Mapping[str, Mapping[str, int]] = {
    "small": {},  # params/gpt_block.yaml as it is
    "large": {
        "hidden_size": 64, "num_heads": 4, "filter_size": 128, "max_position_embeddings": 32, "vocab_size": 64,
    },
}  # fmt: skip
"""settings of the model, by size: 2 tokens and 2 features of a PE, and 8 and 8"""


@dataclass(frozen=True)
class Row:
    """An op.

    Args:
        op: its name in the graph
        forward, backward: cycles, simulated and estimated
    """

    op: str
    forward: tuple[int, int]
    backward: tuple[int, int]


def block(size: str) -> Artifact:
    """The compiler's result for a block: float32, PEs as fast as their instructions."""
    model = {f"trainer.init.model.{key}": value for key, value in SIZES[size].items()}
    system = corner_of(load_system("cs3"), COLUMNS, ROWS)
    system = replace(system, pe=replace(system.pe, efficiency=1.0))
    params = asked_params("gpt_block", {**model, "trainer.init.precision.enabled": False})
    return compile_model(params, system, execution_mode="weight_streaming", recompute="none")


def simulated(artifact: Artifact) -> dict[str, int]:
    """Cycles of the calls of a step, by function."""
    program, rng = gpt_of(artifact), np.random.default_rng(1)
    fabric = SimulatedFabric(program.compiled())
    weights = {
        name: (rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)
        for name, shape in program.shapes.items()
    }
    tokens = program.grid.tokens
    x = rng.standard_normal((tokens, program.hidden)).astype(np.float32)
    labels = rng.integers(0, program.steps[-1].outputs, tokens)
    GptOnFabric(fabric, program.host).run(weights, x, labels, np.full(tokens, 1 / tokens, np.float32))
    return dict(fabric.cycles)


def estimated(artifact: Artifact, op: Op, layout: Layout) -> tuple[int, int]:
    """Cycles of an op forward and backward, by the compiler's formulas."""
    graph, pe = artifact.graph, Pe(artifact.system, 32)
    shapes = {name: tensor.shape for name, tensor in graph.tensors.items()}
    shapes |= {name: weight.shape for name, weight in graph.weights.items()}
    work, stream = work_of(op, shapes), stream_of(artifact.system, 32)
    phases = streamed_phases(pe, work, layout, artifact.batch_size, stream, tokens=artifact.tokens)
    latency = int(hop_latency_cycles(pe, layout))
    forward, delta, gradient = (int(limits.total(0, on_fabric=True)) for limits in phases.all)
    # Backward is one call: products for the delta and for the gradient, one after the other.
    return forward + latency, delta + gradient + latency


def rows(size: str) -> Iterator[Row]:
    """The ops of a block, of one size."""
    artifact = block(size)
    assert artifact.streaming is not None
    found, layout = simulated(artifact), artifact.streaming.layout
    ops = [op for op in artifact.graph.ops if op.kind not in HOST_KINDS]
    for op, step in zip(ops, gpt_of(artifact).steps, strict=True):
        forward, backward = estimated(artifact, op, layout)
        yield Row(op.name, (found[f"forward_{step.name}"], forward), (found[f"backward_{step.name}"], backward))


def lines(size: str) -> list[str]:
    """Rows of the table for a size, as markdown, and their sum."""
    found = list(rows(size))
    both = [[row.forward for row in found], [row.backward for row in found]]
    forward, backward = ((sum(a for a, _ in each), sum(b for _, b in each)) for each in both)
    written = []
    for row in (*found, Row("all", forward, backward)):
        name = row.op.removeprefix("transformer_decoder.").removeprefix("layers.0.")
        cells = " | ".join(f"{a:,} / {b:,} | {a / b:.2f}" for a, b in (row.forward, row.backward))
        written.append(f"| {size} | {name} | {cells} |")
    return written


def table() -> list[str]:
    """Rows of the table, as markdown."""
    return [
        "| block | op | forward, simulated / estimate | ratio | backward, simulated / estimate | ratio |",
        "|---|---|---:|---:|---:|---:|",
        *(line for size in SIZES for line in lines(size)),
    ]


if __name__ == "__main__":
    print("\n".join(table()))
