"""Small models for tests."""

from collections.abc import Callable
from typing import Any

import yaml

from cstool.model.graphs import SampleForm, build_graph
from cstool.model.ir import Graph, Initializer, Loss, Op, OpKind, Segment, Tensor, Weight, verify
from cstool.model.params import (
    DecoderParams,
    DpoParams,
    DprParams,
    EncoderDecoderParams,
    EncoderParams,
    FcMnistParams,
    VisionTransformerParams,
)
from cstool.model.params.sections.model import MODELS


def _sizes(layers: int, positions: int, dropout: float) -> dict[str, Any]:
    own = {"num_hidden_layers": layers, "vocab_size": 11, "hidden_size": 8, "num_heads": 2, "filter_size": 16}
    return own | {"max_position_embeddings": positions, "dropout_rate": dropout, "attention_dropout_rate": dropout}


def decoder_params(*, layers: int = 1, sequence: int = 8, dropout: float = 0.0, **keys: Any) -> DecoderParams:
    """The params of a decoder of width 8 with 2 heads over 11 tokens."""
    settings = {"name": "gpt2", **_sizes(layers, sequence, dropout), **keys}
    model = MODELS[settings["name"]].model_validate(settings)
    assert isinstance(model, DecoderParams)
    return model


def decoder(*, sequence: int = 8, **keys: Any) -> Graph:
    """A decoder of width 8 with 2 heads over 11 tokens."""
    return build_graph(decoder_params(sequence=sequence, **keys), sequence)


SPARSITIES: dict[str, dict[str, Any]] = yaml.safe_load("""
static: {sparsity: 0.75}
gmp: {algorithm: gmp, sparsity: {type: linear, init: 0.3, slope: 0.1}}
set: {algorithm: set, sparsity: 0.9, update: {freq: 2}}
rigl: {algorithm: rigl, sparsity: 0.75, update: {freq: 2}}
dropconnect: {algorithm: dropconnect, sparsity: 0.5}
""")
"""the section `sparsity` of each rule"""
FAMILIES: dict[str, dict[str, Any]] = yaml.safe_load("""
gpt2: {}
llama: &llama {
  use_projection_bias_in_attention: false, use_ffn_bias_in_attention: false, use_ffn_bias: false,
  attention_module: multiquery_attention, num_heads: 4, hidden_size: 16, extra_attention_params: {num_kv_groups: 2},
  name: llama, norm_type: rmsnorm, position_embedding_type: rotary, rotary_dim: 4, nonlinearity: swiglu,
  share_embedding_weights: false}
mistral: {<<: *llama, name: mistral, attention_sliding_window_length: 3}
falcon, one norm: &falcon {
  use_projection_bias_in_attention: false, use_ffn_bias_in_attention: false, use_ffn_bias: false,
  attention_module: multiquery_attention, num_heads: 4, hidden_size: 16, name: falcon, rotary_dim: 4}
falcon, two norms: {<<: *falcon, use_untied_layer_norm: true, extra_attention_params: {num_kv_groups: 2}}
bloom: {name: bloom, position_embedding_type: alibi, embedding_layer_norm: true, nonlinearity: gelu_new}
gptj: {
  name: gptj, rotary_dim: 2, nonlinearity: gelu_new, use_projection_bias_in_attention: false,
  use_ffn_bias_in_attention: false, use_ffn_bias: true, share_embedding_weights: false, use_bias_in_output: true}
gpt-neox: {name: gpt-neox, rotary_dim: 2, use_untied_layer_norm: true, share_embedding_weights: false}
gemma2: {
  <<: *llama, name: gemma2, share_embedding_weights: true, attention_inner_dim: 8, rotary_dim: 2,
  norm_first_sandwich: true, nonlinearity: geglu, embeddings_scale: 4.0, attention_sliding_window_length: 3,
  sliding_window_every_other_decoder_layer: true,
  sliding_window_every_other_decoder_layer_pattern: sliding_window_first,
  attention_logit_softcapping: 2.0, final_logit_softcapping: 3.0}
jais: {
  name: jais, position_embedding_type: alibi, nonlinearity: swiglu,
  mup_base_hidden_size: 4, mup_base_filter_size: 4, embeddings_scale: 3.0, output_logits_alpha: 2.0}
starcoder: {
  attention_module: multiquery_attention, num_heads: 4, hidden_size: 16, name: starcoder, nonlinearity: gelu_new}
mixtral: {<<: *llama, name: mixtral, moe: {num_experts: 4, top_k: 2}}
relative positions: {position_embedding_type: relative, num_relative_attention_buckets: 6}
trained slopes: {
  name: bloom, position_embedding_type: alibi, alibi_trainable_slopes: true, pos_scaling_factor: 2.0}
norms of heads: {<<: *llama, attention_qk_norm_layer: rmsnorm, apply_attention_qk_norm: true}
chunks and columns: {
  <<: *llama, attention_chunk_size: 3, attention_vertical_column_spacing: 4, attention_vertical_column_width: 2,
  apply_attention_pattern: true}
window and columns: {
  name: gpt3, attention_sliding_window_length: 2, attention_vertical_column_spacing: 3,
  attention_vertical_column_width: 1, apply_attention_pattern: true}
fixed sparse: {
  name: gpt3, fixed_sparse_attention: {local_attn_ctx: 4, num_verts: 2, vert_size: 1}, apply_attention_pattern: true}
longrope: {
  <<: *llama, pos_scaling_type: longrope, pos_scaling_extra_args: {
    original_max_position_embeddings: 4, long_factor: [1.5, 3.0], short_factor: [1.0, 1.25]}}
""")
"""one model of each family, by what sets it apart"""
BALANCED = FAMILIES["mixtral"] | {"moe": {"num_experts": 4, "top_k": 2, "load_balancing_loss_coef": 0.5}}
"""a mixture of experts with the loss that balances them"""
VARIANTS: dict[str, dict[str, Any]] = yaml.safe_load("""
untied, biases: {share_embedding_weights: false, use_bias_in_output: true}
relu, no biases: {
  nonlinearity: relu, use_projection_bias_in_attention: false, use_ffn_bias_in_attention: false, use_ffn_bias: false}
shared experts, biases, one choice: {moe: {
  num_experts: 3, top_k: 1, num_shared_experts: 2, null_expert_bias: 1.1, router_use_bias: true,
  load_balancing_loss_coef: 0.3}}
experts by sigmoids: {nonlinearity: swiglu, moe: {
  num_experts: 5, top_k: 3, router_selection_nonlinearity: sigmoid, load_balancing_loss_coef: 0.3}}
experts by softmax, weighted by sigmoids: {nonlinearity: relu, moe: {
  num_experts: 4, top_k: 4, load_balancing_loss_coef: 0.3, expert_weighting_nonlinearity: sigmoid,
  expert_weighting_normalization: false}}
learned positions, norm, scale: {embedding_layer_norm: true, embeddings_scale: 3.0}
fixed positions: {position_embedding_type: fixed}
fixed positions, norm, scale: {position_embedding_type: fixed, embedding_layer_norm: true, embeddings_scale: 3.0}
no positions, scale: {position_embedding_type: null, embeddings_scale: 3.0}
norms without biases: {norm_type: biasless-layernorm}
sandwich with biases: {norm_first_sandwich: true, name: gemma2}
inner size: {attention_inner_dim: 12}
window, sinks: {attention_sliding_window_length: 2, apply_attention_sinks: true, attention_sink_tokens: 1}
window, sinks, alibi, cap: {
  attention_sliding_window_length: 3, apply_attention_sinks: true, attention_sink_tokens: 2,
  position_embedding_type: alibi, pos_scaling_factor: 2.0, attention_logit_softcapping: 1.5}
every other window: &every_other {
  attention_sliding_window_length: 2, sliding_window_every_other_decoder_layer: true, layers: 2}
parallel, windows: {<<: *every_other, name: falcon, rotary_dim: 2}
parallel, learned positions, gated: {
  name: gptj, position_embedding_type: learned, use_ffn_bias: true, nonlinearity: geglu}
scores by layer: {scale_qk_dot_by_layer_idx: true, attention_type: dot_product, layers: 2}
capped logits, bias: {final_logit_softcapping: 2.0, output_logits_scale: 0.5, use_bias_in_output: true}
llama3: {
  position_embedding_type: rotary, rotary_dim: 4, pos_scaling_type: llama3, pos_scaling_factor: 8.0,
  pos_scaling_extra_args: {original_max_position_embeddings: 16}}
yarn: {
  position_embedding_type: rotary, rotary_dim: 4, pos_scaling_type: yarn, pos_scaling_factor: 4.0,
  pos_scaling_extra_args: {original_max_position_embeddings: 64}}
""")
"""decoders as no family has them, by what sets them apart"""
VARIANTS |= {"balanced experts": BALANCED}
VARIANTS |= {"experts beside attention": FAMILIES["gptj"] | {"moe": {"num_experts": 3, "top_k": 2}}}
VARIANTS |= {
    name: {"nonlinearity": name} for name in ("silu", "squared_relu", "quick_gelu", "linear", "reglu", "liglu")
}


def fc_mnist(*sizes: int, **keys: Any) -> Graph:
    """A fully connected network, by default 784 - 6 - 4 - 10."""
    model = FcMnistParams.model_validate({"name": "fc_mnist", "hidden_sizes": list(sizes or (6, 4)), **keys})
    return build_graph(model, None)


ENCODERS: dict[str, dict[str, Any]] = yaml.safe_load("""
bert: {mlm_loss_weight: 0.5}
bert, pad 1, no ties: {
  share_embedding_weights: false, pad_token_id: 1, mask_padding_in_positional_embed: true,
  use_output_bias_in_mlm: false, use_ffn_bias_in_mlm: false, encoder_nonlinearity: relu, embedding_layer_norm: false,
  extra_attention_params: {num_kv_groups: 2}, attention_module: multiquery_attention, num_heads: 4, hidden_size: 16}
bert, muP: {
  mup_base_hidden_size: 4.0, mup_base_filter_size: 4.0, embeddings_scale: 3.0, output_logits_alpha: 2.0}
roberta: {disable_nsp: true, mask_padding_in_positional_embed: true}
esm2: &esm2 {
  name: esm2, disable_nsp: true, embedding_layer_norm: false, position_embedding_type: rotary, rotary_dim: 4,
  use_final_layer_norm: true, token_dropout: true, mask_token_id: 4, pad_token_id: 1}
esm2, packed: {<<: *esm2, packed: true}
bert, packed: {disable_nsp: true, packed: true}
bert, smoothed labels: {label_smoothing: 0.2}
bert, alibi: {position_embedding_type: alibi, use_projection_bias_in_attention: false}
bert, gates, norms first: {encoder_nonlinearity: swiglu, use_ffn_bias: false, norm_first: true}
bert, fixed positions: {position_embedding_type: fixed, num_segments: 0}
classifier: {name: bert/classifier, task_dropout: 0.0, num_labels: 3}
token classifier: {
  name: bert/token_classifier, num_classes: 5, encoder_output_dropout_rate: 0.0, include_padding_in_loss: true}
summarization: {name: bert/extractive_summarization, loss_weight: 0.25}
""")
"""encoders, by what sets them apart"""


CLASSIFIERS: dict[str, dict[str, Any]] = {
    "gpt2 that classifies": {"name": "gpt2/classifier", "num_labels": 2},
    "llama that classifies": {**FAMILIES["llama"], "name": "llama/classifier", "num_labels": 3},
    "gemma2 that classifies": {
        **{key: value for key, value in FAMILIES["gemma2"].items() if key != "final_logit_softcapping"},
        "name": "gemma2/classifier",
        "num_labels": 3,
    },
}
"""decoders that classify, by what sets them apart"""


def encoder_params(*, layers: int = 1, sequence: int = 8, dropout: float = 0.0, **keys: Any) -> EncoderParams:
    """The params of an encoder of width 8 with 2 heads over 11 tokens."""
    settings = {"name": "bert", **_sizes(layers, sequence, dropout), "pooler_nonlinearity": "tanh", **keys}
    if dropout and "task_dropout" in settings:
        settings["task_dropout"] = dropout
    model = MODELS[settings["name"]].model_validate(settings)
    assert isinstance(model, EncoderParams)
    return model


def encoder(*, sequence: int = 8, predictions: int = 3, packed: bool = False, **keys: Any) -> Graph:
    """An encoder of width 8 with 2 heads over 11 tokens, and its heads."""
    form = SampleForm(sequence, predictions, is_packed=packed)
    return build_graph(encoder_params(sequence=sequence, **keys), form)


VISION: dict[str, dict[str, Any]] = yaml.safe_load("""
vision: {use_conv_patchified_embedding: true, num_channels: 2}
vision, pooler: {
  use_encoder_pooler_layer: true, pooler_nonlinearity: tanh, use_embed_proj_bias: false, use_bias_in_output: false}
vision, fixed positions: {position_embedding_type: fixed, use_post_embed_layer_norm: true}
vision, no token: {prepend_cls_token: false, norm_first: false, use_final_layer_norm: false}
vision, bare: {prepend_cls_token: false, position_embedding_type: null, nonlinearity: swiglu}
""")
"""vision transformers, by what sets them apart"""


def vision(*, layers: int = 1, dropout: float = 0.0, **keys: Any) -> Graph:
    """A vision transformer of width 8 with 2 heads, for 4 x 6 pixels in 6 patches and 5 classes."""
    own = {
        "name": "vision_transformer",
        "num_classes": 5,
        "image_size": [4, 6],
        "patch_size": [2, 2],
        "num_channels": 1,
    }
    own |= {"num_hidden_layers": layers, "hidden_size": 8, "num_heads": 2, "filter_size": 16}
    own |= {f"{part}dropout_rate": dropout for part in ("", "attention_", "embedding_")}
    return build_graph(VisionTransformerParams.model_validate({**own, **keys}), None)


# The activation of muP and of smoothed labels is smooth: a step of a finite difference would meet a kink of relu.
ENCODER_DECODERS: dict[str, dict[str, Any]] = yaml.safe_load("""
t5: {lm_loss_weight: 0.25}
t5, gates, untied: {
  encoder_nonlinearity: geglu, share_embedding_weights: false, mlm_loss_scaling: num_masked, relu_dropout_rate: 0.3}
t5, two vocabularies, biases: {
  tgt_vocab_size: 13, extra_ids: 2, share_encoder_decoder_embedding: false, use_projection_bias_in_attention: true,
  encoder_nonlinearity: swiglu, use_ffn_bias: true, norm_type: biasless-layernorm,
  position_embedding_type: learned_absolute}
t5, no ties at all, grouped heads: {
  share_encoder_decoder_embedding: false, share_embedding_weights: false, attention_module: multiquery_attention,
  extra_attention_params: {num_kv_groups: 2}, num_heads: 4}
t5, muP: {
  encoder_nonlinearity: gelu, mup_base_d_model: 4, mup_base_d_ff: 4, embeddings_alpha: 0.7,
  encoder_attention_logits_alpha: 1.5, decoder_attention_logits_alpha: 0.7, output_logits_alpha: 2.0}
t5, smoothed labels: {label_smoothing: 0.1, encoder_nonlinearity: gelu}
t5, alibi: {position_embedding_type: alibi, decoder_num_hidden_layers: 1}
transformer: &transformer {
  name: transformer, norm_type: layernorm, position_embedding_type: fixed, use_dropout_outside_residual_path: false,
  use_pre_encoder_decoder_dropout: true, use_pre_encoder_decoder_layer_norm: false, use_ffn_bias: true,
  use_transformer_initialization: true, relu_dropout_rate: 0.0}
transformer, norms first: {<<: *transformer, use_pre_encoder_decoder_layer_norm: true}
""")
"""encoders with decoders, by what sets them apart"""
TARGETS = 5
"""tokens of what their decoders read"""


def encoder_decoder_params(
    *, layers: int = 1, sequence: int = 8, dropout: float = 0.0, **keys: Any
) -> EncoderDecoderParams:
    """The params of an encoder and a decoder of width 8 with 2 heads of 3 over 11 tokens."""
    own: dict[str, Any] = {
        "encoder_num_hidden_layers": layers,
        "decoder_num_hidden_layers": layers,
        "src_vocab_size": 11,
    }
    own |= {"d_model": 8, "d_kv": 3, "num_heads": 2, "d_ff": 16, "relative_attention_num_buckets": 8}
    own |= {"src_max_position_embeddings": sequence, "tgt_max_position_embeddings": TARGETS, "dropout_rate": dropout}
    settings = {"name": "t5", **own, **keys}
    model = MODELS[settings["name"]].model_validate(settings)
    assert isinstance(model, EncoderDecoderParams)
    return model


def encoder_decoder(*, sequence: int = 8, targets: int = TARGETS, **keys: Any) -> Graph:
    """An encoder and a decoder of width 8 with 2 heads of 3 over 11 tokens."""
    return build_graph(encoder_decoder_params(sequence=sequence, **keys), SampleForm(sequence, targets=targets))


def preference_params(*, sequence: int = 8, dropout: float = 0.0, **keys: Any) -> DpoParams:
    """The params of DPO, whose policy is that of `decoder_params`; `dpo` has the settings of the loss."""
    settings = {"disable_dropout": dropout == 0.0, **keys.pop("dpo", {})}
    policy = decoder_params(sequence=sequence, dropout=dropout, **keys)
    return DpoParams.model_validate({"name": "dpo", "policy_model": policy, "dpo": settings})


def preferences(*, sequence: int = 8, **keys: Any) -> Graph:
    """DPO of decoders of width 8 with 2 heads over 11 tokens."""
    return build_graph(preference_params(sequence=sequence, **keys), sequence)


PREFERENCES: dict[str, dict[str, Any]] = {
    "dpo": {"layers": 2, **FAMILIES["llama"]},
    "dpo, learned positions": {"dpo": {"loss_type": "ipo"}},
    "dpo, window": {"dpo": {"loss_type": "dpop"}, **FAMILIES["mistral"]},
    "dpo, no reference": {"dpo": {"loss_type": "hinge", "reference_free": True}, **FAMILIES["gptj"]},
    "dpo, orpo": {"dpo": {"loss_type": "orpo", "beta": 0.7}, **FAMILIES["llama"]},
    "dpo, fixed positions": {"position_embedding_type": "fixed", "embedding_layer_norm": True},
}


KTO = {"dpo": {"loss_type": "kto", "beta": 0.7, "undesirable_weight": 1.5}, **FAMILIES["llama"]}
"""answers with labels, of which all of a batch meet"""
DPRS: dict[str, dict[str, Any]] = {
    "dpr": {"softmax_temperature": 3.0},
    "dpr, mean, mutual": {"pooler_type": "mean", "mutual_information": True, "softmax_temperature": 2.0},
    "dpr, pooler": {"pooler_type": "ffn_pooler", "softmax_temperature": 4.0},
    "dpr, one encoder": {"use_biencoder": False, "softmax_temperature": 3.0},
}
"""models of two encoders, by what sets them apart"""


def dpr(*, layers: int = 1, sequence: int = 6, dropout: float = 0.0, contexts: int = 2, **keys: Any) -> Graph:
    """A DPR of width 8 with 2 heads over 11 tokens, whose contexts are a token longer than its questions."""
    model = DprParams.model_validate({"name": "dpr", "encoder": _sizes(layers, sequence + 2, dropout), **keys})
    return build_graph(model, SampleForm(sequence, contexts=contexts, context_tokens=sequence + 1))


KINDS: list[tuple[Callable[..., Graph], dict[str, dict[str, Any]]]] = [
    (decoder, FAMILIES),
    (decoder, CLASSIFIERS),
    (encoder, ENCODERS),
    (vision, VISION),
    (encoder_decoder, ENCODER_DECODERS),
    (preferences, PREFERENCES),
    (preferences, {"kto": KTO}),
    (dpr, DPRS),
]
"""how models are built, and which there are"""


def model_of(name: str, **usual: Any) -> Graph:
    """A model of any kind by its name; what sets it apart counts more than what is usual."""
    [graph] = [make(**{**usual, **models[name]}) for make, models in [*KINDS, (decoder, VARIANTS)] if name in models]
    return graph


def attentive() -> Graph:
    """Two layers of attention, in both directions and by segments, that share a table of biases; trained slopes."""
    tokens, wide = (6,), (6, 4)
    form = {"heads": 2, "kv_heads": 2, "scale": 0.5, "causal": False, "slope_scale": 1.0}
    form |= {"buckets": 4, "max_distance": 5}
    two = {**form, "dropout": 0.3}
    loss = {"logits_scale": 0.5, "logits_softcap": 3.0}
    ops = [Op(OpKind.LINEAR, part, ("h",), (part,), (f"{part}.weight",)) for part in "qkv"]
    ops += [
        Op(OpKind.ATTENTION, "one", ("q", "k", "v", "segments"), ("x",), ("table", "slopes.0"), form),
        Op(OpKind.ATTENTION, "two", (*"xkv", "segments", "segments"), ("y",), ("table", "slopes.1"), two),
        Op(OpKind.SOFTMAX_LOSS, "last", ("y", "labels", "mask"), ("loss",), ("last.weight",), loss),
    ]
    shapes = {"table": (4, 2), "slopes.0": (2,), "slopes.1": (2, 1), "last.weight": (10, 4)}
    shapes |= {f"{part}.weight": (4, 4) for part in "qkv"}
    weights = tuple(Weight(name, shape, Initializer("constant")) for name, shape in shapes.items())
    tensors = (*(Tensor(name, wide) for name in "qkvxy"), Tensor("loss", tokens))
    ids = (Tensor(name, tokens, "int32") for name in ("labels", "segments"))
    inputs = Tensor("h", wide), Tensor("mask", tokens), *ids
    graph = Graph("attentive", inputs, (Segment(tuple(ops), tensors, weights),), (Loss("loss"),))
    verify(graph)
    return graph
