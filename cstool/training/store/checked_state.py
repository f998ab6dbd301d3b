"""Checks of a saved state before a run goes on from it, and when it is verified."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from cstool.foundation.errors import DamagedCheckpointError
from cstool.training.store.saved_state import SavedState
from cstool.training.store.sparse_tensors import checked_indices, sparse_tensors

STEP, LOADER, SCALER = "global_step", "dataloader", "grad_scaler"


class Streamed(NamedTuple):
    """The part of the training data that has been read."""

    batches: int
    """that the input workers have handed out, over all epochs"""
    batch_size: int
    """samples of each of these; 0 where there were none"""


def step_of(path: Path, values: Mapping[str, Any]) -> int:
    """Step after which a state was saved, or raise DamagedCheckpointError."""
    return _count(path, STEP, values.get(STEP))


def streamed_of(path: Path, values: Mapping[str, Any]) -> Streamed:
    """Position of a state in its training data, or raise DamagedCheckpointError."""
    loader = values.get(LOADER)
    batches, batch_size = (
        _count(path, f"{LOADER}.{key}", loader.get(key) if isinstance(loader, dict) else loader)
        for key in ("batches_streamed", "batch_size")
    )
    return Streamed(batches, batch_size)


class Scaler(NamedTuple):
    """The scale of the loss, where it changes or steps were skipped; named as in the vendor's checkpoints."""

    loss_scale: float
    steps_since_rescale: int
    """in a row, with finite gradients"""
    num_skipped_steps: int
    """of the run so far; its other steps are the updates that were made"""


def scaler_of(path: Path, values: Mapping[str, Any]) -> Scaler | None:
    """Scale of the loss of a state, None where it says nothing of that, or raise DamagedCheckpointError."""
    found = values.get(SCALER)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise DamagedCheckpointError(f"{path}: {SCALER} must be a mapping, got {found!r:.60}")
    scale, *counts = (found.get(name) for name in Scaler._fields)
    if not isinstance(scale, float) or not 0 < scale < math.inf:
        raise DamagedCheckpointError(f"{path}: {SCALER}.loss_scale must be a number greater than 0, got {scale!r}")
    steps, skipped = (
        _count(path, f"{SCALER}.{name}", count) for name, count in zip(Scaler._fields[1:], counts, strict=True)
    )
    if STEP in values and skipped > (step := step_of(path, values)):
        raise DamagedCheckpointError(
            f"{path}: {SCALER}.num_skipped_steps must be at most {STEP} ({step}), got {skipped}"
        )
    return Scaler(scale, steps, skipped)


def check_choices(path: Path, values: Mapping[str, Any]) -> None:
    """Check the values of a state that a run looks up, which may be missing, or raise DamagedCheckpointError."""
    for key in ("choices", "random"):
        if not isinstance(found := values.get(key, {}), dict):
            raise DamagedCheckpointError(f"{path}: {key} must be a mapping, got {found!r:.60}")
    scaler_of(path, values)


def check_state(state: SavedState) -> dict[str, int]:
    """Check the values of a state (values that a run can do without may be missing).

    Returns:
        the sizes of the sparse weights, zeros included, by the keys of their indices

    Raises:
        DamagedCheckpointError: a value makes no sense
    """
    values = state.values()
    if STEP in values:
        step_of(state.path, values)
    if LOADER in values:
        streamed_of(state.path, values)
    check_choices(state.path, values)
    return {sparse.indices: sparse.size for sparse in sparse_tensors(state).values()}


def unbound_note(state: SavedState) -> str | None:
    """Warning about a state without anything that binds its parts together; None for others."""
    if state.is_bound:
        return None
    return (
        f"{state.path} is of format {state.format_version}, without a digest: its parts are whole, but nothing says "
        "that they belong together."
    )


def check_indices(pieces: Iterable[NDArray[Any]], size: int, where: str) -> Iterator[NDArray[Any]]:
    """Pass the indices of a weight of some size, zeros included, on piece by piece while they ascend within it.

    Raises:
        DamagedCheckpointError: they do not; the message begins with `where`
    """
    seen, last = 0, -1
    for piece in pieces:
        last = int(checked_indices(where, piece, size, seen, last)[-1])
        seen += piece.size
        yield piece


def _count(path: Path, key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise DamagedCheckpointError(f"{path}: {key} must be a count, got {value!r}")
    return value
