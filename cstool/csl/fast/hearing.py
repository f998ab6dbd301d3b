"""News from the network for CEs in a cycle: wavelets, teardowns, ramps that are free."""

from cstool.csl.fabric.scheduler import TEARDOWN_TASK
from cstool.csl.fast.cells import free_event
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.picker import activate_at, task_of
from cstool.csl.fast.queues import input_at
from cstool.csl.fast.ramp import accept, free
from cstool.csl.fast.state import (
    L_COLOR,
    L_PE,
    L_RAMP_LISTED,
    L_WANTED,
    N_NEXT,
    N_PE,
    P_BY_COLOR,
    Q_ITEMS,
    S_DOWNS,
    S_DOWNS_AT,
    S_RAMPS,
    S_RAMPS_AT,
    S_TEARDOWNS,
)
from cstool.csl.fast.units import prefetch


@inner
def hear(f, strip, now):  # type: ignore[no-untyped-def]
    """Let CEs hear of it, before routers send anything in this cycle."""
    parity = now & 1
    at, count = f[strip + S_DOWNS_AT + parity], f[strip + S_DOWNS + parity]
    for k in range(count):
        if k + 6 < count:
            prefetch(f, f[at + 3 * k + 18] + P_BY_COLOR)
        if k + 4 < count:
            prefetch(f, input_at(f, f[at + 3 * k + 12], f[at + 3 * k + 13]))
        if k + 2 < count:
            queue = f[input_at(f, f[at + 3 * k + 6], f[at + 3 * k + 7])]
            prefetch(f, queue)
            prefetch(f, queue + Q_ITEMS)
        accept(f, f[at + 3 * k], f[at + 3 * k + 1], f[at + 3 * k + 2])
    f[strip + S_DOWNS + parity] = 0
    event = f[strip + S_TEARDOWNS + 2 * parity]
    f[strip + S_TEARDOWNS + 2 * parity] = 0
    while event:
        following = f[event + N_NEXT]
        if task_of(f, f[event + N_PE], TEARDOWN_TASK):
            activate_at(f, f[event + N_PE], TEARDOWN_TASK, now)
        free_event(f, strip, event)
        event = following
    at, count = f[strip + S_RAMPS_AT], f[strip + S_RAMPS]
    f[strip + S_RAMPS] = 0
    for k in range(count):
        link = f[at + k]
        f[link + L_RAMP_LISTED] = 0
        if f[link + L_WANTED]:
            f[link + L_WANTED] = 0
            free(f, f[link + L_PE], f[link + L_COLOR])
