"""A mixture of experts in the place of a feed-forward part: ops, tensors and weights, under the vendor's names.

The names come from its default implementation, in which each expert has matrices of its own. Source: the vendor's
release 2.10.
"""

from collections.abc import Sequence
from functools import partial

from cstool.model.graphs.parts import Parts
from cstool.model.ir import Initializer, OpKind, Tensor, Weight
from cstool.model.params import GATED_NONLINEARITIES, NONLINEARITIES, DecoderParams


def add_mixture(parts: Parts, model: DecoderParams, name: str, x: str) -> str:
    """Add router, experts and shared experts; return the sum of their outputs for x, (S, H).

    Args:
        name: of the module, `transformer_decoder.layers.{n}.ffn`
    """
    weights, choices, _ = _add_router(parts, model, name, x)
    moe, hidden, filters = model.moe, model.hidden_size, model.filter_size
    dispatch, count = f"{name}.dispatch", moe.num_experts
    rows = parts.op(OpKind.DISPATCH, dispatch, (x, choices), f"{dispatch}.y", moe.top_k * hidden, experts=count)
    linear = partial(_experts_linear, parts, model, f"{name}.experts", choices=choices)
    kind, function = OpKind.ACTIVATION, NONLINEARITIES.get(model.nonlinearity)
    ys = [linear("ffn", "0.linear_layer", rows, filters, hidden)]
    if model.nonlinearity in GATED_NONLINEARITIES:
        kind, function = OpKind.GATED_ACTIVATION, GATED_NONLINEARITIES[model.nonlinearity]
        ys.append(linear("ffn", "0.linear_layer_for_glu", rows, filters, hidden))
    activated = f"{name}.experts.activation"
    y = parts.op(kind, activated, tuple(ys), activated, moe.top_k * filters, function=function, dropout=0.0)
    y = linear("ffn_output", "1.linear_layer", y, hidden, filters)
    combine = f"{name}.combine"
    y = parts.op(OpKind.COMBINE, combine, (y, weights, choices), f"{combine}.y", hidden, experts=count)
    for number in range(moe.shared):
        y = _add_shared(parts, model, f"{name}.experts.shared_experts.{number}.ffn", x, y)
    return y


def _add_router(parts: Parts, model: DecoderParams, name: str, x: str) -> tuple[str, ...]:
    moe, hidden, gate = model.moe, model.hidden_size, f"{name}.gate"
    initializer = model.gate_initializer_params.initializer(hidden, moe.num_experts)
    weights = [Weight(f"{gate}.weight", (moe.num_experts, hidden), initializer)]
    if moe.router_use_bias:
        # The vendor leaves it as PyTorch begins it.
        bound = hidden**-0.5
        uniform = Initializer("uniform", low=-bound, high=bound)
        weights.append(Weight(f"{gate}.bias", (moe.num_experts,), uniform, decays=False))
    parts.weights.extend(weights)
    return parts.outputs(
        OpKind.ROUTER,
        gate,
        (x,),
        (
            Tensor(f"{gate}.weights", (parts.tokens, moe.top_k)),
            Tensor(choices_of(name), (parts.tokens, moe.top_k), "int32"),
            Tensor(probabilities_of(name), (parts.tokens, moe.num_experts)),
        ),
        *(weight.name for weight in weights),
        experts=moe.num_experts,
        top_k=moe.top_k,
        selection=moe.router_selection_nonlinearity,
        weighting=moe.expert_weighting_nonlinearity,
        normalizes=moe.expert_weighting_normalization,
        null_bias=moe.null_expert_bias,
    )


def choices_of(name: str) -> str:
    """The tensor of the experts that each token chose in a module, (S, k) int32."""
    return f"{name}.gate.choices"


def probabilities_of(name: str) -> str:
    """The tensor of the probabilities of all experts in a module, (S, E)."""
    return f"{name}.gate.probabilities"


def _experts_linear(
    parts: Parts,
    model: DecoderParams,
    experts: str,
    layer: str,
    linear: str,
    x: str,
    rows: int,
    columns: int,
    choices: str,
) -> str:
    """Add a linear layer of all experts, with the bias in the product, since each has its own."""
    moe = model.moe
    names = [f"{experts}.experts.{expert}.{linear}" for expert in range(moe.num_experts)]
    matrices = [parts.matrix(layer, f"{name}.weight", rows, columns) for name in names]
    biases = [bias for name in names for bias in parts.bias(name, rows, model.use_ffn_bias)]
    name, weights, count = f"{experts}.{linear}", (*matrices, *biases), moe.num_experts
    return parts.op(OpKind.EXPERT_LINEAR, name, (x, choices), f"{name}.y", moe.top_k * rows, weights, experts=count)


def _add_shared(parts: Parts, model: DecoderParams, name: str, x: str, others: str) -> str:
    """Add an expert that all tokens go through, and the sum with the output of the other experts."""
    hidden, bias = model.hidden_size, model.use_ffn_bias
    y = parts.activated("ffn", f"{name}.0", x, model.filter_size, hidden, model.nonlinearity, bias=bias)
    last = f"{name}.1.linear_layer"
    y = parts.linear("ffn_output", last, y, hidden, model.filter_size)
    biases = parts.bias(last, hidden, bias)
    return parts.op(OpKind.RESIDUAL, f"{last}.sum", (y, others), f"{last}.sum.y", hidden, biases, dropout=0.0)


def add_balance_loss(parts: Parts, modules: Sequence[str], experts: int) -> str:
    """Add the loss of a sample that is the larger the more unevenly it uses the experts of some modules, (1,)."""
    name = "load_balancing_loss"
    routed = (*map(probabilities_of, modules), *map(choices_of, modules))
    made = parts.outputs(OpKind.BALANCE_LOSS, name, ("mask", *routed), (Tensor(name, (1,)),), experts=experts)
    return made[0]
