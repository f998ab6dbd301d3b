"""Elements of operations in progress: `fabric.microthread.Thread` reads, computes and writes them.

The operands of an operation are held ones, from `T_OPERANDS` on: the destination (or none) first. Element k of a vector
in memory is read when k elements are done, so that a thread needs no place in its vectors.
"""

from cstool.csl.fabric.arch import SRAM_BYTES
from cstool.csl.fast import codes
from cstool.csl.fast.arithmetic import decode, encode, read, write
from cstool.csl.fast.cells import allocate, fail
from cstool.csl.fast.instructions import HELD
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.operands import (
    FABIN,
    FABOUT,
    FIFO,
    HANDLE,
    LETTER,
    READS,
    grow,
    in_memory,
    indexed_place,
    place,
)
from cstool.csl.fast.operations import ACT, ADDC, SIZES, TABLE, compute
from cstool.csl.fast.ramp import head_data, put, ring_pop, ring_push, take
from cstool.csl.fast.state import (
    H_UNFUSED,
    P_CARRY,
    P_MEMORY,
    P_SPAN,
    P_STRIP,
    S_ERROR_TASK,
    S_SCRATCH,
    T_AHEAD,
    T_AHEAD_AT,
    T_AHEAD_COUNT,
    T_AHEAD_SIZE,
    T_COUNT,
    T_DONE,
    T_FIRST_INDEX,
    T_INDEX,
    T_INDEXED,
    T_INPUTS,
    T_INPUTS_COUNT,
    T_OPERANDS,
    T_OPERATION,
    T_OUTPUT,
    T_RARE,
    T_SENT_INDEX,
    T_SOURCES,
    T_TASK,
    T_UP_COLOR,
    T_UP_CONTROL,
)

ONCE, VECTOR, REDUCED, INDEXED = 0, 1, 2, 3
"""word READS of a held operand: a scalar or a stream; a vector in memory; a scalar first, then the destination; a
vector whose element has an index"""


@inner
def _address(f, pe, thread, operand):  # type: ignore[no-untyped-def]
    """The address of an indexed element; -1 after an error."""
    address = indexed_place(f, operand, f[thread + T_INDEX])
    size = SIZES[f[operand + LETTER]]
    if address < 0 or address > SRAM_BYTES - size:
        strip = f[pe + P_STRIP]
        fail(f, strip, codes.OUTSIDE_BY_OPERATION, pe, f[thread + T_OPERATION], address, address + size)
        f[strip + S_ERROR_TASK] = f[thread + T_TASK]
        return -1
    if address + size > f[pe + P_SPAN]:
        grow(f, pe)
    return address


@inner
def source(f, pe, thread, number):  # type: ignore[no-untyped-def]
    """The next element of a source, counted from 1."""
    operand = thread + T_OPERANDS + number * HELD
    letter, how, done = f[operand + LETTER], f[operand + READS], f[thread + T_DONE]
    if how == VECTOR:
        if f[thread + T_AHEAD_COUNT]:
            ahead = done - f[thread + T_AHEAD]
            if 0 <= ahead < f[thread + T_AHEAD_COUNT]:
                return f[f[thread + T_AHEAD_AT] + ahead * f[thread + T_SOURCES] + number - 1]
        return read(f, letter, f[pe + P_MEMORY] + place(f, operand, done))
    kind = f[operand]
    if kind == FABIN:
        return decode(letter, take(f, pe, f[operand + HANDLE]))
    if kind == FIFO:
        return decode(letter, ring_pop(f, pe, f[operand + HANDLE]))
    if how == REDUCED:
        if not done:
            return f[operand + 1]
        return read(f, letter, f[pe + P_MEMORY] + f[thread + T_OPERANDS + 1])
    if how == INDEXED:
        address = _address(f, pe, thread, operand)
        return 0 if address < 0 else read(f, letter, f[pe + P_MEMORY] + address)
    return f[operand + 1]


@inner
def write_result(f, pe, thread, word):  # type: ignore[no-untyped-def]
    """Write the result of an element to the destination, if there is one."""
    operand = thread + T_OPERANDS
    kind, letter = f[operand], f[operand + LETTER]
    if kind == FABOUT:
        bits = encode(letter, word)
        if f[thread + T_RARE] and f[thread + T_SENT_INDEX]:
            bits |= (max(0, f[thread + T_FIRST_INDEX]) + f[thread + T_DONE] & 0xFFFF) << 16
        put(f, pe, f[thread + T_OUTPUT], f[thread + T_UP_COLOR], bits, f[thread + T_UP_CONTROL])
    elif kind == FIFO:
        ring_push(f, pe, f[operand + HANDLE], encode(letter, word))
    elif in_memory(kind):
        if f[operand + READS] == INDEXED:
            address = _address(f, pe, thread, operand)
            if address < 0:
                return
        else:
            address = place(f, operand, f[thread + T_DONE])
        write(f, letter, f[pe + P_MEMORY] + address, word)


@inner
def find_index(f, thread):  # type: ignore[no-untyped-def]
    """Note the index of the next element, before its wavelet is taken."""
    if not f[thread + T_INDEXED]:
        return
    if f[thread + T_INPUTS_COUNT]:
        f[thread + T_INDEX] = head_data(f, f[thread + T_INPUTS]) >> 16 & 0xFFFF
    else:
        f[thread + T_INDEX] = max(0, f[thread + T_FIRST_INDEX]) + f[thread + T_DONE] & 0xFFFF


@inner
def plain_element(f, pe, thread):  # type: ignore[no-untyped-def]
    """Do the next element of an operation that calls no function."""
    if f[thread + T_RARE]:
        find_index(f, thread)
    operation, sources = f[thread + T_OPERATION], f[thread + T_SOURCES]
    act = TABLE[operation, ACT]
    a = source(f, pe, thread, 1)
    b = source(f, pe, thread, 2) if sources > 1 else 0
    c = source(f, pe, thread, 3) if sources > 2 else 0
    result = compute(act, f[H_UNFUSED], a, b, c, f[pe + P_CARRY])
    if act == ADDC:
        f[pe + P_CARRY] = result >> 16
    write_result(f, pe, thread, result)


@inner
def read_ahead(f, pe, thread, most):  # type: ignore[no-untyped-def]
    """Read the next elements of an operation from memory now, `most` of them at most."""
    done = f[thread + T_DONE]
    count = min(most, f[thread + T_COUNT] - done)
    if count <= 0:
        return
    # Elements that are read already keep their values.
    had = max(0, f[thread + T_AHEAD] + f[thread + T_AHEAD_COUNT] - done) if f[thread + T_AHEAD_COUNT] else 0
    at, skipped, sources = f[thread + T_AHEAD_AT], done - f[thread + T_AHEAD], f[thread + T_SOURCES]
    if count * sources > f[thread + T_AHEAD_SIZE]:
        size = 16
        while size < count * sources:
            size *= 2
        new = allocate(f, f[pe + P_STRIP], size)
        if new == f[f[pe + P_STRIP] + S_SCRATCH]:
            return  # the pool is full: an error is noted
        f[thread + T_AHEAD_AT], f[thread + T_AHEAD_SIZE] = new, size
    to = f[thread + T_AHEAD_AT]
    if had:
        for k in range(had * sources):
            f[to + k] = f[at + skipped * sources + k]
    memory = f[pe + P_MEMORY]
    for k in range(had, count):
        for number in range(1, sources + 1):
            operand = thread + T_OPERANDS + number * HELD
            if f[operand + READS] == VECTOR:
                f[to + k * sources + number - 1] = read(f, f[operand + LETTER], memory + place(f, operand, done + k))
    f[thread + T_AHEAD], f[thread + T_AHEAD_COUNT] = done, max(had, count)
