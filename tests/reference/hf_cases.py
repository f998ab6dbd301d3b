"""Small models of every family of Hugging Face's that is converted: configs and weights. NumPy only, no cstool."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference import deterministic
from tests.reference.hf_models import Tensors

RECORDED = Path(__file__).with_name("hf_references.json")
PROMPT = [3, 14, 1, 59, 26, 5]
NEW_TOKENS = 10
BEAMS = 4
POSITIONS, EVERY = (2, 8, 14), 4
"""where logits are recorded, and of which tokens: every fourth"""

_SMALL = {"vocab_size": 61, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6}
_N_SMALL = {"vocab_size": 61, "n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 32}
_NEW = {**_SMALL, "intermediate_size": 80, "num_key_value_heads": 2, "max_position_embeddings": 32}
_FALCON = {**_SMALL, "model_type": "falcon", "max_position_embeddings": 32}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}

_LINEAR = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
_NEOX = {**_SMALL, "model_type": "gpt_neox", "intermediate_size": 80, "max_position_embeddings": 32}
_GEMMA2 = {**_NEW, "model_type": "gemma2", "num_hidden_layers": 3, "sliding_window": 5, "pad_token_id": None}
_PHI3 = {**_NEW, "model_type": "phi3", "pad_token_id": None}

CASES: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", **_N_SMALL},
    "gpt2_by_layer": {"model_type": "gpt2", **_N_SMALL, "n_inner": 80, "tie_word_embeddings": False}
    | {"scale_attn_by_inverse_layer_idx": True, "activation_function": "gelu"},
    "llama": {"model_type": "llama", **_NEW},
    "llama_llama3": {"model_type": "llama", **_NEW, "rope_scaling": _LLAMA3, "rope_theta": 5000.0}
    | {"tie_word_embeddings": True, "head_dim": 10, "attention_bias": True, "mlp_bias": True},
    "llama_yarn": {"model_type": "llama", **_NEW, "rope_scaling": _YARN},
    "llama_yarn_mscale": {"model_type": "llama", **_NEW, "rope_theta": 500.0}
    | {"rope_scaling": {**_YARN, "mscale": 2.0, "mscale_all_dim": 0.5, "beta_fast": 4.0, "truncate": False}},
    "llama_linear": {"model_type": "llama", **_NEW, **_LINEAR},
    "mistral": {"model_type": "mistral", **_NEW, "sliding_window": 5},
    "qwen2": {"model_type": "qwen2", **_NEW, "tie_word_embeddings": True},
    "qwen2_window": {"model_type": "qwen2", **_NEW, "use_sliding_window": True, "sliding_window": 5}
    | {"max_window_layers": 0, "rope_scaling": {**_YARN, "attention_factor": 1.5}},
    "qwen3": {"model_type": "qwen3", **_NEW, "head_dim": 10},
    "qwen3_window": {"model_type": "qwen3", **_NEW, "head_dim": 8, "rope_scaling": _YARN, "attention_bias": True}
    | {"tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0},
    "mixtral": {"model_type": "mixtral", **_NEW, "num_local_experts": 4, "num_experts_per_tok": 2},
    "mixtral_window": {"model_type": "mixtral", **_NEW, "num_local_experts": 3, "num_experts_per_tok": 1}
    | {"sliding_window": 5, "rope_theta": 5000.0},
    "phi3": {**_PHI3, "sliding_window": 5},
    "phi3_longrope": {**_PHI3, "original_max_position_embeddings": 4}
    | {
        "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.25, 1.5], "long_factor": [1.0, 1.5, 2.5, 4.0]}
    },
    "phi3_shortrope": {**_PHI3, "original_max_position_embeddings": 32, "partial_rotary_factor": 0.75}
    | {"rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.2, 1.5], "long_factor": [1.0, 2.0, 4.0]}},
    "phi3_partial": {**_PHI3, "partial_rotary_factor": 0.75},
    "phi": {"model_type": "phi", **_NEW, "num_key_value_heads": 6},
    "phi_groups": {"model_type": "phi", **_NEW, "partial_rotary_factor": 0.25},
    "gptj": {"model_type": "gptj", **_N_SMALL, "rotary_dim": 4},
    "gpt_neox": {**_NEOX},
    "gpt_neox_in_turn": {**_NEOX, **_LINEAR, "use_parallel_residual": False, "attention_bias": False}
    | {"rotary_pct": 0.5, "rotary_emb_base": 5000, "hidden_act": "gelu_new"},
    "falcon_rw": {**_FALCON, "num_attention_heads": 4, "alibi": True, "bias": True, "multi_query": False}
    | {"parallel_attn": False},
    "falcon_7b": {**_FALCON},
    "falcon_40b": {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 3},
    "falcon_11b": {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}
    | {"ffn_hidden_size": 80, "tie_word_embeddings": False, "rope_theta": 5000.0},
    "falcon_heads": {**_FALCON, "multi_query": False, "bias": True, "num_attention_heads": 4, "alibi": True},
    "bloom": {"model_type": "bloom", "vocab_size": 61, "hidden_size": 48, "n_layer": 2, "n_head": 6},
    "gpt_bigcode": {"model_type": "gpt_bigcode", **_N_SMALL},
    "gpt_bigcode_heads": {"model_type": "gpt_bigcode", **_N_SMALL, "multi_query": False, "n_inner": 80},
    "starcoder2": {"model_type": "starcoder2", **_NEW, "sliding_window": 5},
    "gemma2": {**_GEMMA2, "head_dim": 10, "query_pre_attn_scalar": 16}
    | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "gemma2_full_first": {**_GEMMA2, "head_dim": 8, "query_pre_attn_scalar": 8, "attn_logit_softcapping": None}
    | {"attention_bias": True, "hidden_activation": "gelu"}
    | {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
}
"""by name; `pad_token_id` only keeps the library's own, past these few tokens, away"""


def weights(shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
    """Return weights by name, float32.

    Vectors have the digits of bfloat16, as those of released models have: some families add 1 to them.
    """
    found = deterministic.weights({name: tuple(shape) for name, shape in shapes.items()}, seed=11)
    for name, array in found.items():
        if array.ndim == 1:
            found[name] = (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return found
