"""What travels between MemoryX and a CSX: the weights of one panel down, its gradient back.

Weights are dense or a `SparseMatrix`. A gradient is dense, the few rows that are not zero, or, of sparse weights, the
numbers of the non-zeros.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cstool.kernels.sparse.matrix import SparseMatrix

Array = np.ndarray[Any, Any]


class Rows(NamedTuple):
    """The rows of a panel's gradient that are not zero, as an embedding's are."""

    indices: Array
    """(n,) int32, ascending, row within the panel"""
    values: Array
    """(n, width) float32"""


Payload: TypeAlias = Array | Rows
"""of a gradient"""
Weights: TypeAlias = Array | SparseMatrix
"""of a panel"""


def add_payloads(left: Payload, right: Payload) -> Payload:
    """Return left + right. Dense: in place, the sum stands in `left`. Rows: a row that both have is left + right."""
    if isinstance(left, Rows):
        assert isinstance(right, Rows)
        indices = np.union1d(left.indices, right.indices)
        values = np.zeros((len(indices), left.values.shape[1]), left.values.dtype)
        values[np.searchsorted(indices, left.indices)] = left.values
        values[np.searchsorted(indices, right.indices)] += right.values
        return Rows(indices, values)
    np.add(left, right, out=left)
    return left


def add_to_dense(payload: Payload, out: Array) -> None:
    """Add a payload to a dense gradient in place."""
    if isinstance(payload, Rows):
        out[payload.indices] += payload.values
    else:
        np.add(out, payload, out=out)
