"""The kernels once more, slow and obvious, in float64 NumPy: no blocks, no panels, no state."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import expit, ndtr

from cstool.foundation.random_keys import philox4x32
from cstool.training.kernels.attention_form import Attention
from cstool.training.kernels.random import Dropout

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


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + epsilon) * weight


def head_norm(x: Array, weight: Array, epsilon: float) -> Array:
    heads = [rms_norm(head, weight, epsilon) for head in np.split(x, x.shape[1] // len(weight), axis=1)]
    return np.concatenate(heads, axis=1)


def activation(function: str, x: Array) -> Array:
    values = {
        "relu": np.maximum(x, 0.0),
        "gelu": x * ndtr(x),
        "silu": x * expit(x),
        "squared_relu": np.maximum(x, 0.0) ** 2,
        "gelu_new": 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))),
        "quick_gelu": x * expit(1.702 * x),
        "tanh": np.tanh(x),
        "linear": x,
    }
    return values[function]


def token_dropout(x: Array, ids: Array, mask: Array, sequence: int, mask_token: int, kept: float) -> Array:
    """Return x without masked tokens, sample by sample."""
    y = np.zeros_like(x)
    for start in range(0, len(x), sequence):
        own = slice(start, start + sequence)
        masked = np.count_nonzero(ids[own] == mask_token)
        length = np.count_nonzero(mask[own])
        for t in range(start, start + sequence):
            if ids[t] != mask_token:
                y[t] = x[t] * kept / (1 - masked / length)
    return y


def mean_token(x: Array, mask: Array, sequence: int) -> Array:
    """Return the mean of the tokens of each text that the mask counts; 0 of none."""
    y = np.zeros((len(x) // sequence, x.shape[1]))
    for text in range(len(y)):
        own = [t for t in range(text * sequence, (text + 1) * sequence) if mask[t]]
        for t in own:
            y[text] += x[t] / len(own)
    return y


def contrastive_losses(questions: Array, contexts: Array, mask: Array, temperature: float, mutual: bool) -> Array:
    """Return the loss of each question, 0 where the mask says that there is none: pair by pair, with plain exp."""
    each = len(contexts) // len(questions)
    real = [i for i in range(len(questions)) if mask[i]]
    losses = np.zeros(len(questions))
    for i in real:
        right = math.exp(questions[i] @ contexts[i * each] / temperature)
        texts = [contexts[j * each + k] for j in real for k in range(each)]
        among_texts = math.fsum(math.exp(questions[i] @ text / temperature) for text in texts)
        losses[i] = -math.log(right / among_texts)
        if mutual:
            among_questions = math.fsum(math.exp(questions[j] @ contexts[i * each] / temperature) for j in real)
            losses[i] = (each * losses[i] - math.log(right / among_questions)) / (1 + each)
    return losses


def rotary(x: Array, head_width: int, sequence: int, frequencies: tuple[float, ...], amplitude: float) -> Array:
    """Return x with the pairs of each head turned, as complex numbers."""
    y = x.copy()
    position = np.arange(len(x)) % sequence
    for head in range(0, x.shape[1], head_width):
        for i, frequency in enumerate(frequencies):
            real, imaginary = head + 2 * i, head + 2 * i + 1
            turn = np.exp(1j * position * frequency)
            turned = (x[:, real] + 1j * x[:, imaginary]) * turn * amplitude
            y[:, real], y[:, imaginary] = turned.real, turned.imag
    return y


def sinusoids(sequence: int, width: int) -> Array:
    """Return the fixed vectors of positions (S, H)."""
    table = np.zeros((sequence, width))
    count = width // 2
    for i in range(count):
        timescale = 10000.0 ** (i / (count - 1)) if count > 1 else 1.0
        table[:, 2 * i] = np.sin(np.arange(sequence) / timescale)
        table[:, 2 * i + 1] = np.cos(np.arange(sequence) / timescale)
    return table


def grid_sinusoids(grid: tuple[int, int], width: int, before: int) -> Array:
    """Return the fixed vectors of the patches of an image, one after the other, zeros `before` them."""
    table = np.zeros((before + grid[0] * grid[1], width))
    quarter = width // 4
    for row in range(grid[0]):
        for column in range(grid[1]):
            vector = table[before + row * grid[1] + column]
            for i in range(quarter):
                for part, place in enumerate((column, row)):
                    angle = place / 10000.0 ** (i / quarter)
                    vector[2 * part * quarter + i] = np.sin(angle)
                    vector[(2 * part + 1) * quarter + i] = np.cos(angle)
    return table


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(
    q: Array,
    k: Array,
    v: Array,
    form: Attention,
    dropout: Dropout | None,
    segments: Sequence[Array] = (),
    weights: Sequence[Array] = (),
) -> tuple[Array, Array]:
    """Return the context (T, A * D) and the log-sum-exp (A, T), sample by sample and head by head."""
    context = np.zeros(q.shape)
    logsumexp = np.zeros((form.heads, q.shape[0]))
    for head, here, kv_here, mask in _pairs(q, form, dropout):
        scores, _ = _scores(q[here], k[kv_here], form, head, _added(form, head, weights))
        scores[_unseen(form, here[0], kv_here[0], segments)] = -np.inf
        context[here] = (_probabilities(scores) * mask) @ v[kv_here]
        with np.errstate(divide="ignore"):
            total = np.log(np.exp(scores).sum(axis=1))
        logsumexp[head, here[0]] = np.where(np.isneginf(total), np.inf, total)
    return context, logsumexp


def attention_deltas(
    q: Array,
    k: Array,
    v: Array,
    delta: Array,
    form: Attention,
    dropout: Dropout | None,
    segments: Sequence[Array] = (),
    weights: Sequence[Array] = (),
) -> list[Array]:
    """Return the deltas of q, k and v, and the gradients of the weights, each of the shape of what it is of."""
    delta_q, delta_k, delta_v, *gradients = found = [np.zeros(x.shape) for x in (q, k, v, *weights)]
    for head, here, kv_here, mask in _pairs(q, form, dropout):
        scores, slope = _scores(q[here], k[kv_here], form, head, _added(form, head, weights))
        scores[_unseen(form, here[0], kv_here[0], segments)] = -np.inf
        p = _probabilities(scores)
        delta_v[kv_here] += (p * mask).T @ delta[here]
        delta_p = (delta[here] @ v[kv_here].T) * mask
        delta_scores = p * (delta_p - (delta_p * p).sum(axis=1, keepdims=True))
        delta_q[here] = (delta_scores * slope) @ k[kv_here]
        delta_k[kv_here] += (delta_scores * slope).T @ q[here]
        if form.buckets:
            np.add.at(gradients[0][:, head], _buckets(form), delta_scores)
        if form.slope_scale is not None:
            gradients[-1][head] -= form.slope_scale * np.sum(np.abs(_ahead(form)) * delta_scores)
    return found


def _probabilities(scores: Array) -> Array:
    """Return the softmax of each row, 0 where there is nothing but -inf."""
    seen = np.isfinite(scores).any(axis=1)
    p = np.zeros(scores.shape)
    p[seen] = softmax(scores[seen])
    return p


def _scores(q: Array, k: Array, form: Attention, head: int, added: Array) -> tuple[Array, Array]:
    """Return the scores of a head, and their derivatives with respect to the products of queries and keys."""
    scores, slope = q @ k.T * form.scale, np.full((len(q), len(k)), form.scale)
    if form.softcap is not None:
        capped = np.tanh(scores / form.softcap)
        scores, slope = form.softcap * capped, slope * (1 - capped**2)
    return scores + added, slope


def _ahead(form: Attention) -> Array:
    """Return by how much each key comes after each query, (S, keys)."""
    return np.arange(form.key_count) - np.arange(form.sequence)[:, None]


def _added(form: Attention, head: int, weights: Sequence[Array]) -> Array:
    """Return what is added to the scores of a head."""
    added = np.zeros((form.sequence, form.key_count))
    if form.slopes:
        added -= form.slopes[head] * np.abs(_ahead(form))
    if form.buckets:
        added += weights[0][_buckets(form), head]
    if form.slope_scale is not None:
        added -= form.slope_scale * float(weights[-1][head].item()) * np.abs(_ahead(form))
    return added


def _buckets(form: Attention) -> Array:
    """Return the bucket of each query and key, by the text of the paper: exact distances, then ever wider ranges."""
    return np.array([[bucket(form, int(ahead)) for ahead in row] for row in _ahead(form)])


def bucket(form: Attention, ahead: int) -> int:
    """Return the bucket of a key that comes so much after its query."""
    count = form.buckets // 2 if form.bidirectional else form.buckets
    distance = abs(ahead) if form.bidirectional else max(0, -ahead)
    exact = count // 2
    found = distance
    if distance >= exact:
        share = math.log(distance / exact) / math.log(form.max_distance / exact)
        # A distance that begins a range is in it, whatever its logarithm is rounded to.
        found = min(count - 1, exact + math.floor(share * (count - exact) + 1e-9))
    return found + (count if form.bidirectional and ahead > 0 else 0)


def _unseen(form: Attention, here: slice, kv_here: slice, segments: Sequence[Array]) -> Array:
    """Return which keys a query does not see, (S, keys), of the sample whose queries and keys are at these places."""
    key, query = np.arange(form.key_count), np.arange(form.sequence)[:, None]
    seen = np.ones((form.sequence, form.key_count), bool)
    if form.causal:
        if form.window is not None:
            seen = (query - key < form.window) | (key < form.sinks)
        if form.chunk is not None:
            seen = key // form.chunk == query // form.chunk
        if form.columns is not None:
            spacing, width = form.columns
            for end in range(spacing - 1, form.sequence, spacing):
                seen = seen | ((key > end - width) & (key <= end))
        seen = seen & (key <= query)
    if segments:
        own = segments[1][here][:, None] if segments[1:] else 1
        seen = seen & (segments[0][kv_here] == own) & (np.asarray(own) >= 0)
    return ~seen


def _pairs(q: Array, form: Attention, dropout: Dropout | None):  # type: ignore[no-untyped-def]
    """Yield each head of each sample: its number, where its queries are, where its keys are, its dropout mask."""
    width, sequence, keys = q.shape[1] // form.heads, form.sequence, form.key_count
    square = sequence * keys
    for sample in range(q.shape[0] // sequence):
        for head in range(form.heads):
            mask = np.ones((sequence, keys))
            if dropout is not None:
                mask = elements_mask(dropout, sample, form.heads * square)[head * square : (head + 1) * square]
                mask = mask.reshape(sequence, keys)
            rows, kv_rows = (slice(sample * count, (sample + 1) * count) for count in (sequence, keys))
            kv = head * form.kv_heads // form.heads
            columns = slice(head * width, (head + 1) * width), slice(kv * width, (kv + 1) * width)
            yield head, (rows, columns[0]), (kv_rows, columns[1]), mask


def embedding_gradient(ids: Array, delta_y: Array, vocabulary: int) -> Array:
    grad = np.zeros((vocabulary, delta_y.shape[1]))
    for token, row in enumerate(ids):
        grad[row] += delta_y[token]
    return grad


def softmax_losses(
    x: Array,
    weight: Array,
    bias: Array | None,
    labels: Array,
    logits_scale: float = 1.0,
    logits_softcap: float | None = None,
    smoothing: float = 0.0,
) -> Array:
    """Return the cross entropy of each token, of which a share is that of all classes alike."""
    logits, _ = _logits(x, weight, bias, logits_scale, logits_softcap)
    return -(smoothed_labels(labels, len(weight), smoothing) * np.log(softmax(logits))).sum(axis=1)


def smoothed_labels(labels: Array, classes: int, smoothing: float) -> Array:
    """Return what is to be learned, (T, V): rows that sum to 1."""
    found = np.full((len(labels), classes), smoothing / classes)
    found[np.arange(len(labels)), labels] += 1.0 - smoothing
    return found


def softmax_loss_deltas(
    x: Array,
    weight: Array,
    bias: Array | None,
    labels: Array,
    mask: Array,
    scale: float,
    logits_scale: float = 1.0,
    logits_softcap: float | None = None,
    smoothing: float = 0.0,
) -> tuple[Array, Array, Array]:
    """Return the delta of x, and the gradients of weight and bias, of scale x sum of mask x loss."""
    logits, slope = _logits(x, weight, bias, logits_scale, logits_softcap)
    delta = softmax(logits) - smoothed_labels(labels, len(weight), smoothing)
    delta *= scale * mask[:, None] * slope
    return delta @ weight, delta.T @ x, delta.sum(axis=0)


def _logits(x: Array, weight: Array, bias: Array | None, scale: float, softcap: float | None) -> tuple[Array, Array]:
    """Return the logits, and their derivatives with respect to what the layer gives."""
    logits = scale * (x @ weight.T + (0.0 if bias is None else bias))
    if softcap is None:
        return logits, np.full(logits.shape, scale)
    tanh = np.tanh(logits / softcap)
    return softcap * tanh, scale * (1.0 - tanh**2)


def adam(
    weight: Array,
    grads: list[Array],
    lr: float,
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
    decoupled: bool,
    form: str = "pytorch",
) -> Array:
    """Return the weight after one step of Adam or AdamW for each gradient; the vendor's epsilon stands before the
    correction of the bias."""
    m, v = np.zeros_like(weight), np.zeros_like(weight)
    for step, grad in enumerate(grads, start=1):
        if decoupled:
            weight = weight - lr * decay * weight
        else:
            grad = grad + decay * weight
        m = betas[0] * m + (1 - betas[0]) * grad
        v = betas[1] * v + (1 - betas[1]) * grad**2
        of_mean, of_square = 1 - betas[0] ** step, 1 - betas[1] ** step
        if form == "vendor":
            weight = weight - lr * m / (np.sqrt(v) + epsilon) * np.sqrt(of_square) / of_mean
        else:
            weight = weight - lr * (m / of_mean) / (np.sqrt(v / of_square) + epsilon)
    return weight


def lion(
    weight: Array, grads: list[Array], lr: float, betas: tuple[float, float], decay: float, mean: float | Array = 0.0
) -> Array:
    """Return the weight after one step of Lion for each gradient (arXiv:2302.06675, algorithm 2)."""
    for grad in grads:
        towards = np.sign(betas[0] * mean + (1 - betas[0]) * grad)
        mean = betas[1] * mean + (1 - betas[1]) * grad
        weight = weight - lr * (towards + decay * weight)
    return weight


def adafactor(
    weight: Array,
    grads: list[Array],
    lr: float,
    decay: float,
    *,
    eps: tuple[float, float] = (1e-30, 1e-3),
    rate: float = -0.8,
    scales: bool = True,
) -> Array:
    """Return the weight after one step of Adafactor for each gradient (arXiv:1804.04235, algorithms 4 and 5)."""

    def rms(x: Array) -> float:
        return float(np.sqrt(np.mean(x * x)))

    row = column = moment = 0.0
    for step, grad in enumerate(grads, start=1):
        beta, squares = 1 - step**rate, grad * grad + eps[0]
        if weight.ndim == 2:
            row = beta * row + (1 - beta) * squares.sum(axis=1)
            column = beta * column + (1 - beta) * squares.sum(axis=0)
            moment = np.outer(row, column) / np.sum(row)
        else:
            moment = beta * moment + (1 - beta) * squares
        towards = grad / np.sqrt(moment)
        towards = towards / max(1, rms(towards))
        lengthened = lr * (max(eps[1], rms(weight)) if scales else 1)
        weight = weight - lengthened * (towards + decay * weight)
    return weight


def sgd(
    weight: Array,
    grads: list[Array],
    lr: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    decay: float,
    form: str = "pytorch",
) -> Array:
    """Return the weight after one step of SGD for each gradient; the vendor's momentum begins with zeros."""
    buffer = np.zeros_like(weight) if form == "vendor" else None
    for grad in grads:
        grad = grad + decay * weight
        if momentum:
            buffer = grad if buffer is None else momentum * buffer + (1 - dampening) * grad
            grad = grad + momentum * buffer if nesterov else buffer
        weight = weight - lr * grad
    return weight


def unpaired_losses(
    policy: Array,
    counts: Array,
    samples: Array,
    desirable: Array,
    reference: Array,
    weights: tuple[float, float],
    beta: float,
) -> list[float]:
    """Return the loss of each answer of KTO; `weights` of desirable ones and of others.

    Args:
        policy, reference: (B, 2, S) cross entropies of tokens, of an answer and of a mismatched one
        counts: (B, 2, S) 1 for a token that counts
        samples, desirable: (B,) 1 for a sample that counts, and for a desirable answer
    """
    ratios = [
        [sum((r - p) * c for p, r, c in zip(*texts, strict=True)) for texts in zip(*each, strict=True)]
        for each in zip(policy, reference, counts, strict=True)
    ]
    others = [ratio[1] for ratio, there in zip(ratios, samples, strict=True) if there]
    limit = max(0.0, sum(others) / max(1, len(others)))
    found = []
    for ratio, there, good in zip(ratios, samples, desirable, strict=True):
        gain = ratio[0] - limit if good else limit - ratio[0]
        found.append(bool(there) * weights[0 if good else 1] * (1.0 - 1.0 / (1.0 + math.exp(-beta * gain))))
    return found


def preference_losses(
    kind: str,
    policy: Array,
    counts: Array,
    reference: Array | None,
    *,
    beta: float,
    penalty: float,
) -> list[tuple[float, float, float]]:
    """Return of each pair its loss and the rewards of its chosen and its rejected text.

    Args:
        policy, reference: (B, 2, S) cross entropies of tokens
        counts: (B, 2, S) 1 for a token that counts
    """
    found = []
    for b in range(len(policy)):
        gains, falls = [], 0.0
        for text in range(2):
            size = max(1.0, sum(counts[b, text])) if kind in ("ipo", "orpo") else 1.0
            own = -sum(e * c for e, c in zip(policy[b, text], counts[b, text], strict=True)) / size
            other = 0.0
            if reference is not None:
                other = -sum(e * c for e, c in zip(reference[b, text], counts[b, text], strict=True)) / size
            gains.append(own - other)
        margin = gains[0] - gains[1]
        if kind == "dpop":
            falls = max(0.0, -gains[0])
        odds = 0.0
        if kind == "orpo":
            odds = margin - math.log(1.0 - math.exp(gains[0])) + math.log(1.0 - math.exp(gains[1]))
        losses = {
            "orpo": -beta * math.log(1.0 / (1.0 + math.exp(-odds))),
            "sigmoid": -math.log(1.0 / (1.0 + math.exp(-beta * margin))),
            "hinge": max(0.0, 1.0 - beta * margin),
            "ipo": (margin - 0.5 / beta) ** 2,
            "dpop": -math.log(1.0 / (1.0 + math.exp(-beta * (margin - penalty * falls)))),
        }
        found.append((losses[kind], beta * gains[0], beta * gains[1]))
    return found
