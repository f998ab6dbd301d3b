"""The SRAM of one PE, its views, and the places of the elements of operands."""

import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.arch import SRAM_BYTES
from cstool.csl.fabric.dsd import Mem1d, Mem4d
from cstool.csl.fabric.operations import BYTES, DTYPES

HALVES: list[float] = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64).tolist()
"""The value of each float16, by its bits."""

_half = struct.Struct("<e")
_word = struct.Struct("<H")
_FORMATS = {"w": "<I", "i": "<i", "f": "<f", "H": "<H", "h": "<h", "e": "<e", "B": "<B", "b": "<b"}
_scratch = memoryview(bytearray(4))
_float = _scratch.cast("f")
_int = _scratch.cast("I")


def half_bits(value: float) -> int:
    """The bits of `value`, rounded to float16."""
    try:
        packed = _half.pack(value)
    except OverflowError:
        return 0x7C00 if value > 0 else 0xFC00
    return int(_word.unpack(packed)[0])


def float_bits(value: float) -> int:
    """The bits of `value`, rounded to float32."""
    _float[0] = value
    return _int[0]


def bits_float(bits: int) -> float:
    """The float32 of these 32 bits."""
    _int[0] = bits
    return _float[0]


def encode(letter: str, value: float) -> int:
    """`value` as the bits of an element of type `letter`, rounded or wrapped."""
    if letter == "f":
        return float_bits(value)
    if letter == "e":
        return half_bits(value)
    return int(value) & ((1 << 8 * BYTES[letter]) - 1)


def decode(letter: str, bits: int) -> int | float:
    """The value of the low bits of `bits`, as type `letter`."""
    if letter == "w":
        return bits
    if letter == "f":
        return bits_float(bits)
    if letter == "e":
        return HALVES[bits & 0xFFFF]
    size = 8 * BYTES[letter]
    bits &= (1 << size) - 1
    return bits - (1 << size) if letter in "ihb" and bits >> (size - 1) else bits


def addresses(operand: Mem1d | Mem4d, count: int) -> range | list[int]:
    """Byte addresses of the first `count` elements; of a stride of 0, a list."""
    if type(operand) is Mem1d:
        address, stride = operand.address, operand.stride
        return range(address, address + count * stride, stride) if stride else [address] * count
    assert isinstance(operand, Mem4d)
    if operand.wrap:
        stride = operand.strides[0]
        return [operand.address + (operand.first + k) % operand.wrap * stride for k in range(count)]
    places = np.zeros(1, np.int64) + operand.address
    for extent, stride in zip(operand.extents, operand.strides, strict=True):
        places = (places[:, None] + np.arange(extent) * stride).reshape(-1)
    listed: list[int] = places[:count].tolist()
    return listed


def bounds(operand: Mem1d | Mem4d, count: int, size: int) -> tuple[int, int]:
    """First byte of an operand's elements, and the byte behind their last; `count` is not 0."""
    if type(operand) is Mem1d:
        last = operand.address + (count - 1) * operand.stride
        return (operand.address, last + size) if last >= operand.address else (last, operand.address + size)
    places = addresses(operand, count)
    return min(places), max(places) + size


class Memory:
    """SRAM of one PE.

    Args:
        first: its first bytes; the rest is zero
    """

    __slots__ = ("bytes", "f16", "f32", "i8", "i16", "i32", "u8", "u16", "u32")

    def __init__(self, first: bytes) -> None:
        self.bytes = bytearray(SRAM_BYTES)
        self.bytes[: len(first)] = first
        self.u8 = memoryview(self.bytes)
        self.i8 = self.u8.cast("b")
        self.u16 = self.u8.cast("H")
        self.i16 = self.u8.cast("h")
        self.u32 = self.u8.cast("I")
        self.i32 = self.u8.cast("i")
        self.f32 = self.u8.cast("f")
        self.f16: NDArray[np.float16] = np.frombuffer(self.bytes, np.float16)

    def load(self, letter: str, address: int) -> int | float:
        """A scalar from any address, aligned or not; letters as in `program.Task`, "B" and "b" for bytes."""
        value: int | float = struct.unpack_from(_FORMATS[letter], self.bytes, address)[0]
        return value

    def store(self, letter: str, address: int, value: float) -> None:
        """A scalar to any address, rounded or wrapped."""
        size = BYTES[letter]
        self.bytes[address : address + size] = encode(letter, value).to_bytes(size, "little")

    def reader(self, operand: Mem1d | Mem4d, count: int, letter: str) -> Iterator[Any]:
        """Iterate over elements as scalars; each is read when it is asked for."""
        size = BYTES[letter]
        places = _units(operand, count, size)
        if places is None:
            return map(self.load, repeat(letter), addresses(operand, count))
        if letter == "e":
            return map(HALVES.__getitem__, map(self.u16.__getitem__, places))
        views: dict[str, memoryview[Any]] = {"w": self.u32, "i": self.i32, "f": self.f32, "H": self.u16, "h": self.i16}
        return map(views[letter].__getitem__, places)

    def writer(
        self, operand: Mem1d | Mem4d, count: int, letter: str
    ) -> tuple[Iterable[int], Callable[[int, Any], None]]:
        """Places of elements, and a function that stores a value (rounded or wrapped) at a place."""
        size = BYTES[letter]
        places = _units(operand, count, size)
        if places is None:
            return addresses(operand, count), lambda address, value: self.store(letter, address, value)
        if letter == "f":
            return places, self.f32.__setitem__
        view = self.u32 if size == 4 else self.u16
        if letter == "e":
            return places, lambda place, value: view.__setitem__(place, half_bits(value))
        mask = 0xFFFFFFFF if size == 4 else 0xFFFF
        return places, lambda place, value: view.__setitem__(place, value & mask)

    def array(self, operand: Mem1d | Mem4d, count: int, letter: str) -> NDArray[Any]:
        """Elements as an array that shares the memory (one dimension), or of several dimensions as a copy."""
        dtype = DTYPES[letter]
        if type(operand) is Mem1d:
            strides = (operand.stride,)
            return np.ndarray((count,), dtype, self.bytes, operand.address, strides)
        bytes_of = np.asarray(addresses(operand, count))[:, None] + np.arange(BYTES[letter])
        return np.frombuffer(self.bytes, np.uint8)[bytes_of].view(dtype).reshape(-1)

    def scatter(self, operand: Mem4d, count: int, letter: str, values: NDArray[Any]) -> None:
        """Write an array to the elements of a tensor."""
        size = BYTES[letter]
        bytes_of = np.asarray(addresses(operand, count))[:, None] + np.arange(size)
        raw = np.ascontiguousarray(values.astype(DTYPES[letter])).view(np.uint8).reshape(count, size)
        np.frombuffer(self.bytes, np.uint8)[bytes_of] = raw


def _units(operand: Mem1d | Mem4d, count: int, size: int) -> Iterable[int] | None:
    """Places in units of the element; None if elements are not aligned."""
    if type(operand) is Mem1d:
        address, stride = operand.address, operand.stride
        if address % size or stride % size:
            return None
        if not stride:
            return repeat(address // size, count)
        first, step = address // size, stride // size
        return range(first, first + count * step, step)
    assert isinstance(operand, Mem4d)
    if operand.address % size or any(stride % size for stride in operand.strides):
        return None
    return [address // size for address in addresses(operand, count)]
