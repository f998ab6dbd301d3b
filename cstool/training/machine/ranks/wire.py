"""Weights and gradients as they travel between ranks: a body and arrays. Sparse weights travel without their zeros."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cstool.model.ir import Panel
from cstool.training.kernels.call import Payload, Rows, Weights
from cstool.training.kernels.sparse import KernelChoice, Lend, Pattern, SparseMatrix
from cstool.training.machine.swarmx import Node

Array = np.ndarray[Any, Any]


class SparseForm(NamedTuple):
    """All of a sparse panel except its arrays; see `SparseMatrix` and `Pattern`."""

    shape: tuple[int, int]
    width: int
    choice: KernelChoice
    dense_gradient: bool
    room: int


class PanelSent(NamedTuple):
    """The body of a panel on its way to the systems."""

    panel: Panel
    number: int
    """its number among all sent panels, from 1"""
    sparse: SparseForm | None
    """None of a dense panel"""


class SumSent(NamedTuple):
    """The body of a sum of gradients on its way to MemoryX."""

    panel: Panel
    op: str
    node: Node


def pack_weights(weights: Weights) -> tuple[SparseForm | None, list[Array]]:
    """A panel as it travels: its form, None of a dense one, and its arrays, the weights first."""
    if isinstance(weights, np.ndarray):
        return None, [weights]
    pattern = weights.pattern
    form = SparseForm(pattern.shape, pattern.width, weights.choice, weights.dense_gradient, weights.room)
    return form, [weights.values, pattern.rows, pattern.counts, pattern.columns]


def unpack_weights(form: SparseForm | None, arrays: Sequence[Array], lend: Lend) -> Weights:
    """A panel of which `pack_weights` made this.

    Args:
        lend: see `SparseMatrix`
    """
    if form is None:
        return arrays[0]
    values, rows, counts, columns = arrays
    pattern = Pattern(form.shape, form.width, rows, counts, columns)
    return SparseMatrix(pattern, values, form.choice, form.dense_gradient, form.room, lend)


def pack_gradient(payload: Payload) -> list[Array]:
    """The arrays of a gradient: one, or for `Rows` two."""
    return [payload] if isinstance(payload, np.ndarray) else [payload.indices, payload.values]


def unpack_gradient(arrays: Sequence[Array]) -> Payload:
    """The gradient of which `pack_gradient` made this."""
    return arrays[0] if len(arrays) == 1 else Rows(*arrays)
