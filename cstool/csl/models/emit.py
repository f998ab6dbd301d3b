"""The CSL of a network: a layout, a program for its PEs, and the calls of its host, in a folder that runs by itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from cstool.csl.language.format import formatted
from cstool.csl.language.source import Source
from cstool.csl.models.memory import Memory, plan_memory
from cstool.csl.models.network import Network

PIECES = ("row.csl", "column.csl", "products.csl", "vectors.csl", "functions.csl", "loss.csl")
"""code that is the same for all networks"""
WEST, EAST, NORTH, SOUTH = 4, 3, 1, 1
"""columns and rows that memcpy takes around a program"""


def write_folder(network: Network, folder: Path) -> list[str]:
    """Write the program of a network, and return the names of the files.

    Raises:
        CompileError: a layer does not fit
        OSError: a file cannot be written
    """
    memory = plan_memory(network)
    here = files("cstool.csl.models")
    texts = {
        "layout.csl": _csl("layout.csl", layout_text(network)),
        "pe.csl": _csl("pe.csl", pe_text(network, memory)),
        **{name: (here / "pieces" / name).read_text() for name in PIECES},
        "host.py": (here / "host.py").read_text(),
        "run.py": (here / "pieces" / "run.py").read_text(),
        "network.json": json.dumps(plan_of(network, memory), indent=1) + "\n",
        "commands_wse3.sh": commands_text(network.columns, network.rows),
    }
    write_files(folder, texts)
    return [*texts]


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the files of a folder that runs by its commands_wse3.sh, and remove the files of an older program.

    Raises:
        OSError: a file cannot be written
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name in ("run.py", "commands_wse3.sh"):
        (folder / name).chmod(0o755)
    shutil.rmtree(folder / "out", ignore_errors=True)


def plan_of(network: Network, memory: Memory) -> dict[str, Any]:
    """Return the contents of `network.json`, by which `host.py` knows a network."""
    return asdict(network) | {"rows_at_a_time": memory.rows}


def commands_text(columns: int, rows: int) -> str:
    """Return the script that compiles and runs a program."""
    dims = f"{columns + WEST + EAST},{rows + NORTH + SOUTH}"
    return (
        "#!/usr/bin/env bash\nset -e\n"
        f"cslc layout.csl --arch=wse3 --fabric-dims={dims} --fabric-offsets={WEST},{NORTH} -o out --memcpy "
        "--channels=1\ncs_python run.py\n"
    )


_PLACES = """
// Of weights that are not zero their places, which have their number before them and an end behind.
var places = @zeros([if (column.is_first) streamed + 2 else 2]u32);
const places_pointer: [*]u32 = &places;
const places_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{1} -> places[i + 1] });

fn send_sparse() void {
  if (!column.is_first) return;
  const count = @as(u16, places[0]);
  if (count > 0) column.send(stream_dsd, count);
  column.send_indices(places_dsd, count + 1);
}

"""


def identifier(name: str) -> str:
    """Return the name of a layer as CSL can have it."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def functions_of(network: Network) -> dict[str, str]:
    """Return the exported functions, each with its type."""
    passes, plain = "fn(u16,u16)void", "fn()void"
    found = {"zero_sums": plain, "zero_deltas": plain}
    for number, layer in enumerate(network.layers):
        name, is_last = identifier(layer.name), number == len(network.layers) - 1
        passing = plain if layer.is_sparse else passes
        found[f"{name}_forward"] = passing
        if not is_last:
            found[f"{name}_activation"] = plain
        found |= {f"{name}_gather": plain, f"{name}_gradient": passes, f"{name}_bias_gradient": plain}
        if number > 0:
            found |= {f"{name}_delta": passing, f"{name}_relu_delta": plain}
    return found | {"loss": plain}


def has_sparse(network: Network) -> bool:
    """Whether a layer has sparse weights."""
    return any(layer.is_sparse for layer in network.layers)


def layout_text(network: Network) -> str:
    """Return the file with the layout: colors, routes, programs, names for the host."""
    exported = "".join(
        f'  @export_name("{name}", {kind}{"" if kind.startswith("fn") else ", true"});\n'
        for name, kind in {
            "arena": "[*]f32",
            "stream": "[*]f32",
            **({"places": "[*]u32"} if has_sparse(network) else {}),
            "gradient": "[*]f32",
            "labels": "[*]u32",
            "scale": "[*]f32",
            "losses": "[*]f32",
            "correct": "[*]u32",
            **functions_of(network),
        }.items()
    )
    return f"""\
// {network.name} on {network.columns} x {network.rows} PEs: features over columns, tokens over rows.
// Written by cstool compile --emit csl.

const columns: u16 = {network.columns};
const rows: u16 = {network.rows};

// Neighbours along a chain speak on one color and hear on the other.
const from_first = @get_color(2);
const weights = @get_color(3);
const indices = @get_color(4);

const memcpy = @import_module("<memcpy/get_params>", .{{ .width = columns, .height = rows }});

layout {{
  @set_rectangle(columns, rows);
  for (@range(u16, columns)) |x| {{
    const to_west = @get_color(x % 2);
    const from_east = @get_color((x + 1) % 2);
    for (@range(u16, rows)) |y| {{
      const to_south = @get_color(5 + y % 2);
      const from_north = @get_color(5 + (y + 1) % 2);
      @set_tile_code(x, y, "pe.csl", .{{
        .memcpy_params = memcpy.get_params(x),
        .along_row = .{{ .column = x, .columns = columns, .to_west = to_west, .from_east = from_east,
          .from_first = from_first }},
        .along_column = .{{ .row = y, .rows = rows, .weights = weights, .indices = indices, .to_south = to_south,
          .from_north = from_north }},
      }});
      if (x > 0) @set_color_config(x, y, to_west, .{{ .routes = .{{ .rx = .{{ RAMP }}, .tx = .{{ WEST }} }} }});
      if (x < columns - 1) {{
        @set_color_config(x, y, from_east, .{{ .routes = .{{ .rx = .{{ EAST }}, .tx = .{{ RAMP }} }} }});
      }}
      if (columns > 1) @set_color_config(x, y, from_first, .{{ .routes = .{{
        .rx = if (x == 0) .{{ RAMP }} else .{{ WEST }},
        .tx = if (x == 0) .{{ EAST }} else if (x == columns - 1) .{{ RAMP }} else .{{ RAMP, EAST }},
      }} }});
      const down = .{{ .routes = .{{
        .rx = if (y == 0) .{{ RAMP }} else .{{ NORTH }},
        .tx = if (y == rows - 1) .{{ RAMP }} else .{{ RAMP, SOUTH }},
      }} }};
      @set_color_config(x, y, weights, down);
      @set_color_config(x, y, indices, down);
      if (y < rows - 1) {{
        @set_color_config(x, y, to_south, .{{ .routes = .{{ .rx = .{{ RAMP }}, .tx = .{{ SOUTH }} }} }});
      }}
      if (y > 0) @set_color_config(x, y, from_north, .{{ .routes = .{{ .rx = .{{ NORTH }}, .tx = .{{ RAMP }} }} }});
    }}
  }}
{exported}}}
"""


def pe_text(network: Network, memory: Memory) -> str:
    """Return the program of a PE: the pieces, the arena, and a function for each op and phase."""
    width, tokens, last = network.width, network.tokens, network.layers[-1]
    most = max(width[:-1])
    places = _PLACES if has_sparse(network) else ""
    parts = [
        f"""\
// {network.name}: a PE's part of each op. The host calls one function after the other.
// Written by cstool compile --emit csl.

param memcpy_params;
param along_row;
param along_column;

const tokens: u16 = {tokens};
const memcpy = @import_module("<memcpy/memcpy>", memcpy_params);
const row = @import_module("row.csl", along_row);
const column = @import_module("column.csl", along_column);
const vectors = @import_module("vectors.csl", .{{ .tokens = tokens }});

// Weights and places that the host puts into the top PE; on others, the biases that arrive.
const streamed: u16 = {memory.stream};
const end_id = @get_local_task_id(8);
const products = @import_module("products.csl", .{{
  .tokens = tokens, .most_inputs = {most},
  .weights_in = column.weights_in, .indices_in = column.indices_in, .finished_id = end_id,
}});

// Activations first, then deltas of inputs, sums or deltas of all outputs, gradients.
var arena align(16) = @zeros([{memory.size}]f32);
var stream = @zeros([if (column.is_first) streamed else 1]f32);
{places}var biases = @zeros([{max(*width[1:], last.outputs)}]f32);
const arena_pointer: [*]f32 = &arena;
const stream_pointer: [*]f32 = &stream;
const biases_pointer: [*]f32 = &biases;
const gradient_pointer: [*]f32 = @ptrcast([*]f32, &arena[{memory.gradient}]);

const first_token = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{tokens}} -> arena[i] }});
const stream_dsd = @get_dsd(mem1d_dsd, .{{ .base_address = &stream, .extent = 1 }});
const biases_dsd = @get_dsd(mem1d_dsd, .{{ .base_address = &biases, .extent = 1 }});

fn at(place: u16) mem1d_dsd {{
  return @increment_dsd_offset(first_token, @as(i16, place), f32);
}}

fn done() void {{
  memcpy.unblock_cmd_stream();
}}

task end() void {{
  done();
}}

fn zero(place: u16, count: u16) void {{
  @fmovs(@set_dsd_length(at(place), count), 0.0);
}}

fn zero_sums() void {{
  zero({memory.outputs}, {network.columns * max(width[1:]) * tokens});
  done();
}}

fn zero_deltas() void {{
  zero({memory.delta}, {max([0, *width[1:-1]]) * tokens});
  done();
}}

// Deltas of the rows that pass, token by token.
fn turn(first: u16, count: u16) void {{
  var from = @set_dsd_stride(@set_dsd_length(at({memory.outputs} + first * tokens), count), @as(i16, tokens));
  var into = @set_dsd_length(at({memory.turned}), count);
  for (@range(u16, tokens)) |_| {{
    @fmovs(into, from);
    from = @increment_dsd_offset(from, 1, f32);
    into = @increment_dsd_offset(into, @as(i16, count), f32);
  }}
}}
"""
    ]
    for number in range(len(network.layers)):
        parts.append(_layer_text(network, memory, number))
    parts.append(_loss_text(network, memory))
    exported = "".join(f"  @export_symbol({name});\n" for name in functions_of(network))
    places = '  @export_symbol(places_pointer, "places");\n' if has_sparse(network) else ""
    parts.append(f"""\
comptime {{
  @bind_local_task(end, end_id);
  @export_symbol(arena_pointer, "arena");
  @export_symbol(stream_pointer, "stream");
{places}  @export_symbol(gradient_pointer, "gradient");
  @export_symbol(labels_pointer, "labels");
  @export_symbol(scale_pointer, "scale");
  @export_symbol(losses_pointer, "losses");
  @export_symbol(correct_pointer, "correct");
{exported}}}
""")
    return "\n".join(parts)


def _layer_text(network: Network, memory: Memory, number: int) -> str:
    """Functions of a linear layer, forward and back."""
    layer, tokens = network.layers[number], network.tokens
    inputs, outputs = network.width[number : number + 2]
    name, is_last = identifier(layer.name), number == len(network.layers) - 1
    x, sums = memory.activations[number], memory.outputs
    own = f"at({sums} + row.column_of_pe * {outputs * tokens})"
    text = f"// {layer.name}: {layer.inputs} features, {inputs} of them here, to {layer.outputs}, {outputs} here.\n\n"
    if layer.is_sparse:
        text += f"""\
// Sums of weights that are not zero; the last one ends it.
fn {name}_forward() void {{
  products.expect(at({sums}), at({x}));
  send_sparse();
}}
"""
    else:
        text += f"""\
// Sums of rows of W that the host has put into `stream`.
fn {name}_forward(first: u16, rows: u16) void {{
  column.send(stream_dsd, rows * {inputs});
  products.forward(at({sums} + first * tokens), at({x}), {inputs}, rows);
  done();
}}
"""
    if not is_last:
        y = memory.activations[number + 1]
        bias = f"column.send(stream_dsd, {outputs});\n  column.receive(biases_dsd, {outputs});\n  " * layer.has_bias
        values = (
            f"vectors.add_bias(at({y}), {own}, biases_pointer, {outputs});"
            if layer.has_bias
            else f"@fmovs(@set_dsd_length(at({y}), {outputs * tokens}), @set_dsd_length({own}, {outputs * tokens}));"
        )
        text += f"""
// The row's sums, of which those of own outputs become activations.
fn {name}_activation() void {{
  row.sum(at({sums}), {network.columns * outputs * tokens});
  {bias}{values}
  vectors.relu(at({y}), {outputs * tokens});
  done();
}}
"""
    text += f"""
// Deltas of own outputs become deltas of all.
fn {name}_gather() void {{
  row.gather(at({sums}), {outputs * tokens});
  done();
}}

// The gradient of rows of W, transposed, is summed over the rows of PEs.
fn {name}_gradient(first: u16, rows: u16) void {{
  turn(first, rows);
  zero({memory.gradient}, {inputs} * rows);
  products.gradient(at({memory.gradient}), arena_pointer, {x}, at({memory.turned}), {inputs}, rows);
  column.sum(at({memory.gradient}), {inputs} * rows);
  done();
}}

fn {name}_bias_gradient() void {{
  vectors.bias_gradient(at({memory.gradient}), {own}, {outputs});
  column.sum(at({memory.gradient}), {outputs});
  done();
}}
"""
    if number == 0:
        return text
    block = inputs * tokens
    if layer.is_sparse:
        text += f"""
// Deltas of own inputs, of weights that come again.
fn {name}_delta() void {{
  products.expect(at({memory.delta}), at({sums}));
  send_sparse();
}}
"""
    else:
        text += f"""
// Deltas of own inputs, of rows of W that come again.
fn {name}_delta(first: u16, rows: u16) void {{
  column.send(stream_dsd, rows * {inputs});
  products.delta(at({memory.delta}), at({sums} + first * tokens), {inputs}, rows);
  done();
}}
"""
    return (
        text
        + f"""
// They become deltas of own outputs of the layer before.
fn {name}_relu_delta() void {{
  vectors.relu_delta(at({memory.delta}), at({x}), at({memory.delta + block}), {block});
  @fmovs(
    @set_dsd_length(at({sums} + row.column_of_pe * {block}), {block}), @set_dsd_length(at({memory.delta}), {block}));
  done();
}}
"""
    )


def _loss_text(network: Network, memory: Memory) -> str:
    last, tokens, own = network.layers[-1], network.tokens, network.width[-1]
    count, sums = last.outputs, memory.outputs
    bias = (
        f"column.send(stream_dsd, {count});\n  column.receive(biases_dsd, {count});\n"
        f"  vectors.add_bias(at({sums}), at({sums}), biases_pointer, {count});\n  " * last.has_bias
    )
    return f"""\
// Softmax cross entropy over {count} classes, {own} of them here at most.
const first_class = row.column_of_pe * {own};
const loss_of = @import_module("loss.csl", .{{
  .tokens = tokens, .classes = {count}, .first = first_class,
  .own = if (first_class >= {count}) 0 else if ({count} - first_class < {own}) {count} - first_class else {own},
}});
const labels_pointer: [*]u32 = &loss_of.labels;
const scale_pointer: [*]f32 = &loss_of.scale;
const losses_pointer: [*]f32 = &loss_of.losses;
const correct_pointer: [*]u32 = &loss_of.correct;

fn loss() void {{
  row.sum(at({sums}), {network.columns * own * tokens});
  {bias}loss_of.exponentials(at({sums}), arena_pointer, {sums});
  row.sum(loss_of.total_dsd, tokens);
  loss_of.deltas(at({sums}), arena_pointer, {sums});
  done();
}}
"""


def _csl(name: str, text: str) -> str:
    return formatted(Source(name, text))
