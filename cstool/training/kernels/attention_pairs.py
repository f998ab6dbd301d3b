"""Attention of large matrices: a kernel goes by (sample, head) pairs, so that the scores of a pair stay in cache.

It finds the keys that a sample's segments leave, multiplies by the tiles of `block_products.py`, and turns rows of
scores into probabilities by vectors of 16. Arrays are float32; a matrix is an address and the distance of its rows in
bytes. Scores have no cap, and a query sees a single range of keys.

Source: as `attention.py`; of exp, as `exponential.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from cstool.foundation.compiled.intrinsics import INT32, INT64, Builder, Value, intrinsic_of
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels._vectors import (
    FLOAT_BYTES,
    LANES,
    Memory,
    every,
    first_lanes,
    loop,
    multiply_add,
    shuffle,
    splat,
)
from cstool.training.kernels.attention_rows import ranges_of, seen_range
from cstool.training.kernels.block_products import FULL, SEEN_BY_TERMS, SEEN_COLUMNS, SEEN_TERMS, matrix, turn
from cstool.training.kernels.exponential import emit_exp
from cstool.training.kernels.random import mask_elements, mask_memory

_SEGMENTS = ir.VectorType(INT32, LANES)
_NEXT, _NONE = np.int64(FLOAT_BYTES), np.int64(0)
"""not literals, for each of which Numba would compile products anew"""
_NOTHING, _ONE = np.float32(-np.inf), np.float32(1)


def _by_vectors(
    b: Builder, count: Value, carried: list[Value], body: Callable[[Value, Value | None, list[Value]], list[Value]]
) -> list[Value]:
    """Emit a loop over vectors of a row: body(offset in bytes, mask, values) returns the next values."""
    whole = b.and_(count, ir.Constant(INT64, -LANES))

    def at(i: Value, mask: Value | None, values: tuple[Value, ...]) -> list[Value]:
        return body(b.mul(i, ir.Constant(INT64, FLOAT_BYTES)), mask, list(values))

    values = loop(b, ir.Constant(INT64, 0), whole, LANES, carried, lambda i, *found: at(i, None, found))
    # Once at most: the rest of the row.
    return loop(b, whole, count, LANES, values, lambda i, *found: at(i, first_lanes(b, b.sub(count, i)), found))


def _folded(b: Builder, vector: Value, join: Callable[[Value, Value], Value]) -> Value:
    """Join all lanes of a vector to one number."""
    for distance in (8, 4, 2, 1):
        vector = join(vector, shuffle(b, vector, None, [lane ^ distance for lane in range(LANES)]))
    return b.extract_element(vector, ir.Constant(INT32, 0))


def _where(b: Builder, mask: Value | None, vector: Value, other: float) -> Value:
    return vector if mask is None else b.select(mask, vector, every(other))


def _larger(b: Builder, x: Value, y: Value) -> Value:
    """Of each lane the larger number; y where either is NaN."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def _row_kernel(emit: Callable[..., Value | None], addresses: int, numbers: int, *, returns: bool) -> Any:
    """Return an intrinsic of int64 addresses and counts, then float32 numbers."""

    def signature_of(*_given: Any) -> Any:
        arguments = [types.int64] * addresses + [types.float32] * numbers
        return (types.float32 if returns else types.void)(*arguments)

    return intrinsic_of(addresses + numbers, signature_of, lambda b, _signature, *values: emit(b, *values))


def _emit_peak(b: Builder, row: Value, count: Value) -> Value:
    def body(at: Value, mask: Value | None, values: list[Value]) -> list[Value]:
        return [_larger(b, values[0], _where(b, mask, Memory(b, row).load_where(at, mask), -math.inf))]

    (peak,) = _by_vectors(b, count, [every(-math.inf)], body)
    return _folded(b, peak, lambda x, y: _larger(b, x, y))


def _hidden(
    b: Builder, at: Value, mask: Value | None, segments: Value, segment: Value, x: Value, unseen: float
) -> Value:
    """Write `unseen` where a key is of another segment than the query."""
    own = Memory(b, segments).load_where(at, mask, _SEGMENTS)
    return b.select(b.icmp_signed("==", own, splat(b, b.trunc(segment, INT32))), x, every(unseen))


def _emit_bend(
    b: Builder, row: Value, count: Value, bias: Value, segments: Value, segment: Value, factor: Value
) -> Value:
    """Scale scores, add biases, hide the keys of other segments, and return the largest score."""
    scale = splat(b, factor)

    def body(at: Value, mask: Value | None, values: list[Value]) -> list[Value]:
        x = multiply_add(b, Memory(b, row).load_where(at, mask), scale, Memory(b, bias).load_where(at, mask))
        x = _hidden(b, at, mask, segments, segment, x, -math.inf)
        Memory(b, row).store_where(at, mask, x)
        return [_larger(b, values[0], _where(b, mask, x, -math.inf))]

    (peak,) = _by_vectors(b, count, [every(-math.inf)], body)
    return _folded(b, peak, lambda x, y: _larger(b, x, y))


def _emit_exponentials(b: Builder, row: Value, count: Value, unit: Value, peak: Value) -> Value:
    scale, start = splat(b, unit), b.fneg(splat(b, peak))

    def body(at: Value, mask: Value | None, values: list[Value]) -> list[Value]:
        x = emit_exp(b, multiply_add(b, Memory(b, row).load_where(at, mask), scale, start))
        Memory(b, row).store_where(at, mask, x)
        return [b.fadd(values[0], _where(b, mask, x, 0.0))]

    (total,) = _by_vectors(b, count, [every(0.0)], body)
    return _folded(b, total, b.fadd)


def _emit_scale(b: Builder, row: Value, count: Value, factor: Value) -> None:
    scale = splat(b, factor)

    def body(at: Value, mask: Value | None, _values: list[Value]) -> list[Value]:
        Memory(b, row).store_where(at, mask, b.fmul(Memory(b, row).load_where(at, mask), scale))
        return []

    _by_vectors(b, count, [], body)


def _emit_clear(b: Builder, row: Value, count: Value) -> None:
    def body(at: Value, mask: Value | None, _values: list[Value]) -> list[Value]:
        Memory(b, row).store_where(at, mask, every(0.0))
        return []

    _by_vectors(b, count, [], body)


def _make_back(*, bends: bool, sums: bool) -> Any:
    """Return back(row, count, delta, bias, segments, segment, sums, factor, total, dot) for a row.

    Products become probabilities, deltas of these become deltas of products, and `sums` get the deltas of biases.
    """

    def emit(
        b: Builder,
        row: Value,
        count: Value,
        delta: Value,
        bias: Value,
        segments: Value,
        segment: Value,
        bias_sums: Value,
        factor: Value,
        total: Value,
        dot: Value,
    ) -> None:
        scale, base, every_dot = splat(b, factor), b.fneg(splat(b, total)), splat(b, dot)

        def body(at: Value, mask: Value | None, _values: list[Value]) -> list[Value]:
            rest = b.fadd(Memory(b, bias).load_where(at, mask), base) if bends else base
            x = emit_exp(b, multiply_add(b, Memory(b, row).load_where(at, mask), scale, rest))
            x = _hidden(b, at, mask, segments, segment, x, 0.0) if bends else x
            Memory(b, row).store_where(at, mask, x)
            y = b.fmul(x, b.fsub(Memory(b, delta).load_where(at, mask), every_dot))
            if sums:
                Memory(b, bias_sums).store_where(at, mask, b.fadd(Memory(b, bias_sums).load_where(at, mask), y))
            Memory(b, delta).store_where(at, mask, b.fmul(y, scale))
            return []

        _by_vectors(b, count, [], body)

    return _row_kernel(emit, 7, 3, returns=False)


_peak = _row_kernel(_emit_peak, 2, 0, returns=True)
_bend = _row_kernel(_emit_bend, 5, 1, returns=True)
_exponentials = _row_kernel(_emit_exponentials, 2, 2, returns=True)
_scale = _row_kernel(_emit_scale, 2, 1, returns=False)
_clear = _row_kernel(_emit_clear, 2, 0, returns=False)
_back, _back_bent = _make_back(bends=False, sums=False), _make_back(bends=True, sums=False)
_back_summed = _make_back(bends=True, sums=True)


@elementwise
def _drop(row, mask, count):  # type: ignore[no-untyped-def]
    for j in range(count):
        row[j] *= mask[j]


@elementwise
def _has_nan(row):  # type: ignore[no-untyped-def]
    found = False
    for j in range(row.shape[0]):
        found |= math.isnan(row[j])
    return found


@elementwise
def _at(array):  # type: ignore[no-untyped-def]
    return np.int64(array.ctypes.data)


@elementwise
def _segments(segments, sample, count):  # type: ignore[no-untyped-def]
    """Return the segments of a sample; where tokens have none, all are in one."""
    return segments[sample * count : (sample + 1) * count] if segments.shape[0] > 0 else np.zeros(count, np.int32)


@elementwise
def _narrowed(first, last, own, others):  # type: ignore[no-untyped-def]
    """Cut off the ends of a range of others, whole vectors of them, that are of no segment among `own`.

    Where nothing is left, the range is empty.
    """
    low, high = seen_range(own, others[first:last])
    return first + low // LANES * LANES, min(last, first + (high + LANES - 1) // LANES * LANES)


@elementwise
def _clear_rows(at, step, rows, width):  # type: ignore[no-untyped-def]
    for i in range(rows):
        _clear(at + i * step, width)


@elementwise
def forward_pairs(  # type: ignore[no-untyped-def]
    query, key, value, context, counts, kv_heads, blocks, rules, biases, logsumexp, draws, scores, turned
):
    """Compute the contexts of a range of heads of keys and values, see `attention_forward`.

    Args:
        query, key, value, context: address, and distance of tokens [bytes]
        counts: samples, query heads for each head of keys and values, width of a head
        kv_heads: first and last + 1
        blocks: (n, 4) int64 of queries, and of the keys that they see by their positions: first and last + 1 of each
        rules: without cap and columns
        biases: of the rules; None where these have none: then half as much is compiled
        logsumexp: (heads, T)
        scores: (n,) scratch for the scores of any block
        turned: (n,) scratch for keys of a head
    """
    samples, sharing, width = counts
    factor, head_step = np.float32(rules.scale), FLOAT_BYTES * width
    by_columns, by_terms = (SEEN_COLUMNS, SEEN_TERMS) if rules.ahead == 0 else (FULL, FULL)
    scores_at, turned_at, turned_step = _at(scores), _at(turned), FLOAT_BYTES * rules.keys
    if draws is not None:
        memory = mask_memory(rules.keys, scores)
    ranges = np.empty(blocks.shape, np.int64)
    for b in range(samples):
        if biases is not None:
            own = _segments(rules.query_segments, b, rules.queries)
            others = _segments(rules.key_segments, b, rules.keys)
        for n in range(blocks.shape[0]):
            start, stop, first, last = blocks[n]
            if biases is not None:
                first, last = _narrowed(first, last, own[start:stop], others)
            ranges[n, 0], ranges[n, 1], ranges[n, 2], ranges[n, 3] = start, stop, first, last
        for g in range(kv_heads[0], kv_heads[1]):
            keys = key[0] + b * rules.keys * key[1] + g * head_step
            values = value[0] + b * rules.keys * value[1] + g * head_step
            turn(keys, key[1], turned_at, turned_step, rules.keys, width)
            for h in range(g * sharing, (g + 1) * sharing):
                for n in range(blocks.shape[0]):
                    start, stop, first, last = ranges[n]
                    rows, columns = stop - start, last - first
                    token = b * rules.queries + start
                    to = context[0] + token * context[1] + h * head_step
                    if columns == 0:
                        _clear_rows(to, context[1], rows, width)
                        logsumexp[h, token : token + rows] = np.inf
                        continue
                    seen, step = start + 1 - first, FLOAT_BYTES * columns
                    queries = query[0] + token * query[1] + h * head_step
                    w, sizes = turned_at + FLOAT_BYTES * first, (rows, columns, width)
                    matrix(queries, query[1], _NEXT, w, turned_step, scores_at, step, sizes, _NONE, by_columns, seen)
                    for i in range(rows):
                        position, row = start + i, scores_at + i * step
                        _, begin, end, _ = ranges_of(rules, position, first, 0, columns)
                        at, count = row + FLOAT_BYTES * begin, end - begin
                        part = scores[i * columns + begin : i * columns + end]
                        if biases is None:
                            unit, peak = factor, _peak(at, count) * factor
                        else:
                            bias = _at(biases[h, first + begin - position + rules.queries - 1 :])
                            hidden, segment = _at(others[first + begin :]), own[position]
                            unit, peak = _ONE, _bend(at, count, bias, hidden, segment, factor)
                            is_masked = rules.key_segments.shape[0] > 0
                            if is_masked and (segment < 0 or (peak == _NOTHING and not _has_nan(part))):
                                _clear(row, columns)
                                logsumexp[h, token + i] = np.inf
                                continue
                        total = _exponentials(at, count, unit, peak)
                        logsumexp[h, token + i] = peak + math.log(total)
                        _scale(at, count, _ONE / total)
                        if draws is not None and draws[0] > 0:
                            element = (h * rules.queries + position) * rules.keys + first + begin
                            _drop(part, mask_elements(memory, draws, b, element, count), count)
                        _clear(row, begin)
                        _clear(row + FLOAT_BYTES * end, columns - end)
                    w, sizes = values + first * value[1], (rows, width, columns)
                    matrix(scores_at, step, _NEXT, w, value[1], to, context[1], sizes, _NONE, by_terms, seen)


@elementwise
def backward_pairs(  # type: ignore[no-untyped-def]
    query,
    key,
    value,
    delta_context,
    delta_query,
    delta_key,
    delta_value,
    counts,
    kv_heads,
    blocks,
    rules,
    biases,
    logsumexp,
    dots,
    draws,
    scores,
    delta_scores,
    turned,
    turned_values,
    sums,
):
    """Compute the deltas of a range of heads of keys and values, and of their queries, see `attention_backward`.

    Args:
        query, key, value, delta_context, delta_query, delta_key, delta_value: address, and distance of tokens [bytes]
        blocks: (n, 4) int64 of keys, and of the queries that see any: first and last + 1 of each
        dots: (heads, T) products of each row of contexts and its delta
        scores, delta_scores: (n,) scratch for the scores of any block
        turned, turned_values: (n,) scratch for keys, or values, of a head
        sums: of the shape of the biases: their deltas are added there, if there is room for any

    Others are as `forward_pairs` has them.
    """
    samples, sharing, width = counts
    factor, head_step = np.float32(rules.scale), FLOAT_BYTES * width
    by_columns, by_terms, from_terms = FULL, FULL, FULL
    if rules.ahead == 0:
        by_columns, by_terms, from_terms = SEEN_COLUMNS, SEEN_TERMS, SEEN_BY_TERMS
    scores_at, delta_at = _at(scores), _at(delta_scores)
    turned_at, values_at, turned_step = _at(turned), _at(turned_values), FLOAT_BYTES * rules.keys
    if draws is not None:
        memory = mask_memory(rules.keys, scores)
    ranges = np.empty(blocks.shape, np.int64)
    for b in range(samples):
        if biases is not None:
            own = _segments(rules.query_segments, b, rules.queries)
            others = _segments(rules.key_segments, b, rules.keys)
        for n in range(blocks.shape[0]):
            start, stop, first, last = blocks[n]
            if biases is not None:
                first, last = _narrowed(first, last, others[start:stop], own)
                start, stop = _narrowed(start, stop, own[first:last], others)
            ranges[n, 0], ranges[n, 1], ranges[n, 2], ranges[n, 3] = start, stop, first, last
        is_whole = blocks.shape[0] == 1 and ranges[0, 3] - ranges[0, 2] == rules.queries
        for g in range(kv_heads[0], kv_heads[1]):
            keys = key[0] + b * rules.keys * key[1] + g * head_step
            values = value[0] + b * rules.keys * value[1] + g * head_step
            turn(keys, key[1], turned_at, turned_step, rules.keys, width)
            turn(values, value[1], values_at, turned_step, rules.keys, width)
            if not is_whole:
                to = delta_query[0] + b * rules.queries * delta_query[1] + g * sharing * head_step
                _clear_rows(to, delta_query[1], rules.queries, sharing * width)
            for n in range(blocks.shape[0]):
                start, stop, first, last = ranges[n]
                rows, columns = last - first, stop - start
                to_keys = delta_key[0] + b * rules.keys * delta_key[1] + g * head_step
                to_values = delta_value[0] + b * rules.keys * delta_value[1] + g * head_step
                for low, high in ((blocks[n, 0], start), (stop, blocks[n, 1])):
                    _clear_rows(to_keys + low * delta_key[1], delta_key[1], high - low, width)
                    _clear_rows(to_values + low * delta_value[1], delta_value[1], high - low, width)
                if columns == 0:
                    continue
                to_keys, to_values = to_keys + start * delta_key[1], to_values + start * delta_value[1]
                token, seen, step = b * rules.queries + first, first + 1 - start, FLOAT_BYTES * columns
                for h in range(g * sharing, (g + 1) * sharing):
                    queries = query[0] + token * query[1] + h * head_step
                    deltas = delta_context[0] + token * delta_context[1] + h * head_step
                    w, v, sizes = (
                        turned_at + FLOAT_BYTES * start,
                        values_at + FLOAT_BYTES * start,
                        (rows, columns, width),
                    )
                    matrix(queries, query[1], _NEXT, w, turned_step, scores_at, step, sizes, _NONE, by_columns, seen)
                    matrix(
                        deltas, delta_context[1], _NEXT, v, turned_step, delta_at, step, sizes, _NONE, by_columns, seen
                    )
                    for i in range(rows):
                        position, row, delta = first + i, scores_at + i * step, delta_at + i * step
                        if biases is not None and own[position] < 0:
                            _clear(row, columns)
                            _clear(delta, columns)
                            continue
                        _, begin, end, _ = ranges_of(rules, position, start, 0, columns)
                        count, low, high = end - begin, i * columns + begin, i * columns + end
                        element = (h * rules.queries + position) * rules.keys + start + begin
                        if draws is not None and draws[0] > 0:
                            _drop(delta_scores[low:high], mask_elements(memory, draws, b, element, count), count)
                        at, delta_row = row + FLOAT_BYTES * begin, delta + FLOAT_BYTES * begin
                        total, dot = logsumexp[h, token + i], dots[h, token + i]
                        if biases is None:
                            _back(at, count, delta_row, 0, 0, 0, 0, factor, total, dot)
                        else:
                            nearest = start + begin - position + rules.queries - 1
                            bias, hidden, segment = (
                                _at(biases[h, nearest:]),
                                _at(others[start + begin :]),
                                own[position],
                            )
                            if sums.shape[0] > 0:
                                to = _at(sums[h, nearest:])
                                _back_summed(at, count, delta_row, bias, hidden, segment, to, factor, total, dot)
                            else:
                                _back_bent(at, count, delta_row, bias, hidden, segment, 0, factor, total, dot)
                        if draws is not None and draws[0] > 0:
                            # The memory has it still.
                            _drop(scores[low:high], memory[element % 4 :], count)
                        for line in (row, delta):
                            _clear(line, begin)
                            _clear(line + FLOAT_BYTES * end, columns - end)
                    # Of the transposed matrices a row is a column.
                    sizes, adds, w = (columns, width, rows), int(h > g * sharing), delta_context[1]
                    matrix(scores_at, _NEXT, step, deltas, w, to_values, delta_value[1], sizes, adds, from_terms, seen)
                    w = query[1]
                    matrix(delta_at, _NEXT, step, queries, w, to_keys, delta_key[1], sizes, adds, from_terms, seen)
                    to, w = delta_query[0] + token * delta_query[1] + h * head_step, keys + start * key[1]
                    sizes, adds = (rows, width, columns), int(not is_whole)
                    matrix(delta_at, step, _NEXT, w, key[1], to, delta_query[1], sizes, adds, by_terms, seen)
