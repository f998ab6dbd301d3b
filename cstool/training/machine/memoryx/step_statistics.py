"""Statistics of a step beside its loss: norms of weights and gradients, and sparsity of the weights.

All of it is taken where weights and gradients pass through MemoryX anyway, and only in steps that are looked at.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from cstool.model.ir import Panel
from cstool.training.kernels.magnitudes import sum_squares

Array = np.ndarray[Any, Any]
LAYER = re.compile(r".*layers\.(\d+)\.")
"""name of a layer in the vendor's ComputeNorm"""


class Seen(NamedTuple):
    """The statistics of a step at one node, by panel."""

    numbers: dict[Panel, int]
    """streamed, at the beginning of the step"""
    weight_squares: dict[Panel, float]
    gradient_squares: dict[Panel, float]


class StepStatistics:
    """Counts the panels that pass through MemoryX in an observed step; threads may add panels at the same time.

    Args:
        with_norms: whether norms are wanted, which cost a pass over every weight and every gradient
    """

    def __init__(self, *, with_norms: bool = False) -> None:
        self.with_norms = with_norms
        self.looks = False
        """whether the running step is observed"""
        self.seen = Seen({}, {}, {})
        """of the step, at this node"""

    @property
    def looks_at_norms(self) -> bool:
        """Whether the norms of the running step are wanted."""
        return self.looks and self.with_norms

    def begin_step(self, *, looks: bool) -> None:
        """Forget the step before, and return whether the next one is observed."""
        self.looks, self.seen = looks, Seen({}, {}, {})

    def add_weights(self, panel: Panel, numbers: Array) -> None:
        """Take note of a panel that streams: of its first time in the step, which is before its update."""
        if not self.looks or panel in self.seen.numbers:
            return
        self.seen.numbers[panel] = numbers.size
        if self.with_norms:
            self.seen.weight_squares[panel] = sum_squares(numbers.reshape(-1))

    def add_gradient(self, panel: Panel, squares: float) -> None:
        """Take note of the sum of squares of the gradient of a panel."""
        if self.looks_at_norms:
            self.seen.gradient_squares[panel] = squares

    def add(self, seen: Seen) -> None:
        """Add the statistics of another node."""
        self.seen.numbers.update(seen.numbers)
        self.seen.weight_squares.update(seen.weight_squares)
        self.seen.gradient_squares.update(seen.gradient_squares)

    def streamed_numbers(self) -> dict[str, int]:
        """Count of the streamed numbers of each weight, at the beginning of the step."""
        found: dict[str, int] = {}
        for panel, count in self.seen.numbers.items():
            found[panel.weight] = found.get(panel.weight, 0) + count
        return found

    def norms(self) -> dict[str, float]:
        """Norms of the step by tag: of all, of each layer and of each weight; none if none were wanted.

        Gradients are taken before clipping; weights are the ones for which the gradients were computed.

        Source: the vendor's ComputeNorm for the first three tags (trainer/callbacks/norm.py).
        """
        if not self.seen.weight_squares:
            return {}
        weights, gradients = _by_weight(self.seen.weight_squares), _by_weight(self.seen.gradient_squares)
        layers: dict[str, list[float]] = {}
        for name, squares in gradients.items():
            if found := LAYER.match(name):
                layers.setdefault(found[1], []).append(squares)
        return {
            "model_wise_params_norm": math.sqrt(math.fsum(weights.values())),
            "model_wise_grad_norm": math.sqrt(math.fsum(gradients.values())),
            **{f"per_layer_grad_norm/layer_{layer}": math.sqrt(math.fsum(found)) for layer, found in layers.items()},
            **{f"grad_norm/{name}": math.sqrt(squares) for name, squares in gradients.items()},
            **{f"params_norm/{name}": math.sqrt(squares) for name, squares in weights.items()},
        }


def _by_weight(squares: Mapping[Panel, float]) -> dict[str, float]:
    """Sums of panels by weight, in an order that does not depend on threads; `fsum` is exact in any order."""
    found: dict[str, list[float]] = {}
    for panel, square in squares.items():
        found.setdefault(panel.weight, []).append(square)
    return {name: math.fsum(found[name]) for name in sorted(found)}
