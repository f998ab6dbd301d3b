"""Mixtures of experts: sparse ones compute what masked dense ones do, all have the same bits.

Those that no token of a batch chose are not read, and updated later.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import contextmanager
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
from cstool.training.kernels.compile import BFLOAT16_KERNELS, MIXTURE_KERNELS, SPARSE_KERNELS, compile_kernels
from cstool.training.kernels.sparse import KernelChoice
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.memoryx import owed
from cstool.training.machine.memoryx.gradients import NoGradient
from cstool.training.machine.memoryx.sparse_weights import DENSE, SparsityRules
from cstool.training.machine.memoryx.updates import Updates
from cstool.training.machine.plan import make_plan
from cstool.training.machine.sparsity import token_shares
from cstool.training.run.report.sparsity_table import sparsity_scalars
from cstool.training.store import FileStore
from tests.models import BALANCED, FAMILIES, decoder, decoder_params
from tests.unit.inference.machines import made, walking
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.machines import (
    USUAL,
    GradientKeeper,
    array_of,
    arrays_of,
    machine,
    make_appliance,
    random_batch,
    set_array,
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


def steps(appliance: Appliance, graph: Graph, used: Sequence[Sequence[int]] = USED) -> list[float]:
    """The losses of steps whose tokens choose among some experts."""
    losses = []
    for number, experts in enumerate(used):
        use(appliance, experts)
        found = appliance.train_step(random_batch(graph, BATCH, seed=number), number + 1, RATES[number])
        losses.append(found.loss)
    return losses


def in_file(path: Path) -> dict[str, Any]:
    return {"store": FileStore(path, MEMORY_BYTES), "waiting_bytes": 2**20}


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


@contextmanager
def sparse_machine(graph, by, optimizer=ADAMW, keys=None, **settings):
    """Lend a machine whose experts are sparse, with large random weights."""
    sparsity = rules_for(graph, by, **(keys or {}))
    with make_appliance(graph, optimizer=optimizer, sparsity=sparsity, **{**USUAL, **settings}) as appliance:
        appliance.memoryx.initialize(SEED)
        for trains in (True, False):
            appliance.prepare(BATCH, trains=trains)
        rng, arrays = np.random.default_rng(0), appliance.memoryx.arrays
        for name, weight in graph.weights.items():
            if name in arrays.sparse:
                numbers = 0.5 * rng.standard_normal(weight.shape).astype(np.float32)
                sparse = arrays.sparse[name]
                sparse.write(sparse.arrays[0], numbers.reshape(-1)[np.concatenate([*sparse.indices()])])
            elif len(weight.shape) > 1:
                set_array(appliance, f"model.{name}", 0.5 * rng.standard_normal(weight.shape))
        yield appliance


def masks_of(appliance: Appliance) -> dict[str, np.ndarray]:
    """Of each sparse weight the positions of its non-zeros, ascending."""
    return {name: np.concatenate([*of.indices()]) for name, of in appliance.memoryx.arrays.sparse.items()}


def written_out(appliance: Appliance) -> dict[str, np.ndarray]:
    appliance.memoryx.drain()
    sparse = appliance.memoryx.arrays.sparse
    return {
        name: sparse[name].dense(f"model.{name}") if name in sparse else array_of(appliance, f"model.{name}")
        for name in appliance.graph.weights
    }


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


@pytest.mark.parametrize(
    ("name", "optimizer", "max_gradient_norm"),
    [
        *(
            pytest.param(name, ADAMW, norm, marks=pytest.mark.lab)
            for name, norm in zip(GROUPS, [0.5, None] * 4, strict=False)
        ),
        ("dense", ADAMW, None),
        ("dense", ADAM, None),
        ("dense", MOMENTUM, 0.5),
        ("rigl", ADAMW, 0.5),
        ("gmp", ADAMW, None),
    ],
)
def test_bits_depend_neither_on_where_things_are_nor_on_whether_idle_experts_have_gradients(
    tmp_path, monkeypatch, graph, name, optimizer, max_gradient_norm
):
    by, settings = GROUPS[name], {"max_gradient_norm": max_gradient_norm, "optimizer": optimizer}
    expected = in_zeros(graph, by, **settings)
    assert trained(graph, by, **settings) == expected
    room = make_plan(graph, 1, trains=True).slot_bytes
    several: list[dict[str, Any]] = [
        {"num_csx": 2, "lanes": 3, "recompute": "always", **in_file(tmp_path / "a.h5")},
        {"memory_bytes": room, "recompute": "never", **in_file(tmp_path / "b.h5")},
    ]
    for more in several:
        assert trained(graph, by, **settings, **more) == expected
    monkeypatch.setattr(owed, "MOST_OWED", 2)
    assert trained(graph, by, **settings, **in_file(tmp_path / "less.h5")) == expected


def test_so_it_is_in_bfloat16(tmp_path, graph):
    compile_kernels(lambda *_: None, needs=[BFLOAT16_KERNELS, MIXTURE_KERNELS, SPARSE_KERNELS])
    expected = in_zeros(graph, GROUPS["rigl"], precision="bfloat16")
    assert expected != in_zeros(graph, GROUPS["rigl"])
    for more in ({}, {"num_csx": 4, "lanes": 2, **in_file(tmp_path / "memoryx.h5")}):
        assert trained(graph, GROUPS["rigl"], precision="bfloat16", **more) == expected


@pytest.mark.parametrize("choice", [None, DENSE_KERNELS], ids=["sparse kernels", "dense kernels"])
def test_sparse_experts_compute_what_masked_dense_ones_compute(graph, choice):
    keys = {} if choice is None else {"choose": lambda *_: choice}
    batch = random_batch(graph, BATCH)
    with sparse_machine(graph, GROUPS["static"], GradientKeeper(), keys) as appliance:
        use(appliance, (0, 1, 3))
        weights, masks = written_out(appliance), masks_of(appliance)
        evaluated = appliance.evaluate(batch, 0)[0].total
        loss = appliance.train_step(batch, 1, 0.1).loss
        gradients = {name: array_of(appliance, f"optimizer.{name}.gradient") for name in graph.weights}
    assert len(masks) == LAYERS * EXPERTS * 3
    with machine(graph, BATCH) as dense:
        for name, weight in weights.items():
            set_array(dense, f"model.{name}", weight)
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
        dense = written_out(appliance)
        # With a rate of zero, and no decay, the numbers stay as they are.
        appliance.train_step(batch, 1, 0.0)
        appliance.memoryx.drain()
        after = masks_of(appliance)
    with machine(graph, BATCH) as twin:
        for weight, numbers in dense.items():
            set_array(twin, f"model.{weight}", numbers)
        twin.train_step(batch, 1, 0.0)
        gradients = {weight: array_of(twin, f"optimizer.{weight}.gradient") for weight in before}
    changed = 0
    for weight, indices in before.items():
        mask = np.zeros(graph.weights[weight].shape, np.bool_)
        mask.reshape(-1)[indices] = True
        expected = next_mask(by, 1, dense[weight], mask, SEED, weight, gradients[weight])
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
        for number in range(1, len(USED)):
            use(appliance, USED[number])
            appliance.train_step(random_batch(graph, BATCH, seed=number), number + 1, RATES[number])
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


@pytest.mark.parametrize("name", ["static", "rigl"])
def test_sparse_experts_that_no_token_chose_are_neither_read_nor_written(tmp_path, monkeypatch, graph, name):
    """But where masks change, which is of all weights: after step 2."""
    by = GROUPS[name]
    reads, settings = Reads(monkeypatch), in_file(tmp_path / "memoryx.h5")
    with sparse_machine(graph, by, **settings) as appliance:
        memoryx = appliance.memoryx
        memoryx.drain()
        forget_all(settings["store"])
        for number in (1, 2, 3):
            reads.clear()
            use(appliance, (0, 1))
            appliance.train_step(random_batch(graph, BATCH, seed=number), number, 0.01)
            for update in memoryx._under_way.values():
                update.result()
            changes = name == "rigl" and number == 2
            assert reads.experts(reads.read) <= {*range(EXPERTS)}
            assert reads.experts(reads.written) == ({*range(EXPERTS)} if changes else {0, 1})
            if not changes:
                assert reads.experts(reads.read) <= {0, 1}
        memoryx.drain()


@pytest.mark.parametrize("name", ["static", "rigl in every step"])
def test_steps_that_are_skipped_leave_masks_and_idle_experts_alone(tmp_path, graph, name):
    """The scale of the loss is too large for some steps."""
    scaling = LossScaling(2.0**135, 1.0, 2.0**135)
    settings: dict[str, Any] = {"loss_scaling": scaling, "max_gradient_norm": 1.0}
    expected = in_zeros(graph, GROUPS[name], **settings)
    assert expected != in_zeros(graph, GROUPS[name], max_gradient_norm=1.0)
    assert trained(graph, GROUPS[name], **settings) == expected
    assert trained(graph, GROUPS[name], **settings, lanes=2, **in_file(tmp_path / "memoryx.h5")) == expected


# Experts that no token of a batch chose.


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


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
            reads.clear()
            use(appliance, (0, 1))
            appliance.train_step(random_batch(graph, BATCH, seed=number), number, 0.01)
            for update in memoryx._under_way.values():
                update.result()
            assert reads.experts(reads.read) == {0, 1}
            assert reads.experts(reads.written) == {0, 1}
        # An expert that is asked for again has both updates in one visit, before it is read.
        reads.clear()
        use(appliance, (1, 2))
        appliance.train_step(random_batch(graph, BATCH, seed=4), 4, 0.01)
        for update in memoryx._under_way.values():
            update.result()
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


def test_an_expert_that_nobody_chooses_has_gradients_of_zero():
    graph = decoder(**{**BALANCED, "layers": 3, "moe": {"num_experts": 4, "top_k": 2, "router_use_bias": True}})
    with machine(graph, 12, lanes=2) as appliance:
        for layer in range(3):
            name = f"model.transformer_decoder.layers.{layer}.ffn.gate"
            set_array(appliance, f"{name}.bias", np.array([0.0, 0.0, -1e6, 0.0], np.float32))
        appliance.train_step(random_batch(graph, 12), 1, 0.1)
        gradients = arrays_of(appliance, "optimizer.", ".gradient")
        assert appliance.memoryx.buffers.used == 0
    of_experts = {name: gradient for name, gradient in gradients.items() if ".experts.experts." in name}
    assert len(of_experts) == 3 * 4 * 3
    for name, gradient in of_experts.items():
        assert np.any(gradient) == (".experts.2." not in name)


def test_evaluations_leave_balance_out():
    losses = [(loss.name, loss.evaluates) for loss in decoder(**BALANCED).losses]
    assert losses == [("loss", True), ("load_balancing_loss", False)]
