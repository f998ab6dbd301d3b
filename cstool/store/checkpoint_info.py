"""What a checkpoint holds, for people and scripts to look at."""

from __future__ import annotations

import datetime
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cstool.store.checkpoint_format import FORMAT_VERSION, INDICES, SPARSITY
from cstool.store.checkpoint_reader import CheckpointReader


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a checkpoint."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    sparse_shape: tuple[int, ...] | None = None
    """of a sparse weight with its zeros; None for other tensors"""

    @property
    def parameters(self) -> int:
        """Elements, zeros included; none where they only say where those of another tensor belong."""
        if self.key.endswith(INDICES):
            return 0
        return math.prod(self.shape if self.sparse_shape is None else self.sparse_shape)


@dataclass(frozen=True)
class CheckpointInfo:
    """A checkpoint; what it does not say is None."""

    path: Path
    version: str
    cstool_version: str
    step: int | None
    model_name: str | None
    seed: int | None
    """of all random numbers of the run"""
    batches_streamed: int | None
    """of the training data, by all systems together"""
    parameter_count: int
    """elements of all tensors under `model.`, zeros included, tied ones once"""
    bytes: int
    """size of the file"""
    created: datetime.datetime
    """when the file was last written, UTC"""
    tensors: tuple[TensorInfo, ...]
    links: dict[str, str]
    """tied keys and the tensors that they are links to"""
    values: tuple[str, ...]
    """keys of the values"""


def describe_checkpoint(path: str | os.PathLike[str], verify: bool = False) -> CheckpointInfo:
    """Describe a checkpoint.

    Args:
        path: the file
        verify: whether to read all of it and verify its checksums

    Raises:
        CheckpointError: it is not a whole checkpoint, or damaged
    """
    with CheckpointReader(path) as reader:
        if verify:
            reader.verify_all()
        names = reader.tensor_names()
        values = reader.values()
        sparse = _sparse_shapes(values.get(SPARSITY))
        tensors = tuple(
            TensorInfo(name, reader.shape(name), reader.dtype(name), reader.nbytes(name), sparse.get(name))
            for name in names
        )
        pairs = [(key, reader.link_of(key)) for key in reader.keys()]  # noqa: SIM118 - a method, not a mapping's
        file = os.stat(path)
        return CheckpointInfo(
            path=reader.path,
            version=FORMAT_VERSION,
            cstool_version=reader.cstool_version,
            step=values.get("global_step"),
            model_name=_model_name(values.get("__metadata__")),
            seed=_count(values.get("random"), "seed"),
            batches_streamed=_count(values.get("dataloader"), "batches_streamed"),
            parameter_count=sum(t.parameters for t in tensors if t.key.startswith("model.")),
            bytes=file.st_size,
            created=datetime.datetime.fromtimestamp(file.st_mtime, datetime.UTC),
            tensors=tensors,
            links={key: target for key, target in pairs if target is not None},
            values=tuple(values),
        )


def _sparse_shapes(described: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of sparse weights by key, where a checkpoint says them."""
    entries = described.items() if isinstance(described, dict) else ()
    return {
        f"model.{name}": tuple(shape)
        for name, entry in entries
        if isinstance(entry, dict)
        and isinstance(shape := entry.get("shape"), list)
        and all(type(extent) is int for extent in shape)
    }


def _count(value: Any, key: str) -> int | None:
    found = value.get(key) if isinstance(value, dict) else None
    return found if type(found) is int else None


def _model_name(metadata: Any) -> str | None:
    """Return the name in `[{"version": ..., "model_name": ..., "params": ...}]`, where the metadata are that."""
    match metadata:
        case [*_, {"model_name": str(name)}]:
            return name
    return None
