"""`cs_python`: run a host script that can import the package `cerebras`.

It runs in this Python, and ends like the script: with its exit code, or with a traceback and 1.
"""

import ast
import itertools
import linecache
import os
import runpy
import sys
import traceback
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cstool import __version__
from cstool.csl.sdk.legacy_numbers import compile_script, install
from cstool.csl.sdk.missing_modules import Finder, note_on
from cstool.foundation.errors import CstoolError

SITE = Path(__file__).resolve().parent / "site"
"""folder of the package `cerebras`"""
_USAGE = """\
usage: cs_python SCRIPT.py [ARGUMENTS...]
       cs_python -c COMMAND [ARGUMENTS...]
       cs_python -m MODULE [ARGUMENTS...]

Run a host script: Python with the package `cerebras`, whose SdkRuntime runs what cslc compiled on the simulated fabric.
Arithmetic of NumPy scalars with Python's integers is that of NumPy 1, in 64 bits.
"""
_FILES = ("cs_python.py", "legacy_numbers.py", "missing_modules.py")
_OURS = (
    *(str(Path(__file__).resolve().with_name(name)) for name in _FILES),
    ast.__file__,
    "<frozen runpy",
)
"""files whose frames are not shown in tracebacks"""
_PACKAGE = f"{SITE.parents[1]}{os.sep}"
"""files whose frames, and all below, are not shown for an error that they raise: the user can mend the script alone"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code, unless the script itself ends the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    while words and words[0] in ("-u", "-B", "-s", "-E"):  # of Python's own, without effect here
        words.pop(0)
    if not words or words[0] in ("-h", "--help"):
        print(_USAGE, end="", file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        print(f"cs_python of cstool {__version__}, Python {sys.version.split()[0]}")
        return 0
    if words[0] in ("-c", "-m"):
        if len(words) < 2:
            return _refuse(f"{words[0]}: must be followed by a {'command' if words[0] == '-c' else 'module'}")
        kind, what, rest = words[0], words[1], words[2:]
    elif words[0].startswith("-") and words[0] != "-":
        return _refuse(f"{words[0]}: no such flag")
    else:
        kind, what, rest = "script", words[0], words[1:]
    try:
        return _run(kind, what, rest)
    finally:
        _flush()


def _run(kind: str, what: str, rest: list[str]) -> int:
    if kind == "script":
        source: bytes | str
        path = Path(what)
        try:
            source = sys.stdin.buffer.read() if what == "-" else path.read_bytes()
        except OSError as error:
            return _refuse(f"{what}: cannot be read, got: {error.strerror}")
        _prepare(str(path.resolve().parent) if what != "-" else "", [what, *rest])
        return _guarded(lambda: _execute(source, "<stdin>" if what == "-" else what))
    if kind == "-c":
        _prepare("", ["-c", *rest])
        # Tracebacks show lines of it.
        linecache.cache["<string>"] = (len(what), None, [line + "\n" for line in what.splitlines()], "<string>")
        return _guarded(lambda: _execute(what, "<string>"))
    _prepare(os.getcwd(), [what, *rest])
    return _guarded(lambda: runpy.run_module(what, run_name="__main__", alter_sys=True))


def _prepare(folder: str, argv: list[str]) -> None:
    """Set `sys.path` and `sys.argv` as Python does for a script, with the package after the script's directory."""
    if not sys.flags.safe_path and sys.path:
        sys.path.pop(0)  # the directory of this command
    sys.path[:0] = [folder, str(SITE)]
    sys.meta_path.append(Finder)
    sys.argv[:] = argv
    install()


def _execute(source: bytes | str, filename: str) -> None:
    module = types.ModuleType("__main__")
    module.__dict__.update({"__builtins__": __builtins__})
    if not filename.startswith("<"):
        module.__file__ = filename
    sys.modules["__main__"] = module
    exec(compile_script(source, filename), module.__dict__)


def _guarded(run: Any) -> int:
    """Run; return the exit code, and print errors, as Python would."""
    try:
        run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        note_on(error)
        report = traceback.TracebackException.from_exception(error)
        _leave_out(report, isinstance(error, CstoolError | KeyboardInterrupt))
        _flush()
        print("".join(report.format()), end="", file=sys.stderr)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _leave_out(report: traceback.TracebackException | None, of_script: bool) -> None:
    """Take frames of this program's out of a traceback; `of_script`: and all from the first of the package on."""
    while report is not None:
        kept = [frame for frame in report.stack if not frame.filename.startswith(_OURS)]
        if of_script:
            kept = list(itertools.takewhile(lambda frame: not frame.filename.startswith(_PACKAGE), kept))
        # A syntax error of the script has no frame of its own, and then no heading.
        report.stack = traceback.StackSummary.from_list(kept) if kept else None  # type: ignore[assignment]
        _leave_out(report.__cause__, of_script)
        report = report.__context__


def _flush() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # the reader is gone, or the script closed it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - it stays open until the process ends


def _refuse(message: str) -> int:
    print(f"cs_python: error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
