"""The contrastive loss: of all contexts of a batch, the context of a question is to be the likeliest."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cstool.training.kernels.call import Array, Call, LossResult
from cstool.training.kernels.gemm import quiet


class _Scores(NamedTuple):
    """Scores of questions and contexts. B samples, C contexts each, the first the right one."""

    values: Array
    """(B, B C) float64, products over the temperature; -inf where a context is of no sample"""
    counts: Array
    """(B,) bool: whether a sample counts"""
    contexts: int
    """C"""
    backward_share: float
    """of the loss that tells the question of a context; 0 where there is none"""

    @property
    def own(self) -> Array:
        """(B,) columns of the right contexts."""
        return np.arange(len(self.values)) * self.contexts

    @property
    def of_contexts(self) -> Array:
        """(B, B): right contexts by questions, -inf where a question is of no sample."""
        return np.where(self.counts, self.values[:, self.own].T, -np.inf)


@quiet
def _scores(c: Call) -> _Scores:
    questions, contexts, mask = c.inputs
    rows, columns = len(questions), len(contexts)
    products = c.scratch("contrastive.scores", (rows, columns))
    c.gemm_for(questions).multiply(questions, contexts.T, products)
    count, counts = columns // rows, mask != 0
    values = products / np.float64(c.attributes["temperature"])
    values[:, np.repeat(~counts, count)] = -np.inf
    return _Scores(values, counts, count, 1 / (1 + count) if c.attributes["mutual"] else 0.0)


@quiet
def contrastive_loss_forward(c: Call) -> None:
    """Compute the loss (B,) of each question: minus the log of the probability of its own context among all.

    Inputs are questions (B, H), contexts (B C, H), sample by sample, the right one first, and mask (B,), which is 0 for
    places of a batch that hold no sample: their contexts are no negatives. Scores are products over `temperature`.
    With `mutual` a share 1/(1 + C) of the loss is the loss of a right context, minus the log of the probability of its
    question among all questions. Softmax and its sums are float64.

    Source: Karpukhin et al., "Dense passage retrieval for open-domain question answering", 2020, equations 1 and 2; the
    shares are as in the vendor's DPR.
    """
    s = _scores(c)
    own_scores = s.values[np.arange(len(s.values)), s.own]
    losses = _logsumexp(s.values) - own_scores
    if s.backward_share:
        losses = (1 - s.backward_share) * losses + s.backward_share * (_logsumexp(s.of_contexts) - own_scores)
    losses = np.where(s.counts, losses, 0.0)
    c.outputs[0][:] = losses
    correct = np.count_nonzero((s.values.argmax(axis=1) == s.own) & s.counts)
    c.loss = LossResult(math.fsum(losses), int(correct))


@quiet
def contrastive_loss_backward(c: Call) -> None:
    """Compute the deltas of questions and contexts: probabilities less one where right, times the other side."""
    s = _scores(c)
    rows = np.arange(len(s.values))
    slopes = np.exp(s.values - _logsumexp(s.values)[:, None])
    slopes[rows, s.own] -= 1.0
    slopes *= 1 - s.backward_share
    slopes[~s.counts] = 0.0
    if s.backward_share:
        values = s.of_contexts
        back = np.exp(values - _logsumexp(values)[:, None])
        back[rows, rows] -= 1.0
        back[~s.counts] = 0.0
        slopes[:, s.own] += s.backward_share * back.T
    slopes *= c.scale / c.attributes["temperature"]
    questions, contexts, _ = c.inputs
    factors = slopes.astype(questions.dtype)
    gemm = c.gemm_for(questions)
    for delta, left, right in (
        (c.delta_inputs[0], factors, contexts),
        (c.delta_inputs[1], factors.T, questions),
    ):
        if delta is not None:
            gemm.multiply(left, right, delta)


def _logsumexp(values: Array) -> Array:
    """Return log(sum(exp(row))) of each row."""
    most = values.max(axis=1, keepdims=True)
    # A row without any finite value has no sample: it does not count.
    most = np.where(np.isneginf(most), 0.0, most)
    with np.errstate(divide="ignore"):
        found: Array = np.log(np.exp(values - most).sum(axis=1)) + most[:, 0]
    return found
