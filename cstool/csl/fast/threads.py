"""Operations begin and end, as code and the datapath ask: the parts of `datapath` and `main_thread` below the code."""

from cstool.csl.fabric.vector import START
from cstool.csl.fast import codes
from cstool.csl.fast.cells import allocate, fail, schedule
from cstool.csl.fast.instructions import BEFORE, HELD, MOST
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.picker import set_cycles, settle, tick_at
from cstool.csl.fast.ramp import recolor
from cstool.csl.fast.state import (
    C_ANY_RECOLORED,
    C_ARCH,
    C_MICROTHREADS,
    C_OPERANDS,
    COMPLETE,
    P_BASE,
    P_CLASS,
    P_CYCLES,
    P_FREE_OPERATIONS,
    P_HELD,
    P_HELD_OPERATION,
    P_NUMBERED,
    P_PRIORITIES,
    P_QUEUED,
    P_RUNNING,
    P_STRIP,
    P_SYNCHRONOUS,
    P_THREADS,
    P_THREADS_COUNT,
    Q_SHARED,
    Q_USER,
    REACH,
    REACH_DO,
    REACH_RUN,
    T_ACTIVATE,
    T_COLORS,
    T_CONTROL_ACTIVATE,
    T_CONTROL_UNBLOCK,
    T_FIRST_INDEX,
    T_INPUTS,
    T_INPUTS_COUNT,
    T_KEPT,
    T_NEXT_FREE,
    T_NUMBER,
    T_OPERANDS,
    T_PRIORITY,
    T_READY,
    T_ROOM,
    T_TASK,
    T_UNBLOCK,
    UNBLOCK_HOST,
)


@inner
def new_thread(f, pe, room):  # type: ignore[no-untyped-def]
    """An operation record with room for so many operands; its fields are as of an operation without settings."""
    few = f[f[pe + P_CLASS] + C_OPERANDS]
    first = pe + P_FREE_OPERATIONS + (room > few)
    thread = f[first]
    if thread:
        f[first] = f[thread + T_NEXT_FREE]
    else:
        room = MOST if room > few else few
        thread = allocate(f, f[pe + P_STRIP], T_OPERANDS + BEFORE + room * HELD)
        f[thread + T_ROOM] = room
    for k in range(T_KEPT):
        f[thread + k] = 0
    f[thread + T_NUMBER] = f[thread + T_ACTIVATE] = f[thread + T_UNBLOCK] = f[thread + T_FIRST_INDEX] = -1
    f[thread + T_CONTROL_ACTIVATE] = f[thread + T_CONTROL_UNBLOCK] = -1
    f[thread + T_PRIORITY] = 1
    f[thread + T_TASK] = f[pe + P_RUNNING]
    return thread


@inner
def free_thread(f, pe, thread):  # type: ignore[no-untyped-def]
    """Give an operation record back."""
    first = pe + P_FREE_OPERATIONS + (f[thread + T_ROOM] > f[f[pe + P_CLASS] + C_OPERANDS])
    f[thread + T_NEXT_FREE] = f[first]
    f[first] = thread


@inner
def free_number(f, pe):  # type: ignore[no-untyped-def]
    """The highest idle microthread; the highest of all if there is none."""
    count = f[f[pe + P_CLASS] + C_MICROTHREADS]
    number = count - 1
    while number >= 0:
        if not f[pe + P_NUMBERED + number]:
            return number
        number -= 1
    return count - 1


@inner
def ask(f, pe, thread, time):  # type: ignore[no-untyped-def]
    """Begin the operation of a microthread, once it is free; true if it is busy: the task must stand still."""
    if not f[pe + P_NUMBERED + f[thread + T_NUMBER]]:
        begin(f, pe, thread, time)
        return False
    f[pe + P_QUEUED] = thread
    return True


@inner
def begin(f, pe, thread, time):  # type: ignore[no-untyped-def]
    """Begin an operation: its thread is busy from `time` on."""
    f[thread + T_READY] = time + START
    of = f[pe + P_CLASS]
    for k in range(f[thread + T_INPUTS_COUNT]):
        queue = f[thread + T_INPUTS + k]
        user = f[queue + Q_USER]
        f[queue + Q_SHARED] = user != 0
        if user and f[of + C_ARCH] == 2:
            fail(f, f[pe + P_STRIP], codes.READ_TWICE, pe, thread, queue, user)
            return
        if f[of + C_ANY_RECOLORED]:
            recolor(f, pe, queue, f[thread + T_COLORS + k])
        f[queue + Q_USER] = thread
    if f[thread + T_NUMBER] < 0:
        f[pe + P_SYNCHRONOUS] = thread
    else:
        f[pe + P_NUMBERED + f[thread + T_NUMBER]] = thread
        f[pe + P_THREADS + f[pe + P_THREADS_COUNT]] = thread
        f[pe + P_THREADS_COUNT] += 1
        f[pe + P_PRIORITIES] += 1 << 16 * f[thread + T_PRIORITY]
    tick_at(f, pe, f[thread + T_READY])


@inner
def begin_queued(f, pe, time):  # type: ignore[no-untyped-def]
    """Begin the operation that waits for a microthread, if there is one; false if it must wait on."""
    thread = f[pe + P_QUEUED]
    if not thread:
        return True
    if f[pe + P_NUMBERED + f[thread + T_NUMBER]]:
        return False
    f[pe + P_QUEUED] = 0
    begin(f, pe, thread, time)
    return True


@inner
def end_at(f, pe, activate, unblock, time):  # type: ignore[no-untyped-def]
    """End an asynchronous operation that needs no microthread at `time`."""
    schedule(f, f[pe + P_STRIP], time, COMPLETE, pe, activate, unblock)


@inner
def host_unblock(f, pe):  # type: ignore[no-untyped-def]
    """`memcpy.unblock_cmd_stream`: the next command of the host may reach this PE."""
    schedule(f, f[pe + P_STRIP], settle(f, pe), UNBLOCK_HOST, pe)


# --- where code waits ---


@inner
def reach(f, pe, what, thread):  # type: ignore[no-untyped-def]
    """Do `what` (`REACH_RUN`, ...) at the cycle that the code has come to, when nothing holds the main thread up."""
    schedule(f, f[pe + P_STRIP], settle(f, pe), REACH, pe, what, thread)


@inner
def let_go(f, pe, time):  # type: ignore[no-untyped-def]
    """Go on at `time`: the microthread is free that an operation of the task waits for."""
    what = f[pe + P_HELD]
    if not what:
        return
    f[pe + P_HELD] = 0
    set_cycles(f, pe, max(f[pe + P_CYCLES], time - f[pe + P_BASE]))
    reach(f, pe, what, f[pe + P_HELD_OPERATION])


@inner
def do(f, pe, thread):  # type: ignore[no-untyped-def]
    """Let the main thread do an operation; its code goes on when that is done."""
    reach(f, pe, REACH_DO, thread)


@inner
def pause(f, pe):  # type: ignore[no-untyped-def]
    """Let the code go on once this cycle has come, and no operation of the task waits for a microthread."""
    reach(f, pe, REACH_RUN, 0)
