"""`cstool checkpoint list`: the checkpoints of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.errors import CheckpointError

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A model_dir.", show_default=False)]


def list_(folder: FolderArgument, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """List the checkpoints of a folder, the latest last."""
    with errors_as_messages(debug):
        from cstool.cli.render import bytes_text, print_json, print_table
        from cstool.store import list_checkpoints

        check_folder(folder)
        found = [(entry.step, entry.path, entry.path.stat().st_size) for entry in list_checkpoints(folder)]
        if as_json:
            print_json({"checkpoints": [{"step": s, "path": str(path), "bytes": size} for s, path, size in found]})
        elif found:
            rows = [(str(step), bytes_text(size), path.name) for step, path, size in found]
            print_table(("step", "size", "file"), rows, right=("step", "size"))
        else:
            print(f"{folder}: no checkpoints")


def check_folder(folder: Path) -> None:
    """Check that a folder is there.

    Raises:
        CheckpointError: it is not
    """
    if not folder.is_dir():
        got = "got a file" if folder.exists() else "found nothing there"
        raise CheckpointError(f"{folder}: must be a folder, {got}", "give the model_dir of a run")
