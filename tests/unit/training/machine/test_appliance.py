"""The appliance as a whole: its losses and its gradients are those of the model, computed slowly."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cstool.model.ir import Graph, Loss, _graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import SGD, AdamW
from cstool.training.kernels.tables import table_bytes
from cstool.training.machine.plan import make_plan
from tests.models import (
    BALANCED,
    DPRS,
    ENCODER_DECODERS,
    ENCODERS,
    FAMILIES,
    PREFERENCES,
    VISION,
    decoder,
    dpr,
    encoder,
    encoder_decoder,
    fc_mnist,
    preferences,
    vision,
)
from tests.reference import models as reference
from tests.unit.training.machine.machines import (
    GRADIENT_TOLERANCE,
    USUAL,
    array_of,
    arrays_of,
    check_gradients,
    machine,
    make_appliance,
    random_batch,
)

MODELS: dict[str, Callable[[], Graph]] = {
    "decoder": lambda: decoder(layers=2),
    "decoder, dropout": lambda: decoder(layers=2, dropout=0.2),
    "decoder, untied, biases": lambda: decoder(share_embedding_weights=False, use_bias_in_output=True),
    "decoder, relu, no biases": lambda: decoder(
        nonlinearity="relu",
        use_projection_bias_in_attention=False,
        use_ffn_bias_in_attention=False,
        use_ffn_bias=False,
        dropout=0.1,
    ),
    "decoder, short samples": lambda: decoder(sequence=5, max_position_embeddings=8),
    "fc_mnist": fc_mnist,
    "fc_mnist, dropout": lambda: fc_mnist(activation_fn="gelu", dropout=0.3),
    "fc_mnist, no biases": lambda: fc_mnist(use_bias=False),
}
WINDOW = {"attention_sliding_window_length": 2}
SINKS = {**WINDOW, "apply_attention_sinks": True}
OTHER_WINDOWS = {**WINDOW, "sliding_window_every_other_decoder_layer": True, "layers": 2}
ROTARY = {"position_embedding_type": "rotary", "rotary_dim": 4}
FIXED, SCALED = {"position_embedding_type": "fixed"}, {"embeddings_scale": 3.0}
SHARED = {"num_shared_experts": 2, "null_expert_bias": 1.1, "router_use_bias": True, "load_balancing_loss_coef": 0.3}
SIGMOIDS = {"router_selection_nonlinearity": "sigmoid", "load_balancing_loss_coef": 0.3}
WEIGHTED = {"expert_weighting_nonlinearity": "sigmoid", "expert_weighting_normalization": False}
LONGER, LONGEST = {"original_max_position_embeddings": 16}, {"original_max_position_embeddings": 64}
VARIANTS: dict[str, dict[str, Any]] = {
    "shared experts, biases, one choice": {"moe": {"num_experts": 3, "top_k": 1, **SHARED}},
    "experts by sigmoids": {"nonlinearity": "swiglu", "moe": {"num_experts": 5, "top_k": 3, **SIGMOIDS}},
    "experts by softmax, weighted by sigmoids": {
        "nonlinearity": "relu",
        "moe": {"num_experts": 4, "top_k": 4, "load_balancing_loss_coef": 0.3, **WEIGHTED},
    },
    "balanced experts": BALANCED,
    "experts beside attention": {**FAMILIES["gptj"], "moe": {"num_experts": 3, "top_k": 2}},
    "learned positions, norm, scale": {"embedding_layer_norm": True, **SCALED},
    "fixed positions": FIXED,
    "fixed positions, norm, scale": {**FIXED, "embedding_layer_norm": True, **SCALED},
    "no positions, scale": {"position_embedding_type": None, **SCALED},
    "norms without biases": {"norm_type": "biasless-layernorm"},
    "sandwich with biases": {"norm_first_sandwich": True, "name": "gemma2"},
    "inner size": {"attention_inner_dim": 12},
    "window, sinks": {**SINKS, "attention_sink_tokens": 1},
    "window, sinks, alibi, cap": {
        **SINKS,
        "attention_sliding_window_length": 3,
        "attention_sink_tokens": 2,
        "position_embedding_type": "alibi",
        "pos_scaling_factor": 2.0,
        "attention_logit_softcapping": 1.5,
    },
    "every other window": OTHER_WINDOWS,
    "scores by layer": {"scale_qk_dot_by_layer_idx": True, "attention_type": "dot_product", "layers": 2},
    "capped logits, bias": {"final_logit_softcapping": 2.0, "output_logits_scale": 0.5, "use_bias_in_output": True},
    "llama3": {**ROTARY, "pos_scaling_type": "llama3", "pos_scaling_factor": 8.0, "pos_scaling_extra_args": LONGER},
    "yarn": {**ROTARY, "pos_scaling_type": "yarn", "pos_scaling_factor": 4.0, "pos_scaling_extra_args": LONGEST},
    "parallel, learned positions, gated": {
        "name": "gptj",
        "position_embedding_type": "learned",
        "use_ffn_bias": True,
        "nonlinearity": "geglu",
    },
    "parallel, windows": {**OTHER_WINDOWS, "name": "falcon", "rotary_dim": 2},
    **{name: {"nonlinearity": name} for name in ("silu", "squared_relu", "quick_gelu", "linear", "reglu", "liglu")},
}
DECODERS: dict[str, dict[str, Any]] = {**{name: {"layers": 2, **FAMILIES[name]} for name in FAMILIES}, **VARIANTS}
DROPPED = pytest.mark.parametrize(
    ("recompute", "dropout"),
    [("always", 0.1), pytest.param("never", 0.0, marks=pytest.mark.lab)],
)
GRAPH = decoder()
LOSS = 1e-6
"""relative error of a loss in float32: a mean over many tokens, whose errors mostly cancel"""


@pytest.mark.parametrize("recompute", ["never", "always"])
@pytest.mark.parametrize("model", MODELS)
def test_every_gradient_is_the_derivative_of_the_loss(model, recompute):
    assert check_gradients(MODELS[model](), 8, 5, recompute=recompute) <= LOSS


@pytest.mark.parametrize("model", DECODERS)
def test_loss_and_gradients_of_any_decoder_are_right_with_dropout_in_waves_and_lanes(model):
    """Five grains in waves of two and of three; of five systems one gets none, and one a grain in both waves."""
    graph = decoder(dropout=0.1, sequence=6, **DECODERS[model])
    slot_bytes = make_plan(graph, 1, trains=True).slot_bytes
    in_waves = {"memory_bytes": 5 * slot_bytes - 1, "recompute": "never", "num_csx": 5}
    with machine(graph, 5, **in_waves) as appliance:
        systems = appliance.training_cluster
        assert (systems.waves, systems.layout.deal.slots) == (2, [0, 1, 1, 1, 1])
    assert check_gradients(graph, 5, 5, directions=1, lanes=2, **in_waves) <= LOSS


@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.lab), 0.1])
@pytest.mark.parametrize(("make", "model"), [*((encoder, n) for n in ENCODERS), *((vision, n) for n in VISION)])
def test_losses_and_gradients_of_any_encoder_are_right_with_padding_and_in_lanes(make, model, dropout):
    graph = make(dropout=dropout, **(ENCODERS | VISION)[model])
    # Norms follow each other without a residual past them: each makes errors larger by 1 / deviation of 8 numbers.
    assert check_gradients(graph, 6, 5, 1, 4 * GRADIENT_TOLERANCE, lanes=2, num_csx=2) <= LOSS


@DROPPED
@pytest.mark.parametrize("model", ENCODER_DECODERS)
def test_losses_and_gradients_of_any_encoder_decoder_are_right_with_padding_and_in_lanes(model, recompute, dropout):
    """Layers read one table of biases and one output of the encoder, so the sums of their gradients are in it."""
    graph = encoder_decoder(dropout=dropout, **{"layers": 2, **ENCODER_DECODERS[model]})
    settings = {"lanes": 2, "num_csx": 2, "recompute": recompute}
    assert check_gradients(graph, 6, 5, 1, 4 * GRADIENT_TOLERANCE, **settings) <= LOSS


@pytest.mark.parametrize("targets", [3, 8, 11])
def test_targets_may_be_shorter_or_longer_than_the_source(targets):
    assert check_gradients(encoder_decoder(targets=targets, layers=2), 4, 1, lanes=2) <= LOSS


@DROPPED
@pytest.mark.parametrize("model", PREFERENCES)
def test_losses_and_gradients_of_pairs_are_right_in_lanes(model, dropout, recompute):
    """The reference is not the policy: all weights are random."""
    graph = preferences(dropout=dropout, **{**PREFERENCES[model], "layers": 3})
    # What a pair's loss depends on is a difference of sums over tokens, of which it is a small part.
    tolerance = 4 * GRADIENT_TOLERANCE
    assert check_gradients(graph, 6, 5, 1, tolerance, lanes=2, num_csx=2, recompute=recompute) <= 4 * LOSS


@pytest.mark.takes("slopes of two encoders, of every weight")
@pytest.mark.parametrize(
    ("model", "recompute"),
    [
        pytest.param(model, recompute, marks=[pytest.mark.lab] if number % 2 == alike else [])
        for number, model in enumerate(DPRS)
        for alike, recompute in enumerate(("never", "always"))
    ],
)
def test_gradients_go_through_a_barrier_in_waves_and_lanes(model, recompute):
    """Seven grains of which three meet the others before they go forward once more."""
    graph = dpr(dropout=0.1, layers=2, **DPRS[model])
    slot_bytes = make_plan(graph, 1, trains=True, recomputes=recompute == "always").slot_bytes
    in_waves = {"memory_bytes": 4 * slot_bytes, "recompute": recompute, "num_csx": 1, "lanes": 2}
    with machine(graph, 7, **in_waves) as appliance:
        legs = [("forward", 0), ("forward", 1), ("meet", 0), ("backward", 1), ("again", 0), ("backward", 0)]
        assert [tuple(leg) for leg in appliance.training_cluster.legs] == legs
    assert check_gradients(graph, 7, 5, 1, 4 * GRADIENT_TOLERANCE, **in_waves) <= LOSS


@pytest.mark.parametrize("model", ["decoder", "decoder, untied, biases", "fc_mnist"])
def test_no_panel_is_read_between_its_update_and_the_end_of_the_step(monkeypatch, model):
    """Without clipping a panel is updated while backward goes on, and layers are still running forward again."""
    monkeypatch.setattr(_graph, "PANEL_BYTES", 3 * 4 * 8)
    graph = MODELS[model]()
    with machine(graph, 8, recompute="always", lanes=3) as appliance:
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
    "model", ["decoder", "decoder, untied, biases", "fc_mnist", "llama", "gemma2", "jais", "capped logits, bias"]
)
def test_gradients_of_weights_in_several_panels_are_derivatives_too(monkeypatch, model):
    monkeypatch.setattr(_graph, "PANEL_BYTES", 3 * 4 * 8)
    graph = decoder(**DECODERS[model]) if model in DECODERS else MODELS[model]()
    check_gradients(graph, 8, 5, directions=1)


def test_rows_of_an_untied_embedding_that_no_token_reads_have_no_gradient():
    graph = decoder(share_embedding_weights=False)
    batch = random_batch(graph, 4)
    with machine(graph, 4) as appliance:
        assert appliance.train_step(batch, 1, 0.1).gradient_norm is None, "without clipping nobody computes it"
        gradient = array_of(appliance, "optimizer.embedding_layer.word_embeddings.weight.gradient")
    assert set(np.flatnonzero(gradient.any(axis=1))) == set(batch.arrays["input_ids"].ravel())


def test_a_weight_whose_learning_rate_is_scaled_to_0_stays_as_it_is():
    scales = {name: 0.0 for name in GRAPH.weights if "ffn" in name}
    optimizer = make_optimizer(AdamW(learning_rate=0.1, weight_decay=0.1), None)
    with machine(GRAPH, 4, optimizer=optimizer, learning_rate_scales=scales) as appliance:
        before = arrays_of(appliance, "model.")
        appliance.train_step(random_batch(GRAPH, 4), 1, 0.1)
        after = arrays_of(appliance, "model.")
    still = {name for name in GRAPH.weights if np.array_equal(before[name], after[name])}
    assert still == scales.keys()


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
        "gradients": appliance.memoryx.buffers.allocated_bytes,
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
