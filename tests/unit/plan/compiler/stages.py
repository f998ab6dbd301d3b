"""Stages made up for tests: whatever sizes, and what each costs in regions of any size."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

NEVER = 10**15


@dataclass(frozen=True)
class MadeUp:
    """A product of weights with tile quantisation, if it has inputs; elastic work; bytes of both kinds.

    Args:
        inputs: of a matrix of weights
        outputs: of it
        work: cycles of one PE, were it alone, evenly divided
        overhead: cycles that no region shortens
        spread_bytes: of a table, evenly divided
        samples_bytes: of what is in flight, evenly divided
        room_bytes: SRAM of a PE
    """

    inputs: int = 1
    outputs: int = 1
    work: int = 0
    overhead: int = 0
    spread_bytes: int = 0
    samples_bytes: int = 0
    room_bytes: int = 1000

    @property
    def alike(self) -> Hashable:
        return replace(self, samples_bytes=0)

    def tile(self, way: int, width: Any, height: Any) -> tuple[Any, Any]:
        """Inputs and outputs of the fullest PE."""
        columns, rows = (width, height) if way == 0 else (height, width)
        return -(-self.inputs // columns), -(-self.outputs // rows)

    def cycles(self, way: int, width: Any, height: Any) -> Any:
        i, o = self.tile(way, width, height)
        return i * (-(-o // 4) + 2) + o + -(-self.work // (width * height)) + self.overhead

    def fixed_bytes(self, way: int, width: Any, height: Any) -> Any:
        i, o = self.tile(way, width, height)
        return 4 * i * o + -(-self.spread_bytes // (width * height))

    def held_bytes(self, pes: Any) -> Any:
        return -(-self.samples_bytes // pes)

    def slow_cycles(self, width: int, height: int) -> int:
        """Cycles in a region, the better way round, one plain number at a time; NEVER if it does not fit."""
        held = self.held_bytes(width * height)
        ways = [way for way in (0, 1) if self.fixed_bytes(way, width, height) + held <= self.room_bytes]
        return min((int(self.cycles(way, width, height)) for way in ways), default=NEVER)


PRODUCTS = st.builds(
    MadeUp, inputs=st.integers(1, 200), outputs=st.integers(1, 200), samples_bytes=st.integers(0, 5_000)
)
ELASTIC = st.builds(MadeUp, work=st.integers(1, 100_000), overhead=st.integers(0, 100))
TABLES = st.builds(
    MadeUp, work=st.integers(0, 100), spread_bytes=st.integers(0, 20_000), samples_bytes=st.integers(0, 20_000)
)
STAGES = st.one_of(PRODUCTS, ELASTIC, TABLES)
