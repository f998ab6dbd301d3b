"""Breakpoints in a file, for another session with the same program."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from cstool.csl.fabric.program import FabricProgram
from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import CstoolError

FORMAT = 1


def digest_of(program: FabricProgram) -> str:
    """A digest of all that the breakpoints of a program depend on: its rectangle, its routes, its code."""
    found = hashlib.sha256(f"{program.arch} {program.width} {program.height} {sorted(program.routes)}".encode())
    found.update(program.tiles.tobytes())
    for each in program.programs:
        found.update(f"{each.name}\n{each.code}\n{sorted(each.statements.items())}".encode())
    return found.hexdigest()


def _about(program: FabricProgram) -> str:
    """A program in words."""
    files = ", ".join(dict.fromkeys(each.name for each in program.programs))
    params = ", ".join(f"{name}:{value}" for name, value in program.params.items())
    return f"{files} for {program.arch}, {program.width} x {program.height} PEs" + (f", {params}" if params else "")


def save(path: Path, program: FabricProgram, points: Sequence[str]) -> None:
    """Write breakpoints, as the user would type them.

    Raises:
        CstoolError: the file cannot be written
    """
    document = {"format": FORMAT, "program": _about(program), "digest": digest_of(program), "points": list(points)}
    try:
        write_replacing(path, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise CstoolError(f"{path}: cannot be written, got: {error.strerror or error}") from error


def load(path: Path, program: FabricProgram) -> list[str]:
    """Read breakpoints.

    Raises:
        CstoolError: the file cannot be read, is no such file, or is of another program
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CstoolError(f"{path}: cannot be read, got: {error.strerror or error}") from error
    except ValueError:
        document = None
    try:
        if document["format"] != FORMAT:
            raise ValueError
        about, digest, points = str(document["program"]), document["digest"], list(map(str, document["points"]))
    except (TypeError, KeyError, ValueError):
        raise CstoolError(
            f"{path}: must hold breakpoints of the debugger, it does not", "save FILE writes them"
        ) from None
    if digest != digest_of(program):
        raise CstoolError(
            f"{path}: must be of this program ({_about(program)}), it is of another one ({about})",
            "the sources may have changed since; lines and names may be others now",
        )
    return points
