"""`cstool fabric debug`: a debugger for programs on the simulated fabric, in the terminal."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from cstool.foundation.errors import CstoolError
from cstool.foundation.terminal.options import argument, option


def debug(
    directory: Annotated[Path, argument("DIR", "Directory with a program in CSL and its command script.")],
    arch: Annotated[
        Literal["wse2", "wse3"], option("--arch", "wse2|wse3", "Run commands_wse2.sh, or commands_wse3.sh.")
    ] = "wse2",
    script: Annotated[str | None, option("--script", "NAME", "Run another script of the directory.")] = None,
    copy: Annotated[
        Path | None, option("--copy", "NEW_DIR", "Copy the directory to a new one first, and run it there.")
    ] = None,
    commands: Annotated[
        Path | None, option("--commands", "FILE", "Take commands from this file; without a terminal, from stdin.")
    ] = None,
    simulation: Annotated[
        int | None, option("--simulation", "N", "Debug the N-th simulation of the script.", show_default="the last one")
    ] = None,
    max_cycles: Annotated[int | None, option("--max_cycles", "N", "Give up after N simulated cycles.", min=1)] = None,
    memcpy: Annotated[
        Literal["direct", "modelled"],
        option("--memcpy", "direct|modelled", "Copies by the host take no cycles, or the cycles of the I/O channels."),
    ] = "direct",
    time: Annotated[
        Literal["simulator", "busy_wafer"],
        option("--time", "simulator|busy_wafer", "Count as the vendor's simulator does, or as a wafer at full load."),
    ] = "simulator",
) -> None:
    """Run the command script of a directory, then go through its simulation forward and back.

    The script runs to its end first, or until Ctrl-C, and the requests of its host script are recorded. The debugger
    repeats them, so it goes back as well as forward: breakpoints by task, line, color and cycle, watches, steps, looks
    at memory, queues, routes and waits. `help` lists its commands. The exit code is 2 if a command of --commands is
    invalid.
    """
    from cstool.csl.verbs import debug_directory

    lines: Iterable[str] | None = None
    if commands is not None:
        try:
            lines = commands.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
            raise CstoolError(f"{commands}: cannot be read, got: {reason}") from error
    elif not sys.stdin.isatty():
        lines = sys.stdin
    debug_directory(
        directory,
        arch,
        script=script,
        copy=copy,
        max_cycles=max_cycles,
        memcpy=memcpy,
        time=time,
        simulation=simulation,
        commands=lines,
        show=lambda line: print(line, flush=True),
    )
