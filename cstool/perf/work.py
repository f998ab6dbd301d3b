"""What an op computes for one sample, op kind by op kind: products, pairs of tokens, element by element.

The counts of vector instructions per element are those of the formulas written out beside them: a multiply-add, an
addition, a comparison or a move is one. They are of this project's kernels; the vendor publishes none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cstool.ir import Op, OpKind, Tensor
from cstool.models.statistics import visible_pairs

EXPONENTIAL_OPS = 8
"""vector instructions of an exponential: range reduction (2), a polynomial of degree 5, the exponent put in place"""
NONLINEAR_OPS = EXPONENTIAL_OPS + 6
"""of a function with one exponential: the exponential, a reciprocal by two Newton steps (4), two products"""
DROPOUT_OPS = 4
"""of a mask from a counter: mix, compare, multiply, scale"""

ID_BYTES = 4
"""of a token's id, of a label"""

Shapes = Mapping[str, tuple[int, ...]]
"""of one sample's tensors, and of weights, by name"""


def input_element_bytes(tensor: Tensor, operand_bits: int) -> int:
    """Return what an element of an input takes on the wafer: numbers as operands, ids and labels 32 bits."""
    return operand_bits // 8 if tensor.dtype == "float32" else ID_BYTES


@dataclass(frozen=True)
class MatMul:
    """y = x W^T: (tokens, inputs) -> (tokens, outputs).

    `is_repeated` says that nothing keeps y, and backward computes it again before its delta. `nonzeros` counts the
    elements of a sparse W, wherever they are; None for a dense one.
    """

    tokens: int
    inputs: int
    outputs: int
    is_repeated: bool = False
    nonzeros: int | None = None

    @property
    def weights(self) -> int:
        """Elements of W that are streamed: all of a dense one, the non-zeros of a sparse one."""
        return self.inputs * self.outputs if self.nonzeros is None else self.nonzeros

    @property
    def flops(self) -> int:
        """Useful floating-point operations of one pass: a multiplication and an addition per weight and token.

        >>> MatMul(tokens=3, inputs=4, outputs=5).flops, MatMul(3, 4, 5, nonzeros=6).flops
        (120, 36)
        """
        return 2 * self.tokens * self.weights


@dataclass(frozen=True)
class Pairs:
    """Attention of queries (tokens, width) to keys and values (tokens, kv_width), `heads` of `head_width`.

    `pairs` counts query and key pairs that the mask lets through, per head.
    """

    tokens: int
    pairs: int
    width: int
    kv_width: int
    head_width: int


@dataclass(frozen=True)
class VectorOps:
    """(tokens, width) elements, each with so many vector instructions forward and backward."""

    tokens: int
    width: int
    forward: int
    backward: int


@dataclass(frozen=True)
class RowSums:
    """Sums over all elements of each token, that all PEs with the token need: so many values forward and backward."""

    tokens: int
    forward: int
    backward: int


@dataclass(frozen=True)
class Lookup:
    """Rows of a table (rows, width), one for each of the tokens."""

    tokens: int
    rows: int
    width: int


OpWork = MatMul | Pairs | Lookup | VectorOps | RowSums


def work_of(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    """Return what an op computes for one sample.

    Args:
        op: of a graph
        shapes: of its tensors, for one sample, and of its weights
    """
    return WORK[op.kind](op, shapes)


def _tokens_width(op: Op, shapes: Shapes) -> tuple[int, int]:
    """Return tokens and width of an op's output; a sample without a sequence is one token."""
    *tokens, width = shapes[op.outputs[0]]
    return math.prod(tokens), width


def _elements(forward: int, backward: int) -> Callable[[Op, Shapes], tuple[OpWork, ...]]:
    def work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
        dropout = DROPOUT_OPS if op.attributes.get("dropout") else 0
        return (VectorOps(*_tokens_width(op, shapes), forward + dropout, backward + dropout),)

    return work


def _norm(forward: int, backward: int, sums: int) -> Callable[[Op, Shapes], tuple[OpWork, ...]]:
    def work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
        tokens, width = _tokens_width(op, shapes)
        return VectorOps(tokens, width, forward, backward), RowSums(tokens, sums, sums)

    return work


def _lookup(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens, width = _tokens_width(op, shapes)
    rows = shapes[op.weights[0]][0]
    return (Lookup(tokens, rows, width), *_elements(1, 1)(op, shapes))


def _linear(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens, outputs = _tokens_width(op, shapes)
    product = MatMul(tokens, shapes[op.weights[0]][1], outputs)
    return (product, VectorOps(tokens, outputs, 1, 1)) if len(op.weights) > 1 else (product,)


def _loss(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens = math.prod(shapes[op.outputs[0]])
    outputs, inputs = shapes[op.weights[0]]
    # Forward: running maximum and sum of exponentials (3 + exponential). Backward: exponential, minus one, scaled (3).
    softmax = VectorOps(tokens, outputs, EXPONENTIAL_OPS + 3, EXPONENTIAL_OPS + 3)
    # Over the PEs that have logits of a token: their maximum and sum forward, the label's share of the sum backward.
    return MatMul(tokens, inputs, outputs, is_repeated=True), softmax, RowSums(tokens, 2, 1)


def _attention(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens, width = _tokens_width(op, shapes)
    pairs = visible_pairs(tokens, op.attributes["window"], op.attributes["sinks"])
    head_width = width // op.attributes["heads"]
    return (Pairs(tokens, pairs, width, head_width * op.attributes["kv_heads"], head_width),)


def _activation(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    cheap = op.attributes["function"] in ("relu", "squared_relu", "linear")
    per_element = 2 if cheap else NONLINEAR_OPS
    gate = 2 if op.kind is OpKind.GATED_ACTIVATION else 0
    # Bias, function (and product with the gate); backward the derivative, its product, and the sum for the bias.
    return _elements(1 + per_element + gate, 2 + per_element + 2 * gate)(op, shapes)


WORK: Mapping[OpKind, Callable[[Op, Shapes], tuple[OpWork, ...]]] = {
    OpKind.EMBEDDING: _lookup,
    OpKind.POSITION_EMBEDDING: _lookup,
    OpKind.FIXED_POSITION_EMBEDDING: _elements(1, 0),
    OpKind.SCALE: _elements(1, 1),
    # Sum, sum of squares, minus mean, times 1/std, times weight, plus bias; backward twice that but for one.
    # Two sums over the token either way: of x and x^2, of what comes back and of that times x.
    OpKind.LAYER_NORM: _norm(6, 11, sums=2),
    # Sum of squares, times 1/rms, times weight; backward as above without the mean.
    OpKind.RMS_NORM: _norm(3, 7, sums=1),
    OpKind.LINEAR: _linear,
    # Two products and a sum per element.
    OpKind.ROTARY: _elements(3, 3),
    OpKind.ATTENTION: _attention,
    OpKind.ACTIVATION: _activation,
    OpKind.GATED_ACTIVATION: _activation,
    # Bias and sum; backward the sum for the bias.
    OpKind.RESIDUAL: _elements(2, 1),
    OpKind.SOFTMAX_LOSS: _loss,
}
