"""What is asserted of a command that refuses: its whole message, and what it left."""

from pathlib import Path
from typing import NamedTuple


class Outcome(NamedTuple):
    """What a command printed and returned."""

    code: int
    stdout: str
    stderr: str


def error(message: str, hint: str | None = None) -> str:
    """Return what is printed on stderr of one error."""
    return f"error: {message}\n" if hint is None else f"error: {message}\nhint: {hint}\n"


def kept(model_dir: Path) -> dict[str, bytes]:
    """Return the files of a model_dir beside logs and locks, by name."""
    files = model_dir.iterdir() if model_dir.is_dir() else ()
    links = ("latest_run.log", "performance.json")
    return {f.name: f.read_bytes() for f in files if f.is_file() and f.suffix != ".lock" and f.name not in links}
