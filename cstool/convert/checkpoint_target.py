"""Write converted weights as a checkpoint of cstool's own, dense or sparse."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cstool.convert.source import Array, Source, weights_of
from cstool.convert.sparsify import Kept
from cstool.training.store import INDICES, SPARSITY, CheckpointWriter, Progress, index_kind
from cstool.training.store.saved_state import Meter


def write_checkpoint(source: Source, path: Path, kept: Mapping[str, Kept], progress: Progress) -> int:
    """Write a checkpoint, streaming range by range, and return the bytes of its tensors.

    Args:
        source: its arrays, links and values
        path: the file to be; never overwritten
        kept: of the weights that are to be sparse
        progress: of the bytes

    Raises:
        CheckpointError: it cannot be written; nothing of it is left
    """
    tensors: list[tuple[str, tuple[int, ...], np.dtype[Any], Iterator[Array]]] = []
    number = np.dtype(np.float32)
    arrays = _by_weight(source)
    owned = {array for own in arrays.values() for array in own}
    for weight, own in arrays.items():
        found = kept.get(weight)
        if found is not None:
            kind = index_kind(math.prod(source.shapes[f"model.{weight}"]))
            tensors.append((f"model.{weight}{INDICES}", (found.count,), kind, _indices(found, kind)))
        for array in own:
            if found is None:
                tensors.append((array, source.shapes[array], number, source.rows(array)))
            else:
                tensors.append((array, (found.count,), number, _gathered(source, array, found)))
    others = (array for array in source.shapes if array not in owned)
    tensors += [(array, source.shapes[array], number, source.rows(array)) for array in others]
    total_bytes = sum(math.prod(shape) * kind.itemsize for _, shape, kind, _ in tensors)
    meter = Meter(total_bytes, progress)
    with CheckpointWriter(path, total_bytes=total_bytes) as writer:
        for name, shape, kind, chunks in tensors:
            writer.add_tensor(name, shape, kind.name, meter.through(chunks))
        for link, target in source.links.items():
            writer.link(link, target)
        for key, value in source.values.items():
            if key == "choices" and isinstance(value, dict):
                # The choice of sparse kernels was made for other zeros.
                value = {name: choice for name, choice in value.items() if name != "sparse_kernels"}
            if key != SPARSITY:
                writer.add_value(key, value)
        if kept:
            writer.add_value(SPARSITY, {weight: _described(source, weight, found) for weight, found in kept.items()})
    return total_bytes


def _by_weight(source: Source) -> dict[str, list[str]]:
    """Return the arrays of each weight, the weight itself first."""
    found = {weight: [f"model.{weight}"] for weight in weights_of(source)}
    for array in source.shapes:
        owner = array.removeprefix("optimizer.").rpartition(".")[0]
        if array.startswith("optimizer.") and owner in found:
            found[owner].append(array)
    return found


def _described(source: Source, weight: str, kept: Kept) -> dict[str, Any]:
    shape = source.shapes[f"model.{weight}"]
    density = kept.count / math.prod(shape)
    return {"shape": list(shape), "algorithm": "static", "density": density, "non_zeros": kept.count}


def _indices(kept: Kept, kind: np.dtype[Any]) -> Iterator[Array]:
    """Yield where the numbers kept are in the weight laid out row by row, (n,)."""
    first = 0
    for mask in kept.masks():
        yield (np.flatnonzero(mask) + first).astype(kind)
        first += mask.size


def _gathered(source: Source, array: str, kept: Kept) -> Iterator[Array]:
    """Yield the numbers of an array that are kept, (n,) float32."""
    for rows, mask in zip(source.rows(array), kept.masks(), strict=True):
        yield rows[mask]
