"""A sparse panel, whichever kernels compute with it."""

import itertools
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cstool.training.kernels.sparse import KernelChoice, SparseMatrix
from tests.unit.training.kernels.sparse.layers import (
    Layer,
    assert_sums,
    backward,
    deltas,
    forward,
    gradients,
    make_layer,
    outputs,
)

CHOICES = [KernelChoice(*choice) for choice in itertools.product((False, True), repeat=3)]
EACH_CHOICE = pytest.mark.parametrize(
    "choice", CHOICES, ids=lambda c: "-".join(("dense", "sparse")[kind] for kind in c)
)


@pytest.fixture
def layer() -> Layer:
    return make_layer(70, 40, 140, 0.2)


def _lend(shape: tuple[int, ...], room: int, dtype: np.dtype) -> np.ndarray:
    assert room in (0, math.prod(shape))
    return np.full(shape, np.nan, dtype)


def _matrix(layer, choice, *, dense_gradient=False, lend=_lend):
    return SparseMatrix(layer.pattern, layer.values, choice, dense_gradient, layer.pattern.count, lend)


@EACH_CHOICE
@pytest.mark.parametrize("more", [True, False], ids=["bias, add", "no bias, overwrite"])
@pytest.mark.parametrize("dense_gradient", [True, False], ids=["all gradients", "those of non-zeros"])
def test_they_are_products_with_the_non_zeros(choice, more, dense_gradient, layer, scratch32):
    y, before = np.full_like(layer.delta_y, np.nan), layer.before if more else np.zeros_like(layer.before)
    matrix = _matrix(layer, choice, dense_gradient=dense_gradient)
    matrix.forward(layer.x, layer.bias if more else None, y, scratch32)
    assert_sums(y, outputs, layer.x, layer.weight, layer.bias if more else np.zeros_like(layer.bias))
    for delta_x in (before.copy() if more else np.full_like(before, np.nan), None):
        grad = np.full(matrix.gradient_shape, np.nan, np.float32)
        matrix.backward(layer.x, layer.delta_y, delta_x, more and delta_x is not None, grad, scratch32)
        assert_sums(grad, gradients, layer.delta_y, layer.x, at=... if dense_gradient else layer.at)
        if delta_x is not None:
            assert_sums(delta_x, deltas, layer.delta_y, layer.weight, before)


def test_a_choice_of_sparse_kernels_has_their_bits(layer, scratch32):
    matrix = _matrix(layer, KernelChoice(True, True, True))
    y, delta_x, grad = np.empty_like(layer.delta_y), layer.before.copy(), np.empty_like(layer.values)
    matrix.forward(layer.x, layer.bias, y, scratch32)
    matrix.backward(layer.x, layer.delta_y, delta_x, True, grad, scratch32)
    made = forward(layer, scratch32), *backward(layer, scratch32)
    for actual, expected in zip((y, delta_x, grad), made, strict=True):
        np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(matrix.made.pop("transposed"), layer.transposed_values)
    assert not matrix.made


@pytest.mark.parametrize("what", ["dense", "transposed_values"])
def test_lanes_that_ask_at_once_share_what_is_made_of_the_values(what, layer):
    lent, together = [], threading.Barrier(4)

    def lend(shape: tuple[int, ...], room: int, dtype: np.dtype) -> np.ndarray:
        lent.append(_lend(shape, room, dtype))
        return lent[-1]

    matrix = _matrix(layer, KernelChoice(False, False, False), lend=lend)

    def ask(_lane: int) -> np.ndarray:
        together.wait()
        return getattr(matrix, what)()

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(ask, range(4)))
    assert len(lent) == 1
    assert all(array is lent[0] for array in (*made, *matrix.made.values()))
    expected = {"dense": layer.weight, "transposed_values": layer.transposed_values}
    np.testing.assert_array_equal(made[0], expected[what])
