"""`cs_python`: how scripts are run, and how they end."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cstool.csl.sdk.artifact import write_program
from cstool.csl.sdk.cs_python import main
from cstool.csl.sdk.missing_modules import MODULES
from tests.unit.csl.sdk.conftest import forked
from tests.unit.csl.sdk.sdk_programs import arrays_program

COMMAND = [sys.executable, "-m", "cstool.csl.sdk.cs_python"]


SERVE = (
    "from cerebras.sdk.runtime.sdkruntimepybind import SdkRuntime, MemcpyDataType, MemcpyOrder\n"
    "r = SdkRuntime('out')\nr.load()\nr.run()\n"
)


def cs_python(*arguments: str) -> tuple[int, str, str]:
    ended = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=300, check=False)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to run in; the checkout can be imported from everywhere."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[4]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_script_is_run_as_python_runs_it(here: Path) -> None:
    (here / "lib").mkdir()
    (here / "lib/beside.py").write_text("import numpy as np\ndef shifted(): return np.uint16(3) << 16\n")
    (here / "lib/run.py").write_text(
        "import sys, beside\n"
        "import cerebras.sdk.sdk_utils, cerebras.geometry.geometry, cerebras.sdk.debug.debug_util\n"
        "print(__name__, __file__, sys.argv, sys.path[0], beside.shifted(), sys.modules['__main__'].__file__)\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    code, output, error = cs_python("lib/run.py", "7", "--name", "out")
    assert (code, error) == (7, "")
    assert output == f"__main__ lib/run.py ['lib/run.py', '7', '--name', 'out'] {here}/lib 196608 lib/run.py\n"
    assert sorted(path.name for path in (here / "lib").rglob("*")) == ["beside.py", "run.py"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "output", "error"),
    [
        (["-c", "import sys; print(sys.argv, cerebras.__path__ and 1)", "a"], "", 1, "", None),
        (["-c", "import sys, cerebras; print(sys.argv)", "a"], "", 0, "['-c', 'a']\n", ""),
        (["-c", "import sys; sys.exit('no')"], "", 1, "", "no\n"),
        (["-c", "raise KeyboardInterrupt"], "", 130, "", None),
        (["-", "b"], "import sys; print(sys.argv)", 0, "['-', 'b']\n", ""),
        (["-m", "module", "c"], "", 0, "__main__ c\n", ""),
        (["-u", "-c", "print(1)"], "", 0, "1\n", ""),
    ],
)
def test_ways_to_run(here: Path, arguments: list[str], stdin: str, code: int, output: str, error: str | None) -> None:
    (here / "module.py").write_text("import sys; print(__name__, sys.argv[1])")
    found = forked(*arguments, stdin=stdin)
    assert found[:2] == (code, output)
    assert error is None or found[2] == error


def test_tracebacks_are_the_scripts_own(here: Path) -> None:
    (here / "run.py").write_text("def f(x):\n    return x + None\nf(1)\n")
    code, _, error = forked("run.py")
    lines = error.splitlines()
    assert code == 1
    assert lines[:3] == ["Traceback (most recent call last):", '  File "run.py", line 3, in <module>', "    f(1)"]
    assert [line for line in lines if line.startswith("  File")][1:] == ['  File "run.py", line 2, in f']
    assert lines[-1] == "TypeError: unsupported operand type(s) for +: 'int' and 'NoneType'"
    (here / "run.py").write_text("x = = 1\n")
    code, _, error = forked("run.py")
    lines = error.splitlines()
    assert (code, lines[0], lines[-1]) == (1, '  File "run.py", line 1', "SyntaxError: invalid syntax")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.py"], "nothing.py: cannot be read, got: No such file or directory"),
        (["--fast", "run.py"], "--fast: no such flag"),
        (["-c"], "-c: must be followed by a command"),
        (["-m"], "-m: must be followed by a module"),
    ],
)
def test_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr() == ("", f"cs_python: error: {message}\n")


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert [main(arguments) for arguments in (["--help"], [])] == [0, 2]
    shown = capsys.readouterr()
    assert shown.out == shown.err
    assert shown.out.startswith("usage: cs_python SCRIPT.py [ARGUMENTS...]\n")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("cs_python of cstool ")


def test_the_error_of_a_program_ends_the_script(here: Path) -> None:
    write_program(arrays_program(), here / "out")
    (here / "run.py").write_text(SERVE + "r.launch('bad', nonblock=False)\nprint('not here')\n")
    code, output, error = cs_python("run.py")
    assert (code, output) == (1, "")
    assert error.splitlines()[-1] == "cstool.csl.sdk.client.SdkRuntimeError: PE 0.0, pe.csl:7:3: A must be positive"
    assert "error: PE 0.0, pe.csl:7:3: A must be positive" in (here / "sim.log").read_text()


def test_a_scripts_directory_does_not_reach_the_simulator(here: Path) -> None:
    write_program(arrays_program(), here / "out")
    (here / "json.py").write_text("raise SystemExit('shadowed')")
    (here / "sub").mkdir()
    (here / "sub/run.py").write_text(SERVE + "r.stop()\nprint('SUCCESS')\n")
    assert cs_python("sub/run.py") == (0, "SUCCESS\n", "")


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "r.launch('slow', 4_000_000_000)"])
def test_the_simulator_ends_with_the_script(here: Path, end: str) -> None:
    write_program(arrays_program(), here / "out")
    (here / "run.py").write_text(
        f"{SERVE}import os\nr.launch('scale', 1, nonblock=True)\nprint(r._simulator._process.pid, flush=True)\n{end}\n"
    )
    ended = subprocess.run([*COMMAND, "run.py"], stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    process = int(ended.stdout)
    status = Path(f"/proc/{process}/stat")
    for _ in range(100):
        # Nobody may have waited for it yet: then it is a zombie.
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail(f"process {process} is still there")


NO_MODULE = "ModuleNotFoundError: No module named "


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import cerebras.elf.cs_elf_runner",
         f"{NO_MODULE}'cerebras.elf': a compiled program has no ELF files here, and no CSELFRunner\n"
         "hint: SdkRuntime of cerebras.sdk.runtime.sdkruntimepybind copies and launches; its read_symbol reads "
         "variables of PEs"),
        ("from cerebras.sdk.runtime.cs_runtime import CSRuntime",
         f"{NO_MODULE}'cerebras.sdk.runtime.cs_runtime': it came before SdkRuntime\n"
         "hint: SdkRuntime of cerebras.sdk.runtime.sdkruntimepybind copies and launches"),
        ("import cerebras.sdk.runtme.sdkruntimepybind",
         f"{NO_MODULE}'cerebras.sdk.runtme'\nhint: did you mean runtime?"),
        ("import cerebras.qqq",
         f"{NO_MODULE}'cerebras.qqq'\nhint: cs_python has {', '.join(MODULES)}"),
        ("import nothing", f"{NO_MODULE}'nothing'"),
        ("from cerebras.sdk.sdk_utils import memcpy_vew",
         "ImportError: cannot import name 'memcpy_vew' from 'cerebras.sdk.sdk_utils' (FILE)\n"
         "hint: did you mean memcpy_view?"),
        ("from cerebras.sdk import client, sdk_utils, qux",
         "ImportError: cannot import name 'qux' from 'cerebras.sdk' (FILE)\n"
         "hint: it has client, debug, runtime, sdk_utils"),
    ],
)  # fmt: skip
def test_imports_of_what_is_not_there(line: str, expected: str) -> None:
    code, output, error = forked("-c", line)
    assert (code, output) == (1, "")
    head = f'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\n    {line}\n'
    assert re.sub(r"\(/.*\)", "(FILE)", error) == f"{head}{expected}\n"


def test_all_modules_are_there() -> None:
    lines = "".join(f"import {name}\n" for name in MODULES)
    check = "try: import cerebras.none\nexcept ModuleNotFoundError: print('none')\n"
    assert forked("-c", lines + check) == (0, "none\n", "")
