"""The panel: the fixed range of rows in which a weight, its gradient and its update travel."""

import math
from dataclasses import dataclass

from cstool.ir._graph import Weight

PANEL_BYTES = 32 * 2**20
"""largest panel [bytes]; most tensors are one panel"""
HALVED_BYTES = 8 * 2**20
"""a matrix that is larger is two panels at least, so that one can travel while the other computes [bytes]"""

_FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Panel:
    """Rows `start` to `stop` of a weight; `shape` is that of the panel."""

    weight: str
    index: int
    start: int
    stop: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def panels_of(weight: Weight) -> tuple[Panel, ...]:
    """Cut a weight into its panels: as few as fit, of nearly equal numbers of rows. A vector is one panel."""
    rows = weight.shape[0]
    if len(weight.shape) == 1:
        return (Panel(weight.name, 0, 0, rows, weight.shape),)
    row_bytes = weight.size // rows * _FLOAT32_BYTES
    most_rows = max(1, PANEL_BYTES // row_bytes)
    halved = min(rows, 2 if rows * row_bytes > HALVED_BYTES else 1)
    count = max(-(-rows // most_rows), halved)
    edges = [rows * i // count for i in range(count + 1)]
    return tuple(
        Panel(weight.name, i, start, stop, (stop - start, *weight.shape[1:]))
        for i, (start, stop) in enumerate(zip(edges, edges[1:], strict=False))
    )
