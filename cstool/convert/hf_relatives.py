"""Models of Hugging Face's library that are not converted: the nearest family here, and its missing features."""

from collections.abc import Iterable, Mapping
from typing import Any

from cstool.convert.hf_family import Family
from cstool.convert.hf_unread import INERT, read_keys

_MULTIPLIERS = "embedding_multiplier, attention_multiplier, residual_multiplier and logits_scaling"
_STATES = "layers without attention, which keep a state"
RELATIVES: Mapping[str, tuple[str, str]] = {
    "arcee": ("llama", "a feed-forward part of relu2 without a gate"),
    "biogpt": ("gpt2", "positions from 2 on, and scaled embeddings"),
    "codegen": ("gptj", "its layout of query, key and value in one tensor (qkv_proj)"),
    "cohere": ("gptj", "logit_scale, norms without biases, and a gate"),
    "cohere2": ("gptj", "logit_scale, norms without biases, and layers without positions"),
    "deepseek_v2": ("mixtral", "attention by latent keys (kv_lora_rank)"),
    "deepseek_v3": ("mixtral", "attention by latent keys (kv_lora_rank)"),
    "exaone4": ("qwen3", "norms after each part alone, and layers without positions"),
    "gemma": ("gemma2", "a kind without norms after the parts, caps and windows"),
    "gemma3": ("gemma2", "norms of heads, positions by kind of layer, and pictures"),
    "gemma3_text": ("gemma2", "norms of heads, and positions by kind of layer (rope_local_base_freq)"),
    "glm": ("llama", "neighbours as pairs of positions, and a part of each head turned"),
    "glm4": ("llama", "neighbours as pairs of positions, and norms after each part"),
    "gpt_neo": ("gpt2", "scores without a scale, and a window in every other layer"),
    "gpt_neox_japanese": ("gpt_neox", "biases that are added after attention"),
    "gpt_oss": ("mixtral", "attention sinks that are trained, and a gate of its own"),
    "granite": ("llama", _MULTIPLIERS),
    "granitemoe": ("mixtral", _MULTIPLIERS),
    "helium": ("llama", "neighbours as pairs of positions"),
    "llama4_text": ("mixtral", "chunks, layers without positions (no_rope_layers), and a shared expert"),
    "ministral": ("mistral", "windows by kind of layer (layer_types)"),
    "mpt": ("bloom", "its layout of query, key and value in one tensor (Wqkv)"),
    "nemotron": ("llama", "norms that are stored without their 1, and relu2 without a gate"),
    "olmo": ("llama", "norms without weights, and clip_qkv"),
    "olmo2": ("llama", "norms after each part alone, and norms of all queries and keys together"),
    "olmo3": ("llama", "norms after each part alone, and norms of all queries and keys together"),
    "olmoe": ("mixtral", "norms of all queries and keys together"),
    "openai-gpt": ("gpt2", "norms after each part"),
    "opt": ("gpt2", "positions from 2 on"),
    "persimmon": ("gpt_neox", "norms of heads"),
    "phimoe": ("mixtral", "its choice of experts (sparsemixer)"),
    "qwen2_moe": ("mixtral", "a shared expert with a gate (shared_expert_intermediate_size)"),
    "qwen3_moe": ("mixtral", "norms of heads, and norm_topk_prob"),
    "smollm3": ("llama", "layers without positions (no_rope_layers)"),
    "stablelm": ("llama", "LayerNorm beside a gate, and a part of each head turned"),
    "xglm": ("gpt2", "positions that are computed, and scaled embeddings"),
    **dict.fromkeys("falcon_mamba mamba mamba2 recurrent_gemma rwkv xlstm".split(), ("llama", _STATES)),
    **dict.fromkeys("bamba falcon_h1 jamba lfm2 nemotron_h qwen3_next zamba zamba2".split(), ("llama", _STATES)),
    "albert": ("bert", "one layer's weights for all layers"),
    "camembert": ("roberta", "this model_type"),
    "deberta": ("bert", "positions apart from contents in attention"),
    "deberta-v2": ("bert", "positions apart from contents in attention"),
    "distilbert": ("bert", "a kind without segments, with other names"),
    "electra": ("bert", "embeddings of another width (embedding_size)"),
    "modernbert": ("bert", "rotary positions and windows"),
    "xlm-roberta": ("roberta", "this model_type"),
    **dict.fromkeys("bart mbart marian pegasus".split(), ("t5", "learned positions, and norms after each part")),
    **dict.fromkeys("mt5 umt5".split(), ("t5", "this model_type")),
    **dict.fromkeys("beit deit dinov2".split(), ("vit", "parts beside those of a plain vision transformer")),
}
"""model_type -> the nearest family that is converted, and the parts that it lacks"""
HELP = "`cstool checkpoint convert --help` names the families"


def relative_hint(config: Mapping[str, Any], families: Iterable[Family]) -> str:
    """Return the nearest family to a config of no family here, and the keys or parts that it lacks."""
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in RELATIVES:
        near, lacking = RELATIVES[kind]
        return f"the nearest is {near}, which lacks {lacking}"
    keys = {key for key, value in config.items() if value is not None} - INERT
    best = max(families, key=lambda family: (len(keys & read_keys(family)), -len(read_keys(family))))
    if len(keys & read_keys(best)) < 3:
        return HELP
    lacking = ", ".join(sorted(keys - read_keys(best) - best.passed_over))
    return f"by its keys the nearest is {best.model_type}, which " + (
        f"lacks {lacking}" if lacking else "reads all of them"
    )
