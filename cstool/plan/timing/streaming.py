"""Weight streaming: a kernel on the whole wafer, its weights passing through.

Activations stay: a PE has t tokens (rows of the wafer are tokens) of i = ceil(inputs / columns) hidden elements.
Weights come one row of W after the other, one row for each output; column x gets the i weights of its hidden
elements, and all PEs of the column see them. For each output,

- forward, each weight is multiplied with the PE's tokens: i AXPYs of length t into t accumulators. These are partial
  sums over the columns: t elements pass along the row, each PE adds its own.
- delta: the row's t deltas of the output are broadcast, each weight that arrives times these is added to the delta of
  the input: i AXPYs of length t, no sums between PEs.
- gradient: the same t deltas times the i x t inputs, i dot products of length t; the sums over all rows pass down the
  column, i elements, then along the groups of columns, and leave the wafer. No weights are needed.

The loss keeps no logits: for each output its delta begins with the forward product again, of the same row of W.

Weights come in, and gradients leave, at the rate of the links off the wafer. Of a sparse W only the non-zeros come,
each with its place, or all of it where that is less; each non-zero is one AXPY, and of its gradient only they leave
(`busiest_axpys`).

Sums and deltas begin in other banks than the activations that they are made of, so an AXPY of 32 bits reads both in a
cycle: programs in CSL lay them out so (docs/csl/fabric_models.md).

Of experts all weights come, and each is multiplied with the tokens of a PE that chose its expert: as many on each PE
and with each expert, as if the router balanced them; of sparse experts each has as many non-zeros as another. Where one
is busier than the others, its products hold up the weights behind it, and the weights of the others come no sooner: the
experts follow one another, and each takes the largest of its own limits. That is this project's reading.

Norms and softmax sum over each token: along the row and back.

Source: Lie, "Multi-Million Core, Multi-Wafer AI Cluster" (2021): activations resident across the fabric, weights
streamed and never stored, partial sums accumulated across the wafer, gradients streamed out. The axes of the layout,
and the order within a row of W, are this project's reading; the vendor has published no more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cstool.model.ir import Layout, Lookup, MatMul, OpWork, Pairs, RowSums, VectorOps
from cstool.model.system import System
from cstool.plan.timing.collectives import READ_CYCLES, allreduce_cycles, chain_cycles, reduce_cycles
from cstool.plan.timing.pe import Pe, ceil_div, maximum, minimum
from cstool.plan.timing.phases import Limits, Phases
from cstool.plan.timing.region import query_cycles

LEAST_OUTPUTS = 2
"""accumulators per token that a PE has: one at work, one whose partial sum is passed on"""


@dataclass(frozen=True, eq=False)
class Layouts:
    """Many layouts at once, samples whole: the fields of `Layout`, in arrays of integers that broadcast."""

    groups: Any
    columns: Any
    rows: Any
    tokens_per_pe: Any

    @property
    def fields(self) -> tuple[Any, Any, Any, Any]:
        """In the order of the fields of `Layout`."""
        return self.groups, self.columns, self.rows, self.tokens_per_pe

    @property
    def part(self) -> "Layouts":
        """See `Layout.part`."""
        return self

    def some(self, numbers: Any) -> "Layouts":
        """Return some of them, in arrays of one dimension, by their numbers in the order of rows."""
        return Layouts(*(field.ravel()[numbers] for field in np.broadcast_arrays(*self.fields)))

    def distinct(self) -> "Layouts":
        """Return each once, in the order in which they come first; of one dimension."""
        _, first = np.unique(np.stack(self.fields), axis=1, return_index=True)
        return self.some(np.sort(first))

    @property
    def first(self) -> Layout:
        """The first of them; of one dimension."""
        return Layout(*(int(field[0]) for field in self.fields))


@dataclass(frozen=True)
class Stream:
    """Sizes of elements that pass the edge of a wafer [bytes].

    Args:
        weight_bytes: of a weight of a dense matrix or table, per pass
        nonzero_bytes: of a weight of a sparse matrix, with its place
        gradient_bytes: of a gradient
    """

    weight_bytes: int
    nonzero_bytes: int
    gradient_bytes: int

    def matrix_bytes(self, item: MatMul) -> int:
        """Size of the weights of a product on their way in [bytes]: whole where zeros are fewer than places would take.

        PEs leave out zeros that come.

        >>> stream = Stream(weight_bytes=2, nonzero_bytes=4, gradient_bytes=4)
        >>> [stream.matrix_bytes(MatMul(5, inputs=8, outputs=12, nonzeros=n)) for n in (None, 95, 48, 40)]
        [192, 192, 192, 160]
        """
        whole = item.inputs * item.outputs * self.weight_bytes
        return whole if item.nonzeros is None else min(whole, item.nonzeros * self.nonzero_bytes)


def stream_of(system: System, operand_bits: int) -> Stream:
    """Stream over the edge of a wafer: weights as operands, non-zeros with an index each.

    >>> from cstool.model.system import load_system
    >>> stream_of(load_system("cs2"), 16)
    Stream(weight_bytes=2, nonzero_bytes=4, gradient_bytes=4)

    Raises:
        ValueError: the system has no MemoryX
    """
    if system.memoryx is None:
        raise ValueError(f"{system.name} has no MemoryX")
    operand = operand_bits // 8
    return Stream(operand, operand + system.memoryx.index_bytes, system.memoryx.gradient_bytes)


def streamed_phases(
    pe: Pe,
    work: Sequence[OpWork],
    layout: Layout | Layouts,
    samples: int,
    stream: Stream,
    *,
    needs_delta: bool = True,
    outputs_in_flight: Any = LEAST_OUTPUTS,
    tokens: int | None = None,
) -> Phases:
    """Return the limits of a kernel for one micro-batch.

    Args:
        layout: of the activations of the micro-batch, or many; limits are arrays then
        stream: sizes of weights on their way in, of gradients on their way out
        needs_delta: whether a kernel before this one wants its delta; if not, products need none
        outputs_in_flight: accumulators per token; by so many rows of a sparse W may columns be apart
        tokens: of a sample, that are laid out; a kernel may work on fewer of them, which are spread as evenly

    Example: 4 tokens on each PE, 8 inputs over 2 columns, 12 outputs. For each output 4 AXPYs of 4 elements at 1 + 1
    cycles, and 4 partial sums.

    >>> from cstool.model.system import load_system
    >>> work, layout = [MatMul(tokens=5, inputs=8, outputs=12)], Layout(groups=1, columns=2, rows=3, tokens_per_pe=4)
    >>> streamed_phases(Pe(load_system("cs2"), 16), work, layout, 2, Stream(2, 2, 4)).forward.compute
    144
    """
    phases, whole = Phases(pe.efficiency), layout
    products = _Products(pe, stream, outputs_in_flight, needs_delta)
    for item in work:
        layout = _part_of(whole, item, tokens)
        match item:
            case MatMul():
                products.add(phases, item, layout)
            case Pairs():
                t, (forward, delta) = layout.tokens_per_pe, query_cycles(pe, item, layout.columns)
                # Keys and values of the samples of a group pass by all its rows.
                kv = pe.wavelets(2 * ceil_div(item.kv_width, layout.columns))
                passing = item.key_tokens * ceil_div(samples, layout.groups) * kv
                phases.forward.add(compute=t * forward, link=passing)
                phases.delta.add(compute=t * delta, link=2 * passing)
            case Lookup():
                # All rows pass by, a PE takes the rows that its tokens ask for; of gradients, only these rows leave.
                i = ceil_div(item.width, layout.columns)
                sent = min(item.rows, item.tokens * samples)
                into = edge_cycles(pe, item.rows * item.width * stream.weight_bytes)
                out = edge_cycles(pe, sent * item.width * stream.gradient_bytes)
                phases.forward.add(link=item.rows * i, ingress=into)
                if not item.is_frozen:
                    phases.gradient.add(link=sent * i, egress=out)
            case VectorOps():
                elements = layout.tokens_per_pe * ceil_div(item.width, layout.columns)
                phases.forward.add(compute=pe.vector_cycles(elements, item.forward))
                phases.delta.add(compute=pe.vector_cycles(elements, item.backward))
            case RowSums():
                _add_row_sums(phases, pe, item, layout)
    return phases


def _part_of(layout: Layout | Layouts, item: OpWork, tokens: int | None) -> Layout | Layouts:
    """Return the layout of an op's tokens, where these are fewer than the tokens of a sample."""
    own = (item.all_tokens if isinstance(item, MatMul) else None) or item.tokens
    if tokens is None or own >= tokens:
        return layout
    return replace(layout, tokens_per_pe=ceil_div(layout.tokens_per_pe * own, tokens))


def busiest_axpys(item: MatMul, columns: Any, outputs_in_flight: Any) -> Any:
    """Number of weights that the column of PEs with most of them gets, over all outputs.

    Of a dense W that is outputs x ceil(inputs / columns). The non-zeros of a sparse one, at density d, are where they
    are: of n elements that are a column's, a binomial number with mean n d and variance n d (1 - d) is not zero, and
    the largest of c such numbers is about n d + sqrt(2 ln(c) n d (1 - d)), a few per cent too large for the c that
    wafers have. Columns may be apart by the outputs that a PE has accumulators for, so n is that many times the
    column's inputs. Columns without inputs do not count.

    Source: the largest of c normal numbers, for instance Cramer, Mathematical Methods of Statistics (1946), 28.6.

    Example: 64 outputs in flight x 20 inputs are 1,280 elements, of which 128 are not zero on average and 166 in the
    busiest of 750 columns; 12,000 outputs are 187.5 times that.

    >>> dense = MatMul(tokens=1, inputs=15_000, outputs=12_000)
    >>> busiest_axpys(dense, 750, 64)
    240000
    >>> busiest_axpys(MatMul(1, 15_000, 12_000, nonzeros=18_000_000), 750, 64)
    31323
    """
    of_output = ceil_div(item.inputs, columns)
    dense = item.outputs * of_output
    if item.nonzeros is None:
        return dense
    density = item.nonzeros / (item.inputs * item.outputs)
    apart = minimum(outputs_in_flight, item.outputs)
    elements = apart * of_output
    # Of all outputs together, so that integers which divide give one.
    mean = item.nonzeros * of_output / item.inputs
    busy = ceil_div(item.inputs, of_output)
    spread = (2 * _logarithm(busy) * elements * density * (1 - density)) ** 0.5
    return minimum(dense, _ceil(mean + item.outputs / apart * spread))


def hop_latency_cycles(pe: Pe, layout: Layout | Layouts) -> Any:
    """Return the cycles until a phase of a kernel runs on the farthest PE: it is called, and hears past all groups.

    Sums over PEs take longer than their elements; this is latency, too, and each op adds its own.

    >>> from cstool.model.system import load_system
    >>> hop_latency_cycles(Pe(load_system("cs2"), 16), Layout(groups=2, columns=3, rows=5, tokens_per_pe=1))
    55
    """
    links = pe.system.links
    hops = (layout.groups * layout.columns + layout.rows) * links.hop_cycles
    return pe.system.pe.call_cycles + hops + 2 * links.ramp_cycles + READ_CYCLES


def _sum_latency(pe: Pe, pes: Any, elements: Any) -> Any:
    """Return the cycles that sums over a line of PEs take beside the cycles of their elements, the cheapest way."""
    return maximum(0, reduce_cycles(pe.system.links, pes, elements) - elements) * ((pes > 1) & (elements > 0))


def edge_cycles(pe: Pe, count_bytes: int) -> int:
    """Return the cycles, of the PEs' clock, in which so many bytes cross the edge of the wafer one way.

    Example: 150 GB/s at 0.85 GHz are 176 bytes per cycle, so 1 MB takes 5,667.

    >>> from cstool.model.system import load_system
    >>> edge_cycles(Pe(load_system("cs2"), 16), 1_000_000)
    5667
    """
    return int(ceil_div(count_bytes * int(pe.system.clock_hz), int(pe.system.io_bytes_per_s)))


@dataclass(frozen=True)
class _Products:
    """Adds the products of a kernel with its weights to its limits; fields are arguments of `streamed_phases`."""

    pe: Pe
    stream: Stream
    outputs_in_flight: Any
    needs_delta: bool

    def add(self, phases: Phases, item: MatMul, layout: Layout | Layouts) -> None:
        """Add a product over a layout."""
        if item.all_tokens is not None:
            self._add_experts(phases, item, layout)
            return
        pe, stream, needs_delta, t = self.pe, self.stream, self.needs_delta, layout.tokens_per_pe
        arriving = busiest_axpys(item, layout.columns, self.outputs_in_flight)
        products = arriving * pe.axpy_cycles(t, is_apart=True)
        edge = edge_cycles(pe, stream.matrix_bytes(item))
        partial = item.outputs * t * (layout.columns > 1)
        compute = products + item.outputs * pe.partial_sum_cycles(t, layout.columns)
        latency = _sum_latency(pe, layout.columns, item.outputs * t)
        phases.forward.add(compute=compute, link=maximum(partial, arriving), ingress=edge, latency=latency)
        deltas = item.outputs * pe.wavelets(t)
        if needs_delta:
            in_place = arriving * pe.axpy_in_place_cycles(t)
            phases.delta.add(compute=in_place, link=maximum(deltas, arriving), ingress=edge)
        if item.is_repeated:
            # The row of W that arrives for the delta serves both products; its weights pass along the column once.
            phases.delta.add(compute=compute, link=partial, latency=latency)
            if not needs_delta:
                phases.delta.add(link=arriving, ingress=edge)
        part = item.trained_part
        if part is None:
            return
        # No column waits for another here: they are apart by all outputs. Frozen rows of W have no gradient.
        leaving, deltas = busiest_axpys(part, layout.columns, part.outputs), part.outputs * pe.wavelets(t)
        sums = pe.partial_sum_cycles(leaving, layout.rows) + pe.partial_sum_cycles(leaving, layout.groups)
        out = edge_cycles(pe, part.weights * stream.gradient_bytes)
        # The groups' sums are as far apart as a group is wide.
        beyond = chain_cycles(pe.system.links, layout.groups, leaving, apart=layout.columns) - leaving
        latency = _sum_latency(pe, layout.rows, leaving) + maximum(0, beyond)
        compute = leaving * pe.axpy_cycles(t, is_apart=True) + sums
        phases.gradient.add(compute=compute, link=maximum(leaving, deltas), egress=out, latency=latency)

    def _add_experts(self, phases: Phases, item: MatMul, layout: Layout | Layouts) -> None:
        """Add the products of experts, alike experts together; waiting for one another is latency."""
        assert item.all_tokens is not None
        groups = []
        for experts, share in item.shares:
            # A PE multiplies a weight with the tokens that chose the expert.
            t = _ceil(layout.tokens_per_pe * item.tokens * share / item.all_tokens)
            nonzeros = None if item.nonzeros is None else int(ceil_div(item.nonzeros * experts, item.experts))
            trained = None if item.trained is None else item.trained * experts // item.experts
            kept = (
                None if item.trained_nonzeros is None else int(ceil_div(item.trained_nonzeros * experts, item.experts))
            )
            outputs = item.outputs // item.experts * experts
            part = replace(
                item, outputs=outputs, nonzeros=nonzeros, all_tokens=None, trained=trained, trained_nonzeros=kept
            )
            alone = Phases(self.pe.efficiency)
            self.add(alone, part, replace(layout, tokens_per_pe=t))
            groups.append(alone)
        for index, limits in enumerate(phases.all):
            alike = [alone.all[index] for alone in groups]
            together = Limits(self.pe.efficiency)
            for each in alike:
                together.add(each.compute, each.link, each.ingress, each.egress, each.latency)
            waiting = sum(each.cycles for each in alike) - together.cycles if len(alike) > 1 else 0
            limits.add(together.compute, together.link, together.ingress, together.egress, together.latency + waiting)


def _logarithm(numbers: Any) -> Any:
    """Return natural logarithms, of arrays equal to the last bit to the logarithms of their elements."""
    if not isinstance(numbers, np.ndarray):
        return math.log(numbers)
    distinct, places = np.unique(numbers, return_inverse=True)
    return np.array([math.log(each) for each in distinct.tolist()])[places].reshape(numbers.shape)


def _ceil(values: Any) -> Any:
    return np.ceil(values).astype(np.int64) if isinstance(values, np.ndarray) else math.ceil(values)


def _add_row_sums(phases: Phases, pe: Pe, item: RowSums, layout: Layout | Layouts) -> None:
    """Each PE adds its own as they pass; the totals come back. The next op waits for the way there and back."""
    is_shared = layout.columns > 1
    for limits, values in ((phases.forward, item.forward), (phases.delta, item.backward)):
        elements = values * layout.tokens_per_pe
        compute = pe.partial_sum_cycles(elements, layout.columns)
        there_and_back = allreduce_cycles(pe.system.links, layout.columns, elements)
        latency = maximum(0, there_and_back - 2 * elements) * (elements > 0)
        limits.add(compute=compute, link=2 * elements * is_shared, latency=latency)
