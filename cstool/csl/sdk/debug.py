"""Reads the memory of PEs for a host script (`cerebras.sdk.debug.debug_util`).

It asks the simulator of the script's `SdkRuntime`, which answers after `stop()`, too. Coordinates count on the whole
fabric: the program's first PE is at the `--fabric-offsets`.
"""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.sdk.platforms import refuse_wafer
from cstool.csl.sdk.runtime_program import LoadedProgram, runtime_of


class debug_util:  # noqa: N801 - the vendor's name
    """Memory of the program that this script runs.

    Args:
        bindir: its directory
        cmaddr: must not be given: there is no wafer
    """

    def __init__(self, bindir: str | os.PathLike[str], cmaddr: str | None = None) -> None:
        refuse_wafer(cmaddr)
        self._folder = bindir

    def get_symbol(self, col: int, row: int, symbol: str, dtype: Any = None) -> NDArray[Any]:
        """The value of an exported variable at one PE."""
        runtime, x, y = self._at(col, row)
        return runtime.read_symbol(x, y, symbol, dtype)

    def get_symbol_rect(
        self, rectangle: tuple[tuple[int, int], tuple[int, int]], symbol: str, dtype: Any = None
    ) -> NDArray[Any]:
        """Likewise at all PEs of ((column, row), (width, height)): [width, height, elements]."""
        (col, row), (width, height) = rectangle
        return np.array(
            [[self.get_symbol(col + x, row + y, symbol, dtype) for y in range(height)] for x in range(width)]
        )

    def read_trace(self, col: int, row: int, name: str) -> list[int | float | str]:
        """The trace of one PE by the `<debug>` module of key `name`: numbers, texts, time stamps in cycles."""
        runtime, x, y = self._at(col, row)
        return runtime.read_trace(x, y, name)

    def _at(self, col: int, row: int) -> tuple[LoadedProgram, int, int]:
        """The runtime of the program, and the column and row of a PE in it."""
        runtime = runtime_of(self._folder)
        x, y = runtime.coord_logical_to_physical((0, 0))
        return runtime, col - x, row - y
