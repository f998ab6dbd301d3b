"""Sources of conversions: arrays by cstool's own names, with zeros, by ranges of rows; here cstool's own files.

Of a checkpoint of DPO there is the policy alone, as a decoder: without the reference and the state of the optimizer.
"""

import math
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.errors import CheckpointError
from cstool.model.graphs.preference import POLICY, REFERENCE
from cstool.model.ir import Graph
from cstool.training.store import INDICES, CheckpointReader, SparseTensors, checked_indices, unbound_note
from cstool.training.store.saved_state import Opened

Array = np.ndarray[Any, Any]
HINT = "--params names the file of the model"
CHUNK_BYTES = 8 * 2**20
"""size of a piece of an array in memory, about, in float32 [bytes]"""


class Source(Opened):
    """A checkpoint to convert from, a context manager."""

    path: Path
    """place of the file or folder"""
    shapes: Mapping[str, tuple[int, ...]]
    """shapes of the arrays with their zeros, by name: `model.W` of each weight, `optimizer.W.S` of its states"""
    links: Mapping[str, str]
    """names of tied weights, and the arrays that they are"""
    values: Mapping[str, Any]
    """other values for a checkpoint of cstool"""
    notes: list[str]
    """parts of the source that are left out"""
    _reader: Opened

    @abstractmethod
    def rows(self, array: str, multiple: int = 1) -> Iterator[Array]:
        """Yield an array in ranges of rows in order, (n, ...) float32, n a multiple of `multiple` or the rest."""

    def close(self) -> None:
        """See `Opened.close`."""
        self._reader.close()


def row_ranges(shape: tuple[int, ...], multiple: int = 1) -> Iterator[tuple[int, int]]:
    """Yield ranges of the rows of an array of about `CHUNK_BYTES` each, of a multiple of so many rows but the last."""
    rows, row_bytes = shape[0], 4 * math.prod(shape[1:])
    step = max(1, CHUNK_BYTES // max(1, row_bytes * multiple)) * multiple
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def weights_of(source: Source) -> list[str]:
    """Return the names of the weights, in order."""
    return [array.removeprefix("model.") for array in source.shapes if array.startswith("model.")]


def check_weights(source: Source, graph: Graph, given: Collection[str] = ()) -> None:
    """Check that a source has the weights of a model, and no other ones, or raise CheckpointError.

    Args:
        given: weights that are given elsewhere: it may lack them, and have others of its own as its head
    """
    for name, weight in graph.weights.items():
        shape = source.shapes.get(f"model.{name}")
        if shape is None and name in given:
            continue
        if shape is None:
            raise CheckpointError(f"{source.path}: lacks the weight {name} of this model", HINT)
        if shape != weight.shape:
            raise CheckpointError(
                f"{source.path}: {name} must be {written(weight.shape)}, as in this model, got {written(shape)}", HINT
            )
    for name in weights_of(source):
        if name not in graph.weights and not given:
            raise CheckpointError(f"{source.path}: has the weight {name}, which this model lacks", HINT)


def written(shape: tuple[int, ...]) -> str:
    """Return a shape as messages have it: 3 x 4."""
    return " x ".join(map(str, shape)) or "one number"


class CstoolSource(Source):
    """A checkpoint of cstool's own, with sparse weights or without. See `Source`. Opening it raises CheckpointError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: CheckpointReader = CheckpointReader(path)
        note = unbound_note(self._reader)
        self.notes = [] if note is None else [note]
        with self._or_closed():
            sparse = SparseTensors(self._reader)
            self.sparse: set[str] = {key.removeprefix("model.") for key in sparse.shapes}
            """names of the sparse weights"""
            names = [name for name in self._reader.tensor_names() if not sparse.is_index(name)]
            self._keys = {name: key for name in names if (key := _key_of(name)) in sparse.shapes}
            self.shapes = {name: self._shape(name, sparse.shapes) for name in names}
        keys = self._reader.keys()
        self.links = {key: target for key in keys if (target := self._reader.link_of(key)) is not None}
        self.values = self._reader.values()

    def rows(self, array: str, multiple: int = 1) -> Iterator[Array]:
        """See `Source.rows`."""
        if array in self._keys:
            for rows, _ in self._scattered(array, multiple):
                yield rows
            return
        read, shape = self._reader.in_order(array), self.shapes[array]
        for start, stop in row_ranges(shape, multiple):
            out = np.empty((stop - start, *shape[1:]), np.float32)
            read(out, start, stop)
            yield out

    def kept(self, weight: str) -> Iterator[Array]:
        """Yield, for each range of rows of a sparse weight, where its numbers are: bool, of the shape of the range."""
        for _, mask in self._scattered(f"model.{weight}", 1):
            yield mask

    def count(self, weight: str) -> int:
        """Number of non-zeros of a sparse weight."""
        return self._reader.shape(f"model.{weight}")[0]

    def _shape(self, name: str, sparse: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """Return the shape of an array with its zeros, after checking the form in which it is stored."""
        shape, dtype = self._reader.shape(name), self._reader.dtype(name)
        key = self._keys.get(name)
        wanted = shape if key is None else self._reader.shape(f"{key}{INDICES}")
        if not shape:
            raise CheckpointError(f"{self.path}: {name} must have rows, got one number")
        if (shape, dtype) != (wanted, "float32"):
            raise CheckpointError(
                f"{self.path}: {name} must be {written(wanted)} float32, got {written(shape)} {dtype}"
            )
        return shape if key is None else sparse[key]

    def _scattered(self, array: str, multiple: int) -> Iterator[tuple[Array, Array]]:
        """Yield ranges of rows of an array of a sparse weight, and where its numbers are in them."""
        shape = self.shapes[array]
        width = math.prod(shape[1:])
        blocks = self._blocks(array)
        indices, numbers = np.empty(0, np.int64), np.empty(0, np.float32)
        for start, stop in row_ranges(shape, multiple):
            rows, mask = np.zeros((stop - start, *shape[1:]), np.float32), np.zeros((stop - start) * width, np.bool_)
            while True:
                cut = int(np.searchsorted(indices, stop * width))
                here = indices[:cut] - start * width
                rows.reshape(-1)[here], mask[here] = numbers[:cut], True
                indices, numbers = indices[cut:], numbers[cut:]
                if indices.size or (block := next(blocks, None)) is None:
                    break
                indices, numbers = block
            yield rows, mask.reshape(rows.shape)

    def _blocks(self, array: str) -> Iterator[tuple[Array, Array]]:
        """Yield the numbers of an array of a sparse weight with their indices, so many at a time."""
        name = f"{self._keys[array]}{INDICES}"
        read_indices, read_numbers = self._reader.in_order(name), self._reader.in_order(array)
        size, before = math.prod(self.shapes[array]), -1
        for start, stop in row_ranges(self._reader.shape(array)):
            stored = np.empty(stop - start, self._reader.dtype(name))
            numbers = np.empty(stop - start, np.float32)
            read_indices(stored, start, stop)
            read_numbers(numbers, start, stop)
            indices = checked_indices(f"{self.path}: {name}", stored, size, start, before)
            before = int(indices[-1])
            yield indices, numbers


def _key_of(array: str) -> str:
    """Return the key of the weight that an array belongs to."""
    if array.startswith("optimizer."):
        return f"model.{array.removeprefix('optimizer.').rpartition('.')[0]}"
    return array


def has_policy(path: Path) -> bool:
    """Whether a checkpoint of cstool's own is of DPO, or raise CheckpointError."""
    with CheckpointReader(path) as reader:
        return any(map(_is_of_policy, reader.tensor_names()))


class PolicySource(Source):
    """The weights of the policy of a source under the names that they have in the decoder alone. See `Source`.

    Args:
        source: with a policy; closed with this one
        metadata: of the decoder, in place of DPO's metadata
    """

    def __init__(self, source: Source, metadata: Mapping[str, Any]) -> None:
        self._reader: Source = source
        self.path = source.path
        self._names = {_in_decoder(name): name for name in source.shapes if _is_of_policy(name)}
        self.shapes = {name: source.shapes[there] for name, there in self._names.items()}
        self.links = {_in_decoder(a): _in_decoder(b) for a, b in source.links.items() if _is_of_policy(a)}
        step = {key: source.values[key] for key in ("global_step",) if key in source.values}
        self.values = {**step, "__metadata__": [dict(metadata)]}
        has_state = any(name.startswith("optimizer.") for name in source.shapes)
        has_reference = any(name.startswith(f"model.{REFERENCE}") for name in source.shapes)
        left = ["the reference"] * has_reference + ["the optimizer state"] * has_state
        self.notes = [*source.notes, *([f"of DPO the policy is taken, without {' and '.join(left)}"] if left else [])]

    def rows(self, array: str, multiple: int = 1) -> Iterator[Array]:
        """See `Source.rows`."""
        return self._reader.rows(self._names[array], multiple)


def _is_of_policy(name: str) -> bool:
    return name.startswith(f"model.{POLICY}")


def _in_decoder(name: str) -> str:
    return f"model.{name.removeprefix(f'model.{POLICY}')}"
