"""`cslc`: its flags, what they come to, and what it refuses."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cstool.csl.fabric.program import FabricProgram
from cstool.csl.language.source import CslError, Place, Source
from cstool.csl.sdk import cslc
from cstool.csl.sdk.artifact import read_program
from tests.unit.csl.sdk.sdk_programs import arrays_program, routed_program

HELP = "\nhint: cslc --help lists the flags"
LAYOUT = "layout { @set_rectangle(3, 2); }\n"
PLAIN: dict[str, Any] = {"path": Path("layout.csl"), "arch": "wse2", "params": {}, "memcpy": False, "channels": 1}
PLAIN |= {"fabric_dims": None, "fabric_offsets": None, "import_paths": [], "colors": {}}
"""what the compiler is called with for `cslc layout.csl`"""


Ended = Callable[[str], tuple[int, str, str]]


class Compiler:
    """Stands in for the compiler: it notes what it is called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.warning: CslError | None = None
        self.result: FabricProgram | Exception = arrays_program()

    def __call__(self, path: Path, **arguments: Any) -> FabricProgram:
        self.say, self.warn = arguments.pop("say"), arguments.pop("on_warning")
        self.calls.append({"path": path, **arguments})
        if self.warning is not None:
            self.say("hello")
            self.warn(self.warning)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    """A compiler that notes its calls, in a directory with a layout.csl."""
    module = ModuleType("cstool.csl.language.compile")
    compiler = Compiler()
    module.compile_csl = compiler  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cstool.csl.language.compile", module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CSL_IMPORT_PATH", raising=False)
    Path("layout.csl").write_text(LAYOUT)
    return compiler


@pytest.fixture
def ended(capsys: pytest.CaptureFixture[str]) -> Ended:
    """Run `cslc` with a line; the exit code, the output and the errors."""
    return lambda line: (cslc.main(line.split()), *capsys.readouterr())


def test_the_vendors_line(compiler):
    line = (
        "--arch=wse3 ./layout.csl --fabric-dims=11,5 --fabric-offsets=4,1 --params=N:4,x:-3 "
        "--params=M:0x10,f:1.5,g:true -o out --memcpy --channels 2 --width-west-buf=0 --width-east-buf 0"
    )
    assert cslc.main(line.split()) == 0
    (call,) = compiler.calls
    given = {"arch": "wse3", "fabric_dims": (11, 5), "fabric_offsets": (4, 1), "memcpy": True, "channels": 2}
    assert call == {**PLAIN, **given, "params": {"N": 4, "x": -3, "M": 16, "f": 1.5, "g": True}}
    told = json.loads(Path("out/out.json").read_text())
    assert told["params"] == {"N": "4", "x": "-3", "M": "16", "f": "1.5", "g": "true"}
    assert (told["fabric_dims"], told["fabric_offsets"], told["channels"]) == ([11, 5], [4, 1], 2)


def test_defaults(compiler):
    compiler.result = replace(arrays_program(), memcpy=False)
    assert cslc.main(["layout.csl"]) == 0
    assert compiler.calls == [PLAIN]
    assert read_program(Path("out")).fabric == (3, 2)
    assert read_program(Path("out")).offset == (0, 0)


def test_every_other_flag(compiler, monkeypatch, ended):
    monkeypatch.setenv("CSL_IMPORT_PATH", "c::d")
    line = (
        "--memcpy --colors=red:3,blue:4 --colors green:5 --import-path=a --import-path b --max-inlined-iterations=7 "
        "--comptime-func-depth-limit 8 --max-parallelism=2 -g0 --warnings-as-errors --fp16-format=f16 --output-json "
        "--out-routes --verbose -o=there layout.csl --params size:1,"
    )
    told = "there: 3 x 2 PEs of wse2, 1 distinct programs, 0 colors, at most 34 bytes of SRAM\n"
    assert ended(line) == (0, told, "")
    call = compiler.calls[0]
    assert call["colors"] == {"red": 3, "blue": 4, "green": 5}
    assert call["import_paths"] == ["a", "b", "c", "d"]
    assert (call["max_inlined_iterations"], call["comptime_func_depth_limit"]) == (7, 8)
    params = {"size": "1", "red": "3", "blue": "4", "green": "5"}
    assert json.loads(Path("there.json").read_text()) == {
        "params": params,
        "colors": {"red": "3", "blue": "4", "green": "5"},
    }
    assert json.loads(Path("there/out.json").read_text())["params"] == params
    assert json.loads(Path("there/out.json").read_text())["colors"] == {"red": "3", "blue": "4", "green": "5"}
    assert cslc.main(["layout.csl", "--memcpy", "--output-json=p.json", "--params=a:1", "-o", "other"]) == 0
    assert json.loads(Path("p.json").read_text()) == {"params": {"a": "1"}, "colors": {}}


def test_out_routes(compiler, ended):
    compiler.result = routed_program()
    assert ended("layout.csl --out-routes") == (0, "PE 0.0 color 5: RAMP -> WEST, WEST -> RAMP\n", "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "the following arguments are required: LAYOUT.csl" + HELP),
        ("layout.csl --arch=wse1", "argument --arch: must be wse2 or wse3, got 'wse1'" + HELP),
        ("layout.csl --chanels=1", "unrecognized arguments: --chanels=1" + HELP),
        ("layout.csl other.csl", "one layout is compiled at a time, got 2: layout.csl other.csl"),
        ("layout.csl --fabric-dims=8", "argument --fabric-dims: must be two whole numbers, like 8,3, got '8'" + HELP),
        ("layout.csl --fabric-offsets=-1,0", "argument --fabric-offsets: must not be negative, got '-1,0'" + HELP),
        ("layout.csl --channels=x", "argument --channels: must be a whole number, got 'x'" + HELP),
        ("layout.csl --channels=17", "--channels: must be 1 to 16, got 17"),
        ("layout.csl --channels=0", "--channels: must be 1 to 16, got 0"),
        ("layout.csl --params=N", "--params: must be NAME:VALUE,..., got 'N'"),
        ("layout.csl --params=N=4", "--params: must be NAME:VALUE,..., got 'N=4'"),
        ("layout.csl --params=N:four", "--params: N must be a number, true or false, got 'four'"),
        ("layout.csl --params=N:", "--params: N must be a number, true or false, got ''"),
        ("layout.csl --params=N:1 --params=N:2", "--params: N must be given once, it is there twice"),
        ("layout.csl --colors=red:1.5", "--colors: red must be a whole number, got 1.5"),
        ("layout.csl --fp16-format=cb16", "--fp16-format: only f16 is simulated, got cb16"),
        ("nothing.csl", "nothing.csl: must be a file with a layout block, is not there"),
        (".", ".: must be a file with a layout block, is none"),
    ],
)  # fmt: skip
def test_refused(compiler, ended, line, expected):
    assert ended(line) == (2, "", f"cslc: error: {expected}\n")
    assert compiler.calls == []
    assert not Path("out").exists()


OFFSETS = "--fabric-offsets: must be at least 4,1 with --memcpy, got {}\nhint: --fabric-offsets=4,1"
BUFFERS = "--width-west-buf=2 --width-east-buf=1"
DIMS = "--fabric-dims: must be at least {} for a program of 3 x 2 PEs at {}, got {}\nhint: --fabric-dims={}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--memcpy --fabric-dims=10,4 --fabric-offsets=4,1", None),
        ("--memcpy", None),
        ("--fabric-dims=3,2", None),
        ("--memcpy --fabric-dims=9,4 --fabric-offsets=4,1", DIMS.format("10,4 with --memcpy", "4,1", "9,4", "10,4")),
        ("--memcpy --fabric-dims=10,3", DIMS.format("10,4 with --memcpy", "4,1", "10,3", "10,4")),
        ("--memcpy --fabric-dims=99,99 --fabric-offsets=3,1", OFFSETS.format("3,1")),
        ("--memcpy --fabric-dims=99,99 --fabric-offsets=4,0", OFFSETS.format("4,0")),
        (f"--memcpy --fabric-dims=12,4 {BUFFERS}", DIMS.format("13,4 with --memcpy", "6,1", "12,4", "13,4")),
        ("--fabric-dims=2,2", DIMS.format("3,2", "0,0", "2,2", "3,2")),
    ],
)
def test_the_program_must_fit(compiler, ended, line, expected):
    code, _, error = ended(f"layout.csl {line}")
    assert (code, error) == ((0, "") if expected is None else (2, f"cslc: error: {expected}\n"))
    assert Path("out").exists() == (expected is None)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            CslError("@set_rectangle: must be called once", Place(Source("layout.csl", LAYOUT), 9, 23), "remove one"),
            "layout.csl:1:10: @set_rectangle: must be called once\n"
            "    layout { @set_rectangle(3, 2); }\n             ^^^^^^^^^^^^^^\nhint: remove one\n",
        ),
        (CslError("there must be a layout block", None), "cslc: error: there must be a layout block\n"),
        (RecursionError(), "cslc: error: the program is nested too deeply to be compiled\n"),
    ],
)
def test_errors_of_the_program(compiler, ended, error, told):
    compiler.result = error
    assert ended("layout.csl") == (1, "", told)


def test_warnings(compiler, ended):
    compiler.warning = CslError("a color is used twice", None)
    told = "warning: a color is used twice\n"
    as_error = "cslc: error: --warnings-as-errors: there must be no warning, got 1\n"
    assert ended("layout.csl --memcpy") == (0, "hello\n", told)
    assert ended("layout.csl --memcpy --warnings-as-errors -o=other") == (2, "hello\n", told + as_error)
    assert not Path("other").exists()


def test_what_cannot_be_written(compiler, ended):
    Path("out").write_text("a file")
    told = "cslc: error: out: cannot be read or written, got: File exists\n"
    assert ended("layout.csl --memcpy") == (2, "", told)


def test_help_and_version(capsys):
    for flag, expected in (("--help", "usage: cslc"), ("--version", "cslc of cstool")):
        with pytest.raises(SystemExit) as end:
            cslc.main([flag])
        assert end.value.code == 0
        assert capsys.readouterr().out.startswith(expected)
