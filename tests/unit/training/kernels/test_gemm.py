"""The matrix product behind which GEMM providers sit: one suite for all of them."""

import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cstool.foundation.errors import ClusterError
from cstool.training.kernels import gemm_providers, onednn_float32, shared_gemm
from cstool.training.kernels.bfloat16 import BFLOAT16, narrowed, widened
from cstool.training.kernels.driver import Table
from cstool.training.kernels.gemm import NUMPY, Gemm, WorkSpace
from cstool.training.kernels.gemm_providers import (
    EMULATED,
    Found,
    choose_gemm,
    find_fma,
    find_onednn,
    find_onednn_float32,
    find_vdpbf16ps,
)
from cstool.training.kernels.recording import NotRecordableError, Recording, recorded
from cstool.training.kernels.shared_gemm import SharedGemm
from tests.unit.training.kernels.tolerances import assert_close

HALF_UNIT = 2.0**-8
"""largest relative error of a number that is rounded to bfloat16"""


PROVIDERS = {
    "numpy": lambda: Found("numpy", NUMPY, ""),
    "onednn_float32": find_onednn_float32,
    "fma": find_fma,
    "emulated": lambda: Found("emulated", EMULATED, ""),
    "onednn": find_onednn,
    "vdpbf16ps": find_vdpbf16ps,
}


class Recorded:
    """Writes each product down and executes the record: it has the bits of the provider, wherever it can be written."""

    def __init__(self, gemm: Gemm) -> None:
        assert gemm.is_recordable
        self.name, self.operands, self._gemm = gemm.name, gemm.operands, gemm

    def multiply(self, a, b, out, bias=None) -> None:
        self._check(lambda to: self._gemm.multiply(a, b, to, bias), out)

    def multiply_add(self, a, b, out, product) -> None:
        self._check(lambda to: self._gemm.multiply_add(a, b, to, product), out)

    def _check(self, multiply: Callable[[np.ndarray], None], out: np.ndarray) -> None:
        before = out.copy()
        multiply(out)
        expected = out.copy()
        out[...] = before
        into = Recording()
        try:
            with recorded(into):
                multiply(out)
        except NotRecordableError:
            multiply(out)
        else:
            Table(into).run()
        np.testing.assert_array_equal(out, expected)


WAYS = [*(f"{name}{how}" for how in ("", ", shared") for name in PROVIDERS)]
WAYS += [f"{name}, recorded" for name in ("numpy", "onednn_float32", "fma", "onednn", "vdpbf16ps")]


@pytest.fixture(params=WAYS)
def gemm(request, monkeypatch) -> Iterator[Gemm]:
    name, _, how = request.param.partition(", ")
    found = PROVIDERS[name]()
    if (own := found.gemm) is None:
        pytest.skip(f"{name}: {found.reason}")
    monkeypatch.setattr(onednn_float32, "SMALL_FLOPS", 1)
    if how != "shared":
        yield Recorded(own) if how else own
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

    match layout:
        case "odd":
            return normal(33, 7), normal(7, 5), out(33, 5)
        case "one row":
            return normal(1, 9), normal(9, 17), out(1, 17)
        case "one column":
            return normal(33, 17), normal(17, 1), out(33, 1)
        case "one term":
            return normal(33, 1), normal(1, 17), out(33, 17)
        case "one row of columns":
            return normal(17, 33).T[:1], normal(5, 17).T, out(5, 8).T[:1]
        case "transposed":
            return normal(64, 96).T, normal(128, 64).T, out(96, 128)
        case "column slices":
            return normal(96, 200)[:, 9:73], normal(64, 200)[:, 3:131], out(96, 300)[:, 5:133]
        case "transposed out":
            return normal(96, 64), normal(64, 128), out(128, 96).T
        case "shared":
            # Two heads of keys, each for three of queries.
            queries = normal(96, 6 * 64).reshape(1, 96, 2, 3, 64).transpose(0, 2, 3, 1, 4)
            return queries, normal(96, 2 * 64).reshape(1, 96, 2, 1, 64).transpose(0, 2, 3, 4, 1), out(1, 2, 3, 96, 96)
        case "heads":
            heads = normal(96, 4 * 64).reshape(96, 4, 64).transpose(1, 0, 2)
            return heads, normal(96, 4 * 64).reshape(96, 4, 64).transpose(1, 2, 0), out(4, 96, 96)
    return normal(96, 64), normal(64, 128), out(96, 128)


SLIVERS = ["one row", "one column", "one term", "one row of columns"]
LAYOUTS = ["contiguous", "odd", "transposed", "column slices", "transposed out", "heads", "shared", *SLIVERS]


def exact(x: np.ndarray) -> np.ndarray:
    """The numbers of an operand in float64."""
    return (widened(x) if x.dtype == BFLOAT16 else x).astype(np.float64, order="C")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_product_is_right_whole_and_rounded(layout, gemm, rng):
    """Products of bfloat16 are exact in float32, so their sums are as near as those of float32."""
    a, b, out = _operands(layout, rng, gemm)
    gemm.multiply(a, b, out)
    assert_close(out, exact(a) @ exact(b))
    if gemm.operands == BFLOAT16:
        rounded = np.empty_like(out, BFLOAT16)
        gemm.multiply(a, b, rounded)
        assert_rounded(rounded, exact(a) @ exact(b))


def assert_rounded(rounded: np.ndarray, expected: np.ndarray) -> None:
    """What cancels in a sum leaves the error of the float32 numbers that it is made of."""
    allowed = (HALF_UNIT if rounded.dtype == BFLOAT16 else 0) * np.abs(expected) + 2e-6 * np.abs(expected).max()
    assert (np.abs(exact(rounded) - expected) <= allowed).all()


@pytest.mark.parametrize("shape", [(3, 5, 0), (0, 5, 7), (3, 0, 7), (2, 0, 0)])
@pytest.mark.parametrize("gemm", ["numpy", "onednn_float32", "fma"], indirect=True)
def test_products_of_float32_without_a_row_a_column_or_a_term_are_zeros(shape, gemm):
    rows, columns, terms = shape
    out = np.full((rows, columns), np.nan, np.float32)
    a, b = np.ones((rows, terms), np.float32), np.ones((terms, columns), np.float32)
    gemm.multiply(a, b, out)
    np.testing.assert_array_equal(out, np.zeros((rows, columns)))
    gemm.multiply(a, b, out, bias := np.arange(columns, dtype=np.float32))
    gemm.multiply_add(a, b, out, np.empty_like(out))
    np.testing.assert_array_equal(out, np.broadcast_to(bias, out.shape))


def test_a_bias_is_added_before_anything_is_rounded(gemm, rng):
    a, b, out = _operands("contiguous", rng, gemm)
    bias = (1000 * rng.standard_normal(out.shape[1])).astype(np.float32)
    for dtype in (np.float32, *([BFLOAT16] if gemm.operands == BFLOAT16 else [])):
        found = np.empty_like(out, dtype)
        gemm.multiply(a, b, found, bias)
        assert_rounded(found, exact(a) @ exact(b) + bias)


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


def test_multiply_add_adds_and_columns_beside_a_slice_are_left_alone(gemm, rng):
    wide = np.full((96, 300), 7.0, np.float32)
    a, b, _ = _operands("column slices", rng, gemm)
    gemm.multiply(a, b, out := wide[:, 5:133])
    gemm.multiply_add(a, b, out, np.full(out.shape, np.nan, np.float32))
    assert_close(out, 2 * (exact(a) @ exact(b)))
    assert (np.delete(wide, np.s_[5:133], axis=1) == 7.0).all()


@pytest.mark.parametrize(("value", "comes_out"), [(np.nan, np.isnan), (1e30, np.isinf)])
def test_nan_and_overflow_come_out_without_a_warning(gemm, rng, value, comes_out):
    a, b, out = _operands("contiguous", rng, gemm)
    value = narrowed(np.array([value]))[0] if gemm.operands == BFLOAT16 else value
    a[3, 4] = value
    if comes_out is np.isinf:
        a[3], b[:] = value, value
    gemm.multiply(a, b, out)
    np.testing.assert_array_equal(comes_out(out).all(axis=1), np.arange(96) == 3)


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
        for found in threads.map(again, [0, 1, 2, 6, 16, 1000]):
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
def test_a_run_multiplies_with_what_it_began_with_or_the_first_there_is(kept, monkeypatch):
    monkeypatch.setattr(gemm_providers, "find_onednn_float32", lambda: pytest.fail("another library is loaded"))
    assert choose_gemm("float32", kept).name == "numpy"


@pytest.mark.parametrize(("ratio", "name"), [(None, "emulated"), (0.9, "emulated"), (1.5, "onednn")])
def test_bfloat16_is_emulated_where_nothing_multiplies_it_faster_than_float32(monkeypatch, ratio, name):
    class Stand(type(EMULATED)):  # type: ignore[misc]
        name = "onednn"

    def found(_: str) -> Iterator[Found]:
        yield Found("onednn", Stand() if ratio else None, "brg:")
        yield Found("emulated", EMULATED, "")

    monkeypatch.setattr(gemm_providers, "found_providers", found)
    monkeypatch.setattr(gemm_providers, "speed_against_numpy", lambda _: ratio)
    assert choose_gemm("bfloat16").name == name
    if ratio:
        assert choose_gemm("bfloat16", "onednn").name == "onednn"


@pytest.mark.parametrize(("precision", "there"), [("float32", "numpy"), ("bfloat16", "emulated")])
def test_a_provider_that_this_machine_lacks_is_named(monkeypatch, precision, there):
    for name in ("onednn", "onednn_float32", "fma", "vdpbf16ps"):
        missing = Found(name, None, "is not here")
        monkeypatch.setattr(gemm_providers, f"find_{name}", lambda missing=missing: missing)
    with pytest.raises(ClusterError) as caught:
        choose_gemm(precision, "onednn")
    assert (caught.value.message, caught.value.hint) == (
        f"the run multiplies matrices with onednn, which must be one of {there} on this machine",
        "go on where it began, load its weights alone (--load_checkpoint_states model), or go on with other bits: "
        f"--set trainer.init.precision.products={there}",
    )


def test_a_name_has_the_same_memory_again_unless_it_must_grow():
    space = WorkSpace()
    first = space.lend("a", (3, 5))
    assert (first.shape, first.dtype) == ((3, 5), np.float32)
    assert np.shares_memory(space.lend("a", (2,)), first)
    assert not np.shares_memory(space.lend("b", (2,)), first)
    assert not np.shares_memory(space.lend("a", (16,)), first)


def test_memory_begins_at_a_cache_line():
    space = WorkSpace()
    assert {space.lend("a", (size,)).ctypes.data % 64 for size in range(1, 40)} == {0}


def test_threads_have_memory_of_their_own():
    space = WorkSpace()
    own = space.lend("a", (8,))
    with ThreadPoolExecutor(1) as thread:
        assert not np.shares_memory(thread.submit(space.lend, "a", (8,)).result(), own)
