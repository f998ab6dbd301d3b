"""Counts of the rows that experts had in each grain, where tables run their products (`tables.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cstool.model.ir import Panel

Array = np.ndarray[Any, Any]


class RowCounts:
    """The counts, as kernels write them.

    Args:
        panels: of matrices of experts
        grains: of a batch
    """

    def __init__(self, panels: Sequence[Panel], grains: int) -> None:
        self._counts = np.zeros((len(panels), grains), np.int64)
        self._by_panel = dict(zip(panels, self._counts, strict=True))

    def of(self, panel: Panel | None) -> Array | None:
        """The counts of a panel, (grains,) int64; None for a panel of another matrix."""
        return None if panel is None else self._by_panel.get(panel)

    def idle(self) -> set[Panel]:
        """The panels without a row in the grains of the step."""
        totals: list[int] = self._counts.sum(axis=1).tolist()
        return {panel for panel, total in zip(self._by_panel, totals, strict=True) if total == 0}
