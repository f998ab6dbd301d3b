"""Write safetensors files: the header says where everything goes, then the rows and columns come in any order."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.training.store.saved_state import Opened

FLOAT32_BYTES = 4
_ALIGNMENT = 8
"""alignment of the data in the file [bytes]"""


class SafetensorsWriter(Opened):
    """A file of float32 tensors whose numbers come later: a context manager. Renaming it at the end is up to others.

    Their data are in the order of `shapes`. It raises OSError where it cannot be written.
    """

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = dict(shapes)
        self._starts: dict[str, int] = {}
        # The loader asks for the library of the tensors; "pt" is the value that transformers writes and wants.
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, shape in shapes.items():
            self._starts[name], end = end, end + math.prod(shape) * FLOAT32_BYTES
            header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [self._starts[name], end]}
        text = json.dumps(header).encode()
        text = text.ljust(-(-len(text) // _ALIGNMENT) * _ALIGNMENT)
        self._data = 8 + len(text)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with self._or_closed():
            self._write(0, len(text).to_bytes(8, "little") + text)
            os.truncate(self._descriptor, self._data + end)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if error is None:
                os.fsync(self._descriptor)
        finally:
            self.close()

    def close(self) -> None:
        """See `Opened.close`."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def write_rows(self, name: str, start: int, rows: NDArray[Any]) -> None:
        """Write rows from `start` on, (n, ...) float32, or raise OSError; their shape gives the length of a row."""
        self._write_at(name, start * math.prod(rows.shape[1:]), np.ascontiguousarray(rows))

    def write_columns(self, name: str, start: int, columns: NDArray[Any]) -> None:
        """Write columns of a matrix from `start` on, (rows, n) float32, or raise OSError."""
        width = self._shapes[name][1]
        columns = np.ascontiguousarray(columns)
        for row, numbers in enumerate(columns):
            self._write_at(name, row * width + start, numbers)

    def _write_at(self, name: str, element: int, numbers: NDArray[Any]) -> None:
        offset = self._data + self._starts[name] + element * FLOAT32_BYTES
        self._write(offset, numbers.reshape(-1).view(np.uint8).data)

    def _write(self, offset: int, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            offset, view = offset + written, view[written:]
