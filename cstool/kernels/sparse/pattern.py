"""The pattern of a sparse panel: where its non-zeros are, in the order in which they stream."""

from dataclasses import dataclass

import numpy as np

from cstool.kernels._jit import elementwise

CHUNK_ROWS = 2048
"""rows whose tiles, 512 KiB, stay in the second cache while the blocks of columns pass"""
NARROW, WIDE = 128, 256
"""columns of a block: 128 tiles of 64 tokens fill two thirds of a first cache of 48 KiB; 256 is what a byte can name"""
WIDE_BELOW = 0.07
"""density below which blocks are wide: a row needs a few non-zeros in a block to be worth loading its tile"""
AHEAD = 2
"""rows that a kernel looks ahead; `rows` has as many entries more, so that it may look past the end"""


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
        columns: (n,) uint8, within the block, ascending within a row
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
    rows, columns = shape
    blocks = -(-columns // block_width(count / max(1, rows * columns)))
    return 2 * (2 * rows * blocks + AHEAD) + count


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
    blocks = -(-columns // width)
    order = np.zeros(rows * blocks + AHEAD, np.uint16)
    counts = np.empty(rows * blocks, np.uint16)
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
            fewer[:] = 0
            for r in range(here):
                end = (first + r) * columns + min(columns, (k + 1) * width)
                p = at[first + r]
                while p < starts[first + r + 1] and indices[p] < end:
                    p += 1
                lengths[r] = p - at[first + r]
                fewer[lengths[r] + 1] += 1
            for n in range(1, width + 1):
                fewer[n] += fewer[n - 1]
            for r in range(here):
                slot = done + fewer[lengths[r]]
                fewer[lengths[r]] += 1
                order[slot] = r
                counts[slot] = lengths[r]
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
