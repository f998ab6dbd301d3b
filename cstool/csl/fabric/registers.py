"""Configuration that a running PE reads and writes: 16-bit words at word addresses, as `<tile_config>` does.

Eight words a color, from `COLORS` on:

    0 to 3      routes of switch positions 0 to 3: bit p of `rx`, bit 5 + p of `tx`, p as in `arch.PORTS`; 0: none
    4           bits 0, 1 the position now; 2 ring; 3, 4 pop mode; 5, 6 swap; 8 teardown
    5 to 7      the filter's limits, where the color has a filter

Writes take effect at once, also for wavelets that wait in the router. The addresses are ours: programs name registers
only through `<tile_config>`.
"""

from dataclasses import replace

from cstool.csl.fabric import arch
from cstool.csl.fabric.program import ColorConfig, Route

COLORS = 0x200
COLOR_WORDS = 8
SWITCH, FILTER = 4, 5

PRIORITIES = 0x100
"""64 words: priorities of tasks, and from 32 on of threads. Kept, not obeyed."""
PRIORITY_WORDS = 64

FLUSHED = 0x140
"""Two words: input queues and output queues that called the teardown task because they are empty, a bit each."""

POPS = ("no_pop", "always_pop", "pop_on_advance")
_RING, _POP, _SWAP, _TEARDOWN = 1 << 2, 3, 5, 1 << 8


def color_word(address: int) -> tuple[int, int] | None:
    """Color and word of `address`; None if it is no color's."""
    color, word = divmod(address - COLORS, COLOR_WORDS)
    return (color, word) if 0 <= color < arch.COLORS else None


def route_word(route: Route) -> int:
    """A route, coded in a word."""
    return route.rx | route.tx << len(arch.PORTS)


def read(config: ColorConfig, word: int) -> int:
    """One of the eight words of a color."""
    if word < SWITCH:
        return route_word(config.positions[word]) if word < len(config.positions) else 0
    if word == SWITCH:
        bits = config.current | POPS.index(config.pop) << _POP | config.swap << _SWAP
        return bits | (_RING if config.ring else 0) | (_TEARDOWN if config.teardown else 0)
    limits = config.filter.limits if config.filter else ()
    return limits[word - FILTER] if word - FILTER < len(limits) else 0


def write(config: ColorConfig, word: int, value: int) -> ColorConfig:
    """Return `config` after a write to one of its eight words."""
    if word < SWITCH:
        words = [read(config, at) for at in range(SWITCH)]
        words[word] = value
        count = words.index(0) if 0 in words else SWITCH
        ports = len(arch.PORTS)
        routes = tuple(Route(bits & (1 << ports) - 1, bits >> ports) for bits in words[:count])
        return replace(config, positions=routes)
    if word == SWITCH:
        pop = POPS[min(value >> _POP & 3, len(POPS) - 1)]
        ring, teardown = bool(value & _RING), bool(value & _TEARDOWN)
        swap = value >> _SWAP & 3
        return replace(config, current=value & 3, ring=ring, pop=pop, swap=swap, teardown=teardown)
    if config.filter is None or word - FILTER >= len(config.filter.limits):
        return config
    limits = list(config.filter.limits)
    limits[word - FILTER] = value
    return replace(config, filter=replace(config.filter, limits=tuple(limits)))
