"""Vector operations on memory and scalars, at once: `fabric.vector`, and `Issue._in_memory`."""

from cstool.csl.fabric.vector import START
from cstool.csl.fast import codes
from cstool.csl.fast.arithmetic import F, W, encode, fused, read, write
from cstool.csl.fast.bits import bits_double, get32, get_f32, set32, set_f32
from cstool.csl.fast.cells import fail
from cstool.csl.fast.instructions import BEFORE, HELD
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.operands import (
    FLOAT,
    INT,
    LETTER,
    MEM1D,
    OPERANDS,
    POINTER,
    REGISTER,
    as_float,
    as_pointer,
    check,
    extent,
    in_memory,
    keep_memory,
    place,
    raw,
    save,
)
from cstool.csl.fast.operations import (
    ACT,
    ADD,
    ADDC,
    CARRIES,
    FMA32,
    MOVE,
    MUL,
    REDUCES,
    SAME,
    SIZES,
    SUB,
    TABLE,
    WIDTHS,
    compute,
)
from cstool.csl.fast.picker import operate
from cstool.csl.fast.state import (
    C_ARCH,
    H_UNFUSED,
    H_VECTOR,
    P_CARRY,
    P_CLASS,
    P_ELEMENTS,
    P_MEMORY,
    P_RUNNING,
    P_STRIP,
    S_SCRATCH,
)
from cstool.csl.fast.units import call_unit, unit


@inner
def _stride_limit(words):  # type: ignore[no-untyped-def]
    """Elements a cycle at most, for a stride in 16-bit words."""
    if -1 <= words <= 1:
        return 8
    rest = words % 8
    if rest == 0:
        return 1
    return 2 if rest == 1 or rest == 4 or rest == 7 else 8  # noqa: SIM109


@inner
def _stride(f, operand):  # type: ignore[no-untyped-def]
    """The stride of the fastest dimension, in bytes."""
    return f[operand + 3] if f[operand] == MEM1D else f[operand + 14]


@inner
def _conflicts(f, one, other):  # type: ignore[no-untyped-def]
    """Elements of four whose two reads hit banks that are equal modulo 4."""
    step, other_step = _stride(f, one), _stride(f, other)
    if not step or not other_step:
        return 0
    found = 0
    for k in range(4):
        found += (f[one + 1] + k * step) // 2 % 4 == (f[other + 1] + k * other_step) // 2 % 4
    return found


@inner
def cycles(f, pe, operation, operands, n, count):  # type: ignore[no-untyped-def]
    """Cycles of an operation on `count` elements without its start."""
    if not count:
        return 0
    width = TABLE[operation, WIDTHS + (f[f[pe + P_CLASS] + C_ARCH] == 3)]
    first = second = 0
    for k in range(n):
        operand = operands + k * HELD
        if in_memory(f[operand]):
            if k and not first:
                first = operand
            elif k and not second:
                second = operand
            stride = _stride(f, operand)
            if stride != SIZES[f[operand + LETTER]]:
                width = min(width, _stride_limit(stride // 2))
    turns = -(-count // width)
    quarters = _conflicts(f, first, second) if second else 0
    return int(turns * (1.0 + quarters / 4) + 0.5)


@unit
def vector(f, pe, packed):  # type: ignore[no-untyped-def]
    """Do an operation on memory at once: `packed` is its number << 4 | operands, which the scratch area holds."""
    return 1 if _at_once(f, pe, packed >> 4, f[f[pe + P_STRIP] + S_SCRATCH] + OPERANDS, packed & 15) else 0


@inner
def at_once(f, pe, operation, n):  # type: ignore[no-untyped-def]
    """Do an operation on memory at once: its `n` operands are held in the scratch area; false after an error."""
    return call_unit(f[H_VECTOR], f, pe, operation << 4 | n)


@inner
def _at_once(f, pe, operation, operands, n):  # type: ignore[no-untyped-def]
    """Do an operation on held and fitted operands at once, and add its cycles; false after an error."""
    count = extent(f, pe, operands, n, 0)
    first = operands + HELD
    reduced = TABLE[operation, REDUCES] and f[operands] == POINTER and (f[first] == INT or f[first] == FLOAT)
    for k in range(n):
        operand = operands + k * HELD
        as_pointer(f, operand, count)
        if in_memory(f[operand]) and not check(f, pe, operand, count, operation, f[pe + P_RUNNING]):
            return False
        as_float(f, operand)
    if not in_memory(f[operands]):
        fail(f, f[pe + P_STRIP], codes.CANNOT_WRITE, pe, operation, f[operands])
        return False
    if TABLE[operation, MOVE]:
        for k in range(n):
            operand = operands + k * HELD
            if not in_memory(f[operand]):
                f[operand + 1] = encode(f[operand + LETTER], f[operand + 1])
            f[operand + LETTER] = raw(f[operand + LETTER])
    if count:
        keep_memory(f, pe)
        if reduced:
            # The first element starts from the scalar, each other from the result of the one before.
            write(f, f[operands + LETTER], f[pe + P_MEMORY] + f[operands + 1], f[first + 1])
            letter = f[first + LETTER]
            for k in range(BEFORE, HELD + BEFORE):
                f[first + k] = f[operands + k]
            f[first + LETTER], f[first + REGISTER] = letter, 0
        if not _quick(f, pe, operation, operands, n, count):
            _each(f, pe, operation, operands, n, count)
    operate(f, pe, START, cycles(f, pe, operation, operands, n, count))
    f[pe + P_ELEMENTS] += count
    for k in range(n):
        save(f, f[operands + k * HELD + REGISTER], count)
    return True


@inner
def _value(f, memory, operand, k):  # type: ignore[no-untyped-def]
    if in_memory(f[operand]):
        return read(f, f[operand + LETTER], memory + place(f, operand, k))
    return f[operand + 1]


@inner
def _each(f, pe, operation, operands, n, count):  # type: ignore[no-untyped-def]
    """Element after element: each reads its sources after the one before it was written."""
    memory, act, unfused = f[pe + P_MEMORY], TABLE[operation, ACT], f[H_UNFUSED]
    letter, carry, result = f[operands + LETTER], f[pe + P_CARRY], 0
    one, two, three = operands + HELD, operands + 2 * HELD, operands + 3 * HELD
    b = c = 0
    for k in range(count):
        a = _value(f, memory, one, k)
        if n > 2:
            b = _value(f, memory, two, k)
            if n > 3:
                c = _value(f, memory, three, k)
        result = compute(act, unfused, a, b, c, carry)
        if act == ADDC:
            carry = result >> 16
        write(f, letter, memory + place(f, operands, k), result)
    if act == ADDC:
        f[pe + P_CARRY] = carry
    elif TABLE[operation, CARRIES]:
        f[pe + P_CARRY] = result >> 16 & 1


@inner
def _plain(f, operands, n, letter):  # type: ignore[no-untyped-def]
    """Whether operands are vectors of one type, or scalars; the destination is a vector."""
    if f[operands] != MEM1D:
        return False
    for k in range(n):
        operand = operands + k * HELD
        if f[operand + LETTER] != letter or (f[operand] != MEM1D and in_memory(f[operand])):
            return False
    return True


@inner
def _quick(f, pe, operation, operands, n, count):  # type: ignore[no-untyped-def]
    """The same for the most frequent operations; false for any other."""
    act = TABLE[operation, ACT]
    memory = f[pe + P_MEMORY]
    to, step = memory + f[operands + 1], f[operands + 3]
    one, two, three = operands + HELD, operands + 2 * HELD, operands + 3 * HELD
    if act == SAME and TABLE[operation, MOVE] and _plain(f, operands, n, W):
        at, by = memory + f[one + 1], f[one + 3]
        if f[one] != MEM1D:
            for k in range(count):
                set32(f, to + k * step, f[one + 1])
        else:
            for k in range(count):
                set32(f, to + k * step, get32(f, at + k * by))
        return True
    if n < 3 or not (act == ADD or act == SUB or act == MUL or (act == FMA32 and not f[H_UNFUSED])):  # noqa: SIM109
        return False
    if not _plain(f, operands, n, F):
        return False
    a_at, a_by = _run(f, memory, one)
    b_at, b_by = _run(f, memory, two)
    a, b = bits_double(f[one + 1]), bits_double(f[two + 1])
    c_at = c_by = 0
    c = 0.0
    if n > 3:
        c_at, c_by = _run(f, memory, three)
        c = bits_double(f[three + 1])
    for k in range(count):
        if a_at:
            a = get_f32(f, a_at + k * a_by)
        if b_at:
            b = get_f32(f, b_at + k * b_by)
        if act == FMA32:
            if c_at:
                c = get_f32(f, c_at + k * c_by)
            result = fused(a, b, c)
        elif act == ADD:
            result = a + b
        elif act == SUB:
            result = a - b
        else:
            result = a * b
        set_f32(f, to + k * step, result)
    return True


@inner
def _run(f, memory, operand):  # type: ignore[no-untyped-def]
    """Byte and stride of a vector; 0, 0 of a scalar."""
    if f[operand] == MEM1D:
        return memory + f[operand + 1], f[operand + 3]
    return 0, 0
