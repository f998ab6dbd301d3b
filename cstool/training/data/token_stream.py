"""The tokens of a part of a text, one document after another, read by ranges."""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from io import BytesIO
from pathlib import Path
from typing import Protocol

import numpy as np

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array
from cstool.training.data.sources import SourceFile, read_bytes

_HEAD = 3
"""numbers at the head of a file of tokens: first document, number of documents, characters without a token"""


MAPPED_FILES = 1024
"""of tokens, mapped into memory at a time; below the usual limit of 65,530 by far"""


class TokenStream(Protocol):
    """Documents back to back. Each ends with the end-of-text token, if there is one."""

    @property
    def document_tokens(self) -> Array:
        """(documents,) int64: number of tokens of each, its end included."""

    def read(self, start: int, stop: int) -> Array:
        """Return the tokens from `start` to `stop`, (stop - start,), or raise DataError if their source changed."""


class ByteStream:
    """The bytes of files as tokens, a 0 after each file."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self._files = tuple(files)
        self.document_tokens = np.array([file.size_bytes + 1 for file in files], np.int64)
        self._edges = np.cumsum([0, *self.document_tokens])

    def read(self, start: int, stop: int) -> Array:
        """Return the bytes from `start` to `stop`."""
        content = np.zeros(stop - start, np.uint8)
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        for i in range(first, len(self._files)):
            begin = int(self._edges[i])
            if begin >= stop:
                break
            low, high = max(start - begin, 0), min(stop - begin, self._files[i].size_bytes)
            if low < high:
                piece = np.frombuffer(read_bytes(self._files[i], low, high), np.uint8)
                content[begin + low - start :][: high - low] = piece
        return content


class ShardStream:
    """Tokens of some documents, in files of `write_shard` in their order; raises DataError if one is not whole."""

    def __init__(self, paths: Sequence[Path], documents: int) -> None:
        self._paths = tuple(paths)
        self.document_tokens: Array = np.zeros(documents, np.int64)
        self.unknown_characters = 0
        """that no token stands for"""
        edges = [0]
        for path in paths:
            if (shard := _open_shard(path)) is None:
                raise DataError(f"{path}: must hold tokens, got a damaged file", "remove it, and run it again")
            first, count, unknown = shard[:_HEAD].tolist()
            self.document_tokens[first : first + count] += shard[_HEAD : _HEAD + count]
            self.unknown_characters += unknown
            edges.append(edges[-1] + len(shard) - _HEAD - count)
        self._edges = np.array(edges)

    @cached_property
    def _map(self) -> Callable[[Path], Array]:
        return lru_cache(MAPPED_FILES)(partial(np.load, mmap_mode="r", allow_pickle=False))

    def __getstate__(self) -> dict[str, object]:
        """Leave the mapped files to this process."""
        return {name: value for name, value in vars(self).items() if name != "_map"}

    def read(self, start: int, stop: int) -> Array:
        """Return the tokens from `start` to `stop`."""
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        pieces = []
        for i in range(first, len(self._paths)):
            begin, end = int(self._edges[i]), int(self._edges[i + 1])
            if begin >= stop:
                break
            shard = self._map(self._paths[i])
            tokens = shard[len(shard) - (end - begin) :]
            pieces.append(tokens[max(start - begin, 0) : stop - begin])
        return np.concatenate(pieces) if len(pieces) != 1 else pieces[0]


def write_shard(path: Path, first: int, counts: Sequence[int], unknown_characters: int, tokens: Array) -> None:
    """Write the tokens (n,) int32 of consecutive documents, or of pieces of them, whole, or raise OSError.

    Args:
        path: of the file
        first: the number of the first document
        counts: tokens of each document in this file
        unknown_characters: that no token stands for
        tokens: of all of them
    """
    content = BytesIO()
    np.save(content, np.concatenate([np.array([first, len(counts), unknown_characters, *counts], np.int32), tokens]))
    write_replacing(path, content.getvalue())


def holds_tokens(path: Path, first: int, documents: int) -> bool:
    """Tell whether a file of `write_shard` is there, whole, of these documents."""
    shard = _open_shard(path)
    return shard is not None and shard[:2].tolist() == [first, documents]


def _open_shard(path: Path) -> Array | None:
    try:
        shard: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if shard.ndim != 1 or shard.dtype != np.int32 or len(shard) < _HEAD:
        return None
    count = int(shard[1])
    return shard if _HEAD + count + int(shard[_HEAD : _HEAD + count].sum(dtype=np.int64)) == len(shard) else None
