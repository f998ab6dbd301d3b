"""Which weights and masks two short runs are compared by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cstool.params import SparsityParams
from cstool.runtime import RunResult
from cstool.store import CheckpointWriter
from cstool.validation.numerics import _compare_weights, first_change
from cstool.validation.race import Finish


@pytest.fixture
def finish(tmp_path: Path):
    """Write a checkpoint and return the end of a run that left it."""
    written = iter("ab")

    def write(**tensors: np.ndarray) -> Finish:
        path = tmp_path / f"{next(written)}.mdl"
        with CheckpointWriter(path) as writer:
            for name, array in tensors.items():
                writer.add_tensor(name.replace("__", "."), array.shape, array.dtype.name, [array])
        return Finish("x", (1.0,), (1.0,), 1.0, {}, None, RunResult("train", "x", 1), path)

    return write


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def places(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint32)


def test_the_matrix_that_differs_most_relative_to_its_norm(finish):
    sparse = finish(model__a=floats(3.0, 4.5).reshape(1, 2), model__b=floats(30.0, 41.0).reshape(1, 2))
    dense = finish(model__a=floats(3.0, 4.0).reshape(1, 2), model__b=floats(30.0, 40.0).reshape(1, 2))
    assert _compare_weights(sparse, dense) == ("a", 0.1, 0.0)


def test_biases_and_optimizer_state_do_not_count(finish):
    sparse = finish(model__b=floats(1.0), optimizer__a=floats(1.0).reshape(1, 1), model__a=floats(1.0).reshape(1, 1))
    dense = finish(model__b=floats(2.0), optimizer__a=floats(2.0).reshape(1, 1), model__a=floats(1.0).reshape(1, 1))
    assert _compare_weights(sparse, dense) == ("a", 0.0, 0.0)


def test_sparse_weights_are_compared_where_both_have_a_number(finish):
    sparse = finish(model__a=floats(3.0, 9.0, 4.5), model__a__indices=places(0, 4, 7))
    dense = finish(model__a=floats(3.0, 4.0, 9.0), model__a__indices=places(0, 7, 8))
    assert _compare_weights(sparse, dense) == ("a", 0.1, 2 / 6)


def test_a_weight_that_is_not_a_number_differs(finish):
    sparse = finish(model__a=floats(np.nan).reshape(1, 1), model__b=floats(5.0).reshape(1, 1))
    dense = finish(model__a=floats(1.0).reshape(1, 1), model__b=floats(1.0).reshape(1, 1))
    name, difference, _ = _compare_weights(sparse, dense)
    assert (name, np.isnan(difference)) == ("a", True)


@pytest.mark.parametrize(
    ("groups", "step"),
    [
        ([{"sparsity": 0.5}], None),
        ([{"sparsity": 0.5, "algorithm": "set"}], 1),
        ([{"sparsity": 0.5}, {"sparsity": 0.5, "algorithm": "rigl", "update": {"freq": 7}}], 7),
        ([{"sparsity": 0.5, "algorithm": "rigl", "update": {"steps": [0, 4]}}], 4),
        ([{"sparsity": 0.5, "algorithm": "rigl", "update": {"freq": 9, "stop": 5}}], None),
        ([{"sparsity": 0.5, "algorithm": "dropconnect"}], None),
    ],
)
def test_kernels_are_compared_up_to_the_first_change_of_a_mask(groups, step):
    assert first_change([SparsityParams.model_validate(group) for group in groups]) == step
