"""`cslc`: compile CSL for the simulated fabric, from the command line.

The flags follow the vendor's compiler (SDK 2.10 documentation, "CSL compiler").
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cstool import __version__
from cstool.csl.fabric.arch import ARCHS, ports_text
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.sdk.artifact import write_program
from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import CstoolError, fault_of
from cstool.foundation.plain_text import one_line

if TYPE_CHECKING:
    from cstool.csl.language.source import CslError

MOST_CHANNELS = 16
"""I/O channels that memcpy can use (H16)"""
WEST, EAST, NORTH, SOUTH = 4, 3, 1, 1
"""columns and rows that memcpy takes around a program, the fabric's edge among them (H12)"""

Number = int | float | bool


class UsageError(CstoolError):
    """The command line is invalid."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, "cslc --help lists the flags")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile by the command line; return the exit code: 0, 1 for an error in the program, 2 in the command line."""
    words = sys.argv[1:] if arguments is None else arguments
    # This flag has a value only behind an equals sign.
    words = [f"{word}=" if word == "--output-json" else word for word in words]
    try:
        return _run(_flags().parse_intermixed_args(words))
    except KeyboardInterrupt:
        print("cslc: interrupted", file=sys.stderr)
        return 130
    except CstoolError as error:
        _complain(error)
        return error.exit_code
    except RecursionError:
        _complain(CstoolError("the program is nested too deeply to be compiled"))
        return 1
    except (OSError, MemoryError) as error:
        _complain(fault_of(error) or CstoolError(str(error)))
        return 2


def _complain(error: CstoolError) -> None:
    # An error with a place begins with it, as compilers do; others begin with the name of the program.
    placed = getattr(error, "place", None) is not None
    print(error if placed else f"cslc: error: {error}", file=sys.stderr)


def _flags() -> argparse.ArgumentParser:
    parser = _Parser(prog="cslc", description="Compile a CSL program for the simulated fabric.", allow_abbrev=False)
    add = parser.add_argument
    several: dict[str, Any] = {"action": "append", "default": []}
    near = "(default: as near as does)"
    number: dict[str, Any] = {"metavar": "N", "type": _whole}
    add("layouts", metavar="LAYOUT.csl", nargs="+", help="the file with the layout block; with --check, several")
    add("--check", action="store_true", help="write nothing; print all errors, a line each, for editors")
    add(
        "-o",
        dest="output",
        metavar="DIRECTORY",
        type=Path,
        default=Path("out"),
        help="where to write to (default: out)",
    )
    add("--arch", metavar="ARCH", type=_arch, default="wse2", help="wse2 or wse3 (default: wse2)")
    add("--fabric-dims", metavar="W,H", type=_pair, help="columns and rows of the fabric (default: as few as do)")
    add("--fabric-offsets", metavar="X,Y", type=_pair, help=f"where the program's rectangle begins {near}")
    add("--params", metavar="NAME:VALUE,...", help="values of the layout's params; repeatable", **several)
    add("--colors", metavar="NAME:VALUE,...", help="likewise, params that are colors", **several)
    add("--memcpy", action="store_true", help="let the host copy, stream, and launch")
    add("--channels", default=1, help="I/O channels of the host, 1 to 16 (default: 1)", **number)
    add("--width-west-buf", default=0, help="columns of buffers west of the program", **number)
    add("--width-east-buf", default=0, help="columns of buffers east of the program", **number)
    add("--import-path", metavar="DIRECTORY", help="where imported files are looked for, too", **several)
    add("--max-inlined-iterations", help="iterations of one loop at compile time, at most", **number)
    add("--comptime-func-depth-limit", help="calls within calls at compile time, at most", **number)
    add("--fp16-format", metavar="FORMAT", default="f16", help="16-bit floats (only f16 is simulated)")
    add("--output-json", metavar="FILE", help="write the parameters to a file of their own (default: DIRECTORY.json)")
    add("--out-routes", action="store_true", help="print every route")
    add("--max-parallelism", help="taken, and without effect", **number)
    add("-g0", action="store_true", help="likewise")
    add("--warnings-as-errors", action="store_true", help="write nothing if there is a warning")
    add("--verbose", action="store_true", help="say what was compiled")
    add("--version", action="version", version=f"cslc of cstool {__version__}")
    return parser


def _run(flags: argparse.Namespace) -> int:
    if len(flags.layouts) > 1 and not flags.check:
        raise UsageError(f"one layout is compiled at a time, got {len(flags.layouts)}: {' '.join(flags.layouts)}")
    if not flags.check:
        _compile(Path(flags.layouts[0]), flags)
        return 0
    return max([_check(Path(layout), flags) for layout in flags.layouts])


def _options(path: Path, flags: argparse.Namespace) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """Arguments of `compile_csl` by name, and the values of params and of colors as text."""
    if not path.is_file():
        raise UsageError(
            f"{path}: must be a file with a layout block, {'is none' if path.exists() else 'is not there'}"
        )
    if not 1 <= flags.channels <= MOST_CHANNELS:
        raise UsageError(f"--channels: must be 1 to {MOST_CHANNELS}, got {flags.channels}")
    if flags.fp16_format != "f16":
        raise UsageError(f"--fp16-format: only f16 is simulated, got {flags.fp16_format}")
    params, texts = _assignments("--params", flags.params)
    colors, color_texts = _assignments("--colors", flags.colors)
    for name, color in colors.items():
        if type(color) is not int:
            raise UsageError(f"--colors: {name} must be a whole number, got {color_texts[name]}")
    limits = ("max_inlined_iterations", "comptime_func_depth_limit")
    extra = {name: value for name in limits if (value := getattr(flags, name)) is not None}
    extra |= {
        "arch": flags.arch,
        "params": params,
        "fabric_dims": flags.fabric_dims,
        "fabric_offsets": flags.fabric_offsets,
        "memcpy": flags.memcpy,
        "channels": flags.channels,
        "import_paths": [*flags.import_path, *filter(None, os.environ.get("CSL_IMPORT_PATH", "").split(os.pathsep))],
        "colors": {name: int(color) for name, color in colors.items()},
    }
    return extra, texts, color_texts


def _check(path: Path, flags: argparse.Namespace) -> int:
    """Print the errors of a program; return the exit code."""
    from cstool.csl.language.check import check_csl
    from cstool.csl.language.source import CslError

    warnings: list[CslError] = []
    errors = check_csl(path, on_warning=warnings.append, **_options(path, flags)[0])
    for kind, found in (("error", errors), ("warning", warnings)):
        for problem in found:
            print("\n".join(problem_lines(problem, kind, one_line(str(path)))))
    return int(bool(errors) or (bool(warnings) and flags.warnings_as_errors))


def _compile(path: Path, flags: argparse.Namespace) -> None:
    # It takes a while to import, and `--help` does not need it.
    from cstool.csl.language.compile import compile_csl
    from cstool.csl.language.source import CslError

    warnings: list[CslError] = []
    options, texts, color_texts = _options(path, flags)
    program = compile_csl(path, say=print, on_warning=warnings.append, **options)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if warnings and flags.warnings_as_errors:
        raise CstoolError(f"--warnings-as-errors: there must be no warning, got {len(warnings)}")
    fabric, offset = place(
        program, flags.fabric_dims, flags.fabric_offsets, flags.memcpy, flags.width_west_buf, flags.width_east_buf
    )
    program = replace(
        program,
        params=texts | color_texts,
        colors=color_texts,
        fabric=fabric,
        offset=offset,
        channels=flags.channels,
    )
    try:
        write_program(program, flags.output)
    except OSError as error:
        # The system does not say which file a full disk has no room for.
        error.filename = error.filename or str(flags.output)
        raise
    if flags.output_json is not None:
        target = Path(flags.output_json or f"{flags.output}.json")
        write_replacing(target, json.dumps({"params": dict(program.params), "colors": color_texts}, indent=1) + "\n")
    if flags.out_routes:
        print("".join(f"{line}\n" for line in routes_text(program)), end="")
    if flags.verbose:
        print(summary_text(program, flags.output))


def problem_lines(error: "CslError", kind: str, layout: str) -> list[str]:
    """An error in lines that editors know, `file:line:column: error: message`; its notes and its hint are `note`.

    Args:
        error: the error
        kind: "error" or "warning"
        layout: name of the layout's file, for an error that is in no place
    """
    told = f"{layout}:1:1" if error.place is None else str(error.place)
    text = error.message.removeprefix(f"{told}: ")
    # Nobody can open a file of the library: the first place in the program stands for one.
    notes = [(str(place), text) for place, text in error.notes if not place.source.name.startswith("<")]
    where = notes[0][0] if told.startswith("<") and notes else told
    found = [] if where == told else [(where, f"it was found at {told}")]
    hint = [] if error.hint is None else [(where, error.hint)]
    lines = [f"{place}: note: {one_line(text)}" for place, text in [*found, *notes, *hint]]
    return [f"{where}: {kind}: {text}", *lines]


def place(
    program: FabricProgram,
    fabric: tuple[int, int] | None,
    offset: tuple[int, int] | None,
    memcpy: bool,
    west_buffer: int = 0,
    east_buffer: int = 0,
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Check that a program fits the fabric, where memcpy takes columns and rows around it (H12).

    Args:
        program: its rectangle
        fabric: columns and rows; None: the fewest possible
        offset: x and y of the rectangle; None: the nearest to the edge
        memcpy: whether memcpy needs its columns and rows
        west_buffer, east_buffer: columns of buffers

    Returns:
        columns and rows of the fabric, x and y of the rectangle

    Raises:
        UsageError: it does not fit
    """
    west, east, north, south = (WEST + west_buffer, EAST + east_buffer, NORTH, SOUTH) if memcpy else (0, 0, 0, 0)
    why = " with --memcpy" if memcpy else ""
    x, y = offset or (west, north)
    if x < west or y < north:
        raise UsageError(
            f"--fabric-offsets: must be at least {west},{north}{why}, got {x},{y}", f"--fabric-offsets={west},{north}"
        )
    least = (x + program.width + east, y + program.height + south)
    fabric = fabric or least
    if fabric[0] < least[0] or fabric[1] < least[1]:
        raise UsageError(
            f"--fabric-dims: must be at least {least[0]},{least[1]}{why} for a program of {program.width} x "
            f"{program.height} PEs at {x},{y}, got {fabric[0]},{fabric[1]}",
            f"--fabric-dims={least[0]},{least[1]}",
        )
    return fabric, (x, y)


def routes_text(program: FabricProgram) -> list[str]:
    """Every color of every PE, a line each: its routes by switch position."""
    lines = []
    for color, table in sorted(program.routes.items()):
        for y in range(program.height):
            for x in range(program.width):
                if table[y, x] >= 0:
                    config = program.configs[table[y, x]]
                    routes = ", ".join(
                        f"{ports_text(each.rx, '+', 'none')} -> {ports_text(each.tx, '+', 'none')}"
                        for each in config.positions
                    )
                    lines.append(f"PE {x}.{y} color {color}: {routes}")
    return lines


def summary_text(program: FabricProgram, folder: Path) -> str:
    """The text of `--verbose`."""
    most = max((sum(size for _, size in each.sram) for each in program.programs), default=0)
    return (
        f"{folder}: {program.width} x {program.height} PEs of {program.arch}, {len(program.programs)} distinct "
        f"programs, {len(program.routes)} colors, at most {most} bytes of SRAM"
    )


def _arch(text: str) -> str:
    if text not in ARCHS:
        raise argparse.ArgumentTypeError(f"must be {' or '.join(sorted(ARCHS))}, got {text!r}")
    return text


def _pair(text: str) -> tuple[int, int]:
    try:
        first, second = (int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be two whole numbers, like 8,3, got {text!r}") from None
    if min(first, second) < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, got {text!r}")
    return first, second


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    return int(text)


def _assignments(flag: str, texts: Sequence[str]) -> tuple[dict[str, Number], dict[str, str]]:
    """Values by name, and the same as text."""
    values: dict[str, Number] = {}
    written: dict[str, str] = {}
    for entry in (entry.strip() for text in texts for entry in text.split(",") if entry.strip()):
        name, colon, text = (part.strip() for part in entry.partition(":"))
        if not colon or not name.isidentifier():
            raise UsageError(f"{flag}: must be NAME:VALUE,..., got {one_line(entry)!r}")
        if name in values:
            raise UsageError(f"{flag}: {name} must be given once, it is there twice")
        values[name] = _number(flag, name, text)
        # Host scripts say int(params["N"]), so 0x10 is written as 16.
        written[name] = str(values[name]) if type(values[name]) is int else text
    return values, written


def _number(flag: str, name: str, text: str) -> Number:
    if text in ("true", "false"):
        return text == "true"
    for kind in (lambda text: int(text, 0), int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    raise UsageError(f"{flag}: {name} must be a number, true or false, got {text!r}")


if __name__ == "__main__":
    sys.exit(main())
