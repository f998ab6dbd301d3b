"""The content of a checkpoint, for people and scripts to look at."""

import datetime
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cstool.training.store.checkpoint_format import INDICES
from cstool.training.store.saved_state import Meter, Progress, SavedState, no_progress
from cstool.training.store.sparse_tensors import sparse_shapes


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
    def is_positions(self) -> bool:
        """Whether it has the positions of another tensor's non-zeros."""
        return self.key.endswith(INDICES)

    @property
    def parameters(self) -> int:
        """Elements, zeros included; none of positions."""
        if self.is_positions:
            return 0
        return math.prod(self.shape if self.sparse_shape is None else self.sparse_shape)


@dataclass(frozen=True)
class CheckpointInfo:
    """A checkpoint; None where it does not have the fact."""

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
    """size of the file, or of all shards"""
    created: datetime.datetime
    """when the file, or the latest of the shards, was last written, UTC"""
    tensors: tuple[TensorInfo, ...]
    links: dict[str, str]
    """tied keys and the tensors that they are links to"""
    values: tuple[str, ...]
    """keys of the values"""


def describe_checkpoint(state: SavedState) -> CheckpointInfo:
    """Describe a checkpoint that is open, or raise CheckpointError."""
    values, sparse = state.values(), sparse_shapes(state)
    tensors = tuple(
        TensorInfo(name, state.shape(name), state.dtype(name), state.nbytes(name), sparse.get(name))
        for name in state.tensor_names()
    )
    pairs = [(key, state.link_of(key)) for key in state.keys()]  # noqa: SIM118 - a method, not a mapping's
    files = [os.stat(path) for path in state.paths]
    return CheckpointInfo(
        path=state.path,
        version=state.format_version,
        cstool_version=state.cstool_version,
        step=_whole(values.get("global_step")),
        model_name=_model_name(values.get("__metadata__")),
        seed=_count(values.get("random"), "seed"),
        batches_streamed=_count(values.get("dataloader"), "batches_streamed"),
        parameter_count=sum(t.parameters for t in tensors if t.key.startswith("model.")),
        bytes=sum(file.st_size for file in files),
        created=datetime.datetime.fromtimestamp(max(file.st_mtime for file in files), datetime.UTC),
        tensors=tensors,
        links={key: target for key, target in pairs if target is not None},
        values=tuple(values),
    )


def tensor_norms(state: SavedState, keys: Iterable[str], progress: Progress = no_progress) -> dict[str, float]:
    """Return the L2 norms of tensors by key; sums are in float64, of a sparse tensor over its non-zeros.

    Raises:
        CheckpointError: there is no such tensor, or it is damaged
    """
    keys = list(keys)
    meter, norms = Meter(sum(map(state.nbytes, keys)), progress), {}
    with np.errstate(over="ignore", invalid="ignore"):
        for key in keys:
            squares = 0.0
            for piece in meter.through(state.pieces(key)):
                numbers = piece.astype(np.float64)
                squares += float(np.square(numbers, out=numbers).sum())
            norms[key] = math.sqrt(squares)
    return norms


def _count(value: Any, key: str) -> int | None:
    return _whole(value.get(key) if isinstance(value, dict) else None)


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _model_name(metadata: Any) -> str | None:
    """Return the name in `[{"version": ..., "model_name": ..., "params": ...}]`, where the metadata are that."""
    match metadata:
        case [*_, {"model_name": str(name)}]:
            return name
    return None
