"""Pass: the backward pass of every kernel.

Backward runs the kernels in reverse. Each computes the delta that flows on and the gradients of its weights, and needs
some activations kept for that: a product its inputs, a norm its input and one or two numbers per token, attention its
inputs, its output and the logarithm of a sum per head and token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cstool.compiler.program import Program
from cstool.ir import FusedKernel, Op, read_backward, rules_of


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
    read = dict.fromkeys(tensor for name in kernel.ops for tensor in read_backward(ops[name]))
    return tuple(tensor for tensor in read if tensor not in inputs)


def statistics_width(op: Op) -> int:
    """Numbers of 32 bits per token that the backward pass of an op needs beside tensors."""
    return sum(map(math.prod, rules_of(op).statistics_shapes(op.attributes, tokens=1).values()))
