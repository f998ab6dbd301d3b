"""The requests of a host script, kept in a file, so that a simulation can be repeated without the script.

A simulation depends on nothing but its program, its settings and the order of these requests. A journal is a directory
with a folder for each simulation, by number from 1: a copy of the compiled program in `program`, and `requests`: the
settings, then the requests, as messages of `wire`, each written before it is answered.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cstool.csl.fabric.host import Command, Host, Rectangle
from cstool.csl.sdk import wire

PROGRAM, REQUESTS = "program", "requests"


class Settings(NamedTuple):
    """Settings of a simulation, beside its program.

    Args:
        time: name of the model of time (`fabric.time_model`)
        modelled: whether copies of the host take their time on the I/O channels
        limit: limit of cycles; None: no limit
        folder: the directory that the script ran in
    """

    time: str
    modelled: bool
    limit: int | None
    folder: str


class JournalWriter:
    """Writes the requests of one simulation.

    Args:
        directory: the journal
        program: directory of the compiled program
        settings: settings of the simulation

    Raises:
        OSError: it cannot be written
    """

    def __init__(self, directory: Path, program: Path, settings: Settings) -> None:
        number = len(simulations(directory)) + 1
        while True:
            folder = directory / str(number)
            try:
                folder.mkdir()
                break
            except FileExistsError:  # a simulation beside this one has taken the number
                number += 1
        (folder / PROGRAM).mkdir()
        shutil.copy(program / "out.json", folder / PROGRAM)
        shutil.copytree(program / "bin", folder / PROGRAM / "bin")
        self._path = folder / REQUESTS
        self.write(settings._asdict())

    def write(self, header: dict[str, Any], words: wire.Words = wire.NO_WORDS) -> None:
        """Write one request, behind the others."""
        with self._path.open("ab") as file:
            wire.write(file, header, words)


class Journal:
    """The requests of one simulation.

    Args:
        folder: its folder in the journal

    Attributes:
        program: directory of the compiled program
        settings: settings of the simulation
    """

    def __init__(self, folder: Path) -> None:
        self.program = folder / PROGRAM
        messages = list(_messages(folder / REQUESTS))
        self.settings = Settings(**messages[0][0])
        self.requests = messages[1:]


def simulations(directory: Path) -> list[Path]:
    """The folders of the simulations in a journal, in the order in which they began."""
    return sorted((each for each in directory.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name))


def _messages(path: Path) -> Iterator[tuple[dict[str, Any], wire.Words]]:
    with path.open("rb") as file:
        while (message := wire.read(file)) is not None:
            yield message


def begin_command(host: Host, header: dict[str, Any], words: wire.Words) -> Command | None:
    """Begin the command of the host that a request asks for; None if it asks for something else.

    Raises:
        SimulationError: the command is invalid, or the program failed before it
    """
    match header["op"]:
        case "copy_in" | "stream_in" as op:
            at, shape = Rectangle(*header["at"]), header["shape"]
            # One row, or one column, stands for all where the script broadcasts it.
            values = np.broadcast_to(words.reshape(shape), (at.height, at.width, shape[2]))
            if op == "copy_in":
                return host.copy_in(header["to"], at, values, header["bits"], words.size)
            return host.stream_in(header["to"], at, values, header.get("text"))
        case "copy_out":
            return host.copy_out(header["from"], Rectangle(*header["at"]), header["elements"], header["bits"])
        case "stream_out":
            at = Rectangle(*header["at"])
            return host.stream_out(header["from"], at, header["elements"], header["bits"], header.get("text"))
        case "launch":
            return host.launch(header["name"], tuple(header["arguments"]))
    return None
