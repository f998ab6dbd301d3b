"""Hugging Face's T5: the names of its tensors and the keys of its config.json.

T5 as first published has a feed-forward part with relu and ties its output layer to the table of words; T5 1.1 has a
gate (`gated-gelu`, whose gelu is the form with tanh) and an output layer of its own. Source: the released models, and
Hugging Face's library 4.57, which the tests compare with.
"""

from collections.abc import Mapping
from operator import attrgetter, itemgetter
from typing import Any

from cstool.convert.hf_family import Family
from cstool.convert.hf_keys import HF_ACTIVATIONS, Found, Key, Refused, only, same, text
from cstool.model.params import GATED_NONLINEARITIES, EncoderDecoderParams

_PROJECTIONS = {
    "q": "proj_q_dense_layer",
    "k": "proj_k_dense_layer",
    "v": "proj_v_dense_layer",
    "o": "proj_output_dense_layer",
}
_UP, _GATE = "ffn.ffn.0.linear_layer", "ffn.ffn.0.linear_layer_for_glu"
_PARTS = {
    "encoder": {"self_attn": "SelfAttention", "ffn": "DenseReluDense"},
    "decoder": {"self_attn": "SelfAttention", "multihead_attn": "EncDecAttention", "ffn": "DenseReluDense"},
}
"""parts of a layer, in order"""


def _stack(stack: str) -> dict[str, str]:
    """Names of the weights of a stack; a part of a layer, with the norm before it, is a layer of a block there."""
    table = "position_embed_helper.relative_attention_bias"
    names = {f"{stack}_embeddings.{table}": f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"}
    for number, (ours, theirs) in enumerate(_PARTS[stack].items()):
        layer, there = f"{stack}.layers.N", f"{stack}.block.N.layer.{number}"
        names[f"{layer}.norm{number + 1}"] = f"{there}.layer_norm"
        if ours == "ffn":
            names |= {
                f"{layer}.{_UP}": f"{there}.{theirs}.wi",
                f"{layer}.ffn.ffn.1.linear_layer": f"{there}.{theirs}.wo",
            }
        else:
            names |= {f"{layer}.{ours}.{name}": f"{there}.{theirs}.{part}" for part, name in _PROJECTIONS.items()}
    return {**names, f"{stack}.norm": f"{stack}.final_layer_norm"}


def _gates() -> dict[str, str]:
    """Names where there is a gate: its function is of the first matrix."""
    found: dict[str, str] = {}
    for stack, parts in _PARTS.items():
        there = f"{stack}.block.N.layer.{len(parts) - 1}.DenseReluDense"
        found |= {f"{stack}.layers.N.{_GATE}": f"{there}.wi_0", f"{stack}.layers.N.{_UP}": f"{there}.wi_1"}
    return found


_PLAIN = ("relu", "gelu")
_GATES = {
    "gated-gelu": "geglu_new",
    "gated-gelu_python": "geglu",
    **{
        f"gated-{theirs}": name
        for name, function in GATED_NONLINEARITIES.items()
        for theirs, of in HF_ACTIVATIONS.items()
        if of == function and name in ("geglu_new", "reglu", "swiglu")
    },
}
"""gates as they call them -> as the params do, the one that is written first; gated-gelu is the form with tanh there,
and gelu_python the exact one"""
_FEED_FORWARD = {**{name: name for name in _PLAIN}, **_GATES}


def _read_feed_forward(found: Found) -> Mapping[str, Any]:
    if (name := _FEED_FORWARD.get(found["feed_forward_proj"])) is None:
        known = ", ".join(_FEED_FORWARD)
        raise Refused(f"feed_forward_proj must be one of {known}, got {found['feed_forward_proj']}")
    return {"encoder_nonlinearity": name}


def _read_scaled(found: Found) -> Mapping[str, Any]:
    """Read whether the input of the output layer is scaled; newer releases state it apart from the tie."""
    tied, scaled = found["tie_word_embeddings"], found["scale_decoder_outputs"]
    if scaled not in (None, tied):
        raise Refused(
            f"scale_decoder_outputs must be {text(tied)}, as tie_word_embeddings, got {text(scaled)}",
            "an output layer of its own reads what is not scaled",
        )
    return {}


def _write_feed_forward(model: EncoderDecoderParams) -> str:
    return next(theirs for theirs, name in _FEED_FORWARD.items() if name == model.encoder_nonlinearity)


def _write_start(model: EncoderDecoderParams) -> int:
    """As released: the token of padding."""
    return model.decoder_start_token_id or 0


T5 = Family(
    "t5",
    "T5ForConditionalGeneration",
    called=("t5", "transformer"),
    prefix="",
    names={
        "encoder_embeddings.word_embeddings": "shared",
        **_stack("encoder"),
        **_stack("decoder"),
        "lm_head": "lm_head",
    },
    names_if_gated=_gates(),
    fixed={"name": "t5"},
    keys=(
        same("vocab_size", 32128, "src_vocab_size", write=lambda model: model.vocab_sizes[0]),
        same("d_model", 512, also="hidden_size", write=attrgetter("hidden_size")),
        same("d_kv", 64, also="head_dim"),
        same("d_ff", 2048, write=attrgetter("filter_size")),
        same("num_layers", 6, "encoder_num_hidden_layers", also="num_hidden_layers"),
        same("num_decoder_layers", None, "decoder_num_hidden_layers", kind=int, if_null=itemgetter("num_layers")),
        same("num_heads", 8, also="num_attention_heads"),
        same("relative_attention_num_buckets", 32),
        only("relative_attention_max_distance", 128, "from there on all distances are alike here"),
        same("dropout_rate", 0.1),
        same("layer_norm_epsilon", 1e-6),
        same("initializer_factor", 1.0),
        Key("feed_forward_proj", "relu", _read_feed_forward, _write_feed_forward, str),
        same("tie_word_embeddings", True, "share_embedding_weights"),
        Key("scale_decoder_outputs", None, _read_scaled, None, bool, nullable=True),
        same("decoder_start_token_id", None, kind=int, write=_write_start, least=0, nullable=True),
        Key("pad_token_id", 0, lambda _: {}, lambda _: 0, int, least=0, nullable=True),
        only("is_encoder_decoder", True, "it has both stacks"),
    ),
    ties={
        "lm_head.weight": "shared.weight",
        **{f"{stack}.embed_tokens.weight": "shared.weight" for stack in ("encoder", "decoder")},
    },
    # The first released ones have a table there that nothing reads.
    passed_tensors=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.",),
    passed_over=frozenset("classifier_dropout dense_act_fn is_gated_act n_positions output_past".split()),
)

_INDIFFERENT = frozenset(
    "name src_vocab_size tgt_vocab_size extra_ids dropout_rate relu_dropout_rate src_max_position_embeddings "
    "tgt_max_position_embeddings use_dropout_outside_residual_path use_pre_encoder_decoder_dropout attention_module "
    "extra_attention_params initializer_factor use_transformer_initialization mup_base_hidden_size "
    "mup_base_filter_size mup_base_d_kv embeddings_alpha encoder_attention_logits_alpha "
    "decoder_attention_logits_alpha scale_encoder_qk_dot_by_d scale_decoder_qk_dot_by_d scale_output_logits_by_d "
    "output_logits_alpha mlm_loss_scaling lm_loss_weight decoder_start_token_id use_ffn_bias".split()
)
"""keys of the params without effect on a model's results, or compared by their joint effect"""


def t5_facts(model: EncoderDecoderParams) -> dict[str, Any]:
    """Return all facts that decide results: by keys of the params, or properties of several keys."""
    facts = {key: getattr(model, key) for key in type(model).model_fields if key not in _INDIFFERENT}
    if model.position_embedding_type != "relative":
        del facts["relative_attention_num_buckets"]
    sizes = zip(("src_vocab_size", "tgt_vocab_size"), model.vocab_sizes, strict=True)
    return facts | {
        **dict(sizes),
        "kv_heads": model.kv_heads,
        "use_ffn_bias": model.has_ffn_bias,
        "embeddings_scale": model.embeddings_scale,
        "logits_scale": model.logits_scale,
        **{f"scale of attention in the {stack}": model.scale_of_stack(stack) for stack in ("encoder", "decoder")},
    }
