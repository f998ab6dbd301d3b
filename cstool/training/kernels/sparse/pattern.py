"""The pattern of a sparse panel: the places of its non-zeros, in the order in which they stream."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cstool.training.kernels._jit import elementwise, inlined

CHUNK_ROWS = 2048
"""rows whose tiles, 512 KiB, stay in the second cache while the blocks of columns pass"""
NARROW, WIDE = 128, 256
"""columns of a block: 128 tiles of 64 tokens fill two thirds of a first cache of 48 KiB; a byte can name 256"""
WIDE_BELOW = 0.07
"""density below which blocks are wide: a row needs a few non-zeros in a block to be worth loading its tile"""
AHEAD = 2
"""rows that a kernel looks ahead; `rows` has this number of entries more, so that it may look past the end"""


@dataclass(frozen=True)
class Pattern:
    """Positions of the non-zeros of a panel.

    The panel is cut into chunks of rows, and these into blocks of columns. Non-zeros stream chunk by chunk, block by
    block, within a block row by row, the rows with the fewest first: so a loop over the non-zeros of a row has nearly
    always the length of the one before, which a CPU predicts.

    Args:
        shape: (rows, columns) of the panel
        width: columns of a block
        rows: (chunks x blocks x rows of each, and `AHEAD` more) uint16, rows of each block in their order, within the
            chunk
        counts: (chunks x blocks x rows of each) uint16, non-zeros of each
        columns: (n,) uint8, within the block; within a row ascending, or, of one that was transposed, in the order in
            which the non-zeros of the other one stream
    """

    shape: tuple[int, int]
    width: int
    rows: np.ndarray
    counts: np.ndarray
    columns: np.ndarray

    @property
    def count(self) -> int:
        """Non-zeros."""
        return int(self.columns.shape[0])

    @property
    def density(self) -> float:
        """Share of the non-zeros."""
        return self.count / max(1, self.shape[0] * self.shape[1])

    @property
    def size_bytes(self) -> int:
        """Of the arrays [bytes]."""
        return int(self.rows.nbytes + self.counts.nbytes + self.columns.nbytes)

    @property
    def transposed_bytes(self) -> int:
        """Of the arrays of the transposed pattern [bytes]."""
        return _arrays_bytes(self.shape[::-1], self.width, self.count)

    @cached_property
    def transposed(self) -> "Pattern":
        """The pattern of the transposed panel, made when it is asked for first."""
        rows, columns = self.shape
        order, counts = _empty_slots((columns, rows), self.width)
        lengths = np.zeros((-(-rows // self.width), columns), np.int32)
        of_pattern = columns, self.width, CHUNK_ROWS, self.rows, self.counts, self.columns
        _count_by_column(*of_pattern, lengths)
        _order_columns(lengths, self.width, CHUNK_ROWS, order, counts)
        named = np.empty_like(self.columns)
        nothing = np.empty(0, np.float32)
        _transpose(rows, *of_pattern, order, counts, named, nothing, nothing)
        return Pattern((columns, rows), self.width, order, counts, named)


def block_width(density: float) -> int:
    """Return the columns of a block for a density."""
    return WIDE if density < WIDE_BELOW else NARROW


def pattern_bytes(shape: tuple[int, int], count: int) -> int:
    """Size of the arrays of a pattern [bytes].

    A number of a row and a count, of 2 bytes each, for every row and block of columns; a byte for every non-zero; and
    2 bytes for each row of `AHEAD`. Of 4 rows of 200 columns, two blocks of `NARROW`, with 100 non-zeros:

    >>> pattern_bytes((4, 200), 100)
    136

    Args:
        shape: (rows, columns) of the panel
        count: of non-zeros
    """
    return _arrays_bytes(shape, block_width(count / max(1, shape[0] * shape[1])), count)


def _arrays_bytes(shape: tuple[int, ...], width: int, count: int) -> int:
    return 2 * (2 * _slots(shape, width) + AHEAD) + count


def _slots(shape: tuple[int, ...], width: int) -> int:
    """Rows of all blocks."""
    return shape[0] * -(-shape[1] // width)


def _empty_slots(shape: tuple[int, int], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `rows` and `counts` of a pattern, to be filled."""
    slots = _slots(shape, width)
    return np.zeros(slots + AHEAD, np.uint16), np.empty(slots, np.uint16)


def make_pattern(indices: np.ndarray, shape: tuple[int, int]) -> tuple[Pattern, np.ndarray]:
    """Bring positions into the order of the stream.

    Args:
        indices: (n,) int64, ascending positions in the panel laid out row by row
        shape: (rows, columns) of the panel

    Returns:
        the pattern; (n,) int64, for each non-zero of the stream its place in `indices`
    """
    rows, columns = shape
    width = block_width(len(indices) / max(1, rows * columns))
    order, counts = _empty_slots(shape, width)
    named, places = np.empty(len(indices), np.uint8), np.empty(len(indices), np.int64)
    starts = np.searchsorted(indices, np.arange(rows + 1, dtype=np.int64) * columns)
    _fill_pattern(indices, starts, columns, width, CHUNK_ROWS, order, counts, named, places)
    return Pattern(shape, width, order, counts, named), places


def positions(pattern: Pattern) -> np.ndarray:
    """Return (n,) int64, the position of each non-zero of the stream in the panel laid out row by row."""
    found = np.empty(pattern.count, np.int64)
    rows, columns = pattern.shape
    _fill_positions(rows, columns, pattern.width, CHUNK_ROWS, pattern.rows, pattern.counts, pattern.columns, found)
    return found


def transpose_values(pattern: Pattern, values: np.ndarray, out: np.ndarray) -> None:
    """Bring the non-zeros of a panel into the order of the transposed pattern.

    Args:
        values: (n,) float32 or bfloat16, in the order of the pattern
        out: (n,) likewise, written, in the order of `pattern.transposed`
    """
    to, (rows, columns) = pattern.transposed, pattern.shape
    of_pattern = columns, pattern.width, CHUNK_ROWS, pattern.rows, pattern.counts, pattern.columns
    _transpose(rows, *of_pattern, to.rows, to.counts, to.columns[:0], values, out)


def expand(pattern: Pattern, values: np.ndarray, out: np.ndarray) -> None:
    """Write a panel out with its zeros.

    Args:
        values: (n,) float32, in the order of the pattern
        out: (rows, columns) float32, written
    """
    out.fill(0)
    _visit(pattern.width, CHUNK_ROWS, pattern.rows, pattern.counts, pattern.columns, out, values, True)


def collect(pattern: Pattern, dense: np.ndarray, out: np.ndarray) -> None:
    """Read a panel where the pattern has non-zeros.

    Args:
        dense: (rows, columns) float32
        out: (n,) float32, written, in the order of the pattern
    """
    _visit(pattern.width, CHUNK_ROWS, pattern.rows, pattern.counts, pattern.columns, dense, out, False)


@elementwise
def _visit(width, chunk, order, counts, named, dense, values, writes):  # type: ignore[no-untyped-def]
    rows, columns = dense.shape
    slot, placed = 0, 0
    for first in range(0, rows, chunk):
        for start in range(0, columns, width):
            for _ in range(min(chunk, rows - first)):
                part = dense[first + np.int64(order[slot]), start:]
                for _ in range(counts[slot]):
                    column = np.int64(named[placed])
                    if writes:
                        part[column] = values[placed]
                    else:
                        values[placed] = part[column]
                    placed += 1
                slot += 1


@inlined
def _order_rows(lengths, fewer, order, counts, done):  # type: ignore[no-untyped-def]
    """Fill the slots of a block from `done` on with its rows, the fewest non-zeros first.

    `fewer` is work space: the largest number of non-zeros of a row, and two more.
    """
    fewer[:] = 0
    for r in range(lengths.shape[0]):
        fewer[lengths[r] + 1] += 1
    for n in range(1, fewer.shape[0]):
        fewer[n] += fewer[n - 1]
    for r in range(lengths.shape[0]):
        slot = done + fewer[lengths[r]]
        fewer[lengths[r]] += 1
        order[slot] = r
        counts[slot] = lengths[r]


@elementwise
def _fill_pattern(indices, starts, columns, width, chunk, order, counts, named, places):  # type: ignore[no-untyped-def]
    rows = starts.shape[0] - 1
    blocks = (columns + width - 1) // width
    at = starts[:-1].copy()
    lengths = np.empty(chunk, np.int64)
    fewer = np.empty(width + 2, np.int64)
    done, placed = 0, 0
    for first in range(0, rows, chunk):
        here = min(chunk, rows - first)
        for k in range(blocks):
            for r in range(here):
                end = (first + r) * columns + min(columns, (k + 1) * width)
                p = at[first + r]
                while p < starts[first + r + 1] and indices[p] < end:
                    p += 1
                lengths[r] = p - at[first + r]
            _order_rows(lengths[:here], fewer, order, counts, done)
            for slot in range(done, done + here):
                row = first + order[slot]
                for _ in range(counts[slot]):
                    p = at[row]
                    named[placed] = indices[p] - row * columns - k * width
                    places[placed] = p
                    at[row] = p + 1
                    placed += 1
            done += here


@elementwise
def _fill_positions(rows, columns, width, chunk, order, counts, named, found):  # type: ignore[no-untyped-def]
    blocks = (columns + width - 1) // width
    slot, placed = 0, 0
    for first in range(0, rows, chunk):
        for k in range(blocks):
            for _ in range(min(chunk, rows - first)):
                start = (first + np.int64(order[slot])) * columns + k * width
                for _ in range(counts[slot]):
                    found[placed] = start + np.int64(named[placed])
                    placed += 1
                slot += 1


@elementwise
def _count_by_column(columns, width, chunk, order, counts, named, lengths):  # type: ignore[no-untyped-def]
    """Count the non-zeros of (blocks of `width` rows, columns)."""
    rows = counts.shape[0] // ((columns + width - 1) // width)
    slot, placed = 0, 0
    for first in range(0, rows, chunk):
        for start in range(0, columns, width):
            for _ in range(min(chunk, rows - first)):
                block = lengths[(first + np.int64(order[slot])) // width, start:]
                for _ in range(counts[slot]):
                    block[np.int64(named[placed])] += 1
                    placed += 1
                slot += 1


@elementwise
def _order_columns(lengths, width, chunk, order, counts):  # type: ignore[no-untyped-def]
    """Fill the slots of a transposed pattern from the counts of `_count_by_column`."""
    blocks, columns = lengths.shape
    fewer = np.empty(width + 2, np.int64)
    done = 0
    for first in range(0, columns, chunk):
        here = min(chunk, columns - first)
        for k in range(blocks):
            _order_rows(lengths[k, first : first + here], fewer, order, counts, done)
            done += here


@elementwise
def _transpose(  # type: ignore[no-untyped-def]
    rows, columns, width, chunk, order, counts, named, new_order, new_counts, new_named, values, new_values
):
    """Go over the non-zeros as they stream, and write a part of the transposed stream.

    The part is the names of their columns in it, or their values: the other array is empty.
    """
    names, moves = new_named.shape[0] > 0, new_values.shape[0] > 0
    blocks = (rows + width - 1) // width
    at = np.empty((blocks, columns), np.int64)
    slot, placed = 0, 0
    for first in range(0, columns, chunk):
        for k in range(blocks):
            for _ in range(min(chunk, columns - first)):
                at[k, first + np.int64(new_order[slot])] = placed
                placed += new_counts[slot]
                slot += 1
    slot, placed = 0, 0
    for first in range(0, rows, chunk):
        for start in range(0, columns, width):
            for _ in range(min(chunk, rows - first)):
                row = first + np.int64(order[slot])
                own = row // width
                block = at[own, start:]
                for _ in range(counts[slot]):
                    column = np.int64(named[placed])
                    place = block[column]
                    block[column] = place + 1
                    if names:
                        new_named[place] = row - own * width
                    if moves:
                        new_values[place] = values[placed]
                    placed += 1
                slot += 1
