"""Configuration that a running PE reads and writes: `cstool.csl.fabric.registers`, which has the addresses."""

from cstool.csl.fabric.registers import (
    COLOR_WORDS,
    COLORS,
    FILTER,
    FLUSHED,
    INPUT_QUEUES,
    MAIN_PRIORITY,
    OUTPUT_QUEUES,
    PRIORITIES,
    SWITCH,
)
from cstool.csl.fast import codes
from cstool.csl.fast.cells import fail, new_event
from cstool.csl.fast.kernels import inner
from cstool.csl.fast.network import find_flow, later_change, new_config, table
from cstool.csl.fast.queues import place_of
from cstool.csl.fast.ramp import bind, color_of
from cstool.csl.fast.state import (
    COLORS_COUNT,
    COUNTER,
    F_CONFIG,
    F_ENDING,
    F_NEXT_CONFIG,
    F_NUMBER,
    F_PENDING,
    F_POSITION,
    F_TEARDOWN,
    FLOWS,
    G_COUNT,
    G_CURRENT,
    G_FILTER,
    G_FILTER_ID,
    G_LIMITS,
    G_POP,
    G_RING,
    G_ROUTES,
    G_SWAP,
    G_TEARDOWN,
    HANDLER_COLOR,
    HANDLER_OUTPUT,
    N_A,
    N_B,
    N_NEXT,
    NO_FILTER,
    P_FLUSHED_INPUTS,
    P_FLUSHED_OUTPUTS,
    P_HIGH,
    P_MAIN_PRIORITY,
    P_STRIP,
    P_WORDS_OF,
    RANGE,
    S_FILTERS,
    S_FREE_CONFIGS,
)


@inner
def _is_queue(address):  # type: ignore[no-untyped-def]
    return OUTPUT_QUEUES <= address < INPUT_QUEUES + 8


@inner
def _is_color(address):  # type: ignore[no-untyped-def]
    return COLORS <= address < COLORS + COLOR_WORDS * COLORS_COUNT


@inner
def config_of(f, pe, color):  # type: ignore[no-untyped-def]
    """A copy of the config of a color as it is now; 0 if the router does not have the color. Free it."""
    place = place_of(f, color)
    found = f[table(f, pe, FLOWS) + place] if place >= 0 else 0
    strip = f[pe + P_STRIP]
    if found < 0:
        return new_config(f, strip, -found)
    if not found:
        return 0
    if f[found + F_PENDING]:
        return new_config(f, strip, f[found + F_NEXT_CONFIG])
    config = new_config(f, strip, f[found + F_CONFIG])
    f[config + G_CURRENT] = f[found + F_POSITION]
    f[config + G_TEARDOWN] = f[found + F_TEARDOWN] and not f[found + F_ENDING]
    if f[config + G_FILTER] >= COUNTER and f[config + G_LIMITS] != f[found + F_NUMBER]:
        f[config + G_LIMITS] = f[found + F_NUMBER]
        _new_filter(f, strip, config)
    return config


@inner
def _new_filter(f, strip, config):  # type: ignore[no-untyped-def]
    f[strip + S_FILTERS] += 1
    f[config + G_FILTER_ID] = f[strip + S_FILTERS]


@inner
def _free(f, strip, config):  # type: ignore[no-untyped-def]
    f[config] = f[strip + S_FREE_CONFIGS]
    f[strip + S_FREE_CONFIGS] = config


@inner
def _read_word(f, config, word):  # type: ignore[no-untyped-def]
    if word < SWITCH:
        return f[config + G_ROUTES + word] if word < f[config + G_COUNT] else 0
    if word == SWITCH:
        bits = f[config + G_CURRENT] | f[config + G_POP] << 3 | f[config + G_SWAP] << 5
        return bits | f[config + G_RING] << 2 | f[config + G_TEARDOWN] << 8
    return f[config + G_LIMITS + word - FILTER] if word - FILTER < _limits(f, config) else 0


@inner
def _limits(f, config):  # type: ignore[no-untyped-def]
    kind = f[config + G_FILTER]
    return 0 if kind == NO_FILTER else 2 if kind == RANGE else 3


@inner
def _write_word(f, strip, config, word, value):  # type: ignore[no-untyped-def]
    if word < SWITCH:
        for at in range(f[config + G_COUNT], SWITCH):
            f[config + G_ROUTES + at] = 0
        f[config + G_ROUTES + word] = value
        count = 0
        while count < SWITCH and f[config + G_ROUTES + count]:
            count += 1
        f[config + G_COUNT] = count
    elif word == SWITCH:
        f[config + G_CURRENT] = value & 3
        f[config + G_RING] = value >> 2 & 1
        f[config + G_POP] = min(value >> 3 & 3, 2)
        f[config + G_SWAP] = value >> 5 & 3
        f[config + G_TEARDOWN] = value >> 8 & 1
    elif word - FILTER < _limits(f, config):
        f[config + G_LIMITS + word - FILTER] = value
        _new_filter(f, strip, config)


@inner
def _same_filter(f, one, other):  # type: ignore[no-untyped-def]
    if f[one + G_FILTER] != f[other + G_FILTER]:
        return False
    same = True
    for k in range(_limits(f, one)):
        same = same and f[one + G_LIMITS + k] == f[other + G_LIMITS + k]
    return same


@inner
def _same(f, one, other):  # type: ignore[no-untyped-def]
    for k in range(f[one + G_COUNT]):
        if f[one + G_ROUTES + k] != f[other + G_ROUTES + k]:
            return False
    for k in (G_COUNT, G_CURRENT, G_RING, G_POP, G_SWAP, G_TEARDOWN):
        if f[one + k] != f[other + k]:
            return False
    return _same_filter(f, one, other)


@inner
def set_config(f, pe, color, config):  # type: ignore[no-untyped-def]
    """Change a color from the next cycle on; `config` is the flow's own then."""
    strip = f[pe + P_STRIP]
    flow = find_flow(f, pe, color)
    if not f[flow + F_PENDING]:
        now = config_of(f, pe, color)
        if _same_filter(f, config, now):  # it is not touched: it goes on counting
            for k in range(3):
                f[config + G_LIMITS + k] = f[f[flow + F_CONFIG] + G_LIMITS + k]
            f[config + G_FILTER_ID] = f[f[flow + F_CONFIG] + G_FILTER_ID]
        _free(f, strip, now)
    f[flow + F_PENDING] = 1
    f[flow + F_NEXT_CONFIG] = config
    later_change(f, pe, flow, config)


@inner
def end_teardown(f, pe, color):  # type: ignore[no-untyped-def]
    """The program ends the teardown of a color: wavelets pass again from the next cycle on."""
    flow = find_flow(f, pe, color)
    f[flow + F_ENDING] = 1
    if f[flow + F_PENDING]:
        f[f[flow + F_NEXT_CONFIG] + G_TEARDOWN] = 0
    later_change(f, pe, flow, 0)


@inner
def _word(f, pe, address):  # type: ignore[no-untyped-def]
    """The event that holds a word which has been written; 0: none has."""
    event = f[pe + P_WORDS_OF]
    while event and f[event + N_A] != address:
        event = f[event + N_NEXT]
    return event


@inner
def config_read(f, pe, address):  # type: ignore[no-untyped-def]
    """A word of the configuration, by word address."""
    if _is_color(address):
        config = config_of(f, pe, (address - COLORS) // COLOR_WORDS)
        if not config:
            return 0
        value = _read_word(f, config, (address - COLORS) % COLOR_WORDS)
        _free(f, f[pe + P_STRIP], config)
        return value
    if _is_queue(address):
        return max(0, color_of(f, pe, (address - OUTPUT_QUEUES) % 8, address < INPUT_QUEUES))
    if FLUSHED <= address <= FLUSHED + 1:
        return f[pe + (P_FLUSHED_OUTPUTS if address > FLUSHED else P_FLUSHED_INPUTS)]
    event = _word(f, pe, address)
    return f[event + N_B] if event else 0


@inner
def config_write(f, pe, address, value):  # type: ignore[no-untyped-def]
    """Likewise, written: routes, switches, filters, teardown."""
    if _is_color(address):
        _write_color(f, pe, (address - COLORS) // COLOR_WORDS, (address - COLORS) % COLOR_WORDS, value & 0xFFFF)
    elif _is_queue(address):
        bind(f, pe, (address - OUTPUT_QUEUES) % 8, address < INPUT_QUEUES, value)
    elif FLUSHED <= address <= FLUSHED + 1:
        f[pe + (P_FLUSHED_OUTPUTS if address > FLUSHED else P_FLUSHED_INPUTS)] = value & 0xFFFF
    else:
        event = _word(f, pe, address)
        if not event:
            event = new_event(f, f[pe + P_STRIP], 0, pe, address, 0)
            f[event + N_NEXT] = f[pe + P_WORDS_OF]
            f[pe + P_WORDS_OF] = event
        f[event + N_B] = value & 0xFFFF
        if address == MAIN_PRIORITY:
            f[pe + P_MAIN_PRIORITY] = min(value, 4)
        elif 0 <= address - PRIORITIES < 64:
            bit = 1 << (address - PRIORITIES)
            if value:
                f[pe + P_HIGH] |= bit
            else:
                f[pe + P_HIGH] &= ~bit


@inner
def _write_color(f, pe, color, word, value):  # type: ignore[no-untyped-def]
    strip = f[pe + P_STRIP]
    config = config_of(f, pe, color)
    if not config:
        fail(f, strip, codes.NO_COLOR, pe, color)
        return
    changed = new_config(f, strip, config)
    _write_word(f, strip, changed, word, value)
    if f[config + G_TEARDOWN] and not f[changed + G_TEARDOWN]:
        end_teardown(f, pe, color)
        _free(f, strip, config)
        _free(f, strip, changed)
        config = config_of(f, pe, color)
        changed = new_config(f, strip, config)
        _write_word(f, strip, changed, word, value)
    if not _same(f, changed, config):
        set_config(f, pe, color, changed)
    else:
        _free(f, strip, changed)
    _free(f, strip, config)


@inner
def calls(f, pe, kind, number):  # type: ignore[no-untyped-def]
    """Whether the teardown task calls a handler now."""
    if kind == HANDLER_COLOR:
        config = config_of(f, pe, number)
        if not config:
            return False
        found = f[config + G_TEARDOWN] != 0
        _free(f, f[pe + P_STRIP], config)
        return found
    return f[pe + (P_FLUSHED_OUTPUTS if kind == HANDLER_OUTPUT else P_FLUSHED_INPUTS)] >> number & 1 != 0
