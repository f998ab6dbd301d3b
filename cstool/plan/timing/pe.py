"""Cycles of work on one PE: vector instructions on its memory, partial sums that pass through.

Integers or integer arrays alike: the placement asks for many shapes of a region at once.
"""

import math
from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np

from cstool.model.ir import Tensor
from cstool.model.system import System

SUM_BYTES = 4
"""size of a partial sum, a statistic, a score, a delta on its way"""
ID_BYTES = 4
"""size of a token's id, of a label"""


def ceil_div(a: Any, b: Any) -> Any:
    """Return a / b, rounded up."""
    return -(-a // b)


def maximum(*values: Any) -> Any:
    """Return the largest, element by element."""
    return reduce(np.maximum, values) if _has_array(values) else max(values)


def minimum(*values: Any) -> Any:
    """Return the smallest, element by element."""
    return reduce(np.minimum, values) if _has_array(values) else min(values)


def _has_array(values: Iterable[Any]) -> bool:
    return any(isinstance(value, np.ndarray) for value in values)


def input_element_bytes(tensor: Tensor, operand_bits: int) -> int:
    """Size of an element of an input on the wafer [bytes]: numbers as operands, ids and labels 32 bits."""
    return operand_bits // 8 if tensor.dtype == "float32" else ID_BYTES


def input_bytes(inputs: Iterable[Tensor], operand_bits: int) -> int:
    """Size of inputs of a sample on their way [bytes]."""
    return sum(input_element_bytes(tensor, operand_bits) * math.prod(tensor.shape) for tensor in inputs)


class Pe:
    """A PE that computes with operands of one width.

    Args:
        system: its numbers
        operand_bits: 16 or 32

    Example, WSE-2: an AXPY of 16 operands of 16 bits takes 16 / 4 cycles and 1 to start and stop.

    >>> from cstool.model.system import load_system
    >>> Pe(load_system("cs2"), 16).axpy_cycles(16)
    5

    The accumulator cache takes 256 / 4 sums. 72 elements are done in two parts, 2 x 1 + 72 / 4 cycles; in one, with 6
    bytes read and 4 written of each, they would take 1 + 36.

    >>> Pe(load_system("cs2"), 16).axpy_cycles(72)
    20

    Operands of 32 bits go one a cycle, in whole rows of 4, if the operands they are added to are in other
    banks; if not, both reads take a cycle.

    >>> [Pe(load_system("cs2"), 32).axpy_cycles(18, is_apart=is_apart) for is_apart in (True, False)]
    [21, 41]
    """

    def __init__(self, system: System, operand_bits: int) -> None:
        pe = system.pe
        self.system = system
        self.operand_bytes = operand_bits // 8
        self.wavelet_bytes = system.links.wavelet_bytes
        self.efficiency = round(1000 * pe.efficiency)
        self._is_wide = operand_bits == 32
        self._simd = pe.simd["fmacs" if self._is_wide else "fmach"]
        self._vector_simd = pe.simd["fadds"]
        self._start = pe.vector_op_cycles
        self._pad = pe.vector_pad
        self._read, self._write = pe.read_bytes_per_cycle, pe.write_bytes_per_cycle
        self._fabric = pe.fabric_elements_per_cycle
        self._cached = max(1, pe.accumulator_cache_bytes // SUM_BYTES)
        self._bank_row_bytes = pe.banks * pe.bank_word_bytes
        self._conflict = pe.bank_conflict_factor
        self._known: dict[tuple[int, bool], int] = {}

    def axpy_cycles(self, length: Any, *, is_apart: bool = False) -> Any:
        """Return the cycles of y += a x over `length` elements of x in memory, one of many into the same y.

        Of 16 bits, the datapath takes `simd` elements per cycle, and the ports must read x at that rate. The
        accumulators y have 32 bits. As many as the accumulator cache takes need no port: longer vectors are done in
        parts, for all a that are there, or with y in memory, read and written along. Then vectors whose length is not a
        whole row of banks begin in any bank, and the two reads meet. This is the rate of fmach, the vendor's peak; the
        SDK's builtin with sums of 32 bits (fmachs) has half of it.

        Of 32 bits, nothing is cached: x and y are read and y is written, 32 bits each, which two read ports and a write
        port of 32 bits do once a cycle where the reads are in different banks, and in two where they meet. Vectors are
        padded to whole rows of banks. Programs whose arrays lie anywhere take 2.2 to 2.6 cycles per element.

        Args:
            length: of the vectors
            is_apart: of 32 bits: x and y begin in banks that never meet

        Source: Cerebras SDK 2.10 documentation, appendix, for ports and banks of 32-bit operands; GEMM_benchmark.csv
        and CSC_benchmark.csv of pr0f3ss/SpMM_Cerebras for programs whose arrays lie anywhere.
        """
        if isinstance(length, np.ndarray):
            return self._axpy_cycles(length, is_apart)
        # A search for a layout asks for few lengths, each very often.
        if (key := (length, is_apart)) not in self._known:
            self._known[key] = self._axpy_cycles(length, is_apart)
        return self._known[key]

    def _axpy_cycles(self, length: Any, is_apart: bool) -> Any:
        if self._is_wide:
            padded = self._pad * ceil_div(length, self._pad)
            return self._start + ceil_div(padded, self._simd) * (1 if is_apart else self._conflict)
        datapath = ceil_div(length, self._simd)
        cached = maximum(datapath, ceil_div(self.operand_bytes * length, self._read))
        parts = ceil_div(length, self._cached)
        meets = self.operand_bytes * length % self._bank_row_bytes != 0
        reads = ceil_div((self.operand_bytes + SUM_BYTES) * length, self._read)
        uncached = maximum(
            datapath, reads * (1 + (self._conflict - 1) * meets), ceil_div(SUM_BYTES * length, self._write)
        )
        return minimum(parts * self._start + cached, self._start + uncached)

    def matvec_cycles(self, rows: int, columns: int) -> int:
        """Return the cycles of a function that multiplies a matrix of 32 bits with a vector, both in memory of the PE.

        A column after the other is added to the sums, whose banks are other ones; and there is the call.

        >>> from cstool.model.system import load_system
        >>> Pe(load_system("cs2"), 32).matvec_cycles(10, 10)  # 10 x (1 + 12) + 39
        169
        """
        return int(columns * self.axpy_cycles(rows, is_apart=True)) + self.system.pe.call_cycles

    def axpy_in_place_cycles(self, length: Any) -> Any:
        """Return the cycles of y += a x where each y is another one in memory, in operands, and x the same for many.

        Example, WSE-3: 16 elements would take 16 / 8 cycles, but 2 bytes of each are written, at 8 bytes per cycle.

        >>> from cstool.model.system import load_system
        >>> Pe(load_system("cs3"), 16).axpy_in_place_cycles(16)
        5

        Of 32 bits, in place or not is the same: y is in memory, in other banks than x.
        """
        if self._is_wide:
            return self.axpy_cycles(length, is_apart=True)
        is_cached = length * self.operand_bytes <= self._cached * SUM_BYTES
        moved = self.operand_bytes * length
        reads = ceil_div(moved * (2 - is_cached), self._read)
        return self._start + maximum(ceil_div(length, self._simd), reads, ceil_div(moved, self._write))

    def whole_bank_rows(self, length: Any) -> Any:
        """Return the length of the shortest vector, no shorter, whose reads do not meet: a whole number of bank rows.

        >>> from cstool.model.system import load_system
        >>> Pe(load_system("cs2"), 16).whole_bank_rows(13)
        16
        """
        elements = max(1, self._bank_row_bytes // self.operand_bytes)
        return elements * ceil_div(length, elements)

    def vector_cycles(self, elements: Any, ops: int) -> Any:
        """Return the cycles of `ops` vector instructions of 32 bits over so many elements, start-up left out.

        >>> from cstool.model.system import load_system
        >>> Pe(load_system("cs2"), 16).vector_cycles(9, ops=3)  # 2 elements per cycle
        15
        """
        return ops * ceil_div(elements, self._vector_simd)

    def partial_sum_cycles(self, elements: Any, pes: Any) -> Any:
        """Return the cycles to add one's own to partial sums that pass by; none where the sum is over one PE.

        A fabric operand comes at one element per cycle.

        >>> from cstool.model.system import load_system
        >>> [Pe(load_system("cs2"), 16).partial_sum_cycles(12, pes) for pes in (1, 2, 750)]
        [0, 12, 12]
        """
        return ceil_div(elements, self._fabric) * (pes > 1)

    def wavelets(self, elements: Any) -> Any:
        """Number of wavelets that carry so many operands.

        >>> from cstool.model.system import load_system
        >>> [Pe(load_system("cs2"), bits).wavelets(3) for bits in (16, 32)]  # 32 bits each
        [2, 3]
        """
        return ceil_div(elements * self.operand_bytes, self.wavelet_bytes)
