"""The zeros of activations: products that read only the columns of a weight that meet another number.

A layer behind relu, or a relation of it, has mostly zeros for inputs. Where its weights stay in memory, passes over a
few rows take a second copy of them, packed by columns (`training/kernels/skipping.py`). The bits are the same.
"""

from collections.abc import Sequence

import numpy as np

from cstool.inference.products import Product
from cstool.inference.team import TAKEN_APART, Team
from cstool.model.ir import Graph, Op, OpKind
from cstool.training.kernels.call import Array, Weights
from cstool.training.kernels.quantized import QuantizedMatrix
from cstool.training.kernels.skipping import pack, skipping_linear, skipping_linear_by_turns

MOST_ROWS = 16
"""of a pass: with more, nearly every column meets another number"""
_MAKES_ZEROS = ("relu", "squared_relu")
_ACTIVATIONS = (OpKind.ACTIVATION, OpKind.GATED_ACTIVATION)


class ZeroSkipping:
    """Products that skip zeros, and their packed weights.

    Args:
        is_on: False computes with all columns, for comparison
    """

    def __init__(self, *, is_on: bool = True) -> None:
        self.is_on = is_on
        self.tallies = np.zeros(2, np.int64)
        """zeros that these products met, and all numbers, rows without a token included"""
        self._packed: dict[int, tuple[Array, Array | None]] = {}
        """by the address of a weight: the weight, and itself packed; None where it cannot be"""

    @property
    def share(self) -> float | None:
        """The share of zeros that these products met so far; None before the first."""
        zeros, numbers = self.tallies.tolist()
        return zeros / numbers if numbers else None

    def packed(self, op: Op, graph: Graph, products: Sequence[Product]) -> list[Array] | None:
        """The packed weights of an op's products; None where they are to be computed in the usual way."""
        if not self.is_on or len(products[0][0]) > MOST_ROWS or not _meets_zeros(op, graph):
            return None
        found = [self._pack(weight) for _, weight, _, _ in products]
        return [each for each in found if each is not None] if all(each is not None for each in found) else None

    def _pack(self, weight: Weights | QuantizedMatrix) -> Array | None:
        if not isinstance(weight, np.ndarray):
            return None
        address = weight.__array_interface__["data"][0]
        if address not in self._packed:
            self._packed[address] = weight, pack(weight)
        return self._packed[address][1]

    def multiply(self, products: Sequence[Product], packed: Sequence[Array], team: Team) -> None:
        """Compute products with their packed weights; a team shares their blocks."""
        both = list(zip(products, packed, strict=True))
        numbers = sum(each.size for each in packed)
        if not team.shares(numbers):
            for (x, weight, bias, y), columns in both:
                assert isinstance(weight, np.ndarray)
                skipping_linear(x, weight, columns, bias, y, self.tallies)
            return
        taken = team.counters(len(both))

        def work(member: int, _members: int) -> None:
            for k, ((x, weight, bias, y), columns) in enumerate(both):
                assert isinstance(weight, np.ndarray)
                turns = taken, k * TAKEN_APART
                skipping_linear_by_turns(x, weight, columns, bias, y, self.tallies, *turns, is_first=member == 0)

        team.run(work, numbers)


def _meets_zeros(op: Op, graph: Graph) -> bool:
    """Whether the input of an op is the output of a function that makes zeros."""
    makers = (maker for maker in graph.ops if op.inputs[0] in maker.outputs)
    return any(m.kind in _ACTIVATIONS and m.attributes["function"] in _MAKES_ZEROS for m in makers)
