"""Mixtures of experts: sparse ones compute what masked dense ones do, all have the same bits.

Those that no token of a batch chose are not read, and updated later.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.model.graphs import build_graph
from cstool.model.ir import Graph, Panel
from cstool.model.optimizers import make_optimizer
from cstool.model.params import SGD, Adam, AdamW, LossScaling, SparsityParams
from cstool.model.params.sections.sparsity import CyclingShare, LinearShare
from cstool.model.sparsity import assign_groups, next_mask
from cstool.training.kernels.compile import compile_kernels
from cstool.training.kernels.sparse import KernelChoice
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.memoryx import owed
from cstool.training.machine.memoryx.gradients import NoGradient
from cstool.training.machine.memoryx.sparse_weights import DENSE, SparsityRules
from cstool.training.machine.memoryx.updates import Updates
from cstool.training.machine.plan import make_plan
from cstool.training.machine.precision import narrow_in
from cstool.training.machine.prepare import needed_kernels
from cstool.training.machine.sparsity import token_shares
from cstool.training.run.report.sparsity_table import sparsity_scalars
from cstool.training.store import FileStore
from tests.models import BALANCED, FAMILIES, decoder, decoder_params
from tests.unit.inference.machines import made, walking
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.machines import (
    GradientKeeper,
    array_of,
    dense_arrays,
    machine,
    random_batch,
    set_weight,
)
from tests.unit.training.machine.sparse_machines import SEED, rules

BATCH, EXPERTS, LAYERS = 4, 5, 2
GRAPH: dict[str, Any] = {
    **FAMILIES["mixtral"],
    "layers": LAYERS,
    "moe": {"num_experts": EXPERTS, "top_k": 2, "router_use_bias": True},
}
USED: Sequence[tuple[int, ...]] = [(0, 1, 2, 3, 4), (0, 1), (0, 1), (1, 2), (0, 1), (2, 3), (0, 1)]
"""experts that the tokens of a step may choose; 4 is idle after the first"""
RATES = (0.01, 0.02, 0.004, 0.008, 0.03, 0.001, 0.01)
MEMORY_BYTES = 2**16
"""for rows: the matrices of a few experts"""
ADAMW = make_optimizer(AdamW.model_validate({"weight_decay": 0.1}), None)


def use(appliance: Appliance, experts: Sequence[int]) -> None:
    """Have tokens choose among some experts alone. Of updates that wait none is hurried."""
    arrays = appliance.memoryx.arrays
    for layer in range(LAYERS):
        bias = np.full(EXPERTS, -1e6, np.float32)
        bias[list(experts)] = 0.0
        name = f"transformer_decoder.layers.{layer}.ffn.gate.bias"
        if (update := appliance.memoryx._under_way.get(arrays.panels[name][0])) is not None:
            update.result()
        arrays.load(f"model.{name}", lambda out, start, stop, bias=bias: np.copyto(out, bias[start:stop]))


def steps(appliance: Appliance, graph: Graph, used: Sequence[Sequence[int]] = USED, *, first: int = 0) -> list[float]:
    """The losses of steps whose tokens choose among some experts."""
    losses = []
    for number, experts in enumerate(used[first:], start=first):
        use(appliance, experts)
        found = appliance.train_step(random_batch(graph, BATCH, seed=number), number + 1, RATES[number])
        losses.append(found.loss)
    return losses


def in_file(path: Path, memory_bytes: int = MEMORY_BYTES) -> dict[str, Any]:
    return {"store": FileStore(path, memory_bytes), "waiting_bytes": 2**20}


def forget_all(store: FileStore) -> None:
    """Have the store keep nothing in memory."""
    for name in store.names():
        store.cache.forget(name, 0, store.shape(name)[0])


class Reads:
    """Counts the bytes of arrays that a store reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        read, write = FileStore._read_rows, FileStore._write_tile

        def read_rows(store: FileStore, rows: Any, array: Any) -> None:
            self.read[rows.name] += array.nbytes
            read(store, rows, array)

        def write_tile(store: FileStore, name: str, first: int, tile: Any) -> None:
            self.written[name] += tile.nbytes
            write(store, name, first, tile)

        monkeypatch.setattr(FileStore, "_read_rows", read_rows)
        monkeypatch.setattr(FileStore, "_write_tile", write_tile)

    def experts(self, counts: Counter[str]) -> set[int]:
        """Experts whose matrices, moments or gradients are among those."""
        return {int(name.partition(".experts.experts.")[2].partition(".")[0]) for name in counts if is_matrix(name)}

    def clear(self) -> None:
        self.read.clear()
        self.written.clear()


def is_matrix(name: str) -> bool:
    return ".experts.experts." in name and ".weight" in name


FILTER = ["*.experts.experts.*.weight"]
GROUPS: dict[str, SparsityParams | None] = {
    "dense": None,
    "static": group(0.75, param_filter=FILTER),
    "set": group(CyclingShare(values=(0.5, 0.9, 0.75)), algorithm="set", update={"freq": 2}, param_filter=FILTER),
    "rigl": group(0.75, algorithm="rigl", update={"freq": 2}, param_filter=FILTER),
    "rigl in every step": group(0.75, algorithm="rigl", update={"freq": 1}, param_filter=FILTER),
    "gmp": group(LinearShare(init=0.0, slope=0.1), algorithm="gmp", update={"freq": 3}, param_filter=FILTER),
    "dropconnect": group(0.5, algorithm="dropconnect", param_filter=FILTER),
}
DENSE_KERNELS = KernelChoice(False, False, False)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return decoder(**GRAPH)


def rules_for(graph: Graph, by: SparsityParams | None, **keys: Any) -> SparsityRules:
    if by is None:
        return DENSE
    return rules(dict.fromkeys(assign_groups([by], graph, ("x.yaml:1", "sparsity")), by), **keys)


def sparse_machine(graph, by, optimizer=ADAMW, keys=None, **settings) -> AbstractContextManager[Appliance]:
    """Lend a machine whose experts are sparse, with large random weights."""
    return machine(graph, BATCH, optimizer=optimizer, sparsity=rules_for(graph, by, **(keys or {})), **settings)


def masks_of(appliance: Appliance) -> dict[str, np.ndarray]:
    """Of each sparse weight the positions of its non-zeros, ascending."""
    return {name: np.concatenate([*of.indices()]) for name, of in appliance.memoryx.arrays.sparse.items()}


Found = tuple[list[float], dict[str, bytes]]


def trained(graph: Graph, by: SparsityParams | None, **settings: Any) -> Found:
    """The losses of some steps; all weights and moments after them, and where the non-zeros are."""
    with sparse_machine(graph, by, **settings) as appliance:
        losses, arrays = steps(appliance, graph), appliance.memoryx.arrays
        appliance.memoryx.drain()
        found = {name: array_of(appliance, name).tobytes() for name in arrays.names}
        found |= {f"{name} indices": mask.tobytes() for name, mask in masks_of(appliance).items()}
        assert appliance.memoryx.buffers.used == 0
        return losses, found


def take_zeros(updates: Updates, panel: Panel, gradient: np.ndarray | NoGradient, take: Any = Updates.take) -> None:
    """Take a gradient that is none as an array of zeros."""
    if isinstance(gradient, NoGradient):
        if (update := updates._under_way.get(panel)) is not None:
            update.result()
        sparse = updates._arrays.sparse.get(panel.weight)
        of_zeros = sparse is None or sparse.wants_dense_gradient(updates.step.number)
        gradient = updates._waiting.buffers.take(panel.shape if of_zeros else (sparse.pattern(panel).count,))
        gradient.fill(0)
    take(updates, panel, gradient)


def in_zeros(graph: Graph, by: SparsityParams | None, **settings: Any) -> Found:
    """What `trained` gives where every gradient is an array."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Updates, "take", take_zeros)
        return trained(graph, by, **settings)


ADAM = make_optimizer(Adam.model_validate({"weight_decay": 0.1}), None)
MOMENTUM = make_optimizer(SGD.model_validate({"momentum": 0.9, "weight_decay": 0.1}), None)
CLIPPED = {"max_gradient_norm": 0.5}
SKIPPING = {"loss_scaling": LossScaling(2.0**132, 1.0, 2.0**132), **CLIPPED}
"""with a scale of the loss that is too large for some steps, which leave masks and idle experts alone"""


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dense", {}),
        ("dense", {"optimizer": ADAM}),
        ("dense", {"optimizer": MOMENTUM, **CLIPPED}),
        ("rigl", CLIPPED),
        ("gmp", {}),
        ("rigl", {"precision": "bfloat16"}),
        ("static", SKIPPING),
        ("rigl in every step", SKIPPING),
        pytest.param("static", {}, marks=pytest.mark.lab),
        pytest.param("set", CLIPPED, marks=pytest.mark.lab),
        pytest.param("dropconnect", CLIPPED, marks=pytest.mark.lab),
    ],
)
def test_bits_depend_neither_on_where_things_are_nor_on_whether_idle_experts_have_gradients(
    tmp_path, monkeypatch, graph, name, settings
):
    by, precision = GROUPS[name], settings.get("precision", "float32")
    compile_kernels(lambda *_: None, needed_kernels(graph, precision, [name]))
    expected = in_zeros(graph, by, **settings)
    assert trained(graph, by, **settings) == expected
    room = make_plan(graph, 1, trains=True, narrow=narrow_in(precision, graph)).slot_bytes
    several: list[dict[str, Any]] = [
        {"num_csx": 2, "lanes": 3, "recompute": "always", **in_file(tmp_path / "a.h5", 2**13)},
        {"memory_bytes": room, "recompute": "never", **in_file(tmp_path / "b.h5", 2**13)},
    ]
    for more, most_owed in zip(several, (owed.MOST_OWED, 2), strict=True):
        monkeypatch.setattr(owed, "MOST_OWED", most_owed)
        assert trained(graph, by, **settings, **more) == expected


@pytest.mark.parametrize("choice", [None, DENSE_KERNELS], ids=["sparse kernels", "dense kernels"])
def test_sparse_experts_compute_what_masked_dense_ones_compute(graph, choice):
    keys = {} if choice is None else {"choose": lambda *_: choice}
    batch = random_batch(graph, BATCH)
    with sparse_machine(graph, GROUPS["static"], GradientKeeper(), keys) as appliance:
        use(appliance, (0, 1, 3))
        weights, masks = dense_arrays(appliance), masks_of(appliance)
        evaluated = appliance.evaluate(batch, 0)[0].total
        loss = appliance.train_step(batch, 1, 0.1).loss
        gradients = {name: array_of(appliance, f"optimizer.{name}.gradient") for name in graph.weights}
    assert len(masks) == LAYERS * EXPERTS * 3
    with machine(graph, BATCH) as dense:
        for name in graph.weights:
            set_weight(dense, name, weights[f"model.{name}"])
        assert dense.evaluate(batch, 0)[0].total == pytest.approx(evaluated, rel=1e-6)
        assert dense.train_step(batch, 1, 0.1).loss == pytest.approx(loss, rel=1e-6)
        for name, gradient in gradients.items():
            expected = array_of(dense, f"optimizer.{name}.gradient")
            kept = expected.reshape(-1)[masks[name]] if name in masks else expected
            np.testing.assert_allclose(gradient, kept, rtol=1e-4, atol=1e-6, err_msg=name)
            if ".experts.experts." in name:
                idle = any(f".experts.{expert}." in name for expert in (2, 4))
                assert np.any(gradient) != idle


@pytest.mark.parametrize("name", ["rigl", "set"])
def test_masks_of_experts_change_by_their_own_gradients_and_those_of_idle_ones_without(graph, name):
    by = group(0.75, algorithm=name, update={"steps": [1]}, param_filter=FILTER)
    batch = random_batch(graph, BATCH)
    with sparse_machine(graph, by) as appliance:
        use(appliance, (0, 1, 3))
        before = masks_of(appliance)
        dense = dense_arrays(appliance)
        # With a rate of zero, and no decay, the numbers stay as they are.
        appliance.train_step(batch, 1, 0.0)
        appliance.memoryx.drain()
        after = masks_of(appliance)
    with machine(graph, BATCH) as twin:
        for weight in graph.weights:
            set_weight(twin, weight, dense[f"model.{weight}"])
        twin.train_step(batch, 1, 0.0)
        gradients = {weight: array_of(twin, f"optimizer.{weight}.gradient") for weight in before}
    changed = 0
    for weight, indices in before.items():
        mask = np.zeros(graph.weights[weight].shape, np.bool_)
        mask.reshape(-1)[indices] = True
        expected = next_mask(by, 1, dense[f"model.{weight}"], mask, SEED, weight, gradients[weight])
        np.testing.assert_array_equal(after[weight], np.flatnonzero(expected), err_msg=weight)
        changed += not np.array_equal(after[weight], indices)
        if any(f".experts.experts.{expert}." in weight for expert in (2, 4)):
            assert not np.any(gradients[weight])
    assert changed == len(before)


def test_updates_that_idle_experts_are_owed_come_before_their_mask_changes(tmp_path, graph):
    """After step 4 all masks change: experts 0, 3 and 4 are idle then, and 3 and 4 are owed updates."""
    by = group(0.75, algorithm="set", update={"freq": 4}, param_filter=FILTER)
    with sparse_machine(graph, by, **in_file(tmp_path / "memoryx.h5")) as appliance:
        memoryx = appliance.memoryx
        steps(appliance, graph, USED[:1])
        memoryx.drain()
        before = replace(memoryx.expert_use)
        steps(appliance, graph, first=1)
        memoryx.drain()
        matrices = 3 * LAYERS
        assert memoryx.expert_use.idle - before.idle == 3 * 6 * matrices
        # Those owed: of 2 in step 4, then of 3 and 4 before their masks change, of 2 and 3 in step 6, of 0 and 1 in
        # step 7, of 2, 3 and 4 at the end. And where masks change, 0, 3 and 4.
        assert memoryx.expert_use.visits - before.visits == (1 + 2 + 2 + 2 + 3 + 3) * matrices
        found = trained(graph, by)[1]
        for name, mask in masks_of(appliance).items():
            assert mask.tobytes() == found[f"{name} indices"]


def test_shapes_are_told_with_the_share_of_the_tokens_that_experts_meet(graph):
    with sparse_machine(graph, group(0.75), keys={"token_shares": token_shares(graph)}) as appliance:
        shapes = appliance.memoryx.arrays.sparse_shapes()
    # Of 5 experts a token meets 2; its other linear layers are those of attention.
    assert {shape for shape in shapes if shape[2] != 1} == {(16, 16, 0.4)}
    assert len([shape for shape in shapes if shape[2] != 1]) == 3 * EXPERTS * LAYERS
    assert len([shape for shape in shapes if shape[2] == 1]) == 4 * LAYERS


def test_only_what_streamed_is_counted_as_streamed(graph):
    with sparse_machine(graph, GROUPS["static"]) as appliance:
        statistics = appliance.memoryx.statistics
        use(appliance, (0, 1))
        statistics.begin_step(looks=True)
        appliance.train_step(random_batch(graph, BATCH), 1, 0.01)
        scalars = sparsity_scalars(appliance.memoryx)
    prefix = "sparsity/transformer_decoder.layers.*.ffn.experts.experts.*"
    names = ("0.linear_layer", "0.linear_layer_for_glu", "1.linear_layer")
    assert scalars == {f"{prefix}.{name}.weight/actual": 0.75 for name in names}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def step_with(appliance: Appliance, reads: Reads, number: int, experts: Sequence[int], rate: float = 0.01) -> None:
    """Run a step whose tokens choose among some experts, up to its last update, and count what it reads and writes."""
    reads.clear()
    use(appliance, experts)
    appliance.train_step(random_batch(appliance.graph, BATCH, seed=number), number, rate)
    for update in appliance.memoryx._under_way.values():
        update.result()


@pytest.mark.parametrize("name", ["static", "rigl"])
def test_sparse_experts_that_no_token_chose_are_neither_read_nor_written(tmp_path, reads, graph, name):
    """But where masks change, which is of all weights: after step 2."""
    settings = in_file(tmp_path / "memoryx.h5")
    with sparse_machine(graph, GROUPS[name], **settings) as appliance:
        appliance.memoryx.drain()
        forget_all(settings["store"])
        for number in (1, 2, 3):
            step_with(appliance, reads, number, (0, 1))
            changes = name == "rigl" and number == 2
            assert reads.experts(reads.written) == ({*range(EXPERTS)} if changes else {0, 1})
            assert changes or reads.experts(reads.read) <= {0, 1}
        appliance.memoryx.drain()


# Experts that no token of a batch chose.


@pytest.mark.parametrize("max_gradient_norm", [None, 0.5])
def test_what_no_token_chose_is_neither_read_nor_written_until_asked_for(tmp_path, reads, graph, max_gradient_norm):
    settings = in_file(tmp_path / "memoryx.h5")
    store = settings["store"]
    with machine(graph, BATCH, optimizer=ADAMW, max_gradient_norm=max_gradient_norm, **settings) as appliance:
        memoryx = appliance.memoryx
        steps(appliance, graph, USED[:1])
        memoryx.drain()
        use_before = replace(memoryx.expert_use)
        forget_all(store)
        for number in (2, 3):
            step_with(appliance, reads, number, (0, 1))
            assert reads.experts(reads.read) == reads.experts(reads.written) == {0, 1}
        # An expert that is asked for again has both updates in one visit, before it is read.
        step_with(appliance, reads, 4, (1, 2))
        assert reads.experts(reads.read) == {1, 2}
        moments = {name: size for name, size in reads.written.items() if ".experts.2." in name and "exp_avg_sq" in name}
        sizes = {name: 4 * graph.weights[name[10:-11]].size for name in moments}
        assert len(moments) == 3 * LAYERS
        # Those that it was owed at once, and that of its own gradient.
        assert moments == {name: 2 * size for name, size in sizes.items()}
        # The others are owed theirs until a commit or a checkpoint.
        reads.clear()
        memoryx.drain()
        assert reads.experts(reads.written) == {0, 3, 4}
        assert memoryx.expert_use.idle - use_before.idle == (2 * 3 + 3) * 3 * LAYERS
        assert memoryx.expert_use.visits - use_before.visits == (1 + 3) * 3 * LAYERS


def test_evaluations_read_what_their_tokens_chose(tmp_path, reads, graph):
    settings = in_file(tmp_path / "memoryx.h5")
    store = settings["store"]
    with machine(graph, BATCH, optimizer=ADAMW, **settings) as appliance:
        use(appliance, (1, 3))
        forget_all(store)
        reads.clear()
        appliance.evaluate(random_batch(graph, BATCH), 0)
        assert reads.experts(reads.read) == {1, 3}
        matrices = {name: size for name, size in reads.read.items() if is_matrix(name)}
        assert matrices == {name: 4 * graph.weights[name.removeprefix("model.")].size for name in matrices}


def test_an_answer_reads_the_experts_of_its_token(tmp_path, graph):
    model = build_graph(decoder_params(**GRAPH), 1)
    prompts = [[1, 2, 3]]
    with walking(model, capacity=8) as (walk, _):
        expected = made(walk, prompts, 4)
    with walking(model, capacity=8, file=tmp_path / "memoryx.h5") as (walk, _):
        assert made(walk, prompts, 1) == [expected[0][:1]]
        before, passes = walk.stream.streamed_bytes, walk.passes
        made(walk, [[5]], 4)
        streamed_bytes = (walk.stream.streamed_bytes - before) / (walk.passes - passes)
    of_experts = sum(4 * weight.size for name, weight in model.weights.items() if is_matrix(name))
    rest = 4 * model.parameter_count - of_experts
    # Of each layer two experts; of the table of embeddings and of all else everything.
    assert streamed_bytes == rest + of_experts * 2 / EXPERTS


def test_norms_of_all_weights_are_those_of_all_experts(tmp_path, graph):
    found: list[dict[str, float]] = []
    for settings in ({}, in_file(tmp_path / "memoryx.h5")):
        with machine(graph, BATCH, optimizer=ADAMW, **settings) as appliance:
            statistics = appliance.memoryx.statistics
            statistics.with_norms = True
            use(appliance, (0, 1))
            for number in (1, 2):
                statistics.begin_step(looks=number == 2)
                appliance.train_step(random_batch(graph, BATCH, seed=number), number, 0.01)
            found.append(statistics.norms())
    assert found[0] == found[1]
    assert found[0]["grad_norm/transformer_decoder.layers.0.ffn.experts.experts.4.0.linear_layer.weight"] == 0


def test_evaluations_leave_balance_out():
    losses = [(loss.name, loss.evaluates) for loss in decoder(**BALANCED).losses]
    assert losses == [("loss", True), ("load_balancing_loss", False)]
