"""`SdkRuntime`: what a host script copies, streams and launches with (`cerebras.sdk.runtime.sdkruntimepybind`).

Names, arguments and their meaning follow the vendor's reference (SDK 2.10 documentation, "SdkRuntime API Reference").
"""

import enum
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.fabric.program import Exported
from cstool.sdk import wire
from cstool.sdk.artifact import LETTERS, ProgramError, read_summary
from cstool.sdk.client import SdkRuntimeError, Simulator, Task

Array = NDArray[Any]
_INTEGERS = {"w": (0, 32), "i": (1, 32), "H": (0, 16), "h": (1, 16), "B": (0, 8), "b": (1, 8)}
_FLOATS: dict[str, type[np.floating[Any]]] = {"f": np.float32, "e": np.float16}


class MemcpyDataType(enum.Enum):
    """Bits of an element on the device. On the host an element is a word of 32 bits all the same."""

    MEMCPY_16BIT = 16
    MEMCPY_32BIT = 32


class MemcpyOrder(enum.Enum):
    """Order of a host array of [height, width, elements]: the last index runs fastest, or the first."""

    ROW_MAJOR = "C"
    COL_MAJOR = "F"


class SdkTarget(enum.Enum):
    """Generations of the wafer."""

    WSE2 = "wse2"
    WSE3 = "wse3"


class SimfabConfig:
    """Settings of the vendor's simulator. They are taken, and change nothing here."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings


class SdkExecutionPlatform:
    """Where programs run: simulated, always."""

    def __init__(self, target: SdkTarget | None = None) -> None:
        self.target = target

    def is_simulation(self) -> bool:
        """Whether it is a simulator."""
        return True

    def is_system(self) -> bool:
        """Whether it is a wafer."""
        return False


def get_platform(
    cmaddr: str | None = None,
    config: SimfabConfig | None = None,  # noqa: ARG001 - the vendor's signature
    target: SdkTarget | None = None,
) -> SdkExecutionPlatform:
    """The platform of an address; only the simulator, which has none, is there."""
    _no_wafer(cmaddr)
    return SdkExecutionPlatform(target)


def get_simulator(config: SimfabConfig | None = None, target: SdkTarget | None = None) -> SdkExecutionPlatform:
    """The simulated platform."""
    return get_platform(None, config, target)


def get_system(cmaddr: str | None = None) -> SdkExecutionPlatform:
    """Refuse: there is no wafer."""
    _no_wafer(cmaddr or "a system")
    raise AssertionError


class SdkCompileArtifacts:
    """A compiled program, by its directory."""

    def __init__(self, artifacts_path: str) -> None:
        self.path = artifacts_path


class SdkLayout:
    """Refused: layouts are written in CSL, and compiled with `cslc`."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:  # noqa: ARG002 - the vendor's signature
        raise SdkRuntimeError(
            "SdkLayout is not there: layouts in Python cannot be compiled",
            "write the layout in CSL, compile it with cslc, and give its directory to SdkRuntime",
        )


class SdkRuntime:
    """A compiled program on the simulated fabric.

    Args:
        bindir: the directory that `cslc` wrote
        platform: taken, and without effect
        cmaddr: must not be given: there is no wafer
        settings: others of the vendor's (suppress_simfab_trace, simfab_numthreads, msg_level, memcpy_required, ...):
            taken, and without effect

    Raises:
        SdkRuntimeError: from every method: what is asked for cannot be, or the simulated program failed
    """

    def __init__(
        self,
        bindir: str | os.PathLike[str] | SdkCompileArtifacts,
        platform: SdkExecutionPlatform | None = None,  # noqa: ARG002 - the vendor's signature
        *,
        cmaddr: str | None = None,
        **settings: Any,  # noqa: ARG002 - the vendor's signature
    ) -> None:
        _no_wafer(cmaddr)
        path = bindir.path if isinstance(bindir, SdkCompileArtifacts) else bindir
        try:
            self._program = read_summary(Path(path).absolute())
        except ProgramError as error:
            raise SdkRuntimeError(error.message, error.hint) from None
        self._numbers = {each.name: number for number, each in enumerate(self._program.exported)}
        self._simulator: Simulator | None = None
        self._running = False
        _latest[self._program.path.resolve()] = self

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
        """Let the program come to its end, and wait for all that is not done. Writes `sim.log` and `sim_stats.json`."""
        self._ready("stop").ask("stop", {"op": "stop"})
        self._running = False

    def dump_core(self, corefile: str) -> None:
        """Write the SRAM of all PEs, NumPy's npz: `sram` [height, width, bytes]."""
        self._loaded("dump_core").ask("dump_core", {"op": "dump", "path": str(Path(corefile).absolute())})

    # --- names and places ---

    def get_id(self, symbol: str) -> int:
        """Number of an exported variable, for `memcpy_h2d` and `memcpy_d2h`."""
        if symbol not in self._numbers:
            raise SdkRuntimeError(
                f"get_id: '{symbol}' must be exported by the layout's @export_name, "
                f"{_those('exported', sorted(self._numbers))}"
            )
        return self._numbers[symbol]

    def coord_logical_to_physical(self, coord: tuple[int, int]) -> tuple[int, int]:
        """Column and row of the fabric of a PE of the program."""
        return coord[0] + self._program.offset[0], coord[1] + self._program.offset[1]

    # --- copies and streams ---

    def memcpy_h2d(
        self,
        dest: int | str,
        src: Array,
        px: int,
        py: int,
        w: int,
        h: int,
        elem_per_pe: int,
        *,
        streaming: bool = False,
        data_type: MemcpyDataType = MemcpyDataType.MEMCPY_32BIT,
        order: MemcpyOrder = MemcpyOrder.ROW_MAJOR,
        nonblock: bool = False,
    ) -> Task:
        """Copy or stream a host array to the PEs of a rectangle.

        Args:
            dest: what `get_id` says, or the color of a stream
            src: [h * w * elem_per_pe] words of 32 bits
            px, py: the rectangle's first column and row in the program
            w, h: its columns and rows
            elem_per_pe: elements for each PE
            streaming: whether they come as wavelets
            data_type: bits of an element on the device
            order: of `src`
            nonblock: whether to return before it is done
        """
        return self._in(
            "memcpy_h2d", dest, src, (px, py, w, h), (h, w, elem_per_pe), streaming, data_type, order, nonblock
        )

    def memcpy_h2d_rowbcast(
        self,
        dest: int | str,
        src: Array,
        px: int,
        py: int,
        w: int,
        h: int,
        elem_per_pe: int,
        *,
        streaming: bool = False,
        data_type: MemcpyDataType = MemcpyDataType.MEMCPY_32BIT,
        order: MemcpyOrder = MemcpyOrder.ROW_MAJOR,
        nonblock: bool = False,
    ) -> Task:
        """Like `memcpy_h2d`: `src` has a column of PEs, [h * elem_per_pe], and all columns get the same."""
        shape = (h, 1, elem_per_pe)
        return self._in("memcpy_h2d_rowbcast", dest, src, (px, py, w, h), shape, streaming, data_type, order, nonblock)

    def memcpy_h2d_colbcast(
        self,
        dest: int | str,
        src: Array,
        px: int,
        py: int,
        w: int,
        h: int,
        elem_per_pe: int,
        *,
        streaming: bool = False,
        data_type: MemcpyDataType = MemcpyDataType.MEMCPY_32BIT,
        order: MemcpyOrder = MemcpyOrder.ROW_MAJOR,
        nonblock: bool = False,
    ) -> Task:
        """Like `memcpy_h2d`: `src` has a row of PEs, [w * elem_per_pe], and all rows get the same."""
        shape = (1, w, elem_per_pe)
        return self._in("memcpy_h2d_colbcast", dest, src, (px, py, w, h), shape, streaming, data_type, order, nonblock)

    def memcpy_d2h(
        self,
        dest: Array,
        src: int | str,
        px: int,
        py: int,
        w: int,
        h: int,
        elem_per_pe: int,
        *,
        streaming: bool = False,
        data_type: MemcpyDataType = MemcpyDataType.MEMCPY_32BIT,
        order: MemcpyOrder = MemcpyOrder.ROW_MAJOR,
        nonblock: bool = False,
    ) -> Task:
        """Copy or stream from the PEs of a rectangle into a host array, which it fills when it is done.

        16-bit elements fill the low halves of its words. Arguments are those of `memcpy_h2d`.
        """
        name = "memcpy_d2h"
        bits = _bits(name, data_type)
        self._check_rectangle(name, (px, py, w, h), elem_per_pe)
        _check_array(name, "dest", dest, h * w * elem_per_pe)
        if not (dest.flags.c_contiguous and dest.flags.writeable):
            raise SdkRuntimeError(f"{name}: dest must be contiguous and writable, it is not")
        header = {"at": [px, py, w, h], "elements": elem_per_pe, "bits": bits}
        if streaming:
            header |= {"op": "stream_out", "from": self._color(name, src, "MEMCPYD2H")}
        else:
            header |= {"op": "copy_out", "from": self._variable(name, src).name}
        shape = (h, w, elem_per_pe)
        flat, as_stored = dest.reshape(-1).view(np.uint32), _order(name, order)

        def take(words: wire.Words) -> None:
            flat[:] = words.reshape(shape).ravel(order=as_stored)

        return self._ready(name).ask(name, header, block=not nonblock, take=take)

    def read_symbol(self, px: int, py: int, symbol: str, dtype: Any = None) -> Array:
        """What the target of an exported pointer holds at one PE of the program, all that is known of it."""
        memory, program = self.memory(px, py), self._program
        if symbol not in self._numbers:
            self.get_id(symbol)
        return symbol_in(memory, program.path, py * program.width + px, symbol, dtype)

    def memory(self, px: int, py: int) -> NDArray[np.uint8]:
        """The SRAM of one PE of the program, as it is now."""
        self._check_rectangle("read_symbol", (px, py, 1, 1), 1)
        found: list[wire.Words] = []
        number = py * self._program.width + px
        self._loaded("read_symbol").ask("read_symbol", {"op": "memory", "pe": number}, take=found.append)
        return found[0].view(np.uint8)

    # --- functions ---

    def launch(self, sym: str, *args: Any, nonblock: bool = False) -> Task:
        """Start an exported function on all PEs; done when all have unblocked their command streams.

        Args:
            sym: its name
            args: a scalar for each parameter: of NumPy's types, or Python's
            nonblock: whether to return before it is done
        """
        function = self._function("launch", sym)
        if len(args) != len(function.parameters):
            raise SdkRuntimeError(
                f"launch: {_declared(function)} takes {len(function.parameters)} arguments, got {len(args)}"
            )
        values = [
            _argument(function, number, letter, value)
            for number, (letter, value) in enumerate(zip(function.parameters, args, strict=True), start=1)
        ]
        header = {"op": "launch", "name": sym, "arguments": values}
        return self._ready("launch").ask(f"launch {sym}", header, block=not nonblock)

    def call(self, sym: str, params: list[Any], *, nonblock: bool = False) -> Task:
        """Like `launch`, with the arguments as words of 32 bits."""
        function = self._function("call", sym)
        if len(params) != len(function.parameters):
            raise SdkRuntimeError(
                f"call: {_declared(function)} takes {len(function.parameters)} arguments, got {len(params)}"
            )
        words = np.array([int(word) & 0xFFFFFFFF for word in params], "<u4")
        values = [
            word.view(np.dtype(f"<{_NUMPY[letter]}"))[0]
            for letter, word in zip(function.parameters, words.reshape(-1, 1), strict=True)
        ]
        return self.launch(sym, *values, nonblock=nonblock)

    # --- tasks ---

    def is_task_done(self, task: Task) -> bool:
        """Whether what did not block is done. Asking takes the fabric as long as a command does."""
        return task.done or self._loaded("is_task_done").poll(task)

    def task_wait(self, task: Task) -> None:
        """Wait until it is."""
        if not task.done:
            self._loaded("task_wait").wait(task)

    # --- ports of SdkLayout ---

    def send(self, *arguments: Any, **keywords: Any) -> None:  # noqa: ARG002 - the vendor's signature
        """Refused: ports belong to SdkLayout."""
        raise SdkRuntimeError("send: ports are made by SdkLayout, which is not there", "stream with memcpy_h2d")

    def receive(self, *arguments: Any, **keywords: Any) -> None:  # noqa: ARG002 - the vendor's signature
        """Refused: ports belong to SdkLayout."""
        raise SdkRuntimeError("receive: ports are made by SdkLayout, which is not there", "stream with memcpy_d2h")

    # --- inside ---

    def _in(
        self,
        name: str,
        dest: int | str,
        src: Array,
        at: tuple[int, int, int, int],
        shape: tuple[int, int, int],
        streaming: bool,
        data_type: MemcpyDataType,
        order: MemcpyOrder,
        nonblock: bool,
    ) -> Task:
        bits = _bits(name, data_type)
        self._check_rectangle(name, at, shape[2])
        _check_array(name, "src", src, shape[0] * shape[1] * shape[2])
        header: dict[str, Any] = {"at": list(at), "shape": list(shape), "bits": bits}
        if streaming:
            header |= {"op": "stream_in", "to": self._color(name, dest, "MEMCPYH2D")}
        else:
            variable = self._variable(name, dest)
            if not variable.mutable:
                raise SdkRuntimeError(
                    f"{name}: '{variable.name}' must be exported as mutable, it is not",
                    f'@export_name("{variable.name}", ..., true) in the layout lets the host write it',
                )
            header |= {"op": "copy_in", "to": variable.name}
        words = np.ascontiguousarray(src).reshape(-1).view(np.uint32).reshape(shape, order=_order(name, order))
        return self._ready(name).ask(name, header, np.ascontiguousarray(words).ravel(), block=not nonblock)

    def _loaded(self, name: str) -> Simulator:
        if self._simulator is None:
            raise SdkRuntimeError(f"{name}: the program must be loaded first, with load()")
        return self._simulator

    def _ready(self, name: str) -> Simulator:
        simulator = self._loaded(name)
        if not self._running:
            raise SdkRuntimeError(f"{name}: the program must be running, between run() and stop()")
        return simulator

    def _check_rectangle(self, name: str, at: tuple[int, int, int, int], elements: int) -> None:
        x, y, w, h = at
        width, height = self._program.width, self._program.height
        if min(x, y) < 0 or min(w, h) < 1 or x + w > width or y + h > height:
            raise SdkRuntimeError(
                f"{name}: the rectangle must lie in the program's {width} x {height} PEs, got {w} x {h} at {x},{y}"
            )
        if elements < 1:
            raise SdkRuntimeError(f"{name}: there must be at least 1 element per PE, got {elements}")

    def _variable(self, name: str, which: int | str) -> Exported:
        number = self.get_id(which) if isinstance(which, str) else int(which)
        if not 0 <= number < len(self._program.exported):
            raise SdkRuntimeError(f"{name}: a number that get_id returned is expected, got {number}")
        found = self._program.exported[number]
        if found.kind != "variable":
            raise SdkRuntimeError(f"{name}: '{found.name}' must be a variable, it is a function")
        return found

    def _function(self, name: str, symbol: str) -> Exported:
        if not self._program.memcpy:
            raise SdkRuntimeError(f"{name}: the program must be compiled with --memcpy, it is not")
        found = self._program.exported[self.get_id(symbol)]
        if found.kind != "function":
            raise SdkRuntimeError(f"{name}: '{symbol}' must be a function, it is a variable")
        return found

    def _color(self, name: str, color: int | str, kind: str) -> int:
        colors = sorted(value for stream, value in self._program.streams.items() if stream.startswith(kind))
        if color not in colors:
            raise SdkRuntimeError(f"{name}: {color} must be a {kind} color, {_those('the program has', colors)}")
        return int(color)


_latest: dict[Path, SdkRuntime] = {}
"""the runtime that was made last for a directory"""
_NUMPY = {"w": "u4", "i": "i4", "f": "f4", "H": "u2", "h": "i2", "e": "f2", "B": "u1", "b": "i1"}


def runtime_of(folder: str | os.PathLike[str]) -> SdkRuntime:
    """The runtime that this process made for a compiled program."""
    found = _latest.get(Path(folder).resolve())
    if found is None:
        raise SdkRuntimeError(f"{folder}: no SdkRuntime of this script has run the program in it")
    return found


def symbol_in(memory: NDArray[np.uint8], folder: Path, pe: int, name: str, dtype: Any) -> Array:
    """The elements of an exported variable in the SRAM of one PE."""
    from cstool.sdk.artifact import read_program

    program = read_program(folder)
    tile = int(program.tiles.ravel()[pe])
    symbols = program.programs[tile].symbols if tile >= 0 else {}
    place = f"PE {pe % program.width}.{pe // program.width}"
    if name not in symbols or symbols[name].kind != "variable":
        raise SdkRuntimeError(f"{place}: its program must export '{name}', {_those('it exports', sorted(symbols))}")
    symbol = symbols[name]
    own = np.dtype(f"<{_NUMPY[symbol.letter]}")
    address = symbol.address
    if symbol.pointer is not None:
        address = int(memory[symbol.pointer : symbol.pointer + 2].view("<u2")[0])
    raw = memory[address : address + max(symbol.count, 1) * own.itemsize]
    return raw.view(own if dtype is None else np.dtype(dtype)).copy()


def _no_wafer(cmaddr: str | None) -> None:
    if cmaddr:
        raise SdkRuntimeError(f"cmaddr: must be left out, programs are simulated here, got {cmaddr}")


def _those(what: str, names: list[Any]) -> str:
    return f"{what}: {', '.join(map(str, names))}" if names else f"{what}: none"


def _bits(name: str, data_type: MemcpyDataType) -> int:
    if not isinstance(data_type, MemcpyDataType):
        raise SdkRuntimeError(f"{name}: data_type must be a MemcpyDataType, got {data_type!r}")
    return data_type.value


def _order(name: str, order: MemcpyOrder) -> Any:
    if not isinstance(order, MemcpyOrder):
        raise SdkRuntimeError(f"{name}: order must be a MemcpyOrder, got {order!r}")
    return order.value


def _check_array(name: str, role: str, array: Any, size: int) -> None:
    if not isinstance(array, np.ndarray):
        raise SdkRuntimeError(f"{name}: {role} must be a NumPy array, got {type(array).__name__}")
    if array.dtype.itemsize != 4 or array.dtype.kind not in "uif":
        raise SdkRuntimeError(
            f"{name}: {role} must be an array of uint32, int32 or float32, got {array.dtype}",
            "input_array_to_u32 makes such of 16-bit data" if array.dtype.itemsize == 2 else None,
        )
    if array.size != size:
        raise SdkRuntimeError(f"{name}: {role} must have {size} elements, got {array.size}")


def _declared(function: Exported) -> str:
    return f"{function.name}({', '.join(LETTERS[letter] for letter in function.parameters)})"


def _argument(function: Exported, number: int, letter: str, value: Any) -> int | float:
    """A scalar as the function's parameter takes it."""
    where = f"launch: argument {number} of {_declared(function)}"
    if letter in _FLOATS:
        if not isinstance(value, (float, np.floating)):
            raise SdkRuntimeError(f"{where}: must be a float, got {type(value).__name__}")
        return float(_FLOATS[letter](value))
    if not isinstance(value, (int, np.integer)):
        raise SdkRuntimeError(f"{where}: must be an integer, got {type(value).__name__}")
    signed, bits = _INTEGERS[letter]
    low = -(1 << bits - 1) if signed else 0
    if not low <= int(value) < low + (1 << bits):
        raise SdkRuntimeError(f"{where}: must be {low} to {low + (1 << bits) - 1}, got {int(value)}")
    return int(value)
