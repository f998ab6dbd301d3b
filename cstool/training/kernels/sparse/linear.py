"""A linear layer whose weight is sparse: one AXPY per non-zero, over 64 tokens at a time.

Activations lie token by token; these kernels turn them, 64 tokens at a time, into tiles feature by feature, in which a
non-zero meets 64 neighbouring numbers. The results equal the dense kernels', but for the order of sums.
They are single-threaded and let go of the interpreter; lanes bring the parallelism.
"""

from typing import Any

import numpy as np

from cstool.training.kernels._jit import elementwise, inlined
from cstool.training.kernels._vectors import FLOAT_BYTES, LANES, LINE_BYTES
from cstool.training.kernels.bfloat16 import narrow, widen
from cstool.training.kernels.gemm import Scratch
from cstool.training.kernels.sparse._vectors import add_unpack, make_dot_row, make_gather_row, pack, prefetch, unpack
from cstool.training.kernels.sparse.pattern import AHEAD, CHUNK_ROWS, WIDE, Pattern

VECTORS = 4
TILE_TOKENS = VECTORS * LANES
"""tokens of a tile: an output's tile of them stays in four registers of 512 bits"""
_TILE_BYTES = TILE_TOKENS * FLOAT_BYTES
_ZERO = np.zeros(1, np.float32)
LONG_ROW = 24
"""non-zeros from which on a row keeps a CPU so busy that it does not look at the next one by itself"""
READ_AHEAD, WRITE_AHEAD = 6, 1
"""blocks of 16 features that turning into tiles, and back, asks for ahead; best of 0 to 16, as measured"""


def _block_loop(name: str, row: Any) -> Any:
    """Return a loop of `row`, one of the intrinsics, over the rows of a block.

    It is a function of its own, and so has all registers. Its symbol in the compiled code comes from `name`: two loops
    that were compiled in different processes must have different symbols.
    """

    def loop(  # type: ignore[no-untyped-def]
        pattern, slot, here, columns, at, tiles, row_tiles, starts, starts_stride, numbers, x_tiles
    ):
        """Number of non-zeros of the block.

        Addresses: `at` of the block's entries of `numbers`, one for each non-zero; `tiles` of the block's features;
        `row_tiles` of the chunk's rows; `starts` of the first values of their outputs.
        """
        order, counts = pattern
        column = columns
        # An index without a sign spares Numba's look at whether it is negative.
        for s in range(np.uint64(slot), np.uint64(slot + here)):
            count = np.int64(counts[s])
            if count >= LONG_ROW:
                ahead = row_tiles + np.int64(order[s + np.uint64(AHEAD)]) * _TILE_BYTES
                for v in range(VECTORS):
                    prefetch(ahead + v * LINE_BYTES)
            this = np.int64(order[s])
            tile = row_tiles + this * _TILE_BYTES
            row(column, at, count, tiles, tile, starts + this * starts_stride, numbers, x_tiles)
            column += count
            at += count * numbers.itemsize
        return column - columns

    loop.__qualname__ = name
    return elementwise(loop)


_begin_outputs: Any = _block_loop("_begin_outputs", make_gather_row(VECTORS, begins=True))
_add_to_outputs: Any = _block_loop("_add_to_outputs", make_gather_row(VECTORS, begins=False))
_add_to_gradients: Any = _block_loop("_add_to_gradients", make_dot_row(VECTORS))


@inlined
def _ask_for_block(address, stride):  # type: ignore[no-untyped-def]
    """Ask for the lines of a block of 16 tokens x 16 features.

    They are asked for to be read even where they will be written, which takes a third less time than to ask to write.
    """
    for i in range(LANES):
        prefetch(address + i * stride)


@elementwise
def _pack(x, first, tiles):  # type: ignore[no-untyped-def]
    """Turn tokens `first` to `first` + 64 of x into tiles, with zeros for tokens that are not there."""
    tokens, width = min(TILE_TOKENS, x.shape[0] - first), x.shape[1]
    stride, size = x.strides[0], x.itemsize
    tile, together = TILE_TOKENS * tiles.itemsize, LANES * FLOAT_BYTES // tiles.itemsize
    blocks = width // LANES * LANES
    for t in range(0, TILE_TOKENS, together):
        full = blocks if t + together <= tokens else 0
        source = x.ctypes.data + (first + t) * stride
        target = tiles.ctypes.data + t * tiles.itemsize
        for f in range(0, full, LANES):
            for part in range(0, together, LANES):
                _ask_for_block(source + part * stride + f * size + READ_AHEAD * LINE_BYTES, stride)
            pack(source + f * size, stride, target + f * tile, tile, x, tiles)
        for f in range(full, width):
            for i in range(together):
                # Of bfloat16, 16 tokens and the 16 after them take turns.
                place = t + i % LANES * (together // LANES) + i // LANES
                tiles[f, place] = narrow(widen(x[first + t + i, f]), tiles) if t + i < tokens else 0


@elementwise
def _unpack(tiles, y, first, add):  # type: ignore[no-untyped-def]
    """Write tiles back to tokens `first` to `first` + 64 of y, or add them to its content."""
    tokens, width = min(TILE_TOKENS, y.shape[0] - first), y.shape[1]
    stride, size = y.strides[0], y.itemsize
    blocks = width // LANES * LANES
    for t in range(0, tokens, LANES):
        full = blocks if t + LANES <= tokens else 0
        source = tiles.ctypes.data + t * FLOAT_BYTES
        target = y.ctypes.data + (first + t) * stride
        for f in range(0, full, LANES):
            _ask_for_block(target + f * size + WRITE_AHEAD * LINE_BYTES, stride)
            if add:
                add_unpack(source + f * _TILE_BYTES, _TILE_BYTES, target + f * size, stride, y)
            else:
                unpack(source + f * _TILE_BYTES, _TILE_BYTES, target + f * size, stride, y)
        for f in range(full, width):
            for i in range(t, min(t + LANES, tokens)):
                before = widen(y[first + i, f]) if add else np.float32(0)
                y[first + i, f] = narrow(tiles[f, i] + before, y)


@elementwise
def _product(x, width, pattern, columns, values, starts, y, accumulate, x_tiles, y_tiles):  # type: ignore[no-untyped-def]
    rows, inputs = y.shape[1], x.shape[1]
    x_at, y_at, starts_at = x_tiles.ctypes.data, y_tiles.ctypes.data, starts.ctypes.data
    starts_stride = FLOAT_BYTES if starts.shape[0] == rows else 0
    columns_at, values_at = columns.ctypes.data, values.ctypes.data
    for token in range(0, x.shape[0], TILE_TOKENS):
        slot, placed = 0, 0
        for first in range(0, rows, CHUNK_ROWS):
            here = min(CHUNK_ROWS, rows - first)
            begins = starts_at + first * starts_stride, starts_stride, values, x_tiles
            for start in range(0, inputs, width):
                _pack(x[:, start : start + width], token, x_tiles)
                block = pattern, slot, here, columns_at + placed, values_at + placed * values.itemsize, x_at, y_at
                placed += _begin_outputs(*block, *begins) if start == 0 else _add_to_outputs(*block, *begins)
                slot += here
            _unpack(y_tiles, y[:, first : first + here], token, accumulate)


@elementwise
def _gradient(x, delta_y, width, pattern, columns, grad, x_tiles, delta_y_tiles):  # type: ignore[no-untyped-def]
    rows, inputs = delta_y.shape[1], x.shape[1]
    x_at, delta_y_at = x_tiles.ctypes.data, delta_y_tiles.ctypes.data
    columns_at, grad_at = columns.ctypes.data, grad.ctypes.data
    grad[:] = 0
    for token in range(0, x.shape[0], TILE_TOKENS):
        slot, placed = 0, 0
        for first in range(0, rows, CHUNK_ROWS):
            here = min(CHUNK_ROWS, rows - first)
            _pack(delta_y[:, first : first + here], token, delta_y_tiles)
            for start in range(0, inputs, width):
                _pack(x[:, start : start + width], token, x_tiles)
                block = pattern, slot, here, columns_at + placed, grad_at + placed * FLOAT_BYTES
                placed += _add_to_gradients(*block, x_at, delta_y_at, x_at, 0, grad, x_tiles)
                slot += here


def _lend_tiles(scratch: Scratch, dtype: np.dtype = _ZERO.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return tiles for the inputs of a block and for the rows of a chunk, enough for the largest.

    Both have 64 columns and begin on a multiple of 64 bytes, wherever the lent memory begins.

    Args:
        dtype: of the tiles for inputs; tiles for rows are float32
    """
    features = WIDE + CHUNK_ROWS
    memory = scratch("sparse.tiles", (features * TILE_TOKENS + LANES,))
    start = -memory.ctypes.data % LINE_BYTES // FLOAT_BYTES
    tiles = memory[start : start + features * TILE_TOKENS].reshape(features, TILE_TOKENS)
    return tiles[:WIDE].view(dtype).reshape(-1, TILE_TOKENS), tiles[WIDE:]


def sparse_linear_forward(
    x: np.ndarray, pattern: Pattern, values: np.ndarray, bias: np.ndarray | None, y: np.ndarray, scratch: Scratch
) -> None:
    """Compute y = x weight^T + bias for a range of outputs.

    Args:
        x: (T, in) float32 or bfloat16
        pattern: where the non-zeros of (rows, in) are
        values: (n,) float32 or bfloat16, the non-zeros in the order of the pattern
        bias: (rows,) float32 or None
        y: (T, rows) float32 or bfloat16, a column slice of the layer's output
        scratch: lends 576 KiB for tiles
    """
    of_pattern = pattern.width, (pattern.rows, pattern.counts), pattern.columns
    _product(x, *of_pattern, values, _ZERO if bias is None else bias, y, False, *_lend_tiles(scratch, x.dtype))


def sparse_linear_delta(
    delta_y: np.ndarray,
    transposed: Pattern,
    values: np.ndarray,
    delta_x: np.ndarray,
    accumulate: bool,
    scratch: Scratch,
) -> None:
    """Compute the share of a range of outputs in the delta of x: forward's product, with the transposed weight.

    Args:
        delta_y: (T, rows) float32 or bfloat16
        transposed: where the non-zeros of (in, rows) are
        values: (n,) float32 or bfloat16, the non-zeros in that order
        delta_x: (T, in) float32 or bfloat16
        accumulate: add to delta_x instead of overwriting it
        scratch: lends 576 KiB for tiles
    """
    of_pattern = transposed.width, (transposed.rows, transposed.counts), transposed.columns
    _product(delta_y, *of_pattern, values, _ZERO, delta_x, accumulate, *_lend_tiles(scratch, delta_y.dtype))


def sparse_linear_gradient(
    x: np.ndarray, delta_y: np.ndarray, pattern: Pattern, grad: np.ndarray, scratch: Scratch
) -> None:
    """Compute the gradient of the non-zeros of a range of outputs.

    Args:
        x: (T, in) float32 or bfloat16
        delta_y: (T, rows) float32 or bfloat16
        pattern: where the non-zeros of (rows, in) are
        grad: (n,) float32, written, in the order of the pattern
        scratch: lends 576 KiB for tiles
    """
    of_pattern = pattern.width, (pattern.rows, pattern.counts), pattern.columns
    _gradient(x, delta_y, *of_pattern, grad, *_lend_tiles(scratch))
