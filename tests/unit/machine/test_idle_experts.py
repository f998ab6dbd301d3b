"""Experts that no token of a batch chose: they are not read, and updated later, with the same bits."""

from dataclasses import replace
from typing import Any

import pytest

from cstool.ir import Graph
from cstool.machine.memoryx import gradients, updates
from cstool.machine.plan import make_plan
from cstool.models import build_graph
from cstool.optimizers import make_optimizer
from cstool.params import SGD, Adam
from tests.models import decoder, decoder_params
from tests.unit.inference.machines import made, walking
from tests.unit.machine.expert_machines import (
    ADAMW,
    BATCH,
    EXPERTS,
    GRAPH,
    LAYERS,
    USED,
    Reads,
    forget_all,
    in_file,
    is_matrix,
    steps,
    use,
)
from tests.unit.machine.machines import arrays_of, machine, random_batch


@pytest.fixture(scope="module")
def graph() -> Graph:
    return decoder(**GRAPH)


def trained(graph: Graph, optimizer: Any = ADAMW, **settings: Any) -> tuple[list[float], dict[str, bytes]]:
    """The losses of some steps, and all weights and moments after them."""
    with machine(graph, BATCH, optimizer=optimizer, **settings) as appliance:
        losses = steps(appliance, graph)
        names = ["model.", *(f".{state}" for state in optimizer.states((1,)))]
        found = {
            f"{prefix}{name}": array.tobytes()
            for prefix in names
            for name, array in (
                arrays_of(appliance, prefix) if prefix == "model." else arrays_of(appliance, "optimizer.", prefix)
            ).items()
        }
        assert appliance.memoryx.buffers.used == 0
        return losses, found


def in_zeros(graph: Graph, optimizer: Any, **settings: Any) -> tuple[list[float], dict[str, bytes]]:
    """What `trained` gives where every gradient is an array."""
    init = gradients.ArrivingGradients.__init__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            gradients.ArrivingGradients, "__init__", lambda self, *given, **_: init(self, *given, takes_none=False)
        )
        return trained(graph, optimizer, **settings)


@pytest.mark.parametrize("max_gradient_norm", [None, 0.5])
def test_updates_without_a_gradient_have_the_bits_of_those_with_zeros(tmp_path, monkeypatch, graph, max_gradient_norm):
    settings: dict[str, Any] = {"max_gradient_norm": max_gradient_norm}
    expected = in_zeros(graph, ADAMW, **settings)
    assert trained(graph, **settings) == expected
    room = make_plan(graph, 1, trains=True).slot_bytes
    several: list[dict[str, Any]] = [
        {"lanes": 2, "num_csx": 2},
        {"recompute": "always"},
        {"memory_bytes": room, "recompute": "never"},
    ]
    for number, more in enumerate(several):
        assert trained(graph, **settings, **more, **in_file(tmp_path / f"{number}.h5")) == expected
    monkeypatch.setattr(updates, "MOST_OWED", 2)
    assert trained(graph, **settings, **in_file(tmp_path / "less.h5")) == expected


@pytest.mark.parametrize(
    "optimizer",
    [
        make_optimizer(Adam.model_validate({"weight_decay": 0.1}), None),
        make_optimizer(SGD.model_validate({"momentum": 0.9, "weight_decay": 0.1}), None),
    ],
    ids=["Adam", "SGD"],
)
def test_so_it_is_with_other_optimizers(tmp_path, graph, optimizer):
    assert trained(graph, optimizer, **in_file(tmp_path / "memoryx.h5")) == in_zeros(graph, optimizer)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


@pytest.mark.parametrize("max_gradient_norm", [None, 0.5])
def test_what_no_token_chose_is_neither_read_nor_written_until_it_is_asked_for(
    tmp_path, reads, graph, max_gradient_norm
):
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
