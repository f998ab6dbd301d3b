"""Words of the state, in compiled code: records, errors, events, and bytes of SRAM."""

from cstool.csl.fast import codes
from cstool.csl.fast.kernels import inner as inner
from cstool.csl.fast.state import (
    N_A,
    N_B,
    N_C,
    N_KIND,
    N_NEXT,
    N_PE,
    N_TIME,
    N_WORDS,
    S_ERROR,
    S_ERROR_ARGUMENTS,
    S_ERROR_PE,
    S_FAR,
    S_FAR_COUNT,
    S_FAR_LIMIT,
    S_FAR_NUMBER,
    S_FREE_EVENTS,
    S_LIMIT,
    S_NOW,
    S_SCRATCH,
    S_TOP,
    S_WHEEL,
    S_WHEEL_EVENTS,
    WHEEL,
)

# --- records and errors ---


@inner
def fail(f, strip, code, pe, a=0, b=0, c=0, d=0):  # type: ignore[no-untyped-def]
    """Stop the engine with an error; the first one counts."""
    if not f[strip + S_ERROR]:
        f[strip + S_ERROR] = code
        f[strip + S_ERROR_PE] = pe
        f[strip + S_ERROR_ARGUMENTS] = a
        f[strip + S_ERROR_ARGUMENTS + 1] = b
        f[strip + S_ERROR_ARGUMENTS + 2] = c
        f[strip + S_ERROR_ARGUMENTS + 3] = d


@inner
def allocate(f, strip, words):  # type: ignore[no-untyped-def]
    """A new record of zeros, from the pool of a strip; it begins with a line of the cache."""
    words = words + 7 & ~7
    at = f[strip + S_TOP]
    if at + words > f[strip + S_LIMIT]:
        fail(f, strip, codes.FULL, 0)
        return f[strip + S_SCRATCH]
    f[strip + S_TOP] = at + words
    return at


# --- events ---


@inner
def new_event(f, strip, kind, pe, a, b):  # type: ignore[no-untyped-def]
    """An event that is in no list yet."""
    event = f[strip + S_FREE_EVENTS]
    if event:
        f[strip + S_FREE_EVENTS] = f[event + N_NEXT]
    else:
        event = allocate(f, strip, N_WORDS)
    f[event + N_NEXT] = 0
    f[event + N_KIND] = kind
    f[event + N_PE] = pe
    f[event + N_A] = a
    f[event + N_B] = b
    return event


@inner
def free_event(f, strip, event):  # type: ignore[no-untyped-def]
    """Give an event back."""
    f[event + N_NEXT] = f[strip + S_FREE_EVENTS]
    f[strip + S_FREE_EVENTS] = event


@inner
def append(f, first, event):  # type: ignore[no-untyped-def]
    """Put an event behind the last of a list, whose first and last stand at `first` and behind it."""
    if f[first]:
        f[f[first + 1] + N_NEXT] = event
    else:
        f[first] = event
    f[first + 1] = event


@inner
def schedule(f, strip, time, kind, pe, a=0, b=0, c=0):  # type: ignore[no-untyped-def]
    """Let an event of a PE happen at `time`, behind all that were asked for before."""
    event = new_event(f, strip, kind, pe, a, b)
    f[event + N_C] = c
    f[event + N_TIME] = time
    if time - f[strip + S_NOW] < WHEEL:
        append(f, f[strip + S_WHEEL] + 2 * (time & (WHEEL - 1)), event)
        f[strip + S_WHEEL_EVENTS] += 1
    else:
        _put_far(f, strip, time, event)


@inner
def _put_far(f, strip, time, event):  # type: ignore[no-untyped-def]
    """Put an event into the heap of far ones, by time and number."""
    heap, at, number = f[strip + S_FAR], f[strip + S_FAR_COUNT], f[strip + S_FAR_NUMBER]
    if at >= f[strip + S_FAR_LIMIT]:
        fail(f, strip, codes.FULL, 0)
        return
    f[strip + S_FAR_COUNT] += 1
    f[strip + S_FAR_NUMBER] += 1
    while at:
        above = (at - 1) // 2
        if f[heap + 3 * above] <= time:
            break
        for k in range(3):
            f[heap + 3 * at + k] = f[heap + 3 * above + k]
        at = above
    f[heap + 3 * at], f[heap + 3 * at + 1], f[heap + 3 * at + 2] = time, number, event


@inner
def take_far(f, strip):  # type: ignore[no-untyped-def]
    """Take the first event out of the heap, which is not empty."""
    heap = f[strip + S_FAR]
    event = f[heap + 2]
    count = f[strip + S_FAR_COUNT] - 1
    f[strip + S_FAR_COUNT] = count
    time, number, last = f[heap + 3 * count], f[heap + 3 * count + 1], f[heap + 3 * count + 2]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and _before(f, heap + 3 * below + 3, heap + 3 * below):
            below += 1
        if time < f[heap + 3 * below] or (time == f[heap + 3 * below] and number < f[heap + 3 * below + 1]):
            break
        for k in range(3):
            f[heap + 3 * at + k] = f[heap + 3 * below + k]
        at = below
    f[heap + 3 * at], f[heap + 3 * at + 1], f[heap + 3 * at + 2] = time, number, last
    return event


@inner
def _before(f, one, other):  # type: ignore[no-untyped-def]
    return f[one] < f[other] or (f[one] == f[other] and f[one + 1] < f[other + 1])


# --- bytes: of the whole array, little-endian, aligned or not ---


@inner
def load8(f, byte):  # type: ignore[no-untyped-def]
    """8 bits, unsigned."""
    return f[byte >> 3] >> ((byte & 7) << 3) & 0xFF


@inner
def load16(f, byte):  # type: ignore[no-untyped-def]
    """16 bits, unsigned."""
    at = byte & 7
    if at < 7:
        return f[byte >> 3] >> (at << 3) & 0xFFFF
    return load8(f, byte) | load8(f, byte + 1) << 8


@inner
def load32(f, byte):  # type: ignore[no-untyped-def]
    """32 bits, unsigned."""
    at = byte & 7
    if at < 5:
        return f[byte >> 3] >> (at << 3) & 0xFFFFFFFF
    return load16(f, byte) | load16(f, byte + 2) << 16


@inner
def store8(f, byte, value):  # type: ignore[no-untyped-def]
    """The low 8 bits of a value."""
    shift = (byte & 7) << 3
    f[byte >> 3] = (f[byte >> 3] & ~(0xFF << shift)) | (value & 0xFF) << shift


@inner
def store16(f, byte, value):  # type: ignore[no-untyped-def]
    """The low 16 bits of a value."""
    at = byte & 7
    if at < 7:
        shift = at << 3
        f[byte >> 3] = (f[byte >> 3] & ~(0xFFFF << shift)) | (value & 0xFFFF) << shift
    else:
        store8(f, byte, value)
        store8(f, byte + 1, value >> 8)


@inner
def store32(f, byte, value):  # type: ignore[no-untyped-def]
    """The low 32 bits of a value."""
    at = byte & 7
    if at < 5:
        shift = at << 3
        f[byte >> 3] = (f[byte >> 3] & ~(0xFFFFFFFF << shift)) | (value & 0xFFFFFFFF) << shift
    else:
        store16(f, byte, value)
        store16(f, byte + 2, value >> 16)
