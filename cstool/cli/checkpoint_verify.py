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
        from cstool.store import find_checkpoints

        code, document = 0, []
        for path in find_checkpoints(files):
            note, error = _verify(path)
            if error is not None:
                code = max(code, 1 if isinstance(error, DamagedCheckpointError) else 2)
            if as_json:
                message = None if error is None else error.message
                document.append({"path": str(path), "ok": error is None, "error": message, "note": note})
            else:
                print_line(_line(path, error))
                if note is not None:
                    print_line(f"note: {note}")
        if as_json:
            print_json({"ok": code == 0, "checkpoints": document})
        if code:
            raise typer.Exit(code)


def _verify(path: Path) -> tuple[str | None, CheckpointError | None]:
    """Return what is to be said of a checkpoint that is whole, and what is wrong with one that is not."""
    from cstool.cli.screen import progress_in_bytes
    from cstool.store import open_checkpoint, unbound_note

    try:
        with progress_in_bytes(f"Verifying {path.name}") as progress, open_checkpoint(path) as state:
            state.verify_all(progress)
            return unbound_note(state), None
    except CheckpointError as error:
        return None, error


def _line(path: Path, error: CheckpointError | None) -> str:
    if error is None:
        return f"{path}: ok"
    return error.message if error.message.startswith(f"{path}: ") else f"{path}: {error.message}"
