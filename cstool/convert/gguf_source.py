"""A model in a GGUF file, read as Hugging Face's models are: its metadata as a config.json, its tensors by those names.

llama.cpp's own layouts differ from Hugging Face's, and from file to file here: a Llama's rows of query and key stand as
in cstool, not half a head apart; GPT-2's matrices are (out, in); norms of Gemma 2 have their 1 added.

Source: `gguf-py/gguf/constants.py`, `tensor_mapping.py` and the converters of llama.cpp.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cstool.convert.gguf_reader import GgufReader
from cstool.convert.hf_families import HF_FAMILIES
from cstool.convert.hf_family import Family, HfModel
from cstool.convert.hf_source import HfSource
from cstool.foundation.errors import CheckpointError
from cstool.model.ir import Graph

_ROPE_FACTORS = "rope_freqs.weight"
"""how many times slower positions turn each pair of a head"""
_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_LLAMA_ENDS = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}
_LLAMA_LAYER = {
    "attn_norm": "input_layernorm",
    **{f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"},
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    **{f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
}
_QWEN3_LAYER = {**_LLAMA_LAYER, **{f"attn_{part}_norm": f"self_attn.{part}_norm" for part in "qk"}}
_GEMMA2_LAYER = {
    **_LLAMA_LAYER,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GPT2_ENDS = {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "output": "lm_head"}
_GPT2_LAYER = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
_GPT2_SIZES = {
    "context_length": "n_positions",
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "attention.head_count": "n_head",
    "feed_forward_length": "n_inner",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}
_LLAMA_SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "feed_forward_length": "intermediate_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
_GEMMA2_SIZES = {
    **_LLAMA_SIZES,
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention.sliding_window": "sliding_window",
}
_OF_WIDTHS = ("attention.key_length", "attention.value_length", "rope.dimension_count")
_OF_SCALING = (
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
)
_OPTIONAL = ("attention.head_count_kv", "rope.freq_base", "vocab_size", "expert_count", *_OF_WIDTHS, *_OF_SCALING)
"""keys of an architecture that are read where they are there, or change nothing"""
_LLAMA3: Mapping[str, float] = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""of all Llamas 3.1 to 3.3 as released; a file has the factors that follow from these alone"""
_GEMMA2_27B_LAYERS = 46
"""of Gemma 2 27B, which alone divides scores by the width of the model per head, says llama.cpp"""


class _Architecture(NamedTuple):
    """A `general.architecture`.

    Args:
        model_type: at Hugging Face
        ends, layer: its names of tensors -> those at Hugging Face, `.weight` and `.bias` left out
        before_layer: before the number of a layer there
        sizes: its keys that must be there -> keys of a config.json
        halves: as of `Family`
    """

    model_type: str
    ends: Mapping[str, str]
    layer: Mapping[str, str]
    before_layer: str
    sizes: Mapping[str, str]
    halves: bool = True

    @property
    def family(self) -> Family:
        """Hugging Face's family, with the layouts of a GGUF file."""
        return replace(HF_FAMILIES[self.model_type], halves=self.halves, is_transposed=False, norm_offset=0.0)

    def name_there(self, tensor: str) -> str | None:
        """Name of a tensor at Hugging Face, without prefix; None for one that the architecture lacks."""
        stem, dot, kind = tensor.rpartition(".")
        if (found := _LAYER.fullmatch(stem)) is None:
            return f"{self.ends[stem]}{dot}{kind}" if stem in self.ends else None
        known = self.layer.get(found[2])
        return None if known is None else f"{self.before_layer}.{found[1]}.{known}{dot}{kind}"


_ARCHITECTURES: Mapping[str, _Architecture] = {
    "gpt2": _Architecture("gpt2", _GPT2_ENDS, _GPT2_LAYER, "h", _GPT2_SIZES),
    "llama": _Architecture("llama", _LLAMA_ENDS, _LLAMA_LAYER, "layers", _LLAMA_SIZES, halves=False),
    "qwen2": _Architecture("qwen2", _LLAMA_ENDS, _LLAMA_LAYER, "layers", _LLAMA_SIZES),
    "qwen3": _Architecture("qwen3", _LLAMA_ENDS, _QWEN3_LAYER, "layers", _LLAMA_SIZES),
    "gemma2": _Architecture("gemma2", _LLAMA_ENDS, _GEMMA2_LAYER, "layers", _GEMMA2_SIZES),
}


def _architecture(reader: GgufReader) -> _Architecture:
    name = reader.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        rule = f"general.architecture must be one of {', '.join(_ARCHITECTURES)}, got {name!r}"
        raise CheckpointError(f"{reader.path}: {rule}", "other models are converted from safetensors files")
    return _ARCHITECTURES[name]


def gguf_config(reader: GgufReader) -> dict[str, Any]:
    """Return the config.json that Hugging Face has for the model of a file.

    Raises:
        CheckpointError: the model is none that is known, its metadata lack a key, or have one that is not known
    """
    architecture, tensors = _architecture(reader), set(reader.names())
    name = reader.metadata["general.architecture"]
    found = {
        key.removeprefix(f"{name}."): value for key, value in reader.metadata.items() if key.startswith(f"{name}.")
    }
    for key in found:
        if key not in architecture.sizes and key not in _OPTIONAL:
            raise CheckpointError(f"{reader.path}: must have no key {name}.{key}: it is not known here")
    for key in architecture.sizes:
        _number(reader, name, found, key)
    config = {theirs: _number(reader, name, found, ours) for ours, theirs in architecture.sizes.items()}
    if found.get("expert_count"):
        rule = f"{name}.expert_count must be 0, got {found['expert_count']}"
        raise CheckpointError(f"{reader.path}: {rule}", "mixtures of experts are converted from safetensors files")
    table = "token_embd.weight"
    if table not in tensors:
        raise CheckpointError(f"{reader.path}: lacks the tensor {table} of this model")
    is_tied = "output.weight" not in tensors
    config |= {
        "model_type": architecture.model_type,
        "vocab_size": reader.shape(table)[0],
        "tie_word_embeddings": is_tied,
    }
    if architecture.model_type == "gpt2":
        return config
    heads = config["num_attention_heads"]
    widths = {key: int(_number(reader, name, found, key)) for key in _OF_WIDTHS if key in found}
    width = widths.get("attention.key_length", config["hidden_size"] // max(1, heads))
    for key, value in widths.items():
        if value != width:
            rule = f"{name}.{key} must be the width of a head ({width}), got {value}"
            raise CheckpointError(f"{reader.path}: {rule}")
    config["head_dim"] = width
    if "attention.head_count_kv" in found:
        config["num_key_value_heads"] = _number(reader, name, found, "attention.head_count_kv")
    else:
        config["num_key_value_heads"] = heads
    config["rope_theta"] = _number(reader, name, found, "rope.freq_base") if "rope.freq_base" in found else 10000.0
    if architecture.model_type in ("llama", "qwen3"):
        config["attention_bias"] = "blk.0.attn_q.bias" in tensors
    if architecture.model_type == "llama":
        config["mlp_bias"] = "blk.0.ffn_up.bias" in tensors
    if architecture.model_type == "gemma2":
        is_27b = config["num_hidden_layers"] == _GEMMA2_27B_LAYERS
        config["query_pre_attn_scalar"] = config["hidden_size"] // heads if is_27b else width
    return config | _scaling(reader, name, found, config)


def _number(reader: GgufReader, name: str, found: Mapping[str, Any], key: str) -> Any:
    value = found.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        got = "none" if key not in found else "a list" if isinstance(value, list) else repr(value)
        raise CheckpointError(f"{reader.path}: {name}.{key} must be a number, got {got}")
    # A float32 as the shortest number that it is nearest to: 1e-05, not 9.99999974e-06.
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _scaling(reader: GgufReader, name: str, found: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a config.json on stretched positions."""
    kind, tensors = found.get("rope.scaling.type", "none"), reader.names()
    if _ROPE_FACTORS in tensors:
        factors = reader.rows(_ROPE_FACTORS, 0, reader.shape(_ROPE_FACTORS)[0])
        factor = float(factors.max())
        entry = {"rope_type": "llama3", "factor": factor, **_LLAMA3}
        expected = _llama3_factors(factor, config["rope_theta"], config["head_dim"])
        if len(factors) != len(expected) or not np.allclose(factors, expected, rtol=1e-4):
            raise CheckpointError(
                f"{reader.path}: {_ROPE_FACTORS} must have the factors of a Llama 3.1, it has others",
                "such a model is converted from its safetensors files",
            )
        return {"rope_scaling": entry}
    if kind == "none":
        return {}
    if kind not in ("linear", "yarn"):
        raise CheckpointError(f"{reader.path}: {name}.rope.scaling.type must be none, linear or yarn, got {kind!r}")
    entry = {"rope_type": kind, "factor": _number(reader, name, found, "rope.scaling.factor")}
    if kind == "yarn":
        key = "rope.scaling.original_context_length"
        entry["original_max_position_embeddings"] = _number(reader, name, found, key)
    return {"rope_scaling": entry}


def _llama3_factors(factor: float, theta: float, width: int) -> list[float]:
    """How many times slower each pair of a head turns in a Llama 3.1, as `convert_hf_to_gguf.py` writes it."""
    low, high = (_LLAMA3["original_max_position_embeddings"] / _LLAMA3[f"{end}_freq_factor"] for end in ("low", "high"))
    found = []
    for pair in range(width // 2):
        length = 2 * math.pi * theta ** (2 * pair / width)
        smooth = (_LLAMA3["original_max_position_embeddings"] / length - 1) / (_LLAMA3["high_freq_factor"] - 1)
        between = 1 / ((1 - smooth) / factor + smooth)
        found.append(1.0 if length < high else factor if length > low else between)
    return found


class _NamedReader(GgufReader):
    """The tensors of a GGUF file by Hugging Face's names, without prefix.

    Raises:
        CheckpointError: one is not of the architecture
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with self._or_closed():
            architecture, theirs = _architecture(self), {}
            for name, stored in self._tensors.items():
                if name == _ROPE_FACTORS:
                    continue
                there = architecture.name_there(name)
                if there is None:
                    raise CheckpointError(f"{path}: has the tensor {name}, which this model lacks")
                theirs[there] = stored
            self._tensors = theirs
            self.family = architecture.family


class GgufSource(HfSource):
    """A GGUF file, of a model. See `Source`.

    Raises:
        CheckpointError: it is damaged, or of another model
    """

    def __init__(self, path: Path, model: HfModel, graph: Graph, values: Mapping[str, Any]) -> None:
        reader = _NamedReader(path)
        super().__init__(path, reader.family, model, graph, values, reader, "its metadata")
