"""Sparse weights of MemoryX into a checkpoint, and out of one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cstool.errors import CheckpointError
from cstool.machine.memoryx.memoryx import MemoryX
from cstool.machine.memoryx.sparse_weights import SparseWeight
from cstool.store import INDICES, CheckpointWriter, SparseTensors, index_kind

Array = np.ndarray[Any, Any]


def indices_bytes(sparse: SparseWeight) -> int:
    """Size of the indices of a weight in a checkpoint [bytes]."""
    return sparse.count * index_kind(sparse.weight.size).itemsize


def add_indices(writer: CheckpointWriter, sparse: SparseWeight) -> None:
    """Write where the non-zeros of a weight are."""
    kind = index_kind(sparse.weight.size)

    def chunks() -> Iterator[Array]:
        for part in sparse.indices():
            yield part.astype(kind)

    writer.add_tensor(f"model.{sparse.weight.name}{INDICES}", (sparse.count,), kind.name, chunks())


def describe_sparsity(memoryx: MemoryX) -> dict[str, Any]:
    """Description of the sparse weights for a checkpoint."""
    return {
        name: {
            "shape": list(sparse.shape),
            "algorithm": sparse.group.algorithm,
            "density": sparse.density,
            "non_zeros": sparse.count,
        }
        for name, sparse in memoryx.arrays.sparse.items()
    }


def load_sparse(
    tensors: SparseTensors, memoryx: MemoryX, weight: str, arrays: Sequence[str], *, keeps_state: bool
) -> None:
    """Read a weight that is sparse in the checkpoint, in the run, or in both.

    Args:
        arrays: of the weight, those that are wanted
        keeps_state: whether the run goes on with the optimizer state of the checkpoint

    Raises:
        CheckpointError: it is damaged, or sparse here and dense there and the run is to go on all the same
    """
    key, sparse = f"model.{weight}", memoryx.arrays.sparse.get(weight)
    path = tensors.reader.path
    if key not in arrays:
        return
    if sparse is not None and key not in tensors.shapes:
        if keeps_state:
            raise CheckpointError(
                f"{path}: {weight} must be sparse, as in this run, got a dense one without a mask",
                "--load_checkpoint_states model takes the weights alone, and init_method: topk keeps the largest",
            )
        dense = np.empty(sparse.shape, np.float32)
        tensors.read_into(key, dense)
        sparse.begin(dense)
        return
    indices = tensors.indices(key)
    if sparse is None:
        if keeps_state and memoryx.optimizer is not None:
            raise CheckpointError(
                f"{path}: {weight} must be dense, as in this run, got a sparse one",
                "--load_checkpoint_states model takes the weights alone, with their zeros",
            )
        _load_dense(tensors, memoryx, key, indices)
        return
    if sparse.capacity is not None and len(indices) > sparse.capacity:
        raise CheckpointError(
            f"{path}: {weight} must have at most {sparse.capacity} non-zeros in this run, got {len(indices)}",
            "a lower sparsity makes room for them",
        )
    sparse.place(indices)
    for name in arrays:
        numbers = np.empty(len(indices), np.float32)
        tensors.read_into(name, numbers)
        sparse.write(name, numbers)


def _load_dense(tensors: SparseTensors, memoryx: MemoryX, key: str, indices: Array) -> None:
    numbers = np.empty(len(indices), np.float32)
    tensors.read_into(key, numbers)
    width = math.prod(tensors.shapes[key][1:])

    def read(out: Array, start: int, stop: int) -> None:
        first, last = np.searchsorted(indices, (start * width, stop * width))
        out.fill(0)
        out.reshape(-1)[indices[first:last] - start * width] = numbers[first:last]

    memoryx.arrays.load(key, read)
