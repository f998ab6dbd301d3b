"""A checkpoint as a source: sparse weights with their zeros, range by range, and what no run would write refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cstool.convert import source as module
from cstool.convert.source import CstoolSource, row_ranges
from cstool.foundation.errors import CheckpointError
from cstool.training.store import CheckpointWriter
from tests.contract.refusal import refusal

Array = np.ndarray


def write(path: Path, indices: Array, shape: tuple[int, ...], **states: Array) -> Path:
    """Write a sparse weight `w` whose numbers are 1, 2, ..., and other tensors."""
    numbers = np.arange(1, len(indices) + 1, dtype=np.float32)
    with CheckpointWriter(path) as writer:
        for name, array in {"model.w.indices": indices, "model.w": numbers, **states}.items():
            writer.add_tensor(name, array.shape, array.dtype.name, [array])
        writer.add_value("sparsity", {"w": {"shape": list(shape), "algorithm": "static", "density": 0.5}})
    return path


@given(
    st.integers(0, 40), st.integers(1, 9), st.integers(1, 5),
    arrays.arrays(np.bool_, arrays.array_shapes(min_dims=2, max_dims=2, max_side=9)),
)  # fmt: skip
def test_its_rows_are_those_of_the_weight_written_out(tmp_path_factory, chunk_bytes, multiple, rows, mask):
    indices = np.flatnonzero(mask).astype(np.uint32)
    path = write(tmp_path_factory.mktemp("sparse") / "a.mdl", indices, mask.shape)
    dense = np.zeros(mask.shape, np.float32)
    dense.flat[indices] = np.arange(1, len(indices) + 1)
    before = module.CHUNK_BYTES
    module.CHUNK_BYTES = chunk_bytes
    try:
        source = CstoolSource(path)
        parts, masks = list(source.rows("model.w", multiple)), list(source.kept("w"))
        source.close()
    finally:
        module.CHUNK_BYTES = before
    assert all(len(part) % multiple == 0 for part in parts[:-1])
    np.testing.assert_array_equal(np.concatenate(parts), dense)
    np.testing.assert_array_equal(np.concatenate(masks), mask)


@given(st.integers(1, 50), st.integers(1, 300), st.integers(1, 20))
def test_ranges_cover_all_rows_in_order(rows, columns, multiple):
    ranges = list(row_ranges((rows, columns), multiple))
    assert [row for start, stop in ranges for row in range(start, stop)] == list(range(rows))


@pytest.mark.parametrize(
    ("indices", "rule"),
    [
        ([0, 5, 3, 7], "must ascend, got 5, 3 at 1"),
        ([0, 5, 6, 6], "must ascend, got 6, 6 at 2"),
        ([0, 5, 6, 12], "must be less than 12, got 12 at 3"),
    ],
)
def test_indices_that_no_run_would_write_are_refused_also_between_two_blocks(tmp_path, monkeypatch, indices, rule):
    path = write(tmp_path / "a.mdl", np.array(indices, np.uint32), (3, 4))
    for chunk_bytes in (8, 2**20):
        monkeypatch.setattr(module, "CHUNK_BYTES", chunk_bytes)
        source = CstoolSource(path)
        with refusal(CheckpointError, f"{path}: model.w.indices {rule}"):
            list(source.rows("model.w"))
        source.close()


@pytest.mark.parametrize(
    ("name", "array", "rule"),
    [
        ("optimizer.w.exp_avg", np.zeros(3, np.float32), "must be 2 float32, got 3 float32"),
        ("optimizer.w.exp_avg", np.zeros(2), "must be 2 float32, got 2 float64"),
        ("optimizer.v.exp_avg", np.zeros(2, np.int32), "must be 2 float32, got 2 int32"),
        ("model.scale", np.zeros((), np.float32), "must have rows, got one number"),
        ("model.w", np.zeros(3, np.float32), "must be 2 float32, got 3 float32"),
    ],
)
def test_arrays_that_are_not_as_a_run_writes_them_are_refused(tmp_path, name, array, rule):
    states: dict[str, Any] = {name: array}
    path = write(tmp_path / "a.mdl", np.array([0, 1], np.uint32), (3, 4), **states)
    with refusal(CheckpointError, f"{path}: {name} {rule}"):
        CstoolSource(path)
