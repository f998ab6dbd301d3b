"""Operands, addresses and values in words, and the map."""

import numpy as np
import pytest

from cstool.csl.debugger.looking import MAP_HEIGHT, MAP_WIDTH, fabric_map, wavelet_text
from cstool.csl.debugger.memory import address_text, find, operand_text, values_text
from cstool.csl.fabric.dsd import FabricIn, FabricOut, Fifo, Mem1d, Mem4d, Pointer
from cstool.csl.fabric.program import FabricProgram, PEProgram, Symbol
from cstool.csl.fabric.simulation import Simulation

PROGRAM = PEProgram(
    "pe.csl",
    "wse3",
    "def program(pe):\n    return {}",
    sram=(("A: [2, 3]f32", 24), ("n: u16", 2)),
    symbols={"A": Symbol("variable", 64, None, "f", 6), "f": Symbol("function", function="f")},
    variables={"n": Symbol("variable", 88, None, "H", 1), "half": Symbol("variable", 96, None, "e", 4)},
)


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        (Mem1d(64, 6, 4, 4), "6 elements from A[0, 0] on"),
        (Mem1d(76, 1, 4, 4), "1 element from A[1, 0] on"),
        (Mem1d(68, 2, 12, 4), "2 elements from A[0, 1] on, 12 bytes apart"),
        (Mem1d(66, 2, 4, 4), "2 elements from A[0, 0] + 2 bytes on"),
        (Mem4d(64, (2, 3), (12, 4), 4), "2 x 3 elements from A[0, 0] on, strides 12, 4 bytes"),
        (FabricIn(3, 7), "7 wavelets from input queue 3"),
        (FabricOut(2, 9, 1), "1 wavelet of color 9 to output queue 2"),
        (Fifo(1), "FIFO 1"),
        (Pointer(88), "the scalar at n"),
        (Pointer(4), "the scalar at byte 4"),
        (2.5, "2.5"),
    ],
)
def test_an_operand_is_said_by_the_names_of_the_source(operand, text):
    assert operand_text(operand, PROGRAM) == text


@pytest.mark.parametrize(
    ("address", "text"),
    [(63, "byte 63"), (64, "A[0, 0]"), (87, "A[1, 2] + 3 bytes"), (88, "n"), (90, "byte 90"), (98, "half[1]")],
)
def test_an_address_is_said_by_its_variable(address, text):
    assert address_text(address, PROGRAM) == text


@pytest.fixture
def simulation() -> Simulation:
    """40 x 30 PEs that do nothing."""
    found = Simulation(FabricProgram("wse3", 40, 30, np.zeros((30, 40), np.int32), (PROGRAM,)))
    found.pes[41].f32[16:22] = memoryview(np.arange(6, dtype=np.float32).tobytes()).cast("f")
    found.pes[41].u16[44] = 500
    found.pes[41].f16[48:52] = [0.5, -2.0, np.inf, np.nan]
    return found


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("A", "f32", "[[0. 1. 2.]\n [3. 4. 5.]]"),
        ("A[1]", "f32", "[3. 4. 5.]"),
        ("A[0:2, 1]", "f32", "[1. 4.]"),
        ("A[ 1 , 2 ]", "f32", "5.0"),
        ("A[:, 2:]", "f32", "[[2.]\n [5.]]"),
        ("n", "u16", "500"),
        ("half[1:4]", "f16", "[-2. inf nan]"),
    ],
)
def test_a_range_is_that_of_numpy(simulation, text, kind, value):
    found = find(PROGRAM, text)
    assert found.kind == kind
    assert values_text(found.value(simulation.pes[41])) == value


def test_a_map_of_many_pes_is_a_window_around_the_chosen_one(simulation):
    for chosen in (0, 41, 40 * 30 - 1, 40 * 15 + 20):
        lines = fabric_map(simulation, chosen)
        assert len(lines) == MAP_HEIGHT + 2
        assert [line.count(".") for line in lines[1:-1]] == [MAP_WIDTH] * MAP_HEIGHT
        assert sum("[.]" in line for line in lines) == 1
    assert lines[0] == "PE 4.3 to 35.26"


@pytest.mark.parametrize(
    ("data", "control", "text"),
    [
        (0x3F800000, False, "0x3f800000 (1 as f32)"),
        (0xC0490FDB, False, "0xc0490fdb (-3.14159 as f32)"),
        (7, False, "0x00000007"),
        (0, True, "0x00000000, control"),
        (0x7FC00000, False, "0x7fc00000"),
        (0x7F800000, False, "0x7f800000"),
    ],
)
def test_a_wavelet_is_its_bits_and_a_number_if_it_may_be_one(data, control, text):
    assert wavelet_text(data, control) == text
