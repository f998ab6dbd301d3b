"""Positions of new tokens whose sequences have earlier ones already, for inference."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cstool.training.kernels._jit import elementwise
from cstool.training.kernels.bfloat16 import float_dtype
from cstool.training.kernels.cached_attention import News
from cstool.training.kernels.rotary import rotary_table, turn_rows


@elementwise
def _add(x, news, table, first, y):  # type: ignore[no-untyped-def]
    for k in range(news.slots.shape[0]):
        for i in range(news.counts[k]):
            row, position = news.starts[k] + i, news.before[k] + i - first
            if position < 0 or position >= table.shape[0]:
                continue
            for j in range(x.shape[1]):
                y[row, j] = x[row, j] + table[position, j]


def add_new_positions(x: np.ndarray, news: News, table: np.ndarray, first: int, y: np.ndarray) -> None:
    """Compute y = x + row of the token's position; tokens at positions outside the table are left alone.

    Args:
        x: (T, H) float32
        news: the sequences of the new tokens
        table: (rows, H) float32
        first: position of its first row; rows of a negative position are of no token
        y: (T, H) float32, written; may be x
    """
    _add(x, news, table, first, y)


@elementwise
def _turn(x, news, cosines, sines, head_width, y):  # type: ignore[no-untyped-def]
    for k in range(news.slots.shape[0]):
        start, before = news.starts[k], news.before[k]
        stop = start + news.counts[k]
        turn_rows(x[start:stop], cosines[before:], sines[before:], 1.0, head_width, y[start:stop])


def turn_new(x: np.ndarray, news: News, capacity: int, attributes: Mapping[str, Any], y: np.ndarray) -> None:
    """Turn the pairs of each head by the token's position; see `rotary.turn`.

    Args:
        x: (T, n * D) float32
        news: the sequences of the new tokens
        capacity: most tokens of a sequence
        attributes: of the op
        y: (T, n * D) float32, written; may be x
    """
    tables = rotary_table(capacity, attributes["frequencies"], attributes["amplitude"], float_dtype(x))
    _turn(x, news, *tables, attributes["head_width"], y)
