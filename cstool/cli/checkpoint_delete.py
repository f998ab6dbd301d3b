"""`cstool checkpoint delete` and `prune`: make room, and lose nothing that counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cstool.cli.checkpoint_list import FolderArgument
from cstool.cli.checkpoint_verify import CheckpointsArgument
from cstool.cli.render import print_line
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages

if TYPE_CHECKING:
    from cstool.verbs.checkpoints import Deleted

DryRunOption = Annotated[bool, typer.Option("--dry_run", help="Say what would be deleted, and delete nothing.")]


def delete(
    targets: CheckpointsArgument, dry_run: DryRunOption = False, as_json: JsonOption = False, debug: DebugOption = False
) -> None:
    """Delete checkpoints, whole or damaged; if one of the files is anything else, none is deleted.

    The index of their folder is updated. A MemoryX file (memoryx.h5) goes with its commit record and its lock.
    """
    with errors_as_messages(debug):
        from cstool.cli.render import print_json
        from cstool.verbs.checkpoints import delete_checkpoints

        deleted = delete_checkpoints(targets, dry_run=dry_run)
        if as_json:
            print_json({"dry_run": dry_run, "deleted": _entries(deleted)})
        else:
            _print_deleted(deleted, dry_run)


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
        from cstool.cli.screen import bars_in_bytes
        from cstool.verbs.checkpoints import prune_checkpoints

        with bars_in_bytes() as progress:
            pruned = prune_checkpoints(folder, keep, dry_run=dry_run, progress=progress)
        if as_json:
            print_json(
                {
                    "dry_run": dry_run,
                    "kept": [str(path) for path in pruned.kept],
                    "deleted": _entries(pruned.deleted),
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


def _entries(deleted: Sequence[Deleted]) -> list[dict[str, object]]:
    return [{"path": str(each.path), "bytes": each.bytes} for each in deleted]


def _print_deleted(deleted: Sequence[Deleted], dry_run: bool) -> None:
    from cstool.words import bytes_text

    for each in deleted:
        print_line(f"{each.path}: {'would be deleted' if dry_run else 'deleted'}, {bytes_text(each.bytes)}")
    if not deleted:
        print("nothing to delete")
