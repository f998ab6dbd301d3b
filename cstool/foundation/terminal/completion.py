"""Completions of file names in a shell: files that the command can read, and the folders on the way.

Folders end in a slash. A single match is opened at once, since shells put a space behind a single match.
Where a name would need quotes nothing is offered, and the shell completes names as it always does.
"""

import os
import re
from collections.abc import Callable, MutableMapping
from pathlib import Path
from shlex import quote
from typing import Any

VARIABLE = "_CSTOOL_COMPLETE"
"""environment variable in which a shell says that it asks"""
_WORDS = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""environment variables with the words typed so far"""
_HYPHENATED = re.compile(r"(?<=\s)--[a-z]+(?:-[a-z]+)+(?=\s)")
"""a flag that is typed to its end"""


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


def complete_files(incomplete: str, is_wanted: Callable[[Path], bool]) -> list[str]:
    """Return the wanted files that a name may become, and the folders on the way."""
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
