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
        from cstool.cli.screen import bars_in_bytes
        from cstool.verbs.checkpoints import copy_checkpoint
        from cstool.words import bytes_text

        with bars_in_bytes() as progress:
            made = copy_checkpoint(source, destination, older=older, progress=progress)
        if as_json:
            print_json(made._asdict() | {"source": str(made.source), "path": str(made.path)})
        else:
            if made.note is not None:
                print_line(f"note: {made.note}")
            print_line(f"{made.source}: copied to {made.path}, {bytes_text(made.bytes)}")
