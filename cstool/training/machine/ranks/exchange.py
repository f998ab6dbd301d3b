"""The exchange of a rank with the others while a batch runs: panels and sums of gradients, both ways."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from cstool.model.ir import Panel
from cstool.training.kernels.call import Payload, Weights
from cstool.training.machine.memoryx import MemoryX
from cstool.training.machine.ranks.link import Link
from cstool.training.machine.ranks.receiving import ArrivingPanels, Remote
from cstool.training.machine.ranks.sending import ArrivingSums, Broadcast
from cstool.training.machine.recorder import LaneTape
from cstool.training.machine.swarmx import InProcess, Node, SwarmX


class AcrossRanks(SwarmX):
    """SwarmX of several ranks: for the panels of the node here, and for the panels of the others.

    It skips no panel: each is sent to all ranks, needed there or not.

    Args:
        here, away: the SwarmX for each
        memoryx: knows which panels are here
    """

    def __init__(self, here: SwarmX, away: SwarmX, memoryx: MemoryX) -> None:
        self.buffers = memoryx.buffers
        self._here, self._away, self._memoryx = here, away, memoryx

    def _of(self, panel: Panel) -> SwarmX:
        return self._here if self._memoryx.keeps(panel) else self._away

    def expect(self, stream: Sequence[Panel], apart: int, lanes: int) -> None:
        """See `SwarmX.expect`."""
        self._here.expect(stream, apart, lanes)
        self._away.expect(stream, apart, lanes)

    def acquire(self, panel: Panel) -> Weights:
        """Lend the weights of a panel, to be read until `release`."""
        return self._of(panel).acquire(panel)

    def release(self, panel: Panel) -> None:
        """Give a panel back."""
        self._of(panel).release(panel)

    def reduce(self, panel: Panel, op: str, node: Node, payload: Payload, tape: LaneTape) -> None:
        """See `SwarmX.reduce`."""
        self._of(panel).reduce(panel, op, node, payload, tape)


class Use(NamedTuple):
    """The work of a rank in a wave that trains."""

    waited_s: float
    """a lane waiting for panels, on average [s]"""
    sent_bytes: int
    """size of the arrays that left it [bytes]"""


class Exchange:
    """Sends the panels that are kept here, and takes other nodes' panels and the sums for these, one batch at a time.

    Args:
        memoryx: the node here, which may have no panels
    """

    def __init__(self, link: Link, memoryx: MemoryX) -> None:
        self.panels = ArrivingPanels(link)
        self.link, self.memoryx = link, memoryx
        self.graph, self.nodes = memoryx.arrays.graph, memoryx.arrays.shards.nodes
        self._broadcast, self._sums = Broadcast(link, memoryx), ArrivingSums(link, memoryx)
        self._sent_before = 0

    @property
    def feeder(self) -> SwarmX | None:
        """The SwarmX of a lane that sends panels; None where there are none to be sent."""
        return self._broadcast if self.link.ranks > 1 and self.link.rank < self.nodes else None

    def swarmx(self, grains: int, own: Collection[int]) -> SwarmX:
        """A SwarmX for lanes.

        Args:
            grains: of a batch
            own: the grains of this rank
        """
        here = InProcess(grains, self.memoryx, is_alone=self.link.ranks == 1)
        shards = self.memoryx.arrays.shards
        if self.link.ranks == 1:
            return here
        away = Remote(grains, own, self.panels, self.link, self.memoryx.buffers, shards)
        return AcrossRanks(here, away, self.memoryx)

    def send_to_first(self, panels: Sequence[Panel]) -> None:
        """Send the panels that are kept here, of some in order, to rank 0 alone: it computes, this rank does not."""
        self._broadcast.to = [0]
        self.memoryx.expect(panels, 0)
        for panel in panels:
            self._broadcast.acquire(panel)

    def begin(self, swarmx: SwarmX) -> None:
        """Begin a batch, once the panels of the one before have left: sums that arrive go to this SwarmX."""
        self._broadcast.finish()
        self._sums.begin(swarmx)
        self.panels.waited_s, self._sent_before = 0.0, self.link.sent_bytes

    def end_wave(self, lanes: int) -> Mapping[int, Use]:
        """End the way back of a wave: say that all sums of this rank have left, and wait for the sums that come here.

        Returns:
            the work of each rank, by rank, as far as they report it here

        Raises:
            BaseException: the error with which the addition of a sum failed
        """
        mine = Use(self.panels.waited_s / lanes, self.link.sent_bytes - self._sent_before)
        self.panels.waited_s, self._sent_before = 0.0, self.link.sent_bytes
        others = [rank for rank in range(self.link.ranks) if rank != self.link.rank]
        for rank in others:
            if rank < self.nodes:
                self.link.send(rank, "backward", mine)
        found = {self.link.rank: mine}
        if self.link.rank < self.nodes:
            found |= {rank: self.link.receive(rank, "backward") for rank in others}
            self._sums.finish()
        return found

    def close(self) -> None:
        """End the thread; messages still on their way to other ranks are left to these."""
        self._broadcast.close()
        self._sums.close()
