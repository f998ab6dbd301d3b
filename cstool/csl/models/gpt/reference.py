"""The same GPT in NumPy, float64: whole matrices, no rectangle of PEs. Results of the wafer are compared with it.

Arrays of tokens are (tokens, features), matrices (outputs, inputs). `step` is an op of program.json.
"""

import numpy as np

LINEAR, CUBIC = np.sqrt(2 / np.pi), 0.044715


def train_step(steps, weights, x, labels, token_weights):
    """Run a sample forward and backward.

    Args:
        steps: the ops in order
        weights: by name
        x: (tokens, hidden), after the embeddings
        labels: of the tokens
        token_weights: of the tokens in the loss

    Returns:
        the loss of each token, gradients by name, and the delta of x
    """
    weights = {name: array.astype(np.float64) for name, array in weights.items()}
    values, deltas, gradients = {steps[0]["arrays"][0]: x.astype(np.float64)}, {}, {}
    ways_back = []
    for step in steps:
        inputs = [values[name] for name in step["arrays"]]
        of_step = [weights[name] for name in step["weights"]]
        if step["kind"] == "softmax_loss":
            found, back = _loss(inputs[0], *of_step, labels, token_weights)
        else:
            found, back = _KINDS[step["kind"]](step["attributes"], *inputs, *of_step)
        values[step["output"]] = found
        ways_back.append((step, back))
    deltas[steps[-1]["output"]] = None
    for step, back in reversed(ways_back):
        of_inputs, of_weights = back(deltas[step["output"]])
        for name, delta in zip(step["arrays"], of_inputs, strict=True):
            deltas[name] = deltas[name] + delta if name in deltas else delta
        gradients.update(zip(step["weights"], of_weights, strict=True))
    return values[steps[-1]["output"]], gradients, deltas[steps[0]["arrays"][0]]


def _layer_norm(of, x, weight, bias):
    deviation = np.sqrt(x.var(axis=1, keepdims=True) + of["epsilon"])
    normal = (x - x.mean(axis=1, keepdims=True)) / deviation

    def back(delta):
        g = delta * weight
        along = (g * normal).mean(axis=1, keepdims=True)
        delta_x = (g - g.mean(axis=1, keepdims=True) - normal * along) / deviation
        return [delta_x], [(delta * normal).sum(axis=0), delta.sum(axis=0)]

    return normal * weight + bias, back


def _linear(_, x, weight, bias=0.0):
    has_bias = np.ndim(bias) > 0
    return x @ weight.T + bias, lambda delta: (
        [delta @ weight],
        [delta.T @ x, *([delta.sum(axis=0)] if has_bias else [])],
    )


def _attention(of, q, k, v):
    heads, scale, (tokens, hidden) = of["heads"], of["scale"], q.shape
    q, k, v = (array.reshape(tokens, heads, -1).swapaxes(0, 1) for array in (q, k, v))
    scores = np.where(np.tri(tokens, dtype=bool), scale * q @ k.swapaxes(1, 2), -np.inf)
    p = np.exp(scores - scores.max(axis=2, keepdims=True))
    p /= p.sum(axis=2, keepdims=True)

    def joined(array):
        return array.swapaxes(0, 1).reshape(tokens, hidden)

    def back(delta):
        delta = delta.reshape(tokens, heads, -1).swapaxes(0, 1)
        delta_p = delta @ v.swapaxes(1, 2)
        of_scores = scale * p * (delta_p - (p * delta_p).sum(axis=2, keepdims=True))
        found = of_scores @ k, of_scores.swapaxes(1, 2) @ q, p.swapaxes(1, 2) @ delta
        return [joined(array) for array in found], []

    return joined(p @ v), back


def _gelu(_, x, bias):
    u = x + bias
    s = np.tanh(LINEAR * (u + CUBIC * u**3))

    def back(delta):
        found = delta * (0.5 * (1 + s) + 0.5 * u * (1 - s**2) * LINEAR * (1 + 3 * CUBIC * u**2))
        return [found], [found.sum(axis=0)]

    return 0.5 * u * (1 + s), back


def _residual(_, x, before, bias):
    return x + bias + before, lambda delta: ([delta, delta], [delta.sum(axis=0)])


def _loss(x, weight, labels, token_weights):
    logits, tokens = x @ weight.T, np.arange(len(x))
    logits -= logits.max(axis=1, keepdims=True)
    logarithms = np.log(np.exp(logits).sum(axis=1))

    def back(_):
        delta = np.exp(logits - logarithms[:, None])
        delta[tokens, labels] -= 1.0
        delta *= token_weights[:, None]
        return [delta @ weight], [delta.T @ x]

    return logarithms - logits[tokens, labels], back


_KINDS = {
    "layer_norm": _layer_norm,
    "linear": _linear,
    "attention": _attention,
    "activation": _gelu,
    "residual": _residual,
}
