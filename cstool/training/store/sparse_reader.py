"""Sparse weights in a checkpoint: their numbers under the key of the weight, and their positions beside them.

`model.W` of a sparse weight is (n,) float32, its non-zeros in the order of the weight laid out row by row; so are its
arrays of optimizer state. `model.W.indices` is (n,) uint32, ascending, the position of each; uint64 where the weight is
too large for that. The value `sparsity` has the shape of each.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.errors import CheckpointError
from cstool.model.ir import Weight
from cstool.training.store.checkpoint_format import INDICES
from cstool.training.store.checkpoint_reader import CheckpointReader
from cstool.training.store.protocol import written
from cstool.training.store.saved_state import Array, SavedState
from cstool.training.store.sparse_tensors import checked_indices, sparse_shapes


def index_kind(size: int) -> np.dtype[Any]:
    """Dtype of the indices of a weight of `size` numbers, zeros included."""
    return np.dtype(np.uint32 if size <= 2**32 else np.uint64)


def read_weight(path: Path, weight: Weight) -> Array:
    """Read a weight, sparse or not, as (rows, columns) float32 with its zeros, or raise CheckpointError."""
    with CheckpointReader(path) as reader:
        tensors = SparseTensors(reader)
        tensors.check_shape(weight, "to start from")
        return tensors.dense(weight)


def read_mask(path: Path, weight: Weight) -> Array:
    """Read the mask of a weight, true at the numbers that are kept; of a dense one the non-zeros: (rows, columns) bool.

    Raises:
        CheckpointError: it cannot be read, or has no such weight of that shape
    """
    key = f"model.{weight.name}"
    with CheckpointReader(path) as reader:
        tensors = SparseTensors(reader)
        tensors.check_shape(weight, "for its mask")
        if key not in tensors.shapes:
            kept: Array = tensors.dense(weight) != 0
            return kept
        mask = np.zeros(weight.matrix_shape, np.bool_)
        mask.reshape(-1)[tensors.indices(key)] = True
        return mask


class SparseTensors:
    """The sparse weights of an open checkpoint; a fault in their description raises CheckpointError."""

    def __init__(self, reader: SavedState) -> None:
        self.reader = reader
        self.shapes = sparse_shapes(reader)
        """of the weights with their zeros, by their keys"""

    def check_shape(self, weight: Weight, purpose: str) -> None:
        """Check that the checkpoint has a weight, sparse or not, or raise CheckpointError."""
        key = f"model.{weight.name}"
        found = self.shapes.get(key)
        if found is None and key in self.reader.tensor_names():
            found = self.reader.shape(key)
        if found != weight.shape:
            got = "none" if found is None else " x ".join(map(str, found))
            shape = " x ".join(map(str, weight.shape))
            raise CheckpointError(
                f"{self.reader.path}: must have the weight {weight.name}, {shape}, {purpose}, got {got}"
            )

    def is_index(self, key: str) -> bool:
        """Say whether a tensor holds the positions of another."""
        return key.endswith(INDICES) and key.removesuffix(INDICES) in self.shapes

    def dense(self, weight: Weight) -> Array:
        """Return a weight, sparse or not, as (rows, columns) float32 with its zeros, or raise CheckpointError."""
        key = f"model.{weight.name}"
        dense = np.zeros(weight.matrix_shape, np.float32)
        if key not in self.shapes:
            self.read_into(key, dense)
            return dense
        indices = self.indices(key)
        numbers = np.empty(len(indices), np.float32)
        self.read_into(key, numbers)
        dense.reshape(-1)[indices] = numbers
        return dense

    def read_into(self, key: str, out: Array) -> None:
        """Read a tensor that must be float32 and of the shape of `out`, or raise CheckpointError."""
        found, wanted = (self.reader.shape(key), self.reader.dtype(key)), (out.shape, "float32")
        if found != wanted:
            raise CheckpointError(f"{self.reader.path}: {key} must be {written(*wanted)}, got {written(*found)}")
        self.reader.read(key, out)

    def indices(self, key: str) -> Array:
        """Positions of the non-zeros of a weight, (n,) int64, or raise CheckpointError."""
        name = f"{key}{INDICES}"
        stored = self.reader.read(name)
        return checked_indices(f"{self.reader.path}: {name}", stored, math.prod(self.shapes[key]))
