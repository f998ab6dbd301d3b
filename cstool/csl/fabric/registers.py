"""Configuration that a running PE reads and writes: 16-bit words at word addresses, as `<tile_config>` does.

Eight words a color, from `COLORS` on:

    0 to 3      routes of switch positions 0 to 3: bit p of `rx`, bit 5 + p of `tx`, p as in `arch.PORTS`; 0: none
    4           bits 0, 1 the position now; 2 ring; 3, 4 pop mode; 5, 6 swap; 8 teardown
    5 to 7      the filter's limits, where the color has a filter

Writes take effect at once, also for wavelets that wait in the router. The addresses are ours: programs name registers
only through `<tile_config>`.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from cstool.csl.fabric import arch
from cstool.csl.fabric.arch import OWN_QUEUES
from cstool.csl.fabric.datapath import MAIN_FIRST
from cstool.csl.fabric.errors import no_color
from cstool.csl.fabric.program import ColorConfig, Handler, Route
from cstool.csl.fabric.queues import InputQueue, OutputQueue

if TYPE_CHECKING:
    from cstool.csl.fabric.pe import ProcessingElement

COLORS = 0x200
COLOR_WORDS = 8
SWITCH, FILTER = 4, 5

PRIORITIES, MAIN_PRIORITY = 0x100, 0x160
"""64 words: priorities of tasks, 0 low and 1 high; and one word: of the main thread, 0 to 4."""

OUTPUT_QUEUES, INPUT_QUEUES = 0x150, 0x158
"""Eight words each: the color of each queue."""

FLUSHED = 0x140
"""Two words: input queues and output queues that called the teardown task because they are empty, a bit each."""

POPS = ("no_pop", "always_pop", "pop_on_advance")
_RING, _POP, _SWAP, _TEARDOWN = 1 << 2, 3, 5, 1 << 8


def color_word(address: int) -> tuple[int, int] | None:
    """Color and word of `address`; None if it is no color's."""
    color, word = divmod(address - COLORS, COLOR_WORDS)
    return (color, word) if 0 <= color < arch.COLORS else None


def _queue_word(address: int) -> tuple[int, bool] | None:
    """The queue whose color is at `address`: its number, and whether it is an output queue; None if there is none."""
    number, output = (address - OUTPUT_QUEUES) % OWN_QUEUES, address < INPUT_QUEUES
    return (number, output) if OUTPUT_QUEUES <= address < INPUT_QUEUES + OWN_QUEUES else None


def route_word(route: Route) -> int:
    """A route, coded in a word."""
    return route.rx | route.tx << len(arch.PORTS)


def read_word(config: ColorConfig, word: int) -> int:
    """One of the eight words of a color."""
    if word < SWITCH:
        return route_word(config.positions[word]) if word < len(config.positions) else 0
    if word == SWITCH:
        bits = config.current | POPS.index(config.pop) << _POP | config.swap << _SWAP
        return bits | (_RING if config.ring else 0) | (_TEARDOWN if config.teardown else 0)
    limits = config.filter.limits if config.filter else ()
    return limits[word - FILTER] if word - FILTER < len(limits) else 0


def write_word(config: ColorConfig, word: int, value: int) -> ColorConfig:
    """Return `config` after a write to one of its eight words."""
    if word < SWITCH:
        words = [read_word(config, at) for at in range(SWITCH)]
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


class TileConfig:
    """The configuration of one PE. Words of a color belong to the router; the others are kept here.

    Args:
        pe: the PE
    """

    def __init__(self, pe: "ProcessingElement") -> None:
        self._pe = pe
        self._words: dict[int, int] = {}

    def read(self, address: int) -> int:
        """A word of the memory-mapped configuration, by word address."""
        place = color_word(address)
        if place is None:
            queue = _queue_word(address)
            return self._words.get(address, 0) if queue is None else self._pe.ramp.color_of(*queue) or 0
        config = self._pe.simulation.network.config(self._pe.index, place[0])
        return 0 if config is None else read_word(config, place[1])

    def write(self, address: int, value: int) -> None:
        """Likewise, written: routes, switches, filters, teardown."""
        place = color_word(address)
        if place is None:
            queue = _queue_word(address)
            if queue is not None:
                self._pe.ramp.bind(*queue, value)
                return
            self._words[address] = value & 0xFFFF
            if address == MAIN_PRIORITY:
                self._pe.datapath.main_first = MAIN_FIRST[min(value, len(MAIN_FIRST) - 1)]
            elif 0 <= address - PRIORITIES < arch.TASK_IDS:
                high = self._pe.main.picker.high
                (high.add if value else high.discard)(address - PRIORITIES)
            return
        pe, network, (color, word) = self._pe.index, self._pe.simulation.network, place
        config = network.config(pe, color)
        if config is None:
            raise self._pe.error(no_color(color))
        changed = write_word(config, word, value & 0xFFFF)
        if config.teardown and not changed.teardown:
            network.end_teardown(pe, color)
            config = network.config(pe, color)
            assert config is not None
            changed = write_word(config, word, value & 0xFFFF)
        if changed != config:
            network.set_config(pe, color, changed)

    def calls(self, handler: Handler) -> bool:
        """Whether the teardown task calls a handler now."""
        if handler.kind == "color":
            config = self._pe.simulation.network.config(self._pe.index, handler.number)
            return config is not None and config.teardown
        return bool(self._words.get(FLUSHED + (handler.kind == "output"), 0) >> handler.number & 1)

    def flushed(self, queue: InputQueue | OutputQueue) -> None:
        """Note for the program that a queue called the teardown task."""
        address = FLUSHED + isinstance(queue, OutputQueue)
        self._words[address] = self._words.get(address, 0) | 1 << (queue.number or 0)
