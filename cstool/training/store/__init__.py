"""Arrays by name behind one narrow protocol, and checkpoint files."""

from cstool.training.store.adapters import (
    ADAPTERS,
    adapters_of,
    base_value,
    left_out_by,
    open_base,
    open_with_base,
    weights_digest,
)
from cstool.training.store.checked_state import (
    SCALER,
    Scaler,
    check_choices,
    scaler_of,
    step_of,
    streamed_of,
    unbound_note,
)
from cstool.training.store.checkpoint_copy import copy_checkpoint, copy_states, write_checkpoint
from cstool.training.store.checkpoint_delete import (
    check_deletable,
    delete_checkpoints,
    drop_shard,
    plan_pruning,
    size_bytes,
    with_shards,
)
from cstool.training.store.checkpoint_diff import (
    CheckpointDiff,
    TensorComparison,
    TensorForm,
    Tolerance,
    ValueDifference,
    diff_checkpoints,
)
from cstool.training.store.checkpoint_format import INDICES, SPARSITY
from cstool.training.store.checkpoint_index import IndexEntry, read_index, register_checkpoint
from cstool.training.store.checkpoint_info import CheckpointInfo, TensorInfo, describe_checkpoint, tensor_norms
from cstool.training.store.checkpoint_opening import open_checkpoint
from cstool.training.store.checkpoint_reader import CheckpointReader
from cstool.training.store.checkpoint_target import find_checkpoint, find_checkpoints, held_step, newest_checkpoints
from cstool.training.store.checkpoint_writer import CheckpointWriter
from cstool.training.store.commit_record import CommitRecord
from cstool.training.store.committed_store import CommittedStore, committed_step, write_snapshot
from cstool.training.store.file import FileStore
from cstool.training.store.file_layout import FILE_NAME, is_store
from cstool.training.store.folder import CheckpointEntry, checkpoint_path, free_path, list_checkpoints, sweep_temporary
from cstool.training.store.folding import Folded, merge_adapters, untied_by
from cstool.training.store.protocol import Store
from cstool.training.store.ram import RamStore, aligned_empty
from cstool.training.store.saved_state import Progress, SavedState
from cstool.training.store.shard_folder import (
    ShardFound,
    ShardSet,
    common_steps,
    find_shards,
    list_shards,
    missing_shards,
    shard_name,
)
from cstool.training.store.shard_record import SHARD, Ranges, Shard
from cstool.training.store.shard_tensors import ShardSource
from cstool.training.store.shards import CommittedShards, open_shards
from cstool.training.store.sparse_reader import SparseTensors, index_kind, read_mask, read_weight
from cstool.training.store.sparse_tensors import checked_indices, sparse_shapes
from cstool.training.store.store_lock import StoreLock
