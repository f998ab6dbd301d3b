"""How fast the simulated fabric is: both engines, a whole wafer, events and wavelets per second, the examples.

Run from the project's folder::

    python -m benchmarks.fabric --rounds 5
    python -m benchmarks.fabric --only engines
    python -m benchmarks.fabric --only wafer
    python -m benchmarks.fabric --only events --profile 15

Everything here is measured on this host. Seconds of simulations and layouts are those of the processor, which others on
the host hardly change; those of examples are of the clock, as several processes take part. An event is a call that the
engine makes at a cycle; a wavelet counts once where it is sent, and at each link and ramp that it takes as a hop. A
PE-cycle is a cycle of a PE; it is active if a task or an operation is in progress there.
"""

import argparse
import cProfile
import io
import multiprocessing
import os
import pstats
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from shutil import copytree
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cstool.csl.fabric.host import Host
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fast.simulation import FastSimulation
from cstool.csl.language.compile import compile_csl

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "csl"
WAFER = (750, 994)
HALO: Mapping[str, object] = {"width": 16, "height": 16, "rows": 16, "columns": 16, "steps": 8}
LONG_STEPS, LONG_CYCLES = 250, 100_000
WAFER_CYCLES = 1000
SAMPLE_EVERY, SAMPLED_CYCLES = 37, 10_000
"""cycles between two looks at all PEs, and of a launch that is looked at"""
DENSE: Mapping[str, object] = {"M": 80, "N": 120}
LAYOUT = """
param width: u16;
param height: u16;
const x_color = @get_color(2);
const memcpy = @import_module("<memcpy/get_params>", .{ .width = width, .height = height });
const down = .{ .routes = .{ .rx = .{ NORTH }, .tx = .{ RAMP, SOUTH } } };
const first = .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP, SOUTH } } };
const heard = .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } };
const spoken = .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } };
layout {
  @set_rectangle(width, height);
  for (@range(u16, width)) |x| {
    const to_east = @get_color(x % 2);
    const from_west = @get_color((x + 1) % 2);
    for (@range(u16, height)) |y| {
      @set_tile_code(x, y, "pe.csl", .{
        .memcpy_params = memcpy.get_params(x),
        .rows = 4,
        .columns = 4,
        .top = y == 0,
        .first = x == 0,
        .x_color = x_color,
        .from_west = from_west,
        .to_east = to_east,
      });
      if (y == 0) { @set_color_config(x, y, x_color, first); } else { @set_color_config(x, y, x_color, down); }
      @set_color_config(x, y, from_west, heard);
      @set_color_config(x, y, to_east, spoken);
    }
  }
}
"""
PE = """
param memcpy_params;
param rows: u16;
param columns: u16;
param top: bool;
param first: bool;
param x_color: color;
param from_west: color;
param to_east: color;
const memcpy = @import_module("<memcpy/memcpy>", memcpy_params);
"""


@dataclass(frozen=True)
class Speed:
    """One launch, simulated.

    Args:
        seconds: that it took
        cycles: that it lasted on the fabric
        events: that the engine worked through
        wavelets: that PEs sent
        hops: links and ramps that these took
        elements: of vector operations
    """

    seconds: float
    cycles: int
    events: int
    wavelets: int
    hops: int
    elements: int


def simulate(program: FabricProgram, function: str) -> Speed:
    """Launch a function once on data that is all zeros."""
    simulation = Simulation(program)
    host = Host(simulation)
    begin = time.process_time()
    host.finish(host.launch(function, ()))
    seconds = time.process_time() - begin
    stats = simulation.stats()
    wavelets = sum(pe.sent for pe in stats.pes)
    elements = sum(pe.elements for pe in stats.pes)
    return Speed(seconds, stats.cycles, stats.events, wavelets, sum(stats.hops.values()), elements)


@dataclass(frozen=True)
class Turn:
    """A run of one engine.

    Args:
        seconds: of the processor
        wall: seconds of the clock
        cycles: simulated
    """

    seconds: float
    wall: float
    cycles: int


def turn(make: Callable[[], Any], function: str, cycles: int | None = None) -> Turn:
    """Launch a function once, on an engine, to its end or for so many cycles."""
    simulation = make()
    host = Host(simulation)
    host.settle()
    command = host.launch(function, ())
    begin, clock = time.process_time(), time.perf_counter()
    simulation.run_until(None if cycles is not None else lambda: command.done, cycles)
    seconds, wall = time.process_time() - begin, time.perf_counter() - clock
    return Turn(seconds, wall, simulation.stats().cycles)


def active_share(program: FabricProgram, function: str, cycles: int | None) -> float:
    """The share of the PE-cycles of a launch, or of its first cycles, that are active: of a sample of the cycles."""
    simulation = FastSimulation(program)
    host = Host(simulation)  # type: ignore[arg-type]
    host.settle()
    command = host.launch(function, ())
    begin, shares = simulation.events.now, []
    last = begin + (SAMPLED_CYCLES if cycles is None else min(cycles, SAMPLED_CYCLES))
    for until in range(begin + SAMPLE_EVERY, last, SAMPLE_EVERY):
        simulation.run_until(lambda: command.done, until)
        if command.done:
            break
        shares.append(simulation.active_share())
    return float(np.mean(shares))


def engines(rounds: int) -> Iterator[str]:
    """PE-cycles per second of both engines, in turns, on programs of many sizes."""
    yield "| program | PEs | cycles | active | fast: CPU s (range) | million PE-cycles/s | reference: s | likewise |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    cases = (
        ("halo exchange", exchange(), "run", None),
        ("stencil", compiled("stencil", HALO), "run", None),
        ("A x + b on one PE", compiled("gemv_one_pe", DENSE), "gemv", None),
        ("halo exchange, one engine", exchange(width=64, height=64, steps=LONG_STEPS), "run", LONG_CYCLES),
    )
    for label, program, function, cycles in cases:
        makers = [partial(FastSimulation, program)] + [partial(Simulation, program)] * (cycles is None)
        turns = [[turn(make, function, cycles) for make in makers] for _ in range(rounds if cycles is None else 1)]
        first = turns[0][0]
        cells = []
        for each in zip(*turns, strict=True):
            seconds = median(one.seconds for one in each)
            rate = program.tiles.size * first.cycles / seconds / 1e6
            cells += [f"{seconds:.4f} ({_range([one.seconds for one in each], '.4f')})", f"{rate:.2f}"]
        cells += ["", ""] * (2 - len(makers))
        active = active_share(program, function, cycles)
        yield f"| {label} | {program.tiles.size:,} | {first.cycles:,} | {active:.0%} | {' | '.join(cells)} |"


def strips(rounds: int) -> Iterator[str]:
    """Seconds of the clock of the fast engine by one thread and by two, in turns."""
    program = exchange(width=64, height=64, steps=LONG_STEPS)
    yield "| halo exchange, 64 x 64 PEs, 10,000 cycles | s, median (range) |"
    yield "|---|---:|"
    turns = [
        [turn(partial(FastSimulation, program, strips=count), "run", LONG_CYCLES // 10).wall for count in (1, 2)]
        for _ in range(rounds)
    ]
    for count, each in zip((1, 2), zip(*turns, strict=True), strict=True):
        yield f"| strips: {count} | {median(each):.2f} ({_range(each, '.2f')}) |"


def wafer(rounds: int) -> Iterator[str]:  # noqa: ARG001 - one is enough
    """The halo exchange on a whole wafer, for 1,000 cycles, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, peak, state, declared = pool.apply(_wafer, (len(os.sched_getaffinity(0)),))
    yield "| halo exchange, 750 x 994 PEs | s of the clock | CPU s |"
    yield "|---|---:|---:|"
    for label, (wall, spent) in seconds.items():
        yield f"| {label} | {wall:.1f} | {spent:.1f} |"
    yield ""
    yield f"Peak memory: {peak:,} MiB. State of a PE: {state:,.0f} bytes; its program declares {declared:,.0f}."


def _wafer(threads: int) -> tuple[dict[str, tuple[float, float]], int, float, float]:
    """A simulation of a whole wafer.

    Returns:
        Seconds of the clock and of the processor, of each part; peak memory [MiB]; bytes of state, and of declared
        variables, of a PE in the mean
    """
    width, height = WAFER
    times = [(time.perf_counter(), time.process_time())]

    def note() -> None:
        times.append((time.perf_counter(), time.process_time()))

    program = exchange(width=width, height=height)
    note()
    simulation = FastSimulation(program, strips=threads)
    host = Host(simulation)  # type: ignore[arg-type]
    note()
    host.launch("run", ())
    note()
    simulation.run_until(None, WAFER_CYCLES)
    note()
    labels = ("compile_csl", "state of all PEs and routers", "launch", f"{WAFER_CYCLES:,} cycles")
    seconds = {
        label: (end[0] - begin[0], end[1] - begin[1])
        for label, (begin, end) in zip(labels, pairwise(times), strict=True)
    }
    sizes = [
        sum(size for name, size in each.sram if not name.endswith("(code, modelled)")) for each in program.programs
    ]
    declared = float(np.array(sizes)[program.tiles].mean())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return seconds, peak, simulation.built.used_bytes / (width * height), declared


def compiled(name: str, params: Mapping[str, object]) -> FabricProgram:
    """A program of examples/csl for WSE-2."""
    return compile_csl(EXAMPLES / name / "layout.csl", "wse2", params)


def exchange(**params: object) -> FabricProgram:
    """The stencil without its arithmetic: what is left are wavelets, and the tasks that wait for them."""
    with TemporaryDirectory() as folder:
        copy = Path(copytree(EXAMPLES, Path(folder) / "csl")) / "stencil"
        pe = copy / "pe.csl"
        pe.write_text(pe.read_text().replace("@range(i16, rows)", "@range(i16, 0)"))
        return compile_csl(copy / "layout.csl", "wse2", {**HALO, **params})


def events(rounds: int) -> Iterator[str]:
    """Events and wavelets per second: borders exchanged, the stencil around that, one PE that computes from memory."""
    yield "| launch | cycles | events | wavelets | hops | elements | CPU s, median (range) | events/s | wavelets/s |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    cases = (
        ("halo exchange, 16 x 16 PEs", exchange(), "run"),
        ("stencil, 16 x 16 PEs", compiled("stencil", HALO), "run"),
        ("A x + b on one PE", compiled("gemv_one_pe", DENSE), "gemv"),
    )
    for label, program, function in cases:
        found = [simulate(program, function) for _ in range(rounds)]
        one, seconds = found[0], median(each.seconds for each in found)
        span = f"{seconds:.4f} ({_range([each.seconds for each in found], '.4f')})"
        counts = (one.cycles, one.events, one.wavelets, one.hops, one.elements)
        rates = (int(one.events / seconds), int(one.wavelets / seconds))
        yield f"| {label} | {_cells(counts)} | {span} | {_cells(rates)} |"


def _cells(numbers: Iterable[int]) -> str:
    return " | ".join(f"{number:,}" for number in numbers)


def profile(most: int) -> Iterator[str]:
    """Where the time of the halo exchange goes, by function, its own time first."""
    program = exchange()
    profiler = cProfile.Profile()
    profiler.enable()
    simulate(program, "run")
    profiler.disable()
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).strip_dirs().sort_stats("tottime").print_stats(most)
    yield "```text"
    yield from (line for line in text.getvalue().splitlines() if line.strip() and "Ordered" not in line)
    yield "```"


def layout(rounds: int) -> Iterator[str]:
    """Time and peak memory of the layout block of a whole wafer, each round in a process of its own."""
    spawning = multiprocessing.get_context("spawn")
    found = []
    with TemporaryDirectory() as folder:
        for name, text in (("layout.csl", LAYOUT), ("pe.csl", PE)):
            (Path(folder) / name).write_text(text)
        for _ in range(rounds):
            with spawning.Pool(1) as pool:
                found.append(pool.apply(_lay_out, (folder,)))
    seconds, peaks = zip(*found, strict=True)
    yield "| layout of 750 x 994 PEs | CPU s, median (range) | peak memory, MiB |"
    yield "|---|---:|---:|"
    yield f"| compile_csl | {median(seconds):.1f} ({_range(seconds, '.1f')}) | {max(peaks):,} |"


def _lay_out(folder: str) -> tuple[float, int]:
    """Seconds and peak memory [MiB] of the compiler on a whole wafer."""
    width, height = WAFER
    begin = time.process_time()
    program = compile_csl(Path(folder) / "layout.csl", "wse2", {"width": width, "height": height})
    seconds = time.process_time() - begin
    assert int(np.count_nonzero(program.tiles >= 0)) == width * height
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def examples(rounds: int) -> Iterator[str]:
    """Time of each program of examples/csl, compiled and run by its own commands."""
    yield "| examples/csl | commands_wse2.sh: s, median (range) | commands_wse3.sh: s, median (range) |"
    yield "|---|---:|---:|"
    with TemporaryDirectory() as folder:
        copy = Path(copytree(EXAMPLES, Path(folder) / "csl"))
        for where in sorted(path.parent for path in copy.glob("*/run.py")):
            times = ([_timed(partial(_run_commands, where, arch)) for _ in range(rounds)] for arch in ("wse2", "wse3"))
            cells = (f"{median(each):.2f} ({_range(each, '.2f')})" for each in times)
            yield f"| {where.name} | {' | '.join(cells)} |"


def _run_commands(where: Path, arch: str) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", f"commands_{arch}.sh"], cwd=where, env=environment, check=True, stdout=subprocess.DEVNULL)


def _timed(action: Callable[[], None]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _range(values: "list[float] | tuple[float, ...]", form: str) -> str:
    return f"{min(values):{form}} to {max(values):{form}}"


PARTS: dict[str, Callable[[int], Iterator[str]]] = {
    "engines": engines,
    "strips": strips,
    "wafer": wafer,
    "events": events,
    "layout": layout,
    "examples": examples,
}


def main() -> None:
    """Print what was measured, as markdown."""
    parser = argparse.ArgumentParser(description="How fast the simulated fabric is on this host.")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement (default: %(default)s)")
    parser.add_argument("--only", choices=PARTS, help="one part alone")
    parser.add_argument("--profile", type=int, default=12, help="functions of the profile (default: %(default)s)")
    arguments = parser.parse_args()
    for name, part in PARTS.items():
        if arguments.only in (None, name):
            for line in part(arguments.rounds):
                print(line, flush=True)
            print()
    if arguments.only in (None, "events"):
        print(*profile(arguments.profile), sep="\n")


if __name__ == "__main__":
    main()
