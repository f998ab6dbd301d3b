"""What `make_curves.py` trains: small models, in the vendor's keys, each with a seed for its weights and data.

A family's keys are those of the vendor's stock files for it, with numbers so small, and so chosen, that every branch is
taken and a mistake shows: windows shorter than the sequence, caps about as large as what they cap, a base of the
rotary frequencies that lets the slowest pair turn too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Config = Mapping[str, Any]

SIZES = {
    "vocab_size": 97,
    "hidden_size": 64,
    "filter_size": 128,
    "num_heads": 8,
    "num_hidden_layers": 3,
    "max_position_embeddings": 32,
}
NO_DROPOUT = {"dropout_rate": 0.0, "embedding_dropout_rate": 0.0, "attention_dropout_rate": 0.0}
NO_DROPOUT_OF_GPT2 = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
NO_DROPOUT_PARALLEL = {"residual_dropout_rate": 0.0, "embedding_dropout_rate": 0.0, "attention_dropout_rate": 0.0}
NO_BIASES = {
    "use_projection_bias_in_attention": False,
    "use_ffn_bias_in_attention": False,
    "use_ffn_bias": False,
    "use_bias_in_output": False,
}
INNER_BIASES = {
    "use_projection_bias_in_attention": True,
    "use_ffn_bias_in_attention": True,
    "use_ffn_bias": True,
    "use_bias_in_output": False,
}
PER_TOKEN = {"loss_scaling": "num_tokens", "loss_weight": 1.0}
PER_SAMPLE = {"loss_scaling": "batch_size", "loss_weight": 1.0 / 32.0}
USUAL = {"attention_type": "scaled_dot_product", "layer_norm_epsilon": 1.0e-5, "nonlinearity": "gelu"}
TIED, UNTIED = ({"share_embedding_weights": tied} for tied in (True, False))


def grouped(heads_of_keys: int) -> Config:
    """Return the keys of so many heads of keys and values."""
    return {
        "attention_module": "multiquery_attention",
        "extra_attention_params": {"num_kv_groups": heads_of_keys},
    }


def rotary(width: int) -> Config:
    """Return the keys of rotary positions that turn so many elements of a head."""
    return {"position_embedding_type": "rotary", "rotary_dim": width}


GPT2 = {
    "name": "gpt2",
    **SIZES,
    **NO_DROPOUT_OF_GPT2,
    "num_heads": 4,
    "filter_size": 256,
    "position_embedding_type": "learned",
    "nonlinearity": "gelu",
    "layer_norm_epsilon": 1.0e-5,
}
LLAMA = {
    "name": "llama",
    **SIZES,
    **NO_DROPOUT,
    **NO_BIASES,
    **USUAL,
    **grouped(2),
    **PER_TOKEN,
    **rotary(8),
    **UNTIED,
    "embedding_layer_norm": False,
    "nonlinearity": "swiglu",
    "norm_type": "rmsnorm",
    "rope_theta": 100.0,
}
MISTRAL = {
    "name": "mistral",
    **SIZES,
    **NO_DROPOUT,
    **NO_BIASES,
    **USUAL,
    **grouped(2),
    **rotary(16),
    **UNTIED,
    "num_heads": 4,
    "norm_type": "rmsnorm",
    "attention_sliding_window_length": 8,
    "nonlinearity": "swiglu",
}
# The stock files of Falcon leave the scaling of the loss out: the vendor divides by the number of tokens.
FALCON = {
    "name": "falcon",
    **SIZES,
    **NO_DROPOUT_PARALLEL,
    **NO_BIASES,
    **USUAL,
    **TIED,
    "position_embedding_type": "rotary",
    "attention_module": "multiquery_attention",
}
FALCON_TWO_NORMS = FALCON | rotary(8) | grouped(2) | {"use_untied_layer_norm": True}
GPTJ = {
    "name": "gptj",
    **SIZES,
    **NO_DROPOUT_PARALLEL,
    **NO_BIASES,
    **USUAL,
    **PER_TOKEN,
    **rotary(8),
    **UNTIED,
    "num_heads": 4,
    "use_ffn_bias": True,
    "use_bias_in_output": True,
}
# Jais and BTLM.
SWIGLU_ALIBI = {
    **SIZES,
    **NO_DROPOUT_OF_GPT2,
    **INNER_BIASES,
    **USUAL,
    **PER_SAMPLE,
    **TIED,
    "filter_size": 171,
    "nonlinearity": "swiglu",
    "position_embedding_type": "alibi",
}
# The reference is `torch.optim`, whose form is asked for.
ADAMW = {"betas": [0.9, 0.95], "eps": 1.0e-8, "weight_decay": 0.1, "correct_bias": True, "form": "pytorch"}


def warmed_up(lowest: float, highest: float, rising: int, falling: int) -> list[Config]:
    """Return the schedulers of a warm-up of so many steps, and a cosine after it."""
    rise = {"initial_learning_rate": lowest, "end_learning_rate": highest, "total_iters": rising}
    fall = {"initial_learning_rate": highest, "end_learning_rate": lowest, "total_iters": falling}
    return [{"SequentialLR": {"schedulers": [{"LinearLR": rise}, {"CosineDecayLR": fall}]}}]


def case(
    seed: int, model: Config, optimizer: Config, schedulers: Sequence[Config], *, batch_size: int = 8, **clipping: float
) -> Config:
    """Return a case."""
    return {
        "seed": seed,
        "batch_size": batch_size,
        "model": dict(model),
        "optimizer": dict(optimizer),
        "schedulers": list(schedulers),
        "precision": {"enabled": False, **clipping},
    }


def constant(rate: float) -> list[Config]:
    """Return the scheduler of one learning rate."""
    return [{"ConstantLR": {"learning_rate": rate}}]


def image_case(seed: int, rate: float, optimizer: Config, **sizes: Any) -> Config:
    """Return a case of images, for which nothing is said of precision."""
    model = {"name": "fc_mnist", "activation_fn": "relu", "dropout": 0.0, **sizes}
    found = case(seed, model, {"SGD": {"momentum": 0.9, **optimizer}}, constant(rate), batch_size=16)
    return {key: value for key, value in found.items() if key != "precision"}


def family(seed: int, model: Config, **optimizer: Any) -> Config:
    """Return a case of a family: AdamW, a warm-up, gradients clipped by their norm."""
    return case(seed, model, {"AdamW": ADAMW | optimizer}, warmed_up(1.0e-3, 1.0e-2, 4, 6), max_gradient_norm=1.0)


CASES: dict[str, Config] = {
    "decoder_tied": case(
        1,
        GPT2 | TIED | INNER_BIASES | PER_TOKEN,
        {"AdamW": {key: value for key, value in ADAMW.items() if key != "correct_bias"}},
        warmed_up(1.0e-3, 1.0e-2, 4, 6),
        max_gradient_norm=1.0,
    ),
    "decoder_untied": case(
        2,
        GPT2 | UNTIED | NO_BIASES | PER_SAMPLE | {"use_bias_in_output": True},
        {"Adam": {"betas": [0.9, 0.999], "eps": 1.0e-8, "weight_decay": 0.0, "form": "pytorch"}},
        constant(3.0e-3),
        max_gradient_value=0.01,
    ),
    "lion": case(
        25,
        GPT2 | NO_BIASES | TIED | PER_TOKEN,
        {"Lion": {"betas": [0.9, 0.99], "weight_decay": 0.1}},
        constant(1.0e-3),
        max_gradient_norm=1.0,
    ),
    "adafactor": case(
        26,
        GPT2 | NO_BIASES | TIED | PER_TOKEN,
        {"Adafactor": {"weight_decay": 0.1, "adjust_learning_rate": {"embedding": 0.5}}},
        constant(1.0e-2),
        max_gradient_norm=1.0,
    ),
    "fc_mnist": image_case(3, 0.05, {}, hidden_sizes=[64, 32]),
    "fc_mnist_nesterov": image_case(
        4, 0.02, {"nesterov": True, "dampening": 0.0, "weight_decay": 0.1}, depth=3, hidden_size=50
    ),
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
    "falcon": {
        **family(10, FALCON | rotary(16) | grouped(1) | {"num_heads": 4, "use_untied_layer_norm": False}),
        "optimizer": {"adamw": ADAMW | {"betas": [0.9, 0.999]}},
    },
    "falcon_two_norms": family(11, FALCON_TWO_NORMS),
    "bloom": family(
        12,
        {
            "name": "bloom",
            **SIZES,
            **NO_DROPOUT_OF_GPT2,
            **INNER_BIASES,
            **USUAL,
            **PER_TOKEN,
            **TIED,
            "hidden_size": 72,
            "num_heads": 6,
            "position_embedding_type": "alibi",
            "alibi_trainable_slopes": False,
            "embedding_layer_norm": True,
        },
    ),
    "gptj": family(13, GPTJ),
    # Without `rotary_dim` the vendor turns a quarter of each head.
    "gpt-neox": family(
        14,
        {
            **{key: value for key, value in GPTJ.items() if key != "rotary_dim"},
            **INNER_BIASES,
            "name": "gpt-neox",
            "use_untied_layer_norm": True,
            "nonlinearity": "gelu_new",
        },
    ),
    "gemma2": family(
        15,
        {
            "name": "gemma2",
            **SIZES,
            **NO_DROPOUT_OF_GPT2,
            **{key: value for key, value in NO_BIASES.items() if key != "use_bias_in_output"},
            **grouped(2),
            **rotary(24),
            **TIED,
            "num_heads": 4,
            "num_hidden_layers": 4,
            "attention_inner_dim": 96,
            "attention_logit_softcapping": 2.0,
            "attention_sliding_window_length": 8,
            "embeddings_scale": 8.0,
            "final_logit_softcapping": 3.0,
            "layer_norm_epsilon": 1.0e-6,
            "nonlinearity": "geglu",
            "norm_first_sandwich": True,
            "norm_type": "rmsnorm",
            "rope_theta": 10000.0,
            "sliding_window_every_other_decoder_layer": True,
        },
    ),
    # muP without `scale_qk_dot_by_d`: the vendor then divides by the width of a head, not its root.
    "mup": family(
        16,
        GPT2
        | TIED
        | PER_TOKEN
        | {
            "name": "gpt3",
            "mup_base_hidden_size": 16,
            "mup_base_filter_size": 128,
            "embeddings_scale": 4.0,
            "attention_logits_alpha": 2.0,
            "output_logits_alpha": 3.0,
        },
        weight_decay=2.0,
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
        adjust_learning_rate={"decoder_input_ffn": 0.75, "embedding": 0.5},
    ),
    "adjusted_rates": family(
        18,
        GPT2 | UNTIED | {"name": "gpt3", "nonlinearity": "quick_gelu"},
        adjust_learning_rate={"embedding": 2.0, "decoder_kernel": 0.5},
    ),
    "jais": family(
        19,
        SWIGLU_ALIBI
        | {
            "name": "jais",
            "num_heads": 4,
            "embeddings_scale": 4.0,
            "norm_type": "layernorm",
            "pos_scaling_factor": 2.0,
        },
    ),
    "starcoder": family(
        20,
        {
            "name": "starcoder",
            **SIZES,
            **NO_DROPOUT,
            **INNER_BIASES,
            **USUAL,
            **grouped(1),
            **PER_TOKEN,
            **TIED,
            "position_embedding_type": "learned",
            "scale_qk_dot_by_layer_idx": True,
        },
    ),
    "relative_positions": family(
        27,
        GPT2
        | TIED
        | PER_TOKEN
        | {"position_embedding_type": "relative", "num_relative_attention_buckets": 12, "num_heads": 4},
    ),
    "trained_slopes": family(
        28,
        SWIGLU_ALIBI | {"name": "jais", "num_heads": 4, "alibi_trainable_slopes": True, "pos_scaling_factor": 2.0},
    ),
    # As in Qwen3.
    "norms_of_heads": family(
        29,
        LLAMA
        | {
            "attention_inner_dim": 96,
            "num_heads": 4,
            "rotary_dim": 24,
            "attention_qk_norm_layer": "rmsnorm",
            "attention_qk_norm_eps": 1.0e-6,
            "apply_attention_qk_norm": True,
        },
    ),
    "chunks_and_columns": family(
        30,
        LLAMA
        | {
            "attention_chunk_size": 6,
            "attention_vertical_column_spacing": 5,
            "attention_vertical_column_width": 2,
            "apply_attention_pattern": True,
        },
    ),
    "fixed_sparse": family(
        31,
        GPT2
        | TIED
        | PER_TOKEN
        | {
            "name": "gpt3",
            "fixed_sparse_attention": {"local_attn_ctx": 8, "num_verts": 4, "vert_size": 2},
            "apply_attention_pattern": True,
        },
    ),
    "longrope": family(
        32,
        LLAMA
        | {
            "pos_scaling_type": "longrope",
            "pos_scaling_extra_args": {
                "original_max_position_embeddings": 16,
                "long_factor": [1.0, 1.5, 2.5, 4.0],
                "short_factor": [1.0, 1.0, 1.25, 1.5],
            },
        },
    ),
    "fixed_positions": family(
        21,
        GPT2
        | UNTIED
        | {
            "position_embedding_type": "fixed",
            "attention_type": "dot_product",
            "nonlinearity": "squared_relu",
            "norm_type": "biasless-layernorm",
            "use_bias_in_output": True,
        },
    ),
}
