"""The shards of MemoryX: the panels that each of its nodes keeps. A node is the MemoryX of one rank."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cstool.model.ir import Panel, panels_of
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.store import Ranges


@dataclass(frozen=True)
class Shards:
    """The dealing of the panels of a model to nodes.

    Args:
        nodes: number of nodes
        owners: panel -> number of its node; of one node it may be empty
        shard_bytes: weights and optimizer state of each node [bytes]
        name: of the run's shards, unlike the names of other runs
    """

    nodes: int
    owners: Mapping[Panel, int]
    shard_bytes: tuple[int, ...]
    name: str = ""

    def node_of(self, panel: Panel) -> int:
        """Number of the node that keeps a panel."""
        return self.owners[panel] if self.nodes > 1 else 0


def deal_panels(kept: KeptModel, nodes: int, name: str = "") -> Shards:
    """Deal the panels of a model to nodes: the largest first, each to the node that has the fewest bytes so far.

    Large panels that stream one after the other are mostly alike, so they leave from different hosts.
    """
    units: list[tuple[int, Sequence[Panel]]] = []
    for weight in kept.graph.weights.values():
        panels, size_bytes = panels_of(weight), kept.weight_bytes(weight)
        cut: Iterable[Sequence[Panel]] = [panels] if kept.stays_whole(weight.name) else [(panel,) for panel in panels]
        for unit in cut:
            units.append((size_bytes * sum(panel.size for panel in unit) // weight.size, unit))
    sizes = [0] * nodes
    owners: dict[Panel, int] = {}
    for unit_bytes, unit in sorted(units, key=lambda each: -each[0]):
        node = min(range(nodes), key=sizes.__getitem__)
        sizes[node] += unit_bytes
        owners |= dict.fromkeys(unit, node)
    return Shards(nodes, owners, tuple(sizes), name)


def dealt_already(kept: KeptModel, rows: Sequence[Mapping[str, Ranges]], name: str) -> Shards | None:
    """The dealing of existing shards, which may differ from a dealing made today.

    It depends on the optimizer and on the room of a weight. None where a panel is not at one node, or a weight
    that stays whole.

    Args:
        rows: of the weights, by node
    """
    sizes = [0] * len(rows)
    owners: dict[Panel, int] = {}
    for weight in kept.graph.weights.values():
        size_bytes, stays_whole = kept.weight_bytes(weight), kept.stays_whole(weight.name)
        for panel in panels_of(weight):
            held = (
                node
                for node, found in enumerate(rows)
                if any(start <= panel.start and panel.stop <= stop for start, stop in found.get(weight.name, ()))
            )
            owners[panel] = node = next(held, -1)
            if node < 0 or (stays_whole and node != owners[panels_of(weight)[0]]):
                return None
            sizes[node] += size_bytes * panel.size // weight.size
    return Shards(len(rows), owners, tuple(sizes), name)
