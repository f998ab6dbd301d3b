"""The same cycles twice: CSL programs on the simulated fabric beside the closed forms of `cstool.plan.timing`.

Run from the project's folder::

    python -m benchmarks.closed_forms                # the table, as markdown; --most 8 for small grids alone
    python -m benchmarks.closed_forms --variants     # what each constant of the machine is worth, by changing it

*simulated*: cycles that the engine counts on the modelled machine, from when the launch reaches the PEs until the last
PE unblocks its command stream. *closed form*: what `cstool.plan.timing` says of the same tiles, at an efficiency of 1.
Neither was measured on a wafer. Every difference is taken apart into terms; what they leave is the last column, and
a test wants it to be 0.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric import arch as arches
from cstool.csl.fabric import network, vector
from cstool.csl.fabric.dsd import Mem1d
from cstool.csl.fabric.host import Host, Rectangle
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fabric.time_model import SIMULATOR
from cstool.csl.language.compile import compile_csl
from cstool.model.ir import Layout, MatMul
from cstool.model.system import load_system
from cstool.plan.timing.collectives import broadcast_cycles, chain_cycles, tree_cycles
from cstool.plan.timing.pe import Pe
from cstool.plan.timing.streaming import hop_latency_cycles, stream_of, streamed_phases

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "csl"
TIME = SIMULATOR
SYSTEMS = {"wse2": "cs2", "wse3": "cs3"}
GRIDS = (4, 8, 16, 32)
LENGTHS = (1, 16, 128)
TOKENS = (4, 16, 64)
TILE = (4, 4)
"""of the streamed AXPY: inputs of a PE, outputs"""
HOP = 1
"""cycles from router to router (F03)"""
READ = 1
"""cycles from when a wavelet is accepted until it can be read"""


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Args:
        program: directory in examples/csl
        arch: "wse2" or "wse3"
        width, height: PEs
        size: of its vectors, in words
        simulated: cycles that the engine counted
        closed_form: cycles of `cstool.plan.timing`
        terms: what the first has beside the second [cycles]
    """

    program: str
    arch: str
    width: int
    height: int
    size: str
    simulated: int
    closed_form: int
    terms: Mapping[str, int]

    @property
    def unexplained(self) -> int:
        """Cycles that no term explains."""
        return self.simulated - self.closed_form - sum(self.terms.values())


Span = tuple[str, int, int]
"""a task: its name, begin and end [cycles after the launch]"""


@dataclass(frozen=True)
class Ran:
    """What a launch did.

    Args:
        cycles: from its arrival at the PEs until the last PE unblocked its command stream
        tasks: by PE index, in order
        simulation: after it
    """

    cycles: int
    tasks: Mapping[int, Sequence[Span]]
    simulation: Simulation


def launch(program: FabricProgram, function: str, inputs: Mapping[str, NDArray[Any]]) -> Ran:
    """Copy `inputs` [height, width, elements] to symbols from the north-west corner on, then run a function."""
    begins: dict[int, tuple[str, int]] = {}
    spans: list[tuple[int, Span]] = []

    def on_trace(time: int, pe: int, kind: str, *fields: Any) -> None:
        if kind == "task":
            begins[pe] = fields[0], time
        elif kind == "task_end":
            spans.append((pe, (*begins[pe], time)))

    simulation = Simulation(program, on_trace=on_trace, time_model=TIME)
    host = Host(simulation)
    for name, values in inputs.items():
        bits = 8 * values.dtype.itemsize
        words = values.view(f"<u{values.dtype.itemsize}").astype("<u4")
        height, width, _ = values.shape
        host.finish(host.copy_in(name, Rectangle(0, 0, width, height), words, bits, values.size))
    command = host.launch(function, ())
    host.finish(command)
    tasks: dict[int, list[Span]] = {}
    for pe, (name, begin, end) in spans:
        tasks.setdefault(pe, []).append((name, begin - command.started, end - command.started))
    return Ran(simulation.events.now - command.started, tasks, simulation)


def compiled(name: str, arch: str, params: Mapping[str, object]) -> FabricProgram:
    """A program of examples/csl."""
    return compile_csl(EXAMPLES / name / "layout.csl", arch, params)


# --- what paths through the fabric take, by the constants of the simulator ---


def chain(pe_count: int) -> int:
    """Cycles by which the last PE of a chain is behind the first.

    Each PE reads an element from its queue, adds, sends: up the ramp, a hop, down the ramp, and a cycle to be read.
    """
    return (pe_count - 1) * (2 * network.RAMP_CYCLES + HOP + READ)


def broadcast(pe_count: int) -> int:
    """Cycles by which the last PE of a multicast is behind the first: one ramp up, hops, one ramp down, one to read."""
    return (pe_count - 1) * HOP + 2 * network.RAMP_CYCLES + READ


def _tasks_at_ends(ran: Ran) -> dict[str, int]:
    """What comes before the first operation, and after the last."""
    last = max((spans[-1] for spans in ran.tasks.values()), key=lambda span: span[2])
    return {"task starts": 2 * TIME.switch, "unblocking the host": last[2] - last[1]}


# --- the programs ---


def row_reduce(arch: str, width: int, height: int, n: int) -> Row:
    """Sums of n elements over each row, at its west end; the form is that of a chain."""
    program = compiled("row_reduce", arch, {"width": width, "height": height, "n": n})
    ran = launch(program, "reduce", {"values": np.ones((height, width, n), np.float32)})
    form = chain_cycles(load_system(SYSTEMS[arch]).links, width, n)
    terms = {
        "chain through PEs": chain(width) + n - form,
        "operation starts": vector.LAUNCH + vector.START,
        **_tasks_at_ends(ran),
    }
    return Row("row_reduce", arch, width, height, f"n {n}", ran.cycles, form, terms)


def allreduce_two_phase(arch: str, width: int, height: int, n: int) -> Row:
    """Sums of n elements over the grid, at every PE: chains and broadcasts along a row, then along a column."""
    program = compiled("allreduce_two_phase", arch, {"width": width, "height": height, "n": n})
    ran = launch(program, "allreduce", {"values": np.ones((height, width, n), np.float32)})
    links = load_system(SYSTEMS[arch]).links
    chains = sum(chain_cycles(links, side, n) for side in (width, height))
    broadcasts = sum(broadcast_cycles(links, side, n) for side in (width, height))
    ends = _tasks_at_ends(ran)
    terms = {
        "chain through PEs": chain(width) + chain(height) + 2 * n - chains,
        "broadcasts": broadcast(width) + broadcast(height) + 2 * n - broadcasts,
        "operation starts": 4 * (vector.LAUNCH + vector.START),
        **ends,
        "task starts": ends["task starts"] + 3 * TIME.switch,
    }
    return Row("allreduce_two_phase", arch, width, height, f"n {n}", ran.cycles, chains + broadcasts, terms)


def allreduce_tree(arch: str, width: int, height: int, n: int) -> Row:
    """Sums over a row of a power of 2 by a tree, and their broadcast."""
    levels = width.bit_length() - 1
    program = compiled("allreduce_tree", arch, {"levels": levels, "n": n})
    ran = launch(program, "allreduce", {"values": np.ones((height, width, n), np.float32)})
    links = load_system(SYSTEMS[arch]).links
    form = tree_cycles(links, width, n) + broadcast_cycles(links, width, n)
    # A level is a message over 2**level hops, after which all begins anew.
    path = sum(broadcast(2**level + 1) for level in range(levels)) + broadcast(width)
    ends = _tasks_at_ends(ran)
    first = ran.tasks[0][0]
    terms = {
        "tree and broadcast": path + (levels + 1) * n - form,
        "operation starts": (levels + 1) * vector.START + vector.LAUNCH,
        **ends,
        "task starts": ends["task starts"] + TIME.switch,
        "scalar code": first[2] - first[1],
    }
    return Row("allreduce_tree", arch, width, height, f"n {n}", ran.cycles, form, terms)


def sparse_axpy(arch: str, width: int, height: int, tokens: int, folder: Path = EXAMPLES / "sparse_axpy") -> Row:
    """A dense W of `TILE` streamed past `tokens` columns of X, then sums along rows.

    The form: a product that streams, forward, and the latency of a kernel's phase. The slowest PEs are those of the top
    row, which send the weights, too; all of their columns do the same.
    """
    inputs, outputs = TILE
    params = _axpy_params(width, height, tokens)
    program = compile_csl(folder / "layout.csl", arch, params)
    weights = np.arange(inputs * outputs) + 1.0
    index = np.arange(inputs * outputs) % inputs
    stream = index.astype(np.uint32) << 16 | weights.astype(np.float16).view(np.uint16)
    values = {
        "X": np.ones((height, width, inputs * tokens), np.float32),
        "stream": np.broadcast_to(stream, (1, width, stream.size)).copy(),
        "lengths": np.full((1, width, outputs), inputs, np.uint16),
    }
    ran = launch(program, "multiply", values)

    system = load_system(SYSTEMS[arch])
    pe = Pe(system, 32)
    work = [MatMul(tokens=height * tokens, inputs=width * inputs, outputs=outputs)]
    layout = Layout(groups=1, columns=width, rows=height, tokens_per_pe=tokens)
    phases = streamed_phases(pe, work, layout, 1, stream_of(system, 32))
    sums = outputs * tokens
    latency = hop_latency_cycles(pe, layout) + chain_cycles(system.links, width, sums) - sums

    # The top row's east PE begins the sums: what it did before.
    before = list(_before(ran.tasks[width - 1], "sum"))
    spent = _spent(before)
    products = inputs * outputs * (vector.START + tokens)
    meets = _conflicts(ran.simulation, width - 1, tokens)
    scalar = inputs * outputs * _least(ran.tasks.values(), "weight") - products - meets
    busy = sum(spent.values())
    begins = next(begin for name, begin, _ in ran.tasks[width - 1] if name == "sum")
    switches = (len(before) + 1) * TIME.switch
    ends = _tasks_at_ends(ran)
    terms = {
        "reads meet in a bank": meets,
        "a task for each weight": TIME.switch * inputs * outputs,
        "its scalar code": scalar,
        "ends of rows of W": spent["row_ended"] + outputs * TIME.switch,
        "sending, on the top row": busy - spent["row_ended"] - products - meets - scalar
        + switches - TIME.switch * (inputs * outputs + outputs),
        "waiting for the first weights": begins - busy - switches,
        "chain through PEs, less the form's call": chain(width) - latency,
        "operation starts": vector.LAUNCH + vector.START,
        "task starts": TIME.switch,
        "unblocking the host": ends["unblocking the host"],
        "products, less the form's": products - inputs * outputs * pe.axpy_cycles(tokens, is_apart=True),
    }  # fmt: skip
    form = int(phases.forward.compute) + latency
    return Row("sparse_axpy", arch, width, height, f"t {tokens}", ran.cycles, form, terms)


def _axpy_params(width: int, height: int, tokens: int) -> dict[str, object]:
    inputs, outputs = TILE
    return {
        "width": width,
        "height": height,
        "features": inputs * width,
        "outputs": outputs,
        "tokens": tokens,
        "capacity": inputs * outputs,
    }


def _before(spans: Sequence[Span], name: str) -> Iterator[Span]:
    for span in spans:
        if span[0] == name:
            return
        yield span


def _spent(spans: Sequence[Span]) -> Counter[str]:
    """Cycles by task."""
    spent: Counter[str] = Counter()
    for name, begin, end in spans:
        spent[name] += end - begin
    return spent


def _least(all_spans: Iterable[Sequence[Span]], name: str) -> int:
    """Cycles of a task that loses none to microthreads."""
    return min(end - begin for spans in all_spans for task, begin, end in spans if task == name)


def _conflicts(simulation: Simulation, pe: int, tokens: int) -> int:
    """Cycles that reads of X and Y in the same bank cost a PE, over all its AXPYs."""
    inputs, outputs = TILE
    of = simulation.pes[pe]
    at = {}
    for name in "XY":
        symbol = of.program.symbols[name]
        at[name] = symbol.address if symbol.pointer is None else int(of.load("H", symbol.pointer))
    y = [Mem1d(at["Y"] + 4 * tokens * row, tokens, 4, 4) for row in range(outputs)]
    x = [Mem1d(at["X"] + 4 * tokens * row, tokens, 4, 4) for row in range(inputs)]
    return sum(vector.cycles(tokens, 1, ((a, "f"), (a, "f"), (b, "f"))) - tokens for a in y for b in x)


# --- the table ---


def rows(most: int = GRIDS[-1], lengths: Sequence[int] = LENGTHS, tokens: Sequence[int] = TOKENS) -> Iterator[Row]:
    """All lines of the table up to a grid of most x most PEs, on WSE-2; of 8 x 8 on WSE-3, too."""
    for grid in (each for each in GRIDS if each <= most):
        for arch in ("wse2", "wse3") if grid == 8 else ("wse2",):
            for t in tokens:
                yield sparse_axpy(arch, grid, grid, t)
            for n in lengths:
                yield row_reduce(arch, grid, grid, n)
            for n in lengths:
                yield allreduce_two_phase(arch, grid, grid, n)
            for n in lengths:
                yield allreduce_tree(arch, grid, 1, n)


def table(found: Sequence[Row]) -> Iterator[str]:
    """Markdown: a line for each program and grid, simulated cycles / closed form for each length."""
    yield "| program | arch | PEs | shortest | middle | longest |"
    yield "|---|---|---|---:|---:|---:|"
    for program, arch, size, group in _groups(found):
        cells = (f"{row.size}: {row.simulated:,} / {row.closed_form:,}" for row in group)
        yield f"| {program} | {arch} | {size} | {' | '.join(cells)} |"


def terms(found: Sequence[Row]) -> Iterator[str]:
    """Markdown: how the middle length of each line differs, by term."""
    yield "| program | arch | PEs | size | difference | by term | left |"
    yield "|---|---|---|---|---:|---|---:|"
    for program, arch, size, group in _groups(found):
        row = group[len(group) // 2]
        listed = ", ".join(f"{name} {cycles:+,}" for name, cycles in row.terms.items() if cycles)
        difference = row.simulated - row.closed_form
        yield f"| {program} | {arch} | {size} | {row.size} | {difference:+,} | {listed} | {row.unexplained} |"


def _groups(found: Sequence[Row]) -> Iterator[tuple[str, str, str, Sequence[Row]]]:
    """Rows of the same program and grid, in the order of `PROGRAMS`."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in sorted(found, key=lambda each: list(PROGRAMS).index(each.program)):
        groups.setdefault((row.program, row.arch, f"{row.width} x {row.height}"), []).append(row)
    for key, group in groups.items():
        yield *key, group


PROGRAMS: dict[str, Callable[[str, int, int, int], Row]] = {
    "sparse_axpy": sparse_axpy,
    "row_reduce": row_reduce,
    "allreduce_two_phase": allreduce_two_phase,
    "allreduce_tree": allreduce_tree,
}


# --- variants: one constant of the machine changed at a time ---


def _queues_of(size: int) -> Any:
    changed = replace(arches.WSE2, input_queues=(size,) * 8)
    return [patch.dict(arches.ARCHS, {"wse2": changed})]


_HERE = sys.modules[__name__]
VARIANTS: dict[str, Callable[[], list[Any]]] = {
    "as it is": list,
    "a cycle more to switch tasks": lambda: [patch.object(_HERE, "TIME", replace(TIME, switch=TIME.switch + 1))],
    "a cycle more to start an operation": lambda: [patch.object(vector, "START", vector.START + 1)],
    "no cycles to turn from operation to operation": lambda: [patch.object(_HERE, "TIME", replace(TIME, turn=0))],
    "a ramp of 1 cycle": lambda: [patch.object(network, "RAMP_CYCLES", 1)],
    "a ramp of 3 cycles": lambda: [patch.object(network, "RAMP_CYCLES", 3)],
    "input queues of 1": partial(_queues_of, 1),
    "input queues of 2": partial(_queues_of, 2),
    "input queues of 64": partial(_queues_of, 64),
}


def variants(grid: int = 8) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Simulated cycles of the four programs on a grid, vectors of 16, for each change of a constant."""
    for name, patches in VARIANTS.items():
        with ExitStack() as stack:
            for each in patches():
                stack.enter_context(each)
            yield (
                name,
                tuple(
                    run("wse2", grid, 1 if program == "allreduce_tree" else grid, 16).simulated
                    for program, run in PROGRAMS.items()
                ),
            )


def apart(grid: int = 8, tokens: int = 16) -> int:
    """Simulated cycles of the streamed AXPY with an element behind X, so that reads of X and Y never meet in a bank."""
    with TemporaryDirectory() as folder:
        changed = Path(folder)
        for path in (EXAMPLES / "sparse_axpy").glob("*.csl"):
            text = path.read_text().replace("var X: [features, tokens]f32", "var X: [features * tokens + 1]f32")
            (changed / path.name).write_text(text.replace("X[0, i]", "X[i]"))
        return sparse_axpy("wse2", grid, grid, tokens, changed).simulated


def main() -> None:
    """Print the table, or the variants."""
    parser = argparse.ArgumentParser(description="CSL programs on the simulated fabric beside closed forms.")
    parser.add_argument("--most", type=int, default=GRIDS[-1], help="largest grid (default: %(default)s)")
    parser.add_argument("--variants", action="store_true", help="one constant of the machine changed at a time")
    arguments = parser.parse_args()
    if arguments.variants:
        print(f"| simulated cycles, 8 x 8 PEs, vectors of 16 | {' | '.join(PROGRAMS)} |")
        print(f"|---|{'---:|' * len(PROGRAMS)}")
        for name, cycles in variants():
            print(f"| {name} | {' | '.join(f'{each:,}' for each in cycles)} |")
        print(f"| an element behind X | {apart():,} |{' |' * (len(PROGRAMS) - 1)}")
        return
    found = list(rows(arguments.most))
    print(*table(found), "", *terms(found), sep="\n")


if __name__ == "__main__":
    main()
