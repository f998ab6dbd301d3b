"""Products of rows with weights that stream or stay: dense, sparse and quantised. A team shares the rows of weights."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cstool.inference.team import TAKEN_APART, Team
from cstool.inference.weight_stream import WeightStream
from cstool.model.ir import Panel
from cstool.training.kernels.call import Weights
from cstool.training.kernels.quantized import (
    NO_ROWS,
    QuantizedMatrix,
    QuantizedRows,
    lend_rows,
    quantize_rows,
    quantized_linear,
    quantized_linear_by_turns,
)
from cstool.training.kernels.recording import needs_interpreter
from cstool.training.kernels.rowwise import linear, linear_by_turns
from cstool.training.kernels.sparse import SparseMatrix, sparse_linear_forward
from cstool.training.machine.csx import Scratch
from cstool.training.machine.plan import PlannedOp

Array = np.ndarray[Any, Any]

SPARSE_DENSITY = 1 / 3
"""density up to which the sparse kernel computes with a weight: it takes some three times as long per element as
reading a dense one from main memory does. Nothing of the pass decides, so that bits do not depend on it"""
ROWS_PER_READING = 4
"""rows of x: their products with a weight take about as long as reading it"""
MOST_SHAPES = 64
"""shapes of x with memory for quantised rows, at most"""


class Product(NamedTuple):
    """y = x weight^T + bias."""

    x: Array
    weight: Weights | QuantizedMatrix
    bias: Array | None
    y: Array


class Products:
    """Computes products.

    Args:
        stream: where weights come from
        team: threads
        scratch: memory of the sparse kernel
    """

    def __init__(self, stream: WeightStream, team: Team, scratch: Scratch) -> None:
        self._stream, self._team, self._scratch = stream, team, scratch
        self._quantized: dict[tuple[int, ...], QuantizedRows] = {}
        """memory for rows of x that meet quantised weights, by the shape of x"""

    def by_panels(self, planned: PlannedOp, x: Array, y: Array, small: Array | None = None) -> Iterator[Product]:
        """Yield the products of an op: each panel once, in the order in which the stream was told to expect them.

        Args:
            small: of an output layer that has an adapter, its last input; the adapter's product is added in the end
        """
        with self._stream.lent(planned.vector_panels) as vectors:
            has_bias = len(vectors) > (small is not None)
            for panel in planned.matrix_panels:
                with self._stream.lent([panel]) as (weight,):
                    bias = rows_of(vectors[0], panel) if has_bias else None
                    yield Product(x, weight, bias, y[:, panel.start : panel.stop])
            if small is not None and isinstance(vectors[-1], np.ndarray):
                np.add(y, small @ vectors[-1].T, out=y)

    def compute(self, planned: PlannedOp, x: Array, y: Array, small: Array | None = None) -> None:
        """Compute the products of an op, see `by_panels`, one after the other."""
        for product in self.by_panels(planned, x, y, small):
            self.multiply([product])

    def multiply(self, products: Sequence[Product]) -> None:
        """Compute several products; the team shares the rows of all dense weights together."""
        dense: list[tuple[Array | QuantizedMatrix, Product]] = []
        for product in products:
            weight = product.weight
            if isinstance(weight, SparseMatrix):
                needs_interpreter()
            if isinstance(weight, SparseMatrix) and weight.pattern.density <= SPARSE_DENSITY:
                sparse_linear_forward(product.x, weight.pattern, weight.values, product.bias, product.y, self._scratch)
            else:
                dense.append((weight.dense() if isinstance(weight, SparseMatrix) else weight, product))
        numbers = sum(weight.size * max(1, len(product.x) // ROWS_PER_READING) for weight, product in dense)
        shares = self._team.shares(numbers)
        rows = self._quantized_rows(dense)
        if not shares:
            for matrix, product in dense:
                if isinstance(matrix, QuantizedMatrix):
                    quantized_linear(rows, matrix, product.bias, product.y)
                else:
                    linear(product.x, matrix, product.bias, product.y)
            return
        taken = self._team.counters(len(dense))

        def work(_member: int, _members: int) -> None:
            for k, (matrix, product) in enumerate(dense):
                index = k * TAKEN_APART
                if isinstance(matrix, QuantizedMatrix):
                    quantized_linear_by_turns(rows, matrix, product.bias, product.y, taken, index)
                else:
                    linear_by_turns(product.x, matrix, product.bias, product.y, taken, index)

        self._team.run(work, numbers)

    def _quantized_rows(self, products: Sequence[tuple[Array | QuantizedMatrix, Product]]) -> QuantizedRows:
        """The rows of x of several products as quantised weights meet them; products of one call have the same x."""
        for weight, product in products:
            if isinstance(weight, QuantizedMatrix):
                shape = product.x.shape
                if (memory := self._quantized.get(shape)) is None:
                    if len(self._quantized) >= MOST_SHAPES:
                        self._quantized.clear()
                    memory = self._quantized[shape] = lend_rows(len(product.x), weight)
                quantize_rows(product.x, weight.group, memory)
                return memory
        return NO_ROWS


def rows_of(bias: Weights, panel: Panel) -> Array | None:
    """The part of a bias that goes with the rows of a panel; None where it is none."""
    return bias[panel.start : panel.stop] if isinstance(bias, np.ndarray) else None
