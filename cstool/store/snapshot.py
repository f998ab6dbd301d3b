"""A checkpoint from the last commit of a MemoryX file, while the run goes on."""

from collections.abc import Iterable
from pathlib import Path

from cstool.store.checkpoint_writer import CheckpointWriter
from cstool.store.committed_store import CommittedStore


def write_snapshot(path: Path, store: Path, names: Iterable[str]) -> int:
    """Write a checkpoint. Nothing of it passes through this process where the system can copy by itself.

    Args:
        path: of the file to be
        store: the MemoryX file of this process, whose last commit must stay as it is meanwhile
        names: of the arrays, in the order of the checkpoint

    Returns:
        bytes of its tensors

    Raises:
        CheckpointError: it cannot be written; nothing of it is left
        StoreError: the file cannot be read
    """
    with CommittedStore(store, is_ours=True) as state:
        arrays = list(names)
        total_bytes = sum(map(state.nbytes, arrays))
        with CheckpointWriter(path, total_bytes) as writer:
            for name in arrays:
                ranges = state.ranges(name)
                if ranges is None:
                    writer.add_pieces(name, state.shape(name), state.dtype(name), state.pieces(name))
                else:
                    writer.add_ranges(name, state.shape(name), state.dtype(name), ranges)
            for alias, name in state.record.links.items():
                writer.link(alias, name)
            for key, value in state.values().items():
                writer.add_value(key, value)
    return total_bytes
