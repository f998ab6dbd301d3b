"""Extents say of every row in which slot it is: compared with an array that has the slot of each row."""

import hypothesis.strategies as st
from hypothesis import given

from cstool.training.store.commit_record import Extent, Extents

ROWS = 12


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int]:
    start = draw(st.integers(0, ROWS))
    return start, draw(st.integers(start, ROWS))


changes = st.lists(st.tuples(ranges(), st.integers(0, 1)), max_size=12)


def changed(made: list[tuple[tuple[int, int], int]]) -> tuple[Extents, list[Extent]]:
    """Return extents after some changes, each with a checksum of its own, and for each row the one it is of."""
    extents, twin = Extents([Extent(0, ROWS, 0, None)]), [Extent(0, ROWS, 0, None)] * ROWS
    for number, ((start, stop), slot) in enumerate(made):
        new = Extent(start, stop, slot, number)
        extents.replace(new)
        twin[start:stop] = [new] * (stop - start)
    return extents, twin


def check_covers(found: list[Extent], twin: list[Extent], start: int, stop: int) -> None:
    """Check that extents are those of a range of rows, and that a checksum is of the very rows that it was made of."""
    assert [row for extent in found for row in range(extent.start, extent.stop)] == list(range(start, stop))
    for extent in found:
        assert extent.start < extent.stop
        assert {twin[row].slot for row in range(extent.start, extent.stop)} == {extent.slot}
        if extent.crc32 is not None:
            assert {*twin[extent.start : extent.stop]} == {extent}


@given(changes, ranges())
def test_extents_consist_of_what_their_rows_are_in_and_what_nobody_changed_keeps_its_checksum(made, span):
    extents, twin = changed(made)
    check_covers(list(extents.all()), twin, 0, ROWS)
    check_covers(extents.within(*span), twin, *span)
    whole = [extent for extent in {*twin} if twin.count(extent) == extent.stop - extent.start]
    assert {extent for extent in whole if extent.crc32 is not None} <= {*extents.all()}


@given(changes, changes)
def test_a_copy_is_changed_apart(made, later):
    extents, _ = changed(made)
    before, copy = extents.all(), extents.copy()
    for (start, stop), slot in later:
        copy.replace(Extent(start, stop, slot, None))
    assert extents.all() == before


def test_an_array_without_rows_has_no_extents():
    extents = Extents([Extent(0, 0, 0, None)])
    extents.replace(Extent(0, 0, 1, 7))
    assert (extents.all(), extents.within(0, 0)) == ((), [])
