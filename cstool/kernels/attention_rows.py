"""The rows of attention: scores to probabilities, and the deltas of these to those of scores.

Source: as `attention.py`.
"""

import math

from cstool.activations import exp
from cstool.kernels._jit import inlined, reduction
from cstool.kernels.bfloat16 import narrow, widen
from cstool.kernels.exponential import bent_tanh, maximum
from cstool.kernels.random import mask_elements, mask_memory


@inlined
def bend(row, factor, cap, slope, distance):  # type: ignore[no-untyped-def]
    """Scale scores, cap them, and take away what distance costs: `distance` for the first, one less for each next."""
    if cap > 0:
        top = row.dtype.type(cap)
        share = factor / top
        for j in range(row.shape[0]):
            row[j] = top * bent_tanh(row[j], share) - slope * row.dtype.type(distance - j)
    else:
        for j in range(row.shape[0]):
            row[j] = row[j] * factor - slope * row.dtype.type(distance - j)


@inlined
def _delta_of_scores(row, delta, factor, cap, slope, distance, total, dot):  # type: ignore[no-untyped-def]
    """Turn scores into probabilities, and the deltas of these into those of q k^T; see `bend`."""
    if cap > 0:
        one = row.dtype.type(1)
        top = row.dtype.type(cap)
        share = factor / top
        for j in range(row.shape[0]):
            bent = bent_tanh(row[j], share)
            probability = exp(top * bent - slope * row.dtype.type(distance - j) - total)
            row[j] = probability
            delta[j] = probability * (delta[j] - dot) * (factor * (one - bent * bent))
    elif slope == 0:
        for j in range(row.shape[0]):
            probability = exp(row[j] * factor - total)
            row[j] = probability
            delta[j] = probability * (delta[j] - dot) * factor
    else:
        for j in range(row.shape[0]):
            probability = exp(row[j] * factor - slope * row.dtype.type(distance - j) - total)
            row[j] = probability
            delta[j] = probability * (delta[j] - dot) * factor


@inlined
def _round_row(row, rounded):  # type: ignore[no-untyped-def]
    for j in range(row.shape[0]):
        rounded[j] = narrow(row[j], rounded)


@reduction
def softmax_rows(  # type: ignore[no-untyped-def]
    scores, sample, head, first_row, lead, shift, reach, sequence, scale, cap, slopes, logsumexp, draws, rounded
):
    """Turn the scores of a block of queries into probabilities, dropped ones included; 0 where nothing is seen.

    Columns below `lead` are the first keys, which all may see; from there on column j is key j + `shift`. The
    probabilities are in `rounded`, too, if that has room for any.
    """
    samples, heads, rows, columns = scores.shape
    zero, one = scores.dtype.type(0), scores.dtype.type(1)
    factor = scores.dtype.type(scale)
    memory = mask_memory(columns, scores)
    for b in range(samples):
        for h in range(heads):
            for i in range(rows):
                row = scores[b, h, i]
                position = first_row + i
                seen = min(lead, position + 1)
                stop = position + 1 - shift
                start = min(max(position + 1 - reach - shift, lead), max(stop, seen))
                # Views of what is seen: loops from 0 vectorise; in others an index may be negative, for all LLVM knows.
                sinks, window = row[:seen], row[start:stop]
                unit = factor
                if cap > 0 or slopes.shape[0] > 0:
                    unit = one
                    slope = slopes[head + h] if slopes.shape[0] > 0 else zero
                    bend(sinks, factor, cap, slope, position)
                    bend(window, factor, cap, slope, position - shift - start)
                largest = sinks[0] if seen > 0 else window[0]
                for j in range(sinks.shape[0]):
                    largest = maximum(largest, sinks[j])
                for j in range(window.shape[0]):
                    largest = maximum(largest, window[j])
                total = zero
                for j in range(sinks.shape[0]):
                    sinks[j] = exp((sinks[j] - largest) * unit)
                    total += sinks[j]
                for j in range(window.shape[0]):
                    window[j] = exp((window[j] - largest) * unit)
                    total += window[j]
                logsumexp[head + h, (sample + b) * sequence + position] = largest * unit + math.log(total)
                probability = one / total
                if draws[0] > 0:
                    element = ((head + h) * sequence + position) * sequence
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
    first_key,
    lead,
    reach,
    sequence,
    scale,
    cap,
    slopes,
    logsumexp,
    dots,
    draws,
    rounded,
    rounded_delta,
):
    """Turn scores into dropped probabilities, and the deltas of these into those of q k^T.

    Both are (samples, heads, rows, keys): the block of keys from `first_key` on, of which the first `lead` are seen
    by all, and the queries from there on. Both are in `rounded` and `rounded_delta`, too, if these have room for any.
    """
    samples, heads, rows, keys = scores.shape
    zero = scores.dtype.type(0)
    factor = scores.dtype.type(scale)
    memory = mask_memory(keys, scores)
    for b in range(samples):
        for h in range(heads):
            slope = slopes[head + h] if slopes.shape[0] > 0 else zero
            for i in range(rows):
                row = scores[b, h, i]
                delta_row = delta[b, h, i]
                position = first_key + i
                seen = min(lead, i + 1)
                stop = min(i + 1, keys)
                start = min(max(i + 1 - reach, lead), max(stop, seen))
                token = (sample + b) * sequence + position
                total = logsumexp[head + h, token]
                dot = dots[head + h, token]
                element = ((head + h) * sequence + position) * sequence + first_key
                for first, last in ((0, seen), (start, stop)):
                    if last <= first:
                        continue
                    part, part_delta = row[first:last], delta_row[first:last]
                    if draws[0] > 0:
                        mask = mask_elements(memory, draws, sample + b, element + first, part.shape[0])
                        for j in range(part.shape[0]):
                            part_delta[j] *= mask[j]
                        _delta_of_scores(part, part_delta, factor, cap, slope, i - first, total, dot)
                        for j in range(part.shape[0]):
                            part[j] *= mask[j]
                    else:
                        _delta_of_scores(part, part_delta, factor, cap, slope, i - first, total, dot)
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
