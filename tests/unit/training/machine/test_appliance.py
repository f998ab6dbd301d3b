"""The appliance as a whole: its losses and its gradients are those of the model, computed slowly."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cstool.model.ir import Graph, Loss, _graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import SGD, AdamW
from cstool.training.kernels.tables import table_bytes
from cstool.training.machine.cluster import INTERPRETER
from cstool.training.machine.plan import make_plan
from tests.models import (
    CLASSIFIERS,
    DPRS,
    ENCODER_DECODERS,
    ENCODERS,
    FAMILIES,
    PREFERENCES,
    VARIANTS,
    VISION,
    decoder,
    encoder_decoder,
    fc_mnist,
    model_of,
)
from tests.reference import models as reference
from tests.unit.training.machine.machines import (
    GRADIENT_TOLERANCE,
    USUAL,
    arrays_of,
    check_gradients,
    machine,
    make_appliance,
    random_batch,
)

FULLY_CONNECTED: dict[str, dict[str, Any]] = {
    "fc_mnist": {},
    "fc_mnist, dropout": {"activation_fn": "gelu", "dropout": 0.3},
    "fc_mnist, no biases": {"use_bias": False},
}
GRAPH = decoder()
LOSS = 1e-6
"""relative error of a loss in float32: a mean over many tokens, whose errors mostly cancel"""


def graph_of(model: str, **usual: Any) -> Graph:
    return fc_mnist(**FULLY_CONNECTED[model]) if model in FULLY_CONNECTED else model_of(model, **usual)


@pytest.mark.parametrize("recompute", ["never", "always"])
@pytest.mark.parametrize("model", ["gpt2", "untied, biases", *FULLY_CONNECTED])
def test_every_gradient_is_the_derivative_of_the_loss(model, recompute):
    graph = graph_of(model, layers=2, dropout=0.2, sequence=5, max_position_embeddings=8)
    assert check_gradients(graph, 8, 5, recompute=recompute) <= LOSS


@pytest.mark.parametrize("model", [*FAMILIES, *VARIANTS])
def test_loss_and_gradients_of_any_decoder_are_right_with_dropout_in_waves_and_lanes(model):
    """Five grains in waves of two and of three; of five systems one gets none, and one a grain in both waves."""
    graph = model_of(model, dropout=0.1, sequence=6, layers=2)
    slot_bytes = make_plan(graph, 1, trains=True).slot_bytes
    in_waves = {"memory_bytes": 5 * slot_bytes - 1, "recompute": "never", "num_csx": 5}
    with machine(graph, 5, **in_waves) as appliance:
        systems = appliance.training_cluster
        assert (systems.waves, systems.layout.deal.slots) == (2, [0, 1, 1, 1, 1])
    assert check_gradients(graph, 5, 5, lanes=2, **in_waves) <= LOSS


@pytest.mark.parametrize(("recompute", "dropout"), [("always", 0.1), ("never", 0.0)])
@pytest.mark.parametrize("model", [*CLASSIFIERS, *ENCODERS, *VISION, *ENCODER_DECODERS, *PREFERENCES])
def test_losses_and_gradients_of_any_other_model_are_right_with_padding_and_in_lanes(model, recompute, dropout):
    """Layers may read one table of biases and one output of an encoder, so the sums of their gradients are in it.

    The reference of pairs is not the policy: all weights are random.
    """
    graph = model_of(model, layers=3 if model in PREFERENCES else 2, dropout=dropout)
    # What a pair's loss depends on is a difference of sums over tokens, of which it is a small part.
    most = 4 * LOSS if model in PREFERENCES else LOSS
    # Norms follow each other without a residual past them: each makes errors larger by 1 / deviation of 8 numbers.
    tolerance = 4 * GRADIENT_TOLERANCE
    assert check_gradients(graph, 6, 5, tolerance, lanes=2, num_csx=2, recompute=recompute) <= most


@pytest.mark.parametrize("targets", [3, 8, 11])
def test_targets_may_be_shorter_or_longer_than_the_source(targets):
    assert check_gradients(encoder_decoder(targets=targets, layers=2), 4, 1, lanes=2) <= LOSS


@pytest.mark.parametrize("recompute", ["never", "always"])
@pytest.mark.parametrize("model", [*DPRS, "kto"])
def test_gradients_go_through_a_barrier_in_waves_and_lanes(model, recompute):
    """Seven grains of which three meet the others before they go forward once more."""
    graph = model_of(model, dropout=0.1, layers=2)
    slot_bytes = make_plan(graph, 1, trains=True, recomputes=recompute == "always").slot_bytes
    in_waves = {"memory_bytes": 4 * slot_bytes, "recompute": recompute, "num_csx": 1, "lanes": 2}
    with machine(graph, 7, **in_waves) as appliance:
        legs = [("forward", 0), ("forward", 1), ("meet", 0), ("backward", 1), ("again", 0), ("backward", 0)]
        assert [tuple(leg) for leg in appliance.training_cluster.legs] == legs
    assert check_gradients(graph, 7, 5, 4 * GRADIENT_TOLERANCE, **in_waves) <= LOSS


@pytest.mark.parametrize("model", ["gpt2", "untied, biases", "fc_mnist"])
def test_no_panel_is_read_between_its_update_and_the_end_of_the_step(monkeypatch, model):
    """Without clipping a panel is updated while backward goes on, and layers are still running forward again."""
    monkeypatch.setattr(_graph, "PANEL_BYTES", 3 * 4 * 8)
    graph = graph_of(model)
    with machine(graph, 8, recompute="always", lanes=3, executor=INTERPRETER) as appliance:
        memoryx, events = appliance.memoryx, []
        acquire, take = memoryx.acquire, memoryx._updates.take
        monkeypatch.setattr(memoryx, "acquire", lambda panel: (events.append(("read", panel)), acquire(panel))[1])
        monkeypatch.setattr(
            memoryx._updates, "take", lambda panel, gradient: (events.append(("update", panel)), take(panel, gradient))
        )
        appliance.train_step(random_batch(graph, 8), 1, 0.1)
    updates = {panel: at for at, (event, panel) in enumerate(events) if event == "update"}
    assert sorted(map(str, updates)) == sorted(
        str(panel) for panels in memoryx.arrays.panels.values() for panel in panels
    )
    assert all(at < updates[panel] for at, (event, panel) in enumerate(events) if event == "read")
    assert min(updates.values()) < max(at for at, (event, _) in enumerate(events) if event == "read")


def test_evaluation_has_no_dropout_and_sums_the_losses():
    graph = decoder(dropout=0.5)
    batch = random_batch(graph, 4)
    with machine(graph, 4) as appliance:
        [found] = appliance.evaluate(batch, 0)
        weights = {name: weight.astype(np.float64) for name, weight in arrays_of(appliance, "model.").items()}
    assert found.total == pytest.approx(reference.loss(graph, weights, batch.arrays, 3, None), rel=LOSS)


@pytest.mark.parametrize(("scaling", "divisor"), [("batch_size", 8.0), ("num_tokens", 2.0 * 25)])
def test_a_loss_is_scaled_as_the_graph_says(scaling, divisor):
    batch = random_batch(GRAPH, 4, masked=0.2)
    assert batch.tokens == 25
    graph = replace(GRAPH, losses=(Loss("loss", scaling, 0.5),))
    with machine(graph, 4) as appliance:
        loss = appliance.train_step(batch, 1, 0.1).loss
        assert loss == pytest.approx(appliance.evaluate(batch, 0)[0].total / divisor, rel=LOSS)


def test_a_batch_whose_tokens_are_all_masked_has_no_loss_and_no_gradient():
    batch = random_batch(GRAPH, 4, masked=1.1)
    with machine(GRAPH, 4) as appliance:
        assert appliance.train_step(batch, 1, 0.1).loss == 0.0
        gradients = arrays_of(appliance, "optimizer.", ".gradient")
    assert {name for name, gradient in gradients.items() if gradient.any()} == set()


@pytest.mark.parametrize(
    "model", ["gpt2", "untied, biases", "fc_mnist", "llama", "gemma2", "jais", "capped logits, bias"]
)
def test_gradients_of_weights_in_several_panels_are_derivatives_too(monkeypatch, model):
    monkeypatch.setattr(_graph, "PANEL_BYTES", 3 * 4 * 8)
    check_gradients(graph_of(model, layers=2), 8, 5)


def test_the_account_of_memory_counts_what_was_allocated_and_systems_are_laid_out_once_for_each_purpose():
    graph = decoder(position_embedding_type="fixed")
    optimizer = make_optimizer(AdamW(learning_rate=0.01), None)
    with machine(graph, 8, optimizer=optimizer) as appliance:
        systems = [appliance.prepare(8, trains=trains) for trains in (True, False)]
        assert appliance.prepare(8, trains=True) is systems[0] is not systems[1]
        appliance.train_step(random_batch(graph, 8), 1, 0.1)
        account = appliance.memory_account()
    assert account == {
        "weights": 4 * graph.parameter_count,
        "optimizer_state": 2 * 4 * graph.parameter_count,
        "gradients": appliance.memoryx.buffers.allocated_bytes + systems[0].gradient_bytes,
        "activations": sum(4 * s.plan.slot_bytes for s in systems),
        "scratch": systems[0].scratch_bytes,
        "tables": table_bytes(),
    }
    assert min(account.values()) > 0


def test_evaluation_beside_training_takes_at_most_a_quarter_of_the_memory():
    slot_bytes = make_plan(GRAPH, 1, trains=False).slot_bytes
    with make_appliance(
        GRAPH, optimizer=make_optimizer(SGD(), None), memory_bytes=8 * slot_bytes, **USUAL
    ) as appliance:
        evaluation = appliance.prepare(4, trains=False)
    assert (evaluation.waves, evaluation.layout.deal.slots) == (2, [2])
