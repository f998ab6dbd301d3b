"""Queues between a PE and its router, and its FIFOs: `cstool.csl.fabric.ramp` and `queues`, compiled."""

from cstool.csl.fabric.arch import OWN_QUEUE, OWN_QUEUES
from cstool.csl.fabric.scheduler import TEARDOWN_TASK
from cstool.csl.fast import codes
from cstool.csl.fast.cells import allocate, append, fail, free_event, load16, load32, new_event, store16, store32
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.network import can_send, from_ce, later_room, release, send, table
from cstool.csl.fast.picker import (
    activate_at,
    check_task,
    settle,
    stir,
    tick_at,
    wake,
)
from cstool.csl.fast.queues import (
    input_of,
    list_queue,
    new_queue,
    own_queue,
    place_of,
    set_input_of,
    uses_host,
)
from cstool.csl.fast.state import (
    C_INPUT_CAPACITY,
    C_OUTPUT_CAPACITY,
    C_RECOLORED,
    COLOR_SHIFT,
    CONTROL_BIT,
    FROM_HOST,
    HOST_SENT,
    HOST_TAKEN,
    N_A,
    N_B,
    N_NEXT,
    N_TIME,
    O_CAPACITY,
    O_COLOR,
    O_HEAD,
    O_ITEMS,
    O_LENGTH,
    O_NEXT,
    O_NUMBER,
    O_SIZE,
    O_STOPPED,
    OUTPUT_OF,
    P_BLOCKED,
    P_CLASS,
    P_FLUSHED_INPUTS,
    P_FLUSHED_OUTPUTS,
    P_FLUSHING,
    P_INPUTS,
    P_MEMORY,
    P_OUTPUTS,
    P_RECEIVED,
    P_SENDING,
    P_SENDING_LAST,
    P_SENT,
    P_SENT_AT,
    P_STRIP,
    P_SYNCHRONOUS,
    P_THREADS_COUNT,
    P_TICKED,
    Q_CAPACITY,
    Q_COLOR,
    Q_FLUSH,
    Q_HEAD,
    Q_HOST,
    Q_ITEMS,
    Q_LENGTH,
    Q_NUMBER,
    Q_SHARED,
    Q_SIZE,
    Q_TASK,
    Q_USER,
    R_ADDRESS,
    R_CAPACITY,
    R_HEAD,
    R_LENGTH,
    R_POP_TASK,
    R_PUSH_TASK,
    R_WIDTH,
    S_HOST,
    S_NOW,
    T_STALLED,
    TO_HOST,
)

SPARE_OUTPUTS = 8
"""items beyond the capacity of an output queue: commands of operations that ended"""


@inner
def tell_host(f, pe, kind, a, b):  # type: ignore[no-untyped-def]
    """Let the host hear of something at the end of this cycle."""
    strip = f[pe + P_STRIP]
    event = new_event(f, strip, kind, pe, a, b)
    f[event + N_TIME] = f[strip + S_NOW]
    append(f, strip + S_HOST, event)


# --- input queues ---


@inner
def head_data(f, queue):  # type: ignore[no-untyped-def]
    """Data | control << 32 of the head of an input queue, which is not empty."""
    return f[queue + Q_ITEMS + 2 * f[queue + Q_HEAD] + 1]


@inner
def head_time(f, queue):  # type: ignore[no-untyped-def]
    """The cycle in which the head came."""
    return f[queue + Q_ITEMS + 2 * f[queue + Q_HEAD]]


@inner
def take(f, pe, queue):  # type: ignore[no-untyped-def]
    """Take the head of an input queue; returns its 32 bits."""
    head = f[queue + Q_HEAD]
    data = f[queue + Q_ITEMS + 2 * head + 1] & 0xFFFFFFFF
    head += 1
    f[queue + Q_HEAD] = head if head < f[queue + Q_SIZE] else 0
    f[queue + Q_LENGTH] -= 1
    if f[queue + Q_HOST]:
        tell_host(f, pe, HOST_TAKEN, f[queue + Q_COLOR], 0)
    else:
        release(f, pe, f[queue + Q_COLOR])
    return data


@inner
def accept(f, pe, color, word):  # type: ignore[no-untyped-def]
    """Put a wavelet (data | control << 32) that came down the ramp, or from the host, into its input queue."""
    strip = f[pe + P_STRIP]
    queue = input_of(f, pe, color)
    if not queue:
        fail(f, strip, codes.UNBOUND_COLOR, pe, color)
        return
    now = f[strip + S_NOW]
    at = f[queue + Q_HEAD] + f[queue + Q_LENGTH]
    if at >= f[queue + Q_SIZE]:
        at -= f[queue + Q_SIZE]
    f[queue + Q_ITEMS + 2 * at] = now
    f[queue + Q_ITEMS + 2 * at + 1] = word
    f[queue + Q_LENGTH] += 1
    f[pe + P_RECEIVED] += 1
    user = f[queue + Q_USER]
    if user:
        f[user + T_STALLED] = 0
        if f[queue + Q_SHARED]:
            stir(f, pe)
        tick_at(f, pe, now + 1)
    elif word & CONTROL_BIT or f[queue + Q_TASK] < 0 or not f[pe + P_BLOCKED] >> f[queue + Q_TASK] & 1:
        wake(f, pe, now)


@inner
def input_slot(f, pe, number, operation):  # type: ignore[no-untyped-def]
    """The input queue that an operation reads; -1 after an error."""
    if number >= OWN_QUEUES:
        return own_queue(f, pe, number - OWN_QUEUES)
    queue = f[pe + P_INPUTS + number]
    if not queue:
        fail(f, f[pe + P_STRIP], codes.NO_INPUT_QUEUE, pe, number, operation)
        return -1
    return queue


@inner
def recolor(f, pe, queue, color):  # type: ignore[no-untyped-def]
    """Give an input queue the color that an operation names for it (-1: its own), as the operation begins (WSE-2)."""
    number = f[queue + Q_NUMBER]
    if color < 0:
        color = f[queue + Q_COLOR]
    if number >= 0 and f[f[pe + P_CLASS] + C_RECOLORED + number] and input_of(f, pe, color) != queue:
        bind(f, pe, number, False, color)


# --- output queues ---


@inner
def _new_output(f, pe, number, color, capacity):  # type: ignore[no-untyped-def]
    queue = allocate(f, f[pe + P_STRIP], O_ITEMS + capacity + SPARE_OUTPUTS)
    f[queue + O_NUMBER] = number
    f[queue + O_COLOR] = color
    f[queue + O_CAPACITY] = capacity
    f[queue + O_SIZE] = capacity + SPARE_OUTPUTS
    return queue


@inner
def output_slot(f, pe, number, color, operation):  # type: ignore[no-untyped-def]
    """The output queue that an operation writes to; -1 after an error.

    The color of its wavelets is the queue's, if it is bound to one (`O_COLOR`), else `color`.
    """
    strip = f[pe + P_STRIP]
    if number >= OWN_QUEUES:
        at = table(f, pe, OUTPUT_OF) + place_of(f, number - OWN_QUEUES)
        if not f[at]:
            f[at] = _new_output(f, pe, -1, -1, OWN_QUEUE)
        queue = f[at]
    else:
        queue = f[pe + P_OUTPUTS + number]
        if not queue:
            capacity = f[f[pe + P_CLASS] + C_OUTPUT_CAPACITY + number]
            if not capacity:
                fail(f, strip, codes.NO_SUCH_OUTPUT_QUEUE, pe, number, operation)
                return -1
            queue = f[pe + P_OUTPUTS + number] = _new_output(f, pe, number, -1, capacity)
    found = f[queue + O_COLOR] if f[queue + O_COLOR] >= 0 else color
    if place_of(f, found) < 0:
        fail(f, strip, codes.NO_OUTPUT_COLOR, pe, number, operation)
        return -1
    return queue


@inner
def put(f, pe, queue, color, bits, is_control):  # type: ignore[no-untyped-def]
    """Put a wavelet into an output queue."""
    length = f[queue + O_LENGTH]
    if not length:
        if f[pe + P_SENDING]:
            f[f[pe + P_SENDING_LAST] + O_NEXT] = queue
        else:
            f[pe + P_SENDING] = queue
        f[pe + P_SENDING_LAST] = queue
        f[queue + O_NEXT] = 0
    elif length >= f[queue + O_SIZE]:
        fail(f, f[pe + P_STRIP], codes.ITEMS_FULL, pe)
        return
    at = f[queue + O_HEAD] + length
    if at >= f[queue + O_SIZE]:
        at -= f[queue + O_SIZE]
    f[queue + O_ITEMS + at] = (bits & 0xFFFFFFFF) | (CONTROL_BIT if is_control else 0) | color << COLOR_SHIFT
    f[queue + O_LENGTH] = length + 1


@inner
def free(f, pe, color):  # type: ignore[no-untyped-def]
    """Send a color again that the network refused before. The network asks at the begin of a cycle, before any tick."""
    now = f[f[pe + P_STRIP] + S_NOW]
    queue = f[pe + P_SENDING]
    while queue:
        if f[queue + O_ITEMS + f[queue + O_HEAD]] >> COLOR_SHIFT == color:
            f[queue + O_STOPPED] = 0
        queue = f[queue + O_NEXT]
    if f[pe + P_SENDING] and f[pe + P_SENT_AT] != now:
        if f[pe + P_TICKED] != now:
            tick_at(f, pe, now)  # an element first, then the ramp
        elif drain(f, pe, now) and (f[pe + P_SENDING] or f[pe + P_THREADS_COUNT] or f[pe + P_SYNCHRONOUS]):
            tick_at(f, pe, now + 1)


@inner
def drain(f, pe, now):  # type: ignore[no-untyped-def]
    """Put a wavelet on the ramp, from the queue that has waited longest; false if there was none."""
    before, queue = 0, f[pe + P_SENDING]
    while queue:
        if not f[queue + O_STOPPED]:
            item = f[queue + O_ITEMS + f[queue + O_HEAD]]
            color = item >> COLOR_SHIFT
            to_host = uses_host(f, pe, color) & TO_HOST
            link = 0 if to_host else from_ce(f, pe, color)
            if not to_host and not link:
                return False
            if to_host or can_send(f, pe, link):
                _leave(f, pe, before, queue)
                f[pe + P_SENT_AT] = now
                f[pe + P_SENT] += 1
                word = item & ((1 << 33) - 1)
                if to_host:
                    tell_host(f, pe, HOST_SENT, color, word)
                else:
                    send(f, pe, link, word)
                return True
            f[queue + O_STOPPED] = 1
        before, queue = queue, f[queue + O_NEXT]
    return False


@inner
def _leave(f, pe, before, queue):  # type: ignore[no-untyped-def]
    """The head of an output queue leaves; the queue is the last of those that hold something, if it still does."""
    length = f[queue + O_LENGTH]
    if length >= f[queue + O_CAPACITY]:
        stir(f, pe)
    head = f[queue + O_HEAD] + 1
    f[queue + O_HEAD] = head if head < f[queue + O_SIZE] else 0
    f[queue + O_LENGTH] = length - 1
    following = f[queue + O_NEXT]
    if not before and not following:
        if length == 1:
            f[pe + P_SENDING] = 0
        return
    if before:
        f[before + O_NEXT] = following
    else:
        f[pe + P_SENDING] = following
    if not following:
        f[pe + P_SENDING_LAST] = before
    if length > 1:
        f[queue + O_NEXT] = 0
        f[f[pe + P_SENDING_LAST] + O_NEXT] = queue
        f[pe + P_SENDING_LAST] = queue


# --- bindings and flushes ---


@inner
def color_of(f, pe, number, output):  # type: ignore[no-untyped-def]
    """The color that a queue is bound to now; -1 if it is bound to none."""
    queue = f[pe + (P_OUTPUTS if output else P_INPUTS) + number]
    if not queue:
        return -1
    return f[queue + O_COLOR] if output else f[queue + Q_COLOR]


@inner
def bind(f, pe, number, output, color):  # type: ignore[no-untyped-def]
    """Bind a queue to another color, from now on: wavelets of its color before wait in the router."""
    strip = f[pe + P_STRIP]
    queue = f[pe + (P_OUTPUTS if output else P_INPUTS) + number]
    length = 0 if not queue else f[queue + O_LENGTH] if output else f[queue + Q_LENGTH]
    if length:
        before = f[queue + O_COLOR] if output else f[queue + Q_COLOR]
        fail(f, strip, codes.NOT_EMPTY, pe, number, output, length, before)
        return
    of = f[pe + P_CLASS]
    if output:
        if queue:
            f[queue + O_COLOR] = color
        else:
            f[pe + P_OUTPUTS + number] = _new_output(f, pe, number, color, f[of + C_OUTPUT_CAPACITY + number])
        return
    if not queue:
        queue = f[pe + P_INPUTS + number] = new_queue(f, pe, number, color, f[of + C_INPUT_CAPACITY + number])
    elif input_of(f, pe, f[queue + Q_COLOR]) == queue:
        set_input_of(f, pe, f[queue + Q_COLOR], 0)
        later_room(f, pe, f[queue + Q_COLOR], 0)
    else:
        list_queue(f, pe, queue)
    f[queue + Q_COLOR] = color
    set_input_of(f, pe, color, queue)
    f[queue + Q_HOST] = uses_host(f, pe, color) & FROM_HOST
    later_room(f, pe, color, f[queue + Q_CAPACITY])


@inner
def flush(f, pe, number, output, time):  # type: ignore[no-untyped-def]
    """`@queue_flush`: the teardown task is called once the queue is empty."""
    queue = f[pe + (P_OUTPUTS if output else P_INPUTS) + number]
    strip = f[pe + P_STRIP]
    if not queue:
        fail(f, strip, codes.NOTHING_TO_FLUSH, pe, number, output)
        return
    if not check_task(f, pe, TEARDOWN_TASK):
        return
    if not output:
        f[queue + Q_FLUSH] = 1
    append(f, pe + P_FLUSHING, new_event(f, strip, 0, pe, queue, output))
    flush_empty(f, pe, time)


@inner
def queue_flush(f, pe, number, output):  # type: ignore[no-untyped-def]
    """`flush` at the cycle that the code has come to."""
    flush(f, pe, number, output, settle(f, pe))


@inner
def flush_empty(f, pe, time):  # type: ignore[no-untyped-def]
    """Activate the teardown task for queues that are to be flushed and are empty."""
    event = f[pe + P_FLUSHING]
    f[pe + P_FLUSHING] = 0
    while event:
        following = f[event + N_NEXT]
        queue = f[event + N_A]
        output = f[event + N_B]
        if f[queue + O_LENGTH] if output else f[queue + Q_LENGTH]:
            f[event + N_NEXT] = 0
            append(f, pe + P_FLUSHING, event)
        else:
            free_event(f, f[pe + P_STRIP], event)
            number = max(0, f[queue + O_NUMBER] if output else f[queue + Q_NUMBER])
            if output:
                f[pe + P_FLUSHED_OUTPUTS] |= 1 << number
            else:
                f[queue + Q_FLUSH] = 0
                f[pe + P_FLUSHED_INPUTS] |= 1 << number
            activate_at(f, pe, TEARDOWN_TASK, time)
        event = following


# --- FIFOs ---


@inner
def ring_push(f, pe, ring, bits):  # type: ignore[no-untyped-def]
    """Put an element's bits behind the last of a FIFO, which has room."""
    width = f[ring + R_WIDTH]
    at = f[pe + P_MEMORY] + f[ring + R_ADDRESS] + (f[ring + R_HEAD] + f[ring + R_LENGTH]) % f[ring + R_CAPACITY] * width
    if width == 4:
        store32(f, at, bits)
    else:
        store16(f, at, bits)
    f[ring + R_LENGTH] += 1
    _ring_changed(f, pe, f[ring + R_PUSH_TASK])


@inner
def ring_pop(f, pe, ring):  # type: ignore[no-untyped-def]
    """Take the bits of the first element of a FIFO, which is not empty."""
    width = f[ring + R_WIDTH]
    at = f[pe + P_MEMORY] + f[ring + R_ADDRESS] + f[ring + R_HEAD] * width
    f[ring + R_HEAD] = (f[ring + R_HEAD] + 1) % f[ring + R_CAPACITY]
    f[ring + R_LENGTH] -= 1
    bits = load32(f, at) if width == 4 else load16(f, at)
    _ring_changed(f, pe, f[ring + R_POP_TASK])
    return bits


@inner
def _ring_changed(f, pe, task):  # type: ignore[no-untyped-def]
    stir(f, pe)
    if task >= 0:
        activate_at(f, pe, task, f[f[pe + P_STRIP] + S_NOW] + 1)
