"""`cstool checkpoint verify`: whether checkpoints are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cstool.cli.completion import complete_checkpoint
from cstool.cli.render import print_line
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.errors import CheckpointError, DamagedCheckpointError

CheckpointsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="Checkpoints: files, DIR:STEP, DIR:latest, globs in quotes.",
        show_default=False,
        autocompletion=complete_checkpoint,
    ),
]


def verify(files: CheckpointsArgument, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Read checkpoints and verify every checksum, that their parts belong together, and what a run asks of them.

    The exit code is 0 if all are whole, 1 if one is damaged, 2 if one is no checkpoint or not there at all.
    """
    with errors_as_messages(debug):
        from cstool.cli.render import print_json
        from cstool.cli.screen import bars_in_bytes
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
