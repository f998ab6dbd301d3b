"""Sums and broadcasts over a line of PEs: beside a simulation of each wavelet, and against what no way can beat."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.perf.collectives import (
    allreduce_cycles,
    broadcast_cycles,
    chain_cycles,
    reduce_cycles,
    tree_cycles,
    two_phase_cycles,
)
from cstool.system import load_system

LINKS = load_system("cs2").links
PES, ELEMENTS = st.integers(1, 200), st.integers(1, 60)


def sent(ready: list[int], hops: int, links=LINKS) -> list[int]:
    """When elements that a PE sends one a cycle, as they are ready, can be read so many hops away."""
    times: list[int] = []
    for time in ready:
        leaves = max(time, times[-1] + 1 if times else 0)
        times.append(leaves)
    return [time + 2 * links.ramp_cycles + hops * links.hop_cycles + 1 for time in times]


def simulated_chain(pes: int, elements: int, apart: int = 1, links=LINKS, begin: int = 0) -> int:
    """The cycle after the one in which the last PE has the last sum."""
    has = [begin + n for n in range(elements)]
    for _ in range(pes - 1):
        has = sent(has, apart, links)
    return has[-1] + 1


@given(PES, ELEMENTS, st.integers(1, 30), st.integers(0, 5))
def test_a_chain_is_what_its_wavelets_take(pes, elements, apart, ramp):
    links = replace(LINKS, ramp_cycles=ramp)
    expected = 0 if pes == 1 else simulated_chain(pes, elements, apart, links)
    assert chain_cycles(links, pes, elements, apart) == expected


@given(st.integers(0, 7), ELEMENTS)
def test_a_tree_is_what_its_rounds_take(levels, elements):
    """A round begins when the one before has all elements; the last element of a message is behind the first."""
    time = 0
    for level in range(levels):
        time = sent([time + n for n in range(elements)], 2**level)[-1] + 1
    assert tree_cycles(LINKS, 2**levels, elements) == time


@given(PES, ELEMENTS)
def test_two_phases_are_two_chains(pes, elements):
    size = next(n for n in range(1, pes + 1) if n * n >= pes)
    groups = -(-pes // size)
    first = simulated_chain(size, elements) if size > 1 else 0
    second = simulated_chain(groups, elements, size) if groups > 1 else 0
    assert two_phase_cycles(LINKS, pes, elements) == first + second


@given(st.integers(2, 1000), st.integers(1, 5000))
def test_nothing_beats_a_hop_a_cycle_or_an_element_a_cycle(pes, elements):
    """The farthest PE's last element goes two ramps and all hops; each PE hears all elements."""
    least = elements + (pes - 1) * LINKS.hop_cycles + 2 * LINKS.ramp_cycles
    ways = [way(LINKS, pes, elements) for way in (chain_cycles, two_phase_cycles, tree_cycles)]
    assert reduce_cycles(LINKS, pes, elements) == min(ways) >= least
    assert broadcast_cycles(LINKS, pes, elements) == least + 1
    assert allreduce_cycles(LINKS, pes, elements) == min(ways) + least + 1


@given(st.integers(1, 999), st.integers(1, 3000), st.integers(1, 100))
def test_more_elements_never_take_less(pes, elements, more):
    assert reduce_cycles(LINKS, pes, elements) <= reduce_cycles(LINKS, pes, elements + more)


def test_one_pe_has_nothing_to_wait_for():
    assert [way(LINKS, 1, 9) for way in (reduce_cycles, broadcast_cycles, allreduce_cycles, tree_cycles)] == [0] * 4


@pytest.mark.parametrize(("elements", "way"), [(1, tree_cycles), (64, two_phase_cycles), (100_000, chain_cycles)])
def test_the_cheapest_way_depends_on_how_much_there_is(elements, way):
    assert reduce_cycles(LINKS, 750, elements) == way(LINKS, 750, elements)
