"""Tasks that may run, in compiled code: `cstool.csl.fabric.scheduler`, and events of tasks of `main_thread`."""

from cstool.csl.fabric.scheduler import CALL, NOBODY, QUEUES_FROM
from cstool.csl.fast import codes, control
from cstool.csl.fast.cells import fail, schedule
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.state import (
    ACTIVATE,
    BLOCK,
    C_CONTROLS,
    C_TASKS,
    CHOOSE,
    CONTROL_BIT,
    DATA,
    DATA_MASK,
    H_OVER,
    H_PACE,
    K_KIND,
    K_PLACE,
    N_TIME,
    P_ACTIVE,
    P_BASE,
    P_BESIDE,
    P_BLOCKED,
    P_BLOCKED_QUEUES,
    P_CALLS,
    P_CLASS,
    P_CYCLES,
    P_FREE_FROM,
    P_HIGH,
    P_INPUTS,
    P_LAST,
    P_OWED,
    P_PICK_AT,
    P_PLANNED,
    P_QUEUES,
    P_QUEUES_COUNT,
    P_RUNNING,
    P_SETTLED,
    P_STRIP,
    P_SYNCHRONOUS,
    P_THREADS,
    P_THREADS_COUNT,
    P_TIMES,
    Q_HEAD,
    Q_ITEMS,
    Q_LENGTH,
    Q_NUMBER,
    Q_TASK,
    Q_UNBLOCKED,
    Q_USER,
    T_ON_CONTROL,
    T_STALLED,
    TICK,
    UNBLOCK,
)

NOTHING = -3
"""no candidate; beside the scheduler's `CALL` and `NOBODY`"""
NO_TIME = (1 << 62) - 1


# --- the clock of a PE ---


@inner
def paced(f, pe, cycles):  # type: ignore[no-untyped-def]
    """Cycles that a PE takes for so many of its own."""
    pace, over = f[H_PACE], f[H_OVER]
    if pace == over:
        return cycles
    whole = f[pe + P_OWED] + cycles * pace
    f[pe + P_OWED] = whole % over
    return whole // over


@inner
def settle(f, pe):  # type: ignore[no-untyped-def]
    """The cycle that the code has come to: `ProcessingElement.settle`."""
    code = f[pe + P_CYCLES] - f[pe + P_SETTLED]
    if code:
        beside = f[pe + P_BESIDE]
        if beside:
            hidden = min(code, beside)
            code -= hidden
            f[pe + P_BESIDE] = beside - hidden
        f[pe + P_CYCLES] = f[pe + P_SETTLED] = f[pe + P_SETTLED] + paced(f, pe, code)
    return f[pe + P_BASE] + f[pe + P_CYCLES]


@inner
def operate(f, pe, start, elements):  # type: ignore[no-untyped-def]
    """Spend the cycles of an operation on memory; code behind it goes on beside its elements."""
    settle(f, pe)
    f[pe + P_CYCLES] = f[pe + P_SETTLED] = f[pe + P_CYCLES] + paced(f, pe, start + elements)
    f[pe + P_BESIDE] = elements


@inner
def set_cycles(f, pe, cycles):  # type: ignore[no-untyped-def]
    """Set the time since the begin of the task: a task begins, or has waited."""
    f[pe + P_CYCLES] = f[pe + P_SETTLED] = cycles
    f[pe + P_BESIDE] = 0


# --- events of the main thread and the datapath ---


@inner
def wake(f, pe, time):  # type: ignore[no-untyped-def]
    """A task may have become eligible at `time`."""
    if f[pe + P_RUNNING]:
        return
    at = max(time, f[pe + P_FREE_FROM]) + 1
    if f[pe + P_PICK_AT] < 0 or at < f[pe + P_PICK_AT]:
        f[pe + P_PICK_AT] = at
        schedule(f, f[pe + P_STRIP], at, CHOOSE, pe)


@inner
def tick_at(f, pe, time):  # type: ignore[no-untyped-def]
    """Look at the operations of a PE in cycle `time`."""
    if time != f[pe + P_PLANNED]:
        f[pe + P_PLANNED] = time
        schedule(f, f[pe + P_STRIP], time, TICK, pe)


@inner
def stir(f, pe):  # type: ignore[no-untyped-def]
    """Look at all operations again after a change that several may wait for."""
    for k in range(f[pe + P_THREADS_COUNT]):
        f[f[pe + P_THREADS + k] + T_STALLED] = 0
    if f[pe + P_SYNCHRONOUS]:
        f[f[pe + P_SYNCHRONOUS] + T_STALLED] = 0


# --- events of tasks ---


@inner
def task_of(f, pe, task):  # type: ignore[no-untyped-def]
    """The task (K) of an id, or 0."""
    return f[f[pe + P_CLASS] + C_TASKS + task] if 0 <= task < QUEUES_FROM else 0


@inner
def check_task(f, pe, task):  # type: ignore[no-untyped-def]
    """Stop with an error for an id that cannot be activated."""
    found = task_of(f, pe, task)
    if not found or f[found + K_KIND] == DATA:
        fail(f, f[pe + P_STRIP], codes.NO_LOCAL_TASK, pe, task)
        return False
    return True


@inner
def activate_at(f, pe, task, time):  # type: ignore[no-untyped-def]
    """Activate a task at `time`; without effect on one that is activated and has not run yet."""
    if not check_task(f, pe, task):
        return
    at = f[pe + P_TIMES] + 2 * f[task_of(f, pe, task) + K_PLACE]
    bit = 1 << task
    f[at] = min(time, f[at]) if f[pe + P_ACTIVE] & bit else time
    f[pe + P_ACTIVE] |= bit
    wake(f, pe, time)


@inner
def unblock_at(f, pe, task, time):  # type: ignore[no-untyped-def]
    """End the blocking of a task or queue."""
    if task >= QUEUES_FROM:
        number = task - QUEUES_FROM
        if number < 8 and f[pe + P_BLOCKED_QUEUES] >> number & 1:
            f[pe + P_BLOCKED_QUEUES] &= ~(1 << number)
            if f[pe + P_INPUTS + number]:
                f[f[pe + P_INPUTS + number] + Q_UNBLOCKED] = time
    elif f[pe + P_BLOCKED] >> task & 1:
        f[pe + P_BLOCKED] &= ~(1 << task)
        found = task_of(f, pe, task)
        if not found:
            found = f[f[pe + P_CLASS] + C_CONTROLS + task]
        if found:
            f[f[pe + P_TIMES] + 2 * f[found + K_PLACE] + 1] = time
    wake(f, pe, time)


@inner
def block_now(f, pe, task):  # type: ignore[no-untyped-def]
    """Block a task, or an input queue + 64."""
    if task >= QUEUES_FROM:
        f[pe + P_BLOCKED_QUEUES] |= 1 << (task - QUEUES_FROM)
    else:
        f[pe + P_BLOCKED] |= 1 << task


@inner
def complete(f, pe, activate, unblock, time):  # type: ignore[no-untyped-def]
    """Activate and unblock tasks at the end of an operation; -1: none."""
    if activate >= 0:
        activate_at(f, pe, activate, time)
    if unblock >= 0:
        unblock_at(f, pe, unblock, time)


@inner
def _at_once(f, pe):  # type: ignore[no-untyped-def]
    """Whether code may do something at once: no operation is under way that could see the difference."""
    return not (f[pe + P_THREADS_COUNT] and f[pe + P_CYCLES])


@inner
def activate(f, pe, task):  # type: ignore[no-untyped-def]
    """`@activate`, at the cycle that the code has come to."""
    if not check_task(f, pe, task):
        return
    time = settle(f, pe)
    if _at_once(f, pe):
        activate_at(f, pe, task, time)
    else:
        schedule(f, f[pe + P_STRIP], time, ACTIVATE, pe, task)


@inner
def block(f, pe, task):  # type: ignore[no-untyped-def]
    """`@block`, likewise; ids from 64 on are input queues + 64."""
    time = settle(f, pe)
    if _at_once(f, pe):
        block_now(f, pe, task)
    else:
        schedule(f, f[pe + P_STRIP], time, BLOCK, pe, task)


@inner
def unblock(f, pe, task):  # type: ignore[no-untyped-def]
    """`@unblock`, likewise."""
    time = settle(f, pe)
    if _at_once(f, pe):
        unblock_at(f, pe, task, time)
    else:
        schedule(f, f[pe + P_STRIP], time, UNBLOCK, pe, task)


# --- the choice ---


@inner
def _since(f, pe, time, task, place):  # type: ignore[no-untyped-def]
    """Cycle from which an event of `time` may run its task; -2 while that is blocked."""
    if task < 0:
        return time
    if f[pe + P_BLOCKED] >> task & 1:
        return -2
    return max(time, f[f[pe + P_TIMES] + 2 * place + 1])


@inner
def _task_at_head(f, pe, queue):  # type: ignore[no-untyped-def]
    """Id of the task that the head of a queue may run; `NOTHING`: an operation reads it, or no task does."""
    word = f[queue + Q_ITEMS + 2 * f[queue + Q_HEAD] + 1]
    user = f[queue + Q_USER]
    if not word & CONTROL_BIT:
        return NOTHING if user or f[queue + Q_TASK] < 0 else f[queue + Q_TASK]
    if user and f[user + T_ON_CONTROL]:
        return NOTHING
    task = control.task_of(word & DATA_MASK)
    return task if f[f[pe + P_CLASS] + C_CONTROLS + task] else NOBODY


@inner
def head_task(f, pe, queue, task):  # type: ignore[no-untyped-def]
    """The task (K) of an id for the wavelet at the head of a queue."""
    is_control = f[queue + Q_ITEMS + 2 * f[queue + Q_HEAD] + 1] & CONTROL_BIT
    return f[f[pe + P_CLASS] + (C_CONTROLS if is_control else C_TASKS) + task]


@inner
def _since_of_queue(f, pe, queue, task):  # type: ignore[no-untyped-def]
    """Cycle from which the head of a queue may run its task; -2 while the task or the queue is blocked."""
    time = f[queue + Q_ITEMS + 2 * f[queue + Q_HEAD]]
    place = f[head_task(f, pe, queue, task) + K_PLACE] if task >= 0 else -1
    since = _since(f, pe, time, task, place)
    number = f[queue + Q_NUMBER]
    if since == -2 or number < 0:
        return since
    if f[pe + P_BLOCKED_QUEUES] >> number & 1:
        return -2
    return max(since, f[queue + Q_UNBLOCKED])


@inner
def candidate(f, pe, now):  # type: ignore[no-untyped-def]
    """Id and queue (or 0) of the next task to run if the main thread is free at `now`."""
    best, best_queue, best_rank = NOTHING, 0, 2 * QUEUES_FROM
    last, high, active = f[pe + P_LAST], f[pe + P_HIGH], f[pe + P_ACTIVE]
    task = 0
    while task < QUEUES_FROM and active >> task:
        if active >> task & 1:
            place = f[task_of(f, pe, task) + K_PLACE]
            since = _since(f, pe, f[f[pe + P_TIMES] + 2 * place], task, place)
            rank = (task - last - 1) % QUEUES_FROM + (0 if high >> task & 1 else QUEUES_FROM)
            if -2 < since < now and rank < best_rank:
                best, best_rank = task, rank
        task += 1
    for k in range(f[pe + P_QUEUES_COUNT]):
        queue = f[f[pe + P_QUEUES] + k]
        if not f[queue + Q_LENGTH]:
            continue
        task = _task_at_head(f, pe, queue)
        if task == NOTHING:
            continue
        since = _since_of_queue(f, pe, queue, task)
        is_high = task >= 0 and high >> task & 1
        rank = (task - last - 1) % QUEUES_FROM + (0 if is_high else QUEUES_FROM)
        if -2 < since < now and rank < best_rank:
            best, best_queue, best_rank = task, queue, rank
    if best == NOTHING and f[pe + P_CALLS] and f[f[pe + P_CALLS] + N_TIME] < now:
        return CALL, 0
    return best, best_queue


@inner
def next_time(f, pe):  # type: ignore[no-untyped-def]
    """Cycle since when there is an eligible task; `NO_TIME` if there is none."""
    found = NO_TIME
    active = f[pe + P_ACTIVE]
    task = 0
    while task < QUEUES_FROM and active >> task:
        if active >> task & 1:
            place = f[task_of(f, pe, task) + K_PLACE]
            since = _since(f, pe, f[f[pe + P_TIMES] + 2 * place], task, place)
            if since > -2:
                found = min(found, since)
        task += 1
    for k in range(f[pe + P_QUEUES_COUNT]):
        queue = f[f[pe + P_QUEUES] + k]
        if f[queue + Q_LENGTH]:
            task = _task_at_head(f, pe, queue)
            since = _since_of_queue(f, pe, queue, task) if task != NOTHING else -2
            if since > -2:
                found = min(found, since)
    if f[pe + P_CALLS]:
        found = min(found, f[f[pe + P_CALLS] + N_TIME])
    return found


@inner
def wake_for_events(f, pe):  # type: ignore[no-untyped-def]
    """The main thread is free: tasks that became eligible meanwhile may run."""
    time = next_time(f, pe)
    if time != NO_TIME:
        wake(f, pe, time)
