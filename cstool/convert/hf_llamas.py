"""Llama and Hugging Face's families that share its names: rotary positions, a norm before each part.

A family is a description, read from top to bottom; its words are explained in `hf_family.py`, `hf_decoder_rows.py`
(config.json) and `hf_names.py` (tensors). Source: the released models, and Hugging Face's library 4.57, which the tests
compare with.
"""

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from cstool.convert.hf_decoder_rows import (
    ALIKE,
    ATTENTION_DROPOUT,
    HEAD_DIM,
    LAYER,
    LLAMA_NORMS,
    LLAMA_QKV,
    NORM1,
    NORM3,
    QKV_OUT,
    biases,
    ends,
    heads_of_keys,
    names,
    pdrops,
    rotary,
    rotary_share,
    sizes,
    window,
    windows,
)
from cstool.convert.hf_family import Family
from cstool.convert.hf_keys import Found, Key, Refused, activation, all_of, only, same, silent, told
from cstool.convert.hf_rope import ORIGINAL_POSITIONS, scaling
from cstool.model.params import DecoderParams

_ENDS, _ATTENTION = "embed_tokens norm lm_head", f"{LLAMA_QKV} self_attn.o_proj"


def _llama_keys(
    shape: tuple[int, int, int, int, int],
    kv_heads: int | None,
    positions: tuple[Key, ...],
    *others: Key,
    epsilon: float = 1e-6,
    head_dim: int | None = None,
    of_norms: tuple[Key, ...] = (),
) -> tuple[Key, ...]:
    """Keys of a Llama and its kin.

    Args:
        shape: defaults of `sizes`
        kv_heads: default of the number of heads of keys and values; None for as many as of queries
        epsilon, head_dim: further defaults; None for a head's share of the width
        of_norms: keys beside the epsilon of norms
    """
    return (
        *sizes(*shape),
        heads_of_keys(kv_heads),
        replace(HEAD_DIM, default=head_dim),
        activation("hidden_act", "silu", is_gated=True),
        *ends("rms_norm_eps", epsilon, is_tied=False),
        *of_norms,
        *positions,
        *others,
        ATTENTION_DROPOUT,
    )


_HAS_BIASES = all_of("attention_bias", False, *QKV_OUT)
LLAMA = Family(
    "llama",
    "LlamaForCausalLM",
    called=("llama", "LlamaModel"),
    prefix="model.",
    names=names("layers.N", LLAMA_NORMS, _ATTENTION, "mlp.gate_proj mlp.up_proj mlp.down_proj", _ENDS),
    fixed={
        "name": "llama",
        "position_embedding_type": "rotary",
        "norm_type": "rmsnorm",
        **biases(qkv=False, output=False, feed_forward=False),
    },
    keys=_llama_keys(
        (32000, 4096, 11008, 32, 32), None, rotary(2048), _HAS_BIASES, all_of("mlp_bias", False, "use_ffn_bias")
    ),
)

MISTRAL = replace(
    LLAMA,
    model_type="mistral",
    class_name="MistralForCausalLM",
    called=("mistral",),
    fixed={**LLAMA.fixed, "name": "mistral"},
    keys=_llama_keys(
        (32000, 4096, 14336, 32, 32),
        8,
        rotary(131072),
        window(4096),
        only("attention_bias", False, "a Mistral has none"),
        ALIKE,
    ),
)


def _slides_in_qwen2(found: Found, layer: int) -> bool:
    is_wanted = found["use_sliding_window"] and found["sliding_window"] is not None
    return bool(is_wanted and layer >= found["max_window_layers"])


_QWEN_WINDOWS = (
    told("use_sliding_window", False, lambda model: model.attention_sliding_window_length is not None),
    silent(window(4096)),
    told(
        "max_window_layers",
        28,
        lambda model: 0 if model.attention_sliding_window_length else model.num_hidden_layers,
        least=0,
    ),
    windows(_slides_in_qwen2),
)
QWEN2 = replace(
    LLAMA,
    model_type="qwen2",
    class_name="Qwen2ForCausalLM",
    fixed={**LLAMA.fixed, **biases(qkv=True, output=False, feed_forward=False)},
    keys=_llama_keys((151936, 4096, 22016, 32, 32), 32, rotary(32768), *_QWEN_WINDOWS),
)

QWEN3 = replace(
    LLAMA,
    model_type="qwen3",
    class_name="Qwen3ForCausalLM",
    names={
        **LLAMA.names,
        **{f"{LAYER}.self_attn.{part}_norm": f"layers.N.self_attn.{part}_norm" for part in "qk"},
    },
    fixed={**LLAMA.fixed, "attention_qk_norm_layer": "rmsnorm", "apply_attention_qk_norm": True},
    keys=_llama_keys(
        (151936, 4096, 22016, 32, 32),
        32,
        rotary(32768),
        _HAS_BIASES,
        *_QWEN_WINDOWS,
        head_dim=128,
        of_norms=(all_of("rms_norm_eps", 1e-6, "layer_norm_epsilon", "attention_qk_norm_eps"),),
    ),
)


def _read_experts(found: Found) -> Mapping[str, Any]:
    experts, chosen = found["num_local_experts"], found["num_experts_per_tok"]
    if chosen > experts:
        raise Refused(f"num_experts_per_tok must be at most num_local_experts ({experts}), got {chosen}")
    loss = {"load_balancing_loss_coef": found["router_aux_loss_coef"]}
    return {"moe": {"num_experts": experts, "top_k": chosen, **loss}}


_OUR_EXPERTS, _THEIR_EXPERTS = f"{LAYER}.ffn.experts.experts.E", "layers.N.block_sparse_moe.experts.E"
MIXTRAL = replace(
    LLAMA,
    model_type="mixtral",
    class_name="MixtralForCausalLM",
    called=("mixtral",),
    names={
        **names("layers.N", LLAMA_NORMS, _ATTENTION, "", _ENDS),
        f"{LAYER}.ffn.gate": "layers.N.block_sparse_moe.gate",
        f"{_OUR_EXPERTS}.0.linear_layer": f"{_THEIR_EXPERTS}.w3",
        f"{_OUR_EXPERTS}.0.linear_layer_for_glu": f"{_THEIR_EXPERTS}.w1",
        f"{_OUR_EXPERTS}.1.linear_layer": f"{_THEIR_EXPERTS}.w2",
    },
    fixed={**LLAMA.fixed, "name": "mixtral"},
    keys=_llama_keys(
        (32000, 4096, 14336, 32, 32),
        8,
        rotary(131072, 1e6),
        window(None),
        ALIKE,
        told("num_experts_per_tok", 2, attrgetter("moe.top_k")),
        told("router_aux_loss_coef", 0.001, attrgetter("moe.load_balancing_loss_coef")),
        Key(
            "num_local_experts", 8, _read_experts, attrgetter("moe.num_experts"), int, least=2, other_name="num_experts"
        ),
        epsilon=1e-5,
    ),
    # Both are about training: noise on the inputs of routers, and whether the loss that balances experts is computed.
    passed_over=frozenset({"router_jitter_noise", "output_router_logits"}),
)

PHI3 = replace(
    LLAMA,
    model_type="phi3",
    class_name="Phi3ForCausalLM",
    names=names(
        "layers.N",
        LLAMA_NORMS,
        "self_attn.qkv_proj self_attn.o_proj",
        "mlp.gate_up_proj mlp.gate_up_proj mlp.down_proj",
        _ENDS,
    ),
    keys=(
        *sizes(32064, 3072, 8192, 32, 32),
        heads_of_keys(),
        HEAD_DIM,
        rotary_share("partial_rotary_factor", 1.0),
        activation("hidden_act", "silu", is_gated=True),
        *ends("rms_norm_eps", 1e-5, is_tied=False),
        *rotary(4096)[:2],
        ORIGINAL_POSITIONS,
        scaling("default", "longrope"),
        window(None),
        only("attention_bias", False, "a Phi-3 has none"),
        *pdrops(0.0)[:2],
        ATTENTION_DROPOUT,
    ),
)

STARCODER2 = Family(
    "starcoder2",
    "Starcoder2ForCausalLM",
    called=("starcoder",),
    prefix="model.",
    names=names("layers.N", LLAMA_NORMS, _ATTENTION, "mlp.c_fc mlp.c_proj", _ENDS),
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


def _read_gemma_width(found: Found) -> Mapping[str, Any]:
    return {"hidden_size": found["hidden_size"], "embeddings_scale": found["hidden_size"] ** 0.5}


GEMMA2 = replace(
    LLAMA,
    model_type="gemma2",
    class_name="Gemma2ForCausalLM",
    called=("gemma2",),
    names={
        **LLAMA.names,
        f"{NORM1}_post": "layers.N.post_attention_layernorm",
        NORM3: "layers.N.pre_feedforward_layernorm",
        f"{NORM3}_post": "layers.N.post_feedforward_layernorm",
    },
    norm_offset=1.0,
    fixed={**LLAMA.fixed, "name": "gemma2", "norm_first_sandwich": True},
    keys=(
        same("vocab_size", 256000),
        Key("hidden_size", 2304, _read_gemma_width, attrgetter("hidden_size"), int),
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
        _HAS_BIASES,
        ATTENTION_DROPOUT,
    ),
)
