"""Ops, tensors and weights of a segment while they are put together: building blocks of all families."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from cstool.model.ir import Initializer, Op, OpKind, Segment, Tensor, Weight
from cstool.model.params import GATED_NONLINEARITIES, NONLINEARITIES

ONES, ZEROS = Initializer("constant", mean=1.0), Initializer("constant", mean=0.0)


class Widths(Protocol):
    """Sizes that the parts of a model have in common."""

    @property
    def hidden_size(self) -> int:
        """H, the width of the residual stream."""

    @property
    def norm_type(self) -> str:
        """`layernorm`, `biasless-layernorm` or `rmsnorm`."""

    @property
    def layer_norm_epsilon(self) -> float:
        """Added to variances."""


def smoothed(share: float, classes: int) -> dict[str, Any]:
    """Return the attributes of a loss that smooths labels by a share over all classes; none for a share of 0."""
    return {"label_smoothing": share, "classes": classes} if share else {}


@dataclass
class Parts:
    """One segment while it is built.

    Args:
        model: its params
        tokens: S, rows that an op makes of a sample where nothing else is said
        initializer: (layer, rows, columns) -> how a matrix begins
    """

    model: Widths
    tokens: int
    initializer: Callable[[str, int, int], Initializer]
    ops: list[Op] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)

    def segment(self, count: int = 1, first: int = 0, stride: int = 1) -> Segment:
        """The segment, with a number of repetitions."""
        return Segment(tuple(self.ops), tuple(self.tensors), tuple(self.weights), count, first, stride)

    def op(
        self,
        kind: OpKind,
        name: str,
        inputs: tuple[str, ...],
        output: str,
        width: int,
        weights: tuple[str, ...] = (),
        **attributes: Any,
    ) -> str:
        """Add an op with its only output, (S, width), and return the output's name."""
        self.tensors.append(Tensor(output, (self.tokens, width)))
        self.ops.append(Op(kind, name, inputs, (output,), weights, attributes))
        return output

    def outputs(
        self,
        kind: OpKind,
        name: str,
        inputs: tuple[str, ...],
        tensors: tuple[Tensor, ...],
        *weights: str,
        **attributes: Any,
    ) -> tuple[str, ...]:
        """Add an op with its outputs, and return their names."""
        self.tensors.extend(tensors)
        made = tuple(tensor.name for tensor in tensors)
        self.ops.append(Op(kind, name, inputs, made, weights, attributes))
        return made

    def loss(
        self,
        name: str,
        inputs: tuple[str, ...],
        output: str,
        weights: tuple[str, ...],
        logits_scale: float = 1.0,
        logits_softcap: float | None = None,
        **attributes: Any,
    ) -> None:
        """Add an output layer with its loss, (S,): inputs are x, labels and mask, and further terms of the loss."""
        self.tensors.append(Tensor(output, (self.tokens,)))
        attributes = {"logits_scale": logits_scale, "logits_softcap": logits_softcap, **attributes}
        self.ops.append(Op(OpKind.SOFTMAX_LOSS, name, inputs, (output,), weights, attributes))

    def matrix(self, layer: str, name: str, rows: int, columns: int) -> str:
        """Add a matrix, and return its name."""
        self.weights.append(Weight(name, (rows, columns), self.initializer(layer, rows, columns)))
        return name

    def bias(self, name: str, width: int, wanted: bool) -> tuple[str, ...]:
        """Add a bias, if it is wanted, and return its name, as weights of an op end."""
        if not wanted:
            return ()
        self.weights.append(Weight(f"{name}.bias", (width,), ZEROS, decays=False))
        return (f"{name}.bias",)

    def norm(self, name: str, x: str, output: str | None = None, epsilon: float | None = None) -> str:
        """Add a norm over H, with the model's epsilon unless one is given; return the name of its output."""
        model = self.model
        self.weights.append(Weight(f"{name}.weight", (model.hidden_size,), ONES, decays=False))
        weights = (f"{name}.weight", *self.bias(name, model.hidden_size, model.norm_type == "layernorm"))
        kind = OpKind.RMS_NORM if model.norm_type == "rmsnorm" else OpKind.LAYER_NORM
        output = output or f"{name}.y"
        epsilon = model.layer_norm_epsilon if epsilon is None else epsilon
        return self.op(kind, name, (x,), output, model.hidden_size, weights, epsilon=epsilon)

    def linear(self, layer: str, name: str, x: str, rows: int, columns: int, bias: bool = False) -> str:
        """Add x weight^T, with the bias only where nothing that follows could take it along."""
        weights = (self.matrix(layer, f"{name}.weight", rows, columns), *self.bias(name, rows, bias))
        return self.op(OpKind.LINEAR, name, (x,), f"{name}.y", rows, weights)

    def join(
        self, layer: str, name: str, x: str, columns: int, residual: str, total: str, *, bias: bool, dropout: float
    ) -> None:
        """Add the linear layer that ends a part, and the residual connection around the part, with the layer's bias.

        Args:
            layer, name, columns: of the linear layer
            residual: the tensor that the part was computed from
            total: their sum
        """
        hidden = self.model.hidden_size
        inputs = self.linear(layer, name, x, hidden, columns), residual
        biases = self.bias(name, hidden, bias)
        self.op(OpKind.RESIDUAL, f"{name}.residual", inputs, total, hidden, biases, dropout=dropout)

    def attention(
        self, name: str, inputs: tuple[str, ...], width: int, weights: tuple[str, ...] = (), **attributes: Any
    ) -> str:
        """Add attention; return its context, (S, width).

        Args:
            inputs: query, key and value, and the inputs that say which tokens see each other
            width: of all heads of queries
            attributes: beside those of attention that has no bounds and knows no positions
        """
        unbound = {"softcap": None, "slopes": (), "window": None, "sinks": 0}
        return self.op(OpKind.ATTENTION, name, inputs, f"{name}.context", width, weights, **{**unbound, **attributes})

    def positions(self, name: str, x: str, output: str, width: int, table: str) -> str:
        """Add the learned positions of packed texts: they begin anew with each, so they are looked up as words are."""
        y = self.op(OpKind.EMBEDDING, name, ("position_ids",), "positions", width, (table,))
        return self.op(OpKind.RESIDUAL, f"{name}.residual", (y, x), output, width, dropout=0.0)

    def scale(self, name: str, x: str, output: str, factor: float, dropout: float) -> str:
        """Add dropout(x * factor), of width H."""
        return self.op(OpKind.SCALE, name, (x,), output, self.model.hidden_size, factor=factor, dropout=dropout)

    def activated(
        self,
        layer: str,
        name: str,
        x: str,
        rows: int,
        columns: int,
        nonlinearity: str,
        *,
        bias: bool,
        dropout: float = 0.0,
    ) -> str:
        """Add a linear layer, the gate beside it if the nonlinearity has one, and the nonlinearity with their biases.

        Args:
            name: of the module that has the linear layers
            nonlinearity: the vendor's name
        """
        linears = [f"{name}.linear_layer"]
        if is_gated := nonlinearity in GATED_NONLINEARITIES:
            linears.append(f"{name}.linear_layer_for_glu")
        ys = tuple(self.linear(layer, linear, x, rows, columns) for linear in linears)
        biases = tuple(found for linear in linears for found in self.bias(linear, rows, bias))
        kind = OpKind.GATED_ACTIVATION if is_gated else OpKind.ACTIVATION
        function = (GATED_NONLINEARITIES if is_gated else NONLINEARITIES)[nonlinearity]
        output = f"{linears[0]}.activation"
        return self.op(kind, output, ys, output, rows, biases, function=function, dropout=dropout)
