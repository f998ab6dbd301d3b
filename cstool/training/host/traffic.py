"""The traffic of a training step between ranks, counted before it runs: weights from their nodes, gradients back."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from cstool.model.ir import Panel, rules_of
from cstool.training.host.ranks import Traffic
from cstool.training.host.step import passes
from cstool.training.kernels.sparse import pattern_bytes
from cstool.training.machine.layout import Layout
from cstool.training.machine.memoryx import MemoryX
from cstool.training.machine.memoryx.shards import Shards
from cstool.training.machine.swarmx import Node, leaving_nodes


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


def count_traffic(layout: Layout, size_of: Callable[[Panel], PanelBytes], shards: Shards) -> Traffic:
    """Count the bytes of a training step between ranks.

    Weights go from the node that keeps them to each other rank, once per visit to an op and wave; before a barrier all
    waves but the last go forward twice. Of each panel as many sums come back from a rank as its grains make whole
    subtrees. If a gradient is rows, as for an embedding, a sum has at most one for each token of its grains, with
    its number: the token numbers depend on the data.

    Args:
        size_of: size of a panel on the wire; steps in which RigL asks for gradients of zeros send more
        shards: the panels of each node
    """
    plan, waves, meets = layout.plan, layout.deal.waves, bool(layout.plan.gathered)
    visits = plan.timeline.visits
    streams = [plan.stream(part) for part in (visits[: plan.timeline.ops], visits[plan.timeline.ops :])]
    ranks = range(layout.ranks)

    def sent(stream: Sequence[Panel], rank: int) -> int:
        return sum(size_of(panel).weights for panel in stream if shards.node_of(panel) == rank)

    forward, back = passes(waves, meets)
    return Traffic(
        forward_bytes=tuple(forward * sent(streams[0], rank) for rank in ranks),
        backward_bytes=tuple(back * sent(streams[1], rank) for rank in ranks),
        first_bytes=(size_of(streams[0][0]).weights, size_of(streams[1][0]).weights),
        gradient_bytes=tuple(_sums_bytes(layout, rank, size_of, shards) for rank in ranks),
        waves=waves,
        meets=meets,
    )


def _sums_bytes(layout: Layout, rank: int, size_of: Callable[[Panel], PanelBytes], shards: Shards) -> tuple[int, ...]:
    """Sums of gradients that leave a rank in a step, by the rank that they are for [bytes]."""
    nodes = leaving_nodes(layout.deal.grains, layout.grains(rank))
    totals = [0] * layout.ranks
    for planned in layout.plan.ops:
        panels = (*planned.vector_panels, *planned.matrix_panels)
        for owner in {*map(shards.node_of, panels)} - {rank}:
            kept = [panel for panel in panels if shards.node_of(panel) == owner]
            if rules_of(planned.op).rows_by_data:
                totals[owner] += sum(_rows_bytes(layout, kept, node) for node in nodes)
            else:
                totals[owner] += len(nodes) * sum(size_of(panel).gradient for panel in kept)
    return tuple(totals)


def _rows_bytes(layout: Layout, panels: Sequence[Panel], node: Node) -> int:
    """Largest size of the rows of a sum: each has the numbers of a row, and its own number [bytes]."""
    first, stop = (place << node.level for place in (node.place, node.place + 1))
    tokens = (min(stop, layout.deal.grains) - first) * layout.plan.samples * layout.plan.tokens
    rows = sum(panel.shape[0] for panel in panels)
    return min(rows, tokens) * (4 + 4 * panels[0].size // panels[0].shape[0])
