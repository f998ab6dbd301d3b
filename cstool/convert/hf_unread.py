"""Keys of a config.json that its family does not read: harmless keys, and refused ones."""

from collections.abc import Iterable, Mapping
from typing import Any

from cstool.convert.hf_family import Family
from cstool.convert.hf_keys import Refused, text
from cstool.foundation.words import nearest
from cstool.model.params import DecoderParams
from cstool.model.params.sections.model import MODELS

_OF_FILES = (
    "architectures model_type torch_dtype dtype transformers_version _name_or_path name_or_path auto_map _commit_hash "
    "_from_model_config tokenizer_class prefix is_llama_config transformers.js_config quantization_config "
    "trust_remote_code unsloth_fixed unsloth_version"
)
_OF_SOFTWARE = (
    "use_cache cache_implementation _attn_implementation attn_implementation _attn_implementation_autoset "
    "pretraining_tp chunk_size_feed_forward output_attentions output_hidden_states output_past return_dict torchscript "
    "use_bfloat16 tf_legacy_loss gradient_checkpointing n_ctx max_sequence_length flash_attn flash_rotary fused_dense "
    "attention_softmax_in_fp32 scale_attention_softmax_in_fp32"
)
_OF_TOKENS = "bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id"
_OF_HEADS = (
    "num_labels _num_labels id2label label2id problem_type finetuning_task task_specific_params classifier_dropout "
    "summary_activation summary_first_dropout summary_last_dropout summary_proj_to_labels summary_type "
    "summary_use_proj directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
    "pooler_size_per_head pooler_type is_decoder tie_word_embeddings"
)
_OF_ANSWERS = (
    "max_length min_length max_new_tokens do_sample early_stopping num_beams num_beam_groups temperature top_k top_p "
    "typical_p repetition_penalty length_penalty diversity_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size "
    "bad_words_ids num_return_sequences output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id "
    "remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens "
    "decoder_start_token_id"
)
INERT = frozenset(" ".join((_OF_FILES, _OF_SOFTWARE, _OF_TOKENS, _OF_HEADS, _OF_ANSWERS)).split())
"""keys that change nothing that a model computes, or are looked at elsewhere; a family that reads one has it in `keys`.
They are about the file, software, single tokens, heads of other classes, and how answers are drawn."""
_ONE = (None, 1)
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys("embedding_multiplier residual_multiplier logits_scaling logit_scale".split(), _ONE),
    **dict.fromkeys("partial_rotary_factor rotary_pct full_attn_mod interpolate_factor".split(), _ONE),
    "position_embedding_type": (None, "absolute"),
}
"""keys of other families, and the values at which they would change nothing"""
_ALL_ALIKE: Mapping[str, Any] = {"layer_types": "full_attention", "mlp_layer_types": "dense", "no_rope_layers": 1}
"""lists with an element for each layer -> the element without effect"""
_OWNERS: Mapping[str, str] = {
    **dict.fromkeys("attention_multiplier embedding_multiplier logits_scaling residual_multiplier".split(), "granite"),
    **dict.fromkeys("kv_lora_rank n_routed_experts n_shared_experts q_lora_rank".split(), "deepseek_v3"),
    **dict.fromkeys("rope_local_base_freq sliding_window_pattern".split(), "gemma3_text"),
    "clip_qkv": "olmo",
    "logit_scale": "cohere",
    "no_rope_layers": "smollm3",
    "norm_topk_prob": "qwen3_moe",
    "shared_expert_intermediate_size": "qwen2_moe",
}
"""keys of families that are not converted"""
_WHY = dict.fromkeys(
    ("is_causal", "use_bidirectional_attention"), "a token of a decoder here sees those before it alone"
)
_SEES_WHAT_COMES_BEFORE: Mapping[str, tuple[Any, ...]] = {"is_causal": (True,)}
"""keys of decoders; null is another value there"""


def idle_keys(family: Family, config: Mapping[str, Any], others: Iterable[Family] = ()) -> list[str]:
    """Return the keys of a config that its family does not read, and that change nothing at their values, in order.

    Keys of `INERT`, and keys that the family passes over, are left out.

    Args:
        family: of the config
        others: that may read a key

    Raises:
        Refused: by the first key that may change something
    """
    section = MODELS.get(family.fixed.get("name", ""), DecoderParams)
    neutral = {**NEUTRAL, **(_SEES_WHAT_COMES_BEFORE if issubclass(section, DecoderParams) else {})}
    idle = []
    for key in sorted(config.keys() - read_keys(family) - family.passed_over - INERT):
        value = config[key]
        if not _changes_nothing(key, value, neutral):
            must = f"be {text(neutral[key][-1])}" if key in neutral else "be left out"
            raise Refused(f"{key} must {must} for {family.class_name}, got {text(value)}", _hint(key, family, others))
        idle.append(key)
    return idle


def read_keys(family: Family) -> set[str]:
    """Keys of a config that a family reads, by all of their names."""
    found = {name for key in family.keys for name in (key.theirs, key.other_name) if name is not None}
    return found | ({"rope_parameters"} if "rope_scaling" in found else set())


def _changes_nothing(key: str, value: Any, neutral: Mapping[str, tuple[Any, ...]]) -> bool:
    if key in neutral:
        # True is 1 to Python.
        return any(value == at and isinstance(value, bool) == isinstance(at, bool) for at in neutral[key])
    if key in _ALL_ALIKE and isinstance(value, list):
        return all(each == _ALL_ALIKE[key] for each in value)
    return value is None or value is False or value in ("", [], {})


def _hint(key: str, family: Family, others: Iterable[Family]) -> str:
    if key in _WHY:
        return _WHY[key]
    if key in _OWNERS:
        return f"it is a key of {_OWNERS[key]}, a family that is not converted"
    near = nearest(key, read_keys(family), 0.8)
    if near is not None:
        return f"did you mean {near}?"
    owner = next((other for other in others if key in read_keys(other)), None)
    if owner is not None:
        return f"it is a key of {owner.class_name}: model_type says which family it is"
    return "nothing here reads it: delete it from the file if the model does not depend on it"
