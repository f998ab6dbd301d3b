"""A mixture of experts: a router, tokens sorted by expert, products expert by expert, and the way back; its balance.

In arrays of rows by expert each token of a grain has k rows, one for each expert that it chose: the rows of the first
expert first, within an expert in the order of the tokens. Sums over the experts of a token go from the likeliest to the
last.

Sources: Shazeer et al., "Outrageously large neural networks", 2017, sections 2.1 and 4; Fedus et al., "Switch
transformers", 2021, section 2.2, for the loss that balances; Jiang et al., "Mixtral of experts", 2024, section 2.1.
"""

import numpy as np

from cstool.model.activations import exp
from cstool.training.kernels import elementary
from cstool.training.kernels._jit import elementwise, exact, inlined, reduction
from cstool.training.kernels.bfloat16 import narrow, widen
from cstool.training.kernels.call import NOTHING, Array, Call, LossResult, Rows
from cstool.training.kernels.exponential import maximum
from cstool.training.kernels.fma import FmaGemm, Part, rows_of
from cstool.training.kernels.gemm import NUMPY
from cstool.training.kernels.linear import column_sum, linear_backward_delta
from cstool.training.kernels.product import multiply, multiply_back
from cstool.training.kernels.recording import needs_interpreter, recording

SOFTMAX, SIGMOID = 0, 1
ROUTER_FUNCTIONS = {"softmax": SOFTMAX, "sigmoid": SIGMOID}
"""functions from the logits of a router to probabilities, with the numbers by which the kernels know them"""


@inlined
def _probabilities(function, logits, t, row):  # type: ignore[no-untyped-def]
    """Write the probabilities of token t to a row."""
    experts = row.shape[0]
    one = row.dtype.type(1)
    if function == SIGMOID:
        for e in range(experts):
            row[e] = one / (one + exp(-logits[e, t]))
        return
    largest = logits[0, t]
    for e in range(1, experts):
        largest = maximum(largest, logits[e, t])
    total = row.dtype.type(0)
    for e in range(experts):
        row[e] = exp(logits[e, t] - largest)
        total += row[e]
    for e in range(experts):
        row[e] /= total


@inlined
def _delta_of_logits(function, row, delta):  # type: ignore[no-untyped-def]
    """Turn the deltas of the probabilities in a row into deltas of the logits, in place."""
    experts = row.shape[0]
    if function == SIGMOID:
        for e in range(experts):
            delta[e] *= row[e] * (row.dtype.type(1) - row[e])
        return
    total = row.dtype.type(0)
    for e in range(experts):
        total += row[e] * delta[e]
    for e in range(experts):
        delta[e] = row[e] * (delta[e] - total)


@elementwise
def route(logits, selection, weighting, null_bias, weights, choices, probabilities):  # type: ignore[no-untyped-def]
    """Choose experts by logits (E, T) float32; see `router_forward`. A `null_bias` below 0: weights as they are."""
    experts, tokens = logits.shape
    row = np.empty(experts, logits.dtype)
    taken = np.empty(experts, np.bool_)
    for t in range(tokens):
        _probabilities(selection, logits, t, probabilities[t])
        if weighting == selection:
            row[:] = probabilities[t]
        else:
            _probabilities(weighting, logits, t, row)
        taken[:] = False
        total = logits.dtype.type(0)
        for k in range(choices.shape[1]):
            best = -1
            for e in range(experts):
                # Of equals the first; where all are NaN, the first as well.
                if not taken[e] and (best < 0 or probabilities[t, e] > probabilities[t, best]):
                    best = e
            taken[best] = True
            choices[t, k] = best
            weights[t, k] = row[best]
            total += row[best]
        if null_bias >= 0:
            total += logits.dtype.type(null_bias)
            for k in range(choices.shape[1]):
                weights[t, k] /= total


@elementwise
def _add_bias(logits, bias):  # type: ignore[no-untyped-def]
    for e in range(logits.shape[0]):
        for t in range(logits.shape[1]):
            logits[e, t] += bias[e]


@elementwise
def route_back(  # type: ignore[no-untyped-def]
    logits, selection, weighting, null_bias, choices, delta_weights, delta_probabilities
):
    """Write the deltas of the logits (E, T) over them; (0, E) deltas of the probabilities for none."""
    experts, tokens = logits.shape
    row, delta, chosen = np.empty(experts, logits.dtype), np.empty(experts, logits.dtype), choices.shape[1]
    for t in range(tokens):
        _probabilities(weighting, logits, t, row)
        delta[:] = 0
        if null_bias >= 0:
            total = logits.dtype.type(null_bias)
            along = logits.dtype.type(0)
            for k in range(chosen):
                total += row[choices[t, k]]
            for k in range(chosen):
                along += delta_weights[t, k] * (row[choices[t, k]] / total)
            for k in range(chosen):
                delta[choices[t, k]] = (delta_weights[t, k] - along) / total
        else:
            for k in range(chosen):
                delta[choices[t, k]] = delta_weights[t, k]
        if delta_probabilities.shape[0] > 0:
            if weighting == selection:
                for e in range(experts):
                    delta[e] += delta_probabilities[t, e]
                _delta_of_logits(weighting, row, delta)
            else:
                _delta_of_logits(weighting, row, delta)
                _probabilities(selection, logits, t, row)
                _delta_of_logits(selection, row, delta_probabilities[t])
                for e in range(experts):
                    delta[e] += delta_probabilities[t, e]
        else:
            _delta_of_logits(weighting, row, delta)
        for e in range(experts):
            logits[e, t] = delta[e]


def _router(c: Call) -> tuple[int, int, float]:
    """Numbers of the functions that choose and weight; the addend to the sum of weights, -1 without normalization."""
    selection, weighting = (ROUTER_FUNCTIONS[c.attributes[key]] for key in ("selection", "weighting"))
    return selection, weighting, float(c.attributes["null_bias"]) if c.attributes["normalizes"] else -1.0


def router_forward(c: Call) -> None:
    """Choose k experts for each token of x (T, H) float32: the largest probabilities; of equal ones the first.

    The weights are the panel (rows, H) of the gate, and a bias (E,) or none. Outputs are the weights of the chosen
    experts (T, k), the experts themselves (T, k) int32, and the probabilities of all (T, E). Kept are the `logits`
    (E, T).
    """
    x, logits, bias = c.inputs[0], c.kept["logits"], c.of_panel(c.vector(1))
    rows = logits[c.start : c.stop]
    NUMPY.multiply(c.weight(0), x.T, rows)
    if bias is not None:
        _add_bias(rows, bias)
    if c.last:
        choose_experts(c)


def choose_experts(c: Call) -> None:
    """Make the outputs of a router from its `logits`; see `router_forward`."""
    weights, choices, probabilities = c.outputs
    route(c.kept["logits"], *_router(c), weights, choices, probabilities)


def router_backward(c: Call) -> None:
    """Compute the share of a panel of the gate in the delta of x, and its gradients. The choice has no slope."""
    x, logits, weight, delta_x = c.inputs[0], c.kept["logits"], c.weight(0), c.delta_inputs[0]
    delta_weights, _, delta_probabilities = c.delta_outputs
    if c.first:
        assert delta_weights is not None
        if delta_probabilities is None:
            delta_probabilities = np.empty((0, len(logits)), logits.dtype)
        route_back(logits, *_router(c), c.outputs[1], delta_weights, delta_probabilities)
    rows = logits[c.start : c.stop]
    if delta_x is not None:
        linear_backward_delta(rows.T, weight, delta_x, c.accumulate[0] or not c.first, c.scratch)
    if (grad := c.gradient(0)) is not None:
        NUMPY.multiply(rows, x, grad)
    grad_bias = c.gradient(1)
    if grad_bias is not None and c.last:
        if recording() is None:
            np.add.reduce(logits, axis=1, out=grad_bias)
        else:
            for e, row in enumerate(logits):
                elementary.sum_all(row, grad_bias[e : e + 1])


def _by_expert(array: Array, choices: Array) -> Array:
    """(T, k * width) as (T * k, width)."""
    return array.reshape(choices.size, -1)


@inlined
def _first_rows(choices, experts):  # type: ignore[no-untyped-def]
    """Return the first row of each expert, by counting."""
    places = np.zeros(experts + 1, np.int64)
    for t in range(choices.shape[0]):
        for k in range(choices.shape[1]):
            places[choices[t, k] + 1] += 1
    for e in range(experts):
        places[e + 1] += places[e]
    return places


@elementwise
def dispatch(x, choices, experts, y):  # type: ignore[no-untyped-def]
    """Copy tokens (T, H) to rows by expert (T * k, H), float32 or bfloat16."""
    places = _first_rows(choices, experts)
    for t in range(choices.shape[0]):
        for k in range(choices.shape[1]):
            place = places[choices[t, k]]
            places[choices[t, k]] += 1
            for j in range(x.shape[1]):
                y[place, j] = narrow(widen(x[t, j]), y)


@elementwise
def dispatch_back(delta_y, choices, experts, delta_x, accumulate):  # type: ignore[no-untyped-def]
    """Sum the deltas (T * k, H) of each token's rows to (T, H), both float32."""
    places = _first_rows(choices, experts)
    for t in range(choices.shape[0]):
        if not accumulate:
            delta_x[t] = 0
        for k in range(choices.shape[1]):
            place = places[choices[t, k]]
            places[choices[t, k]] += 1
            for j in range(delta_x.shape[1]):
                delta_x[t, j] += delta_y[place, j]


@elementwise
def combine(rows, weights, choices, experts, y):  # type: ignore[no-untyped-def]
    """Sum each token's rows, (T * k, H) float32 or bfloat16, times their weights (T, k) to (T, H)."""
    places = _first_rows(choices, experts)
    for t in range(choices.shape[0]):
        y[t] = 0
        for k in range(choices.shape[1]):
            place = places[choices[t, k]]
            places[choices[t, k]] += 1
            weight = weights[t, k]
            for j in range(y.shape[1]):
                y[t, j] += weight * widen(rows[place, j])


@reduction
def combine_back(delta_y, rows, weights, choices, experts, delta_rows, delta_weights):  # type: ignore[no-untyped-def]
    """Write the deltas of the rows, in their precision, and of the weights."""
    places = _first_rows(choices, experts)
    for t in range(choices.shape[0]):
        for k in range(choices.shape[1]):
            place = places[choices[t, k]]
            places[choices[t, k]] += 1
            weight = weights[t, k]
            along = weights.dtype.type(0)
            # The sum in a loop of its own: one that writes as well is compiled twice, and which of the two runs, with
            # its order of the sum, would depend on whether the deltas lie where the rows were.
            for j in range(delta_y.shape[1]):
                along += delta_y[t, j] * widen(rows[place, j])
            for j in range(delta_y.shape[1]):
                delta_rows[place, j] = narrow(weight * delta_y[t, j], delta_rows)
            delta_weights[t, k] = along


def dispatch_forward(c: Call) -> None:
    """Copy the tokens of x (T, H) to the rows (T, k * H) of the experts that `choices` (T, k) int32 has for them."""
    x, choices = c.inputs
    dispatch(x, choices, c.attributes["experts"], _by_expert(c.outputs[0], choices))


def dispatch_backward(c: Call) -> None:
    """Add the deltas of a token's rows up."""
    choices = c.inputs[1]
    delta_y = _by_expert(c.delta_y, choices)
    dispatch_back(delta_y, choices, c.attributes["experts"], c.delta_x(0), c.accumulate[0])


def combine_forward(c: Call) -> None:
    """Compute y (T, H), for each token the sum of its rows times their weights; see `dispatch_forward`.

    Inputs are the rows (T, k * H), the weights (T, k) float32 and the choices (T, k) int32.
    """
    rows, weights, choices = c.inputs
    combine(_by_expert(rows, choices), weights, choices, c.attributes["experts"], c.outputs[0])


def combine_backward(c: Call) -> None:
    """Compute the deltas of the rows and of the weights."""
    rows, weights, choices = c.inputs
    deltas = _by_expert(c.delta_x(0), choices), c.delta_x(1)
    combine_back(c.delta_y, _by_expert(rows, choices), weights, choices, c.attributes["experts"], *deltas)


def _span(c: Call) -> slice:
    """The rows of the panel's expert."""
    choices = c.inputs[1]
    first = int(np.count_nonzero(choices < c.matrix))
    return slice(first, first + int(np.count_nonzero(choices == c.matrix)))


def chosen_experts(choices: Array) -> frozenset[int]:
    """The experts that any token chose, of choices (T, k) int32."""
    return frozenset(np.unique(choices).tolist())


def expert_rows(c: Call) -> tuple[Array, Array]:
    """Rows (n, in) of the input and (n, out) of the output of an `EXPERT_LINEAR` for the panel's expert."""
    choices, rows = c.inputs[1], _span(c)
    return _by_expert(c.inputs[0], choices)[rows], _by_expert(c.outputs[0], choices)[rows]


def expert_linear_forward(c: Call) -> None:
    """Compute y = x weight^T + bias for the rows of one expert, a panel (rows, in) of its matrix at a time.

    Inputs are x (T, k * in), rows by expert, and the choices (T, k) int32; the output is (T, k * out). The biases
    (out,) of all experts follow the panel, where there are any.
    """
    bias = c.of_panel(c.vector(1 + c.matrix))
    if recording() is not None:
        choices = c.inputs[1]
        y = _by_expert(c.outputs[0], choices)[:, c.start : c.stop]
        gemm, weight, part = _products_of_parts(c), c.weight(0), _part(c)
        gemm.multiply_part(_by_expert(c.inputs[0], choices), weight.T, y, part, bias)
        return
    x, y = expert_rows(c)
    if len(x):
        multiply(c, x, bias, y[:, c.start : c.stop])


def expert_linear_backward(c: Call) -> None:
    """Compute the share of a panel in the delta of its expert's rows, and its gradients.

    Where no token chose the expert, the gradient of the matrix is `Rows` of length 0, and the panel is not looked at.
    """
    if recording() is not None:
        _record_backward(c)
        return
    choices, rows = c.inputs[1], _span(c)
    delta_y, grad_bias = _by_expert(c.delta_y, choices)[rows], c.gradient(1 + c.matrix)
    if grad_bias is not None and c.start == 0:
        column_sum(delta_y, grad_bias)
    x = _by_expert(c.inputs[0], choices)[rows]
    if not len(x):
        c.gradients[0] = Rows(np.empty(0, np.int32), np.empty((0, x.shape[1]), np.float32))
        return
    target = None if c.delta_inputs[0] is None else _by_expert(c.delta_inputs[0], choices)[rows]
    # Backward, the panel with the last outputs of an expert comes first.
    accumulate = c.accumulate[0] or c.stop < delta_y.shape[1]
    multiply_back(c, x, delta_y[:, c.start : c.stop], target, accumulate=accumulate)


def _products_of_parts(c: Call) -> FmaGemm:
    """The provider of products of rows that only their kernel counts."""
    gemm = c.gemm_for(c.weight(0))
    if not isinstance(gemm, FmaGemm) or c.inputs[0].dtype != gemm.operands:
        needs_interpreter()
    assert isinstance(gemm, FmaGemm)
    return gemm


def _part(c: Call, *, is_of_terms: bool = False) -> Part:
    """The rows of the panel's expert."""
    assert c.found is not None
    return Part(c.inputs[1].reshape(-1), c.matrix, is_of_terms, c.found)


def _record_backward(c: Call) -> None:
    """Write down `expert_linear_backward`. Where no token chose the expert, its gradient is `NOTHING`."""
    choices, weight, grad, gemm = c.inputs[1], c.weight(0), c.gradient(0), _products_of_parts(c)
    x, delta_y, grad_bias = _by_expert(c.inputs[0], choices), _by_expert(c.delta_y, choices), c.gradient(1 + c.matrix)
    if grad_bias is not None and c.start == 0:
        if delta_y.shape[1] == 1:
            needs_interpreter()  # NumPy adds a single column pairwise
        sum_rows_of(choices.reshape(-1), c.matrix, delta_y, grad_bias)
    is_last, delta_y = c.stop == delta_y.shape[1], delta_y[:, c.start : c.stop]
    if c.delta_inputs[0] is not None:
        target = _by_expert(c.delta_inputs[0], choices)
        gemm.multiply_part(delta_y, weight, target, _part(c), adds=c.accumulate[0] or not is_last)
    if grad is not None:
        part = _part(c, is_of_terms=True)
        gemm.multiply_part(delta_y.T, x, grad, part)
        fill_without_rows(part.found, grad.reshape(-1), NOTHING)


@elementwise
def sum_rows_of(choices, expert, delta_y, grad_bias):  # type: ignore[no-untyped-def]
    """Sum the rows of an expert, in their order."""
    first, count = rows_of(choices, expert)
    grad_bias[:] = 0
    for t in range(first, first + count):
        for j in range(grad_bias.shape[0]):
            grad_bias[j] += delta_y[t, j]


@elementwise
def fill_without_rows(found, gradient, number):  # type: ignore[no-untyped-def]
    """Set a gradient, contiguous (n,), to a number where the counts of its rows, (grains,) int64, are all 0."""
    for grain in range(found.shape[0]):
        if found[grain] > 0:
            return
    gradient[:] = number


@exact
def _count(mask, layers, counts, shares, means):  # type: ignore[no-untyped-def]
    """Write the weight of each token in a mean, (samples, S), and begin the sums (samples, E) at 0, all float64."""
    for sample in range(counts.shape[0]):
        total = 0.0
        # Ones and zeros, so the order does not matter.
        for t in range(counts.shape[1]):
            total += mask[sample, t]
        total = max(total, 1.0) * layers
        for t in range(counts.shape[1]):
            counts[sample, t] = mask[sample, t] / total
        shares[sample] = 0.0
        means[sample] = 0.0


@exact
def _add_layer(probabilities, choices, counts, shares, means):  # type: ignore[no-untyped-def]
    """Add a layer to the shares and the means; its own sums go in the order of the tokens."""
    samples, experts = shares.shape
    sequence = counts.shape[1]
    share, mean = np.empty(experts), np.empty(experts)
    for sample in range(samples):
        share[:] = 0.0
        mean[:] = 0.0
        for t in range(sequence):
            row = sample * sequence + t
            for k in range(choices.shape[1]):
                share[choices[row, k]] += counts[sample, t]
            for e in range(experts):
                mean[e] += counts[sample, t] * probabilities[row, e]
        for e in range(experts):
            shares[sample, e] += share[e]
            means[sample, e] += mean[e]


@exact
def _weigh(shares, means):  # type: ignore[no-untyped-def]
    """Multiply the means by the shares."""
    for sample in range(shares.shape[0]):
        for e in range(shares.shape[1]):
            means[sample, e] *= shares[sample, e]


@exact
def add_losses(sums, experts, losses, figures):  # type: ignore[no-untyped-def]
    """Write the losses of samples, (samples,) float32, and their total, rounded once, to `Call.figures`.

    Source: Shewchuk, "Adaptive precision floating-point arithmetic", 1997, as in Python's `math.fsum`.
    """
    parts = np.empty(sums.shape[0] + 1)
    count = 0
    for sample in range(sums.shape[0]):
        x = experts * sums[sample]
        losses[sample] = x
        kept = 0
        for k in range(count):
            y = parts[k]
            if abs(x) < abs(y):
                x, y = y, x
            high = x + y
            low = y - (high - x)
            if low != 0.0:
                parts[kept] = low
                kept += 1
            x = high
        parts[kept] = x
        count = kept + 1
    total, low = 0.0, 0.0
    while count > 0 and low == 0.0:
        count -= 1
        x = total
        total = x + parts[count]
        low = parts[count] - (total - x)
    # Of two nearest numbers the even one would be wrong where smaller parts follow.
    if count > 0 and (low > 0.0) == (parts[count - 1] > 0.0):
        x = total + 2.0 * low
        if x - total == 2.0 * low:
            total = x
    figures[0], figures[1] = total, 0.0


@exact
def _balance_back(counts, shares, scale, delta):  # type: ignore[no-untyped-def]
    """Write the deltas of the probabilities (T, E) of a layer."""
    samples, experts = shares.shape
    sequence = counts.shape[1]
    for sample in range(samples):
        for t in range(sequence):
            each = scale * experts * counts[sample, t]
            for e in range(experts):
                delta[sample * sequence + t, e] = each * shares[sample, e]


def _shares(c: Call) -> tuple[Array, Array, Array]:
    """Shares of tokens and mean probabilities of each sample and expert, over layers; weights of tokens in the means.

    All are float64: (samples, E), (samples, E), (samples, S).
    """
    mask, *routed = c.inputs
    layers, experts = len(routed) // 2, routed[0].shape[1]
    mask = mask.reshape(-1, c.sequence)
    shares, means, counts = (_doubles(c, name, len(mask), n) for name, n in _sizes(c, experts))
    _count(mask, layers, counts, shares, means)
    for probabilities, choices in zip(routed[:layers], routed[layers:], strict=True):
        _add_layer(probabilities, choices, counts, shares, means)
    return shares, means, counts


def _sizes(c: Call, experts: int) -> tuple[tuple[str, int], ...]:
    return ("balance.shares", experts), ("balance.means", experts), ("balance.counts", c.sequence)


def _doubles(c: Call, name: str, rows: int, columns: int) -> Array:
    return c.scratch(name, (rows, 2 * columns)).view(np.float64)


def balance_loss_forward(c: Call) -> None:
    """Compute the loss (samples, 1) that balances experts: E times their sum of share times mean probability.

    The share of an expert is the share of a sample's tokens that chose it, the probability the router's; both are
    means over the tokens that count, and over layers. Inputs are the mask (T,), of ones and zeros, the probabilities
    (T, E) of all layers, then the choices (T, k) int32 of all layers. Source: Fedus et al., 2021, equations 4 to 6,
    sample by sample as at the vendor.
    """
    shares, means, _ = _shares(c)
    sums = c.scratch("balance.sums", (2 * len(shares),)).view(np.float64)
    _weigh(shares, means)
    for sample, products in enumerate(means):
        elementary.sum_all(products, sums[sample : sample + 1])
    add_losses(sums, shares.shape[1], c.outputs[0].reshape(-1), c.figures)
    if recording() is None:
        c.loss = LossResult(float(c.figures[0]), 0)


def balance_loss_backward(c: Call) -> None:
    """Compute the deltas of the probabilities; the choices have no slope."""
    shares, _, counts = _shares(c)
    # One number for each token and expert, the same in all layers.
    for target in c.delta_inputs[1:]:
        if target is not None:
            _balance_back(counts, shares, c.scale, target)
