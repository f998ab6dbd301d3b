"""The size of passes, and a check of their results."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cstool.foundation.errors import NonFiniteError

Array = np.ndarray[Any, Any]

PASS_ROWS = 512
"""most tokens of a pass: enough for products as fast as they get, few enough for activations to stay small"""


def whole_passes(lengths: Sequence[int], batch_size: int | None = None) -> Iterator[list[int]]:
    """Yield the numbers of the texts of each pass.

    Args:
        lengths: tokens of each text, at least one text
        batch_size: texts of a pass; None for as many as have `PASS_ROWS` tokens, at least one
    """
    numbers: list[int] = []
    rows = 0
    for number, length in enumerate(lengths):
        is_full = rows + length > PASS_ROWS if batch_size is None else len(numbers) == batch_size
        if numbers and is_full:
            yield numbers
            numbers, rows = [], 0
        numbers.append(number)
        rows += length
    yield numbers


def check_finite(numbers: Array, which: str) -> None:
    """Check the results of a pass.

    Args:
        numbers: (n,) float32
        which: as messages name them

    Raises:
        NonFiniteError: one is not finite
    """
    if not np.isfinite(numbers).all():
        raise NonFiniteError(
            f"{which} must be finite, got {numbers[~np.isfinite(numbers)][0]}",
            "the checkpoint may be of a run that went astray: cstool checkpoint verify, or an earlier one",
        )
