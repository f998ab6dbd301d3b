"""Our own products of float32: the order of their sums, whatever shape and wherever in memory."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.kernels import bfloat16
from cstool.training.kernels.fma import (
    BLOCK_TERMS,
    LEAST_PACKED_ROWS,
    NARROW_ROWS,
    TILE_COLUMNS,
    TILE_ROWS,
    FmaGemm,
    Part,
)
from tests.unit.training.kernels.calls import said_by_a_process
from tests.unit.training.kernels.places import LAYOUTS, at_the_end, laid

FLOAT32 = np.dtype(np.float32)
OWN = FmaGemm()


def in_order(a: np.ndarray, b: np.ndarray, begun: np.ndarray | None = None) -> np.ndarray:
    """A product with its sums in the order that the kernel promises, by NumPy.

    Operands are as short as bfloat16, so products and their sums with float32 are exact in float64: one rounding
    follows, as of a fused multiply-add.
    """
    out = None if begun is None else begun + np.zeros((len(a), b.shape[1]), np.float32)
    blocks = max(1, -(-a.shape[1] // BLOCK_TERMS))
    for block in range(blocks):
        total = np.zeros((len(a), b.shape[1]), np.float32)
        for k in range(a.shape[1] * block // blocks, a.shape[1] * (block + 1) // blocks):
            total = (total + np.multiply.outer(a[:, k].astype(np.float64), b[k])).astype(np.float32)
        out = total if out is None else total + out
    return out


def short(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers with as few digits as bfloat16, none of them far smaller than others."""
    numbers = rng.uniform(0.5, 2.0, shape) * rng.choice([-1.0, 1.0], shape)
    return bfloat16.widened(bfloat16.narrowed(numbers.astype(np.float32).reshape(-1))).reshape(shape)


SIZES = st.one_of(st.integers(0, 20), st.integers(0, TILE_COLUMNS + LEAST_PACKED_ROWS + 20))
TERMS = st.one_of(st.integers(0, 40), st.sampled_from([BLOCK_TERMS, BLOCK_TERMS + 1, 2 * BLOCK_TERMS + 33]))


@given(SIZES, SIZES, TERMS, LAYOUTS, LAYOUTS, LAYOUTS, st.integers(0, 2), st.integers(0, 2**32 - 1))
def test_products_have_the_bits_of_the_order_of_sums(rows, columns, terms, of_a, of_b, of_out, begins, seed):
    rng = np.random.default_rng(seed)
    a, b, before = short(rng, rows, terms), short(rng, terms, columns), short(rng, rows, columns)
    begun = [None, before[0] if rows else None, before][begins]
    if of_out[0]:
        begun = begun if begins == 2 else None
    a, b, out = laid(a, *of_a), laid(b, *of_b), laid(before, *of_out)
    if begins == 2:
        OWN.multiply_add(a, b, out, np.empty((rows, columns), np.float32))
    else:
        OWN.multiply(a, b, out, begun)
    expected = in_order(b.T, a.T, None if begun is None else begun.T).T if of_out[0] else in_order(a, b, begun)
    np.testing.assert_array_equal(out, expected)
    beside = out.base if out.base is not None else out
    assert np.count_nonzero(beside == 7) >= beside.size - out.size


@given(st.lists(st.integers(1, 3), max_size=3), st.integers(0, 7), st.integers(0, 7), st.integers(0, 2**32 - 1))
def test_batches_are_products_one_by_one(batch, alone_a, alone_b, seed):
    """A dimension of one goes with all of the other's."""
    rng = np.random.default_rng(seed)

    def some(alone: int, *shape: int) -> np.ndarray:
        return short(rng, *(1 if alone >> place & 1 else size for place, size in enumerate(batch)), *shape)

    a, b, out = some(alone_a, 5, 19), some(alone_b, 19, 35), np.empty((*batch, 5, 35), np.float32)
    OWN.multiply(a, b, out)
    a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    for place in np.ndindex(*batch):
        np.testing.assert_array_equal(out[place], in_order(a[place], b[place]))


@pytest.mark.parametrize(("rows", "terms", "columns"), [(200, 30, 45), (131, BLOCK_TERMS + 1, 2 * TILE_COLUMNS + 7)])
def test_the_bits_depend_neither_on_cuts_nor_on_the_thread(rng, rows, terms, columns):
    a, b, bias = (rng.standard_normal(shape, np.float32) for shape in ((rows, terms), (columns, terms), columns))
    whole, parts = np.empty((2, rows, columns), np.float32)
    OWN.multiply(a, b.T, whole, bias)

    def part(place: tuple[int, int]) -> None:
        i, j = (slice(start, start + step) for start, step in zip(place, (97, 29), strict=True))
        OWN.multiply(a[i], b.T[:, j], parts[i, j], bias[j])

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(part, [(i, j) for i in range(0, rows, 97) for j in range(0, columns, 29)]))
    np.testing.assert_array_equal(parts, whole)


SHAPES = [
    (1, 1, 1),
    (TILE_ROWS + 1, 7, TILE_COLUMNS),
    (NARROW_ROWS + 1, 33, 31),
    (LEAST_PACKED_ROWS, 40, 2 * TILE_COLUMNS),
]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("rows", "terms", "columns"), SHAPES)
def test_nothing_beside_the_operands_is_read_or_written(rng, rows, terms, columns, turned):
    """Each operand ends where memory does."""
    a, b = (at_the_end(shape[::-1] if turned else shape, FLOAT32) for shape in ((rows, terms), (terms, columns)))
    bias, out = at_the_end((columns,), FLOAT32), at_the_end((rows, columns), FLOAT32)
    for x in (a, b, bias):
        x[...] = short(rng, *x.shape)
    if turned:
        a, b = a.T, b.T
    OWN.multiply(a, b, out, bias)
    np.testing.assert_array_equal(out, in_order(a, b, bias))


@pytest.mark.parametrize("counts", [(5, 0, 70, 1), (0, 0, 3, 600)])
def test_the_product_of_some_rows_is_that_of_these_alone_and_of_none_nothing_is_written(rng, counts):
    rows, first = sum(counts), 0
    choices = rng.permutation(np.repeat(np.arange(4, dtype=np.int32), counts))
    x, weight, bias = short(rng, rows, 40), short(rng, 70, 40), short(rng, 70)
    y, delta_x = np.full((rows, 70), np.nan, np.float32), short(rng, rows, 40)
    before = delta_x.copy()
    for number, count in enumerate(counts):
        part = Part(choices, number, is_of_terms=False, found=np.full(1, -1))
        own, first = slice(first, first + count), first + count
        gradient = np.full_like(weight, 7.0)
        OWN.multiply_part(x, weight.T, y, part, bias)
        np.testing.assert_array_equal(y[own], in_order(x[own], weight.T, bias))
        OWN.multiply_part(y, weight, delta_x, part, adds=True)
        alone = before[own].copy()
        if count:
            OWN.multiply_add(y[own], weight, alone, alone)
        np.testing.assert_array_equal(delta_x[own], alone)
        OWN.multiply_part(y.T, x, gradient, part._replace(is_of_terms=True))
        alone = np.full_like(weight, 7.0)
        if count:
            OWN.multiply(y[own].T, x[own], alone)
        np.testing.assert_array_equal(gradient, alone)
        assert part.found == count
    assert not np.isnan(y).any()


def test_it_is_compiled_when_it_is_chosen():
    script = """
from cstool.training.kernels import fma
from cstool.training.kernels.gemm_providers import choose_gemm, find_fma
for step in find_fma, lambda: choose_gemm("float32", "fma"):
    print(step().name, len(fma._multiply.signatures))
"""
    assert said_by_a_process(script) == ("fma 0\nfma 1\n", "")
