"""Completions of file names in a shell: files that the command can read, and the folders on the way.

Folders end in a slash. A single match is opened at once, since shells put a space behind a single match.
Nothing is offered for a name that needs quotes: there the shell completes names itself.
"""

import os
import re
from collections.abc import Callable, MutableMapping
from pathlib import Path
from shlex import quote
from typing import Any

VARIABLE = "_CSTOOL_COMPLETE"
"""environment variable by which a shell asks for completions"""
_WORDS = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""environment variables with the words typed so far"""
_HYPHENATED = re.compile(r"(?<=\s)--[a-z]+(?:-[a-z]+)+(?=\s)")
"""a completely typed flag with hyphens"""


def normalize_typed_flags(environment: MutableMapping[str, str]) -> None:
    """Replace hyphens in the flags of a command line under completion by underscores."""
    for name in _WORDS:
        if name in environment:
            underscored = _HYPHENATED.sub(lambda found: f"--{found[0][2:].replace('-', '_')}", environment[name])
            environment[name] = underscored


def with_hyphens(complete: Callable[[Any, str], list[Any]], ctx: Any, incomplete: str) -> list[Any]:
    """Return completions of a flag that begins with hyphens, such as `--num-c`, in the same spelling."""
    name = incomplete.removeprefix("--")
    if "-" not in name or name == incomplete:
        return []
    items = complete(ctx, f"--{name.replace('-', '_')}")
    for item in items:
        item.value = f"--{item.value.removeprefix('--').replace('_', '-')}"
    return items


def complete_files(incomplete: str, is_wanted: Callable[[Path], bool]) -> list[str]:
    """Return the wanted files whose names begin so, and the folders on the way."""
    above, slash, start = incomplete.rpartition("/")
    found = _entries(above + slash, start, is_wanted)
    while len(found) == 1 and found[0].endswith("/"):
        found = _entries(found[0], "", is_wanted)
    return found if all(quote(name) == name for name in found) else []


def _entries(folder: str, start: str, is_wanted: Callable[[Path], bool]) -> list[str]:
    """Wanted files and folders in a folder whose names begin so."""
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
