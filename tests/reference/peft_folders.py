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


def adapters(tensors: Tensors, ends: Sequence[str], *, rank: int = 2, is_transposed: bool = False) -> Tensors:
    """Return random A and B beside the matrices whose modules have these ends of names."""
    rng, found = np.random.default_rng(3), {}
    for name, weight in tensors.items():
        module = name.removesuffix(".weight")
        if weight.ndim != 2 or not module.endswith(tuple(f".{end}" for end in ends)):
            continue
        outputs, inputs = weight.shape[::-1] if is_transposed else weight.shape
        for side, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
            found[f"base_model.model.{module}.lora_{side}.weight"] = rng.standard_normal(shape, np.float32)
    return found


def write_peft(folder: Path, tensors: Mapping[str, Any], **config: Any) -> Path:
    """Write a folder of adapters; `config` are keys that differ from `CONFIG`."""
    folder.mkdir()
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, **config}))
    return folder


def folded(tensors: Tensors, folder: Path) -> Tensors:
    """Return weights with the adapters of a folder folded in, in float64, rounded once."""
    config = json.loads((folder / "adapter_config.json").read_text())
    found = dict(tensors)
    adapters = read_safetensors(folder / "adapter_model.safetensors")
    for name, a in adapters.items():
        if not name.endswith(".lora_A.weight"):
            continue
        module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        b = adapters[name.replace("lora_A", "lora_B")].astype(np.float64)
        alpha = _of(config.get("alpha_pattern", {}), module, config["lora_alpha"])
        rank = _of(config.get("rank_pattern", {}), module, config["r"])
        assert a.shape[0] == rank
        added = alpha / (rank**0.5 if config.get("use_rslora") else rank) * (b @ a.astype(np.float64))
        weight = found[f"{module}.weight"]
        found[f"{module}.weight"] = (weight + (added.T if config.get("fan_in_fan_out") else added)).astype(np.float32)
    return found


def _of(patterns: Mapping[str, Any], module: str, usual: Any) -> Any:
    return next((each for key, each in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), usual)
