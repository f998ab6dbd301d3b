"""GGUF files for tests, as llama.cpp's converters write them, from the tensors of Hugging Face's models; no cstool."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
_ALIGNMENT = 32
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
_GEMMA2_LAYER = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_ENDS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
}


def gguf_tensors(config: Mapping[str, Any], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return the tensors of a model as llama.cpp's converters lay them out."""
    found, kind = {}, config["model_type"]
    for name, array in tensors.items():
        stem, _, which = name.rpartition(".")
        if stem in _ENDS:
            there = _ENDS[stem]
        else:
            number, part = stem.removeprefix("model.layers.").removeprefix("transformer.h.").split(".", 1)
            there = f"blk.{number}.{ {**_LAYER, **(_GEMMA2_LAYER if kind == 'gemma2' else {})}[part] }"
        if kind == "gpt2" and "transformer.h." in name and array.ndim > 1:
            array = array.T
        if kind == "llama" and part_of(name) in ("q_proj", "k_proj"):
            heads = config["num_attention_heads" if part_of(name) == "q_proj" else "num_key_value_heads"]
            array = array.reshape(heads, 2, len(array) // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)
        if kind == "gemma2" and array.ndim == 1:
            array = array + np.float32(1)
        found[f"{there}.{which}"] = np.ascontiguousarray(array)
    return found


def part_of(name: str) -> str:
    return name.split(".")[-2]


def gguf_metadata(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that follow from a config.json."""
    kind = config["model_type"]
    if kind == "gpt2":
        found = {
            "context_length": config["n_positions"],
            "embedding_length": config["n_embd"],
            "block_count": config["n_layer"],
            "attention.head_count": config["n_head"],
            "feed_forward_length": config.get("n_inner") or 4 * config["n_embd"],
            "attention.layer_norm_epsilon": config.get("layer_norm_epsilon", 1e-5),
        }
    else:
        found = {
            "context_length": config["max_position_embeddings"],
            "embedding_length": config["hidden_size"],
            "block_count": config["num_hidden_layers"],
            "attention.head_count": config["num_attention_heads"],
            "attention.head_count_kv": config["num_key_value_heads"],
            "feed_forward_length": config["intermediate_size"],
            "attention.layer_norm_rms_epsilon": config.get("rms_norm_eps", 1e-6),
            "rope.freq_base": config.get("rope_theta", 10000.0),
        }
        if "head_dim" in config:
            found |= {"attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"]}
        if (scaling := config.get("rope_scaling")) and scaling["rope_type"] in ("linear", "yarn"):
            found |= {"rope.scaling.type": scaling["rope_type"], "rope.scaling.factor": scaling["factor"]}
            if scaling["rope_type"] == "yarn":
                found["rope.scaling.original_context_length"] = scaling["original_max_position_embeddings"]
        if kind == "gemma2":
            found |= {key: config[key] for key in ("attn_logit_softcapping", "final_logit_softcapping")}
            found["attention.sliding_window"] = config["sliding_window"]
    return {"general.architecture": kind, **{f"{kind}.{key}": value for key, value in found.items()}}


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> tuple[int, bytes]:
    """The number of a type, and the bytes of a value."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, _text(value)
    kinds = [_value(each) for each in value]
    return 9, struct.pack("<IQ", kinds[0][0] if kinds else 8, len(value)) + b"".join(data for _, data in kinds)


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Any], version: int = 3) -> None:
    """Write a file.

    Args:
        tensors: float32 arrays, or (shape, number of the type, bytes)
    """
    described = {
        name: (array.shape, 0, array.astype("<f4").tobytes()) if isinstance(array, np.ndarray) else array
        for name, array in tensors.items()
    }
    head = b"GGUF" + struct.pack("<IQQ", version, len(described), len(metadata))
    for key, value in metadata.items():
        kind, data = _value(value)
        head += _text(key) + struct.pack("<I", kind) + data
    body = b""
    for name, (shape, kind, data) in described.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(body))
        body += data + bytes(-len(data) % _ALIGNMENT)
    path.write_bytes(head + bytes(-len(head) % _ALIGNMENT) + body)
