"""Programs in CSL on the simulated fabric: runs as their directory describes them, pictures, and traces.

The verbs behind `cstool fabric`. All cycles are simulated: counted in the simulator, measured on no wafer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cstool.csl.fabric import simfab, trace_view
from cstool.csl.fabric.arch import ARCHS, PORTS, RAMP
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.fabric.stats import FabricStats, read_stats
from cstool.csl.fabric.time_model import SIMULATOR, TIME_MODELS
from cstool.csl.fabric.trace import Place, read_trace
from cstool.csl.sdk.artifact import read_program
from cstool.csl.sdk.examples import CslExample, ExampleResult, copy_example, find_example, find_examples, read_result
from cstool.csl.sdk.variables import (
    ENGINE_VARIABLE,
    ENGINES,
    JOURNAL_VARIABLE,
    LIMIT_VARIABLE,
    MEMCPY,
    MEMCPY_VARIABLE,
    TIME_VARIABLE,
    TRACE_VARIABLE,
)
from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import CstoolError, TraceError
from cstool.foundation.words import check_choice

if TYPE_CHECKING:
    from cstool.foundation.drawing.page import Page

STATS = "sim_stats.json"


class ScriptError(CstoolError):
    """A script ended with an error, which it has printed itself."""

    exit_code = 1


@dataclass(frozen=True)
class FabricRun:
    """A run of a directory's script.

    Args:
        script: path of the script
        code: its exit code
        stats: counts of its last simulation; None if there was none
    """

    script: Path
    code: int
    stats: FabricStats | None


@dataclass(frozen=True)
class ExampleRun:
    """A run of a program under examples/csl.

    Args:
        example: the program
        folder: the folder it was copied to and ran in
        run: the run
        result: arrays and cycles that its script wrote; None if it wrote none
        picture: path of the picture; None if there is nothing to draw
    """

    example: CslExample
    folder: Path
    run: FabricRun
    result: ExampleResult | None
    picture: Path | None


class ColorUse(NamedTuple):
    """A color of a compiled program.

    Args:
        color: its number
        streams: its names in memcpy, if it is a stream
        routers: routers that have a route for it
        sends, takes: PEs that its routes begin at, and lead to
        positions: the largest number of its switch positions at a router
    """

    color: int
    streams: tuple[str, ...]
    routers: int
    sends: int
    takes: int
    positions: int


class BuiltinCoverage(NamedTuple):
    """A builtin in the documentation of CSL.

    Args:
        name: with its @
        arguments: their number, "2" or "2 to 3"; "" where it is refused
        where: its allowed places, in words
        arch: the generation, if only one has it; "" for both
        is_supported: whether it is supported
        meaning: in a few words, or the reason of its refusal
    """

    name: str
    arguments: str
    where: str
    arch: str
    is_supported: bool
    meaning: str


class PageFacts(NamedTuple):
    """A page that was written.

    Args:
        path: its file
        size: bytes
        every: cycles from sample to sample
    """

    path: Path
    size: int
    every: int


_WHERE = {"value": "anywhere", "comptime": "comptime block", "layout": "layout block", "run": "functions"}


def language_builtins() -> list[BuiltinCoverage]:
    """All builtins of CSL by name: their allowed places, and the refused ones with the reason."""
    from cstool.csl.language import builtins_dsd, builtins_handles, builtins_layout, builtins_program, builtins_values
    from cstool.csl.language.builtins_table import BUILTINS

    # Their import fills the table.
    assert all((builtins_dsd, builtins_handles, builtins_layout, builtins_program, builtins_values))
    return [
        BuiltinCoverage(
            f"@{name}",
            ""
            if entry.refused
            else str(entry.least)
            if entry.least == entry.most
            else f"{entry.least} to {entry.most}",
            ", ".join(_WHERE[where] for where in entry.where),
            entry.arch or "",
            entry.refused is None,
            entry.refused or entry.meaning,
        )
        for name, entry in sorted(BUILTINS.items())
    ]


def run_directory(
    directory: str | Path,
    arch: str = "wse2",
    *,
    script: str | Path | None = None,
    copy: str | Path | None = None,
    max_cycles: int | None = None,
    trace: str | Path | None = None,
    memcpy: str = "direct",
    time: str = SIMULATOR.name,
    engine: str = ENGINES[0],
    show: Callable[[str], None] = print,
    journal: Path | None = None,
) -> FabricRun:
    """Run the command script of a directory as it is, with the cslc and the cs_python of this installation.

    Args:
        directory: directory of the script, the CSL sources and the host script
        arch: "wse2" or "wse3"; selects the script: `commands_ARCH.sh`
        script: another name of the script
        copy: a new folder; the directory is copied to it first, and the script runs there. None: it runs in place
        max_cycles: the cycle at which a simulation gives up; None for no limit
        trace: a file for the trace
        memcpy: "direct": copies take no cycles; "modelled": words take their time on the I/O channels
        time: the model of time, "simulator" or "busy_wafer" (`fabric.time_model`)
        engine: "fast"; "reference": one PE at a time, in Python, as a trace takes it; "auto": by what is there sooner.
            Values and cycles are the same
        show: takes the output of the script, line by line
        journal: a directory for the requests of the host script (`sdk.journal`)

    Raises:
        CstoolError: there is no such script, or another argument is invalid
    """
    check_choice("arch", arch, [*ARCHS])
    check_choice("memcpy", memcpy, MEMCPY)
    check_choice("time", time, [*TIME_MODELS])
    check_choice("engine", engine, ENGINES)
    if max_cycles is not None and max_cycles < 1:
        raise CstoolError(f"max_cycles: must be at least 1, got {max_cycles}")
    folder = Path(directory)
    name = _script(folder, f"commands_{arch}.sh" if script is None else os.fspath(script))
    if trace is not None and not Path(trace).resolve().parent.is_dir():
        raise CstoolError(f"{trace}: cannot be written, there is no directory {Path(trace).resolve().parent}")
    if copy is not None:
        try:
            shutil.copytree(folder, copy)
        except FileExistsError:
            raise CstoolError(f"{copy}: must be a new folder, there is one already") from None
        except (OSError, shutil.Error) as error:
            raise CstoolError(f"{copy}: cannot be written: {getattr(error, 'strerror', None) or error}") from error
        folder = Path(copy)
    environment = _environment(
        {
            LIMIT_VARIABLE: max_cycles,
            TRACE_VARIABLE: None if trace is None else Path(trace).resolve(),
            MEMCPY_VARIABLE: memcpy,
            TIME_VARIABLE: time,
            ENGINE_VARIABLE: engine,
            JOURNAL_VARIABLE: journal,
        }
    )
    before = _written(folder / STATS)
    code = _run(["bash", name], folder, environment, show)
    return FabricRun(folder / name, code, load_stats(folder) if _written(folder / STATS) != before else None)


def debug_directory(
    directory: str | Path,
    arch: str = "wse2",
    *,
    script: str | Path | None = None,
    copy: str | Path | None = None,
    max_cycles: int | None = None,
    memcpy: str = "direct",
    time: str = SIMULATOR.name,
    simulation: int | None = None,
    commands: Iterable[str] | None = None,
    show: Callable[[str], None] = print,
) -> None:
    """Run the command script of a directory, then debug a simulation of it: `run_directory` has most arguments.

    Args:
        simulation: number of the simulation, from 1, if the script runs several; None: the last one
        commands: commands of the debugger, a line each; None: they are typed at the terminal
        show: takes lines of output

    Raises:
        CstoolError: no simulation began, there is none of that number, or one of `commands` is invalid
        ScriptError: the script failed before a simulation began
    """
    from cstool.csl.debugger.terminal import debug_recorded
    from cstool.csl.sdk.journal import simulations

    with tempfile.TemporaryDirectory(prefix="cstool-debug-") as kept:
        journal = Path(kept)
        if commands is None:
            show("the script runs first; Ctrl-C ends it, and what it has done by then is debugged")
        code: int | None = None
        try:
            code = run_directory(
                directory,
                arch,
                script=script,
                copy=copy,
                max_cycles=max_cycles,
                memcpy=memcpy,
                time=time,
                show=show,
                journal=journal,
            ).code
        except KeyboardInterrupt:
            show("")
        found = simulations(journal)
        if not found and code:
            raise ScriptError(
                f"{directory}: a simulation must begin, the script ended with {code} before one",
                "see what it said above",
            )
        if not found:
            raise CstoolError(f"{directory}: a simulation must begin, the script has begun none")
        if simulation is not None and not 1 <= simulation <= len(found):
            raise CstoolError(f"--simulation: must be 1 to {len(found)}, which the script has run, got {simulation}")
        number = simulation or len(found)
        ended = "was stopped" if code is None else f"ended with exit code {code}"
        of_all = "its simulation" if len(found) == 1 else f"simulation {number} of {len(found)}"
        show(f"the script {ended}; {of_all} is repeated here, moment by moment")
        done, failed = debug_recorded(found[number - 1], commands, show)
    if failed and commands is not None:
        raise CstoolError(f"debugger: each of its commands must be valid, {failed} of {done} were not")


def list_examples() -> list[CslExample]:
    """Return the programs under examples/csl by name.

    Raises:
        CstoolError: there is no checkout with them
    """
    return find_examples()


def run_example(
    name: str, target: str | Path, arch: str = "wse2", *, show: Callable[[str], None] = print
) -> ExampleRun:
    """Copy a program of examples/csl to a new folder, run it, and draw its result.

    Args:
        name: its name
        target: a new folder; the program comes into a folder of its name in it, beside what it shares with others
        arch: "wse2" or "wse3"
        show: takes the output of its script, line by line

    Raises:
        CstoolError: there is no such program, or the folder is not new
    """
    check_choice("arch", arch, [*ARCHS])
    example = find_example(name)
    folder = copy_example(example, Path(target))
    run = run_directory(folder, arch, show=show)
    result = read_result(folder)
    picture = None
    if result is not None and result.picture is not None and run.stats is not None:
        picture = Path(target) / f"{name}.png"
        _draw_result(example, result, run.stats, picture)
    return ExampleRun(example, folder, run, result, picture)


def _draw_result(example: CslExample, result: ExampleResult, stats: FabricStats, path: Path) -> None:
    from cstool.csl.pictures.result import result_page

    values = result.picture
    assert values is not None
    said = f"{example.summary}: {stats.width} x {stats.height} PEs of {stats.arch}, simulated."
    _write(lambda: result_page(values, example.name, said, result.of, upward=result.upward), path, "light")


def load_stats(path: str | Path) -> FabricStats:
    """Read the counts of a run.

    Args:
        path: its `sim_stats.json`, the directory of the run, or the directory of the compiled program in it

    Raises:
        CstoolError: the file is missing, or damaged
    """
    found = Path(path)
    if found.is_dir():
        beside = [found / STATS, found.resolve().parent / STATS]
        if not any(each.is_file() for each in beside):
            hint = "a run writes it at its end: `cstool fabric run DIR`"
            raise CstoolError(f"{path}: must have a {STATS}, in it or beside it, it has none", hint)
        found = next(each for each in beside if each.is_file())
    return read_stats(found)


def load_program(directory: str | Path) -> FabricProgram:
    """Read a compiled program.

    Args:
        directory: a directory written by cslc

    Raises:
        CstoolError: there is no program, or it is damaged
    """
    return read_program(Path(directory))


def used_colors(program: FabricProgram) -> list[ColorUse]:
    """The routes of each color of a program, in the order of their numbers."""
    found = []
    for color in sorted(program.routes):
        counts = program.configs_of(color)
        streams = tuple(name for name, stream in program.streams.items() if stream == color)
        most = max((len(config.positions) for config, _ in counts), default=0)
        found.append(ColorUse(color, streams, sum(count for _, count in counts), *program.ends_of(color), most))
    return found


def draw_routes(
    program: FabricProgram, path: str | Path, title: str, colors: Sequence[int] = (), theme: str = "light"
) -> None:
    """Draw the routes of a program into a file, a panel for each color.

    Args:
        program: the compiled program
        path: .svg or .png
        title: name of the program
        colors: colors to draw; () for all
        theme: "light" or "dark"

    Raises:
        CstoolError: a color has no route, or the file cannot be written
    """
    from cstool.csl.pictures.routes import routes_page

    known = sorted(program.routes)
    if not known:
        raise CstoolError(f"{title}: must route a color, routes none: there is nothing to draw")
    for color in colors:
        if color not in program.routes:
            raise CstoolError(f"color: must be one of {', '.join(map(str, known))}, which have routes, got {color}")
    _write(lambda: routes_page(program, title, list(dict.fromkeys(colors)) or None), path, theme)


def draw_heat(stats: FabricStats, path: str | Path, title: str, theme: str = "light") -> None:
    """Draw the load of PEs and links.

    Args:
        stats: counts of a run
        path: .svg or .png
        title: name of the program or run
        theme: "light" or "dark"

    Raises:
        CstoolError: the file cannot be written
    """
    from cstool.csl.pictures.heat import heat_page

    _write(lambda: heat_page(stats, title), path, theme)


class TraceQuestions:
    """Questions to a recorded trace of the fabric.

    Args:
        path: path of the trace

    Raises:
        TraceError: the file is missing, or no trace
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.trace = read_trace(self.path)

    def facts(self) -> dict[str, str]:
        """The size of the trace, and its wafer."""
        trace = self.trace
        return {
            "PEs": f"{trace.width:,} x {trace.height:,} of {trace.arch}",
            "time": f"simulated, as {TIME_MODELS[trace.time].text} has it",
            "cycles": f"0 to {trace.end:,}",
            "tasks": f"{int((trace.marks['kind'] == 0).sum()):,}",
            "operations": f"{int((trace.marks['kind'] == 2).sum()):,}",
            "hops of wavelets": f"{len(trace.hops['time']):,}",
        } | ({"cut": "more happened than was recorded"} if trace.is_cut else {})

    def did(self, place: Place) -> tuple[list[trace_view.Span], list[trace_view.Run]]:
        """The acts of a PE, and the wavelets that came to it."""
        pe = self._index(place)
        return trace_view.spans(self.trace, pe), trace_view.runs(self.trace, pe, RAMP)

    def carried(self, place: Place, port: str) -> list[trace_view.Hop]:
        """Wavelets that left the router of a PE by a port."""
        return trace_view.hops(self.trace, self._index(place), PORTS.index(port))

    def write_chrome(self, path: Path, places: Sequence[Place]) -> None:
        """Write it for Perfetto; places are PEs to show, () for all."""
        for place in places:
            self._index(place)
        trace_view.chrome_trace(self.trace, self.path.name, places).write(path)

    def write_simfab(self, path: Path | None) -> None:
        """Write it as the vendor's simulator writes lines; None: to stdout.

        Raises:
            CstoolError: the file cannot be written
        """
        found = simfab.lines(self.trace)
        if path is None:
            sys.stdout.writelines(f"{line}\n" for line in found)
            return
        try:
            write_replacing(path, "".join(f"{line}\n" for line in found))
        except OSError as error:
            raise CstoolError(f"{path}: cannot be written, got: {error.strerror or error}") from error

    def program_of(self, place: Place) -> str:
        """The file that a PE's program was compiled from; "no program" where it has none."""
        number = int(self.trace.tiles[place.y, place.x])
        return "no program" if number < 0 else self.trace.programs[number]

    def _index(self, place: Place) -> int:
        trace = self.trace
        if not (0 <= place.x < trace.width and 0 <= place.y < trace.height):
            within = f"PE 0.0 to PE {trace.width - 1}.{trace.height - 1}"
            raise CstoolError(f"{self.path}: must be asked for a PE within {within}, got {place}")
        return place.y * trace.width + place.x


def write_page(trace: str | Path, path: str | Path, every: int | None = None) -> PageFacts:
    """Write a recorded run as one HTML file, which needs no network.

    Args:
        trace: path of the trace
        path: of the page, .html
        every: cycles from sample to sample; None: as many as keep the page small, 1 for most runs

    Raises:
        TraceError: there is no trace, or it has no events
        CstoolError: the page is too large, or cannot be written
    """
    from cstool.csl.page.page import LARGEST, MOST_CYCLES, fitting_sampling, page_of

    if every is not None and every < 1:
        raise CstoolError(f"every: must be at least 1, got {every}")
    found, target = Path(trace), Path(path)
    if found.is_dir() or not found.exists():
        what = "it is a directory" if found.is_dir() else "there is none"
        raise TraceError(
            f"{trace}: must be a recorded trace, {what}", "`cstool fabric run DIR --trace FILE` records one"
        )
    run = read_trace(found)
    if not run.end:
        hint = "a trace has events from the first launch, or the first wavelet, on"
        raise TraceError(f"{trace}: must have events, has none", hint)
    if run.last > MOST_CYCLES:
        raise TraceError(f"{trace}: must have at most 2^50 cycles for a page, has {run.last:,}")
    chosen = fitting_sampling(run) if every is None else every
    content = page_of(run, short_path(found), chosen).encode()
    if len(content) > LARGEST:
        size = f"{run.width:,} x {run.height:,} PEs and {run.end:,} cycles"
        raise CstoolError(
            f"{path}: a page must have at most {LARGEST:,} bytes, that of {size} has {len(content):,}",
            f"--every {2 * chosen * len(content) // LARGEST} samples it more, or run it with fewer PEs",
        )
    try:
        write_replacing(target, content)
    except OSError as error:
        raise CstoolError(f"{path}: cannot be written: {error.strerror or error}") from error
    return PageFacts(target, len(content), chosen)


def short_path(path: str | Path) -> str:
    """The name of a directory or a file on a picture: its own behind the name of the directory around it."""
    found = Path(path).resolve()
    return f"{found.parent.name}/{found.name}" if found.parent.name else found.name


def place_named(text: str) -> Place:
    """A PE by `X.Y`.

    Raises:
        CstoolError: it has another form
    """
    x, dot, y = text.partition(".")
    if not (dot and x.isdecimal() and y.isdecimal()):
        raise CstoolError(f"a PE must be X.Y, its column and row, got {text!r}", "for example 1.0")
    return Place(int(x), int(y))


def link_named(text: str) -> tuple[Place, str]:
    """A link by `X.Y:PORT`, the router and the port that wavelets leave it by.

    Raises:
        CstoolError: it has another form
    """
    place, _, port = text.partition(":")
    if port.upper() not in PORTS:
        raise CstoolError(
            f"a link must be X.Y:PORT, PORT one of {', '.join(PORTS)}, got {text!r}", "for example 1.0:EAST"
        )
    return place_named(place), port.upper()


def _script(folder: Path, name: str) -> str:
    if not folder.is_dir():
        raise CstoolError(f"{folder}: must be a directory with a program in CSL, there is none")
    if (folder / name).is_file():
        return name
    others = sorted(path.name for path in folder.glob("*.sh"))
    raise CstoolError(
        f"{folder}: must have {name}, has {', '.join(others) or 'no script'}",
        f"--script {others[0]} runs that one" if others else "--script NAME says what it is called",
    )


def _environment(variables: Mapping[str, object]) -> dict[str, str]:
    """The environment of a script: it finds cslc and cs_python of this installation; None takes a variable away."""
    programs = Path(sysconfig.get_path("scripts"))
    missing = [name for name in ("cslc", "cs_python") if not (programs / name).is_file()]
    if missing:
        raise CstoolError(f"{programs}: must have {' and '.join(missing)}, which come with cstool", "install it again")
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    for name, value in variables.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = str(value)
    # The output of scripts is shown as it comes.
    return {**environment, "PYTHONUNBUFFERED": "1"}


def _run(command: Sequence[str], folder: Path, environment: dict[str, str], show: Callable[[str], None]) -> int:
    """Run a command in a folder, show its output line by line, and return its exit code."""
    sys.stdout.flush()
    try:
        running = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise CstoolError(f"{command[0]}: cannot be run: {error.strerror}") from error
    with running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                show(line.rstrip("\n"))
            return running.wait()
        except BaseException:
            running.terminate()
            raise


def _written(path: Path) -> tuple[int, int] | None:
    """Values that change when a file is written again."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _write(draw: Callable[[], Page], path: str | Path, theme: str) -> None:
    """Draw a picture, and write it."""
    from cstool.foundation.drawing.figure import write_figure

    try:
        write_figure(draw, Path(path), theme)
    except OSError as error:
        raise CstoolError(f"{path}: cannot be written: {error.strerror}") from error
