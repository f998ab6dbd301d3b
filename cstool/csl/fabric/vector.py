"""Vector operations on memory and scalars: their results, exactly as element after element, and their cycles.

Cycles, and their certainty:

- `START`: fitted. Scalar code behind an operation goes on beside it, until the next operation or a look at the clock:
  a loop around `@fmacs` over columns of n elements takes n + 1 cycles a column in the vendor's simulator.
- elements a cycle: the SIMD widths of the documentation (`Arch.widths`, SDK appendix), limited by the strides
  (P06).
- two reads in the same cycle must come from banks that differ modulo 4, or they take a cycle each (P01, P04, P05; P08
  and P09 measure 1.001 and 2.001 cycles an element without and with such a conflict).
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from cstool.csl.fabric.dsd import Mem1d, Mem4d
from cstool.csl.fabric.memory import Memory, bounds
from cstool.csl.fabric.operations import BYTES, DTYPES, Operation, raw

START = 1
"""Cycles for the start of a vector operation.

Fitted: a loop over columns of 100 elements takes 101 cycles a column in the vendor's simulator.
"""

LAUNCH = 2
"""Cycles of the thread that hands an operation to a microthread. Ours: nothing is published."""

FEW = 24
"""Fewer elements are done faster one by one than through NumPy."""

Memories = Mem1d | Mem4d
Source = Memories | int | float

_STRIDE_LIMITS = {0: 1, 1: 2, 7: 2, 4: 2}


def stride_limit(words: int) -> int:
    """Elements a cycle at most, for a stride in 16-bit words (P06; of stride 4 the text says 2 and 4: 2 is taken)."""
    if words in (0, 1, -1):
        return 8
    return _STRIDE_LIMITS.get(words % 8, 8)


def _innermost(operand: Memories) -> tuple[int, int]:
    """Address and stride, in bytes, of the fastest dimension."""
    if isinstance(operand, Mem1d):
        return operand.address, operand.stride
    return operand.address, operand.strides[-1] if operand.strides else 0


def conflicts(first: Memories, second: Memories) -> float:
    """Share of the elements whose two reads hit banks that are equal modulo 4; a stride of 0 is read once (P06)."""
    a, a_stride = _innermost(first)
    b, b_stride = _innermost(second)
    if not a_stride or not b_stride:
        return 0.0
    return sum((a + k * a_stride) // 2 % 4 == (b + k * b_stride) // 2 % 4 for k in range(4)) / 4


def cycles(count: int, width: int, operands: Sequence[tuple[Any, str]]) -> int:
    """Cycles of an operation on `count` elements without its start.

    Args:
        count: elements
        width: elements a cycle at best
        operands: destination and sources, each with its type
    """
    if not count:
        return 0
    reads = [operand for operand, _ in operands[1:] if isinstance(operand, (Mem1d, Mem4d))]
    for operand, letter in operands:
        if isinstance(operand, (Mem1d, Mem4d)):
            stride = _innermost(operand)[1]
            if stride != BYTES[letter]:
                width = min(width, stride_limit(stride // 2))
    share = conflicts(reads[0], reads[1]) if len(reads) > 1 else 0.0
    return int(-(-count // width) * (1.0 + share) + 0.5)


def compute(
    memory: Memory, operation: Operation, count: int, dest: Memories, sources: Sequence[tuple[Source, str]], carry: int
) -> int:
    """Do an operation on memory at once.

    Args:
        memory: of the PE
        operation: the operation
        count: elements
        dest: destination
        sources: operands, each with its type
        carry: the carry flag
    Returns:
        the carry flag afterwards
    """
    letter = raw(operation.dest) if operation.move else operation.dest
    if count < FEW or operation.chained or _hazard(operation, count, dest, sources):
        readers = [
            memory.reader(source, count, kind) if isinstance(source, (Mem1d, Mem4d)) else repeat(source, count)
            for source, kind in sources
        ]
        return in_order(memory, operation, count, dest, letter, readers, carry)
    arrays = [
        memory.array(source, count, kind) if isinstance(source, (Mem1d, Mem4d)) else np.dtype(DTYPES[kind]).type(source)
        for source, kind in sources
    ]
    if operation.name == "add16" and operation.dest == "H":
        carry = sum(int(np.broadcast_to(each, count)[-1]) for each in arrays) >> 16
    result = operation.bulk(*arrays)
    if isinstance(dest, Mem1d):
        memory.array(dest, count, letter)[:] = result
    else:
        memory.scatter(dest, count, letter, np.broadcast_to(result, count))
    return carry


def in_order(
    memory: Memory, operation: Operation, count: int, dest: Memories, letter: str, readers: Sequence[Any], carry: int
) -> int:
    """Do elements one after the other: each reads its sources after the one before it was written."""
    places, store = memory.writer(dest, count, letter)
    if operation.chained:
        for place, values in zip(places, zip(*readers, strict=True), strict=True):
            result = operation.compute(*values, carry)
            carry = result >> 16
            store(place, result)
        return carry
    result = 0
    for place, result in zip(places, map(operation.compute, *readers), strict=True):
        store(place, result)
    return result >> 16 & 1 if operation.name == "add16" and operation.dest == "H" else carry


def _hazard(operation: Operation, count: int, dest: Memories, sources: Sequence[tuple[Source, str]]) -> bool:
    """Whether an element may read the result of an element before it, or two elements write the same place."""
    size = BYTES[operation.dest]
    if isinstance(dest, Mem1d) and abs(dest.stride) < size:
        return True
    low, high = bounds(dest, count, size)
    if isinstance(dest, Mem4d) and _folds(dest, size):
        return True
    return any(
        isinstance(source, (Mem1d, Mem4d)) and _reads_written(dest, low, high, source, count, BYTES[kind], size)
        for source, kind in sources
    )


def _folds(dest: Mem4d, size: int) -> bool:
    """Whether elements of a tensor may share bytes: a stride that is shorter than the dimensions inside it."""
    if dest.wrap:
        return dest.extents[0] > dest.wrap
    reach = size
    for extent, stride in sorted(zip(dest.extents, dest.strides, strict=True), key=lambda pair: abs(pair[1])):
        if extent < 2:
            continue
        if abs(stride) < reach:
            return True
        reach += abs(stride) * (extent - 1)
    return False


def _reads_written(
    dest: Memories, low: int, high: int, source: Memories, count: int, source_size: int, size: int
) -> bool:
    source_low, source_high = bounds(source, count, source_size)
    if source_high <= low or high <= source_low:
        return False
    if source_size != size:
        return True
    if not isinstance(dest, Mem1d) or not isinstance(source, Mem1d):
        return dest != source
    if dest.stride != source.stride:
        return True
    ahead, rest = divmod(dest.address - source.address, dest.stride)
    if rest == 0:
        return ahead > 0  # the element `ahead` later reads the result of this one
    return not size <= rest % abs(dest.stride) <= abs(dest.stride) - size
