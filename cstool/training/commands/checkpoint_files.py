"""`cstool checkpoint list`, `verify`, `copy`, `delete` and `prune`: the files, whole; nothing that counts is lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cstool.foundation.errors import DamagedCheckpointError
from cstool.foundation.terminal.options import JsonOption, argument, flag, option
from cstool.foundation.terminal.render import print_json, print_line, print_table
from cstool.foundation.terminal.screen import bars_in_bytes
from cstool.foundation.words import bytes_text
from cstool.model.commands.completion import complete_checkpoint, complete_model_dir
from cstool.model.commands.options import CheckpointArgument
from cstool.training.verbs.checkpoints import (
    copy_checkpoint,
    delete_checkpoints,
    find_checkpoints,
    list_folder,
    prune_checkpoints,
    verify_checkpoint,
)

if TYPE_CHECKING:
    from cstool.training.verbs.checkpoints import Deleted, FolderShards

FolderArgument = Annotated[Path, argument("DIR", "A model_dir.", complete_model_dir)]
CheckpointsArgument = Annotated[
    list[str], argument("FILE...", "Checkpoints: files, DIR:STEP, DIR:latest, globs in quotes.", complete_checkpoint)
]
_SHOWN = 3
"""names of shards in a line"""
DryRunOption = Annotated[bool, flag("--dry_run", "List the files to delete, and delete nothing.")]


def list_(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """List the checkpoints of a folder, the latest last, and its MemoryX."""
    found = list_folder(folder)
    memoryx = found.memoryx
    if as_json:
        checkpoints = [{"step": e.step, "path": e.path, "bytes": size} for e, size in found.checkpoints]
        print_json({"checkpoints": checkpoints, "memoryx": memoryx, "shards": found.shards})
        return
    if found.checkpoints:
        rows = [(str(entry.step), bytes_text(size), entry.path.name) for entry, size in found.checkpoints]
        print_table(("step", "size", "file"), rows, right=("step", "size"))
    elif memoryx is None and not found.shards:
        print_line(f"{folder}: no checkpoints")
    if memoryx is not None:
        print(memoryx.error or f"MemoryX: {memoryx.path.name}, committed at step {memoryx.step}")
    for shards in found.shards:
        print(shards.error or f"MemoryX: {_shards_text(shards)}")


def verify(files: CheckpointsArgument, as_json: JsonOption = False) -> None:
    """Read checkpoints and verify every checksum, their parts, and the needs of a run.

    The exit code is 0 if all are whole, 1 if one is damaged, 2 if one is missing or is no checkpoint.
    """
    code, document = 0, []
    for path in find_checkpoints(files):
        with bars_in_bytes() as progress:
            found = verify_checkpoint(path, progress=progress)
        message = None
        if found.error is not None:
            message = found.error.message
            code = max(code, 1 if isinstance(found.error, DamagedCheckpointError) else 2)
        if as_json:
            document.append({"path": path, "ok": message is None, "error": message, "note": found.note})
        else:
            print_line(f"{path}: {'ok' if message is None else message.removeprefix(f'{path}: ')}")
            if found.note is not None:
                print_line(f"note: {found.note}")
    if as_json:
        print_json({"ok": code == 0, "checkpoints": document})
    if code:
        raise typer.Exit(code)


def copy(
    source: CheckpointArgument,
    destination: Annotated[str, argument("DEST", "A new file, or a folder, where it keeps its name.")],
    older: Annotated[bool, flag("--older", "Of a MemoryX file, copy the commit before the last one.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy a checkpoint, verifying every checksum on the way; nothing is overwritten.

    If the folder has an index of checkpoints, the copy is entered in it.
    The last commit of a MemoryX file (memoryx.h5) becomes a checkpoint; in a folder, its name has the step.
    A shard (memoryx_1_of_4.h5) stands for all shards, which must be in its folder.
    """
    with bars_in_bytes() as progress:
        made = copy_checkpoint(source, destination, older=older, progress=progress)
    if as_json:
        print_json(made)
    else:
        if made.note is not None:
            print_line(f"note: {made.note}")
        print_line(f"{made.source}: copied to {made.path}, {bytes_text(made.bytes)}")


def delete(targets: CheckpointsArgument, dry_run: DryRunOption = False, as_json: JsonOption = False) -> None:
    """Delete checkpoints, whole or damaged; if one of the files is no checkpoint, none is deleted.

    The index of their folder is updated. A MemoryX file (memoryx.h5) goes with its commit record and its lock.
    A shard (memoryx_1_of_4.h5) goes with all other shards of the same MemoryX in its folder.
    """
    deleted = delete_checkpoints(targets, dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, "deleted": deleted})
    else:
        _print_deleted(deleted, dry_run)


def prune(
    folder: FolderArgument,
    keep: Annotated[int, option("--keep", "N", "Number of whole checkpoints to keep, at least 1.")],
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the oldest checkpoints of a folder, and keep the N latest whole ones.

    The latest are verified. Damaged ones among them do not count, and stay. The index of the folder is updated.
    """
    with bars_in_bytes() as progress:
        pruned = prune_checkpoints(folder, keep, dry_run=dry_run, progress=progress)
    if as_json:
        print_json(
            {
                "dry_run": dry_run,
                "kept": pruned.kept,
                "deleted": pruned.deleted,
                "damaged": [error.message for error in pruned.damaged],
                "left": [error.message for error in pruned.strange],
            }
        )
        return
    _print_deleted(pruned.deleted, dry_run)
    for error in (*pruned.damaged, *pruned.strange):
        print_line(f"left as it is: {error.message}")
    for path in pruned.kept:
        print_line(f"{path}: whole, kept")


def _shards_text(shards: FolderShards) -> str:
    """State of some shards: the missing ones, or the step that all hold."""
    if shards.missing:
        return f"{len(shards.paths)} of {shards.nodes} shards, {_some(shards.missing)} not there"
    if shards.step is None:
        return f"{shards.nodes} shards, which hold no step in common"
    later = f"; {_some(shards.ahead)} at a later one" if shards.ahead else ""
    return f"{shards.nodes} shards, committed at step {shards.step}{later}"


def _some(names: Sequence[str]) -> str:
    """Names of one file or several, in short."""
    if len(names) == 1:
        return f"{names[0]} is"
    if len(names) > _SHOWN:
        names = [*names[: _SHOWN - 1], f"{len(names) - _SHOWN + 1} more"]
    return f"{', '.join(names[:-1])} and {names[-1]} are"


def _print_deleted(deleted: Sequence[Deleted], dry_run: bool) -> None:
    for each in deleted:
        print_line(f"{each.path}: {'would be deleted' if dry_run else 'deleted'}, {bytes_text(each.bytes)}")
    if not deleted:
        print("nothing to delete")
