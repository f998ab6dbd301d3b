"""Requests for small models, from text."""

from typing import Any

import yaml

from cstool.model.params import Params, parse_params
from cstool.plan.estimation import EstimateOptions, Estimator, make_request


def gpt(
    batch_size: int = 64, sparsity: Any = 0.0, norm: float | None = 1.0, max_steps: int = 1, **shape: Any
) -> Params:
    """Return params of a small GPT on samples of 256 tokens."""
    model = {"name": "gpt3", "hidden_size": 1024, "num_hidden_layers": 4, "num_heads": 8, "filter_size": 4096}
    model |= {"vocab_size": 1000, "max_position_embeddings": 256, **shape}
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": ".", "batch_size": batch_size}
    init: dict[str, Any] = {
        "model": model,
        "optimizer": {"AdamW": {"learning_rate": 1e-4}},
        "loop": {"max_steps": max_steps},
    }
    init["precision"] = {"max_gradient_norm": norm}
    if sparsity:
        init["sparsity"] = sparsity
    return parse_params(yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": loader}}}), "gpt.yaml")


def estimator(params: Params, system: str = "cs2", **asked: Any) -> Estimator:
    """Return an estimator for weight streaming, unless something else is asked for."""
    return Estimator(make_request(params, EstimateOptions(system, **{"execution_mode": "weight_streaming", **asked})))


_SHARED: dict[str, Estimator] = {}


def shared(params: Params, system: str = "cs2", **asked: Any) -> Estimator:
    """Return the same estimator for the same question, with all that it has compiled."""
    key = repr((params, system, asked))
    return _SHARED.get(key) or _SHARED.setdefault(key, estimator(params, system, **asked))
