"""The matrix product behind which GEMM providers sit."""

import tracemalloc

import numpy as np
import pytest

from cstool.errors import ClusterError
from cstool.kernels.gemm import NUMPY
from cstool.kernels.gemm_providers import choose_gemm
from tests.unit.kernels.tolerances import assert_close


def _operands(layout: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    if layout == "contiguous":
        return normal(96, 64), normal(64, 128), normal(96, 128)
    if layout == "transposed":
        return normal(64, 96).T, normal(128, 64).T, normal(96, 128)
    if layout == "column slices":
        return normal(96, 200)[:, 9:73], normal(64, 200)[:, 3:131], normal(96, 300)[:, 5:133]
    if layout == "transposed out":
        return normal(96, 64), normal(64, 128), normal(128, 96).T
    heads = normal(96, 4 * 64).reshape(96, 4, 64).transpose(1, 0, 2)
    return heads, normal(96, 4 * 64).reshape(96, 4, 64).transpose(1, 2, 0), normal(4, 96, 96)


LAYOUTS = ["contiguous", "transposed", "column slices", "transposed out", "heads"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_product_is_right(layout, rng):
    a, b, out = _operands(layout, rng)
    NUMPY.multiply(a, b, out)
    assert_close(out, a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_product_makes_no_copy(layout, rng):
    a, b, out = _operands(layout, rng)
    tracemalloc.start()
    try:
        NUMPY.multiply(a, b, out)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < out.nbytes / 8


def test_columns_beside_a_slice_are_left_alone(rng):
    out = np.full((96, 300), 7.0, np.float32)
    a, b, _ = _operands("contiguous", rng)
    NUMPY.multiply(a, b, out[:, 5:133])
    assert (out[:, :5] == 7.0).all()
    assert (out[:, 133:] == 7.0).all()


def test_matmul_add_adds(rng):
    a, b, out = _operands("column slices", rng)
    expected = out + a.astype(np.float64) @ b.astype(np.float64)
    NUMPY.multiply_add(a, b, out, np.full(out.shape, np.nan, np.float32))
    assert_close(out, expected)


def test_nan_survives(rng):
    a, b, out = _operands("contiguous", rng)
    a[3, 4] = np.nan
    NUMPY.multiply(a, b, out)
    np.testing.assert_array_equal(np.isnan(out).all(axis=1), np.arange(96) == 3)


def test_overflow_comes_out_without_a_warning(rng):
    a, b, out = _operands("contiguous", rng)
    a[3], b[:] = 1e30, 1e30
    NUMPY.multiply(a, b, out)
    np.testing.assert_array_equal(np.isinf(out).all(axis=1), np.arange(96) == 3)


@pytest.mark.parametrize("kept", [None, "numpy", 7])
def test_a_run_multiplies_with_what_it_began_with_or_the_first_there_is(kept):
    assert choose_gemm(kept).name == "numpy"


def test_a_provider_that_this_machine_lacks_is_named():
    with pytest.raises(ClusterError) as caught:
        choose_gemm("onednn")
    assert (caught.value.message, caught.value.hint) == (
        "the run multiplies matrices with onednn, which must be one of numpy on this machine",
        "go on where it began, or load its weights alone: --load_checkpoint_states model",
    )
