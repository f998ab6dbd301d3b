"""Adapters as the package PEFT 0.21 writes them, and folded into weights with Hugging Face's names. NumPy only.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1, and the package's files.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference.hf_models import Tensors, read_safetensors, write_safetensors

LINEAR, TABLE = ("lora_A.weight", "lora_B.weight"), ("lora_embedding_A", "lora_embedding_B")
"""ends of the names of A and B"""
WORDS = tuple(f"{name}.weight" for name in ("wte", "embed_tokens", "embed_in", "word_embeddings"))
"""ends of the names of tables of tokens"""
HEADS = ("lm_head.weight", "lm_head.decoder.weight", "embed_out.weight")
"""names of output layers"""
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "someone/model",
    "inference_mode": True,
    "r": 2,
    "lora_alpha": 3,
    "lora_dropout": 0.25,
    "target_modules": ["q_proj"],
    "bias": "none",
    "qalora_group_size": 16,
    "megatron_core": "megatron.core",
    "use_dora": False,
    "modules_to_save": None,
    "loftq_config": {},
    "eva_config": None,
}


def untied(tensors: Tensors) -> Tensors:
    """Return tensors with an output layer of their own; a tied one is the table of tokens."""
    words = next((name for name in tensors if name.endswith(WORDS)), None)
    if words is None or not tensors.keys().isdisjoint(HEADS):
        return tensors
    return {**tensors, HEADS[words.startswith("esm.")]: tensors[words]}


def adapters(
    tensors: Tensors, ends: Sequence[str], *, rank: int = 2, is_transposed: bool = False, is_dora: bool = False
) -> Tensors:
    """Return random A and B, and perhaps lengths, beside the matrices whose modules have these ends of names."""
    rng, found = np.random.default_rng(3), {}
    for name, weight in untied(tensors).items():
        module = name.removesuffix(".weight")
        if weight.ndim != 2 or not f".{module}".endswith(tuple(f".{end}" for end in ends)):
            continue
        is_table = name.endswith(WORDS)
        is_turned = is_table or (is_transposed and not module.startswith("lm_head"))
        outputs, inputs = weight.shape[::-1] if is_turned else weight.shape
        whole, names = f"base_model.model.{module}", TABLE if is_table else LINEAR
        for end, shape in zip(names, ((rank, inputs), (outputs, rank)), strict=True):
            found[f"{whole}.{end}"] = rng.standard_normal(shape, np.float32)
        if is_dora:
            found[f"{whole}.lora_magnitude_vector"] = rng.uniform(0.5, 2.0, outputs).astype(np.float32)
    return found


def write_peft(folder: Path, tensors: Mapping[str, Any], **config: Any) -> Path:
    """Write a folder of adapters; `config` are keys that differ from `CONFIG`."""
    folder.mkdir()
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, **config}))
    return folder


def folded(tensors: Tensors, folder: Path) -> Tensors:
    """Return weights with the adapters of a folder folded in, in float64, rounded once, and with an output layer."""
    config = json.loads((folder / "adapter_config.json").read_text())
    found = dict(untied(tensors))
    adapters = read_safetensors(folder / "adapter_model.safetensors")
    for name, a in adapters.items():
        if not name.endswith((LINEAR[0], TABLE[0])):
            continue
        whole, is_table = name.rpartition(".lora_")[0], name.endswith(TABLE[0])
        module = whole.removeprefix("base_model.model.")
        b = adapters[f"{whole}.{(TABLE if is_table else LINEAR)[1]}"].astype(np.float64)
        alpha = _of(config.get("alpha_pattern", {}), module, config["lora_alpha"])
        rank = _of(config.get("rank_pattern", {}), module, config["r"])
        assert a.shape[0] == rank
        added = alpha / (rank**0.5 if config.get("use_rslora") else rank) * (b @ a.astype(np.float64))
        is_turned = is_table or (config.get("fan_in_fan_out") and not module.startswith("lm_head"))
        weight = found[f"{module}.weight"].astype(np.float64)
        total = (weight.T if is_turned else weight) + added
        if config.get("use_dora"):
            total *= (adapters[f"{whole}.lora_magnitude_vector"] / np.linalg.norm(total, axis=1))[:, None]
        found[f"{module}.weight"] = (total.T if is_turned else total).astype(np.float32)
    return found


def _of(patterns: Mapping[str, Any], module: str, usual: Any) -> Any:
    return next((each for key, each in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), usual)
