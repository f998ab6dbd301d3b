"""The sparse tensors of a saved state: which they are, and what they look like with their zeros."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from cstool.errors import CheckpointError
from cstool.store.checkpoint_format import INDICES, SPARSITY
from cstool.store.saved_state import PIECE, SavedState


@dataclass(frozen=True)
class SparseTensor:
    """A tensor of which the non-zeros are stored; `shape` is that with its zeros."""

    indices: str
    """key of the tensor that says where they belong"""
    shape: tuple[int, ...]


def sparse_shapes(state: SavedState) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the sparse weights with their zeros, by their keys.

    Raises:
        CheckpointError: what the state says of them makes no sense
    """
    described, names, shapes = state.values().get(SPARSITY), state.tensor_names(), {}
    present = set(names)
    for key in (name.removesuffix(INDICES) for name in names if name.endswith(INDICES)):
        entry = described.get(key.removeprefix("model.")) if isinstance(described, dict) else None
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if key not in present or not _is_shape(shape):
            raise CheckpointError(f"{state.path}: {key}{INDICES} must belong to a sparse weight, it does not")
        shapes[key] = tuple(shape)
    return shapes


def sparse_tensors(state: SavedState) -> dict[str, SparseTensor]:
    """Return the sparse weights and their arrays of optimizer state, by their keys.

    Raises:
        CheckpointError: what the state says of them makes no sense
    """
    shapes = sparse_shapes(state)
    for weight in shapes:
        found, indices = (state.shape(weight), state.shape(weight + INDICES)), state.dtype(weight + INDICES)
        if len(found[0]) != 1 or found[0] != found[1] or not indices.startswith("uint"):
            raise CheckpointError(f"{state.path}: {weight}{INDICES} must be one unsigned integer for each non-zero")
    tensors = {}
    for name in state.tensor_names():
        part, _, rest = name.partition(".")
        weight = f"model.{rest.rpartition('.')[0]}" if part == "optimizer" else name
        if weight in shapes and state.shape(name) == state.shape(weight):
            tensors[name] = SparseTensor(weight + INDICES, shapes[weight])
    return tensors


def laid_out(
    indices: Iterable[NDArray[Any]], numbers: Iterable[NDArray[Any]], size: int, where: str
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield a sparse tensor with its zeros, laid out row by row, leaving out the pieces that are zeros alone.

    Args:
        indices, numbers: where the non-zeros belong, and the non-zeros, in pieces of the same lengths
        size: elements of the tensor, zeros included
        where: what an error begins with

    Yields:
        the number of a piece of `PIECE` elements, and the piece; the next one is in the same place

    Raises:
        CheckpointError: the indices do not ascend, or lie beyond the tensor
    """
    last, number, piece = -1, 0, np.empty(0)
    for some, values in zip(indices, numbers, strict=True):
        _check_ascends(some, last, size, where)
        last, begin, places = int(some[-1]), 0, some.astype(np.int64)
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


def _check_ascends(indices: NDArray[Any], last: int, size: int, where: str) -> None:
    beyond = np.flatnonzero(indices >= size)
    if beyond.size:
        raise CheckpointError(f"{where} must be less than {size}, got {indices[beyond[0]]}")
    if int(indices[0]) <= last:
        raise CheckpointError(f"{where} must ascend, got {last}, {indices[0]}")
    falls = np.flatnonzero(indices[1:] <= indices[:-1])
    if falls.size:
        raise CheckpointError(f"{where} must ascend, got {indices[falls[0]]}, {indices[falls[0] + 1]}")


def _is_shape(value: Any) -> TypeGuard[list[int]]:
    lists = isinstance(value, list) and len(value) > 1 and all(type(extent) is int and extent > 0 for extent in value)
    return lists and math.prod(value) < 2**63
