"""Read safetensors files: headers checked to the last byte, then ranges of rows or of columns as float32.

The format is eight bytes (the length of the header, little-endian), a JSON header, and the data. The library of that
name reads ranges, too; but into NumPy no bfloat16, of two tensors of one name the last, and its errors name neither
tensor nor remedy; and its writer has the whole model in memory. So both sides are here, and tests hold them against it.
"""

import json
import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from cstool.foundation.atomic_file import is_plain_name
from cstool.foundation.errors import CheckpointError
from cstool.training.store.checkpoint_layout import read_at
from cstool.training.store.saved_state import Opened

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
"""how Hugging Face calls the only file of a model, and the list of several"""

MOST_HEADER_BYTES = 32 * 2**20
"""longest header, and longest index, that is read [bytes]"""

_AGAIN = "get or write the file anew"
_ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
"""size of an element [bytes]"""
_MOST_DIMENSIONS = 8
_NUMPY_KINDS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
"""dtypes of weights; NumPy has no bfloat16"""

Array = NDArray[Any]


@dataclass(frozen=True)
class _Stored:
    """A tensor and where it is."""

    file: int
    shape: tuple[int, ...]
    dtype: str
    offset: int


class SafetensorsReader(Opened):
    """The tensors of one safetensors file, or of several with their index: a context manager.

    Args:
        path: a file, an index, or a folder with one of them under its usual name

    Raises:
        CheckpointError: a file cannot be read, is damaged, or contradicts the index
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptors: list[int] = []
        self._files, listed = _find(path)
        self._tensors: dict[str, _Stored] = {}
        with self._or_closed():
            for number, file in enumerate(self._files):
                self._descriptors.append(open_file(file))
                for name, stored in _read_header(number, file, self._descriptors[number]).items():
                    if listed and listed.get(name) != file.name:
                        rule = "must have no tensor that the index does not place there"
                        raise CheckpointError(f"{file}: {rule}, got {name}")
                    self._tensors[name] = stored
            for name, file_name in listed.items():
                if name not in self._tensors:
                    raise CheckpointError(
                        f"{path}: {name} must be in {file_name}, as the index says, it is not", _AGAIN
                    )

    def close(self) -> None:
        """See `Opened.close`."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def names(self) -> list[str]:
        """Return the names of all tensors."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self._tensors[name].shape

    def check_dtype(self, name: str) -> None:
        """Check that a tensor holds numbers that fit float32, or raise CheckpointError."""
        if (dtype := self._tensors[name].dtype) not in _NUMPY_KINDS:
            file = self._files[self._tensors[name].file]
            raise CheckpointError(f"{file}: the dtype of {name} must be F32, F16 or BF16, got {dtype}")

    def rows(self, name: str, start: int, stop: int, row: tuple[int, ...] | None = None) -> Array:
        """Return rows `start` to `stop` of a tensor, (stop - start, ...) float32, or raise CheckpointError.

        Args:
            row: shape of a row; None for the dimensions after the first
        """
        stored = self._tensors[name]
        row = stored.shape[1:] if row is None else row
        found = np.empty((stop - start, *row), _NUMPY_KINDS[stored.dtype])
        self._read(stored, start * math.prod(row), found.reshape(-1))
        return _widened(stored, found)

    def columns(self, name: str, start: int, stop: int) -> Array:
        """Return columns `start` to `stop` of a matrix, (rows, stop - start) float32, or raise CheckpointError."""
        stored = self._tensors[name]
        rows, width = stored.shape
        found = np.empty((rows, stop - start), _NUMPY_KINDS[stored.dtype])
        for row in range(rows):
            self._read(stored, row * width + start, found[row])
        return _widened(stored, found)

    def _read(self, stored: _Stored, start: int, out: Array) -> None:
        file, offset = self._files[stored.file], stored.offset + start * out.dtype.itemsize
        try:
            read_at(file, self._descriptors[stored.file], offset, out.view(np.uint8))
        except CheckpointError as error:
            raise CheckpointError(error.message, _AGAIN) from error


def _find(path: Path) -> tuple[list[Path], dict[str, str]]:
    """Return the files of a model, and which tensor the index places in which; an empty index where there is none."""
    if path.is_dir():
        usual = [path / name for name in (SINGLE_NAME, INDEX_NAME)]
        found = next((file for file in usual if file.exists()), None)
        if found is None:
            raise CheckpointError(
                f"{path}: must have {SINGLE_NAME} or {INDEX_NAME} in it, found neither",
                "files of another name can be given themselves; .bin files are Python code, which is never run",
            )
        path = found
    if path.suffix != ".json":
        return [path], {}
    index = read_json(path)
    listed = index.get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise CheckpointError(f"{path}: must have a weight_map from tensors to files, it has none")
    for file in listed.values():
        if not is_plain_name(file):
            raise CheckpointError(f"{path}: its weight_map must name files of this folder, got {file!r}")
    return [path.with_name(name) for name in dict.fromkeys(listed.values())], listed


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of bounded length that holds a mapping, or raise CheckpointError."""
    descriptor = open_file(path)
    try:
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes > MOST_HEADER_BYTES:
            raise CheckpointError(f"{path}: must have at most {MOST_HEADER_BYTES} bytes, got {size_bytes}")
        data = np.empty(size_bytes, np.uint8)
        read_at(path, descriptor, 0, data)
    finally:
        os.close(descriptor)
    return _parse(path, data.tobytes(), "must be a JSON file with a mapping")


def open_file(path: Path) -> int:
    """Open a regular file for reading; return its descriptor, or raise CheckpointError."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise CheckpointError(f"{path}: must be a regular file, it is not")
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CheckpointError(f"{path}: must be a file that can be read, got: {error.strerror}") from error


def _parse(path: Path, text: bytes, rule: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise CheckpointError(f"{path}: {rule}, got {name} twice", _AGAIN)
            found[name] = value
        return found

    try:
        found = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: {rule}", _AGAIN) from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: {rule}", _AGAIN)
    return found


def _read_header(number: int, path: Path, descriptor: int) -> dict[str, _Stored]:
    size_bytes = os.fstat(descriptor).st_size
    length = np.zeros(1, "<u8")
    if size_bytes >= length.nbytes:
        read_at(path, descriptor, 0, length.view(np.uint8))
    start = length.nbytes + int(length[0])
    if size_bytes < length.nbytes or start > size_bytes or length[0] > MOST_HEADER_BYTES:
        raise CheckpointError(
            f"{path}: must begin with the length of its header, which lies in the file, got {length[0]} of "
            f"{size_bytes} bytes",
            "it is no safetensors file, or was cut short",
        )
    header = np.empty(int(length[0]), np.uint8)
    read_at(path, descriptor, length.nbytes, header)
    entries = _parse(path, header.tobytes(), "its header must be JSON, each name once")
    entries.pop("__metadata__", None)
    tensors, ends = {}, {}
    for name, entry in entries.items():
        tensors[name], ends[name] = _checked(number, path, name, entry, start, size_bytes - start)
    position = start
    for name in sorted(tensors, key=lambda name: (tensors[name].offset, ends[name])):
        if tensors[name].offset != position:
            _refuse(path, name, f"its data must begin at {position - start}, where the last one's end, got "
                    f"{tensors[name].offset - start}")  # fmt: skip
        position = ends[name]
    if position != size_bytes:
        got = f"got {size_bytes - position} more"
        raise CheckpointError(f"{path}: must end where its last tensor does, {got}", _AGAIN)
    return tensors


def _checked(number: int, path: Path, name: str, entry: Any, start: int, data_bytes: int) -> tuple[_Stored, int]:
    """Return a tensor and the end of its data, after checking its entry in the header."""
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [first, last]}:
            pass
        case _:
            _refuse(path, name, "it must have dtype, shape and data_offsets")
    if dtype not in _ITEM_BYTES:
        _refuse(path, name, f"its dtype must be one of {', '.join(_ITEM_BYTES)}, got {dtype}")
    if len(shape) > _MOST_DIMENSIONS or not all(type(n) is int and n >= 0 for n in (*shape, first, last)):
        _refuse(path, name, "its shape, of few dimensions, and its data_offsets must be counts")
    if not first <= last <= data_bytes:
        _refuse(path, name, f"its data must lie in the file, whose {data_bytes} bytes of data end before {last}")
    need_bytes = math.prod(shape) * _ITEM_BYTES[dtype]
    if last - first != need_bytes:
        _refuse(path, name, f"its data must have the {need_bytes} bytes of its shape, got {last - first}")
    return _Stored(number, tuple(shape), dtype, start + first), start + last


def _refuse(path: Path, name: str, why: str) -> NoReturn:
    raise CheckpointError(f"{path}: {name} is damaged: {why}", _AGAIN)


def _widened(stored: _Stored, found: Array) -> Array:
    if stored.dtype == "BF16":
        return widen_bfloat16(found)
    return found.astype(np.float32, copy=False)


def widen_bfloat16(bits: Array) -> Array:
    """Bfloat16 as uint16 bits to float32 of the same shape, the upper half of whose bits they are."""
    wide: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return wide
