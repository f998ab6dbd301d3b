"""Llama and Hugging Face's families that share its names: rotary positions, a norm before each part.

A family is a description, read from top to bottom; its words are explained in `hf_keys.py` (config.json) and
`hf_names.py` (tensors). Source: the released models, and Hugging Face's library 4.57, which the tests compare with.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cstool.convert.hf_family import (
    ATTENTION_DROPOUT,
    DOWN,
    GATE,
    HEAD,
    LAST_NORM,
    LAYER,
    LLAMA_ATTENTION,
    NORM1,
    NORM3,
    OUT,
    QKV_OUT,
    UP,
    WORDS,
    Family,
    K,
    Q,
    V,
    biases,
    ends,
    rotary,
    sizes,
)
from cstool.convert.hf_keys import (
    ALIKE,
    HEAD_DIM,
    Found,
    Key,
    Refused,
    activation,
    all_of,
    heads_of_keys,
    only,
    rotary_share,
    same,
    silent,
    window,
    windows,
)
from cstool.convert.hf_rope import ORIGINAL_POSITIONS, scaling
from cstool.model.params import DecoderParams

_LLAMA_NORMS = {NORM1: "layers.N.input_layernorm", NORM3: "layers.N.post_attention_layernorm"}
_LLAMA_FEED_FORWARD = {
    UP: "layers.N.mlp.up_proj",
    GATE: "layers.N.mlp.gate_proj",
    DOWN: "layers.N.mlp.down_proj",
}
_LLAMA_ENDS = {WORDS: "embed_tokens", LAST_NORM: "norm", HEAD: "lm_head"}
_LLAMA_NAMES = {**_LLAMA_ENDS, **_LLAMA_NORMS, **LLAMA_ATTENTION, **_LLAMA_FEED_FORWARD}
_LLAMA_FIXED = {
    "name": "llama",
    "position_embedding_type": "rotary",
    "norm_type": "rmsnorm",
    **biases(qkv=False, output=False, feed_forward=False),
}

LLAMA = Family(
    "llama",
    "LlamaForCausalLM",
    called=("llama", "LlamaModel"),
    prefix="model.",
    names=_LLAMA_NAMES,
    fixed=_LLAMA_FIXED,
    keys=(
        *sizes(32000, 4096, 11008, 32, 32),
        heads_of_keys(),
        HEAD_DIM,
        activation("hidden_act", "silu", is_gated=True),
        *ends("rms_norm_eps", 1e-6, is_tied=False),
        *rotary(2048),
        all_of("attention_bias", False, *QKV_OUT),
        all_of("mlp_bias", False, "use_ffn_bias"),
        ATTENTION_DROPOUT,
    ),
)


MISTRAL = Family(
    "mistral",
    "MistralForCausalLM",
    called=("mistral",),
    prefix="model.",
    names=_LLAMA_NAMES,
    fixed={**_LLAMA_FIXED, "name": "mistral"},
    keys=(
        *sizes(32000, 4096, 14336, 32, 32),
        heads_of_keys(8),
        HEAD_DIM,
        activation("hidden_act", "silu", is_gated=True),
        *ends("rms_norm_eps", 1e-6, is_tied=False),
        *rotary(131072),
        window(4096),
        only("attention_bias", False, "a Mistral has none"),
        ALIKE,
        ATTENTION_DROPOUT,
    ),
)


def _slides_in_qwen2(found: Found, layer: int) -> bool:
    is_wanted = found["use_sliding_window"] and found["sliding_window"] is not None
    return bool(is_wanted and layer >= found["max_window_layers"])


def _first_window(model: DecoderParams) -> int:
    return 0 if model.attention_sliding_window_length else model.num_hidden_layers


_QWEN_WINDOWS = (
    Key(
        "use_sliding_window", False, lambda _: {}, lambda model: model.attention_sliding_window_length is not None, bool
    ),
    silent(window(4096)),
    Key("max_window_layers", 28, lambda _: {}, _first_window, int, least=0),
    windows(_slides_in_qwen2),
)
QWEN2 = Family(
    "qwen2",
    "Qwen2ForCausalLM",
    called=("llama", "LlamaModel"),
    prefix="model.",
    names=_LLAMA_NAMES,
    fixed={**_LLAMA_FIXED, **biases(qkv=True, output=False, feed_forward=False)},
    keys=(
        *sizes(151936, 4096, 22016, 32, 32),
        heads_of_keys(32),
        HEAD_DIM,
        activation("hidden_act", "silu", is_gated=True),
        *ends("rms_norm_eps", 1e-6, is_tied=False),
        *rotary(32768),
        *_QWEN_WINDOWS,
        ATTENTION_DROPOUT,
    ),
)  # fmt: skip

QWEN3 = Family(
    "qwen3",
    "Qwen3ForCausalLM",
    called=("llama", "LlamaModel"),
    prefix="model.",
    names={
        **_LLAMA_NAMES,
        f"{LAYER}.self_attn.q_norm": "layers.N.self_attn.q_norm",
        f"{LAYER}.self_attn.k_norm": "layers.N.self_attn.k_norm",
    },
    fixed={**_LLAMA_FIXED, "attention_qk_norm_layer": "rmsnorm", "apply_attention_qk_norm": True},
    keys=(
        *sizes(151936, 4096, 22016, 32, 32),
        heads_of_keys(32),
        replace(HEAD_DIM, default=128),
        activation("hidden_act", "silu", is_gated=True),
        *ends("rms_norm_eps", 1e-6, is_tied=False),
        Key(
            "rms_norm_eps", 1e-6,
            lambda found: dict.fromkeys(("layer_norm_epsilon", "attention_qk_norm_eps"), found["rms_norm_eps"]),
            lambda model: model.layer_norm_epsilon, float,
        ),
        *rotary(32768),
        all_of("attention_bias", False, *QKV_OUT),
        *_QWEN_WINDOWS,
        ATTENTION_DROPOUT,
    ),
)  # fmt: skip


def _read_experts(found: Found) -> Mapping[str, Any]:
    experts, chosen = found["num_local_experts"], found["num_experts_per_tok"]
    if chosen > experts:
        raise Refused(f"num_experts_per_tok must be at most num_local_experts ({experts}), got {chosen}")
    loss = {"load_balancing_loss_coef": found["router_aux_loss_coef"]}
    return {"moe": {"num_experts": experts, "top_k": chosen, **loss}}


_EXPERTS, _THEIR_EXPERTS = f"{LAYER}.ffn.experts.experts.E", "layers.N.block_sparse_moe.experts.E"
MIXTRAL = Family(
    "mixtral",
    "MixtralForCausalLM",
    called=("mixtral",),
    prefix="model.",
    names={
        **_LLAMA_ENDS,
        **_LLAMA_NORMS,
        **LLAMA_ATTENTION,
        f"{LAYER}.ffn.gate": "layers.N.block_sparse_moe.gate",
        f"{_EXPERTS}.0.linear_layer": f"{_THEIR_EXPERTS}.w3",
        f"{_EXPERTS}.0.linear_layer_for_glu": f"{_THEIR_EXPERTS}.w1",
        f"{_EXPERTS}.1.linear_layer": f"{_THEIR_EXPERTS}.w2",
    },
    fixed={**_LLAMA_FIXED, "name": "mixtral"},
    keys=(
        *sizes(32000, 4096, 14336, 32, 32),
        heads_of_keys(8),
        HEAD_DIM,
        activation("hidden_act", "silu", is_gated=True),
        *ends("rms_norm_eps", 1e-5, is_tied=False),
        same("max_position_embeddings", 131072),
        same("rope_theta", 1e6),
        scaling(),
        window(None),
        ALIKE,
        Key("num_experts_per_tok", 2, lambda _: {}, lambda model: model.moe.top_k, int),
        Key("router_aux_loss_coef", 0.001, lambda _: {}, lambda model: model.moe.load_balancing_loss_coef, float),
        Key(
            "num_local_experts",
            8,
            _read_experts,
            lambda model: model.moe.num_experts,
            int,
            least=2,
            other_name="num_experts",
        ),
        ATTENTION_DROPOUT,
    ),
    # Both are about training: noise on the inputs of routers, and whether the loss that balances experts is computed.
    passed_over=frozenset({"router_jitter_noise", "output_router_logits"}),
)

PHI3 = Family(
    "phi3",
    "Phi3ForCausalLM",
    called=("llama", "LlamaModel"),
    prefix="model.",
    names={
        **_LLAMA_ENDS,
        **_LLAMA_NORMS,
        **dict.fromkeys((Q, K, V), "layers.N.self_attn.qkv_proj"),
        OUT: "layers.N.self_attn.o_proj",
        **dict.fromkeys((GATE, UP), "layers.N.mlp.gate_up_proj"),
        DOWN: "layers.N.mlp.down_proj",
    },
    fixed=_LLAMA_FIXED,
    keys=(
        *sizes(32064, 3072, 8192, 32, 32),
        heads_of_keys(),
        HEAD_DIM,
        rotary_share("partial_rotary_factor", 1.0),
        activation("hidden_act", "silu", is_gated=True),
        *ends("rms_norm_eps", 1e-5, is_tied=False),
        same("max_position_embeddings", 4096),
        same("rope_theta", 10000.0),
        ORIGINAL_POSITIONS,
        scaling("default", "longrope"),
        window(None),
        only("attention_bias", False, "a Phi-3 has none"),
        same("resid_pdrop", 0.0, "residual_dropout_rate"),
        same("embd_pdrop", 0.0, "embedding_dropout_rate"),
        ATTENTION_DROPOUT,
    ),
)
STARCODER2 = Family(
    "starcoder2",
    "Starcoder2ForCausalLM",
    called=("starcoder",),
    prefix="model.",
    names={
        **_LLAMA_ENDS,
        **_LLAMA_NORMS,
        **LLAMA_ATTENTION,
        UP: "layers.N.mlp.c_fc",
        DOWN: "layers.N.mlp.c_proj",
    },
    fixed={"name": "starcoder", "position_embedding_type": "rotary"},
    keys=(
        *sizes(49152, 3072, 12288, 30, 24),
        heads_of_keys(2),
        HEAD_DIM,
        activation("hidden_act", "gelu_pytorch_tanh"),
        *ends("norm_epsilon", 1e-5, is_tied=True, std=0.018042, also="layer_norm_epsilon"),
        only("scale_attn_weights", True, "a StarCoder2 divides its scores by the root of the width of a head"),
        *rotary(4096),
        window(None),
        all_of("use_bias", True, *QKV_OUT, "use_ffn_bias"),
        only("mlp_type", "default", "one with a gate is no StarCoder2"),
        only("norm_type", "layer_norm", "a StarCoder2 has no other"),
        same("residual_dropout", 0.0, "residual_dropout_rate"),
        same("embedding_dropout", 0.0, "embedding_dropout_rate"),
        ATTENTION_DROPOUT,
    ),
)


def _read_query_scalar(found: Found) -> Mapping[str, Any]:
    scalar, width = found["query_pre_attn_scalar"], found["head_dim"]
    if scalar <= 0:
        raise Refused(f"query_pre_attn_scalar must be greater than 0, got {scalar:g}")
    return {} if scalar == width else {"attention_logits_alpha": (width / scalar) ** 0.5}


def _query_scalar(model: DecoderParams) -> float:
    scalar = model.head_width / model.attention_logits_alpha**2
    return round(scalar) if abs(scalar - round(scalar)) < 1e-9 * scalar else scalar


def _read_older_activation(found: Found) -> Mapping[str, Any]:
    """The older name of hidden_activation. Released files have it beside that, some with the exact GELU."""
    given, newer = found["hidden_act"], found["hidden_activation"]
    if given not in (None, "gelu", newer):
        raise Refused(f"hidden_act must be gelu or as hidden_activation ({newer}), got {given}")
    return {}


GEMMA2 = Family(
    "gemma2",
    "Gemma2ForCausalLM",
    called=("gemma2",),
    prefix="model.",
    names={
        **_LLAMA_NAMES,
        f"{NORM1}_post": "layers.N.post_attention_layernorm",
        NORM3: "layers.N.pre_feedforward_layernorm",
        f"{NORM3}_post": "layers.N.post_feedforward_layernorm",
    },
    norm_offset=1.0,
    fixed={**_LLAMA_FIXED, "name": "gemma2", "norm_first_sandwich": True},
    keys=(
        same("vocab_size", 256000),
        Key(
            "hidden_size", 2304, lambda found: {"hidden_size": (h := found["hidden_size"]), "embeddings_scale": h**0.5},
            lambda model: model.hidden_size, int,
        ),
        *sizes(256000, 2304, 9216, 26, 8)[2:],
        heads_of_keys(4),
        replace(HEAD_DIM, default=256),
        Key("query_pre_attn_scalar", 256, _read_query_scalar, _query_scalar, float),
        activation("hidden_activation", "gelu_pytorch_tanh", is_gated=True),
        Key("hidden_act", None, _read_older_activation, None, str, nullable=True),
        *ends("rms_norm_eps", 1e-6, is_tied=True),
        *rotary(8192),
        silent(replace(window(4096), other_name="sliding_window_size")),
        windows(lambda _, layer: layer % 2 == 0),
        same("attn_logit_softcapping", 50.0, "attention_logit_softcapping", nullable=True),
        same("final_logit_softcapping", 30.0, nullable=True),
        all_of("attention_bias", False, *QKV_OUT),
        ATTENTION_DROPOUT,
    ),
)  # fmt: skip
