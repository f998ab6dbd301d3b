"""Weights without their zeros, against a twin that keeps them: equal to the last bit, mask after mask."""

import numpy as np
import pytest

from cstool.foundation.errors import NonFiniteError
from cstool.model.ir import Graph, _graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import SGD, AdamW, SparsityParams
from cstool.model.params.sections.sparsity import CosineShare, CyclingShare, LinearShare
from cstool.model.sparsity import keep_count
from cstool.training.machine import budgets
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.memoryx import MemoryX
from cstool.training.machine.memoryx.sparse_weights import UNEVEN
from cstool.training.machine.swarmx import held
from tests.contract.refusal import refusal
from tests.models import fc_mnist
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.machines import USUAL, GradientKeeper, make_appliance, random_batch, values_of
from tests.unit.training.machine.sparse_machines import (
    CUTS,
    ONE_PANEL,
    SEED,
    SIX_PANELS,
    SMALL,
    WIDE,
    Twin,
    all_panels,
    each_store,
    hand_in,
    random_gradients,
    rules,
    sparse_memory,
    train_step,
)

pytestmark = pytest.mark.usefixtures(each_store.__name__)
Array = np.ndarray

ADAMW = AdamW(betas=(0.9, 0.95), eps=1e-3, weight_decay=0.1)
GRAPH = fc_mnist(12, 8)
STEPS = 8

NORMS = pytest.mark.parametrize("max_gradient_norm", [None, 5.0], ids=["at once", "clipped"])
COSINE = CosineShare(init=0.4, half_period=20)

GROUPS: dict[str, tuple[SparsityParams, list[int]]] = {
    "static": (group(0.75), []),
    "static, topk": (group(0.9, init_method="topk"), []),
    "static, checkerboard": (group(0.75, init_method="checkerboard"), []),
    "gmp": (group(LinearShare(init=0.2, slope=0.1), algorithm="gmp", update={"freq": 2}), [2, 4, 6, 8]),
    "gmp that grows": (group(LinearShare(init=0.8, slope=-0.1), algorithm="gmp", update={"freq": 3}), [3, 6]),
    "gmp, cycling": (group(CyclingShare(values=(0.3, 0.6, 0.9)), algorithm="gmp", update={"freq": 2}), [2, 4, 6, 8]),
    "set": (group(0.75, algorithm="set", drop_fraction=0.3, update={"freq": 2}), [2, 4, 6, 8]),
    "set at every step": (group(0.9, algorithm="set", drop_fraction=COSINE), [*range(1, 9)]),
    "set, cycling": (
        group(CyclingShare(values=(0.5, 0.9, 0.7)), algorithm="set", update={"steps": [0, 1, 4, 5]}),
        [1, 4, 5],
    ),
    "rigl": (group(0.75, algorithm="rigl", drop_fraction=0.3, update={"freq": 2, "stop": 6}), [2, 4]),
    "rigl, cosine, topk": (
        group(0.9, algorithm="rigl", init_method="topk", drop_fraction=COSINE, update={"freq": 3}),
        [3, 6],
    ),
    "rigl, balanced": (group(0.75, algorithm="rigl", balance_in_groups=4, update={"freq": 2}), [2, 4, 6, 8]),
    "rigl, dense at first": (group(0.75, algorithm="rigl", update={"freq": 2, "start": 3}), [3, 5, 7]),
}
ALL = pytest.mark.parametrize("name", GROUPS)


def first_weights(graph: Graph) -> dict[str, Array]:
    with sparse_memory(graph, None, {}) as memoryx:
        return {name: values_of(memoryx, f"model.{name}") for name in graph.weights}


def assert_same(memoryx: MemoryX, twin: Twin) -> None:
    for name in twin.graph.weights:
        for array, expected in zip(memoryx.arrays.of(name), twin.arrays[name], strict=True):
            found = values_of(memoryx, array)
            if name in memoryx.arrays.sparse:
                mask = twin.masks[name]
                np.testing.assert_array_equal(memoryx.arrays.sparse[name].dense(array), expected)
                np.testing.assert_array_equal(
                    np.concatenate([*memoryx.arrays.sparse[name].indices()]), np.flatnonzero(mask)
                )
                expected = expected[mask]
            np.testing.assert_array_equal(found, expected)


def assert_streams(memoryx: MemoryX, twin: Twin, changes: bool) -> None:
    """What streams is the twin's weights, and asks for the right gradient."""
    for name in twin.groups:
        dense_gradient = changes and twin.groups[name].algorithm == "rigl"
        for panel in memoryx.arrays.panels[name]:
            with held(memoryx, panel) as weights:
                assert weights.dense_gradient == dense_gradient
                np.testing.assert_array_equal(weights.dense(), twin.arrays[name][0][panel.start : panel.stop])


def run_both(groups, updates, max_gradient_norm, optimizer=ADAMW, steps=STEPS):
    graph, rule = fc_mnist(12, 8), make_optimizer(optimizer, None)
    twin = Twin(graph, rule, groups, first_weights(graph), max_gradient_norm)
    rng = np.random.default_rng(1)
    with sparse_memory(graph, rule, groups, max_gradient_norm, last_step=steps) as memoryx:
        panels = all_panels(memoryx)
        assert_same(memoryx, twin)
        for step in range(1, steps + 1):
            gradients = random_gradients(graph, step)
            memoryx.begin_step(step, 0.01)
            assert_streams(memoryx, twin, step in updates)
            before = {name: mask.copy() for name, mask in twin.masks.items()}
            expected_norm = twin.norm(gradients)
            norm = train_step(memoryx, step, gradients, [panels[i] for i in rng.permutation(len(panels))])
            assert norm == (None if max_gradient_norm is None else pytest.approx(expected_norm, rel=1e-12))
            twin.step(step, gradients, norm)
            assert_same(memoryx, twin)
            changed = any((before[name] != twin.masks[name]).any() for name in before)
            assert changed == (step in updates), "the twin's masks change at the steps that this file says"
        assert memoryx.buffers.allocated_bytes > 0


@ALL
@pytest.mark.parametrize(("max_gradient_norm", "panel_bytes"), [(None, SIX_PANELS), (5.0, ONE_PANEL)], ids=str)
def test_it_is_its_twin_to_the_last_bit(monkeypatch, name, max_gradient_norm, panel_bytes):
    monkeypatch.setattr(_graph, "PANEL_BYTES", panel_bytes)
    found, updates = GROUPS[name]
    run_both({WIDE: found, SMALL: found}, updates, max_gradient_norm)


@CUTS
def test_with_momentum_what_is_new_begins_without_any(monkeypatch, panel_bytes):
    monkeypatch.setattr(_graph, "PANEL_BYTES", panel_bytes)
    found, updates = GROUPS["rigl"]
    run_both({WIDE: found, SMALL: found}, updates, None, SGD(momentum=0.9, weight_decay=0.1))


def test_every_weight_goes_by_its_own_group():
    run_both({WIDE: GROUPS["rigl, balanced"][0], SMALL: GROUPS["gmp"][0]}, GROUPS["gmp"][1], None)


@NORMS
def test_a_panel_or_a_weight_may_be_without_any_non_zero(monkeypatch, max_gradient_norm):
    monkeypatch.setattr(_graph, "PANEL_BYTES", 4 * 12)  # a row of the small weight
    run_both({SMALL: group(0.97, algorithm="set", update={"freq": 2})}, [2, 4, 6, 8], max_gradient_norm)
    run_both({SMALL: group(0.999)}, [], max_gradient_norm)


@CUTS
def test_a_panel_whose_mask_has_changed_meanwhile_can_be_given_back(monkeypatch, panel_bytes):
    """Without a global norm a weight is updated as soon as its last gradient is in, and lanes release it after that."""
    monkeypatch.setattr(_graph, "PANEL_BYTES", panel_bytes)
    falling = group(LinearShare(init=0.2, slope=0.1), algorithm="gmp")
    with sparse_memory(GRAPH, make_optimizer(ADAMW, None), {WIDE: falling}) as memoryx:
        memoryx.begin_step(1, 0.01)
        gradient = random_gradients(GRAPH, 1)[WIDE]
        for panel in memoryx.arrays.panels[WIDE]:
            memoryx.acquire(panel)
        for panel in memoryx.arrays.panels[WIDE]:
            hand_in(memoryx, panel, gradient[panel.start : panel.stop])
        memoryx.drain()
        for panel in memoryx.arrays.panels[WIDE]:
            memoryx.release(panel)
        assert memoryx.arrays.sparse[WIDE].count == keep_count(0.3, 12 * 784)
        with held(memoryx, memoryx.arrays.panels[WIDE][-1]) as weights:
            np.testing.assert_array_equal(
                weights.dense(),
                memoryx.arrays.sparse[WIDE].dense(f"model.{WIDE}")[memoryx.arrays.panels[WIDE][-1].start :],
            )


def test_a_zero_whose_gradient_is_not_finite_is_named_before_it_can_grow():
    with sparse_memory(GRAPH, make_optimizer(ADAMW, None), {SMALL: group(0.75, algorithm="rigl")}) as memoryx:
        gradients = random_gradients(GRAPH, 1)
        before = np.concatenate([*memoryx.arrays.sparse[SMALL].indices()])
        zero = np.setdiff1d(np.arange(96), before)[0]
        gradients[SMALL].reshape(-1)[zero] = np.inf
        message = f"step 1: the gradient of {SMALL} is not finite where the weight is zero"
        with refusal(NonFiniteError, message):
            train_step(memoryx, 1, gradients, all_panels(memoryx))
        np.testing.assert_array_equal(np.concatenate([*memoryx.arrays.sparse[SMALL].indices()]), before)


def test_what_a_mask_leaves_out_may_have_any_gradient():
    """The gradient of a zero counts neither for the norm nor for the update."""
    with sparse_memory(GRAPH, GradientKeeper(), {SMALL: group(0.75)}, 1e9) as memoryx:
        gradients = random_gradients(GRAPH, 1)
        mask = np.zeros(96, bool)
        mask[np.concatenate([*memoryx.arrays.sparse[SMALL].indices()])] = True
        expected = np.where(mask.reshape(8, 12), gradients[SMALL], 0)
        gradients[SMALL][~mask.reshape(8, 12)] = np.nan
        norm = train_step(memoryx, 1, gradients, all_panels(memoryx))
        assert np.isfinite(norm)
        np.testing.assert_array_equal(memoryx.arrays.sparse[SMALL].dense(f"optimizer.{SMALL}.gradient"), expected)


@pytest.mark.parametrize(
    ("found", "most"),
    [
        (group(0.75), keep_count(0.75, 12 * 784)),
        (group(0.75, algorithm="set"), keep_count(0.75, 12 * 784)),
        (group(LinearShare(init=0.2, slope=0.1), algorithm="gmp"), keep_count(0.2, 12 * 784)),
        (group(LinearShare(init=0.8, slope=-0.1), algorithm="gmp"), keep_count(0.3, 12 * 784)),
        (group(0.75, algorithm="rigl", update={"freq": 2, "start": 3}), 12 * 784),
    ],
    ids=["static", "set", "falls", "grows", "dense at first"],
)
def test_there_is_room_for_the_densest_mask_of_the_run_and_no_more(found, most):
    with sparse_memory(GRAPH, make_optimizer(ADAMW, None), {WIDE: found}, last_step=5) as memoryx:
        sparse = memoryx.arrays.sparse[WIDE]
        assert [memoryx.arrays.store.shape(name) for name in memoryx.arrays.of(WIDE)] == [(most,)] * 3
        assert memoryx.arrays.room(WIDE) == sparse.capacity == most
        dense = sum(weight.size for name, weight in GRAPH.weights.items() if name != WIDE)
        assert memoryx.arrays.kept_bytes == 4 * 3 * (sparse.count + dense)


def test_what_streams_is_the_numbers_and_the_pattern():
    with sparse_memory(GRAPH, None, {WIDE: group(0.75)}) as memoryx:
        [panel] = memoryx.arrays.panels[WIDE]
        count = keep_count(0.75, 12 * 784)
        # A byte for the column of each; a row and a count of 2 bytes for each row in each of 7 blocks of 128 columns,
        # and two rows more.
        assert memoryx.stream_bytes(panel) == 4 * count + count + 12 * 7 * 4 + 2 * 2
        [other] = memoryx.arrays.panels[SMALL]
        assert memoryx.stream_bytes(other) == 4 * 96
        assert memoryx.arrays.sparse_shapes() == [(12, 784, 1.0)]


@pytest.mark.parametrize(
    "found",
    [
        group(LinearShare(init=0.2, slope=0.05), algorithm="gmp"),
        group(0.75, algorithm="rigl"),
        group(0.75, algorithm="set", update={"freq": 3}),
    ],
    ids=["gmp", "rigl", "set"],
)
def test_buffers_are_used_again_however_masks_change(found):
    """Those of gradients, with and without zeros, and those in which dense kernels have panels written out."""
    # With a norm all gradients wait, so that how many buffers are out does not depend on how fast the updates are.
    with sparse_memory(GRAPH, make_optimizer(ADAMW, None), {WIDE: found, SMALL: found}, 1e9) as memoryx:
        panels = all_panels(memoryx)
        for step in range(1, STEPS + 1):
            [wide] = memoryx.arrays.panels[WIDE]
            with held(memoryx, wide) as weights:
                weights.dense()
            train_step(memoryx, step, random_gradients(GRAPH, step), panels)
        allocated = memoryx.buffers.allocated_bytes
        kept = sum(min(sparse.weight.size, sparse.capacity or 0) for sparse in memoryx.arrays.sparse.values())
    dense = sum(weight.size for name, weight in GRAPH.weights.items() if name not in (WIDE, SMALL))
    # RigL's gradients have the size of a panel written out, and take that one's buffer.
    zeros = 12 * 784 + (8 * 12 if found.algorithm == "rigl" else 0)
    assert allocated == 4 * (dense + kept + zeros)


def test_room_of_a_panel_is_its_share_and_a_little_more(monkeypatch):
    monkeypatch.setattr(_graph, "PANEL_BYTES", SIX_PANELS)
    with sparse_memory(GRAPH, None, {WIDE: group(0.75)}) as memoryx:
        sparse = memoryx.arrays.sparse[WIDE]
        rooms = [sparse.room(panel) for panel in sparse.panels]
        counts = [sparse.pattern(panel).count for panel in sparse.panels]
    assert sum(counts) == keep_count(0.75, 12 * 784)
    assert rooms == [int(np.ceil(sum(counts) / 6 * UNEVEN))] * 6


def test_numbers_go_in_and_out_in_the_order_of_the_weight(monkeypatch):
    monkeypatch.setattr(_graph, "PANEL_BYTES", SIX_PANELS)
    with sparse_memory(GRAPH, None, {WIDE: group(0.75)}) as memoryx:
        sparse = memoryx.arrays.sparse[WIDE]
        indices = np.sort(np.random.default_rng(SEED).choice(12 * 784, 1000, replace=False))
        numbers = np.arange(1, 1001, dtype=np.float32)
        sparse.place(indices)
        sparse.write(f"model.{WIDE}", numbers)
        np.testing.assert_array_equal(np.concatenate([*sparse.read(f"model.{WIDE}")]), numbers)
        expected = np.zeros(12 * 784, np.float32)
        expected[indices] = numbers
        np.testing.assert_array_equal(sparse.dense(f"model.{WIDE}").reshape(-1), expected)
        assert (sparse.count, sparse.density) == (1000, 1000 / (12 * 784))
        patterns = [sparse.pattern(panel) for panel in sparse.panels]
        assert sparse.pattern_bytes(False) == sum(pattern.size_bytes for pattern in patterns)
        assert sparse.pattern_bytes(True) == sum(p.size_bytes + p.transposed.size_bytes for p in patterns)


@pytest.mark.parametrize(
    ("found", "wide"),
    [
        (None, 3 + 1.25),
        (group(0.75), (3 + 1.25) / 4),
        (group(0.75, algorithm="set"), (3 + 1.25) / 4),
        (group(0.75, algorithm="rigl"), (3 + 1.25) / 4 + 1.25),
        (group(0.75, algorithm="dropconnect"), 3 + 1.25),
    ],
    ids=["dense", "static", "set", "rigl", "dropconnect"],
)
def test_activations_get_what_weights_state_and_gradients_leave(monkeypatch, found, wide):
    """Adam keeps two arrays beside the weights; gradients wait, and a quarter more is in flight; RigL's are dense."""
    monkeypatch.setattr(budgets, "available_memory_bytes", lambda: 10**6)
    graph, adamw = fc_mnist(12, 8, use_bias=False), make_optimizer(ADAMW, None)
    left = budgets.activation_budget_bytes(KeptModel(graph, adamw, rules({} if found is None else {WIDE: found})))
    need = 4 * (12 * 784 * wide + (8 * 12 + 10 * 8) * 4.25)
    assert left == pytest.approx((10**6 - need) * budgets.ACTIVATION_SHARE, abs=2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_found_and_its_weight_named(value):
    with make_appliance(GRAPH, optimizer=None, sparsity=rules({SMALL: group(0.75)}), **USUAL) as machine:
        machine.memoryx.initialize(SEED)
        sparse = machine.memoryx.arrays.sparse[SMALL]
        numbers = np.concatenate([*sparse.read(f"model.{SMALL}")])
        numbers[-1] = value
        sparse.write(f"model.{SMALL}", numbers)
        systems = machine.prepare(4, trains=False)
        systems.load(random_batch(GRAPH, 4), 0, 1, (1.0,))
        assert str(systems.first_bad_tensor()) == f"weight {SMALL}"
