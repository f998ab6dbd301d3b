"""Experts that no token of a batch chose: they are not read, and updated later.

`test_sparse_experts.py` has that the bits are the same, of dense ones, too.
"""

from dataclasses import replace

import numpy as np
import pytest

from cstool.ir import Graph
from cstool.models import build_graph
from tests.models import BALANCED, decoder, decoder_params
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
from tests.unit.machine.machines import arrays_of, machine, random_batch, set_array


@pytest.fixture(scope="module")
def graph() -> Graph:
    return decoder(**GRAPH)


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
