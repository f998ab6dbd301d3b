"""The numbers of a page: a second reader, number by number, gets back what was written."""

import base64
import zlib
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.page.coding import differences, packed, plain, rising
from tests.examples import examples

naturals = st.one_of(st.integers(0, 300), st.integers(0, 2**62))


def read(raw: bytes) -> Iterator[int]:
    """Varints, one after the other."""
    number, shift = 0, 0
    for byte in raw:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield number
            number, shift = 0, 0
    assert shift == 0, "the last number is not whole"


def unfolded(number: int) -> int:
    return -(number + 1) // 2 if number % 2 else number // 2


def summed(steps: Iterator[int]) -> list[int]:
    found: list[int] = []
    for step in steps:
        found.append((found[-1] if found else 0) + step)
    return found


@given(st.lists(naturals))
@examples(200)
def test_plain_numbers_come_back(numbers):
    assert list(read(plain(np.array(numbers, np.int64)))) == numbers


@given(st.lists(st.integers(-(2**60), 2**60)))
@examples(200)
def test_differences_come_back(numbers):
    assert summed(map(unfolded, read(differences(np.array(numbers, np.int64))))) == numbers


@given(st.lists(st.lists(naturals, min_size=1).map(sorted)))
@examples(200)
def test_rising_groups_come_back(groups):
    flat = np.array([number for group in groups for number in group], np.int64)
    steps = read(rising(flat, [len(group) for group in groups]))
    assert [summed(next(steps) for _ in group) for group in groups] == groups


def test_bytes_of_numbers():
    """0 and 127 have one byte, 128 and 16,383 two; the low bits come first."""
    assert plain(np.array([0, 127, 128, 16383, 16384], np.int64)).hex(" ") == "00 7f 80 01 ff 7f 80 80 01"
    assert differences(np.array([3, 2, 2, 5], np.int64)).hex(" ") == "06 01 00 06"


@given(st.lists(st.binary()))
@examples(50)
def test_parts_are_packed_one_behind_the_other(parts):
    assert zlib.decompress(base64.b64decode(packed(parts))) == b"".join(parts)


def test_a_wavelet_a_cycle_takes_almost_nothing():
    """A link that carries a wavelet in each of 5,000 cycles."""
    assert len(packed([rising(np.arange(7, 5007), [5000])])) < 60
