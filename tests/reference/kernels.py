"""The kernels once more, slow and obvious, in float64 NumPy: no blocks, no panels, no state."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from cstool.kernels.random import Dropout
from cstool.philox import philox4x32

Array = np.ndarray


def dropout_mask(dropout: Dropout | None, tokens: int, width: int) -> Array:
    """Return the factors of a (T, width) activation: 0 or 1 / (1 - rate)."""
    if dropout is None:
        return np.ones((tokens, width))
    samples = tokens // dropout.tokens_per_sample
    size = dropout.tokens_per_sample * width
    masks = [elements_mask(dropout, sample, size) for sample in range(samples)]
    return np.concatenate(masks).reshape(tokens, width)


def elements_mask(dropout: Dropout, sample: int, size: int) -> Array:
    """Return the factors of the first `size` elements of one sample of the grain."""
    blocks = -(-size // 4)
    counter = np.zeros((blocks, 4), np.uint32)
    counter[:, 0] = np.arange(blocks)
    counter[:, 2] = dropout.sample + sample
    counter[:, 3] = dropout.step
    words = philox4x32(counter, dropout.key).reshape(-1)[:size]
    return np.where(words >= round(dropout.rate * 2**32), 1.0 / (1.0 - dropout.rate), 0.0)


def layer_norm(x: Array, weight: Array, bias: Array | None, epsilon: float) -> Array:
    mean = x.mean(axis=1, keepdims=True)
    variance = x.var(axis=1, keepdims=True)
    y = (x - mean) / np.sqrt(variance + epsilon) * weight
    return y if bias is None else y + bias


def layer_norm_deltas(x: Array, weight: Array, epsilon: float, delta_y: Array) -> tuple[Array, Array, Array]:
    """Return the deltas of x, and the gradients of weight and bias."""
    deviation = np.sqrt(x.var(axis=1, keepdims=True) + epsilon)
    normalised = (x - x.mean(axis=1, keepdims=True)) / deviation
    delta = delta_y * weight
    delta_x = delta - delta.mean(axis=1, keepdims=True) - normalised * (delta * normalised).mean(axis=1, keepdims=True)
    return delta_x / deviation, (delta_y * normalised).sum(axis=0), delta_y.sum(axis=0)


def activation(function: str, x: Array) -> Array:
    return np.maximum(x, 0.0) if function == "relu" else x * ndtr(x)


def activation_derivative(function: str, x: Array) -> Array:
    if function == "relu":
        return (x > 0).astype(np.float64)
    return ndtr(x) + x * np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(
    q: Array, k: Array, v: Array, heads: int, sequence: int, scale: float, dropout: Dropout | None
) -> tuple[Array, Array]:
    """Return the context (T, A * D) and the log-sum-exp (A, T), sample by sample and head by head."""
    context = np.zeros(q.shape)
    logsumexp = np.zeros((heads, q.shape[0]))
    for sample, head, rows, columns, mask in _pairs(q, heads, sequence, dropout):
        del sample
        scores = _scores(q[rows, columns], k[rows, columns], scale)
        context[rows, columns] = (softmax(scores) * mask) @ v[rows, columns]
        logsumexp[head, rows] = np.log(np.exp(scores).sum(axis=1))
    return context, logsumexp


def attention_deltas(
    q: Array, k: Array, v: Array, delta: Array, heads: int, sequence: int, scale: float, dropout: Dropout | None
) -> tuple[Array, Array, Array]:
    """Return the deltas of q, k and v, each (T, A * D)."""
    delta_q, delta_k, delta_v = np.zeros(q.shape), np.zeros(q.shape), np.zeros(q.shape)
    for _, _, rows, columns, mask in _pairs(q, heads, sequence, dropout):
        here = rows, columns
        p = softmax(_scores(q[here], k[here], scale))
        delta_v[here] = (p * mask).T @ delta[here]
        delta_p = (delta[here] @ v[here].T) * mask
        delta_scores = p * (delta_p - (delta_p * p).sum(axis=1, keepdims=True)) * scale
        delta_q[here] = delta_scores @ k[here]
        delta_k[here] = delta_scores.T @ q[here]
    return delta_q, delta_k, delta_v


def _scores(q: Array, k: Array, scale: float) -> Array:
    return np.where(np.tri(len(q), dtype=bool), q @ k.T * scale, -np.inf)


def _pairs(q: Array, heads: int, sequence: int, dropout: Dropout | None):  # type: ignore[no-untyped-def]
    width = q.shape[1] // heads
    square = sequence * sequence
    for sample in range(q.shape[0] // sequence):
        for head in range(heads):
            mask = np.ones((sequence, sequence))
            if dropout is not None:
                mask = elements_mask(dropout, sample, heads * square)[head * square : (head + 1) * square]
                mask = mask.reshape(sequence, sequence)
            rows = slice(sample * sequence, (sample + 1) * sequence)
            yield sample, head, rows, slice(head * width, (head + 1) * width), mask


def embedding_gradient(ids: Array, delta_y: Array, vocabulary: int) -> Array:
    grad = np.zeros((vocabulary, delta_y.shape[1]))
    for token, row in enumerate(ids):
        grad[row] += delta_y[token]
    return grad


def softmax_losses(x: Array, weight: Array, bias: Array | None, labels: Array) -> Array:
    """Return the cross entropy of each token."""
    logits = x @ weight.T + (0.0 if bias is None else bias)
    return -np.log(softmax(logits)[np.arange(len(labels)), labels])


def softmax_loss_deltas(
    x: Array, weight: Array, bias: Array | None, labels: Array, mask: Array, scale: float
) -> tuple[Array, Array, Array]:
    """Return the delta of x, and the gradients of weight and bias, of scale x sum of mask x loss."""
    delta = softmax(x @ weight.T + (0.0 if bias is None else bias))
    delta[np.arange(len(labels)), labels] -= 1.0
    delta *= scale * mask[:, None]
    return delta @ weight, delta.T @ x, delta.sum(axis=0)


def adam(
    weight: Array,
    grads: list[Array],
    lr: float,
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
    decoupled: bool,
) -> Array:
    """Return the weight after one step of Adam or AdamW for each gradient."""
    m, v = np.zeros_like(weight), np.zeros_like(weight)
    for step, grad in enumerate(grads, start=1):
        if decoupled:
            weight = weight - lr * decay * weight
        else:
            grad = grad + decay * weight
        m = betas[0] * m + (1 - betas[0]) * grad
        v = betas[1] * v + (1 - betas[1]) * grad**2
        mean, square = m / (1 - betas[0] ** step), v / (1 - betas[1] ** step)
        weight = weight - lr * mean / (np.sqrt(square) + epsilon)
    return weight


def sgd(
    weight: Array, grads: list[Array], lr: float, momentum: float, dampening: float, nesterov: bool, decay: float
) -> Array:
    """Return the weight after one step of SGD for each gradient."""
    buffer = None
    for grad in grads:
        grad = grad + decay * weight
        if momentum:
            buffer = grad if buffer is None else momentum * buffer + (1 - dampening) * grad
            grad = grad + momentum * buffer if nesterov else buffer
        weight = weight - lr * grad
    return weight
