"""The fast engine in plain Python, for a look into it: no compilation, about the speed of the reference engine.

    NUMBA_DISABLE_JIT=1 python -m tests.csl_random 100 --uncompiled

Import this before any other module of the engine.
"""

import math
import struct
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from cstool.csl.fast import ahead, bits, units

_MASK = (1 << 64) - 1


def _load(format_: str) -> Callable[[Any, int], Any]:
    return lambda array, byte: np.int64(struct.unpack_from(format_, memoryview(array).cast("B"), int(byte))[0])


def _store(size: int) -> Callable[[Any, int, int], None]:
    def store(array: Any, byte: int, value: int) -> None:
        raw = (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        memoryview(array).cast("B")[int(byte) : int(byte) + size] = raw

    return store


def _float(array: Any, byte: int) -> float:
    return float(np.frombuffer(memoryview(array).cast("B")[int(byte) : int(byte) + 4], np.float32)[0])


def _store_float(array: Any, byte: int, value: float) -> None:
    memoryview(array).cast("B")[int(byte) : int(byte) + 4] = np.float32(value).tobytes()


def _signed(value: int) -> np.int64:
    return np.int64(value - (1 << 64) if value >> 63 else value)


def _unsigned(operate: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
    return lambda one, other: operate(int(one) & _MASK, int(other) & _MASK)


def _call_function(_address: int, number: int, x: float, y: float) -> float:
    from cstool.csl.fast import interpreter

    return float(interpreter._function(int(number), float(x), float(y)))


_UNITS: list[Any] = [None]


def _address_of(unit: Any) -> int:
    if unit not in _UNITS:
        _UNITS.append(unit)
    return _UNITS.index(unit)


class _Math:
    """`math`, without an error for a result that is too large."""

    def __getattr__(self, name: str) -> Any:
        return getattr(math, name)

    @staticmethod
    def ldexp(x: float, n: int) -> float:
        """`x` times 2**`n`."""
        return float(np.ldexp(np.float64(x), n))


def use() -> None:
    """Put plain functions in the place of those that only compiled code can call."""
    warnings.filterwarnings("ignore")
    np.seterr(all="ignore")
    plain = {
        "get8": _load("<B"), "get_i8": _load("<b"), "get16": _load("<H"), "get_i16": _load("<h"),
        "get32": _load("<I"), "get_i32": _load("<i"), "set8": _store(1), "set16": _store(2), "set32": _store(4),
        "get_f32": _float, "set_f32": _store_float, "call_function": _call_function,
        "double_bits": lambda value: np.float64(value).view(np.int64),
        "bits_double": lambda word: np.float64(np.int64(word).view(np.float64)),
        "single": lambda value: np.float64(np.float32(value)),
        "single_bits": lambda value: np.int64(np.float32(value).view(np.uint32)),
        "bits_single": lambda word: np.float64(np.uint32(int(word) & 0xFFFFFFFF).view(np.float32)),
        "unsigned_double": lambda word: float(int(word) & _MASK),
        "unsigned_less": _unsigned(lambda one, other: one < other),
        "unsigned_quotient": _unsigned(lambda one, other: _signed(one // other)),
        "unsigned_remainder": _unsigned(lambda one, other: _signed(one % other)),
        "unsigned_shift": _unsigned(lambda one, other: _signed(one >> other)),
    }  # fmt: skip
    for name, function in plain.items():
        setattr(bits, name, function)
    units.address_of = _address_of  # type: ignore[assignment]
    units.call_unit = lambda unit, state, one, other: np.int64(_UNITS[int(unit)](state, one, other))
    units.prefetch = lambda state, at: None
    units.prefetch = lambda _state, _at: None  # type: ignore[assignment]
    ahead.compile_engine = lambda: None
    from cstool.csl.fast import operations

    operations.math = _Math()  # type: ignore[attr-defined]


use()
