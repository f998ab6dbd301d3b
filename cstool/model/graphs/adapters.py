"""Low-rank adapters: two small products beside a frozen one, as ops of the graph.

Beside y = x W^T come a = x A^T and b = a B^T, and y + b. The scale is on a, with dropout on x, where it is dropped. A
reads the input of W, so the wafer multiplies both at once, as it does query, key and value; B is a kernel of its own.
Names of weights are as in the vendor's release 2.10: `lora_A` and `lora_B` beside the layer's.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import groupby
from types import MappingProxyType

from cstool.foundation.errors import ParamsError
from cstool.model.ir import Graph, Initializer, Op, OpKind, Segment, Tensor, Weight, rules_of
from cstool.model.params.sections.tuning import ALL, LORA_WEIGHTS, Adapters, Tuning

SHORT_NAMES = {
    "q": "proj_q_dense_layer",
    "k": "proj_k_dense_layer",
    "v": "proj_v_dense_layer",
    "o": "proj_output_dense_layer",
    "up": "ffn.0.linear_layer",
    "gate": "ffn.0.linear_layer_for_glu",
    "down": "ffn.1.linear_layer",
}
"""short names of layers -> ends of their names in the model"""


_A = LORA_WEIGHTS[0]


def adapters_beside(tuning: Tuning, name: str) -> Adapters | None:
    """The adapters beside a linear layer of a name, its number written out: the first ones that name it."""
    return next((each for each in tuning.adapters if any(_is_named(layer, name) for layer in each.layers)), None)


def adapter_scales(graph: Graph, tuning: Tuning) -> dict[str, float]:
    """The scale of the adapter beside each layer that has one, by the name of its weight without `.weight`."""
    found: dict[str, float] = {}
    for op in graph.ops:
        if _is_linear(op) and op.weights[0].endswith(_A):
            adapters = adapters_beside(tuning, op.name.removesuffix(_A))
            assert adapters is not None, "it has put the adapter there"
            found[op.weights[0].removesuffix(_A)] = adapters.scale
    return found


def with_adapters(graph: Graph, tuning: Tuning) -> Graph:
    """Return a graph with adapters, and all weights but theirs frozen.

    A layer of inputs and outputs gets rank x (inputs + outputs) weights.

    Raises:
        ParamsError: a layer is none of the graph, or the rank is more than inputs or outputs of one
    """
    linear = dict(_linear_layers(graph))
    for layer in (layer for each in tuning.adapters for layer in each.layers):
        if not any(_is_named(layer, name) for name in linear):
            known = ", ".join(dict.fromkeys(map(_short_name, linear))) or "none"
            rule = f"must name linear layers of {graph.name}, got {layer}"
            raise ParamsError([(f"{tuning.where}: {rule}", f"they are {known}; or all")])
    for name, shape in linear.items():
        if (found := adapters_beside(tuning, name)) is not None and found.rank > min(shape):
            rule = f"rank must be at most {min(shape):,}, the smaller side of {name}"
            raise ParamsError([(f"{tuning.where}: {rule}, got {found.rank:,}", None)])

    def beside(segment: Segment) -> Callable[[int], Hashable]:
        return lambda repetition: tuple(
            adapters_beside(tuning, segment.name_of(op.name, repetition)) for op in segment.ops if _is_linear(op)
        )

    segments = (_adapted(segment, tuning) for segment in split_segments(graph.segments, beside))
    return replace(graph, segments=tuple(segments))


def split_segments(
    segments: Iterable[Segment], key_of: Callable[[Segment], Callable[[int], Hashable]]
) -> Iterator[Segment]:
    """Yield segments cut into runs of repetitions with the same key.

    Args:
        segments: of a graph
        key_of: for a segment, a key of its repetitions, counted from 0, by which they are told apart

    >>> segment = Segment((), (), count=5, first=2)
    >>> [(part.first, part.count) for part in split_segments([segment], lambda _: lambda number: number < 2)]
    [(2, 2), (4, 3)]
    """
    for segment in segments:
        done = 0
        for _, run in groupby(range(segment.count), key_of(segment)):
            count = len(list(run))
            yield replace(segment, count=count, first=segment.first + done * segment.stride)
            done += count


def _linear_layers(graph: Graph) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the linear layers that are trained, numbers written out, with the shape of their matrix."""
    for op in graph.ops:
        if _is_linear(op) and not graph.weights[op.weights[0]].frozen:
            yield op.name, graph.weights[op.weights[0]].shape


def _is_linear(op: Op) -> bool:
    return op.kind is OpKind.LINEAR


def _is_named(layer: str, name: str) -> bool:
    end = SHORT_NAMES.get(layer, layer)
    return layer == ALL or name.endswith(f".{end}") or name == end or fnmatchcase(name, layer)


def _short_name(name: str) -> str:
    found = (short for short, end in SHORT_NAMES.items() if name.endswith(f".{end}"))
    return next(found, name.rpartition(".")[2] if not name.rpartition(".")[2].isdecimal() else name)


def _adapted(segment: Segment, tuning: Tuning) -> Segment:
    """Return a segment with adapters, the same for all its repetitions."""
    weights = {weight.name: weight for weight in segment.weights}
    shapes = {tensor.name: tensor for tensor in segment.tensors}
    added = {
        op.name: _Added(op, found, weights[op.weights[0]], shapes[op.outputs[0]])
        for op in segment.ops
        if _is_linear(op)
        and (found := adapters_beside(tuning, segment.name_of(op.name))) is not None
        and op.weights[0] in weights
        and not weights[op.weights[0]].frozen
    }
    return replace(
        segment,
        ops=tuple(_in_order(segment.ops, added)),
        tensors=(*segment.tensors, *(tensor for new in added.values() for tensor in new.tensors)),
        weights=(
            *(replace(weight, frozen=True) for weight in segment.weights),
            *(weight for new in added.values() for weight in new.weights),
        ),
    )


class _Added:
    """The ops, tensors and weights of an adapter."""

    def __init__(self, op: Op, adapters: Adapters, matrix: Weight, made: Tensor) -> None:
        outputs, inputs = matrix.matrix_shape
        rank, lead = adapters.rank, made.shape[:-1]
        names = [f"{op.name}.lora_{part}" for part in "AB"]
        module = matrix.name.removesuffix(".weight")
        # Kaiming's uniform distribution with a slope of sqrt(5), as PyTorch begins a linear layer.
        bound = 1 / math.sqrt(inputs)
        self.weights = (
            Weight(f"{module}.lora_A", (rank, inputs), Initializer("uniform", low=-bound, high=bound)),
            Weight(f"{module}.lora_B", (outputs, rank), Initializer("constant", mean=0.0)),
        )
        base, small, large = f"{op.name}.base", f"{names[0]}.y", f"{names[1]}.y"
        self.tensors: tuple[Tensor, ...] = (
            Tensor(base, made.shape),
            Tensor(small, (*lead, rank)),
            Tensor(large, made.shape),
        )
        self.base = replace(op, outputs=(base,))
        down = Op(OpKind.LINEAR, names[0], op.inputs, (small,), (self.weights[0].name,))
        scaled = f"{op.name}.lora_scale"
        factor = MappingProxyType({"factor": adapters.scale, "dropout": adapters.dropout})
        self.down: tuple[Op, ...] = (down,)
        if adapters.dropout:
            self.tensors += (Tensor(scaled, (*lead, inputs)),)
            self.down = (Op(OpKind.SCALE, scaled, op.inputs, (scaled,), (), factor), replace(down, inputs=(scaled,)))
        elif adapters.scale != 1.0:
            self.tensors += (Tensor(scaled, (*lead, rank)),)
            self.down = (down, Op(OpKind.SCALE, scaled, (small,), (scaled,), (), factor))
            small = scaled
        up = Op(OpKind.LINEAR, names[1], (small,), (large,), (self.weights[1].name,))
        attributes = MappingProxyType({"dropout": 0.0})
        total = Op(OpKind.RESIDUAL, f"{op.name}.lora", (large, base), op.outputs, (), attributes)
        self.up = (up, total)
        self.makes = op.outputs[0]


def _in_order(ops: Sequence[Op], added: dict[str, _Added]) -> Iterator[Op]:
    """Yield the ops, with the ops of adapters where kernels can take them along.

    A stands beside the layers with the same input; then ops that follow from other layers alone, in that kernel;
    then B, before the op that reads its sum.
    """
    index = 0
    while index < len(ops):
        op = ops[index]
        index += 1
        if op.name not in added:
            yield op
            continue
        run = [op]
        while index < len(ops) and _is_linear(ops[index]) and ops[index].inputs == op.inputs:
            run.append(ops[index])
            index += 1
        new = [added[each.name] for each in run if each.name in added]
        yield from (added[each.name].base if each.name in added else each for each in run)
        yield from (op for each in new for op in each.down)
        window = []
        while index < len(ops) and not rules_of(ops[index]).anchor and not rules_of(ops[index]).opens_kernel:
            window.append(ops[index])
            index += 1
        yield from _window(window, new)


def _window(ops: Sequence[Op], new: Sequence[_Added]) -> Iterator[Op]:
    waiting = {each.makes: each for each in new}
    after = set(waiting)
    later: list[Op] = []
    for op in ops:
        if after.isdisjoint(op.inputs):
            yield op
        else:
            later.append(op)
            after.update(op.outputs)
    for op in later:
        for name in op.inputs:
            if (each := waiting.pop(name, None)) is not None:
                yield from each.up
        yield op
    for each in waiting.values():
        yield from each.up
