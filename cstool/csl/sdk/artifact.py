"""A compiled program in a directory, as `cslc` writes it and the simulator reads it: all of it or an error.

- `out.json`: for people and host scripts: parameters, sizes, exported names, and a digest of every other file
- `bin/pe_N.py`: the code of the N-th distinct PE program, as Python text; `bin/pe_N.bin`: the first bytes of its SRAM;
  `bin/pe_N.json`: its tasks, queues, symbols
- `bin/fabric.json`, `bin/fabric.npz`: the program of each PE, and the routes of every color
"""

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.arch import ARCHS, COLORS, PORTS
from cstool.csl.fabric.arrays import DAMAGE, check_numbers, read_arrays, read_file
from cstool.csl.fabric.program import Exported, FabricProgram, HostPort, Initial, PEProgram
from cstool.csl.sdk.plain import from_plain, to_plain
from cstool.foundation.atomic_file import is_inner_name, write_replacing
from cstool.foundation.errors import CstoolError

FORMAT = 1
_ARRAYS = ("tiles", "routes", "programs", "data")
LETTERS = {"w": "u32", "i": "i32", "f": "f32", "H": "u16", "h": "i16", "e": "f16", "B": "u8", "b": "i8"}
"""CSL's names of element types, by their letter"""


class ProgramError(CstoolError):
    """A directory without a compiled program, or with an incomplete one."""


@dataclass(frozen=True)
class Summary:
    """Facts about a compiled program for host scripts.

    Args:
        path: its directory
        arch: "wse2" or "wse3"
        width, height: PEs of the rectangle
        fabric: columns and rows of the fabric
        offset: x and y of the rectangle in it
        memcpy: whether it was compiled with `--memcpy`
        exported: names for the host
        streams: colors by use
        ports: streams of single PEs
        origin: column and row by which host scripts know the first PE
        params: values of `--params`, as text
    """

    path: Path
    arch: str
    width: int
    height: int
    fabric: tuple[int, int]
    offset: tuple[int, int]
    memcpy: bool
    exported: tuple[Exported, ...]
    streams: Mapping[str, int]
    ports: tuple[HostPort, ...]
    origin: tuple[int, int]
    params: Mapping[str, str]


def write_program(program: FabricProgram, folder: Path) -> None:
    """Write a compiled program; it replaces an earlier one, other files of the directory stay.

    Raises:
        OSError: it cannot be written; then there is no whole program in the directory
    """
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (folder / "out.json").unlink()
    files: dict[str, bytes] = {}
    for number, each in enumerate(program.programs):
        files[f"pe_{number}.py"] = each.code.encode()
        files[f"pe_{number}.bin"] = each.memory
        files[f"pe_{number}.json"] = _json(to_plain(each, without=("code", "memory")))
    plain = to_plain(program, without=_ARRAYS)
    files["fabric.json"] = _json(
        plain | {"distinct": len(program.programs), "data": [each.variable for each in program.data]}
    )
    arrays: dict[str, NDArray[Any]] = {"tiles": program.tiles}
    arrays |= {f"color_{color}": route for color, route in program.routes.items()}
    for number, initial in enumerate(program.data):
        arrays |= {f"pes_{number}": initial.pes, f"data_{number}": initial.content}
    files["fabric.npz"] = _npz(arrays)
    temporary = folder / f".bin-{secrets.token_hex(4)}"
    temporary.mkdir()
    try:
        for name, content in files.items():
            (temporary / name).write_bytes(content)
        shutil.rmtree(folder / "bin", ignore_errors=True)
        os.rename(temporary, folder / "bin")
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    digests = {f"bin/{name}": hashlib.sha256(content).hexdigest() for name, content in files.items()}
    write_replacing(folder / "out.json", _json(_told(program) | {"files": digests}))


def read_summary(folder: Path) -> Summary:
    """Read the summary of a compiled program.

    Raises:
        ProgramError: there is no program, or it is damaged
    """
    told = _read_told(folder)
    with _damage(folder / "out.json"):
        exported = tuple(
            Exported(
                entry["name"],
                entry["kind"],
                _letter(entry["type"]) if entry["kind"] == "variable" else "w",
                entry.get("mutable", False),
                tuple(map(_letter, entry.get("parameters", ()))),
            )
            for entry in told["exported"]
        )
        return Summary(
            folder,
            told["arch"],
            *_pair(told["rectangle"]),
            _pair(told["fabric_dims"]),
            _pair(told["fabric_offsets"]),
            told["memcpy"],
            exported,
            dict(told["streams"]),
            from_plain(tuple[HostPort, ...], told.get("ports", [])),
            _pair(told.get("origin", (0, 0))),
            dict(told["params"]),
        )


def read_program(folder: Path) -> FabricProgram:
    """Read a compiled program, and check every file of it.

    Raises:
        ProgramError: there is no program, or it is damaged
    """
    told = _read_told(folder)
    with _damage(folder / "out.json"):
        digests = dict(told["files"])
    files = {}
    for name, digest in digests.items():
        if not is_inner_name(name):
            raise ProgramError(f"{folder / str(name)}: must be a file of the program, it is none", _AGAIN)
        try:
            content = read_file(folder / name)
        except OSError as error:
            raise ProgramError(f"{folder / name}: cannot be read, got: {error.strerror}", _AGAIN) from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise ProgramError(f"{folder / name}: must be as cslc wrote it, it was changed or cut short", _AGAIN)
        files[name] = content
    with _damage(folder):
        plain = json.loads(files["bin/fabric.json"])
        programs = tuple(
            from_plain(
                PEProgram,
                json.loads(files[f"bin/pe_{number}.json"]),
                code=_of_today(files[f"bin/pe_{number}.py"].decode()),
                memory=files[f"bin/pe_{number}.bin"],
            )
            for number in range(plain.pop("distinct"))
        )
    with _damage(folder / "bin/fabric.npz"):
        arrays = read_arrays(files["bin/fabric.npz"])
        tiles = arrays.pop("tiles")
        data = tuple(
            Initial(name, arrays.pop(f"pes_{number}"), arrays.pop(f"data_{number}"))
            for number, name in enumerate(plain.pop("data", ()))
        )
        routes = {int(name.removeprefix("color_")): table for name, table in arrays.items()}
    with _damage(folder):
        given = {"tiles": tiles, "routes": routes, "programs": programs, "data": data}
        program: FabricProgram = from_plain(FabricProgram, plain, **given)
        _check(program)
        return program


def _of_today(code: str) -> str:
    """Code of PEs with the modules that it imports where they are now: until 0.1 they were in `cstool.fabric`."""
    return re.sub(r"^from cstool\.fabric\.", "from cstool.csl.fabric.", code, flags=re.MULTILINE)


def _check(program: FabricProgram) -> None:
    """Check that the parts of a program fit together, or raise ValueError."""
    shape = program.height, program.width
    check_numbers(program.tiles, shape, len(program.programs))
    for color, table in program.routes.items():
        check_numbers(table, shape, len(program.configs))
        if not 0 <= color < COLORS:
            raise ValueError(f"there is no color {color}")
    for config in program.configs:
        sets = [ports for route in config.positions for ports in (route.rx, route.tx)]
        if not 0 <= config.current < len(config.positions) or not all(0 <= ports < 1 << len(PORTS) for ports in sets):
            raise ValueError("a route leads nowhere")
    if program.arch not in ARCHS or min(shape) < 1:
        raise ValueError("there is no such fabric")


_AGAIN = "compile the program again with cslc"


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Turn errors from reading damaged data into one message."""
    try:
        yield
    except DAMAGE as error:
        raise ProgramError(f"{path}: must hold a program as this version of cslc writes it", _AGAIN) from error


def _read_told(folder: Path) -> dict[str, Any]:
    try:
        text = read_file(folder / "out.json")
    except OSError as error:
        hint = "cslc layout.csl ... -o DIRECTORY writes one"
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise ProgramError(
                f"{folder}: must be a directory with a compiled program, has no out.json", hint
            ) from None
        raise ProgramError(f"{folder / 'out.json'}: cannot be read, got: {error.strerror}", hint) from None
    with _damage(folder / "out.json"):
        told = json.loads(text)
        if told["format"] != FORMAT:
            raise ValueError
        return dict(told)


def _told(program: FabricProgram) -> dict[str, Any]:
    """The contents of `out.json`, less the digests."""
    counts = np.bincount(program.tiles[program.tiles >= 0], minlength=len(program.programs))
    return {
        "format": FORMAT,
        "arch": program.arch,
        "params": dict(program.params),
        "colors": dict(program.colors),
        "rectangle": [program.width, program.height],
        "fabric_dims": list(program.fabric),
        "fabric_offsets": list(program.offset),
        "memcpy": program.memcpy,
        "channels": program.channels,
        "exported": [_told_export(number, each) for number, each in enumerate(program.exported)],
        "streams": dict(program.streams),
        "ports": to_plain(program.ports),
        "origin": list(program.origin),
        "programs": [
            {
                "file": each.name,
                "code": f"bin/pe_{number}.py",
                "pes": int(counts[number]),
                "sram_bytes": sum(size for _, size in each.sram),
            }
            for number, each in enumerate(program.programs)
        ],
    }


def _told_export(number: int, each: Exported) -> dict[str, Any]:
    told: dict[str, Any] = {"id": number, "name": each.name, "kind": each.kind}
    if each.kind == "variable":
        return told | {"type": LETTERS[each.letter], "mutable": each.mutable}
    return told | {"parameters": [LETTERS[letter] for letter in each.parameters]}


def _letter(name: str) -> str:
    return next(letter for letter, known in LETTERS.items() if known == name)


def _pair(value: Any) -> tuple[int, int]:
    first, second = value
    return int(first), int(second)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()
