"""Checkpoints looked at, verified, compared, copied, deleted: the verbs behind `cstool checkpoint`.

A checkpoint is named by its file, `DIR:STEP` or `DIR:latest`. `progress` is "auto", which shows it in a notebook and
on a terminal, "none", or an object that is told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cstool.foundation.errors import CheckpointError
from cstool.foundation.progress.screen import Shown, told_in_bytes

if TYPE_CHECKING:
    from cstool.foundation.progress import Progress
    from cstool.training.store import CheckpointDiff, CheckpointEntry, CheckpointInfo, TensorInfo


class Described(NamedTuple):
    """A checkpoint, and the tensors and tied keys of it that were asked for; with their L2 norms, if these were."""

    info: CheckpointInfo
    listed: tuple[TensorInfo, ...]
    links: dict[str, str]
    norms: dict[str, float] | None


class Verified(NamedTuple):
    """The result of verifying a checkpoint: a note on one that is whole, the fault of one that is not."""

    path: Path
    note: str | None
    error: CheckpointError | None


class Copied(NamedTuple):
    """A checkpoint copied: source, destination, its size [bytes], and a note on parts that are not copied."""

    source: Path
    path: Path
    bytes: int
    note: str | None


class Deleted(NamedTuple):
    """A file that was deleted, or would be, and the space that it frees [bytes]."""

    path: Path
    bytes: int


class Pruned(NamedTuple):
    """The fates of the checkpoints of a folder: deleted, kept, and left because of their faults."""

    deleted: tuple[Deleted, ...]
    kept: tuple[Path, ...]
    damaged: tuple[CheckpointError, ...]
    strange: tuple[CheckpointError, ...]


class CommittedState(NamedTuple):
    """The MemoryX file of a folder, and the step of its last commit; or the error of reading it."""

    step: int | None
    path: Path
    error: str | None


class FolderShards(NamedTuple):
    """The shards of a MemoryX that are in a folder; or the error of reading them."""

    nodes: int | None
    """number of shards that it has; None where that cannot be read"""
    paths: tuple[Path, ...]
    """of the shards in the folder"""
    missing: tuple[str, ...]
    """names of the others"""
    step: int | None
    """the newest that all hold; None where there is none, or a shard is missing"""
    ahead: tuple[str, ...]
    """names of shards that hold a later one, too"""
    error: str | None


class FolderContent(NamedTuple):
    """The checkpoints of a folder, the latest last, their sizes [bytes], its MemoryX file, and its shards of others."""

    checkpoints: tuple[tuple[CheckpointEntry, int], ...]
    memoryx: CommittedState | None
    shards: tuple[FolderShards, ...] = ()


def describe_checkpoint(
    file: str | Path,
    *,
    tensors: str | None = None,
    everything: bool = False,
    verifies: bool = False,
    norms: bool = False,
    progress: Shown | Progress = "auto",
) -> Described:
    """Describe a checkpoint: version, step, tensors and their sizes.

    Args:
        file: of it
        tensors: list the tensors whose keys match this pattern; None for the weights
        everything: without a pattern, list all tensors
        verifies: read all of it, and check its checksums
        norms: compute the L2 norm of every tensor that is listed

    Raises:
        CheckpointError: it cannot be read or is damaged, or no tensor is called like that
    """
    from cstool.training.store import describe_checkpoint, find_checkpoint, open_checkpoint, tensor_norms

    with open_checkpoint(find_checkpoint(file)) as state:
        if verifies:
            with told_in_bytes("Verifying", progress) as tell:
                state.verify_all(tell)
        info = describe_checkpoint(state)
        listed = _listed(info, tensors, everything)
        computed: dict[str, float] | None = None
        if norms:
            with told_in_bytes("Computing norms", progress) as tell:
                computed = tensor_norms(state, [tensor.key for tensor in listed if tensor.parameters], tell)
    links = {key: to for key, to in info.links.items() if tensors is None or fnmatchcase(key, tensors)}
    return Described(info, listed, links, computed)


def _listed(info: CheckpointInfo, pattern: str | None, everything: bool) -> tuple[TensorInfo, ...]:
    if pattern is None:
        return tuple(t for t in info.tensors if everything or (t.key.startswith("model.") and t.parameters))
    matching = tuple(tensor for tensor in info.tensors if fnmatchcase(tensor.key, pattern))
    if not matching and not any(fnmatchcase(key, pattern) for key in info.links):
        raise CheckpointError(
            f"--tensors: must match the key of a tensor in {info.path}, got {pattern!r}",
            "a key begins with its part: 'model.*' are the weights; --all lists all",
        )
    return matching


def find_checkpoints(named: Iterable[str]) -> list[Path]:
    """Files of checkpoints by words of a command: files, `DIR:STEP`, `DIR:latest`, patterns.

    Raises:
        CheckpointError: there is none of that name
    """
    from cstool.training.store import find_checkpoints

    return find_checkpoints(list(named))


def verify_checkpoint(path: Path, *, progress: Shown | Progress = "auto") -> Verified:
    """Read a checkpoint and verify every checksum, that its parts belong together, and the values that a run needs."""
    from cstool.training.store import open_checkpoint, unbound_note

    try:
        with told_in_bytes(f"Verifying {path.name}", progress) as tell, open_checkpoint(path) as state:
            state.verify_all(tell)
            return Verified(path, unbound_note(state), None)
    except CheckpointError as error:
        return Verified(path, None, error)


def diff_checkpoints(
    left: str | Path,
    right: str | Path,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    is_close: bool = False,
    tensors_only: bool = False,
    with_paths: bool = False,
    progress: Shown | Progress = "auto",
) -> CheckpointDiff:
    """Compare two checkpoints: keys, shapes, types, numbers and values.

    Args:
        left, right: the checkpoints
        rtol, atol: relative and absolute tolerance where tensors need only be close; None for 1e-5 and 1e-8
        is_close: whether tensors need only be close, not equal
        tensors_only: leave out the values
        with_paths: take other paths in the params for a difference, too

    Raises:
        CheckpointError: one cannot be read, or is damaged
    """
    from cstool.training.store import Tolerance, diff_checkpoints, find_checkpoint, open_checkpoint

    given = {name: value for name, value in (("rtol", rtol), ("atol", atol)) if value is not None}
    tolerance = Tolerance(**given) if is_close else None
    paths = [find_checkpoint(target) for target in (left, right)]
    with (
        open_checkpoint(paths[0]) as one,
        open_checkpoint(paths[1]) as other,
        told_in_bytes("Comparing", progress) as tell,
    ):
        return diff_checkpoints(one, other, tolerance, tell, tensors_only=tensors_only, with_paths=with_paths)


def copy_checkpoint(
    source: str | Path, destination: str, *, older: bool = False, progress: Shown | Progress = "auto"
) -> Copied:
    """Copy a checkpoint, verifying every checksum on the way; nothing is overwritten.

    Args:
        source: a checkpoint, or a MemoryX file, whose last commit becomes one, or the `older` one; a shard
            stands for all shards in its folder, and the newest step that all hold
        destination: a new file, or a folder

    Raises:
        CheckpointError: it cannot be read, is damaged, or the copy cannot be written
    """
    from cstool.training.store import copy_checkpoint, find_checkpoint, open_checkpoint, unbound_note

    path = find_checkpoint(source)
    with told_in_bytes(f"Copying {path.name}", progress) as tell:
        made = copy_checkpoint(path, destination, tell, older=older)
    with open_checkpoint(path, older=older) as state:
        note = unbound_note(state)
    return Copied(path, made, made.stat().st_size, note)


def delete_checkpoints(targets: Iterable[str], *, dry_run: bool = False) -> tuple[Deleted, ...]:
    """Delete checkpoints, whole or damaged; if one of the files is anything else, none is deleted.

    With a shard of a MemoryX go all others in its folder that belong to it.

    Raises:
        CheckpointError: one is none, or cannot be deleted
    """
    from cstool.training.store import check_deletable, with_shards

    paths = with_shards(find_checkpoints(targets))
    for path in paths:
        check_deletable(path)
    return _delete(paths, dry_run)


def prune_checkpoints(folder: Path, keep: int, *, dry_run: bool = False, progress: Shown | Progress = "auto") -> Pruned:
    """Delete the oldest checkpoints of a folder, and keep the `keep` latest ones that are whole, after verifying them.

    Raises:
        CheckpointError: it is no folder, or one that cannot be read, or `keep` is less than 1
    """
    from cstool.training.store import plan_pruning

    _check_folder(folder)
    if keep < 1:
        raise CheckpointError(f"--keep: must be at least 1, got {keep}", "delete removes checkpoints one by one")
    with told_in_bytes("Verifying", progress) as tell:
        plan = plan_pruning(folder, keep, tell)
    return Pruned(_delete(plan.deleted, dry_run), tuple(plan.kept), tuple(plan.damaged), tuple(plan.strange))


def list_folder(folder: Path) -> FolderContent:
    """List the checkpoints of a folder, the latest last, and its MemoryX file or the shards of one.

    Raises:
        CheckpointError: it is no folder, or one that cannot be read
    """
    from cstool.training.store import FILE_NAME, committed_step, list_checkpoints

    _check_folder(folder)
    entries = tuple((entry, entry.path.stat().st_size) for entry in list_checkpoints(folder))
    path = folder / FILE_NAME
    try:
        step, error = committed_step(path), None
    except CheckpointError as caught:
        step, error = None, caught.message
    memoryx = None if step is None and error is None else CommittedState(step, path, error)
    return FolderContent(entries, memoryx, _shards_of(folder))


def _shards_of(folder: Path) -> tuple[FolderShards, ...]:
    from cstool.training.store import list_shards

    try:
        found = list_shards(folder)
    except CheckpointError as caught:
        return (FolderShards(None, (), (), None, (), caught.message),)
    return tuple(
        FolderShards(each.nodes, tuple(folder / name for name in each.names), each.missing, each.step, each.ahead, None)
        for each in found
    )


def _delete(paths: Sequence[Path], dry_run: bool) -> tuple[Deleted, ...]:
    from cstool.training.store import delete_checkpoints, size_bytes

    found = tuple(Deleted(path, size_bytes(path)) for path in paths)
    if not dry_run:
        delete_checkpoints(paths)
    return found


def _check_folder(folder: Path) -> None:
    if not os.path.isdir(folder):
        got = "got a file" if os.path.exists(folder) else "found nothing there"
        raise CheckpointError(f"{folder}: must be a folder, {got}", "give the model_dir of a run")
