"""Positions of new tokens: the bits of the kernels of training, which have all tokens of a sample from the first on."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.kernels.cached_attention import News
from cstool.training.kernels.cached_positions import add_new_positions, turn_new
from cstool.training.kernels.embedding import add_positions
from cstool.training.kernels.rotary import turn

CAPACITY = 12
ROTARY = {"head_width": 6, "frequencies": (1.0, 0.3), "amplitude": 1.1}
SPAN = st.integers(0, CAPACITY).flatmap(lambda stop: st.tuples(st.integers(0, stop), st.just(stop)))
SPANS = st.lists(SPAN, min_size=1, max_size=4)
"""first position of the new tokens of each sequence, and the one behind the last"""


def new_tokens(spans: list[tuple[int, int]], samples: np.ndarray) -> tuple[News, np.ndarray]:
    """What is new of samples, (B, capacity, H)."""
    news = News.of(range(len(spans)), [stop - start for start, stop in spans], [start for start, _ in spans])
    return news, np.concatenate([sample[start:stop] for sample, (start, stop) in zip(samples, spans, strict=True)])


@given(spans=SPANS, edge=st.integers(0, CAPACITY), seed=st.integers(0, 99))
def test_new_tokens_get_the_rows_of_their_positions(spans, edge, seed):
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((CAPACITY, 6)).astype(np.float32)
    samples = rng.standard_normal((len(spans), CAPACITY, 6)).astype(np.float32)
    whole = np.empty_like(samples)
    add_positions(samples.reshape(-1, 6), table, CAPACITY, whole.reshape(-1, 6), None)
    news, x = new_tokens(spans, samples)
    for start, stop in ((0, edge), (edge, CAPACITY)):
        add_new_positions(x, news, table[start:stop], start, x)
    np.testing.assert_array_equal(x, new_tokens(spans, whole)[1])


@given(spans=SPANS, seed=st.integers(0, 99))
def test_new_tokens_turn_by_their_positions(spans, seed):
    samples = np.random.default_rng(seed).standard_normal((len(spans), CAPACITY, 12)).astype(np.float32)
    whole = np.empty_like(samples)
    turn(samples.reshape(-1, 12), CAPACITY, ROTARY, whole.reshape(-1, 12))
    news, x = new_tokens(spans, samples)
    turn_new(x, news, CAPACITY, ROTARY, x)
    np.testing.assert_array_equal(x, new_tokens(spans, whole)[1])
