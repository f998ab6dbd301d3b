"""Train small models for ten steps in PyTorch and record their losses, for cstool's to be compared with.

An implementation of its own, written from the definitions of the models: it imports nothing of cstool, and takes
gradients from autograd, updates from `torch.optim` and clipping from `torch.nn.utils`. PyTorch is not needed to run the
tests, only to make their numbers anew::

    pip install torch            # the extra "bench" has it
    python tests/reference/make_loss_curves.py

writes `loss_curves.json` beside this file. `losses` of a case are those before the update of steps 1 to 10, in float32;
`losses_float64`, where recorded, are the same curve in double precision: how far the two are apart is the noise of
float32 itself. `config` uses the vendor's keys, so that the other side can read it as params.

What a tolerance sees, measured by making the mistake here, as the largest relative change of a loss of `decoder_tied`:
1.9e-7 the noise of float32, 1.4e-5 an eps of 1e-6 in AdamW, 1.5e-5 the tanh form of gelu, 1.3e-4 no weight decay,
1.5e-4 decay of biases and norms too, 2e-3 no clipping, 2e-2 a schedule that is one step off. 5e-6 sees them all.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deterministic import STEPS, digest, image_batches, text_batches, weights
from torch.nn import functional

OUTPUT = Path(__file__).with_name("loss_curves.json")
Weights = Mapping[str, torch.Tensor]
Config = Mapping[str, Any]

DECODER = {
    "name": "gpt2",
    "vocab_size": 97,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_heads": 4,
    "filter_size": 256,
    "max_position_embeddings": 32,
    "position_embedding_type": "learned",
    "nonlinearity": "gelu",
    "layer_norm_epsilon": 1.0e-5,
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
}
CASES: dict[str, Config] = {
    "decoder_tied": {
        "seed": 1,
        "batch_size": 8,
        "model": DECODER
        | {
            "share_embedding_weights": True,
            "use_projection_bias_in_attention": True,
            "use_ffn_bias_in_attention": True,
            "use_ffn_bias": True,
            "use_bias_in_output": False,
            "loss_scaling": "num_tokens",
            "loss_weight": 1.0,
        },
        "optimizer": {"AdamW": {"betas": [0.9, 0.95], "eps": 1.0e-8, "weight_decay": 0.1}},
        "schedulers": [
            {
                "SequentialLR": {
                    "schedulers": [
                        {
                            "LinearLR": {
                                "initial_learning_rate": 1.0e-3,
                                "end_learning_rate": 1.0e-2,
                                "total_iters": 4,
                            }
                        },
                        {
                            "CosineDecayLR": {
                                "initial_learning_rate": 1.0e-2,
                                "end_learning_rate": 1.0e-3,
                                "total_iters": 6,
                            }
                        },
                    ]
                }
            }
        ],
        "precision": {"enabled": False, "max_gradient_norm": 1.0},
    },
    "decoder_untied": {
        "seed": 2,
        "batch_size": 8,
        "model": DECODER
        | {
            "share_embedding_weights": False,
            "use_projection_bias_in_attention": False,
            "use_ffn_bias_in_attention": False,
            "use_ffn_bias": False,
            "use_bias_in_output": True,
            "loss_scaling": "batch_size",
            "loss_weight": 1.0 / 32.0,
        },
        "optimizer": {"Adam": {"betas": [0.9, 0.999], "eps": 1.0e-8, "weight_decay": 0.0}},
        "schedulers": [{"ConstantLR": {"learning_rate": 3.0e-3}}],
        "precision": {"enabled": False, "max_gradient_value": 0.01},
    },
    "fc_mnist": {
        "seed": 3,
        "batch_size": 16,
        "model": {"name": "fc_mnist", "hidden_sizes": [64, 32], "activation_fn": "relu", "dropout": 0.0},
        "optimizer": {"SGD": {"momentum": 0.9}},
        "schedulers": [{"ConstantLR": {"learning_rate": 0.05}}],
    },
    "fc_mnist_nesterov": {
        "seed": 4,
        "batch_size": 16,
        "model": {"name": "fc_mnist", "depth": 3, "hidden_size": 50, "activation_fn": "relu", "dropout": 0.0},
        "optimizer": {"SGD": {"momentum": 0.9, "nesterov": True, "dampening": 0.0, "weight_decay": 0.1}},
        "schedulers": [{"ConstantLR": {"learning_rate": 0.02}}],
    },
}
WITH_FLOAT64 = ("decoder_tied", "fc_mnist")


def hidden_sizes(model: Config) -> list[int]:
    """Return the widths of the hidden layers of an fc_mnist model."""
    return list(model.get("hidden_sizes") or [model["hidden_size"]] * model["depth"])


def weight_shapes(model: Config) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight of a model by the vendor's name; matrices are (out, in)."""
    if model["name"] == "fc_mnist":
        sizes = [784, *hidden_sizes(model), 10]
        names = [*(f"fc_layers.{n}" for n in range(len(sizes) - 2)), "last_layer"]
        return {
            name: shape
            for i, layer in enumerate(names)
            for name, shape in ((f"{layer}.weight", (sizes[i + 1], sizes[i])), (f"{layer}.bias", (sizes[i + 1],)))
        }
    h, f, v = model["hidden_size"], model["filter_size"], model["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embedding_layer.word_embeddings.weight": (v, h),
        "embedding_layer.position_embeddings.embed.weight": (model["max_position_embeddings"], h),
    }
    for n in range(model["num_hidden_layers"]):
        layer = f"transformer_decoder.layers.{n}"
        linears = [
            *((f"{layer}.self_attn.proj_{x}_dense_layer", h, h, "use_projection_bias_in_attention") for x in "qkv"),
            (f"{layer}.self_attn.proj_output_dense_layer", h, h, "use_ffn_bias_in_attention"),
            (f"{layer}.ffn.ffn.0.linear_layer", f, h, "use_ffn_bias"),
            (f"{layer}.ffn.ffn.1.linear_layer", h, f, "use_ffn_bias"),
        ]
        for name, outputs, inputs, bias_key in linears:
            shapes[f"{name}.weight"] = (outputs, inputs)
            if model[bias_key]:
                shapes[f"{name}.bias"] = (outputs,)
    norms = [f"layers.{n}.{norm}" for n in range(model["num_hidden_layers"]) for norm in ("norm1", "norm3")]
    for norm in (*norms, "norm"):
        shapes[f"transformer_decoder.{norm}.weight"] = shapes[f"transformer_decoder.{norm}.bias"] = (h,)
    if not model["share_embedding_weights"]:
        shapes["lm_head.weight"] = (v, h)
    if model["use_bias_in_output"]:
        shapes["lm_head.bias"] = (v,)
    return shapes


def linear(x: torch.Tensor, w: Weights, layer: str) -> torch.Tensor:
    """Return x weight^T + bias, without the bias where the layer has none."""
    return functional.linear(x, w[f"{layer}.weight"], w.get(f"{layer}.bias"))


def fc_logits(model: Config, w: Weights, x: torch.Tensor) -> torch.Tensor:
    """Return the logits (B, 10) of images (B, 784)."""
    for n in range(len(hidden_sizes(model))):
        x = torch.relu(linear(x, w, f"fc_layers.{n}"))
    return linear(x, w, "last_layer")


def attention(model: Config, w: Weights, x: torch.Tensor, layer: str) -> torch.Tensor:
    """Return causal multi-head self-attention of x (B, S, H), softmax(q k^T / sqrt(D)) v written out."""
    batch, sequence, hidden = x.shape
    heads = model["num_heads"]
    q, k, v = (
        linear(x, w, f"{layer}.proj_{name}_dense_layer").view(batch, sequence, heads, -1).transpose(1, 2)
        for name in "qkv"
    )
    scores = q @ k.transpose(2, 3) / math.sqrt(hidden // heads)
    future = torch.ones(sequence, sequence, dtype=torch.bool).triu(1)
    context = scores.masked_fill(future, -math.inf).softmax(dim=-1) @ v
    return linear(context.transpose(1, 2).reshape(batch, sequence, hidden), w, f"{layer}.proj_output_dense_layer")


def decoder_logits(model: Config, w: Weights, ids: torch.Tensor) -> torch.Tensor:
    """Return the logits (B, S, V) of token ids (B, S)."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        scale, shift = w[f"transformer_decoder.{name}.weight"], w[f"transformer_decoder.{name}.bias"]
        return functional.layer_norm(x, (model["hidden_size"],), scale, shift, model["layer_norm_epsilon"])

    word_embeddings = w["embedding_layer.word_embeddings.weight"]
    x = word_embeddings[ids] + w["embedding_layer.position_embeddings.embed.weight"][: ids.shape[1]]
    for n in range(model["num_hidden_layers"]):
        layer = f"transformer_decoder.layers.{n}"
        x = x + attention(model, w, norm(x, f"layers.{n}.norm1"), f"{layer}.self_attn")
        up = linear(norm(x, f"layers.{n}.norm3"), w, f"{layer}.ffn.ffn.0.linear_layer")
        x = x + linear(functional.gelu(up, approximate="none"), w, f"{layer}.ffn.ffn.1.linear_layer")
    output = word_embeddings if model["share_embedding_weights"] else w["lm_head.weight"]
    return functional.linear(norm(x, "norm"), output, w.get("lm_head.bias"))


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
        logits = decoder_logits(model, w, ids)
        token_losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        divisor = mask.sum() if model["loss_scaling"] == "num_tokens" else config["batch_size"]
        yield (token_losses * mask.flatten()).sum() * (model["loss_weight"] / divisor)


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


def make_optimizer(config: Config, w: Weights) -> torch.optim.Optimizer:
    """Return the optimizer of a case; weight decay spares biases and norms."""
    ((name, keys),) = config["optimizer"].items()
    decay = keys.get("weight_decay", 0.0)
    groups = [
        {"params": [p for p in w.values() if p.ndim == 2], "weight_decay": decay},
        {"params": [p for p in w.values() if p.ndim == 1], "weight_decay": 0.0},
    ]
    if name == "SGD":
        return torch.optim.SGD(groups, lr=0.1, momentum=keys["momentum"], nesterov=keys.get("nesterov", False))
    kind = torch.optim.AdamW if name == "AdamW" else torch.optim.Adam
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
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config["schedulers"][0], step)
        optimizer.step()
        curve["losses"].append(loss.item())
        curve["gradient_norms"].append(norm.item())
        curve["learning_rates"].append(optimizer.param_groups[0]["lr"])
    return curve


def nine_digits(numbers: list[float]) -> list[float]:
    """Return the numbers with the nine significant digits that tell any two float32 apart."""
    return [float(f"{number:.9g}") for number in numbers]


def record(name: str, config: Config) -> dict[str, Any]:
    """Return what the file holds of a case."""
    curve = {key: nine_digits(numbers) for key, numbers in train(config, torch.float32).items()}
    if name in WITH_FLOAT64:
        curve["losses_float64"] = nine_digits(train(config, torch.float64)["losses"])
    initial = weights(weight_shapes(config["model"]), config["seed"])
    return {"config": config, "weights_digest": digest(initial), "data_digest": digest(make_arrays(config)), **curve}


def main() -> None:
    """Write loss_curves.json."""
    torch.set_num_threads(1)
    document = {
        "made_by": f"make_loss_curves.py, torch {torch.__version__}, numpy {np.__version__}",
        "cases": {name: record(name, config) for name, config in CASES.items()},
    }
    text = json.dumps(document, indent=2)
    # Lists of numbers read better on one line.
    text = re.sub(r"\[([^][{}]*)\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    OUTPUT.write_text(text + "\n")


if __name__ == "__main__":
    main()
