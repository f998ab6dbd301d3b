"""The network against its slow twin: the same wavelets in the same cycles, whatever the order of events in a cycle."""

from collections import Counter
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cstool.csl.fabric import errors
from cstool.csl.fabric.errors import SimulationError
from tests.examples import examples
from tests.unit.csl.fabric.network_cases import switch_case, tree_case
from tests.unit.csl.fabric.network_run import Run
from tests.unit.csl.fabric.network_twin import Twin

CYCLES = 60
seeds = st.integers(0, 2**32 - 1)


def same(case, **how):
    """Simulate a case and its twin; whether it ran to the end."""
    twin = Twin(case)
    run = Run(case, **how)
    for _ in range(CYCLES):
        conflicts = twin.cycle()
        if conflicts:
            with pytest.raises(SimulationError) as caught:
                run.until(twin.now + 1)
            assert str(caught.value) in {
                str(errors.conflict(case.program(), y * case.width + x, color, sides, twin.now))
                for x, y, color, sides in conflicts
            }
            return False
    run.until(CYCLES)
    twin.change()  # what was asked for in the last cycle counts for who asks
    assert sorted(run.arrivals) == sorted(twin.arrivals)
    assert sorted(run.hops) == sorted(twin.hops)
    assert run.held() == twin.held()
    counts = Counter((y * case.width + x, port, wavelet.color) for _, x, y, port, wavelet in twin.hops)
    assert run.network.hops() == dict(sorted(counts.items()))
    places = {(x, y, color): y * case.width + x for x, y, color in case.configs}
    assert {key: run.network.config(pe, key[2]) for key, pe in places.items()} == twin.shown()
    for pe in range(case.width * case.height):
        torn = tuple(sorted(key[2] for key, at in places.items() if at == pe and twin.configs[key].teardown))
        assert run.network.teardowns(pe) == torn
    moving = sum(map(len, twin.coming.values())) + sum(map(len, twin.descending.values()))
    assert run.network.in_flight() == moving + sum(map(len, twin.held().values()))
    return True


@given(seeds)
@examples(100)
def test_trees_are_the_twins(seed):
    assert same(tree_case(Random(seed)))


@given(seeds)
@examples(300)
def test_switches_are_the_twins(seed):
    same(switch_case(Random(seed)))


@given(seeds, seeds, st.booleans())
@example(6289, 0, False)  # a teardown ends in the cycle in which the next one begins
@example(8537, 8537, True)  # likewise, in the last cycle
@examples(150)
def test_the_order_of_events_in_a_cycle_does_not_matter(seed, order, polls):
    same(switch_case(Random(seed)), seed=order, polls=polls)


@given(seeds)
@examples(100)
def test_trees_lose_double_and_reorder_nothing(seed):
    case = tree_case(Random(seed))
    run = Run(case)
    run.until(800)
    assert run.network.in_flight() == 0
    got = {}
    for _, x, y, wavelet in run.arrivals:
        got.setdefault((x, y, wavelet.color), []).append(wavelet)
    sent = {color: [w for ws in case.sends.values() for w in ws if w.color == color] for _, _, color in case.configs}
    assert got == {
        (x, y, color): sent[color] for (x, y, color), config in case.configs.items() if config.positions[0].tx & 1
    }


def test_the_cases_are_not_all_conflicts_and_not_all_dull():
    cases = [switch_case(Random(seed)) for seed in range(60)]
    ran = [same(case) for case in cases]
    assert 10 < sum(ran) < 60
    traffic = []
    for case, ended in zip(cases, ran, strict=True):
        if ended:
            twin = Twin(case)
            for _ in range(CYCLES):
                twin.cycle()
            traffic.append(len(twin.hops))
    assert sum(hops > 20 for hops in traffic) > 5
