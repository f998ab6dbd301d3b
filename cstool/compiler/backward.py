"""Pass: the backward pass of every kernel.

Backward runs the kernels in reverse. Each computes the delta that flows on and the gradients of its weights, and needs
some activations kept for that: a product its inputs, a norm its input and one or two numbers per token, attention its
inputs, its output and the logarithm of a sum per head and token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cstool.compiler.program import Program
from cstool.ir import FusedKernel, Op, OpKind


@dataclass(frozen=True)
class Kept:
    """What backward of an op needs.

    Args:
        inputs: whether its inputs
        outputs: whether its output
        statistics: numbers of 32 bits per token; attribute name for as many as it says
        in_place: whether the delta of the first input takes the place of the output's
        shares_all: whether those of the other inputs do, too
    """

    inputs: bool = False
    outputs: bool = False
    statistics: int | str = 0
    in_place: bool = False
    shares_all: bool = False


KEPT: Mapping[OpKind, Kept] = {
    OpKind.EMBEDDING: Kept(),
    OpKind.POSITION_EMBEDDING: Kept(in_place=True),
    OpKind.FIXED_POSITION_EMBEDDING: Kept(in_place=True),
    OpKind.SCALE: Kept(in_place=True),
    OpKind.LAYER_NORM: Kept(inputs=True, statistics=2),
    OpKind.RMS_NORM: Kept(inputs=True, statistics=1),
    OpKind.LINEAR: Kept(inputs=True),
    OpKind.ROTARY: Kept(in_place=True),
    OpKind.ATTENTION: Kept(inputs=True, outputs=True, statistics="heads"),
    OpKind.ACTIVATION: Kept(inputs=True, in_place=True),
    OpKind.GATED_ACTIVATION: Kept(inputs=True, in_place=True),
    OpKind.RESIDUAL: Kept(in_place=True, shares_all=True),
    OpKind.SOFTMAX_LOSS: Kept(inputs=True, statistics=4),
}
"""the loss keeps maximum, sum, logit of the label and count per token; its logits are computed twice"""


@dataclass(frozen=True)
class AddBackward:
    """Say which activations every kernel keeps for its backward pass."""

    name: str = "add_backward"

    def __call__(self, program: Program) -> Program:
        """Return the program with what is kept."""
        graph = program.graph
        inputs = {tensor.name for tensor in graph.inputs}
        kernels = []
        for segment, fused in zip(graph.segments, program.kernels, strict=True):
            ops = {op.name: op for op in segment.ops}
            kernels.append(tuple(replace(kernel, keeps=_keeps(kernel, ops, inputs)) for kernel in fused))
        return replace(program, kernels=tuple(kernels))


def _keeps(kernel: FusedKernel, ops: Mapping[str, Op], inputs: set[str]) -> tuple[str, ...]:
    kept: dict[str, None] = {}
    for name in kernel.ops:
        op = ops[name]
        needed = (*op.inputs * KEPT[op.kind].inputs, *op.outputs * KEPT[op.kind].outputs)
        kept.update(dict.fromkeys(tensor for tensor in needed if tensor not in inputs))
    return tuple(kept)


def statistics_width(op: Op) -> int:
    """Return how many numbers per token the backward pass of an op needs beside tensors."""
    statistics = KEPT[op.kind].statistics
    return int(op.attributes[statistics]) if isinstance(statistics, str) else statistics
