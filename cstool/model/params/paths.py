"""Paths of a params file: against the file's folder first, then against the working directory."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, ValidationInfo

from cstool.foundation.plain_text import has_controls
from cstool.foundation.yaml_lines.section import rule_error

PLAIN_PATH = "must be a path without control characters"
"""rule of every path: a line end in it would end a line of scripts and logs"""
_VARIABLE = re.compile(r"\$[A-Za-z_]\w*")


@dataclass(frozen=True)
class ResolvedPath:
    """A path that was looked for.

    Args:
        path: the first candidate that existed when the file was read, else the first one; absolute
        tried: all candidates, absolute
    """

    path: Path
    tried: tuple[Path, ...] = field(compare=False)

    @property
    def now(self) -> Path:
        """The first candidate that exists by now, else as above: something may have been written since."""
        return next(filter(_is_there, self.tried), self.path)


def resolve_path(written: str | Path, folder: Path) -> ResolvedPath:
    """Resolve a path as written in a params file that lies in `folder`; of `DIR:STEP` the folder must be there."""
    expanded = Path(written).expanduser()
    # A stock file counts as if it lay in a folder below the working directory, from where ../datasets leads into that,
    # and not beside it.
    starts = (folder, Path.cwd()) if folder.is_dir() else (folder,)
    candidates = [Path(os.path.abspath(start / expanded)) for start in starts]
    tried = tuple(dict.fromkeys(candidates))
    return ResolvedPath(next(filter(_is_there, tried), tried[0]), tried)


def _expand(written: Any) -> Any:
    return os.path.expandvars(written) if isinstance(written, str) else written


def _plain(written: str) -> str:
    if has_controls(written):
        raise rule_error(PLAIN_PATH)
    return written


def _resolve(written: Any, info: ValidationInfo) -> Any:
    if not isinstance(written, str) or not written:
        raise rule_error("must be a path")
    return resolve_path(_plain(written), (info.context or {})["folder"])


PathText = Annotated[str, AfterValidator(_plain)]
"""field of a section: a path as it is written"""
WrittenPath = Annotated[ResolvedPath, BeforeValidator(_resolve), PlainSerializer(lambda found: str(found.path))]
"""field of a section: a resolved path, written as it is now"""
AliasedPath = Annotated[WrittenPath, BeforeValidator(_expand)]
"""likewise; in it $NAME stands for a variable of the environment, such as MODELZOO_ROOT in the vendor's files"""


def unset_variable(path: Path) -> str | None:
    """Return the variable of the environment that an `AliasedPath` names and that is not set, if there is one."""
    return next((part[1:] for part in path.parts if _VARIABLE.fullmatch(part)), None)


def _is_there(path: Path) -> bool:
    folder, colon, _ = str(path).rpartition(":")
    return path.exists() or (bool(colon) and Path(folder).is_dir())
