"""What `make_loss_curves.py` trains: small models, in the vendor's keys, each with a seed for its weights and data.

A family's keys are those of the vendor's stock files for it, with numbers so small, and so chosen, that every branch is
taken and a mistake shows: windows shorter than the sequence, caps about as large as what they cap, a base of the
rotary frequencies that lets the slowest pair turn too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]

GPT2 = {
    "name": "gpt2",
    "vocab_size": 97,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_heads": 4,
    "filter_size": 256,
    "max_position_embeddings": 32,
    "position_embedding_type": "learned",
    "nonlinearity": "gelu",
    "layer_norm_epsilon": 1.0e-5,
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
}
WARMED_UP = [
    {
        "SequentialLR": {
            "schedulers": [
                {"LinearLR": {"initial_learning_rate": 1.0e-3, "end_learning_rate": 1.0e-2, "total_iters": 4}},
                {"CosineDecayLR": {"initial_learning_rate": 1.0e-2, "end_learning_rate": 1.0e-3, "total_iters": 6}},
            ]
        }
    }
]

SIZES = {
    "vocab_size": 97,
    "hidden_size": 64,
    "filter_size": 128,
    "num_heads": 8,
    "num_hidden_layers": 3,
    "max_position_embeddings": 32,
}
NO_DROPOUT = {"dropout_rate": 0.0, "embedding_dropout_rate": 0.0, "attention_dropout_rate": 0.0}
NO_DROPOUT_PARALLEL = {"residual_dropout_rate": 0.0, "embedding_dropout_rate": 0.0, "attention_dropout_rate": 0.0}
NO_BIASES = {
    "use_projection_bias_in_attention": False,
    "use_ffn_bias_in_attention": False,
    "use_ffn_bias": False,
    "use_bias_in_output": False,
}
LLAMA = {
    "name": "llama",
    **SIZES,
    **NO_DROPOUT,
    **NO_BIASES,
    "attention_module": "multiquery_attention",
    "attention_type": "scaled_dot_product",
    "extra_attention_params": {"num_kv_groups": 2},
    "embedding_layer_norm": False,
    "layer_norm_epsilon": 1.0e-5,
    "loss_scaling": "num_tokens",
    "loss_weight": 1.0,
    "nonlinearity": "swiglu",
    "norm_type": "rmsnorm",
    "position_embedding_type": "rotary",
    "rope_theta": 100.0,
    "rotary_dim": 8,
    "share_embedding_weights": False,
}
MISTRAL = {
    "name": "mistral",
    **SIZES,
    **NO_DROPOUT,
    **NO_BIASES,
    "num_heads": 4,
    "position_embedding_type": "rotary",
    "rotary_dim": 16,
    "share_embedding_weights": False,
    "layer_norm_epsilon": 1.0e-5,
    "norm_type": "rmsnorm",
    "attention_type": "scaled_dot_product",
    "attention_module": "multiquery_attention",
    "extra_attention_params": {"num_kv_groups": 2},
    "attention_sliding_window_length": 8,
    "nonlinearity": "swiglu",
}
# The stock files of Falcon leave the scaling of the loss out: the vendor divides by the number of tokens.
FALCON = {
    "name": "falcon",
    **SIZES,
    **NO_DROPOUT_PARALLEL,
    **NO_BIASES,
    "position_embedding_type": "rotary",
    "share_embedding_weights": True,
    "attention_module": "multiquery_attention",
    "attention_type": "scaled_dot_product",
    "nonlinearity": "gelu",
    "layer_norm_epsilon": 1.0e-5,
}
GPTJ = {
    "name": "gptj",
    **SIZES,
    **NO_DROPOUT_PARALLEL,
    "num_heads": 4,
    "position_embedding_type": "rotary",
    "share_embedding_weights": False,
    "attention_type": "scaled_dot_product",
    "use_projection_bias_in_attention": False,
    "use_ffn_bias_in_attention": False,
    "use_ffn_bias": True,
    "nonlinearity": "gelu",
    "rotary_dim": 8,
    "layer_norm_epsilon": 1.0e-5,
    "use_bias_in_output": True,
    "loss_scaling": "num_tokens",
    "loss_weight": 1.0,
}
# The reference is `torch.optim`, whose form is asked for.
ADAMW = {"betas": [0.9, 0.95], "eps": 1.0e-8, "weight_decay": 0.1, "correct_bias": True, "form": "pytorch"}


def family(seed: int, model: Config, *, optimizer: Config | None = None) -> Config:
    """Return a case of a family: AdamW, a warm-up, gradients clipped by their norm."""
    return {
        "seed": seed,
        "batch_size": 8,
        "model": dict(model),
        "optimizer": dict(optimizer or {"AdamW": ADAMW}),
        "schedulers": WARMED_UP,
        "precision": {"enabled": False, "max_gradient_norm": 1.0},
    }


CASES: dict[str, Config] = {
    "decoder_tied": {
        "seed": 1,
        "batch_size": 8,
        "model": GPT2
        | {
            "share_embedding_weights": True,
            "use_projection_bias_in_attention": True,
            "use_ffn_bias_in_attention": True,
            "use_ffn_bias": True,
            "use_bias_in_output": False,
            "loss_scaling": "num_tokens",
            "loss_weight": 1.0,
        },
        "optimizer": {"AdamW": {"betas": [0.9, 0.95], "eps": 1.0e-8, "weight_decay": 0.1, "form": "pytorch"}},
        "schedulers": WARMED_UP,
        "precision": {"enabled": False, "max_gradient_norm": 1.0},
    },
    "decoder_untied": {
        "seed": 2,
        "batch_size": 8,
        "model": GPT2
        | {
            "share_embedding_weights": False,
            "use_projection_bias_in_attention": False,
            "use_ffn_bias_in_attention": False,
            "use_ffn_bias": False,
            "use_bias_in_output": True,
            "loss_scaling": "batch_size",
            "loss_weight": 1.0 / 32.0,
        },
        "optimizer": {"Adam": {"betas": [0.9, 0.999], "eps": 1.0e-8, "weight_decay": 0.0, "form": "pytorch"}},
        "schedulers": [{"ConstantLR": {"learning_rate": 3.0e-3}}],
        "precision": {"enabled": False, "max_gradient_value": 0.01},
    },
    "lion": {
        "seed": 25,
        "batch_size": 8,
        "model": GPT2 | NO_BIASES | {"share_embedding_weights": True, "loss_scaling": "num_tokens", "loss_weight": 1.0},
        "optimizer": {"Lion": {"betas": [0.9, 0.99], "weight_decay": 0.1}},
        "schedulers": [{"ConstantLR": {"learning_rate": 1.0e-3}}],
        "precision": {"enabled": False, "max_gradient_norm": 1.0},
    },
    "adafactor": {
        "seed": 26,
        "batch_size": 8,
        "model": GPT2 | NO_BIASES | {"share_embedding_weights": True, "loss_scaling": "num_tokens", "loss_weight": 1.0},
        "optimizer": {"Adafactor": {"weight_decay": 0.1, "adjust_learning_rate": {"embedding": 0.5}}},
        "schedulers": [{"ConstantLR": {"learning_rate": 1.0e-2}}],
        "precision": {"enabled": False, "max_gradient_norm": 1.0},
    },
    "fc_mnist": {
        "seed": 3,
        "batch_size": 16,
        "model": {"name": "fc_mnist", "hidden_sizes": [64, 32], "activation_fn": "relu", "dropout": 0.0},
        "optimizer": {"SGD": {"momentum": 0.9}},
        "schedulers": [{"ConstantLR": {"learning_rate": 0.05}}],
    },
    "fc_mnist_nesterov": {
        "seed": 4,
        "batch_size": 16,
        "model": {"name": "fc_mnist", "depth": 3, "hidden_size": 50, "activation_fn": "relu", "dropout": 0.0},
        "optimizer": {"SGD": {"momentum": 0.9, "nesterov": True, "dampening": 0.0, "weight_decay": 0.1}},
        "schedulers": [{"ConstantLR": {"learning_rate": 0.02}}],
    },
    # Of the four frequencies one is kept, one is between, two are divided by the factor.
    "llama": family(
        5,
        LLAMA
        | {
            "pos_scaling_type": "llama3",
            "pos_scaling_factor": 8.0,
            "pos_scaling_extra_args": {
                "high_freq_factor": 2.0,
                "low_freq_factor": 0.5,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    # Of the six frequencies two are kept, two are between, two are divided by the factor; 4 of 16 elements do not turn.
    "llama_yarn": family(
        6,
        LLAMA
        | {
            "num_heads": 4,
            "rotary_dim": 12,
            "pos_scaling_type": "yarn",
            "pos_scaling_factor": 4.0,
            "pos_scaling_extra_args": {"original_max_position_embeddings": 8, "beta_fast": 0.5, "beta_slow": 0.1},
        },
    ),
    # Not reglu: where a ReLU has its kink, rounding decides which way a curve goes on, here 4e-5 apart.
    "llama_linear": family(
        7, LLAMA | {"pos_scaling_type": "linear", "pos_scaling_factor": 2.0, "nonlinearity": "liglu"}
    ),
    "mistral": family(8, MISTRAL),
    # Sinks as the vendor's mask has them, and its parallel decoders: release 2.10 reads the key of the others in vain.
    "mistral_sinks": family(
        9,
        MISTRAL | {"attention_sliding_window_length": 6, "attention_sink_tokens": 3, "apply_attention_sinks": True},
    ),
    "falcon": family(
        10,
        FALCON
        | {
            "num_heads": 4,
            "rotary_dim": 16,
            "use_untied_layer_norm": False,
            "extra_attention_params": {"num_kv_groups": 1},
        },
        optimizer={"adamw": ADAMW | {"betas": [0.9, 0.999]}},
    ),
    "falcon_two_norms": family(
        11, FALCON | {"rotary_dim": 8, "use_untied_layer_norm": True, "extra_attention_params": {"num_kv_groups": 2}}
    ),
    "bloom": family(
        12,
        {
            "name": "bloom",
            **SIZES,
            "hidden_size": 72,
            "num_heads": 6,
            "dropout_rate": 0.0,
            "attention_dropout_rate": 0.0,
            "position_embedding_type": "alibi",
            "alibi_trainable_slopes": False,
            "share_embedding_weights": True,
            "embedding_layer_norm": True,
            "layer_norm_epsilon": 1.0e-5,
            "attention_type": "scaled_dot_product",
            "use_projection_bias_in_attention": True,
            "use_ffn_bias_in_attention": True,
            "nonlinearity": "gelu",
            "use_ffn_bias": True,
            "use_bias_in_output": False,
            "loss_scaling": "num_tokens",
            "loss_weight": 1.0,
        },
    ),
    "gptj": family(13, GPTJ),
    # Without `rotary_dim` the vendor turns a quarter of each head.
    "gpt-neox": family(
        14,
        {
            **{key: value for key, value in GPTJ.items() if key != "rotary_dim"},
            "name": "gpt-neox",
            "use_untied_layer_norm": True,
            "use_projection_bias_in_attention": True,
            "use_ffn_bias_in_attention": True,
            "use_bias_in_output": False,
            "nonlinearity": "gelu_new",
        },
    ),
    "gemma2": family(
        15,
        {
            "name": "gemma2",
            **SIZES,
            "num_heads": 4,
            "num_hidden_layers": 4,
            "dropout_rate": 0.0,
            "attention_dropout_rate": 0.0,
            "attention_inner_dim": 96,
            "attention_logit_softcapping": 2.0,
            "attention_module": "multiquery_attention",
            "attention_sliding_window_length": 8,
            "embeddings_scale": 8.0,
            "extra_attention_params": {"num_kv_groups": 2},
            "final_logit_softcapping": 3.0,
            "layer_norm_epsilon": 1.0e-6,
            "nonlinearity": "geglu",
            "norm_first_sandwich": True,
            "norm_type": "rmsnorm",
            "position_embedding_type": "rotary",
            "rope_theta": 10000.0,
            "rotary_dim": 24,
            "share_embedding_weights": True,
            "sliding_window_every_other_decoder_layer": True,
            "use_ffn_bias": False,
            "use_ffn_bias_in_attention": False,
            "use_projection_bias_in_attention": False,
        },
    ),
    # muP without `scale_qk_dot_by_d`: the vendor then divides by the width of a head, not its root.
    "mup": family(
        16,
        GPT2
        | {
            "name": "gpt3",
            "share_embedding_weights": True,
            "mup_base_hidden_size": 16,
            "mup_base_filter_size": 128,
            "embeddings_scale": 4.0,
            "attention_logits_alpha": 2.0,
            "output_logits_alpha": 3.0,
            "loss_scaling": "num_tokens",
            "loss_weight": 1.0,
        },
        optimizer={"AdamW": ADAMW | {"weight_decay": 2.0}},
    ),
    "mup_parallel": family(
        17,
        GPTJ
        | {
            "mup_base_hidden_size": 16,
            "mup_base_filter_size": 64,
            "embeddings_scale": 4.0,
            "attention_logits_alpha": 4.0,
            "output_logits_alpha": 3.0,
            "scale_output_logits_by_d": False,
            "scale_qk_dot_by_d": True,
        },
        optimizer={"AdamW": ADAMW | {"adjust_learning_rate": {"decoder_input_ffn": 0.75, "embedding": 0.5}}},
    ),
    "adjusted_rates": family(
        18,
        GPT2 | {"name": "gpt3", "share_embedding_weights": False, "nonlinearity": "quick_gelu"},
        optimizer={"AdamW": ADAMW | {"adjust_learning_rate": {"embedding": 2.0, "decoder_kernel": 0.5}}},
    ),
    "jais": family(
        19,
        {
            "name": "jais",
            **SIZES,
            "num_heads": 4,
            "dropout_rate": 0.0,
            "attention_dropout_rate": 0.0,
            "attention_type": "scaled_dot_product",
            "embeddings_scale": 4.0,
            "filter_size": 171,
            "layer_norm_epsilon": 1.0e-5,
            "loss_scaling": "batch_size",
            "loss_weight": 1.0 / 32.0,
            "nonlinearity": "swiglu",
            "norm_type": "layernorm",
            "pos_scaling_factor": 2.0,
            "position_embedding_type": "alibi",
            "share_embedding_weights": True,
            "use_bias_in_output": False,
            "use_ffn_bias": True,
            "use_ffn_bias_in_attention": True,
            "use_projection_bias_in_attention": True,
        },
    ),
    "starcoder": family(
        20,
        {
            "name": "starcoder",
            **SIZES,
            **NO_DROPOUT,
            "position_embedding_type": "learned",
            "share_embedding_weights": True,
            "attention_module": "multiquery_attention",
            "attention_type": "scaled_dot_product",
            "scale_qk_dot_by_layer_idx": True,
            "extra_attention_params": {"num_kv_groups": 1},
            "use_projection_bias_in_attention": True,
            "use_ffn_bias_in_attention": True,
            "use_ffn_bias": True,
            "nonlinearity": "gelu",
            "layer_norm_epsilon": 1.0e-5,
            "use_bias_in_output": False,
            "loss_scaling": "num_tokens",
            "loss_weight": 1.0,
        },
    ),
    "fixed_positions": family(
        21,
        GPT2
        | {
            "share_embedding_weights": False,
            "position_embedding_type": "fixed",
            "attention_type": "dot_product",
            "nonlinearity": "squared_relu",
            "norm_type": "biasless-layernorm",
            "use_bias_in_output": True,
        },
    ),
}
