"""What one PE does in how many cycles: vector instructions on its memory, partial sums that pass through.

Integers or integer arrays alike: the placement asks for many shapes of a region at once.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from cstool.arch import System

IntArray = npt.NDArray[np.int64]


def ceil_div(a: Any, b: Any) -> Any:
    """Return a / b, rounded up."""
    return -(-a // b)


def maximum(*values: Any) -> Any:
    """Return the largest, element by element."""
    return reduce(lambda a, b: max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b), values)


def minimum(*values: Any) -> Any:
    """Return the smallest, element by element."""
    return reduce(lambda a, b: min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b), values)


class Pe:
    """A PE that computes with operands of one width.

    Args:
        system: its numbers
        operand_bits: 16 or 32

    Example, WSE-2: an AXPY of 16 operands of 16 bits takes 16 / 4 cycles and 6 to start and stop.

    >>> from cstool.arch import load_system
    >>> Pe(load_system("cs2"), 16).axpy_cycles(16)
    10
    """

    def __init__(self, system: System, operand_bits: int) -> None:
        pe = system.pe
        self.system = system
        self.operand_bytes = operand_bits // 8
        self.wavelet_bytes = system.links.wavelet_bytes
        self._simd = pe.simd["fmach" if operand_bits == 16 else "fmacs"]
        self._vector_simd = pe.simd["fadds"]
        self._start = pe.vector_op_cycles
        self._read, self._write = pe.read_bytes_per_cycle, pe.write_bytes_per_cycle
        self._fabric = pe.fabric_elements_per_cycle

    def axpy_cycles(self, length: Any) -> Any:
        """Return the cycles of y += a x over `length` elements in memory.

        The datapath takes `simd` elements per cycle; the ports must read x and y and write y at that rate. This is the
        rate of 16-bit sums (fmach), the vendor's peak, though the account of memory gives sums 32 bits (fmachs, half
        the rate on WSE-2).
        """
        return self._start + maximum(
            ceil_div(length, self._simd),
            ceil_div(2 * self.operand_bytes * length, self._read),
            ceil_div(self.operand_bytes * length, self._write),
        )

    def vector_cycles(self, elements: Any, ops: int) -> Any:
        """Return the cycles of `ops` vector instructions of 32 bits over so many elements, start-up left out."""
        return ops * ceil_div(elements, self._vector_simd)

    def partial_sum_cycles(self, elements: Any, pes: Any) -> Any:
        """Return the cycles to add one's own to partial sums that pass by; none where the sum is over one PE.

        A fabric operand comes at one element per cycle.
        """
        return ceil_div(elements, self._fabric) * (pes > 1)

    def wavelets(self, elements: Any) -> Any:
        """Return how many wavelets carry so many operands."""
        return ceil_div(elements * self.operand_bytes, self.wavelet_bytes)
