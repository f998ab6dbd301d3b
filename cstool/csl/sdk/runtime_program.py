"""The part of `SdkRuntime` that needs no memcpy: the life of a program, its names and places, and its memory."""

import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.operations import DTYPES
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.sdk import wire
from cstool.csl.sdk.artifact import ProgramError, read_program, read_summary
from cstool.csl.sdk.checks import Point, listed, point_of, whole_numbers
from cstool.csl.sdk.client import SdkRuntimeError, Simulator, Task
from cstool.csl.sdk.platforms import SdkCompileArtifacts, SdkExecutionPlatform, refuse_wafer
from cstool.foundation.words import did_you_mean

Array = NDArray[Any]
_SETTINGS = (
    "cmaddr",
    "platform",
    "suppress_simfab_trace",
    "simfab_numthreads",
    "msg_level",
    "memcpy_required",
    "simulator",
)


class LoadedProgram:
    """A compiled program on the simulated fabric.

    Args:
        bindir: the directory written by `cslc`, or the result of `SdkLayout.compile`
        platform: a platform of the program's generation
        cmaddr: must not be given: there is no wafer
        settings: others of the vendor's (suppress_simfab_trace, simfab_numthreads, msg_level, memcpy_required, ...):
            taken, and without effect

    A context manager: the program is loaded and runs in its block, and stops at the end.

    Raises:
        SdkRuntimeError: from every method: an argument is invalid, or the simulated program failed
    """

    def __init__(
        self,
        bindir: str | os.PathLike[str] | SdkCompileArtifacts,
        platform: SdkExecutionPlatform | None = None,
        *,
        cmaddr: str | None = None,
        **settings: Any,
    ) -> None:
        refuse_wafer(cmaddr)
        for name in settings:
            if name not in _SETTINGS and (near := did_you_mean(name, _SETTINGS)):
                raise SdkRuntimeError(f"SdkRuntime: there is no argument '{name}'", near)
        path = bindir.path if isinstance(bindir, SdkCompileArtifacts) else bindir
        if not isinstance(path, str | os.PathLike):
            raise SdkRuntimeError(
                f"SdkRuntime: the directory of a compiled program must be given, got {path!r}",
                "scripts often take it by --name: cs_python run.py --name out",
            )
        try:
            self._program = read_summary(Path(path).absolute())
        except ProgramError as error:
            raise SdkRuntimeError(error.message, error.hint) from None
        target = None if platform is None else platform.target
        if target is not None and target.value != self._program.arch:
            raise SdkRuntimeError(
                f"SdkRuntime: the platform must be {self._program.arch}, as the program is, got {target.value}"
            )
        self._numbers = {each.name: number for number, each in enumerate(self._program.exported)}
        self._not_found: list[str] = []  # what get_id was asked for in vain
        self._simulator: Simulator | None = None
        self._running = self._stopped = False
        _latest[self._program.path.resolve()] = self

    @cached_property
    def _whole(self) -> FabricProgram:
        return read_program(self._program.path)

    # --- its life ---

    def load(self) -> None:
        """Load the program onto the fabric."""
        if self._simulator is not None:
            raise SdkRuntimeError("load: the program is loaded already")
        self._simulator = Simulator(self._program.path)
        self._simulator.ask("load", {"op": "load"})

    def run(self) -> None:
        """Let the program begin."""
        self._loaded("run")
        if self._stopped:
            raise SdkRuntimeError("run: the program was stopped", "a new SdkRuntime runs it again")
        self._running = True

    def stop(self) -> None:
        """Let the program come to its end, and wait for all open commands. Writes `sim.log` and `sim_stats.json`."""
        self._ready("stop").ask("stop", {"op": "stop"})
        self._running, self._stopped = False, True

    def __enter__(self) -> Self:
        self.load()
        self.run()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None and self._running:
            self.stop()

    def dump_core(self, corefile: str) -> None:
        """Write the SRAM of all PEs, NumPy's npz: `sram` [height, width, bytes]."""
        self._loaded("dump_core").ask("dump_core", {"op": "dump", "path": str(Path(corefile).absolute())})

    # --- names and places ---

    def get_id(self, symbol: str) -> int | None:
        """Number of an exported variable, for `memcpy_h2d` and `memcpy_d2h`; None if there is none of that name."""
        number = self._numbers.get(symbol)
        if number is None and symbol not in self._not_found:
            self._not_found.append(symbol)
        return number

    def _number(self, name: str, symbol: str | None) -> int:
        """The number of an exported name."""
        if symbol is None:
            raise self._no_symbol(name)
        if symbol not in self._numbers:
            raise SdkRuntimeError(
                f"{name}: '{symbol}' must be exported by the layout's @export_name, "
                f"{listed('exported', sorted(self._numbers))}",
                did_you_mean(str(symbol), self._numbers),
            )
        return self._numbers[symbol]

    def _no_symbol(self, name: str) -> SdkRuntimeError:
        """The error of a call that got None for a symbol, the likely result of `get_id`."""
        asked = f", get_id has not found {', '.join(map(repr, self._not_found))}" if self._not_found else ""
        near = {each: did_you_mean(str(each), self._numbers) for each in self._not_found}
        hints = [hint if len(near) == 1 else f"{each!r}: {hint}" for each, hint in near.items() if hint]
        return SdkRuntimeError(
            f"{name}: a symbol must be given, got None{asked}, {listed('exported', sorted(self._numbers))}",
            "; ".join(hints) or None,
        )

    def coord_logical_to_physical(self, coord: Point) -> tuple[int, int]:
        """Column and row of a PE on the fabric. A layout in Python counts on the fabric already."""
        (x, y), (left, top) = point_of("coord_logical_to_physical", coord), self._program.offset
        return x + left - self._program.origin[0], y + top - self._program.origin[1]

    def read_symbol(self, px: int, py: int, symbol: str, dtype: Any = None) -> Array:
        """The elements of a variable, or of the target of an exported pointer, at one PE.

        Args:
            px, py: column and row in the program; of a layout in Python: on the fabric
            symbol: name of an export, or of a variable of the program's file
            dtype: type of the result; None: the variable's own
        """
        memory = self.memory(px, py)
        program = self._whole
        of_pe = program.program_of((py - program.origin[1]) * program.width + px - program.origin[0])
        found = None if of_pe is None else of_pe.variable(symbol)
        if of_pe is None or found is None:
            known = {} if of_pe is None else {**of_pe.symbols, **of_pe.variables}
            names = sorted(name for name, each in known.items() if each.kind == "variable")
            raise SdkRuntimeError(
                f"read_symbol: the program of PE {px}.{py} must have a variable '{symbol}', {listed('it has', names)}",
                did_you_mean(symbol, names),
            )
        own = np.dtype(DTYPES[found.letter])
        address = found.address
        if found.pointer is not None:
            address = int(memory[found.pointer : found.pointer + 2].view("<u2")[0])
        raw = memory[address : address + max(found.count, 1) * own.itemsize]
        kind = _dtype_of(dtype, own)
        if raw.size % kind.itemsize:
            raise SdkRuntimeError(f"read_symbol: the {raw.size} bytes of '{symbol}' are no {kind.name}s")
        return raw.view(kind).copy()

    def memory(self, px: int, py: int) -> NDArray[np.uint8]:
        """The SRAM of one PE of the program, as it is now."""
        return self._of_pe("read_symbol", "memory", px, py).view(np.uint8)

    def read_trace(self, px: int, py: int, key: str) -> list[int | float | str]:
        """Traces of one PE's program by the `<debug>` module of this key, the first first.

        Time stamps are cycles. Text that reads as a number is returned as a number.
        """
        lines = json.loads(self._of_pe("read_trace", "trace", px, py).tobytes())
        start = f"trace {key} "
        return [_traced_value(line[len(start) :]) for line in lines if line.startswith(start)]

    def _of_pe(self, name: str, op: str, px: int, py: int) -> wire.Words:
        """The simulator's answer about one PE."""
        (px, py), (left, top) = whole_numbers(name, px, py), self._program.origin
        width, height = self._program.width, self._program.height
        if not (0 <= px - left < width and 0 <= py - top < height):
            last = f"{left + width - 1},{top + height - 1}"
            raise SdkRuntimeError(f"{name}: a PE of the program is {left},{top} to {last}, got {px},{py}")
        found: list[wire.Words] = []
        self._loaded(name).ask(name, {"op": op, "pe": (py - top) * width + px - left}, take=found.append)
        return found[0]

    # --- tasks ---

    def is_task_done(self, task: Task) -> bool:
        """Whether a nonblocking task is done. Asking takes the fabric as long as a command does."""
        _check_task("is_task_done", task)
        return task.done or self._loaded("is_task_done").poll(task)

    def task_wait(self, task: Task) -> None:
        """Wait until a task is done."""
        _check_task("task_wait", task)
        if not task.done:
            self._loaded("task_wait").wait(task)

    # --- inside ---

    def _loaded(self, name: str) -> Simulator:
        if self._simulator is None:
            raise SdkRuntimeError(f"{name}: the program must be loaded first, with load()")
        return self._simulator

    def _ready(self, name: str) -> Simulator:
        simulator = self._loaded(name)
        if not self._running:
            raise SdkRuntimeError(f"{name}: the program must be running, between run() and stop()")
        return simulator

    def _check_rectangle(self, name: str, at: tuple[int, ...], elements: int) -> None:
        x, y, w, h = at
        width, height = self._program.width, self._program.height
        if min(x, y) < 0 or min(w, h) < 1 or x + w > width or y + h > height:
            raise SdkRuntimeError(
                f"{name}: the rectangle must lie in the program's {width} x {height} PEs, got {w} x {h} at {x},{y}"
            )
        if elements < 1:
            raise SdkRuntimeError(f"{name}: there must be at least 1 element per PE, got {elements}")


def _check_task(name: str, task: Any) -> None:
    if not isinstance(task, Task):
        raise SdkRuntimeError(f"{name}: the result of a call with nonblock=True must be given, got {task!r}")


def _dtype_of(dtype: Any, own: "np.dtype[Any]") -> "np.dtype[Any]":
    try:
        return own if dtype is None else np.dtype(dtype)
    except TypeError:
        raise SdkRuntimeError(f"read_symbol: dtype must be a type of NumPy, got {dtype!r}") from None


def _traced_value(text: str) -> int | float | str:
    """A traced value from its text: "time" and three 16-bit words are a time stamp."""
    first, *words = text.split(" ")
    if first == "time" and len(words) == 3 and all(word.isdecimal() for word in words):
        return sum(int(word) << 16 * place for place, word in enumerate(words))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


_latest: dict[Path, LoadedProgram] = {}
"""the latest runtime of each directory"""


def runtime_of(folder: str | os.PathLike[str]) -> LoadedProgram:
    """The latest runtime of this process for a compiled program."""
    found = _latest.get(Path(folder).resolve())
    if found is None:
        raise SdkRuntimeError(f"{folder}: no SdkRuntime of this script has run the program in it")
    return found
