"""`cstool fabric`: programs in CSL on the simulated fabric: runs, pictures and traces."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from cstool.csl.commands import fabric_debug
from cstool.foundation.errors import CstoolError
from cstool.foundation.terminal.command import command, new_group
from cstool.foundation.terminal.options import JsonOption, ThemeOption, argument, flag, option
from cstool.foundation.terminal.render import print_json, print_line

fabric_app = new_group(
    "Run programs in CSL on the simulated fabric, draw their routes, and profile them.",
    "cstool fabric examples",
    "cstool fabric run gemv",
    "cstool fabric routes gemv/out -o routes.svg",
    epilog="cslc and cs_python, which come with cstool, compile and run such programs as well. All cycles are "
    "simulated: counted in the simulator, measured on no wafer.",
)
OutputOption = Annotated[Path | None, option("--output -o", "FILE", "Write the picture to this file, .svg or .png.")]
OutDirArgument = Annotated[Path, argument("OUT_DIR", "Directory that cslc wrote.")]


@command(
    fabric_app,
    "run",
    "cstool fabric run gemv",
    "cstool fabric run gemv --arch wse3 --copy gemv_run --trace gemv.trace",
    short_help="Run the script of a directory, and count its cycles.",
)
def run(
    directory: Annotated[Path, argument("DIR", "Directory with a program in CSL and its command script.")],
    arch: Annotated[
        Literal["wse2", "wse3"], option("--arch", "wse2|wse3", "Run commands_wse2.sh, or commands_wse3.sh.")
    ] = "wse2",
    script: Annotated[str | None, option("--script", "NAME", "Run another script of the directory.")] = None,
    copy: Annotated[
        Path | None, option("--copy", "NEW_DIR", "Copy the directory to a new one first, and run it there.")
    ] = None,
    max_cycles: Annotated[int | None, option("--max_cycles", "N", "Give up after N simulated cycles.", min=1)] = None,
    trace: Annotated[
        Path | None, option("--trace", "FILE", "Record the run, cycle by cycle, for `cstool fabric trace`.")
    ] = None,
    memcpy: Annotated[
        Literal["direct", "modelled"],
        option("--memcpy", "direct|modelled", "Copies by the host take no cycles, or the cycles of the I/O channels."),
    ] = "direct",
    time: Annotated[
        Literal["simulator", "busy_wafer"],
        option("--time", "simulator|busy_wafer", "Count as the vendor's simulator does, or as a wafer at full load."),
    ] = "simulator",
    engine: Annotated[
        Literal["auto", "fast", "reference"],
        option("--engine", "auto|fast|reference", "Simulate compiled, or in Python; auto: by what is there sooner."),
    ] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Run the command script of a directory as it is, with the cslc and cs_python of this installation.

    The output of the script is shown while it runs. Then come the cycles of its last simulation, the load of its PEs,
    and its fullest link. The exit code is 0 if the script's is 0, else 1; 2 for an error that you can fix.
    """
    from cstool.csl.commands.fabric_report import print_stats, stats_document
    from cstool.csl.verbs import ScriptError, run_directory

    # One document is alone on stdout.
    stream = sys.stderr if as_json else sys.stdout
    done = run_directory(
        directory,
        arch,
        script=script,
        copy=copy,
        max_cycles=max_cycles,
        trace=trace,
        memcpy=memcpy,
        time=time,
        engine=engine,
        show=lambda line: print(line, file=stream, flush=True),
    )
    if as_json:
        found = None if done.stats is None else stats_document(done.stats)
        print_json({"script": done.script, "exit_code": done.code, "simulated": found})
    elif done.stats is not None:
        print()
        print_stats(done.stats, str(done.script))
    if done.code:
        raise ScriptError(f"{done.script}: must end with exit code 0, ended with {done.code}", "see what it said above")


command(
    fabric_app,
    "debug",
    "cstool fabric debug gemv",
    "cstool fabric debug gemv --commands commands.txt",
    short_help="Go through a program's simulation forward and back.",
)(fabric_debug.debug)


@command(
    fabric_app,
    "examples",
    "cstool fabric examples",
    "cstool fabric examples life -o life_run --arch wse3",
    short_help="List programs in CSL that come with cstool, or run one.",
)
def examples(
    name: Annotated[str | None, argument("[NAME]", "Program to run; without it, all are listed.")] = None,
    output: Annotated[
        Path | None, option("--output -o", "FOLDER", "New folder for the program and its picture; else NAME_run.")
    ] = None,
    arch: Annotated[Literal["wse2", "wse3"], option("--arch", "wse2|wse3", "Generation of the wafer.")] = "wse2",
    as_json: JsonOption = False,
) -> None:
    """List the programs in CSL of cstool's checkout, or copy one to a new folder and run it.

    A run is compared with a twin in NumPy or SciPy. Then come the largest difference, the simulated cycles, a published
    figure of a real wafer if there is one, and a picture of the result.
    """
    from cstool.csl.commands import examples_report
    from cstool.csl.verbs import ScriptError, list_examples, run_example

    if name is None:
        if output is not None:
            raise CstoolError(
                "--output: must come with NAME, which says what is run", "cstool fabric examples NAME -o FOLDER"
            )
        found = list_examples()
        if as_json:
            print_json({"examples": found})
        else:
            examples_report.print_examples(found)
        return
    stream = sys.stderr if as_json else sys.stdout
    folder = Path(f"{name}_run") if output is None else output
    done = run_example(name, folder, arch, show=lambda line: print(line, file=stream, flush=True))
    if as_json:
        print_json(examples_report.example_document(done))
    else:
        examples_report.print_example(done)
    if done.run.code:
        raise ScriptError(
            f"{done.run.script}: must end with exit code 0, ended with {done.run.code}", "see what it said above"
        )


@command(
    fabric_app,
    "routes",
    "cstool fabric routes out -o routes.svg",
    "cstool fabric routes out --color 3 -o color3.png",
    short_help="List the colors of a compiled program, and draw their routes.",
)
def routes(
    out_dir: OutDirArgument,
    output: OutputOption = None,
    color: Annotated[
        list[int] | None, option("--color", "N", "Draw this color alone; may be given several times.")
    ] = None,
    theme: ThemeOption = "light",
    as_json: JsonOption = False,
) -> None:
    """List the colors of a compiled program, and draw the route of each before it runs.

    In the picture each PE has the hue of its program; a dot marks a PE that sends, a ring a PE that receives. Letters
    are the positions of switches. Wavelets to a neighbour that does not take them are marked.
    """
    from cstool.csl.commands.fabric_report import print_colors
    from cstool.csl.verbs import draw_routes, load_program, short_path, used_colors

    _check_output(output)
    program = load_program(out_dir)
    if output is not None:
        draw_routes(program, output, short_path(out_dir), color or (), theme)
    used = used_colors(program)
    if as_json:
        print_json({"colors": used})
    else:
        print_colors(used)


@command(
    fabric_app,
    "heat",
    "cstool fabric heat sim_stats.json -o heat.svg",
    short_help="Report and draw the load of PEs and links in a run.",
)
def heat(
    stats: Annotated[Path, argument("DIR|FILE", "sim_stats.json of a run, or its directory.")],
    output: OutputOption = None,
    theme: ThemeOption = "light",
    as_json: JsonOption = False,
) -> None:
    """Report the load of PEs and links in a run, and draw it.

    The directory of the compiled program works, too, if the run was in its parent directory.
    """
    from cstool.csl.commands.fabric_report import print_stats, stats_document
    from cstool.csl.verbs import draw_heat, load_stats, short_path

    _check_output(output)
    found = load_stats(stats)
    if output is not None:
        draw_heat(found, output, short_path(stats), theme)
    if as_json:
        print_json(stats_document(found))
    else:
        print_stats(found, str(stats))


@command(
    fabric_app,
    "trace",
    "cstool fabric trace gemv.trace --pe 1.0",
    "cstool fabric trace gemv.trace --chrome gemv.json",
    "cstool fabric trace gemv.trace --format simfab -o gemv.log",
    short_help="Show the work of a PE, or the traffic of a link, from a recorded trace.",
)
def trace_(
    file: Annotated[Path, argument("FILE", "Trace that `cstool fabric run --trace` recorded.")],
    pe: Annotated[str | None, option("--pe", "X.Y", "Show the work of this PE, in order.")] = None,
    link: Annotated[
        str | None,
        option(
            "--link", "X.Y:PORT", "Show the wavelets that left this PE's router by RAMP, WEST, EAST, NORTH or SOUTH."
        ),
    ] = None,
    cycles: Annotated[str | None, option("--cycles", "FROM:TO", "Show these cycles alone.")] = None,
    chrome: Annotated[
        Path | None, option("--chrome", "FILE", "Write a file for Perfetto; with --pe, for that PE alone.")
    ] = None,
    format_: Annotated[
        Literal["simfab"] | None,
        option("--format", "simfab", "Write lines as the vendor's simulator does, for the viewer wse-viz."),
    ] = None,
    output: Annotated[
        Path | None, option("--output -o", "FILE", "Write them to this file; otherwise they go to stdout.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the work of a PE, cycle by cycle, or the traffic of a link, from a recorded trace.

    With --chrome, write a file for Perfetto, in which a cycle is a microsecond. With --format, write all of the trace
    in another format, and nothing else.
    """
    from cstool.csl.commands import fabric_report
    from cstool.csl.verbs import TraceQuestions, link_named, place_named

    place = None if pe is None else place_named(pe)
    router = None if link is None else link_named(link)
    span = _parse_cycles(cycles)
    asked = TraceQuestions(file)
    if output is not None and format_ is None:
        raise CstoolError("--output: must come with --format, which says what is written", "--format simfab")
    if format_ is not None:
        asked.write_simfab(output)
        if output is not None:
            print_line(f"written for wse-viz: {output}")
        return
    document: dict[str, object] = {}
    if chrome is not None:
        asked.write_chrome(chrome, () if place is None else (place,))
    if place is not None:
        spans, runs = asked.did(place)
        spans = [each for each in spans if each.end >= span[0] and each.begin <= span[1]]
        runs = [each for each in runs if each.end >= span[0] and each.begin <= span[1]]
        document |= {"did": spans, "came": runs}
        if not as_json:
            fabric_report.print_did(f"{place} ({asked.program_of(place)})", spans, runs)
    if router is not None:
        hops = [hop for hop in asked.carried(*router) if span[0] <= hop.time <= span[1]]
        document |= {"carried": hops}
        if not as_json:
            fabric_report.print_carried(f"{router[0]} to {router[1]}", hops)
    if as_json:
        print_json({"trace": asked.facts()} | document)
    elif not document:
        fabric_report.print_trace(asked.facts())
        if chrome is not None:
            print_line(f"written for Perfetto: {chrome}")


@command(
    fabric_app,
    "page",
    "cstool fabric page gemv.trace -o gemv.html",
    "cstool fabric page gemv.trace -o gemv.html --every 10",
    short_help="Write a recorded run as a page for a browser.",
)
def page(
    file: Annotated[Path, argument("FILE", "Trace that `cstool fabric run --trace` recorded.")],
    output: Annotated[Path, option("--output -o", "FILE", "Write the page to this file, .html.")],
    every: Annotated[
        int | None,
        option("--every", "N", "Show every Nth cycle; otherwise all of them, and fewer of a large run.", min=1),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a recorded run as one HTML file: a debugger for the browser that needs no network.

    It has the fabric at every cycle, with routes, load and waits; of each PE its tasks, operations, queues, variables
    and the lines of its source with their cycles; and the host's commands.
    """
    from cstool.csl.verbs import write_page

    if output.suffix.lower() not in (".html", ".htm"):
        raise CstoolError(f"--output: must end in .html, got {output}")
    done = write_page(file, output, every)
    if as_json:
        print_json({"page": str(done.path), "bytes": done.size, "every": done.every})
    else:
        shown = "every cycle" if done.every == 1 else f"one of {done.every:,} cycles"
        print_line(f"written for a browser: {done.path}, {done.size:,} bytes, {shown}")


@command(fabric_app, "builtins", "cstool fabric builtins", "cstool fabric builtins --markdown > builtins.md")
def builtins(
    markdown: Annotated[bool, flag("--markdown", "Print a table in Markdown.")] = False, as_json: JsonOption = False
) -> None:
    """List the builtins of CSL: the place and effect of each, or the reason for its refusal."""
    from cstool.csl.commands.fabric_report import builtins_markdown, print_builtins
    from cstool.csl.verbs import language_builtins

    found = language_builtins()
    if as_json:
        print_json({"builtins": found})
    elif markdown:
        print(builtins_markdown(found), end="")
    else:
        print_builtins(found)


def _check_output(path: Path | None) -> None:
    """Check the name of a picture, before anything takes time."""
    if path is not None and path.suffix.lower() not in (".svg", ".png"):
        raise CstoolError(f"--output: must end in .svg or .png, got {path}")


def _parse_cycles(text: str | None) -> tuple[int, int]:
    """Return the first and the last cycle that is asked for."""
    if text is None:
        return 0, sys.maxsize
    first, colon, last = text.partition(":")
    if colon and all(not part or part.isdecimal() for part in (first, last)):
        return int(first or 0), int(last or sys.maxsize)
    raise typer.BadParameter(f"must be FROM:TO, two cycles, got {text!r}", param_hint="--cycles")
