"""The store of MemoryX: main memory, or a file in model_dir, new or continued; and the sharing of its memory."""

import logging
import os
import secrets
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cstool.foundation.errors import ClusterError, StoreError
from cstool.foundation.host_memory import BUDGET_VARIABLE, available_memory_bytes, memory_budget_bytes
from cstool.foundation.words import bytes_text
from cstool.model.ir import panels_of
from cstool.model.optimizers import whole_arrays
from cstool.model.params import ALL_STATES, Params
from cstool.training.machine.budgets import file_memory_bytes, update_threads
from cstool.training.machine.committed import Committed, dealt_rows
from cstool.training.machine.grains import available_cores
from cstool.training.machine.lending import is_beside_base, open_lent
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.shards import Shards, deal_panels, dealt_already
from cstool.training.machine.ranks.link import ALONE, Link
from cstool.training.machine.start import Start, is_whole, way_on_from_damage
from cstool.training.store import (
    FILE_NAME,
    FileStore,
    committed_step,
    held_step,
    is_store,
    list_checkpoints,
    shard_name,
)
from cstool.training.store.base_file import BaseFile
from cstool.training.store.panel_cache import STAYS_BYTES, TILE_BYTES, buffer_bytes

log = logging.getLogger("cstool")
EVALUATION_NAME = "memoryx_evaluation.h5"
"""name of the file of a model that is evaluated alone; it is deleted after the evaluation"""
FILE_SHARE = 0.5
"""of the free memory, from which on MemoryX moves to a file by itself"""
CACHED_SHARE = 0.5
"""of the free memory, from which on a file is read and written past the system's page cache"""
_MORE = f"half of what the run may take is for it: {BUDGET_VARIABLE}, or --memory of a job, says how much that is"
GRADIENT_SHARE = 0.25
"""share of the memory of a file for gradients that wait for their update"""


class ShardFile(NamedTuple):
    """The file of each node of MemoryX, in a folder of its host."""

    folder: Path
    is_for_run: bool
    """whether it is for more than an evaluation"""
    memory_bytes: int
    """limit of its rows in memory"""
    slots: int
    adopt_step: int | None
    """the step of the commit to go on from; None for a new file"""
    lent_bytes: int = 0
    """of weights that lie in a checkpoint, not in the files"""

    def path(self, node: int, nodes: int) -> Path:
        """Path of the file of a node."""
        name = shard_name(node, nodes)
        return self.folder / (name if self.is_for_run else name.replace("memoryx", "memoryx_evaluation", 1))

    def open(
        self, node: int, shards: Shards, base: BaseFile | None = None, check: Callable[[], None] = lambda: None
    ) -> FileStore:
        """Open the file of a node here.

        Args:
            base, check: see `FileStore`

        Raises:
            StoreError: the file cannot be made, is in use, damaged, or is not the file to go on from
        """
        size_bytes = self.slots * (shards.shard_bytes[node] - self.lent_bytes) + self.lent_bytes
        direct = size_bytes > CACHED_SHARE * available_memory_bytes()
        path = self.path(node, shards.nodes)
        with suppress(OSError):
            # An error of the folder is reported for the file.
            self.folder.mkdir(parents=True, exist_ok=True)
        adopts = self.adopt_step is not None
        return FileStore(
            path,
            self.memory_bytes,
            slots=self.slots,
            adopt=adopts,
            at_step=self.adopt_step,
            direct=direct,
            base=base,
            check=check,
        )


class Backing(NamedTuple):
    """Where MemoryX is."""

    shards: Shards
    store: FileStore | None = None
    """of the first node; None for main memory"""
    waiting_bytes: int | None = None
    """limit of waiting gradients; None for main memory"""
    file: ShardFile | None = None
    """file of each node"""
    outdated: Sequence[tuple[int, Path, str]] = ()
    """files of MemoryX that go once this one is committed: the rank that has them, and the set of a shard"""
    buffers_bytes: int = 0
    """limit of the buffers of each file"""


def open_backing(
    params: Params, kept: KeptModel, start: Start, lanes: int | None, *, link: Link = ALONE, in_place: bool = True
) -> Backing:
    """Log the place of MemoryX, and open the store of its first node, if that is a file.

    Args:
        params: of the run; its model_dir is there
        kept: without an optimizer for an evaluation
        lanes: host threads; None to choose
        link: to other ranks, which may have nodes, too
        in_place: whether the files of a commit may be gone on from as they are; else this model has other weights

    Raises:
        ClusterError: the memory that a file may have is too small
        StoreError: the file cannot be made, is in use, damaged, or holds a state that no checkpoint has
    """
    nodes = _nodes(params, link)
    goes_on = start.committed if start.states == ALL_STATES else None
    optimizer = kept.optimizer
    # Runs that only read the weights, over and over, have them in a file of their own, at half the bytes.
    rounds = optimizer is None and not kept.narrow.weights <= kept.sparsity.groups.keys()
    stays = in_place and not rounds and goes_on is not None and goes_on.is_in_place(nodes)
    adopted = goes_on if stays else None
    name = secrets.token_hex(16) if adopted is None else adopted.name
    shards = deal_panels(kept, nodes, name)
    if not _is_in_file(params, shards, link):
        return Backing(shards)
    if adopted is not None and nodes > 1:
        found = dealt_already(kept, dealt_rows(adopted, link), name)
        if found is None:
            raise _other_nodes(adopted, "lie as this model and this optimizer need them, they do not")
        shards = found
    buffers_bytes = file_memory_bytes(params)
    is_cut = buffers_bytes < params.memoryx.memory
    rows_bytes, waiting_bytes = _share(buffers_bytes, kept, lanes, feeds=link.ranks > 1, is_cut=is_cut)
    slots = 2 if params.memoryx.commit_steps and optimizer is not None else 1
    is_for_run = optimizer is not None or adopted is not None
    step = None if adopted is None else adopted.step
    base = open_lent(kept, start) if nodes == 1 else None
    lent_bytes = 0 if base is None else sum(place.nbytes for place in base.places.values())
    file = ShardFile(params.model_dir, is_for_run, rows_bytes, slots, step, lent_bytes)
    path = file.path(0, nodes)

    def check() -> None:
        if adopted is None:
            _check_nothing_is_lost(params, path, start if is_for_run else None)
            if is_for_run and goes_on is not None:
                _check_not_in_the_way(goes_on, nodes)

    with way_on_from_damage(path, params.checkpoint.checkpoint_name):
        store = file.open(0, shards, base, check)
    slots_text = "one slot" if store.slots == 1 else f"{store.slots} slots"
    spread = "" if nodes == 1 else f", the largest of {nodes} shards of {bytes_text(sum(shards.shard_bytes))}"
    log.info(
        f"MemoryX is in {path}: {bytes_text(max(shards.shard_bytes) - lent_bytes)} of state in {slots_text}{spread}, "
        f"{'' if base is None else f'{bytes_text(lent_bytes)} of weights stay in {base.path}, '}"
        f"buffers of {buffers_bytes / 2**20:,.0f} MiB at most"
        f"{', past the page cache' if store.direct else ''}."
    )
    outdated = _outdated(start, shards, params.model_dir) if slots == 2 else ()
    return Backing(shards, store, waiting_bytes, file, outdated, buffers_bytes)


def _nodes(params: Params, link: Link) -> int:
    return min(link.ranks, params.memoryx.nodes or link.ranks)


def _is_in_file(params: Params, shards: Shards, link: Link) -> bool:
    if params.memoryx.store != "auto":
        return params.memoryx.store == "file"
    here_bytes = sum(size for node, size in enumerate(shards.shard_bytes) if link.hosts[node] == link.hosts[0])
    return here_bytes > FILE_SHARE * available_memory_bytes()


def keeps_adapters_apart(params: Params, kept: KeptModel, start: Start, link: Link) -> bool:
    """Whether a model answers with adapters beside its base: folded in, a file would need a copy of all weights.

    Args:
        kept: the model with its adapters folded in
    """
    if not params.tuning.adapters or start.path is None or kept.narrow.weights or _nodes(params, link) > 1:
        return False
    return _is_in_file(params, deal_panels(kept, 1), link) and is_beside_base(start.path)


def _share(memory_bytes: int, kept: KeptModel, lanes: int | None, *, feeds: bool, is_cut: bool) -> tuple[int, int]:
    """Share the memory of a file out: for rows, and for gradients that wait [bytes].

    Args:
        feeds: whether the feeder of other ranks is here
        is_cut: whether it is less than was asked for, as a budget has no more

    Raises:
        ClusterError: it is too little for the largest panels
    """
    optimizer = kept.optimizer
    sizes = [4 * panel.size for weight in kept.graph.weights.values() for panel in panels_of(weight)]
    threads = lanes or available_cores()
    tiles_bytes = update_threads(lanes) * (2 + (whole_arrays(optimizer) if optimizer else 0)) * TILE_BYTES
    stays_bytes = sum(size for size in sizes if size <= STAYS_BYTES)
    largest = buffer_bytes(max(sizes))
    # Each lane has a panel, and panels that the slowest has yet to read must not go; one more is on its way.
    # The feeder of other ranks holds panels like a lane.
    panels = 2 if threads == 1 and not feeds else threads + feeds + 3
    least_bytes = largest * (panels + (optimizer is not None)) + stays_bytes + tiles_bytes
    if memory_bytes < least_bytes:
        what = (
            f"a budget of {memory_budget_bytes():,} bytes of memory: what it leaves for MemoryX"
            if is_cut
            else "--memoryx_memory:"
        )
        raise ClusterError(
            f"{what} must be at least {least_bytes:,} bytes for this model, whose largest panel has "
            f"{largest:,}, with {threads} lane{'s' * (threads > 1)}; got {memory_bytes:,}",
            (_MORE if is_cut else f"--memoryx_memory {-(-least_bytes // 2**20)}MiB does")
            + ("" if threads == 1 else "; --lanes 1 needs less"),
        )
    waiting_bytes = max(largest, int(memory_bytes * GRADIENT_SHARE)) if optimizer is not None else 0
    waiting_bytes = min(waiting_bytes, memory_bytes - least_bytes + largest)
    return memory_bytes - waiting_bytes - tiles_bytes, waiting_bytes


def _outdated(start: Start, shards: Shards, folder: Path) -> list[tuple[int, Path, str]]:
    """The files of other sets of shards, and of a single node where there are several now."""
    found = [(rank, folder / shard.name, shard.set) for rank, shard in start.found.files if shard.set != shards.name]
    if shards.nodes > 1 and any(commit.nodes == 1 for commit in start.found.commits):
        found.append((0, folder / FILE_NAME, ""))
    return found


def _check_nothing_is_lost(params: Params, path: Path, start: Start | None) -> None:
    """Check that files may be replaced: that a checkpoint, or the source of the run, is as new as their last commits.

    Args:
        path: of the file that would take the place of one
        start: knows which other files would go; None for no check

    Raises:
        StoreError: none is
    """
    if os.path.lexists(path) and not is_store(path) and committed_step(path) is None:
        raise StoreError(
            f"{path}: must be a MemoryX file, this is something else, and this run would replace it",
            "move it away, or choose another --model_dir",
        )
    if start is None:
        return
    kept = start.committed.step if start.committed is not None and start.states == ALL_STATES else -1
    held = [(commit.step, commit.path) for commit in start.found.commits]
    held += [(broken.step, broken.folder / broken.shards[0].name) for broken in start.found.broken]
    for step, file in held:
        if step > kept:
            _check_checkpoint_holds(params, step, file)


def _check_not_in_the_way(committed: Committed, nodes: int) -> None:
    """Check that no new file takes the place of one that is gone on from, before there is another commit.

    Raises:
        StoreError: one does
    """
    if committed.nodes != nodes or not any(rank == node for node, rank in enumerate(committed.holders)):
        return
    node, rank = next((node, rank) for node, rank in enumerate(committed.holders) if rank != node)
    rule = f"be at the ranks of their numbers, or none of them, {shard_name(node, nodes)} is at rank {rank}"
    raise _other_nodes(committed, rule)


def _other_nodes(committed: Committed, rule: str) -> StoreError:
    return StoreError(
        f"{committed.folder}: the shards of MemoryX must {rule}",
        f"--memoryx_nodes {committed.nodes - 1} spreads them anew",
    )


def _check_checkpoint_holds(params: Params, step: int, path: Path) -> None:
    checkpoints = list_checkpoints(params.model_dir, params.checkpoint.checkpoint_name)
    if any(held_step(entry) >= step and is_whole(entry.path) for entry in reversed(checkpoints)):
        return
    quoted = shlex.quote(str(path))
    copy = params.model_dir / params.checkpoint.checkpoint_name.replace("{step}", str(step))
    raise StoreError(
        f"{path}: holds step {step}, which no checkpoint has, and this run would replace it",
        f"cstool checkpoint copy {quoted} {shlex.quote(str(copy))} keeps it as a checkpoint, cstool checkpoint delete "
        f"{quoted} drops it; or choose another --model_dir",
    )
