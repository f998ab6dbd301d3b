"""`SdkRuntime`: copies, streams and launches for host scripts (`cerebras.sdk.runtime.sdkruntimepybind`).

Names, arguments and their meaning follow the vendor's reference (SDK 2.10 documentation, "SdkRuntime API Reference").
"""

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.operations import DTYPES
from cstool.csl.fabric.program import Exported, FabricProgram, HostPort
from cstool.csl.sdk import wire
from cstool.csl.sdk.artifact import ProgramError, read_program, read_summary
from cstool.csl.sdk.checks import (
    Point,
    argument_of,
    check_array,
    check_target,
    declared,
    listed,
    point_of,
    value_of,
    whole_numbers,
)
from cstool.csl.sdk.client import SdkRuntimeError, Simulator, Task
from cstool.csl.sdk.platforms import (
    MemcpyDataType,
    MemcpyOrder,
    SdkCompileArtifacts,
    SdkExecutionPlatform,
    refuse_wafer,
)
from cstool.foundation.words import counted, did_you_mean

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class MemcpySettings:
    """Settings of a copy or a stream between the host and the PEs of a rectangle.

    Args:
        streaming: whether elements go as wavelets
        data_type: bits of an element on the device
        order: of the host's array
        nonblock: whether to return before it is done
    """

    streaming: bool = False
    data_type: MemcpyDataType = MemcpyDataType.MEMCPY_32BIT
    order: MemcpyOrder = MemcpyOrder.ROW_MAJOR
    nonblock: bool = False


class SdkRuntime:
    """A compiled program on the simulated fabric.

    Args:
        bindir: the directory written by `cslc`
        platform: taken, and without effect
        cmaddr: must not be given: there is no wafer
        settings: others of the vendor's (suppress_simfab_trace, simfab_numthreads, msg_level, memcpy_required, ...):
            taken, and without effect

    Raises:
        SdkRuntimeError: from every method: an argument is invalid, or the simulated program failed
    """

    def __init__(
        self,
        bindir: str | os.PathLike[str] | SdkCompileArtifacts,
        platform: SdkExecutionPlatform | None = None,  # noqa: ARG002 - the vendor's signature
        *,
        cmaddr: str | None = None,
        **settings: Any,  # noqa: ARG002 - the vendor's signature
    ) -> None:
        refuse_wafer(cmaddr)
        path = bindir.path if isinstance(bindir, SdkCompileArtifacts) else bindir
        try:
            self._program = read_summary(Path(path).absolute())
        except ProgramError as error:
            raise SdkRuntimeError(error.message, error.hint) from None
        self._numbers = {each.name: number for number, each in enumerate(self._program.exported)}
        self._simulator: Simulator | None = None
        self._running = False
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
        self._running = True

    def stop(self) -> None:
        """Let the program come to its end, and wait for all open commands. Writes `sim.log` and `sim_stats.json`."""
        self._ready("stop").ask("stop", {"op": "stop"})
        self._running = False

    def dump_core(self, corefile: str) -> None:
        """Write the SRAM of all PEs, NumPy's npz: `sram` [height, width, bytes]."""
        self._loaded("dump_core").ask("dump_core", {"op": "dump", "path": str(Path(corefile).absolute())})

    # --- names and places ---

    def get_id(self, symbol: str) -> int:
        """Number of an exported variable, for `memcpy_h2d` and `memcpy_d2h`."""
        return self._number("get_id", symbol)

    def _number(self, asked: str, symbol: str) -> int:
        if symbol not in self._numbers:
            raise SdkRuntimeError(
                f"{asked}: '{symbol}' must be exported by the layout's @export_name, "
                f"{listed('exported', sorted(self._numbers))}",
                did_you_mean(symbol, self._numbers),
            )
        return self._numbers[symbol]

    def coord_logical_to_physical(self, coord: Point) -> tuple[int, int]:
        """Column and row of a PE on the fabric. Those of a layout in Python count on the fabric already."""
        (x, y), (left, top) = point_of("coord_logical_to_physical", coord), self._program.offset
        return x + left - self._program.origin[0], y + top - self._program.origin[1]

    # --- copies and streams ---

    def memcpy_h2d(
        self, dest: int | str, src: Array, px: int, py: int, w: int, h: int, elem_per_pe: int, **settings: Any
    ) -> Task:
        """Copy or stream a host array to the PEs of a rectangle.

        Args:
            dest: the result of `get_id`, or the color of a stream
            src: [h * w * elem_per_pe] words of 32 bits
            px, py: the rectangle's first column and row in the program
            w, h: its columns and rows
            elem_per_pe: elements for each PE
            settings: of `MemcpySettings`
        """
        return self._in("memcpy_h2d", dest, src, (px, py, w, h), (h, w, elem_per_pe), MemcpySettings(**settings))

    def memcpy_h2d_rowbcast(
        self, dest: int | str, src: Array, px: int, py: int, w: int, h: int, elem_per_pe: int, **settings: Any
    ) -> Task:
        """Like `memcpy_h2d`, but `src` has one column of PEs, [h * elem_per_pe]; all columns get the same."""
        shape = (h, 1, elem_per_pe)
        return self._in("memcpy_h2d_rowbcast", dest, src, (px, py, w, h), shape, MemcpySettings(**settings))

    def memcpy_h2d_colbcast(
        self, dest: int | str, src: Array, px: int, py: int, w: int, h: int, elem_per_pe: int, **settings: Any
    ) -> Task:
        """Like `memcpy_h2d`, but `src` has one row of PEs, [w * elem_per_pe]; all rows get the same."""
        shape = (1, w, elem_per_pe)
        return self._in("memcpy_h2d_colbcast", dest, src, (px, py, w, h), shape, MemcpySettings(**settings))

    def memcpy_d2h(
        self, dest: Array, src: int | str, px: int, py: int, w: int, h: int, elem_per_pe: int, **settings: Any
    ) -> Task:
        """Copy or stream from the PEs of a rectangle into a host array, filled when the task is done.

        16-bit elements fill the low halves of its words. Arguments as of `memcpy_h2d`.
        """
        name, how = "memcpy_d2h", MemcpySettings(**settings)
        bits = value_of(name, "data_type", how.data_type, MemcpyDataType)
        px, py, w, h, elem_per_pe = whole_numbers(name, px, py, w, h, elem_per_pe)
        self._check_rectangle(name, (px, py, w, h), elem_per_pe)
        check_target(name, dest, h * w * elem_per_pe)
        header = {"at": [px, py, w, h], "elements": elem_per_pe, "bits": bits}
        if how.streaming:
            header |= {"op": "stream_out", "from": self._color(name, src, "MEMCPYD2H")}
        else:
            header |= {"op": "copy_out", "from": self._variable(name, src).name}
        shape = (h, w, elem_per_pe)
        flat, as_stored = dest.reshape(-1).view(np.uint32), value_of(name, "order", how.order, MemcpyOrder)

        def take(words: wire.Words) -> None:
            flat[:] = words.reshape(shape).ravel(order=as_stored)

        return self._ready(name).ask(name, header, block=not how.nonblock, take=take)

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

    # --- functions ---

    def launch(self, sym: str, *args: Any, nonblock: bool = False) -> Task:
        """Start an exported function on all PEs; done when all have unblocked their command streams.

        Args:
            sym: its name
            args: a scalar for each parameter: of NumPy's types, or Python's
            nonblock: whether to return before it is done
        """
        function = self._function("launch", sym, len(args))
        values = [
            argument_of(function, number, letter, value)
            for number, (letter, value) in enumerate(zip(function.parameters, args, strict=True), start=1)
        ]
        header = {"op": "launch", "name": sym, "arguments": values}
        return self._ready("launch").ask(f"launch {sym}", header, block=not nonblock)

    def call(self, sym: str, params: list[Any], *, nonblock: bool = False) -> Task:
        """Like `launch`, with the arguments as words of 32 bits."""
        function = self._function("call", sym, len(params))
        words = np.array([int(word) & 0xFFFFFFFF for word in params], "<u4")
        values = [
            word.view(np.dtype(DTYPES[letter]))[0]
            for letter, word in zip(function.parameters, words.reshape(-1, 1), strict=True)
        ]
        return self.launch(sym, *values, nonblock=nonblock)

    # --- tasks ---

    def is_task_done(self, task: Task) -> bool:
        """Whether a nonblocking task is done. Asking takes the fabric as long as a command does."""
        return task.done or self._loaded("is_task_done").poll(task)

    def task_wait(self, task: Task) -> None:
        """Wait until a task is done."""
        if not task.done:
            self._loaded("task_wait").wait(task)

    # --- ports of SdkLayout ---

    def get_port_id(self, name: str) -> int:
        """Number of a stream of a layout, by its name; `send` and `receive` take either."""
        names = [port.name for port in self._program.ports]
        if name not in names:
            raise SdkRuntimeError(
                f"get_port_id: '{name}' must be a stream of the layout, {listed('it has', names)}",
                did_you_mean(str(name), names),
            )
        return names.index(name)

    def send(self, stream: str | int, data: Array, nonblock: bool = False) -> Task:
        """Send an array to an input port, a wavelet for each element.

        Args:
            stream: name or number of the stream: result of `create_input_stream`, or of `get_port_id`
            data: [elements] of a type of 32 bits, or of 16, which go in the low halves
            nonblock: whether to return before the fabric has taken all of them
        """
        port = self._port("send", stream, True)
        check_array("send", "data", data, halves=True)
        flat = np.ascontiguousarray(data).reshape(-1)
        words = flat.view(np.uint32) if flat.itemsize == 4 else flat.view(np.uint16).astype(np.uint32)
        text = f"send of {counted(words.size, 'word')} to '{port.name}'"
        header = {"op": "stream_in", "to": port.color, "at": [port.x, port.y, 1, 1], "bits": 32, "text": text}
        return self._ready("send").ask("send", header | {"shape": [1, 1, words.size]}, words, block=not nonblock)

    def receive(self, stream: str | int, dest: Array, size: int | None = None, nonblock: bool = False) -> Task:
        """Take wavelets from an output port into a host array, filled when the task is done.

        Args:
            stream: likewise: result of `create_output_stream`, or of `get_port_id`
            dest: [elements] of a type of 32 bits, or of 16, which gets the low halves
            size: elements; None: the size of `dest`
            nonblock: whether to return before it is done
        """
        port = self._port("receive", stream, False)
        check_target("receive", dest, halves=True)
        (size,) = whole_numbers("receive", dest.size if size is None else size)
        if not 1 <= size <= dest.size:
            raise SdkRuntimeError(f"receive: size must be 1 to {dest.size}, as dest has room, got {size}")
        text = f"receive of {counted(size, 'word')} from '{port.name}'"
        at = [port.x, port.y, 1, 1]
        header = {"op": "stream_out", "from": port.color, "at": at, "elements": size, "bits": 32, "text": text}
        flat = dest.reshape(-1).view(np.uint32 if dest.itemsize == 4 else np.uint16)

        def take(words: wire.Words) -> None:
            flat[:size] = words.astype(flat.dtype)

        return self._ready("receive").ask("receive", header, block=not nonblock, take=take)

    def _port(self, name: str, stream: Any, is_input: bool) -> HostPort:
        """A stream of the layout, by name or number."""
        ports = self._program.ports
        if isinstance(stream, str):
            found = next((port for port in ports if port.name == stream), None)
        else:
            (number,) = whole_numbers(name, stream)
            found = ports[number] if 0 <= number < len(ports) else None
        names = [port.name for port in ports if port.is_input == is_input]
        if found is None or found.is_input != is_input:
            kind = "input" if is_input else "output"
            raise SdkRuntimeError(
                f"{name}: an {kind} stream of the layout must be given, got {stream!r}, {listed('it has', names)}",
                did_you_mean(str(stream), names) or f"SdkLayout.create_{kind}_stream returns its name",
            )
        return found

    # --- inside ---

    def _in(
        self, name: str, dest: int | str, src: Array, at: tuple[int, ...], shape: tuple[int, ...], how: MemcpySettings
    ) -> Task:
        bits = value_of(name, "data_type", how.data_type, MemcpyDataType)
        at, shape = whole_numbers(name, *at), whole_numbers(name, *shape)
        self._check_rectangle(name, at, shape[2])
        check_array(name, "src", src, shape[0] * shape[1] * shape[2])
        header: dict[str, Any] = {"at": list(at), "shape": list(shape), "bits": bits}
        if how.streaming:
            header |= {"op": "stream_in", "to": self._color(name, dest, "MEMCPYH2D")}
        else:
            variable = self._variable(name, dest)
            if not variable.mutable:
                raise SdkRuntimeError(
                    f"{name}: '{variable.name}' must be exported as mutable, it is not",
                    f'@export_name("{variable.name}", ..., true) in the layout lets the host write it',
                )
            header |= {"op": "copy_in", "to": variable.name}
        as_given = value_of(name, "order", how.order, MemcpyOrder)
        words = np.ascontiguousarray(src).reshape(-1).view(np.uint32).reshape(shape, order=as_given)
        return self._ready(name).ask(name, header, np.ascontiguousarray(words).ravel(), block=not how.nonblock)

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

    def _need_memcpy(self, name: str) -> None:
        if not self._program.memcpy:
            raise SdkRuntimeError(f"{name}: the program must be compiled with --memcpy, it is not")

    def _variable(self, name: str, which: int | str) -> Exported:
        self._need_memcpy(name)
        number = self.get_id(which) if isinstance(which, str) else int(which)
        if not 0 <= number < len(self._program.exported):
            raise SdkRuntimeError(f"{name}: a number that get_id returned is expected, got {number}")
        found = self._program.exported[number]
        if found.kind != "variable":
            raise SdkRuntimeError(f"{name}: '{found.name}' must be a variable, it is a function")
        return found

    def _function(self, name: str, symbol: str, given: int) -> Exported:
        """An exported function that takes as many arguments as are given."""
        self._need_memcpy(name)
        found = self._program.exported[self._number(name, symbol)]
        if found.kind != "function":
            raise SdkRuntimeError(f"{name}: '{symbol}' must be a function, it is a variable")
        if given != len(found.parameters):
            raise SdkRuntimeError(f"{name}: {declared(found)} takes {len(found.parameters)} arguments, got {given}")
        return found

    def _color(self, name: str, color: int | str, kind: str) -> int:
        self._need_memcpy(name)
        colors = sorted(value for stream, value in self._program.streams.items() if stream.startswith(kind))
        if color not in colors:
            raise SdkRuntimeError(f"{name}: {color} must be a {kind} color, {listed('the program has', colors)}")
        return int(color)


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


_latest: dict[Path, SdkRuntime] = {}
"""the latest runtime of each directory"""


def runtime_of(folder: str | os.PathLike[str]) -> SdkRuntime:
    """The latest runtime of this process for a compiled program."""
    found = _latest.get(Path(folder).resolve())
    if found is None:
        raise SdkRuntimeError(f"{folder}: no SdkRuntime of this script has run the program in it")
    return found
