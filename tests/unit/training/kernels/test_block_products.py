"""Our own small products: right, in the order of BLAS, and untouched by whatever is hidden."""

import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.kernels import block_products
from cstool.training.kernels.block_products import FULL, SEEN_BY_TERMS, SEEN_COLUMNS, SEEN_TERMS
from cstool.training.kernels.driver import Table
from cstool.training.kernels.recording import Recording, recorded
from tests.unit.training.kernels.tolerances import assert_close


class Scratch:
    def __init__(self) -> None:
        self.kept: dict[str, np.ndarray] = {}

    def __call__(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return self.kept.setdefault(f"{name} {shape}", np.full(shape, np.nan, np.float32))


def multiply(a: np.ndarray, b: np.ndarray, out: np.ndarray, **how) -> None:
    block_products.multiply(a, b, out, Scratch(), **how)


def one_by_one(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The slow twin: an element is a sum in the order of its terms, each added by a fused multiplication in float64."""
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    for k in range(a.shape[-1]):
        # A product of two float32 numbers is exact in float64; the sum is rounded once more, which rarely shows.
        total = (a[..., :, k, None].astype(np.float64) * b[..., k, None, :] + total).astype(np.float32)
    return total


@given(data=st.data())
def test_products_of_any_size_layout_and_sharing(data):
    m, n, k = (data.draw(st.integers(1, 70)) for _ in range(3))
    lead, shared = data.draw(st.sampled_from([((1, 1, 1), 1), ((2, 3, 2), 1), ((2, 1, 3), 3)]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def matrices(count: tuple[int, ...], rows: int, columns: int) -> np.ndarray:
        turned = data.draw(st.booleans())
        shape = (*count, columns + 1, rows + 3) if turned else (*count, rows + 1, columns + 3)
        found = rng.standard_normal(shape).astype(np.float32)[..., 1:, 1:-2]
        return found.swapaxes(3, 4) if turned else found

    a, b = matrices(lead, m, k), matrices((*lead[:2], shared), k, n)
    memory = np.full((*lead, m, n + 5), 7.0, np.float32)
    out = memory[..., 2:-3]
    multiply(a, b, out)
    expected = np.matmul(a.astype(np.float64), b)
    assert_close(out, expected, float(np.matmul(np.abs(a), np.abs(b)).max()))
    before = out.copy()
    multiply(a, b, out, adds=True)
    np.testing.assert_array_equal(out, before + before)
    assert (memory[..., :2] == 7).all()
    assert (memory[..., -3:] == 7).all(), "the columns beside it are left alone"


def test_sums_are_in_the_order_of_their_terms():
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((1, 1, 1, *shape)).astype(np.float32) for shape in ((37, 90), (90, 70)))
    out = np.empty((1, 1, 1, 37, 70), np.float32)
    multiply(a, b, out)
    assert np.mean(out == one_by_one(a, b)) > 0.999


@pytest.mark.parametrize("shape", [(128, 128, 32), (128, 32, 128), (128, 128, 64), (128, 64, 256)])
def test_an_element_does_not_depend_on_the_rows_and_columns_beside_it(shape):
    m, n, k = shape
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((1, 1, 1, *of)).astype(np.float32) for of in ((m, k), (k, n)))
    whole, part = np.empty((1, 1, 1, m, n), np.float32), np.empty((1, 1, 1, 9, 21), np.float32)
    multiply(a, b, whole)
    multiply(a[..., 3:12, :], b[..., 5:26], part)
    np.testing.assert_array_equal(part, whole[..., 3:12, 5:26])


def test_a_record_keeps_the_memory_that_it_writes_to():
    """Work space grows: what was lent before is gone, but for the records that have its address."""
    rng, into = np.random.default_rng(3), Recording()
    a, b = (rng.standard_normal((1, 1, 1, 40, 20)).astype(np.float32) for _ in range(2))
    out, expected = (np.empty((1, 1, 1, 40, 40), np.float32) for _ in range(2))
    multiply(a, b.swapaxes(3, 4), expected)
    lent: list[weakref.ref[np.ndarray]] = []

    def lend(_name: str, shape: tuple[int, ...]) -> np.ndarray:
        memory = np.empty(shape, np.float32)
        lent.append(weakref.ref(memory))
        return memory

    with recorded(into):
        block_products.multiply(a, b.swapaxes(3, 4), out, lend)
    table = Table(into)
    del into
    assert lent[0]() is not None
    table.run()
    np.testing.assert_array_equal(out, expected)


@given(m=st.integers(1, 80), n=st.integers(1, 80), seen=st.integers(-20, 90), seed=st.integers(0, 9))
def test_what_is_hidden_is_neither_read_nor_added(m, n, seen, seed):
    """The matrix of m queries and n keys: as the result, as the left factor, and transposed."""
    rng, width = np.random.default_rng(seed), 24
    queries, keys = (rng.standard_normal((1, 1, 1, rows, width)).astype(np.float32) for rows in (m, n))
    sees = np.arange(n) < seen + np.arange(m)[:, None]
    scores, stairs = np.zeros((1, 1, 1, m, n), np.float32), np.zeros((1, 1, 1, m, n), np.float32)
    multiply(queries, keys.swapaxes(3, 4), scores)
    multiply(queries, keys.swapaxes(3, 4), stairs, shape=SEEN_COLUMNS, seen=seen)
    np.testing.assert_array_equal(stairs[..., sees], scores[..., sees])
    weights = np.where(sees, scores, 0)
    for left, right, shape in (weights, keys, SEEN_TERMS), (weights.swapaxes(3, 4), queries, SEEN_BY_TERMS):
        found, expected = (np.full((1, 1, 1, left.shape[3], width), np.nan, np.float32) for _ in range(2))
        multiply(left, right, found, shape=shape, seen=seen)
        multiply(left, right, expected, shape=FULL)
        np.testing.assert_array_equal(found, expected)
