"""SwarmX: hands the weight stream of MemoryX to all systems, and sums their gradients on the way back.

The sum has the shape of one fixed binary tree over the grain numbers, wherever its parts are computed and in any
order they arrive, so its bits never depend on the number of systems, lanes or ranks.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple, TypeVar

from cstool.model.ir import Panel
from cstool.training.kernels.call import Payload, Weights, add_payloads
from cstool.training.machine.buffers import BufferPool
from cstool.training.machine.memoryx import MemoryX
from cstool.training.machine.recorder import LaneTape

P = TypeVar("P")
"""a payload"""


class Node(NamedTuple):
    """A node of the tree over the grains of a batch."""

    level: int
    """0 for the leaves"""
    place: int
    """within its level; of a leaf, the number of its grain"""


class SwarmX(ABC):
    """A transport between MemoryX and the lanes of the systems."""

    buffers: BufferPool
    """pool of the buffers of gradients"""

    @property
    def skips(self) -> bool:
        """Whether lanes acquire, of the experts, only the panels that tokens chose, and `want` them before."""
        return False

    def expect(self, stream: Sequence[Panel], apart: int, lanes: int) -> None:  # noqa: B027
        """Announce the panels of a batch, in order.

        Args:
            apart: largest lead of the fastest lane over the slowest [panels]
            lanes: number of lanes that acquire each panel
        """

    def want(self, panels: Sequence[Panel], times: int) -> None:  # noqa: B027
        """Announce the panels of experts that a lane will acquire, and the number of times, if it skips the others."""

    @abstractmethod
    def acquire(self, panel: Panel) -> Weights:
        """Lend the weights of a panel, to be read until `release`."""

    @abstractmethod
    def release(self, panel: Panel) -> None:
        """Give a panel back."""

    @abstractmethod
    def reduce(self, panel: Panel, op: str, node: Node, payload: Payload, tape: LaneTape) -> None:
        """Hand in the gradient of one grain, or the sum below another node; SwarmX owns its buffer from now on.

        Args:
            tape: records the work done here
        """


@contextmanager
def held(swarmx: SwarmX, panel: Panel) -> Iterator[Weights]:
    """Hold the weights of a panel for the length of a context, however it ends: others may wait for their room."""
    weights = swarmx.acquire(panel)
    try:
        yield weights
    finally:
        swarmx.release(panel)


class Tree:
    """The tree over the grains of a batch, as far as some of them reach.

    Args:
        grains: leaves of the tree
        own: the grains whose gradients are added
    """

    def __init__(self, grains: int, own: Collection[int]) -> None:
        self.grains = grains
        self._own = own if isinstance(own, range) else frozenset(own)
        self._comes_here = cache(self._has_own_leaves)

    def climb(
        self, node: Node, payload: P, meet: Callable[[Node, P], P | None], join: Callable[[P, P, int], P]
    ) -> tuple[Node, P] | None:
        """Take the sum below a node up to where its sibling is missing.

        Args:
            meet: hands out the payload of the sibling of a node; None where it has none yet: then it keeps this one
            join: adds two siblings, the left one first, of a level

        Returns:
            None while a sibling is missing that comes here; else the sum as far as it can be made here
        """
        level, index = node
        nodes = -(-self.grains // (1 << level))
        while nodes > 1:
            if index ^ 1 < nodes:
                if not self._comes_here(level, index ^ 1):
                    break
                other = meet(Node(level, index), payload)
                if other is None:
                    return None
                payload = join(*((other, payload) if index & 1 else (payload, other)), level)
            index, nodes, level = index >> 1, (nodes + 1) >> 1, level + 1
        return Node(level, index), payload

    def _has_own_leaves(self, level: int, index: int) -> bool:
        leaves = range(index << level, min((index + 1) << level, self.grains))
        return all(leaf in self._own for leaf in leaves)


def meet(waiting: dict[Node, P], node: Node, payload: P) -> P | None:
    """Hand out what waits at the sibling of a node, or have the payload wait; see `Tree.climb`."""
    other = waiting.pop(Node(node.level, node.place ^ 1), None)
    if other is None:
        waiting[node] = payload
    return other


class GradientTree:
    """Sums the gradients of grains; the thread with the second gradient of a pair adds the two.

    Args:
        grains: leaves of the tree
        buffers: take back the buffers of added gradients
        own: the grains whose gradients come here
    """

    def __init__(self, grains: int, buffers: BufferPool, own: Collection[int] | None = None) -> None:
        self._buffers = buffers
        self._tree = Tree(grains, range(grains) if own is None else own)
        self._waiting: dict[tuple[Panel, str, int, int], Payload] = {}
        """nodes that wait for their sibling, by (panel, op, level, index)"""
        self._lock = threading.Lock()

    def add(self, panel: Panel, op: str, node: Node, payload: Payload, tape: LaneTape) -> tuple[Node, Payload] | None:
        """Take the sum over the grains below a node, with its buffer.

        Returns:
            None while a sibling is missing that comes here; else the sum as far as it can be made here
        """
        tape.count(len(self._waiting), self._buffers.used, self._buffers.allocated_bytes)

        def meet(node: Node, payload: Payload) -> Payload | None:
            level, index = node
            with self._lock:
                other = self._waiting.pop((panel, op, level, index ^ 1), None)
                if other is None:
                    self._waiting[panel, op, level, index] = payload
            return other

        def join(left: Payload, right: Payload, level: int) -> Payload:
            with tape.gradient("SwarmX", "reduce", panel, op, level=level):
                total = add_payloads(left, right)
            self._buffers.give_back(left if total is right else right)
            return total

        return self._tree.climb(node, payload, meet, join)


def leaving_nodes(grains: int, own: Collection[int]) -> list[Node]:
    """The nodes of the tree whose sums leave for MemoryX from where some of the grains are.

    Each is a whole subtree of own leaves whose sibling is none. Of 8 grains a half is one node, 4 of 6 are two.

    >>> leaving_nodes(8, range(4)), leaving_nodes(6, range(2, 6))
    ([Node(level=2, place=0)], [Node(level=1, place=1), Node(level=2, place=1)])

    Args:
        grains: leaves of the tree
        own: the grains whose gradients come here
    """
    here, nodes, level = set(own), grains, 0
    found: list[Node] = []
    while nodes > 1:
        alone = {place for place in here if place ^ 1 < nodes and place ^ 1 not in here}
        found += [Node(level, place) for place in sorted(alone)]
        here = {place >> 1 for place in here - alone}
        nodes, level = (nodes + 1) >> 1, level + 1
    return [*found, *(Node(level, place) for place in here)]


class InProcess(SwarmX):
    """SwarmX where MemoryX is: all lanes read the same array of a panel, which is MemoryX's to change.

    Args:
        grains: leaves of the tree
        memoryx: sends panels, and takes a complete sum, from the thread that completed it
        is_alone: whether no other rank needs its panels: then panels of experts that no token chose stay there
    """

    def __init__(self, grains: int, memoryx: MemoryX, *, is_alone: bool = True) -> None:
        self.buffers = memoryx.buffers
        self._is_alone = is_alone
        self._memoryx = memoryx
        self._tree = GradientTree(grains, memoryx.buffers)

    def expect(self, stream: Sequence[Panel], apart: int, lanes: int) -> None:  # noqa: ARG002
        """See `SwarmX.expect`."""
        self._memoryx.expect(stream, apart, skips=self.skips)

    @property
    def skips(self) -> bool:
        """See `SwarmX.skips`. If the norms of all weights are wanted, all panels are acquired."""
        return self._is_alone and not self._memoryx.statistics.looks_at_norms

    def want(self, panels: Sequence[Panel], times: int) -> None:
        """See `SwarmX.want`."""
        self._memoryx.want(panels, times)

    def acquire(self, panel: Panel) -> Weights:
        """Lend the weights of a panel, to be read until `release`."""
        return self._memoryx.acquire(panel)

    def release(self, panel: Panel) -> None:
        """Give a panel back."""
        self._memoryx.release(panel)

    def reduce(self, panel: Panel, op: str, node: Node, payload: Payload, tape: LaneTape) -> None:
        """See `SwarmX.reduce`."""
        found = self._tree.add(panel, op, node, payload, tape)
        if found is not None:
            with tape.gradient("MemoryX", "receive", panel, op):
                self._memoryx.receive(panel, op, found[1])
