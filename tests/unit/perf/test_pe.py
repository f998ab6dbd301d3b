"""What one PE takes: vector instructions, the accumulator cache, the ports and banks of its memory."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.perf.pe import Pe
from cstool.system import load_system

CS2, CS3 = load_system("cs2"), load_system("cs3")
PE = Pe(CS2, 16)


def pe_with(bits: int, **changes: Any) -> Pe:
    """A PE of WSE-2 with other numbers."""
    return Pe(replace(CS2, pe=replace(CS2.pe, **changes)), bits)


@pytest.mark.parametrize(
    ("bits", "length", "cycles"),
    [(16, 1, 6 + 1), (16, 4, 6 + 1), (16, 5, 6 + 2), (16, 16, 6 + 4), (32, 1, 6 + 1), (32, 16, 6 + 16)],
)
def test_an_axpy_takes_its_start_and_a_cycle_for_as_many_elements_as_the_datapath_takes(bits, length, cycles):
    """16 bits: 4 elements, for which the ports read 8 bytes. 32 bits: one multiply-add per cycle."""
    assert Pe(CS2, bits).axpy_cycles(length) == cycles


@pytest.mark.parametrize(
    ("length", "cycles"), [(64, 6 + 16), (65, 2 * 6 + 17), (72, 2 * 6 + 18), (128, 2 * 6 + 32), (129, 3 * 6 + 33)]
)
def test_more_sums_than_the_accumulator_cache_takes_are_done_in_parts(length, cycles):
    """256 bytes are 64 sums of 32 bits. With y in memory, 4 bytes of each are written, 8 per cycle: half the rate."""
    assert PE.axpy_cycles(length) == cycles < 6 + length // 2


def test_without_an_accumulator_cache_sums_go_through_the_ports():
    """Of 72 elements, 6 bytes each are read and 4 written: 432 / 16 = 27 cycles beside 288 / 8 = 36."""
    assert pe_with(16, accumulator_cache_bytes=4).axpy_cycles(72) == 6 + 36
    # 12 bytes written per cycle, and the 27 of reads count.
    assert pe_with(16, accumulator_cache_bytes=4, write_bytes_per_cycle=12).axpy_cycles(72) == 6 + 27


def test_reads_meet_in_a_bank_where_vectors_are_no_whole_row_of_banks():
    """8 banks of words of 2 bytes: a row is 16 bytes. 73 elements are no whole rows, 80 are."""
    pe = pe_with(16, accumulator_cache_bytes=4, write_bytes_per_cycle=12)
    assert pe.axpy_cycles(73) == 6 + 2 * 28  # ceil(438 / 16) = 28, twice
    assert pe.axpy_cycles(80) == 6 + 30  # 480 / 16: longer, and faster
    never = pe_with(16, accumulator_cache_bytes=4, write_bytes_per_cycle=12, bank_conflict_factor=1)
    assert never.axpy_cycles(73) == 6 + 28


def test_with_operands_of_32_bits_memory_keeps_up_where_no_reads_meet():
    """68 elements: 544 bytes read in 34 cycles, 272 written in 34, 68 products; in parts, the start counts twice."""
    assert Pe(CS2, 32).axpy_cycles(68) == 6 + 68 < 2 * 6 + 68
    # 67 are no whole row: 34 cycles of reads, twice.
    assert Pe(CS2, 32).axpy_cycles(67) == 6 + 2 * 34


def test_ports_of_wse_3_feed_its_datapath_but_for_deltas():
    """8 elements per cycle are 16 bytes of x. Deltas are written, 2 bytes each, and 8 bytes go per cycle."""
    assert Pe(CS3, 16).axpy_cycles(16) == 6 + 2
    assert Pe(CS3, 16).axpy_in_place_cycles(16) == 6 + 4
    assert PE.axpy_in_place_cycles(16) == 6 + 4


def test_a_delta_is_added_in_place():
    """y is read and written, 2 bytes each; x, the same for many, is in the cache as long as 256 bytes take it."""
    slow = pe_with(16, read_bytes_per_cycle=4)
    assert slow.axpy_in_place_cycles(128) == 6 + 64  # 256 bytes of y
    assert slow.axpy_in_place_cycles(132) == 6 + 132  # 264 of y and 264 of x
    assert pe_with(16, write_bytes_per_cycle=2).axpy_in_place_cycles(10) == 6 + 10
    assert Pe(CS2, 32).axpy_in_place_cycles(10) == 6 + 10


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("system", [CS2, CS3], ids=["cs2", "cs3"])
def test_lengths_may_be_many_at_a_time(system, bits):
    pe, lengths = Pe(system, bits), np.arange(1, 300)
    for cycles in (pe.axpy_cycles, pe.axpy_in_place_cycles):
        assert cycles(lengths).tolist() == [cycles(int(length)) for length in lengths]


@given(st.integers(1, 2000), st.sampled_from([16, 32]), st.sampled_from([0, 4, 64, 256]), st.integers(1, 8))
def test_no_axpy_beats_the_datapath_or_the_ports(length, bits, cache_bytes, conflict):
    pe = pe_with(bits, accumulator_cache_bytes=cache_bytes, bank_conflict_factor=conflict)
    operand, simd = bits // 8, 4 if bits == 16 else 1
    for cycles in (pe.axpy_cycles(length), pe.axpy_in_place_cycles(length)):
        assert cycles >= 6 + max(length / simd, operand * length / 16)
    # In memory, where nothing meets, is always possible.
    whole = pe.whole_bank_rows(length)
    assert pe.axpy_cycles(whole) <= 6 + max(-(-whole // simd), -(-(operand + 4) * whole // 16), -(-4 * whole // 8))


@given(st.integers(1, 500), st.sampled_from([16, 32]))
def test_whole_rows_of_banks(length, bits):
    """A row of 16 bytes is 8 operands of 16 bits, 4 of 32."""
    elements = 8 if bits == 16 else 4
    found = Pe(CS2, bits).whole_bank_rows(length)
    assert found % elements == 0
    assert length <= found < length + elements
