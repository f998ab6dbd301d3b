"""The choice of tokens by their logits, row by row: each row has its own settings, and nothing of others changes it.

Weights of tokens are exponentials in float64, each step of them rounded in one order, so any CPU chooses the same.
Tokens are ordered by whole numbers: of a float32, its bits as an integer that grows as the float does.

Source: as of `inference/sampling.py`. Knuth, "The art of computer programming", volume 3, section 5.2.5 (radix sort).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from cstool.training.kernels._jit import exact, exact_inlined
from cstool.training.kernels.exponential import bits_of_float
from cstool.training.kernels.rounded_exponential import same_exp

Array = np.ndarray[Any, Any]
NO_TOKEN = -1
"""where a mask or changes of logits have left no token, and in the rest of a row of the likeliest ones"""
_BLOCK = 32
"""logits whose largest one is known"""
_SUMMED = 128
"""weights that are added up before a draw looks for its place among them"""
_LANES = 8
"""weights that are added up side by side"""
_BUCKETS, _BUCKET_WIDTH = 4096, 1 / 64
"""sets of tokens that `top_p` goes through, by the distance of their logits, over the temperature, from the largest"""
_DIGIT_BITS, _DIGITS = 8, 256
_INT32_BITS = 32
_MASK_BITS = 8
_ALL_ALLOWED = 255


class Rows(NamedTuple):
    """Settings of rows, one for each of N; see `Choice` of `inference/sampling.py`.

    Args:
        temperatures, top_ps, min_ps, draws: (N,) float64
        top_ks: (N,) int64, at least 1
        tops: (N,) int64: likeliest tokens that are told; negative where no log probability is wanted
        starts: (N + 1,) int64: first change of each row, and their number
        changed: (changes,) int64: tokens
        amounts: (changes,) float64, added to the logits of these
        mask_rows: (N,) int64: row of the mask; negative for none
        masks: (masks, bytes) uint8: a bit for each token, the first token the lowest bit of the first byte
    """

    temperatures: Array
    top_ps: Array
    min_ps: Array
    draws: Array
    top_ks: Array
    tops: Array
    starts: Array
    changed: Array
    amounts: Array
    mask_rows: Array
    masks: Array


@exact_inlined
def _level(number):  # type: ignore[no-untyped-def]
    """Return an integer that grows as the float does; both zeros have the same."""
    bits = bits_of_float(number)
    return bits if bits >= 0 else np.int32(-(bits & np.int32(0x7FFFFFFF)))


@exact
def _find_peaks(logits, peaks):  # type: ignore[no-untyped-def]
    """Write the largest level of each block of logits, (blocks,) int32; return the first block with the largest."""
    best = 0
    for b in range(peaks.shape[0]):
        peak = _level(logits[b * _BLOCK])
        for j in range(b * _BLOCK, min((b + 1) * _BLOCK, logits.shape[0])):
            peak = max(peak, _level(logits[j]))
        peaks[b] = peak
        if peak > peaks[best]:
            best = b
    return best


@exact
def _sort(keys, items, count):  # type: ignore[no-untyped-def]
    """Sort whole numbers, from 0 to 2^32 - 1, and their items; equal ones keep their order.

    Args:
        keys, items: (2, count or more) int64; the first row of each is sorted, the second is scratch
    """
    starts = np.empty(_DIGITS + 1, np.int64)
    for turn in range(_INT32_BITS // _DIGIT_BITS):
        at, to, shift = turn % 2, 1 - turn % 2, turn * _DIGIT_BITS
        for digit in range(_DIGITS + 1):
            starts[digit] = 0
        for i in range(count):
            starts[(keys[at, i] >> shift & (_DIGITS - 1)) + 1] += 1
        for digit in range(_DIGITS):
            starts[digit + 1] += starts[digit]
        for i in range(count):
            digit = keys[at, i] >> shift & (_DIGITS - 1)
            keys[to, starts[digit]], items[to, starts[digit]] = keys[at, i], items[at, i]
            starts[digit] += 1


@exact
def _find_likeliest(logits, peaks, wanted, keys, tokens):  # type: ignore[no-untyped-def]
    """Write the likeliest tokens in order, of equal ones the first one first; return their number.

    They are `wanted` or more, or else all there are.

    Args:
        keys, tokens: (2, V) int64; the first row of `tokens` is the result
    """
    blocks, found = peaks.shape[0], 0
    least = np.int64(-(2**31))
    if 2 * wanted < blocks:
        # At least as many tokens as blocks are no less than a block's largest one.
        for b in range(blocks):
            keys[0, b] = 2**31 - np.int64(peaks[b])
        _sort(keys, tokens, blocks)
        least = 2**31 - keys[0, wanted - 1]
    for b in range(blocks):
        if peaks[b] < least:
            continue
        for j in range(b * _BLOCK, min((b + 1) * _BLOCK, logits.shape[0])):
            level = np.int64(_level(logits[j]))
            if level >= least:
                keys[0, found], tokens[0, found] = 2**31 - level, j
                found += 1
    _sort(keys, tokens, found)
    return found


@exact
def _weigh(logits, largest, temperature, weights):  # type: ignore[no-untyped-def]
    """Write e to the (logit - largest) / temperature, (n,) float64."""
    for j in range(logits.shape[0]):
        weights[j] = same_exp((np.float64(logits[j]) - largest) / temperature)


@exact
def _sum_block(weights):  # type: ignore[no-untyped-def]
    """Return the sum of a block of weights, in one order."""
    lanes = np.zeros(_LANES, np.float64)
    whole = weights.shape[0] - weights.shape[0] % _LANES
    for start in range(0, whole, _LANES):
        for lane in range(_LANES):
            lanes[lane] += weights[start + lane]
    total = 0.0
    for lane in range(_LANES):
        total += lanes[lane]
    for j in range(whole, weights.shape[0]):
        total += weights[j]
    return total


@exact
def _sum(weights, sums):  # type: ignore[no-untyped-def]
    """Return the sum of weights, and write that of all blocks up to each one, (blocks,) float64."""
    total = 0.0
    for b in range(-(-weights.shape[0] // _SUMMED)):
        total += _sum_block(weights[b * _SUMMED : (b + 1) * _SUMMED])
        sums[b] = total
    return total


@exact
def _drawn(weights, draw, sums):  # type: ignore[no-untyped-def]
    """Return the place of a draw among weights: the first whose sum with all before is above the draw's share."""
    blocks = -(-weights.shape[0] // _SUMMED)
    aim, block = draw * _sum(weights, sums), 0
    while block < blocks - 1 and sums[block] <= aim:
        block += 1
    so_far, place = sums[block - 1] if block > 0 else 0.0, block * _SUMMED
    for j in range(block * _SUMMED, min((block + 1) * _SUMMED, weights.shape[0])):
        if weights[j] > 0:
            place = j
            so_far += weights[j]
            if so_far > aim:
                break
    return place


@exact
def _changed(logits, row, rows, memory):  # type: ignore[no-untyped-def]
    """Return the logits with the changes and the mask of a row: themselves where there is none."""
    mask_row = rows.mask_rows[row]
    if rows.starts[row] == rows.starts[row + 1] and mask_row < 0:
        return logits
    for j in range(logits.shape[0]):
        memory[j] = logits[j]
    for k in range(rows.starts[row], rows.starts[row + 1]):
        memory[rows.changed[k]] = memory[rows.changed[k]] + rows.amounts[k]
    if mask_row >= 0:
        for byte in range(-(-logits.shape[0] // _MASK_BITS)):
            allowed = rows.masks[mask_row, byte]
            if allowed != _ALL_ALLOWED:
                for j in range(byte * _MASK_BITS, min((byte + 1) * _MASK_BITS, logits.shape[0])):
                    if not allowed >> (j % _MASK_BITS) & 1:
                        memory[j] = -np.inf
    return memory


@exact
def _sum_buckets(weights, buckets, totals):  # type: ignore[no-untyped-def]
    for bucket in range(_BUCKETS):
        totals[bucket] = 0.0
    for j in range(weights.shape[0]):
        totals[buckets[j]] += weights[j]


@exact
def _sort_bucket(logits, bucket, buckets, keys, tokens):  # type: ignore[no-untyped-def]
    """Write the tokens of a bucket, the likeliest first; return their number."""
    found = 0
    for j in range(logits.shape[0]):
        if buckets[j] == bucket:
            keys[0, found], tokens[0, found] = 2**31 - np.int64(_level(logits[j])), j
            found += 1
    _sort(keys, tokens, found)
    return found


@exact
def _draw_by_bucket(  # type: ignore[no-untyped-def]
    logits, largest, row, rows, weights, sums, buckets, keys, tokens
):
    """Return a draw from the likeliest of all tokens that have the probability `top_p` together.

    Tokens are in sets by their logits, the likeliest set first. Only two sets are sorted: that of the last token which
    counts, and that of the draw.
    """
    temperature, min_p, totals = rows.temperatures[row], rows.min_ps[row], np.empty(_BUCKETS, np.float64)
    for j in range(logits.shape[0]):
        distance = (largest - np.float64(logits[j])) / temperature / _BUCKET_WIDTH
        buckets[j] = np.int32(distance if distance < _BUCKETS - 1 else _BUCKETS - 1)
    _sum_buckets(weights, buckets, totals)
    aim, so_far, last = rows.top_ps[row] * _sum(weights, sums), totals[0], 0
    while so_far < aim and last < _BUCKETS - 1:
        last += 1
        so_far += totals[last]
    so_far -= totals[last]
    found = _sort_bucket(logits, last, buckets, keys, tokens)
    for i in range(found):
        token = tokens[0, i]
        if so_far < aim or i + last == 0:
            so_far += weights[token]
        else:
            totals[last] -= weights[token]
            weights[token] = 0.0
    if min_p > 0:
        for j in range(logits.shape[0]):
            if weights[j] < min_p:
                weights[j] = 0.0
        _sum_buckets(weights, buckets, totals)
    whole = 0.0
    for bucket in range(last + 1):
        whole += totals[bucket]
    aim, bucket, so_far = rows.draws[row] * whole, 0, totals[0]
    while so_far <= aim and bucket < last:
        bucket += 1
        so_far += totals[bucket]
    while bucket > 0 and totals[bucket] <= 0:
        # Rounding has led behind the last token that counts.
        bucket -= 1
    so_far -= totals[bucket]
    found = _sort_bucket(logits, bucket, buckets, keys, tokens)
    place = 0
    while place < found - 1 and so_far + weights[tokens[0, place]] <= aim and weights[tokens[0, place + 1]] > 0:
        so_far += weights[tokens[0, place]]
        place += 1
    return tokens[0, place]


@exact
def _choose(  # type: ignore[no-untyped-def]
    logits, row, rows, peaks, keys, tokens, weights, sums, buckets
):
    """Return the token of a row, whose logits have their changes."""
    token = _find_peaks(logits, peaks) * _BLOCK
    while _level(logits[token]) < peaks[token // _BLOCK]:
        token += 1
    largest = np.float64(logits[token])
    if largest == -np.inf:
        return NO_TOKEN
    temperature, classes = rows.temperatures[row], logits.shape[0]
    if temperature == 0:
        return token
    top_k, top_p, min_p = min(rows.top_ks[row], classes), rows.top_ps[row], rows.min_ps[row]
    if top_k == classes:
        _weigh(logits, largest, temperature, weights)
        if top_p < 1:
            return _draw_by_bucket(logits, largest, row, rows, weights, sums, buckets, keys, tokens)
    else:
        top_k = min(top_k, _find_likeliest(logits, peaks, top_k, keys, tokens))
        if top_p >= 1:
            # Draws go by the number of a token.
            for i in range(top_k):
                keys[0, i] = tokens[0, i]
            _sort(keys, tokens, top_k)
        for i in range(top_k):
            weights[i] = same_exp((np.float64(logits[tokens[0, i]]) - largest) / temperature)
        if top_p < 1:
            aim, so_far, enough = top_p * _sum(weights[:top_k], sums), weights[0], 1
            while so_far < aim and enough < top_k:
                so_far += weights[enough]
                enough += 1
            top_k = enough
    if min_p > 0:
        for j in range(top_k):
            if weights[j] < min_p:
                weights[j] = 0.0
    place = _drawn(weights[:top_k], rows.draws[row], sums)
    return place if rows.top_ks[row] >= classes else tokens[0, place]


@exact
def choose_rows(  # type: ignore[no-untyped-def]
    logits, first, last, rows, chosen, logprobs, top_tokens, top_logprobs
):
    """Choose a token for each row of a range.

    Args:
        logits: (N, V) float32
        first, last: of the rows
        rows: `Rows`
        chosen: (N,) int64, written: the tokens, or `NO_TOKEN`
        logprobs: (N,) float32, written where wanted: log probabilities by the logits before all changes
        top_tokens: (N, most) int64, written: the likeliest tokens before all changes, `NO_TOKEN` behind them
        top_logprobs: (N, most) float32, written: their log probabilities
    """
    classes = logits.shape[1]
    peaks, sums = np.empty(-(-classes // _BLOCK), np.int32), np.empty(-(-classes // _SUMMED), np.float64)
    keys, tokens = np.empty((2, classes), np.int64), np.empty((2, classes), np.int64)
    weights, memory, buckets = np.empty(classes), np.empty(classes, np.float32), np.empty(classes, np.int32)
    for row in range(first, last):
        changed = _changed(logits[row], row, rows, memory)
        token = _choose(changed, row, rows, peaks, keys, tokens, weights, sums, buckets)
        chosen[row] = token
        tops = min(rows.tops[row], classes)
        if tops < 0 or token < 0:
            continue
        start = _find_peaks(logits[row], peaks) * _BLOCK
        largest = np.float64(logits[row, start])
        for j in range(start, min(start + _BLOCK, classes)):
            largest = max(largest, np.float64(logits[row, j]))
        _weigh(logits[row], largest, 1.0, weights)
        whole = math.log(_sum(weights, sums))
        logprobs[row] = (np.float64(logits[row, token]) - largest) - whole
        if tops > 0:
            tops = min(tops, _find_likeliest(logits[row], peaks, tops, keys, tokens))
        for i in range(tops):
            top_tokens[row, i] = tokens[0, i]
            top_logprobs[row, i] = (np.float64(logits[row, tokens[0, i]]) - largest) - whole
