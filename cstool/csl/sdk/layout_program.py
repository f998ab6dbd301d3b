"""`SdkLayout`: layouts written in Python (`cerebras.sdk.runtime.sdkruntimepybind`).

Names follow the vendor's reference (SDK 2.10 documentation, "SdkLayout API Reference"). The layout becomes a file of
CSL in the directory of the compiled program, and the compiler of CSL does the rest. The program's rectangle holds all
regions and a ring of PEs around them, on which ways run. A stream of the host reaches the fabric at a PE of the
ring, which moves its wavelets to the color of the port, or from it.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

from cstool.csl.language.compile import compile_csl
from cstool.csl.sdk.artifact import write_program
from cstool.csl.sdk.client import SdkRuntimeError
from cstool.csl.sdk.layout_plan import Plan
from cstool.csl.sdk.layout_region import CodeRegion
from cstool.csl.sdk.layout_text import write_layout
from cstool.csl.sdk.layout_types import HOST_IN, HOST_OUT, PortHandle, Stream
from cstool.csl.sdk.platforms import SdkCompileArtifacts, SdkExecutionPlatform


class SdkLayout:
    """A layout: regions of PEs, their routes, and their connections with each other and with the host.

    Args:
        platform: names the generation; WSE-3 by default

    Raises:
        SdkRuntimeError: from every method: an argument is invalid
    """

    def __init__(self, platform: SdkExecutionPlatform) -> None:
        target = platform.target
        self._arch = "wse3" if target is None else target.value
        self._regions: list[CodeRegion] = []
        self._links: list[tuple[PortHandle, PortHandle]] = []
        self._streams: list[Stream] = []

    def create_code_region(self, path: str | os.PathLike[str], name: str, width: int, height: int) -> CodeRegion:
        """Make a region of PEs that run a CSL file."""
        if any(region.name == name for region in self._regions):
            raise SdkRuntimeError(f"create_code_region: a region's name must be its own, got '{name}' again")
        self._regions.append(CodeRegion(os.path.abspath(path), name, width, height))
        return self._regions[-1]

    def connect(self, output: PortHandle, input: PortHandle) -> None:
        """Route wavelets out of one port into another. Their colors become one."""
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

    def create_input_stream(self, port: PortHandle) -> Stream:
        """Make a stream from the host to an input port: `SdkRuntime.send`."""
        return self._stream("create_input_stream", port, True)

    def create_output_stream(self, port: PortHandle) -> Stream:
        """Make a stream from an output port to the host: `SdkRuntime.receive`."""
        return self._stream("create_output_stream", port, False)

    def compile(self, out_prefix: str | os.PathLike[str] = "out") -> SdkCompileArtifacts:
        """Compile the layout into a directory.

        Raises:
            SdkRuntimeError: a part of the layout is impossible
            CslError: a program has an error
        """
        folder = Path(out_prefix).absolute()
        plan = Plan(self._regions, self._links, self._streams)
        path = write_layout(folder, plan.text(folder))
        program = compile_csl(
            path,
            self._arch,
            fabric_offsets=plan.bounds[:2],
            memcpy=False,
            name_exports=False,
            on_warning=lambda warning: print(f"warning: {warning}", file=sys.stderr),
        )
        streams = {"MEMCPYH2D_1": HOST_IN, "MEMCPYD2H_1": HOST_OUT} if self._streams else {}
        write_program(replace(program, streams=streams), folder)
        return SdkCompileArtifacts(str(out_prefix))

    def _need_free(self, what: str, port: PortHandle) -> None:
        ports = [each for link in self._links for each in link] + [stream.port for stream in self._streams]
        if port in ports:
            raise SdkRuntimeError(f"{what}: a port is connected once, {port} is already")

    def _stream(self, what: str, port: PortHandle, is_input: bool) -> Stream:
        if port.is_input != is_input:
            raise SdkRuntimeError(f"{what}: an {'input' if is_input else 'output'} port is expected, got {port}")
        count = len(port.region.edge_cells(port.edge))
        if count != 1:
            raise SdkRuntimeError(f"{what}: the edge of a port of the host must be one PE, that of {port} has {count}")
        self._need_free(what, port)
        self._streams.append(Stream(port))
        return self._streams[-1]
