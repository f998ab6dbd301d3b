"""The fast engine: the cycles of all PEs and routers of a strip, compiled.

Called from Python:

- `begin(f)`: tasks that start activated may run. Once, before the first cycle.
- `advance(f, until)`: let cycles happen whose time is not after `until`. It returns one of

      IDLE     nothing is left to happen
      REACHED  the next event is after `until`
      HOST     events for the host came in the cycle that has just happened: the list at `S_HOST` of the strip.
               The caller empties it (`take_host`)
      FAILED   an error: `S_ERROR` of the strip, see `codes`

  `S_NOW` of the strip is then the last cycle in which something happened.
- `next_time(f)`: cycle of the next event; -1: there is none. Events of the present cycle that have not happened count.
- `set_now(f, time)`: time passes, without events.
- `launch(f, pe, function, arguments)`: a function runs as a task, once the main thread is free; `arguments` are words.
- `deliver(f, pe, color, word)`: a wavelet of the host (data | control << 32) comes to its input queue, now.
- `room(f, pe, color)`: wavelets that the input queue of a color takes; 0: none is bound; -1: it may be later.

A `pe` is an address. A wavelet for the host (`HOST_SENT`) reaches it two cycles after the time of its event.
"""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.scheduler import CALL
from cstool.csl.fast import control
from cstool.csl.fast.arithmetic import decode
from cstool.csl.fast.cells import allocate, append, free_event, new_event, schedule, take_far
from cstool.csl.fast.datapath import reached, run_on, step, tick
from cstool.csl.fast.hearing import hear
from cstool.csl.fast.instructions import HELD
from cstool.csl.fast.interpreter import interpret, rare, start_function
from cstool.csl.fast.issue import issue
from cstool.csl.fast.kernels import entry, inner
from cstool.csl.fast.network import comes_from_other, find_flow, move, route
from cstool.csl.fast.operations import SIZES
from cstool.csl.fast.picker import (
    NOTHING,
    activate_at,
    block_now,
    candidate,
    complete,
    head_task,
    set_cycles,
    task_of,
    tick_at,
    unblock_at,
    wake,
    wake_for_events,
)
from cstool.csl.fast.queues import room_of
from cstool.csl.fast.ramp import accept, flush_empty, take, tell_host
from cstool.csl.fast.state import (
    ACTIVATE,
    BEGIN,
    BLOCK,
    CHOOSE,
    COLORS_COUNT,
    COMPLETE,
    CONTROL,
    H_COUNT,
    H_INTERPRET,
    H_ISSUE,
    H_NETWORK,
    H_PES,
    H_RARE,
    H_STEP,
    H_STRIP,
    H_STRIPS,
    H_SWITCH,
    H_VECTOR,
    HOST_UNBLOCKS,
    K_ARGUMENTS,
    K_FUNCTION,
    K_KIND,
    K_PLACE,
    N_A,
    N_B,
    N_C,
    N_KIND,
    N_NEXT,
    N_PE,
    N_TIME,
    O_ITEMS,
    P_ACTIVE,
    P_BASE,
    P_BESIDE_PE,
    P_CALL,
    P_CALLS,
    P_HANDLER,
    P_IN_CODE,
    P_LAST,
    P_LATEST,
    P_LOST,
    P_PICK_AT,
    P_PICKED,
    P_PICKED_ARGUMENTS,
    P_PICKED_AT,
    P_PICKED_COUNT,
    P_RAN,
    P_RUNNING,
    P_SENDING,
    P_STRIP,
    P_TASKS_RUN,
    P_THREADS,
    PORTS_COUNT,
    Q_FLUSH,
    Q_ITEMS,
    Q_USER,
    REACH,
    S_BARRIER,
    S_ERROR,
    S_EVENTS,
    S_FAR,
    S_FAR_COUNT,
    S_HOST,
    S_MOVED,
    S_NETWORK,
    S_NOW,
    S_OTHER,
    S_OUT_CREDITS,
    S_OUT_HOPS,
    S_OUT_TIME,
    S_PUBLISHED,
    S_WHEEL,
    S_WHEEL_EVENTS,
    T_INPUTS,
    T_OPERANDS,
    T_OUTPUT,
    TEARDOWN,
    TICK,
    UNBLOCK,
    UNBLOCK_HOST,
    WHEEL,
)
from cstool.csl.fast.units import address_of, call_unit, prefetch, unit
from cstool.csl.fast.vectors import vector
from cstool.foundation.compiled.atomics import load, nap, pause, store

_SPINS = 2000
"""looks at the other strip before the first nap"""
IDLE, REACHED, HOST, FAILED = range(4)
"""results of `advance`"""


# --- tasks ---


@inner
def _decode(f, pe, task, data):  # type: ignore[no-untyped-def]
    """Keep the arguments of a picked task, from the 32 bits of a wavelet: low bits first."""
    count = f[task + K_ARGUMENTS]
    for k in range(count):
        letter = f[task + K_ARGUMENTS + 1 + k]
        f[pe + P_PICKED_ARGUMENTS + k] = decode(letter, data)
        data >>= 8 * SIZES[letter]
    f[pe + P_PICKED_COUNT] = count
    f[pe + P_PICKED_AT] = 0


@inner
def _pick(f, pe, now):  # type: ignore[no-untyped-def]
    """Take the next task to run; false if there is none."""
    while True:
        task, queue = candidate(f, pe, now)
        if task == NOTHING:
            return False
        if task == CALL:
            call = f[pe + P_CALLS]
            f[pe + P_CALLS] = f[call + N_NEXT]
            f[pe + P_CALL + K_FUNCTION] = f[call + N_A]
            f[pe + P_PICKED] = pe + P_CALL
            f[pe + P_PICKED_COUNT] = f[call + N_B]
            f[pe + P_PICKED_AT] = f[call + N_C]
            free_event(f, f[pe + P_STRIP], call)
            return True
        if not queue:
            f[pe + P_LAST] = task
            f[pe + P_RAN] |= 1 << task
            f[pe + P_ACTIVE] &= ~(1 << task)
            f[pe + P_PICKED] = task_of(f, pe, task)
            f[pe + P_PICKED_COUNT] = 0
            return True
        found = head_task(f, pe, queue, task) if task >= 0 else 0
        data = take(f, pe, queue)
        if found:
            f[pe + P_LAST] = task
            f[pe + P_RAN] |= 1 << task
            f[pe + P_PICKED] = found
            _decode(f, pe, found, control.data_of(data) if f[found + K_KIND] == CONTROL else data)
        if f[queue + Q_FLUSH]:
            flush_empty(f, pe, now)
        if f[queue + Q_USER]:
            tick_at(f, pe, now + 1)
        if found:
            return True


@inner
def _choose(f, pe, now):  # type: ignore[no-untyped-def]
    """Choose the next task. From now on it may be activated again, for once more."""
    if f[pe + P_PICK_AT] != now:
        return -1  # it was asked to pick sooner, and has
    found = _pick(f, pe, now)
    f[pe + P_PICK_AT] = -1
    if not found:
        wake_for_events(f, pe)
        return -1
    f[pe + P_RUNNING] = f[pe + P_LATEST] = f[pe + P_PICKED]
    return now - 1 + f[H_SWITCH]


@inner
def _begin(f, pe):  # type: ignore[no-untyped-def]
    """Begin the task that was picked."""
    f[pe + P_BASE] = f[f[pe + P_STRIP] + S_NOW]
    f[pe + P_LOST] = 0
    set_cycles(f, pe, 0)
    f[pe + P_TASKS_RUN] += 1
    task = f[pe + P_PICKED]
    if f[task + K_KIND] == TEARDOWN and f[task + K_PLACE] >= 0:
        f[pe + P_HANDLER] = 0
        f[pe + P_IN_CODE] = 0
    else:
        f[pe + P_HANDLER] = -1
        at = f[pe + P_PICKED_AT]
        at = at if at else pe + P_PICKED_ARGUMENTS
        start_function(f, pe, f[task + K_FUNCTION], f[pe + P_PICKED_COUNT], at)
        f[pe + P_IN_CODE] = 1
    run_on(f, pe)


# --- cycles ---


@inner
def _happen(f, strip, event, now):  # type: ignore[no-untyped-def]
    """Let an event of a PE happen."""
    kind, pe, a = f[event + N_KIND], f[event + N_PE], f[event + N_A]
    b = f[event + N_B]
    free_event(f, strip, event)
    f[strip + S_EVENTS] += 1
    if kind == TICK:
        tick(f, pe, now)
    elif kind == CHOOSE:
        time = _choose(f, pe, now)
        if time >= 0:
            schedule(f, strip, time, BEGIN, pe)
    elif kind == BEGIN:
        _begin(f, pe)
    elif kind == REACH:
        reached(f, pe, a, b)
    elif kind == COMPLETE:
        complete(f, pe, a, b, now)
    elif kind == ACTIVATE:
        activate_at(f, pe, a, now)
    elif kind == BLOCK:
        block_now(f, pe, a)
    elif kind == UNBLOCK:
        unblock_at(f, pe, a, now)
    elif kind == UNBLOCK_HOST:
        tell_host(f, pe, HOST_UNBLOCKS, 0, 0)


@unit
def network(f, strip, now):  # type: ignore[no-untyped-def]
    """The network's part of a cycle."""
    move(f, strip)
    hear(f, strip, now)
    route(f, strip)
    return 0


def install(f: NDArray[np.int64]) -> None:
    """Enter the addresses of units in this process; the first time, they are compiled, or loaded from a file."""
    units = {
        H_NETWORK: network,
        H_STEP: step,
        H_INTERPRET: interpret,
        H_ISSUE: issue,
        H_RARE: rare,
        H_VECTOR: vector,
    }
    for place, each in units.items():
        f[place] = address_of(each)


@inner
def _prefetch(f, event):  # type: ignore[no-untyped-def]
    """Begin to load the records of the next event, of the one behind it, and so on: each step of the way is loaded."""
    if not event:
        return
    pe = f[event + N_PE]
    thread = f[pe + P_THREADS]
    prefetch(f, f[thread + T_INPUTS])
    prefetch(f, f[thread + T_INPUTS] + Q_ITEMS)
    prefetch(f, f[thread + T_OUTPUT])
    prefetch(f, f[pe + P_SENDING] + O_ITEMS)
    event = f[event + N_NEXT]
    if not event:
        return
    pe = f[event + N_PE]
    thread = f[pe + P_THREADS]
    prefetch(f, thread)
    prefetch(f, thread + T_INPUTS)
    prefetch(f, thread + T_OPERANDS)
    prefetch(f, thread + T_OPERANDS + HELD)
    prefetch(f, f[pe + P_SENDING])
    event = f[event + N_NEXT]
    if not event:
        return
    pe = f[event + N_PE]
    for line in range(4):
        prefetch(f, pe + 8 * line)
    if f[event + N_NEXT]:
        prefetch(f, f[event + N_NEXT])


@inner
def _cycle(f, strip):  # type: ignore[no-untyped-def]
    """All that happens in the present cycle: the network first, then PEs, in the order of their events."""
    now = f[strip + S_NOW]
    if f[strip + S_MOVED] != now:  # else events of this cycle go on: what PEs sent arrives later
        f[strip + S_MOVED] = now
        parity = now & 1
        f[strip + S_OUT_TIME + parity] = now
        f[strip + S_OUT_HOPS + parity] = f[strip + S_OUT_CREDITS + parity] = 0
        if f[strip + S_NETWORK] >= now or comes_from_other(f, strip, now):
            f[strip + S_EVENTS] += 1
            call_unit(f[H_NETWORK], f, strip, now)
    slot = f[strip + S_WHEEL] + 2 * (now & (WHEEL - 1))
    while not f[strip + S_ERROR]:
        if f[strip + S_FAR_COUNT] and f[f[strip + S_FAR]] == now:
            event = take_far(f, strip)  # asked for before all that are in the wheel
        else:
            event = f[slot]
            if not event:
                return
            following = f[event + N_NEXT]
            f[slot] = following
            f[strip + S_WHEEL_EVENTS] -= 1
            _prefetch(f, following)
        _happen(f, strip, event, now)


@inner
def _next(f, strip):  # type: ignore[no-untyped-def]
    """Cycle of the next event of a strip; -1: there is none."""
    now = f[strip + S_NOW]
    wheel = f[strip + S_WHEEL]
    if f[wheel + 2 * (now & (WHEEL - 1))]:
        return now
    time = -1
    if f[strip + S_NETWORK] >= now:
        time = now if f[strip + S_MOVED] != now else now + 1 if f[strip + S_NETWORK] > now else -1
    if f[strip + S_FAR_COUNT] and (time < 0 or f[f[strip + S_FAR]] < time):
        time = f[f[strip + S_FAR]]
    if f[strip + S_WHEEL_EVENTS]:
        for ahead in range(1, WHEEL):
            if 0 <= time <= now + ahead:
                break
            if f[wheel + 2 * (now + ahead & (WHEEL - 1))]:
                return now + ahead
    return time


@entry
def _advance_one(f, until):  # type: ignore[no-untyped-def]
    """`advance` of a fabric of one strip."""
    strip = f[H_STRIP]
    while True:
        if f[strip + S_ERROR]:
            return FAILED
        if f[strip + S_HOST]:
            return HOST
        time = _next(f, strip)
        if time < 0:
            return IDLE
        if time > until:
            return REACHED
        f[strip + S_NOW] = time
        _cycle(f, strip)


@inner
def _meet(f, base, strip, publish):  # type: ignore[no-untyped-def]
    """Publish a number, wait for the other strip, and return the number that it has published."""
    other = f[strip + S_OTHER]
    met = f[strip + S_BARRIER]
    f[strip + S_PUBLISHED + (met & 1)] = publish
    store(base + 8 * (strip + S_BARRIER), met + 1)
    waited = 0
    while load(base + 8 * (other + S_BARRIER)) <= met:
        waited += 1
        if waited < _SPINS:
            pause()
        else:
            nap(50)
    return f[other + S_PUBLISHED + (met & 1)]


@entry
def _advance_strip(f, base, strip, until):  # type: ignore[no-untyped-def]
    """`advance` of one of two strips, each in a thread; both see the same times, and return the same reason."""
    while True:
        now = f[strip + S_NOW]
        mine = _next(f, strip)
        parity = now & 1
        if f[strip + S_OUT_TIME + parity] == now and f[strip + S_OUT_HOPS + parity] + f[strip + S_OUT_CREDITS + parity]:
            mine = now + 1 if mine < 0 else min(mine, now + 1)
        if f[strip + S_ERROR]:
            mine = -3
        elif f[strip + S_HOST]:
            mine = -2
        theirs = _meet(f, base, strip, mine)
        if min(mine, theirs) <= -2:
            return FAILED if min(mine, theirs) == -3 else HOST
        if mine < 0 and theirs < 0:
            return IDLE
        time = theirs if mine < 0 else mine if theirs < 0 else min(mine, theirs)
        if time > until:
            return REACHED
        f[strip + S_NOW] = time
        _cycle(f, strip)


def advance(f: NDArray[np.int64], until: int) -> int:
    """Let cycles happen that are not after `until`; returns the reason of the end, as the module says."""
    if f[H_STRIPS] == 1:
        return int(_advance_one(f, until))
    second = _threads().submit(_advance_strip, f, f.ctypes.data, int(f[H_STRIP + 1]), until)
    reason = int(_advance_strip(f, f.ctypes.data, int(f[H_STRIP]), until))
    second.result()
    return reason


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """The thread of the second strip."""
    return ThreadPoolExecutor(1, "strip")


# --- the host ---


@entry
def next_time(f):  # type: ignore[no-untyped-def]
    """Cycle of the next event; -1: there is none."""
    time = -1
    for k in range(f[H_STRIPS]):
        strip = f[H_STRIP + k]
        found = _next(f, strip)
        now = f[strip + S_NOW]
        parity = now & 1
        if f[strip + S_OUT_TIME + parity] == now and f[strip + S_OUT_HOPS + parity] + f[strip + S_OUT_CREDITS + parity]:
            found = now + 1 if found < 0 else min(found, now + 1)
        if found >= 0 and (time < 0 or found < time):
            time = found
    return time


@entry
def set_now(f, time):  # type: ignore[no-untyped-def]
    """Let time pass, without events."""
    for k in range(f[H_STRIPS]):
        f[f[H_STRIP + k] + S_NOW] = time


@entry
def begin(f):  # type: ignore[no-untyped-def]
    """Start the program: tasks that start activated may run."""
    for k in range(f[H_COUNT]):
        wake(f, f[f[H_PES] + k], 0)
    # Strips make no records of each other: flows at the border are there from the start.
    for k in range(f[H_COUNT] if f[H_STRIPS] > 1 else 0):
        pe = f[f[H_PES] + k]
        for port in range(1, PORTS_COUNT):
            beside = f[pe + P_BESIDE_PE + port]
            if beside and f[beside + P_STRIP] != f[pe + P_STRIP]:
                for color in range(COLORS_COUNT):
                    find_flow(f, pe, color)


@entry
def launch(f, pe, function, arguments):  # type: ignore[no-untyped-def]
    """Run a function as a task, once the main thread is free."""
    strip = f[pe + P_STRIP]
    at = allocate(f, strip, len(arguments))
    for k in range(len(arguments)):
        f[at + k] = arguments[k]
    event = new_event(f, strip, 0, pe, function, len(arguments))
    f[event + N_C] = at
    f[event + N_TIME] = f[strip + S_NOW]
    append(f, pe + P_CALLS, event)
    wake(f, pe, f[strip + S_NOW])


@entry
def deliver(f, pe, color, word):  # type: ignore[no-untyped-def]
    """A wavelet of the host comes to its input queue."""
    accept(f, pe, color, word)


@entry
def room(f, pe, color):  # type: ignore[no-untyped-def]
    """Wavelets that the input queue of a color takes; 0: none is bound; -1: it may be later."""
    return room_of(f, pe, color)


@entry
def take_host(f, rows):  # type: ignore[no-untyped-def]
    """Take events for the host, in order: kind, time, PE, N_A to N_D into `rows` [n, 7]; returns their number."""
    count = 0
    for number in range(f[H_STRIPS]):
        strip = f[H_STRIP + number]
        while f[strip + S_HOST] and count < len(rows):
            event = f[strip + S_HOST]
            f[strip + S_HOST] = f[event + N_NEXT]
            rows[count, 0], rows[count, 1], rows[count, 2] = f[event + N_KIND], f[event + N_TIME], f[event + N_PE]
            for k in range(4):
                rows[count, 3 + k] = f[event + N_A + k]
            free_event(f, strip, event)
            count += 1
    return count
