"""Hugging Face's encoders: for each class, the names of its tensors and the keys of its config.json.

A model_type has several classes there, which differ in their heads; `architectures` names the one. Source: the released
models, and Hugging Face's library 4.57, which the tests compare with.
"""

from collections.abc import Mapping
from typing import Any

from cstool.convert.hf_family import Family
from cstool.convert.hf_keys import HF_ACTIVATIONS, Found, Key, Refused, head_width, labels, only, same
from cstool.model.params import GATED_NONLINEARITIES, NONLINEARITIES, DprEncoderParams, EncoderParams

_MLM = "bert_mlm_head"
_OUTPUT = f"{_MLM}.classifier.ffn.0.linear_layer"


def _names(ours: str, theirs: str, *, norm1: str, norm2: str, embeddings: str) -> dict[str, str]:
    """Names of an encoder's weights, without its heads.

    Args:
        ours, theirs: prefixes of the names
        norm1, norm2: of a layer
        embeddings: the norm of these
    """
    layer, there = f"{ours}transformer_encoder.layers.N", f"{theirs}.encoder.layer.N"
    table = f"{ours}embedding_layer"
    return {
        f"{table}.word_embeddings": f"{theirs}.embeddings.word_embeddings",
        f"{table}.position_embeddings.embed": f"{theirs}.embeddings.position_embeddings",
        f"{table}.segment_embeddings": f"{theirs}.embeddings.token_type_embeddings",
        f"{ours}embed_ln_f": f"{theirs}.embeddings.{embeddings}",
        f"{layer}.self_attn.proj_q_dense_layer": f"{there}.attention.self.query",
        f"{layer}.self_attn.proj_k_dense_layer": f"{there}.attention.self.key",
        f"{layer}.self_attn.proj_v_dense_layer": f"{there}.attention.self.value",
        f"{layer}.self_attn.proj_output_dense_layer": f"{there}.attention.output.dense",
        f"{layer}.norm1": f"{there}.{norm1}",
        f"{layer}.ffn.ffn.0.linear_layer": f"{there}.intermediate.dense",
        f"{layer}.ffn.ffn.1.linear_layer": f"{there}.output.dense",
        f"{layer}.norm2": f"{there}.{norm2}",
        f"{ours}transformer_encoder.norm": f"{theirs}.encoder.emb_layer_norm_after",
        f"{ours}pooler.pooler.ffn.0.linear_layer": f"{theirs}.pooler.dense",
    }


def norms_last(ours: str, theirs: str) -> dict[str, str]:
    """Names of the weights of a BERT without heads; `ours` and `theirs` are their prefixes."""
    return _names(ours, theirs, norm1="attention.output.LayerNorm", norm2="output.LayerNorm", embeddings="LayerNorm")


def _masked(dense: str, norm: str, bias: str, decoder: str) -> dict[str, str]:
    """Names of the head for masked tokens; its output layer has a weight of its own only where it is not tied."""
    return {
        f"{_MLM}.mlm_transform.ffn.ffn.0.linear_layer": dense,
        f"{_MLM}.mlm_transform.ln": norm,
        f"{_OUTPUT}.bias": f"{bias}.bias",
        f"{_OUTPUT}.weight": f"{decoder}.weight",
    }


def _read_activation(found: Found) -> Mapping[str, Any]:
    if (function := HF_ACTIVATIONS.get(found["hidden_act"])) is None:
        raise Refused(f"hidden_act must be one of {', '.join(HF_ACTIVATIONS)}, got {found['hidden_act']}")
    return {"encoder_nonlinearity": function}


def _activation(model: EncoderParams) -> str:
    function = (GATED_NONLINEARITIES | NONLINEARITIES)[model.encoder_nonlinearity]
    return (
        "gelu" if function == "gelu" else next((name for name, of in HF_ACTIVATIONS.items() if of == function), "gelu")
    )


_ACTIVATION = Key("hidden_act", "gelu", _read_activation, _activation, str)
_TIED = same("tie_word_embeddings", True, "share_embedding_weights")
_NO_CROSS = (
    only("is_decoder", False, "an encoder's tokens see all others"),
    only("add_cross_attention", False, "an encoder here reads no other text"),
)


def _sizes(vocab: int, positions: tuple[Key, ...], epsilon: float) -> tuple[Key, ...]:
    """Keys of all of them."""
    return (
        same("vocab_size", vocab),
        same("hidden_size", 768),
        same("num_hidden_layers", 12),
        same("num_attention_heads", 12, "num_heads"),
        same("intermediate_size", 3072, "filter_size"),
        *positions,
        same("layer_norm_eps", epsilon, "layer_norm_epsilon"),
        same("initializer_range", 0.02),
        same("hidden_dropout_prob", 0.1, "dropout_rate"),
        same("attention_probs_dropout_prob", 0.1, "attention_dropout_rate"),
    )


def _pad(default: int) -> Key:
    return Key(
        "pad_token_id", default, lambda found: {"pad_token_id": found["pad_token_id"]},
        lambda model: model.pad_token_id, int, least=0,
    )  # fmt: skip


def _segments(default: int) -> Key:
    return Key(
        "type_vocab_size", default, lambda found: {"num_segments": found["type_vocab_size"]},
        lambda model: model.segments, int, least=0,
    )  # fmt: skip


_ABSOLUTE = only("position_embedding_type", "absolute", "positions have a table here, as in the released models")
BERT_KEYS: tuple[Key, ...] = (
    *_sizes(30522, (_pad(0), same("max_position_embeddings", 512)), 1e-12),
    _segments(2),
    _ACTIVATION,
    _ABSOLUTE,
    *_NO_CROSS,
)
"""keys of config.json that every BERT has"""
_BERT_FIXED = {"position_embedding_type": "learned", "pooler_nonlinearity": "tanh"}
_BERT_MASKED = _masked(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions",
    "cls.predictions.decoder",
)
_BERT_TIES = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def _bert(class_name: str, called: str, names: Mapping[str, str], *keys: Key, **others: Any) -> Family:
    fixed = {"name": called, **_BERT_FIXED, **others.pop("fixed", {})}
    return Family("bert", class_name, (called,), "", names, fixed, (*BERT_KEYS, *keys), **others)


def _classes(key: str, dropout: str) -> tuple[Key, ...]:
    def rate(found: Found) -> Mapping[str, Any]:
        given = found["classifier_dropout"]
        return {dropout: found["hidden_dropout_prob"] if given is None else given}

    write = Key("classifier_dropout", None, rate, lambda model: getattr(model, dropout), float, nullable=True)
    return write, *labels(key)


_FINE_TUNED = {**norms_last("bert.", "bert"), "classifier": "classifier"}
_POSITIONS_AFTER_PADDING = Key(
    "max_position_embeddings", 514,
    lambda found: {"max_position_embeddings": max(1, found["max_position_embeddings"] - found["pad_token_id"] - 1)},
    lambda model: model.max_position_embeddings + model.position_offset, int,
)  # fmt: skip

_ROBERTA = Family(
    "roberta",
    "RobertaForMaskedLM",
    called=("bert",),
    prefix="",
    names={
        **norms_last("bert_encoder.", "roberta"),
        **_masked("lm_head.dense", "lm_head.layer_norm", "lm_head", "lm_head.decoder"),
    },
    fixed={
        "name": "bert",
        "disable_nsp": True,
        "position_embedding_type": "learned",
        "mask_padding_in_positional_embed": True,
        "mlm_nonlinearity": "gelu",
    },
    keys=(*_sizes(50265, (_pad(1), _POSITIONS_AFTER_PADDING), 1e-12), _segments(2), _ACTIVATION, _ABSOLUTE, _TIED)
    + _NO_CROSS,
    ties={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    passed_tensors=("roberta.pooler.",),
    passed_over=frozenset({"classifier_dropout"}),
)


def _read_turned_heads(found: Found) -> Mapping[str, Any]:
    """Positions turn the whole of a head."""
    return {"num_heads": found["num_attention_heads"], "rotary_dim": head_width(found)}


_ESM = Family(
    "esm",
    "EsmForMaskedLM",
    called=("esm2",),
    prefix="",
    names={
        **_names(
            "bert_encoder.", "esm", norm1="attention.LayerNorm", norm2="LayerNorm", embeddings="layer_norm"
        ),
        **_masked("lm_head.dense", "lm_head.layer_norm", "lm_head", "lm_head.decoder"),
    },
    fixed={
        "name": "esm2",
        "disable_nsp": True,
        "num_segments": 0,
        "position_embedding_type": "rotary",
        "norm_first": True,
        "use_final_layer_norm": True,
        "encoder_nonlinearity": "gelu",
    },
    keys=(
        *_sizes(33, (_pad(1), same("max_position_embeddings", 1026)), 1e-12),
        Key(
            "mask_token_id", None, lambda found: {"mask_token_id": found["mask_token_id"]},
            lambda model: model.mask_token_id, int, least=0, nullable=True,
        ),
        Key("num_attention_heads", 12, _read_turned_heads, lambda model: model.num_heads, int),
        same("token_dropout", False),
        same("emb_layer_norm_before", False, "embedding_layer_norm"),
        only("position_embedding_type", "rotary", "ESM-2 has no table of positions"),
        only("rope_theta", 10000.0, "positions of an ESM-2 turn at this rate"),
        _TIED,
        *_NO_CROSS,
    ),
    ties={"lm_head.decoder.weight": "esm.embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
    passed_tensors=("esm.contact_head.", "esm.pooler.", "esm.embeddings.position_embeddings."),
    passed_over=frozenset(
        "classifier_dropout esmfold_config hidden_act is_folding_model vocab_list use_cache".split()
    ),
)  # fmt: skip

ENCODER_FAMILIES: Mapping[str, Family] = {
    family.class_name: family
    for family in (
        _bert(
            "BertForPreTraining",
            "bert",
            {
                **norms_last("bert_encoder.", "bert"),
                **_BERT_MASKED,
                "bert_cls_head.classifier.ffn.0.linear_layer": "cls.seq_relationship",
            },
            _TIED,
            ties=_BERT_TIES,
        ),
        _bert(
            "BertForMaskedLM",
            "bert",
            {**norms_last("bert_encoder.", "bert"), **_BERT_MASKED},
            _TIED,
            fixed={"disable_nsp": True},
            ties=_BERT_TIES,
            passed_tensors=("bert.pooler.", "cls.seq_relationship."),
        ),
        _ROBERTA,
        _ESM,
        _bert(
            "BertForSequenceClassification",
            "bert/classifier",
            _FINE_TUNED,
            *_classes("num_labels", "task_dropout"),
            only("problem_type", None, "a text has one class here"),
        ),
        _bert(
            "BertForTokenClassification",
            "bert/token_classifier",
            _FINE_TUNED,
            *_classes("num_classes", "encoder_output_dropout_rate"),
            passed_tensors=("bert.pooler.",),
        ),
    )
}
"""by the class that `architectures` names; of several that compute the same as a model, the first is written"""
_INDIFFERENT = frozenset(
    "name attention_dropout_rate dropout_rate embedding_dropout_rate encoder_output_dropout_rate task_dropout "
    "initializer_range default_initializer embeddings_initializer position_embeddings_initializer "
    "segment_embeddings_initializer include_padding_in_loss label_vocab_file loss_weight mlm_loss_weight problem_type "
    "vocab_file extra_attention_params attention_module num_segments mup_base_hidden_size mup_base_filter_size "
    "output_logits_alpha scale_output_logits_by_d pad_token_id".split()
)
"""keys of the params without effect on the answers of a model, or compared by their joint effect"""


def encoder_facts(model: EncoderParams) -> dict[str, Any]:
    """Return all facts that decide answers: by keys of the params, or properties where several keys act together."""
    facts = {key: getattr(model, key) for key in type(model).model_fields if key not in _INDIFFERENT}
    for key in ("encoder_nonlinearity", "pooler_nonlinearity", "mlm_nonlinearity"):
        if key in facts:
            facts[key] = NONLINEARITIES.get(facts[key], facts[key])
    if model.position_embedding_type != "rotary":
        for key in ("rope_theta", "rotary_dim", "pos_scaling_type", "pos_scaling_factor", "pos_scaling_extra_args"):
            facts.pop(key)
    if model.position_embedding_type != "learned":
        # No table has them.
        del facts["max_position_embeddings"]
        facts.pop("mask_padding_in_positional_embed")
    if isinstance(model, DprEncoderParams):
        # One without a pooling layer, which only says so of its table of segments.
        del facts["disable_nsp"], facts["pooler_nonlinearity"]
    elif getattr(model, "disable_nsp", False) or model.name == "bert/token_classifier":
        facts.pop("pooler_nonlinearity")
    if not getattr(model, "token_dropout", False):
        facts.pop("mask_token_id", None)
    return facts | {
        "num_segments": model.segments,
        "kv_heads": model.kv_heads,
        "logits_scale": model.logits_scale,
        "position_offset": model.position_offset,
    }
