"""What an op computes for one sample: products, pairs of tokens, element by element."""

from dataclasses import dataclass


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


def visible_pairs(tokens: int, window: int | None = None, sinks: int = 0) -> int:
    """Pairs of query and key that the mask of attention lets through, per head of one sample.

    A token sees itself and what came before it: all of it, or the last `window` tokens, itself included, and the first
    `sinks` of the sample.
    """
    if window is None:
        return _capped_sum(tokens, tokens)
    return _capped_sum(tokens, window) + _capped_sum(tokens - window, sinks)


def _capped_sum(last: int, cap: int) -> int:
    """Return the sum of min(i, cap) for i from 1 to `last`."""
    rising = max(0, min(last, cap))
    return rising * (rising + 1) // 2 + max(0, last - rising) * cap
