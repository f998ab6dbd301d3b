"""The sparse tensors of a saved state: their names and shapes, and their numbers laid out with the zeros."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from cstool.foundation.errors import DamagedCheckpointError
from cstool.training.store.checkpoint_format import INDICES, SPARSITY
from cstool.training.store.saved_state import PIECE, SavedState


@dataclass(frozen=True)
class SparseTensor:
    """A tensor whose non-zeros alone are stored; `shape` includes its zeros."""

    indices: str
    """key of the tensor with their positions"""
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements, zeros included."""
        return math.prod(self.shape)


def sparse_shapes(state: SavedState) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the sparse weights with their zeros, by their keys, or raise DamagedCheckpointError."""
    described, names, shapes = state.values().get(SPARSITY), state.tensor_names(), {}
    present = set(names)
    for key in (name.removesuffix(INDICES) for name in names if name.endswith(INDICES)):
        entry = described.get(key.removeprefix("model.")) if isinstance(described, dict) else None
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if key not in present or not _is_shape(shape):
            raise DamagedCheckpointError(f"{state.path}: {key}{INDICES} must belong to a sparse weight, it does not")
        shapes[key] = tuple(shape)
    return shapes


def sparse_tensors(state: SavedState) -> dict[str, SparseTensor]:
    """Return the sparse weights and their optimizer state, by their keys, or raise DamagedCheckpointError."""
    shapes = sparse_shapes(state)
    for weight in shapes:
        found, indices = (state.shape(weight), state.shape(weight + INDICES)), state.dtype(weight + INDICES)
        if len(found[0]) != 1 or found[0] != found[1] or not indices.startswith("uint"):
            raise DamagedCheckpointError(
                f"{state.path}: {weight}{INDICES} must be one unsigned integer for each non-zero"
            )
    tensors = {}
    for name in state.tensor_names():
        part, _, rest = name.partition(".")
        weight = f"model.{rest.rpartition('.')[0]}" if part == "optimizer" else name
        if weight in shapes and state.shape(name) == state.shape(weight):
            tensors[name] = SparseTensor(weight + INDICES, shapes[weight])
    return tensors


def checked_indices(where: str, stored: NDArray[Any], size: int, first: int = 0, before: int = -1) -> NDArray[np.int64]:
    """Return indices, or a range of them, as (n,) int64.

    Args:
        where: start of error messages: the file, and the indices in it
        stored: (n,), as read
        size: of the tensor that they are in, zeros included
        first: number of the first of the range
        before: the index before the range; -1 for the first one

    Raises:
        DamagedCheckpointError: they do not ascend, or lie beyond the tensor
    """
    if stored.ndim != 1 or stored.dtype.kind != "u":
        got = f"{' x '.join(map(str, stored.shape))} {stored.dtype.name}"
        raise DamagedCheckpointError(f"{where} must be one row of unsigned integers, got {got}")
    beyond = np.flatnonzero(stored >= size)
    if beyond.size:
        at = int(beyond[0])
        raise DamagedCheckpointError(f"{where} must be less than {size}, got {stored[at]} at {first + at}")
    indices = stored.astype(np.int64)
    falls = np.flatnonzero(np.diff(indices, prepend=before) <= 0)
    if falls.size:
        at = int(falls[0])
        above = indices[at - 1] if at else before
        raise DamagedCheckpointError(f"{where} must ascend, got {above}, {indices[at]} at {first + at - 1}")
    return indices


def laid_out(
    indices: Iterable[NDArray[Any]], numbers: Iterable[NDArray[Any]], size: int, where: str
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield a sparse tensor with its zeros, laid out row by row, leaving out the pieces that are zeros alone.

    Args:
        indices, numbers: positions of the non-zeros, and the non-zeros, in pieces of the same lengths
        size: elements of the tensor, zeros included
        where: start of error messages

    Yields:
        the number of a piece of `PIECE` elements, and the piece; the next one is in the same place

    Raises:
        DamagedCheckpointError: the indices do not ascend, or lie beyond the tensor
    """
    last, seen, number, piece = -1, 0, 0, np.empty(0)
    for some, values in zip(indices, numbers, strict=True):
        places, begin = checked_indices(where, some, size, seen, last), 0
        last, seen = int(places[-1]), seen + places.size
        while begin < places.size:
            at = int(places[begin]) // PIECE
            if not piece.size or at != number:
                if piece.size:
                    yield number, piece
                piece, number = _zeros(piece, min(PIECE, size - at * PIECE), values.dtype), at
            end = int(np.searchsorted(places, (at + 1) * PIECE))
            piece[places[begin:end] - at * PIECE] = values[begin:end]
            begin = end
    if piece.size:
        yield number, piece


def _zeros(piece: NDArray[Any], count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros, in the place of `piece` where it has the right length."""
    if piece.size != count:
        return np.zeros(count, dtype)
    piece.fill(0)
    return piece


def _is_shape(value: Any) -> TypeGuard[list[int]]:
    lists = isinstance(value, list) and len(value) > 1 and all(type(extent) is int and extent > 0 for extent in value)
    return lists and math.prod(value) < 2**63
