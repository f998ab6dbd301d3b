"""Train small policies for ten steps in PyTorch with the losses of DPO, and record these for cstool's to be compared.

The decoders are those of `torch_decoders.py`; the losses are written here from the papers. It imports nothing of
cstool. PyTorch is not needed to run the tests, only to make their numbers anew::

    pip install torch            # the extra "bench" has it
    python -m tests.reference.make_preference_curves

writes `preference_curves.json` beside this file, in the form of `loss_curves.json`. What is trained is in
`preference_cases.py`.

Sources: arXiv:2305.18290 (sigmoid), 2305.10425 (hinge), 2310.12036 (ipo), 2402.13228 (dpop).
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tests.reference import torch_decoders
from tests.reference.curve_file import nine_digits, write_curves
from tests.reference.deterministic import STEPS, digest, preference_batches, weights
from tests.reference.make_loss_curves import learning_rate, make_optimizer
from tests.reference.preference_cases import CASES, Config

OUTPUT = Path(__file__).with_name("preference_curves.json")
POLICY, REFERENCE = "policy_model.model.", "ref_model.model."

Weights = Mapping[str, torch.Tensor]


def prefixes(config: Config) -> list[str]:
    """Return what the names of the weights of the models of a case begin with, the policy's first."""
    return [POLICY, *([] if config["model"]["dpo"].get("reference_free") else [REFERENCE])]


def initial_weights(config: Config) -> dict[str, np.ndarray]:
    """Return the weights of policy and reference by name."""
    shapes = torch_decoders.weight_shapes(config["model"]["policy_model"])
    named = {prefix + name: shape for prefix in prefixes(config) for name, shape in shapes.items()}
    return weights(named, config["seed"])


def make_batches(config: Config) -> np.ndarray:
    """Return the batches of a case, (10, B, 6, S)."""
    policy = config["model"]["policy_model"]
    return preference_batches(
        batch_size=config["batch_size"],
        sequence_length=policy["max_position_embeddings"],
        vocab_size=policy["vocab_size"],
        seed=config["seed"],
    )


def log_probability(model: Config, w: Weights, text: torch.Tensor, is_mean: bool) -> torch.Tensor:
    """Return log p of the labels that count of texts, (B, 3, S) -> (B,): their sum or their mean."""
    ids, mask, labels = text.unbind(dim=1)
    logs = functional.log_softmax(torch_decoders.decoder_logits(model, w, ids), dim=-1)
    found = (logs.gather(-1, labels[..., None])[..., 0] * mask).sum(dim=-1)
    return found / mask.sum(dim=-1) if is_mean else found


def loss_of(model: Config, w: Weights, batch: torch.Tensor) -> torch.Tensor:
    """Return the loss of a batch of pairs."""
    settings = model["dpo"]
    kind, beta = settings.get("loss_type", "sigmoid"), settings["beta"]

    def log_probabilities(prefix: str) -> list[torch.Tensor]:
        own = {name.removeprefix(prefix): array for name, array in w.items() if name.startswith(prefix)}
        parts = batch[:, :3], batch[:, 3:]
        return [log_probability(model["policy_model"], own, part, kind == "ipo") for part in parts]

    chosen, rejected = log_probabilities(POLICY)
    if not settings.get("reference_free"):
        with torch.no_grad():
            chosen_before, rejected_before = log_probabilities(REFERENCE)
        chosen, rejected = chosen - chosen_before, rejected - rejected_before
    margin = chosen - rejected
    if kind == "hinge":
        return (1 - beta * margin).clamp(min=0).mean()
    if kind == "ipo":
        return (margin - 1 / (2 * beta)).square().mean()
    if kind == "dpop":
        margin = margin - settings["dpop_penalty_weight"] * (-chosen).clamp(min=0)
    return functional.softplus(-beta * margin).mean()


def train(config: Config, dtype: torch.dtype) -> list[float]:
    """Return the losses of ten steps."""
    w = {name: torch.from_numpy(array).to(dtype) for name, array in initial_weights(config).items()}
    trained = {name: array.requires_grad_() for name, array in w.items() if name.startswith(POLICY)}
    optimizer = make_optimizer({**config, "model": config["model"]["policy_model"]}, trained)
    losses = []
    for step, batch in enumerate(torch.from_numpy(make_batches(config)).long()):
        optimizer.zero_grad()
        loss = loss_of(config["model"], w, batch)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(trained.values(), config["precision"].get("max_gradient_norm", math.inf))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config["schedulers"][0], step) * group["scale"]
        optimizer.step()
        losses.append(loss.item())
    assert len(losses) == STEPS
    return losses


def record(config: Config) -> dict[str, Any]:
    """Return what the file holds of a case."""
    digests = {
        "weights_digest": digest(initial_weights(config)),
        "data_digest": digest({"pairs": make_batches(config)}),
    }
    losses, precise = (nine_digits(train(config, dtype)) for dtype in (torch.float32, torch.float64))
    return {"config": config, **digests, "losses": losses, "losses_float64": precise}


def main() -> None:
    """Write preference_curves.json."""
    torch.set_num_threads(1)
    made_by = f"make_preference_curves.py, torch {torch.__version__}, numpy {np.__version__}"
    write_curves(OUTPUT, made_by, {name: record(config) for name, config in CASES.items()})


if __name__ == "__main__":
    main()
