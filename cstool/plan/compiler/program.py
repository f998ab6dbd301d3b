"""The program: a model while it is compiled. Every pass adds its results."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from types import MappingProxyType
from typing import Any, TypeVar, cast

from cstool.model.graphs.statistics import FLOAT32_BYTES
from cstool.model.ir import (
    Alternative,
    ExecutionMode,
    FusedKernel,
    Graph,
    MemoryXNeed,
    Op,
    PipelinedPlan,
    Recompute,
    Segment,
    StreamingPlan,
    Tensor,
    Weight,
    rules_of,
)
from cstool.model.optimizers import Optimizer, state_numbers, updates, whole_arrays
from cstool.model.system import System

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """Target and options of a compilation.

    Args:
        system: each CSX is one
        num_csx: number of systems
        batch_size: global; `num_csx` divides it
        micro_batch_size: at most so many samples; None to choose the largest that fits
        execution_mode: "auto", "pipelined" or "weight_streaming"
        operand_bits: of activations on the wafer, 16 or 32
        optimizer: its state and its costs count
        is_micro_batch_exact: whether fewer samples will not do
        waits_for_norm: whether updates need the norm of all gradients
        expert_imbalance: tokens of the busiest expert of each layer, as a multiple of the mean
        recompute: "needed" computes activations again only where nothing fits otherwise, "fastest" wherever that makes
            a step faster; "none" never does, "all" does so for every layer
    """

    system: System
    num_csx: int
    batch_size: int
    micro_batch_size: int | None
    execution_mode: str
    operand_bits: int
    optimizer: Optimizer
    recompute: str = "fastest"
    is_micro_batch_exact: bool = False
    waits_for_norm: bool = False
    expert_imbalance: float = 1.0

    @property
    def samples_per_csx(self) -> int:
        """Of a global batch."""
        return self.batch_size // self.num_csx

    @property
    def optimizer_states(self) -> int:
        """Arrays of the shape of the weight that the optimizer keeps beside each matrix."""
        return whole_arrays(self.optimizer)

    def considers(self, mode: str) -> bool:
        """Say whether a mode of execution is asked for, or may be chosen."""
        return self.execution_mode in ("auto", mode)


@dataclass(frozen=True)
class Life:
    """A span of time in which something takes memory, in the segment that makes it.

    Time counts the ops of the segment forward, 0 to n - 1, then backward, n to 2 n - 1.

    Args:
        name: of the tensor; deltas begin with "delta ", statistics with "statistics "
        width: elements of a token
        is_operand: in operands of the wafer, else 32 bits
        start: first moment
        stop: last moment
        place: deltas with the same place share its memory
        is_output: other segments read it
    """

    name: str
    width: int
    is_operand: bool
    start: int
    stop: int
    place: str
    is_output: bool = False


@dataclass(frozen=True)
class Misfit:
    """Why a model cannot run in a mode.

    Args:
        what: tensor or part that does not fit, with its shape
        rule: that it breaks: "must ..."
        got: its actual value
    """

    what: str
    rule: str
    got: str

    def __str__(self) -> str:
        return f"{self.what}: {self.rule}, got {self.got}"


class Kept:
    """Results of searches, each found once for all programs that differ in nothing but number of systems and mode."""

    def __init__(self) -> None:
        self._found: list[tuple[Graph, Any, Request, str, Any]] = []

    def once(self, program: "Program", what: str, make: Callable[[], T]) -> T:
        """Return the result of `make`, or its earlier result for a program like this one.

        Args:
            program: which it is for
            what: name of the result
            make: computes it
        """
        request = replace(program.request, num_csx=1, batch_size=program.request.samples_per_csx, execution_mode="auto")
        for graph, nonzeros, known, name, found in self._found:
            if name == what and graph is program.graph and nonzeros is program.nonzeros and known == request:
                return cast(T, found)
        made = make()
        self._found.append((program.graph, program.nonzeros, request, what, made))
        return made


@dataclass(frozen=True)
class Program:
    """A model on its way to an artifact.

    Args:
        graph: ops in the order of the stream
        request: target and options
        nonzeros: per segment, sparse weights by the names used there -> elements that are not zero, at most
        kernels: per segment, once fused
        lives: of activations and deltas, per segment, once planned
        recompute: per mode, once it is planned
        micro_batches: per mode, samples of a micro-batch
        step_cycles: per mode that fits, modelled, of one step of all systems
        streaming: the plan, if there is one
        pipelined: the plan, if there is one
        misfits: per mode, why there is no plan
        others: alternative plans, which other options would choose
        notes: per mode, the reasons for its plan, in words
        reasons: why the mode was chosen, and its notes
        mode: of execution, once chosen
        kept: results of searches
    """

    graph: Graph
    request: Request
    nonzeros: tuple[Mapping[str, int], ...] = ()
    kernels: tuple[tuple[FusedKernel, ...], ...] = ()
    lives: tuple[tuple[Life, ...], ...] = ()
    recompute: Mapping[ExecutionMode, Recompute] = field(default_factory=lambda: MappingProxyType({}))
    micro_batches: Mapping[ExecutionMode, int] = field(default_factory=lambda: MappingProxyType({}))
    step_cycles: Mapping[ExecutionMode, int] = field(default_factory=lambda: MappingProxyType({}))
    streaming: StreamingPlan | None = None
    pipelined: PipelinedPlan | None = None
    misfits: Mapping[ExecutionMode, Misfit] = field(default_factory=lambda: MappingProxyType({}))
    others: tuple[Alternative, ...] = ()
    notes: Mapping[ExecutionMode, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    reasons: tuple[str, ...] = ()
    mode: ExecutionMode | None = None
    kept: Kept = field(default_factory=Kept, compare=False, repr=False)

    @property
    def tokens(self) -> int:
        """Of a sample; 1 for models without a sequence."""
        return self.graph.tokens

    @property
    def zeros(self) -> int:
        """Weights that are zero and stay so, over all repetitions."""
        return sum(
            segment.count * (weight.size - found[weight.name])
            for segment, found in zip(self.graph.segments, self.nonzeros, strict=False)
            for weight in segment.weights
            if weight.name in found
        )

    def with_known(self, mode: ExecutionMode, **known: Any) -> "Program":
        """The program with further results of a mode: field -> its value for this mode."""
        changed: dict[str, Any] = {name: {**getattr(self, name), mode: value} for name, value in known.items()}
        return replace(self, **changed)


Pass = Callable[[Program], Program]
"""a step of the compiler, which returns the program with its results; `--print_after` calls it by its name"""


def width_per_token(tensor: Tensor, tokens: int) -> int:
    """Elements of a tensor for each of so many tokens of a sample, where it may have rows for fewer."""
    return -(-math.prod(tensor.shape) // tokens)


def segment_tensors(graph: Graph, segment: Segment) -> dict[str, Tensor]:
    """Return the tensors that the ops of a segment name, tensors of other segments under the names used in this one."""
    own = {tensor.name: tensor for tensor in (*graph.inputs, *segment.tensors)}
    read = [name for op in segment.ops for name in op.inputs]
    return own | {name: graph.tensors[segment.name_of(name)] for name in read if name not in own}


def segment_weights(graph: Graph, segment: Segment) -> dict[str, Weight]:
    """Return the weights that the ops of a segment name, tied ones of other segments included."""
    own = {weight.name: weight for weight in segment.weights}
    others = {weight.name: weight for other in graph.segments if other is not segment for weight in other.weights}
    return own | {name: others[name] for op in segment.ops for name in op.weights if name not in own}


def unbalanced(graph: Graph, busiest: float) -> Graph:
    """Return a graph with the work of a router that does not balance its experts.

    Args:
        busiest: tokens of the busiest expert of each layer, as a multiple of the mean; all others have as many as each
            other
    """
    if busiest == 1:
        return graph

    def changed(op: Op) -> Op:
        if not rules_of(op).matrix_per_expert:
            return op
        return replace(op, attributes=MappingProxyType({**op.attributes, "busiest": busiest}))

    segments = (replace(segment, ops=tuple(map(changed, segment.ops))) for segment in graph.segments)
    return replace(graph, segments=tuple(segments))


def shapes_of(graph: Graph, segment: Segment) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors (of one sample) and weights that a segment's ops name."""
    shapes = {name: tensor.shape for name, tensor in segment_tensors(graph, segment).items()}
    return shapes | {name: weight.shape for name, weight in segment_weights(graph, segment).items()}


def first_block(graph: Graph) -> int:
    """Number of the first segment that may run forward once more: the one after the first activations are made.

    Segments that run forward alone do not run again. Where these end within the layers, the next has their output
    to run again from.
    """
    frozen = frozen_segments(graph)
    if not frozen or frozen == len(graph.segments):
        return frozen + 1
    made = {name for segment in graph.segments[:frozen] for name in _outputs_of(segment)}
    reads = {graph.segments[frozen].name_of(name) for op in graph.segments[frozen].ops for name in op.inputs}
    return frozen + made.isdisjoint(reads)


def _outputs_of(segment: Segment) -> set[str]:
    return {segment.name_of(name, segment.count - 1) for op in segment.ops for name in op.outputs}


def frozen_segments(graph: Graph) -> int:
    """Number of segments at the beginning whose ops all run forward alone."""
    frozen = (all(segment.name_of(op.name) in graph.frozen_ops for op in segment.ops) for segment in graph.segments)
    return sum(1 for _ in takewhile(bool, frozen))


def outer_reads(graph: Graph) -> tuple[frozenset[str], ...]:
    """Return, per segment, the activations that others read: other segments, or the next repetition of this one."""
    readers: dict[str, set[tuple[int, int]]] = {}
    for number, segment in enumerate(graph.segments):
        for repetition in sorted({0, min(1, segment.count - 1), segment.count - 1}):
            for name in {name for op in segment.ops for name in op.inputs}:
                readers.setdefault(segment.name_of(name, repetition), set()).add((number, repetition))
    return tuple(
        frozenset(
            name
            for op in segment.ops
            for name in op.outputs
            if any(
                readers.get(segment.name_of(name, repetition), set()) - {(number, repetition)}
                for repetition in (0, segment.count - 1)
            )
        )
        for number, segment in enumerate(graph.segments)
    )


def op_of(segment: Segment, name: str) -> Op:
    """Return an op of a segment by name."""
    return next(op for op in segment.ops if op.name == name)


PLACE_BYTES = 4
"""size of the index of a non-zero"""


def memoryx_need(program: Program) -> MemoryXNeed:
    """Memory of a program's weights in MemoryX."""
    kept_bytes = FLOAT32_BYTES * (program.graph.parameter_count - program.zeros)
    memoryx, optimizer = program.request.system.memoryx, program.request.optimizer
    kept: Sequence[Mapping[str, int]] = program.nonzeros or ({},) * len(program.graph.segments)
    state = sum(
        segment.count * state_numbers(updates(optimizer, weight), weight.shape, found.get(weight.name))
        for segment, found in zip(program.graph.segments, kept, strict=True)
        for weight in segment.weights
    )
    trained = sum(
        segment.count * found.get(weight.name, weight.size)
        for segment, found in zip(program.graph.segments, kept, strict=True)
        for weight in segment.weights
        if not weight.frozen
    )
    nonzeros = sum(
        segment.count * sum(found.values()) for segment, found in zip(program.graph.segments, kept, strict=True)
    )
    return MemoryXNeed(
        weights_bytes=kept_bytes + PLACE_BYTES * nonzeros,
        optimizer_bytes=FLOAT32_BYTES * state,
        gradient_bytes=FLOAT32_BYTES * trained,
        capacity_bytes=None if memoryx is None else memoryx.capacity_bytes,
    )
