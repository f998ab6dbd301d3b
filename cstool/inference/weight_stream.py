"""The stream of weights of a model that answers: panels that stay where they are, or come anew for each pass."""

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import numpy as np

from cstool.foundation.errors import CheckpointError, ClusterError, NonFiniteError
from cstool.model.ir import Panel
from cstool.training.kernels.call import Weights
from cstool.training.kernels.quantized import quantize
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
        self._taken: dict[Panel, Any] = {}
        """panels that are here for good, in memory of their own: dense, or a `QuantizedMatrix`"""
        self._passes = 0
        self._ahead: tuple[Sequence[Panel], Sequence[Panel]] | None = None
        """panels that other ranks send ahead: of every pass, and of a pass whose logits are wanted"""
        self.streamed_bytes = 0
        """sent out so far [bytes]"""
        self.arrived_bytes = 0
        """share of it that came from other ranks [bytes]"""

    def take(self, panels: Sequence[Panel], quantized: Collection[str], precision: str) -> None:
        """Take all weights into memory, some of them quantised; from then on none streams.

        Weights of a file or of other ranks come once. Those in memory go, one by one, as they are quantised.

        Args:
            panels: of all weights, weight by weight; those that were taken before are left out. Where weights are in
                memory, they may be those of some weights
            quantized: names of the matrices that are, where they are dense
            precision: the name of a format of `quantized_rows`

        Raises:
            NonFiniteError: a number is infinite or none, or too large for the format
            ClusterError: sparse weights are not in the memory of this process
            CheckpointError: their file was written to meanwhile
        """
        if not self.is_resident:
            if self.nodes > 1:
                self._others.order(BeginPasses(panels, ()))
            self._source.expect(panels, 0, 1)
            self.want(panels)
        panels = [panel for panel in panels if panel not in self._taken]
        for weight, group in groupby(panels, lambda panel: panel.weight):
            for panel in group:
                found = self._acquire(panel)
                try:
                    self._take(panel, found, precision if weight in quantized else None)
                finally:
                    if panel not in self._held:
                        self._source.release(panel)
            if self.is_resident and all(panel in self._taken for panel in panels if panel.weight == weight):
                self._memoryx.forget(weight)
        self.is_resident = True

    def _acquire(self, panel: Panel) -> Weights:
        found = self._source.acquire(panel)
        try:
            self.check_source()
        except CheckpointError:
            self._source.release(panel)
            raise
        return found

    def check_source(self) -> None:
        """Check that a checkpoint from which weights stream is as it was opened.

        Raises:
            CheckpointError: it was written to since it was opened
        """
        file = self._memoryx.arrays.file
        if not self.is_resident and file is not None and file.base is not None:
            file.base.check_unwritten()

    def _take(self, panel: Panel, found: Weights, precision: str | None) -> None:
        """Keep a panel that was acquired: as it is, in a copy, or quantised."""
        size_bytes = self._memoryx.stream_bytes(panel)
        if precision is not None and isinstance(found, np.ndarray):
            try:
                made = quantize(np.ascontiguousarray(found), precision)
            except ValueError as error:
                hint = "the checkpoint may be of a run that went astray: cstool checkpoint verify"
                raise NonFiniteError(f"{panel.weight}: {error}", hint) from error
            self._taken[panel], size_bytes = made, made.nbytes
        elif self.is_resident:
            self._held[panel] = found
        elif isinstance(found, np.ndarray):
            self._taken[panel] = found.copy()
        else:
            rule = "must be in the memory of one process where other weights are quantised"
            raise ClusterError(f"{panel.weight}: sparse weights {rule}", "--memoryx ram, and one rank")
        self.streamed_bytes += size_bytes

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

    def size_bytes(self, panel: Panel) -> int:
        """Size of a panel as a pass reads it [bytes]."""
        taken = self._taken.get(panel)
        return self._memoryx.stream_bytes(panel) if taken is None else int(taken.nbytes)

    @property
    def skips(self) -> bool:
        """Whether the panels of experts stay where they are that no row chose."""
        return self._source.skips

    def want(self, panels: Sequence[Panel]) -> None:
        """Say which panels of experts a pass takes."""
        if not self.is_resident:
            self._source.want(panels, 1)

    @contextmanager
    def lent(self, panels: Sequence[Panel]) -> Iterator[list[Any]]:
        """Lend panels for the length of a context: `Weights`, or `QuantizedMatrix`.

        Raises:
            CheckpointError: see `check_source`
        """
        if self.is_resident:
            yield [self._resident(panel) for panel in panels]
            return
        taken: list[Panel] = []
        try:
            weights = []
            for panel in panels:
                weights.append(self._acquire(panel))
                taken.append(panel)
                size_bytes = self._memoryx.stream_bytes(panel)
                self.streamed_bytes += size_bytes
                self.arrived_bytes += 0 if self._memoryx.keeps(panel) else size_bytes
            yield weights
        finally:
            for panel in taken:
                self._source.release(panel)

    def _resident(self, panel: Panel) -> Any:
        if (taken := self._taken.get(panel)) is not None:
            return taken
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
