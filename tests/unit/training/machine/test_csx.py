"""A CSX: where the arrays of a grain lie, what a grain brings, and how deltas are settled."""

from dataclasses import replace

import numpy as np
import pytest

from cstool.foundation.random_keys import key_of
from cstool.training.kernels.random import Dropout
from cstool.training.machine.csx import Csx, GrainSlot, Scratch
from cstool.training.machine.plan import ALIGNMENT_BYTES, After, InputDelta, Plan, make_plan
from cstool.training.store import aligned_empty
from tests.models import decoder
from tests.unit.training.machine.machines import random_batch


def plan_of(dropout: float = 0.0, trains: bool = True) -> Plan:
    return make_plan(decoder(dropout=dropout), 2, trains=trains)


@pytest.mark.parametrize("size_bytes", [1, 63, 64, 1000])
def test_memory_begins_on_a_cache_line(size_bytes):
    memory = aligned_empty(size_bytes)
    assert (memory.ctypes.data % ALIGNMENT_BYTES, memory.nbytes) == (0, size_bytes)


def test_scratch_lends_the_same_memory_for_a_name_keeps_names_apart_and_grows_to_the_largest_array_of_each():
    scratch = Scratch()
    first, second = scratch("a", (2, 3)), scratch("b", (5,))
    first.fill(7)
    second.fill(2)
    assert first.tolist() == [[7, 7, 7]] * 2
    assert scratch("a", (3, 2)).tolist() == [[7, 7]] * 3
    assert scratch.allocated_bytes == 4 * (6 + 5)
    for size in (4, 9, 2):
        scratch("a", (size,))
    assert scratch.allocated_bytes == 4 * (9 + 5)


def test_slots_lie_side_by_side_in_the_arena_and_every_array_of_one_is_where_the_plan_says():
    plan = plan_of()
    csx = Csx(0, plan, 3, seed=1)
    for i, slot in enumerate(csx.slots):
        begin = csx.arena.ctypes.data + i * plan.slot_bytes
        found = {name: (a.ctypes.data - begin, a.shape, a.dtype.name) for name, a in slot.arrays.items()}
        assert found == {name: (b.offset_bytes, b.shape, b.dtype) for name, b in plan.buffers.items()}
    assert csx.arena.nbytes == 3 * plan.slot_bytes


def loaded(plan: Plan, *, grain: int = 3, dropout: bool = True, seed: int = 7) -> GrainSlot:
    slot = GrainSlot(plan, aligned_empty(plan.slot_bytes), seed)
    slot.take(grain, 9, (0.5,), dropout=dropout)
    return slot


def test_a_slot_takes_a_grain_and_tells_the_loss_its_scale():
    plan = plan_of()
    assert GrainSlot(plan, aligned_empty(plan.slot_bytes), 1).grain is None
    slot = loaded(plan)
    assert (slot.grain, slot.calls[-1].scale) == (3, 0.5)


def test_loading_copies_samples_token_by_token_to_as_many_slots_as_there_are_grains():
    csx, batch = Csx(0, plan_of(), 3, seed=1), random_batch(decoder(), 8).arrays
    for name in batch:
        csx.slots[2].arrays[name].fill(7)
    csx.load({**batch, "unread": np.zeros(8)}, 4, 2)
    for name, array in batch.items():
        found = [slot.arrays[name].tolist() for slot in csx.slots]
        assert found == [array[4:6].ravel().tolist(), array[6:].ravel().tolist(), [7] * 16]


def test_dropout_is_keyed_by_seed_and_op_and_counted_by_step_and_sample():
    plan = plan_of(dropout=0.25)
    drops = {
        planned.op.name: call.dropout
        for planned, call in zip(plan.ops, loaded(plan, grain=3).calls, strict=True)
        if call.dropout is not None
    }
    names = [p.op.name for p in plan.ops if p.op.attributes.get("dropout")]
    assert len(names) == 4
    assert drops == {name: Dropout(0.25, key_of(7, name), 9, 3 * 2, 8) for name in names}


def test_evaluation_drops_nothing():
    slot = loaded(plan_of(dropout=0.25), dropout=True)
    slot.take(3, 9, (0.5,), dropout=False)
    assert [call.dropout for call in slot.calls] == [None] * len(slot.calls)


@pytest.mark.parametrize(("after", "expected"), [(After.NOTHING, 1.0), (After.COPY, 10.0), (After.ADD, 11.0)])
def test_settling_copies_or_adds_what_a_kernel_wrote(after, expected):
    plan = plan_of()
    slot = GrainSlot(plan, aligned_empty(plan.slot_bytes), 1)
    written, target = "words", "final"  # any two of one shape
    slot.arrays[target], slot.arrays[written] = np.full((16, 8), 1.0), np.full((16, 8), 10.0)
    delta = InputDelta(written, target, accumulate=False, after=after)
    slot.settle(replace(plan.ops[-1], delta_inputs=(None, delta)))
    np.testing.assert_array_equal(slot.arrays[target], np.full((16, 8), expected))
