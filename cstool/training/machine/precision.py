"""The bfloat16 part of a model in a run of that precision: weights as they stream, activations, deltas.

bfloat16 are the operands of products, and tensors between products: outputs of norms that only products read,
queries, keys, values, contexts, both sides of an activation function, and deltas of all these that are written once.
float32 stay the residual, statistics, scores, sums of several parts, gradients, and weights in MemoryX.

The rules look at the graph alone, so all grains, systems and ranks have the same.
"""

from collections.abc import Collection
from dataclasses import dataclass

from cstool.model.ir import Graph, Op, OpKind, matrices_of, panels_of
from cstool.model.params.sections.tuning import LORA_WEIGHTS
from cstool.training.kernels.gemm_providers import BFLOAT16_NAME

_MAKERS = frozenset(
    {
        OpKind.LINEAR,
        OpKind.DISPATCH,
        OpKind.EXPERT_LINEAR,
        OpKind.LAYER_NORM,
        OpKind.RMS_NORM,
        OpKind.HEAD_NORM,
        OpKind.ROTARY,
        OpKind.ATTENTION,
        OpKind.ACTIVATION,
        OpKind.GATED_ACTIVATION,
    }
)
"""kinds of op that can write bfloat16"""
_BETWEEN = frozenset({OpKind.ROTARY, OpKind.ACTIVATION, OpKind.GATED_ACTIVATION})
"""ops between products that work element by element on bfloat16"""
_PRODUCTS = frozenset({OpKind.LINEAR, OpKind.EXPERT_LINEAR, OpKind.SOFTMAX_LOSS, OpKind.TOKEN_LOSS})
"""kinds of op that multiply by a matrix in that precision; not routers, by which experts are chosen"""


@dataclass(frozen=True)
class Narrow:
    """The names of the bfloat16 tensors and weights."""

    weights: frozenset[str] = frozenset()
    """matrices, as they stream"""
    tensors: frozenset[str] = frozenset()
    """activations"""
    deltas: frozenset[str] = frozenset()
    """activations whose deltas are"""


ALL_FLOAT32 = Narrow()


def matrices_of_products(graph: Graph) -> frozenset[str]:
    """Return the names of the matrices that products take, but for those of adapters; see `_PRODUCTS`."""
    found = (name for op in graph.ops if op.kind in _PRODUCTS for name in matrices_of(op))
    return frozenset(name for name in found if not name.endswith(LORA_WEIGHTS))


def narrow_in(precision: str, graph: Graph) -> Narrow:
    """Return the bfloat16 part of a model in a run of some precision; see `narrow_parts`."""
    return narrow_parts(graph) if precision == BFLOAT16_NAME else ALL_FLOAT32


def narrow_parts(graph: Graph) -> Narrow:
    """Return the bfloat16 part of a model."""
    weights = frozenset(name for op in graph.ops if op.kind in _PRODUCTS for name in matrices_of(op))
    readers: dict[str, list[tuple[Op, int]]] = {}
    for op in graph.ops:
        for index, name in enumerate(op.inputs):
            readers.setdefault(name, []).append((op, index))
    makers = {name: op for op in graph.ops for name in op.outputs}
    tensors = {
        name
        for name, maker in makers.items()
        if maker.kind in _MAKERS and all(_reads(op, index) for op, index in readers.get(name, ()))
    }
    for op in graph.ops:
        # The operands of attention meet in one product, of whose precision the context is.
        if op.kind is OpKind.ATTENTION and not tensors.issuperset(_operands(op)):
            tensors.difference_update(_operands(op), op.outputs)
    deltas = frozenset(
        name
        for name, maker in makers.items()
        if _enters_products(maker, tensors) and _is_written_once(readers.get(name, ()), graph, tensors)
    )
    return Narrow(weights, frozenset(tensors), deltas)


def _operands(op: Op) -> tuple[str, ...]:
    """Inputs of an op that are activations: of attention query, key and value, not the segments of tokens."""
    return op.inputs[:3] if op.kind is OpKind.ATTENTION else op.inputs


def _reads(op: Op, index: int) -> bool:
    """Whether an op takes a bfloat16 input at a place; what an adapter adds to logits is no first one."""
    if op.kind in _PRODUCTS:
        return bool(matrices_of(op)) and index == 0
    return op.kind in _BETWEEN or op.kind in (OpKind.ATTENTION, OpKind.COMBINE)


def _enters_products(maker: Op, tensors: Collection[str]) -> bool:
    """Whether the delta of the output of an op is multiplied, by it or by the ops before it."""
    if maker.kind in (OpKind.LINEAR, OpKind.EXPERT_LINEAR):
        return True
    return maker.kind in _BETWEEN | {OpKind.ATTENTION} and set(_operands(maker)) <= set(tensors)


def _is_written_once(readers: Collection[tuple[Op, int]], graph: Graph, tensors: Collection[str]) -> bool:
    """Whether a delta comes whole, in bfloat16, from one op, so that it need not be added up."""
    if len(readers) != 1:
        return False
    [(op, index)] = readers
    if op.kind in (OpKind.LINEAR, OpKind.EXPERT_LINEAR):
        # Experts write rows of their own.
        return all(len(panels_of(graph.weights[matrix])) == 1 for matrix in matrices_of(op))
    if op.kind in (OpKind.RESIDUAL, OpKind.COMBINE):
        return index == 0
    return op.kind in _BETWEEN or (op.kind is OpKind.ATTENTION and set(_operands(op)) <= set(tensors))
