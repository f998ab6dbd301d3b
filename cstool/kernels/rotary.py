"""Rotary positions: each pair of a head turns by the angle of its position.

Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021, section 3.4.2.
"""

import numpy as np

from cstool.kernels._jit import elementwise
from cstool.kernels.tables import BLOCK_ROWS, shared_tables


@elementwise
def _turn(x, cosines, sines, direction, head_width, y):  # type: ignore[no-untyped-def]
    """Turn forward (direction 1) or back (-1)."""
    sign = x.dtype.type(direction)
    tokens, width = x.shape
    sequence, pairs = cosines.shape
    row = np.empty(head_width, x.dtype)
    for t in range(tokens):
        cosine = cosines[t % sequence]
        sine = sines[t % sequence]
        for h in range(width // head_width):
            begin = h * head_width
            head = x[t, begin : begin + head_width]
            turned = y[t, begin : begin + head_width]
            # Through a row of its own, so that y may be x and still the loops vectorise.
            for i in range(pairs):
                row[2 * i] = head[2 * i] * cosine[i] - head[2 * i + 1] * (sign * sine[i])
                row[2 * i + 1] = head[2 * i + 1] * cosine[i] + head[2 * i] * (sign * sine[i])
            for j in range(2 * pairs, head_width):
                row[j] = head[j]
            for j in range(head_width):
                turned[j] = row[j]


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


def rotary_forward(
    x: np.ndarray,
    head_width: int,
    sequence: int,
    frequencies: tuple[float, ...],
    amplitude: float,
    y: np.ndarray,
    first: int = 0,
) -> None:
    """Turn pair i of each head, its elements 2i and 2i + 1, by position x frequencies[i]; pass on what is no pair.

    Args:
        x: (T, n * D) float32, rows grouped by sample
        head_width: D
        sequence: S
        frequencies: r / 2 angles [radians per position], r at most D
        amplitude: what the turned elements are multiplied by
        y: (T, n * D) float32, written; may be x
        first: position of the first token, where x is a part of one sample
    """
    cosines, sines = rotary_table(sequence, frequencies, amplitude, x.dtype)
    _turn(x, cosines[first:], sines[first:], 1.0, head_width, y)


def rotary_backward(
    delta_y: np.ndarray,
    head_width: int,
    sequence: int,
    frequencies: tuple[float, ...],
    amplitude: float,
    delta_x: np.ndarray,
) -> None:
    """Compute the delta of x: the delta of y turned back, with the same amplitude.

    Args:
        delta_y: (T, n * D) float32
        head_width, sequence, frequencies, amplitude: as in forward
        delta_x: (T, n * D) float32, written; may be delta_y
    """
    cosines, sines = rotary_table(sequence, frequencies, amplitude, delta_y.dtype)
    _turn(delta_y, cosines, sines, -1.0, head_width, delta_x)
