"""The code of PEs, instruction after instruction, in compiled code. `instructions.py` has the table of instructions."""

import ctypes
from typing import Any

from cstool.csl.fabric import scalar
from cstool.csl.fabric.arch import SRAM_BYTES
from cstool.csl.fabric.counter import GO_ON, RESET, STOP
from cstool.csl.fabric.issue import MAP_ELEMENT
from cstool.csl.fabric.prng import _FIRST, _STEP, ACTIVE, GENERATORS, STATES
from cstool.csl.fabric.vector import START
from cstool.csl.fast import codes
from cstool.csl.fast.arithmetic import brain, half, half_bits, half_value, modulo, ratio, read
from cstool.csl.fast.bits import (
    bits_double,
    bits_single,
    call_function,
    double_bits,
    get16,
    get32,
    get_f32,
    get_i16,
    get_i32,
    set8,
    set16,
    set32,
    set_f32,
    single,
    single_bits,
    unsigned_double,
    unsigned_less,
    unsigned_quotient,
    unsigned_remainder,
    unsigned_shift,
)
from cstool.csl.fast.cells import allocate, append, fail, new_event
from cstool.csl.fast.elements import find_index, plain_element, read_ahead, source, write_result
from cstool.csl.fast.instructions import BEFORE, FUNCTIONS, HELD, ROW, TABLE_ROW, Op
from cstool.csl.fast.issue import (
    FAILED,
    WAITING,
    add_source,
    empty_thread,
    note_kind,
    set_dest,
)
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.operands import (
    KEPT,
    NONE,
    OPERANDS,
    REGISTER,
    TAG_RECORD,
    UNWATCHED,
    WATCH,
    WATCHING,
    extent,
    fit,
    grow,
    hold,
    keep_memory,
    load_register,
    save,
    waits,
)
from cstool.csl.fast.operations import MAP
from cstool.csl.fast.picker import activate, block, operate, set_cycles, settle, tick_at, unblock
from cstool.csl.fast.ramp import color_of, queue_flush
from cstool.csl.fast.state import (
    C_CODE,
    H_INTERPRET,
    H_ISSUE,
    H_LIMIT,
    H_RARE,
    H_WIDTH,
    HOST_SAYS,
    N_C,
    N_D,
    N_TIME,
    P_BASE,
    P_CLASS,
    P_COUNTER_BEGIN,
    P_COUNTER_STOPPED,
    P_CYCLES,
    P_ELEMENTS,
    P_FRAME,
    P_INDEX,
    P_MAIN_OPERATION,
    P_MEMORY,
    P_RESULT,
    P_RINGS,
    P_SPAN,
    P_STRIP,
    P_THREADS,
    P_THREADS_COUNT,
    R_READ_LENGTH,
    R_WORDS,
    R_WRITTEN_LENGTH,
    S_ERROR,
    S_HOST,
    S_NOW,
    S_SCRATCH,
    T_CALL,
    T_CODE,
    T_COUNT,
    T_DONE,
    T_LINE,
    T_NUMBER,
    T_OPERANDS,
    T_READY,
    T_SENDS_MEMORY,
    T_SOURCES,
)
from cstool.csl.fast.threads import free_thread, host_unblock
from cstool.csl.fast.tile import config_read, config_write
from cstool.csl.fast.units import call_unit, unit

ENDED, WAITS, PAUSED, STOPPED = range(4)
"""results of `run`: the function is over; it waits for the operation in `P_MAIN_OPERATION`; it waits for this cycle;
an error"""

_BYTES = 4 * ROW
_CLOCK = (1 << 48) - 1
_LEAST = -(1 << 63)

# Instructions as plain numbers, which compiled code compares.
(LDI, LDK, MOV, COPY, PICK, PLACE, ADD, SUB, MUL, AND, OR, XOR, ADDI, MULI, ANDI, ORI, XORI, RSUBI, SHL, SHR, USHR,
 SHLI, SHRI, USHRI, SEXT, FDIV, FMOD, UDIV, UMOD, QUOT, REM, UQUOT, UREM, JMP, JT, JF, JEQ, JNE, JLT, JLE, JULT, JULE,
 JEQI, JNEI, JLTI, JLEI, JGTI, JGEI, JFEQ, JFNE, JFLT, JFLE, JFNLT, JFNLE, FORINIT, FORNEXT, SPAN, LD, ST, LOAD, STORE,
 LD64, ST64, BYTES, CYC, CYCR, CALL, RET, FADD, FSUB, FMUL, FNEG, FABS, RND32, RND16, RNDB16, RATIO, MODULO, FUNCTION,
 ITOF, UTOF, INTEGER, TO_BITS, OF_BITS, PE, ACTIVATE, BLOCK, UNBLOCK, HOST_UNBLOCK, CONFIG_READ, CONFIG_WRITE,
 QUEUE_FLUSH, QUEUE_COLOR, FIFO_LENGTH, TIME, SHOWS, COUNTER, RANDOM, SEED, SAY, FAIL, OUTSIDE, SHIFT, RUN, WAIT, ISSUE,
 MORE, WAITED, PAUSE, LOAD_DSR, MAPPED, MAP_READ, MAP_PUT, MAP_END, RESTRIDE) = map(int, Op)  # fmt: skip


# --- functions of floats ---


def _function(number: int, x: float, y: float) -> float:
    name = FUNCTIONS[number]
    return scalar.function(name, x, y) if name in ("pow", "mod") else scalar.function(name, x)


FUNCTION_TYPE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double, ctypes.c_double)
_called = FUNCTION_TYPE(_function)


def function_address() -> int:
    """The address of the function for the exponential and its kind: the reference's, in Python, for the same bits."""
    return int(ctypes.cast(_called, ctypes.c_void_p).value or 0)


# --- functions begin ---


@inner
def start_function(f, pe, number, count, arguments):  # type: ignore[no-untyped-def]
    """Let code begin with a function at the next `run`.

    Its `count` arguments stand at an address: integers, or the bits of float64.
    """
    entry = f[f[f[pe + P_CLASS] + C_CODE] + 2] + TABLE_ROW * number
    frame = f[pe + P_FRAME]
    f[frame] = f[entry]
    f[frame + f[entry + 1]] = -1
    for k in range(min(count, f[entry + 2])):
        f[frame + f[f[entry + 3] + k]] = f[arguments + k]


@inner
def run(f, pe):  # type: ignore[no-untyped-def]
    """Run the code of a PE from where it is until it ends, or waits."""
    watched = f[f[f[pe + P_STRIP] + S_SCRATCH] + WATCH] != UNWATCHED
    return call_unit(f[H_INTERPRET], f, pe, f[f[pe + P_FRAME]] << 2 | (1 if watched else 0))


@inner
def watch(f, pe):  # type: ignore[no-untyped-def]
    """Before code: let memory be kept as it is, if operations under way send it; returns their number."""
    count = f[pe + P_THREADS_COUNT]
    senders = False
    for k in range(count):
        senders = senders or f[f[pe + P_THREADS + k] + T_SENDS_MEMORY] != 0
    f[f[f[pe + P_STRIP] + S_SCRATCH] + WATCH] = WATCHING if senders else UNWATCHED
    return count


@inner
def let_read_ahead(f, pe, count):  # type: ignore[no-untyped-def]
    """After code: let these operations read memory as it was before, for as long as the code takes."""
    flag = f[f[pe + P_STRIP] + S_SCRATCH] + WATCH
    if f[flag] == KEPT:
        _read_ahead(f, pe, count)
    f[flag] = UNWATCHED


@inner
def _read_ahead(f, pe, count):  # type: ignore[no-untyped-def]
    scratch, memory = f[f[pe + P_STRIP] + S_SCRATCH], f[pe + P_MEMORY] >> 3
    words = f[pe + P_SPAN] + 7 >> 3
    changed = False
    for k in range(words):
        if f[scratch + k] != f[memory + k]:
            changed = True
            f[scratch + k], f[memory + k] = f[memory + k], f[scratch + k]
    if not changed:
        return
    most = settle(f, pe) - f[f[pe + P_STRIP] + S_NOW]
    for k in range(count):
        thread = f[pe + P_THREADS + k]
        if f[thread + T_SENDS_MEMORY]:
            read_ahead(f, pe, thread, most)
    for k in range(words):
        f[memory + k] = f[scratch + k]


# --- the loop ---


@inner
def _byte(f, pe, index, size):  # type: ignore[no-untyped-def]
    """The byte of the state of element `index` of a view of elements of `size` bytes; -1 after an error."""
    if index < 0:
        index += SRAM_BYTES // size
    if index < 0 or (index + 1) * size > SRAM_BYTES:
        fail(f, f[pe + P_STRIP], codes.OUTSIDE_BY_CODE, pe)
        return -1
    if (index + 1) * size > f[pe + P_SPAN]:
        grow(f, pe)
    return f[pe + P_MEMORY] + index * size


@inner
def _any_byte(f, pe, address, size):  # type: ignore[no-untyped-def]
    """Likewise of `size` bytes at any address."""
    if address < 0:
        address += SRAM_BYTES
    if address < 0 or address + size > SRAM_BYTES:
        fail(f, f[pe + P_STRIP], codes.OUTSIDE_BY_CODE, pe)
        return -1
    if address + size > f[pe + P_SPAN]:
        grow(f, pe)
    return f[pe + P_MEMORY] + address


@unit
def interpret(f, pe, packed):  # type: ignore[no-untyped-def]
    """Interpret code of a PE until it ends, or waits.

    `packed` is the byte at which it goes on << 2, with bit 1 for a callback, and bit 0 where memory must be kept.
    """
    pc, nested, watching = packed >> 2, packed & 2, packed & 1
    frame, strip = f[pe + P_FRAME], f[pe + P_STRIP]
    while True:
        op, a, b, c = get_i32(f, pc), get_i32(f, pc + 4), get_i32(f, pc + 8), get_i32(f, pc + 12)
        pc += _BYTES
        if op == CYC:
            f[pe + P_CYCLES] += a
        elif op == LDI:
            f[frame + a] = b
        elif op == LDK:
            f[frame + a] = f[b]
        elif op == MOV:
            f[frame + a] = f[frame + b]
        elif op == LD or op == LOAD:  # noqa: SIM109
            view = get_i32(f, pc - 8)
            index = c if b < 0 else f[frame + b] + c
            size = 1 if view < 2 else 2 if view < 4 or view == 7 else 4
            byte = index * size if op == LD else index
            if byte < 0 or byte + size > f[pe + P_SPAN]:
                byte = _byte(f, pe, index, size) if op == LD else _any_byte(f, pe, index, size)
                if byte < 0:
                    return STOPPED
            else:
                byte += f[pe + P_MEMORY]
            if view == 2:
                f[frame + a] = get16(f, byte)
            elif view == 6:
                f[frame + a] = double_bits(get_f32(f, byte))
            elif view == 4:
                f[frame + a] = get32(f, byte)
            elif view == 3:
                f[frame + a] = get_i16(f, byte)
            else:
                f[frame + a] = _read_view(f, view, byte)
        elif op == ST or op == STORE:  # noqa: SIM109
            view = get_i32(f, pc - 8)
            index = c if b < 0 else f[frame + b] + c
            size = 1 if view < 2 else 2 if view < 4 or view == 7 else 4
            byte = index * size if op == ST else index
            if watching:
                keep_memory(f, pe)
            if byte < 0 or byte + size > f[pe + P_SPAN]:
                byte = _byte(f, pe, index, size) if op == ST else _any_byte(f, pe, index, size)
                if byte < 0:
                    return STOPPED
            else:
                byte += f[pe + P_MEMORY]
            word = f[frame + a]
            if view == 6:
                set_f32(f, byte, bits_double(word))
            elif view == 7:
                set16(f, byte, half_bits(bits_double(word)))
            elif size == 2:
                set16(f, byte, word)
            elif size == 4:
                set32(f, byte, word)
            else:
                set8(f, byte, word)
        elif op == RUN:
            if call_unit(f[H_ISSUE], f, pe, pc - _BYTES) == FAILED:
                return STOPPED
        elif op == ADD:
            f[frame + a] = f[frame + b] + f[frame + c]
        elif op == ADDI:
            f[frame + a] = f[frame + b] + c
        elif op == ANDI:
            f[frame + a] = f[frame + b] & c
        elif op == MULI:
            f[frame + a] = f[frame + b] * c
        elif op == SUB:
            f[frame + a] = f[frame + b] - f[frame + c]
        elif op == MUL:
            f[frame + a] = f[frame + b] * f[frame + c]
        elif op == RSUBI:
            f[frame + a] = c - f[frame + b]
        elif op == SHLI:
            f[frame + a] = f[frame + b] << c if c < 64 else 0
        elif op == SHRI:
            f[frame + a] = f[frame + b] >> min(c, 63)
        elif op == SEXT:
            f[frame + a] = f[frame + b] << 64 - c >> 64 - c
        elif op == JMP:
            if a < pc and f[pe + P_BASE] + f[pe + P_CYCLES] > f[H_LIMIT]:
                fail(f, strip, codes.ENDLESS, pe)
                return STOPPED
            pc = a
        elif op == JT:
            if f[frame + a] != 0:
                pc = b
        elif op == JF:
            if f[frame + a] == 0:
                pc = b
        elif op == JEQ:
            if f[frame + a] == f[frame + b]:
                pc = c
        elif op == JNE:
            if f[frame + a] != f[frame + b]:
                pc = c
        elif op == JLT:
            if f[frame + a] < f[frame + b]:
                pc = c
        elif op == JLE:
            if f[frame + a] <= f[frame + b]:
                pc = c
        elif op == JEQI:
            if f[frame + a] == b:
                pc = c
        elif op == JNEI:
            if f[frame + a] != b:
                pc = c
        elif op == JLTI:
            if f[frame + a] < b:
                pc = c
        elif op == JLEI:
            if f[frame + a] <= b:
                pc = c
        elif op == JGTI:
            if f[frame + a] > b:
                pc = c
        elif op == JGEI:
            if f[frame + a] >= b:
                pc = c
        elif op == FORINIT:
            turns = _turns(f, frame + a + 1)
            f[frame + a] = turns
            if turns:
                f[frame + b] = f[frame + a + 1]
            else:
                pc = c
        elif op == FORNEXT:
            turns = f[frame + a] - 1
            f[frame + a] = turns
            if turns > 0:
                if f[pe + P_BASE] + f[pe + P_CYCLES] > f[H_LIMIT]:
                    fail(f, strip, codes.ENDLESS, pe)
                    return STOPPED
                f[frame + a + 1] += f[frame + a + 2]
                f[frame + b] = f[frame + a + 1]
                pc = c
        elif op == CALL:
            f[frame + b] = pc
            pc = a
        elif op == RET:
            pc = f[frame + a]
            if pc < 0:
                return ENDED
        elif op == COPY:
            at = b >> 3
            if b & 7 == TAG_RECORD:
                at += frame
            for k in range(c):
                f[frame + a + k] = f[at + k]
        elif op == ACTIVATE:
            activate(f, pe, f[frame + a])
            if f[strip + S_ERROR]:
                return STOPPED
        elif op == ISSUE or op == WAIT:  # noqa: SIM109
            outcome = call_unit(f[H_ISSUE], f, pe, pc - _BYTES)
            pc += _BYTES
            if outcome == FAILED or f[strip + S_ERROR]:
                return STOPPED
            if outcome == WAITING:
                f[frame] = pc
                return PAUSED if op == ISSUE else WAITS
        elif op == WAITED:
            f[frame + a] = f[pe + P_RESULT]
        elif op == FADD:
            f[frame + a] = double_bits(bits_double(f[frame + b]) + bits_double(f[frame + c]))
        elif op == FSUB:
            f[frame + a] = double_bits(bits_double(f[frame + b]) - bits_double(f[frame + c]))
        elif op == FMUL:
            f[frame + a] = double_bits(bits_double(f[frame + b]) * bits_double(f[frame + c]))
        elif op == RND32:
            f[frame + a] = double_bits(single(bits_double(f[frame + b])))
        elif op == HOST_UNBLOCK:
            host_unblock(f, pe)
        elif op == PAUSE:
            f[frame] = pc
            return PAUSED
        elif op == OUTSIDE:
            index = f[frame + b]
            if index < 0 or index >= c:
                fail(f, strip, codes.INDEX, pe, a, index, c)
                return STOPPED
        elif op == AND:
            f[frame + a] = f[frame + b] & f[frame + c]
        elif op == OR:
            f[frame + a] = f[frame + b] | f[frame + c]
        elif op == XOR:
            f[frame + a] = f[frame + b] ^ f[frame + c]
        elif op == ORI:
            f[frame + a] = f[frame + b] | c
        elif op == XORI:
            f[frame + a] = f[frame + b] ^ c
        elif op >= JULT and op <= JULE:
            less = unsigned_less(f[frame + a], f[frame + b])
            if less or (op == JULE and f[frame + a] == f[frame + b]):
                pc = c
        elif op >= JFEQ and op <= JFNLE:
            if _float_jumps(op, bits_double(f[frame + a]), bits_double(f[frame + b])):
                pc = c
        elif op == MAPPED:
            e = get_i32(f, pc - 4)
            thread = _map(f, pe, pc, b, c)
            if not thread:
                return STOPPED
            if f[thread + T_READY] < 0:  # it waits
                f[frame] = e + _BYTES
                if not get_i32(f, pc - 8):
                    fail(f, strip, codes.MAP_WAITS, pe)
                    return STOPPED
                f[pe + P_MAIN_OPERATION] = thread
                return WAITS
            f[frame + a] = thread
            pc += b * _BYTES
        elif op == MAP_READ:
            thread = f[frame + a]
            if f[thread + T_DONE] >= f[thread + T_COUNT]:
                pc = get_i32(f, pc - 8)
            else:
                _read_sources(f, pe, thread)
        elif op == MAP_PUT:
            if nested:
                return ENDED
            thread = f[frame + a]
            keep_memory(f, pe)
            write_result(f, pe, thread, f[frame + b])
            f[thread + T_DONE] += 1
        elif op == MAP_END:
            thread = f[frame + a]
            for k in range(f[thread + T_SOURCES] + 1):
                save(f, f[thread + T_OPERANDS + k * HELD + REGISTER], f[thread + T_COUNT])
            f[pe + P_ELEMENTS] += f[thread + T_COUNT]
            free_thread(f, pe, thread)
        else:
            call_unit(f[H_RARE], f, pe, pc - _BYTES)
            if f[strip + S_ERROR]:
                return STOPPED


@inner
def _read_view(f, view, byte):  # type: ignore[no-untyped-def]
    """An element of a less frequent view."""
    return read(f, view, byte)


@inner
def _turns(f, at):  # type: ignore[no-untyped-def]
    """Turns of a range: its start, step and end stand at `at`."""
    start_, step, stop = f[at], f[at + 1], f[at + 2]
    if step > 0:
        return max(0, (stop - start_ + step - 1) // step)
    return max(0, (start_ - stop - step - 1) // -step) if step else 0


@inner
def _float_jumps(op, x, y):  # type: ignore[no-untyped-def]
    if op == JFEQ:
        return x == y
    if op == JFNE:
        return x != y
    if op == JFLT:
        return x < y
    if op == JFLE:
        return x <= y
    if op == JFNLT:
        return not x < y
    return not x <= y


# --- @map ---


@inner
def _map(f, pe, rows, n, given):  # type: ignore[no-untyped-def]
    """An operation for `@map` of `n` operands, `given` of them sources; 0 after an error.

    Its `T_READY` is -1 where it may have to wait, and has elements.
    """
    held = f[f[pe + P_STRIP] + S_SCRATCH] + OPERANDS
    for k in range(n):
        row = rows + k * _BYTES
        if not hold(f, pe, get_i32(f, row + 4), held + k * HELD):
            return 0
    for k in range(n):
        fit(f, held + k * HELD, get_i32(f, rows + k * _BYTES + 8))
    count, may_wait = extent(f, pe, held, n, given), waits(f, held, n)
    thread = empty_thread(f, pe, MAP, held, given, 1, given + 1)
    f[thread + T_NUMBER] = -1
    f[thread + T_COUNT] = count
    f[thread + T_CALL] = 1
    f[thread + T_SOURCES] = given
    f[thread + T_CODE] = rows
    f[thread + T_LINE] = 0
    for k in range(1, given + 1):
        if not add_source(f, pe, thread, k, False):
            return 0
    if n > given:
        for k in range(BEFORE, HELD + BEFORE):
            f[thread + T_OPERANDS + k] = f[held + given * HELD + k]
        if not set_dest(f, pe, thread, False):
            return 0
    else:
        f[thread + T_OPERANDS + REGISTER] = 0
    note_kind(f, thread)
    if may_wait and count:
        f[thread + T_READY] = -1
    else:
        operate(f, pe, START, 0)
        f[pe + P_CYCLES] += MAP_ELEMENT * count
    return thread


@inner
def _read_sources(f, pe, thread):  # type: ignore[no-untyped-def]
    """The next element of each source, into the registers of the callback's arguments."""
    frame, rows = f[pe + P_FRAME], f[thread + T_CODE]
    for k in range(f[thread + T_SOURCES]):
        f[frame + get_i32(f, rows + k * _BYTES + 12)] = source(f, pe, thread, k + 1)


@inner
def element(f, pe, thread):  # type: ignore[no-untyped-def]
    """Do the next element of an operation, which has all that it needs; the caller counts it."""
    if not f[thread + T_CALL]:
        plain_element(f, pe, thread)
        return
    find_index(f, thread)
    _read_sources(f, pe, thread)
    base, cycles = f[pe + P_BASE], f[pe + P_CYCLES]
    f[pe + P_BASE] = f[f[pe + P_STRIP] + S_NOW]
    set_cycles(f, pe, 0)
    frame, has_dest = f[pe + P_FRAME], f[thread + T_OPERANDS] != NONE
    rows = f[thread + T_SOURCES] + has_dest
    back = f[frame]
    call_unit(f[H_INTERPRET], f, pe, f[thread + T_CODE] + (rows + 1) * _BYTES << 2 | 2)
    f[frame] = back
    f[thread + T_READY] = MAP_ELEMENT + settle(f, pe)
    tick_at(f, pe, f[thread + T_READY])
    f[pe + P_BASE] = base
    set_cycles(f, pe, cycles)
    if has_dest:
        register = get_i32(f, f[thread + T_CODE] + f[thread + T_SOURCES] * _BYTES + 12)
        write_result(f, pe, thread, f[frame + register])


# --- less frequent instructions ---


@unit
def rare(f, pe, row):  # type: ignore[no-untyped-def]
    """Do an instruction that is less frequent, at a byte of the state."""
    op, a, b, c = get_i32(f, row), get_i32(f, row + 4), get_i32(f, row + 8), get_i32(f, row + 12)
    frame, strip = f[pe + P_FRAME], f[pe + P_STRIP]
    if op == SHL:
        f[frame + a] = f[frame + b] << f[frame + c] if f[frame + c] < 64 else 0
    elif op == SHR:
        f[frame + a] = f[frame + b] >> min(f[frame + c], 63)
    elif op == USHR:
        f[frame + a] = unsigned_shift(f[frame + b], f[frame + c]) if f[frame + c] < 64 else 0
    elif op == USHRI:
        f[frame + a] = unsigned_shift(f[frame + b], c)
    elif op == FDIV:
        f[frame + a] = f[frame + b] // f[frame + c]
    elif op == FMOD:
        f[frame + a] = f[frame + b] % f[frame + c]
    elif op == UDIV:
        f[frame + a] = unsigned_quotient(f[frame + b], f[frame + c])
    elif op == UMOD:
        f[frame + a] = unsigned_remainder(f[frame + b], f[frame + c])
    elif op >= QUOT and op <= UREM:
        _divide(f, pe, op, row, frame + a, f[frame + b], f[frame + c])
    elif op == SPAN:
        f[frame + a] = _turns(f, frame + b)
    elif op == CYCR:
        f[pe + P_CYCLES] += f[frame + a]
    elif op == PICK or op == PLACE:  # noqa: SIM109
        _pick(f, pe, op, row, a, b, c)
    elif op == LD64 or op == ST64:  # noqa: SIM109
        _load64(f, pe, op, a, b, c)
    elif op == BYTES:
        count = get_i32(f, row + 16)
        address = b if a < 0 else f[frame + a] + b
        keep_memory(f, pe)
        byte = _any_byte(f, pe, address, count)
        if byte >= 0:
            for k in range(count):
                set8(f, byte + k, f[c + (k >> 3)] >> ((k & 7) << 3))
    elif op >= FNEG and op <= OF_BITS:
        _floats(f, pe, op, row, a, b, c)
    elif op == PE:
        index, width, at = f[pe + P_INDEX], f[H_WIDTH], f[f[pe + P_CLASS] + C_CODE]
        number = index // width if b & 1 else index % width
        f[frame + a] = number + (f[at + 3 + (b & 1)] if b > 1 else 0)
    elif op == BLOCK:
        block(f, pe, f[frame + a])
    elif op == UNBLOCK:
        unblock(f, pe, f[frame + a])
    elif op == CONFIG_READ:
        f[frame + a] = config_read(f, pe, f[frame + b])
    elif op == CONFIG_WRITE:
        config_write(f, pe, f[frame + a], f[frame + b])
    elif op == QUEUE_FLUSH:
        queue_flush(f, pe, f[frame + a], b)
    elif op == QUEUE_COLOR:
        f[frame + a] = color_of(f, pe, f[frame + b], c)
    elif op == FIFO_LENGTH:
        f[f[pe + P_RINGS] + R_WORDS * a + (R_WRITTEN_LENGTH if b else R_READ_LENGTH)] = f[frame + c]
    elif op == TIME:
        f[frame + a] = settle(f, pe) & _CLOCK
    elif op == SHOWS:
        f[frame + a] = _shows(f, pe)
    elif op == COUNTER:
        _set_counter(f, pe, f[frame + a])
    elif op == RANDOM:
        f[frame + a] = _random(f, pe)
    elif op == SEED:
        config_write(f, pe, ACTIVE, f[frame + a] % GENERATORS)
    elif op == SAY:
        _say(f, pe, a, frame + b, c)
    elif op == SHIFT:
        count = f[frame + b]
        f[frame + a] = min(count, 64)
        if count < 0:
            fail(f, strip, codes.SHIFTED, pe, c, count)
    elif op == LOAD_DSR:
        load_register(f, pe, a, b, c, get_i32(f, row + 16))
    elif op == RESTRIDE:
        f[frame + a + 3] = f[frame + a + 3] // f[frame + a + 4] * b
        f[frame + a + 4] = b
    else:
        fail(f, strip, codes.FAILED, pe, a)
    return 0


@inner
def _divide(f, pe, op, row, to, left, right):  # type: ignore[no-untyped-def]
    """QUOT, REM, UQUOT, UREM."""
    if right == 0:
        is_remainder = op == REM or op == UREM  # noqa: SIM109
        fail(f, f[pe + P_STRIP], codes.DIVISOR, pe, get_i32(f, row + 16), left, is_remainder)
    elif op == UQUOT:
        f[to] = unsigned_quotient(left, right)
    elif op == UREM:
        f[to] = unsigned_remainder(left, right)
    elif op == QUOT:
        result = abs(left) // abs(right)
        f[to] = result if (left < 0) == (right < 0) else -result
    else:
        result = abs(left) % abs(right)
        f[to] = -result if left < 0 else result


@inner
def _pick(f, pe, op, row, a, b, c):  # type: ignore[no-untyped-def]
    """PICK and PLACE: an element of a list in registers or constants, by an index."""
    frame = f[pe + P_FRAME]
    count, words = get_i32(f, row + 16), get_i32(f, row + 20)
    index = f[frame + c]
    if index < 0:
        index += count
    if index < 0 or index >= count:
        fail(f, f[pe + P_STRIP], codes.OUTSIDE_BY_CODE, pe)
        return
    ref = b if op == PICK else a
    at = (ref >> 3) + index * words + (frame if ref & 7 == TAG_RECORD else 0)
    for k in range(words):
        if op == PICK:
            f[frame + a + k] = f[at + k]
        else:
            f[at + k] = f[frame + b + k]


@inner
def _load64(f, pe, op, a, b, c):  # type: ignore[no-untyped-def]
    """LD64 and ST64: two words of 32 bits."""
    frame = f[pe + P_FRAME]
    index = (c if b < 0 else f[frame + b] + c) >> 2
    if op == ST64:
        keep_memory(f, pe)
    # The first of them may let the memory grow, which moves it.
    if _byte(f, pe, index, 4) < 0 or _byte(f, pe, index + 1, 4) < 0:
        return
    low, high = _byte(f, pe, index, 4), _byte(f, pe, index + 1, 4)
    if op == LD64:
        f[frame + a] = get32(f, low) | get32(f, high) << 32
    else:
        set32(f, low, f[frame + a])
        set32(f, high, f[frame + a] >> 32)


@inner
def _floats(f, pe, op, row, a, b, c):  # type: ignore[no-untyped-def]
    frame = f[pe + P_FRAME]
    word = f[frame + b]
    x = bits_double(word)
    if op == FNEG:
        x = -x
    elif op == FABS:
        x = abs(x)
    elif op == RND16:
        x = half(x)
    elif op == RNDB16:
        x = brain(x)
    elif op == RATIO:
        x = ratio(x, bits_double(f[frame + c]))
    elif op == MODULO:
        x = modulo(x, bits_double(f[frame + c]))
    elif op == FUNCTION:
        address = f[f[f[pe + P_CLASS] + C_CODE] + 1]
        one, other = bits_double(f[frame + c]), bits_double(f[frame + get_i32(f, row + 16)])
        x = call_function(address, b, one, other)
    elif op == ITOF:
        x = float(word)
    elif op == UTOF:
        x = unsigned_double(word)
    elif op == OF_BITS:
        x = bits_single(word) if c == 3 else half_value(word) if c == 4 else bits_single(word << 16)
    else:
        if op == INTEGER:
            word = _integer(x, c)
        else:
            word = single_bits(x) if c == 0 else half_bits(x) if c == 1 else single_bits(x) >> 16
        f[frame + a] = word
        return
    f[frame + a] = double_bits(x)


@inner
def _integer(x, bounds):  # type: ignore[no-untyped-def]
    """A float rounded towards zero; beyond the bounds, the nearest bound; NaN gives 0."""
    if x != x:
        return 0
    if bounds == 0:
        return int(max(-2147483648.0, min(2147483647.0, x)))
    if bounds == 1:
        return int(max(0.0, min(4294967295.0, x)))
    if bounds == 2:
        if x >= 9223372036854775808.0:
            return ~_LEAST
        return _LEAST if x <= -9223372036854775808.0 else int(x)
    if x <= 0.0:
        return 0
    if x >= 18446744073709551616.0:
        return -1
    return int(x) if x < 9223372036854775808.0 else int(x - 9223372036854775808.0) ^ _LEAST


@inner
def _shows(f, pe):  # type: ignore[no-untyped-def]
    """The time stamp counter."""
    stopped = f[pe + P_COUNTER_STOPPED]
    return (settle(f, pe) - f[pe + P_COUNTER_BEGIN] if stopped < 0 else stopped) & _CLOCK


@inner
def _set_counter(f, pe, act):  # type: ignore[no-untyped-def]
    """Stop the counter, let it go on, or set it to 0."""
    stopped = f[pe + P_COUNTER_STOPPED]
    if act == RESET:
        f[pe + P_COUNTER_BEGIN] = settle(f, pe)
        if stopped >= 0:
            f[pe + P_COUNTER_STOPPED] = 0
    elif act == GO_ON and stopped >= 0:
        f[pe + P_COUNTER_BEGIN] = settle(f, pe) - stopped
        f[pe + P_COUNTER_STOPPED] = -1
    elif act == STOP and stopped < 0:
        f[pe + P_COUNTER_STOPPED] = _shows(f, pe)


@inner
def _random(f, pe):  # type: ignore[no-untyped-def]
    """`prng.random16`."""
    number = config_read(f, pe, ACTIVE)
    at = STATES + 2 * number
    state = config_read(f, pe, at) | config_read(f, pe, at + 1) << 16
    if not state:
        state = (_FIRST + _STEP * number) & 0xFFFFFFFF
    state ^= state << 13 & 0xFFFFFFFF
    state ^= state >> 17
    state ^= state << 5 & 0xFFFFFFFF
    config_write(f, pe, at, state & 0xFFFF)
    config_write(f, pe, at + 1, state >> 16)
    return state >> 16


@inner
def _say(f, pe, text, at, count):  # type: ignore[no-untyped-def]
    """Tell the host of a line: the text's number, and its values: two in the event, more at the address in `N_C`."""
    strip = f[pe + P_STRIP]
    event = new_event(f, strip, HOST_SAYS, pe, text, count)
    f[event + N_TIME] = settle(f, pe)
    f[event + N_C] = f[at] if count else 0
    f[event + N_D] = f[at + 1] if count > 1 else 0
    if count > 2:
        f[event + N_C] = to = allocate(f, strip, count)
        for k in range(count):
            f[to + k] = f[at + k]
    append(f, strip + S_HOST, event)


def shown(content: tuple[str, tuple[Any, ...]], words: list[int]) -> str:
    """The text of SAY: its pieces, and the words of its values."""
    import struct

    found, rest = [], iter(words)
    for piece in content[1]:
        if isinstance(piece, str):
            found.append(piece)
            continue
        how, type_ = piece
        word = next(rest)
        value: Any = word
        if type_ == "float":
            value = struct.unpack("<d", struct.pack("<q", word))[0]
        elif type_ == "bool":
            value = bool(word)
        elif type_ == "u64":
            value = word & 0xFFFFFFFFFFFFFFFF
        found.append(scalar.shown(how, value))
    return "".join(found)
