"""What counts in a `config.json` of Hugging Face's library: model types, what follows where the file is silent."""

from collections.abc import Mapping
from typing import Any

from cstool.activations import ACTIVATIONS

CLASSES = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}
"""model type -> class there"""
FAMILIES = {"gpt2": "gpt2", "llama": "llama", "mistral": "llama"}
"""model type -> the one with the same tensors: a Mistral is a Llama without biases that may have a window"""

HF_ACTIVATIONS = {theirs: name for name, row in ACTIVATIONS.items() for theirs in row.hf_names}
"""their names of functions -> those of the kernels"""
SCALINGS = ("default", "linear", "llama3")

_LLAMA: Mapping[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "mlp_bias": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
}

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gpt2": {
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "initializer_range": 0.02,
    },
    "llama": _LLAMA,
    "mistral": {
        **{key: value for key, value in _LLAMA.items() if key not in ("attention_bias", "mlp_bias")},
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
}
"""what counts in a config of theirs, and what it is where the file does not say it"""
NOT_COMPARED = (
    *("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "initializer_range"),
    "max_position_embeddings",
)
"""what a checkpoint is indifferent to; only a Llama calls its positions so, and it has no table of them"""
