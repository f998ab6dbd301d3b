"""The matrix product behind which GEMM providers sit: one suite for all of them."""

import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cstool.errors import ClusterError
from cstool.kernels import gemm_providers, shared_gemm
from cstool.kernels.bfloat16 import BFLOAT16, narrowed, widened
from cstool.kernels.emulated import EMULATED
from cstool.kernels.gemm import NUMPY, Gemm
from cstool.kernels.gemm_providers import Found, choose_gemm, find_onednn, find_vdpbf16ps
from cstool.kernels.shared_gemm import SharedGemm
from tests.unit.kernels.tolerances import assert_close

HALF_UNIT = 2.0**-8
"""largest relative error of a number that is rounded to bfloat16"""


PROVIDERS = {
    "numpy": lambda: Found("numpy", NUMPY, ""),
    "emulated": lambda: Found("emulated", EMULATED, ""),
    "onednn": find_onednn,
    "vdpbf16ps": find_vdpbf16ps,
}


@pytest.fixture(params=[f"{name}{shared}" for shared in ("", ", shared") for name in PROVIDERS])
def gemm(request, monkeypatch) -> Iterator[Gemm]:
    name, _, is_shared = request.param.partition(", ")
    found = PROVIDERS[name]()
    if (own := found.gemm) is None:
        pytest.skip(f"{name}: {found.reason}")
    if not is_shared:
        yield own
        return
    monkeypatch.setattr(shared_gemm, "SHARED_FLOPS", 1)
    shared = SharedGemm(own, 3)
    yield shared
    shared.close()


def _operands(layout: str, rng: np.random.Generator, gemm: Gemm) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    def normal(*shape: int) -> np.ndarray:
        numbers = rng.standard_normal(shape).astype(np.float32)
        return narrowed(numbers) if gemm.operands == BFLOAT16 else numbers

    def out(*shape: int) -> np.ndarray:
        return np.full(shape, np.nan, np.float32)

    if layout == "contiguous":
        return normal(96, 64), normal(64, 128), out(96, 128)
    if layout == "odd":
        return normal(33, 7), normal(7, 5), out(33, 5)
    if layout == "one row":
        return normal(1, 9), normal(9, 17), out(1, 17)
    if layout == "transposed":
        return normal(64, 96).T, normal(128, 64).T, out(96, 128)
    if layout == "column slices":
        return normal(96, 200)[:, 9:73], normal(64, 200)[:, 3:131], out(96, 300)[:, 5:133]
    if layout == "transposed out":
        return normal(96, 64), normal(64, 128), out(128, 96).T
    if layout == "shared":
        # Two heads of keys, each for three of queries.
        queries = normal(96, 6 * 64).reshape(1, 96, 2, 3, 64).transpose(0, 2, 3, 1, 4)
        return queries, normal(96, 2 * 64).reshape(1, 96, 2, 1, 64).transpose(0, 2, 3, 4, 1), out(1, 2, 3, 96, 96)
    heads = normal(96, 4 * 64).reshape(96, 4, 64).transpose(1, 0, 2)
    return heads, normal(96, 4 * 64).reshape(96, 4, 64).transpose(1, 2, 0), out(4, 96, 96)


LAYOUTS = ["contiguous", "odd", "one row", "transposed", "column slices", "transposed out", "heads", "shared"]


def exact(x: np.ndarray) -> np.ndarray:
    """The numbers of an operand in float64."""
    return (widened(x) if x.dtype == BFLOAT16 else x).astype(np.float64)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_product_is_right(layout, gemm, rng):
    """Products of bfloat16 are exact in float32, so their sums are as near as those of float32."""
    a, b, out = _operands(layout, rng, gemm)
    gemm.multiply(a, b, out)
    assert_close(out, exact(a) @ exact(b))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_product_may_be_rounded(layout, gemm, rng):
    if gemm.operands != BFLOAT16:
        pytest.skip("it has no other precision")
    a, b, out = _operands(layout, rng, gemm)
    rounded = np.empty_like(out, BFLOAT16)
    gemm.multiply(a, b, rounded)
    expected = exact(a) @ exact(b)
    # What cancels in a sum leaves the error of the float32 numbers that it is made of.
    assert (np.abs(widened(rounded) - expected) <= HALF_UNIT * np.abs(expected) + 2e-6 * np.abs(expected).max()).all()


@pytest.mark.parametrize("rounds", [False, True])
def test_a_bias_is_added_before_anything_is_rounded(gemm, rng, rounds):
    if rounds and gemm.operands != BFLOAT16:
        pytest.skip("it has no other precision")
    a, b, out = _operands("contiguous", rng, gemm)
    out = np.empty_like(out, BFLOAT16 if rounds else np.float32)
    bias = (1000 * rng.standard_normal(out.shape[1])).astype(np.float32)
    gemm.multiply(a, b, out, bias)
    expected = exact(a) @ exact(b) + bias
    error = np.abs(exact(out) - expected)
    assert (error <= (HALF_UNIT if rounds else 0) * np.abs(expected) + 2e-6 * np.abs(expected).max()).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_product_makes_no_copy(layout, rng):
    a, b, out = _operands(layout, rng, NUMPY)
    tracemalloc.start()
    try:
        NUMPY.multiply(a, b, out)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < max(out.nbytes / 8, 1000)


def test_columns_beside_a_slice_are_left_alone(gemm, rng):
    out = np.full((96, 300), 7.0, np.float32)
    a, b, _ = _operands("contiguous", rng, gemm)
    gemm.multiply(a, b, out[:, 5:133])
    assert (out[:, :5] == 7.0).all()
    assert (out[:, 133:] == 7.0).all()


def test_multiply_add_adds(gemm, rng):
    a, b, out = _operands("column slices", rng, gemm)
    out[:] = rng.standard_normal(out.shape)
    expected = out + exact(a) @ exact(b)
    gemm.multiply_add(a, b, out, np.full(out.shape, np.nan, np.float32))
    assert_close(out, expected)


def test_nan_survives(gemm, rng):
    a, b, out = _operands("contiguous", rng, gemm)
    a[3, 4] = narrowed(np.array([np.nan]))[0] if gemm.operands == BFLOAT16 else np.nan
    gemm.multiply(a, b, out)
    np.testing.assert_array_equal(np.isnan(out).all(axis=1), np.arange(96) == 3)


def test_overflow_comes_out_without_a_warning(gemm, rng):
    a, b, out = _operands("contiguous", rng, gemm)
    large = narrowed(np.array([1e30]))[0] if gemm.operands == BFLOAT16 else 1e30
    a[3], b[:] = large, large
    gemm.multiply(a, b, out)
    np.testing.assert_array_equal(np.isinf(out).all(axis=1), np.arange(96) == 3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_bits_depend_neither_on_where_operands_lie_nor_on_threads_beside(layout, gemm, rng):
    a, b, out = _operands(layout, rng, gemm)
    gemm.multiply(a, b, out)

    def again(shift: int) -> np.ndarray:
        """Multiply copies that lie elsewhere, with the same strides."""
        moved = [_moved(x, shift) for x in (a, b, out)]
        gemm.multiply(*moved)
        return moved[2]

    with ThreadPoolExecutor(2) as threads:
        for found in threads.map(again, [0, 2, 6, 16]):
            np.testing.assert_array_equal(found, out)


def _moved(x: np.ndarray, shift: int) -> np.ndarray:
    """A copy with the same strides that begins so many elements behind a cache line."""
    extent = 1 + sum((size - 1) * stride // x.itemsize for size, stride in zip(x.shape, x.strides, strict=True))
    memory = np.zeros(extent + shift + 64, x.dtype)
    start = -memory.ctypes.data % 64 // x.itemsize + shift
    copy = np.lib.stride_tricks.as_strided(memory[start:], x.shape, x.strides)
    copy[...] = x
    return copy


@pytest.mark.parametrize("kept", [None, "numpy", 7])
def test_a_run_multiplies_with_what_it_began_with_or_the_first_there_is(kept):
    assert choose_gemm("float32", kept).name == "numpy"


def test_bfloat16_is_emulated_where_nothing_multiplies_it(monkeypatch):
    def found(_: str) -> Iterator[Found]:
        yield Found("onednn", None, "is not here")
        yield Found("emulated", EMULATED, "")

    monkeypatch.setattr(gemm_providers, "found_providers", found)
    assert choose_gemm("bfloat16").name == "emulated"


@pytest.mark.parametrize(("ratio", "name"), [(1.5, "onednn"), (0.9, "emulated")])
def test_what_is_slower_than_float32_is_not_chosen(monkeypatch, ratio, name):
    class Stand(type(EMULATED)):  # type: ignore[misc]
        name = "onednn"

    def found(_: str) -> Iterator[Found]:
        yield Found("onednn", Stand(), "brg:")
        yield Found("emulated", EMULATED, "")

    monkeypatch.setattr(gemm_providers, "found_providers", found)
    monkeypatch.setattr(gemm_providers, "speed_against_float32", lambda _: ratio)
    assert choose_gemm("bfloat16").name == name
    assert choose_gemm("bfloat16", "onednn").name == "onednn"


@pytest.mark.parametrize(("precision", "there"), [("float32", "numpy"), ("bfloat16", "emulated")])
def test_a_provider_that_this_machine_lacks_is_named(monkeypatch, precision, there):
    for name in ("onednn", "vdpbf16ps"):
        missing = Found(name, None, "is not here")
        monkeypatch.setattr(gemm_providers, f"find_{name}", lambda missing=missing: missing)
    with pytest.raises(ClusterError) as caught:
        choose_gemm(precision, "onednn")
    assert (caught.value.message, caught.value.hint) == (
        f"the run multiplies matrices with onednn, which must be one of {there} on this machine",
        "go on where it began, or load its weights alone: --load_checkpoint_states model",
    )
