"""The memory-mapped configuration of one PE, as its program reads and writes it (`<tile_config>`)."""

from typing import TYPE_CHECKING

from cstool.csl.fabric import registers
from cstool.csl.fabric.queues import InputQueue, OutputQueue

if TYPE_CHECKING:
    from cstool.csl.fabric.pe import ProcessingElement


class TileConfig:
    """Words of a color belong to the router; the others are kept here.

    Args:
        pe: the PE
    """

    def __init__(self, pe: "ProcessingElement") -> None:
        self._pe = pe
        self._words: dict[int, int] = {}

    def read(self, address: int) -> int:
        """A word of the memory-mapped configuration (`registers`), by word address."""
        place = registers.color_word(address)
        if place is None:
            return self._words.get(address, 0)
        config = self._pe.simulation.network.config(self._pe.index, place[0])
        return 0 if config is None else registers.read(config, place[1])

    def write(self, address: int, value: int) -> None:
        """Likewise, written: routes, switches, filters, teardown."""
        place = registers.color_word(address)
        if place is None:
            self._words[address] = value & 0xFFFF
            return
        pe, network, (color, word) = self._pe.index, self._pe.simulation.network, place
        config = network.config(pe, color)
        if config is None:
            raise self._pe.error(
                f"a register of color {color} is written, the router of this PE must have that color, it has not"
            )
        changed = registers.write(config, word, value & 0xFFFF)
        if config.teardown and not changed.teardown:
            network.end_teardown(pe, color)
            config = network.config(pe, color)
            assert config is not None
            changed = registers.write(config, word, value & 0xFFFF)
        if changed != config:
            network.set_config(pe, color, changed)

    def flushed(self, queue: InputQueue | OutputQueue) -> None:
        """Note for the program that a queue called the teardown task."""
        address = registers.FLUSHED + isinstance(queue, OutputQueue)
        self._words[address] = self._words.get(address, 0) | 1 << (queue.number or 0)
