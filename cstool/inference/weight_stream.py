"""The stream of weights of a model that answers: panels that stay where they are, or come anew for each pass."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cstool.model.ir import Panel
from cstool.training.kernels.call import Weights
from cstool.training.machine.memoryx.memoryx import MemoryX
from cstool.training.machine.ranks.orders import BeginPasses, NextPass, OtherRanks


class WeightStream:
    """Hands out panels: of the node of MemoryX here, and of other ranks, which send them ahead of need.

    Args:
        memoryx: the node here; nothing updates it
        others: the other ranks, with the other nodes
    """

    def __init__(self, memoryx: MemoryX, others: OtherRanks) -> None:
        self._memoryx, self._others = memoryx, others
        self._source = others.exchange.swarmx(1, (0,))
        self.nodes = memoryx.arrays.shards.nodes
        """ranks that keep weights"""
        self.is_resident = memoryx.arrays.file is None and self.nodes == 1
        """whether weights stay where they are; else each pass streams all of them"""
        self._held: dict[Panel, Weights] = {}
        self._lock = threading.Lock()
        self._passes = 0
        self._ahead: tuple[Sequence[Panel], Sequence[Panel]] | None = None
        """panels that other ranks send ahead: of every pass, and of a pass whose logits are wanted"""
        self.streamed_bytes = 0
        """sent out so far [bytes]"""
        self.arrived_bytes = 0
        """share of it that came from other ranks [bytes]"""

    def begin_pass(self, body: Sequence[Panel], head: Sequence[Panel], *, takes_head: bool) -> None:
        """Say which panels a pass takes, in order, so that they are fetched ahead.

        Args:
            body: panels of every pass
            head: panels that follow in a pass whose logits are wanted
            takes_head: whether this one is
        """
        if self.is_resident:
            return
        if self.nodes > 1 and self._ahead != (body, head):
            if self._ahead is not None:
                self._let_go(self._ahead[0])
            self._others.order(BeginPasses(body, head))
            self._ahead = body, head
        self._source.expect([*body, *(head if takes_head else ())], 0, 1)
        if self.nodes > 1:
            self._others.order(NextPass(takes_head))
            self._passes += 1
            self._others.link.activity.step = self._passes

    def _let_go(self, body: Sequence[Panel]) -> None:
        """Take the panels that others have sent ahead for another pass of the kind before, where none follows."""
        self._source.expect(body, 0, 1)
        for panel in body:
            self._source.acquire(panel)
            self._source.release(panel)

    @property
    def skips(self) -> bool:
        """Whether the panels of experts stay where they are that no row chose."""
        return self._source.skips

    def want(self, panels: Sequence[Panel]) -> None:
        """Say which panels of experts a pass takes."""
        if not self.is_resident:
            self._source.want(panels, 1)

    @contextmanager
    def lent(self, panels: Sequence[Panel]) -> Iterator[list[Weights]]:
        """Lend panels for the length of a context."""
        if self.is_resident:
            yield [self._resident(panel) for panel in panels]
            return
        taken: list[Panel] = []
        try:
            weights = []
            for panel in panels:
                weights.append(self._source.acquire(panel))
                taken.append(panel)
                size_bytes = self._memoryx.stream_bytes(panel)
                self.streamed_bytes += size_bytes
                self.arrived_bytes += 0 if self._memoryx.keeps(panel) else size_bytes
            yield weights
        finally:
            for panel in taken:
                self._source.release(panel)

    def _resident(self, panel: Panel) -> Weights:
        if (weights := self._held.get(panel)) is None:
            # A server has a second thread with walks of its own.
            with self._lock:
                if (weights := self._held.get(panel)) is None:
                    weights = self._held[panel] = self._source.acquire(panel)
                    self.streamed_bytes += self._memoryx.stream_bytes(panel)
        return weights

    def close(self) -> None:
        """Give everything back."""
        for panel in self._held:
            self._source.release(panel)
        self._held.clear()
