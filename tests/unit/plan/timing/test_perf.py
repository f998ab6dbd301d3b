"""The closed forms, against numbers worked out by hand and against twins that deal elements one by one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.ir import OP_RULES, Layout, Lookup, MatMul, OpKind, Pairs, PhaseCycles, RowSums, VectorOps, work_of
from cstool.model.system import load_system
from cstool.plan.compiler.program import shapes_of
from cstool.plan.timing.pe import Pe, ceil_div
from cstool.plan.timing.phases import Limits, Phases
from cstool.plan.timing.region import key_block, key_bytes, region_phases
from cstool.plan.timing.streaming import Stream, streamed_phases
from cstool.training.kernels.table import KERNELS
from tests.models import fc_mnist

CS2 = load_system("cs2")
PE = Pe(CS2, 16)
SIDES = st.integers(1, 40)
PRODUCT = MatMul(tokens=5, inputs=8, outputs=12)
ATTENTION = Pairs(tokens=4, key_tokens=4, pairs=10, width=8, kv_width=4, head_width=4)


def limits(phases: Phases) -> list[tuple[int, int]]:
    """Return (compute, link) of forward, delta and gradient; nothing enters or leaves the wafer."""
    assert not any(phase.ingress or phase.egress or phase.latency for phase in phases.all)
    return [(int(phase.compute), int(phase.link)) for phase in phases.all]


def test_the_largest_limit_counts_and_is_named_and_latencies_come_on_top():
    phases = {
        "compute": Limits(compute=5, link=5, ingress=5, egress=5).phase(3),
        "link": Limits(compute=5, link=7, ingress=6).phase(3),
        "ingress": Limits(compute=5, link=7, ingress=8).phase(3),
        "egress": Limits(link=7, ingress=8, egress=9).phase(3),
    }
    assert [phase.bound for phase in phases.values()] == list(phases)
    assert [phase.cycles for phase in phases.values()] == [5 + 3, 7 + 3, 8 + 3, 9 + 3]
    # Were the links of the wafer without limit.
    assert [phase.fabric_cycles for phase in phases.values()] == [5 + 3, 7 + 3, 7 + 3, 7 + 3]
    assert Limits().phase(3).cycles == 0
    found = Limits(compute=5, link=6, latency=4)
    assert found.phase(3) == PhaseCycles(compute=5, link=6, ingress=0, egress=0, latency=4 + 3)
    assert (found.cycles, found.phase(3).cycles) == (6 + 4, 6 + 4 + 3)


def test_phases_add_up_forward_may_run_again_and_pes_at_half_their_rate_take_twice_the_cycles():
    phases = Phases()
    phases.forward.add(compute=3)
    phases.delta.add(link=1)
    phases.delta.add(link=3, ingress=2)
    phases.gradient.add(egress=2)
    assert (phases.total(), phases.total(2)) == (3 + 4 + 2, 3 + 4 + 2 + 2 * 3)
    cycles = phases.kernel_cycles(2, latency_cycles=1)
    assert (cycles.recompute_cycles, cycles.total) == (2 * 4, 4 + 5 + 3 + 2 * 4)
    found = Limits(efficiency=500, compute=5, link=7, ingress=3, egress=2)
    assert found.cycles == 10
    assert found.phase() == PhaseCycles(compute=10, link=7, ingress=3, egress=2, latency=0)
    assert Limits(efficiency=757, compute=100).phase().compute == 133  # 132.1
    half = replace(CS2, pe=replace(CS2.pe, efficiency=0.5))
    assert region_phases(Pe(half, 16), [PRODUCT], 2, 3).forward.compute_cycles == 2 * 60


@pytest.mark.parametrize(
    ("work", "width", "height", "expected"),
    [
        # 2 x 3 PEs with 4 x 4 weights each: 4 AXPYs of 4 elements, 2 cycles each, and 4 partial sums on their way.
        (PRODUCT, 2, 3, [(5 * (4 * 2 + 4), 5 * 4), (5 * (4 * 2 + 4), 5 * 4), (5 * 4 * 2, 0)]),
        # A weight that stays is computed with, zeros and all.
        (replace(PRODUCT, nonzeros=10), 2, 3, [(60, 20), (60, 20), (40, 0)]),
        # What nothing keeps is computed twice.
        (replace(PRODUCT, is_repeated=True), 2, 3, [(60, 20), (2 * 60, 2 * 20), (40, 0)]),
        # 8 AXPYs of 12 elements, 4 cycles each, are less work than 12 of 8; inputs and deltas arrive 2 to a wavelet.
        (PRODUCT, 1, 1, [(5 * 32, 5 * 4), (5 * 32, 5 * 6), (5 * 32, 0)]),
        # 3 keys to a query: 3 AXPYs of 8 elements are 9 cycles; softmax has 12 instructions on 3 scores, two heads.
        (ATTENTION, 1, 1, [(4 * (2 * 9 + 48), 0), (4 * (5 * 9 + 2 * 48), 0), (0, 0)]),
        # 4 x 2 PEs: 2 elements of a head of 4, so scores are partial sums; keys and values pass by the other row.
        (ATTENTION, 4, 2, [(2 * (2 * 4 + 24 + 3), 4 * 1), (2 * (5 * 4 + 2 * 24 + 2 * 3), 8 * 1), (0, 0)]),
        (Lookup(tokens=5, rows=100, width=12), 2, 3, [(0, 5 * 3), (0, 0), (0, 5 * 3)]),
        (VectorOps(tokens=5, width=12, forward=3, backward=4), 2, 3, [(3 * 5, 0), (4 * 5, 0), (0, 0)]),
        # 5 tokens, of each 2 values forward and 1 backward: an addition at each PE, a wavelet there and one back.
        (RowSums(tokens=5, forward=2, backward=1), 2, 3, [(10, 2 * 10), (5, 2 * 5), (0, 0)]),
        (RowSums(tokens=5, forward=2, backward=1), 1, 3, [(0, 0), (0, 0), (0, 0)]),
    ],
)
def test_what_work_takes_in_a_region_by_hand(work, width, height, expected):
    assert limits(region_phases(PE, [work], width, height)) == expected


@given(st.integers(1, 5000))
def test_a_block_of_keys_takes_the_memory_that_is_given_to_it(d):
    assert key_block(PE, 3, d) <= 3
    keys = key_block(PE, 1000, d)
    assert 1 <= keys <= 64
    assert keys == 1 or keys * key_bytes(PE, d) <= 4096
    assert keys == 64 or (keys + 1) * key_bytes(PE, d) > 4096


def test_every_kind_of_op_is_in_every_table_and_losses_alone_are_computed_twice():
    for table in (OP_RULES, KERNELS):
        assert set(table) == set(OpKind)
    graph = fc_mnist()
    shapes = shapes_of(graph, graph.segments[-1])
    repeated = {op.kind for op in graph.ops for w in work_of(op, shapes) if isinstance(w, MatMul) and w.is_repeated}
    assert repeated == {OpKind.SOFTMAX_LOSS}


def test_where_no_delta_is_wanted_products_make_none_and_what_stands_between_them_does():
    work = [PRODUCT, VectorOps(5, 12, 3, 4), replace(PRODUCT, is_repeated=True)]
    kept, left = (region_phases(PE, work, 2, 3, needs_delta) for needs_delta in (True, False))
    assert limits(kept)[1] == (60 + 4 * 5 + 2 * 60, 20 + 2 * 20)
    assert limits(left) == [limits(kept)[0], (4 * 5 + 60, 20), limits(kept)[2]]


def test_ops_of_a_kernel_add_up():
    work = [PRODUCT, VectorOps(5, 12, 3, 4), ATTENTION, RowSums(5, 2, 1)]
    whole = np.array(limits(region_phases(PE, work, 4, 2)))
    assert (whole == sum(np.array(limits(region_phases(PE, [item], 4, 2))) for item in work)).all()


@given(st.integers(1, 300), st.integers(1, 300), SIDES, SIDES)
def test_the_busiest_pe_has_the_tile_that_dealing_leaves_it(inputs, outputs, width, height):
    tile = np.zeros((width, height), int)
    for i in range(inputs):
        tile[i % width, : min(outputs, height)] += 1
    per_output = np.bincount(np.arange(outputs) % height, minlength=height)
    assert tile.max() == ceil_div(inputs, width)
    assert per_output.max() == ceil_div(outputs, height)
    o, i = int(per_output.max()), int(tile.max())
    phases = region_phases(PE, [MatMul(1, inputs, outputs)], width, height)
    assert phases.gradient.compute == min(i * PE.axpy_cycles(o), o * PE.axpy_cycles(i))


WORKS = [PRODUCT, ATTENTION, MatMul(3, 700, 31), VectorOps(7, 100, 3, 5), RowSums(7, 2, 1), Lookup(5, 100, 64)]


@given(st.sampled_from(WORKS), st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=8))
def test_arrays_of_sizes_give_what_each_size_gives(item, sizes):
    w, h = np.array(sizes).T
    together = region_phases(PE, [item], w, h)
    each = [limits(region_phases(PE, [item], width, height)) for width, height in sizes]
    for number, phase in enumerate(together.all):
        for part, name in enumerate(("compute", "link")):
            expected = [found[number][part] for found in each]
            assert (np.broadcast_to(getattr(phase, name), len(sizes)) == expected).all()


@given(st.integers(1, 60), st.integers(1, 200), st.integers(1, 200), SIDES, SIDES)
def test_more_tokens_never_take_fewer_cycles(tokens, inputs, outputs, width, height):
    fewer, more = (region_phases(PE, [MatMul(tokens + n, inputs, outputs)], width, height).total() for n in (0, 1))
    assert fewer <= more
    work, stream = [MatMul(tokens, inputs, outputs)], Stream(2, 4, 4)
    fewer, more = (
        streamed_phases(PE, work, Layout(1, width, height, t), 1, stream).total() for t in (tokens, tokens + 1)
    )
    assert fewer <= more
