"""The compiled network against the reference: the same wavelets in the same cycles, configs, and errors."""

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fast import codes
from cstool.csl.fast import state as s
from cstool.csl.fast.build import config_words
from tests.examples import examples
from tests.unit.csl.fabric.network_run import Run
from tests.unit.csl.fabric.test_network_twin import CYCLES, switch_case, tree_case
from tests.unit.csl.fast.network_run import FastRun

seeds = st.integers(0, 2**32 - 1)


def same(case, cycles=CYCLES):
    """Run a case on both; the reference run, unless a conflict ends it."""
    run, fast = Run(case), FastRun(case)
    for now in range(cycles):
        fast.cycle()
        if fast.failed:
            assert fast.failed == codes.CONFLICT
            with pytest.raises(SimulationError, match=f"in conflict.* in cycle {now}"):
                run.until(now + 1)
            return None
    run.until(cycles)
    words = [(time, x, y, (color, data | control << 32)) for time, x, y, (color, data, control) in run.arrivals]
    assert sorted(fast.arrivals) == sorted(words)
    assert fast.hops() == run.network.hops()
    held = {key: tuple(w.data | w.control << 32 for w in wavelets) for key, wavelets in run.held().items()}
    assert fast.held() == held
    for x, y, color in case.configs:
        pe = y * case.width + x
        assert fast.config(pe, color) == config_words(run.network.config(pe, color), 0)[: s.G_FILTER_ID]
    return run


@pytest.mark.takes("the compiled network is compiled first")
@given(seeds)
@examples(60)
def test_trees_are_the_references(seed):
    assert same(tree_case(Random(seed)), 120) is not None


@pytest.mark.takes("the compiled network is compiled first")
@given(seeds)
@example(6289)  # a teardown ends in the cycle in which the next one begins
@example(8537)  # likewise, in the last cycle
@examples(200)
def test_switches_commands_filters_and_changes_are_the_references(seed):
    same(switch_case(Random(seed)))
