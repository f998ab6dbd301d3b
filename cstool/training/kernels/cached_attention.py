"""Attention of new tokens to the keys and values in a cache, for inference.

The new tokens of several sequences lie one after the other; each sequence has a cache, with all its tokens so far, in
pages of equal size that may lie anywhere: a table has the pages of each sequence, in order. Every product is row by row
(see `rowwise`), and every sum over keys has one order, so the context of a token has the same bits whether the tokens
before it came with it or were in the cache. Where attention is not causal, all tokens of a sequence must be new: none
of them can wait for the tokens that it sees.

Source: Pope et al., "Efficiently scaling transformer inference", 2022, section 3.3 (the cache); for the rest see
`attention`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cstool.training.kernels._jit import elementwise, inlined, reduction
from cstool.training.kernels._vectors import FLOAT_BYTES
from cstool.training.kernels.attention_form import Attention
from cstool.training.kernels.attention_rows import bend
from cstool.training.kernels.exponential import maximum
from cstool.training.kernels.rounded_exponential import exp_row
from cstool.training.kernels.rowwise import add_weighted, dots

BLOCK_TOKENS = 32
"""most new tokens of a sequence that go through the keys together"""


class Pages(NamedTuple):
    """Keys and values of sequences, in pages.

    Args:
        keys, values: (pages, kv_heads, page_tokens, D) float32: numbers that are read together lie together
        table: (slots, pages of a sequence) int64: where token t of a sequence is: page t // page_tokens of its row
    """

    keys: np.ndarray
    values: np.ndarray
    table: np.ndarray


class News(NamedTuple):
    """The new tokens of several sequences, one sequence after the other; all are (B,) int64.

    Args:
        slots: the place of each sequence in the caches
        starts: its first row among the new tokens
        counts: number of its new tokens
        before: tokens that its cache has already
    """

    slots: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    before: np.ndarray

    @classmethod
    def of(cls, slots: Sequence[int], counts: Sequence[int], before: Sequence[int] = ()) -> "News":
        """Say of each sequence its slot, and its new and its earlier tokens; () for no earlier ones."""
        many = np.array(counts, np.int64)
        earlier = np.array(before or [0] * len(many), np.int64)
        return cls(np.array(slots, np.int64), np.cumsum(many) - many, many, earlier)


@elementwise
def append(x, news, cache, table):  # type: ignore[no-untyped-def]
    """Write the keys, or values, of new tokens behind the earlier ones of their sequences.

    Args:
        x: (T, W) float32
        news: the sequences of the new tokens
        cache, table: keys or values of `Pages`, for W / heads numbers of each head
    """
    page_tokens, width = cache.shape[2], cache.shape[3]

    for k in range(news.slots.shape[0]):
        for i in range(news.counts[k]):
            row, place = x[news.starts[k] + i], news.before[k] + i
            page = cache[table[news.slots[k], place // page_tokens]]
            for head in range(cache.shape[1]):
                target = page[head, place % page_tokens]
                for j in range(width):
                    target[j] = row[head * width + j]


@reduction
def _soften(sinks, window, factor, cap, biases, columns, memory):  # type: ignore[no-untyped-def]
    """Turn the scores of two ranges of keys into probabilities over both, by sums and exponentials in float64.

    Args:
        biases: added to the scores of either range; empty for nothing
        columns: whether the first keys of the window are seen; all later ones are
        memory: as many numbers as the longest range has
    """
    one = factor * 0 + 1.0
    unit = factor
    if biases[1].shape[0] > 0:
        unit = one
        bend(sinks, factor, cap, biases[0])
        bend(window, factor, cap, biases[1])
    for j in range(columns.shape[0]):
        window[j] = window[j] if columns[j] else -np.inf
    largest = window[window.shape[0] - 1]
    for j in range(sinks.shape[0]):
        largest = maximum(largest, sinks[j])
    for j in range(window.shape[0]):
        largest = maximum(largest, window[j])
    exp_row(sinks, largest, unit, memory)
    exp_row(window, largest, unit, memory)
    total = factor * 0.0
    for j in range(sinks.shape[0]):
        total += sinks[j]
    for j in range(window.shape[0]):
        total += window[j]
    share = one / total
    for j in range(sinks.shape[0]):
        sinks[j] *= share
    for j in range(window.shape[0]):
        window[j] *= share


@inlined
def _nearest(rules, position):  # type: ignore[no-untyped-def]
    """Return the key from which on a token sees all up to itself; it may see some earlier keys, too."""
    first = max(0, position + 1 - rules.reach)
    return max(first, position // rules.chunk * rules.chunk) if rules.chunk > 0 else first


@inlined
def _first_seen(rules, position):  # type: ignore[no-untyped-def]
    """Return the first key that a token may see beside sinks; with columns, any of the sequence."""
    return 0 if rules.columns.shape[0] > 0 else _nearest(rules, position)


@elementwise
def _multiply_keys(  # type: ignore[no-untyped-def]
    queries, stride, tokens, keys, head, pages, first, stop, columns, score_stride
):
    """Write the products of queries and the keys from `first` to `stop`, page by page.

    Args:
        queries, columns: addresses
        pages: of the sequence, in order
    """
    page_tokens, width, key_stride = keys.shape[2], keys.shape[3], keys.strides[2]
    here = first
    while here < stop:
        count = min(page_tokens - here % page_tokens, stop - here)
        place = keys.ctypes.data + pages[here // page_tokens] * keys.strides[0] + head * keys.strides[1]
        place += here % page_tokens * key_stride
        target = columns + (here - first) * FLOAT_BYTES
        dots(queries, stride, tokens, place, key_stride, count, target, score_stride, width, place)
        here += count


@elementwise
def _add_values(shares, values, head, pages, first, target):  # type: ignore[no-untyped-def]
    """Add the values from `first` on, each times its share, one after the other."""
    page_tokens, done = values.shape[2], 0
    while done < shares.shape[0]:
        here = (first + done) % page_tokens
        count = min(page_tokens - here, shares.shape[0] - done)
        page = values[pages[(first + done) // page_tokens], head]
        add_weighted(shares[done : done + count], page, here, target)
        done += count


@elementwise
def _attend(  # type: ignore[no-untyped-def]
    q, news, keys, values, table, pairs, heads, sharing, sinks, rules, context, scores
):
    width = q.shape[1] // heads
    factor, zero = q.dtype.type(rules.scale), q.dtype.type(0)
    memory = np.empty(scores.shape[1], scores.dtype)
    q_stride, score_stride = q.strides[0], scores.strides[0]
    for pair in range(pairs[0], pairs[1]):
        head, k = pair // news.slots.shape[0], pair % news.slots.shape[0]
        b, count, start_row, had = news.slots[k], news.counts[k], news.starts[k], news.before[k]
        pages, kv_head = table[b], head // sharing
        for block in range(0, count, BLOCK_TOKENS):
            tokens = min(BLOCK_TOKENS, count - block)
            row, position = start_row + block, had + block
            # Of the columns of scores, `lead` are sinks, the others the keys from the first that this block sees.
            begin = _first_seen(rules, position)
            lead = min(sinks, begin)
            queries = q.ctypes.data + row * q_stride + head * width * FLOAT_BYTES
            columns = scores.ctypes.data
            _multiply_keys(queries, q_stride, tokens, keys, kv_head, pages, 0, lead, columns, score_stride)
            columns += lead * FLOAT_BYTES
            # The last key that it sees is its last token's, or the last key that there is, where no key is too late.
            last = min(position + tokens + rules.ahead, had + count)
            _multiply_keys(queries, q_stride, tokens, keys, kv_head, pages, begin, last, columns, score_stride)
            for i in range(tokens):
                here = position + i
                start = _first_seen(rules, here)
                # Sinks that its own window has not are the first columns in either case: keys from 0 on.
                apart = scores[i, : min(sinks, start)]
                stop = min(here + 1 + rules.ahead, had + count)
                window = scores[i, start - begin + lead : stop - begin + lead]
                biases = apart[:0], apart[:0]
                if rules.biases.shape[0] > 0:
                    of_head = rules.biases[head, rules.queries - 1 - here :]
                    biases = of_head[: apart.shape[0]], of_head[start:stop]
                hidden = rules.columns[: _nearest(rules, here)] if rules.columns.shape[0] > 0 else rules.columns
                _soften(apart, window, factor, rules.cap, biases, hidden, memory)
                target = context[row + i, head * width : (head + 1) * width]
                for d in range(width):
                    target[d] = zero
                _add_values(apart, values, kv_head, pages, 0, target)
                _add_values(window, values, kv_head, pages, start, target)


def cached_attention(
    q: np.ndarray,
    news: News,
    pages: Pages,
    form: Attention,
    biases: np.ndarray,
    pairs: tuple[int, int],
    context: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Compute the contexts of new tokens, whose keys and values are in the caches already.

    Args:
        q: (T, A * D) float32
        news: the sequences of the new tokens
        pages: keys and values
        form: formula of scores; `sequence` is the largest length of a sequence
        biases: (A, distances) float32 of the form, the biases of weights included; (0, 0) where there are none
        pairs: start and stop among the pairs of head and sequence, the sequences of a head after one another
        context: (T, A * D) float32; the columns of the pairs' heads are written
        scores: (BLOCK_TOKENS, capacity) float32, scratch
    """
    heads = form.heads, form.heads // form.kv_heads
    _attend(q, news, *pages, pairs, *heads, form.sinks_apart, form.rules(biases), context, scores)
