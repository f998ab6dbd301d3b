"""Sums over PEs: by hand, beside a walk from hop to hop, and never faster than what bounds them."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.system import load_system
from cstool.plan.timing.collectives import (
    READ_CYCLES,
    RECONFIGURE_CYCLES,
    allreduce_cycles,
    broadcast_cycles,
    chain_cycles,
    reduce_cycles,
    software_allreduce_cycles,
    tree_cycles,
    two_phase_cycles,
    wafer_allreduce_cycles,
)

LINKS = load_system("cs2").links
WAYS = (chain_cycles, two_phase_cycles, tree_cycles)


def sent_over(ready: list[int], hops: int) -> list[int]:
    """When each element of a message can be read `hops` away: up the ramp, hops, down the ramp, one a cycle."""
    way = 2 * LINKS.ramp_cycles + hops * LINKS.hop_cycles + READ_CYCLES
    sent: list[int] = []
    for time in ready:
        sent.append(max(time, sent[-1] + 1 if sent else time))
    return [time + way for time in sent]


def walked_chain(pes: int, elements: int, apart: int = 1, begin: int = 0) -> int:
    """A chain element by element, hop by hop: a PE adds an element a cycle, when it has come."""
    ready = [begin + n for n in range(elements)]
    for _ in range(pes - 1):
        arrived, added = sent_over(ready, apart), []
        for time in arrived:
            added.append(max(time, added[-1] + 1 if added else time))
        ready = added
    return ready[-1] + 1


def walked_tree(pes: int, elements: int) -> int:
    """Rounds in which every second PE that is left sends all it has to the one before it, which then begins anew."""
    done = dict.fromkeys(range(pes), 0)
    step = 1
    while step < pes:
        for at in range(0, pes, 2 * step):
            if at + step < pes:
                last = sent_over([done[at + step] + n for n in range(elements)], step)[-1] + 1
                done[at] = max(done[at], last)
        step *= 2
    return done[0]


@pytest.mark.parametrize("elements", [1, 4, 64])
def test_chains_two_phases_and_trees_of_a_power_of_two_are_what_a_walk_over_their_hops_takes(elements):
    for pes, apart in product((2, 3, 8, 50), (1, 7)):
        assert chain_cycles(LINKS, pes, elements, apart) == walked_chain(pes, elements, apart)
    for size in (2, 4, 7):
        first = walked_chain(size, elements)
        assert two_phase_cycles(LINKS, size * size, elements) == walked_chain(size, elements, size, begin=first)
    for pes in (2, 4, 16, 64):
        assert tree_cycles(LINKS, pes, elements) == walked_tree(pes, elements)


@given(st.integers(2, 300), st.integers(1, 100))
def test_a_tree_of_any_size_is_no_shorter_than_its_walk(pes, elements):
    assert tree_cycles(LINKS, pes, elements) >= walked_tree(pes, elements)


def test_by_hand():
    """750 PEs of WSE-2, one element: 10 rounds of 1 + 2 x 2 + 1 and 749 hops; back 749 hops, 2 x 2 + 1 and the element.

    A chain would take 749 x 6 + 1. One PE has its sum.
    """
    assert tree_cycles(LINKS, 750, 1) == 10 * 6 + 749 == 809
    assert chain_cycles(LINKS, 750, 1) == 4495
    assert broadcast_cycles(LINKS, 750, 1) == 755
    assert reduce_cycles(LINKS, 750, 1) == 809
    assert allreduce_cycles(LINKS, 750, 1) == 809 + 755
    for way in (*WAYS, reduce_cycles, broadcast_cycles, allreduce_cycles):
        assert way(LINKS, 1, 16) == 0
    for grid in (wafer_allreduce_cycles, software_allreduce_cycles):
        assert grid(LINKS, 1, 1, 16) == 0


@given(st.integers(1, 1200), st.integers(1, 5000))
def test_the_cheapest_way_is_no_dearer_than_any_and_no_faster_than_hops_and_ramps(pes, elements):
    found = reduce_cycles(LINKS, pes, elements)
    assert all(found <= way(LINKS, pes, elements) for way in WAYS)
    if pes > 1:
        # The farthest PE's last element passes all hops and two ramps; one PE reads as many elements as there are.
        assert found >= elements + (pes - 1) * LINKS.hop_cycles + 2 * LINKS.ramp_cycles + READ_CYCLES


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 50), st.integers(1, 50))
def test_more_elements_never_take_less(pes, elements, more_pes, more):
    assert reduce_cycles(LINKS, pes, elements) <= reduce_cycles(LINKS, pes, elements + more)
    for way in (chain_cycles, tree_cycles, broadcast_cycles):
        assert way(LINKS, pes, elements) <= way(LINKS, pes + more_pes, elements + more)
    # One PE more may make groups of two phases larger, of which there are then fewer: a step of a chain at the most.
    step = 2 * LINKS.ramp_cycles + READ_CYCLES + LINKS.hop_cycles * 34
    assert reduce_cycles(LINKS, pes, elements) <= reduce_cycles(LINKS, pes + 1, elements) + step


def test_sums_that_meet_in_the_middle_take_little_more_than_the_diameter_and_those_of_the_library_set_routes_anew():
    """CS-1, 595 x 593 PEs: Rocki et al. (SC20) have 'about 10% greater than the diameter' for one element."""
    width, height = 595, 593
    found = wafer_allreduce_cycles(load_system("cs1").links, width, height, 1)
    # 298 and 297 PEs of a half, 9 rounds of 6, 297 and 296 hops, 1 for the other half; back as many hops and 6.
    assert found == (54 + 297 + 1 + 297 + 6) + (54 + 296 + 1 + 296 + 6) == 1308
    assert found / (width + height - 2) == pytest.approx(1.103, abs=0.001)
    # In a corner: along a whole row, down a whole column, and back.
    corner = sum(allreduce_cycles(load_system("cs1").links, pes, 1) for pes in (width, height))
    assert corner / (width + height - 2) == pytest.approx(2.11, abs=0.01)
    row = software_allreduce_cycles(LINKS, 8, 1, 16)
    assert row == RECONFIGURE_CYCLES + 58 + 28
    assert software_allreduce_cycles(LINKS, 8, 8, 16) == 2 * row


@given(st.integers(1, 700), st.integers(1, 700), st.integers(1, 500))
def test_no_all_reduce_is_faster_than_the_way_to_the_middle_and_back(width, height, elements):
    least = 2 * (width // 2 + height // 2) * LINKS.hop_cycles
    for way in (wafer_allreduce_cycles, software_allreduce_cycles):
        assert way(LINKS, width, height, elements) >= least
