"""GPT-2 and Llama as Hugging Face lays their weights out, in float64 NumPy, slow and obvious.

A Mistral is a Llama that may have a window (Jiang et al., arXiv:2310.06825).
It imports nothing of cstool: what is converted is compared with it. Sources: Radford et al., "Language models are
unsupervised multitask learners", 2019, and the released model (Conv1D, the tanh form of GELU); Touvron et al.,
arXiv:2302.13971, and the released model, in the layout of Hugging Face (a head's pairs are half a head apart).
"""

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
Tensors = dict[str, Array]

GPT2_CONFIG: dict[str, Any] = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 100,
    "n_positions": 24,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 4,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
}
LLAMA_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 101,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}


def gpt2_tensors(config: Mapping[str, Any] = GPT2_CONFIG, seed: int = 0) -> Tensors:
    """Return random weights under the names of `GPT2LMHeadModel`; its Conv1D matrices are (in, out)."""
    h, f = config["n_embd"], config.get("n_inner") or 4 * config["n_embd"]
    shapes = {"transformer.wte.weight": (config["vocab_size"], h), "transformer.wpe.weight": (config["n_positions"], h)}
    for n in range(config["n_layer"]):
        layer = f"transformer.h.{n}"
        for norm in ("ln_1", "ln_2"):
            shapes |= {f"{layer}.{norm}.weight": (h,), f"{layer}.{norm}.bias": (h,)}
        conv1ds = {"attn.c_attn": (h, 3 * h), "attn.c_proj": (h, h), "mlp.c_fc": (h, f), "mlp.c_proj": (f, h)}
        for name, shape in conv1ds.items():
            shapes |= {f"{layer}.{name}.weight": shape, f"{layer}.{name}.bias": shape[1:]}
    shapes |= {"transformer.ln_f.weight": (h,), "transformer.ln_f.bias": (h,)}
    if not config.get("tie_word_embeddings", True):
        shapes["lm_head.weight"] = (config["vocab_size"], h)
    return _random(shapes, seed)


def llama_tensors(config: Mapping[str, Any] = LLAMA_CONFIG, seed: int = 0) -> Tensors:
    """Return random weights under the names of `LlamaForCausalLM`."""
    h, f, v = (config[key] for key in ("hidden_size", "intermediate_size", "vocab_size"))
    width = config.get("head_dim") or h // config["num_attention_heads"]
    inner, inner_kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (v, h)}
    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        shapes |= {f"{layer}.{norm}.weight": (h,) for norm in ("input_layernorm", "post_attention_layernorm")}
        attention = {"q_proj": (inner, h), "k_proj": (inner_kv, h), "v_proj": (inner_kv, h), "o_proj": (h, inner)}
        for name, shape in attention.items():
            shapes[f"{layer}.self_attn.{name}.weight"] = shape
            if config.get("attention_bias"):
                shapes[f"{layer}.self_attn.{name}.bias"] = shape[:1]
        for name, shape in {"gate_proj": (f, h), "up_proj": (f, h), "down_proj": (h, f)}.items():
            shapes[f"{layer}.mlp.{name}.weight"] = shape
    shapes["model.norm.weight"] = (h,)
    if not config.get("tie_word_embeddings", False):
        shapes["lm_head.weight"] = (v, h)
    return _random(shapes, seed)


def gpt2_logits(config: Mapping[str, Any], tensors: Tensors, ids: Array) -> Array:
    """Return the logits of `GPT2LMHeadModel` for one row of tokens, (S, V) float64."""
    w = {name.removeprefix("transformer."): tensor.astype(np.float64) for name, tensor in tensors.items()}
    heads, epsilon = config["n_head"], config["layer_norm_epsilon"]
    x = w["wte.weight"][ids] + w["wpe.weight"][: len(ids)]
    for n in range(config["n_layer"]):
        y = _layer_norm(x, w[f"h.{n}.ln_1.weight"], w[f"h.{n}.ln_1.bias"], epsilon)
        qkv = y @ w[f"h.{n}.attn.c_attn.weight"] + w[f"h.{n}.attn.c_attn.bias"]
        q, k, v = (_heads(part, heads) for part in np.split(qkv, 3, axis=1))
        context = _attention(q, k, v)
        x = x + context @ w[f"h.{n}.attn.c_proj.weight"] + w[f"h.{n}.attn.c_proj.bias"]
        y = _layer_norm(x, w[f"h.{n}.ln_2.weight"], w[f"h.{n}.ln_2.bias"], epsilon)
        y = _gelu_new(y @ w[f"h.{n}.mlp.c_fc.weight"] + w[f"h.{n}.mlp.c_fc.bias"])
        x = x + y @ w[f"h.{n}.mlp.c_proj.weight"] + w[f"h.{n}.mlp.c_proj.bias"]
    x = _layer_norm(x, w["ln_f.weight"], w["ln_f.bias"], epsilon)
    return x @ w.get("lm_head.weight", w["wte.weight"]).T


def llama_logits(config: Mapping[str, Any], tensors: Tensors, ids: Array) -> Array:
    """Return the logits of `LlamaForCausalLM` for one row of tokens, (S, V) float64."""
    w = {name.removeprefix("model."): tensor.astype(np.float64) for name, tensor in tensors.items()}
    heads, kv_heads, epsilon = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "rms_norm_eps"))
    x = w["embed_tokens.weight"][ids]
    for n in range(config["num_hidden_layers"]):
        y = _rms_norm(x, w[f"layers.{n}.input_layernorm.weight"], epsilon)
        attention = f"layers.{n}.self_attn"
        q, k, v = (
            y @ w[f"{attention}.{name}_proj.weight"].T + w.get(f"{attention}.{name}_proj.bias", 0.0) for name in "qkv"
        )
        q, k = (_rotated(_heads(part, count), config["rope_theta"]) for part, count in ((q, heads), (k, kv_heads)))
        k, v = (np.repeat(part, heads // kv_heads, axis=0) for part in (k, _heads(v, kv_heads)))
        context = _attention(q, k, v, config.get("sliding_window"))
        x = x + context @ w[f"{attention}.o_proj.weight"].T + w.get(f"{attention}.o_proj.bias", 0.0)
        y = _rms_norm(x, w[f"layers.{n}.post_attention_layernorm.weight"], epsilon)
        gate, up = (y @ w[f"layers.{n}.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        x = x + (gate / (1.0 + np.exp(-gate)) * up) @ w[f"layers.{n}.mlp.down_proj.weight"].T
    x = _rms_norm(x, w["norm.weight"], epsilon)
    return x @ w.get("lm_head.weight", w["embed_tokens.weight"]).T


def losses(logits: Array, labels: Array) -> Array:
    """Return the cross entropy of each token, (S,)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]


def write_hf(folder: Path, config: Mapping[str, Any] | None, tensors: Mapping[str, Array], shards: int = 1) -> Path:
    """Write a model as Hugging Face does: safetensors files, an index where there are several, and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(tensors)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
    else:
        weight_map = {name: f"model-{k % shards + 1:05}-of-{shards:05}.safetensors" for k, name in enumerate(names)}
        for file in set(weight_map.values()):
            write_safetensors(folder / file, {name: tensors[name] for name in names if weight_map[name] == file})
        index = {"metadata": {}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


KINDS = {"float32": "F32", "float16": "F16", "float64": "F64", "bool": "BOOL", "uint8": "U8"}


def write_safetensors(path: Path, tensors: Mapping[str, Array | tuple[str, Array]]) -> None:
    """Write a safetensors file; a tensor given with a dtype of the format is written as the bits that it is."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, given in tensors.items():
        kind, tensor = given if isinstance(given, tuple) else (KINDS[given.dtype.name], given)
        first, data = len(data), data + np.ascontiguousarray(tensor).tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [first, len(data)]}
    write_raw(path, json.dumps(header).encode(), data)


def write_raw(path: Path, header: bytes, data: bytes) -> None:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def read_safetensors(path: Path) -> Tensors:
    """Read a file of float32 tensors."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__")
    found = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32"
        first, last = (8 + length + offset for offset in entry["data_offsets"])
        found[name] = np.frombuffer(content[first:last], np.float32).reshape(entry["shape"])
    return found


def _random(shapes: Mapping[str, tuple[int, ...]], seed: int) -> Tensors:
    """Return weights large enough that every part of a model counts."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in shapes.items():
        numbers = rng.standard_normal(shape) * (0.2 if len(shape) > 1 else 0.1)
        is_scale = len(shape) == 1 and name.endswith("weight")
        found[name] = (numbers + is_scale).astype(np.float32)
    return found


def _layer_norm(x: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + epsilon) * weight + bias


def _rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + epsilon) * weight


def _gelu_new(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _heads(x: Array, heads: int) -> Array:
    """(S, heads * D) -> (heads, S, D)."""
    return x.reshape(len(x), heads, -1).swapaxes(0, 1)


def _attention(q: Array, k: Array, v: Array, window: int | None = None) -> Array:
    """(heads, S, D) of each -> (S, heads * D); a token sees itself and those before it, so many in all."""
    scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[2])
    seen = np.tril(np.ones(scores.shape[1:], bool))
    if window is not None:
        seen &= ~np.tril(seen, -window)
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return (weights @ v).swapaxes(0, 1).reshape(q.shape[1], -1)


def _rotated(x: Array, theta: float) -> Array:
    """Turn element i of a head with element i + D/2, as `rotate_half` does."""
    width = x.shape[2]
    angles = np.arange(x.shape[1])[:, None] * theta ** (-np.arange(0, width, 2) / width)
    cosine, sine = (np.concatenate([part, part], axis=1) for part in (np.cos(angles), np.sin(angles)))
    first, second = np.split(x, 2, axis=2)
    return x * cosine + np.concatenate([-second, first], axis=2) * sine
