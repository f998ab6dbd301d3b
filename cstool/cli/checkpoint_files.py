"""`cstool checkpoint list`, `verify`, `copy`, `delete` and `prune`: the files, whole; nothing that counts is lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cstool.cli.checkpoint_info import CheckpointArgument
from cstool.cli.completion import complete_checkpoint, complete_model_dir
from cstool.cli.render import print_line
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.cli.screen import bars_in_bytes
from cstool.errors import CheckpointError, DamagedCheckpointError
from cstool.words import bytes_text

if TYPE_CHECKING:
    from cstool.verbs.checkpoints import Deleted

FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A model_dir.", show_default=False, autocompletion=complete_model_dir)
]
CheckpointsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="Checkpoints: files, DIR:STEP, DIR:latest, globs in quotes.",
        show_default=False,
        autocompletion=complete_checkpoint,
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry_run", help="Say what would be deleted, and delete nothing.")]


def list_(folder: FolderArgument, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """List the checkpoints of a folder, the latest last, and its MemoryX file."""
    with errors_as_messages(debug):
        from cstool.cli.render import print_json, print_table
        from cstool.verbs.checkpoints import list_folder

        found = list_folder(folder)
        memoryx = found.memoryx
        if as_json:
            checkpoints = [{"step": e.step, "path": str(e.path), "bytes": size} for e, size in found.checkpoints]
            committed = None if memoryx is None else memoryx._asdict() | {"path": str(memoryx.path)}
            print_json({"checkpoints": checkpoints, "memoryx": committed})
            return
        if found.checkpoints:
            rows = [(str(entry.step), bytes_text(size), entry.path.name) for entry, size in found.checkpoints]
            print_table(("step", "size", "file"), rows, right=("step", "size"))
        elif memoryx is None:
            print_line(f"{folder}: no checkpoints")
        if memoryx is not None:
            print(memoryx.error or f"MemoryX: {memoryx.path.name}, committed at step {memoryx.step}")


def verify(files: CheckpointsArgument, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Read checkpoints and verify every checksum, that their parts belong together, and what a run asks of them.

    The exit code is 0 if all are whole, 1 if one is damaged, 2 if one is no checkpoint or not there at all.
    """
    with errors_as_messages(debug):
        from cstool.cli.render import print_json
        from cstool.verbs.checkpoints import find_checkpoints, verify_checkpoint

        code, document = 0, []
        for path in find_checkpoints(files):
            with bars_in_bytes() as progress:
                found = verify_checkpoint(path, progress=progress)
            error = found.error
            if error is not None:
                code = max(code, 1 if isinstance(error, DamagedCheckpointError) else 2)
            if as_json:
                message = None if error is None else error.message
                document.append({"path": str(path), "ok": error is None, "error": message, "note": found.note})
            else:
                print_line(_line(path, error))
                if found.note is not None:
                    print_line(f"note: {found.note}")
        if as_json:
            print_json({"ok": code == 0, "checkpoints": document})
        if code:
            raise typer.Exit(code)


def _line(path: Path, error: CheckpointError | None) -> str:
    if error is None:
        return f"{path}: ok"
    return error.message if error.message.startswith(f"{path}: ") else f"{path}: {error.message}"


def copy(
    source: CheckpointArgument,
    destination: Annotated[
        str, typer.Argument(metavar="DEST", help="A new file, or a folder: the name stays.", show_default=False)
    ],
    older: Annotated[
        bool, typer.Option("--older", help="Of a MemoryX file, copy the commit before the last one.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Copy a checkpoint, verifying every checksum on the way; nothing is overwritten.

    Where the folder has an index of checkpoints, the copy is entered in it.
    The last commit of a MemoryX file (memoryx.h5) becomes a checkpoint, in a folder one that is named by its step.
    """
    with errors_as_messages(debug):
        from cstool.cli.render import print_json
        from cstool.verbs.checkpoints import copy_checkpoint

        with bars_in_bytes() as progress:
            made = copy_checkpoint(source, destination, older=older, progress=progress)
        if as_json:
            print_json(made._asdict() | {"source": str(made.source), "path": str(made.path)})
        else:
            if made.note is not None:
                print_line(f"note: {made.note}")
            print_line(f"{made.source}: copied to {made.path}, {bytes_text(made.bytes)}")


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
    for each in deleted:
        print_line(f"{each.path}: {'would be deleted' if dry_run else 'deleted'}, {bytes_text(each.bytes)}")
    if not deleted:
        print("nothing to delete")
