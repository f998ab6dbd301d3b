"""`cslfmt`: format files of CSL, from the command line."""

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from cstool import __version__
from cstool.csl.language.format import formatted
from cstool.csl.language.source import CslError, Source, text_of
from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import CstoolError, fault_of
from cstool.foundation.plain_text import one_line


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"cslfmt: error: {message}\nhint: cslfmt --help lists the flags", file=sys.stderr)
        raise SystemExit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Format by the command line; return the exit code.

    It is 0; 1 for a syntax error, or with `--check` for a file that is not formatted; 2 for a file that cannot be read
    or written.
    """
    try:
        flags = _flags().parse_args(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    return max(_handle(name, flags) for name in flags.files)


def _flags() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="cslfmt",
        description="Format files of CSL in place. A file with a syntax error stays as it is.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+", help="a file of CSL; -: read stdin, and write to stdout")
    add("--check", action="store_true", help="write nothing; the exit code is 1 if a file is not formatted")
    add("--diff", action="store_true", help="write nothing; print what would change")
    add("--version", action="version", version=f"cslfmt of cstool {__version__}")
    return parser


def _handle(name: str, flags: argparse.Namespace) -> int:
    """Format one file; return its exit code."""
    try:
        return _format(name, flags)
    except CslError as error:
        print(error if error.place is not None else f"cslfmt: error: {error}", file=sys.stderr)
        return error.exit_code
    except CstoolError as error:
        print(f"cslfmt: error: {error}", file=sys.stderr)
    except OSError as error:
        fault = fault_of(error) or CstoolError(f"{name}: {error.strerror or error}")
        print(f"cslfmt: error: {fault}", file=sys.stderr)
    return 2


def _format(name: str, flags: argparse.Namespace) -> int:
    is_stdin = name == "-"
    shown = "<stdin>" if is_stdin else one_line(name)
    if not is_stdin and not Path(name).is_file():
        raise CstoolError(f"{name}: must be a file, {'is none' if Path(name).exists() else 'is not there'}")
    text = sys.stdin.read() if is_stdin else text_of(name, shown)
    made = formatted(Source(shown, text))
    if flags.diff:
        lines = difflib.unified_diff(text.splitlines(True), made.splitlines(True), shown, f"{shown} formatted")
        for line in lines:
            print(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n", end="")
    if flags.check:
        if made != text:
            print(f"{shown}: is not formatted", file=sys.stderr)
        return int(made != text)
    if is_stdin and not flags.diff:
        print(made, end="")
    elif made != text and not flags.diff:
        # A link stays one, and a file keeps its permissions.
        path = Path(name).resolve()
        mode = path.stat().st_mode
        write_replacing(path, made)
        path.chmod(mode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
