"""What one PE takes: vector instructions, the accumulator cache, the ports and banks of its memory."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.system import load_system
from cstool.plan.timing.pe import Pe

CS2, CS3 = load_system("cs2"), load_system("cs3")
PE = Pe(CS2, 16)


def pe_with(bits: int, **changes: Any) -> Pe:
    return Pe(replace(CS2, pe=replace(CS2.pe, **changes)), bits)


SLOW = {"accumulator_cache_bytes": 4, "vector_op_cycles": 6}


@pytest.mark.parametrize(
    ("changes", "length", "cycles"),
    [
        # Of 16 bits 4 elements a cycle, for which the ports read 8 bytes.
        *(({}, length, cycles) for length, cycles in ((1, 1 + 1), (4, 1 + 1), (5, 1 + 2), (16, 1 + 4))),
        # No accumulator cache: of 72 elements, 6 bytes each are read and 4 written: 432 / 16 = 27 beside 288 / 8.
        (SLOW, 72, 6 + 36),
        # 12 bytes written per cycle, and the 27 of reads count.
        ({**SLOW, "write_bytes_per_cycle": 12}, 72, 6 + 27),
        # 8 banks of words of 2 bytes: a row is 16 bytes. Reads of 73 elements meet in a bank: ceil(438 / 16), twice.
        ({**SLOW, "write_bytes_per_cycle": 12}, 73, 6 + 2 * 28),
        ({**SLOW, "write_bytes_per_cycle": 12}, 80, 6 + 30),  # 480 / 16: longer, and faster
        ({**SLOW, "write_bytes_per_cycle": 12, "bank_conflict_factor": 1}, 73, 6 + 28),
    ],
)
def test_an_axpy_takes_its_start_its_datapath_and_its_ports(changes, length, cycles):
    assert pe_with(16, **changes).axpy_cycles(length) == cycles


@pytest.mark.parametrize(
    ("pe", "length", "cycles"),
    [
        # y is read and written, 2 bytes each; x, the same for many, is in the cache as long as 256 bytes take it.
        (pe_with(16, read_bytes_per_cycle=4), 128, 1 + 64),  # 256 bytes of y
        (pe_with(16, read_bytes_per_cycle=4), 132, 1 + 132),  # 264 of y and 264 of x
        (pe_with(16, write_bytes_per_cycle=2), 10, 1 + 10),
        (PE, 16, 1 + 4),
        # 8 elements per cycle of WSE-3 are 16 bytes of x. Deltas are written, 2 bytes each, and 8 bytes go per cycle.
        (Pe(CS3, 16), 16, 1 + 4),
    ],
)
def test_a_delta_is_added_in_place(pe, length, cycles):
    assert pe.axpy_in_place_cycles(length) == cycles
    assert Pe(CS3, 16).axpy_cycles(16) == 1 + 2


@pytest.mark.parametrize(
    ("length", "cycles"), [(64, 1 + 16), (65, 2 * 1 + 17), (72, 2 * 1 + 18), (128, 2 * 1 + 32), (129, 3 * 1 + 33)]
)
def test_more_sums_than_the_accumulator_cache_takes_are_done_in_parts(length, cycles):
    """256 bytes are 64 sums of 32 bits. With y in memory, 4 bytes of each are written, 8 per cycle: half the rate."""
    assert PE.axpy_cycles(length) == cycles < 1 + length // 2


@pytest.mark.parametrize(("length", "padded"), [(1, 4), (4, 4), (66, 68), (68, 68)])
def test_operands_of_32_bits_are_padded_and_meet_what_they_are_added_to(length, padded):
    """One multiply-add a cycle, where reads are in different banks; two cycles where they meet."""
    wide = Pe(CS2, 32)
    assert wide.axpy_cycles(length, is_apart=True) == wide.axpy_in_place_cycles(length) == 1 + padded
    assert wide.axpy_cycles(length) == 1 + 2 * padded
    assert pe_with(32, bank_conflict_factor=1).axpy_cycles(length) == 1 + padded


@pytest.mark.parametrize(
    ("size", "cycles"),
    [
        *((10, 169.8), (20, 458.8), (30, 1029.8), (40, 1678.8), (50, 2692.8)),
        *((60, 3701.8), (70, 5152.8), (80, 6521.8), (90, 8412.8), (100, 10144.8)),
    ],
)
def test_ten_published_products_of_a_matrix_and_a_vector(size, cycles):
    """single-tile-matvec of the SDK's benchmarks, lingzhi227/MIMD_dataflow, out.csv: simulated cycles."""
    assert abs(Pe(CS2, 32).matvec_cycles(size, size) / cycles - 1) < 0.005


@pytest.mark.parametrize(
    ("calls", "length", "cycles"),
    [(48 * 64, 64, 476_866), (8 * 64, 128, 150_760), (205, 68, 36_744)],
    ids=["GEMM 16 x 12", "GEMM 128 x 8", "CSC 64 x 8, a tenth not zero"],
)
def test_published_programs_whose_arrays_lie_anywhere(calls, length, cycles):
    """GEMM_benchmark.csv and CSC_benchmark.csv of pr0f3ss/SpMM_Cerebras, mean cycles of a PE.

    What the form leaves out is the scalar code around each operation, some 16 cycles.
    """
    form = calls * Pe(CS2, 32).axpy_cycles(length)
    assert 0.7 * cycles < form < cycles
    assert form + 16 * calls == pytest.approx(cycles, rel=0.15)


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
        assert cycles >= 1 + max(length / simd, operand * length / 16)
    # In memory, where nothing meets, is always possible. A row of banks has 16 bytes.
    whole = pe.whole_bank_rows(length)
    assert whole % (16 // operand) == 0
    assert length <= whole < length + 16 // operand
    least = 1 + max(-(-whole // simd), -(-(operand + 4) * whole // 16), -(-4 * whole // 8))
    assert pe.axpy_cycles(whole, is_apart=True) <= least
