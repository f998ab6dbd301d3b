"""Products dealt over PEs one by one: what each does of use adds up to the product, and no PE is faster than it can."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from cstool.ir import Layout, MatMul
from cstool.perf.pe import Pe
from cstool.perf.region import region_phases
from cstool.perf.streaming import busiest_axpys, stream_of, streamed_phases
from cstool.system import load_system

CS2 = load_system("cs2")
PE = Pe(CS2, 16)
PEAK = 2 * CS2.pe.simd["fmach"]
"""FLOPs of a PE per cycle"""
Counts = npt.NDArray[np.int64]
SIDES = st.integers(1, 12)
PRODUCTS = st.builds(MatMul, tokens=st.integers(1, 40), inputs=st.integers(1, 80), outputs=st.integers(1, 80))


def dealt(count: int, hands: int) -> Counts:
    """So many things dealt in turn."""
    return np.bincount(np.arange(count) % hands, minlength=hands)


def in_a_region(item: MatMul, width: int, height: int) -> Counts:
    """Useful FLOPs of each PE: inputs lie over columns, outputs over rows, and every token passes all PEs."""
    weights = np.outer(dealt(item.inputs, width), dealt(item.outputs, height))
    return 2 * item.tokens * weights


def on_a_wafer(item: MatMul, layout: Layout, samples: int, mask: Counts) -> Counts:
    """Useful FLOPs of each PE: samples over groups, their tokens over rows, inputs over columns of each group."""
    flops = np.zeros((layout.groups, layout.columns, layout.rows), np.int64)
    weights = np.zeros(layout.columns, np.int64)
    np.add.at(weights, np.arange(item.inputs) % layout.columns, mask.sum(axis=0))
    for group, of_group in enumerate(dealt(samples, layout.groups)):
        flops[group] = 2 * np.outer(weights, dealt(of_group * item.tokens, layout.rows))
    return flops


@given(PRODUCTS, SIDES, SIDES)
def test_what_the_pes_of_a_region_do_is_the_product(item, width, height):
    flops = in_a_region(item, width, height)
    assert flops.sum() == item.flops
    for limits in region_phases(PE, [item], width, height).all:
        assert limits.compute * PEAK >= flops.max()


@given(PRODUCTS, SIDES, SIDES, st.integers(1, 4), st.integers(1, 6), st.floats(0, 1), st.integers(0, 9))
def test_what_the_pes_of_a_wafer_do_is_the_product_of_all_samples(dense, columns, rows, groups, samples, density, seed):
    per_group = -(-samples // groups) * dense.tokens
    layout = Layout(groups, columns, rows, -(-per_group // rows))
    sparse = replace(dense, nonzeros=round(density * dense.weights))
    mask = np.zeros(dense.weights, np.int64)
    mask[np.random.default_rng(seed).choice(dense.weights, sparse.weights, replace=False)] = 1
    shape = (dense.outputs, dense.inputs)
    flops = on_a_wafer(dense, layout, samples, np.ones(shape, np.int64))
    assert flops.sum() == samples * dense.flops
    assert on_a_wafer(dense, layout, samples, mask.reshape(shape)).sum() == samples * sparse.flops
    # The busiest PE has the tokens of the layout, and the inputs of the fullest column.
    assert flops.max() <= 2 * layout.tokens_per_pe * busiest_axpys(dense, columns, 2)
    for limits in streamed_phases(PE, [dense], layout, samples, stream_of(CS2, 16)).all:
        assert limits.compute * PEAK >= flops.max()
