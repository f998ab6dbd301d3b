"""Attention by blocks; probabilities are computed again in backward, not kept.

Forward goes by blocks of query rows, so that a block sees few keys that none of its rows sees; backward by blocks of
key rows, so that the deltas of keys and values need no accumulation. Large (sample, head) pairs go one by one through
kernels of their own (`attention_pairs.py`). Small ones, rare forms and bfloat16 go through calls of several pairs.
Heads of queries that share a head of keys and values follow each other; nothing is repeated in memory for them.

An `Attention` limits the keys that a query may see by their positions; segments, an input, limit them further. A
block's keys are a range, or no more of it than the segments of its sample leave. With a window a block of queries sees
the first few keys (the sinks) and a range that ends with its last row. Its scores then have these two side by side.

Source: Vaswani et al., "Attention is all you need", 2017; Dao et al., "FlashAttention", 2022, section 3 and
appendix B.4 (log-sum-exp kept, row sums of delta_context x context in place of delta x probability); Ainslie
et al., "GQA", 2023; Xiao et al., "Efficient streaming language models with attention sinks", 2023.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cstool.training.kernels import block_products, elementary
from cstool.training.kernels.attention_form import Attention
from cstool.training.kernels.attention_pairs import backward_pairs, forward_pairs
from cstool.training.kernels.attention_rows import (
    Rules,
    row_products,
    softmax_rows,
    softmax_rows_backward,
    sum_by_bucket,
)
from cstool.training.kernels.bfloat16 import BFLOAT16, convert, float_dtype, lend_bfloat16, operand
from cstool.training.kernels.block_products import FULL, SEEN_BY_TERMS, SEEN_COLUMNS, SEEN_TERMS
from cstool.training.kernels.call import Call
from cstool.training.kernels.gemm import Gemm, Scratch, quiet
from cstool.training.kernels.recording import address_of, needs_interpreter, recording
from cstool.training.kernels.shared_gemm import in_parts

BLOCK_ROWS = 128
"""most rows of a block of queries or keys"""
LEAST_PRODUCTS = 2**19
"""numbers multiplied for a product of two matrices, from which our own kernel computes it. Of fewer OpenBLAS, by a
kernel for small matrices, makes sums in another order, which runs so far have had"""

_Block: TypeAlias = tuple[int, ...]
"""first and last + 1 of queries, and of the keys that any of them sees; or of keys, and of the queries that see any"""
_Run: TypeAlias = tuple[slice, list[_Block]]
"""samples that follow each other, and their blocks"""

SCORES_PER_CALL = 256 * 1024
"""scores of the pairs that go through one call together: 1 MiB, so that they stay in a core's L2 cache"""


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
    """An op on a grain: the common data of forward and backward."""

    form: Attention
    rules: Rules
    queries: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    """by head"""

    @classmethod
    def of(cls, c: Call) -> "_Work":
        """Collect the inputs of a call."""
        query, key, value, *segments = c.inputs
        samples = query.shape[0] // c.sequence
        form = Attention.of(c.attributes, c.sequence, key.shape[0] // samples)
        if len(segments) == 1:
            segments.append(np.ones(query.shape[0], np.int32))
        rules = form.rules(_biases(c, form, bool(segments)), *segments[::-1])
        kv = (_by_head(x, form.key_count, form.kv_heads, form.kv_heads) for x in (key, value))
        return cls(form, rules, _by_head(query, form.sequence, form.kv_heads, form.heads), *kv)

    @property
    def biases(self) -> np.ndarray | None:
        """The biases of the rules, None where there are none."""
        return self.rules.biases if self.rules.biases.size else None

    def of_queries(self, x: np.ndarray) -> np.ndarray:
        """View an array with a row for each query by head."""
        return _by_head(x, self.form.sequence, self.form.kv_heads, self.form.heads)

    def of_keys(self, x: np.ndarray) -> np.ndarray:
        """View an array with a row for each key by head."""
        return _by_head(x, self.form.key_count, self.form.kv_heads, self.form.kv_heads)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Samples, query heads for each head of keys and values, width of a head."""
        samples, _, sharing, _, width = self.queries.shape
        return samples, sharing, width

    def goes_by_pairs(self, *others: np.ndarray) -> bool:
        """See `by_pairs`; others are results, and deltas."""
        arrays = (self.queries, self.keys, self.values, *others)
        return all(x.dtype == np.float32 for x in arrays) and by_pairs(self.form, self.queries.shape[4])

    def runs_of_queries(self) -> Iterator[_Run]:
        """Samples that follow each other, and their blocks of queries: see `_runs`."""
        blocks = self.form.blocks_of_queries(BLOCK_ROWS)
        return self._runs(blocks, self.rules.query_segments, self.rules.key_segments)

    def runs_of_keys(self) -> Iterator[_Run]:
        """Samples that follow each other, and their blocks of keys: see `_runs`."""
        blocks = self.form.blocks_of_keys(BLOCK_ROWS)
        return self._runs(blocks, self.rules.key_segments, self.rules.query_segments)

    def _runs(self, of_form: np.ndarray, own: np.ndarray, others: np.ndarray) -> Iterator[_Run]:
        """Yield samples whose blocks meet the same ranges.

        A range depends on the segments of its own sample alone, so a sample has the same bits beside any others.
        """
        samples, blocks = self.queries.shape[0], [*map(tuple, of_form.tolist())]
        if not others.size or self.form.sinks_apart or max(self.form.sequence, self.form.key_count) <= BLOCK_ROWS:
            # Products of a single block have all keys, so that they can be written down: rows leave out the others.
            yield slice(0, samples), blocks
            return
        needs_interpreter()
        own, others = own.reshape(samples, -1), others.reshape(samples, -1)

        def ranges(sample: int) -> list[_Block]:
            return [
                (start, stop, *_narrowed_range(first, last, own[sample, start:stop], others[sample]))
                for start, stop, first, last in blocks
            ]

        for found, together in groupby(range(samples), ranges):
            numbers = list(together)
            yield slice(numbers[0], numbers[-1] + 1), found


def _narrowed_range(first: int, last: int, own: np.ndarray, others: np.ndarray) -> tuple[int, int]:
    """Cut off the ends of a range of `others` where none is of a segment that is among `own`; (0, 0) for nothing."""
    found = np.flatnonzero(np.isin(others[first:last], own[own >= 0]))
    return (first + int(found[0]), first + int(found[-1]) + 1) if found.size else (0, 0)


def _biases(c: Call, form: Attention, has_segments: bool) -> np.ndarray:
    """Biases of scores: see `Rules`."""
    biases = form.biases(float_dtype(c.inputs[0]), has_segments or form.has_weights)
    if not form.has_weights:
        return biases
    total = c.scratch("attention.biases", biases.shape)
    elementary.copy(biases, total)
    form.add_weights([c.weight(index) for index in range(len(c.weights))], total)
    return total


def _add_up_biases(c: Call, form: Attention, sums: np.ndarray) -> None:
    """Write the gradients of the weights.

    Args:
        sums: (heads, distances) deltas of the biases of scores
    """
    if form.buckets:
        sum_by_bucket(sums, form.bucket_numbers(), c.grad(0))
    if form.slope_scale is not None:
        needs_interpreter()
        c.grad(-1).reshape(-1)[:] = np.sum(-form.slope_scale * form.distances() * sums, axis=1)


def attention_forward(c: Call) -> None:
    """Compute softmax(scores) v, over the keys that each query sees.

    Inputs are q, (T, A * D), k and v, (keys' T, kv_heads * D), rows grouped by sample; then, if tokens have segments,
    the segments of keys, (keys' T,) int32, and of queries, (T,) int32, or else all queries are in segment 1. A query
    sees keys of its own segment only, and none in a negative one. Weights are a table of biases, (buckets, A), if there
    are buckets, and slopes, (A,) or (A, 1), if these are trained. The output is the context, (T, A * D), 0 where a
    query sees nothing.

    Kept is logsumexp, (A, T): log of the sum of exp of a row's scores, infinity where nothing is seen. Dropout is of
    the probabilities, element (head * S + query) * keys + key of a sample. Scratch is up to `SCORES_PER_CALL` elements,
    or one block of one pair, and the keys of a head; with sinks, a block's contexts in addition; all that as often as
    there are parts; and with weights, (A, distances).
    """
    work = _Work.of(c)
    flops = work.form.flops(c.inputs[0])
    in_parts(c.gemm_for(c.inputs[0]), work.form.kv_heads, flops, partial(_forward, c, work))


def by_pairs(form: Attention, width: int) -> bool:
    """Say whether attention in float32 goes pair by pair: where matrices are large, and the form is no rare one.

    Args:
        width: of a head
    """
    rows, columns = (min(BLOCK_ROWS, count) for count in (form.sequence, form.key_count))
    is_rare = bool(form.softcap or form.columns or form.sinks_apart)
    return not is_rare and rows * columns * width >= LEAST_PRODUCTS


def _given_to_pairs(matrices: Sequence[np.ndarray], work: _Work, kv_heads: range, blocks: np.ndarray) -> list[Any]:
    """Return the first arguments of kernels of pairs; records keep the matrices."""
    if (into := recording()) is not None:
        into.kept += matrices
    places = [(address_of(x), x.strides[0]) for x in matrices]
    return [*places, work.counts, (kv_heads.start, kv_heads.stop), blocks, work.rules, work.biases]


def _lend_to_pairs(work: _Work, scratch: Scratch, blocks: np.ndarray, count: int) -> list[np.ndarray]:
    """Lend room for the scores of any block, as often as asked for, and as often for keys or values of a head."""
    scores = int(np.max((blocks[:, 1] - blocks[:, 0]) * (blocks[:, 3] - blocks[:, 2])))
    lent = [scratch(name, (scores,)) for name in ("attention.scores", "attention.delta_scores")[:count]]
    head = work.form.key_count * work.queries.shape[4]
    return lent + [scratch(name, (head,)) for name in ("products.turned", "attention.turned")[:count]]


def _forward_by_pairs(c: Call, work: _Work, scratch: Scratch, kv_heads: range) -> None:
    blocks = work.form.blocks_of_queries(BLOCK_ROWS)
    given = _given_to_pairs([*c.inputs[:3], c.outputs[0]], work, kv_heads, blocks)
    forward_pairs(*given, c.kept["logsumexp"], c.draws, *_lend_to_pairs(work, scratch, blocks, 1))


def _forward(c: Call, work: _Work, part: int, kv_heads: range) -> None:
    """Compute the contexts of a range of heads of keys and values."""
    gemm, scratch = c.gemm_for(c.inputs[0]), _scratch_of(part, c.scratch)
    if work.goes_by_pairs(c.outputs[0]):
        _forward_by_pairs(c, work, scratch, kv_heads)
        return
    form, rules, queries, keys, values = work
    contexts, draws = work.of_queries(c.outputs[0]), c.draws
    of_part = slice(kv_heads.start, kv_heads.stop)
    for samples, blocks in work.runs_of_queries():
        for start, stop, first, last in blocks:
            if first >= last:
                elementary.fill(contexts[samples, of_part, :, start:stop], 0)
                by_sample = c.kept["logsumexp"].reshape(form.kv_heads, -1, len(queries), form.sequence)
                elementary.fill(by_sample[of_part, :, samples, start:stop], np.inf)
                continue
            lead = min(form.sinks_apart, stop)
            rows, shift = stop - start, first - lead
            if shift <= 0:
                first, shift = 0, 0
            # Where the sinks lie apart from the window, they are `lead` columns of their own.
            apart = lead if shift > 0 else 0
            columns = apart + last - first
            seen = _seen(form, start, first)
            for group in _groups(samples, kv_heads, form, rows * columns):
                here, kv_here = group[:3], group[:2]
                query, window = queries[*here, start:stop], (*kv_here, slice(None), slice(first, last))
                scores = scratch("attention.scores", (*group.size, rows, columns))
                _multiply(gemm, query, keys[window].swapaxes(3, 4), scores[..., apart:], scratch, SEEN_COLUMNS, seen)
                if apart:
                    gemm.multiply(query, keys[*kv_here, :, :apart].swapaxes(3, 4), scores[..., :apart])
                pairs, place = scores.reshape(group.size[0], -1, rows, columns), (group.samples.start, group.first_head)
                probabilities, rounded = _rounded("probabilities", scores, pairs, queries.dtype, scratch)
                known = start, lead, shift, rules, work.biases, c.kept["logsumexp"], draws
                softmax_rows(pairs, *place, *known, rounded)
                target = contexts[*here, start:stop]
                is_total = not apart or target.dtype == scores.dtype
                total = target if is_total else scratch("attention.sum", target.shape)
                _multiply(gemm, probabilities[..., apart:], values[window], total, scratch, SEEN_TERMS, seen)
                if apart:
                    product = scratch("attention.context", target.shape)
                    gemm.multiply_add(probabilities[..., :apart], values[*kv_here, :, :apart], total, product)
                if total is not target:
                    _round_sums(total, target, scratch)


@quiet
def attention_backward(c: Call) -> None:
    """Compute the deltas of query, key and value, which are apart from the inputs in memory, and the gradients.

    Scratch is twice the scratch of forward, and (A, T) and a block's (B, A, S, D) in addition; in bfloat16 also three
    times (T, A * D); with weights, (A, distances).
    """
    work, scratch = _Work.of(c), c.scratch
    form, tokens = work.form, len(c.inputs[0])
    delta_y = operand(c.delta_y, c.inputs[0].dtype, "attention.delta_y", scratch)
    # Sums over blocks, or over heads, are in float32.
    deltas = [c.delta_x(i) for i in range(3)]
    sums = [
        delta if delta.dtype != BFLOAT16 or not is_sum else scratch(f"attention.sum_{i}", delta.shape)
        for i, (delta, is_sum) in enumerate(zip(deltas, (True, *[form.kv_heads < form.heads] * 2), strict=True))
    ]
    dots = scratch("attention.dots", (form.heads, tokens))
    if delta_y.dtype == BFLOAT16:
        row_products(delta_y, c.outputs[0], form.heads, dots)
    else:
        elementary.dot_heads(delta_y, c.outputs[0], form.heads, dots)
    biases = work.rules.biases
    bias_sums = scratch("attention.bias_sums", biases.shape) if c.weights else biases[:0]
    elementary.fill(bias_sums, 0)
    compute = partial(_backward, c, work, delta_y, sums, dots, bias_sums)
    in_parts(c.gemm_for(c.inputs[0]), form.kv_heads, 2 * form.flops(c.inputs[0]), compute)
    for total, delta in zip(sums, deltas, strict=True):
        if total is not delta:
            convert(total, delta)
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
        sums: arrays in which the deltas of query, key and value are added up
        dots: (A, T) products of each row of contexts and its delta
        bias_sums: see `softmax_rows_backward`
    """
    gemm, scratch = c.gemm_for(c.inputs[0]), _scratch_of(part, c.scratch)
    form, rules, queries, keys, values = work
    if work.goes_by_pairs(delta_y, *sums):
        of_form = form.blocks_of_keys(BLOCK_ROWS)
        given = _given_to_pairs([*c.inputs[:3], delta_y, *sums], work, kv_heads, of_form)
        lent = _lend_to_pairs(work, scratch, of_form, 2)
        backward_pairs(*given, c.kept["logsumexp"], dots, c.draws, *lent, bias_sums)
        return
    deltas, delta_queries = (work.of_queries(x) for x in (delta_y, sums[0]))
    delta_keys, delta_values = (work.of_keys(x) for x in sums[1:])
    draws, of_part = c.draws, slice(kv_heads.start, kv_heads.stop)
    for samples, blocks in work.runs_of_keys():
        written = 0
        """rows of delta_q that are written already"""
        for start, stop, first, last in blocks:
            if first >= last:
                elementary.fill(delta_keys[samples, of_part, :, start:stop], 0)
                elementary.fill(delta_values[samples, of_part, :, start:stop], 0)
                continue
            if first > written:
                # Queries between the ones written so far and the next ones see nothing yet.
                elementary.fill(delta_queries[samples, of_part, :, written:first], 0)
            lead = min(max(form.sinks_apart - start, 0), stop - start)
            keys_here, rows = stop - start, last - first
            seen = _seen(form, first, start)
            for group in _groups(samples, kv_heads, form, rows * keys_here):
                below = (*group[:3], slice(first, last))
                here = (*group[:2], slice(None), slice(start, stop))
                shape = (*group.size, rows, keys_here)
                scores, delta = scratch("attention.scores", shape), scratch("attention.delta_scores", shape)
                _multiply(gemm, queries[below], keys[here].swapaxes(3, 4), scores, scratch, SEEN_COLUMNS, seen)
                _multiply(gemm, deltas[below], values[here].swapaxes(3, 4), delta, scratch, SEEN_COLUMNS, seen)
                pairs = [x.reshape(group.size[0], -1, rows, keys_here) for x in (scores, delta)]
                place = group.samples.start, group.first_head, first, lead, start
                scores, rounded = _rounded("probabilities", scores, pairs[0], queries.dtype, scratch)
                delta, rounded_delta = _rounded("rounded_delta", delta, pairs[1], queries.dtype, scratch)
                known = *place, rules, work.biases, c.kept["logsumexp"], dots, draws
                softmax_rows_backward(*pairs, *known, rounded, rounded_delta, bias_sums)
                is_first = group.sharing.start == 0
                _sum_over_sharing(scores, deltas[below], delta_values[here], is_first, gemm, scratch, seen)
                _sum_over_sharing(delta, queries[below], delta_keys[here], is_first, gemm, scratch, seen)
                old = min(max(written - first, 0), rows)
                target = delta_queries[below]
                for own, adds in ((slice(0, old), True), (slice(old, rows), False)):
                    terms, to = delta[..., own, :], target[..., own, :]
                    if to.size:
                        of_own = None if seen is None else seen + own.start
                        _multiply(gemm, terms, keys[here], to, scratch, SEEN_TERMS, of_own, adds=adds)
            written = max(written, last)
        if written < form.sequence:
            elementary.fill(delta_queries[samples, of_part, :, written:], 0)


def _round_sums(total: np.ndarray, target: np.ndarray, scratch: Scratch) -> None:
    """Write float32 sums, (B, kv heads, sharing, rows, D), as bfloat16, whose rows may lie any distance apart."""
    rounded = lend_bfloat16(scratch, "attention.rounded", total.shape)
    convert(total.reshape(-1, total.shape[-1]), rounded.reshape(-1, total.shape[-1]))
    elementary.copy(rounded, target)


def _scratch_of(part: int, scratch: Scratch) -> Scratch:
    """Work space of one part of the heads; other parts are computed at the same time."""
    return (lambda name, shape: scratch(f"{name} {part}", shape)) if part else scratch


def _rounded(
    name: str, numbers: np.ndarray, pairs: np.ndarray, dtype: np.dtype, scratch: Scratch
) -> tuple[np.ndarray, np.ndarray]:
    """Return operands of products for float numbers, and an array for their rounding: empty if they are the same."""
    if dtype == numbers.dtype:
        return numbers, pairs[:0]
    lent = lend_bfloat16(scratch, f"attention.{name}", numbers.shape)
    return lent, lent.reshape(pairs.shape)


def _seen(form: Attention, query: int, key: int) -> int | None:
    """Keys, from one on, that a query sees; None where later ones are seen, too. The next query sees one more."""
    return query + 1 - key if form.causal else None


def _multiply(
    gemm: Gemm,
    a: np.ndarray,
    b: np.ndarray,
    out: np.ndarray,
    scratch: Scratch,
    shape: int,
    seen: int | None,
    *,
    adds: bool = False,
) -> None:
    """Compute out = a b, or add that to `out`; by our own kernel where it has the order of BLAS, and is faster.

    Args:
        shape, seen: see `block_products.multiply`; None for nothing hidden
    """
    if a.dtype == b.dtype == out.dtype == np.float32 and math.prod((*out.shape[3:], a.shape[4])) >= LEAST_PRODUCTS:
        block_products.multiply(a, b, out, scratch, adds=adds, shape=FULL if seen is None else shape, seen=seen or 0)
    elif adds:
        gemm.multiply_add(a, b, out, scratch("attention.added", out.shape))
    else:
        gemm.multiply(a, b, out)


def _sum_over_sharing(
    a: np.ndarray, b: np.ndarray, out: np.ndarray, is_first: bool, gemm: Gemm, scratch: Scratch, seen: int | None
) -> None:
    """Write a^T b, summed over the heads that share a head of keys and values, or add it if others came first.

    Args:
        a: (B, kv heads, sharing, rows, keys) float32
        b: (B, kv heads, sharing, rows, D) float32
        out: (B, kv heads, 1, keys, D) float32
        seen: keys that the first row sees, see `_seen`
    """
    if is_first and a.shape[2] == 1:
        _multiply(gemm, a.swapaxes(3, 4), b, out, scratch, SEEN_BY_TERMS, seen)
        return
    product = scratch("attention.product", (*a.shape[:3], a.shape[4], b.shape[4]))
    _multiply(gemm, a.swapaxes(3, 4), b, product, scratch, SEEN_BY_TERMS, seen)
    if is_first:
        elementary.sum_over(product, 2, out)
        return
    for head in range(a.shape[2]):
        elementary.add(out[:, :, 0], product[:, :, head], out[:, :, 0])
