"""`cstool checkpoint copy`: a second one, verified."""

from __future__ import annotations

from typing import Annotated

import typer

from cstool.cli.checkpoint_info import CheckpointArgument
from cstool.cli.render import print_line
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages


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
        from cstool.cli.screen import progress_in_bytes
        from cstool.store import copy_checkpoint, find_checkpoint, open_checkpoint, unbound_note
        from cstool.words import bytes_text

        path = find_checkpoint(source)
        with progress_in_bytes(f"Copying {path.name}") as progress:
            made = copy_checkpoint(path, destination, progress, older=older)
        with open_checkpoint(path, older=older) as state:
            note = unbound_note(state)
        size_bytes = made.stat().st_size
        if as_json:
            print_json({"source": str(path), "path": str(made), "bytes": size_bytes, "note": note})
        else:
            if note is not None:
                print_line(f"note: {note}")
            print_line(f"{path}: copied to {made}, {bytes_text(size_bytes)}")
