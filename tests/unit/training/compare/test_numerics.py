"""Which gradients and masks two short runs are compared by."""

from __future__ import annotations

import numpy as np
import pytest

from cstool.model.params import SparsityParams
from cstool.training.compare.numerics import _compare_gradients, _compare_masks, first_change, gradient_tolerance
from cstool.training.compare.race import Finish
from cstool.training.run.result import RunResult
from cstool.training.store import CheckpointWriter


@pytest.fixture
def finish(tmp_path):
    """Write a checkpoint and return the end of a run that left it."""
    written = iter("abc")

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


def matrix(*numbers: float) -> np.ndarray:
    return floats(*numbers).reshape(1, -1)


def with_gradients(**gradients: np.ndarray) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint: weights that do not matter, and their gradients."""
    weights = {f"model__{name}": np.ones_like(array) for name, array in gradients.items()}
    return weights | {f"optimizer__{name}__momentum_buffer": array for name, array in gradients.items()}


@pytest.mark.parametrize(
    ("sparse", "dense", "expected"),
    [
        # The one that differs most relative to its norm.
        (
            with_gradients(a=matrix(3.0, 4.5), b=matrix(30.0, 41.0)),
            with_gradients(a=matrix(3.0, 4.0), b=matrix(30.0, 40.0)),
            ("a", 0.1),
        ),
        # Biases and weights do not count.
        (
            with_gradients(a=matrix(1.0), b=floats(1.0)) | {"model__a": matrix(1.0)},
            with_gradients(a=matrix(1.0), b=floats(2.0)) | {"model__a": matrix(2.0)},
            ("a", 0.0),
        ),
        # Sparse ones are compared where both have a number.
        (
            with_gradients(a=floats(3.0, 9.0, 4.5)) | {"model__a__indices": places(0, 4, 7)},
            with_gradients(a=floats(3.0, 4.0, 9.0)) | {"model__a__indices": places(0, 7, 8)},
            ("a", 0.1),
        ),
        # One that is not a number differs.
        (
            with_gradients(a=matrix(np.nan), b=matrix(5.0)),
            with_gradients(a=matrix(1.0), b=matrix(1.0)),
            ("a", pytest.approx(np.nan, nan_ok=True)),
        ),
    ],
)
def test_gradients_are_compared_by_the_worst(finish, sparse, dense, expected):
    assert _compare_gradients(finish(**sparse), finish(**dense)) == expected


def test_a_gradient_that_all_but_cancels_is_measured_by_the_others(finish):
    """Roundings of what it is the difference of are as large as it is itself."""
    sparse = finish(**with_gradients(a=matrix(1e-8, 0.0), b=matrix(3.0, 4.0)))
    dense = finish(**with_gradients(a=matrix(0.0, 1e-8), b=matrix(3.0, 4.0)))
    name, difference = _compare_gradients(sparse, dense)
    assert name == "a"
    # 5 is the norm of four numbers, of which `a` has two.
    assert difference == pytest.approx(2**0.5 * 1e-8 / (2**-10 * 5 / 2**0.5))
    # One that is wrong altogether is seen all the same.
    assert _compare_gradients(finish(**with_gradients(a=matrix(1e-4, 0.0), b=matrix(3.0, 4.0))), dense)[1] > 0.01


def test_all_masks_are_compared_together(finish):
    sparse = finish(model__a__indices=places(0, 4, 7), model__b__indices=places(1, 2))
    dense = finish(model__a__indices=places(0, 7, 8), model__b__indices=places(1, 2))
    assert _compare_masks(sparse, dense) == (2, 10)


@pytest.mark.parametrize("terms", [100, 10_000, 100_000])
def test_the_roundings_of_a_sum_are_within_the_tolerance(terms):
    """Added up one by one, in float32, for twenty weights; to leave out a term in a thousand is not."""
    products = np.random.default_rng(1).standard_normal((terms, 20)).astype(np.float32)
    exact = products.sum(axis=0, dtype=np.float64)
    one_by_one = np.cumsum(products, axis=0, dtype=np.float32)[-1]
    error = np.linalg.norm(one_by_one - exact) / np.linalg.norm(exact)
    assert 0 < error < gradient_tolerance(terms)
    left_out = np.linalg.norm(products[: max(1, terms // 1000)].sum(axis=0)) / np.linalg.norm(exact)
    assert left_out > 100 * gradient_tolerance(terms)


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
