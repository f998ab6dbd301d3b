"""Input queues of a PE by color, and their room: the part of `cstool.csl.fabric.ramp` that the network asks."""

from cstool.csl.fabric.arch import OWN_QUEUE
from cstool.csl.fabric.queues import NOT_YET
from cstool.csl.fast.cells import allocate
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.state import (
    C_ANY_RECOLORED,
    C_MAY_BIND,
    C_RECOLORED,
    C_TAKES_ANY,
    COLORS_COUNT,
    FROM_HOST,
    H_COLOR_PLACE,
    H_COLORS,
    HOSTS,
    INPUT_OF,
    P_BY_COLOR,
    P_CLASS,
    P_QUEUES,
    P_QUEUES_COUNT,
    P_STRIP,
    Q_CAPACITY,
    Q_COLOR,
    Q_HOST,
    Q_ITEMS,
    Q_LISTED,
    Q_NUMBER,
    Q_SIZE,
    Q_TASK,
    Q_UNBLOCKED,
)

SPARE = 4
"""items beyond the capacity of a queue: they stood on the ramp"""


@inner
def place_of(f, color):  # type: ignore[no-untyped-def]
    """The place of a color in tables by color; -1: it is not in use."""
    return f[H_COLOR_PLACE + color] if 0 <= color < COLORS_COUNT else -1


@inner
def input_at(f, pe, color):  # type: ignore[no-untyped-def]
    """The address of the input queue of a color that is in use."""
    return f[pe + P_BY_COLOR] + INPUT_OF * f[H_COLORS] + f[H_COLOR_PLACE + color]


@inner
def input_of(f, pe, color):  # type: ignore[no-untyped-def]
    """The input queue of a color; 0: it has none."""
    return f[input_at(f, pe, color)] if place_of(f, color) >= 0 else 0


@inner
def set_input_of(f, pe, color, queue):  # type: ignore[no-untyped-def]
    """Give a color an input queue; 0: none."""
    if place_of(f, color) >= 0:
        f[input_at(f, pe, color)] = queue


@inner
def uses_host(f, pe, color):  # type: ignore[no-untyped-def]
    """Whether the host brings wavelets of a color (`FROM_HOST`), or takes them (`TO_HOST`)."""
    place = place_of(f, color)
    return f[f[pe + P_BY_COLOR] + HOSTS * f[H_COLORS] + place] if place >= 0 else 0


@inner
def new_queue(f, pe, number, color, capacity):  # type: ignore[no-untyped-def]
    """An input queue that the picker looks at."""
    queue = allocate(f, f[pe + P_STRIP], Q_ITEMS + 2 * (capacity + SPARE))
    f[queue + Q_NUMBER] = number
    f[queue + Q_COLOR] = color
    f[queue + Q_CAPACITY] = capacity
    f[queue + Q_SIZE] = capacity + SPARE
    f[queue + Q_TASK] = f[queue + Q_UNBLOCKED] = -1
    f[queue + Q_HOST] = uses_host(f, pe, color) & FROM_HOST
    list_queue(f, pe, queue)
    return queue


@inner
def list_queue(f, pe, queue):  # type: ignore[no-untyped-def]
    """Let the picker look at a queue."""
    if not f[queue + Q_LISTED]:
        f[queue + Q_LISTED] = 1
        f[f[pe + P_QUEUES] + f[pe + P_QUEUES_COUNT]] = queue
        f[pe + P_QUEUES_COUNT] += 1


@inner
def own_queue(f, pe, color):  # type: ignore[no-untyped-def]
    """The queue of a color; its own if it has none yet (WSE-2)."""
    queue = input_of(f, pe, color)
    if not queue:
        queue = new_queue(f, pe, -1, color, OWN_QUEUE)
        set_input_of(f, pe, color, queue)
    return queue


@inner
def is_recolored(f, pe, color):  # type: ignore[no-untyped-def]
    """Whether an operation may give an input queue this color (WSE-2)."""
    of = f[pe + P_CLASS]
    if f[of + C_ANY_RECOLORED]:
        for number in range(8):
            if f[of + C_RECOLORED + number] >> color & 1:
                return True
    return False


@inner
def room_of(f, pe, color):  # type: ignore[no-untyped-def]
    """Wavelets that the input queue of a color holds; 0: it has no reader, `NOT_YET`: it may get one."""
    of = f[pe + P_CLASS]
    queue = own_queue(f, pe, color) if f[of + C_TAKES_ANY] else input_of(f, pe, color)
    if queue:
        return f[queue + Q_CAPACITY]
    return NOT_YET if f[of + C_MAY_BIND] or is_recolored(f, pe, color) else 0
