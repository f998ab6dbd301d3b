"""Kernels that answer: beside what was measured, and what no kernel can beat."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.system import Fabric, load_system
from cstool.plan.timing.mesh import matvec_cycles, mesh_allreduce_cycles, multiply_add_cycles, rounds_cycles
from cstool.plan.timing.pe import Pe

CS3 = load_system("cs3")
PE = Pe(CS3, 16)
SIDES = st.integers(1, 40)


@pytest.mark.parametrize(("groups", "slope"), [(2, 5.5), (4, 3.75), (8, 2.875)])
def test_each_pe_more_takes_as_many_cycles_more_as_was_measured(groups, slope):
    """Between 592 and 656 PEs (2 and 4 groups), 400 and 464 (8 groups)."""
    for start in (400, 592):
        more = mesh_allreduce_cycles(PE, start + 64, 1, groups) - mesh_allreduce_cycles(PE, start, 1, groups)
        assert more / 64 == slope


def test_sums_of_a_decoding_layer_take_as_many_cycles_more_on_longer_lines_as_docs_say():
    """Measured on a WSE-3: 2,477; groups of 24 PEs, the elements of a layer's ten all-reduces (estimate_infer.md)."""
    elements = (1, 27, 9, 1, 1, 9, 9, 1, 60, 9)
    of = {pes: sum(mesh_allreduce_cycles(PE, pes, each, pes // 24) for each in elements) for pes in (240, 360)}
    assert of[360] - of[240] == 2600


def test_a_multiply_add_takes_three_cycles_as_was_measured_and_nothing_goes_over_one_pe():
    assert [multiply_add_cycles(PE, length) for length in (1, 8, 9)] == [3, 3, 4]
    wide = Pe(CS3, 32)
    assert multiply_add_cycles(wide, 8) == wide.axpy_cycles(8)
    # 3 x 8 weights: three multiply-adds of 8, not eight of 3.
    assert matvec_cycles(PE, 3, 8, 1) == matvec_cycles(PE, 8, 3, 1) == 39 + 9
    assert (mesh_allreduce_cycles(PE, 1, 5), mesh_allreduce_cycles(PE, 9, 0)) == (0, 0)


@given(st.integers(2, 900), st.integers(1, 4000))
def test_the_fastest_groups_are_taken(pes, elements):
    found = mesh_allreduce_cycles(PE, pes, elements)
    assert found <= min(mesh_allreduce_cycles(PE, pes, elements, groups) for groups in range(1, min(pes, 70) + 1))
    assert found >= 2 * (39 + elements / 2) + 2 * pes
    assert mesh_allreduce_cycles(PE, pes + 1, elements) >= found


@given(SIDES, SIDES, st.integers(1, 500), st.integers(1, 500), st.integers(1, 500))
def test_rounds_are_no_faster_than_the_datapath_and_alike_on_a_square_turned(width, height, tokens, inputs, outputs):
    pe = Pe(replace(CS3, fabric=Fabric(width, height)), 16)
    found = rounds_cycles(pe, tokens, inputs, outputs)
    assert found * width * height * CS3.pe.simd["fmach"] >= tokens * inputs * outputs
    assert found == rounds_cycles(Pe(replace(CS3, fabric=Fabric(height, width)), 16), tokens, inputs, outputs)
    assert rounds_cycles(pe, tokens + 40, inputs, outputs) >= found
