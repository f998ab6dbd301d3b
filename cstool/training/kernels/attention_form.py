"""A form of attention: the keys that a query sees by their positions, and the biases of scores.

Source: Vaswani et al., "Attention is all you need", 2017; Xiao et al., "Efficient streaming language models with
attention sinks", 2023; Press et al., "Train short, test long", 2021 (ALiBi); Raffel et al., "Exploring the limits of
transfer learning with a unified text-to-text transformer", 2020, section 2.1 (relative positions); Child et al.,
"Generating long sequences with sparse transformers", 2019 (chunks and columns).
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cstool.model.ir import column_keys
from cstool.training.kernels.attention_rows import Rules, add_by_bucket
from cstool.training.kernels.recording import needs_interpreter
from cstool.training.kernels.tables import shared_tables

_NO_SEGMENTS, _NO_COLUMNS = np.empty(0, np.int32), np.empty(0, np.bool_)


class Attention(NamedTuple):
    """The keys that queries see, and the formula of scores.

    Args:
        heads: A, of queries
        kv_heads: heads of keys and values, a divisor of A
        sequence: S, queries of a sample
        scale: of the products of queries and keys, positive
        softcap: scores stay below it: softcap * tanh(score / softcap); None for no cap
        slopes: for each head, the fall of a score per token of distance (ALiBi); empty for none
        window: tokens that a token sees, itself included; None for all before it
        sinks: first tokens that are seen outside the window, too
        causal: whether a token sees no later one; if not, it sees all, and there is no window, chunk or column
        chunk: tokens of a chunk; no token sees an earlier chunk; None for one chunk
        columns: spacing and width: the last `width` tokens of each full `spacing` are seen from anywhere; None for none
        buckets: rows of a table of biases by distance (heads wide), the first weight; 0 for none
        max_distance: distance from which on all are in one bucket
        bidirectional: whether half of the buckets are for later keys; if not, these are in the bucket of distance 0
        slope_scale: where slopes are the last weight: a score falls by slope_scale * slope per token; None where not
        keys: of a sample; None for the number of queries
    """

    heads: int
    kv_heads: int
    sequence: int
    scale: float
    softcap: float | None = None
    slopes: tuple[float, ...] = ()
    window: int | None = None
    sinks: int = 0
    causal: bool = True
    chunk: int | None = None
    columns: tuple[int, int] | None = None
    buckets: int = 0
    max_distance: int = 128
    bidirectional: bool = True
    slope_scale: float | None = None
    keys: int | None = None

    @classmethod
    def of(cls, attributes: Mapping[str, Any], sequence: int, keys: int | None = None) -> "Attention":
        """Return the attention of an op, by its attributes; attributes with a default may be left out."""
        given = {name: attributes[name] for name in cls._fields if name in attributes}
        return cls(**{**given, "sequence": sequence, "keys": keys})

    def flops(self, queries: np.ndarray) -> int:
        """Of the two products of forward, about; queries is (T, A * D)."""
        return 4 * queries.size * (self.reach if self.causal else self.key_count)

    @property
    def reach(self) -> int:
        """Tokens that a token sees, itself included."""
        return self.sequence if self.window is None else min(self.window, self.sequence)

    @property
    def key_count(self) -> int:
        """Keys of a sample."""
        return self.sequence if self.keys is None else self.keys

    @property
    def sinks_apart(self) -> int:
        """First tokens that are seen outside the window, too; 0 where they are among the columns."""
        return self.sinks if self.columns is None else 0

    def keys_of(self, start: int, stop: int) -> tuple[int, int]:
        """First and last + 1 of the keys, beside sinks, that any of some queries sees."""
        if not self.causal:
            return 0, self.key_count
        if self.columns is not None:
            return 0, stop
        return max(0, start + 1 - self.reach, start - start % (self.chunk or self.sequence)), stop

    def queries_of(self, start: int, stop: int) -> tuple[int, int]:
        """First and last + 1 of the queries that see any of some keys."""
        if not self.causal:
            return 0, self.sequence
        if self.columns is not None or start < self.sinks:
            return start, self.sequence
        chunk = self.chunk or self.sequence
        return start, min(self.sequence, stop - 1 + self.reach, -(-stop // chunk) * chunk)

    def blocks_of_queries(self, most: int) -> np.ndarray:
        """Blocks of up to `most` queries, and of the keys that these see by their positions, (blocks, 4) int64.

        A row has first and last + 1 of the queries, and of the keys.
        """
        return _blocks(self.sequence, most, self.keys_of)

    def blocks_of_keys(self, most: int) -> np.ndarray:
        """Blocks of up to `most` keys, and of the queries that see any of them: see `blocks_of_queries`."""
        return _blocks(self.key_count, most, self.queries_of)

    def biases(self, dtype: np.dtype, needed: bool = True) -> np.ndarray:
        """Biases of scores, but for weights, as `Rules` has them; empty if not `needed` and there are none."""
        if not (needed or self.bends):
            return np.empty((0, 0), dtype)

        def make() -> tuple[np.ndarray]:
            slopes = np.array(self.slopes or (0.0,) * self.heads, dtype)
            return (-slopes[:, None] * self.distances().astype(dtype),)

        return shared_tables(("biases", self.slopes, self.heads, self.sequence, self._later, dtype), make)[0]

    @property
    def bends(self) -> bool:
        """Whether scores are more than scaled products, or columns hide some."""
        return bool(self.slopes or self.softcap or self.columns or self.has_weights)

    @property
    def has_weights(self) -> bool:
        """Whether some biases of scores are weights."""
        return bool(self.buckets) or self.slope_scale is not None

    def add_weights(self, weights: Sequence[np.ndarray], biases: np.ndarray) -> None:
        """Add the biases of the weights to biases, (heads, distances), in place.

        Args:
            weights: a table of biases, (buckets, heads), if there are buckets; slopes, (heads,) or (heads, 1), if any
            biases: as `biases` made them, for this call alone
        """
        if self.buckets:
            add_by_bucket(weights[0], self.bucket_numbers(), biases)
        if self.slope_scale is not None:
            needs_interpreter()
            biases -= weights[-1].reshape(self.heads, 1) * (self.slope_scale * self.distances()).astype(biases.dtype)

    @property
    def _later(self) -> int:
        """Keys that come after a query, at most."""
        return 0 if self.causal else self.key_count - 1

    def distances(self) -> np.ndarray:
        """Distances between key and query, (distances,) int64, in the order of `biases`."""
        return np.abs(np.arange(1 - self.sequence, self._later + 1))

    def bucket_numbers(self) -> np.ndarray:
        """Row of the table of biases for each distance, (distances,) int64, in the order of `biases`.

        Half of the buckets are for one distance each, the others grow with it by a constant factor. Source: Raffel et
        al., 2020, section 2.1, and the code released with it. In float32, as that computes it.
        """
        key = ("buckets", self.buckets, self.max_distance, self.bidirectional, self.sequence, self._later)

        def make() -> tuple[np.ndarray]:
            later = np.arange(1 - self.sequence, self._later + 1) > 0
            count = self.buckets // 2 if self.bidirectional else self.buckets
            distance = self.distances() * (self.bidirectional | ~later)
            exact = count // 2
            share = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
            share = share / np.float32(math.log(self.max_distance / exact)) * np.float32(count - exact)
            coarse = np.minimum(exact + share.astype(np.int64), count - 1)
            return (np.where(distance < exact, distance, coarse) + count * (self.bidirectional & later),)

        return shared_tables(key, make)[0]

    def rules(self, biases: np.ndarray, queries: np.ndarray = _NO_SEGMENTS, keys: np.ndarray = _NO_SEGMENTS) -> Rules:
        """Return the rules in the form of kernels.

        Args:
            biases: the biases of weights included
            queries, keys: segments
        """
        reach = self.reach if self.causal else self.sequence + self.key_count
        ahead = 0 if self.causal else self.key_count
        tokens, chunk = (self.sequence, self.key_count), self.chunk or 0
        factors = float(self.scale), float(self.softcap or 0.0)
        return Rules(*tokens, reach, ahead, chunk, *factors, biases, queries, keys, self._column_mask())

    def _column_mask(self) -> np.ndarray:
        if self.columns is None:
            return _NO_COLUMNS
        mask = np.zeros(self.sequence, np.bool_)
        mask[list(column_keys(self.sequence, *self.columns))] = True
        mask[: self.sinks] = True
        return mask


def _blocks(count: int, most: int, meets: Callable[[int, int], tuple[int, int]]) -> np.ndarray:
    """Cut a sequence into as few blocks as can be, of nearly equal size."""
    blocks = -(-count // most)
    edges = [count * i // blocks for i in range(blocks + 1)]
    return np.array([(start, stop, *meets(start, stop)) for start, stop in itertools.pairwise(edges)], np.int64)
