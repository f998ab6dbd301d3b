"""Sparse tensors with their zeros, piece by piece, against the whole of them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import CheckpointError
from cstool.training.store import open_checkpoint, sparse_shapes
from cstool.training.store.sparse_tensors import SparseTensor, laid_out, sparse_tensors
from tests.contract.refusal import refusal
from tests.unit.training.store.stored import Array, write_state

SHAPE = {"w": {"shape": [4, 5]}}
INDICES, NUMBERS = np.array([1, 2], np.uint32), np.ones(2, np.float32)


def pieces(array: Array, count: int = 3) -> Iterator[Array]:
    for start in range(0, array.size, count):
        yield array[start : start + count]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr("cstool.training.store.sparse_tensors.PIECE", 8)


@given(size=st.integers(1, 60), data=st.data(), count=st.integers(1, 70))
def test_a_sparse_tensor_is_laid_out_and_pieces_of_zeros_alone_are_left_out(size, data, count):
    places = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1)))), np.uint32)
    numbers = np.arange(1, places.size + 1, dtype=np.float16)
    whole = np.zeros(size, np.float16)
    whole[places] = numbers
    found = [(n, p.copy()) for n, p in laid_out(pieces(places, count), pieces(numbers, count), size, "x")]
    wanted = [(n, p) for n, p in enumerate(pieces(whole, 8)) if p.any()]
    assert [(n, p.tolist(), p.dtype) for n, p in found] == [(n, p.tolist(), p.dtype) for n, p in wanted]


def test_a_huge_tensor_with_few_numbers_takes_few_pieces():
    size = 2**62
    found = laid_out(pieces(np.array([0, size - 1], np.uint64)), pieces(np.ones(2, np.float32)), size, "x")
    assert [(n, p.tolist()) for n, p in found] == [(0, [1, *[0] * 7]), (2**59 - 1, [*[0] * 7, 1])]


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([0, 20], "f: x must be less than 20, got 20 at 1"),
        ([7, 3], "f: x must ascend, got 7, 3 at 0"),
        ([7, 7], "f: x must ascend, got 7, 7 at 0"),
        ([1, 2, 9, 4], "f: x must ascend, got 9, 4 at 2"),
        ([2**32 - 1], "f: x must be less than 20, got 4294967295 at 0"),
    ],
)
def test_indices_that_no_run_would_write_are_refused(places, message):
    array = np.array(places, np.uint32)
    with refusal(CheckpointError, message):
        list(laid_out(pieces(array), pieces(np.ones(array.size, np.float32)), 20, "f: x"))


def write(path: Path, described: object = SHAPE, indices: Array = INDICES, numbers: Array = NUMBERS) -> Path:
    """Write a checkpoint with a weight `w` that is sparse, its optimizer state, and what is not part of it."""
    ones = dict.fromkeys(("model.v", "optimizer.w.exp_avg", "optimizer.v.exp_avg"), np.ones(2, np.float32))
    tensors = {"model.w": numbers, "model.w.indices": indices, "optimizer.w.step": 3, **ones}
    return write_state(path, tensors, values={"sparsity": described})


def test_the_optimizer_state_of_a_sparse_weight_is_sparse_where_it_is_as_long(tmp_path):
    with open_checkpoint(write(tmp_path / "a.mdl")) as state:
        w = SparseTensor("model.w.indices", (4, 5))
        assert sparse_shapes(state) == {"model.w": (4, 5)}
        assert sparse_tensors(state) == {"model.w": w, "optimizer.w.exp_avg": w}


@pytest.mark.parametrize(
    "described",
    [
        *(None, [], {}, {"w": None}),
        *({"w": {"shape": s}} for s in (None, [20], [4, 0], [4, -5], [4, 5.0], [4, True], [2**40, 2**40])),
    ],
    ids=str,
)
def test_a_shape_that_makes_no_sense_is_refused(tmp_path, described):
    message = f"{tmp_path}/a.mdl: model.w.indices must belong to a sparse weight, it does not"
    with open_checkpoint(write(tmp_path / "a.mdl", described)) as state, refusal(CheckpointError, message):
        sparse_shapes(state)


@pytest.mark.parametrize(
    ("indices", "numbers"),
    [
        (np.array([1, 2, 3], np.uint32), np.ones(2, np.float32)),
        (np.array([1, 2], np.int32), np.ones(2, np.float32)),
        (np.array([1.0, 2.0]), np.ones(2, np.float32)),
        (np.array([[1, 2]], np.uint32), np.ones((1, 2), np.float32)),
        (np.array(1, np.uint32), np.array(1, np.float32)),
    ],
)
def test_indices_that_do_not_fit_their_numbers_are_refused(tmp_path, indices, numbers):
    message = f"{tmp_path}/a.mdl: model.w.indices must be one unsigned integer for each non-zero"
    path = write(tmp_path / "a.mdl", indices=indices, numbers=numbers)
    with open_checkpoint(path) as state, refusal(CheckpointError, message):
        sparse_tensors(state)
