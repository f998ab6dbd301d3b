"""A linear layer whose weight is sparse: one AXPY per non-zero, over 64 tokens at a time.

Activations lie token by token; these kernels turn them, 64 tokens at a time, into tiles feature by feature, in which a
non-zero meets 64 neighbouring numbers. What they compute is what the dense kernels compute, in another order of sums.
They are single-threaded and let go of the interpreter; lanes bring the parallelism.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cstool.kernels._jit import elementwise, inlined
from cstool.kernels.scratch import Scratch
from cstool.kernels.sparse._vectors import (
    FLOAT_BYTES,
    LANES,
    add_transpose,
    make_dot_row,
    make_gather_row,
    make_scatter_row,
    prefetch,
    transpose,
)
from cstool.kernels.sparse.pattern import AHEAD, CHUNK_ROWS, Pattern

VECTORS = 4
TILE_TOKENS = VECTORS * LANES
"""tokens of a tile: an output's tile of them stays in four registers of 512 bits"""
_TILE_BYTES = TILE_TOKENS * FLOAT_BYTES
_LINE_BYTES = LANES * FLOAT_BYTES


def _block_loop(row: Any) -> Any:
    """Return a loop of `row`, one of the intrinsics, over the rows of a block."""

    @inlined
    def loop(pattern, slot, here, columns, numbers, tiles, row_tiles):  # type: ignore[no-untyped-def]
        """Return how many non-zeros the block has.

        `numbers` is the address of what each non-zero has one of, `tiles` that of the block's features, `row_tiles`
        that of the chunk's rows.
        """
        order, counts = pattern
        done = np.int64(0)
        for s in range(slot, slot + here):
            # Rows come in the order of their counts, which no CPU foresees.
            ahead = row_tiles + np.int64(order[s + AHEAD]) * _TILE_BYTES
            for v in range(VECTORS):
                prefetch(ahead + v * _LINE_BYTES)
            count = np.int64(counts[s])
            tile = row_tiles + np.int64(order[s]) * _TILE_BYTES
            row(columns + done, numbers + done * FLOAT_BYTES, count, tiles, tile)
            done += count
        return done

    return loop


_begin_outputs: Any = _block_loop(make_gather_row(VECTORS, begins=True))
_add_to_outputs: Any = _block_loop(make_gather_row(VECTORS, begins=False))
_add_to_deltas: Any = _block_loop(make_scatter_row(VECTORS))
_add_to_gradients: Any = _block_loop(make_dot_row(VECTORS))


@elementwise
def _pack(x, first, tiles):  # type: ignore[no-untyped-def]
    """Turn tokens `first` to `first` + 64 of x into tiles, with zeros for tokens that are not there."""
    tokens, width = min(TILE_TOKENS, x.shape[0] - first), x.shape[1]
    stride = x.strides[0]
    blocks = width // LANES * LANES
    for t in range(0, TILE_TOKENS, LANES):
        full = blocks if t + LANES <= tokens else 0
        source = x.ctypes.data + (first + t) * stride
        target = tiles.ctypes.data + t * FLOAT_BYTES
        for f in range(0, full, LANES):
            transpose(source + f * FLOAT_BYTES, stride, target + f * _TILE_BYTES, _TILE_BYTES)
        for f in range(full, width):
            for i in range(t, t + LANES):
                tiles[f, i] = x[first + i, f] if i < tokens else 0.0


@elementwise
def _unpack(tiles, y, first, add):  # type: ignore[no-untyped-def]
    """Write tiles back to tokens `first` to `first` + 64 of y, or add them to what is there."""
    tokens, width = min(TILE_TOKENS, y.shape[0] - first), y.shape[1]
    stride = y.strides[0]
    blocks = width // LANES * LANES
    for t in range(0, tokens, LANES):
        full = blocks if t + LANES <= tokens else 0
        source = tiles.ctypes.data + t * FLOAT_BYTES
        target = y.ctypes.data + (first + t) * stride
        for f in range(0, full, LANES):
            if add:
                add_transpose(source + f * _TILE_BYTES, _TILE_BYTES, target + f * FLOAT_BYTES, stride)
            else:
                transpose(source + f * _TILE_BYTES, _TILE_BYTES, target + f * FLOAT_BYTES, stride)
        for f in range(full, width):
            for i in range(t, min(t + LANES, tokens)):
                y[first + i, f] = tiles[f, i] + (y[first + i, f] if add else 0.0)


@elementwise
def _forward(x, width, pattern, columns, values, bias, y, x_tiles, y_tiles):  # type: ignore[no-untyped-def]
    rows, inputs = y.shape[1], x.shape[1]
    x_at, y_at = x_tiles.ctypes.data, y_tiles.ctypes.data
    columns_at, values_at = columns.ctypes.data, values.ctypes.data
    for token in range(0, x.shape[0], TILE_TOKENS):
        _pack(x, token, x_tiles)
        slot, placed = 0, 0
        for first in range(0, rows, CHUNK_ROWS):
            here = min(CHUNK_ROWS, rows - first)
            for r in range(here):
                y_tiles[r, 0] = bias[first + r] if bias.shape[0] > 0 else 0.0
            for start in range(0, inputs, width):
                block = pattern, slot, here, columns_at + placed, values_at + placed * FLOAT_BYTES
                if start == 0:
                    placed += _begin_outputs(*block, x_at, y_at)
                else:
                    placed += _add_to_outputs(*block, x_at + start * _TILE_BYTES, y_at)
                slot += here
            _unpack(y_tiles, y[:, first : first + here], token, False)


@elementwise
def _backward(  # type: ignore[no-untyped-def]
    x, delta_y, width, pattern, columns, values, delta_x, accumulate, grad, x_tiles, delta_y_tiles, delta_x_tiles
):
    rows, inputs = delta_y.shape[1], x.shape[1]
    wants_delta, wants_grad = delta_x.shape[0] > 0, grad.shape[0] > 0
    x_at, delta_x_at, delta_y_at = x_tiles.ctypes.data, delta_x_tiles.ctypes.data, delta_y_tiles.ctypes.data
    columns_at, values_at, grad_at = columns.ctypes.data, values.ctypes.data, grad.ctypes.data
    grad[:] = 0
    for token in range(0, x.shape[0], TILE_TOKENS):
        if wants_grad:
            _pack(x, token, x_tiles)
        if wants_delta:
            delta_x_tiles[:] = 0
        slot, placed = 0, 0
        for first in range(0, rows, CHUNK_ROWS):
            here = min(CHUNK_ROWS, rows - first)
            _pack(delta_y[:, first : first + here], token, delta_y_tiles)
            for start in range(0, inputs, width):
                count, tile, number = 0, start * _TILE_BYTES, placed * FLOAT_BYTES
                block = pattern, slot, here, columns_at + placed
                if wants_grad:
                    count = _add_to_gradients(*block, grad_at + number, x_at + tile, delta_y_at)
                if wants_delta:
                    count = _add_to_deltas(*block, values_at + number, delta_x_at + tile, delta_y_at)
                placed += count
                slot += here
        if wants_delta:
            _unpack(delta_x_tiles, delta_x, token, accumulate)


def _lend_tiles(scratch: Scratch, name: str, features: int) -> np.ndarray:
    """Return (features, 64) on a multiple of 64 bytes, wherever the memory begins that is lent."""
    memory = scratch(f"sparse.{name}", (features * TILE_TOKENS + LANES,))
    start = -memory.ctypes.data % _LINE_BYTES // FLOAT_BYTES
    return memory[start : start + features * TILE_TOKENS].reshape(features, TILE_TOKENS)


def sparse_linear_forward(
    x: np.ndarray, pattern: Pattern, values: np.ndarray, bias: np.ndarray | None, y: np.ndarray, scratch: Scratch
) -> None:
    """Compute y = x weight^T + bias for a range of outputs.

    Args:
        x: (T, in) float32
        pattern: where the non-zeros of (rows, in) are
        values: (n,) float32, the non-zeros in the order of the pattern
        bias: (rows,) float32 or None
        y: (T, rows) float32, a column slice of the layer's output
        scratch: lends tiles: (in, 64) and (512, 64)
    """
    x_tiles, y_tiles = _lend_tiles(scratch, "x", x.shape[1]), _lend_tiles(scratch, "y", CHUNK_ROWS)
    offset = values[:0] if bias is None else bias
    order = pattern.rows, pattern.counts
    _forward(x, pattern.width, order, pattern.columns, values, offset, y, x_tiles, y_tiles)


def sparse_linear_backward(
    x: np.ndarray,
    delta_y: np.ndarray,
    pattern: Pattern,
    values: np.ndarray,
    delta_x: np.ndarray | None,
    accumulate: bool,
    grad: np.ndarray | None,
    scratch: Scratch,
) -> None:
    """Compute what a range of outputs contributes to the delta of x, and the gradient of its non-zeros.

    Args:
        x: (T, in) float32
        delta_y: (T, rows) float32
        pattern: where the non-zeros of (rows, in) are
        values: (n,) float32, the non-zeros in the order of the pattern
        delta_x: (T, in) float32, or None where nobody wants it
        accumulate: add to delta_x instead of overwriting it
        grad: (n,) float32, written, in the order of the pattern; or None
        scratch: lends tiles: twice (in, 64), and (512, 64)
    """
    inputs = x.shape[1]
    x_tiles, delta_x_tiles = _lend_tiles(scratch, "x", inputs), _lend_tiles(scratch, "delta_x", inputs)
    delta_y_tiles = _lend_tiles(scratch, "y", CHUNK_ROWS)
    _backward(
        x,
        delta_y,
        pattern.width,
        (pattern.rows, pattern.counts),
        pattern.columns,
        values,
        x[:0] if delta_x is None else delta_x,
        accumulate,
        values[:0] if grad is None else grad,
        x_tiles,
        delta_y_tiles,
        delta_x_tiles,
    )
