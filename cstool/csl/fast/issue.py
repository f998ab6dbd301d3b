"""Operations as code asks for them, in compiled code: `fabric.issue`."""

from cstool.csl.fabric.arch import OWN_QUEUES
from cstool.csl.fabric.vector import LAUNCH, START
from cstool.csl.fast import codes
from cstool.csl.fast.arithmetic import encode
from cstool.csl.fast.bits import get_i32
from cstool.csl.fast.cells import fail
from cstool.csl.fast.elements import INDEXED, REDUCED, VECTOR
from cstool.csl.fast.instructions import BEFORE, HELD, ROW, Op
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.operands import (
    FABIN,
    FABOUT,
    FIFO,
    FLOAT,
    HANDLE,
    INT,
    LETTER,
    MEM1D,
    NONE,
    OPERANDS,
    POINTER,
    READS,
    as_float,
    as_pointer,
    check,
    extent,
    fit_all,
    hold,
    in_memory,
    merge_settings,
    raw,
    waits,
)
from cstool.csl.fast.operations import (
    ADD16,
    COUNT,
    DEST,
    DFILT,
    MOVE,
    REDUCES,
    SATURATED_ADD,
    SATURATED_SUB,
    SIZES,
    SUB16,
    TABLE,
)
from cstool.csl.fast.picker import complete, operate, set_cycles, settle
from cstool.csl.fast.ramp import input_slot, output_slot
from cstool.csl.fast.state import (
    C_MICROTHREADS,
    O_COLOR,
    P_BASE,
    P_CLASS,
    P_CYCLES,
    P_MAIN_OPERATION,
    P_RESULT,
    P_RINGS,
    P_RUNNING,
    P_STRIP,
    R_WORDS,
    S_ERROR,
    S_SCRATCH,
    T_ACTIVATE,
    T_CALL,
    T_COLORS,
    T_CONTROL_ACTIVATE,
    T_CONTROL_TERMINATE,
    T_CONTROL_UNBLOCK,
    T_COUNT,
    T_DROP,
    T_FIRST_INDEX,
    T_INDEXED,
    T_INPUTS,
    T_INPUTS_COUNT,
    T_LINE,
    T_NUMBER,
    T_ON_CONTROL,
    T_OPERANDS,
    T_OPERATION,
    T_OUTPUT,
    T_POPPED,
    T_POPPED_COUNT,
    T_PRIORITY,
    T_PUSHED,
    T_RARE,
    T_SENDS_MEMORY,
    T_SENT_INDEX,
    T_SOURCES,
    T_UNBLOCK,
    T_UP_ADVANCE,
    T_UP_COLOR,
    T_UP_CONTROL,
)
from cstool.csl.fast.threads import ask, end_at, free_number, free_thread, new_thread
from cstool.csl.fast.units import unit
from cstool.csl.fast.vectors import at_once

RUN, WAIT = int(Op.RUN), int(Op.WAIT)
DONE, WAITING, FAILED = 0, 1, 2
"""outcomes: done at once; an operation that the code has to wait for; an error"""


# --- an operation of its own: a thread ---


@inner
def add_source(f, pe, thread, number, move):  # type: ignore[no-untyped-def]
    """Let a thread read the held operand `number`, counted from 1; false after an error."""
    operand = thread + T_OPERANDS + number * HELD
    operation = f[thread + T_OPERATION]
    as_pointer(f, operand, f[thread + T_COUNT])
    as_float(f, operand)
    kind = f[operand]
    if in_memory(kind) and f[operand + 5]:
        f[thread + T_INDEXED] = 1
        f[operand + READS] = INDEXED
    elif in_memory(kind):
        if not check(f, pe, operand, f[thread + T_COUNT], operation, f[pe + P_RUNNING]):
            return False
        f[operand + READS] = VECTOR
    elif kind == FABIN:
        queue = input_slot(f, pe, f[operand + 1], operation)
        if queue < 0:
            return False
        at = f[thread + T_INPUTS_COUNT]
        f[thread + T_INPUTS + at] = f[operand + HANDLE] = queue
        f[thread + T_COLORS + at] = f[operand + 3]
        f[thread + T_INPUTS_COUNT] = at + 1
        if not f[thread + T_ON_CONTROL] and f[operand + 4]:
            _set_control(f, thread, operand + 4)
    elif kind == FIFO:
        at = f[thread + T_POPPED_COUNT]
        f[thread + T_POPPED + at] = f[operand + HANDLE] = f[pe + P_RINGS] + R_WORDS * f[operand + 1]
        f[thread + T_POPPED_COUNT] = at + 1
    elif kind == INT or kind == FLOAT:  # noqa: SIM109
        if move:
            f[operand + 1] = encode(f[operand + LETTER], f[operand + 1])
    else:
        fail(f, f[pe + P_STRIP], codes.CANNOT_READ, pe, operation, kind)
        return False
    if move:
        f[operand + LETTER] = raw(f[operand + LETTER])
    return True


@inner
def _set_control(f, thread, at):  # type: ignore[no-untyped-def]
    """Note the effect of a control wavelet: four words."""
    f[thread + T_ON_CONTROL] = f[at]
    f[thread + T_CONTROL_TERMINATE] = f[at + 1]
    f[thread + T_CONTROL_ACTIVATE] = f[at + 2]
    f[thread + T_CONTROL_UNBLOCK] = f[at + 3]


@inner
def set_dest(f, pe, thread, move):  # type: ignore[no-untyped-def]
    """Let a thread write its held destination; false after an error."""
    operand = thread + T_OPERANDS
    operation = f[thread + T_OPERATION]
    if move:
        f[operand + LETTER] = raw(f[operand + LETTER])
    as_pointer(f, operand, f[thread + T_COUNT])
    kind = f[operand]
    if in_memory(kind) and f[operand + 5]:
        f[thread + T_INDEXED] = 1
        f[operand + READS] = INDEXED
    elif in_memory(kind):
        return check(f, pe, operand, f[thread + T_COUNT], operation, f[pe + P_RUNNING])
    elif kind == FABOUT:
        queue = output_slot(f, pe, f[operand + 1], f[operand + 3], operation)
        if queue < 0:
            return False
        f[thread + T_OUTPUT] = queue
        f[thread + T_UP_COLOR] = f[queue + O_COLOR] if f[queue + O_COLOR] >= 0 else f[operand + 3]
        f[thread + T_UP_CONTROL] = f[operand + 4]
        f[thread + T_UP_ADVANCE] = f[operand + 6]
        small = SIZES[f[operand + LETTER]] == 2
        f[thread + T_SENT_INDEX] = small and (f[operand + 5] != 0 or f[thread + T_FIRST_INDEX] >= 0)
    elif kind == FIFO:
        f[thread + T_PUSHED] = f[operand + HANDLE] = f[pe + P_RINGS] + R_WORDS * f[operand + 1]
    else:
        fail(f, f[pe + P_STRIP], codes.CANNOT_WRITE, pe, operation, kind)
        return False
    return True


@inner
def empty_thread(f, pe, operation, held, n, shift, room):  # type: ignore[no-untyped-def]
    """A thread with room for so many operands: copies of `n` held ones, the first one behind `shift` others."""
    thread = new_thread(f, pe, room)
    f[thread + T_OPERATION] = operation
    f[thread + T_OPERANDS] = NONE
    to = thread + T_OPERANDS + shift * HELD
    for k in range(BEFORE, n * HELD + BEFORE):
        f[to + k] = f[held + k]
    return thread


@inner
def _thread(f, pe, operation, held, n, settings, number, line):  # type: ignore[no-untyped-def]
    """A thread for an operation; 0 after an error."""
    has_dest = TABLE[operation, DEST] >= 0
    shift = 0 if has_dest else 1
    thread = empty_thread(f, pe, operation, held, n, shift, n + shift)
    f[thread + T_NUMBER] = number
    f[thread + T_LINE] = line
    f[thread + T_ACTIVATE] = f[settings]
    f[thread + T_UNBLOCK] = f[settings + 1]
    f[thread + T_PRIORITY] = f[settings + 3]
    f[thread + T_FIRST_INDEX] = f[settings + 4]
    _set_control(f, thread, settings + 5)
    f[thread + T_COUNT] = extent(f, pe, held, n, 0 if has_dest else -1)
    sources = n - 1 if has_dest else n
    f[thread + T_SOURCES] = sources
    move = TABLE[operation, MOVE]
    operands = thread + T_OPERANDS
    first = operands + HELD
    begin = 1
    scalar = f[first] == INT or f[first] == FLOAT  # noqa: SIM109
    if has_dest and TABLE[operation, REDUCES] and f[operands] == POINTER and scalar:
        as_pointer(f, operands, f[thread + T_COUNT])
        if not check(f, pe, operands, f[thread + T_COUNT], operation, f[pe + P_RUNNING]):
            return 0
        as_float(f, first)
        f[first + READS] = REDUCED
        begin = 2
    for k in range(begin, sources + 1):
        if not add_source(f, pe, thread, k, move):
            return 0
    if has_dest and not set_dest(f, pe, thread, move):
        return 0
    f[thread + T_DROP] = operation == DFILT
    note_kind(f, thread)
    return thread


@inner
def note_kind(f, thread):  # type: ignore[no-untyped-def]
    """Note whether a thread reads memory and writes none, and whether its elements are of a rare kind."""
    for k in range(1, f[thread + T_SOURCES] + 1):
        if f[thread + T_OPERANDS + k * HELD + READS] == VECTOR and f[thread + T_OUTPUT]:
            f[thread + T_SENDS_MEMORY] = 1
    has_fifo = f[thread + T_POPPED_COUNT] != 0 or f[thread + T_PUSHED] != 0
    has_index = f[thread + T_INDEXED] != 0 or f[thread + T_SENT_INDEX] != 0
    f[thread + T_RARE] = has_fifo or has_index or f[thread + T_DROP] != 0 or f[thread + T_CALL] != 0


# --- from code ---


@inner
def hold_all(f, pe, operation, one, two, three, four):  # type: ignore[no-untyped-def]
    """Hold and fit the operands of an operation in the scratch area; returns their number, 0 after an error."""
    held = f[f[pe + P_STRIP] + S_SCRATCH] + OPERANDS
    n = TABLE[operation, COUNT] + (TABLE[operation, DEST] >= 0)
    if not hold(f, pe, one, held):
        return 0
    if n > 1 and not hold(f, pe, two, held + HELD):
        return 0
    if n > 2 and not hold(f, pe, three, held + 2 * HELD):
        return 0
    if n > 3 and not hold(f, pe, four, held + 3 * HELD):
        return 0
    fit_all(f, operation, held, n)
    return n


@inner
def run_operation(f, pe, operation, one, two, three, four):  # type: ignore[no-untyped-def]
    """`pe.run`: an operation on memory and scalars at once; false after an error."""
    n = hold_all(f, pe, operation, one, two, three, four)
    return n > 0 and at_once(f, pe, operation, n)


@inner
def _prepared(f, pe, operation, settings):  # type: ignore[no-untyped-def]
    """The operation with `.saturate`; -1 after an error."""
    if f[settings + 9] and TABLE[operation, DEST] == 2:
        if operation == ADD16:
            return SATURATED_ADD
        if operation == SUB16:
            return SATURATED_SUB
        fail(f, f[pe + P_STRIP], codes.NO_SATURATE, pe, operation)
        return -1
    return operation


@inner
def _from_index(f, held, n, settings):  # type: ignore[no-untyped-def]
    """Move operands in memory to the first index where they take one."""
    first = f[settings + 4]
    if first > 0:
        for k in range(n):
            operand = held + k * HELD
            if f[operand] == MEM1D and f[operand + 5]:
                f[operand + 1] += first * f[operand + 3]


@inner
def _issued(f, pe, operation, one, two, three, four, ref):  # type: ignore[no-untyped-def]
    """Operands, settings and the operation of `pe.wait` and `pe.start`: n, settings, operation; n is 0 after an error.

    Settings of registers first: a register that was never loaded is an error before `.saturate` is.
    """
    n = hold_all(f, pe, operation, one, two, three, four)
    if not n:
        return 0, 0, operation
    held = f[f[pe + P_STRIP] + S_SCRATCH] + OPERANDS
    settings = merge_settings(f, pe, ref, held, n)
    changed = _prepared(f, pe, operation, settings)
    if changed < 0:
        return 0, 0, operation
    if changed != operation:
        fit_all(f, changed, held, n)
    return n, settings, changed


@inner
def wait(f, pe, operation, one, two, three, four, ref, line):  # type: ignore[no-untyped-def]
    """`pe.wait`: DONE; WAITING, and the thread is in `P_MAIN_OPERATION`; or FAILED."""
    n, settings, operation = _issued(f, pe, operation, one, two, three, four, ref)
    if not n:
        return FAILED
    held = f[f[pe + P_STRIP] + S_SCRATCH] + OPERANDS
    activate, unblock = f[settings], f[settings + 1]
    f[pe + P_RESULT] = 1
    if not waits(f, held, n):
        _from_index(f, held, n, settings)
        if not at_once(f, pe, operation, n):
            return FAILED
        complete(f, pe, activate, unblock, settle(f, pe))
        return DONE
    thread = _thread(f, pe, operation, held, n, settings, -1, line)
    if not thread:
        return FAILED
    f[pe + P_MAIN_OPERATION] = thread
    if f[thread + T_COUNT]:
        return WAITING
    free_thread(f, pe, thread)
    operate(f, pe, START, 0)
    complete(f, pe, activate, unblock, settle(f, pe))
    return DONE


@inner
def _number(f, pe, held, n, settings):  # type: ignore[no-untyped-def]
    """The microthread: named by the operation, else of its first fabric operand, else a free one."""
    if f[settings + 2] >= 0:
        return f[settings + 2]
    for k in range(n):
        kind = f[held + k * HELD]
        if kind == FABIN or kind == FABOUT:  # noqa: SIM109
            queue = f[held + k * HELD + 1]
            return queue if queue < OWN_QUEUES else (queue - OWN_QUEUES) % f[f[pe + P_CLASS] + C_MICROTHREADS]
    return free_number(f, pe)


@inner
def start(f, pe, operation, one, two, three, four, ref, line):  # type: ignore[no-untyped-def]
    """`pe.start`: DONE; WAITING for a busy microthread; or FAILED."""
    n, settings, operation = _issued(f, pe, operation, one, two, three, four, ref)
    if not n:
        return FAILED
    held = f[f[pe + P_STRIP] + S_SCRATCH] + OPERANDS
    activate, unblock = f[settings], f[settings + 1]
    f[pe + P_CYCLES] += LAUNCH
    time = settle(f, pe)
    if not waits(f, held, n):
        # Done in bulk; only its end takes place later.
        _from_index(f, held, n, settings)
        if not at_once(f, pe, operation, n):
            return FAILED
        end_at(f, pe, activate, unblock, settle(f, pe))
        set_cycles(f, pe, time - f[pe + P_BASE])
        return DONE
    number = _number(f, pe, held, n, settings)
    thread = _thread(f, pe, operation, held, n, settings, number, line)
    if not thread:
        return FAILED
    if f[thread + T_COUNT]:
        busy = ask(f, pe, thread, time)
        if f[f[pe + P_STRIP] + S_ERROR]:
            return FAILED
        return WAITING if busy else DONE
    free_thread(f, pe, thread)
    end_at(f, pe, activate, unblock, time + START)
    return DONE


@unit
def issue(f, pe, row):  # type: ignore[no-untyped-def]
    """Do an instruction RUN, WAIT or START at a byte of the state: DONE, WAITING or FAILED."""
    op, a, b, c = get_i32(f, row), get_i32(f, row + 4), get_i32(f, row + 8), get_i32(f, row + 12)
    d, e = get_i32(f, row + 16), get_i32(f, row + 20)
    if op == RUN:
        return DONE if run_operation(f, pe, a, b, c, d, e) else FAILED
    settings, line = get_i32(f, row + 4 * ROW + 4), get_i32(f, row + 4 * ROW + 8)
    if op == WAIT:
        return wait(f, pe, a, b, c, d, e, settings, line)
    return start(f, pe, a, b, c, d, e, settings, line)
