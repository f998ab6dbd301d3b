"""A layout in Python as files of CSL for the compiler: `layout.csl`, and the programs of PEs without one."""

import itertools
import re
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

from cstool.csl.fabric.arch import PORTS
from cstool.csl.sdk.checks import Cell
from cstool.csl.sdk.client import SdkRuntimeError
from cstool.csl.sdk.layout_types import Color, Positions

MOVER = """\
// Moves wavelets from one color to another: between the host and the fabric.
param source: color;
param target: color;

const input = @get_input_queue(2);
const output = @get_output_queue(2);
const again = @get_local_task_id(9);

const taken = @get_dsd(fabin_dsd, .{ .fabric_color = source, .extent = 32767, .input_queue = input });
const sent = @get_dsd(fabout_dsd, .{ .fabric_color = target, .extent = 32767, .output_queue = output });

task move() void {
  @mov32(sent, taken, .{ .async = true, .activate = again });
}

comptime {
  @bind_local_task(move, again);
  @activate(again);
  if (@is_arch("wse3")) {
    @initialize_queue(input, .{ .color = source });
    @initialize_queue(output, .{ .color = target });
  }
}
"""
EMPTY = "// The program of PEs that only pass wavelets on.\n"


def layout_text(
    size: Cell, tiles: Mapping[Cell, tuple[str, str]], configs: Mapping[int, Mapping[Cell, Positions]]
) -> str:
    """The text of the layout's file.

    Args:
        size: columns and rows
        tiles: by PE: file and parameters, as text
        configs: by color, by PE
    """
    lines = [f"@set_rectangle({size[0]}, {size[1]});"]
    lines += _runs(
        (cell, f"@set_tile_code(\0, \1, {_quoted(path)}, {params});") for cell, (path, params) in tiles.items()
    )
    for color, of_color in sorted(configs.items()):
        lines += _runs(
            (cell, f"@set_color_config(\0, \1, @get_color({color}), {_config(positions)});")
            for cell, positions in of_color.items()
        )
    return "// Written from a layout in Python.\nlayout {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def params_text(params: Mapping[str, Any], colors: Mapping[Color, int], numbers: Set[str]) -> str:
    """Parameters as a struct of CSL.

    Args:
        params: values by name
        colors: the number of each color in it
        numbers: names of parameters that take the number of a color, not the color
    """
    fields = []
    for name, value in sorted(params.items()):
        if isinstance(value, Color):
            text = str(colors[value]) if name in numbers else f"@get_color({colors[value]})"
        elif isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, str):
            text = _quoted(value)
        else:
            text = repr(value)
        fields.append(f".{name} = {text}")
    return ".{ " + ", ".join(fields) + " }" if fields else ".{}"


def write_layout(folder: Path, text: str) -> Path:
    """Write the files; return the path of the layout's file.

    Raises:
        SdkRuntimeError: they cannot be written
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in {"mover.csl": MOVER, "empty.csl": EMPTY, "layout.csl": text}.items():
            (folder / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise SdkRuntimeError(f"compile: {folder} must be a directory to write to, got: {error.strerror}") from None
    return folder / "layout.csl"


def _quoted(text: str) -> str:
    return '"' + re.sub(r'[\x00-\x1f\x7f"\\]', lambda found: f"\\u{{{ord(found[0]):x}}}", text) + '"'


def _runs(lines: Iterable[tuple[Cell, str]]) -> list[str]:
    """Statements for PEs, in their order; like statements of neighbours in a row are a loop."""
    result = []
    ordered = sorted(lines, key=lambda line: (line[0][1], line[0][0]))
    for (y, text, _), group in itertools.groupby(
        enumerate(ordered), key=lambda each: (each[1][0][1], each[1][1], each[1][0][0] - each[0])
    ):
        columns = [cell[0] for _, (cell, _) in group]
        body = text.replace("\1", str(y))
        if len(columns) == 1:
            result.append(body.replace("\0", str(columns[0])))
        else:
            loop = f"for (@range(i16, {columns[0]}, {columns[-1] + 1}, 1)) |x| {{ "
            result.append(loop + body.replace("\0", "x") + " }")
    return result


def _config(positions: Positions) -> str:
    first, *others = positions
    fields = [f".routes = {_route(*first)}"]
    if others:
        switches = ", ".join(f".pos{number} = {_route(*each)}" for number, each in enumerate(others, start=1))
        fields.append(f".switches = .{{ {switches} }}")
    return f".{{ {', '.join(fields)} }}"


def _route(come: frozenset[int], go: frozenset[int]) -> str:
    names = [", ".join(PORTS[port] for port in sorted(ports)) for ports in (come, go)]
    return f".{{ .rx = .{{ {names[0]} }}, .tx = .{{ {names[1]} }} }}"
