"""The simulator process: it serves one host script over a socket, in order, and ends with it.

Requests are headers of `wire` with "op", "id" and "block". Each is answered once, when it is done: {"id"}
and words, or {"id", "error"}. "load", the first one, has no other fields. After an error nothing more is simulated.
"""

import json
import os
import queue
import signal
import socket
import sys
import threading
import time as clock
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cstool.csl.fabric.host import Command, Host
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.fabric.simulation import PATIENCE, Simulation
from cstool.csl.fabric.stats import stats_document
from cstool.csl.fabric.time_model import SIMULATOR, TIME_MODELS, TimeModel
from cstool.csl.fabric.watch import Watch
from cstool.csl.sdk import wire
from cstool.csl.sdk.artifact import read_program
from cstool.csl.sdk.engine import open_simulation
from cstool.csl.sdk.journal import JournalWriter, Settings, begin_command
from cstool.csl.sdk.sim_log import SimLog
from cstool.csl.sdk.sources import sources_of
from cstool.csl.sdk.variables import (
    JOURNAL_VARIABLE,
    LIMIT_VARIABLE,
    MEMCPY,
    MEMCPY_VARIABLE,
    TIME_VARIABLE,
    TRACE_VARIABLE,
)
from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import CstoolError, fault_of
from cstool.foundation.plain_text import one_line


class Session:
    """One host script's simulation.

    Args:
        connection: connection to the script
        folder: directory of the compiled program
    """

    def __init__(self, connection: socket.socket, folder: Path) -> None:
        self._connection = connection
        self._requests: queue.SimpleQueue[tuple[dict[str, Any], wire.Words]] = queue.SimpleQueue()
        self._open: list[tuple[int, Command]] = []
        self._failure: dict[str, Any] | None = None
        self._stopped = False
        self._traces: dict[int, list[str]] = {}  # lines of the programs of each PE that begin with "trace "
        self._log = SimLog()
        self._folder = folder
        self._recorder: Any = None
        self._journal: JournalWriter | None = None
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        self._load(folder)

    def _load(self, folder: Path) -> None:
        try:
            program = read_program(folder)
            time_model = _time_model()
            trace = os.environ.get(TRACE_VARIABLE)
            if trace:
                from cstool.csl.fabric.trace import Recorder

                self._recorder = Recorder(program, time_model=time_model)
            self.simulation = self._simulation(
                program,
                max_cycles=_limit(),
                patience=None if os.environ.get(LIMIT_VARIABLE) else PATIENCE,
                on_say=self._say,
                on_print=self._print,
                time_model=time_model,
            )
            self._host = Host(self.simulation, self._log.note, modelled=_modelled())
            if journals := os.environ.get(JOURNAL_VARIABLE):
                settings = Settings(time_model.name, _modelled(), _limit(), os.getcwd())
                self._journal = JournalWriter(Path(journals), folder, settings)
            Watch(self.simulation).start()
        except Exception as error:
            self._fail(error)

    def _simulation(self, program: FabricProgram, **how: Any) -> Any:
        """The engine: the fast one, unless the other one is asked for, or a trace, or is there sooner."""
        if self._recorder is None:
            return open_simulation(program, **how)
        return Simulation(program, on_trace=self._recorder, on_line=self._recorder.line, **how)

    def serve(self) -> None:
        """Answer requests until the script is gone; this does not return."""
        while True:
            header, words = self._requests.get()
            try:
                if self._failure is not None:
                    wire.send(self._connection, {"id": header["id"], "error": self._failure})
                    continue
                self._answer(header, words)
                self._settle()
            except OSError:
                os._exit(1)

    # --- requests ---

    def _answer(self, header: dict[str, Any], words: wire.Words) -> None:
        number = header["id"]
        try:
            if self._journal is not None:
                self._journal.write(header, words)
            answer = self._do(header, words)
            if isinstance(answer, Command):
                self._open.append((number, answer))
                if header["block"]:
                    self._host.finish(answer)
                    self._reply_done()
                    self._reply(number, answer)
                return
            self._reply_done()
            wire.send(self._connection, {"id": number}, wire.NO_WORDS if answer is None else answer)
        except Exception as error:
            self._fail(error)
            wire.send(self._connection, {"id": number, "error": self._failure})

    def _do(self, header: dict[str, Any], words: wire.Words) -> Command | wire.Words | None:
        """Begin a request; return the command that it waits for, or the words of the answer."""
        host = self._host
        command = begin_command(host, header, words)
        if command is not None:
            return command
        match header["op"]:
            case "poll" if not self._stopped:
                host.poll()
            case "wait":
                for number, command in self._open:
                    if number == header["task"]:
                        host.finish(command)
                        self._reply(number, command)
                        break
            case "memory":
                raw = bytes(self.simulation.pes[header["pe"]].u8)
                return np.frombuffer(raw + bytes(-len(raw) % 4), "<u4")
            case "trace":
                text = json.dumps(self._traces.get(header["pe"], [])).encode()
                return np.frombuffer(text + b" " * (-len(text) % 4), "<u4")
            case "dump":
                images = np.stack([np.frombuffer(bytes(each.u8), np.uint8) for each in self.simulation.pes])
                with open(header["path"], "wb") as file:
                    np.savez_compressed(file, sram=images.reshape(*self.simulation.program.tiles.shape, -1))
            case "stop" if not self._stopped:
                self._stop()
        return None

    def _stop(self) -> None:
        self._stopped = True
        for line in self._host.stop():
            self._log.note(self.simulation.events.now, f"warning: {line}")
            print(f"warning: {line}", file=sys.stderr, flush=True)
        self._finish()

    # --- the rest ---

    def _settle(self) -> None:
        """Simulate on, while the script computes, to the cycle at which its next request reaches the fabric."""
        if self._stopped or self._failure is not None or not self._requests.empty():
            return
        try:
            self._host.settle()
        except Exception as error:
            self._fail(error)
            return
        self._reply_done()

    def _reply(self, number: int, command: Command) -> None:
        """Answer a request, unless it is answered already."""
        if (number, command) not in self._open:
            return
        self._open.remove((number, command))
        wire.send(self._connection, {"id": number}, wire.NO_WORDS if command.result is None else command.result.ravel())

    def _reply_done(self) -> None:
        for number, command in list(self._open):
            if command.done:
                self._reply(number, command)

    def _fail(self, error: Exception) -> None:
        """Keep an error: every request from now on is answered with it."""
        known = error if isinstance(error, CstoolError) else fault_of(error)
        if known is None:
            text = traceback.format_exc()
            print(text, file=sys.stderr, flush=True)
            last = traceback.extract_tb(error.__traceback__)[-1]
            known = CstoolError(
                f"the simulator failed: {type(error).__name__}: {one_line(str(error))} ({last.filename}:{last.lineno})",
                "this is an error of cstool itself",
            )
        self._failure = {"message": known.message, "hint": known.hint, "report": getattr(known, "report", None)}
        now = self.simulation.events.now if hasattr(self, "simulation") else 0
        self._log.note(now, f"error: {known.message}")
        for line in (self._failure["report"] or "").splitlines():
            self._log.note(now, line)
        self._finish()

    def _finish(self) -> None:
        """Write the files of the run: log, counts, trace."""
        if hasattr(self, "simulation"):
            self.simulation.end_lines()
            document = stats_document(self.simulation)
            _leave("sim_stats.json", lambda name: write_replacing(Path(name), json.dumps(document) + "\n"))
        _leave("sim.log", lambda name: write_replacing(Path(name), str(self._log)))
        if self._recorder is not None:
            if hasattr(self, "simulation"):
                sources = sources_of(self.simulation.program, self._folder)
                told = self._recorder.context.at_end(self.simulation, sources, self._log.lines, self._told_failure())
                self._recorder.context = told
            _leave(os.environ[TRACE_VARIABLE], lambda name: self._recorder.save(Path(name)))

    def _told_failure(self) -> str:
        """The error that ended the run, with its hint and its report; "" for none."""
        if self._failure is None:
            return ""
        error = CstoolError(self._failure["message"], self._failure["hint"])
        return f"{error}\n\n{self._failure['report'] or ''}".rstrip()

    def _print(self, time: int, pe: int, text: str) -> None:
        self._log.say(self.simulation.events.now, pe, time, text)

    def _say(self, time: int, pe: int, text: str) -> None:
        if text.startswith("trace "):
            self._traces.setdefault(pe, []).append(text)
        self._log.say(self.simulation.events.now, pe, time, f"{self.simulation.program.name(pe)}: {text}")

    def _read(self) -> None:
        """Take requests as they come, so that the script never waits to send one."""
        while (message := wire.receive(self._connection)) is not None:
            self._requests.put(message)
        os._exit(0)


def _leave(name: str, write: Callable[[str], None]) -> None:
    """Write a file, by name; on failure print a warning, which does not spoil the run."""
    try:
        write(name)
    except OSError as error:
        print(f"warning: {name}: cannot be written, got: {error.strerror or error}", file=sys.stderr, flush=True)
    except CstoolError as error:
        print(f"warning: {error}", file=sys.stderr, flush=True)


def _limit() -> int | None:
    text = os.environ.get(LIMIT_VARIABLE) or "0"
    if not (text.isascii() and text.isdecimal()):
        raise CstoolError(f"{LIMIT_VARIABLE}: must be a whole number of cycles, got {text!r}")
    return int(text) or None


def _time_model() -> TimeModel:
    name = os.environ.get(TIME_VARIABLE) or SIMULATOR.name
    if name not in TIME_MODELS:
        raise CstoolError(f"{TIME_VARIABLE}: must be {' or '.join(TIME_MODELS)}, got {name!r}")
    return TIME_MODELS[name]


def _modelled() -> bool:
    text = os.environ.get(MEMCPY_VARIABLE) or "direct"
    if text not in MEMCPY:
        raise CstoolError(f"{MEMCPY_VARIABLE}: must be direct or modelled, got {text!r}")
    return text == "modelled"


def _end_with(parent: int) -> None:
    """End this process when the script's is gone, even if others still hold its socket."""
    while os.getppid() == parent:
        clock.sleep(0.5)
    os._exit(0)


def main(arguments: list[str]) -> None:
    """Serve the script at the other end of a socket, by its descriptor and the program's directory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the script; this process ends with it
    descriptor, folder = arguments
    Session(socket.socket(fileno=int(descriptor)), Path(folder)).serve()
