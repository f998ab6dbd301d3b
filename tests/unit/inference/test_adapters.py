"""Adapters that sequences choose from: the sums of a plain twin, and the same bits beside any others."""

import numpy as np
import pytest

from cstool.inference.adapters import AdapterSet, LowRank
from cstool.model.ir import Op, OpKind
from cstool.training.kernels.cached_attention import News

RNG = np.random.default_rng(5)
OP = Op(OpKind.LINEAR, "q", ("x",), ("y",), ("q.weight",))


def low_rank(rank: int) -> LowRank:
    return LowRank(*(RNG.normal(size=shape).astype(np.float32) for shape in ((rank, 40), (24, rank))))


ADAPTERS = ({"q.weight": low_rank(3)}, {"q.weight": low_rank(17)}, {"k.weight": low_rank(2)})


def added(chosen: list[int], counts: list[int], x: np.ndarray, adapters=ADAPTERS) -> np.ndarray:
    found, y = AdapterSet(adapters), np.ones((len(x), 24), np.float32)
    found.choose(chosen, News.of(range(len(counts)), counts))
    found.add(OP, x, y)
    return y


def test_each_row_has_the_sum_of_its_own_adapter():
    counts, chosen = [3, 1, 4, 2], [1, 0, 1, 2]
    x = RNG.normal(size=(10, 40)).astype(np.float32)
    y, row = added(chosen, counts, x), 0
    for number, count in zip(chosen, counts, strict=True):
        found = ADAPTERS[number].get("q.weight")
        for _ in range(count):
            wanted = 1.0 if found is None else 1 + x[row].astype(float) @ found.a.T.astype(float) @ found.b.T
            np.testing.assert_allclose(y[row], np.broadcast_to(wanted, 24), rtol=1e-5, atol=1e-4)
            row += 1


@pytest.mark.parametrize("alone", range(4))
def test_a_sequence_has_the_same_bits_beside_others_and_alone(alone):
    counts, chosen = [3, 1, 4, 2], [1, 0, 1, 2]
    x = RNG.normal(size=(10, 40)).astype(np.float32)
    rows = slice(sum(counts[:alone]), sum(counts[: alone + 1]))
    own = (ADAPTERS[chosen[alone]],)
    assert np.array_equal(added([0], [counts[alone]], x[rows], own), added(chosen, counts, x)[rows])
