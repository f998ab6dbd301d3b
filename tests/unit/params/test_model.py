"""The model section: defaults are the vendor's, what cannot be had is refused, sizes fit together."""

from __future__ import annotations

from typing import Any

import pytest

from cstool.ir import Initializer


def fc(**keys: Any) -> dict[str, Any]:
    return {"init.model": {"name": "fc_mnist", **keys}}


def gpt(**keys: Any) -> dict[str, Any]:
    return {"init.model": {"name": "gpt2", **keys}}


def test_a_decoder_has_the_defaults_of_the_vendor(load) -> None:
    bounds = {"name": "truncated_normal", "mean": 0.0, "std": 0.02, "val": 0.0, "a": -0.04, "b": 0.04}
    std = 0.02 / 24**0.5
    assert load(gpt()).model.dump() == {
        "name": "gpt2",
        "vocab_size": 50257,
        "max_position_embeddings": 1024,
        "share_embedding_weights": True,
        "num_hidden_layers": 12,
        "num_heads": 12,
        "hidden_size": 768,
        "filter_size": 3072,
        "nonlinearity": "gelu",
        "layer_norm_epsilon": 1e-5,
        "dropout_rate": 0.1,
        "attention_dropout_rate": 0.1,
        "residual_dropout_rate": 0.1,
        "embedding_dropout_rate": 0.1,
        "use_projection_bias_in_attention": True,
        "use_ffn_bias_in_attention": True,
        "use_ffn_bias": True,
        "use_bias_in_output": False,
        "loss_scaling": "num_tokens",
        "loss_weight": 1.0,
        "initializer_range": 0.02,
        "initializer": bounds,
        "embedding_initializer": bounds,
        "output_layer_initializer": {
            **bounds,
            "std": pytest.approx(std),
            "a": pytest.approx(-2 * std),
            "b": pytest.approx(2 * std),
        },
    }


def test_gpt3_is_the_same_family(load) -> None:
    assert type(load(gpt(name="gpt3")).model) is type(load(gpt()).model)


def test_residual_and_embedding_dropout_follow_dropout_rate_and_attention_does_not(load) -> None:
    model = load(gpt(dropout_rate=0.3)).model
    rates = (model.residual_dropout_rate, model.embedding_dropout_rate, model.attention_dropout_rate)
    assert rates == (0.3, 0.3, 0.1)


def test_an_attention_dropout_of_null_follows_dropout_rate(load) -> None:
    assert load(gpt(dropout_rate=0.3, attention_dropout_rate=None)).model.attention_dropout_rate == 0.3


def test_each_dropout_can_be_given_on_its_own(load) -> None:
    model = load(gpt(dropout_rate=0.3, residual_dropout_rate=0.2, embedding_dropout_rate=0.0)).model
    assert (model.residual_dropout_rate, model.embedding_dropout_rate) == (0.2, 0.0)


def test_initializer_range_is_the_width_of_all_initializers_left_out(load) -> None:
    model = load(gpt(initializer_range=0.5, num_hidden_layers=2)).model
    assert [model.initializer, model.embedding_initializer, model.output_layer_initializer] == [
        Initializer("truncated_normal", 0.0, 0.5, -1.0, 1.0),
        Initializer("truncated_normal", 0.0, 0.5, -1.0, 1.0),
        Initializer("truncated_normal", 0.0, 0.25, -0.5, 0.5),
    ]


def test_an_initializer_given_alone_is_for_the_output_layers_too_but_not_for_embeddings(load) -> None:
    model = load(gpt(initializer={"name": "normal", "std": 0.1})).model
    assert [model.initializer, model.embedding_initializer, model.output_layer_initializer] == [
        Initializer("normal", 0.0, 0.1),
        Initializer("truncated_normal", 0.0, 0.02, -0.04, 0.04),
        Initializer("normal", 0.0, 0.1),
    ]


@pytest.mark.parametrize(
    ("keys", "initializer"),
    [
        ({"name": "normal", "mean": 1.0, "std": 2.0}, Initializer("normal", 1.0, 2.0)),
        ({"name": "truncated_normal", "mean": 1.0, "std": 2.0}, Initializer("truncated_normal", 1.0, 2.0, -3.0, 5.0)),
        (
            {"name": "truncated_normal", "std": 2.0, "a": -1.0, "b": 3},
            Initializer("truncated_normal", 0.0, 2.0, -1.0, 3.0),
        ),
        ({"name": "uniform"}, Initializer("uniform", low=0.0, high=1.0)),
        ({"name": "uniform", "a": -0.5, "b": 0.5}, Initializer("uniform", low=-0.5, high=0.5)),
        ({"name": "constant", "val": 3.0}, Initializer("constant", mean=3.0)),
        ({"name": "zeros"}, Initializer("constant", mean=0.0)),
        ({"name": "ones"}, Initializer("constant", mean=1.0)),
    ],
)
def test_an_initializer_of_the_file_becomes_one_of_the_graph(load, keys, initializer) -> None:
    assert load(gpt(embedding_initializer=keys)).model.embedding_initializer == initializer


def test_an_fc_network_has_defaults(load) -> None:
    model = load(fc()).model
    assert (model.layer_sizes, model.activation_fn, model.dropout, model.use_bias) == ((128,), "relu", 0.0, True)


def test_depth_repeats_hidden_size(load) -> None:
    assert load(fc(depth=3, hidden_size=50)).model.layer_sizes == (50, 50, 50)


def test_hidden_sizes_win_over_depth(load) -> None:
    assert load(fc(depth=3, hidden_size=50, hidden_sizes=[256, 128])).model.layer_sizes == (256, 128)


@pytest.mark.parametrize(
    "keys",
    [
        {"norm_type": "layernorm", "position_embedding_type": "learned", "attention_type": "scaled_dot_product"},
        {"rotary_dim": None, "alibi_trainable_slopes": False, "moe_params": None, "embeddings_scale": 1.0},
        {"attention_module": "aiayn_attention", "extra_attention_params": {}, "embedding_layer_norm": False},
    ],
)
def test_a_key_of_the_vendor_that_asks_for_what_is_done_anyway_is_accepted_silently(load, keys) -> None:
    params = load(gpt(**keys))
    assert (params.model, params.notes) == (load(gpt()).model, ())


def test_a_key_of_the_vendor_about_precision_is_noted(load) -> None:
    assert load(gpt(mixed_precision=True, attention_softmax_fp32=True)).notes == (
        "trainer.init.model.mixed_precision: accepted, no effect",
        "trainer.init.model.attention_softmax_fp32: accepted, no effect",
    )


M = "trainer.init.model"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"name": "gpt2", "num_heads": 12, "hidden_size": 770},
            f"x.yaml:6: {M}.hidden_size must be a multiple of num_heads (12), got 770\n"
            "hint: 768 and 780 are the nearest",
        ),
        (
            {"name": "gpt2", "hidden_size": 5},
            f"x.yaml:5: {M}.hidden_size must be a multiple of num_heads (12), got 5\nhint: 12 is the nearest",
        ),
        (
            {"name": "gpt2", "num_heads": 7},
            f"x.yaml:3: {M}.hidden_size must be a multiple of num_heads (7), got 768\n"
            "hint: 763 and 770 are the nearest",
        ),
        ({"name": "gpt2", "hidden_size": 0}, f"x.yaml:5: {M}.hidden_size must be at least 1, got 0"),
        ({"name": "gpt2", "num_hidden_layers": -1}, f"x.yaml:5: {M}.num_hidden_layers must be at least 1, got -1"),
        ({"name": "gpt2", "vocab_size": 0}, f"x.yaml:5: {M}.vocab_size must be at least 1, got 0"),
        ({"name": "gpt2", "vocab_size": 512001}, f"x.yaml:5: {M}.vocab_size must be at most 512000, got 512001"),
        ({"name": "gpt2", "dropout_rate": 1.0}, f"x.yaml:5: {M}.dropout_rate must be less than 1, got 1.0"),
        ({"name": "gpt2", "dropout_rate": -0.1}, f"x.yaml:5: {M}.dropout_rate must be at least 0, got -0.1"),
        ({"name": "gpt2", "layer_norm_epsilon": 0}, f"x.yaml:5: {M}.layer_norm_epsilon must be greater than 0, got 0"),
        (
            {"name": "gpt2", "layer_norm_epsilon": float("inf")},
            f"x.yaml:5: {M}.layer_norm_epsilon must be a finite number, got inf",
        ),
        (
            {"name": "gpt2", "use_ffn_bias": "true"},
            f"x.yaml:5: {M}.use_ffn_bias must be true or false, got 'true'",
        ),
        ({"name": "gpt2", "use_ffn_bias": 1}, f"x.yaml:5: {M}.use_ffn_bias must be true or false, got 1"),
        (
            {"name": "gpt2", "filter_size": 1536.0},
            f"x.yaml:5: {M}.filter_size must be a whole number, got 1536.0\nhint: write 1536",
        ),
        ({"name": "gpt2", "filter_size": 1.5}, f"x.yaml:5: {M}.filter_size must be a whole number, got 1.5"),
        (
            {"name": "gpt2", "filter_size": "64"},
            f"x.yaml:5: {M}.filter_size must be a whole number, got '64'\nhint: write 64, without quotes",
        ),
        ({"name": "gpt2", "filter_size": True}, f"x.yaml:5: {M}.filter_size must be a whole number, got true"),
        ({"name": "gpt2", "filter_size": [64]}, f"x.yaml:5: {M}.filter_size must be a whole number, got [64]"),
        (
            {"name": "gpt2", "loss_scaling": "tokens"},
            f"x.yaml:5: {M}.loss_scaling must be num_tokens or batch_size, got 'tokens'",
        ),
        (
            {"name": "gpt2", "position_embedding_type": "rotary"},
            f"x.yaml:5: not supported: {M}.position_embedding_type: rotary\nhint: supported: learned",
        ),
        (
            {"name": "gpt2", "position_embedding_type": None},
            f"x.yaml:5: not supported: {M}.position_embedding_type: null\nhint: supported: learned",
        ),
        (
            {"name": "gpt2", "norm_type": "rmsnorm"},
            f"x.yaml:5: not supported: {M}.norm_type: rmsnorm\nhint: supported: layernorm",
        ),
        (
            {"name": "gpt2", "nonlinearity": "swiglu"},
            f"x.yaml:5: not supported: {M}.nonlinearity: swiglu\nhint: supported: gelu, relu",
        ),
        ({"name": "gpt2", "rotary_dim": 64}, f"x.yaml:5: not supported: {M}.rotary_dim: 64\nhint: leave it out"),
        (
            {"name": "gpt2", "moe_params": {"num_experts": 2}},
            f"x.yaml:5: not supported: {M}.moe_params\nhint: leave it out",
        ),
        (
            {"name": "gpt2", "hiden_size": 64},
            f"x.yaml:5: {M}.hiden_size is not a known key\nhint: did you mean hidden_size?",
        ),
        ({"name": "gpt2", "xyz": None}, f"x.yaml:5: {M}.xyz is not a known key"),
        ({"name": "gpt2", "initializer": "normal"}, f"x.yaml:5: {M}.initializer must be a mapping, got 'normal'"),
        ({"name": "gpt2", "initializer": {"std": 1.0}}, f"x.yaml:5: {M}.initializer.name is missing"),
        (
            {"name": "gpt2", "initializer": {"name": "normal", "stdd": 1.0}},
            f"x.yaml:7: {M}.initializer.stdd is not a known key\nhint: did you mean std?",
        ),
        (
            {"name": "gpt2", "initializer": {"name": "uniform", "a": 1.0, "b": 0.5}},
            f"x.yaml:8: {M}.initializer.b must be greater than a (1), got 0.5",
        ),
        ({"name": "fc_mnist", "hidden_sizes": 256}, f"x.yaml:5: {M}.hidden_sizes must be a list, got 256"),
        ({"name": "fc_mnist", "hidden_sizes": [256, 0]}, f"x.yaml:7: {M}.hidden_sizes.1 must be at least 1, got 0"),
        ({"name": "fc_mnist", "dropout": 1}, f"x.yaml:5: {M}.dropout must be less than 1, got 1"),
        (
            {"name": "fc_mnist", "activation_fn": "tanh"},
            f"x.yaml:5: not supported: {M}.activation_fn: tanh\nhint: supported: relu, gelu",
        ),
        (
            {"name": "fc_mnist", "disable_softmax": True},
            f"x.yaml:5: not supported: {M}.disable_softmax: true\nhint: leave it out",
        ),
        ({"name": "llama"}, f"x.yaml:4: not supported: {M}.name: llama\nhint: supported: fc_mnist, gpt2, gpt3"),
        (
            {"name": "gtp2"},
            f"x.yaml:4: {M}.name must be one of fc_mnist, gpt2, gpt3, got 'gtp2'\nhint: did you mean gpt2?",
        ),
        ({"name": 2}, f"x.yaml:4: {M}.name must be one of fc_mnist, gpt2, gpt3, got 2"),
        ({"hidden_size": 2}, f"x.yaml:3: {M}.name is missing\nhint: the names are fc_mnist, gpt2, gpt3"),
        (["gpt2"], f"x.yaml:3: {M} must be a mapping, got ['gpt2']"),
        (None, f"x.yaml:3: {M} is missing"),
    ],
)
def test_a_model_that_cannot_be_built_is_an_error(failure, model, message) -> None:
    assert failure({"init.model": model}) == message
