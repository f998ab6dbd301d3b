"""`cstool checkpoint list`: the checkpoints of a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from cstool.cli.completion import complete_model_dir
from cstool.cli.render import print_line
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.errors import CheckpointError

FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A model_dir.", show_default=False, autocompletion=complete_model_dir)
]


def list_(folder: FolderArgument, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """List the checkpoints of a folder, the latest last, and its MemoryX file."""
    with errors_as_messages(debug):
        from cstool.cli.render import print_json, print_table
        from cstool.store import FILE_NAME, list_checkpoints
        from cstool.words import bytes_text

        check_folder(folder)
        found = [(entry.step, entry.path, entry.path.stat().st_size) for entry in list_checkpoints(folder)]
        memoryx = _memoryx(folder)
        if as_json:
            checkpoints = [{"step": s, "path": str(path), "bytes": size} for s, path, size in found]
            print_json({"checkpoints": checkpoints, "memoryx": memoryx})
            return
        if found:
            rows = [(str(step), bytes_text(size), path.name) for step, path, size in found]
            print_table(("step", "size", "file"), rows, right=("step", "size"))
        elif memoryx is None:
            print_line(f"{folder}: no checkpoints")
        if memoryx is not None:
            print(memoryx["error"] or f"MemoryX: {FILE_NAME}, committed at step {memoryx['step']}")


def _memoryx(folder: Path) -> dict[str, Any] | None:
    """Return what is to be said of the MemoryX file of a folder; None where there is none that was committed."""
    from cstool.store import FILE_NAME, committed_step

    path = folder / FILE_NAME
    try:
        step, error = committed_step(path), None
    except CheckpointError as caught:
        step, error = None, caught.message
    return None if step is None and error is None else {"step": step, "path": str(path), "error": error}


def check_folder(folder: Path) -> None:
    """Check that a folder is there.

    Raises:
        CheckpointError: it is not
    """
    if not os.path.isdir(folder):
        got = "got a file" if os.path.exists(folder) else "found nothing there"
        raise CheckpointError(f"{folder}: must be a folder, {got}", "give the model_dir of a run")
