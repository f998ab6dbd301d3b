"""Tensor, Weight, Op, Segment, Graph: frozen data that looks things up; and the panels that a weight travels in."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, TypeVar

from cstool.model.ir._op_kinds import OpKind, rules_of
from cstool.model.ir._op_shapes import texts_of
from cstool.model.ir._plain_data import IF_UNUSUAL

_IF_UNUSUAL = {IF_UNUSUAL: True}
Renaming = Callable[[str], str]
"""from a name to another"""


@dataclass(frozen=True)
class Tensor:
    """An activation or an input.

    Args:
        name: as ops read and produce it
        shape: of one sample: its tokens, then the dimensions of each, for example (S, H), or (1,) for a number a sample
        dtype: of its elements on the host
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def tokens(self) -> int:
        """Rows of one sample."""
        return self.shape[0]


SCORES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "micro_f1": ("f1_score",),
        "macro_f1": ("f1_score",),
        "halves": ("accuracy_matched", "accuracy_mismatched"),
        "rouge": ("rouge1", "rouge2"),
    }
)
"""kind of score in evaluations -> names of its metrics: the F1 score of classes, all as one, or the mean of each; the
accuracy of either half of the data; the F1 score of words, and of pairs of words, in chosen sentences"""


@dataclass(frozen=True)
class Loss:
    """A number that training makes smaller: a sum over a batch, divided by a count.

    Args:
        name: of the tensor that has its terms, one for each token or sample
        scaling: the divisor of the sum: "num_tokens", the terms that count, or "batch_size", the samples
        weight: factor of its share of the whole loss
        accuracy: name, in evaluations, of the share of correct predictions; None where none are counted
        perplexity: name, in evaluations, of the exponential of the mean; None where that is of no use
        evaluates: whether it counts in evaluations, too
        extras: names, in evaluations, of the other means that it computes
        scores: kind of scores, computed from counts over all of an evaluation's data: "micro_f1" or "macro_f1", of
            classes, "halves", of either half of the data, or "rouge", of chosen sentences; None for no scores
    """

    name: str
    scaling: str = "num_tokens"
    weight: float = 1.0
    accuracy: str | None = "accuracy"
    perplexity: str | None = None
    evaluates: bool = True
    extras: tuple[str, ...] = field(default=(), metadata=_IF_UNUSUAL)
    scores: str | None = field(default=None, metadata=_IF_UNUSUAL)

    @property
    def score_names(self) -> tuple[str, ...]:
        """Names, in evaluations, of its scores."""
        return () if self.scores is None else SCORES[self.scores]

    @property
    def told(self) -> tuple[str, ...]:
        """Names, in evaluations, of its metrics beside mean, accuracy and perplexity: other means, and scores."""
        return (*self.extras, *self.score_names)

    def scale(self, tokens: int, samples: int) -> float:
        """Factor on each term in a batch with so many terms that count, and so many samples."""
        return self.weight / max(1, tokens if self.scaling == "num_tokens" else samples)


@dataclass(frozen=True)
class Initializer:
    """How a weight begins.

    Args:
        name: `constant` (mean), `normal`, `truncated_normal` (low, high) or `uniform` (low, high)
        mean: of the distribution, or the constant
        std: standard deviation
        low: least value; "-inf" where there is none
        high: largest value; "inf" where there is none
    """

    name: str
    mean: float = 0.0
    std: float = 0.0
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True)
class Weight:
    """A tensor that MemoryX owns.

    Args:
        name: as checkpoints have it
        shape: matrices are (out, in)
        initializer: distribution of its first values
        decays: whether weight decay applies (not to biases and norms)
        frozen: whether it stays as it begins: it streams forward alone, and has no gradient and no optimizer state
        begins_as: another weight, with the same numbers as which it begins
        is_whole: whether it is one panel, whatever its size
    """

    name: str
    shape: tuple[int, ...]
    initializer: Initializer
    decays: bool = True
    frozen: bool = field(default=False, metadata=_IF_UNUSUAL)
    begins_as: str | None = field(default=None, metadata=_IF_UNUSUAL)
    is_whole: bool = field(default=False, metadata=_IF_UNUSUAL)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """(rows, columns), everything but the first dimension as one."""
        return self.shape[0], self.size // self.shape[0]


@dataclass(frozen=True)
class Op:
    """One kernel call per grain (and panel).

    Args:
        kind: its kind of computation
        name: key of its random numbers
        inputs: names of tensors
        outputs: names of tensors
        weights: names; the first, when it is a matrix, is streamed by panels; the others are vectors, one panel each
        attributes: of its kind, by name: numbers, strings, lists of them
    """

    kind: OpKind
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def renamed(self, named: Renaming, tensor: Renaming, weight: Renaming) -> "Op":
        """Return it under another name, with other names of its tensors and weights."""
        return replace(
            self,
            name=named(self.name),
            inputs=tuple(map(tensor, self.inputs)),
            outputs=tuple(map(tensor, self.outputs)),
            weights=tuple(map(weight, self.weights)),
        )


@dataclass(frozen=True)
class Segment:
    """A run of ops, `count` times.

    In names, `{n}` is the number of the repetition: `first`, then every `stride`-th. `{n+1}` and `{n+2}` follow it.

    Args:
        ops: of one repetition, in execution order
        tensors: that its ops produce
        weights: that its ops are the first to use
        count: repetitions
        first: number of the first repetition
        stride: from one repetition's number to the next
    """

    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    weights: tuple[Weight, ...] = ()
    count: int = 1
    first: int = 0
    stride: int = 1

    @property
    def numbers(self) -> range:
        """The numbers that `{n}` stands for."""
        return range(self.first, self.first + self.count * self.stride, self.stride)

    def name_of(self, name: str, repetition: int = 0) -> str:
        """Return a name of this segment with the number of a repetition, counted from 0, written out."""
        return _numbered(name, self.first + repetition * self.stride)


_Named = TypeVar("_Named", Tensor, Weight)


def _numbered(name: str, n: int) -> str:
    if "{n+" in name:
        name = name.replace("{n+2}", str(n + 2)).replace("{n+1}", str(n + 1))
    return name.replace("{n}", str(n))


@dataclass(frozen=True)
class Barrier:
    """Where all samples of a global batch meet: nothing beyond it begins before all of them have come this far.

    Tensors that cross it are gathered over the batch, rows by number of the sample; deltas go back the same way.

    Args:
        before: the part that each grain computes by itself; it has no loss
        beyond: the part that reads the samples of the whole batch at once; its inputs cross; it has no weights
    """

    before: "Graph"
    beyond: "Graph"

    @property
    def gathered(self) -> tuple[Tensor, ...]:
        """Tensors that cross it, in the shape of one sample."""
        return self.beyond.inputs


@dataclass(frozen=True)
class Graph:
    """A model as a DAG of ops in execution order; repeated blocks are written once.

    Args:
        name: of the model family
        inputs: tensors that input workers deliver, in the shape of one sample
        segments: in execution order
        losses: minimised by training, together, in execution order; evaluations count the tokens of the first
        aliases: other names under which a checkpoint has a weight, too -> the weight
    """

    name: str
    inputs: tuple[Tensor, ...]
    segments: tuple[Segment, ...]
    losses: tuple[Loss, ...]
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """All ops, repetitions written out."""
        found: list[Op] = []
        for segment in self.segments:
            for n in segment.numbers:
                written_out = partial(_numbered, n=n)
                found += [op.renamed(written_out, written_out, written_out) for op in segment.ops]
        return tuple(found)

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """All tensors by name, inputs first."""
        inputs = {tensor.name: tensor for tensor in self.inputs}
        return MappingProxyType(inputs | self._written_out(lambda segment: segment.tensors))

    @cached_property
    def weights(self) -> Mapping[str, Weight]:
        """All weights by name, in the order of first use."""
        found = self._written_out(lambda segment: segment.weights)
        numbers = {
            segment.name_of(weight.name, repetition): segment.name_of(weight.begins_as, repetition)
            for segment in self.segments
            for weight in segment.weights
            if weight.begins_as is not None
            for repetition in range(segment.count)
        }
        return MappingProxyType(found | {name: replace(found[name], begins_as=of) for name, of in numbers.items()})

    def _written_out(self, things_of: Callable[[Segment], tuple[_Named, ...]]) -> dict[str, _Named]:
        return {
            (name := _numbered(thing.name, n)): replace(thing, name=name)
            for segment in self.segments
            for n in segment.numbers
            for thing in things_of(segment)
        }

    @cached_property
    def frozen_ops(self) -> frozenset[str]:
        """Names of the ops that run forward alone: nothing that is trained is in them or lies before them.

        They have frozen weights, or only outputs of such ops as inputs. Their outputs need no delta. An op with frozen
        weights after one that is trained is not among them: the delta goes through it.
        """
        if not any(weight.frozen for segment in self.segments for weight in segment.weights):
            return frozenset()  # layers that are alike are not written out for that
        frozen: set[str] = set()
        made: set[str] = set()
        inputs = {tensor.name for tensor in self.inputs}
        for op in self.ops:
            own = [self.weights[name].frozen for name in op.weights]
            begins = bool(own) or not made.isdisjoint(op.inputs)
            if begins and all(own) and all(name in made or name in inputs for name in op.inputs):
                frozen.add(op.name)
                made.update(op.outputs)
        return frozenset(frozen)

    @cached_property
    def frozen_tensors(self) -> frozenset[str]:
        """Names of the outputs of ops that run forward alone."""
        frozen = self.frozen_ops
        return frozenset(output for op in self.ops if op.name in frozen for output in op.outputs) if frozen else frozen

    @cached_property
    def read_behind(self) -> frozenset[str]:
        """Names of the inputs of ops that run backward, too."""
        return frozenset(name for op in self.ops if op.name not in self.frozen_ops for name in op.inputs)

    @cached_property
    def trained_weights(self) -> Mapping[str, Weight]:
        """The weights that are not frozen, by name."""
        return MappingProxyType({name: weight for name, weight in self.weights.items() if not weight.frozen})

    @cached_property
    def texts(self) -> int:
        """Number of texts of one length in a sample, which do not see each other."""
        return max(texts_of(op) for segment in self.segments for op in segment.ops)

    @cached_property
    def barrier(self) -> Barrier | None:
        """Where the samples of a batch must meet before it goes on; None where none needs another."""
        beyond = [any(rules_of(op).over_batch for op in segment.ops) for segment in self.segments]
        if not any(beyond):
            return None
        first = beyond.index(True)
        before, after = self.segments[:first], self.segments[first:]
        made = {name for segment in after for op in segment.ops for name in op.outputs}
        read = dict.fromkeys(name for segment in after for op in segment.ops for name in op.inputs)
        crossing = tuple(self.tensors[name] for name in read if name not in made)
        return Barrier(replace(self, segments=before, losses=()), Graph(self.name, crossing, after, self.losses))

    @property
    def sequence_length(self) -> int | None:
        """Tokens of a sample, whose ids are the first input; None where a sample is not a sequence of ids."""
        shape = self.inputs[0].shape
        return shape[0] if len(shape) == 1 else None

    @cached_property
    def tokens(self) -> int:
        """Most rows that any tensor of a sample has: its tokens, patches, or 1."""
        return max(tensor.tokens for segment in self.segments for tensor in segment.tensors)

    @property
    def parameter_count(self) -> int:
        return sum(weight.size * segment.count for segment in self.segments for weight in segment.weights)

    @property
    def trained_count(self) -> int:
        """Parameters that are not frozen."""
        return sum(
            weight.size * segment.count for segment in self.segments for weight in segment.weights if not weight.frozen
        )


PANEL_BYTES = 32 * 2**20
"""largest panel [bytes]; most tensors are one panel"""
HALVED_BYTES = 8 * 2**20
"""a matrix that is larger is two panels at least, so that one can travel while the other computes [bytes]"""

_FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Panel:
    """Rows `start` to `stop` of a weight; `shape` is the panel's."""

    weight: str
    index: int
    start: int
    stop: int
    shape: tuple[int, ...]

    def __hash__(self) -> int:
        # Panels are looked up all through a step; these two tell those of a model apart.
        return hash((self.weight, self.index))

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def panels_of(weight: Weight) -> tuple[Panel, ...]:
    """Cut a weight into its panels: as few as fit, of nearly equal numbers of rows. A vector is one panel."""
    rows = weight.shape[0]
    if len(weight.shape) == 1 or weight.is_whole:
        return (Panel(weight.name, 0, 0, rows, weight.shape),)
    row_bytes = weight.size // rows * _FLOAT32_BYTES
    most_rows = max(1, PANEL_BYTES // row_bytes)
    halved = min(rows, 2 if rows * row_bytes > HALVED_BYTES else 1)
    count = max(-(-rows // most_rows), halved)
    edges = [rows * i // count for i in range(count + 1)]
    return tuple(
        Panel(weight.name, i, start, stop, (stop - start, *weight.shape[1:]))
        for i, (start, stop) in enumerate(zip(edges, edges[1:], strict=False))
    )


def panel_sizes(weights: Iterable[Weight]) -> set[int]:
    """Return the sizes of the panels of weights, each once. Of large models most weights have the same few shapes."""
    by_shape = {(weight.shape, weight.is_whole): weight for weight in weights}
    return {panel.size for weight in by_shape.values() for panel in panels_of(weight)}
