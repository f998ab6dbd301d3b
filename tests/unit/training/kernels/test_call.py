"""Gradients on their way: dense, or the few rows that are not zero."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.kernels.call import Rows, add_payloads, add_to_dense

WIDTH, HEIGHT = 3, 9


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    indices = sorted(draw(st.sets(st.integers(0, HEIGHT - 1), min_size=1)))
    values = np.random.default_rng(draw(st.integers(0, 99))).standard_normal((len(indices), WIDTH))
    return Rows(np.array(indices, np.int32), values.astype(np.float32))


def dense(payload: Rows) -> np.ndarray:
    out = np.zeros((HEIGHT, WIDTH), np.float32)
    add_to_dense(payload, out)
    return out


@given(rows(), rows())
def test_sparse_rows_add_up_as_dense_gradients_do_to_the_last_bit(left, right):
    total = add_payloads(left, right)
    assert isinstance(total, Rows)
    assert total.indices.tolist() == sorted({*left.indices.tolist(), *right.indices.tolist()})
    np.testing.assert_array_equal(dense(total), dense(left) + dense(right))


def test_dense_gradients_are_added_in_place():
    left, right = np.full((2, 2), 1.0, np.float32), np.full((2, 2), 2.0, np.float32)
    assert add_payloads(left, right) is left
    assert left.tolist() == [[3, 3], [3, 3]]
    add_to_dense(right, left)
    assert left.tolist() == [[5, 5], [5, 5]]
