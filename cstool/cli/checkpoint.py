"""`cstool checkpoint`: what is in a folder of checkpoints, and in one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cstool.cli.report import DebugOption, errors_as_messages

checkpoint_app = typer.Typer(name="checkpoint", no_args_is_help=True, help="Look at checkpoints.")


@checkpoint_app.command("list")
def list_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A model_dir.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    debug: DebugOption = False,
) -> None:
    """List the checkpoints of a folder, the latest last."""
    with errors_as_messages(debug):
        from cstool.cli.render import bytes_text, print_json, print_table
        from cstool.store import list_checkpoints

        entries = list_checkpoints(folder)
        if as_json:
            print_json(
                {
                    "checkpoints": [
                        {"step": e.step, "path": str(e.path), "bytes": e.path.stat().st_size} for e in entries
                    ]
                }
            )
            return
        rows = [(str(e.step), bytes_text(e.path.stat().st_size), e.path.name) for e in entries]
        print_table(("step", "size", "file"), rows, right=("step", "size"))


@checkpoint_app.command("info")
def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A checkpoint.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    debug: DebugOption = False,
) -> None:
    """Show what a checkpoint holds: version, step, tensors and their sizes."""
    with errors_as_messages(debug):
        from cstool.cli.render import print_json
        from cstool.store import describe_checkpoint

        print_json({"info": str(describe_checkpoint(file)), "json": as_json})
