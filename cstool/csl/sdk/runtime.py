"""`SdkRuntime`: copies, streams and launches for host scripts (`cerebras.sdk.runtime.sdkruntimepybind`).

Names, arguments and their meaning follow the vendor's reference (SDK 2.10 documentation, "SdkRuntime API Reference").
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.operations import DTYPES
from cstool.csl.fabric.program import Exported, HostPort
from cstool.csl.sdk import wire
from cstool.csl.sdk.checks import (
    argument_of,
    check_array,
    check_target,
    declared,
    listed,
    whole_numbers,
)
from cstool.csl.sdk.client import SdkRuntimeError, Task
from cstool.csl.sdk.memcpy_settings import settings_of
from cstool.csl.sdk.platforms import MemcpyOrder
from cstool.csl.sdk.runtime_program import LoadedProgram
from cstool.foundation.words import counted, did_you_mean

Array = NDArray[Any]


class SdkRuntime(LoadedProgram):
    """A compiled program on the simulated fabric: `LoadedProgram`, and copies, streams and launches."""

    # --- copies and streams ---

    def memcpy_h2d(
        self,
        dest: int | str | None,
        src: Array,
        px: int,
        py: int,
        w: int,
        h: int,
        elem_per_pe: int,
        *more: Any,
        **settings: Any,
    ) -> Task:
        """Copy or stream a host array to the PEs of a rectangle.

        Args:
            dest: the result of `get_id`, or the color of a stream
            src: [h * w * elem_per_pe] words of 32 bits; with MEMCPY_16BIT also elements of 16 bits as they are
            px, py: the rectangle's first column and row in the program
            w, h: its columns and rows
            elem_per_pe: elements for each PE
            more, settings: of `MemcpySettings`, by place or by name
        """
        return self._in("memcpy_h2d", dest, src, (px, py, w, h), (h, w, elem_per_pe), more, settings)

    def memcpy_h2d_rowbcast(
        self,
        dest: int | str | None,
        src: Array,
        px: int,
        py: int,
        w: int,
        h: int,
        elem_per_pe: int,
        *more: Any,
        **settings: Any,
    ) -> Task:
        """Like `memcpy_h2d`, but `src` has one column of PEs, [h * elem_per_pe]; all columns get the same."""
        shape = (h, 1, elem_per_pe)
        return self._in("memcpy_h2d_rowbcast", dest, src, (px, py, w, h), shape, more, settings)

    def memcpy_h2d_colbcast(
        self,
        dest: int | str | None,
        src: Array,
        px: int,
        py: int,
        w: int,
        h: int,
        elem_per_pe: int,
        *more: Any,
        **settings: Any,
    ) -> Task:
        """Like `memcpy_h2d`, but `src` has one row of PEs, [w * elem_per_pe]; all rows get the same."""
        shape = (1, w, elem_per_pe)
        return self._in("memcpy_h2d_colbcast", dest, src, (px, py, w, h), shape, more, settings)

    def memcpy_d2h(
        self,
        dest: Array,
        src: int | str | None,
        px: int,
        py: int,
        w: int,
        h: int,
        elem_per_pe: int,
        *more: Any,
        **settings: Any,
    ) -> Task:
        """Copy or stream from the PEs of a rectangle into a host array, filled when the task is done.

        16-bit elements fill the low halves of its words, or an array of a 16-bit type. Arguments as of `memcpy_h2d`.
        """
        name = "memcpy_d2h"
        how = settings_of(name, more, settings)
        bits = how.data_type.value
        px, py, w, h, elem_per_pe = whole_numbers(name, px, py, w, h, elem_per_pe)
        self._check_rectangle(name, (px, py, w, h), elem_per_pe)
        check_target(name, dest, h * w * elem_per_pe, halves=bits == 16)
        header = {"at": [px, py, w, h], "elements": elem_per_pe, "bits": bits}
        if how.streaming:
            header |= {"op": "stream_out", "from": self._color(name, src, "MEMCPYD2H")}
        else:
            header |= {"op": "copy_out", "from": self._variable(name, src).name}
        shape = (h, w, elem_per_pe)
        flat, fortran = _bits_of(dest), how.order is MemcpyOrder.COL_MAJOR

        def take(words: wire.Words) -> None:
            flat[:] = words.reshape(shape).ravel(order="F" if fortran else "C").astype(flat.dtype)

        return self._ready(name).ask(name, header, block=not how.nonblock, take=take)

    # --- functions ---

    def launch(self, sym: str | None, *args: Any, nonblock: bool = False) -> Task:
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
        header = {"op": "launch", "name": function.name, "arguments": values}
        return self._ready("launch").ask(f"launch {function.name}", header, block=not nonblock)

    def call(self, sym: str | None, params: list[Any], *, nonblock: bool = False) -> Task:
        """Like `launch`, with the arguments as words of 32 bits."""
        if not isinstance(params, list | tuple | np.ndarray):
            raise SdkRuntimeError(f"call: a list of arguments must be given, got {params!r}")
        function = self._function("call", sym, len(params))
        words = np.array([int(word) & 0xFFFFFFFF for word in params], "<u4")
        values = [
            word.view(np.dtype(DTYPES[letter]))[0]
            for letter, word in zip(function.parameters, words.reshape(-1, 1), strict=True)
        ]
        return self.launch(sym, *values, nonblock=nonblock)

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
        words = _words_of(data)
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
        flat = _bits_of(dest)

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
        self,
        name: str,
        dest: int | str | None,
        src: Array,
        at: tuple[int, ...],
        shape: tuple[int, ...],
        more: Sequence[Any],
        settings: Mapping[str, Any],
    ) -> Task:
        how = settings_of(name, more, settings)
        at, shape = whole_numbers(name, *at), whole_numbers(name, *shape)
        self._check_rectangle(name, at, shape[2])
        check_array(name, "src", src, shape[0] * shape[1] * shape[2], halves=how.data_type.value == 16)
        header: dict[str, Any] = {"at": list(at), "shape": list(shape), "bits": how.data_type.value}
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
        words = _words_of(src).reshape(shape, order=how.order.value)
        return self._ready(name).ask(name, header, np.ascontiguousarray(words).ravel(), block=not how.nonblock)

    def _need_memcpy(self, name: str) -> None:
        if not self._program.memcpy:
            raise SdkRuntimeError(f"{name}: the program must be compiled with --memcpy, it is not")

    def _variable(self, name: str, which: int | str | None) -> Exported:
        self._need_memcpy(name)
        if which is None or isinstance(which, str):
            number = self._number(name, which)
        else:
            (number,) = whole_numbers(name, which)
        if not 0 <= number < len(self._program.exported):
            raise SdkRuntimeError(f"{name}: a number that get_id returned is expected, got {number}")
        found = self._program.exported[number]
        if found.kind != "variable":
            raise SdkRuntimeError(f"{name}: '{found.name}' must be a variable, it is a function")
        return found

    def _function(self, name: str, symbol: str | None, given: int) -> Exported:
        """An exported function that takes as many arguments as are given."""
        self._need_memcpy(name)
        found = self._program.exported[self._number(name, symbol)]
        if found.kind != "function":
            raise SdkRuntimeError(f"{name}: '{symbol}' must be a function, it is a variable")
        if given != len(found.parameters):
            taken = counted(len(found.parameters), "argument")
            raise SdkRuntimeError(f"{name}: {declared(found)} takes {taken}, got {given}")
        return found

    def _color(self, name: str, color: int | str | None, kind: str) -> int:
        self._need_memcpy(name)
        colors = sorted(value for stream, value in self._program.streams.items() if stream.startswith(kind))
        if color not in colors:
            raise SdkRuntimeError(f"{name}: {color} must be a {kind} color, {listed('the program has', colors)}")
        return int(color)


def _bits_of(array: Array) -> Array:
    """The bits of an array of a type of 16 or 32 bits, flat: a view if the array is contiguous."""
    return array.reshape(-1).view(np.uint32 if array.itemsize == 4 else np.uint16)


def _words_of(array: Array) -> wire.Words:
    """The elements of such an array as words of 32 bits, flat; those of 16 bits in the low halves."""
    return _bits_of(np.ascontiguousarray(array)).astype(np.uint32, copy=False)
