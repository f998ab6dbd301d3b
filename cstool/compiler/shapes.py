"""Pass: the shape of every op's output follows from its inputs and weights; what the model declared must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cstool.compiler.program import Program, shapes_of
from cstool.ir import Op, OpKind

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class InferShapes:
    """Infer shapes, segment by segment."""

    name: str = "infer_shapes"

    def __call__(self, program: Program) -> Program:
        """Return the program as it is.

        Raises:
            ValueError: an op's output is declared with another shape than its inputs and weights make, or an op's
                inputs do not go together
        """
        for segment in program.graph.segments:
            shapes = shapes_of(program.graph, segment)
            for op in segment.ops:
                inferred = OUTPUT_SHAPES[op.kind](op, shapes)
                if shapes[op.outputs[0]] != inferred:
                    raise ValueError(f"{op.name}: makes {inferred}, is declared to make {shapes[op.outputs[0]]}")
        return program


def _require(holds: bool, op: Op, rule: str) -> None:
    if not holds:
        raise ValueError(f"{op.name}: {rule}")


def _require_bias(op: Op, shapes: Shapes, outputs: int) -> None:
    for name in op.weights[1:]:
        _require(shapes[name] == (outputs,), op, f"bias {shapes[name]} does not fit {outputs} outputs")


def _embedding(op: Op, shapes: Shapes) -> Shape:
    return (*shapes[op.inputs[0]], shapes[op.weights[0]][1])


def _position(op: Op, shapes: Shapes) -> Shape:
    (sequence, width), table = shapes[op.inputs[0]], shapes[op.weights[0]]
    _require(table[1] == width and table[0] >= sequence, op, f"table {table} does not fit {sequence} positions")
    return sequence, width


def _same(op: Op, shapes: Shapes) -> Shape:
    first = shapes[op.inputs[0]]
    for name in op.inputs[1:]:
        _require(shapes[name] == first, op, f"inputs differ in shape, {first} and {shapes[name]}")
    for name in op.weights:
        _require(shapes[name] == first[-1:], op, f"weight {shapes[name]} does not fit inputs {first}")
    return first


def _linear(op: Op, shapes: Shapes) -> Shape:
    (outputs, inputs), x = shapes[op.weights[0]], shapes[op.inputs[0]]
    _require(x[-1] == inputs, op, f"weight {(outputs, inputs)} does not fit inputs {x}")
    _require_bias(op, shapes, outputs)
    return (*x[:-1], outputs)


def _attention(op: Op, shapes: Shapes) -> Shape:
    query, key, value = (shapes[name] for name in op.inputs)
    heads, kv_heads = op.attributes["heads"], op.attributes["kv_heads"]
    _require(key == value and query[:-1] == key[:-1], op, f"keys {key} and values {value} do not fit queries {query}")
    _require(
        query[-1] % heads == 0 and key[-1] == query[-1] // heads * kv_heads, op, f"{heads} heads, {kv_heads} of keys"
    )
    return query


def _loss(op: Op, shapes: Shapes) -> Shape:
    (x, labels, mask), (classes, inputs) = (shapes[name] for name in op.inputs), shapes[op.weights[0]]
    _require(
        x[:-1] == labels == mask and x[-1] == inputs,
        op,
        f"inputs {x}, labels {labels}, mask {mask} and weight {(classes, inputs)} do not fit",
    )
    _require_bias(op, shapes, classes)
    return labels


OUTPUT_SHAPES: Mapping[OpKind, Callable[[Op, Shapes], Shape]] = {
    OpKind.EMBEDDING: _embedding,
    OpKind.POSITION_EMBEDDING: _position,
    OpKind.FIXED_POSITION_EMBEDDING: _same,
    OpKind.SCALE: _same,
    OpKind.LAYER_NORM: _same,
    OpKind.RMS_NORM: _same,
    OpKind.LINEAR: _linear,
    OpKind.ROTARY: _same,
    OpKind.ATTENTION: _attention,
    OpKind.ACTIVATION: _same,
    OpKind.GATED_ACTIVATION: _same,
    OpKind.RESIDUAL: _same,
    OpKind.SOFTMAX_LOSS: _loss,
}
