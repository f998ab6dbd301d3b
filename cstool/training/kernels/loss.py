"""The output layer and its softmax cross entropy in one, the classes by panels, the logits by chunks.

Backward needs the logits again: it takes the chunks that forward kept, where there was memory for all of them, else it
computes them once more, which gives the same bits.

Forward keeps four numbers per token about the classes seen so far, the *state*, a (4, T) float32 array:
largest logit, sum of exp(logit - largest), logit of the label, class of the largest logit.

A logit is the layer's output z times a scale; under a softcap it is cap x tanh(scale x z / cap).

Where labels are smoothed by a share e, the target of training is 1 - e of the label and e / V of each of the V classes:
the logit of the label becomes (1 - e) times it plus e times the mean of all. Evaluations take labels as they are.

Beside the output layer there may be a low-rank adapter: z B^T is added to the logits, z the last input, (T, rank), and
B the last weight, (V, rank).

Source: Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3. Gemma team, "Gemma 2:
improving open language models at a practical size", 2024, section 2: softcap. Szegedy et al., "Rethinking the Inception
architecture for computer vision", 2016, section 7: smoothed labels.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from cstool.model.activations import exp
from cstool.training.kernels import elementary
from cstool.training.kernels._jit import elementwise, reduction
from cstool.training.kernels.bfloat16 import finish, lend_bfloat16, operand
from cstool.training.kernels.call import Call, LossResult
from cstool.training.kernels.exponential import bent_tanh, maximum
from cstool.training.kernels.gemm import quiet
from cstool.training.kernels.linear import column_sum, linear_backward_weight
from cstool.training.kernels.recording import recording
from cstool.training.kernels.tallies import class_tallies, half_tallies, ngram_tallies

CHUNK_CLASSES = 2048
"""most classes of a chunk"""

STATE_ROWS = 4
"""rows of the state"""

_LARGEST, _TOTAL, _LABEL, _BEST = range(STATE_ROWS)


@reduction
def _forward(logits, first, labels, state, logits_scale, cap, own, each):  # type: ignore[no-untyped-def]
    tokens, classes = logits.shape
    number = logits.dtype.type
    factor, ceiling, slope = number(logits_scale), number(cap), number(logits_scale / cap)
    for t in range(tokens):
        row = logits[t]
        before = state[_LARGEST, t]
        here = number(-np.inf)
        if cap < np.inf:
            for j in range(classes):
                row[j] = ceiling * bent_tanh(row[j], slope)
                here = maximum(here, row[j])
        elif logits_scale != 1.0:
            for j in range(classes):
                row[j] *= factor
                here = maximum(here, row[j])
        else:
            for j in range(classes):
                here = maximum(here, row[j])
        largest = maximum(before, here)
        total = number(0)
        for j in range(classes):
            total += exp(row[j] - largest)
        state[_LARGEST, t] = largest
        state[_TOTAL, t] = state[_TOTAL, t] * exp(before - largest) + total
        if here > before:
            best = 0
            while row[best] != here:
                best += 1
            state[_BEST, t] = first + best
        label = labels[t] - first
        if 0 <= label < classes:
            state[_LABEL, t] += number(own) * row[label]
        if each > 0.0:
            smoothed = number(0)
            for j in range(classes):
                smoothed += row[j]
            state[_LABEL, t] += number(each) * smoothed


@reduction
def _delta_of_logits(logits, delta, first, labels, mask, scale, state):  # type: ignore[no-untyped-def]
    """Write the delta over the logits; for products of bfloat16 also write it to `delta`, rounded."""
    tokens, classes = logits.shape
    for t in range(tokens):
        weight = logits.dtype.type(scale) * logits.dtype.type(mask[t])
        share = weight / state[_TOTAL, t]
        largest = state[_LARGEST, t]
        for j in range(classes):
            logits[t, j] = exp(logits[t, j] - largest) * share
        label = labels[t] - first
        if 0 <= label < classes:
            logits[t, label] -= weight
        finish(logits[t], delta, t)


@reduction
def _delta_of_bent_logits(logits, delta, first, labels, mask, scale, state, logits_scale, cap, own, each):  # type: ignore[no-untyped-def]
    """Compute the result of `_delta_of_logits` where logits are scaled or capped, or labels smoothed.

    It is apart, so that it is not slower where they are not.
    """
    tokens, classes = logits.shape
    number = logits.dtype.type
    one, factor, ceiling, slope = number(1), number(logits_scale), number(cap), number(logits_scale / cap)
    for t in range(tokens):
        weight = number(scale) * number(mask[t]) * factor
        share = weight / state[_TOTAL, t]
        of_label, of_each = number(own) * weight, number(each) * weight
        largest = state[_LARGEST, t]
        label = labels[t] - first
        is_here = 0 <= label < classes
        if cap < np.inf:
            if is_here:
                bent = bent_tanh(logits[t, label], slope)
                of_label *= one - bent * bent
            for j in range(classes):
                bent = bent_tanh(logits[t, j], slope)
                logits[t, j] = (exp(ceiling * bent - largest) * share - of_each) * (one - bent * bent)
        else:
            for j in range(classes):
                logits[t, j] = exp(logits[t, j] * factor - largest) * share - of_each
        if is_here:
            logits[t, label] -= of_label
        finish(logits[t], delta, t)


@elementwise
def _bend(logits, logits_scale, cap):  # type: ignore[no-untyped-def]
    number = logits.dtype.type
    factor, ceiling, slope = number(logits_scale), number(cap), number(logits_scale / cap)
    for t in range(logits.shape[0]):
        row = logits[t]
        if cap < np.inf:
            for j in range(row.shape[0]):
                row[j] = ceiling * bent_tanh(row[j], slope)
        else:
            for j in range(row.shape[0]):
                row[j] *= factor


def bend_logits(logits: np.ndarray, logits_scale: float, logits_softcap: float | None) -> None:
    """Turn outputs of the output layer into logits, in place.

    Args:
        logits: (n, classes) float32
        logits_scale: a number; 1.0 for none
        logits_softcap: more than 0; None for none
    """
    if logits_scale != 1.0 or logits_softcap is not None:
        _bend(logits, float(logits_scale), math.inf if logits_softcap is None else float(logits_softcap))


def _chunks(classes: int) -> Iterator[slice]:
    """Cut classes into as few chunks as `CHUNK_CLASSES` allows, of nearly equal size."""
    count = -(-classes // CHUNK_CLASSES)
    edges = [classes * i // count for i in range(count + 1)]
    return (slice(start, stop) for start, stop in zip(edges, edges[1:], strict=False))


def _place(c: Call, chunk: slice) -> np.ndarray:
    """Memory for the logits of a chunk: its part of the kept logits, or scratch."""
    shape = tokens, classes = c.inputs[0].shape[0], chunk.stop - chunk.start
    kept = c.kept.get("logits")
    if kept is None:
        return c.scratch("loss.logits", shape)
    start = tokens * (c.start + chunk.start)
    return kept.reshape(-1)[start : start + tokens * classes].reshape(shape)


def _logits(c: Call, bias: np.ndarray | None, chunk: slice) -> np.ndarray:
    logits = _place(c, chunk)
    gemm = c.gemm_for(c.weight(0))
    x = operand(c.inputs[0], c.weight(0).dtype, "loss.x", c.scratch)
    gemm.multiply(x, c.weight(0)[chunk].T, logits, None if bias is None else bias[chunk])
    if _is_adapted(c):
        matrix = c.weight(-1)[c.start + chunk.start : c.start + chunk.stop]
        product = c.scratch("loss.low_rank", logits.shape)
        c.gemm_for(matrix).multiply_add(c.inputs[-1], matrix.T, logits, product)
    return logits


def _is_adapted(c: Call) -> bool:
    return "low_rank" in c.attributes


def _bias_index(c: Call) -> int:
    """Index of the bias, behind all weights where there is none."""
    return len(c.weights) if len(c.weights) == 1 + _is_adapted(c) else 1


def _bends(c: Call) -> tuple[float, float]:
    scale, cap = c.attributes["logits_scale"], c.attributes["logits_softcap"]
    return float(scale), math.inf if cap is None else float(cap)


def _shares(c: Call) -> tuple[float, float]:
    """Shares of a label in the loss: its own class's, and each class's."""
    share = 0.0 if c.evaluates else c.attributes.get("label_smoothing", 0.0)
    return 1.0 - share, share / c.attributes["classes"] if share else 0.0


def softmax_loss_forward(c: Call) -> None:
    """Take the classes of one panel into the kept `state`; panels come in ascending order. The last makes the loss.

    Inputs are x, (T, H), the labels, (T,) int32, and the mask, (T,), 1 for a token that counts, 0 for another; the
    weights the panel, (rows, H), and a bias (V,) or none; the output the losses of all tokens, masked ones included.

    For the tallies of evaluations there may be more inputs. Where rows are samples: 1 for the first half of the data,
    else 0, (T,) int32. Where they are sentences: where each begins, (T,) int32, and the words of the texts,
    (B x S,) int32.

    Kept may be all `logits`, (V, T) float32, chunk by chunk in (T, classes). Scratch is (T, `CHUNK_CLASSES`).
    """
    _take_classes(c)
    if c.last:
        _finish(c)


@quiet
def _finish(c: Call) -> None:
    """Make the losses of the tokens, and the loss of the grain, once all panels have come."""
    into, counts = recording(), c.evaluates and bool(c.attributes.get("tallies"))
    if into is not None and counts:
        into.leave(partial(_finish, c))
        return
    (_, labels, mask, *_), state, loss_per_token = c.inputs, c.kept["state"], c.outputs[0]
    _cross_entropies(state, loss_per_token)
    weighted = np.empty(len(loss_per_token))
    _weigh(loss_per_token, state, labels, mask, weighted, c.figures)
    elementary.sum_all(weighted, c.figures[:1])
    if into is None:
        total, correct = c.figures.tolist()
        c.loss = LossResult(total, int(correct), tallies=_tallies(c) if counts else ())


def token_loss_forward(c: Call) -> None:
    """Compute cross entropies as `softmax_loss_forward` does, but no loss of them: there is no mask."""
    _take_classes(c)
    if c.last:
        quiet(_cross_entropies)(c.kept["state"], c.outputs[0])


def _take_classes(c: Call) -> None:
    state, bias, weight = c.kept["state"], c.of_panel(c.vector(_bias_index(c))), c.weight(0)
    if c.first:
        elementary.fill(state[_LARGEST], -np.inf)
        elementary.fill(state[_TOTAL:], 0.0)
    for chunk in _chunks(weight.shape[0]):
        _forward(_logits(c, bias, chunk), c.start + chunk.start, c.inputs[1], state, *_bends(c), *_shares(c))


def _cross_entropies(state: np.ndarray, out: np.ndarray) -> None:
    elementary.log(state[_TOTAL], out)
    _subtract_label(out, state)


@elementwise
def _subtract_label(losses, state):  # type: ignore[no-untyped-def]
    for t in range(losses.shape[0]):
        losses[t] = losses[t] + state[_LARGEST, t] - state[_LABEL, t]


@elementwise
def _weigh(losses, state, labels, mask, weighted, figures):  # type: ignore[no-untyped-def]
    """Multiply losses by the mask, and count the correct tokens: of equal classes the first is the likeliest."""
    correct = 0
    for t in range(losses.shape[0]):
        weighted[t] = np.float64(losses[t]) * np.float64(mask[t])
        if state[_BEST, t] == labels[t] and mask[t] != 0:
            correct += 1
    figures[1] = correct


def _tallies(c: Call) -> tuple[int, ...]:
    (_, labels, mask, *counted), best = c.inputs[: len(c.inputs) - _is_adapted(c)], c.kept["state"][_BEST]
    if not counted:
        return class_tallies(best, labels, mask, c.sequence, c.stop)
    if len(counted) == 1:
        return half_tallies(best == labels, mask, counted[0])
    samples = len(labels) // c.sequence
    chosen, labels, mask, positions, words = (array.reshape(samples, -1) for array in (best, labels, mask, *counted))
    return ngram_tallies(chosen, labels, mask, positions, words)


def softmax_loss_backward(c: Call) -> None:
    """Compute the share of one panel of classes in the delta of x, and the panel's gradients.

    Scratch is (T, `CHUNK_CLASSES`) and (T, H).
    """
    _backward(c, c.inputs[2], c.scale)


def token_loss_backward(c: Call) -> None:
    """Compute deltas as `softmax_loss_backward` does, where each token's loss has a delta of its own, (T,)."""
    _backward(c, c.delta_y, 1.0)


def _backward(c: Call, share: np.ndarray, scale: float) -> None:
    """Go back from the loss of each token, which is multiplied by its share, (T,), and by the scale."""
    labels = c.inputs[1]
    weight, grad_weight, delta_x = c.weight(0), c.gradient(0), c.delta_x(0)
    gemm, x = c.gemm_for(weight), operand(c.inputs[0], weight.dtype, "loss.x", c.scratch)
    bias, grad_bias = (c.of_panel(found(_bias_index(c))) for found in (c.vector, c.gradient))
    for chunk in _chunks(weight.shape[0]):
        logits = _place(c, chunk) if "logits" in c.kept else _logits(c, bias, chunk)
        delta = logits
        if weight.dtype != logits.dtype:
            delta = lend_bfloat16(c.scratch, "loss.delta", logits.shape)
        known = logits, delta, c.start + chunk.start, labels, share, scale, c.kept["state"]
        if (*_bends(c), *_shares(c)) == (1.0, math.inf, 1.0, 0.0):
            _delta_of_logits(*known)
        else:
            _delta_of_bent_logits(*known, *_bends(c), *_shares(c))
        if grad_bias is not None:
            column_sum(logits, grad_bias[chunk])
        if grad_weight is not None:
            linear_backward_weight(x, delta, grad_weight[chunk], gemm, adds=c.adds)
        if c.accumulate[0] or not c.first or chunk.start > 0:
            gemm.multiply_add(delta, weight[chunk], delta_x, c.scratch("loss.delta_x", delta_x.shape))
        else:
            gemm.multiply(delta, weight[chunk], delta_x)
        if _is_adapted(c):
            _adapter_backward(c, logits, chunk)


def _adapter_backward(c: Call, delta: np.ndarray, chunk: slice) -> None:
    """Compute the share of a chunk of classes in the delta of z, and the gradient of its rows of B."""
    last, small, matrix = len(c.inputs) - 1, c.inputs[-1], c.of_panel(c.weight(-1))
    gradient, delta_small = c.of_panel(c.gradient(len(c.weights) - 1)), c.delta_x(last)
    assert matrix is not None
    gemm = c.gemm_for(matrix)
    if gradient is not None:
        linear_backward_weight(small, delta, gradient[chunk], gemm)
    if c.accumulate[last] or not c.first or chunk.start > 0:
        gemm.multiply_add(delta, matrix[chunk], delta_small, c.scratch("loss.delta_z", delta_small.shape))
    else:
        gemm.multiply(delta, matrix[chunk], delta_small)
