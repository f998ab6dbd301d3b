"""PEFT's `adapter_config.json`: ranks and scales of adapters, and the keys that are refused.

Source: `LoraConfig` of the package peft 0.21.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cstool.convert.hf_keys import is_number, text
from cstool.convert.safetensors_reader import read_json
from cstool.foundation.errors import CheckpointError
from cstool.model.params.sections.tuning import HEADS, Adapters

CONFIG_NAME, TENSORS_NAME = "adapter_config.json", "adapter_model.safetensors"
MERGE = "merge it into its base, by merge_and_unload of the package peft, and convert the sum"
_READ = frozenset(
    "peft_type r lora_alpha lora_dropout rank_pattern alpha_pattern use_rslora use_dora init_lora_weights".split()
)
_PASSED_OVER = frozenset(
    "task_type auto_mapping peft_version base_model_name_or_path revision inference_mode target_modules "
    "exclude_modules layers_to_transform layers_pattern megatron_config megatron_core fan_in_fan_out loftq_config "
    "eva_config corda_config lora_ga_config qalora_group_size ensure_weight_tying runtime_config".split()
)
"""keys that say where adapters are, which their tensors do too, or how they began"""
_SAVED = "modules_to_save"
"""key of modules that are trained as a whole"""
_INITIAL = (True, False, None, "gaussian", "eva", "orthogonal")
"""values of init_lora_weights that leave the weights of the base as they are"""


@dataclass(frozen=True)
class PeftConfig:
    """Ranks and scales of adapters, as a config has them.

    Args:
        rank, alpha: of modules that no pattern names
        ranks, alphas: by patterns of modules
        dropout: rate, in training
        is_stabilized: whether alpha is scale x the root of the rank
        has_magnitudes: whether sums have lengths of their own (DoRA)
        heads: modules that tell classes, and were trained as a whole; as PEFT names them, whether the model has them
    """

    rank: int
    alpha: float
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    dropout: float
    is_stabilized: bool
    has_magnitudes: bool
    heads: tuple[str, ...]

    def adapters(self, module: str) -> Adapters:
        """Return rank and scale of a module's adapter, without layers."""
        rank, alpha = (
            next((value for key, value in of.items() if re.match(rf"(.*\.)?({key})$", module)), usual)
            for of, usual in ((self.ranks, self.rank), (self.alphas, self.alpha))
        )
        return Adapters(int(rank), (), float(alpha), self.dropout, self.is_stabilized)


def read_peft_config(path: Path) -> PeftConfig:
    """Read a config.

    Raises:
        CheckpointError: it cannot be read, or asks for a part that adapters lack here
    """
    config = read_json(path)
    if (kind := config.get("peft_type")) != "LORA":
        raise CheckpointError(f"{path}: peft_type must be LORA, got {text(kind)}", MERGE)
    other = [
        f"{key}: {text(value)}"
        for key, value in sorted(config.items())
        if key not in _READ | _PASSED_OVER and not _is_neutral(key, value)
    ]
    if other:
        rule = "must have no keys of parts that adapters lack here"
        raise CheckpointError(f"{path}: {rule}, got {', '.join(other)}", MERGE)
    if (initial := config.get("init_lora_weights")) not in _INITIAL:
        rule = "init_lora_weights must be of a kind that leaves the base as it is"
        hint = "save_pretrained of the package peft has path_initial_model_for_weight_conversion, which undoes it"
        raise CheckpointError(f"{path}: {rule}, got {text(initial)}", hint)
    return PeftConfig(
        _checked(path, "r", config.get("r", 8), "a whole number, at least 1", _is_rank),
        _checked(path, "lora_alpha", config.get("lora_alpha", 8), "a number above 0", _is_alpha),
        _patterns(path, "rank_pattern", config, "a whole number, at least 1", _is_rank),
        _patterns(path, "alpha_pattern", config, "a number above 0", _is_alpha),
        float(_checked(path, "lora_dropout", config.get("lora_dropout", 0.0), "from 0 to below 1", _is_rate)),
        bool(_checked(path, "use_rslora", config.get("use_rslora", False), "true or false", _is_choice)),
        bool(_checked(path, "use_dora", config.get("use_dora", False), "true or false", _is_choice)),
        tuple(config.get(_SAVED) or ()),
    )


def peft_config(
    modules: Mapping[str, Adapters],
    targets: list[str],
    *,
    base_name: str | None,
    task_type: str | None,
    is_transposed: bool,
    has_magnitudes: bool,
    saved: list[str],
) -> dict[str, Any]:
    """Return the config of adapters.

    Args:
        modules: by the names of modules there, adapters with a common dropout and one kind of scale
        targets: the names that find them
        base_name: of the base; None where it is not known
        task_type: kind of model; None for none
        is_transposed: whether matrices are (in, out) there
        has_magnitudes: whether adapters have them (DoRA)
        saved: modules that were trained as a whole
    """
    first = next(iter(modules.values()))
    ranks = {module: each.rank for module, each in modules.items()}
    alphas = {module: _alpha(each) for module, each in modules.items()}
    (rank, _), *_ = Counter(ranks.values()).most_common()
    (alpha, _), *_ = Counter(alphas.values()).most_common()
    return {
        "peft_type": "LORA",
        "task_type": task_type,
        "auto_mapping": None,
        "base_model_name_or_path": base_name,
        "revision": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": first.dropout,
        "target_modules": targets,
        "exclude_modules": None,
        "bias": "none",
        "fan_in_fan_out": is_transposed,
        "use_rslora": first.is_stabilized,
        "use_dora": has_magnitudes,
        _SAVED: saved or None,
        "init_lora_weights": True,
        "layers_to_transform": None,
        "layers_pattern": None,
        "rank_pattern": {module: each for module, each in ranks.items() if each != rank},
        "alpha_pattern": {module: each for module, each in alphas.items() if each != alpha},
    }


def _alpha(adapters: Adapters) -> float:
    """Alpha of adapters; a whole number where it is one."""
    alpha = adapters.rank if adapters.alpha is None else adapters.alpha
    return round(alpha) if math.isclose(alpha, round(alpha), rel_tol=1e-12) else alpha


def _is_neutral(key: str, value: Any) -> bool:
    if key == _SAVED and isinstance(value, list):
        return all(name in HEADS for name in value)
    return value is None or value is False or value in ("", [], {}) or (key == "bias" and value == "none")


def _is_rank(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_alpha(value: Any) -> bool:
    return bool(is_number(value) and 0 < value < math.inf)


def _is_rate(value: Any) -> bool:
    return bool(is_number(value) and 0 <= value < 1)


def _is_choice(value: Any) -> bool:
    return isinstance(value, bool)


def _checked(path: Path, key: str, value: Any, rule: str, is_right: Any) -> Any:
    if not is_right(value):
        raise CheckpointError(f"{path}: {key} must be {rule}, got {text(value)}")
    return value


def _patterns(path: Path, key: str, config: Mapping[str, Any], rule: str, is_right: Any) -> dict[str, Any]:
    found = config.get(key) or {}
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: {key} must be a mapping from modules, got {text(found)}")
    for pattern, value in found.items():
        try:
            re.compile(pattern)
        except re.error:
            raise CheckpointError(f"{path}: {key} must be by regular expressions, got {pattern}") from None
        _checked(path, f"{key}.{pattern}", value, rule, is_right)
    return found
