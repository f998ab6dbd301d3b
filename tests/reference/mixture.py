"""A mixture of experts once more, slow and obvious, in float64: token by token, expert by expert.

Rows by expert are kept by token here, (T, k, width) as (T, k * width): in which order an expert has them shows nowhere.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray


def _function(name: str, logits: Array) -> Array:
    if name == "sigmoid":
        return 1 / (1 + np.exp(-logits))
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def route(x: Array, gate: Array, bias: Any, attributes: Mapping[str, Any]) -> tuple[Array, Array, Array]:
    """Weights of the chosen experts, the experts, probabilities of all."""
    logits = x @ gate.T + bias
    probabilities, weights = (_function(attributes[key], logits) for key in ("selection", "weighting"))
    choices = np.argsort(-probabilities, axis=1, kind="stable")[:, : attributes["top_k"]]
    chosen = np.take_along_axis(weights, choices, axis=1)
    if attributes["normalizes"]:
        chosen = chosen / (chosen.sum(axis=1, keepdims=True) + attributes["null_bias"])
    return chosen, choices, probabilities


def dispatch(x: Array, choices: Array) -> Array:
    """Each token as often as it chose."""
    return np.tile(x, (1, choices.shape[1]))


def expert_linear(x: Array, choices: Array, matrices: Sequence[Array], biases: Sequence[Array]) -> Array:
    """Each row times the matrix of its expert."""
    rows = x.reshape(choices.size, -1)
    made = [
        matrices[expert] @ row + (biases[expert] if biases else 0.0)
        for row, expert in zip(rows, choices.reshape(-1), strict=True)
    ]
    return np.array(made).reshape(len(choices), -1)


def combine(x: Array, weights: Array, choices: Array) -> Array:
    """The weighted sum of each token's rows."""
    rows = x.reshape(*choices.shape, -1)
    return (rows * weights[:, :, None]).sum(axis=1)


def balance_losses(mask: Array, routed: Sequence[Array], sequence: int) -> Array:
    """Of each sample E times the sum over experts of share times probability."""
    layers = len(routed) // 2
    experts = routed[0].shape[1]
    found = []
    for start in range(0, len(mask), sequence):
        tokens = [t for t in range(start, start + sequence) if mask[t]]
        shares, means = np.zeros(experts), np.zeros(experts)
        for probabilities, choices in zip(routed[:layers], routed[layers:], strict=True):
            for t in tokens:
                shares[choices[t]] += 1 / len(tokens) / layers
                means += probabilities[t] / len(tokens) / layers
        found.append(experts * shares @ means)
    return np.array(found)[:, None]
