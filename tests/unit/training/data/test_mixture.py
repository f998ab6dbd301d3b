"""Data sets made of others: several as one, and one with sink tokens in every sample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.data.changed_samples import SinkTokensDataset
from cstool.training.data.mixture import MixtureDataset
from tests.unit.training.data.encoder_files import InMemory, read


def numbered(number: int, count: int, length: int = 1) -> InMemory:
    """Samples of one number: 100 times the number of the data set, and its own."""
    labels = np.repeat(100 * number + np.arange(count, dtype=np.int32)[:, None], length, axis=1)
    return InMemory(f"{'abc'[number]}: {count} samples", labels=labels)


def names(mixture: MixtureDataset, indices=None, epoch: int = 0) -> str:
    numbers = np.arange(mixture.sample_count) if indices is None else np.array(indices)
    return " ".join(f"{'abc'[label // 100]}{label % 100}" for [label] in read(mixture, numbers, epoch)["labels"])


def mixed(sizes, weights, seed) -> MixtureDataset:
    return MixtureDataset([numbered(number, size) for number, size in enumerate(sizes)], weights, seed)


VENDOR = [
    (((5, 9), (0.6, 0.4)), 1, "a0 a1 b0 b1 a2 a3 b2 b3 b4 a4 a0 a1 a2 a3 a4 a0 a1 b5 b6 b7 a2 b8"),
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
    parts = [numbered(0, 5), numbered(1, 9)]
    mixture = MixtureDataset(parts, (3, 2), 1)
    assert mixture.describe() == "22 samples: 59.1% of a: 5 samples; 40.9% of b: 9 samples"
    mixture.close()
    assert [part.closed for part in parts] == [1, 1]
    assert error_of(MixtureDataset, [parts[0], numbered(1, 9, length=2)], (1, 1), None) == (
        "mixture: samples must be alike, got a: 5 samples; and b: 9 samples\n"
        "hint: max_sequence_length cuts those that are too long"
    )


def three() -> InMemory:
    """Three samples of four tokens: 10 i + j, its labels one more, its mask 1 but for the last token."""
    ids, mask = 10 * np.arange(3, dtype=np.int32)[:, None] + np.arange(4, dtype=np.int32), np.ones((3, 4), np.float32)
    mask[:, 3] = 0
    return InMemory("three: 3 samples of 4 tokens", input_ids=ids, labels=ids + 1, mask=mask)


def test_sinks_stand_before_the_sample_and_do_not_count():
    inner = three()
    dataset = SinkTokensDataset(inner, token=99, count=2)
    assert read(dataset, [2, 0]) == {
        "input_ids": [[99, 99, 20, 21, 22, 23], [99, 99, 0, 1, 2, 3]],
        "mask": [[0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 1, 0]],
        "labels": [[0, 0, 21, 22, 23, 24], [0, 0, 1, 2, 3, 4]],
    }
    described = "three: 3 samples of 4 tokens, with 2 sink tokens in each: 6 tokens"
    assert (dataset.sample_count, dataset.describe()) == (3, described)
    dataset.close()
    assert inner.closed == 1


@pytest.mark.parametrize(
    ("position", "count", "keeps", "expected"),
    [
        (1, 2, False, [10, 99, 99, 11, 12, 13]),
        (4, 2, False, [10, 11, 12, 13, 99, 99]),
        (0, 2, True, [99, 99, 10, 11]),
        (3, 2, True, [10, 11, 12, 99]),
        (0, 6, True, [99, 99, 99, 99]),
        (4, 1, True, [10, 11, 12, 13]),
    ],
)
def test_sinks_may_stand_elsewhere_and_a_sample_keep_its_length(position, count, keeps, expected):
    dataset = SinkTokensDataset(three(), token=99, count=count, position=position, keep_length=keeps)
    assert dataset.fields["labels"].shape == (len(expected),)
    assert read(dataset, [1])["input_ids"] == [expected]
