"""The weights of a pass: lent by MemoryX for good where they are in memory, streamed pass by pass from a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cstool.ir import Panel
from cstool.kernels.payload import Weights
from cstool.machine.memoryx.memoryx import MemoryX


class WeightStream:
    """Hands out panels.

    Args:
        memoryx: where they are; nothing updates them
    """

    def __init__(self, memoryx: MemoryX) -> None:
        self._memoryx = memoryx
        self.is_resident = memoryx.arrays.file is None
        """whether weights stay where they are; else each pass streams all of them"""
        self._held: dict[Panel, Weights] = {}
        self.streamed_bytes = 0
        """what has been sent out so far [bytes]"""

    def begin_pass(self, panels: Sequence[Panel]) -> None:
        """Say which panels a pass takes, in order, so that they are fetched ahead."""
        if not self.is_resident:
            self._memoryx.expect(panels, 0)

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
                weights.append(self._memoryx.acquire(panel))
                taken.append(panel)
                self.streamed_bytes += self._memoryx.stream_bytes(panel)
            yield weights
        finally:
            for panel in taken:
                self._memoryx.release(panel)

    def _resident(self, panel: Panel) -> Weights:
        if (weights := self._held.get(panel)) is None:
            weights = self._held[panel] = self._memoryx.acquire(panel)
            self.streamed_bytes += self._memoryx.stream_bytes(panel)
        return weights

    def close(self) -> None:
        """Give everything back."""
        for panel in self._held:
            self._memoryx.release(panel)
        self._held.clear()
