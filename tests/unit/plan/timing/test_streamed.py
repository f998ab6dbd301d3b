"""Weight streaming: kernels by hand, what passes the edge of the wafer, sparse weights against random masks."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cstool.model.ir import Layout, Lookup, MatMul, Pairs, RowSums, VectorOps
from cstool.model.system import load_system
from cstool.plan.timing.pe import Pe
from cstool.plan.timing.phases import Phases
from cstool.plan.timing.streaming import (
    Layouts,
    Stream,
    busiest_axpys,
    edge_cycles,
    hop_latency_cycles,
    stream_of,
    streamed_phases,
)

CS2 = load_system("cs2")
PE = Pe(CS2, 16)
PRODUCT = MatMul(tokens=5, inputs=8, outputs=12)
LAYOUT = Layout(groups=1, columns=2, rows=3, tokens_per_pe=4)
STREAM = stream_of(CS2, 16)


def limits(phases: Phases) -> list[tuple[int, int, int, int]]:
    """Return (compute, link, ingress, egress) of forward, delta and gradient."""
    return [(int(p.compute), int(p.link), int(p.ingress), int(p.egress)) for p in phases.all]


def test_a_weight_comes_as_an_operand_a_non_zero_with_its_place_and_a_gradient_leaves_in_32_bits():
    assert stream_of(CS2, 16) == Stream(weight_bytes=2, nonzero_bytes=2 + 2, gradient_bytes=4)
    assert stream_of(CS2, 32) == Stream(weight_bytes=4, nonzero_bytes=4 + 2, gradient_bytes=4)
    assert STREAM.matrix_bytes(PRODUCT) == 96 * 2
    assert STREAM.matrix_bytes(replace(PRODUCT, nonzeros=40)) == 40 * 4
    # With an index each, more than half of a matrix is better sent whole.
    assert STREAM.matrix_bytes(replace(PRODUCT, nonzeros=49)) == STREAM.matrix_bytes(PRODUCT) == 96 * 2
    with pytest.raises(ValueError, match="^cs1 has no MemoryX$"):
        stream_of(load_system("cs1"), 16)


def test_a_streamed_product():
    """4 tokens of 4 of 8 elements to a PE; 12 outputs.

    At 150 GB/s and 0.85 GHz, 176.5 bytes pass per cycle: 96 weights of 2 bytes take 2, 96 gradients of 4 bytes 3. The
    deltas of an output are 4 operands, 2 wavelets; the 4 weights of a column that pass along it are more.
    """
    assert limits(streamed_phases(PE, [PRODUCT], LAYOUT, 2, STREAM)) == [
        (12 * (4 * 2 + 4), 12 * 4, 2, 0),
        (12 * 4 * 2, 12 * 4, 2, 0),
        (12 * (4 * 2 + 4), 12 * 4, 0, 3),
    ]
    # WSE-3, 16 tokens: 8 products per cycle forward, but 16 deltas of 2 bytes are written in 4 cycles.
    phases = streamed_phases(Pe(load_system("cs3"), 16), [PRODUCT], replace(LAYOUT, tokens_per_pe=16), 2, STREAM)
    assert phases.forward.compute == 12 * (4 * (1 + 2) + 16)
    # The deltas of an output, 8 wavelets, are more than the 4 weights of a column.
    assert (phases.delta.compute, phases.delta.link) == (12 * 4 * (1 + 4), 12 * 8)
    # Groups of columns add up their gradients, too.
    layouts = (LAYOUT, replace(LAYOUT, groups=2), replace(LAYOUT, rows=1))
    gradient = [streamed_phases(PE, [PRODUCT], layout, 2, STREAM).gradient.compute for layout in layouts]
    assert gradient == [12 * (8 + 4), 12 * (8 + 4 + 4), 12 * 8]
    # Of a table all rows come, and the used ones leave.
    layout, table = Layout(groups=1, columns=4, rows=3, tokens_per_pe=2), Lookup(tokens=3, rows=1000, width=8)
    into, out = edge_cycles(PE, 1000 * 8 * 2), edge_cycles(PE, 6 * 8 * 4)
    found = limits(streamed_phases(PE, [table], layout, 2, STREAM))
    assert found == [(0, 1000 * 2, into, 0), (0, 0, 0, 0), (0, 6 * 2, 0, out)]


def test_a_product_that_nothing_keeps_is_computed_again_with_the_weights_that_come_for_the_delta():
    loss = replace(PRODUCT, is_repeated=True)
    assert limits(streamed_phases(PE, [loss], LAYOUT, 2, STREAM)) == [
        (144, 48, 2, 0),
        (144 + 96, 48 + 48, 2, 0),
        (144, 48, 0, 3),
    ]
    # Where no delta is wanted, they come for this alone.
    assert limits(streamed_phases(PE, [loss], LAYOUT, 2, STREAM, needs_delta=False))[1] == (144, 48 + 48, 2, 0)


def test_where_no_delta_is_wanted_products_make_none_and_what_stands_between_them_does():
    """A bias after the first product of a model: 8 operands of a PE at 2 per cycle, 4 instructions, once backward."""
    work = [PRODUCT, VectorOps(5, 4, 3, 4), RowSums(5, 2, 1)]
    kept, left = (streamed_phases(PE, work, LAYOUT, 2, STREAM, needs_delta=needs) for needs in (True, False))
    assert limits(kept)[1] == (96 + 4 * 4 + 4, 48 + 2 * 4, 2, 0)
    assert limits(left) == [limits(kept)[0], (4 * 4 + 4, 2 * 4, 0, 0), limits(kept)[2]]


def test_sums_over_a_token_go_along_the_row_and_back():
    """Of 4 tokens on a PE 2 values forward: 8 additions, 8 wavelets either way, and 6 cycles each way to wait."""
    phases = streamed_phases(PE, [RowSums(5, 2, 1)], LAYOUT, 2, STREAM)
    assert limits(phases) == [(8, 2 * 8, 0, 0), (4, 2 * 4, 0, 0), (0, 0, 0, 0)]
    assert [phase.latency for phase in phases.all] == [2 * 6, 2 * 6, 0]
    assert phases.forward.cycles == 2 * 8 + 2 * 6
    forward_only = streamed_phases(PE, [RowSums(5, 2, 0)], LAYOUT, 2, STREAM)
    assert [phase.latency for phase in forward_only.all] == [2 * 6, 0, 0]
    alone = streamed_phases(PE, [RowSums(5, 2, 1)], replace(LAYOUT, columns=1), 2, STREAM)
    assert [phase.cycles for phase in alone.all] == [0, 0, 0]


def test_weights_cannot_come_nor_gradients_leave_faster_than_the_links_take_them():
    """75,000 weights of 4 bytes are 2 us; 10 outputs of 10 AXPYs of 4 are 510 cycles with sums, 766 sustained.

    The 10 sums go over 750 columns in 10 rounds of a tree; 100 gradients over 994 rows in two phases of 32.
    """
    assert edge_cycles(PE, 150_000_000_000) == 850_000_000
    wide = MatMul(tokens=994, inputs=7500, outputs=10)
    phases = streamed_phases(Pe(CS2, 32), [wide], Layout(1, 750, 994, 1), 1, stream_of(CS2, 32))
    assert phases.forward.compute_cycles == 766 == math.ceil(510 / 0.666)
    assert (phases.forward.phase().bound, phases.forward.cycles) == ("ingress", 1700 + 749 + 10 * 15 - 10)
    assert (phases.gradient.phase().bound, phases.gradient.cycles) == ("egress", 1700 + 31 * (6 + 37) + 100)


def test_experts_follow_one_another_and_the_busiest_holds_up_what_comes_behind_it():
    """4 experts of 12 outputs, each token meets one: each expert has one of the 4 tokens of a PE, or one has all."""
    even = MatMul(tokens=2, inputs=8, outputs=48, all_tokens=8, experts=4)
    alone = streamed_phases(PE, [PRODUCT], replace(LAYOUT, tokens_per_pe=1), 2, STREAM)
    found = streamed_phases(PE, [even], LAYOUT, 2, STREAM)
    edges = [edge_cycles(PE, 4 * 96 * size) for size in (2, 4)]
    assert limits(found) == [
        (4 * p.compute, 4 * p.link, edges[0] * (p.ingress > 0), edges[1] * (p.egress > 0)) for p in alone.all
    ]
    assert [p.latency for p in found.all] == [p.latency for p in alone.all] == [6, 0, 12]
    # Links so slow that the weights of an expert take longer than its products, but for those of the busiest.
    slow = Pe(replace(CS2, io_bytes_per_s=10**8), 16)
    uneven = streamed_phases(slow, [replace(even, busiest=4.0)], LAYOUT, 2, STREAM)
    busy = streamed_phases(slow, [PRODUCT], LAYOUT, 2, STREAM)
    idle = streamed_phases(slow, [PRODUCT], replace(LAYOUT, tokens_per_pe=0), 2, STREAM)
    for index in range(3):
        expected = busy.all[index].cycles + 3 * idle.all[index].cycles
        # That of three experts together is rounded once, and the sums of one follow those of another.
        followed = 2 * idle.all[index].latency
        assert expected - 3 - followed <= uneven.all[index].cycles <= expected


def test_sparse_experts_share_their_non_zeros_evenly():
    """Of 4 experts of 12 x 8 a quarter is not zero, 24 of each: a product of its own for each, one after the other."""
    even = MatMul(tokens=2, inputs=8, outputs=48, nonzeros=96, all_tokens=8, experts=4)
    found = streamed_phases(PE, [even], LAYOUT, 2, STREAM)
    together = replace(even, all_tokens=None, experts=1)
    assert limits(found) == limits(streamed_phases(PE, [together], replace(LAYOUT, tokens_per_pe=1), 2, STREAM))
    assert limits(found)[0][2] == edge_cycles(PE, 96 * STREAM.nonzero_bytes)
    uneven = replace(even, busiest=4.0)
    slow = Pe(replace(CS2, io_bytes_per_s=10**8), 16)
    one = replace(PRODUCT, nonzeros=24)
    busy, idle = (streamed_phases(slow, [one], replace(LAYOUT, tokens_per_pe=t), 2, STREAM) for t in (4, 0))
    for index, phase in enumerate(streamed_phases(slow, [uneven], LAYOUT, 2, STREAM).all):
        expected = busy.all[index].cycles + 3 * idle.all[index].cycles
        assert expected - 3 - 2 * idle.all[index].latency <= phase.cycles <= expected


def test_streamed_attention():
    """A head of 4 elements on each of 2 columns, 3 keys to a query: 3 AXPYs of 4 elements are 6 cycles, and no scores
    are partial; softmax is 12 instructions on 3 scores. A key and value pass by in 2 wavelets.
    """
    pairs = Pairs(tokens=4, key_tokens=4, pairs=10, width=8, kv_width=4, head_width=4)
    one, two = (streamed_phases(PE, [pairs], Layout(g, 2, 3, 4), 6, STREAM) for g in (1, 2))
    assert limits(one)[0] == (4 * (2 * 6 + 12 * 2), 4 * 6 * 2, 0, 0)
    assert limits(one)[1] == (4 * (5 * 6 + 2 * 12 * 2), 2 * 4 * 6 * 2, 0, 0)
    # The samples of a group pass by its rows: half of them.
    assert two.forward.link == 4 * 3 * 2


def test_ops_of_a_kernel_add_up():
    work = [PRODUCT, VectorOps(5, 12, 3, 4), RowSums(5, 2, 1), Lookup(5, 100, 8)]
    whole = np.array(limits(streamed_phases(PE, work, LAYOUT, 2, STREAM)))
    assert (whole == sum(np.array(limits(streamed_phases(PE, [item], LAYOUT, 2, STREAM))) for item in work)).all()


def test_a_sparse_product():
    """Half of 96 weights. Over 2 columns of 4 inputs, with accumulators for 3 outputs: 12 elements of a column at a
    time, 6 of which are not zero, with a deviation of sqrt(3). The larger of two is at 6 + sqrt(2 ln 2) sqrt(3) = 8.04,
    and 12 outputs are 4 times that: 33. For the gradient, a column has all 48 elements: 24 + sqrt(2 ln 2) sqrt(12) =
    28.08, so 29. 48 weights come with their places in 192 bytes, 2 cycles; 48 gradients leave in as many.
    """
    half = replace(PRODUCT, nonzeros=48)
    assert limits(streamed_phases(PE, [half], LAYOUT, 2, STREAM, outputs_in_flight=3)) == [
        (33 * 2 + 12 * 4, 48, 2, 0),
        (33 * 2, 33, 2, 0),
        (29 * 2 + 29, 29, 0, 2),
    ]


def busiest_of_a_mask(item: MatMul, columns: int, outputs_in_flight: int, seed: int) -> int:
    """Draw a mask, deal its inputs over columns, and let columns wait for each other after so many outputs."""
    mask = np.zeros(item.inputs * item.outputs, np.int64)
    mask[np.random.default_rng(seed).choice(mask.size, item.nonzeros, replace=False)] = 1
    width = -(-item.inputs // columns)
    per_column = np.add.reduceat(mask.reshape(item.outputs, item.inputs), np.arange(0, item.inputs, width), axis=1)
    together = np.add.reduceat(per_column, np.arange(0, item.outputs, outputs_in_flight), axis=0)
    return int(together.max(axis=1).sum())


@pytest.mark.parametrize(
    ("inputs", "outputs", "columns", "density", "outputs_in_flight"),
    [
        *((1500, 1200, 75, *case) for case in ((0.1, 64), (0.5, 64), (0.05, 1200))),
        (3000, 600, 750, 0.25, 100),
        (5000, 400, 100, 0.1, 8),
        (768, 768, 250, 0.2, 2),
        *((2000, 1000, 300, density, 40) for density in (0.01, 0.9)),
        (2304, 768, 375, 0.2, 20),
        (600, 500, 2, 0.3, 50),
        (640, 300, 1, 0.3, 50),
        (30, 2000, 750, 0.2, 400),
    ],
)
def test_the_busiest_column_is_that_of_random_masks(inputs, outputs, columns, density, outputs_in_flight):
    item = MatMul(1, inputs, outputs, nonzeros=round(density * inputs * outputs))
    drawn = np.mean([busiest_of_a_mask(item, columns, outputs_in_flight, seed) for seed in range(5)])
    assert 0.98 * drawn <= busiest_axpys(item, columns, outputs_in_flight) <= 1.06 * drawn


PRODUCTS = st.builds(MatMul, tokens=st.integers(1, 50), inputs=st.integers(1, 300), outputs=st.integers(1, 300))


@given(PRODUCTS, st.integers(1, 400), st.integers(1, 400), st.floats(0, 1))
@example(MatMul(tokens=1, inputs=149, outputs=149), 1, 2, 0.173828125)
def test_the_busiest_column_has_no_fewer_than_the_density_says_and_no_more_than_all(
    dense, columns, outputs_in_flight, density
):
    sparse = replace(dense, nonzeros=round(density * dense.weights))
    all_of_them = busiest_axpys(dense, columns, outputs_in_flight)
    assert all_of_them == dense.outputs * -(-dense.inputs // columns)
    found = busiest_axpys(sparse, columns, outputs_in_flight)
    assert found * dense.weights >= sparse.weights * all_of_them
    assert found <= all_of_them
    assert busiest_axpys(replace(dense, nonzeros=dense.weights), columns, outputs_in_flight) == all_of_them
    assert busiest_axpys(replace(dense, nonzeros=0), columns, outputs_in_flight) == 0
    # More accumulators never take longer.
    apart = [busiest_axpys(sparse, columns, count) for count in (2, 4, 64, 300)]
    assert apart == sorted(apart, reverse=True)


@given(PRODUCTS, st.integers(2, 60), st.integers(2, 60), st.integers(1, 12))
def test_no_product_is_faster_than_its_sums_have_hops_and_ramps(dense, columns, rows, tokens_per_pe):
    phases = streamed_phases(PE, [dense], Layout(1, columns, rows, tokens_per_pe), 2, STREAM)
    ramps = 2 * CS2.links.ramp_cycles + 1
    assert phases.forward.cycles >= dense.outputs * tokens_per_pe + (columns - 1) + ramps
    weights = dense.outputs * -(-dense.inputs // columns)
    assert phases.gradient.cycles >= weights + (rows - 1) + ramps


@given(PRODUCTS, st.integers(1, 60), st.integers(1, 60), st.integers(0, 90), st.integers(2, 50), st.floats(0, 1))
def test_a_density_cuts_compute_to_no_less_than_itself_and_makes_nothing_longer(
    dense, columns, rows, tokens_per_pe, outputs_in_flight, density
):
    """Neither on PEs nor on links, those off the wafer among them."""
    layout = Layout(1, columns, rows, tokens_per_pe)
    sparse = replace(dense, nonzeros=round(density * dense.weights))
    whole, part = (
        streamed_phases(PE, [item], layout, 2, STREAM, outputs_in_flight=outputs_in_flight) for item in (dense, sparse)
    )
    for all_of_it, some in zip(whole.all, part.all, strict=True):
        assert some.compute * dense.weights >= all_of_it.compute * sparse.weights
        for limit in ("compute", "link", "ingress", "egress"):
            assert getattr(some, limit) <= getattr(all_of_it, limit)


@given(PRODUCTS, st.integers(1, 12), st.integers(1, 12), st.integers(1, 4), st.integers(1, 6))
def test_what_pes_do_of_use_is_the_product_of_all_samples_and_none_is_faster_than_it_can(
    dense, columns, rows, groups, samples
):
    """Samples lie over groups, their tokens over rows, inputs over the columns of each group."""

    def dealt(count: int, hands: int) -> list[int]:
        return np.bincount(np.arange(count) % hands, minlength=hands).tolist()

    layout = Layout(groups, columns, rows, -(-(-(-samples // groups) * dense.tokens) // rows))
    weights = dense.outputs * np.array(dealt(dense.inputs, columns))
    of_groups = dealt(samples, groups)
    flops = np.array([2 * np.outer(weights, dealt(count * dense.tokens, rows)) for count in of_groups])
    assert flops.sum() == samples * dense.flops
    # The busiest PE has the tokens of the layout, and the inputs of the fullest column.
    assert flops.max() <= 2 * layout.tokens_per_pe * busiest_axpys(dense, columns, 2)
    for phase in streamed_phases(PE, [dense], layout, samples, STREAM).all:
        assert phase.compute * 2 * CS2.pe.simd["fmach"] >= flops.max()


WORKS = [
    PRODUCT,
    replace(PRODUCT, nonzeros=40, is_repeated=True),
    MatMul(tokens=6, inputs=40, outputs=96, nonzeros=1500, trained=50),
    MatMul(tokens=3, inputs=24, outputs=96, experts=4, all_tokens=12, busiest=1.5),
    Pairs(tokens=5, pairs=15, width=24, head_width=8, key_tokens=5, kv_width=8),
    Lookup(tokens=5, rows=100, width=24),
    VectorOps(tokens=5, width=24, forward=3, backward=4),
    RowSums(tokens=5, forward=2, backward=1),
]


@given(
    layouts=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 60), st.integers(1, 900), st.integers(1, 70)), min_size=1
    ),
    in_flight=st.integers(2, 90),
    bits=st.sampled_from([16, 32]),
    system=st.sampled_from(["cs2", "cs3"]),
    needs_delta=st.booleans(),
)
def test_many_layouts_at_once_are_what_each_is(layouts, in_flight, bits, system, needs_delta):
    pe, count = Pe(load_system(system), bits), len(layouts)
    many = Layouts(*(np.array(each) for each in zip(*layouts, strict=True)))
    apart = np.arange(count) % 3 + in_flight
    how = {"needs_delta": needs_delta, "tokens": 6}
    at_once = streamed_phases(pe, WORKS, many, 7, STREAM, outputs_in_flight=apart, **how)
    latencies = np.broadcast_to(hop_latency_cycles(pe, many), count)
    for number, (layout, n) in enumerate(zip(layouts, apart.tolist(), strict=True)):
        alone = streamed_phases(pe, WORKS, Layout(*layout), 7, STREAM, outputs_in_flight=n, **how)
        assert latencies[number] == hop_latency_cycles(pe, Layout(*layout))
        for found, expected in zip(at_once.all, alone.all, strict=True):
            for name in ("compute", "link", "ingress", "egress", "latency"):
                assert np.broadcast_to(getattr(found, name), count)[number] == getattr(expected, name)
            phase = expected.phase(5)
            for on_fabric, cycles in ((False, phase.cycles), (True, phase.fabric_cycles)):
                total = np.broadcast_to(found.total(5, on_fabric), count)[number]
                assert total == expected.total(5, on_fabric) == cycles
