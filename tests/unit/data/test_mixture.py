"""Several data sets as one."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.data.dataset import Field, allocate
from cstool.data.mixture import MixtureDataset


class Numbered:
    """Samples of one number: 100 times the number of the data set, and its own."""

    def __init__(self, number: int, count: int, length: int = 1) -> None:
        self.number, self.sample_count, self.closed, self.epochs = number, count, 0, set()
        self.fields: Mapping[str, Field] = {"labels": Field((length,), "int32")}

    def describe(self) -> str:
        return f"{'abc'[self.number]}: {self.sample_count} samples"

    def read(self, indices: np.ndarray, out: Mapping[str, np.ndarray], epoch: int = 0, /) -> None:
        assert len(indices) == 0 or 0 <= indices.min() <= indices.max() < self.sample_count
        self.epochs.add(epoch)
        out["labels"][:] = 100 * self.number + indices[:, None]

    def close(self) -> None:
        self.closed += 1


def names(mixture: MixtureDataset, indices=None, epoch: int = 0) -> str:
    numbers = np.arange(mixture.sample_count) if indices is None else np.array(indices)
    out = allocate(mixture.fields, len(numbers))
    mixture.read(numbers, out, epoch)
    return " ".join(f"{'abc'[label // 100]}{label % 100}" for [label] in out["labels"].tolist())


def mixed(sizes, weights, seed) -> MixtureDataset:
    return MixtureDataset([Numbered(number, size) for number, size in enumerate(sizes)], weights, seed)


VENDOR = [
    (
        ((5, 9), (0.6, 0.4)),
        1,
        "a0 a1 b0 b1 a2 a3 b2 b3 b4 a4 a0 a1 a2 a3 a4 a0 a1 b5 b6 b7 a2 b8",
    ),
    (((5, 9), (0.6, 0.4)), None, "a0 a1 a2 a3 a4 a0 a1 a2 a3 a4 a0 a1 a2 b0 b1 b2 b3 b4 b5 b6 b7 b8"),
    (
        ((4, 30, 7), (1, 2, 0.1)),
        7,
        "a0 b0 b1 b2 b3 b4 a1 b5 a2 a3 b6 a0 b7 b8 b9 b10 a1 b11 a2 b12 a3 b13 c0 a0 a1 b14 b15 b16 b17 b18 b19 a2 a3 "
        "b20 b21 b22 b23 b24 b25 a0 a1 b26 b27 b28 b29 a2",
    ),
]
"""what the vendor's `Mixture` makes of such data sets, weights and seeds"""


@pytest.mark.parametrize(("parts", "seed", "expected"), VENDOR)
def test_the_order_is_the_vendors(parts, seed, expected):
    assert names(mixed(*parts, seed)) == expected


SIZES = st.lists(st.tuples(st.integers(1, 30), st.floats(0.01, 5)), min_size=1, max_size=3)


@given(SIZES, st.integers(0, 5))
def test_every_sample_of_a_large_share_comes_and_those_of_each_in_order(parts, seed):
    sizes, weights = zip(*parts, strict=True)
    mixture = mixed(sizes, weights, seed)
    found = names(mixture).split()
    for number, (size, weight) in enumerate(parts):
        share = weight / sum(weights)
        own = [int(name[1:]) for name in found if name[0] == "abc"[number]]
        assert own == [place % size for place in range(len(own))]
        assert abs(len(own) - share * len(found)) <= 1 + len(parts)
        if share > 0.05 + 1e-9:
            assert len(own) >= size - 1  # a rounded share may lack one


def test_samples_are_read_in_any_order():
    mixture = mixed((5, 9), (0.6, 0.4), 1)
    found = names(mixture).split()
    assert names(mixture, [21, 3, 3, 0], epoch=4) == " ".join([found[21], found[3], found[3], found[0]])
    assert names(mixture, [0]) == names(mixed((5, 9), (0.6, 0.4), 1), [0])
    assert names(mixed((5, 9), (0.6, 0.4), 2)) != " ".join(found)


def test_what_a_mixture_says_and_closes(error_of):
    parts = [Numbered(0, 5), Numbered(1, 9)]
    mixture = MixtureDataset(parts, (3, 2), 1)
    assert mixture.describe() == "22 samples: 59.1% of a: 5 samples; 40.9% of b: 9 samples"
    mixture.close()
    assert [part.closed for part in parts] == [1, 1]
    assert error_of(MixtureDataset, [parts[0], Numbered(1, 9, length=2)], (1, 1), None) == (
        "mixture: samples must be alike, got a: 5 samples; and b: 9 samples\n"
        "hint: max_sequence_length cuts those that are too long"
    )
