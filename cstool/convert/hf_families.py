"""Hugging Face's decoders: for each, the names of its tensors, how they are laid out, and the keys of its config.json.

A family is a description, read from top to bottom; what its words mean is in `hf_keys.py` (config.json) and
`hf_names.py` (tensors). Source: the released models, and Hugging Face's library 4.57, which the tests compare with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cstool.convert.hf_keys import (
    HEAD_DIM,
    Found,
    Key,
    Refused,
    activation,
    all_of,
    filter_size,
    head_width,
    heads_of_keys,
    kv_groups,
    only,
    rotary_share,
    same,
    scaling,
    silent,
    window,
    windows,
)
from cstool.params import DecoderParams

_WORDS, _POSITIONS = "embedding_layer.word_embeddings", "embedding_layer.position_embeddings.embed"
_LAYER = "transformer_decoder.layers.N"
_NORM1, _NORM3 = f"{_LAYER}.norm1", f"{_LAYER}.norm3"
_Q, _K, _V, _OUT = (f"{_LAYER}.self_attn.proj_{part}_dense_layer" for part in ("q", "k", "v", "output"))
_UP, _GATE = f"{_LAYER}.ffn.ffn.0.linear_layer", f"{_LAYER}.ffn.ffn.0.linear_layer_for_glu"
_DOWN = f"{_LAYER}.ffn.ffn.1.linear_layer"
_LAST_NORM, _HEAD = "transformer_decoder.norm", "lm_head"


@dataclass(frozen=True)
class Family:
    """A kind of model that Hugging Face's library has.

    Args:
        model_type: its name in config.json
        class_name: its class there
        called: names of models of the params that are written as this one, if they compute the same
        prefix: before the names of all tensors but those of the output layer; input may lack it
        names: our name -> theirs, `.weight` and `.bias` left out; N is the number of the layer. What has the same name
            is in one tensor, in this order.
        fixed: of the params, what every model of the family has
        keys: of config.json; what they say wins over `fixed`, later ones over earlier ones
        norms_if_parallel: other names of norms, where parallel parts have one each
        by_groups: whether in the tensor of query, key and value each head of keys follows its queries, then its values
        is_transposed: whether matrices of layers are (in, out) there
        halves: whether what positions turn together is half of their width apart there
        norm_offset: what is added to the scales of norms that are stored there
        passed_over: keys of config.json that change nothing
    """

    model_type: str
    class_name: str
    called: tuple[str, ...]
    prefix: str
    names: Mapping[str, str]
    fixed: Mapping[str, Any]
    keys: tuple[Key, ...]
    norms_if_parallel: Mapping[str, str] | None = None
    by_groups: bool = False
    is_transposed: bool = False
    halves: bool = True
    norm_offset: float = 0.0
    passed_over: frozenset[str] = frozenset()


def _biases(qkv: bool, output: bool, feed_forward: bool) -> dict[str, bool]:
    return {
        "use_projection_bias_in_attention": qkv,
        "use_ffn_bias_in_attention": output,
        "use_ffn_bias": feed_forward,
    }


_QKV_OUT = ("use_projection_bias_in_attention", "use_ffn_bias_in_attention")
_LLAMA_ATTENTION = {
    _Q: "layers.N.self_attn.q_proj",
    _K: "layers.N.self_attn.k_proj",
    _V: "layers.N.self_attn.v_proj",
    _OUT: "layers.N.self_attn.o_proj",
}
_LLAMA_NORMS = {_NORM1: "layers.N.input_layernorm", _NORM3: "layers.N.post_attention_layernorm"}
_LLAMA_FEED_FORWARD = {
    _UP: "layers.N.mlp.up_proj",
    _GATE: "layers.N.mlp.gate_proj",
    _DOWN: "layers.N.mlp.down_proj",
}
_LLAMA_ENDS = {_WORDS: "embed_tokens", _LAST_NORM: "norm", _HEAD: "lm_head"}
_LLAMA_NAMES = {**_LLAMA_ENDS, **_LLAMA_NORMS, **_LLAMA_ATTENTION, **_LLAMA_FEED_FORWARD}
_LLAMA_FIXED = {
    "name": "llama",
    "position_embedding_type": "rotary",
    "norm_type": "rmsnorm",
    **_biases(qkv=False, output=False, feed_forward=False),
}


def _sizes(vocab: int, hidden: int, inner: int, layers: int, heads: int) -> tuple[Key, ...]:
    """Keys of the newer families, and their defaults."""
    return (
        same("vocab_size", vocab),
        same("hidden_size", hidden),
        same("intermediate_size", inner, "filter_size"),
        same("num_hidden_layers", layers),
        same("num_attention_heads", heads, "num_heads"),
    )


def _n_sizes(vocab: int, positions: int, hidden: int, layers: int, heads: int) -> tuple[Key, ...]:
    """Keys of GPT-2 and those that follow it, and their defaults."""
    return (
        same("vocab_size", vocab),
        same("n_positions", positions, "max_position_embeddings", also="max_position_embeddings"),
        same("n_embd", hidden, "hidden_size", also="hidden_size"),
        same("n_layer", layers, "num_hidden_layers", also="num_hidden_layers"),
        same("n_head", heads, "num_heads", also="num_attention_heads"),
        filter_size("n_inner", "n_embd"),
    )


def _ends(norm_epsilon: str, epsilon: float, is_tied: bool, std: float = 0.02) -> tuple[Key, ...]:
    return (
        same(norm_epsilon, epsilon, "layer_norm_epsilon"),
        same("tie_word_embeddings", is_tied, "share_embedding_weights"),
        same("initializer_range", std),
    )


def _rotary(positions: int) -> tuple[Key, ...]:
    return same("max_position_embeddings", positions), same("rope_theta", 10000.0), scaling()


_ATTENTION_DROPOUT = same("attention_dropout", 0.0, "attention_dropout_rate")
_NORM_IS_BESIDE = only("apply_residual_connection_post_layernorm", False, "the residual stream has no norm here")
_HIDDEN_DROPOUT = same("hidden_dropout", 0.0, "residual_dropout_rate")


def _pdrops(rate: float) -> tuple[Key, ...]:
    return (
        same("resid_pdrop", rate, "residual_dropout_rate"),
        same("embd_pdrop", rate, "embedding_dropout_rate"),
        same("attn_pdrop", rate, "attention_dropout_rate"),
    )


_SCALE_WEIGHTS = Key(
    "scale_attn_weights", True,
    lambda found: {"attention_type": "scaled_dot_product" if found["scale_attn_weights"] else "dot_product"},
    lambda model: model.attention_type == "scaled_dot_product", bool,
)  # fmt: skip

_GPT2 = Family(
    "gpt2",
    "GPT2LMHeadModel",
    called=("gpt2", "gpt3"),
    prefix="transformer.",
    names={
        _WORDS: "wte",
        _POSITIONS: "wpe",
        _NORM1: "h.N.ln_1",
        **dict.fromkeys((_Q, _K, _V), "h.N.attn.c_attn"),
        _OUT: "h.N.attn.c_proj",
        _NORM3: "h.N.ln_2",
        _UP: "h.N.mlp.c_fc",
        _DOWN: "h.N.mlp.c_proj",
        _LAST_NORM: "ln_f",
        _HEAD: "lm_head",
    },
    is_transposed=True,
    fixed={"name": "gpt2"},
    keys=(
        *_n_sizes(50257, 1024, 768, 12, 12),
        activation("activation_function", "gelu_new"),
        *_ends("layer_norm_epsilon", 1e-5, is_tied=True),
        _SCALE_WEIGHTS,
        same("scale_attn_by_inverse_layer_idx", False, "scale_qk_dot_by_layer_idx"),
        only("add_cross_attention", False, "a decoder here reads no other text"),
        *_pdrops(0.1),
    ),
    passed_over=frozenset({"reorder_and_upcast_attn"}),
)

_LLAMA = Family(
    "llama",
    "LlamaForCausalLM",
    called=("llama", "LlamaModel"),
    prefix="model.",
    names=_LLAMA_NAMES,
    fixed=_LLAMA_FIXED,
    keys=(
        *_sizes(32000, 4096, 11008, 32, 32),
        heads_of_keys(),
        HEAD_DIM,
        activation("hidden_act", "silu", is_gated=True),
        *_ends("rms_norm_eps", 1e-6, is_tied=False),
        *_rotary(2048),
        all_of("attention_bias", False, *_QKV_OUT),
        all_of("mlp_bias", False, "use_ffn_bias"),
        _ATTENTION_DROPOUT,
    ),
)

_MISTRAL = Family(
    "mistral",
    "MistralForCausalLM",
    called=("mistral", "mixtral"),
    prefix="model.",
    names=_LLAMA_NAMES,
    fixed={**_LLAMA_FIXED, "name": "mistral"},
    keys=(
        *_sizes(32000, 4096, 14336, 32, 32),
        heads_of_keys(8),
        HEAD_DIM,
        activation("hidden_act", "silu", is_gated=True),
        *_ends("rms_norm_eps", 1e-6, is_tied=False),
        *_rotary(131072),
        window(4096),
        only("attention_bias", False, "a Mistral has none"),
        only("layer_types", None, "all layers of a Mistral are alike"),
        _ATTENTION_DROPOUT,
    ),
)


def _slides_in_qwen2(found: Found, layer: int) -> bool:
    is_wanted = found["use_sliding_window"] and found["sliding_window"] is not None
    return bool(is_wanted and layer >= found["max_window_layers"])


def _first_window(model: DecoderParams) -> int:
    return 0 if model.attention_sliding_window_length else model.num_hidden_layers


_QWEN2 = Family(
    "qwen2",
    "Qwen2ForCausalLM",
    called=("llama", "LlamaModel"),
    prefix="model.",
    names=_LLAMA_NAMES,
    fixed={**_LLAMA_FIXED, **_biases(qkv=True, output=False, feed_forward=False)},
    keys=(
        *_sizes(151936, 4096, 22016, 32, 32),
        heads_of_keys(32),
        HEAD_DIM,
        activation("hidden_act", "silu", is_gated=True),
        *_ends("rms_norm_eps", 1e-6, is_tied=False),
        *_rotary(32768),
        Key(
            "use_sliding_window", False, lambda _: {},
            lambda model: model.attention_sliding_window_length is not None, bool,
        ),
        silent(window(4096)),
        Key("max_window_layers", 28, lambda _: {}, _first_window, int, least=0),
        windows(_slides_in_qwen2),
        _ATTENTION_DROPOUT,
    ),
)  # fmt: skip

_PHI3 = Family(
    "phi3",
    "Phi3ForCausalLM",
    called=("llama", "LlamaModel"),
    prefix="model.",
    names={
        **_LLAMA_ENDS,
        **_LLAMA_NORMS,
        **dict.fromkeys((_Q, _K, _V), "layers.N.self_attn.qkv_proj"),
        _OUT: "layers.N.self_attn.o_proj",
        **dict.fromkeys((_GATE, _UP), "layers.N.mlp.gate_up_proj"),
        _DOWN: "layers.N.mlp.down_proj",
    },
    fixed=_LLAMA_FIXED,
    keys=(
        *_sizes(32064, 3072, 8192, 32, 32),
        heads_of_keys(),
        HEAD_DIM,
        rotary_share("partial_rotary_factor", 1.0),
        activation("hidden_act", "silu", is_gated=True),
        *_ends("rms_norm_eps", 1e-5, is_tied=False),
        same("max_position_embeddings", 4096),
        same("rope_theta", 10000.0),
        scaling("default"),
        window(None),
        only("attention_bias", False, "a Phi-3 has none"),
        same("resid_pdrop", 0.0, "residual_dropout_rate"),
        same("embd_pdrop", 0.0, "embedding_dropout_rate"),
        _ATTENTION_DROPOUT,
    ),
    # That of longrope, which needs a rope_scaling.
    passed_over=frozenset({"original_max_position_embeddings"}),
)

_PHI = Family(
    "phi",
    "PhiForCausalLM",
    called=("gptj",),
    prefix="model.",
    names={
        _WORDS: "embed_tokens",
        _NORM1: "layers.N.input_layernorm",
        **_LLAMA_ATTENTION,
        _OUT: "layers.N.self_attn.dense",
        _UP: "layers.N.mlp.fc1",
        _DOWN: "layers.N.mlp.fc2",
        _LAST_NORM: "final_layernorm",
        _HEAD: "lm_head",
    },
    fixed={
        "name": "gptj",
        "position_embedding_type": "rotary",
        "use_bias_in_output": True,
        **_biases(qkv=True, output=True, feed_forward=True),
    },
    keys=(
        *_sizes(51200, 2048, 8192, 24, 32),
        heads_of_keys(),
        HEAD_DIM,
        rotary_share("partial_rotary_factor", 0.5),
        activation("hidden_act", "gelu_new"),
        *_ends("layer_norm_eps", 1e-5, is_tied=False),
        *_rotary(2048),
        only("qk_layernorm", False, "norms of queries and keys cannot be had"),
        same("resid_pdrop", 0.0, "residual_dropout_rate"),
        same("embd_pdrop", 0.0, "embedding_dropout_rate"),
        _ATTENTION_DROPOUT,
    ),
)

_GPTJ = Family(
    "gptj",
    "GPTJForCausalLM",
    called=("gptj",),
    prefix="transformer.",
    names={
        _WORDS: "wte",
        _NORM1: "h.N.ln_1",
        _Q: "h.N.attn.q_proj",
        _K: "h.N.attn.k_proj",
        _V: "h.N.attn.v_proj",
        _OUT: "h.N.attn.out_proj",
        _UP: "h.N.mlp.fc_in",
        _DOWN: "h.N.mlp.fc_out",
        _LAST_NORM: "ln_f",
        _HEAD: "lm_head",
    },
    halves=False,
    fixed={
        "name": "gptj",
        "position_embedding_type": "rotary",
        "use_bias_in_output": True,
        **_biases(qkv=False, output=False, feed_forward=True),
    },
    keys=(
        *_n_sizes(50400, 2048, 4096, 28, 16),
        same("rotary_dim", 64),
        only("rotary", True, "a GPT-J has no other positions"),
        only("scale_attn_weights", True, "a GPT-J divides its scores by the root of the width of a head"),
        activation("activation_function", "gelu_new"),
        *_ends("layer_norm_epsilon", 1e-5, is_tied=False),
        *_pdrops(0.0),
    ),
)


def _read_neox_parallel(found: Found) -> Mapping[str, Any]:
    is_parallel = found["use_parallel_residual"]
    return {"name": "gpt-neox", "use_untied_layer_norm": True} if is_parallel else {"name": "gpt2"}


_GPT_NEOX = Family(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    called=("gpt-neox",),
    prefix="gpt_neox.",
    names={
        _WORDS: "embed_in",
        _NORM1: "layers.N.input_layernorm",
        **dict.fromkeys((_Q, _K, _V), "layers.N.attention.query_key_value"),
        _OUT: "layers.N.attention.dense",
        _NORM3: "layers.N.post_attention_layernorm",
        _UP: "layers.N.mlp.dense_h_to_4h",
        _DOWN: "layers.N.mlp.dense_4h_to_h",
        _LAST_NORM: "final_layer_norm",
        _HEAD: "embed_out",
    },
    by_groups=True,
    fixed={"position_embedding_type": "rotary", "use_ffn_bias": True},
    keys=(
        *_sizes(50432, 6144, 24576, 44, 64),
        rotary_share("rotary_pct", 0.25, also="partial_rotary_factor"),
        same("max_position_embeddings", 2048),
        same("rotary_emb_base", 10000.0, "rope_theta", also="rope_theta"),
        scaling(),
        activation("hidden_act", "gelu"),
        *_ends("layer_norm_eps", 1e-5, is_tied=False),
        all_of("attention_bias", True, *_QKV_OUT),
        Key("use_parallel_residual", True, _read_neox_parallel, lambda model: model.is_parallel, bool),
        _HIDDEN_DROPOUT,
        _ATTENTION_DROPOUT,
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
    slopes = {"position_embedding_type": "alibi", "pos_scaling_factor": head_width(found) ** 0.5}
    return {**slopes, "pos_scaling_type": None, "pos_scaling_extra_args": None, "rotary_dim": None, "rope_theta": None}


def _is_new_falcon(model: DecoderParams) -> bool:
    return model.kv_heads not in (1, model.num_heads) or (model.is_parallel and model.norms_per_layer == 2)


_FALCON = Family(
    "falcon",
    "FalconForCausalLM",
    called=("falcon",),
    prefix="transformer.",
    names={
        _WORDS: "word_embeddings",
        _NORM1: "h.N.input_layernorm",
        **dict.fromkeys((_Q, _K, _V), "h.N.self_attention.query_key_value"),
        _OUT: "h.N.self_attention.dense",
        _NORM3: "h.N.post_attention_layernorm",
        _UP: "h.N.mlp.dense_h_to_4h",
        _DOWN: "h.N.mlp.dense_4h_to_h",
        _LAST_NORM: "ln_f",
        _HEAD: "lm_head",
    },
    norms_if_parallel={_NORM1: "h.N.ln_attn", _NORM3: "h.N.ln_mlp"},
    by_groups=True,
    fixed={},
    keys=(
        same("vocab_size", 65024),
        same("hidden_size", 4544, also="n_embed"),
        same("num_hidden_layers", 32, also="n_layer"),
        same("num_attention_heads", 71, "num_heads", also="n_head"),
        filter_size("ffn_hidden_size", "hidden_size"),
        Key("new_decoder_architecture", False, lambda _: {}, _is_new_falcon, bool),
        Key("multi_query", True, lambda _: {}, lambda model: model.kv_heads == 1, bool),
        silent(heads_of_keys(theirs="num_kv_heads")),
        Key("parallel_attn", True, lambda _: {}, lambda model: model.is_parallel, bool),
        Key(
            "num_ln_in_parallel_attn", None, _read_falcon_attention,
            lambda model: model.norms_per_layer if _is_new_falcon(model) else None,
            int, if_null=lambda found: 2 if found["new_decoder_architecture"] else 1,
        ),
        all_of("bias", False, *_QKV_OUT, "use_ffn_bias"),
        activation("activation", "gelu"),
        *_ends("layer_norm_epsilon", 1e-5, is_tied=True),
        *_rotary(2048),
        Key("alibi", False, _read_falcon_alibi, lambda model: model.position_embedding_type == "alibi", bool),
        _NORM_IS_BESIDE,
        _HIDDEN_DROPOUT,
        _ATTENTION_DROPOUT,
    ),
)  # fmt: skip

_BLOOM = Family(
    "bloom",
    "BloomForCausalLM",
    called=("bloom",),
    prefix="transformer.",
    names={
        _WORDS: "word_embeddings",
        "embedding_ln_f": "word_embeddings_layernorm",
        _NORM1: "h.N.input_layernorm",
        **dict.fromkeys((_Q, _K, _V), "h.N.self_attention.query_key_value"),
        _OUT: "h.N.self_attention.dense",
        _NORM3: "h.N.post_attention_layernorm",
        _UP: "h.N.mlp.dense_h_to_4h",
        _DOWN: "h.N.mlp.dense_4h_to_h",
        _LAST_NORM: "ln_f",
        _HEAD: "lm_head",
    },
    by_groups=True,
    fixed={
        "name": "bloom",
        "position_embedding_type": "alibi",
        "embedding_layer_norm": True,
        "nonlinearity": "gelu_new",
        **_biases(qkv=True, output=True, feed_forward=True),
    },
    keys=(
        same("vocab_size", 250880),
        Key(
            "hidden_size", 64, lambda found: {"hidden_size": (h := found["hidden_size"]), "filter_size": 4 * h},
            lambda model: model.hidden_size, int, other_name="n_embed",
        ),
        same("n_layer", 2, "num_hidden_layers", also="num_hidden_layers"),
        same("n_head", 8, "num_heads", also="num_attention_heads"),
        same("seq_length", 2048, "max_position_embeddings"),
        *_ends("layer_norm_epsilon", 1e-5, is_tied=True),
        only("n_inner", None, "the feed-forward part of a Bloom is four times as wide as the model"),
        _NORM_IS_BESIDE,
        _HIDDEN_DROPOUT,
        _ATTENTION_DROPOUT,
    ),
    passed_over=frozenset(
        "attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion offset_alibi skip_bias_add "
        "skip_bias_add_qkv slow_but_exact".split()
    ),
)  # fmt: skip

_GPT_BIGCODE = Family(
    "gpt_bigcode",
    "GPTBigCodeForCausalLM",
    called=("starcoder", "santacoder"),
    prefix="transformer.",
    names=_GPT2.names,
    by_groups=True,
    fixed={"name": "starcoder", **_biases(qkv=True, output=True, feed_forward=True)},
    keys=(
        *_n_sizes(50257, 1024, 768, 12, 12),
        Key(
            "multi_query", True, lambda found: kv_groups(1 if found["multi_query"] else found["n_head"]),
            lambda model: model.kv_heads == 1, bool,
        ),
        activation("activation_function", "gelu_pytorch_tanh"),
        *_ends("layer_norm_epsilon", 1e-5, is_tied=True),
        _SCALE_WEIGHTS,
        only("add_cross_attention", False, "a decoder here reads no other text"),
        *_pdrops(0.1),
    ),
    passed_over=frozenset(
        "attention_softmax_in_fp32 inference_runner max_batch_size max_sequence_length pad_key_length "
        "pre_allocate_kv_cache scale_attention_softmax_in_fp32 validate_runner_input".split()
    ),
)  # fmt: skip

_STARCODER2 = Family(
    "starcoder2",
    "Starcoder2ForCausalLM",
    called=("starcoder",),
    prefix="model.",
    names={
        **_LLAMA_ENDS,
        **_LLAMA_NORMS,
        **_LLAMA_ATTENTION,
        _UP: "layers.N.mlp.c_fc",
        _DOWN: "layers.N.mlp.c_proj",
    },
    fixed={"name": "starcoder", "position_embedding_type": "rotary"},
    keys=(
        *_sizes(49152, 3072, 12288, 30, 24),
        heads_of_keys(2),
        HEAD_DIM,
        activation("hidden_act", "gelu_pytorch_tanh"),
        *_ends("norm_epsilon", 1e-5, is_tied=True, std=0.018042),
        *_rotary(4096),
        window(None),
        all_of("use_bias", True, *_QKV_OUT, "use_ffn_bias"),
        only("mlp_type", "default", "one with a gate is no StarCoder2"),
        only("norm_type", "layer_norm", "a StarCoder2 has no other"),
        same("residual_dropout", 0.0, "residual_dropout_rate"),
        same("embedding_dropout", 0.0, "embedding_dropout_rate"),
        _ATTENTION_DROPOUT,
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


_GEMMA2 = Family(
    "gemma2",
    "Gemma2ForCausalLM",
    called=("gemma2",),
    prefix="model.",
    names={
        **_LLAMA_NAMES,
        f"{_NORM1}_post": "layers.N.post_attention_layernorm",
        _NORM3: "layers.N.pre_feedforward_layernorm",
        f"{_NORM3}_post": "layers.N.post_feedforward_layernorm",
    },
    norm_offset=1.0,
    fixed={**_LLAMA_FIXED, "name": "gemma2", "norm_first_sandwich": True},
    keys=(
        same("vocab_size", 256000),
        Key(
            "hidden_size", 2304, lambda found: {"hidden_size": (h := found["hidden_size"]), "embeddings_scale": h**0.5},
            lambda model: model.hidden_size, int,
        ),
        *_sizes(256000, 2304, 9216, 26, 8)[2:],
        heads_of_keys(4),
        replace(HEAD_DIM, default=256),
        Key("query_pre_attn_scalar", 256, _read_query_scalar, _query_scalar, float),
        activation("hidden_activation", "gelu_pytorch_tanh", is_gated=True),
        *_ends("rms_norm_eps", 1e-6, is_tied=True),
        *_rotary(8192),
        silent(window(4096)),
        windows(lambda _, layer: layer % 2 == 0),
        same("attn_logit_softcapping", 50.0, "attention_logit_softcapping", nullable=True),
        same("final_logit_softcapping", 30.0, nullable=True),
        all_of("attention_bias", False, *_QKV_OUT),
        _ATTENTION_DROPOUT,
    ),
    # The older name of hidden_activation, which older files have beside it, with another function.
    passed_over=frozenset({"hidden_act", "cache_implementation"}),
)  # fmt: skip

HF_FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        _GPT2,
        _LLAMA,
        _MISTRAL,
        _QWEN2,
        _PHI3,
        _PHI,
        _GPTJ,
        _GPT_NEOX,
        _FALCON,
        _BLOOM,
        _GPT_BIGCODE,
        _STARCODER2,
        _GEMMA2,
    )
}
"""by model_type; of several that compute the same as a model, the first of its name is written"""
