"""The shards of MemoryX: the panels that each of its nodes keeps. A node is the MemoryX of one rank."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cstool.model.ir import Graph, Panel, Weight, panels_of
from cstool.model.optimizers import Optimizer, WholeOptimizer, state_numbers, updates
from cstool.model.sparsity import most_kept
from cstool.training.kernels.bfloat16 import BFLOAT16
from cstool.training.machine.memoryx.sparse_weights import SparsityRules
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


def deal_panels(
    graph: Graph,
    optimizer: Optimizer | None,
    sparsity: SparsityRules,
    nodes: int,
    name: str = "",
    narrow: Collection[str] = (),
) -> Shards:
    """Deal the panels of a model to nodes: the largest first, each to the node that has the fewest bytes so far.

    Large panels that stream one after the other are mostly alike, so they leave from different hosts. All panels of a
    weight go to one node where an update or a mask needs all of the weight. For `narrow` see `weight_bytes`.
    """
    units: list[tuple[int, Sequence[Panel]]] = []
    for weight in graph.weights.values():
        panels, size_bytes = panels_of(weight), weight_bytes(weight, optimizer, sparsity, narrow)
        stays_whole = _stays_whole(weight, optimizer, sparsity)
        cut: Iterable[Sequence[Panel]] = [panels] if stays_whole else [(panel,) for panel in panels]
        for unit in cut:
            units.append((size_bytes * sum(panel.size for panel in unit) // weight.size, unit))
    sizes = [0] * nodes
    owners: dict[Panel, int] = {}
    for unit_bytes, unit in sorted(units, key=lambda each: -each[0]):
        node = min(range(nodes), key=sizes.__getitem__)
        sizes[node] += unit_bytes
        owners |= dict.fromkeys(unit, node)
    return Shards(nodes, owners, tuple(sizes), name)


def dealt_already(
    graph: Graph,
    optimizer: Optimizer | None,
    sparsity: SparsityRules,
    rows: Sequence[Mapping[str, Ranges]],
    name: str,
) -> Shards | None:
    """The dealing of existing shards, which may differ from a dealing made today.

    It depends on the optimizer and on the room of a weight. None where a panel is not at one node, or a weight
    that stays whole.

    Args:
        rows: of the weights, by node
    """
    sizes = [0] * len(rows)
    owners: dict[Panel, int] = {}
    for weight in graph.weights.values():
        size_bytes = weight_bytes(weight, optimizer, sparsity)
        stays_whole = _stays_whole(weight, optimizer, sparsity)
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


def _stays_whole(weight: Weight, optimizer: Optimizer | None, sparsity: SparsityRules) -> bool:
    return is_sparse(weight.name, sparsity) or isinstance(optimizer, WholeOptimizer)


def is_sparse(weight: str, sparsity: SparsityRules) -> bool:
    """Whether MemoryX keeps the non-zeros of a weight alone."""
    group = sparsity.groups.get(weight)
    return group is not None and group.algorithm != "dropconnect"


def weight_bytes(
    weight: Weight, optimizer: Optimizer | None, sparsity: SparsityRules, narrow: Collection[str] = ()
) -> int:
    """Size of a weight and its optimizer state, as they are kept [bytes].

    Args:
        narrow: matrices that stream as bfloat16; where nothing is updated, dense ones are kept so alone
    """
    group = sparsity.groups.get(weight.name)
    kept = weight.size if group is None else most_kept(group, weight.matrix_shape, sparsity.last_step)
    if optimizer is None and group is None and weight.name in narrow:
        return BFLOAT16.itemsize * kept
    return 4 * (kept + state_numbers(updates(optimizer, weight), weight.shape, kept))
