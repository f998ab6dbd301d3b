"""A graph on the host, op by op, by the kernels that train it: the twin of a program on the fabric."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cstool.model.ir import OP_RULES, Delta, Op
from cstool.training.kernels.call import Call
from cstool.training.kernels.table import KERNELS

Array = np.ndarray[Any, Any]


class HostOp:
    """One op forward and backward, on one sample of `tokens` tokens.

    Args:
        op: of a graph
        inputs, weights: in the op's order; their dtype is the kernels'
        token_weights: (T,), of a loss
    """

    def __init__(self, op: Op, inputs: Sequence[Array], weights: Sequence[Array], token_weights: Array) -> None:
        rules, dtype, tokens = OP_RULES[op.kind], inputs[0].dtype, len(inputs[0])
        width = weights[0].shape[0] if op.kind == "linear" else inputs[0].shape[1]
        self.is_loss = bool(rules.losses)
        kept = {name: np.empty(shape, dtype) for name, shape in rules.statistics_shapes(op.attributes, tokens).items()}
        self.call = Call(
            op.attributes,
            tokens,
            tuple(inputs),
            (np.empty(tokens, dtype) if self.is_loss else np.empty((tokens, width), dtype),),
            kept,
            scratch=lambda _, shape: np.empty(shape, dtype),
            delta_inputs=tuple(np.full_like(array, np.nan, dtype) for array in inputs),
            accumulate=(False,) * len(inputs),
            weights=weights,
            gradients=[np.full_like(weight, np.nan) for weight in weights],
            stop=len(weights[0]) if len(weights) else 0,
            scale=1.0,
        )
        if self.is_loss:
            # The weights of the tokens stand where the mask does: the loss multiplies by both alike.
            self.call.inputs = (*self.call.inputs[:2], token_weights.astype(dtype))
        self.kernel, self.op = KERNELS[op.kind], op

    def forward(self) -> Array:
        self.kernel.forward(self.call)
        return self.call.outputs[0]

    def backward(self, delta_y: Array | None) -> tuple[list[Array], list[Array]]:
        """Return the deltas of the inputs, and the gradients."""
        self.call.delta_outputs = (delta_y,)
        self.kernel.backward(self.call)
        rules = OP_RULES[self.op.kind]
        deltas = [
            delta_y if rules.delta(self.op.attributes, index) is Delta.SAME else delta
            for index, delta in enumerate(self.call.delta_inputs)
        ]
        return deltas, list(self.call.gradients)  # type: ignore[return-value]


def host_step(
    ops: Sequence[Op],
    weights: Mapping[str, Array],
    x: Array,
    labels: Array,
    token_weights: Array,
) -> tuple[Array, dict[str, Array], Array]:
    """Return losses of the tokens, gradients by name, and the delta of x, (tokens, hidden), all of x's dtype."""
    values = {ops[0].inputs[0]: x, "labels": labels.astype(np.int32), "mask": token_weights.astype(x.dtype)}
    called = []
    for op in ops:
        inputs = [values[name] for name in op.inputs]
        found = HostOp(op, inputs, [weights[name].astype(x.dtype) for name in op.weights], token_weights)
        values[op.outputs[0]] = found.forward()
        called.append((op, found))
    deltas: dict[str, Array] = {}
    gradients: dict[str, Array] = {}
    for op, found in reversed(called):
        delta_x, of_weights = found.backward(None if found.is_loss else deltas[op.outputs[0]])
        for name, delta in list(zip(op.inputs, delta_x, strict=True))[: 1 if found.is_loss else None]:
            deltas[name] = deltas[name] + delta if name in deltas else delta
        gradients |= dict(zip(op.weights, of_weights, strict=True))
    return values[ops[-1].outputs[0]], gradients, deltas[ops[0].inputs[0]]
