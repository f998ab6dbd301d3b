"""The loss of pairs of texts of which one was preferred, from the cross entropies of their tokens.

L = log p(policy), the sum over the tokens that count of a text (for `ipo` their mean), R the same of the reference, 0
without one. With the margin m = (L - R of the chosen text) - (L - R of the rejected one), the loss of a pair is

- sigmoid: -log sigmoid(beta m)
- hinge: max(0, 1 - beta m)
- ipo: (m - 1 / (2 beta))^2
- dpop: -log sigmoid(beta (m - penalty x max(0, R - L of the chosen text)))

Source: Rafailov et al., "Direct preference optimization", 2023, equation 7; Zhao et al., "SLiC-HF", 2023 (hinge); Azar
et al., "A general theoretical paradigm to understand learning from human preferences", 2023, equation 17 (ipo); Pal et
al., "Smaug: fixing failure modes of preference optimisation with DPO-positive", 2024, equation 3 (dpop).
"""

import math
from typing import NamedTuple

import numpy as np

from cstool.training.kernels.call import Call, LossResult

Array = np.ndarray


class PairLoss(NamedTuple):
    """Of pairs, each (n,) float64: the loss, and its derivative by L of the chosen and of the rejected text."""

    loss: Array
    by_chosen: Array
    by_rejected: Array


def pair_loss(kind: str, policy: Array, reference: Array, beta: float, penalty: float) -> PairLoss:
    """Compute the loss of pairs.

    Args:
        kind: `sigmoid`, `hinge`, `ipo` or `dpop`
        policy, reference: (n, 2) float64, L and R of the chosen text and of the rejected one
        beta: more than 0
        penalty: of dpop
    """
    ratios = policy - reference
    margin = ratios[:, 0] - ratios[:, 1]
    if kind == "ipo":
        away = margin - 1.0 / (2.0 * beta)
        return PairLoss(away * away, 2.0 * away, -2.0 * away)
    if kind == "hinge":
        slack = 1.0 - beta * margin
        slope = np.where(slack > 0, -beta, 0.0)
        return PairLoss(np.maximum(slack, 0.0), slope, -slope)
    falls = penalty * (ratios[:, 0] < 0) if kind == "dpop" else np.zeros_like(margin)
    logit = beta * (margin + falls * ratios[:, 0])
    slope = -beta * np.exp(-np.logaddexp(0.0, logit))
    return PairLoss(np.logaddexp(0.0, -logit), slope * (1.0 + falls), -slope)


def preference_loss_forward(c: Call) -> None:
    """Compute the losses of pairs, (B,), each of the 2 S tokens of a sample: a chosen text, then a rejected one.

    Inputs are the cross entropies under the policy, (B x 2 S,), 1 for each token that counts, else 0, 1 for each pair
    that does, (B,), and the cross entropies under the reference, or none. The result has, beside the losses, the
    pairs whose chosen text has the greater reward, beta (L - R), and sums over pairs: with a reference of the rewards
    of chosen and rejected texts and of their differences, and always of L of either.
    """
    pairs = c.inputs[2].astype(np.float64)
    policy, reference = _sums(c, 0), _sums(c, 3)
    found = pair_loss(c.attributes["loss_type"], policy, reference, c.attributes["beta"], c.attributes["penalty"])
    c.outputs[0][...] = found.loss * pairs
    rewards = c.attributes["beta"] * (policy - reference)
    correct = int(np.count_nonzero((rewards[:, 0] > rewards[:, 1]) & (pairs != 0)))
    sums = [*policy.T]
    if len(c.inputs) > 3:
        sums = [*rewards.T, rewards[:, 0] - rewards[:, 1], *sums]
    c.loss = LossResult(math.fsum(found.loss * pairs), correct, tuple(math.fsum(each * pairs) for each in sums))


def preference_loss_backward(c: Call) -> None:
    """Compute the delta of each cross entropy of the policy; the reference has none."""
    policy, counts = _sums(c, 0), _by_text(c, 1)
    found = pair_loss(c.attributes["loss_type"], policy, _sums(c, 3), c.attributes["beta"], c.attributes["penalty"])
    # A cross entropy is -log p.
    by_text = -float(c.scale) * c.inputs[2][:, None] * np.stack([found.by_chosen, found.by_rejected], axis=1)
    c.delta_x(0)[...] = (counts * (by_text * _factors(c, counts))[:, :, None]).reshape(-1)


def _by_text(c: Call, index: int) -> Array:
    """(B, 2, S) float64 of an input that has a number for each token."""
    return c.inputs[index].reshape(len(c.inputs[2]), 2, -1).astype(np.float64)


def _factors(c: Call, counts: Array) -> Array:
    """(B, 2): factors on the sums over the tokens of a text."""
    tokens = counts.sum(axis=2)
    return 1.0 / np.maximum(tokens, 1.0) if c.attributes["loss_type"] == "ipo" else np.ones_like(tokens)


def _sums(c: Call, index: int) -> Array:
    """(B, 2) float64: L of each text; zeros where there is no such input."""
    counts = _by_text(c, 1)
    if index >= len(c.inputs):
        return np.zeros(counts.shape[:2])
    # Where nothing counts there may be anything.
    entropies = np.where(counts != 0, _by_text(c, index), 0.0)
    found: Array = -(entropies * counts).sum(axis=2) * _factors(c, counts)
    return found
