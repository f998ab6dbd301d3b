"""GPT-2, and Hugging Face's families that follow it, or have parallel parts: GPT-J, Phi, NeoX, Falcon, Bloom.

A family is a description, read from top to bottom; its words are explained in `hf_family.py`, `hf_decoder_rows.py`
(config.json) and `hf_names.py` (tensors). Source: the released models, and Hugging Face's library 4.57, which the tests
compare with.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from cstool.convert.hf_decoder_rows import (
    ATTENTION_DROPOUT,
    HEAD_DIM,
    HIDDEN_DROPOUT,
    LLAMA_NORMS,
    LLAMA_QKV,
    NORM1,
    NORM3,
    NORM_IS_BESIDE,
    QKV_OUT,
    SCALE_WEIGHTS,
    biases,
    ends,
    filter_size,
    heads_of_keys,
    kv_groups,
    n_sizes,
    names,
    pdrops,
    rotary,
    rotary_share,
    sizes,
)
from cstool.convert.hf_family import Family
from cstool.convert.hf_keys import Found, Key, Refused, activation, all_of, head_width, only, same, silent, told
from cstool.convert.hf_rope import scaling
from cstool.model.params import DecoderParams

_BLOOM_ENDS = "word_embeddings ln_f lm_head"
_BLOOM_ATTENTION = "self_attention.query_key_value self_attention.dense"
_BLOOM_FEED_FORWARD = "mlp.dense_h_to_4h mlp.dense_4h_to_h"
_GPT_ENDS = "wte ln_f lm_head"

GPT2 = Family(
    "gpt2",
    "GPT2LMHeadModel",
    called=("gpt2", "gpt3"),
    prefix="transformer.",
    names=names("h.N", "ln_1 ln_2", "attn.c_attn attn.c_proj", "mlp.c_fc mlp.c_proj", _GPT_ENDS)
    | {"embedding_layer.position_embeddings.embed": "wpe"},
    is_transposed=True,
    fixed={"name": "gpt2"},
    keys=(
        *n_sizes(50257, 1024, 768, 12, 12),
        activation("activation_function", "gelu_new"),
        *ends("layer_norm_epsilon", 1e-5, is_tied=True),
        SCALE_WEIGHTS,
        same("scale_attn_by_inverse_layer_idx", False, "scale_qk_dot_by_layer_idx"),
        only("add_cross_attention", False, "a decoder here reads no other text"),
        *pdrops(0.1),
    ),
    passed_over=frozenset({"reorder_and_upcast_attn"}),
)


def _read_repeated_heads(found: Found) -> Mapping[str, Any]:
    heads = 1 if found["multi_query"] else found["n_head"]
    if found["num_key_value_heads"] not in (None, heads):
        raise Refused(f"num_key_value_heads must be {heads}, as multi_query says, got {found['num_key_value_heads']}")
    return {}


def _read_multi_query(found: Found) -> Mapping[str, Any]:
    return kv_groups(1 if found["multi_query"] else found["n_head"])


GPT_BIGCODE = Family(
    "gpt_bigcode",
    "GPTBigCodeForCausalLM",
    called=("starcoder", "santacoder"),
    prefix="transformer.",
    names=GPT2.names,
    by_groups=True,
    fixed={"name": "starcoder", **biases(qkv=True, output=True, feed_forward=True)},
    keys=(
        *n_sizes(50257, 1024, 768, 12, 12),
        Key("multi_query", True, _read_multi_query, lambda model: model.kv_heads == 1, bool),
        Key("num_key_value_heads", None, _read_repeated_heads, None, int, nullable=True),
        activation("activation_function", "gelu_pytorch_tanh"),
        *ends("layer_norm_epsilon", 1e-5, is_tied=True),
        SCALE_WEIGHTS,
        only("add_cross_attention", False, "a decoder here reads no other text"),
        *pdrops(0.1),
    ),
    passed_over=frozenset(
        "inference_runner max_batch_size pad_key_length pre_allocate_kv_cache validate_runner_input".split()
    ),
)

GPTJ = Family(
    "gptj",
    "GPTJForCausalLM",
    called=("gptj",),
    prefix="transformer.",
    names=names("h.N", "ln_1", "attn.q_proj attn.k_proj attn.v_proj attn.out_proj", "mlp.fc_in mlp.fc_out", _GPT_ENDS),
    halves=False,
    fixed={
        "name": "gptj",
        "position_embedding_type": "rotary",
        "use_bias_in_output": True,
        **biases(qkv=False, output=False, feed_forward=True),
    },
    keys=(
        *n_sizes(50400, 2048, 4096, 28, 16),
        same("rotary_dim", 64),
        only("rotary", True, "a GPT-J has no other positions"),
        only("scale_attn_weights", True, "a GPT-J divides its scores by the root of the width of a head"),
        activation("activation_function", "gelu_new"),
        *ends("layer_norm_epsilon", 1e-5, is_tied=False),
        *pdrops(0.0),
    ),
)

PHI = Family(
    "phi",
    "PhiForCausalLM",
    called=("gptj",),
    prefix="model.",
    names=names(
        "layers.N",
        "input_layernorm",
        f"{LLAMA_QKV} self_attn.dense",
        "mlp.fc1 mlp.fc2",
        "embed_tokens final_layernorm lm_head",
    ),
    fixed={**GPTJ.fixed, **biases(qkv=True, output=True, feed_forward=True)},
    keys=(
        *sizes(51200, 2048, 8192, 24, 32),
        heads_of_keys(),
        HEAD_DIM,
        rotary_share("partial_rotary_factor", 0.5),
        activation("hidden_act", "gelu_new"),
        *ends("layer_norm_eps", 1e-5, is_tied=False),
        *rotary(2048),
        only("qk_layernorm", False, "norms of queries and keys cannot be had"),
        *pdrops(0.0)[:2],
        ATTENTION_DROPOUT,
    ),
)


def _read_neox_parallel(found: Found) -> Mapping[str, Any]:
    is_parallel = found["use_parallel_residual"]
    return {"name": "gpt-neox", "use_untied_layer_norm": True} if is_parallel else {"name": "gpt2"}


GPT_NEOX = Family(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    called=("gpt-neox",),
    prefix="gpt_neox.",
    names=names(
        "layers.N",
        LLAMA_NORMS,
        "attention.query_key_value attention.dense",
        _BLOOM_FEED_FORWARD,
        "embed_in final_layer_norm embed_out",
    ),
    by_groups=True,
    fixed={"position_embedding_type": "rotary", "use_ffn_bias": True},
    keys=(
        *sizes(50432, 6144, 24576, 44, 64),
        rotary_share("rotary_pct", 0.25, also="partial_rotary_factor"),
        same("max_position_embeddings", 2048),
        same("rotary_emb_base", 10000.0, "rope_theta", also="rope_theta"),
        scaling(),
        activation("hidden_act", "gelu"),
        *ends("layer_norm_eps", 1e-5, is_tied=False),
        all_of("attention_bias", True, *QKV_OUT),
        Key("use_parallel_residual", True, _read_neox_parallel, attrgetter("is_parallel"), bool),
        HIDDEN_DROPOUT,
        ATTENTION_DROPOUT,
    ),
    passed_over=frozenset({"classifier_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob"}),
)


def _read_falcon_attention(found: Found) -> Mapping[str, Any]:
    """Heads of keys and norms of the three generations: Falcon-RW, 7B, and 40B and later."""
    is_new, norms = found["new_decoder_architecture"], found["num_ln_in_parallel_attn"]
    if is_new and not found["parallel_attn"]:
        raise Refused("parallel_attn must be true beside new_decoder_architecture, got false")
    if norms not in ((1, 2) if is_new else (1,)):
        most = "1 or 2" if is_new else "1 without new_decoder_architecture"
        raise Refused(f"num_ln_in_parallel_attn must be {most}, got {norms}")
    heads = found["num_kv_heads"]
    if not is_new:
        heads = 1 if found["multi_query"] else found["num_attention_heads"]
    is_parallel = found["parallel_attn"]
    section = {"name": "falcon" if is_parallel else "bloom", "rotary_dim": head_width(found), **kv_groups(heads)}
    return {**section, "use_untied_layer_norm": True} if norms == 2 else section


def _read_falcon_alibi(found: Found) -> Mapping[str, Any]:
    if not found["alibi"]:
        return {"position_embedding_type": "rotary"}
    # They add the slopes before they divide by the root of a head's width, the paper does so afterwards.
    if found["rope_scaling"] is not None and found["rope_scaling"].rest:
        raise Refused("rope_scaling must be null beside alibi: nothing is turned there")
    slopes = {"position_embedding_type": "alibi", "pos_scaling_factor": head_width(found) ** 0.5}
    return {**slopes, "pos_scaling_type": None, "pos_scaling_extra_args": None, "rotary_dim": None, "rope_theta": None}


def _is_new_falcon(model: DecoderParams) -> bool:
    return model.kv_heads not in (1, model.num_heads) or (model.is_parallel and model.norms_per_layer == 2)


_FALCON_NORMS = Key(
    "num_ln_in_parallel_attn",
    None,
    _read_falcon_attention,
    lambda model: model.norms_per_layer if _is_new_falcon(model) else None,
    int,
    if_null=lambda found: 2 if found["new_decoder_architecture"] else 1,
)
FALCON = Family(
    "falcon",
    "FalconForCausalLM",
    called=("falcon",),
    prefix="transformer.",
    names=names("h.N", LLAMA_NORMS, _BLOOM_ATTENTION, _BLOOM_FEED_FORWARD, _BLOOM_ENDS),
    norms_if_parallel={NORM1: "h.N.ln_attn", NORM3: "h.N.ln_mlp"},
    by_groups=True,
    fixed={},
    keys=(
        same("vocab_size", 65024),
        same("hidden_size", 4544, also="n_embed"),
        same("num_hidden_layers", 32, also="n_layer"),
        same("num_attention_heads", 71, "num_heads", also="n_head"),
        filter_size("ffn_hidden_size", "hidden_size"),
        told("new_decoder_architecture", False, _is_new_falcon),
        told("multi_query", True, lambda model: model.kv_heads == 1),
        silent(heads_of_keys(theirs="num_kv_heads")),
        told("parallel_attn", True, attrgetter("is_parallel")),
        _FALCON_NORMS,
        all_of("bias", False, *QKV_OUT, "use_ffn_bias"),
        activation("activation", "gelu"),
        *ends("layer_norm_epsilon", 1e-5, is_tied=True),
        *rotary(2048),
        Key("alibi", False, _read_falcon_alibi, lambda model: model.position_embedding_type == "alibi", bool),
        NORM_IS_BESIDE,
        HIDDEN_DROPOUT,
        ATTENTION_DROPOUT,
    ),
)


def _read_bloom_width(found: Found) -> Mapping[str, Any]:
    return {"hidden_size": found["hidden_size"], "filter_size": 4 * found["hidden_size"]}


BLOOM = Family(
    "bloom",
    "BloomForCausalLM",
    called=("bloom",),
    prefix="transformer.",
    names={**FALCON.names, "embedding_ln_f": "word_embeddings_layernorm"},
    by_groups=True,
    fixed={
        "name": "bloom",
        "position_embedding_type": "alibi",
        "embedding_layer_norm": True,
        "nonlinearity": "gelu_new",
        **biases(qkv=True, output=True, feed_forward=True),
    },
    keys=(
        same("vocab_size", 250880),
        Key("hidden_size", 64, _read_bloom_width, attrgetter("hidden_size"), int, other_name="n_embed"),
        same("n_layer", 2, "num_hidden_layers", also="num_hidden_layers"),
        same("n_head", 8, "num_heads", also="num_attention_heads"),
        same("seq_length", 2048, "max_position_embeddings"),
        *ends("layer_norm_epsilon", 1e-5, is_tied=True),
        only("n_inner", None, "the feed-forward part of a Bloom is four times as wide as the model"),
        NORM_IS_BESIDE,
        HIDDEN_DROPOUT,
        ATTENTION_DROPOUT,
    ),
    passed_over=frozenset(
        "bias_dropout_fusion masked_softmax_fusion offset_alibi skip_bias_add skip_bias_add_qkv slow_but_exact".split()
    ),
)
