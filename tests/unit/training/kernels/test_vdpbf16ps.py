"""Our own products of bfloat16: the order of their sums, whatever shape and wherever in memory; and where they are."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.kernels import bfloat16, gemm_providers, vdpbf16ps
from cstool.training.kernels.bfloat16 import BFLOAT16, widened
from cstool.training.kernels.gemm import Gemm
from cstool.training.kernels.gemm_providers import Found, choose_gemm, find_vdpbf16ps
from cstool.training.kernels.vdpbf16ps import BLOCK_ROWS, BLOCK_TERMS, SUM_COLUMNS, missing_instructions
from tests.any_machine import AVX2
from tests.unit.training.kernels.calls import said_by_a_process
from tests.unit.training.kernels.places import LAYOUTS, at_the_end, laid

HALF_UNIT = 2.0**-24
"""largest relative error of a number that is rounded to float32"""
REASON = missing_instructions()
here = pytest.mark.skipif(REASON is not None, reason=f"{REASON}")


@pytest.fixture(scope="module")
def own() -> Gemm:
    return find_vdpbf16ps().gemm


def narrowed(x: np.ndarray) -> np.ndarray:
    return bfloat16.narrowed(x) if x.size else np.empty(x.shape, BFLOAT16)


def in_order(a: np.ndarray, b: np.ndarray, begun: np.ndarray | None = None) -> np.ndarray:
    """A product with its sums in the order that the kernel promises, by NumPy."""
    x, y = widened(a), widened(b)
    out = np.zeros((a.shape[0], b.shape[1]), np.float32) if begun is None else begun + np.zeros(a.shape[:1] + (1,))
    out = out.astype(np.float32)
    for block in range(0, a.shape[1], BLOCK_TERMS):
        total, stop = np.zeros(out.shape, np.float32), min(block + BLOCK_TERMS, a.shape[1])
        for pair in range(block, stop, 2):
            for k in range(min(pair + 1, stop - 1), pair - 1, -1):
                total += np.multiply.outer(x[:, k], y[k])
        out += total
    return out


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return narrowed(rng.standard_normal(shape).astype(np.float32))


SIZES = st.one_of(st.integers(0, 40), st.integers(0, 140))
TERMS = st.one_of(st.integers(0, 70), st.integers(BLOCK_TERMS - 3, BLOCK_TERMS + 3), st.just(2 * BLOCK_TERMS + 33))


@here
@given(SIZES, SIZES, TERMS, LAYOUTS, LAYOUTS, LAYOUTS, st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_products_have_the_bits_of_the_order_of_sums(own, rows, columns, terms, of_a, of_b, of_out, begins, seed):
    rng = np.random.default_rng(seed)
    a, b = normal(rng, rows, terms), normal(rng, terms, columns)
    before = rng.standard_normal((rows, columns)).astype(np.float32)
    bias = rng.standard_normal(columns).astype(np.float32) if begins == 1 else None
    out = laid(before, *of_out)
    a, b = laid(a, *of_a), laid(b, *of_b)
    if begins == 2:
        own.multiply_add(a, b, out, np.empty((rows, columns), np.float32))
    else:
        own.multiply(a, b, out, bias)
    begun = before if begins == 2 else bias
    np.testing.assert_array_equal(out, in_order(a, b, begun))
    x, y = widened(a).astype(np.float64), widened(b).astype(np.float64)
    exact = x @ y + (0 if begun is None else begun)
    magnitude = np.abs(x) @ np.abs(y) + (0 if begun is None else np.abs(begun))
    assert (np.abs(out - exact) <= (terms + terms // BLOCK_TERMS + 2) * HALF_UNIT * magnitude).all()
    beside = out.base if out.base is not None else out
    assert np.count_nonzero(beside == 7) >= beside.size - out.size
    if begins != 2:
        rounded = laid(np.zeros((rows, columns), BFLOAT16), *of_out)
        own.multiply(a, b, rounded, bias)
        np.testing.assert_array_equal(rounded, narrowed(in_order(a, b, begun)))


@here
@given(st.lists(st.integers(1, 3), max_size=3), st.integers(0, 7), st.integers(0, 7), st.integers(0, 2**32 - 1))
def test_batches_are_products_one_by_one(own, batch, alone_a, alone_b, seed):
    """A dimension of one goes with all of the other's."""
    rng = np.random.default_rng(seed)

    def some(alone: int, *shape: int) -> np.ndarray:
        sizes = [1 if alone >> place & 1 else size for place, size in enumerate(batch)]
        x = normal(rng, *sizes, *shape)
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -2)), -2, 0) if sizes else x

    a, b = some(alone_a, 5, 19), some(alone_b, 19, 35)
    out = np.empty((*batch, 5, 35), np.float32)
    own.multiply(a, b, out)
    a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    for place in np.ndindex(*batch):
        np.testing.assert_array_equal(out[place], in_order(a[place], b[place]))


@here
@pytest.mark.parametrize(
    ("rows", "terms", "columns"),
    [(BLOCK_ROWS + 5, 30, 45), (2 * BLOCK_ROWS + 1, BLOCK_TERMS + 1, 40), (14, 2 * BLOCK_TERMS, SUM_COLUMNS + 33)],
)
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BFLOAT16])
def test_the_bits_depend_neither_on_cuts_nor_on_the_thread(own, rng, rows, terms, columns, dtype):
    a, b, bias = normal(rng, rows, terms), normal(rng, columns, terms).T, rng.standard_normal(columns)
    bias = bias.astype(np.float32)
    whole, parts = np.empty((rows, columns), dtype), np.empty((rows, columns), dtype)
    own.multiply(a, b, whole, bias)

    def part(place: tuple[int, int]) -> None:
        i, j = (slice(start, start + step) for start, step in zip(place, (197, 29), strict=True))
        own.multiply(a[i], b[:, j], parts[i, j], bias[j])

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(part, [(i, j) for i in range(0, rows, 197) for j in range(0, columns, 29)]))
    np.testing.assert_array_equal(parts, whole)
    expected = in_order(a, b, bias)
    np.testing.assert_array_equal(whole, narrowed(expected) if dtype == BFLOAT16 else expected)


@here
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("rows", "terms", "columns"), [(1, 1, 1), (13, 7, 33), (12, 33, 31), (25, 40, 50)])
def test_nothing_beside_the_operands_is_read_or_written(own, rng, rows, terms, columns, turned):
    """Each operand ends where memory does."""
    a, b = (at_the_end(shape[::-1] if turned else shape, BFLOAT16) for shape in ((rows, terms), (terms, columns)))
    bias, out = at_the_end((columns,), np.dtype(np.float32)), at_the_end((rows, columns), np.dtype(np.float32))
    rounded = at_the_end((rows, columns), BFLOAT16)
    for x in (a, b):
        x[...] = normal(rng, *x.shape)
    if turned:
        a, b = a.T, b.T
    own.multiply(a, b, out, bias)
    own.multiply(a, b, rounded, bias)
    np.testing.assert_array_equal(out, in_order(a, b))
    np.testing.assert_array_equal(rounded, narrowed(out))


@here
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("of_a", [True, False])
def test_nan_and_infinity_stay_in_their_row_or_column(own, rng, special, of_a):
    a, b = normal(rng, 13, 7), normal(rng, 7, 33)
    (a if of_a else b)[(12, 6) if of_a else (6, 32)] = narrowed(np.array([[special]]))[0, 0]
    out, rounded = np.empty((13, 33), np.float32), np.empty((13, 33), BFLOAT16)
    own.multiply(a, b, out)
    own.multiply(a, b, rounded)
    hit = np.zeros((13, 33), bool)
    hit[(12, slice(None)) if of_a else (slice(None), 32)] = True
    np.testing.assert_array_equal(~np.isfinite(out), hit)
    np.testing.assert_array_equal(np.isnan(out), hit if np.isnan(special) else np.zeros_like(hit))
    np.testing.assert_array_equal(rounded, narrowed(out))


@here
def test_numbers_below_the_least_normal_one_are_zero(own):
    least, half, one = np.array([2.0**-126, 2.0**-127, 1.0], np.float32)
    cases = [(least, one, least), (half, one, 0.0), (least, np.float32(0.5), 0.0), (half, np.float32(2.0**100), 0.0)]
    for x, y, expected in cases:
        out = np.empty((1, 1), np.float32)
        own.multiply(narrowed(np.array([[x]])), narrowed(np.array([[y]])), out)
        assert out[0, 0] == expected


def test_without_the_instruction_it_is_none(monkeypatch):
    monkeypatch.setattr(vdpbf16ps.binding, "get_host_cpu_features", lambda: {"avx512f": True})
    find_vdpbf16ps.cache_clear()
    found = find_vdpbf16ps()
    find_vdpbf16ps.cache_clear()
    assert found == Found("vdpbf16ps", None, "this CPU has no AVX512_BF16")


@here
def test_where_onednn_is_missing_it_is_chosen(monkeypatch):
    monkeypatch.setattr(gemm_providers, "find_onednn", lambda: Found("onednn", None, "is not here"))
    for ratio, name in ((1.5, "vdpbf16ps"), (0.9, "emulated")):
        monkeypatch.setattr(gemm_providers, "speed_against_numpy", lambda _, ratio=ratio: ratio)
        assert choose_gemm("bfloat16").name == name


@here
def test_it_is_compiled_when_it_is_chosen():
    script = """
from cstool.training.kernels import vdpbf16ps
from cstool.training.kernels.gemm_providers import choose_gemm, find_vdpbf16ps
for step in find_vdpbf16ps, lambda: choose_gemm("bfloat16", "vdpbf16ps"):
    print(step().name, len(vdpbf16ps._multiply.signatures))
"""
    assert said_by_a_process(script) == ("vdpbf16ps 0\nvdpbf16ps 1\n", "")


@here
@pytest.mark.lab
@pytest.mark.parametrize(
    "told", [{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": AVX2}]
)
def test_where_kernels_are_compiled_for_another_cpu_it_is_none(told, tmp_path):
    script = """
from cstool.training.kernels import gemm_providers
from cstool.training.kernels.gemm_providers import Found, choose_gemm, find_vdpbf16ps
gemm_providers.find_onednn = lambda: Found("onednn", None, "is not here")
print(find_vdpbf16ps().reason)
print(choose_gemm("bfloat16").name)
"""
    said = "Numba is told to compile for a CPU without AVX512_BF16\nemulated\n"
    assert said_by_a_process(script, **told, CSTOOL_CACHE_DIR=str(tmp_path)) == (said, "")
