"""Simulated cycles beside published ones: those that constants are fitted to, and all others.

Run from the project's folder::

    python -m benchmarks.fabric_cycles            # the tables, as markdown; --quick for the small programs alone
    python -m benchmarks.fabric_cycles --stencil  # a stencil, scaled to the whole wafer (fabric_stencil.py)

The programs are our own, in `benchmarks/csl` and `examples/csl`: they do what the sources describe, as nobody's code is
copied here. *published* is what a source counted, in the vendor's simulator or on a CS-2; nothing was measured here.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import patch

from benchmarks import fabric_stencil
from cstool.csl.fabric import vector
from cstool.csl.fabric.host import Host
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fabric.time_model import BUSY_WAFER, SIMULATOR, TimeModel
from cstool.csl.language.compile import compile_csl

PROGRAMS = Path(__file__).parent / "csl"
EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "csl"
STREAM = "STREAM in CSL, public measurements"
LOOP = "ramp loop, public measurements"
MATVEC = "single-tile-matvec, out.csv of lingzhi227/MIMD_dataflow, 10 times"
SUMMA = "gemm-collectives_2d, public measurements on 32 to 750 PEs a side, a step"
SPMM = "CSV files of pr0f3ss/SpMM_Cerebras"
HPDC = "Luczynski et al., HPDC '24: their formula, at most 4% from a CS-2"
Run = Callable[[TimeModel], float]


@dataclass(frozen=True)
class Row:
    """A published count, and the program that is to take as long.

    Args:
        name: of the program, with its size
        model: of time
        kind: "memory" (vectors in memory), "fabric" or "scalar": what most of its cycles are, or the aim is about
        fitted: whether a constant is fitted to it
        published: cycles
        source: of these
        run: simulates the program with a model of time; its cycles
        quick: whether this takes a moment only
    """

    name: str
    model: TimeModel
    kind: str
    fitted: bool
    published: float
    source: str
    run: Run
    quick: bool = True


@dataclass(frozen=True)
class Found:
    """A row, simulated.

    Args:
        row: the row
        cycles: simulated
        terms: cycles that it would take less, were a constant nothing, by constant
    """

    row: Row
    cycles: float
    terms: Mapping[str, float]

    @property
    def error(self) -> float:
        """Simulated over published, less 1."""
        return self.cycles / self.row.published - 1


# --- programs ---


def one_pe(name: str, size: int, shape: int = 1) -> Run:
    """A program of `benchmarks/csl`, which measures itself by the clock of its PE."""
    params: dict[str, object] = {"file": f"{name}.csl", "size": size, "shape": shape}
    program = compile_csl(PROGRAMS / "layout.csl", "wse2", params)

    def run(model: TimeModel) -> float:
        simulation = Simulation(program, time_model=model)
        host = Host(simulation)
        host.finish(host.launch("run", ()))
        symbol = program.programs[0].symbols["stamps"]
        words = [int(simulation.pes[0].load("H", symbol.address + 2 * word)) for word in range(6)]
        begin, end = (low | middle << 16 | high << 32 for low, middle, high in (words[:3], words[3:]))
        return end - begin

    return run


def summa(tile: int, sides: tuple[int, int]) -> Run:
    """Cycles of a step of `examples/csl/summa`: what a larger square takes longer, by the steps that it has more."""
    sizes = {"Mt": tile, "Kt": tile, "Nt": tile}
    programs = [compile_csl(EXAMPLES / "summa" / "layout.csl", "wse2", {"P": side, **sizes}) for side in sides]

    def run(model: TimeModel) -> float:
        less, more = (_launched(program, "multiply", model) for program in programs)
        return (more - less) / (sides[1] - sides[0])

    return run


def chain(width: int, count: int) -> Run:
    """Cycles of `examples/csl/row_reduce` from the begin of its operations to the end of the last one."""
    program = compile_csl(EXAMPLES / "row_reduce" / "layout.csl", "wse2", {"width": width, "height": 1, "n": count})

    def run(model: TimeModel) -> float:
        marks: list[tuple[int, str]] = []
        _launched(program, "reduce", model, lambda time, pe, kind, *fields: marks.append((time, kind)))
        return max(time for time, kind in marks if kind == "op_end") - min(t for t, kind in marks if kind == "op")

    return run


def _launched(
    program: FabricProgram, function: str, model: TimeModel, on_trace: Callable[..., None] | None = None
) -> int:
    simulation = Simulation(program, time_model=model, on_trace=on_trace)
    host = Host(simulation)
    command = host.launch(function, ())
    host.finish(command)
    return simulation.events.now - command.started


# --- published counts ---


def rows(quick: bool = False) -> Iterator[Row]:
    """All rows, or the quick ones."""
    fit, held = True, False
    stream = partial(one_pe, "stream_copy")
    for n, cycles, use in ((128, 74, fit), (256, 138, held), (2048, 1034, fit)):
        yield Row(f"STREAM copy, f32, {n}", SIMULATOR, "memory", use, cycles, STREAM, stream(n))
    for n, cycles in ((128, 42), (2048, 522)):
        yield Row(f"STREAM copy, f16, {n}", SIMULATOR, "memory", held, cycles, STREAM, stream(n, 2))
    for n, cycles, use in ((10, 66, fit), (1000, 3537, fit)):
        yield Row(f"ramp loop, {n} words", SIMULATOR, "fabric", use, cycles, LOOP, one_pe("ramp_loop", n))
    for n, cycles in zip(range(10, 101, 10), MATVECS, strict=True):
        yield Row(f"A x, {n} x {n}", SIMULATOR, "memory", n in (10, 100), cycles, MATVEC, one_pe("matvec", n))
    for shape, cycles in ((1, 5130), (2, 10254)):
        name = f"@fmacs, 5,124{', reads meet' if shape == 2 else ''}"
        yield Row(name, SIMULATOR, "memory", held, cycles, SPMM, one_pe("one_operation", 5124, shape))
    for n, columns, cycles in ((64, 48, 476_866), (128, 8, 150_760)):
        name = f"A B, {n} x 64 x {columns}"
        yield Row(name, SIMULATOR, "scalar", held, cycles, SPMM, one_pe("matmul", n, columns))
    yield Row("sparse A B, 205 weights, 68", SIMULATOR, "scalar", held, 36_744, SPMM, one_pe("sparse_columns", 68, 205))
    for n, cycles, use in ((128, 103.3, held), (2048, 1510.7, fit)):
        yield Row(f"STREAM copy, f32, {n}", BUSY_WAFER, "memory", use, cycles, STREAM, stream(n))
    for n, cycles in ((128, 55.0), (2048, 759.6)):
        yield Row(f"STREAM copy, f16, {n}", BUSY_WAFER, "memory", held, cycles, STREAM, stream(n, 2))
    for n, cycles in ((10, 62), (1000, 2543)):
        yield Row(f"ramp loop, {n} words", BUSY_WAFER, "fabric", fit, cycles, LOOP, one_pe("ramp_loop", n))
    for width, n in ((8, 16), (32, 1), (32, 128), (64, 256)):
        formula = n + 6 * (width - 1)
        yield Row(f"chain of {width} PEs, {n} words", BUSY_WAFER, "fabric", held, formula, HPDC, chain(width, n))
    yield Row("SUMMA, tiles of 4", BUSY_WAFER, "scalar", fit, 913, SUMMA, summa(4, (3, 5)))
    if not quick:
        yield Row("SUMMA, tiles of 46", BUSY_WAFER, "memory", fit, 299_410, SUMMA, summa(46, (2, 3)), quick=False)


MATVECS = (1_698, 4_588, 10_298, 16_788, 26_928, 37_018, 51_528, 65_218, 84_128, 101_448)


def measured(row: Row) -> Found:
    """Simulate a row; then again, with one constant at a time taken away."""
    cycles = row.run(row.model)
    if not row.quick:
        return Found(row, cycles, {})
    without = {
        "task starts": replace(row.model, switch=1),
        "turns": replace(row.model, turn=0),
        "pace": replace(row.model, pace=(1, 1)),
    }
    terms = {name: cycles - row.run(model) for name, model in without.items() if model != row.model}
    with ExitStack() as stack:
        stack.enter_context(patch.object(vector, "START", 0))
        terms["operation starts"] = cycles - row.run(row.model)
    return Found(row, cycles, terms)


# --- the tables ---


def table(found: Sequence[Found]) -> Iterator[str]:
    """Markdown: a line for each row; terms are what its cycles lose if the constant is taken away."""
    yield "| program | model of time | use | published | simulated | error | by term | source |"
    yield "|---|---|---|---:|---:|---:|---|---|"
    for each in found:
        row = each.row
        use = "fitted" if row.fitted else "held out"
        terms = ", ".join(f"{name} {cycles:,.0f}" for name, cycles in each.terms.items() if cycles)
        numbers = f"{_shown(row.published)} | {_shown(each.cycles)} | {each.error:+.1%}"
        yield f"| {row.name} | {row.model.name} | {use} | {numbers} | {terms} | {row.source} |"


def _shown(cycles: float) -> str:
    return f"{cycles:,.0f}" if cycles == int(cycles) else f"{cycles:,.1f}"


def medians(found: Sequence[Found]) -> Iterator[str]:
    """Markdown: median and largest error, by use and kind."""
    yield "| use | kind | rows | median error | largest error |"
    yield "|---|---|---:|---:|---:|"
    for fitted in (True, False):
        for kind in ("memory", "fabric", "scalar"):
            errors = [abs(each.error) for each in found if (each.row.fitted, each.row.kind) == (fitted, kind)]
            if errors:
                use = "fitted" if fitted else "held out"
                yield f"| {use} | {kind} | {len(errors)} | {median(errors):.1%} | {max(errors):.1%} |"


def held_out() -> dict[str, float]:
    """The largest error of the model of time, held out, by kind of row."""
    found: dict[str, float] = {}
    for row in rows(quick=True):
        if not row.fitted:
            found[row.kind] = max(found.get(row.kind, 0.0), abs(row.run(row.model) / row.published - 1))
    return found


def _sides(text: str) -> list[int]:
    """Sides of fabrics, of which each has a PE with all neighbours."""
    found = [int(side) if side.isdigit() else 0 for side in text.split(",")]
    least = 2 * fabric_stencil.RADIUS + 1
    if min(found) < least:
        raise argparse.ArgumentTypeError(f"must be numbers of {least} or more, such as 13,24, got {text!r}")
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Simulated cycles of CSL programs beside published ones.")
    parser.add_argument("--quick", action="store_true", help="the small programs alone")
    parser.add_argument("--stencil", action="store_true", help="a stencil, scaled to the whole wafer, and nothing else")
    parser.add_argument(
        "--sides", default="13,24,48,80", type=_sides, help="PEs of the sides of its fabrics: 13,24,..."
    )
    parser.add_argument("--large", action="store_true", help="and two of its steps on up to 600 x 600 PEs")
    arguments = parser.parse_args()
    if arguments.stencil:
        for text in fabric_stencil.tables(arguments.sides, held_out(), large=arguments.large):
            print(text, flush=True)
        return
    found = [measured(row) for row in rows(arguments.quick)]
    print(*table(found), "", *medians(found), sep="\n")


if __name__ == "__main__":
    main()
