"""Attention with a cache, against the slow twin of attention, and against itself cut in any way, bit by bit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.kernels.attention_form import Attention
from cstool.training.kernels.cached_attention import BLOCK_TOKENS, News, Pages, append, cached_attention
from tests.examples import examples
from tests.reference import kernels as reference
from tests.unit.training.kernels.tolerances import assert_close

HEADS, KV_HEADS, WIDTH = 4, 2, 20
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "softcap": {"softcap": 3.0},
    "slopes": {"slopes": (0.5, 0.25, 0.125, 0.0625)},
    "window": {"window": 7},
    "window and sinks": {"window": 7, "sinks": 3},
    "window of one": {"window": 1, "sinks": 2},
    "chunks": {"chunk": 4},
    "columns": {"chunk": 4, "columns": (5, 2)},
    "window and columns": {"window": 3, "sinks": 1, "columns": (4, 1)},
    "buckets": {"buckets": 6, "max_distance": 9, "bidirectional": False},
    "trained slopes": {"slope_scale": 0.5, "window": 9},
    "buckets, columns and cap": {"buckets": 8, "max_distance": 30, "columns": (6, 3), "chunk": 6, "softcap": 2.0},
    "all of it": {"window": 5, "sinks": 2, "softcap": 2.0, "slopes": (0.5, 0.25, 0.125, 0.0625)},
}


def tokens(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    widths = HEADS * WIDTH, KV_HEADS * WIDTH, KV_HEADS * WIDTH
    return [rng.standard_normal((count, width)).astype(np.float32) for width in widths]


def weights_of(form: Attention) -> list[np.ndarray]:
    """A table of biases, slopes, both or none, float32."""
    rng = np.random.default_rng(8)
    table = [rng.standard_normal((form.buckets, HEADS))] if form.buckets else []
    slopes = [rng.random((HEADS, 1))] if form.slope_scale is not None else []
    return [weight.astype(np.float32) for weight in (*table, *slopes)]


class Caches:
    """The caches of several sequences, in pages in any order, and what attention over them gives."""

    def __init__(self, form: Attention, slots: int, page_tokens: int | None = None) -> None:
        self.form = form
        page_tokens = page_tokens or form.sequence
        each = -(-form.sequence // page_tokens)
        table = np.random.default_rng(slots).permutation(slots * each).reshape(slots, each)
        self.biases = form.biases(np.dtype(np.float32), needed=form.has_weights)
        if form.has_weights:
            self.biases = self.biases.copy()
            form.add_weights(weights_of(form), self.biases)
        shape = table.size, KV_HEADS, page_tokens, WIDTH
        # What is not written must not count.
        self.pages = Pages(np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32), table)
        self.had = [0] * slots

    def attend(self, news: Sequence[tuple[int, list[np.ndarray]]], cuts: Sequence[int] = ()) -> list[np.ndarray]:
        """Take (slot, query, key and value) of new tokens, and return the contexts of each sequence."""
        counts = [len(new[0]) for _, new in news]
        starts = np.cumsum([0, *counts])
        slots = [slot for slot, _ in news]
        numbers = slots, starts[:-1], counts, [self.had[slot] for slot in slots]
        which = News(*(np.array(part, np.int64) for part in numbers))
        q, k, v = (np.concatenate([new[part] for _, new in news]) for part in range(3))
        append(k, which, self.pages.keys, self.pages.table)
        append(v, which, self.pages.values, self.pages.table)
        context = np.full_like(q, np.nan)
        scores = np.full((BLOCK_TOKENS, self.form.sequence), np.nan, np.float32)
        pairs = len(news) * HEADS
        edges = [0, *cuts, pairs]
        for first, last in zip(edges, edges[1:], strict=False):
            cached_attention(q, which, self.pages, self.form, self.biases, (first, last), context, scores)
        for (slot, _), count in zip(news, counts, strict=True):
            self.had[slot] += count
        return [context[a:b] for a, b in zip(starts, starts[1:], strict=False)]


@pytest.mark.parametrize(
    ("name", "causal"), [*((name, True) for name in FORMS), *((name, False) for name in ("plain", "softcap", "slopes"))]
)
@pytest.mark.parametrize("length", [1, 6, BLOCK_TOKENS, BLOCK_TOKENS + 9])
def test_a_whole_sequence_is_attention_also_beside_others(name, causal, length, rng):
    form = Attention(HEADS, KV_HEADS, length, 0.3, causal=causal, **FORMS[name])
    q, k, v = tokens(rng, length)
    expected, _ = reference.attention(*(x.astype(np.float64) for x in (q, k, v)), form, None, (), weights_of(form))
    (context,) = Caches(form, 1).attend([(0, [q, k, v])])
    assert_close(context, expected)
    if not causal:
        longer = form._replace(sequence=length + 5)
        news = [(1, tokens(rng, 4)), (0, [q, k, v]), (2, tokens(rng, length + 5))]
        np.testing.assert_array_equal(Caches(longer, 3).attend(news, cuts=(5,))[1], context)


@pytest.mark.parametrize("name", FORMS)
@examples(50)
@given(data=st.data())
def test_bits_depend_on_neither_how_a_sequence_comes_nor_pages_nor_others(name, data):
    length = data.draw(st.integers(1, 45))
    cuts = sorted(data.draw(st.sets(st.integers(1, length), max_size=4)) | {length})
    form = Attention(HEADS, KV_HEADS, 50, 0.3, **FORMS[name])
    rng = np.random.default_rng(length)
    own, other = tokens(rng, length), tokens(rng, 50)
    (whole,) = Caches(form, 1).attend([(0, own)])
    beside, found, start = Caches(form, 3, data.draw(st.sampled_from([None, 1, 7, 16]))), [], 0
    for number, stop in enumerate(cuts):
        news = [(2, [x[start:stop] for x in own]), (1, [x[number : number + 1] for x in other])]
        contexts = beside.attend(news if number % 2 else news[::-1], cuts=(data.draw(st.integers(0, 2 * HEADS)),))
        found.append(contexts[0 if number % 2 else 1])
        start = stop
    np.testing.assert_array_equal(np.concatenate(found), whole)
