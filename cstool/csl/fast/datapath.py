"""One PE in compiled code: its main thread (`main_thread`), and its datapath (`datapath`, `microthread`)."""

from cstool.csl.fabric.main_thread import HANDLER
from cstool.csl.fast import control
from cstool.csl.fast.cells import schedule
from cstool.csl.fast.instructions import HELD
from cstool.csl.fast.interpreter import ENDED, PAUSED, WAITS, element, let_read_ahead, run, start_function, watch
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.operands import NONE, REGISTER, save
from cstool.csl.fast.picker import (
    activate_at,
    complete,
    set_cycles,
    settle,
    tick_at,
    unblock_at,
    wake,
    wake_for_events,
)
from cstool.csl.fast.ramp import drain, flush_empty, head_data, head_time, put, take
from cstool.csl.fast.state import (
    C_CONTROLS,
    C_HANDLERS,
    C_HANDLERS_COUNT,
    CONTROL_BIT,
    H_STEP,
    H_TURN,
    O_CAPACITY,
    O_LENGTH,
    P_BASE,
    P_BUSY,
    P_CLASS,
    P_CYCLES,
    P_DATAPATH_FREE,
    P_ELEMENTS,
    P_ENDED,
    P_FLUSHING,
    P_FREE_FROM,
    P_HANDLER,
    P_HELD,
    P_HELD_OPERATION,
    P_IN_CODE,
    P_LAST_THREAD,
    P_LOST,
    P_MAIN_OPERATION,
    P_MAIN_PRIORITY,
    P_NUMBERED,
    P_PRIORITIES,
    P_QUEUED,
    P_RESULT,
    P_RUNNING,
    P_SENDING,
    P_SENT_AT,
    P_STRIP,
    P_SYNCHRONOUS,
    P_THREADS,
    P_THREADS_COUNT,
    P_TICKED,
    P_TURNING,
    Q_LENGTH,
    Q_USER,
    R_CAPACITY,
    R_LENGTH,
    REACH,
    REACH_DO,
    REACH_END,
    REACH_RUN,
    S_NOW,
    T_ACTIVATE,
    T_CALL,
    T_CONTROL_ACTIVATE,
    T_CONTROL_TERMINATE,
    T_CONTROL_UNBLOCK,
    T_COUNT,
    T_DONE,
    T_DROP,
    T_FIRST_INDEX,
    T_INDEX,
    T_INDEXED,
    T_INPUTS,
    T_INPUTS_COUNT,
    T_NUMBER,
    T_ON_CONTROL,
    T_OPERANDS,
    T_OUTPUT,
    T_POPPED,
    T_POPPED_COUNT,
    T_PRIORITY,
    T_PUSHED,
    T_RARE,
    T_READY,
    T_SOURCES,
    T_STALLED,
    T_UNBLOCK,
    T_UP_ADVANCE,
    T_UP_COLOR,
)
from cstool.csl.fast.threads import begin, begin_queued, do, free_thread, let_go, pause
from cstool.csl.fast.tile import calls
from cstool.csl.fast.units import call_unit, unit

GONE = -1
"""in `P_LAST_THREAD`: an operation that a control wavelet has ended"""
ALL = 7
"""the set of all priorities"""


# --- the main thread ---


@inner
def _code(f, pe):  # type: ignore[no-untyped-def]
    """Let the code of the task run until it waits or ends: its function, or the handlers of a teardown task."""
    while True:
        if f[pe + P_IN_CODE]:
            status = run(f, pe)
            if status != ENDED:
                return status
            f[pe + P_IN_CODE] = 0
        handler = f[pe + P_HANDLER]
        of = f[pe + P_CLASS]
        if handler < 0 or handler >= f[of + C_HANDLERS_COUNT]:
            return ENDED
        f[pe + P_HANDLER] = handler + 1
        f[pe + P_CYCLES] += HANDLER
        at = f[of + C_HANDLERS] + 3 * handler
        if calls(f, pe, f[at], f[at + 1]):
            start_function(f, pe, f[at + 2], 0, 0)
            f[pe + P_IN_CODE] = 1


@inner
def run_on(f, pe):  # type: ignore[no-untyped-def]
    """Let the task run until it waits, or is done."""
    count = watch(f, pe)
    status = _code(f, pe)
    let_read_ahead(f, pe, count)
    if status == WAITS:
        do(f, pe, f[pe + P_MAIN_OPERATION])
    elif status == PAUSED:
        pause(f, pe)
    elif status == ENDED:
        end = settle(f, pe)
        if f[pe + P_THREADS_COUNT]:
            schedule(f, f[pe + P_STRIP], end, REACH, pe, REACH_END, 0)
        else:
            _end(f, pe)


@inner
def _end(f, pe):  # type: ignore[no-untyped-def]
    """End the task."""
    f[pe + P_BUSY] += f[pe + P_CYCLES]
    f[pe + P_FREE_FROM] = f[pe + P_BASE] + f[pe + P_CYCLES]
    f[pe + P_RUNNING] = 0
    wake_for_events(f, pe)


@inner
def reached(f, pe, what, thread):  # type: ignore[no-untyped-def]
    """The main thread is at the end of its own work; add the cycles that microthreads took from it, and go on."""
    now = f[f[pe + P_STRIP] + S_NOW]
    lost = f[pe + P_LOST]
    if lost:
        f[pe + P_LOST] = 0
        set_cycles(f, pe, f[pe + P_CYCLES] + lost)
        schedule(f, f[pe + P_STRIP], now + lost, REACH, pe, what, thread)
    elif not begin_queued(f, pe, now):
        f[pe + P_HELD] = what
        f[pe + P_HELD_OPERATION] = thread
    elif what == REACH_RUN:
        run_on(f, pe)
    elif what == REACH_DO:
        begin(f, pe, thread, f[pe + P_BASE] + f[pe + P_CYCLES])
    else:
        _end(f, pe)


# --- operations end ---


@inner
def _other_user(f, pe, queue, ended):  # type: ignore[no-untyped-def]
    """Another operation that reads a queue; 0 if there is none (several may on WSE-3)."""
    for k in range(f[pe + P_THREADS_COUNT] + 1):
        last = k == f[pe + P_THREADS_COUNT]
        thread = f[pe + P_SYNCHRONOUS] if last else f[pe + P_THREADS + k]
        if thread and thread != ended:
            for at in range(f[thread + T_INPUTS_COUNT]):
                if f[thread + T_INPUTS + at] == queue:
                    return thread
    return 0


@inner
def _remove(f, pe, thread):  # type: ignore[no-untyped-def]
    """Take an operation out of the list of microthreads."""
    count = f[pe + P_THREADS_COUNT]
    at = 0
    while f[pe + P_THREADS + at] != thread:
        at += 1
    for k in range(at, count - 1):
        f[pe + P_THREADS + k] = f[pe + P_THREADS + k + 1]
    f[pe + P_THREADS_COUNT] = count - 1


@inner
def _finish(f, pe, thread, time):  # type: ignore[no-untyped-def]
    """End an operation. Its record is free once its element is over."""
    number = f[thread + T_NUMBER]
    if f[thread + T_UP_ADVANCE]:
        put(f, pe, f[thread + T_OUTPUT], f[thread + T_UP_COLOR], control.ADVANCE_HIDDEN, True)
    if f[pe + P_LAST_THREAD] == thread:
        f[pe + P_LAST_THREAD] = 0
    f[pe + P_ENDED] = thread
    f[pe + P_ELEMENTS] += f[thread + T_DONE]
    inputs = f[thread + T_INPUTS_COUNT]
    for k in range(inputs):
        queue = f[thread + T_INPUTS + k]
        if f[queue + Q_USER] == thread:
            f[queue + Q_USER] = _other_user(f, pe, queue, thread)
    for k in range(f[thread + T_SOURCES] + 1):
        operand = thread + T_OPERANDS + k * HELD
        if f[operand] != NONE:
            save(f, f[operand + REGISTER], f[thread + T_DONE])
    if number >= 0:
        _remove(f, pe, thread)
        f[pe + P_PRIORITIES] -= 1 << 16 * f[thread + T_PRIORITY]
        f[pe + P_NUMBERED + number] = 0
    complete(f, pe, f[thread + T_ACTIVATE], f[thread + T_UNBLOCK], time)
    for k in range(inputs):
        queue = f[thread + T_INPUTS + k]
        if not f[queue + Q_USER] and f[queue + Q_LENGTH]:
            wake(f, pe, time)
    if number < 0:
        f[pe + P_SYNCHRONOUS] = 0
        f[pe + P_RESULT] = f[thread + T_DONE] >= f[thread + T_COUNT]
        go_on = max(time, f[thread + T_READY] if f[thread + T_CALL] else 0)
        set_cycles(f, pe, go_on - f[pe + P_BASE])
        run_on(f, pe)
    elif f[pe + P_QUEUED] and f[f[pe + P_QUEUED] + T_NUMBER] == number:
        let_go(f, pe, time)


# --- elements ---


@inner
def _control(f, pe, thread, queue, payload, now):  # type: ignore[no-untyped-def]
    """A control wavelet is the head of an input queue."""
    if not f[thread + T_ON_CONTROL]:
        # It is for a control task, which the task picker runs; one that names none is dropped.
        if f[f[pe + P_CLASS] + C_CONTROLS + control.task_of(payload)]:
            wake(f, pe, now)
            return False
        take(f, pe, queue)
        return True
    take(f, pe, queue)
    if f[thread + T_CONTROL_ACTIVATE] >= 0:
        activate_at(f, pe, f[thread + T_CONTROL_ACTIVATE], now + 1)
    if f[thread + T_CONTROL_UNBLOCK] >= 0:
        unblock_at(f, pe, f[thread + T_CONTROL_UNBLOCK], now + 1)
    if f[thread + T_CONTROL_TERMINATE]:
        _finish(f, pe, thread, now + 1)
    return True


@inner
def _step(f, pe, thread):  # type: ignore[no-untyped-def]
    """Do the next element of an operation now; false if it must wait."""
    now = f[f[pe + P_STRIP] + S_NOW]
    is_rare = f[thread + T_RARE]
    if is_rare and f[thread + T_DROP]:
        queue = f[thread + T_INPUTS]
        if not f[queue + Q_LENGTH] or head_time(f, queue) >= now:
            f[thread + T_STALLED] = not f[queue + Q_LENGTH]
            return False
        f[thread + T_DONE] += head_data(f, queue) >> 32 & 1
        take(f, pe, queue)
    else:
        inputs = f[thread + T_INPUTS_COUNT]
        for k in range(inputs):
            queue = f[thread + T_INPUTS + k]
            if not f[queue + Q_LENGTH]:
                f[thread + T_STALLED] = 1
                return False
            if head_time(f, queue) >= now:
                return False
            word = head_data(f, queue)
            if word & CONTROL_BIT:
                return _control(f, pe, thread, queue, word & 0xFFFFFFFF, now)
        output = f[thread + T_OUTPUT]
        if output and f[output + O_LENGTH] >= f[output + O_CAPACITY]:
            f[thread + T_STALLED] = 1
            return False
        if is_rare and (f[thread + T_POPPED_COUNT] or f[thread + T_PUSHED]):
            stops = False
            for k in range(f[thread + T_POPPED_COUNT]):
                stops = stops or not f[f[thread + T_POPPED + k] + R_LENGTH]
            pushed = f[thread + T_PUSHED]
            if stops or (pushed and f[pushed + R_LENGTH] >= f[pushed + R_CAPACITY]):
                # A FIFO is empty or full: a microthread waits, the main thread's operation ends.
                if f[thread + T_NUMBER] < 0 and not f[thread + T_CALL]:
                    _finish(f, pe, thread, now + 1)
                    return True
                f[thread + T_STALLED] = 1
                return False
        if is_rare and f[thread + T_INDEXED]:
            first = max(0, f[thread + T_FIRST_INDEX])
            index = head_data(f, f[thread + T_INPUTS]) >> 16 if inputs else first + f[thread + T_DONE]
            f[thread + T_INDEX] = index & 0xFFFF
        element(f, pe, thread)
        f[thread + T_DONE] += 1
    if f[thread + T_DONE] >= f[thread + T_COUNT]:
        _finish(f, pe, thread, now + 1)
    return True


@unit
def step(f, pe, thread):  # type: ignore[no-untyped-def]
    """`_step` as a unit."""
    return 1 if _step(f, pe, thread) else 0


@inner
def _turn(f, pe, thread, now):  # type: ignore[no-untyped-def]
    """An element was done: the datapath turns to its operation, if another one has done the element before."""
    if f[pe + P_LAST_THREAD] != thread:
        if f[pe + P_LAST_THREAD]:
            quarters = f[pe + P_TURNING] + f[H_TURN]
            f[pe + P_DATAPATH_FREE] = now + 1 + quarters // 4
            f[pe + P_TURNING] = quarters % 4
        unfinished = f[thread + T_DONE] < f[thread + T_COUNT]
        f[pe + P_LAST_THREAD] = (GONE if f[pe + P_ENDED] else thread) if unfinished else 0
    if f[pe + P_ENDED]:
        free_thread(f, pe, thread)
        f[pe + P_ENDED] = 0


@inner
def _advance_main(f, pe, now):  # type: ignore[no-untyped-def]
    """Do an element of the operation that the main thread waits for, if there is one that can go on."""
    main = f[pe + P_SYNCHRONOUS]
    if not main or f[main + T_STALLED] or f[main + T_READY] > now or not call_unit(f[H_STEP], f, pe, main):
        return False
    _turn(f, pe, main, now)
    return True


@inner
def _advance(f, pe, priorities, now):  # type: ignore[no-untyped-def]
    """Do an element of the first operation of a set of priorities that can go on; false if none can."""
    taken = not f[pe + P_SYNCHRONOUS] and now < f[pe + P_BASE] + f[pe + P_CYCLES] + f[pe + P_LOST]
    for priority in range(3):
        if not priorities >> priority & 1 or not f[pe + P_PRIORITIES] >> 16 * priority & 0xFFFF:
            continue
        for k in range(f[pe + P_THREADS_COUNT]):
            thread = f[pe + P_THREADS + k]
            if f[thread + T_PRIORITY] != priority or f[thread + T_STALLED] or f[thread + T_READY] > now:
                continue
            if not call_unit(f[H_STEP], f, pe, thread):
                continue
            if not f[pe + P_ENDED] and f[pe + P_THREADS_COUNT] > 1:
                # The one that has waited longest goes first.
                _remove(f, pe, thread)
                f[pe + P_THREADS + f[pe + P_THREADS_COUNT]] = thread
                f[pe + P_THREADS_COUNT] += 1
            if taken:
                # The main thread has work of its own, and loses this cycle.
                f[pe + P_LOST] += 1
            _turn(f, pe, thread, now)
            return True
    return False


@inner
def _advance_any(f, pe, now):  # type: ignore[no-untyped-def]
    """Do an element of an operation, in the order of priorities."""
    main = f[pe + P_MAIN_PRIORITY]
    if not main:
        return (f[pe + P_THREADS_COUNT] and _advance(f, pe, ALL, now)) or _advance_main(f, pe, now)
    # the priorities that the main thread goes before: low, then medium, then high
    later = 4 if main < 3 else 6 if main == 3 else 7
    if _advance(f, pe, ALL & ~later, now) or _advance_main(f, pe, now):
        return True
    if not f[pe + P_SYNCHRONOUS]:
        ends = f[pe + P_BASE] + f[pe + P_CYCLES] + f[pe + P_LOST]
        if now < ends:
            for k in range(f[pe + P_THREADS_COUNT]):
                if later >> f[f[pe + P_THREADS + k] + T_PRIORITY] & 1:
                    tick_at(f, pe, ends)
                    return False
    return _advance(f, pe, later, now)


@inner
def tick(f, pe, now):  # type: ignore[no-untyped-def]
    """One cycle: an element of one operation, and a wavelet from one output queue."""
    if f[pe + P_TICKED] == now:
        return
    f[pe + P_TICKED] = now
    moved = now >= f[pe + P_DATAPATH_FREE] and _advance_any(f, pe, now)
    sent = f[pe + P_SENDING] and f[pe + P_SENT_AT] != now and drain(f, pe, now)
    if f[pe + P_FLUSHING]:
        flush_empty(f, pe, now + 1)
    if f[pe + P_SENDING] and (moved or sent):
        tick_at(f, pe, now + 1)
    if now < f[pe + P_DATAPATH_FREE] - 1:
        tick_at(f, pe, f[pe + P_DATAPATH_FREE])
    elif moved or (sent and (f[pe + P_THREADS_COUNT] or f[pe + P_SYNCHRONOUS])):
        tick_at(f, pe, now + 1)
