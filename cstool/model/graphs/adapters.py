"""Low-rank adapters: two small products beside a frozen one, as ops of the graph.

Beside y = x W^T come a = x A^T and b = a B^T, and y + b. The scale is on a, with dropout on x, where it is dropped. A
reads the input of W, so the wafer multiplies both at once, as it does query, key and value; B is a kernel of its own.
Names of weights are as in the vendor's release 2.10: `lora_A` and `lora_B` beside the layer's.

Of a table A is a table as well, (tokens, rank): the vendor's turned, so that its gradient has the rows of the tokens
alone. It begins with zeros, B with standard normal numbers, and nothing is dropped. Its weights have PEFT's names.

Output layer and loss are one op, which takes a and B, and adds their product to the logits. B is one panel.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import groupby
from types import MappingProxyType

from cstool.foundation.errors import ParamsError
from cstool.model.ir import Graph, Initializer, Op, OpKind, Segment, Tensor, Weight, rules_of
from cstool.model.params.sections.tuning import (
    EMBEDDING,
    EMBEDDING_WEIGHTS,
    HEAD,
    KINDS,
    LORA_WEIGHTS,
    Adapters,
    Tuning,
    is_of_adapter,
    is_of_head,
)

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


_HEADS = (OpKind.SOFTMAX_LOSS, OpKind.TOKEN_LOSS)


@dataclass(frozen=True)
class Site:
    """A place for an adapter.

    Args:
        name: of the op
        module: name of its weight without `.weight`; of a tied output layer its other name
        short: `embedding`, `head`, or empty for a linear layer inside
    """

    name: str
    module: str
    short: str = ""

    @property
    def ends(self) -> tuple[str, str]:
        """Ends of the names of A and B."""
        return EMBEDDING_WEIGHTS if self.short == EMBEDDING else LORA_WEIGHTS

    def is_named(self, layer: str) -> bool:
        """Say whether a choice of layers is of this one, its number written out."""
        if layer in KINDS:
            return self.short in KINDS[layer]
        end = SHORT_NAMES.get(layer, layer)
        names = (self.name, self.module)
        return any(name.endswith(f".{end}") or name == end or fnmatchcase(name, layer) for name in names)

    def adapters(self, tuning: Tuning) -> Adapters | None:
        """The adapters of this place: the first ones that name it."""
        found = (each for each in tuning.adapters if any(map(self.is_named, each.layers)))
        return next(found, None)


def site_of(op: Op, aliases: Mapping[str, str]) -> Site | None:
    """The place beside an op; None where it takes no adapter, as experts, norms and positions take none.

    Args:
        aliases: other names of the weights of the graph
    """
    short = {OpKind.LINEAR: "", OpKind.EMBEDDING: EMBEDDING, **dict.fromkeys(_HEADS, HEAD)}.get(op.kind)
    if short is None or any(name.endswith("position_ids") for name in op.inputs):
        return None
    weight = op.weights[0]
    if is_of_head(weight):
        # It is trained as a whole.
        return None
    if short == HEAD and f"{op.name}.weight" in aliases:
        weight = f"{op.name}.weight"
    return Site(op.name, weight.removesuffix(".weight"), short)


def sites_of(graph: Graph) -> dict[str, Site]:
    """The places for adapters by module; of a table that several ops read the first one counts."""
    found: dict[str, Site] = {}
    for op in graph.ops:
        if (site := site_of(op, graph.aliases)) is not None and not is_of_adapter(op.weights[0]):
            found.setdefault(site.module, site)
    return found


def adapter_scales(graph: Graph, tuning: Tuning) -> dict[str, float]:
    """The scale of each adapter of a graph, by module."""
    found: dict[str, float] = {}
    for module, site in sites_of(graph).items():
        if module + site.ends[0] in graph.weights:
            adapters = site.adapters(tuning)
            assert adapters is not None, "it has put the adapter there"
            found[module] = adapters.scale
    return found


def with_adapters(graph: Graph, tuning: Tuning) -> Graph:
    """Return a graph with adapters, and all weights frozen but theirs and those of a head that tells classes.

    A layer of inputs and outputs gets rank x (inputs + outputs) weights.

    Raises:
        ParamsError: a layer is none of the graph, or the rank is more than inputs or outputs of one
    """
    sites = dict(_trained_sites(graph))
    for layer in (layer for each in tuning.adapters for layer in each.layers):
        if not any(site.is_named(layer) for site in sites):
            known = ", ".join(dict.fromkeys(map(_short_name, sites))) or "none"
            rule = f"must name linear layers or tables of tokens of {graph.name}, got {layer}"
            raise ParamsError([(f"{tuning.where}: {rule}", f"they are {known}; or all")])
    for site, shape in sites.items():
        if (found := site.adapters(tuning)) is not None and found.rank > min(shape):
            rule = f"rank must be at most {min(shape):,}, the smaller side of {site.name}"
            raise ParamsError([(f"{tuning.where}: {rule}, got {found.rank:,}", None)])

    def at(segment: Segment, op: Op, repetition: int) -> Adapters | None:
        named = op.renamed(*(lambda name: segment.name_of(name, repetition),) * 3)
        site = site_of(named, graph.aliases)
        return site.adapters(tuning) if site in sites else None

    def beside(segment: Segment) -> Callable[[int], Hashable]:
        return lambda repetition: tuple(at(segment, op, repetition) for op in segment.ops)

    made: set[str] = set()
    segments = []
    for segment in split_segments(graph.segments, beside):
        asked = {op.name: found for op in segment.ops if (found := at(segment, op, 0)) is not None}
        segments.append(_adapted(graph, segment, asked, made))
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


def _trained_sites(graph: Graph) -> Iterator[tuple[Site, tuple[int, ...]]]:
    """Yield the places whose weight is trained, numbers written out, with the shape of the matrix."""
    for op in graph.ops:
        if (site := site_of(op, graph.aliases)) is not None and not graph.weights[op.weights[0]].frozen:
            yield site, graph.weights[op.weights[0]].shape


def _short_name(site: Site) -> str:
    name = site.name
    found = (short for short, end in SHORT_NAMES.items() if name.endswith(f".{end}"))
    if site.short:
        return site.short
    return next(found, name.rpartition(".")[2] if not name.rpartition(".")[2].isdecimal() else name)


def _adapted(graph: Graph, segment: Segment, asked: Mapping[str, Adapters], made: set[str]) -> Segment:
    """Return a segment with adapters, the same for all its repetitions.

    Args:
        graph: of the segment
        asked: adapters by the name of an op
        made: names of the weights of adapters that earlier segments have; its own are added
    """
    own = {weight.name: weight for weight in segment.weights}
    shapes = {tensor.name: tensor for tensor in segment.tensors}
    added: dict[str, _Added] = {}
    for op in segment.ops:
        if op.name in asked:
            site, first = site_of(op, graph.aliases), op.weights[0]
            assert site is not None
            shape = (own[first] if first in own else graph.weights[first]).matrix_shape
            added[op.name] = _Added(op, site, asked[op.name], shape, shapes[op.outputs[0]])
    weights = {segment.name_of(weight.name): weight for new in added.values() for weight in new.weights}
    weights = {name: weight for name, weight in weights.items() if name not in made}
    made.update(weights)
    return replace(
        segment,
        ops=tuple(_in_order(segment.ops, added)),
        tensors=(*segment.tensors, *(tensor for new in added.values() for tensor in new.tensors)),
        weights=(
            *(replace(weight, frozen=weight.frozen or not is_of_head(weight.name)) for weight in segment.weights),
            *weights.values(),
        ),
    )


def _initial(site: Site, rank: int, outputs: int, inputs: int) -> tuple[Weight, Weight]:
    """A and B of an adapter, as the vendor's and PEFT's begin."""
    a, b = (site.module + end for end in site.ends)
    zeros = Initializer("constant", mean=0.0)
    if site.short == EMBEDDING:
        # Of a table rows are what outputs are to a layer.
        return Weight(a, (outputs, rank), zeros), Weight(b, (inputs, rank), Initializer("normal", 0.0, 1.0))
    # Kaiming's uniform distribution with a slope of sqrt(5), as PyTorch begins a linear layer.
    bound = 1 / math.sqrt(inputs)
    first = Weight(a, (rank, inputs), Initializer("uniform", low=-bound, high=bound))
    return first, Weight(b, (outputs, rank), zeros, is_whole=site.short == HEAD)


class _Added:
    """The ops, tensors and weights of an adapter."""

    def __init__(self, op: Op, site: Site, adapters: Adapters, shape: tuple[int, int], made: Tensor) -> None:
        outputs, inputs = shape
        is_head, dropout = site.short == HEAD, 0.0 if site.short == EMBEDDING else adapters.dropout
        rank, lead = adapters.rank, made.shape if is_head else made.shape[:-1]
        names = [f"{op.name}.lora_{part}" for part in "AB"]
        self.weights = _initial(site, rank, outputs, inputs)
        base, small, large = f"{op.name}.base", f"{names[0]}.y", f"{names[1]}.y"
        self.tensors: tuple[Tensor, ...] = (
            Tensor(base, made.shape),
            Tensor(small, (*lead, rank)),
            Tensor(large, made.shape),
        )
        self.base = replace(op, outputs=(base,))
        read = op.inputs[:1]
        down = Op(OpKind.LINEAR, names[0], read, (small,), (self.weights[0].name,))
        if site.short == EMBEDDING:
            down = replace(down, kind=OpKind.EMBEDDING, attributes=op.attributes)
        scaled = f"{op.name}.lora_scale"
        factor = MappingProxyType({"factor": adapters.scale, "dropout": dropout})
        self.down: tuple[Op, ...] = (down,)
        if dropout:
            self.tensors += (Tensor(scaled, (*lead, inputs)),)
            self.down = (Op(OpKind.SCALE, scaled, read, (scaled,), (), factor), replace(down, inputs=(scaled,)))
        elif adapters.scale != 1.0:
            self.tensors += (Tensor(scaled, (*lead, rank)),)
            self.down = (down, Op(OpKind.SCALE, scaled, (small,), (scaled,), (), factor))
            small = scaled
        up = Op(OpKind.LINEAR, names[1], (small,), (large,), (self.weights[1].name,))
        attributes = MappingProxyType({"dropout": 0.0})
        total = Op(OpKind.RESIDUAL, f"{op.name}.lora", (large, base), op.outputs, (), attributes)
        self.up: tuple[Op, ...] = (up, total)
        self.makes = op.outputs[0]
        if is_head:
            inputs_of, weights_of = (*op.inputs, small), (*op.weights, self.weights[1].name)
            ranked = MappingProxyType({**op.attributes, "low_rank": rank})
            self.tensors = tuple(tensor for tensor in self.tensors if tensor.name not in (base, large))
            self.up = (replace(op, inputs=inputs_of, weights=weights_of, attributes=ranked),)


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
        if op.kind is not OpKind.LINEAR:
            beside = added[op.name]
            yield from (() if op.kind in _HEADS else (beside.base,))
            yield from (*beside.down, *beside.up)
            continue
        while index < len(ops) and ops[index].kind is OpKind.LINEAR and ops[index].inputs == op.inputs:
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
