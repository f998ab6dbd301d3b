"""Rotary positions: each pair of a head turns by the angle of its position.

Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021, section 3.4.2.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cstool.training.kernels._jit import elementwise
from cstool.training.kernels.bfloat16 import float_dtype, narrow, widen
from cstool.training.kernels.call import Call
from cstool.training.kernels.tables import BLOCK_ROWS, shared_tables


@elementwise
def turn_rows(x, cosines, sines, direction, head_width, y):  # type: ignore[no-untyped-def]
    """Turn rows forward (direction 1) or back (-1), the first by the first angles. For other kernels, too."""
    sign = cosines.dtype.type(direction)
    tokens, width = x.shape
    sequence, pairs = cosines.shape
    row = np.empty(head_width, cosines.dtype)
    for t in range(tokens):
        cosine = cosines[t % sequence]
        sine = sines[t % sequence]
        for h in range(width // head_width):
            begin = h * head_width
            head = x[t, begin : begin + head_width]
            turned = y[t, begin : begin + head_width]
            # Through a row of its own, so that y may be x and still the loops vectorise.
            for i in range(pairs):
                even, odd = widen(head[2 * i]), widen(head[2 * i + 1])
                row[2 * i] = even * cosine[i] - odd * (sign * sine[i])
                row[2 * i + 1] = odd * cosine[i] + even * (sign * sine[i])
            for j in range(2 * pairs, head_width):
                row[j] = widen(head[j])
            for j in range(head_width):
                turned[j] = narrow(row[j], y)


def rotary_table(
    sequence: int, frequencies: tuple[float, ...], amplitude: float, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cosines and sines of all angles, times the amplitude, each (S, r / 2), rounded once from float64."""

    def make() -> tuple[np.ndarray, np.ndarray]:
        cosines, sines = (np.empty((sequence, len(frequencies)), dtype) for _ in range(2))
        for start in range(0, sequence, BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, sequence))
            angles = np.arange(rows.start, rows.stop)[:, None] * np.array(frequencies, np.float64)
            cosines[rows], sines[rows] = amplitude * np.cos(angles), amplitude * np.sin(angles)
        return cosines, sines

    cosines, sines = shared_tables(("rotary", sequence, frequencies, amplitude, dtype), make)
    return cosines, sines


def turn(x: np.ndarray, sequence: int, attributes: Mapping[str, Any], y: np.ndarray, *, back: bool = False) -> None:
    """Turn pair i of each head, its elements 2i and 2i + 1, by position x frequencies[i]; pass on the other elements.

    Args:
        x: (T, n * D) float32 or bfloat16, rows grouped by sample
        sequence: S
        attributes: of the op: `head_width` D, `frequencies` of r / 2 pairs, r at most D [radians per position], and
            the `amplitude` that turned elements are multiplied by
        y: (T, n * D) float32 or bfloat16, written; may be x
        back: turn the other way, with the same amplitude
    """
    cosines, sines = rotary_table(sequence, attributes["frequencies"], attributes["amplitude"], float_dtype(x))
    turn_rows(x, cosines, sines, -1.0 if back else 1.0, attributes["head_width"], y)


def rotary_forward(c: Call) -> None:
    """Turn the pairs of each head; see `turn`."""
    turn(c.inputs[0], c.sequence, c.attributes, c.outputs[0])


def rotary_backward(c: Call) -> None:
    """Compute the delta of x: the delta of y turned back."""
    turn(c.delta_y, c.sequence, c.attributes, c.delta_x(0), back=True)
