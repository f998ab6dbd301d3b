"""Routers and links: `cstool.csl.fabric.network`, compiled.

A router is part of its PE's record. Flows, links and exits are made when the first wavelet needs them. What the network
does in a cycle is known one or two cycles before, in lists of the strip.
"""

from cstool.csl.fabric.arch import EAST, RAMP, WEST
from cstool.csl.fabric.network import RAMP_CYCLES
from cstool.csl.fabric.queues import NOT_YET
from cstool.csl.fabric.router import BOTH_SWAPS, BUFFER, RAMP_REGISTERS
from cstool.csl.fast import codes, control
from cstool.csl.fast.cells import allocate, append, fail, free_event, new_event
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.queues import room_of
from cstool.csl.fast.state import (
    CHANGE,
    CONTROL_BIT,
    COUNTER,
    CROSSES,
    DATA_MASK,
    EXITS,
    F_COLOR,
    F_CONFIG,
    F_ENDING,
    F_IN,
    F_MADE,
    F_NUMBER,
    F_OUT,
    F_PE,
    F_PENDING,
    F_PLAIN,
    F_POSITION,
    F_ROUTE,
    F_TEARDOWN,
    F_WORDS,
    FLOWS,
    FROM_CE,
    G_COUNT,
    G_CURRENT,
    G_FILTER,
    G_FILTER_ID,
    G_LIMITS,
    G_OWNED,
    G_POP,
    G_RING,
    G_ROUTES,
    G_SWAP,
    G_TEARDOWN,
    G_WORDS,
    H_COLOR_PLACE,
    H_COLORS,
    L_COLOR,
    L_COUNT,
    L_FLOW,
    L_FREE,
    L_FRESH,
    L_KIND,
    L_LENGTH,
    L_NEXT,
    L_NEXT_HEAD,
    L_ORDER,
    L_PE,
    L_PORT,
    L_QUEUE,
    L_RAMP_LISTED,
    L_RETURNED,
    L_ROOM,
    L_WANTED,
    L_WORDS,
    N_A,
    N_B,
    N_KIND,
    N_NEXT,
    NO_FILTER,
    P_AWAKE,
    P_BESIDE_PE,
    P_BY_COLOR,
    P_HEADS,
    P_ROUTER_LAST,
    P_ROUTER_SENT,
    P_STRIP,
    PORTS_COUNT,
    RANGE,
    S_AWAKE,
    S_AWAKE_AT,
    S_CHANGES,
    S_CREDITS,
    S_CREDITS_AT,
    S_DOWNS,
    S_DOWNS_AT,
    S_ERROR,
    S_FREE_CONFIGS,
    S_HOPS,
    S_HOPS_AT,
    S_LINKS,
    S_NETWORK,
    S_NOW,
    S_OTHER,
    S_OUT_CREDITS,
    S_OUT_CREDITS_AT,
    S_OUT_HOPS,
    S_OUT_HOPS_AT,
    S_OUT_TIME,
    S_RAMPS,
    S_RAMPS_AT,
    S_SCRATCH,
    S_TEARDOWNS,
    S_UPS,
    S_UPS_AT,
    SET_ROOM,
    SIDE_MASK,
    TEARS_DOWN,
)
from cstool.csl.fast.units import prefetch

ALWAYS_POP, POP_ON_ADVANCE = 1, 2


# --- flows and links ---


@inner
def table(f, pe, which):  # type: ignore[no-untyped-def]
    """Address of a table by color of a PE."""
    return f[pe + P_BY_COLOR] + which * f[H_COLORS]


@inner
def make_flow(f, strip, pe, color, config):  # type: ignore[no-untyped-def]
    """The flow of a color at a router, with its first config."""
    flow = allocate(f, strip, F_WORDS)
    f[flow + F_PE] = pe
    f[flow + F_COLOR] = color
    f[flow + F_NUMBER] = f[config + G_LIMITS]
    _set(f, flow, config)
    f[table(f, pe, FLOWS) + f[H_COLOR_PLACE + color]] = flow
    return flow


@inner
def find_flow(f, pe, color):  # type: ignore[no-untyped-def]
    """The flow of a color at a router; 0 if the router does not have the color."""
    place = f[H_COLOR_PLACE + color]
    if place < 0:
        return 0
    flow = f[table(f, pe, FLOWS) + place]
    if flow >= 0:
        return flow
    return make_flow(f, f[pe + P_STRIP], pe, color, -flow)


@inner
def _set(f, flow, config):  # type: ignore[no-untyped-def]
    """Take a config: ways and links are found anew."""
    f[flow + F_CONFIG] = config
    f[flow + F_TEARDOWN] = f[config + G_TEARDOWN]
    f[flow + F_PLAIN] = f[config + G_FILTER] == NO_FILTER and not f[config + G_SWAP]
    f[flow + F_POSITION] = f[config + G_CURRENT]
    f[flow + F_MADE] = 0
    f[flow + F_ROUTE] = -1
    for port in range(PORTS_COUNT):
        f[flow + F_OUT + port] = 0


@inner
def _make_link(f, strip, pe, port, color):  # type: ignore[no-untyped-def]
    link = allocate(f, strip, L_WORDS)
    f[link + L_PE] = pe
    f[link + L_PORT] = port
    f[link + L_COLOR] = color
    f[link + L_FRESH] = -1
    f[link + L_NEXT] = f[strip + S_LINKS]
    f[strip + S_LINKS] = link
    return link


@inner
def make_buffer(f, strip, pe, port, flow, side):  # type: ignore[no-untyped-def]
    """The link from a PE's router to a flow at the next; `port` RAMP: from its CE."""
    link = _make_link(f, strip, pe, port, f[flow + F_COLOR])
    f[link + L_FREE] = BUFFER + RAMP_REGISTERS if port == RAMP else BUFFER
    if port == RAMP:
        f[link + L_KIND] = FROM_CE
    elif f[pe + P_STRIP] != f[f[flow + F_PE] + P_STRIP]:
        f[link + L_KIND] = CROSSES
    f[link + L_FLOW] = flow
    f[link + L_ORDER] = f[flow + F_COLOR] << 3 | side
    f[flow + F_IN + side] = link
    return link


@inner
def from_ce(f, pe, color):  # type: ignore[no-untyped-def]
    """The link from a CE up its ramp; 0 after an error."""
    flow = find_flow(f, pe, color)
    if not flow:
        fail(f, f[pe + P_STRIP], codes.NOT_CONFIGURED, pe, color, RAMP)
        return 0
    link = f[flow + F_IN + RAMP]
    return link if link else make_buffer(f, f[pe + P_STRIP], pe, RAMP, flow, RAMP)


@inner
def _color_at(f, flow, port):  # type: ignore[no-untyped-def]
    """The color of wavelets behind an output port."""
    swap = f[f[flow + F_CONFIG] + G_SWAP]
    if port == RAMP:
        swaps = 1 if swap == BOTH_SWAPS else 0
    else:
        swaps = swap >> (0 if port in (WEST, EAST) else 1) & 1
    return f[flow + F_COLOR] ^ swaps


@inner
def set_room(f, exit_, room):  # type: ignore[no-untyped-def]
    """Set the room of the queue below an exit; 0: no queue has the color."""
    room = max(0, room)
    f[exit_ + L_ROOM] = room
    f[exit_ + L_FREE] = room + RAMP_REGISTERS if room else 0


@inner
def _make_links(f, strip, flow, tx):  # type: ignore[no-untyped-def]
    """Make the links of a position that a wavelet comes to first."""
    pe = f[flow + F_PE]
    for port in range(1, PORTS_COUNT):
        if not tx >> port & 1 or f[flow + F_OUT + port]:
            continue
        beside = f[pe + P_BESIDE_PE + port]
        if not beside:
            fail(f, strip, codes.OFF_RECTANGLE, pe, f[flow + F_COLOR], port)
            return
        side = port + 1 if port & 1 else port - 1  # the opposite one
        color = _color_at(f, flow, port)
        there = find_flow(f, beside, color)
        if not there:
            fail(f, strip, codes.NOT_CONFIGURED, beside, color, side)
            return
        link = f[there + F_IN + side]
        f[flow + F_OUT + port] = link if link else make_buffer(f, strip, pe, port, there, side)
    if tx & 1 and not f[flow + F_OUT]:
        color = _color_at(f, flow, RAMP)
        at = table(f, pe, EXITS) + f[H_COLOR_PLACE + color]
        if not f[at]:
            f[at] = _make_link(f, strip, pe, RAMP, color)
            set_room(f, f[at], room_of(f, pe, color))
        f[flow + F_OUT] = f[at]


@inner
def way(f, strip, flow):  # type: ignore[no-untyped-def]
    """The route rx | tx << 5 of a flow's position, with its links made; 0 if nothing passes."""
    route = f[flow + F_ROUTE]
    if route >= 0:
        return route
    position = f[flow + F_POSITION]
    if f[flow + F_TEARDOWN] or position >= f[f[flow + F_CONFIG] + G_COUNT]:
        route = 0
    else:
        route = f[f[flow + F_CONFIG] + G_ROUTES + position]
        if not f[flow + F_MADE] >> position & 1:
            _make_links(f, strip, flow, route >> PORTS_COUNT)
            f[flow + F_MADE] |= 1 << position
    f[flow + F_ROUTE] = route
    return route


# --- what PEs call ---


@inner
def _busy(f, strip, time):  # type: ignore[no-untyped-def]
    f[strip + S_NETWORK] = max(f[strip + S_NETWORK], time)


@inner
def can_send(f, pe, link):  # type: ignore[no-untyped-def]
    """Whether a CE may send by its link now; if not, `ramp_free` is called when that may have changed."""
    strip = f[pe + P_STRIP]
    now = f[strip + S_NOW]
    used = f[pe + P_ROUTER_SENT] == now
    fresh = f[link + L_FRESH] == now
    if not used and f[link + L_FREE] > fresh:
        return True
    if not f[link + L_WANTED] and (used or fresh):
        _list_ramp(f, strip, link)
    f[link + L_WANTED] = 1
    return False


@inner
def _list_ramp(f, strip, link):  # type: ignore[no-untyped-def]
    if not f[link + L_RAMP_LISTED]:
        f[link + L_RAMP_LISTED] = 1
        f[f[strip + S_RAMPS_AT] + f[strip + S_RAMPS]] = link
        f[strip + S_RAMPS] += 1
    _busy(f, strip, f[strip + S_NOW] + 1)


@inner
def send(f, pe, link, word):  # type: ignore[no-untyped-def]
    """Put a wavelet (data | control << 32) of a CE on its ramp, after `can_send` allowed it."""
    strip = f[pe + P_STRIP]
    now = f[strip + S_NOW]
    f[pe + P_ROUTER_SENT] = now
    f[link + L_FREE] -= 1
    f[link + L_COUNT] += 1
    parity = now & 1
    at = f[strip + S_UPS_AT + parity] + 2 * f[strip + S_UPS + parity]
    f[at] = link
    f[at + 1] = word
    f[strip + S_UPS + parity] += 1
    _busy(f, strip, now + RAMP_CYCLES)


@inner
def release(f, pe, color):  # type: ignore[no-untyped-def]
    """The CE took a wavelet of a color out of its input queue: the router may send another from the next cycle on."""
    exit_ = f[table(f, pe, EXITS) + f[H_COLOR_PLACE + color]]
    _credit(f, f[pe + P_STRIP], exit_)


@inner
def _credit(f, strip, link):  # type: ignore[no-untyped-def]
    if not f[link + L_RETURNED]:
        f[f[strip + S_CREDITS_AT] + f[strip + S_CREDITS]] = link
        f[strip + S_CREDITS] += 1
    f[link + L_RETURNED] += 1
    _busy(f, strip, f[strip + S_NOW] + 1)


@inner
def later_room(f, pe, color, room):  # type: ignore[no-untyped-def]
    """The input queue that a color has at a PE from the next cycle on holds `room` wavelets; 0: it has none."""
    place = f[H_COLOR_PLACE + color] if 0 <= color < 24 else -1
    exit_ = f[table(f, pe, EXITS) + place] if place >= 0 else 0
    if exit_:
        strip = f[pe + P_STRIP]
        append(f, strip + S_CHANGES, new_event(f, strip, SET_ROOM, pe, exit_, room))
        _busy(f, strip, f[strip + S_NOW] + 1)


@inner
def later_change(f, pe, flow, config):  # type: ignore[no-untyped-def]
    """A flow takes another config (a copy, which is its own then) from the next cycle on; 0: its teardown ends."""
    strip = f[pe + P_STRIP]
    append(f, strip + S_CHANGES, new_event(f, strip, CHANGE, pe, flow, config))
    _busy(f, strip, f[strip + S_NOW] + 1)


@inner
def new_config(f, strip, config):  # type: ignore[no-untyped-def]
    """A copy of a config."""
    copy = f[strip + S_FREE_CONFIGS]
    if copy:
        f[strip + S_FREE_CONFIGS] = f[copy]
    else:
        copy = allocate(f, strip, G_WORDS)
    for k in range(G_WORDS):
        f[copy + k] = f[config + k]
    f[copy + G_OWNED] = 1
    return copy


# --- a cycle ---


@inner
def _wake(f, strip, pe, now):  # type: ignore[no-untyped-def]
    """Look at a router in this cycle."""
    if f[pe + P_AWAKE] != now:
        f[pe + P_AWAKE] = now
        at = strip + S_AWAKE + (now & 1)
        f[f[strip + S_AWAKE_AT + (now & 1)] + f[at]] = pe
        f[at] += 1


@inner
def _change(f, strip, flow, config):  # type: ignore[no-untyped-def]
    """Take another config; 0: end teardown."""
    if not config:
        f[flow + F_TEARDOWN] = f[flow + F_ENDING] = 0
        f[flow + F_ROUTE] = -1
        return
    if f[config + G_FILTER_ID] != f[f[flow + F_CONFIG] + G_FILTER_ID]:
        f[flow + F_NUMBER] = f[config + G_LIMITS]
    f[flow + F_PENDING] = 0
    before = f[flow + F_CONFIG]
    _set(f, flow, config)
    if f[before + G_OWNED]:
        f[before] = f[strip + S_FREE_CONFIGS]
        f[strip + S_FREE_CONFIGS] = before


@inner
def _arrive(f, strip, link, word, now):  # type: ignore[no-untyped-def]
    """A wavelet comes to a buffer."""
    length = f[link + L_LENGTH]
    f[link + L_QUEUE + length] = word
    f[link + L_LENGTH] = length + 1
    if length:
        return
    pe = f[f[link + L_FLOW] + F_PE]
    before, head, order = pe + P_HEADS, f[pe + P_HEADS], f[link + L_ORDER]
    while head and f[head + L_ORDER] < order:
        before = head + L_NEXT_HEAD
        head = f[before]
    f[link + L_NEXT_HEAD] = head
    f[before] = link
    _wake(f, strip, pe, now)


@inner
def _arrive_all(f, strip, at, count, now):  # type: ignore[no-untyped-def]
    """Wavelets come to buffers: (link, word) of each stand at an address."""
    for k in range(count):
        if k + 6 < count:
            prefetch(f, f[at + 2 * k + 12] + L_FLOW)
        if k + 4 < count:
            prefetch(f, f[f[at + 2 * k + 8] + L_FLOW])
        if k + 2 < count:
            prefetch(f, f[f[f[at + 2 * k + 4] + L_FLOW] + F_PE] + P_HEADS)
        _arrive(f, strip, f[at + 2 * k], f[at + 2 * k + 1], now)


@inner
def move(f, strip):  # type: ignore[no-untyped-def]
    """The first half of a cycle of the network: all that comes."""
    now = f[strip + S_NOW]
    _take_changes(f, strip, now, CHANGE)
    parity = now & 1
    _arrive_all(f, strip, f[strip + S_UPS_AT + parity], f[strip + S_UPS + parity], now)
    f[strip + S_UPS + parity] = 0
    _arrive_all(f, strip, f[strip + S_HOPS_AT], f[strip + S_HOPS], now)
    f[strip + S_HOPS] = 0
    at, count = f[strip + S_CREDITS_AT], f[strip + S_CREDITS]
    for k in range(count):
        if k + 6 < count:
            prefetch(f, f[at + k + 6])
        link = f[at + k]
        f[link + L_FREE] += f[link + L_RETURNED]
        f[link + L_RETURNED] = 0
        if f[link + L_WANTED]:
            f[link + L_WANTED] = 0
            _wake(f, strip, f[link + L_PE], now)
    f[strip + S_CREDITS] = 0
    if comes_from_other(f, strip, now):
        _take_from_other(f, f[strip + S_OTHER], strip, now)
    _take_changes(f, strip, now, SET_ROOM)
    f[strip + S_CHANGES] = 0


@inner
def comes_from_other(f, strip, now):  # type: ignore[no-untyped-def]
    """Whether the other strip has put out something in the cycle before."""
    other, parity = f[strip + S_OTHER], now + 1 & 1
    if not other or f[other + S_OUT_TIME + parity] != now - 1:
        return False
    return f[other + S_OUT_HOPS + parity] + f[other + S_OUT_CREDITS + parity] > 0


@inner
def _take_from_other(f, other, strip, now):  # type: ignore[no-untyped-def]
    """Take wavelets and credits that come over the border of the strips."""
    parity = now + 1 & 1
    at = f[other + S_OUT_HOPS_AT + parity]
    for k in range(f[other + S_OUT_HOPS + parity]):
        _arrive(f, strip, f[at + 2 * k], f[at + 2 * k + 1], now)
    at = f[other + S_OUT_CREDITS_AT + parity]
    for k in range(f[other + S_OUT_CREDITS + parity]):
        link = f[at + k]
        f[link + L_FREE] += 1
        if f[link + L_WANTED]:
            f[link + L_WANTED] = 0
            _wake(f, strip, f[link + L_PE], now)


@inner
def _prefetch_ways(f, flow):  # type: ignore[no-untyped-def]
    """Begin to load the links by which a wavelet of a flow leaves."""
    route = f[flow + F_ROUTE]
    for port in range(PORTS_COUNT):
        if route >> PORTS_COUNT + port & 1:
            prefetch(f, f[flow + F_OUT + port])


@inner
def route(f, strip):  # type: ignore[no-untyped-def]
    """The other half: routers send."""
    now = f[strip + S_NOW]
    parity = now & 1
    at = f[strip + S_AWAKE_AT + parity]
    count = f[strip + S_AWAKE + parity]
    f[strip + S_AWAKE + parity] = 0
    for k in range(count):
        if k + 8 < count:
            prefetch(f, f[at + k + 8] + P_HEADS)
        if k + 6 < count:
            head = f[f[at + k + 6] + P_HEADS]
            prefetch(f, head)
            prefetch(f, head + L_FLOW)
        if k + 4 < count:
            prefetch(f, f[f[f[at + k + 4] + P_HEADS] + L_FLOW])
        if k + 2 < count and f[f[at + k + 2] + P_HEADS]:
            _prefetch_ways(f, f[f[f[at + k + 2] + P_HEADS] + L_FLOW])
        _route(f, strip, f[at + k], now)


@inner
def _take_changes(f, strip, now, kind):  # type: ignore[no-untyped-def]
    """Take changes of configs, or of rooms. Rooms come behind credits: those of wavelets before do not count."""
    event = f[strip + S_CHANGES]
    while event:
        following = f[event + N_NEXT]
        if kind == CHANGE and f[event + N_KIND] == CHANGE:
            flow = f[event + N_A]
            _change(f, strip, flow, f[event + N_B])
            _wake(f, strip, f[flow + F_PE], now)
        elif kind == SET_ROOM:
            exit_ = f[event + N_A]
            if f[event + N_KIND] == SET_ROOM:
                set_room(f, exit_, f[event + N_B])
                if f[exit_ + L_WANTED]:
                    f[exit_ + L_WANTED] = 0
                    _wake(f, strip, f[exit_ + L_PE], now)
            free_event(f, strip, event)
        event = following


@inner
def _heads(f, strip, pe, now):  # type: ignore[no-untyped-def]
    """Put the heads that a router takes now into the scratch words, in turn; returns their number."""
    into = f[strip + S_SCRATCH]
    count = 0
    latest = 0
    last = f[pe + P_ROUTER_LAST]
    for late in range(2):
        link = f[pe + P_HEADS]
        while link:
            color = f[link + L_ORDER] >> 3
            if not late or color <= last:
                flow = f[link + L_FLOW]
                if way(f, strip, flow) >> (f[link + L_ORDER] & SIDE_MASK) & 1:
                    if not late:
                        if latest and f[latest + L_FLOW] == flow:
                            sides = f[latest + L_ORDER] & SIDE_MASK, f[link + L_ORDER] & SIDE_MASK
                            fail(f, strip, codes.CONFLICT, pe, color, sides[0], sides[1], now)
                            return 0
                        latest = link
                    if (color <= last) == (late == 1):
                        f[into + count] = link
                        count += 1
            link = f[link + L_NEXT_HEAD]
    return count


@inner
def _goes_down(f, flow, word):  # type: ignore[no-untyped-def]
    """Whether a wavelet for the CE gets there: the filter, and CE-ignore, may drop it here."""
    is_control = word & CONTROL_BIT
    if is_control and control.ce_ignore(word):
        return False
    config = f[flow + F_CONFIG]
    kind = f[config + G_FILTER]
    if kind == NO_FILTER:
        return True
    if kind == RANGE:
        return is_control != 0 or f[config + G_LIMITS] <= (word & DATA_MASK) >> 16 <= f[config + G_LIMITS + 1]
    return (is_control != 0 and kind != COUNTER) or f[flow + F_NUMBER] <= f[config + G_LIMITS + 2]


@inner
def _following(f, flow):  # type: ignore[no-untyped-def]
    """The position that an advance leads to; -1 if it stays."""
    last = f[f[flow + F_CONFIG] + G_COUNT] - 1
    if f[flow + F_POSITION] < last:
        return f[flow + F_POSITION] + 1
    return 0 if f[f[flow + F_CONFIG] + G_RING] and last > 0 else -1


@inner
def _obey(f, strip, flow, word, now):  # type: ignore[no-untyped-def]
    """A special wavelet leaves: count it, execute its command. Returns the wavelet that goes on."""
    config = f[flow + F_CONFIG]
    kind = f[config + G_FILTER]
    is_control = word & CONTROL_BIT
    if kind == COUNTER or (kind > COUNTER and not is_control):
        number = f[flow + F_NUMBER]
        f[flow + F_NUMBER] = 0 if number >= f[config + G_LIMITS + 1] else number + 1
    if not is_control:
        return word
    payload = word & DATA_MASK
    command = control.command_of(payload)
    pop = f[config + G_POP]
    following = _following(f, flow)
    if pop == ALWAYS_POP or (pop == POP_ON_ADVANCE and command == control.ADVANCE and following >= 0):
        payload = control.pop(payload)
    if command == control.ADVANCE and following >= 0:
        f[flow + F_POSITION], f[flow + F_ROUTE] = following, -1
    elif command == control.RESET:
        f[flow + F_POSITION], f[flow + F_ROUTE] = 0, -1
    elif command == control.TEARDOWN:
        f[flow + F_TEARDOWN], f[flow + F_ROUTE] = 1, -1
        append(f, strip + S_TEARDOWNS + 2 * (now & 1), new_event(f, strip, TEARS_DOWN, f[flow + F_PE], flow, 0))
        _busy(f, strip, now + RAMP_CYCLES)
    return payload | CONTROL_BIT


@inner
def _full(f, strip, pe, link, exit_):  # type: ignore[no-untyped-def]
    """Whether a wavelet has to wait for an exit."""
    if f[exit_ + L_FREE]:
        return False
    if not f[exit_ + L_ROOM]:
        room = room_of(f, pe, f[exit_ + L_COLOR])
        if room > 0:
            set_room(f, exit_, room)
            return False
        if room != NOT_YET:
            fail(f, strip, codes.NOBODY_TAKES, pe, f[exit_ + L_COLOR], f[link + L_ORDER] & SIDE_MASK)
            return True
    f[exit_ + L_WANTED] = 1
    return True


@inner
def _route(f, strip, pe, now):  # type: ignore[no-untyped-def]
    """Let a router send all that it can in this cycle."""
    first = f[pe + P_HEADS]
    if not first:
        return
    scratch = f[strip + S_SCRATCH]
    if f[first + L_NEXT_HEAD]:
        count = _heads(f, strip, pe, now)
    else:
        count = 1
        f[scratch] = first
    used = 0
    served = again = False
    for k in range(count):
        link = f[scratch + k]
        flow = f[link + L_FLOW]
        route = way(f, strip, flow)
        if f[strip + S_ERROR]:
            return
        if not route >> (f[link + L_ORDER] & SIDE_MASK) & 1:
            continue
        tx = route >> PORTS_COUNT
        word = f[link + L_QUEUE]
        special = not f[flow + F_PLAIN] or word & CONTROL_BIT != 0
        if tx & 1 and special and not _goes_down(f, flow, word):
            tx &= ~1
        if used & tx:
            again = True
            continue
        blocked = False
        for port in range(1, PORTS_COUNT):
            if tx >> port & 1 and not f[f[flow + F_OUT + port] + L_FREE]:
                f[f[flow + F_OUT + port] + L_WANTED] = 1
                blocked = True
                break
        if blocked or (tx & 1 and _full(f, strip, pe, link, f[flow + F_OUT])):
            continue
        if not served:
            f[pe + P_ROUTER_LAST] = f[link + L_ORDER] >> 3
            served = True
        used |= tx
        if special:
            word = _obey(f, strip, flow, word, now)
            again = True
        _leave(f, strip, pe, flow, tx, word, now)
        if _pop_head(f, strip, pe, link, now):
            again = True
    if again and served:
        at = strip + S_AWAKE + (now + 1 & 1)
        f[pe + P_AWAKE] = now + 1
        f[f[strip + S_AWAKE_AT + (now + 1 & 1)] + f[at]] = pe
        f[at] += 1
        _busy(f, strip, now + 1)


@inner
def _leave(f, strip, pe, flow, tx, word, now):  # type: ignore[no-untyped-def]
    """A wavelet leaves its router by all of its outputs."""
    for port in range(1, PORTS_COUNT):
        if tx >> port & 1:
            link = f[flow + F_OUT + port]
            f[link + L_FREE] -= 1
            f[link + L_COUNT] += 1
            if f[link + L_KIND] == CROSSES:
                parity = now & 1
                at = f[strip + S_OUT_HOPS_AT + parity] + 2 * f[strip + S_OUT_HOPS + parity]
                f[strip + S_OUT_HOPS + parity] += 1
            else:
                at = f[strip + S_HOPS_AT] + 2 * f[strip + S_HOPS]
                f[strip + S_HOPS] += 1
            f[at] = link
            f[at + 1] = word
    if tx & 1:
        exit_ = f[flow + F_OUT]
        f[exit_ + L_FREE] -= 1
        f[exit_ + L_COUNT] += 1
        parity = now & 1
        at = f[strip + S_DOWNS_AT + parity] + 3 * f[strip + S_DOWNS + parity]
        f[at] = pe
        f[at + 1] = f[exit_ + L_COLOR]
        f[at + 2] = word
        f[strip + S_DOWNS + parity] += 1
        _busy(f, strip, now + RAMP_CYCLES)
    else:
        _busy(f, strip, now + 1)


@inner
def _pop_head(f, strip, pe, link, now):  # type: ignore[no-untyped-def]
    """The head of a buffer has left: its credit returns; true if another wavelet stands behind it."""
    length = f[link + L_LENGTH] - 1
    f[link + L_LENGTH] = length
    for k in range(length):
        f[link + L_QUEUE + k] = f[link + L_QUEUE + k + 1]
    if not length:
        before = pe + P_HEADS
        while f[before] != link:
            before = f[before] + L_NEXT_HEAD
        f[before] = f[link + L_NEXT_HEAD]
    kind = f[link + L_KIND]
    if kind == CROSSES:
        parity = now & 1
        f[f[strip + S_OUT_CREDITS_AT + parity] + f[strip + S_OUT_CREDITS + parity]] = link
        f[strip + S_OUT_CREDITS + parity] += 1
    elif kind != FROM_CE:
        _credit(f, strip, link)
    else:
        f[link + L_FREE] += 1
        f[link + L_FRESH] = now
        if f[link + L_WANTED]:
            _list_ramp(f, strip, link)
    return length > 0
