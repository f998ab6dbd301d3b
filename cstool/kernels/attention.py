"""Multi-head causal attention, by blocks; probabilities are computed again in backward, not kept.

Forward goes by blocks of query rows, so that a block sees no key beyond its last row; backward by blocks of key rows,
so that the deltas of keys and values need no accumulation. Small (sample, head) pairs go through one call together.

Source: Vaswani et al., "Attention is all you need", 2017; Dao et al., "FlashAttention", 2022, section 3 and
appendix B.4 (log-sum-exp kept, row sums of delta_context x context in place of those of delta x probability).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from cstool.kernels._jit import reduction
from cstool.kernels.exponential import exp, maximum
from cstool.kernels.gemm import matmul, matmul_add, quiet
from cstool.kernels.random import Dropout, draws_of, mask_elements, mask_memory
from cstool.kernels.scratch import Scratch

BLOCK_ROWS = 128
"""most rows of a block of queries or keys"""

SCORES_PER_CALL = 256 * 1024
"""scores of the pairs that go through one call together: 1 MiB, so that they stay in a core's L2 cache"""


@reduction
def _softmax(scores, sample, head, first_row, sequence, scale, logsumexp, draws):  # type: ignore[no-untyped-def]
    """Turn the scores of a block of queries into probabilities, dropped ones included; 0 beyond the diagonal."""
    samples, heads, rows, columns = scores.shape
    zero = scores.dtype.type(0)
    factor = scores.dtype.type(scale)
    memory = mask_memory(columns, scores)
    for b in range(samples):
        for h in range(heads):
            for i in range(rows):
                row = scores[b, h, i]
                position = first_row + i
                seen = position + 1
                largest = row[0]
                for j in range(seen):
                    largest = maximum(largest, row[j])
                total = zero
                for j in range(seen):
                    row[j] = exp((row[j] - largest) * factor)
                    total += row[j]
                logsumexp[head + h, (sample + b) * sequence + position] = largest * factor + math.log(total)
                share = scores.dtype.type(1) / total
                if draws[0] > 0:
                    element = ((head + h) * sequence + position) * sequence
                    mask = mask_elements(memory, draws, sample + b, element, seen)
                    for j in range(seen):
                        row[j] *= share * mask[j]
                else:
                    for j in range(seen):
                        row[j] *= share
                row[seen:] = zero


@reduction
def _softmax_backward(scores, delta, sample, head, first_key, sequence, scale, logsumexp, dots, draws):  # type: ignore[no-untyped-def]
    """Turn scores into dropped probabilities, and the deltas of these into those of q k^T.

    Both are (samples, heads, rows, keys): the block of keys from `first_key` on, and the queries from there on.
    """
    samples, heads, rows, keys = scores.shape
    zero = scores.dtype.type(0)
    factor = scores.dtype.type(scale)
    memory = mask_memory(keys, scores)
    for b in range(samples):
        for h in range(heads):
            for i in range(rows):
                row = scores[b, h, i]
                delta_row = delta[b, h, i]
                position = first_key + i
                seen = min(i + 1, keys)
                token = (sample + b) * sequence + position
                total = logsumexp[head + h, token]
                dot = dots[head + h, token]
                if draws[0] > 0:
                    element = ((head + h) * sequence + position) * sequence + first_key
                    mask = mask_elements(memory, draws, sample + b, element, seen)
                    for j in range(seen):
                        probability = exp(row[j] * factor - total)
                        row[j] = probability * mask[j]
                        delta_row[j] = probability * (delta_row[j] * mask[j] - dot) * factor
                else:
                    for j in range(seen):
                        probability = exp(row[j] * factor - total)
                        row[j] = probability
                        delta_row[j] = probability * (delta_row[j] - dot) * factor
                row[seen:] = zero
                delta_row[seen:] = zero


def _blocks(sequence: int) -> Iterator[tuple[int, int]]:
    """Cut a sequence into as few blocks as `BLOCK_ROWS` allows, of nearly equal size."""
    count = -(-sequence // BLOCK_ROWS)
    edges = [sequence * i // count for i in range(count + 1)]
    return zip(edges, edges[1:], strict=False)


def _groups(samples: int, heads: int, scores_per_pair: int) -> Iterator[tuple[slice, slice]]:
    """Group (sample, head) pairs: several samples with all heads, or several heads of one sample."""
    pairs = max(1, SCORES_PER_CALL // scores_per_pair)
    sample_step, head_step = max(1, pairs // heads), min(pairs, heads)
    for sample in range(0, samples, sample_step):
        for head in range(0, heads, head_step):
            yield slice(sample, min(sample + sample_step, samples)), slice(head, min(head + head_step, heads))


def _by_head(x: np.ndarray, heads: int, sequence: int) -> np.ndarray:
    """View (T, A * D) as (B, A, S, D)."""
    tokens, width = x.shape
    return x.reshape(tokens // sequence, sequence, heads, width // heads).transpose(0, 2, 1, 3)


def attention_forward(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    heads: int,
    sequence: int,
    scale: float,
    context: np.ndarray,
    logsumexp: np.ndarray,
    dropout: Dropout | None,
    scratch: Scratch,
) -> None:
    """Compute softmax(q k^T x scale) v, each token seeing itself and those before it.

    Args:
        q, k, v: (T, A * D) float32, rows grouped by sample
        heads: A
        sequence: S
        scale: of the scores, positive
        context: (T, A * D) float32, written
        logsumexp: (A, T) float32, written: log of the sum of exp of a row's scores
        dropout: of the probabilities, element (head * S + query) * S + key of a sample; None for none
        scratch: lends up to `SCORES_PER_CALL` elements, or those of one block of one pair
    """
    queries, keys, values, contexts = (_by_head(x, heads, sequence) for x in (q, k, v, context))
    draws = draws_of(dropout)
    for start, stop in _blocks(sequence):
        rows = stop - start
        for samples, pairs in _groups(queries.shape[0], heads, rows * stop):
            shape = (samples.stop - samples.start, pairs.stop - pairs.start, rows, stop)
            scores = scratch("attention.scores", shape)
            matmul(queries[samples, pairs, start:stop], keys[samples, pairs, :stop].swapaxes(2, 3), scores)
            _softmax(scores, samples.start, pairs.start, start, sequence, float(scale), logsumexp, draws)
            matmul(scores, values[samples, pairs, :stop], contexts[samples, pairs, start:stop])


@quiet
def attention_backward(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    context: np.ndarray,
    logsumexp: np.ndarray,
    delta_context: np.ndarray,
    heads: int,
    sequence: int,
    scale: float,
    delta_q: np.ndarray,
    delta_k: np.ndarray,
    delta_v: np.ndarray,
    dropout: Dropout | None,
    scratch: Scratch,
) -> None:
    """Compute the deltas of query, key and value.

    Args:
        q, k, v, context, logsumexp, heads, sequence, scale, dropout: as in forward
        delta_context: (T, A * D) float32
        delta_q, delta_k, delta_v: (T, A * D) float32, written; apart from the inputs in memory
        scratch: lends twice what forward needs, and (A, T) and a block's (B, A, S, D) in addition
    """
    tokens, width = q.shape
    queries, keys, values = (_by_head(x, heads, sequence) for x in (q, k, v))
    deltas, delta_queries, delta_keys, delta_values = (
        _by_head(x, heads, sequence) for x in (delta_context, delta_q, delta_k, delta_v)
    )
    draws = draws_of(dropout)
    by_token = (tokens, heads, width // heads)
    dots = scratch("attention.dots", (heads, tokens))
    np.vecdot(delta_context.reshape(by_token), context.reshape(by_token), out=dots.T)
    for start, stop in _blocks(sequence):
        keys_here, rows = stop - start, sequence - start
        for samples, pairs in _groups(queries.shape[0], heads, rows * keys_here):
            here, below = (samples, pairs, slice(start, stop)), (samples, pairs, slice(start, None))
            shape = (samples.stop - samples.start, pairs.stop - pairs.start, rows, keys_here)
            scores, delta = scratch("attention.scores", shape), scratch("attention.delta_scores", shape)
            matmul(queries[below], keys[here].swapaxes(2, 3), scores)
            matmul(deltas[below], values[here].swapaxes(2, 3), delta)
            first = samples.start, pairs.start, start
            _softmax_backward(scores, delta, *first, sequence, float(scale), logsumexp, dots, draws)
            matmul(scores.swapaxes(2, 3), deltas[below], delta_values[here])
            matmul(delta.swapaxes(2, 3), queries[below], delta_keys[here])
            if start == 0:
                matmul(delta, keys[here], delta_queries[below])
            else:
                product = scratch("attention.delta_q", (*shape[:3], width // heads))
                matmul_add(delta, keys[here], delta_queries[below], product)
