"""Pseudo-random bits of a PE: `@random16` and `@set_active_prng`.

The generator is xorshift32 (G. Marsaglia, "Xorshift RNGs", 2003), not the hardware's. Numbers are the same on every PE.
States are kept in words of the configuration.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cstool.csl.fabric.pe import ProcessingElement

ACTIVE = 0x160
"""word address of the active generator's number"""
STATES = 0x170
"""two words a generator, the lower half first; 0: not yet begun"""
GENERATORS = 8

_FIRST = 2463534242
_STEP = 0x9E3779B9
"""difference between the first states of generators: 2**32 divided by the golden ratio, odd"""


def random16(pe: "ProcessingElement") -> int:
    """The next 16 bits of the active generator."""
    number = pe.config_read(ACTIVE)
    at = STATES + 2 * number
    state = pe.config_read(at) | pe.config_read(at + 1) << 16
    state = state or (_FIRST + _STEP * number) & 0xFFFFFFFF
    state ^= state << 13 & 0xFFFFFFFF
    state ^= state >> 17
    state ^= state << 5 & 0xFFFFFFFF
    pe.config_write(at, state & 0xFFFF)
    pe.config_write(at + 1, state >> 16)
    return state >> 16


def set_active_prng(pe: "ProcessingElement", number: int) -> None:
    """Choose the active generator."""
    pe.config_write(ACTIVE, number % GENERATORS)
