"""Train small models for ten steps in PyTorch and record their losses, for cstool's to be compared with.

An implementation of its own, written from the definitions of the models: it imports nothing of cstool, and takes
gradients from autograd, updates from `torch.optim` and clipping from `torch.nn.utils`. PyTorch is not needed to run the
tests, only to make their numbers anew::

    pip install torch            # the extra "bench" has it
    python -m tests.reference.make_loss_curves

writes `loss_curves.json` beside this file. What is trained is in `loss_curve_cases.py`, the models in
`torch_decoders.py`. `losses` of a case are those before the update of steps 1 to 10, in float32; `losses_float64` are
the same curve in double precision: how far the two are apart is the noise of float32 itself, 4e-7 at most. Nor does a
decoder's curve fork: weights changed by 6e-8 of their size at random, in float64, move no loss by more than 2e-7.
`config` uses the vendor's keys, so that the other side can read it as params.

What a tolerance sees, measured by making the mistake here, as the largest relative change of a loss of the case. 5e-6
sees them all::

    decoder_tied      eps of 1e-6 in AdamW 1.4e-5, tanh form of gelu 1.5e-5, no weight decay 1.3e-4, decay of biases and
                      norms too 1.5e-4, no clipping 2e-3, a schedule one step off 2e-2
    llama             pairs of halves, not neighbours 4e-2, turned the other way 2e-2, frequencies not scaled 3e-2, all
                      divided 3e-2, the middle ones divided 9e-3, low_freq_factor 1 9e-3, high_freq_factor 4 9e-3, base
                      10000 2e-2, key-value heads in turns 4e-2, gate and up exchanged 2e-2, layer norm 2e-2, epsilon
                      1e-6 6e-5
    llama_yarn        no amplitude 8e-3, amplitude on what does not turn 9e-3, beta_fast 32 1e-2, beta_slow doubled
                      1e-2, bounds not rounded 2e-3, whole head turned 2e-2
    llama_linear      no factor 4e-2, factor upside down 5e-2
    mistral           window one shorter 2e-2, one longer 2e-2, none 2e-2
    mistral_sinks     no sinks 2e-2, one less 1e-2, sinks that count as part of the window 3e-2
    falcon            sequential 3e-1, a quarter of the head turned 9e-3, epsilon 1e-6 3e-5
    falcon_two_norms  the first norm for both 6e-3, no shift of the second 3e-3, key-value heads in turns 2e-2
    bloom             slopes sorted 2e-2, reversed 1e-2, of one row 7e-3, scaled as the scores are 2e-2, none 2e-2, no
                      embedding norm 1e-1, no shift of it 5e-3
    gptj              whole head turned 1e-2, pairs of halves 6e-3, no bias of the logits 7e-4, of the network 3e-3
    gpt-neox          whole head turned by default 1e-2, erf form of gelu 3e-5, no bias of keys 1e-4
    gemma2            no cap of scores 7e-3, cap before scale 2e-2, no cap of logits 3e-2, window in the other layers
                      2e-2, in all 2e-2, no norm1_post 1e-1, no norm3_post 1e-2, width H / heads 4e-3, tanh form of
                      gelu 2e-5, scales 1 + w 2e-1, embeddings not scaled 1e-1, epsilon 1e-5 8e-6
    mup               scores / sqrt(D) 1e-2, no alpha of scores 2e-3, of logits 6e-2, logits / sqrt of the width 2e-1,
                      positions not scaled 4e-2, one rate for all 1e-2, attention not slowed 2e-2, rates of the network
                      exchanged 2e-3, decay at the unscaled rate 3e-3
    mup_parallel      scores / sqrt(D) 1e-1, logits / width 1e-1, bias of logits not scaled 3e-4, adjust_learning_rate
                      ignored 4e-2, on top of muP's 8e-2
    adjusted_rates    ignored 7e-3, word embeddings alone 1e-3, erf form of gelu 2e-4, decay at the unscaled rate 5e-5
    jais              no pos_scaling_factor 3e-2, gate and up exchanged 2e-2, no bias of the gate 2e-3, of queries 1e-3
    starcoder         scores not divided by the layer 5e-3, layers counted from 0 2e-3, no bias of values 4e-3
    fixed_positions   sines before cosines 3e-2, increment by H / 2 2e-3, scores scaled 8e-3, plain relu 1e-2
"""

import argparse
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tests.reference import torch_decoders
from tests.reference.curve_file import nine_digits, write_curves
from tests.reference.deterministic import STEPS, digest, image_batches, text_batches, weights
from tests.reference.loss_curve_cases import CASES
from tests.reference.torch_decoders import Config, Weights, linear

OUTPUT = Path(__file__).with_name("loss_curves.json")


def hidden_sizes(model: Config) -> list[int]:
    """Return the widths of the hidden layers of an fc_mnist model."""
    return list(model.get("hidden_sizes") or [model["hidden_size"]] * model["depth"])


def weight_shapes(model: Config) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight of a model by the vendor's name; matrices are (out, in)."""
    if model["name"] != "fc_mnist":
        return torch_decoders.weight_shapes(model)
    sizes = [784, *hidden_sizes(model), 10]
    names = [*(f"fc_layers.{n}" for n in range(len(sizes) - 2)), "last_layer"]
    return {
        name: shape
        for i, layer in enumerate(names)
        for name, shape in ((f"{layer}.weight", (sizes[i + 1], sizes[i])), (f"{layer}.bias", (sizes[i + 1],)))
    }


def fc_logits(model: Config, w: Weights, x: torch.Tensor) -> torch.Tensor:
    """Return the logits (B, 10) of images (B, 784)."""
    for n in range(len(hidden_sizes(model))):
        x = torch.relu(linear(x, w, f"fc_layers.{n}"))
    return linear(x, w, "last_layer")


def losses_of_steps(config: Config, arrays: Mapping[str, np.ndarray], w: Weights) -> Iterator[torch.Tensor]:
    """Yield the loss of each step's batch, computed from the weights as they are when it is asked for."""
    model, dtype = config["model"], next(iter(w.values())).dtype
    for step in range(STEPS):
        if model["name"] == "fc_mnist":
            # The vendor's normalisation of MNIST: its mean and standard deviation.
            x = (torch.from_numpy(arrays["pixels"][step]).to(dtype) / 255.0 - 0.1307) / 0.3081
            yield functional.cross_entropy(fc_logits(model, w, x), torch.from_numpy(arrays["labels"][step]).long())
            continue
        ids, mask, labels = torch.from_numpy(arrays["text"][step]).long().unbind(dim=1)
        logits = torch_decoders.decoder_logits(model, w, ids)
        token_losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        keys = torch_decoders.complete(model)
        divisor = mask.sum() if keys["loss_scaling"] == "num_tokens" else config["batch_size"]
        yield (token_losses * mask.flatten()).sum() * (keys["loss_weight"] / divisor)


def learning_rate(scheduler: Config, step: int) -> float:
    """Return the learning rate of a step, counted from 0, under one scheduler of the vendor's."""
    ((name, keys),) = scheduler.items()
    if name == "ConstantLR":
        return float(keys["learning_rate"])
    if name == "SequentialLR":
        *first, last = keys["schedulers"]
        for inner in first:
            iterations = next(iter(inner.values()))["total_iters"]
            if step < iterations:
                return learning_rate(inner, step)
            step -= iterations
        return learning_rate(last, step)
    begin, end = keys["initial_learning_rate"], keys["end_learning_rate"]
    progress = min(step / keys["total_iters"], 1.0)
    if name == "CosineDecayLR":
        progress = (1.0 - math.cos(math.pi * progress)) / 2.0
    return float(begin + (end - begin) * progress)


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of arXiv:2302.06675, which PyTorch has not."""

    def __init__(self, groups: Any, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": 0.1, "betas": betas})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            (inner, outer), rate = group["betas"], group["lr"]
            for w in group["params"]:
                mean = self.state[w].get("mean", torch.zeros_like(w))
                direction = torch.sign(torch.lerp(w.grad, mean, inner))
                w -= rate * (direction + group["weight_decay"] * w)
                self.state[w]["mean"] = torch.lerp(w.grad, mean, outer)


class Adafactor(torch.optim.Optimizer):
    """Algorithms 4 and 5 of arXiv:1804.04235 with a learning rate for the relative step; PyTorch's own is another."""

    def __init__(self, groups: Any) -> None:
        super().__init__(groups, {"lr": 0.1})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for w in group["params"]:
                state = self.state[w]
                state["step"] = state.get("step", 0) + 1
                share, squares = state["step"] ** -0.8, w.grad**2 + 1e-30
                means = [squares] if w.ndim == 1 else [squares.mean(1, keepdim=True), squares.mean(0, keepdim=True)]
                before = state.get("means", means)
                state["means"] = [torch.lerp(old, new, share) for old, new in zip(before, means, strict=True)]
                moment = math.prod(state["means"])
                if w.ndim == 2:
                    moment = moment / state["means"][0].mean()
                towards = w.grad / moment.sqrt()
                towards /= max(1.0, towards.square().mean().sqrt().item())
                rate = group["lr"] * max(1e-3, w.square().mean().sqrt().item())
                w -= rate * (towards + group["weight_decay"] * w)


def make_optimizer(config: Config, w: Weights) -> torch.optim.Optimizer:
    """Return the optimizer of a case; weight decay spares biases and norms, `scale` multiplies the learning rate.

    The cases ask cstool for its `form: pytorch`: the vendor's own is compared with the vendor's (`vendor_curves.json`).
    """
    ((name, keys),) = config["optimizer"].items()
    scales = torch_decoders.learning_rate_scales(config["model"], keys.get("adjust_learning_rate", {}))
    groups = [
        {
            "params": [parameter],
            "weight_decay": keys.get("weight_decay", 0.0) if parameter.ndim == 2 and "bias" not in weight else 0.0,
            "scale": scales.get(weight, 1.0),
        }
        for weight, parameter in w.items()
    ]
    if name == "SGD":
        return torch.optim.SGD(groups, lr=0.1, momentum=keys["momentum"], nesterov=keys.get("nesterov", False))
    if name == "Lion":
        return Lion(groups, tuple(keys["betas"]))
    if name == "Adafactor":
        return Adafactor(groups)
    kind = torch.optim.Adam if name == "Adam" else torch.optim.AdamW
    return kind(groups, lr=0.1, betas=tuple(keys["betas"]), eps=keys["eps"])


def make_arrays(config: Config) -> dict[str, np.ndarray]:
    """Return the batches of a case by name."""
    model, seed, batch_size = config["model"], config["seed"], config["batch_size"]
    if model["name"] == "fc_mnist":
        pixels, labels = image_batches(batch_size=batch_size, seed=seed)
        return {"pixels": pixels, "labels": labels}
    sequence, vocab = model["max_position_embeddings"], model["vocab_size"]
    return {"text": text_batches(batch_size=batch_size, sequence_length=sequence, vocab_size=vocab, seed=seed)}


def train(config: Config, dtype: torch.dtype) -> dict[str, list[float]]:
    """Return `losses`, `gradient_norms` (before clipping) and `learning_rates` of ten steps."""
    initial = weights(weight_shapes(config["model"]), config["seed"])
    w = {name: torch.from_numpy(array).to(dtype).requires_grad_() for name, array in initial.items()}
    optimizer, precision = make_optimizer(config, w), config.get("precision", {})
    curve: dict[str, list[float]] = {"losses": [], "gradient_norms": [], "learning_rates": []}
    for step, loss in enumerate(losses_of_steps(config, make_arrays(config), w)):
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        limit = precision.get("max_gradient_norm", math.inf)
        norm = torch.nn.utils.clip_grad_norm_(w.values(), limit)
        if "max_gradient_value" in precision:
            torch.nn.utils.clip_grad_value_(w.values(), precision["max_gradient_value"])
        rate = learning_rate(config["schedulers"][0], step)
        for group in optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        optimizer.step()
        curve["losses"].append(loss.item())
        curve["gradient_norms"].append(norm.item())
        curve["learning_rates"].append(rate)
    return curve


def record(config: Config) -> dict[str, Any]:
    """Return what the file holds of a case."""
    curve = {key: nine_digits(numbers) for key, numbers in train(config, torch.float32).items()}
    curve["losses_float64"] = nine_digits(train(config, torch.float64)["losses"])
    initial = weights(weight_shapes(config["model"]), config["seed"])
    return {"config": config, "weights_digest": digest(initial), "data_digest": digest(make_arrays(config)), **curve}


def main() -> None:
    """Write loss_curves.json."""
    parser = argparse.ArgumentParser(description="Record losses of an implementation in PyTorch.")
    parser.add_argument("--cases", nargs="*")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    made_by = f"make_loss_curves.py, torch {torch.__version__}, numpy {np.__version__}"
    write_curves(OUTPUT, made_by, {name: record(CASES[name]) for name in asked.cases or CASES})


if __name__ == "__main__":
    main()
