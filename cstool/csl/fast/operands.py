"""Operands of vector operations in compiled code: their records, as `instructions.Kind` lays them out, held and fitted.

A held operand has no register in it any more; a fitted one has strides of the operation's elements.
"""

from cstool.csl.fabric.arch import SRAM_BYTES
from cstool.csl.fast import codes
from cstool.csl.fast.bits import double_bits
from cstool.csl.fast.cells import allocate, fail
from cstool.csl.fast.instructions import BEFORE, HELD, RECORD, SETTINGS, Kind, Tag
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.operations import EITHER, RAW, SIZES, SOURCES, TABLE
from cstool.csl.fast.state import (
    P_FRAME,
    P_MEMORY,
    P_RINGS,
    P_SPAN,
    P_STRIP,
    R_READ_LENGTH,
    R_WORDS,
    R_WRITTEN_LENGTH,
    S_ERROR_TASK,
    S_SCRATCH,
)

NONE, INT, FLOAT, POINTER, MEM1D, MEM4D, FABIN, FABOUT, FIFO, DSR = map(int, Kind)
(TAG_RECORD, TAG_CONSTANT, TAG_INT, TAG_FLOAT, TAG_POINTER, TAG_NONE) = map(int, Tag)
LETTER, REGISTER, READS, HANDLE = BEFORE, BEFORE + 1, BEFORE + 2, BEFORE + 3
"""words before the record of a held operand, in one line of the cache with its first four: its letter; the register of
operands that it came from, or 0; how a thread reads it; and its queue or FIFO"""
KNOWN = 1 << 30
OPERANDS = (SRAM_BYTES >> 3) - BEFORE
"""word of the scratch area at which held operands of an operation at once begin; before it is kept memory"""
MERGED = OPERANDS + 8 * HELD
"""likewise, settings"""
WATCH = MERGED + SETTINGS
"""likewise, a flag: operations under way send memory (`WATCHING`), and that is kept as it was before code (`KEPT`)"""
UNWATCHED, WATCHING, KEPT = range(3)


# --- SRAM ---


@inner
def grow(f, pe):  # type: ignore[no-untyped-def]
    """Give a PE all of its SRAM, where code leaves the part that its variables need."""
    words = f[pe + P_SPAN] + 7 >> 3
    if words >= SRAM_BYTES >> 3:
        return
    at = allocate(f, f[pe + P_STRIP], SRAM_BYTES >> 3)
    before = f[pe + P_MEMORY] >> 3
    if at == f[f[pe + P_STRIP] + S_SCRATCH]:
        return  # the pool is full: an error is noted
    for k in range(words):
        f[at + k] = f[before + k]
    scratch = f[f[pe + P_STRIP] + S_SCRATCH]
    for k in range(words, SRAM_BYTES >> 3):
        f[scratch + k] = 0  # what `keep_memory` keeps
    f[pe + P_MEMORY] = at << 3
    f[pe + P_SPAN] = SRAM_BYTES


@inner
def keep_memory(f, pe):  # type: ignore[no-untyped-def]
    """Keep memory as it is before code writes to it first, where operations under way send memory."""
    scratch = f[f[pe + P_STRIP] + S_SCRATCH]
    if f[scratch + WATCH] != WATCHING:
        return
    f[scratch + WATCH] = KEPT
    memory = f[pe + P_MEMORY] >> 3
    for k in range(f[pe + P_SPAN] + 7 >> 3):
        f[scratch + k] = f[memory + k]


# --- held, and fitted ---


@inner
def hold(f, pe, ref, to):  # type: ignore[no-untyped-def]
    """Copy the operand of a `ref` to a held one; false after an error."""
    tag, at = ref & 7, ref >> 3
    f[to + REGISTER] = 0
    f[to + READS] = 0
    if tag == TAG_CONSTANT:
        pass
    elif tag == TAG_RECORD:
        at += f[pe + P_FRAME]
    else:
        f[to] = INT if tag == TAG_INT else FLOAT if tag == TAG_FLOAT else POINTER if tag == TAG_POINTER else NONE
        f[to + 1] = f[f[pe + P_FRAME] + at] if tag != TAG_NONE else 0
        return True
    kind = f[at]
    if kind == DSR:
        register = f[pe + P_FRAME] + f[at + 1]
        f[to + REGISTER] = register
        if not f[register]:
            fail(f, f[pe + P_STRIP], codes.NOT_LOADED, pe, f[at + 2], f[at + 3])
            return False
        at = register + 2
        kind = f[at]
    words = 16 if kind == MEM4D else 8 if kind >= FABIN else 6 if kind == MEM1D else 2
    for k in range(words):
        f[to + k] = f[at + k]
    return True


@inner
def fit(f, operand, letter):  # type: ignore[no-untyped-def]
    """Let the strides of a held operand count elements of a type; in its register, too."""
    f[operand + LETTER] = letter
    kind = f[operand]
    if kind != MEM1D and kind != MEM4D:  # noqa: SIM109
        return
    size, width = SIZES[letter], f[operand + 4]
    if size == width:
        return
    if kind == MEM1D:
        f[operand + 3] = f[operand + 3] // width * size
    else:
        for k in range(11, 15):
            f[operand + k] = f[operand + k] // width * size
    f[operand + 4] = size
    register = f[operand + REGISTER]
    if register:
        for k in range(RECORD):
            f[register + 2 + k] = f[operand + k]


@inner
def in_memory(kind):  # type: ignore[no-untyped-def]
    """Whether a kind of operand is a vector or tensor in memory."""
    return kind == MEM1D or kind == MEM4D  # noqa: SIM109


@inner
def waits(f, operands, count):  # type: ignore[no-untyped-def]
    """Whether an operation may have to wait for one of its held operands."""
    for k in range(count):
        kind = f[operands + k * HELD]
        if FABIN <= kind <= FIFO:
            return True
    return False


@inner
def extent(f, pe, operands, count, dest):  # type: ignore[no-untyped-def]
    """Elements of an operation on held operands; `dest` is the number of its destination, -1: it has none."""
    memory, streams = KNOWN, KNOWN
    for k in range(count):
        operand = operands + k * HELD
        kind = f[operand]
        if in_memory(kind):
            memory = min(memory, f[operand + 2])
        elif kind == FABIN or kind == FABOUT:  # noqa: SIM109
            streams = min(streams, f[operand + 2])
        elif kind == FIFO:
            ring = f[pe + P_RINGS] + R_WORDS * f[operand + 1]
            length = f[ring + (R_WRITTEN_LENGTH if k == dest else R_READ_LENGTH)]
            if length >= 0:
                streams = min(streams, length)
    if memory < KNOWN:
        return memory
    return streams if streams < KNOWN else 1


# --- places ---


@inner
def place(f, operand, k):  # type: ignore[no-untyped-def]
    """The address of element k of a vector or tensor in memory."""
    if f[operand] == MEM1D:
        return f[operand + 1] + k * f[operand + 3]
    if f[operand + 15]:
        return f[operand + 1] + (f[operand + 3] + k) % f[operand + 15] * f[operand + 14]
    address = f[operand + 1]
    for axis in range(3, -1, -1):
        extent_ = max(1, f[operand + 7 + axis])
        address += k % extent_ * f[operand + 11 + axis]
        k //= extent_
    return address


@inner
def indexed_place(f, operand, index):  # type: ignore[no-untyped-def]
    """The address of an element by its index; the slowest dimension has no end."""
    if f[operand] == MEM1D:
        return f[operand + 1] + index * f[operand + 3]
    address = f[operand + 1]
    slowest = 4 - f[operand + 6]
    for axis in range(3, slowest, -1):
        extent_ = max(1, f[operand + 7 + axis])
        address += index % extent_ * f[operand + 11 + axis]
        index //= extent_
    return address + index * f[operand + 11 + slowest]


@inner
def bounds(f, operand, count):  # type: ignore[no-untyped-def]
    """The first byte, and the byte behind the last, of the first elements of an operand; `count` is not 0."""
    size = SIZES[f[operand + LETTER]]
    if f[operand] == MEM1D or (f[operand] == POINTER):  # noqa: SIM109
        step = f[operand + 3] if f[operand] == MEM1D else 0
        first = f[operand + 1]
        last = first + (count - 1) * step
        return min(first, last), max(first, last) + size
    low = high = place(f, operand, 0)
    for k in range(1, count):
        at = place(f, operand, k)
        low, high = min(low, at), max(high, at)
    return low, high + size


@inner
def check(f, pe, operand, count, operation, task):  # type: ignore[no-untyped-def]
    """Let the elements of an operand be there; false after an error: they are not all in the SRAM."""
    if not count:
        return True
    low, high = bounds(f, operand, count)
    if low < 0 or high > SRAM_BYTES:
        strip = f[pe + P_STRIP]
        fail(f, strip, codes.OUTSIDE_BY_OPERATION, pe, operation, low, high)
        f[strip + S_ERROR_TASK] = task
        return False
    if high > f[pe + P_SPAN]:
        grow(f, pe)
    return True


@inner
def as_pointer(f, operand, count):  # type: ignore[no-untyped-def]
    """Make a held pointer a vector of one place."""
    if f[operand] == POINTER:
        f[operand] = MEM1D
        f[operand + 2] = count
        f[operand + 3] = 0
        f[operand + 4] = SIZES[f[operand + LETTER]]
        f[operand + 5] = 0


# --- letters and settings ---


@inner
def fit_all(f, operation, operands, count):  # type: ignore[no-untyped-def]
    """Give held operands their letters, and fit them. Sources of `@faddhs` come in either order, as vectors show."""
    first = 0
    if TABLE[operation, 1] >= 0:
        fit(f, operands, TABLE[operation, 1])
        first = 1
    turned = False
    if TABLE[operation, EITHER]:
        one, other = operands + HELD, operands + 2 * HELD
        turned = (in_memory(f[one]) and f[one + 4] == 2) or (in_memory(f[other]) and f[other + 4] == 4)
    for k in range(count - first):
        column = k if not turned else 1 - k
        fit(f, operands + (first + k) * HELD, TABLE[operation, SOURCES + column])


@inner
def as_float(f, operand):  # type: ignore[no-untyped-def]
    """Make an integer scalar a float, where the operation computes with floats."""
    letter = f[operand + LETTER]
    if f[operand] == INT and (letter == 6 or letter == 7):  # noqa: SIM109
        f[operand] = FLOAT
        f[operand + 1] = double_bits(float(f[operand + 1]))


@inner
def raw(letter):  # type: ignore[no-untyped-def]
    """The integer type of the same size."""
    return RAW[letter]


@inner
def settings_at(f, pe, ref):  # type: ignore[no-untyped-def]
    """The address of settings by their `ref`."""
    return (ref >> 3) + (f[pe + P_FRAME] if ref & 7 == TAG_RECORD else 0)


@inner
def merge_settings(f, pe, ref, operands, count):  # type: ignore[no-untyped-def]
    """The address of an operation's settings, completed from the registers among its held operands."""
    given = settings_at(f, pe, ref)
    at = f[f[pe + P_STRIP] + S_SCRATCH] + MERGED
    for k in range(SETTINGS):
        f[at + k] = f[given + k]
    for k in range(count):
        register = f[operands + k * HELD + REGISTER]
        if not register:
            continue
        of = register + 2 + RECORD
        for field in (0, 1, 2, 4):
            if f[at + field] < 0:
                f[at + field] = f[of + field]
        if f[at + 3] == 1:
            f[at + 3] = f[of + 3]
        if not f[at + 5]:
            for field in range(5, 9):
                f[at + field] = f[of + field]
        f[at + 9] = f[at + 9] or f[of + 9]
    return at


# --- registers of operands ---


@inner
def save(f, register, done):  # type: ignore[no-untyped-def]
    """Advance a register behind the last element, if it was loaded so."""
    if not register or not f[register + 1]:
        return
    at = register + 2
    kind = f[at]
    if kind == MEM1D:
        f[at + 1] += done * f[at + 3]
    elif kind == MEM4D and f[at + 15]:
        f[at + 3] = (f[at + 3] + done) % f[at + 15]
    elif kind == MEM4D:
        f[at + 1] = place(f, at, 0) + done * f[at + 14]


@inner
def load_register(f, pe, register, ref, settings, save_address):  # type: ignore[no-untyped-def]
    """`@load_to_dsr`: the register and the operand are `ref`s."""
    at = register >> 3
    if register & 7 == TAG_RECORD:
        at += f[pe + P_FRAME]
    to = f[pe + P_FRAME] + f[at + 1]
    held = f[f[pe + P_STRIP] + S_SCRATCH] + OPERANDS
    if not hold(f, pe, ref, held):
        return
    f[to] = 1
    f[to + 1] = save_address
    for k in range(RECORD):
        f[to + 2 + k] = f[held + k]
    of = settings_at(f, pe, settings)
    for k in range(SETTINGS):
        f[to + 2 + RECORD + k] = f[of + k]
