"""`cstool checkpoint list`: the checkpoints of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cstool.cli.completion import complete_model_dir
from cstool.cli.render import print_line
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages

FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A model_dir.", show_default=False, autocompletion=complete_model_dir)
]


def list_(folder: FolderArgument, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """List the checkpoints of a folder, the latest last, and its MemoryX file."""
    with errors_as_messages(debug):
        from cstool.cli.render import print_json, print_table
        from cstool.verbs.checkpoints import list_folder
        from cstool.words import bytes_text

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
