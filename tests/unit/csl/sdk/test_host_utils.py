"""Conversions of host scripts: 16-bit numbers in words of 32 bits, and time stamps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.sdk.host_utils import calculate_cycles, input_array_to_u32, memcpy_view
from tests.examples import examples
from tests.unit.csl.sdk.sdk_programs import message


def test_input_array_to_u32() -> None:
    numbers = np.array([[1, -1, 2], [-2, 3, -3]], np.int16)
    assert input_array_to_u32(numbers, None, 3).tolist() == [1, 0xFFFF, 2, 0xFFFE, 3, 0xFFFD]
    indexed = input_array_to_u32(numbers, 1, 3)
    assert indexed.dtype == np.uint32
    assert indexed.tolist() == [1, 0x1FFFF, 0x20002, 0xFFFE, 0x10003, 0x2FFFD]
    halves = np.array([1.5], np.float16)
    assert input_array_to_u32(halves, 1, 1).tolist() == [0x3E00]


@pytest.mark.parametrize(
    ("function", "dtype", "size", "more", "expected"),
    [
        (input_array_to_u32, "f4", 2, (1, 2), "the array must be of a 16-bit type, got float32"),
        (input_array_to_u32, "i2", 3, (1, 2), "2 must divide the array's 3 elements"),
        (input_array_to_u32, "i2", 3, (1, 0), "0 must divide the array's 3 elements"),
        (memcpy_view, "u2", 1, (np.int16,), "the array must be of a 32-bit type, got uint16"),
        (memcpy_view, "u4", 1, (np.int64,), "the type must have 16 or 32 bits, got int64"),
        (calculate_cycles, "u2", 6, (), "two time stamps are 3 words of 32 bits, got 6 of uint16"),
    ],
)
def test_refusals(function: Callable[..., Any], dtype: str, size: int, more: tuple[Any, ...], expected: str) -> None:
    assert message(lambda: function(np.zeros(size, dtype), *more)) == f"{function.__name__}: {expected}"


@examples(30)
@given(st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=12))
def test_memcpy_view(numbers: list[int]) -> None:
    words = np.array(numbers, np.uint32)
    assert memcpy_view(words, np.dtype(np.uint16)).tolist() == [number & 0xFFFF for number in numbers]
    assert memcpy_view(words, np.int16).tolist() == words.astype(np.uint16).view(np.int16).tolist()
    assert np.array_equal(memcpy_view(words, np.dtype(np.float32)), words.view(np.float32), equal_nan=True)
    memcpy_view(words.reshape(1, -1), np.float16)[:] = 1.5
    assert words.tolist() == [number & 0xFFFF0000 | 0x3E00 for number in numbers]


@examples(30)
@given(st.integers(0, (1 << 48) - 1), st.integers(0, (1 << 48) - 1))
def test_calculate_cycles(start: int, cycles: int) -> None:
    end = (start + cycles) % (1 << 48)
    halves = [each >> shift & 0xFFFF for each in (start, end) for shift in (0, 16, 32)]
    words = np.array(halves, np.uint16).view(np.float32)
    assert calculate_cycles(words) == cycles
