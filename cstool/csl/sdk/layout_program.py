"""`SdkLayout`: layouts written in Python (`cerebras.sdk.runtime.sdkruntimepybind`).

Names follow the vendor's reference (SDK 2.10 documentation, "SdkLayout API Reference"). The layout becomes a file of
CSL in the directory of the compiled program, and the compiler of CSL does the rest. The program's rectangle holds all
regions and, where ways are needed, a ring of PEs around them. A stream of the host reaches the fabric at a PE outside
all regions, which moves its wavelets to the color of the port, or from it.
"""

import os
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.operations import DTYPES
from cstool.csl.fabric.program import FabricProgram, Initial
from cstool.csl.language import syntax
from cstool.csl.language.compile import compile_csl
from cstool.csl.language.parse import parse
from cstool.csl.language.source import Source, shown_path, text_of
from cstool.csl.sdk.artifact import write_program
from cstool.csl.sdk.checks import Point, point_of, whole_numbers
from cstool.csl.sdk.client import SdkRuntimeError
from cstool.csl.sdk.layout_plan import Plan
from cstool.csl.sdk.layout_region import CodeRegion
from cstool.csl.sdk.layout_text import write_layout
from cstool.csl.sdk.layout_types import FP16TYPE, Color, HostStream, PortHandle
from cstool.csl.sdk.platforms import SdkCompileArtifacts, SdkExecutionPlatform, SdkTarget
from cstool.foundation.words import counted, did_you_mean


class SdkLayout:
    """A layout: regions of PEs, their routes, and their connections with each other and with the host.

    Args:
        platform: names the generation; WSE-3 by default
        settings: others of the vendor's (msg_level): taken, and without effect

    Raises:
        SdkRuntimeError: from every method: an argument is invalid
    """

    def __init__(self, platform: SdkExecutionPlatform | SdkTarget, **settings: Any) -> None:
        if not isinstance(platform, SdkExecutionPlatform | SdkTarget):
            raise SdkRuntimeError(
                f"SdkLayout: a platform must be given, got {type(platform).__name__}",
                "get_platform(cmaddr, config, target)",
            )
        target = platform if isinstance(platform, SdkTarget) else platform.target
        self.settings = settings
        self._arch = "wse3" if target is None else target.value
        self._regions: list[CodeRegion] = []
        self._links: list[tuple[PortHandle, PortHandle]] = []
        self._streams: list[HostStream] = []

    def create_code_region(self, path: str | os.PathLike[str], name: str, width: int, height: int) -> CodeRegion:
        """Make a region of PEs that run a CSL file."""
        if any(region.name == name for region in self._regions):
            raise SdkRuntimeError(f"create_code_region: a region's name must be its own, got '{name}' again")
        region = CodeRegion(os.path.abspath(path), name, width, height)
        if not os.path.isfile(region.path):
            raise SdkRuntimeError(f"create_code_region: the program of region '{name}' must be a file, {path} is none")
        self._regions.append(region)
        return region

    def hstack(self, regions: Sequence[CodeRegion], origin: Point | None = None) -> int:
        """Place regions side by side, from west to east.

        Args:
            regions: the regions
            origin: column and row of the first PE; None: the place of the first region, or 0,0

        Returns:
            the column after the last
        """
        column, row = self._origin("hstack", regions, origin)
        for region in regions:
            region.place(column, row)
            column += region.width
        return column

    def vstack(self, regions: Sequence[CodeRegion], origin: Point | None = None) -> int:
        """Place regions one below the other; likewise. Returns the row after the last."""
        column, row = self._origin("vstack", regions, origin)
        for region in regions:
            region.place(column, row)
            row += region.height
        return row

    def connect(self, output: PortHandle, input: PortHandle) -> None:
        """Route wavelets out of one port into another. Their colors become one."""
        for port in (output, input):
            _need_port("connect", port)
        if output.is_input or not input.is_input:
            raise SdkRuntimeError(f"connect: an output port goes to an input port, got {output} to {input}")
        if output.size != input.size:
            raise SdkRuntimeError(
                f"connect: sizes of ports must be equal, {output} has {output.size}, {input} has {input.size}"
            )
        lengths = [len(port.region.edge_cells(port.edge)) for port in (output, input)]
        if lengths[0] != lengths[1]:
            raise SdkRuntimeError(
                f"connect: edges of ports must have as many PEs, {output} has {lengths[0]}, {input} has {lengths[1]}"
            )
        self._need_free("connect", output)
        self._need_free("connect", input)
        self._links.append((output, input))

    def create_input_stream(self, port: PortHandle, io_loc: Point | None = None, io_buffer_size: int = 1024) -> str:
        """Make a stream from the host to an input port.

        Args:
            port: an input port on an edge of one PE
            io_loc: column and row of the PE, outside all regions, where the words reach the fabric; None: any
            io_buffer_size: taken, and without effect: the host waits until the fabric takes its words

        Returns:
            the name of the stream, for `SdkRuntime.send`
        """
        return self._stream("create_input_stream", port, True, io_loc, io_buffer_size)

    def create_output_stream(self, port: PortHandle, io_loc: Point | None = None, io_buffer_size: int = 1024) -> str:
        """Make a stream from an output port to the host, likewise, for `SdkRuntime.receive`."""
        return self._stream("create_output_stream", port, False, io_loc, io_buffer_size)

    def create_input_stream_from_loc(self, loc: Point, color: Color, prefix: str = "") -> str:
        """Make a stream from the host to a color at a PE of a region, without a port.

        Args:
            loc: column and row of the PE on the fabric
            color: a color that comes over the region's edge there, or that the PE itself takes
            prefix: makes the name one of its own

        Returns:
            the name of the stream, for `SdkRuntime.send`
        """
        return self._stream_at("create_input_stream_from_loc", loc, color, prefix, True)

    def create_output_stream_from_loc(self, loc: Point, color: Color, prefix: str = "") -> str:
        """Make a stream from a color at a PE of a region to the host, likewise, for `SdkRuntime.receive`."""
        return self._stream_at("create_output_stream_from_loc", loc, color, prefix, False)

    def compile(
        self,
        out_prefix: str | os.PathLike[str] = "out",
        libs: Sequence[str] = (),
        cslc_prefix: str = "",  # noqa: ARG002 - the vendor's signature
        save_port_map: bool = False,  # noqa: ARG002 - likewise: `out.json` always has the ports
        f16_type: FP16TYPE = FP16TYPE.F16,
    ) -> SdkCompileArtifacts:
        """Compile the layout into a directory.

        Args:
            out_prefix: the directory
            libs: folders where imported files are looked for, too, before the current directory
            cslc_prefix, save_port_map: taken, and without effect
            f16_type: F16 alone

        Raises:
            SdkRuntimeError: a part of the layout is impossible
            CslError: a program has an error
        """
        if f16_type is not FP16TYPE.F16:
            raise SdkRuntimeError(f"compile: f16_type must be FP16TYPE.F16, nothing else is simulated, got {f16_type}")
        folder = Path(out_prefix).absolute()
        plan = Plan(self._arch, self._regions, self._links, self._streams)
        path = write_layout(folder, plan.text(folder, _check_params(self._regions)))
        program = compile_csl(
            path,
            self._arch,
            fabric_offsets=plan.bounds[:2],
            memcpy=False,
            name_exports=False,
            import_paths=[*libs, os.getcwd()],
            on_warning=lambda warning: print(f"warning: {warning}", file=sys.stderr),
        )
        program = replace(program, ports=plan.ports(), origin=plan.bounds[:2])
        write_program(_with_data(program, plan), folder)
        return SdkCompileArtifacts(str(out_prefix))

    # --- inside ---

    def _origin(self, what: str, regions: Sequence[CodeRegion], origin: Point | None) -> tuple[int, int]:
        if not regions or not all(isinstance(region, CodeRegion) for region in regions):
            raise SdkRuntimeError(f"{what}: a list of code regions must be given, got {regions!r}")
        return point_of(what, origin) if origin is not None else regions[0].corner or (0, 0)

    def _need_free(self, what: str, port: PortHandle) -> None:
        ports = [each for link in self._links for each in link] + [stream.port for stream in self._streams]
        if port in ports:
            raise SdkRuntimeError(f"{what}: a port is connected once, {port} is already")

    def _stream(self, what: str, port: PortHandle, is_input: bool, io_loc: Point | None, buffer: int) -> str:
        _need_port(what, port)
        if port.is_input != is_input:
            raise SdkRuntimeError(f"{what}: an {'input' if is_input else 'output'} port is expected, got {port}")
        count = len(port.region.edge_cells(port.edge))
        if count != 1:
            raise SdkRuntimeError(f"{what}: the edge of a port of the host must be one PE, that of {port} has {count}")
        if whole_numbers(what, buffer)[0] < 1:
            raise SdkRuntimeError(f"{what}: io_buffer_size must be at least 1, got {buffer}")
        self._need_free(what, port)
        at = None if io_loc is None else point_of(what, io_loc)
        kind = "in" if is_input else "out"
        name = f"{port.region.name}_{port.prefix}{port.color.name}_{kind}"
        return self._named(HostStream(name, port.color, is_input, port, at, port.size))

    def _stream_at(self, what: str, loc: Point, color: Color, prefix: str, is_input: bool) -> str:
        if not isinstance(color, Color):
            raise SdkRuntimeError(f"{what}: a Color must be given, got {type(color).__name__}")
        at = point_of(what, loc)
        name = f"{prefix}{color.name}_{'in' if is_input else 'out'}"
        if any(stream.name == name for stream in self._streams):
            raise SdkRuntimeError(f"{what}: there is a stream '{name}' already", "a prefix makes it one of its own")
        return self._named(HostStream(name, color, is_input, None, at))

    def _named(self, stream: HostStream) -> str:
        self._streams.append(stream)
        return stream.name


def _need_port(what: str, port: Any) -> None:
    if not isinstance(port, PortHandle):
        raise SdkRuntimeError(
            f"{what}: a port must be given, got {type(port).__name__}", "create_input_port or create_output_port"
        )


def _check_params(regions: Sequence[CodeRegion]) -> Mapping[str, Set[str]]:
    """Check that programs have the parameters that are set.

    Returns:
        by path, names of parameters of other types than color
    """
    numbers: dict[str, Set[str]] = {}
    for region in regions:
        shown = shown_path(region.path)
        file = parse(Source(shown, text_of(region.path, shown)))
        params = {each.name: each.type for each in file.declarations if isinstance(each, syntax.Param)}
        for name in {name: None for of_pe in region.params.values() for name in of_pe}:
            if name not in params:
                raise SdkRuntimeError(
                    f"compile: region '{region.name}': set_param: {shown} has no param '{name}'",
                    did_you_mean(name, params) or f"it has: {', '.join(params) or 'none'}",
                )
        numbers[region.path] = {
            name for name, type_ in params.items() if isinstance(type_, syntax.Name) and type_.name != "color"
        }
    return numbers


def _with_data(program: FabricProgram, plan: Plan) -> FabricProgram:
    """A program with the values of `set_symbol`."""
    found: dict[tuple[str, int], tuple[list[int], list[NDArray[np.uint8]]]] = {}
    for name, pe, values in plan.data():
        raw = _raw(program, name, pe, values)
        pes, rows = found.setdefault((name, raw.size), ([], []))
        pes.append(pe)
        rows.append(raw)
    data = tuple(Initial(name, np.array(pes, np.int32), np.array(rows)) for (name, _), (pes, rows) in found.items())
    return replace(program, data=data)


def _raw(program: FabricProgram, name: str, pe: int, values: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of a variable's values, checked."""
    of_pe = program.program_of(pe)
    assert of_pe is not None
    variable = of_pe.variable(name)
    if variable is None:
        raise SdkRuntimeError(
            f"compile: set_symbol: {of_pe.name} has no variable '{name}'",
            did_you_mean(name, [*of_pe.symbols, *of_pe.variables]) or "a variable that nothing uses has no memory",
        )
    own = np.dtype(DTYPES[variable.letter])
    if values.dtype.itemsize != own.itemsize or values.dtype.kind not in "biuf":
        raise SdkRuntimeError(
            f"compile: set_symbol: '{name}' of {of_pe.name} must get {own.name}, got {values.dtype}",
            f"data.astype(np.{own.name})",
        )
    if values.size > variable.count:
        raise SdkRuntimeError(
            f"compile: set_symbol: '{name}' of {of_pe.name} has {counted(variable.count, 'element')}, got {values.size}"
        )
    return values.view(np.uint8)
