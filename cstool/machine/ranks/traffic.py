"""What a training step sends between ranks, counted before it runs: weights away from MemoryX, gradients back."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from cstool.ir import Graph, Panel, rules_of
from cstool.kernels.sparse import pattern_bytes
from cstool.machine.layout import Layout
from cstool.machine.memoryx import MemoryX
from cstool.machine.plan import PlannedOp
from cstool.machine.swarmx import Node, leaving_nodes
from cstool.perf.ranks import Traffic


class PanelBytes(NamedTuple):
    """A panel on the wire [bytes]."""

    weights: int
    """once it is sent"""
    gradient: int
    """of one sum, where all its rows have one"""


def planned_bytes(densities: Mapping[str, float]) -> Callable[[Panel], PanelBytes]:
    """Sizes of panels as they will be: numbers of 4 bytes, and of sparse ones the pattern.

    Args:
        densities: sparse weight -> share of its non-zeros, which are taken to lie evenly
    """

    def size_of(panel: Panel) -> PanelBytes:
        density = densities.get(panel.weight, 1.0)
        if density == 1.0:
            return PanelBytes(4 * panel.size, 4 * panel.size)
        rows, count = panel.shape[0], round(density * panel.size)
        return PanelBytes(4 * count + pattern_bytes((rows, panel.size // rows), count), 4 * count)

    return size_of


def present_bytes(memoryx: MemoryX) -> Callable[[Panel], PanelBytes]:
    """Sizes of panels as they stream now."""
    return lambda panel: PanelBytes(memoryx.stream_bytes(panel), memoryx.gradient_bytes(panel))


def count_traffic(graph: Graph, layout: Layout, size_of: Callable[[Panel], PanelBytes]) -> Traffic:
    """Count what a training step sends between ranks.

    Weights go to each other rank once per visit to an op and wave. Of each panel as many sums come back from a rank
    as its grains make whole subtrees. Where a gradient is rows, those of an embedding, a sum has at most one for each
    token of its grains, with its number: which tokens they are, the data say.

    Args:
        size_of: size of a panel on the wire; steps in which RigL asks for gradients of zeros send more
    """
    plan, waves = layout.plan, layout.deal.waves
    visits = plan.timeline.visits
    sizes = [
        [size_of(panel).weights for panel in plan.stream(part)]
        for part in (visits[: plan.timeline.ops], visits[plan.timeline.ops :])
    ]
    return Traffic(
        forward_bytes=waves * sum(sizes[0]),
        backward_bytes=waves * sum(sizes[1]),
        first_bytes=(sizes[0][0], sizes[1][0]),
        gradient_bytes=(0, *(_sums_bytes(graph, layout, rank, size_of) for rank in range(1, layout.ranks))),
        waves=waves,
    )


def _sums_bytes(graph: Graph, layout: Layout, rank: int, size_of: Callable[[Panel], PanelBytes]) -> int:
    """Sums of gradients that leave a rank in a step [bytes]."""
    nodes = leaving_nodes(layout.deal.grains, layout.grains(rank))
    total = 0
    for planned in layout.plan.ops:
        if rules_of(planned.op).rows_by_data:
            total += sum(_rows_bytes(graph, layout, planned, node) for node in nodes)
        else:
            panels = (*planned.vector_panels, *planned.matrix_panels)
            total += len(nodes) * sum(size_of(panel).gradient for panel in panels)
    return total


def _rows_bytes(graph: Graph, layout: Layout, planned: PlannedOp, node: Node) -> int:
    """The most that the rows of a sum come to: each has the numbers of a row, and its own number [bytes]."""
    first, stop = (place << node.level for place in (node.place, node.place + 1))
    tokens = (min(stop, layout.deal.grains) - first) * layout.plan.samples * layout.plan.sequence
    weight = graph.weights[planned.matrix_panels[0].weight]
    rows = weight.shape[0]
    return min(rows, tokens) * (4 + 4 * weight.size // rows)
