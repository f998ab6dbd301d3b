"""The loss of pairs of texts of which one was preferred, from the cross entropies of their tokens.

L = log p(policy), the sum over the tokens that count of a text (for `ipo` their mean), R the same of the reference, 0
without one. With the margin m = (L - R of the chosen text) - (L - R of the rejected one), the loss of a pair is

- sigmoid: -log sigmoid(beta m)
- hinge: max(0, 1 - beta m)
- ipo: (m - 1 / (2 beta))^2
- dpop: -log sigmoid(beta (m - penalty x max(0, R - L of the chosen text)))
- orpo: -beta log sigmoid(o), with L as means, o the difference of their log odds, L - log(1 - exp L)

Of kto a sample is an answer, desirable or not, and then a mismatched answer to the same prompt, whose mean L - R over
the batch, or 0 if that is more, is K. With r = L - R of the answer its loss is

- desirable: w (1 - sigmoid(beta (r - K)))
- undesirable: w (1 - sigmoid(beta (K - r)))

K has no derivative.

Orpo adds the cross entropy of the chosen text as a loss of its own (`masked_loss_forward`).

Source: Rafailov et al., "Direct preference optimization", 2023, equation 7; Zhao et al., "SLiC-HF", 2023 (hinge); Azar
et al., "A general theoretical paradigm to understand learning from human preferences", 2023, equation 17 (ipo); Pal et
al., "Smaug: fixing failure modes of preference optimisation with DPO-positive", 2024, equation 3 (dpop); Hong et al.,
"ORPO: Monolithic preference optimization without reference model", 2024, equations 6 and 7 (orpo); Ethayarajh et al.,
"KTO: Model alignment as prospect theoretic optimization", 2024, equations 7 and 8, as in the package TRL (kto).
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
        kind: `sigmoid`, `hinge`, `ipo`, `dpop` or `orpo`
        policy, reference: (n, 2) float64, L and R of the chosen text and of the rejected one
        beta: more than 0
        penalty: of dpop
    """
    ratios = policy - reference
    margin = ratios[:, 0] - ratios[:, 1]
    if kind == "ipo":
        away = margin - 1.0 / (2.0 * beta)
        return PairLoss(away * away, 2.0 * away, -2.0 * away)
    if kind == "orpo":
        # 1 - p; of texts whose tokens are all certain a number that can be divided by.
        others = np.maximum(-np.expm1(policy), np.finfo(np.float64).eps)
        odds = margin - np.log(others[:, 0]) + np.log(others[:, 1])
        slope = -beta * np.exp(-np.logaddexp(0.0, odds))
        return PairLoss(beta * np.logaddexp(0.0, -odds), slope / others[:, 0], -slope / others[:, 1])
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
    return 1.0 / np.maximum(tokens, 1.0) if c.attributes.get("loss_type") in ("ipo", "orpo") else np.ones_like(tokens)


def _sums(c: Call, index: int) -> Array:
    """(B, 2) float64: L of each text; zeros where there is no such input."""
    counts = _by_text(c, 1)
    if index >= len(c.inputs):
        return np.zeros(counts.shape[:2])
    # Where nothing counts there may be anything.
    entropies = np.where(counts != 0, _by_text(c, index), 0.0)
    found: Array = -(entropies * counts).sum(axis=2) * _factors(c, counts)
    return found


def masked_loss_forward(c: Call) -> None:
    """Compute the losses of tokens, (T,): their cross entropies where the mask is not 0, else 0."""
    entropies, mask = c.inputs
    np.copyto(c.outputs[0], np.where(mask != 0, entropies, 0.0), casting="same_kind")
    c.loss = LossResult(math.fsum(c.outputs[0]), 0)


def masked_loss_backward(c: Call) -> None:
    """Compute the delta of each cross entropy: the scale where it counts."""
    c.delta_x(0)[...] = c.scale * (c.inputs[1] != 0)


class _Answers(NamedTuple):
    """Of samples of kto, each (B,) float64."""

    loss: Array
    slope: Array
    """derivative by L of the answer"""
    is_right: Array
    """bool: whether r - K has the sign of the label"""
    divergence: float
    """K"""


def _answers(c: Call) -> _Answers:
    there, is_good = c.inputs[2].astype(np.float64), c.inputs[3] != 0
    ratios = _sums(c, 0) - _sums(c, 4)
    divergence = max(0.0, math.fsum(ratios[:, 1] * there) / max(1.0, float(there.sum())))
    gain = np.where(is_good, 1.0, -1.0) * (ratios[:, 0] - divergence)
    weights = np.where(is_good, c.attributes["desirable_weight"], c.attributes["undesirable_weight"]) * there
    beta = c.attributes["beta"]
    loss = np.exp(-np.logaddexp(0.0, beta * gain))
    slope = -beta * weights * loss * (1.0 - loss) * np.where(is_good, 1.0, -1.0)
    return _Answers(weights * loss, slope, (gain > 0) & (there != 0), divergence)


def unpaired_loss_forward(c: Call) -> None:
    """Compute the losses of answers, (B,), B the samples of the whole batch, each of 2 S tokens.

    Inputs are the cross entropies under the policy, (B x 2 S,), 1 for each token that counts, else 0, 1 for each sample
    that does, (B,), 1 for each whose answer is desirable, (B,), and the cross entropies under the reference.
    """
    found = _answers(c)
    c.outputs[0][...] = found.loss
    samples = float(c.inputs[2].astype(np.float64).sum())
    c.loss = LossResult(math.fsum(found.loss), int(np.count_nonzero(found.is_right)), (found.divergence * samples,))


def unpaired_loss_backward(c: Call) -> None:
    """Compute the delta of each cross entropy of the policy; mismatched answers have none."""
    counts = _by_text(c, 1)
    counts[:, 1] = 0.0
    # A cross entropy is -log p.
    c.delta_x(0)[...] = (-float(c.scale) * _answers(c).slope[:, None, None] * counts).reshape(-1)
