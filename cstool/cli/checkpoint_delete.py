"""`cstool checkpoint delete` and `prune`: make room, and lose nothing that counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cstool.cli.checkpoint_list import FolderArgument, check_folder
from cstool.cli.checkpoint_verify import CheckpointsArgument
from cstool.cli.render import print_line
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.errors import CheckpointError

DryRunOption = Annotated[bool, typer.Option("--dry_run", help="Say what would be deleted, and delete nothing.")]


def delete(
    targets: CheckpointsArgument, dry_run: DryRunOption = False, as_json: JsonOption = False, debug: DebugOption = False
) -> None:
    """Delete checkpoints, whole or damaged; if one of the files is anything else, none is deleted.

    The index of their folder is updated. A MemoryX file (memoryx.h5) goes with its commit record and its lock.
    """
    with errors_as_messages(debug):
        from cstool.cli.render import print_json
        from cstool.store import check_deletable, find_checkpoints

        paths = find_checkpoints(targets)
        for path in paths:
            check_deletable(path)
        sizes = _delete(paths, dry_run)
        if as_json:
            print_json({"dry_run": dry_run, "deleted": _entries(paths, sizes)})
        else:
            _print_deleted(paths, sizes, dry_run)


def prune(
    folder: FolderArgument,
    keep: Annotated[int, typer.Option("--keep", metavar="N", help="How many whole ones to keep, at least 1.")],
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Delete the oldest checkpoints of a folder, and keep the N latest that are whole.

    These are verified. Damaged ones among them do not count, and stay. The index of the folder is updated.
    """
    with errors_as_messages(debug):
        from cstool.cli.render import print_json
        from cstool.cli.screen import progress_in_bytes
        from cstool.store import plan_pruning

        check_folder(folder)
        if keep < 1:
            raise CheckpointError(f"--keep: must be at least 1, got {keep}", "delete removes checkpoints one by one")
        with progress_in_bytes("Verifying") as progress:
            plan = plan_pruning(folder, keep, progress)
        sizes = _delete(plan.deleted, dry_run)
        if as_json:
            print_json(
                {
                    "dry_run": dry_run,
                    "kept": [str(path) for path in plan.kept],
                    "deleted": _entries(plan.deleted, sizes),
                    "damaged": [error.message for error in plan.damaged],
                    "left": [error.message for error in plan.strange],
                }
            )
            return
        _print_deleted(plan.deleted, sizes, dry_run)
        for error in (*plan.damaged, *plan.strange):
            print_line(f"left as it is: {error.message}")
        for path in plan.kept:
            print_line(f"{path}: whole, kept")


def _delete(paths: Sequence[Path], dry_run: bool) -> list[int]:
    """Delete checkpoints, and return their sizes [bytes]."""
    from cstool.store import delete_checkpoints, size_bytes

    sizes = [size_bytes(path) for path in paths]
    if not dry_run:
        delete_checkpoints(paths)
    return sizes


def _entries(paths: Sequence[Path], sizes: list[int]) -> list[dict[str, object]]:
    return [{"path": str(path), "bytes": size} for path, size in zip(paths, sizes, strict=True)]


def _print_deleted(paths: Sequence[Path], sizes: list[int], dry_run: bool) -> None:
    from cstool.words import bytes_text

    for path, size in zip(paths, sizes, strict=True):
        print_line(f"{path}: {'would be deleted' if dry_run else 'deleted'}, {bytes_text(size)}")
    if not paths:
        print("nothing to delete")
