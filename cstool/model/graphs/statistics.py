"""Size and cost of a graph, by counting: parameters by part, floating-point operations by kind of op.

Repeated segments are counted once and multiplied; nothing is measured.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cstool.model.graphs.form import SampleForm
from cstool.model.ir import Graph, MatMul, Op, OpKind, Pairs, matrices_of, rules_of, work_of

FLOAT32_BYTES = 4
"""bytes of an element of weights, gradients and optimizer state"""

_NUMBER = re.compile(r"\{n(\+\d)?\}")


@dataclass(frozen=True)
class Part:
    """The weights of one module, in all layers that have it.

    Args:
        name: the vendor's, `*` for the number of the layer
        count: number of layers that have it; 1 outside of the layers
        shapes: of its weights -> number of such weights in all layers together
        role: `embedding` (a table of tokens or positions), `output` (an output layer's own weights) or `inner`
    """

    name: str
    count: int
    shapes: Mapping[tuple[int, ...], int]
    role: str

    @property
    def parameters(self) -> int:
        """Elements of all its weights."""
        return sum(count * math.prod(shape) for shape, count in self.shapes.items())


@dataclass(frozen=True)
class Flops:
    """Floating-point operations; a multiply-add is two of them."""

    forward: int = 0
    backward: int = 0

    @property
    def total(self) -> int:
        """Of both directions."""
        return self.forward + self.backward

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.forward + other.forward, self.backward + other.backward)

    def __mul__(self, times: int) -> "Flops":
        return Flops(self.forward * times, self.backward * times)


@dataclass(frozen=True)
class Statistics:
    """Size and cost of a graph.

    Args:
        parts: in the order of first use
        flops: of one sample, for the kinds of op that compute products
        tokens: per sample; 1 for models without a sequence
        trained: number of parameters that are not frozen; only they have gradients and optimizer state
        targets: tokens that a decoder reads beside an encoder; None where there is none
    """

    parts: tuple[Part, ...]
    flops: Mapping[OpKind, Flops]
    tokens: int
    trained: int
    targets: int | None = None

    def parameters(self, *roles: str) -> int:
        """Return the number of parameters of the parts in these roles; of all without any."""
        return sum(part.parameters for part in self.parts if not roles or part.role in roles)

    @property
    def sample_flops(self) -> Flops:
        """Of one sample, all kinds of op together."""
        return sum(self.flops.values(), Flops())

    @property
    def rule_of_six(self) -> int | None:
        """6 N, the usual estimate of FLOPs per token in both directions.

        None without embeddings, with experts, or where some of N are frozen.

        None as well for an encoder with a decoder, of which no parameter sees all tokens.

        N are the parameters between embeddings and output layer: 2 N forward, 4 N backward. It leaves out the products
        of attention and of the output layer. Source: Kaplan et al., "Scaling laws for neural language models", 2020,
        section 2.1 and table 1; N has biases and norms here.
        """
        is_frozen = self.trained < self.parameters()
        has_experts, has_two_stacks = OpKind.EXPERT_LINEAR in self.flops, self.targets is not None
        if not self.parameters("embedding") or has_experts or has_two_stacks or is_frozen:
            return None
        return 6 * self.parameters("inner")


def count_statistics(graph: Graph) -> Statistics:
    """Count parameters and floating-point operations of a graph."""
    shapes = {weight.name: weight.shape for segment in graph.segments for weight in segment.weights}
    shapes |= {tensor.name: tensor.shape for tensor in graph.inputs}
    without_delta = {tensor.name for tensor in graph.inputs}
    frozen: set[str] = set()
    flops: dict[OpKind, Flops] = {}
    for segment in graph.segments:
        shapes |= {tensor.name: tensor.shape for tensor in segment.tensors}
        # The same name in another segment is another layer.
        frozen.difference_update(weight.name for weight in segment.weights)
        frozen.update(weight.name for weight in segment.weights if weight.frozen)
        for op in segment.ops:
            # What a repetition gets from the one before it is taken to need a delta: it comes from weights.
            wanted = inputs_with_delta(op, without_delta)
            if graph.frozen_tensors:
                wanted = {name for name in wanted if segment.name_of(name) not in graph.frozen_tensors}
            counted = op_flops(op, shapes, wanted, frozen)
            if segment.name_of(op.name) in graph.frozen_ops:
                counted = Flops(counted.forward)
            if counted.total:
                flops[op.kind] = flops.get(op.kind, Flops()) + counted * segment.count
    return Statistics(_parts(graph), flops, graph.tokens, graph.trained_count, SampleForm.of(graph).targets)


def _parts(graph: Graph) -> tuple[Part, ...]:
    roles: dict[str, str] = {}
    for op in (op for segment in graph.segments for op in segment.ops):
        role = rules_of(op).role
        if role == "embedding":
            roles.update(dict.fromkeys(op.weights, role))
        elif role == "output":
            roles.update((name, role) for name in op.weights if name not in roles)
    counts: Counter[str] = Counter()
    shapes: dict[str, Counter[tuple[int, ...]]] = {}
    part_roles: dict[str, str] = {}
    for segment in graph.segments:
        modules = {_module(weight.name): None for weight in segment.weights}
        for written in modules:
            counts[_NUMBER.sub("*", written)] += segment.count
        for weight in segment.weights:
            name = _NUMBER.sub("*", _module(weight.name))
            shapes.setdefault(name, Counter())[weight.shape] += segment.count
            part_roles.setdefault(name, roles.get(weight.name, "inner"))
    return tuple(Part(name, counts[name], dict(shapes[name]), part_roles[name]) for name in shapes)


def _module(weight: str) -> str:
    return weight.rpartition(".")[0]


def inputs_with_delta(op: Op, without_delta: set[str]) -> set[str]:
    """Inputs of an op that need a delta: all but `without_delta`, to which outputs are added that follow from these."""
    if not op.weights and without_delta.issuperset(op.inputs):
        without_delta.update(op.outputs)
    else:
        without_delta.difference_update(op.outputs)
    return set(op.inputs) - without_delta


def op_flops(
    op: Op, shapes: Mapping[str, tuple[int, ...]], with_delta: Collection[str], frozen: Collection[str] = ()
) -> Flops:
    """Floating-point operations of the products of an op on one sample.

    Element-wise work and lookup of rows are left out, as is usual; they are little beside the products of
    matrices. Recomputation in backward (scores, logits) counts once: it belongs to the method, not to the mathematics.

    Args:
        shapes: of its tensors, for one sample, and of its weights
        with_delta: its inputs that need a delta
        frozen: weights that get no gradient
    """
    found = Flops()
    trains = any(name not in frozen for name in matrices_of(op))
    for item in work_of(op, shapes):
        if isinstance(item, MatMul):
            # x weight^T; backward the gradient of the weight, and the delta of x where somebody needs it.
            found += Flops(item.flops, item.flops * (trains + (op.inputs[0] in with_delta)))
        elif isinstance(item, Pairs):
            # query key^T and scores value, for the pairs that the mask lets through; backward each gives two deltas.
            product = 2 * item.pairs * item.width
            query, key, value = (name in with_delta for name in op.inputs[:3])
            found += Flops(2 * product, product * (query + key + value + (query or key)))
    return found
