"""Compiled programs on disk: what was written is read, and what is damaged is refused."""

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from cstool.csl.fabric.program import FabricProgram
from cstool.csl.sdk.artifact import ProgramError, read_program, read_summary, write_program
from tests.unit.csl.sdk.sdk_programs import arrays_program, message, routed_program


def same(one: FabricProgram, other: FabricProgram) -> bool:
    arrays = [one.tiles, *(route for _, route in sorted(one.routes.items()))]
    others = [other.tiles, *(route for _, route in sorted(other.routes.items()))]
    assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(arrays, others, strict=True))
    nothing = np.zeros((0, 0), np.int32)
    assert one.routes.keys() == other.routes.keys()
    return replace(one, tiles=nothing, routes={}) == replace(other, tiles=nothing, routes={})


@pytest.mark.parametrize("program", [arrays_program(), routed_program()], ids=["arrays", "routed"])
def test_read_as_written(tmp_path: Path, program: FabricProgram) -> None:
    write_program(program, tmp_path / "deep" / "out")
    assert same(read_program(tmp_path / "deep" / "out"), program)


def test_code_of_an_earlier_version_imports_what_it_names_from_where_that_is_now(tmp_path: Path) -> None:
    program = arrays_program()
    (each,) = program.programs
    line = "from cstool{}.fabric.numbers import f16\n"
    write_program(replace(program, programs=(replace(each, code=line.format("")),)), tmp_path)
    assert read_program(tmp_path).programs[0].code == line.format(".csl")


def test_bytes_are_the_same_each_time(tmp_path: Path) -> None:
    for name in "ab":
        write_program(arrays_program(), tmp_path / name)
    files = [sorted(path for path in (tmp_path / name).rglob("*") if path.is_file()) for name in "ab"]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


def test_out_json_tells_people(tmp_path: Path) -> None:
    write_program(arrays_program(), tmp_path)
    told = json.loads((tmp_path / "out.json").read_text())
    files = told.pop("files")
    assert sorted(files) == ["bin/fabric.json", "bin/fabric.npz", "bin/pe_0.bin", "bin/pe_0.json", "bin/pe_0.py"]
    assert told == {
        "format": 1,
        "arch": "wse2",
        "params": {"N": "6"},
        "colors": {},
        "rectangle": [3, 2],
        "fabric_dims": [10, 4],
        "fabric_offsets": [4, 1],
        "memcpy": True,
        "channels": 1,
        "exported": [
            {"id": 0, "name": "A", "kind": "variable", "type": "u32", "mutable": True},
            {"id": 1, "name": "B", "kind": "variable", "type": "u16", "mutable": True},
            {"id": 2, "name": "fixed", "kind": "variable", "type": "i32", "mutable": False},
            {"id": 3, "name": "scale", "kind": "function", "parameters": ["u32"]},
            {"id": 4, "name": "slow", "kind": "function", "parameters": ["u32"]},
            {"id": 5, "name": "stuck", "kind": "function", "parameters": []},
            {"id": 6, "name": "bad", "kind": "function", "parameters": []},
        ],
        "streams": {"MEMCPYD2H_1": 1, "MEMCPYH2D_1": 0},
        "ports": [],
        "origin": [0, 0],
        "programs": [{"file": "pe.csl", "code": "bin/pe_0.py", "pes": 6, "sram_bytes": 34}],
    }
    assert "def program(pe):" in (tmp_path / "bin/pe_0.py").read_text()
    assert (tmp_path / "bin/pe_0.bin").read_bytes() == arrays_program().programs[0].memory


def test_summary(tmp_path: Path) -> None:
    write_program(arrays_program(), tmp_path)
    summary, program = read_summary(tmp_path), arrays_program()
    assert (summary.exported, summary.streams, summary.params) == (program.exported, program.streams, {"N": "6"})
    assert (summary.width, summary.height, summary.fabric, summary.offset) == (3, 2, (10, 4), (4, 1))
    assert (summary.memcpy, summary.arch) == (True, "wse2")


def test_a_new_program_replaces_all_of_the_old_one(tmp_path: Path) -> None:
    write_program(routed_program(), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    write_program(arrays_program(), tmp_path)
    assert same(read_program(tmp_path), arrays_program())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "notes.txt", "out.json"]
    assert not (tmp_path / "bin/pe_1.py").exists()


def refusal(path: Path) -> str:
    return message(lambda: read_program(path), ProgramError)


def test_missing(tmp_path: Path) -> None:
    assert refusal(tmp_path / "out") == (
        f"{tmp_path}/out: must be a directory with a compiled program, has no out.json\n"
        "hint: cslc layout.csl ... -o DIRECTORY writes one"
    )
    (tmp_path / "file").write_text("")
    assert refusal(tmp_path / "file").startswith(f"{tmp_path}/file: must be a directory with a compiled program")


@pytest.mark.parametrize("name", ["pe_0.py", "pe_0.bin", "pe_0.json", "fabric.json", "fabric.npz"])
def test_damage_is_found_in_every_file(tmp_path: Path, name: str) -> None:
    write_program(arrays_program(), tmp_path)
    path = tmp_path / "bin" / name
    content = path.read_bytes()
    for damaged in (content[:-1], content[:-1] + bytes([content[-1] ^ 1])):
        path.write_bytes(damaged)
        assert refusal(tmp_path) == (
            f"{path}: must be as cslc wrote it, it was changed or cut short\nhint: compile the program again with cslc"
        )
    path.unlink()
    assert refusal(tmp_path) == (
        f"{path}: cannot be read, got: No such file or directory\nhint: compile the program again with cslc"
    )


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 2}', '{"format": 1}', '{"format": 1, "files": 3}', "\x80"]
)
def test_damaged_out_json(tmp_path: Path, text: str) -> None:
    write_program(arrays_program(), tmp_path)
    (tmp_path / "out.json").write_text(text)
    expected = (
        f"{tmp_path}/out.json: must hold a program as this version of cslc writes it\n"
        "hint: compile the program again with cslc"
    )
    assert refusal(tmp_path) == expected
    assert message(lambda: read_summary(tmp_path), ProgramError) == expected


def test_interrupted_writing_leaves_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(arrays_program(), tmp_path)
    monkeypatch.setattr(Path, "write_bytes", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_program(routed_program(), tmp_path)
    monkeypatch.undo()
    assert "has no out.json" in refusal(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]
