"""Hugging Face's encoders: for each class, the names of its tensors and the keys of its config.json.

The encoders of a DPR are two, each a model of its own class there, in a folder of its own: a BERT without pooling
layer, whose first token is the vector.

A model_type has several classes there, which differ in their heads; `architectures` names the one. Source: the released
models, and Hugging Face's library 4.57, which the tests compare with.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from cstool.convert.hf_family import Family
from cstool.convert.hf_keys import Found, Key, activation, head_width, labels, only, same, text
from cstool.foundation.errors import CheckpointError
from cstool.model.graphs import Side
from cstool.model.graphs.dpr import CONTEXTS, QUESTIONS
from cstool.model.params import NONLINEARITIES, DprEncoderParams, DprParams, EncoderParams

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


def _norms_last(ours: str, theirs: str) -> dict[str, str]:
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


def _ties(prefix: str, bias: str, decoder: str) -> dict[str, str]:
    """Tensors of the output layer of masked tokens that may be stored twice."""
    words = f"{prefix}.embeddings.word_embeddings.weight"
    return {f"{decoder}.weight": words, f"{decoder}.bias": f"{bias}.bias"}


_ACTIVATION = activation("hidden_act", "gelu", ours="encoder_nonlinearity")
_TIED = same("tie_word_embeddings", True, "share_embedding_weights")
_NO_CROSS = (
    only("is_decoder", False, "an encoder's tokens see all others"),
    only("add_cross_attention", False, "an encoder here reads no other text"),
)


def _sizes(vocab: int, *positions: Key) -> tuple[Key, ...]:
    """Keys of all of them."""
    return (
        same("vocab_size", vocab),
        same("hidden_size", 768),
        same("num_hidden_layers", 12),
        same("num_attention_heads", 12, "num_heads"),
        same("intermediate_size", 3072, "filter_size"),
        *positions,
        same("layer_norm_eps", 1e-12, "layer_norm_epsilon"),
        same("initializer_range", 0.02),
        same("hidden_dropout_prob", 0.1, "dropout_rate"),
        same("attention_probs_dropout_prob", 0.1, "attention_dropout_rate"),
    )


_SEGMENTS = same("type_vocab_size", 2, "num_segments", least=0, write=attrgetter("segments"))
_ABSOLUTE = only("position_embedding_type", "absolute", "positions have a table here, as in the released models")
_BERT_KEYS: tuple[Key, ...] = (
    *_sizes(30522, same("pad_token_id", 0, least=0), same("max_position_embeddings", 512)),
    _SEGMENTS,
    _ACTIVATION,
    _ABSOLUTE,
    *_NO_CROSS,
)
"""keys of config.json that every BERT has"""
_BERT_FIXED = {"position_embedding_type": "learned", "pooler_nonlinearity": "tanh"}
_BERT_HEAD, _BERT_DECODER = "cls.predictions", "cls.predictions.decoder"
_BERT_MASKED = _masked(f"{_BERT_HEAD}.transform.dense", f"{_BERT_HEAD}.transform.LayerNorm", _BERT_HEAD, _BERT_DECODER)
_BERT_TIES = _ties("bert", _BERT_HEAD, _BERT_DECODER)


def _bert(class_name: str, called: str, names: Mapping[str, str], *keys: Key, **others: Any) -> Family:
    fixed = {"name": called, **_BERT_FIXED, **others.pop("fixed", {})}
    return Family("bert", class_name, (called,), "", names, fixed, (*_BERT_KEYS, *keys), **others)


def _classes(key: str, dropout: str) -> tuple[Key, ...]:
    def rate(found: Found) -> Mapping[str, Any]:
        given = found["classifier_dropout"]
        return {dropout: found["hidden_dropout_prob"] if given is None else given}

    return Key("classifier_dropout", None, rate, attrgetter(dropout), float, nullable=True), *labels(key)


_LM_HEAD = _masked("lm_head.dense", "lm_head.layer_norm", "lm_head", "lm_head.decoder")
_FINE_TUNED = {**_norms_last("bert.", "bert"), "classifier": "classifier"}
_POSITIONS_AFTER_PADDING = Key(
    "max_position_embeddings",
    514,
    lambda found: {"max_position_embeddings": max(1, found["max_position_embeddings"] - found["pad_token_id"] - 1)},
    lambda model: model.max_position_embeddings + model.position_offset,
    int,
)

_ROBERTA = Family(
    "roberta",
    "RobertaForMaskedLM",
    called=("bert",),
    prefix="",
    names={**_norms_last("bert_encoder.", "roberta"), **_LM_HEAD},
    fixed={
        "name": "bert",
        "disable_nsp": True,
        "position_embedding_type": "learned",
        "mask_padding_in_positional_embed": True,
        "mlm_nonlinearity": "gelu",
    },
    keys=(
        *_sizes(50265, same("pad_token_id", 1, least=0), _POSITIONS_AFTER_PADDING),
        _SEGMENTS,
        _ACTIVATION,
        _ABSOLUTE,
        _TIED,
        *_NO_CROSS,
    ),
    ties=_ties("roberta", "lm_head", "lm_head.decoder"),
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
        **_names("bert_encoder.", "esm", norm1="attention.LayerNorm", norm2="LayerNorm", embeddings="layer_norm"),
        **_LM_HEAD,
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
        *_sizes(33, same("pad_token_id", 1, least=0), same("max_position_embeddings", 1026)),
        same("mask_token_id", None, kind=int, least=0, nullable=True),
        Key("num_attention_heads", 12, _read_turned_heads, attrgetter("num_heads"), int),
        same("token_dropout", False),
        same("emb_layer_norm_before", False, "embedding_layer_norm"),
        only("position_embedding_type", "rotary", "ESM-2 has no table of positions"),
        only("rope_theta", 10000.0, "positions of an ESM-2 turn at this rate"),
        _TIED,
        *_NO_CROSS,
    ),
    ties=_ties("esm", "lm_head", "lm_head.decoder"),
    passed_tensors=("esm.contact_head.", "esm.pooler.", "esm.embeddings.position_embeddings."),
    passed_over=frozenset("classifier_dropout esmfold_config hidden_act is_folding_model vocab_list use_cache".split()),
)

ENCODER_FAMILIES: Mapping[str, Family] = {
    family.class_name: family
    for family in (
        _bert(
            "BertForPreTraining",
            "bert",
            {
                **_norms_last("bert_encoder.", "bert"),
                **_BERT_MASKED,
                "bert_cls_head.classifier.ffn.0.linear_layer": "cls.seq_relationship",
            },
            _TIED,
            ties=_BERT_TIES,
        ),
        _bert(
            "BertForMaskedLM",
            "bert",
            {**_norms_last("bert_encoder.", "bert"), **_BERT_MASKED},
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
DPR = "dpr"
"""model_type of both encoders, and name of the model in the params"""
ENCODER = "dpr/encoder"
"""name of the section of an encoder by itself; the params have it below q_encoder or ctx_encoder"""
FOLDERS: Mapping[Side, str] = {"question": "question_encoder", "context": "ctx_encoder"}
"""folders of the encoders within the folder of a model; the names of their tensors begin so, too"""
_CLASSES: Mapping[Side, str] = {"question": "DPRQuestionEncoder", "context": "DPRContextEncoder"}
_SIDES: Mapping[Side, str] = {"question": QUESTIONS, "context": CONTEXTS}


def _dpr_names(side: Side, ours: str) -> dict[str, str]:
    return _norms_last(ours, f"{FOLDERS[side]}.bert_model")


def _dpr_family(side: Side) -> Family:
    return Family(
        DPR,
        _CLASSES[side],
        called=(),
        prefix="",
        names=_dpr_names(side, _SIDES[side]),
        fixed={"name": ENCODER, "position_embedding_type": "learned"},
        keys=(*_BERT_KEYS, only("projection_dim", 0, "vectors here are as wide as what the encoder makes")),
        # Released ones have a pooling layer that older releases of the library made, and nothing reads.
        passed_tensors=(f"{FOLDERS[side]}.bert_model.pooler.",),
    )


_DPR: Mapping[Side, Family] = {side: _dpr_family(side) for side in FOLDERS}
DPR_FAMILIES: Mapping[str, Family] = {family.class_name: family for family in _DPR.values()}
"""by the class that `architectures` names"""


def dpr_family(side: Side, model: DprParams) -> Family:
    """The family of one of the encoders. Where one is both, its weights have one name here and two there."""
    return _DPR[side] if model.use_biencoder else replace(_DPR[side], names=_dpr_names(side, QUESTIONS))


def is_dpr_folder(path: Path) -> bool:
    """Whether a folder has encoders of DPR in folders of their own."""
    return not os.path.lexists(path / "config.json") and any((path / name).is_dir() for name in FOLDERS.values())


def check_class(path: Path, folder: str, architectures: object) -> None:
    """Check that the config of the encoder of a folder is of its class, or raise CheckpointError."""
    wanted = next(_CLASSES[side] for side, name in FOLDERS.items() if name == folder)
    if architectures != [wanted]:
        got = architectures[0] if isinstance(architectures, list) and architectures else architectures
        raise CheckpointError(f"{path}: architectures must be {wanted} in this folder, got {text(got)}")


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
