"""Words of a color's configuration, read and written; DSDs that are given another address."""

from dataclasses import replace

from cstool.csl.fabric import registers
from cstool.csl.fabric.dsd import Mem1d
from cstool.csl.fabric.interface import offset_dsd, placed_dsd
from cstool.csl.fabric.program import ColorConfig, Filter, Route

CONFIG = ColorConfig((Route(1, 4), Route(2, 1)), current=1, ring=True, pop="always_pop")


def test_words_of_a_color() -> None:
    words = [1 | 4 << 5, 2 | 1 << 5, 0, 0, 1 | 4 | 8, 0, 0, 0]
    assert [registers.read_word(CONFIG, word) for word in range(8)] == words
    assert registers.color_word(registers.COLORS + 3 * registers.COLOR_WORDS + 4) == (3, 4)
    assert registers.color_word(registers.PRIORITIES) is None
    assert registers.color_word(registers.COLORS + 24 * registers.COLOR_WORDS) is None


def test_what_is_written_is_read() -> None:
    config = CONFIG
    for word, value in ((2, 8 | 16 << 5), (4, 2 | 2 << 3 | 1 << 5 | 1 << 8)):
        config = registers.write_word(config, word, value)
        assert registers.read_word(config, word) == value
    positions = (*CONFIG.positions, Route(8, 16))
    assert config == ColorConfig(positions, current=2, pop="pop_on_advance", swap=1, teardown=True)


def test_what_is_left_out_or_not_there_changes_nothing_else() -> None:
    # Positions end at the first empty word; a filter has its own limits.
    assert registers.write_word(CONFIG, 3, 1 | 1 << 5) == registers.write_word(CONFIG, 5, 5) == CONFIG
    assert registers.write_word(CONFIG, 1, 0) == replace(CONFIG, positions=(Route(1, 4),))
    config = replace(CONFIG, filter=Filter("range", (3, 9)))
    assert registers.write_word(config, 6, 12).filter == Filter("range", (3, 12))
    assert registers.write_word(config, 7, 5) == config


def test_a_dsd_at_another_address_counts_its_stride_in_elements_of_what_is_there() -> None:
    halves = Mem1d(100, 42, 2, 2)
    assert placed_dsd(halves, 200, 4) == Mem1d(200, 42, 4, 4)
    assert placed_dsd(Mem1d(100, 42, -12, 4), 200, 2) == Mem1d(200, 42, -6, 2)
    assert placed_dsd(Mem1d(100, 42, 0, 4), 200, 2) == Mem1d(200, 42, 0, 2)
    # One that is moved keeps it.
    assert offset_dsd(halves, 3, 4) == Mem1d(112, 42, 2, 2)
