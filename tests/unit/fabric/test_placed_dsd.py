"""DSDs that are given another address."""

from cstool.fabric.dsd import Mem1d
from cstool.fabric.interface import offset_dsd, placed_dsd


def test_a_dsd_at_another_address_counts_its_stride_in_elements_of_what_is_there():
    halves = Mem1d(100, 42, 2, 2)
    assert placed_dsd(halves, 200, 4) == Mem1d(200, 42, 4, 4)
    assert placed_dsd(Mem1d(100, 42, -12, 4), 200, 2) == Mem1d(200, 42, -6, 2)
    assert placed_dsd(Mem1d(100, 42, 0, 4), 200, 2) == Mem1d(200, 42, 0, 2)


def test_a_dsd_that_is_moved_keeps_its_stride():
    assert offset_dsd(Mem1d(100, 42, 2, 2), 3, 4) == Mem1d(112, 42, 2, 2)
