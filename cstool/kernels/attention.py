"""Causal attention by blocks; probabilities are computed again in backward, not kept.

Forward goes by blocks of query rows, so that a block sees no key beyond its last row; backward by blocks of key rows,
so that the deltas of keys and values need no accumulation. Small (sample, head) pairs go through one call together.
Heads of queries that share a head of keys and values follow each other; nothing is repeated in memory for them.

With a window a block of queries sees the first few keys (the sinks) and a range that ends with its last row. Its scores
then have these two side by side.

Source: Vaswani et al., "Attention is all you need", 2017; Dao et al., "FlashAttention", 2022, section 3 and
appendix B.4 (log-sum-exp kept, row sums of delta_context x context in place of those of delta x probability); Ainslie
et al., "GQA", 2023; Xiao et al., "Efficient streaming language models with attention sinks", 2023.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cstool.kernels.attention_rows import row_products, softmax_rows, softmax_rows_backward
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


class Attention(NamedTuple):
    """What is attended to, and how scores are made.

    Args:
        heads: A, of queries
        kv_heads: heads of keys and values, a divisor of A
        sequence: S
        scale: of the products of queries and keys, positive
        softcap: scores stay below it: softcap * tanh(score / softcap); None for no cap
        slopes: for each head, what a score falls per token of distance (ALiBi); empty for none
        window: tokens that a token sees, itself included; None for all before it
        sinks: first tokens that are seen whatever the window
    """

    heads: int
    kv_heads: int
    sequence: int
    scale: float
    softcap: float | None = None
    slopes: tuple[float, ...] = ()
    window: int | None = None
    sinks: int = 0

    @classmethod
    def of(cls, attributes: Mapping[str, Any], sequence: int) -> "Attention":
        """Return the attention of an op."""
        return cls(**{name: attributes[name] for name in cls._fields if name != "sequence"}, sequence=sequence)

    def flops(self, queries: np.ndarray) -> int:
        """Of the two products of forward, about; queries is (T, A * D)."""
        return 4 * queries.size * self.reach

    @property
    def reach(self) -> int:
        """Tokens that a token sees, itself included."""
        return self.sequence if self.window is None else min(self.window, self.sequence)

    def numbers(self, dtype: np.dtype) -> tuple[int, int, float, float, np.ndarray]:
        """As kernels take them: reach, sequence, scale, cap, 0 for none, and the slopes of all heads or of none."""
        slopes = shared_tables(("slopes", self.slopes, dtype), lambda: (np.array(self.slopes, dtype),))[0]
        return self.reach, self.sequence, float(self.scale), float(self.softcap or 0.0), slopes


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


def _groups(samples: int, kv_heads: range, form: Attention, scores_per_pair: int) -> Iterator[_Group]:
    pairs = max(1, SCORES_PER_CALL // scores_per_pair)
    sharing = form.heads // form.kv_heads
    sample_step = max(1, pairs // form.heads)
    kv_step = min(max(1, pairs // sharing), form.kv_heads)
    sharing_step = min(sharing, pairs)
    for sample in range(0, samples, sample_step):
        for kv in range(kv_heads.start, kv_heads.stop, kv_step):
            for head in range(0, sharing, sharing_step):
                yield _Group(
                    slice(sample, min(sample + sample_step, samples)),
                    slice(kv, min(kv + kv_step, kv_heads.stop)),
                    slice(head, min(head + sharing_step, sharing)),
                    kv * sharing + head,
                )


def _by_head(x: np.ndarray, form: Attention, heads: int) -> np.ndarray:
    """View (T, heads * D) as (B, kv heads, heads that share one, S, D)."""
    tokens, width = x.shape
    shape = tokens // form.sequence, form.sequence, form.kv_heads, heads // form.kv_heads, width // heads
    return x.reshape(shape).transpose(0, 2, 3, 1, 4)


def attention_forward(c: Call) -> None:
    """Compute softmax(scores) v, each token seeing itself and those before it, as far as the window reaches.

    Inputs are q, (T, A * D), k and v, (T, kv_heads * D), rows grouped by sample; the output is the context, (T, A * D).
    Kept is logsumexp, (A, T): log of the sum of exp of a row's scores. Dropout is of the probabilities, element
    (head * S + query) * S + key of a sample. Scratch is up to `SCORES_PER_CALL` elements, or those of one block of one
    pair; with sinks, a block's contexts in addition; all that as often as there are parts.
    """
    form = Attention.of(c.attributes, c.sequence)
    in_parts(c.gemm_for(c.inputs[0]), form.kv_heads, form.flops(c.inputs[0]), partial(_forward, c, form))


def _forward(c: Call, form: Attention, part: int, kv_heads: range) -> None:
    """Compute the contexts of a range of heads of keys and values."""
    gemm, scratch = c.gemm_for(c.inputs[0]), _scratch_of(part, c.scratch)
    queries, contexts = _by_head(c.inputs[0], form, form.heads), _by_head(c.outputs[0], form, form.heads)
    keys, values = (_by_head(x, form, form.kv_heads) for x in c.inputs[1:])
    draws, numbers = draws_of(c.dropout), form.numbers(float_dtype(queries))
    for start, stop in _blocks(form.sequence):
        rows, first = stop - start, max(0, start + 1 - form.reach)
        lead = min(form.sinks, stop)
        shift = first - lead
        if shift <= 0:
            first, shift = 0, 0
        # Where the sinks lie apart from the window, they are `lead` columns of their own.
        apart = lead if shift > 0 else 0
        columns = apart + stop - first
        for group in _groups(queries.shape[0], kv_heads, form, rows * columns):
            here, kv_here = group[:3], group[:2]
            scores = scratch("attention.scores", (*group.size, rows, columns))
            gemm.multiply(queries[*here, start:stop], keys[*kv_here, :, first:stop].swapaxes(3, 4), scores[..., apart:])
            if apart:
                gemm.multiply(queries[*here, start:stop], keys[*kv_here, :, :apart].swapaxes(3, 4), scores[..., :apart])
            pairs, place = scores.reshape(group.size[0], -1, rows, columns), (group.samples.start, group.first_head)
            probabilities, rounded = _rounded("probabilities", scores, pairs, queries.dtype, scratch)
            softmax_rows(pairs, *place, start, lead, shift, *numbers, c.kept["logsumexp"], draws, rounded)
            target = contexts[*here, start:stop]
            total = target if not apart or target.dtype == scores.dtype else scratch("attention.sum", target.shape)
            gemm.multiply(probabilities[..., apart:], values[*kv_here, :, first:stop], total)
            if apart:
                product = scratch("attention.context", target.shape)
                gemm.multiply_add(probabilities[..., :apart], values[*kv_here, :, :apart], total, product)
            if total is not target:
                target[...] = narrowed(total)


@quiet
def attention_backward(c: Call) -> None:
    """Compute the deltas of query, key and value, which are apart from the inputs in memory.

    Scratch is twice what forward needs, and (A, T) and a block's (B, A, S, D) in addition; in bfloat16 also three times
    (T, A * D).
    """
    form, scratch = Attention.of(c.attributes, c.sequence), c.scratch
    tokens, width = c.inputs[0].shape
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
    work = partial(_backward, c, form, delta_y, sums, dots)
    in_parts(c.gemm_for(c.inputs[0]), form.kv_heads, 2 * form.flops(c.inputs[0]), work)
    for i, total in enumerate(sums):
        if total is not c.delta_x(i):
            convert(total, c.delta_x(i))


@quiet
def _backward(
    c: Call,
    form: Attention,
    delta_y: np.ndarray,
    sums: Sequence[np.ndarray],
    dots: np.ndarray,
    part: int,
    kv_heads: range,
) -> None:
    """Compute the deltas of a range of heads of keys and values, and of the queries that attend to them.

    Args:
        sums: where they are added up, of query, key and value
        dots: (A, T) products of each row of contexts and its delta
    """
    gemm, scratch = c.gemm_for(c.inputs[0]), _scratch_of(part, c.scratch)
    queries, deltas, delta_queries = (_by_head(x, form, form.heads) for x in (c.inputs[0], delta_y, sums[0]))
    keys, values, delta_keys, delta_values = (_by_head(x, form, form.kv_heads) for x in (*c.inputs[1:], *sums[1:]))
    draws, numbers = draws_of(c.dropout), form.numbers(float_dtype(queries))
    written = 0
    """rows of delta_q that have something already"""
    for start, stop in _blocks(form.sequence):
        lead = min(max(form.sinks - start, 0), stop - start)
        last = form.sequence if lead else min(form.sequence, stop - 1 + form.reach)
        keys_here, rows = stop - start, last - start
        for group in _groups(queries.shape[0], kv_heads, form, rows * keys_here):
            below = (*group[:3], slice(start, last))
            here = (*group[:2], slice(None), slice(start, stop))
            shape = (*group.size, rows, keys_here)
            scores, delta = scratch("attention.scores", shape), scratch("attention.delta_scores", shape)
            gemm.multiply(queries[below], keys[here].swapaxes(3, 4), scores)
            gemm.multiply(deltas[below], values[here].swapaxes(3, 4), delta)
            pairs = [x.reshape(group.size[0], -1, rows, keys_here) for x in (scores, delta)]
            place = group.samples.start, group.first_head, start, lead
            scores, rounded = _rounded("probabilities", scores, pairs[0], queries.dtype, scratch)
            delta, rounded_delta = _rounded("rounded_delta", delta, pairs[1], queries.dtype, scratch)
            known = *place, *numbers, c.kept["logsumexp"], dots, draws
            softmax_rows_backward(*pairs, *known, rounded, rounded_delta)
            is_first = group.sharing.start == 0
            _sum_over_sharing(scores, deltas[below], delta_values[here], is_first, gemm, scratch)
            _sum_over_sharing(delta, queries[below], delta_keys[here], is_first, gemm, scratch)
            old = min(max(written - start, 0), rows)
            target = delta_queries[below]
            if old:
                product = scratch("attention.delta_q", (*group.size, old, queries.shape[-1]))
                gemm.multiply_add(delta[..., :old, :], keys[here], target[..., :old, :], product)
            if old < rows:
                gemm.multiply(delta[..., old:, :], keys[here], target[..., old:, :])
        written = max(written, last)


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
