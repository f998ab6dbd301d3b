"""Copy a checkpoint: tensor by tensor, every checksum verified on the way, all of it or nothing."""

import os
from collections.abc import Collection
from pathlib import Path

from cstool.training.store.checked_state import step_of
from cstool.training.store.checkpoint_index import has_index, register_checkpoint
from cstool.training.store.checkpoint_opening import open_checkpoint
from cstool.training.store.checkpoint_reader import CheckpointReader
from cstool.training.store.checkpoint_writer import CheckpointWriter
from cstool.training.store.folder import TEMPLATE
from cstool.training.store.saved_state import Meter, Progress, SavedState, no_progress

PARTS = ("model", "optimizer", "dataloader")
"""first parts of the keys of a checkpoint that can be left out"""


def copy_checkpoint(
    source: Path, destination: str | os.PathLike[str], progress: Progress = no_progress, *, older: bool = False
) -> Path:
    """Copy a checkpoint to a file, or under its own name into a folder, and enter it in the index of that folder.

    A commit of a MemoryX file (with `older` the one before the last) becomes a checkpoint, in a folder one named
    by its step. A destination is a file that is not there yet, a folder, or anything that ends in a slash.

    Returns:
        the copy

    Raises:
        CheckpointError: the source is damaged, or the copy cannot be written; then there is none
    """
    path = Path(destination)
    with open_checkpoint(source, older=older) as state:
        if path.is_dir() or os.fspath(destination).endswith(os.sep):
            path /= state.path.name if isinstance(state, CheckpointReader) else _name_of_step(state)
        write_checkpoint(path, state, progress)
        step = state.values().get("global_step")
        if type(step) is int and has_index(path.parent):
            register_checkpoint(path.parent, step, path)
    return path


def _name_of_step(state: SavedState) -> str:
    return TEMPLATE.replace("{step}", str(step_of(state.path, state.values())))


def copy_states(source: Path, destination: Path, states: Collection[str]) -> int:
    """Copy some of the `PARTS` of a checkpoint, and the values on its origin, to a new file, which no index lists.

    Returns:
        bytes of the tensors that were copied

    Raises:
        CheckpointError: the source is damaged, or the copy cannot be written; then there is none
    """
    left_out = set(PARTS).difference(states)
    with open_checkpoint(source) as state:
        keys = [key for key in state.keys() if key.partition(".")[0] not in left_out]  # noqa: SIM118
        return write_checkpoint(destination, state, keys=keys)


def write_checkpoint(
    path: Path, state: SavedState, progress: Progress = no_progress, *, keys: Collection[str] | None = None
) -> int:
    """Write a saved state, or some keys of it, as a checkpoint; every checksum is verified on the way.

    Returns:
        bytes of its tensors

    Raises:
        CheckpointError: the state is damaged, or the checkpoint cannot be written; then there is none
    """
    keys = state.keys() if keys is None else keys
    values = state.values()
    total_bytes = sum(state.nbytes(name) for name in state.tensor_names() if name in set(keys))
    meter = Meter(total_bytes, progress)
    with CheckpointWriter(path, total_bytes, state.cstool_version) as writer:
        for key in keys:
            if key in values:
                writer.add_value(key, values[key])
            elif (target := state.link_of(key)) is not None:
                writer.link(key, target)
            else:
                writer.add_pieces(key, state.shape(key), state.dtype(key), meter.through(state.pieces(key)))
    return total_bytes
