"""The work of an op for one sample: products, pairs of tokens, element-wise operations; and how kinds of op come to it.

The counts of vector instructions per element follow from the formulas written out beside them, here and in the table of
kinds: a multiply-add, an addition, a comparison or a move is one. They are of this project's kernels; the vendor
publishes none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cstool.model.activations import ACTIVATIONS, EXPONENTIAL_OPS
from cstool.model.ir._op_shapes import Shapes, attention_form, matrix_shape, texts_of, tokens_width

if TYPE_CHECKING:
    from cstool.model.ir._graph import Op

DROPOUT_OPS = 4
"""vector instructions of a mask from a counter: mix, compare, multiply, scale"""


@dataclass(frozen=True)
class MatMul:
    """y = x W^T: (tokens, inputs) -> (tokens, outputs).

    `is_repeated` says that nothing keeps y, and backward computes it again before its delta. `nonzeros` counts the
    elements of a sparse W, wherever they are; None for a dense one. Of experts W is all matrices below each other, and
    `tokens` the number that an element is multiplied with on average, out of `all_tokens`; else that is None. Of these
    `experts` the busiest has `busiest` times as many as one has on average, all others have as many as each other.
    `trained` counts the rows of W that get a gradient, where others are frozen, `trained_nonzeros` their elements in
    a sparse W, None for their share; None for all.
    """

    tokens: int
    inputs: int
    outputs: int
    is_repeated: bool = False
    nonzeros: int | None = None
    all_tokens: int | None = None
    experts: int = 1
    busiest: float = 1.0
    trained: int | None = None
    trained_nonzeros: int | None = None

    @property
    def shares(self) -> tuple[tuple[int, float], ...]:
        """Groups of experts with equal load: number of experts, and tokens of each, as a multiple of the mean.

        >>> MatMul(tokens=2, inputs=4, outputs=5, all_tokens=8, experts=4, busiest=2.5).shares
        ((1, 2.5), (3, 0.5))
        """
        if self.busiest == 1:
            return ((self.experts, 1.0),)
        return (1, self.busiest), (self.experts - 1, (self.experts - self.busiest) / (self.experts - 1))

    @property
    def weights(self) -> int:
        """Elements of W that are streamed: all of a dense one, the non-zeros of a sparse one."""
        return self.inputs * self.outputs if self.nonzeros is None else self.nonzeros

    @property
    def trained_part(self) -> MatMul | None:
        """The product with the rows of W that get a gradient; None where none does.

        >>> part = MatMul(tokens=3, inputs=4, outputs=10, nonzeros=20, trained=2).trained_part
        >>> part.outputs, part.nonzeros
        (2, 4)
        """
        if self.trained is None or not self.trained:
            return self if self.trained is None else None
        nonzeros = self.trained_nonzeros
        if nonzeros is None and self.nonzeros is not None:
            nonzeros = -(-self.nonzeros * self.trained // self.outputs)
        return replace(self, outputs=self.trained, nonzeros=nonzeros, trained=None, trained_nonzeros=None)

    @property
    def flops(self) -> int:
        """Useful floating-point operations of one pass: a multiplication and an addition per weight and token.

        >>> MatMul(tokens=3, inputs=4, outputs=5).flops, MatMul(3, 4, 5, nonzeros=6).flops
        (120, 36)
        """
        return 2 * self.tokens * self.weights


@dataclass(frozen=True)
class Pairs:
    """Attention of queries (tokens, width) to keys and values (key_tokens, kv_width), `heads` of `head_width`.

    `pairs` counts query and key pairs that positions let through, per head; the share that segments mask is not known.
    """

    tokens: int
    key_tokens: int
    pairs: int
    width: int
    kv_width: int
    head_width: int


@dataclass(frozen=True)
class VectorOps:
    """(tokens, width) elements, with numbers of vector instructions for each, forward and backward."""

    tokens: int
    width: int
    forward: int
    backward: int


@dataclass(frozen=True)
class RowSums:
    """Sums over all elements of each token, that all PEs with the token need: number of values forward and backward."""

    tokens: int
    forward: int
    backward: int


@dataclass(frozen=True)
class Lookup:
    """Rows of a table (rows, width), one for each of the tokens; a frozen table gets no gradient."""

    tokens: int
    rows: int
    width: int
    is_frozen: bool = False


OpWork = MatMul | Pairs | Lookup | VectorOps | RowSums


def visible_pairs(
    tokens: int,
    window: int | None = None,
    sinks: int = 0,
    chunk: int | None = None,
    columns: tuple[int, int] | None = None,
) -> int:
    """Pairs of query and key that the mask of causal attention lets through, per head of one sample.

    A token sees itself and earlier tokens: all of them, or its chunk's, or the last `window` tokens, itself
    included, and the first `sinks` of the sample; and the columns before it, of some spacing and width.

    >>> visible_pairs(6), visible_pairs(6, window=2), visible_pairs(6, chunk=3)
    (21, 11, 12)
    >>> visible_pairs(6, chunk=3, columns=(3, 1))
    15
    """
    if chunk is not None:
        found = tokens // chunk * _capped_sum(chunk, chunk) + _capped_sum(tokens % chunk, chunk)
    elif window is None:
        found = _capped_sum(tokens, tokens)
    else:
        found = _capped_sum(tokens, window) + _capped_sum(tokens - window, sinks)
    for key in () if columns is None else column_keys(tokens, *columns):
        if key >= sinks:
            near = tokens if window is None else window
            found += max(0, tokens - (key + near if chunk is None else (key // chunk + 1) * chunk))
    return found


def column_keys(tokens: int, spacing: int, width: int) -> list[int]:
    """Keys of a sample that are seen from wherever: the last `width` of each full `spacing` tokens, ascending.

    >>> column_keys(10, 4, 2)
    [2, 3, 6, 7]
    """
    return sorted({key for end in range(spacing, tokens + 1, spacing) for key in range(max(0, end - width), end)})


def _capped_sum(last: int, cap: int) -> int:
    """Return the sum of min(i, cap) for i from 1 to `last`."""
    rising = max(0, min(last, cap))
    return rising * (rising + 1) // 2 + max(0, last - rising) * cap


def elements(forward: int, backward: int) -> Callable[[Op, Shapes], tuple[OpWork, ...]]:
    def work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
        dropout = DROPOUT_OPS if op.attributes.get("dropout") else 0
        return (VectorOps(*tokens_width(op, shapes), forward + dropout, backward + dropout),)

    return work


def mean(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens, width = shapes[op.inputs[0]]
    return (VectorOps(tokens, width, 1, 1),)


def norm(forward: int, backward: int, sums: int) -> Callable[[Op, Shapes], tuple[OpWork, ...]]:
    def work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
        tokens, width = tokens_width(op, shapes)
        return VectorOps(tokens, width, forward, backward), RowSums(tokens, sums, sums)

    return work


def head_norm(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    # As the norm of a row, with a sum for each head.
    heads = op.attributes["heads"]
    return norm(3, 7, sums=heads)(op, shapes)


def lookup(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens, width = tokens_width(op, shapes)
    return (Lookup(tokens, matrix_shape(op, shapes)[0], width), *elements(1, 1)(op, shapes))


def linear(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens, outputs = tokens_width(op, shapes)
    product = MatMul(tokens, matrix_shape(op, shapes)[1], outputs)
    return (product, VectorOps(tokens, outputs, 1, 1)) if op.weights[1:] else (product,)


def router(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    *tokens, experts = shapes[op.outputs[2]]
    # Forward: exponential, sum, quotient, and a comparison for each choice. Backward: products and a sum.
    vectors = VectorOps(math.prod(tokens), experts, EXPONENTIAL_OPS + 2 + op.attributes["top_k"], EXPONENTIAL_OPS + 6)
    return MatMul(math.prod(tokens), matrix_shape(op, shapes)[1], experts), vectors


def experts(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    *tokens, chosen = shapes[op.inputs[1]]
    outputs, inputs = matrix_shape(op, shapes)
    experts = op.attributes["experts"]
    # All matrices stream; with each the tokens are multiplied that chose its expert: as many with one as another,
    # unless an estimate asks for something else.
    count, busiest = math.prod(tokens), op.attributes.get("busiest", 1.0)
    product = MatMul(
        -(-count * chosen // experts), inputs, experts * outputs, all_tokens=count, experts=experts, busiest=busiest
    )
    return (product, *elements(1, 1)(op, shapes)) if op.weights[experts:] else (product,)


def combine(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    *tokens, width = shapes[op.inputs[0]]
    # Times the weight, and added; backward a product for the row, and one with a sum for the weight.
    return (VectorOps(math.prod(tokens), width, 2, 3),)


def balance(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    mask, *routed = op.inputs
    return (VectorOps(math.prod(shapes[mask]), op.attributes["experts"] * len(routed) // 2, 3, 1),)


def preference(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    # A product with the mask and a sum for each token, of the reference, too; backward a product.
    return (VectorOps(math.prod(shapes[op.inputs[0]]), 1, 2 * (len(op.inputs) - 2), 1),)


def attention(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens, width = tokens_width(op, shapes)
    keys = math.prod(shapes[op.inputs[1]][:-1])
    texts = texts_of(op)
    pairs = tokens * keys // texts
    if op.attributes["causal"]:
        pairs = texts * visible_pairs(tokens // texts, **attention_form(op))
    head_width = width // op.attributes["heads"]
    return (Pairs(tokens, keys, pairs, width, head_width * op.attributes["kv_heads"], head_width),)


def activation(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    per_element = ACTIVATIONS[op.attributes["function"]].ops
    gate = 2 * (len(op.inputs) - 1)
    # Bias, function (and product with the gate); backward the derivative, its product, and the sum for the bias.
    return elements(1 + per_element + gate, 2 + per_element + 2 * gate)(op, shapes)


def contrastive(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    # The embeddings leave the system, and their deltas come; scores are made where all samples meet.
    (questions, width), (contexts, _) = (shapes[name] for name in op.inputs[:2])
    return VectorOps(questions, width, 1, 1), VectorOps(contexts, width, 1, 1)


def loss(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens = math.prod(shapes[op.outputs[0]])
    outputs, inputs = matrix_shape(op, shapes)
    # Forward: running maximum and sum of exponentials (3 + exponential). Backward: exponential, minus one, scaled (3).
    # Smoothed labels take the sum of all logits, and something off each.
    smooths = 1 if op.attributes.get("label_smoothing") else 0
    # Of an adapter the product is added to the logits; backward there are two more, for the gradient and the delta.
    rank = op.attributes.get("low_rank", 0)
    each = EXPONENTIAL_OPS + 3 + smooths
    softmax = VectorOps(tokens, outputs, each + rank, each + 3 * rank)
    # Over the PEs that have logits of a token: their maximum and sum forward, the label's share of the sum backward.
    return MatMul(tokens, inputs, outputs, is_repeated=True), softmax, RowSums(tokens, 2 + smooths, 1)
