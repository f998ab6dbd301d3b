"""The programs under examples/csl of a checkout: their places, subjects, and the result of a run.

A program is a folder with `layout.csl`, `pe.csl`, `run.py` and a script for each generation. The text at the head of
`run.py` says in its first line what is computed; paragraphs `Source:` and `Published:` may follow. The script ends with
`host.check`, which writes `result.npz`.
"""

from __future__ import annotations

import ast
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cstool
from cstool.csl.fabric.arrays import read_arrays, read_file
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import did_you_mean

RESULT = "result.npz"
WHERE = Path("examples", "csl")
CHECKOUT = Path(cstool.__file__).resolve().parents[1]
"""the folder of this package; of a checkout, it has the examples, too"""
_LEFT_BEHIND = shutil.ignore_patterns("out", "other", "sim.log", "sim_stats.json", RESULT, "__pycache__")


@dataclass(frozen=True)
class CslExample:
    """A program under examples/csl.

    Args:
        name: of its folder
        folder: its folder
        summary: its subject, in one line
        source: of the algorithm, or ""
        published: a figure of a real wafer with its source, or ""
    """

    name: str
    folder: Path
    summary: str
    source: str
    published: str


@dataclass(frozen=True)
class ExampleResult:
    """Arrays that a script compared with its twin, and its measurements.

    Args:
        found: result of the fabric, any shape
        expected: result of the twin, of the same shape
        tolerance: largest difference that the script allows
        picture: numbers to draw, of one or two dimensions; None if there is nothing
        of: contents of the picture, in words
        upward: whether its first row is at the bottom
        cycles: simulated cycles of one `per`; 0 if the script measured none
        per: unit of the cycles, such as "iteration"
    """

    found: NDArray[Any]
    expected: NDArray[Any]
    tolerance: float
    picture: NDArray[Any] | None
    of: str
    upward: bool
    cycles: float
    per: str

    @property
    def difference(self) -> float:
        """Largest difference between fabric and twin."""
        return float(np.abs(self.found.astype(np.float64) - self.expected.astype(np.float64)).max(initial=0))


def examples_folder() -> Path:
    """The folder of the programs: of the checkout that this package is in, else below the current folder.

    Raises:
        CstoolError: there is none
    """
    for folder in (CHECKOUT / WHERE, WHERE):
        if (folder / "host.py").is_file():
            return folder
    raise CstoolError(
        f"{WHERE}: must be in a checkout of cstool or below the current folder, there is none",
        "an installed package has no programs: type the command in a checkout of cstool's sources",
    )


def find_examples() -> list[CslExample]:
    """All programs by name.

    Raises:
        CstoolError: there is no folder of programs, or the head of a script is damaged
    """
    return [_read(script) for script in sorted(examples_folder().glob("*/run.py"))]


def find_example(name: str) -> CslExample:
    """The program of a name.

    Raises:
        CstoolError: there is none
    """
    found = {path.parent.name: path for path in sorted(examples_folder().glob("*/run.py"))}
    if name not in found:
        hint = did_you_mean(name, [*found]) or "`cstool fabric examples` lists all"
        raise CstoolError(f"NAME: must be a program under {WHERE}, got {name!r}", hint)
    return _read(found[name])


def copy_example(example: CslExample, target: Path) -> Path:
    """Copy a program, and the files that programs share, to a new folder; return the program's own folder in it.

    Raises:
        CstoolError: the folder is there already, or cannot be written
    """
    try:
        target.mkdir(parents=True)
        for path in sorted(example.folder.parent.iterdir()):
            if path.is_dir() and (path.name == example.name or not (path / "run.py").is_file()):
                shutil.copytree(path, target / path.name, ignore=_LEFT_BEHIND)
            elif path.suffix == ".py":
                shutil.copy(path, target)
    except FileExistsError:
        raise CstoolError(f"{target}: must be a new folder, there is one already", "-o FOLDER names another") from None
    except (OSError, shutil.Error) as error:
        raise CstoolError(f"{target}: cannot be written: {getattr(error, 'strerror', None) or error}") from error
    return target / example.name


def read_result(folder: Path) -> ExampleResult | None:
    """The result that the script of a program wrote in its folder; None if it wrote nothing.

    Raises:
        CstoolError: the file is damaged
    """
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        arrays = read_arrays(read_file(path))
        found, expected, picture = arrays["found"], arrays["expected"], arrays["picture"]
        if found.shape != expected.shape or picture.ndim > 2:
            raise ValueError(f"shapes {found.shape}, {expected.shape}, {picture.shape}")
        return ExampleResult(
            *(found, expected, float(arrays["tolerance"])),
            *(picture if picture.size else None, str(arrays["of"]), bool(arrays["upward"])),
            *(float(arrays["cycles"]), str(arrays["per"])),
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CstoolError(f"{path}: must be written by host.check, it is not, or is damaged", "run it again") from error


def _read(script: Path) -> CslExample:
    try:
        text = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
    except (OSError, SyntaxError, ValueError) as error:
        raise CstoolError(f"{script}: must be a script in Python, got: {error}") from error
    summary, *paragraphs = (" ".join(part.split()) for part in (text or "").split("\n\n"))
    said = {key: rest.strip() for key, colon, rest in (part.partition(":") for part in paragraphs) if colon}
    return CslExample(
        script.parent.name, script.parent, summary.rstrip("."), said.get("Source", ""), said.get("Published", "")
    )
