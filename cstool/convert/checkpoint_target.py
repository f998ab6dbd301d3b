"""Write what was converted as a checkpoint of cstool's own, weights dense or sparse."""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cstool.convert.source import Source, weights_of
from cstool.convert.sparsify import Kept
from cstool.store import INDICES, SPARSITY, CheckpointWriter, index_kind

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], None]
"""told of bytes done, and bytes in all"""


def write_checkpoint(source: Source, path: Path, kept: Mapping[str, Kept], progress: Progress) -> int:
    """Write a checkpoint, streaming range by range.

    Args:
        source: its arrays, links and values
        path: the file to be; never overwritten
        kept: of the weights that are to be sparse
        progress: of the bytes

    Returns:
        bytes of its tensors

    Raises:
        CheckpointError: it cannot be written; nothing of it is left
    """
    arrays = _by_weight(source)
    owned = {array for own in arrays.values() for array in own}
    others = [array for array in source.shapes if array not in owned]
    sizes = {
        array: 4 * (kept[weight].count if weight in kept else math.prod(source.shapes[array]))
        for weight, own in arrays.items()
        for array in own
    }
    total_bytes = sum(sizes.values()) + sum(4 * math.prod(source.shapes[array]) for array in others)
    total_bytes += sum(
        found.count * index_kind(math.prod(source.shapes[f"model.{weight}"])).itemsize for weight, found in kept.items()
    )
    done_bytes = 0

    def counted(chunks: Iterator[Array]) -> Iterator[Array]:
        nonlocal done_bytes
        for chunk in chunks:
            yield chunk
            done_bytes += chunk.nbytes
            progress(done_bytes, total_bytes)

    with CheckpointWriter(path, total_bytes=total_bytes) as writer:
        for weight, own in arrays.items():
            found = kept.get(weight)
            if found is not None:
                kind = index_kind(math.prod(source.shapes[f"model.{weight}"]))
                chunks = counted(part.astype(kind) for part in _indices(found))
                writer.add_tensor(f"model.{weight}{INDICES}", (found.count,), kind.name, chunks)
            for array in own:
                if found is None:
                    writer.add_tensor(array, source.shapes[array], "float32", counted(source.rows(array)))
                else:
                    writer.add_tensor(array, (found.count,), "float32", counted(_gathered(source, array, found)))
        for array in others:
            writer.add_tensor(array, source.shapes[array], "float32", counted(source.rows(array)))
        for link, target in source.links.items():
            writer.link(link, target)
        for key, value in source.values.items():
            if key != SPARSITY:
                writer.add_value(key, _without_kernels(value) if key == "choices" else value)
        if kept:
            writer.add_value(SPARSITY, {weight: _described(source, weight, found) for weight, found in kept.items()})
    return total_bytes


def _without_kernels(choices: Any) -> Any:
    """Return the choices of a run without that of sparse kernels, which was about other zeros."""
    return {k: v for k, v in choices.items() if k != "sparse_kernels"} if isinstance(choices, dict) else choices


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


def _indices(kept: Kept) -> Iterator[Array]:
    """Yield where the numbers kept are in the weight laid out row by row, (n,) int64."""
    first = 0
    for mask in kept.masks():
        yield np.flatnonzero(mask) + first
        first += mask.size


def _gathered(source: Source, array: str, kept: Kept) -> Iterator[Array]:
    """Yield the numbers of an array that are kept, (n,) float32."""
    for rows, mask in zip(source.rows(array), kept.masks(), strict=True):
        yield rows[mask]
