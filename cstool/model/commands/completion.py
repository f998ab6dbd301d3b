"""The names that a shell offers where params, a system, an artifact or a checkpoint is to be named.

All come without the modules that read such files, which take long to import.
"""

import os
import re
from pathlib import Path
from shlex import quote

from cstool.foundation.terminal.completion import complete_files

PARAMS = Path(__file__).parents[1] / "params" / "stock"
SYSTEMS = Path(__file__).parents[1] / "system" / "systems"
_MEMORYX = re.compile(r"memoryx(_[0-9]+_of_[0-9]+)?\.h5")


def complete_params(incomplete: str) -> list[str]:
    """Return the YAML files that a name may become, or else the stock files."""
    return complete_files(incomplete, _is_yaml) or complete_stock(incomplete)


def complete_stock(incomplete: str) -> list[str]:
    """Return the stock params files that a name may become."""
    return _complete_name(incomplete, PARAMS)


def complete_checkpoint(incomplete: str) -> list[str]:
    """Return the checkpoints and MemoryX files that complete a beginning; behind `DIR:` the steps of that folder."""
    folder, colon, start = incomplete.rpartition(":")
    if not (colon and os.path.isdir(folder)):
        return complete_files(incomplete, _is_checkpoint)
    # Not asked of cstool.training.store, which takes long to import.
    matches = (re.fullmatch(r"checkpoint_(\d+)(_.*)?\.mdl", name) for name in os.listdir(folder))
    steps = sorted({int(match[1]) for match in matches if match is not None})
    named = [f"{folder}:{step}" for step in ("latest", *steps)] if steps else []
    return [name for name in named if name.startswith(incomplete) and quote(name) == name]


def complete_model_dir(incomplete: str) -> list[str]:
    """Return the folders with checkpoints that a name may become."""

    def holds_checkpoints(path: Path) -> bool:
        return path.is_dir() and any(map(_is_checkpoint, path.iterdir()))

    return complete_files(incomplete, holds_checkpoints)


def complete_artifact(incomplete: str) -> list[str]:
    """Return the artifacts that a name may become."""
    return complete_files(incomplete, lambda path: path.suffix == ".json")


def complete_system(incomplete: str) -> list[str]:
    """Return the systems that a name may become, or else the system files."""
    return _complete_name(incomplete, SYSTEMS) or complete_files(incomplete, _is_yaml)


def _complete_name(incomplete: str, folder: Path) -> list[str]:
    """Names of YAML files of the package, without the modules that read them, which take long to import."""
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    return [name for name in names if name.startswith(incomplete)]


def _is_yaml(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml")


def _is_checkpoint(path: Path) -> bool:
    return path.suffix == ".mdl" or _MEMORYX.fullmatch(path.name) is not None
