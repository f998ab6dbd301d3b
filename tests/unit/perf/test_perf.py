"""The closed forms, against numbers worked out by hand and against twins that deal elements one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.arch import load_system
from cstool.compiler.backward import KEPT
from cstool.compiler.program import shapes_of
from cstool.compiler.shapes import OUTPUT_SHAPES
from cstool.ir import Layout, OpKind
from cstool.kernels.table import KERNELS
from cstool.models import build_graph, declared_sequence_length
from cstool.models.statistics import PRODUCTS, count_statistics
from cstool.params import load_params
from cstool.perf.pe import Pe, ceil_div
from cstool.perf.phases import Limits, Phases
from cstool.perf.region import key_block, key_bytes, region_phases
from cstool.perf.streaming import edge_cycles, hop_latency_cycles, streamed_phases
from cstool.perf.work import WORK, Lookup, MatMul, Pairs, VectorOps, work_of
from tests.models import fc_mnist

ROOT = Path(__file__).parents[3]
FILES = sorted([*(ROOT / "params").glob("*.yaml"), *(ROOT / "tests" / "interop").glob("*.yaml")])
CS2 = load_system("cs2")
PE = Pe(CS2, 16)
SIDES = st.integers(1, 40)
PRODUCT = MatMul(tokens=5, inputs=8, outputs=12)
ATTENTION = Pairs(tokens=4, pairs=10, width=8, kv_width=4, head_width=4)


def limits(phases: Phases) -> list[tuple[int, int, int]]:
    """Return (compute, link, ingress) of forward, delta and gradient."""
    return [(int(phase.compute), int(phase.link), int(phase.ingress)) for phase in phases.all]


@pytest.mark.parametrize(
    ("bits", "length", "cycles"),
    [(16, 1, 6 + 1), (16, 4, 6 + 1), (16, 5, 6 + 2), (16, 16, 6 + 4), (32, 1, 6 + 1), (32, 16, 6 + 16)],
)
def test_an_axpy_takes_its_start_and_a_cycle_for_as_many_elements_as_the_datapath_takes(
    bits: int, length: int, cycles: int
) -> None:
    """16 bits: 4 elements, for which the ports read 16 bytes and write 8. 32 bits: one multiply-add per cycle."""
    assert Pe(CS2, bits).axpy_cycles(length) == cycles


def test_ports_of_wse_3_hold_its_datapath_up() -> None:
    """8 multiply-adds per cycle would read 32 bytes; there are 16."""
    assert Pe(load_system("cs3"), 16).axpy_cycles(16) == 6 + 4


def test_sums_wavelets_and_vector_instructions() -> None:
    assert [PE.partial_sum_cycles(10, pes) for pes in (1, 2, 9)] == [0, 10, 10]
    assert [PE.wavelets(n) for n in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert [Pe(CS2, 32).wavelets(n) for n in (1, 2, 3)] == [1, 2, 3]
    assert PE.vector_cycles(10, 3) == 3 * 5
    assert PE.vector_cycles(9, 3) == 3 * 5


def test_the_largest_limit_counts_and_is_named() -> None:
    assert Limits(5, 7, 6).cycles == 7
    assert (Limits(5, 7, 6).phase().cycles, Limits(5, 7, 6).phase().bound) == (7, "link")
    assert (Limits(5, 5, 5).phase(3).cycles, Limits(5, 5, 5).phase(3).bound) == (8, "compute")
    assert Limits().phase(3).cycles == 0
    phases = Phases(Limits(3), Limits(4), Limits(2))
    assert (phases.total(), phases.total(2)) == (9, 15)
    assert phases.kernel_cycles(2).recompute_cycles == 6


def test_a_product_in_a_region() -> None:
    """2 x 3 PEs with 4 x 4 weights each: 4 AXPYs of 4 elements, 7 cycles each, and 4 partial sums on their way."""
    assert limits(region_phases(PE, [PRODUCT], 2, 3)) == [
        (5 * (4 * 7 + 4), 5 * 4, 0),
        (5 * (4 * 7 + 4), 5 * 4, 0),
        (5 * 4 * 7, 0, 0),
    ]


def test_a_product_on_one_pe_has_no_partial_sums() -> None:
    """8 AXPYs of 12 elements, 9 cycles each, are less work than 12 of 8; inputs and deltas arrive 2 to a wavelet."""
    assert limits(region_phases(PE, [PRODUCT], 1, 1)) == [(5 * 72, 5 * 4, 0), (5 * 72, 5 * 6, 0), (5 * 72, 0, 0)]


def test_attention_on_one_pe() -> None:
    """3 keys to a query: 3 AXPYs of 8 elements are 24 cycles; softmax has 12 instructions on 3 scores, two heads."""
    assert limits(region_phases(PE, [ATTENTION], 1, 1)) == [
        (4 * (2 * 24 + 48), 0, 0),
        (4 * (5 * 24 + 2 * 48), 0, 0),
        (0, 0, 0),
    ]


def test_attention_in_a_region() -> None:
    """4 x 2 PEs: 2 elements of a head of 4, so scores are partial sums; keys and values pass by the other row."""
    assert limits(region_phases(PE, [ATTENTION], 4, 2)) == [
        (2 * (2 * 14 + 24 + 3), 4 * 1, 0),
        (2 * (5 * 14 + 2 * 24 + 2 * 3), 8 * 1, 0),
        (0, 0, 0),
    ]


@given(st.integers(1, 5000))
def test_a_block_of_keys_takes_the_memory_that_is_given_to_it(d: int) -> None:
    assert key_block(PE, 3, d) <= 3
    keys = key_block(PE, 1000, d)
    assert 1 <= keys <= 64
    assert keys == 1 or keys * key_bytes(PE, d) <= 4096
    assert keys == 64 or (keys + 1) * key_bytes(PE, d) > 4096


def test_rows_of_a_table_and_vector_instructions_in_a_region() -> None:
    assert limits(region_phases(PE, [Lookup(tokens=5, rows=100, width=12)], 2, 3)) == [
        (0, 5 * 3, 0),
        (0, 0, 0),
        (0, 5 * 3, 0),
    ]
    assert limits(region_phases(PE, [VectorOps(tokens=5, width=12, forward=3, backward=4)], 2, 3)) == [
        (3 * 5, 0, 0),
        (4 * 5, 0, 0),
        (0, 0, 0),
    ]


def test_ops_of_a_kernel_add_up() -> None:
    work = [PRODUCT, VectorOps(5, 12, 3, 4), ATTENTION]
    whole = np.array(limits(region_phases(PE, work, 4, 2)))
    assert (whole == sum(np.array(limits(region_phases(PE, [item], 4, 2))) for item in work)).all()


def test_a_streamed_product() -> None:
    """4 tokens of 4 of 8 elements to a PE; 12 outputs; 96 weights of 4 bytes at 150 GB/s are 2.2 cycles."""
    layout = Layout(groups=1, columns=2, rows=3, tokens_per_pe=4)
    assert limits(streamed_phases(PE, [PRODUCT], layout, 2, 4)) == [
        (12 * (4 * 7 + 4), 12 * 4, 3),
        (12 * 4 * 7, 12 * 4, 3),
        (12 * (4 * 7 + 4), 12 * 4, 3),
    ]
    assert hop_latency_cycles(PE, layout) == 2 + 3 + 2 * 2


def test_a_product_that_nothing_keeps_is_computed_twice() -> None:
    """Forward, and again before the delta; in streaming, with the weights that come for the delta."""
    loss = replace(PRODUCT, is_repeated=True)
    assert limits(region_phases(PE, [loss], 2, 3)) == [(160, 20, 0), (2 * 160, 2 * 20, 0), (140, 0, 0)]
    streamed = limits(streamed_phases(PE, [loss], Layout(1, 2, 3, 4), 2, 4))
    assert streamed == [(384, 48, 3), (336 + 384, 48 + 48, 3), (384, 48, 3)]
    graph = fc_mnist()
    shapes = shapes_of(graph, graph.segments[-1])
    repeated = {op.kind for op in graph.ops for w in work_of(op, shapes) if isinstance(w, MatMul) and w.is_repeated}
    assert repeated == {OpKind.SOFTMAX_LOSS}


def test_weights_cannot_come_faster_than_the_links_bring_them() -> None:
    assert edge_cycles(PE, 150_000_000_000) == 850_000_000
    wide = MatMul(tokens=994, inputs=7500, outputs=10)
    phases = streamed_phases(PE, [wide], Layout(1, 750, 994, 1), 1, 4)
    assert phases.forward.phase().bound == "ingress"
    assert phases.forward.cycles == edge_cycles(PE, 75_000 * 4) == 1700


def test_of_a_table_all_rows_come_and_the_used_ones_leave() -> None:
    layout = Layout(groups=1, columns=4, rows=3, tokens_per_pe=2)
    table = Lookup(tokens=3, rows=1000, width=8)
    (into, out) = (edge_cycles(PE, rows * 8 * 4) for rows in (1000, 6))
    assert limits(streamed_phases(PE, [table], layout, 2, 4)) == [(0, 1000 * 2, into), (0, 0, 0), (0, 6 * 2, out)]


def test_streamed_attention_has_the_samples_of_a_group_pass_by() -> None:
    one, two = (streamed_phases(PE, [ATTENTION], Layout(g, 2, 3, 4), 6, 4) for g in (1, 2))
    assert one.forward.link == 4 * 6 * PE.wavelets(2 * 2)
    assert two.forward.link == 4 * 3 * PE.wavelets(2 * 2)


@given(st.integers(1, 300), st.integers(1, 300), SIDES, SIDES)
def test_the_busiest_pe_has_the_tile_that_dealing_leaves_it(inputs: int, outputs: int, width: int, height: int) -> None:
    tile = np.zeros((width, height), int)
    for i in range(inputs):
        tile[i % width, : min(outputs, height)] += 1
    per_output = np.bincount(np.arange(outputs) % height, minlength=height)
    assert tile.max() == ceil_div(inputs, width)
    assert per_output.max() == ceil_div(outputs, height)
    o, i = int(per_output.max()), int(tile.max())
    phases = region_phases(PE, [MatMul(1, inputs, outputs)], width, height)
    assert phases.gradient.compute == min(i * PE.axpy_cycles(o), o * PE.axpy_cycles(i))


WORKS: list[Any] = [PRODUCT, ATTENTION, MatMul(3, 700, 31), VectorOps(7, 100, 3, 5), Lookup(5, 100, 64)]


@given(st.sampled_from(WORKS), st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=8))
def test_arrays_of_sizes_give_what_each_size_gives(item: Any, sizes: list[tuple[int, int]]) -> None:
    w, h = np.array(sizes).T
    together = region_phases(PE, [item], w, h)
    each = [limits(region_phases(PE, [item], width, height)) for width, height in sizes]
    for number, phase in enumerate(together.all):
        for part, name in enumerate(("compute", "link", "ingress")):
            expected = [found[number][part] for found in each]
            assert (np.broadcast_to(getattr(phase, name), len(sizes)) == expected).all()


@given(st.integers(1, 60), st.integers(1, 200), st.integers(1, 200), SIDES, SIDES)
def test_more_tokens_never_take_fewer_cycles(tokens: int, inputs: int, outputs: int, width: int, height: int) -> None:
    fewer, more = (region_phases(PE, [MatMul(tokens + n, inputs, outputs)], width, height).total() for n in (0, 1))
    assert fewer <= more
    fewer, more = (
        streamed_phases(PE, [MatMul(tokens, inputs, outputs)], Layout(1, width, height, t), 1, 4).total()
        for t in (tokens, tokens + 1)
    )
    assert fewer <= more


def test_every_kind_of_op_is_in_every_table() -> None:
    for table in (WORK, KERNELS, KEPT, OUTPUT_SHAPES, PRODUCTS):
        assert set(table) == set(OpKind)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_products_are_those_that_the_statistics_count(file: Path) -> None:
    params = load_params(file)
    graph = build_graph(params.model, declared_sequence_length(params))
    flops = 0
    for segment in graph.segments:
        shapes = shapes_of(graph, segment)
        for op in segment.ops:
            for item in work_of(op, shapes):
                if isinstance(item, MatMul):
                    flops += segment.count * 2 * item.tokens * item.inputs * item.outputs
                elif isinstance(item, Pairs):
                    flops += segment.count * 2 * 2 * item.pairs * item.width
    assert flops == count_statistics(graph).sample_flops.forward
