"""What travels from a CSX to MemoryX: the gradient of one panel, dense or as the few rows that are not zero."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array = np.ndarray[Any, Any]


class Rows(NamedTuple):
    """The rows of a panel's gradient that are not zero, as an embedding's are."""

    indices: Array
    """(n,) int32, ascending, row within the panel"""
    values: Array
    """(n, width) float32"""


Payload: TypeAlias = Array | Rows


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
