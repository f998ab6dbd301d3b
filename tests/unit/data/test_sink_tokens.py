"""Sink tokens in every sample of another data set."""

from collections.abc import Mapping

import numpy as np
import pytest

from cstool.data.dataset import Field, allocate
from cstool.data.sink_tokens import SinkTokensDataset


class Three:
    """Three samples of four tokens: 10 i + j, its labels one more, its mask 1 but for the last token."""

    sample_count = 3
    fields: Mapping[str, Field] = {
        "input_ids": Field((4,), "int32"),
        "mask": Field((4,), "float32"),
        "labels": Field((4,), "int32"),
    }

    def __init__(self) -> None:
        self.closed = 0

    def describe(self) -> str:
        return "three: 3 samples of 4 tokens"

    def read(self, indices: np.ndarray, out: Mapping[str, np.ndarray], epoch: int = 0) -> None:
        out["input_ids"][:] = 10 * indices[:, None] + np.arange(4)
        out["labels"][:] = out["input_ids"] + 1
        out["mask"][:] = [1, 1, 1, 0]

    def close(self) -> None:
        self.closed += 1


def read(dataset: SinkTokensDataset, *indices: int) -> dict[str, list[list[float]]]:
    out = allocate(dataset.fields, len(indices))
    dataset.read(np.array(indices), out)
    return {name: array.tolist() for name, array in out.items()}


def test_sinks_stand_before_the_sample_and_do_not_count():
    inner = Three()
    dataset = SinkTokensDataset(inner, token=99, count=2)
    assert read(dataset, 2, 0) == {
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
    dataset = SinkTokensDataset(Three(), token=99, count=count, position=position, keep_length=keeps)
    assert dataset.fields["labels"].shape == (len(expected),)
    assert read(dataset, 1)["input_ids"] == [expected]
