"""How far apart two tensors are, piece by piece."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Tolerance:
    """What is close: a difference of at most `atol` and `rtol` times the right number; infinity is close to itself."""

    rtol: float = 1e-5
    atol: float = 1e-8


class TensorDifference:
    """Add up the differences of two tensors, in float64.

    Numbers that are equal, or have the same bits, differ by nothing: so NaN may be equal to NaN.

    Args:
        size: elements of each tensor, also of those pieces that are equal and so never shown
        tolerance: None for equality
    """

    def __init__(self, size: int, tolerance: Tolerance | None) -> None:
        self._size, self._tolerance = size, tolerance
        self._squares = 0.0
        self.differing = 0
        """numbers that are not equal"""
        self.beyond = 0
        """of these, those that the tolerance does not allow"""
        self.greatest = 0.0
        """of all differences; NaN where a number is not comparable"""

    @property
    def mean_square(self) -> float:
        """Mean of the squared differences, 0 for tensors without elements."""
        return self._squares / max(1, self._size)

    def add(self, left: Array, right: Array) -> None:
        """Compare the same piece of both."""
        same = _same(left, right)
        if same.all():
            return
        with np.errstate(over="ignore", invalid="ignore"):
            distance = np.where(same, 0.0, _distance(left, right))
            beyond = ~same
            if self._tolerance is not None:
                allowed = self._tolerance.atol + self._tolerance.rtol * np.abs(right.astype(np.float64))
                beyond &= ~(np.isfinite(distance) & (distance <= allowed))
            self.greatest = float(np.maximum(self.greatest, distance.max()))
            self._squares += float(np.square(distance, out=distance).sum())
        self.differing += int(same.size - np.count_nonzero(same))
        self.beyond += int(np.count_nonzero(beyond))


def _same(left: Array, right: Array) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = left == right
    if left.dtype == right.dtype and left.dtype.kind == "f":
        bits = f"u{left.itemsize}"
        same |= left.view(bits) == right.view(bits)
    return same


def _distance(left: Array, right: Array) -> NDArray[np.float64]:
    if left.dtype == right.dtype and left.dtype.kind in "iu":
        # Exact also where float64 is too coarse for the numbers themselves: the difference always fits 64 bits.
        larger, smaller = (pick(left, right).astype(np.uint64) for pick in (np.maximum, np.minimum))
        return (larger - smaller).astype(np.float64)
    return np.abs(left.astype(np.float64) - right.astype(np.float64))
