"""`config.json` of Hugging Face's library, from the model section of the params and back."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from cstool.convert.hf_encoders import DPR, ENCODER, FOLDERS, dpr_family, encoder_facts
from cstool.convert.hf_families import HF_CLASSES, HF_FAMILIES, MODEL_TYPES, class_family
from cstool.convert.hf_family import Family, HfModel, HfPart
from cstool.convert.hf_keys import Refused, text
from cstool.convert.hf_relatives import HELP, relative_hint
from cstool.convert.hf_rope import flat, yarn_amplitude
from cstool.convert.hf_t5 import t5_facts
from cstool.convert.hf_unread import idle_keys, read_keys
from cstool.convert.hf_vit import vit_facts
from cstool.foundation.errors import CheckpointError
from cstool.model.graphs import Side, embedding_graph
from cstool.model.graphs.decoder import longrope
from cstool.model.params import (
    NONLINEARITIES,
    DecoderClassifierParams,
    DecoderParams,
    DprEncoderParams,
    DprParams,
    EncoderDecoderParams,
    EncoderParams,
    ModelParams,
    VisionTransformerParams,
)
from cstool.model.params.sections.classifier import OF_TOKENS
from cstool.model.params.sections.model import MODELS

_KNOWN = ", ".join(MODEL_TYPES)
_FAMILIES = (*HF_FAMILIES.values(), *HF_CLASSES.values())
_KEYS: Mapping[Side, str] = {"question": "q_encoder", "context": "ctx_encoder"}
"""keys of the params for the encoders of DPR"""
_NO_DROPOUT = {f"{part}_dropout_rate": 0.0 for part in ("residual", "attention", "embedding")}
_INDIFFERENT = frozenset(
    "name attention_dropout_rate dropout_rate embedding_dropout_rate residual_dropout_rate initializer_range "
    "initializer_params embedding_initializer_params ffn_initializer_params ffn_output_layer_initializer_params "
    "output_layer_initializer_params loss_scaling loss_weight max_tokens temperature top_k top_p".split()
)
"""keys of the params without effect on the answers of a model"""
_SAID_OTHERWISE = frozenset(
    "attention_inner_dim attention_module attention_sink_tokens apply_attention_sinks attention_sliding_window_length "
    "attention_chunk_size attention_vertical_column_spacing attention_vertical_column_width apply_attention_pattern "
    "fixed_sparse_attention attention_qk_norm_layer attention_qk_norm_eps apply_attention_qk_norm moe "
    "num_relative_attention_buckets "
    "extra_attention_params mup_base_filter_size mup_base_hidden_size output_logits_alpha output_logits_scale "
    "pos_scaling_extra_args scale_output_logits_by_d sliding_window_every_other_decoder_layer "
    "sliding_window_every_other_decoder_layer_pattern use_untied_layer_norm".split()
)
"""keys of the params that act together, and are compared by their joint effect"""


_OF_MIXTURES = (
    "shared",
    "top_k",
    "router_use_bias",
    "router_selection_nonlinearity",
    "expert_weighting_nonlinearity",
    "expert_weighting_normalization",
    "null_expert_bias",
)
"""keys of a mixture of experts, beside the number of experts, that change the answers of a model"""


def config_family(path: Path, config: Mapping[str, Any]) -> Family:
    """Return the family that a config names, or raise CheckpointError."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        rule = f"model_type must be of a family that is converted, got {text(kind)}"
        raise CheckpointError(f"{path}: {rule}", relative_hint(config, _FAMILIES))
    if config.get("quantization_config") is not None:
        raise CheckpointError(f"{path}: must be without quantization_config: quantized weights cannot be read")
    return class_family(path, config)


def family_of(where: str | Path, model: ModelParams, named: str | None = None) -> Family:
    """Return the family of Hugging Face that computes the same as a model; CheckpointError names the difference.

    Args:
        where: of the model, for messages
        model: its section of the params
        named: model_type that it must be of; None for the first that fits, families with its name before others
    """
    if not isinstance(model, HfModel):
        raise CheckpointError(f"{where}: must be a model that Hugging Face has, got {model.name}", HELP)
    _check_named(named)
    is_named_by_type = isinstance(model, DecoderParams) and model.makes_text
    kinds: Mapping[str, Family] = HF_FAMILIES if is_named_by_type else HF_CLASSES
    families = [family for family in kinds.values() if named in (None, family.model_type)]
    if not is_named_by_type:
        # The name of a model tells its heads.
        families = [family for family in families if model.name in family.called]
    if not families:
        with_type = "" if named is None else f" with model_type {named}"
        raise CheckpointError(f"{where}: must be a model that Hugging Face has{with_type}, got {model.name}", HELP)
    misfits = {family.class_name: _misfit(family, model) for family in families}
    best = min(families, key=lambda family: (misfits[family.class_name][0], model.name not in family.called))
    count, rule = misfits[best.class_name]
    if count:
        raise CheckpointError(f"{where}: {rule}", None if named else HELP)
    return best


def dpr_parts(where: str | Path, model: DprParams, named: str | None = None) -> tuple[HfPart, ...]:
    """Return the two models of theirs that are a DPR, or raise CheckpointError that says why they are not.

    Args:
        where, named: as of `family_of`
    """
    _check_named(named)
    if named not in (None, DPR):
        raise CheckpointError(f"{where}: must be a model that Hugging Face has with model_type {named}, got dpr", HELP)
    parts = []
    for side, folder in FOLDERS.items():
        family = dpr_family(side, model)
        encoder = model.questions if side == "question" else model.contexts
        if model.pooler_type != "cls":
            raise CheckpointError(
                f"{where}: pooler_type must be cls for {family.class_name}, got {model.pooler_type}",
                "its vector is that of the first token as it is",
            )
        count, rule = _misfit(family, encoder)
        if count:
            key = "encoder" if model.encoder is not None else _KEYS[side]
            raise CheckpointError(f"{where}: {key}.{rule}", None if named else HELP)
        parts.append(HfPart(folder, family, encoder, embedding_graph(model, side)))
    return tuple(parts)


def make_dpr(path: Path, configs: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], DprParams]:
    """Return the model section of two encoders, and it checked, or raise CheckpointError.

    Args:
        path: of the folder
        configs: by the folder of an encoder in it
    """
    sections = [model_section(path / name / "config.json", config) for name, config in configs.items()]
    keys = [{key: value for key, value in section.items() if key != "name"} for section in sections]
    found = {"name": DPR, **dict(zip(_KEYS.values(), keys, strict=True))}
    try:
        return found, DprParams.model_validate(found)
    except ValidationError as error:
        raise CheckpointError(f"{path}: must describe a model: {_first(error)}") from error


def config_of(family: Family, model: HfModel) -> dict[str, Any]:
    """Return the config of a model of a family, as their library writes it."""
    return {
        "architectures": [family.class_name],
        "model_type": family.model_type,
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        **{key.theirs: key.write(model) for key in family.keys if key.write is not None},
    }


def model_section(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model section of the params for the model of a config, or raise CheckpointError."""
    try:
        return _section(config_family(path, config), config)
    except Refused as error:
        raise CheckpointError(f"{path}: {error.rule}", error.hint) from None


def keys_without_effect(path: Path, config: Mapping[str, Any]) -> list[str]:
    """Return the keys of a config that its family does not read, and that change nothing at their values.

    Raises:
        CheckpointError: a key may change something
    """
    family = config_family(path, config)
    try:
        return idle_keys(family, _flat(family, config), _FAMILIES)
    except Refused as error:
        raise CheckpointError(f"{path}: {error.rule}", error.hint) from None


def make_model(path: Path, section: Any) -> HfModel:
    """Return the checked model of a section made from a config, or raise CheckpointError."""
    try:
        return _model(section)
    except ValidationError as error:
        raise CheckpointError(f"{path}: must describe a model: {_first(error)}") from error


def check_config(path: Path, config: Mapping[str, Any], params: str | Path, model: ModelParams) -> None:
    """Check that a config and the params are of one model, or raise CheckpointError that names all differences."""
    said = make_model(path, model_section(path, config))
    if not isinstance(model, HfModel) or _kind(model) is not _kind(said):
        raise CheckpointError(f"{path}: must be of the model of {params}, {model.name}, got {said.name}")
    different = [f"{key} {text(wanted)}, got {text(got)}" for key, wanted, got in _different(model, said)]
    if different:
        raise CheckpointError(
            f"{path}: must be of the model of {params}: {'; '.join(different)}",
            "without --params the model is the one that config.json describes",
        )


def _check_named(named: str | None) -> None:
    if named is not None and named not in MODEL_TYPES:
        raise CheckpointError(f"--model_type: must be one of {_KNOWN}, got {named}")


def _flat(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with rotary positions where older releases have them, if its family has any."""
    return flat(config) if "rope_scaling" in read_keys(family) else dict(config)


def _section(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model section of a config of a family, or raise Refused."""
    config = _flat(family, config)
    idle_keys(family, config, _FAMILIES)
    found: dict[str, Any] = {}
    for key in family.keys:
        found[key.theirs] = key.value(config, found)
    usual = {**_NO_DROPOUT, "use_bias_in_output": False} if family.model_type in HF_FAMILIES else {}
    section: dict[str, Any] = {**usual, **family.fixed}
    for key in family.keys:
        section |= key.read(found)
    return {"name": section["name"], **{key: value for key, value in section.items() if value is not None}}


def _model(section: Any) -> HfModel:
    if section["name"] == ENCODER:
        # Below its key it has no name.
        return DprEncoderParams.model_validate({key: value for key, value in section.items() if key != "name"})
    model = MODELS[section["name"]].model_validate(section)
    assert isinstance(model, HfModel)
    return model


def _kind(model: HfModel) -> type:
    """Return which of the kinds of models it is that are described by the same facts."""
    kinds: tuple[type, ...] = get_args(HfModel)
    return next(kind for kind in kinds if isinstance(model, kind))


def _misfit(family: Family, model: HfModel) -> tuple[float, str]:
    """Return the number of keys in which a model differs from the nearest of a family, and the first as a rule.

    The nearest is found by writing the model as a config of the family, and reading that config back.
    """
    try:
        said = _model(_section(family, config_of(family, model)))
    except Refused as error:
        return math.inf, error.rule
    except ValidationError as error:
        return math.inf, _first(error)
    different = _different(model, said)
    rules = (f"{key} must be {text(got)} for {family.class_name}, got {text(mine)}" for key, mine, got in different)
    return len(different), next(rules, "")


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"])) or "the model"
    return f"{key} {first['msg'][:1].lower()}{first['msg'][1:]}"


def _different(first: HfModel, second: HfModel) -> list[tuple[str, Any, Any]]:
    """Return the differences that change answers: key, and its value in each model."""
    ours, theirs = _facts(first), _facts(second)
    # A key that one of them lacks depends on another key, which differs itself.
    both = [key for key in ours if key in theirs]
    return [(key, ours[key], theirs[key]) for key in both if not _equal(ours[key], theirs[key])]


def _facts(model: HfModel) -> dict[str, Any]:
    """Return all facts that decide answers: by keys of the params, or properties where several keys act together."""
    if isinstance(model, EncoderParams):
        return encoder_facts(model)
    if isinstance(model, EncoderDecoderParams):
        return t5_facts(model)
    if isinstance(model, VisionTransformerParams):
        return vit_facts(model)
    skipped = _INDIFFERENT | _SAID_OTHERWISE
    if isinstance(model, DecoderClassifierParams):
        skipped |= {*OF_TOKENS, "pad_token_id"}
    facts = {key: getattr(model, key) for key in type(model).model_fields if key not in skipped}
    facts["nonlinearity"] = NONLINEARITIES.get(model.nonlinearity, model.nonlinearity)
    if model.position_embedding_type != "rotary":
        del facts["rope_theta"]
    if model.position_embedding_type != "learned":
        # No table has them, and the length up to which a model can be trusted does not change its results.
        del facts["max_position_embeddings"]
    if model.pos_scaling_type != "linear" and (extra := model.pos_scaling_extra_args) is not None:
        keys = ["low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
        if model.pos_scaling_type == "longrope":
            # Factors of the other length are not used; the original length matters through the ones in use.
            factors, facts["the factor of turned pairs"] = longrope(extra, model.max_position_embeddings)
            keys, facts["the factors of pairs"] = [], ", ".join(f"{factor:g}" for factor in factors)
        if model.pos_scaling_type == "yarn":
            keys = ["extrapolation_factor", "beta_fast", "beta_slow", "truncate", "original_max_position_embeddings"]
            facts["the factor of turned pairs"] = yarn_amplitude(model)
        facts |= {f"pos_scaling_extra_args.{key}": getattr(extra, key) for key in keys}
    if model.moe.is_mixture:
        facts |= {f"moe.{key}": getattr(model.moe, key) for key in _OF_MIXTURES}
    layers = range(min(model.num_hidden_layers, 2))
    windows, chunks = ([of(layer) for layer in layers] for of in (model.window, model.chunk))
    columns = [model.columns(layer) for layer in layers]
    return facts | {
        "moe.num_experts": model.moe.num_experts if model.moe.is_mixture else 0,
        "attention_qk_norm_eps": model.qk_norm_epsilon,
        "attention_chunk_size": _of_layers(chunks),
        "columns of attention": _of_layers([None if pair is None else f"{pair[1]} of {pair[0]}" for pair in columns]),
        "is_parallel": model.is_parallel,
        "norms_per_layer": model.norms_per_layer,
        "kv_heads": model.kv_heads,
        "head_width": model.head_width,
        "attention_sliding_window_length": _of_layers(windows),
        "sinks": model.sinks if any(windows) else 0,
        "logits_scale": 1.0 if isinstance(model, DecoderClassifierParams) else model.logits_scale,
    }


def _of_layers(values: list[Any]) -> Any:
    """Values of the first layers: one value if all are equal, or one per layer."""
    return values[0] if len(set(values)) == 1 else " and ".join(map(text, values))


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=1e-9)
    return bool(first == second)
