"""The order in which non-zeros stream, and the ways between a panel with and without its zeros."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.kernels.sparse import Pattern, collect, expand, make_pattern, positions, transpose_values
from cstool.training.kernels.sparse.pattern import AHEAD, CHUNK_ROWS, NARROW, WIDE, WIDE_BELOW, block_width

ROWS = st.sampled_from([1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1, 2 * CHUNK_ROWS + 1]) | st.integers(1, 40)
COLUMNS = st.sampled_from([1, 127, 128, 129, 255, 256, 257, 513]) | st.integers(1, 300)
DENSITY = st.sampled_from([0.0, 0.02, 0.065, 0.075, 0.5, 1.0])


def _mask(rows: int, columns: int, density: float, seed: int) -> np.ndarray:
    mask = np.random.default_rng(seed).random((rows, columns)) < density
    mask[rows // 3], mask[:, columns // 3] = False, seed % 2 == 1
    return mask


def _make(mask: np.ndarray) -> tuple[Pattern, np.ndarray]:
    return make_pattern(np.flatnonzero(mask), mask.shape)


MASKS = st.builds(_mask, ROWS, COLUMNS, DENSITY, st.integers(0, 99))


@given(mask=MASKS)
def test_non_zeros_stream_by_chunks_blocks_and_rows_with_the_fewest_first(mask):
    rows, columns = mask.shape
    width = block_width(mask.sum() / mask.size)
    order, counts, named, found = [], [], [], []
    for first in range(0, rows, CHUNK_ROWS):
        for start in range(0, columns, width):
            block = mask[first : first + CHUNK_ROWS, start : start + width]
            for row in sorted(range(len(block)), key=lambda r: block[r].sum()):  # stable: equal ones in their order
                inside = np.flatnonzero(block[row])
                order.append(row)
                counts.append(len(inside))
                named.extend(inside)
                found.extend((first + row) * columns + start + inside)
    pattern, _ = _make(mask)
    assert (pattern.shape, pattern.width) == (mask.shape, width)
    np.testing.assert_array_equal(pattern.rows, order + [0] * AHEAD)
    np.testing.assert_array_equal(pattern.counts, counts)
    np.testing.assert_array_equal(pattern.columns, named)
    np.testing.assert_array_equal(positions(pattern), found)


@given(mask=MASKS)
def test_places_lead_to_the_stream_and_a_panel_written_out_and_read_again_is_as_before(mask):
    weight = np.random.default_rng(1).standard_normal(mask.shape, dtype=np.float32)
    pattern, places = _make(mask)
    np.testing.assert_array_equal(positions(pattern), np.flatnonzero(mask)[places])
    values, written = (np.full(shape, np.nan, np.float32) for shape in (pattern.count, mask.shape))
    collect(pattern, weight, values)
    np.testing.assert_array_equal(values, weight.ravel()[positions(pattern)])
    expand(pattern, values, written)
    np.testing.assert_array_equal(written, np.where(mask, weight, 0))


@given(mask=MASKS)
def test_the_transposed_pattern_has_the_transposed_panel(mask):
    pattern, _ = _make(mask)
    transposed = pattern.transposed
    assert transposed is pattern.transposed, "it is kept"
    assert (transposed.shape, transposed.width) == (mask.T.shape, pattern.width)
    twin, _ = _make(mask.T)
    if twin.width == pattern.width:
        np.testing.assert_array_equal(transposed.rows, twin.rows)
        np.testing.assert_array_equal(transposed.counts, twin.counts)
    assert sorted(positions(transposed)) == np.flatnonzero(mask.T).tolist()
    values = np.arange(1, 1 + pattern.count, dtype=np.float32)
    turned, written, written_turned = np.empty_like(values), *(np.zeros(m.shape, np.float32) for m in (mask, mask.T))
    transpose_values(pattern, values, turned)
    expand(pattern, values, written)
    expand(transposed, turned, written_turned)
    np.testing.assert_array_equal(written_turned, written.T)
    # Those of a row come as they do in the other stream.
    ends = np.cumsum(transposed.counts)
    for row in np.split(turned, ends[:-1]):
        assert (np.diff(row) > 0).all()


@pytest.mark.parametrize(
    ("density", "width"), [(0.0, WIDE), (0.99 * WIDE_BELOW, WIDE), (WIDE_BELOW, NARROW), (1, NARROW)]
)
def test_blocks_are_wide_where_non_zeros_are_few(density, width):
    assert block_width(density) == width


def test_a_pattern_says_its_size():
    mask = np.zeros((3, 200), bool)
    mask[:, ::4] = True
    pattern, _ = _make(mask)
    assert (pattern.count, pattern.density) == (150, 0.25)
    # One byte for the column of each; for 3 rows in 2 blocks, and 2 more, two for the row, and two for its count.
    assert pattern.size_bytes == 150 + 2 * (6 + AHEAD) + 2 * 6
    # Transposed it has 200 rows in one block.
    assert pattern.transposed_bytes == pattern.transposed.size_bytes == 150 + 2 * (200 + AHEAD) + 2 * 200


def test_a_panel_without_rows_has_no_non_zeros():
    pattern, places = make_pattern(np.empty(0, np.int64), (0, 8))
    assert (pattern.count, pattern.density, len(places), len(positions(pattern))) == (0, 0.0, 0, 0)
