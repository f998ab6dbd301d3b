"""The rows of attention: scores to probabilities, and deltas of probabilities to deltas of scores.

Source: as `attention.py`.
"""

import math
from typing import NamedTuple

import numpy as np

from cstool.model.activations import exp
from cstool.training.kernels._jit import elementwise, inlined, reduction
from cstool.training.kernels.bfloat16 import narrow, widen
from cstool.training.kernels.exponential import bent_tanh, maximum
from cstool.training.kernels.random import mask_elements, mask_memory


class Rules(NamedTuple):
    """An `Attention` as kernels take it: the keys that a query sees, and the formula of scores.

    The query at position p sees keys p + 1 - `reach` to p + `ahead`, none before the chunk of p, and the sinks; of
    these the keys of its own segment, none if that is negative.

    Args:
        queries, keys: tokens of a sample
        reach, ahead: see above
        chunk: tokens of a chunk, 0 where there is but one
        scale: of the products of queries and keys
        cap: of scores, 0 for none
        biases: (heads, distances) float, added to scores: the bias of key k and query p is at k - p + queries - 1.
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
    """Scale scores, cap them, and add their biases."""
    if cap > 0:
        top = row.dtype.type(cap)
        share = factor / top
        for j in range(row.shape[0]):
            row[j] = top * bent_tanh(row[j], share) + bias[j]
    else:
        for j in range(row.shape[0]):
            row[j] = row[j] * factor + bias[j]


@inlined
def ranges_of(rules, position, shift, lead, columns):  # type: ignore[no-untyped-def]
    """Return the columns that a query sees, a number of first ones and a range, and the key from which on it sees all.

    Columns below `lead` are sinks; from there on column j is key j + `shift`.
    """
    own = position + 1 - shift
    seen = max(min(lead, own), 0)
    stop = max(min(own + rules.ahead, columns), 0)
    near = position + 1 - rules.reach
    if rules.chunk > 0:
        near = max(near, position // rules.chunk * rules.chunk)
    begin = lead if rules.columns.shape[0] > 0 else max(near - shift, lead)
    return seen, min(begin, max(stop, seen)), stop, near


@inlined
def seen_range(own, others):  # type: ignore[no-untyped-def]
    """Return first and last + 1 of the `others` whose segment is one of `own`, no negative one; (0, 0) for none."""
    first = _unseen(own, others)
    if first == others.shape[0]:
        return 0, 0
    return first, others.shape[0] - _unseen(own, others[::-1])


@inlined
def _unseen(own, others):  # type: ignore[no-untyped-def]
    """Return the number of first ones of no segment of `own`; of neighbours in one segment, one is looked for."""
    count = 0
    while count < others.shape[0]:
        segment = others[count]
        if segment >= 0:
            for i in range(own.shape[0]):
                if own[i] == segment:
                    return count
        while count < others.shape[0] and others[count] == segment:
            count += 1
    return count


@inlined
def _hide(row, unseen, rules, sample, position, near, key):  # type: ignore[no-untyped-def]
    """Write `unseen` for the keys, from `key` on, that a query does not see though they are in its range."""
    count = row.shape[0]
    if rules.key_segments.shape[0] > 0:
        segment, first = rules.query_segments[sample * rules.queries + position], sample * rules.keys + key
        segments = rules.key_segments[first : first + count]
        for j in range(count):
            row[j] = row[j] if segments[j] == segment and segment >= 0 else unseen
    if rules.columns.shape[0] > 0:
        columns = rules.columns[key : key + max(0, min(near - key, count))]
        for j in range(columns.shape[0]):
            row[j] = row[j] if columns[j] else unseen


@inlined
def _delta_of_scores(row, delta, factor, total, dot):  # type: ignore[no-untyped-def]
    """Turn products of a query and keys into probabilities, and deltas of probabilities into deltas of products."""
    for j in range(row.shape[0]):
        probability = exp(row[j] * factor - total)
        row[j] = probability
        delta[j] = probability * (delta[j] - dot) * factor


@inlined
def _bent_probabilities(row, factor, cap, bias, total, slopes):  # type: ignore[no-untyped-def]
    """Turn products into probabilities where something is added to scores, or they are capped: see `bend`.

    With a cap the slopes of scores in the products are written, too.
    """
    if cap > 0:
        one = row.dtype.type(1)
        top = row.dtype.type(cap)
        share = factor / top
        for j in range(row.shape[0]):
            bent = bent_tanh(row[j], share)
            row[j] = exp(top * bent + bias[j] - total)
            slopes[j] = factor * (one - bent * bent)
    else:
        for j in range(row.shape[0]):
            row[j] = exp(row[j] * factor + bias[j] - total)


@inlined
def _delta_of_bent_scores(row, delta, factor, cap, dot, slopes):  # type: ignore[no-untyped-def]
    """Turn the deltas of such probabilities into deltas of products."""
    if cap > 0:
        for j in range(row.shape[0]):
            delta[j] = row[j] * (delta[j] - dot) * slopes[j]
    else:
        for j in range(row.shape[0]):
            delta[j] = row[j] * (delta[j] - dot) * factor


@inlined
def _round_row(row, rounded):  # type: ignore[no-untyped-def]
    for j in range(row.shape[0]):
        rounded[j] = narrow(row[j], rounded)


@reduction
def softmax_rows(  # type: ignore[no-untyped-def]
    scores, sample, head, first_row, lead, shift, rules, biases, logsumexp, draws, rounded
):
    """Turn the products of a block of queries and keys into probabilities, dropped ones included; 0 where none is seen.

    Columns below `lead` are the first keys, which all may see; from there on column j is key j + `shift`. The
    probabilities are in `rounded`, too, if that has room for any. The log-sum-exp of a query that sees nothing is
    infinity, so that its probabilities are 0 backward as well. `biases` are those of the rules, or None where these
    have none: then half as much is compiled.
    """
    samples, heads, rows, columns = scores.shape
    zero, one = scores.dtype.type(0), scores.dtype.type(1)
    nothing = scores.dtype.type(-np.inf)
    factor = scores.dtype.type(rules.scale)
    memory = mask_memory(columns, scores)
    is_masked = rules.key_segments.shape[0] > 0 or rules.columns.shape[0] > 0
    is_narrowed = rules.key_segments.shape[0] > 0 and lead == 0
    low, high = 0, columns
    for b in range(samples):
        if is_narrowed:
            # Rows have the same bits whether other segments at the ends are among the columns or not.
            query, key = (sample + b) * rules.queries + first_row, (sample + b) * rules.keys + shift
            own, others = rules.query_segments[query : query + rows], rules.key_segments[key : key + columns]
            low, high = seen_range(own, others)
        for h in range(heads):
            for i in range(rows):
                row = scores[b, h, i]
                position = first_row + i
                seen, start, stop, near = ranges_of(rules, position, shift, lead, columns)
                start, stop = max(start, low), min(stop, high)
                # Views of seen keys: loops from 0 vectorise; in others an index may be negative, for all LLVM knows.
                sinks, window = row[:seen], row[start:stop]
                unit = factor
                if biases is not None:
                    unit = one
                    bias = biases[head + h, rules.queries - 1 - position :]
                    bend(sinks, factor, rules.cap, bias)
                    bend(window, factor, rules.cap, bias[start + shift :])
                    if is_masked:
                        _hide(sinks, nothing, rules, sample + b, position, near, 0)
                        _hide(window, nothing, rules, sample + b, position, near, start + shift)
                largest = nothing
                for j in range(sinks.shape[0]):
                    largest = maximum(largest, sinks[j])
                for j in range(window.shape[0]):
                    largest = maximum(largest, window[j])
                if largest == nothing and is_masked:
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
                if draws is not None and draws[0] > 0:
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
    biases,
    logsumexp,
    dots,
    draws,
    rounded,
    rounded_delta,
    sums,
):
    """Turn products of queries and keys into dropped probabilities, and their deltas into deltas of the products.

    Both are (samples, heads, rows, keys): the queries from `first_row` on, and the block of keys from `first_key` on,
    of which the first `lead` are seen by all. Both are in `rounded` and `rounded_delta`, too, if these have room for
    any. `sums` is of the shape of the biases: their deltas are added there, if there is room for any.
    """
    samples, heads, rows, keys = scores.shape
    zero = scores.dtype.type(0)
    factor = scores.dtype.type(rules.scale)
    memory = mask_memory(keys, scores)
    slopes = np.empty(keys, scores.dtype)
    is_masked = rules.key_segments.shape[0] > 0 or rules.columns.shape[0] > 0
    for b in range(samples):
        for h in range(heads):
            for i in range(rows):
                row = scores[b, h, i]
                delta_row = delta[b, h, i]
                position = first_row + i
                seen, start, stop, near = ranges_of(rules, position, first_key, lead, keys)
                token = (sample + b) * rules.queries + position
                total = logsumexp[head + h, token]
                dot = dots[head + h, token]
                element = ((head + h) * rules.queries + position) * rules.keys + first_key
                for first, last in ((0, seen), (start, stop)):
                    if last <= first:
                        continue
                    part, part_delta = row[first:last], delta_row[first:last]
                    if draws is not None and draws[0] > 0:
                        mask = mask_elements(memory, draws, sample + b, element + first, part.shape[0])
                        for j in range(part.shape[0]):
                            part_delta[j] *= mask[j]
                    if biases is not None:
                        key = first_key + first
                        nearest = key - position + rules.queries - 1
                        bias = biases[head + h, nearest:]
                        _bent_probabilities(part, factor, rules.cap, bias, total, slopes)
                        if is_masked:
                            _hide(part, zero, rules, sample + b, position, near, key)
                        if sums.shape[0] > 0:
                            of_head = sums[head + h, nearest:]
                            for j in range(part.shape[0]):
                                of_head[j] += part[j] * (part_delta[j] - dot)
                        _delta_of_bent_scores(part, part_delta, factor, rules.cap, dot, slopes)
                    else:
                        _delta_of_scores(part, part_delta, factor, total, dot)
                    if draws is not None and draws[0] > 0:
                        # The memory has it still.
                        mask = memory[(element + first) % 4 :]
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


@elementwise
def add_by_bucket(table, buckets, biases):  # type: ignore[no-untyped-def]
    """Add the biases of a table, (buckets, heads), to biases, (heads, distances), by the bucket of each distance."""
    for h in range(biases.shape[0]):
        for d in range(biases.shape[1]):
            biases[h, d] += table[buckets[d], h]


@elementwise
def sum_by_bucket(sums, buckets, gradient):  # type: ignore[no-untyped-def]
    """Write the sums of (heads, distances) over the distances of each bucket, (buckets, heads); sums are in float64."""
    totals = np.empty(gradient.shape[0], np.float64)
    for h in range(sums.shape[0]):
        totals[:] = 0
        for d in range(sums.shape[1]):
            totals[buckets[d]] += sums[h, d]
        for bucket in range(totals.shape[0]):
            gradient[bucket, h] = totals[bucket]
