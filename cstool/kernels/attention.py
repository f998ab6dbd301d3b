"""Attention by blocks; probabilities are computed again in backward, not kept.

Forward goes by blocks of query rows, so that a block sees few keys that none of its rows sees; backward by blocks of
key rows, so that the deltas of keys and values need no accumulation. Small (sample, head) pairs go through one call
together. Heads of queries that share a head of keys and values follow each other; nothing is repeated in memory for
them.

`Attention` says which keys a query may see by their positions; segments, which are an input, which of these it does
see. A block's keys are a range, `Attention.keys_of`, or no more of it than its sample's segments leave (`_runs`). With
a window a block of queries sees the first few keys (the sinks) and a range that ends with its last row. Its scores then
have these two side by side.

Source: Vaswani et al., "Attention is all you need", 2017; Dao et al., "FlashAttention", 2022, section 3 and
appendix B.4 (log-sum-exp kept, row sums of delta_context x context in place of those of delta x probability); Ainslie
et al., "GQA", 2023; Xiao et al., "Efficient streaming language models with attention sinks", 2023; Press et al., "Train
short, test long", 2021 (ALiBi); Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text
transformer", 2020, section 2.1 (relative positions); Child et al., "Generating long sequences with sparse
transformers", 2019 (chunks and columns).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from cstool.ir import column_keys
from cstool.kernels.attention_rows import Rules, row_products, softmax_rows, softmax_rows_backward
from cstool.kernels.bfloat16 import BFLOAT16, convert, float_dtype, lend_bfloat16, narrowed, operand
from cstool.kernels.call import Call
from cstool.kernels.gemm import Gemm, Scratch, quiet
from cstool.kernels.random import draws_of
from cstool.kernels.shared_gemm import in_parts
from cstool.kernels.tables import shared_tables

BLOCK_ROWS = 128
"""most rows of a block of queries or keys"""

SCORES_PER_CALL = 256 * 1024
"""scores of the pairs that go through one call together: 1 MiB, so that they stay in a core's L2 cache"""

_NO_SEGMENTS, _NO_COLUMNS = np.empty(0, np.int32), np.empty(0, np.bool_)


class Attention(NamedTuple):
    """What is attended to, and how scores are made.

    Args:
        heads: A, of queries
        kv_heads: heads of keys and values, a divisor of A
        sequence: S, queries of a sample
        scale: of the products of queries and keys, positive
        softcap: scores stay below it: softcap * tanh(score / softcap); None for no cap
        slopes: for each head, what a score falls per token of distance (ALiBi); empty for none
        window: tokens that a token sees, itself included; None for all before it
        sinks: first tokens that are seen whatever the window
        causal: whether a token sees no later one; if not, it sees all, and there is no window, chunk or column
        chunk: tokens of a chunk, of which none sees those of an earlier one; None for one chunk
        columns: spacing and width: the last `width` tokens of each full `spacing` are seen from wherever; None for none
        buckets: rows of a table of biases by distance (heads wide), the first weight; 0 for none
        max_distance: from which on all distances are in one bucket
        bidirectional: whether half of the buckets are for later keys; if not, these are in the bucket of distance 0
        slope_scale: where slopes are the last weight: a score falls by slope_scale * slope per token; None where not
        keys: of a sample; None for as many as queries
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
        """Return the attention of an op, by its attributes; those that have a default may be left out."""
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
        """First tokens that are seen whatever the window; 0 where they are among the columns."""
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

    def biases(self, dtype: np.dtype, needed: bool = True) -> np.ndarray:
        """What is added to scores, but for weights, as `Rules` has it; nothing if not `needed` and there is none."""
        if not (needed or self.slopes or self.softcap or self.columns):
            return np.empty((0, 0), dtype)

        def make() -> tuple[np.ndarray]:
            slopes = np.array(self.slopes or (0.0,) * self.heads, dtype)
            return (-slopes[:, None] * self.distances().astype(dtype),)

        return shared_tables(("biases", self.slopes, self.heads, self.sequence, self._later, dtype), make)[0]

    @property
    def _later(self) -> int:
        """Keys that come after a query, at most."""
        return 0 if self.causal else self.key_count - 1

    def distances(self) -> np.ndarray:
        """How far apart key and query are, (distances,) int64, in the order of `biases`."""
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
        """As kernels take it.

        Args:
            biases: with those of weights
            queries, keys: segments
        """
        reach = self.reach if self.causal else self.sequence + self.key_count
        ahead = 0 if self.causal else self.key_count
        chunk = self.chunk or max(self.sequence, self.key_count)
        numbers = self.sequence, self.key_count, reach, ahead, chunk, float(self.scale), float(self.softcap or 0.0)
        return Rules(*numbers, biases, queries, keys, self._column_mask())

    def _column_mask(self) -> np.ndarray:
        if self.columns is None:
            return _NO_COLUMNS
        mask = np.zeros(self.sequence, np.bool_)
        mask[list(column_keys(self.sequence, *self.columns))] = True
        mask[: self.sinks] = True
        return mask


def _blocks(sequence: int) -> Iterator[tuple[int, int]]:
    """Cut a sequence into as few blocks as `BLOCK_ROWS` allows, of nearly equal size."""
    count = -(-sequence // BLOCK_ROWS)
    edges = [sequence * i // count for i in range(count + 1)]
    return zip(edges, edges[1:], strict=False)


class _Group(NamedTuple):
    """(sample, head) pairs that go through one call: several samples with all heads, or several heads of one sample.

    The heads are all of some heads of keys and values, or some of one.
    """

    samples: slice
    kv_heads: slice
    sharing: slice
    """of the query heads that share a head of keys and values"""
    first_head: int

    @property
    def size(self) -> tuple[int, int, int]:
        """Samples, heads of keys and values, query heads for each of these."""
        sizes = [part.stop - part.start for part in self[:3]]
        return sizes[0], sizes[1], sizes[2]


def _groups(samples: slice, kv_heads: range, form: Attention, scores_per_pair: int) -> Iterator[_Group]:
    pairs = max(1, SCORES_PER_CALL // scores_per_pair)
    sharing = form.heads // form.kv_heads
    sample_step = max(1, pairs // form.heads)
    kv_step = min(max(1, pairs // sharing), form.kv_heads)
    sharing_step = min(sharing, pairs)
    for sample in range(samples.start, samples.stop, sample_step):
        for kv in range(kv_heads.start, kv_heads.stop, kv_step):
            for head in range(0, sharing, sharing_step):
                yield _Group(
                    slice(sample, min(sample + sample_step, samples.stop)),
                    slice(kv, min(kv + kv_step, kv_heads.stop)),
                    slice(head, min(head + sharing_step, sharing)),
                    kv * sharing + head,
                )


def _by_head(x: np.ndarray, sequence: int, kv_heads: int, heads: int) -> np.ndarray:
    """View (T, heads * D) as (B, kv heads, heads that share one, S, D)."""
    tokens, width = x.shape
    shape = tokens // sequence, sequence, kv_heads, heads // kv_heads, width // heads
    return x.reshape(shape).transpose(0, 2, 3, 1, 4)


class _Work(NamedTuple):
    """An op on a grain: what forward and backward ask of it alike."""

    form: Attention
    rules: Rules
    queries: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    """by head"""

    @classmethod
    def of(cls, c: Call) -> "_Work":
        """Say what a call is about."""
        query, key, value, *segments = c.inputs
        samples = query.shape[0] // c.sequence
        form = Attention.of(c.attributes, c.sequence, key.shape[0] // samples)
        if len(segments) == 1:
            segments.append(np.ones(query.shape[0], np.int32))
        rules = form.rules(_biases(c, form, bool(segments)), *segments[::-1])
        kv = (_by_head(x, form.key_count, form.kv_heads, form.kv_heads) for x in (key, value))
        return cls(form, rules, _by_head(query, form.sequence, form.kv_heads, form.heads), *kv)

    def of_queries(self, x: np.ndarray) -> np.ndarray:
        """View what has a row for each query by head."""
        return _by_head(x, self.form.sequence, self.form.kv_heads, self.form.heads)

    def of_keys(self, x: np.ndarray) -> np.ndarray:
        """View what has a row for each key by head."""
        return _by_head(x, self.form.key_count, self.form.kv_heads, self.form.kv_heads)

    def runs_of_queries(self) -> Iterator[tuple[slice, list[tuple[int, int, int, int]]]]:
        """Samples that follow each other, their blocks of queries, and the keys that each of these sees: see `_runs`."""
        return self._runs(self.form.sequence, self.form.keys_of, self.rules.query_segments, self.rules.key_segments)

    def runs_of_keys(self) -> Iterator[tuple[slice, list[tuple[int, int, int, int]]]]:
        """Samples that follow each other, their blocks of keys, and the queries that see each of these: see `_runs`."""
        return self._runs(self.form.key_count, self.form.queries_of, self.rules.key_segments, self.rules.query_segments)

    def _runs(
        self, count: int, meets: Callable[[int, int], tuple[int, int]], own: np.ndarray, others: np.ndarray
    ) -> Iterator[tuple[slice, list[tuple[int, int, int, int]]]]:
        """Yield samples whose blocks meet the same ranges, and for each block its start, stop and range.

        A range depends on the segments of its own sample alone, so a sample has the same bits whatever is beside it.
        """
        samples = self.queries.shape[0]
        blocks = [(start, stop, *meets(start, stop)) for start, stop in _blocks(count)]
        if not others.size or self.form.sinks_apart:
            yield slice(0, samples), blocks
            return
        own, others = own.reshape(samples, -1), others.reshape(samples, -1)

        def ranges(sample: int) -> list[tuple[int, int, int, int]]:
            return [
                (start, stop, *_narrowed_range(first, last, own[sample, start:stop], others[sample]))
                for start, stop, first, last in blocks
            ]

        for found, together in groupby(range(samples), ranges):
            numbers = list(together)
            yield slice(numbers[0], numbers[-1] + 1), found


def _narrowed_range(first: int, last: int, own: np.ndarray, others: np.ndarray) -> tuple[int, int]:
    """Cut off the ends of a range of `others` where none is of a segment that is among `own`; (0, 0) for nothing."""
    found = np.flatnonzero(np.isin(others[first:last], own))
    return (first + int(found[0]), first + int(found[-1]) + 1) if found.size else (0, 0)


def _biases(c: Call, form: Attention, has_segments: bool) -> np.ndarray:
    """What is added to scores: see `Rules`."""
    is_trained = bool(form.buckets) or form.slope_scale is not None
    biases = form.biases(float_dtype(c.inputs[0]), has_segments or is_trained)
    if not is_trained:
        return biases
    total = c.scratch("attention.biases", biases.shape)
    np.copyto(total, biases)
    if form.buckets:
        total += c.weight(0).T[:, form.bucket_numbers()]
    if form.slope_scale is not None:
        total -= c.weight(-1).reshape(form.heads, 1) * (form.slope_scale * form.distances()).astype(total.dtype)
    return total


def _add_up_biases(c: Call, form: Attention, sums: np.ndarray) -> None:
    """Write the gradients of the weights.

    Args:
        sums: (heads, distances) deltas of what is added to scores
    """
    if form.buckets:
        for head, of_head in enumerate(sums):
            c.grad(0)[:, head] = np.bincount(form.bucket_numbers(), of_head, form.buckets)
    if form.slope_scale is not None:
        c.grad(-1).reshape(-1)[:] = np.sum(-form.slope_scale * form.distances() * sums, axis=1)


def attention_forward(c: Call) -> None:
    """Compute softmax(scores) v, over the keys that each query sees.

    Inputs are q, (T, A * D), k and v, (keys' T, kv_heads * D), rows grouped by sample; then, if tokens have segments,
    those of keys, (keys' T,) int32, and of queries, (T,) int32, or else all queries are in segment 1. A query sees keys
    of its own segment only. Weights are a table of biases, (buckets, A), if there are buckets, and slopes, (A,) or
    (A, 1), if these are trained. The output is the context, (T, A * D), 0 where a query sees nothing.

    Kept is logsumexp, (A, T): log of the sum of exp of a row's scores, infinity where nothing is seen. Dropout is of
    the probabilities, element (head * S + query) * keys + key of a sample. Scratch is up to `SCORES_PER_CALL` elements,
    or those of one block of one pair; with sinks, a block's contexts in addition; all that as often as there are
    parts; and with weights, (A, distances).
    """
    work = _Work.of(c)
    flops = work.form.flops(c.inputs[0])
    in_parts(c.gemm_for(c.inputs[0]), work.form.kv_heads, flops, partial(_forward, c, work))


def _forward(c: Call, work: _Work, part: int, kv_heads: range) -> None:
    """Compute the contexts of a range of heads of keys and values."""
    gemm, scratch = c.gemm_for(c.inputs[0]), _scratch_of(part, c.scratch)
    form, rules, queries, keys, values = work
    contexts, draws = work.of_queries(c.outputs[0]), draws_of(c.dropout)
    logsumexp = c.kept["logsumexp"].reshape(form.kv_heads, -1, len(queries), form.sequence)
    of_part = slice(kv_heads.start, kv_heads.stop)
    for samples, blocks in work.runs_of_queries():
        for start, stop, first, last in blocks:
            if first >= last:
                contexts[samples, of_part, :, start:stop] = 0
                logsumexp[of_part, :, samples, start:stop] = np.inf
                continue
            lead = min(form.sinks_apart, stop)
            rows, shift = stop - start, first - lead
            if shift <= 0:
                first, shift = 0, 0
            # Where the sinks lie apart from the window, they are `lead` columns of their own.
            apart = lead if shift > 0 else 0
            columns = apart + last - first
            for group in _groups(samples, kv_heads, form, rows * columns):
                here, kv_here = group[:3], group[:2]
                query, window = queries[*here, start:stop], (*kv_here, slice(None), slice(first, last))
                scores = scratch("attention.scores", (*group.size, rows, columns))
                gemm.multiply(query, keys[window].swapaxes(3, 4), scores[..., apart:])
                if apart:
                    gemm.multiply(query, keys[*kv_here, :, :apart].swapaxes(3, 4), scores[..., :apart])
                pairs, place = scores.reshape(group.size[0], -1, rows, columns), (group.samples.start, group.first_head)
                probabilities, rounded = _rounded("probabilities", scores, pairs, queries.dtype, scratch)
                softmax_rows(pairs, *place, start, lead, shift, rules, c.kept["logsumexp"], draws, rounded)
                target = contexts[*here, start:stop]
                is_total = not apart or target.dtype == scores.dtype
                total = target if is_total else scratch("attention.sum", target.shape)
                gemm.multiply(probabilities[..., apart:], values[window], total)
                if apart:
                    product = scratch("attention.context", target.shape)
                    gemm.multiply_add(probabilities[..., :apart], values[*kv_here, :, :apart], total, product)
                if total is not target:
                    target[...] = narrowed(total)


@quiet
def attention_backward(c: Call) -> None:
    """Compute the deltas of query, key and value, which are apart from the inputs in memory, and the gradients.

    Scratch is twice what forward needs, and (A, T) and a block's (B, A, S, D) in addition; in bfloat16 also three times
    (T, A * D); with weights, (A, distances).
    """
    work, scratch = _Work.of(c), c.scratch
    form, (tokens, width) = work.form, c.inputs[0].shape
    delta_y = operand(c.delta_y, c.inputs[0].dtype, "attention.delta_y", scratch)
    # What is added up block by block, or head by head, is added up in float32.
    sums = [
        delta if delta.dtype != BFLOAT16 or not is_sum else scratch(f"attention.sum_{i}", delta.shape)
        for i, is_sum in enumerate((True, form.kv_heads < form.heads, form.kv_heads < form.heads))
        for delta in (c.delta_x(i),)
    ]
    by_token = (tokens, form.heads, width // form.heads)
    dots = scratch("attention.dots", (form.heads, tokens))
    if delta_y.dtype == BFLOAT16:
        row_products(delta_y, c.outputs[0], form.heads, dots)
    else:
        np.vecdot(delta_y.reshape(by_token), c.outputs[0].reshape(by_token), out=dots.T)
    biases = work.rules.biases
    bias_sums = scratch("attention.bias_sums", biases.shape) if c.weights else biases[:0]
    bias_sums.fill(0)
    compute = partial(_backward, c, work, delta_y, sums, dots, bias_sums)
    in_parts(c.gemm_for(c.inputs[0]), form.kv_heads, 2 * form.flops(c.inputs[0]), compute)
    for i, total in enumerate(sums):
        if total is not c.delta_x(i):
            convert(total, c.delta_x(i))
    _add_up_biases(c, form, bias_sums)


@quiet
def _backward(
    c: Call,
    work: _Work,
    delta_y: np.ndarray,
    sums: Sequence[np.ndarray],
    dots: np.ndarray,
    bias_sums: np.ndarray,
    part: int,
    kv_heads: range,
) -> None:
    """Compute the deltas of a range of heads of keys and values, and of the queries that attend to them.

    Args:
        sums: where they are added up, of query, key and value
        dots: (A, T) products of each row of contexts and its delta
        bias_sums: see `softmax_rows_backward`
    """
    gemm, scratch = c.gemm_for(c.inputs[0]), _scratch_of(part, c.scratch)
    form, rules, queries, keys, values = work
    deltas, delta_queries = (work.of_queries(x) for x in (delta_y, sums[0]))
    delta_keys, delta_values = (work.of_keys(x) for x in sums[1:])
    draws, of_part = draws_of(c.dropout), slice(kv_heads.start, kv_heads.stop)
    for samples, blocks in work.runs_of_keys():
        written = 0
        """rows of delta_q that have something already"""
        for start, stop, first, last in blocks:
            if first >= last:
                delta_keys[samples, of_part, :, start:stop] = 0
                delta_values[samples, of_part, :, start:stop] = 0
                continue
            # Queries between what was seen and what is seen now see nothing so far.
            delta_queries[samples, of_part, :, written:first] = 0
            lead = min(max(form.sinks_apart - start, 0), stop - start)
            keys_here, rows = stop - start, last - first
            for group in _groups(samples, kv_heads, form, rows * keys_here):
                below = (*group[:3], slice(first, last))
                here = (*group[:2], slice(None), slice(start, stop))
                shape = (*group.size, rows, keys_here)
                scores, delta = scratch("attention.scores", shape), scratch("attention.delta_scores", shape)
                gemm.multiply(queries[below], keys[here].swapaxes(3, 4), scores)
                gemm.multiply(deltas[below], values[here].swapaxes(3, 4), delta)
                pairs = [x.reshape(group.size[0], -1, rows, keys_here) for x in (scores, delta)]
                place = group.samples.start, group.first_head, first, lead, start
                scores, rounded = _rounded("probabilities", scores, pairs[0], queries.dtype, scratch)
                delta, rounded_delta = _rounded("rounded_delta", delta, pairs[1], queries.dtype, scratch)
                known = *place, rules, c.kept["logsumexp"], dots, draws
                softmax_rows_backward(*pairs, *known, rounded, rounded_delta, bias_sums)
                is_first = group.sharing.start == 0
                _sum_over_sharing(scores, deltas[below], delta_values[here], is_first, gemm, scratch)
                _sum_over_sharing(delta, queries[below], delta_keys[here], is_first, gemm, scratch)
                old = min(max(written - first, 0), rows)
                target = delta_queries[below]
                if old:
                    product = scratch("attention.delta_q", (*group.size, old, queries.shape[-1]))
                    gemm.multiply_add(delta[..., :old, :], keys[here], target[..., :old, :], product)
                if old < rows:
                    gemm.multiply(delta[..., old:, :], keys[here], target[..., old:, :])
            written = max(written, last)
        delta_queries[samples, of_part, :, written:] = 0


def _scratch_of(part: int, scratch: Scratch) -> Scratch:
    """Work space of a part of the heads, beside which others are computed."""
    return (lambda name, shape: scratch(f"{name} {part}", shape)) if part else scratch


def _rounded(
    name: str, numbers: np.ndarray, pairs: np.ndarray, dtype: np.dtype, scratch: Scratch
) -> tuple[np.ndarray, np.ndarray]:
    """What takes part in products for some float numbers, and where kernels write it: nowhere if it is the same."""
    if dtype == numbers.dtype:
        return numbers, pairs[:0]
    lent = lend_bfloat16(scratch, f"attention.{name}", numbers.shape)
    return lent, lent.reshape(pairs.shape)


def _sum_over_sharing(
    a: np.ndarray, b: np.ndarray, out: np.ndarray, is_first: bool, gemm: Gemm, scratch: Scratch
) -> None:
    """Write a^T b, summed over the heads that share a head of keys and values, or add it if others came first.

    Args:
        a: (B, kv heads, sharing, rows, keys) float32
        b: (B, kv heads, sharing, rows, D) float32
        out: (B, kv heads, 1, keys, D) float32
    """
    if is_first and a.shape[2] == 1:
        gemm.multiply(a.swapaxes(3, 4), b, out)
        return
    product = scratch("attention.product", (*a.shape[:3], a.shape[4], b.shape[4]))
    gemm.multiply(a.swapaxes(3, 4), b, product)
    if is_first:
        np.add.reduce(product, axis=2, keepdims=True, out=out)
        return
    for head in range(a.shape[2]):
        np.add(out[:, :, 0], product[:, :, head], out=out[:, :, 0])
