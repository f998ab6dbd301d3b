"""Rows by number: of tables of tokens and of positions, by panels, or of sinusoids; and of the tokens themselves."""

import math

import numpy as np

from cstool.training.kernels import elementary
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels.bfloat16 import widen
from cstool.training.kernels.call import NOTHING, Call, Rows
from cstool.training.kernels.linear import column_sum
from cstool.training.kernels.quantized import QuantizedMatrix
from cstool.training.kernels.random import Draws, dropout_apply, mask_memory, mask_row
from cstool.training.kernels.recording import needs_interpreter, recording
from cstool.training.kernels.tables import BLOCK_ROWS, shared_tables

_LONGEST_TIMESCALE = 1e4
"""of the sinusoids; the shortest is 1 [positions per radian]"""
MOST_NUMBERS = 2**18
"""most numbers of a panel with more rows than tokens whose gradient is written down, with all rows: of more, adding the
rows of no token takes longer than the interpreter takes for the others"""


@elementwise
def _gather(ids, table, start, stop, y):  # type: ignore[no-untyped-def]
    width = y.shape[1]
    for t in range(ids.shape[0]):
        if start <= ids[t] < stop:
            row = ids[t] - start
            for j in range(width):
                y[t, j] = widen(table[row, j])


@elementwise
def _scatter_add(delta_y, tokens, slots, values):  # type: ignore[no-untyped-def]
    width = values.shape[1]
    for n in range(tokens.shape[0]):
        t = tokens[n]
        slot = slots[n]
        for j in range(width):
            values[slot, j] += delta_y[t, j]


@elementwise
def scatter(delta_y, ids, start, stop, padding, gradient):  # type: ignore[no-untyped-def]
    """Write the gradient of rows `start` to `stop` of a table, `NOTHING` in rows of no id; see `embedding_backward`."""
    gradient[:] = NOTHING
    for t in range(ids.shape[0]):
        if start <= ids[t] < stop and ids[t] != padding:
            gradient[ids[t] - start] = 0
    for t in range(ids.shape[0]):
        if start <= ids[t] < stop and ids[t] != padding:
            row = ids[t] - start
            for j in range(gradient.shape[1]):
                gradient[row, j] += delta_y[t, j]


@elementwise
def _position_forward(x, table, start, sequence, turn, y, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    memory = mask_memory(width, x)
    row = np.empty(width, x.dtype)
    for t in range(tokens):
        position = (t + turn) % sequence - start
        if position < 0 or position >= table.shape[0]:
            continue
        mask = mask_row(memory, draws, t, width)
        for j in range(width):
            row[j] = mask[j] * (x[t, j] + table[position, j])
        for j in range(width):
            y[t, j] = row[j]


@elementwise
def _position_backward(delta_y, start, sequence, turn, delta_x, grad_table, draws):  # type: ignore[no-untyped-def]
    tokens, width = delta_y.shape
    grad_table[:] = 0
    memory = mask_memory(width, delta_y)
    row = np.empty(width, delta_y.dtype)
    for t in range(tokens):
        position = (t + turn) % sequence - start
        if position < 0 or position >= grad_table.shape[0]:
            continue
        mask = mask_row(memory, draws, t, width)
        for j in range(width):
            row[j] = mask[j] * delta_y[t, j]
        for j in range(width):
            grad_table[position, j] += row[j]
        for j in range(width):
            delta_x[t, j] = row[j]


def embedding_forward(c: Call) -> None:
    """Look up the ids (T,) int32 that lie in the panel (rows, H) of a table; rows of other tokens are left alone."""
    table: object = c.weights[0]
    if isinstance(table, QuantizedMatrix):
        table.gather(c.inputs[0], c.start, c.stop, c.outputs[0])
        return
    _gather(c.inputs[0], c.weight(0), c.start, c.stop, c.outputs[0])


def embedding_backward(c: Call) -> None:
    """Compute the gradient of a panel, only the rows that were looked up: each the sum over its tokens in order.

    The row of `padding` gets none, where the op has such an id. While a call is written down the gradient has all rows,
    `NOTHING` in those that were not looked up, unless these are many.
    """
    ids, delta_y, padding = c.inputs[0], c.delta_y, c.attributes.get("padding", -1)
    if recording() is not None:
        grad = c.grad(0)
        if len(grad) > len(ids) and grad.size > MOST_NUMBERS:
            needs_interpreter()
        scatter(delta_y, ids, c.start, c.stop, padding, grad)
        return
    tokens = np.flatnonzero((ids >= c.start) & (ids < c.stop) & (ids != padding))
    rows, slots = np.unique(ids[tokens], return_inverse=True)
    values = np.zeros((len(rows), delta_y.shape[1]), delta_y.dtype)
    _scatter_add(delta_y, tokens, slots, values)
    c.gradients[0] = Rows((rows - c.start).astype(np.int32), values)


def add_positions(
    x: np.ndarray,
    table: np.ndarray,
    sequence: int,
    y: np.ndarray,
    draws: Draws | None,
    start: int = 0,
    turn: int = 0,
) -> None:
    """Compute y = dropout(x + row of the token's position); tokens of other panels are left alone.

    Args:
        x: (T, H) float32, rows grouped by sample
        table: (rows, H) float32, positions `start` to `start` + rows
        sequence: S
        y: (T, H) float32, written; may be x
        draws: of the dropout; None for none
        start: first position of the panel
        turn: position of the first token; after the last one, S - 1, comes position 0
    """
    _position_forward(x, table, start, sequence, turn, y, draws)


def position_forward(c: Call) -> None:
    """Add the positions of a panel (rows, H) of their table, the first at row `offset`; see `add_positions`."""
    first = c.start - c.attributes.get("offset", 0)
    add_positions(c.inputs[0], c.weight(0), c.sequence, c.outputs[0], c.draws, first, c.attributes.get("turn", 0))


def position_backward(c: Call) -> None:
    """Compute the delta of x for the tokens of a panel, and its gradient, the sum over samples in their order.

    The gradient is 0 for rows of no position.
    """
    first = c.start - c.attributes.get("offset", 0)
    turn = c.attributes.get("turn", 0)
    _position_backward(c.delta_y, first, c.sequence, turn, c.delta_x(0), c.grad(0), c.draws)


def sinusoids(sequence: int, width: int, dtype: np.dtype) -> np.ndarray:
    """Return the fixed vectors of positions, (S, H), rounded once from float64.

    Columns 2i and 2i + 1 are the sine and the cosine of position / timescale i. The timescales grow geometrically from
    1 to 10000. The last of an odd number of columns is 0.

    Source: Vaswani et al., "Attention is all you need", 2017, section 3.5, with the exponent of tensor2tensor's
    `get_timing_signal`, i / (number of timescales - 1).
    """

    def make() -> tuple[np.ndarray]:
        timescales = width // 2
        exponents = np.arange(timescales) / max(timescales - 1, 1)
        table = np.zeros((sequence, width), dtype)
        for start in range(0, sequence, BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, sequence))
            positions = np.arange(rows.start, rows.stop)[:, None]
            angles = positions * np.exp(exponents * -math.log(_LONGEST_TIMESCALE))
            table[rows, 0 : 2 * timescales : 2] = np.sin(angles)
            table[rows, 1 : 2 * timescales : 2] = np.cos(angles)
        return (table,)

    (table,) = shared_tables(("sinusoids", sequence, width, dtype), make)
    return table


def grid_sinusoids(grid: tuple[int, int], width: int, before: int, dtype: np.dtype) -> np.ndarray:
    """Return the fixed vectors of patches of an image, (before + rows * columns, H), rounded once from float64.

    Each quarter of a vector has H / 4 timescales, from 1 geometrically up to almost 10000: sines of the column, its
    cosines, sines of the row, its cosines. The vectors of the tokens `before` the patches are 0.

    Source: the vendor's `get_2d_fixed_position_embeddings`, 2.10.

    Args:
        grid: rows and columns of patches
        width: H, a multiple of 4
    """

    def make() -> tuple[np.ndarray]:
        rows, columns = grid
        scales = _LONGEST_TIMESCALE ** -(np.arange(width // 4) / (width // 4))
        row, column = np.divmod(np.arange(rows * columns), columns)
        angles = [place[:, None] * scales for place in (column, row)]
        table = np.zeros((before + rows * columns, width), dtype)
        table[before:] = np.hstack([wave(angle) for angle in angles for wave in (np.sin, np.cos)])
        return (table,)

    (table,) = shared_tables(("grid sinusoids", *grid, width, before, dtype), make)
    return table


def fixed_position_forward(c: Call) -> None:
    """Compute y = dropout(x + the sinusoids of the token's position, or place in a `grid`); y may be x."""
    x, grid = c.inputs[0], c.attributes.get("grid")
    if grid is None:
        table = sinusoids(c.sequence, x.shape[1], x.dtype)
    else:
        table = grid_sinusoids(tuple(grid), x.shape[1], c.attributes["before"], x.dtype)
    add_positions(x, table, c.sequence, c.outputs[0], c.draws)


def fixed_position_backward(c: Call) -> None:
    """Compute the delta of x; without dropout it equals the delta of y."""
    dropout_apply(c.dropout, c.delta_y, c.delta_x(0))


def _gathered(c: Call) -> np.ndarray:
    """Rows of x that are gathered, (samples * M,)."""
    positions = c.inputs[1].reshape(len(c.inputs[0]) // c.sequence, -1)
    return (positions + c.sequence * np.arange(len(positions))[:, None]).reshape(-1)


def gather_forward(c: Call) -> None:
    """Copy the tokens of x, (T, H), at positions (samples * M,) int32 of their samples to (samples * M, H)."""
    np.take(c.inputs[0], _gathered(c), axis=0, out=c.outputs[0])


def gather_backward(c: Call) -> None:
    """Add the deltas to the deltas of the gathered tokens, in order; all other tokens have 0."""
    delta_x, rows = c.delta_x(0), _gathered(c)
    if not c.accumulate[0]:
        delta_x.fill(0)
    _scatter_add(c.delta_y, np.arange(len(rows)), rows, delta_x)


def prepend_token_forward(c: Call) -> None:
    """Copy x, (T, H), with the token (H,) before each sample, to (T + samples, H)."""
    x, y = c.inputs[0], c.outputs[0]
    by_sample = y.reshape(-1, c.sequence + 1, y.shape[1])
    elementary.copy(c.weight(0), by_sample[:, 0])
    elementary.copy(x.reshape(-1, c.sequence, x.shape[1]), by_sample[:, 1:])


def prepend_token_backward(c: Call) -> None:
    """Compute the delta of x, and the gradient of the token, the sum over samples in their order."""
    delta_y = c.delta_y.reshape(-1, c.sequence + 1, c.delta_y.shape[1])
    column_sum(delta_y[:, 0], c.grad(0))
    if c.delta_inputs[0] is not None:
        elementary.copy(delta_y[:, 1:], c.delta_x(0).reshape(-1, c.sequence, delta_y.shape[2]))


def first_token_forward(c: Call) -> None:
    """Copy the first token of each text of x, (T, H), to (texts, H)."""
    elementary.copy(c.inputs[0][:: c.sequence], c.outputs[0])


def first_token_backward(c: Call) -> None:
    """Add the deltas to the deltas of the first tokens; all other tokens have 0."""
    delta_x = c.delta_x(0)
    if not c.accumulate[0]:
        elementary.fill(delta_x, 0)
    elementary.add(delta_x[:: c.sequence], c.delta_y, delta_x[:: c.sequence])


def _token_shares(c: Call) -> np.ndarray:
    """Weight of each token of x in the mean of its text, (T, 1)."""
    counts = (c.inputs[1] != 0).reshape(-1, c.sequence)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    found: np.ndarray = shares.reshape(-1, 1).astype(c.inputs[0].dtype)
    return found


def mean_token_forward(c: Call) -> None:
    """Compute the mean of the tokens of each text of x, (T, H), that the mask (T,) counts: (texts, H)."""
    x = c.inputs[0] * _token_shares(c)
    np.add.reduce(x.reshape(-1, c.sequence, x.shape[1]), axis=1, out=c.outputs[0])


def mean_token_backward(c: Call) -> None:
    """Compute the delta of x: the delta of the mean, times the share of the token."""
    np.multiply(np.repeat(c.delta_y, c.sequence, axis=0), _token_shares(c), out=c.delta_x(0))
