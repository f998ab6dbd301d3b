"""Sparse linear kernels: what they compute, and that they leave the rest alone."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.kernels.bfloat16 import narrowed, widened
from cstool.training.kernels.sparse import sparse_linear_delta, sparse_linear_forward, sparse_linear_gradient
from cstool.training.kernels.sparse.pattern import CHUNK_ROWS
from tests.unit.training.kernels.calls import said_by_a_process
from tests.unit.training.kernels.conftest import lender
from tests.unit.training.kernels.sparse.layers import (
    Layer,
    assert_products,
    assert_sums,
    backward,
    deltas,
    forward,
    framed,
    make_layer,
    transposed,
    with_pattern,
)
from tests.unit.training.kernels.tolerances import Scratch

FLOAT32 = np.dtype(np.float32)
TOKENS = st.sampled_from([1, 15, 16, 17, 63, 64, 65, 128, 129]) | st.integers(1, 200)
ROWS = st.sampled_from([1, 15, 16, 17, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1]) | st.integers(1, 60)
COLUMNS = st.sampled_from([1, 15, 16, 17, 127, 128, 129, 255, 256, 257]) | st.integers(1, 300)
DENSITY = st.sampled_from([0.0, 0.02, 0.065, 0.075, 0.5, 1.0]) | st.floats(0.0, 1.0)

LAYERS = st.builds(make_layer, TOKENS, ROWS, COLUMNS, DENSITY, seed=st.integers(0, 99), holes=st.booleans())


@given(layer=LAYERS, more=st.booleans())
def test_they_are_products_with_the_non_zeros(layer, more):
    assert_products(layer, lender(FLOAT32), more=more)


@given(layer=LAYERS, rounds=st.booleans(), accumulate=st.booleans())
def test_of_bfloat16_they_are_the_products_of_the_same_numbers(layer, rounds, accumulate):
    x, values, delta_y, before = map(narrowed, (layer.x, layer.values[None], layer.delta_y, layer.before))

    def products(*operands: np.ndarray, out: bool) -> list[np.ndarray]:
        """Forward, delta and gradient, the first two rounded if that is asked for."""
        x, (values,), delta_y, pattern = *operands, layer.pattern
        y, delta_x = np.empty_like(delta_y if out else layer.delta_y), before if out else widened(before)
        delta_x, grad = delta_x.copy(), np.empty(pattern.count, np.float32)
        sparse_linear_forward(x, pattern, values, layer.bias, y, lender(FLOAT32))
        to = transposed(pattern, values), delta_x, accumulate
        sparse_linear_delta(delta_y, pattern.transposed, *to, lender(FLOAT32))
        sparse_linear_gradient(x, delta_y, pattern, grad, lender(FLOAT32))
        return [y, delta_x, grad]

    wide = products(*map(widened, (x, values, delta_y)), out=False)
    if rounds:
        wide[:2] = map(narrowed, wide[:2])
    for actual, expected in zip(products(x, values, delta_y, out=rounds), wide, strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("density", [0.03, 0.3], ids=["wide blocks", "narrow blocks"])
def test_several_chunks_and_blocks(density, scratch32):
    assert_products(make_layer(70, 2 * CHUNK_ROWS + 50, 600, density, holes=True), scratch32)


def test_panels_add_up_to_the_layer(scratch32):
    layer = make_layer(70, 600, 300, 0.2)
    y, _ = framed(70, 600)
    delta_x, grads = np.full((70, 300), np.nan, np.float32), np.full((600, 300), np.nan, np.float32)
    for number, rows in enumerate((slice(0, 17), slice(17, 550), slice(550, 600))):
        weight, delta_y = layer.weight[rows], layer.delta_y[:, rows]
        part = with_pattern(layer.x, weight, layer.bias[rows], delta_y, layer.before, weight != 0)
        sparse_linear_forward(layer.x, part.pattern, part.values, part.bias, y[:, rows], scratch32)
        grad = np.full(part.pattern.count, np.nan, np.float32)
        values = part.transposed_values
        sparse_linear_delta(delta_y, part.pattern.transposed, values, delta_x, number > 0, scratch32)
        sparse_linear_gradient(layer.x, delta_y, part.pattern, grad, scratch32)
        grads[rows][part.at] = grad
    np.testing.assert_array_equal(y, forward(layer, scratch32))
    assert_sums(delta_x, deltas, layer.delta_y, layer.weight, np.zeros_like(layer.before))
    np.testing.assert_array_equal(grads[layer.at], backward(layer, scratch32)[1])


def test_an_output_depends_on_its_own_token_alone(scratch32):
    layer = make_layer(130, 30, 140, 0.2)
    y, (delta_x, _) = forward(layer, scratch32), backward(layer, scratch32)
    for tokens in slice(0, 5), slice(64, 130), slice(77, 78):
        arrays = layer.weight, layer.bias, layer.delta_y[tokens], layer.before[tokens], layer.weight != 0
        part = with_pattern(layer.x[tokens], *arrays)
        np.testing.assert_array_equal(forward(part, scratch32), y[tokens])
        np.testing.assert_array_equal(backward(part, scratch32)[0], delta_x[tokens])


def _misaligned(array: np.ndarray, by: int) -> np.ndarray:
    """Return a copy that begins `by` floats after a multiple of 64 bytes."""
    memory = np.empty(array.size + 32, array.dtype)
    start = -memory.ctypes.data % 64 // 4 + by
    moved = memory[start : start + array.size].reshape(array.shape)
    moved[:] = array
    return moved


def _all(layer: Layer, misalignment: int, scratch: Scratch, *, slices: bool = False) -> list[np.ndarray]:
    """Return outputs, delta and gradient, all of whose arrays begin `misalignment` floats after a cache line."""
    x, values, turned, bias, delta_x = (
        _misaligned(array, misalignment)
        for array in (layer.x, layer.values, layer.transposed_values, layer.bias, layer.before)
    )
    if slices:
        y, delta_y = (framed(*layer.delta_y.shape, misalignment=misalignment)[0] for _ in range(2))
        delta_y[:] = layer.delta_y
    else:
        y, delta_y = np.empty_like(layer.delta_y), _misaligned(layer.delta_y, misalignment)
    grad = _misaligned(np.empty_like(values), misalignment)
    sparse_linear_forward(x, layer.pattern, values, bias, y, scratch)
    sparse_linear_delta(delta_y, layer.pattern.transposed, turned, delta_x, True, scratch)
    sparse_linear_gradient(x, delta_y, layer.pattern, grad, scratch)
    return [y, delta_x, grad]


def _assert_same_bits(some: list[np.ndarray], others: list[np.ndarray]) -> None:
    for one, other in zip(some, others, strict=True):
        np.testing.assert_array_equal(one.view(np.uint32), np.ascontiguousarray(other).view(np.uint32))


@pytest.fixture
def layer() -> Layer:
    return make_layer(150, 530, 300, 0.15, holes=True)


@pytest.mark.parametrize("misalignment", range(16))
def test_bits_depend_neither_on_repetition_nor_alignment_nor_slices(misalignment, layer, scratch32):
    def lend(name: str, shape: tuple[int, ...]) -> np.ndarray:
        return _misaligned(np.full(shape, np.nan, np.float32), misalignment)

    found = _all(layer, 0, scratch32)
    _assert_same_bits(found, _all(layer, misalignment, lend))
    if misalignment == 3:
        _assert_same_bits(found, _all(layer, 3, scratch32, slices=True))


def test_two_threads_at_once_get_the_same_bits(layer, scratch32):
    alone, together = _all(layer, 0, scratch32), Barrier(2)

    def run(_number: int) -> list[list[np.ndarray]]:
        scratch = lender(FLOAT32)
        together.wait()
        return [_all(layer, 0, scratch) for _ in range(10)]

    with ThreadPoolExecutor(2) as pool:
        for lane in pool.map(run, range(2)):
            for result in lane:
                _assert_same_bits(alone, result)


NOT_FINITE = pytest.mark.parametrize("value", [np.nan, np.inf])


def _not_finite(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return where numbers are no longer finite, after a look at the others, which must not have changed."""
    broken = ~np.isfinite(after)
    np.testing.assert_array_equal(after[~broken], before[~broken])
    return broken


@NOT_FINITE
@pytest.mark.parametrize("where", ["x", "delta_y", "weight"])
def test_what_is_not_finite_comes_out_where_a_non_zero_meets_it(where, value, scratch32):
    layer = make_layer(70, 40, 140, 0.2)
    y, (delta_x, grad) = forward(layer, scratch32), backward(layer, scratch32)
    non_zero = layer.weight != 0
    of_y, of_delta, of_grad = np.zeros((70, 40), bool), np.zeros((70, 140), bool), np.zeros(len(layer.values), bool)
    if where == "weight":
        row, column = layer.at[0][50], layer.at[1][50]
        layer.weight[row, column] = value
        of_y[:, row], of_delta[:, column] = True, True
    elif where == "x":
        layer.x[[3, 66], [7, 139]] = value
        of_y[[3, 66]], of_grad = non_zero[:, [7, 139]].T, np.isin(layer.at[1], [7, 139])
    else:
        layer.delta_y[[3, 66], [7, 39]] = value
        of_delta[[3, 66]], of_grad = non_zero[[7, 39]], np.isin(layer.at[0], [7, 39])
    made = forward(layer, scratch32), *backward(layer, scratch32)
    for before, after, broken in zip((y, delta_x, grad), made, (of_y, of_delta, of_grad), strict=True):
        np.testing.assert_array_equal(_not_finite(before, after), broken)


SCRIPT = """
import numpy as np
from cstool.training.kernels.sparse import linear
from tests.unit.training.kernels.conftest import lender
from tests.unit.training.kernels.sparse.layers import assert_products, make_layer

for density, tokens in (0.03, 70), (0.3, 133):
    assert_products(make_layer(tokens, 530, 300, density, holes=True), lender(np.dtype(np.float32)))
code = "".join("".join(kernel.inspect_asm().values()) for kernel in (linear._product, linear._gradient))
print("ymm" in code, "zmm" in code, "vfmadd" in code)
"""


@pytest.mark.lab
def test_kernels_ask_for_no_instruction_set(tmp_path):
    told = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "CSTOOL_CACHE_DIR": str(tmp_path)}
    assert said_by_a_process(SCRIPT, **told) == ("False False False\n", "")
