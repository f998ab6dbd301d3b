"""Answering on a wafer: tiles, keys and values by hand, and what no layout can beat."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.ir import Lookup, MatMul, Pairs, RowSums, VectorOps
from cstool.model.system import Fabric, load_system
from cstool.plan.timing.mesh import mesh_allreduce_cycles, rounds_cycles
from cstool.plan.timing.pe import Pe
from cstool.plan.timing.resident import buffer_bytes, cache_bytes, decode_cycles, prefill_cycles, resident_bytes, tile

CS2 = load_system("cs2")
SMALL = Pe(replace(CS2, fabric=Fabric(4, 3)), 16)
PE = Pe(CS2, 16)
PAIRS = Pairs(tokens=1, key_tokens=1, pairs=1, width=8, kv_width=4, head_width=4)


def test_weights_keys_and_activations_of_a_pe_by_hand():
    """8 x 12 on 4 x 3 PEs: 2 inputs and 4 outputs each, or 3 and 3; 12 x 8: 3 and 3, or 4 and 2."""
    assert tile(SMALL, MatMul(1, inputs=8, outputs=12)) == (2, 4, 4)
    assert tile(SMALL, MatMul(1, inputs=12, outputs=8)) == (4, 2, 3)
    # 8 elements of a matrix, 5 rows of a table of 4 dealt to 12 PEs, biases of 12: 8 + 2 + 1 operands.
    work = [MatMul(1, inputs=8, outputs=12), Lookup(1, rows=5, width=4)]
    assert resident_bytes(SMALL, work, [12]) == 2 * (8 + 2 + 1)
    # 4 elements of keys over 4 columns, 3 users with 5 tokens each over 3 rows: 5 tokens, a key and a value each.
    assert cache_bytes(SMALL, [PAIRS, PAIRS], users=3, context=5) == 2 * (2 * 1 * 5 * 2)
    assert buffer_bytes(SMALL, [MatMul(1, 8, 12), MatMul(1, 4, 3)], users=2) == 2 * 2 * (2 + 4) * 4


def test_a_product_and_attention_for_a_user_by_hand():
    # A call and 2 multiply-adds of 4 at 2 + 1 cycles; 4 sums, two wavelets, over 4 PEs and back: two calls, 4 hops, 2
    # additions.
    found = decode_cycles(SMALL, [MatMul(1, 8, 12)], users=1, context=0)
    assert (found.products, found.sums) == (39 + 2 * 3, 2 * (39 + 2) + 2 * (4 + 2 * 5))
    assert (found.attention, found.other) == (0, 0)
    # 2 elements of queries on a PE, half a head; 3 of the 7 keys: twice 2 AXPYs of 3 are 8 cycles, softmax 12 x 2.
    found = decode_cycles(SMALL, [PAIRS], users=1, context=6)
    assert found.attention == -(-(8 + 12 * 2) * 1000 // 666)
    assert found.sums > 0
    for item in (VectorOps(1, 64, 3, 4), RowSums(1, 2, 1), Lookup(1, 100, 8)):
        assert decode_cycles(PE, [item], 1, 0).total > 0


def test_experts_a_token_does_not_meet_are_not_computed_with():
    every = MatMul(1, inputs=8, outputs=48)
    some = MatMul(1, inputs=8, outputs=48, all_tokens=4, experts=4)
    assert decode_cycles(SMALL, [some], 1, 0).products < decode_cycles(SMALL, [every], 1, 0).products
    assert resident_bytes(SMALL, [some], []) == resident_bytes(SMALL, [every], [])


MATRICES = st.builds(MatMul, tokens=st.just(1), inputs=st.integers(1, 3000), outputs=st.integers(1, 3000))
FABRICS = st.builds(Fabric, width=st.integers(1, 60), height=st.integers(1, 60))


@given(MATRICES, FABRICS)
def test_tiles_hold_the_matrix_and_are_dealt_evenly(item, fabric):
    i, o, across = tile(Pe(replace(CS2, fabric=fabric), 16), item)
    down = fabric.pes // across
    assert i * across >= item.inputs
    assert o * down >= item.outputs
    # A dealing, one by one, has as many on its fullest PE.
    assert np.bincount(np.arange(item.inputs) % across).max() == i
    assert np.bincount(np.arange(item.outputs) % down).max() == o


@given(st.integers(1, 40), st.integers(0, 5000), st.integers(1, 40))
def test_more_users_and_longer_contexts_are_never_faster_and_no_faster_than_the_datapath(users, context, more):
    work = [MatMul(1, 512, 2048), PAIRS]
    found = decode_cycles(PE, work, users, context)
    assert decode_cycles(PE, work, users + more, context).total >= found.total
    assert decode_cycles(PE, work, users, context + more).total >= found.total
    assert found.products * CS2.pe.simd["fmach"] * CS2.fabric.pes >= users * 512 * 2048


@given(st.integers(1, 300))
def test_a_prompt_takes_no_less_than_its_products_and_no_more_than_its_tokens_one_by_one(tokens):
    item = MatMul(tokens, 1024, 4096)
    found = prefill_cycles(PE, [item], 1)
    assert found * CS2.pe.simd["fmach"] * CS2.fabric.pes >= item.flops / 2
    assert found <= tokens * decode_cycles(PE, [item], 1, 0).total
    assert prefill_cycles(PE, [item], 3) == 3 * found


def test_all_that_a_prompt_goes_through_takes_time():
    """Attention is two products of matrices, a softmax between them, and two sums along a row for each head."""
    pairs = Pairs(tokens=600, key_tokens=600, pairs=600 * 300, width=64, kv_width=64, head_width=32)
    rounds = [rounds_cycles(PE, 600, *shape) for shape in ((64, 300), (300, 64))]
    softmax = -(-1000 * 12 // 666)
    sums = 2 * mesh_allreduce_cycles(PE, 750, 2)
    assert prefill_cycles(PE, [pairs], 1) == sum(rounds) + softmax + sums
    for item in (VectorOps(600, 4096, 3, 4), RowSums(600, 2, 1), Lookup(600, 100, 8)):
        assert prefill_cycles(PE, [item], 1) > 0
