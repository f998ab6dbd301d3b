"""What a shell offers where a file is to be named: those that the command can read, and the folders on the way.

Folders end in a slash. One that stands alone is opened at once, since shells put a space behind what stands alone.
Where a name would need quotes nothing is offered, and the shell completes names as it always does.
"""

import os
import re
from collections.abc import Callable, MutableMapping
from pathlib import Path
from shlex import quote
from typing import Any

import cstool

VARIABLE = "_CSTOOL_COMPLETE"
"""environment variable in which a shell says that it asks"""
_WORDS = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""environment variables in which it says what was typed so far"""
_MEMORYX = re.compile(r"memoryx(_[0-9]+_of_[0-9]+)?\.h5")
_HYPHENATED = re.compile(r"(?<=\s)--[a-z]+(?:-[a-z]+)+(?=\s)")
"""a flag that is typed to its end"""


def complete_params(incomplete: str) -> list[str]:
    """Return the YAML files that a name may become, or else the stock files."""
    return _complete(incomplete, _is_yaml) or complete_stock(incomplete)


def complete_stock(incomplete: str) -> list[str]:
    """Return the stock params files that a name may become."""
    return _complete_name(incomplete, "params/stock")


def complete_checkpoint(incomplete: str) -> list[str]:
    """Return the checkpoints and MemoryX files that a name may become; behind `DIR:` the steps of that folder."""
    folder, colon, start = incomplete.rpartition(":")
    if not (colon and os.path.isdir(folder)):
        return _complete(incomplete, _is_checkpoint)
    # Not asked of cstool.training.store, which takes long to import.
    matches = (re.fullmatch(r"checkpoint_(\d+)(_.*)?\.mdl", name) for name in os.listdir(folder))
    steps = sorted({int(match[1]) for match in matches if match is not None})
    named = [f"{folder}:{step}" for step in ("latest", *steps)] if steps else []
    return [name for name in named if name.startswith(incomplete) and quote(name) == name]


def complete_model_dir(incomplete: str) -> list[str]:
    """Return the folders with checkpoints that a name may become."""

    def holds_checkpoints(path: Path) -> bool:
        return path.is_dir() and any(map(_is_checkpoint, path.iterdir()))

    return _complete(incomplete, holds_checkpoints)


def complete_artifact(incomplete: str) -> list[str]:
    """Return the artifacts that a name may become."""
    return _complete(incomplete, lambda path: path.suffix == ".json")


def complete_system(incomplete: str) -> list[str]:
    """Return the systems that a name may become, or else the system files."""
    return _complete_name(incomplete, "system/systems") or _complete(incomplete, _is_yaml)


def complete_job(ctx: Any, incomplete: str) -> list[str]:
    """Return the names of jobs that a name may become, the newest first: those of --root, if that was typed."""
    from cstool.appliance.verbs.jobs import job_names

    return job_names(ctx.params.get("root"), incomplete)


def normalize_typed_flags(environment: MutableMapping[str, str]) -> None:
    """Write flags of a command line that is to be completed with underscores, as they are looked up."""
    for name in _WORDS:
        if name in environment:
            underscored = _HYPHENATED.sub(lambda found: f"--{found[0][2:].replace('-', '_')}", environment[name])
            environment[name] = underscored


def with_hyphens(complete: Callable[[Any, str], list[Any]], ctx: Any, incomplete: str) -> list[Any]:
    """Return the flags that a word may become which is begun with hyphens, such as `--num-c`, spelled so."""
    name = incomplete.removeprefix("--")
    if "-" not in name or name == incomplete:
        return []
    items = complete(ctx, f"--{name.replace('-', '_')}")
    for item in items:
        item.value = f"--{item.value.removeprefix('--').replace('_', '-')}"
    return items


def _complete_name(incomplete: str, folder: str) -> list[str]:
    """Names of YAML files of the package; not asked of what reads them, which takes long to import."""
    names = sorted(path.stem for path in (Path(cstool.__file__).parent / folder).glob("*.yaml"))
    return [name for name in names if name.startswith(incomplete)]


def _is_yaml(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml")


def _is_checkpoint(path: Path) -> bool:
    return path.suffix == ".mdl" or _MEMORYX.fullmatch(path.name) is not None


def _complete(incomplete: str, is_wanted: Callable[[Path], bool]) -> list[str]:
    above, slash, start = incomplete.rpartition("/")
    found = _entries(above + slash, start, is_wanted)
    while len(found) == 1 and found[0].endswith("/"):
        found = _entries(found[0], "", is_wanted)
    return found if all(quote(name) == name for name in found) else []


def _entries(folder: str, start: str, is_wanted: Callable[[Path], bool]) -> list[str]:
    """Wanted files in a folder, and the folders in it, of the names that start so."""
    found = []
    try:
        for name in sorted(os.listdir(folder or ".")):
            path = Path(folder + name)
            if name.startswith(start) and (start or not name.startswith(".")):
                if is_wanted(path):
                    found.append(folder + name)
                elif path.is_dir():
                    found.append(f"{folder}{name}/")
    except OSError:  # no such folder, or one that is not ours to read
        return []
    return found
