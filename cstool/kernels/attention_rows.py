"""The rows of attention: scores to probabilities, and the deltas of these to those of scores.

Source: as `attention.py`.
"""

import math
from typing import NamedTuple

import numpy as np

from cstool.activations import exp
from cstool.kernels._jit import inlined, reduction
from cstool.kernels.bfloat16 import narrow, widen
from cstool.kernels.exponential import bent_tanh, maximum
from cstool.kernels.random import mask_elements, mask_memory


class Rules(NamedTuple):
    """An `Attention` as kernels take it: which keys a query sees, and what becomes of a score.

    The query at position p sees keys p + 1 - `reach` to p + `ahead`, none before the chunk of p, and the sinks; of
    these the keys of its own segment.

    Args:
        queries, keys: tokens of a sample
        reach, ahead: see above
        chunk: tokens of a chunk
        scale: of the products of queries and keys
        cap: of scores, 0 for none
        biases: (heads, distances) float, what is added to scores: that of key k and query p is at k - p + queries - 1.
            (0, 0) where there is nothing to add: no cap, no bias, no segments, no columns
        query_segments: (T,) int32, empty for none
        key_segments: (tokens of keys,) int32, empty for none
        columns: (keys,) bool, keys that are seen from further away, too; empty for none
    """

    queries: int
    keys: int
    reach: int
    ahead: int
    chunk: int
    scale: float
    cap: float
    biases: np.ndarray
    query_segments: np.ndarray
    key_segments: np.ndarray
    columns: np.ndarray


@inlined
def bend(row, factor, cap, bias):  # type: ignore[no-untyped-def]
    """Scale scores, cap them, and add what there is to add."""
    if cap > 0:
        top = row.dtype.type(cap)
        share = factor / top
        for j in range(row.shape[0]):
            row[j] = top * bent_tanh(row[j], share) + bias[j]
    else:
        for j in range(row.shape[0]):
            row[j] = row[j] * factor + bias[j]


@inlined
def _ranges(rules, position, shift, lead, columns):  # type: ignore[no-untyped-def]
    """Say what a query sees of some columns: the first so many, and a range; and from which key on it sees all.

    Columns below `lead` are sinks; from there on column j is key j + `shift`.
    """
    own = position + 1 - shift
    seen = max(min(lead, own), 0)
    stop = max(min(own + rules.ahead, columns), 0)
    near = max(position + 1 - rules.reach, position // rules.chunk * rules.chunk)
    begin = lead if rules.columns.shape[0] > 0 else max(near - shift, lead)
    return seen, min(begin, max(stop, seen)), stop, near


@inlined
def _bias(rules, memory, head, sample, position, near, key, count):  # type: ignore[no-untyped-def]
    """Return what is added to the scores of a query and `count` keys from `key` on: -inf for those that it does not see.

    The result is only to be read, before the next call with this memory.
    """
    bias = rules.biases[head][key - position + rules.queries - 1 :][:count]
    if rules.key_segments.shape[0] == 0 and rules.columns.shape[0] == 0:
        return bias
    unseen = memory.dtype.type(-np.inf)
    hidden = memory[:count]
    for j in range(count):
        hidden[j] = bias[j]
    if rules.key_segments.shape[0] > 0:
        segment = rules.query_segments[sample * rules.queries + position]
        segments = rules.key_segments[sample * rules.keys + key :][:count]
        for j in range(count):
            hidden[j] = hidden[j] if segments[j] == segment else unseen
    if rules.columns.shape[0] > 0:
        columns = rules.columns[key:][: max(0, min(near - key, count))]
        for j in range(columns.shape[0]):
            hidden[j] = hidden[j] if columns[j] else unseen
    return hidden


@inlined
def _delta_of_scores(row, delta, factor, total, dot):  # type: ignore[no-untyped-def]
    """Turn products of a query and keys into probabilities, and the deltas of these into those of the products."""
    for j in range(row.shape[0]):
        probability = exp(row[j] * factor - total)
        row[j] = probability
        delta[j] = probability * (delta[j] - dot) * factor


@inlined
def _delta_of_bent_scores(row, delta, factor, cap, bias, total, dot, slopes, sums):  # type: ignore[no-untyped-def]
    """Likewise where something is added to scores, or they are capped: see `bend`.

    `slopes` is memory for as many numbers. The deltas of what is added are added to `sums`, if that has room for any.
    """
    if cap > 0:
        one = row.dtype.type(1)
        top = row.dtype.type(cap)
        share = factor / top
        for j in range(row.shape[0]):
            bent = bent_tanh(row[j], share)
            probability = exp(top * bent + bias[j] - total)
            row[j] = probability
            delta[j] = probability * (delta[j] - dot)
            slopes[j] = factor * (one - bent * bent)
    else:
        for j in range(row.shape[0]):
            probability = exp(row[j] * factor + bias[j] - total)
            row[j] = probability
            delta[j] = probability * (delta[j] - dot)
            slopes[j] = factor
    for j in range(sums.shape[0]):
        sums[j] += delta[j]
    for j in range(row.shape[0]):
        delta[j] *= slopes[j]


@inlined
def _round_row(row, rounded):  # type: ignore[no-untyped-def]
    for j in range(row.shape[0]):
        rounded[j] = narrow(row[j], rounded)


@reduction
def softmax_rows(  # type: ignore[no-untyped-def]
    scores, sample, head, first_row, lead, shift, rules, logsumexp, draws, rounded
):
    """Turn the products of a block of queries and keys into probabilities, dropped ones included; 0 where none is seen.

    Columns below `lead` are the first keys, which all may see; from there on column j is key j + `shift`. The
    probabilities are in `rounded`, too, if that has room for any. The log-sum-exp of a query that sees nothing is
    infinity, so that its probabilities are 0 backward as well.
    """
    samples, heads, rows, columns = scores.shape
    zero, one = scores.dtype.type(0), scores.dtype.type(1)
    nothing = scores.dtype.type(-np.inf)
    factor = scores.dtype.type(rules.scale)
    memory = mask_memory(columns, scores)
    hidden = np.empty(columns, scores.dtype)
    for b in range(samples):
        for h in range(heads):
            for i in range(rows):
                row = scores[b, h, i]
                position = first_row + i
                seen, start, stop, near = _ranges(rules, position, shift, lead, columns)
                # Views of what is seen: loops from 0 vectorise; in others an index may be negative, for all LLVM knows.
                sinks, window = row[:seen], row[start:stop]
                unit = factor
                if rules.biases.shape[0] > 0:
                    unit = one
                    bias = _bias(rules, hidden, head + h, sample + b, position, near, 0, seen)
                    bend(sinks, factor, rules.cap, bias)
                    key = start + shift
                    bias = _bias(rules, hidden, head + h, sample + b, position, near, key, window.shape[0])
                    bend(window, factor, rules.cap, bias)
                largest = nothing
                for j in range(sinks.shape[0]):
                    largest = maximum(largest, sinks[j])
                for j in range(window.shape[0]):
                    largest = maximum(largest, window[j])
                if largest == nothing and (rules.key_segments.shape[0] > 0):
                    row[:] = zero
                    logsumexp[head + h, (sample + b) * rules.queries + position] = -nothing
                    if rounded.shape[0] > 0:
                        _round_row(row, rounded[b, h, i])
                    continue
                total = zero
                for j in range(sinks.shape[0]):
                    sinks[j] = exp((sinks[j] - largest) * unit)
                    total += sinks[j]
                for j in range(window.shape[0]):
                    window[j] = exp((window[j] - largest) * unit)
                    total += window[j]
                logsumexp[head + h, (sample + b) * rules.queries + position] = largest * unit + math.log(total)
                probability = one / total
                if draws[0] > 0:
                    element = ((head + h) * rules.queries + position) * rules.keys
                    mask = mask_elements(memory, draws, sample + b, element, sinks.shape[0])
                    for j in range(sinks.shape[0]):
                        sinks[j] *= probability * mask[j]
                    mask = mask_elements(memory, draws, sample + b, element + start + shift, window.shape[0])
                    for j in range(window.shape[0]):
                        window[j] *= probability * mask[j]
                else:
                    for j in range(sinks.shape[0]):
                        sinks[j] *= probability
                    for j in range(window.shape[0]):
                        window[j] *= probability
                row[seen:start] = zero
                row[max(stop, start) :] = zero
                if rounded.shape[0] > 0:
                    _round_row(row, rounded[b, h, i])


@reduction
def softmax_rows_backward(  # type: ignore[no-untyped-def]
    scores,
    delta,
    sample,
    head,
    first_row,
    lead,
    first_key,
    rules,
    logsumexp,
    dots,
    draws,
    rounded,
    rounded_delta,
    sums,
):
    """Turn products of queries and keys into dropped probabilities, and the deltas of these into those of the products.

    Both are (samples, heads, rows, keys): the queries from `first_row` on, and the block of keys from `first_key` on,
    of which the first `lead` are seen by all. Both are in `rounded` and `rounded_delta`, too, if these have room for
    any. `sums` is of the shape of the biases: their deltas are added there, if there is room for any.
    """
    samples, heads, rows, keys = scores.shape
    zero = scores.dtype.type(0)
    factor = scores.dtype.type(rules.scale)
    memory = mask_memory(keys, scores)
    hidden, slopes = np.empty(keys, scores.dtype), np.empty(keys, scores.dtype)
    for b in range(samples):
        for h in range(heads):
            for i in range(rows):
                row = scores[b, h, i]
                delta_row = delta[b, h, i]
                position = first_row + i
                seen, start, stop, near = _ranges(rules, position, first_key, lead, keys)
                token = (sample + b) * rules.queries + position
                total = logsumexp[head + h, token]
                dot = dots[head + h, token]
                element = ((head + h) * rules.queries + position) * rules.keys + first_key
                for first, last in ((0, seen), (start, stop)):
                    if last <= first:
                        continue
                    part, part_delta = row[first:last], delta_row[first:last]
                    mask = mask_elements(memory, draws, sample + b, element + first, part.shape[0])
                    if draws[0] > 0:
                        for j in range(part.shape[0]):
                            part_delta[j] *= mask[j]
                    if rules.biases.shape[0] > 0:
                        key, count = first_key + first, part.shape[0]
                        bias = _bias(rules, hidden, head + h, sample + b, position, near, key, count)
                        part_sums = slopes[:0]
                        if sums.shape[0] > 0:
                            part_sums = sums[head + h][key - position + rules.queries - 1 :][:count]
                        _delta_of_bent_scores(part, part_delta, factor, rules.cap, bias, total, dot, slopes, part_sums)
                    else:
                        _delta_of_scores(part, part_delta, factor, total, dot)
                    if draws[0] > 0:
                        for j in range(part.shape[0]):
                            part[j] *= mask[j]
                row[seen:start] = zero
                delta_row[seen:start] = zero
                row[max(stop, start) :] = zero
                delta_row[max(stop, start) :] = zero
                if rounded.shape[0] > 0:
                    _round_row(row, rounded[b, h, i])
                    _round_row(delta_row, rounded_delta[b, h, i])


@reduction
def row_products(x, y, heads, products):  # type: ignore[no-untyped-def]
    """Write the sum of x times y over the width of each head, (heads, T); x and y are (T, heads * D)."""
    tokens, width = x.shape
    head_width = width // heads
    for t in range(tokens):
        for h in range(heads):
            total = products.dtype.type(0)
            for j in range(h * head_width, (h + 1) * head_width):
                total += widen(x[t, j]) * widen(y[t, j])
            products[h, t] = total
