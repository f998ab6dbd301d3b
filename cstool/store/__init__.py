"""Arrays by name behind one narrow protocol, and checkpoint files."""

from cstool.store.checkpoint_format import INDICES, SPARSITY
from cstool.store.checkpoint_index import IndexEntry, read_index, register_checkpoint
from cstool.store.checkpoint_info import CheckpointInfo, TensorInfo, describe_checkpoint
from cstool.store.checkpoint_reader import CheckpointReader
from cstool.store.checkpoint_writer import CheckpointWriter
from cstool.store.folder import CheckpointEntry, checkpoint_path, latest_checkpoint, list_checkpoints, sweep_temporary
from cstool.store.protocol import Store
from cstool.store.ram import RamStore

__all__ = [
    "CheckpointEntry",
    "CheckpointInfo",
    "CheckpointReader",
    "CheckpointWriter",
    "INDICES",
    "IndexEntry",
    "RamStore",
    "SPARSITY",
    "Store",
    "TensorInfo",
    "checkpoint_path",
    "describe_checkpoint",
    "latest_checkpoint",
    "list_checkpoints",
    "read_index",
    "register_checkpoint",
    "sweep_temporary",
]
