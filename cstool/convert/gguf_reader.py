"""Read GGUF files, of llama.cpp and others: metadata, then ranges of rows of tensors as float32.

A file has, in little-endian order: `GGUF`, a version, the counts of tensors and of metadata entries; the entries; a
description of each tensor; and, from a multiple of the alignment on, the data. Rows of a quantised tensor are blocks of
32 numbers, or of 256, which become floats as `dequantize_row_*` of ggml makes them, to the bit. The package `gguf` maps
the whole file and has no bounds to check; so this reader is here, and tests hold it against that package.

Source: the GGUF specification (docs/gguf.md of ggml), versions 2 and 3; ggml-common.h and ggml-quants.c for blocks.
"""

import math
import mmap
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cstool.convert.safetensors_reader import open_file, widen_bfloat16
from cstool.foundation.errors import CheckpointError
from cstool.training.store.checkpoint_layout import read_at
from cstool.training.store.saved_state import Opened

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_AGAIN = "get or write the file anew"
_ALIGNMENT = 32
"""of the data, where the file does not say it [bytes]"""
_MOST_DIMENSIONS = 4
_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""types of metadata, as `struct` names them"""

Array = NDArray[Any]


class _Form(NamedTuple):
    """How a type of tensors lies in a file."""

    name: str
    numbers: int
    """of a block"""
    block_bytes: int
    widen: Callable[[Array], Array] | None = None
    """(blocks, bytes) uint8 -> (blocks, numbers) float32; None for a type that cannot be read"""


def _float16(bits: Array) -> Array:
    """The float16 numbers in the last two bytes of an axis, (..., 1) float32."""
    return np.ascontiguousarray(bits).view(np.float16).astype(np.float32)


def _nibbles(bits: Array) -> Array:
    """Codes of 4 bits, (blocks, 2 x bytes): the lower halves of all bytes, then the upper ones."""
    return np.concatenate([bits & 15, bits >> 4], axis=1)


def _widen_q4_0(blocks: Array) -> Array:
    return _float16(blocks[:, :2]) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def _widen_q4_1(blocks: Array) -> Array:
    return _nibbles(blocks[:, 4:]).astype(np.float32) * _float16(blocks[:, :2]) + _float16(blocks[:, 2:4])


def _widen_q8_0(blocks: Array) -> Array:
    return _float16(blocks[:, :2]) * blocks[:, 2:].view(np.int8).astype(np.float32)


_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12], np.float32)
_E2M1_SIGNED = np.concatenate([_E2M1, -_E2M1])
"""twice the numbers of the format"""


def _widen_mxfp4(blocks: Array) -> Array:
    scales = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)
    found: Array = scales * _E2M1_SIGNED[_nibbles(blocks[:, 1:])]
    return found


def _widen_q6_k(blocks: Array) -> Array:
    count = len(blocks)
    low, high, scales, scale = np.split(blocks, [128, 192, 208], axis=1)
    of_sixteen = _float16(scale) * scales.view(np.int8).astype(np.float32)
    lower = (low.reshape(count, 2, 1, 64) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)) & 15
    upper = (high.reshape(count, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)) & 3
    codes = (lower.reshape(count, 8, 32) | upper.reshape(count, 8, 32) << 4).astype(np.float32) - 32
    found: Array = (of_sixteen[:, :, None] * codes.reshape(count, 16, 16)).reshape(count, 256)
    return found


_FORMS: Mapping[int, _Form] = {
    0: _Form("F32", 1, 4, lambda blocks: np.ascontiguousarray(blocks).view("<f4")),
    1: _Form("F16", 1, 2, _float16),
    2: _Form("Q4_0", 32, 18, _widen_q4_0),
    3: _Form("Q4_1", 32, 20, _widen_q4_1),
    6: _Form("Q5_0", 32, 22),
    7: _Form("Q5_1", 32, 24),
    8: _Form("Q8_0", 32, 34, _widen_q8_0),
    10: _Form("Q2_K", 256, 84),
    11: _Form("Q3_K", 256, 110),
    12: _Form("Q4_K", 256, 144),
    13: _Form("Q5_K", 256, 176),
    14: _Form("Q6_K", 256, 210, _widen_q6_k),
    30: _Form("BF16", 1, 2, lambda blocks: widen_bfloat16(np.ascontiguousarray(blocks).view("<u2"))),
    39: _Form("MXFP4", 32, 17, _widen_mxfp4),
}
"""by their numbers; of other types not even the size is known here"""
READ = tuple(form.name for form in _FORMS.values() if form.widen is not None)
"""names of the types that are read"""


class _Stored(NamedTuple):
    """A tensor and where it is."""

    shape: tuple[int, ...]
    kind: int
    """number of its type"""
    offset: int
    """in the file [bytes]"""


class _Header:
    """A place in the header of a file, which moves on as it is read."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at = path, data, 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            rule = f"its header must lie in the file, it goes on beyond its {len(self.data)} bytes"
            raise CheckpointError(f"{self.path}: {rule}", f"it was cut short; {_AGAIN}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def text(self) -> str:
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            of, count = self.number("I"), self.number("Q")
            if of in _NUMBERS:
                form = _NUMBERS[of]
                return list(struct.unpack(f"<{count}{form}", self.take(count * struct.calcsize(form))))
            # Each text has a length of its own; the least of a text, or of an array, are eight bytes.
            self.take(0 if count * 8 <= len(self.data) - self.at else count * 8)
            return [self.value(of) for _ in range(count)]
        if kind not in _NUMBERS:
            raise CheckpointError(f"{self.path}: its metadata must be of types 0 to 12, got type {kind}", _AGAIN)
        return self.number(_NUMBERS[kind])


class GgufReader(Opened):
    """The metadata and tensors of a GGUF file: a context manager.

    Args:
        path: the file

    Raises:
        CheckpointError: it cannot be read, is damaged, or is no such file
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        """by key: numbers, texts, and lists of these"""
        self._tensors: dict[str, _Stored] = {}
        self._descriptor: int | None = open_file(path)
        with self._or_closed():
            size_bytes = os.fstat(self._descriptor).st_size
            if size_bytes == 0:
                raise CheckpointError(f"{path}: must begin with GGUF, it is empty", _AGAIN)
            with mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ) as data:
                self._read_header(_Header(path, data), size_bytes)

    def _read_header(self, header: _Header, size_bytes: int) -> None:
        if (found := header.data[: len(MAGIC)]) != MAGIC:
            raise CheckpointError(f"{self.path}: must begin with GGUF, got {found!r}", "it is no GGUF file")
        header.take(len(MAGIC))
        if (version := header.number("I")) not in _VERSIONS:
            rule = "must be a GGUF file of version 2 or 3, in little-endian order"
            raise CheckpointError(f"{self.path}: {rule}, got version {version}")
        count, entries = header.number("Q"), header.number("Q")
        for _ in range(entries):
            key = header.text()
            if key in self.metadata:
                raise CheckpointError(f"{self.path}: its metadata must have {key} once, got it twice", _AGAIN)
            self.metadata[key] = header.value(header.number("I"))
        described = []
        for _ in range(count):
            name, dimensions = header.text(), header.number("I")
            sizes = [header.number("Q") for _ in range(min(dimensions, _MOST_DIMENSIONS + 1))]
            described.append((name, dimensions, sizes, header.number("I"), header.number("Q")))
            self._check(*described[-1])
            if name in {other for other, *_ in described[:-1]}:
                raise CheckpointError(f"{self.path}: must have {name} once, got it twice", _AGAIN)
        alignment = self.metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise CheckpointError(f"{self.path}: general.alignment must be a count, got {alignment!r}", _AGAIN)
        start = -(-header.at // alignment) * alignment
        for name, _, sizes, kind, offset in described:
            stored = _Stored(tuple(reversed(sizes)), kind, start + offset)
            if kind in _FORMS and (end := stored.offset + _bytes_of(stored)) > size_bytes:
                rule = f"its data must lie in the file, whose {size_bytes} bytes end before {end}"
                raise CheckpointError(f"{self.path}: {name} is damaged: {rule}", f"it was cut short; {_AGAIN}")
            self._tensors[name] = stored

    def _check(self, name: str, dimensions: int, sizes: list[int], kind: int, _offset: int) -> None:
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            rule = f"it must have 1 to {_MOST_DIMENSIONS} dimensions, got {dimensions}"
            raise CheckpointError(f"{self.path}: {name} is damaged: {rule}", _AGAIN)
        numbers = _FORMS[kind].numbers if kind in _FORMS else 1
        if 0 in sizes or sizes[0] % numbers:
            rule = f"its rows must be whole blocks of {numbers}, got {' x '.join(map(str, reversed(sizes)))}"
            raise CheckpointError(f"{self.path}: {name} is damaged: {rule}", _AGAIN)

    def close(self) -> None:
        """See `Opened.close`."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def names(self) -> list[str]:
        """Return the names of all tensors."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, rows first."""
        return self._tensors[name].shape

    def check_dtype(self, name: str) -> None:
        """Check that the numbers of a tensor can be read, or raise CheckpointError."""
        kind = self._tensors[name].kind
        form = _FORMS.get(kind)
        if form is None or form.widen is None:
            got = f"type {kind}" if form is None else form.name
            rule = f"the type of {name} must be one of {', '.join(READ)}, got {got}"
            raise CheckpointError(f"{self.path}: {rule}", "llama-quantize of llama.cpp writes files of these types")

    def rows(self, name: str, start: int, stop: int, row: tuple[int, ...] | None = None) -> Array:
        """Return rows `start` to `stop` of a tensor, (stop - start, ...) float32, or raise CheckpointError.

        Args:
            row: shape of a row; None for the dimensions after the first
        """
        stored = self._tensors[name]
        row, form = stored.shape[1:] if row is None else row, _FORMS[stored.kind]
        numbers = math.prod(row)
        if form.widen is None or numbers % form.numbers:
            rule = f"{name} must be of single numbers, as F32, where its rows are read, got {form.name}"
            raise CheckpointError(f"{self.path}: {rule}")
        blocks = np.empty(((stop - start) * numbers // form.numbers, form.block_bytes), np.uint8)
        offset = stored.offset + start * numbers // form.numbers * form.block_bytes
        assert self._descriptor is not None
        try:
            read_at(self.path, self._descriptor, offset, blocks.reshape(-1))
        except CheckpointError as error:
            raise CheckpointError(error.message, _AGAIN) from error
        return form.widen(blocks).astype(np.float32, copy=False).reshape(stop - start, *row)

    def columns(self, name: str, start: int, stop: int) -> Array:
        """Return columns `start` to `stop` of a matrix, (rows, stop - start) float32, or raise CheckpointError."""
        return self.rows(name, 0, self.shape(name)[0])[:, start:stop]


def _bytes_of(stored: _Stored) -> int:
    form = _FORMS[stored.kind]
    return math.prod(stored.shape) // form.numbers * form.block_bytes


def is_gguf(path: Path) -> bool:
    """Whether a file begins as a GGUF file does."""
    # A pipe would keep its reader waiting.
    if not path.is_file():
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
