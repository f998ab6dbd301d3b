"""The 25-point stencil at its steady rate on the simulated fabric, scaled to a whole wafer, beside the published rate.

Run from the project's folder::

    python -m benchmarks.fabric_cycles --stencil            # the tables: 10 minutes and more
    python -m benchmarks.fabric_cycles --stencil --large
    python -m benchmarks.fabric_cycles --stencil --sides 13,25

`examples/csl/wave_25` does what Jacquelin et al. describe (SC22, arXiv 2204.03775). *published* was measured by them on
a CS-2; *simulated* are cycles of the simulated fabric with the times of a busy wafer. Nothing was measured by us on a
wafer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.host import Host, Rectangle
from cstool.csl.fabric.time_model import BUSY_WAFER, TimeModel
from cstool.csl.fast.simulation import FastSimulation, strips_for
from cstool.csl.language.compile import compile_csl

LAYOUT = Path(__file__).resolve().parents[1] / "examples" / "csl" / "wave_25" / "layout.csl"
CLOCK = 0.85e9
"""cycles a second: of every timed program of the vendor's (H10); the paper names none"""
FLOPS = 51
"""of a point and step: 25 products, 25 sums, a difference (Jacquelin et al., section VI)"""
SIDES = (755, 994)
"""PEs of the published fabric"""
PUBLISHED = 503.0
"""TFLOP/s (Jacquelin et al., abstract): 1,000 points, all 755 x 994 PEs"""
COLUMNS: Mapping[int, tuple[int, float]] = {
    100: (100, 8.637), 200: (200, 16.133), 300: (300, 23.716), 400: (400, 31.223),
    500: (250, 38.342), 700: (350, 53.143), 1000: (334, 75.524),
}  # fmt: skip
"""points of a column: those of a block, and microseconds of a step on all PEs (Jacquelin et al., table III)"""
LONGEST = 1000
"""points of a column in the published rate"""
OPERATIONS = 30
"""on vectors in memory, of a block: 19 sums of what came, 8 neighbours along z, 3 for the time"""
CODE = 42
"""cycles that an operation may take beyond the simulated ones: the row "sparse A B" lacks 8,623 for 205 operations"""
RADIUS = 4
"""PEs on each side that a PE hears"""
EDGE = 6
"""PEs nearer to the edge of a fabric begin in fewer cycles: they hear fewer others"""
BEGIN = ((48, 48), (200, 200), (600, 600))
"""fabrics whose first two steps are simulated"""
SMALLEST = 13
"""PEs of the sides of a fabric that has all kinds of PEs"""
SHORT = 50
"""points of a column where fabrics grow"""


@dataclass(frozen=True)
class Steady:
    """Cycles of a step, once a run is under way.

    Args:
        side: of the square of PEs
        points: of a column
        cycles: of a step, the median of the PEs that have all neighbours
        least: the least of a PE
        most: the most of a PE
    """

    side: int
    points: int
    cycles: float
    least: float
    most: float

    @property
    def spread(self) -> float:
        """Half the range of the PEs, as a part of the median."""
        return (self.most - self.least) / 2 / self.cycles


def stamps(model: TimeModel, width: int, height: int, points: int, block: int, steps: int) -> NDArray[np.int64]:
    """Cycles that each PE counted from its start to the end of its last step: [height, width]."""
    params = {"width": width, "height": height, "n": points, "block": block, "steps": steps}
    program = compile_csl(LAYOUT, "wse2", params)
    host = Host(FastSimulation(program, time_model=model, strips=strips_for(program)))  # type: ignore[arg-type]
    host.finish(host.launch("run", ()))
    command = host.copy_out("stamps", Rectangle(0, 0, width, height), 6, 16)
    host.finish(command)
    assert command.result is not None
    words = command.result.astype(np.int64) << np.array([0, 16, 32] * 2)
    found: NDArray[np.int64] = words[..., 3:].sum(-1) - words[..., :3].sum(-1)
    return found


def steady(
    side: int, points: int, block: int, model: TimeModel = BUSY_WAFER, steps: tuple[int, int] = (2, 4)
) -> Steady:
    """Simulate a square of PEs twice: what more steps take longer, on each PE; the median without those at the edge."""
    fewer, more = (stamps(model, side, side, points, block, count) for count in steps)
    cycles = (more - fewer) / (steps[1] - steps[0])
    inner = cycles[RADIUS:-RADIUS, RADIUS:-RADIUS]
    return Steady(side, points, float(np.median(inner)), float(cycles.min()), float(cycles.max()))


# --- scaling ---


@dataclass(frozen=True)
class Line:
    """A straight line through cycles by the points of a column.

    Args:
        start: cycles of a step without points
        point: cycles of a point
        residual: the largest distance of a measured point from the line, as a part of it
    """

    start: float
    point: float
    residual: float

    def at(self, points: float) -> float:
        """Cycles of a step for a column of so many points."""
        return self.start + self.point * points


def line(points: Sequence[float], cycles: Sequence[float]) -> Line:
    """The line of the least squares of relative distances.

    Raises:
        ValueError: there are less than three points, or all are the same; two always lie on a line
    """
    x, y = np.asarray(points, float), np.asarray(cycles, float)
    if len(x) < 3 or np.ptp(x) == 0:
        raise ValueError(f"a line must have three points or more, not all the same, got {list(points)}")
    start, point = np.linalg.lstsq(np.stack([1 / y, x / y], axis=1), np.ones_like(y), rcond=None)[0]
    return Line(float(start), float(point), float(np.abs((start + point * x) / y - 1).max()))


def rate(cycles: float, points: int, pes: int = SIDES[0] * SIDES[1]) -> float:
    """TFLOP/s of so many PEs, for the cycles of a step."""
    return FLOPS * points * pes * CLOCK / cycles / 1e12


def memory_share(side: int, points: int, block: int) -> float:
    """Share of the cycles that code and vectors in memory have: they alone are slower by the pace of a busy wafer."""
    slow, quick = BUSY_WAFER.pace
    free = steady(side, points, block, replace(BUSY_WAFER, pace=(1, 1)))
    busy = steady(side, points, block)
    return (busy.cycles - free.cycles) / busy.cycles * slow / (slow - quick)


# --- the tables ---


def by_column(columns: Sequence[Steady]) -> Iterator[str]:
    """Markdown: a step by the points of a column, simulated and published.

    A column of three blocks of 334 points stands for the published one of 1,000; its time is scaled to 1,000 points.
    """
    yield "| points, of a block | cycles of a step | least to most of a PE | simulated us | published us | error |"
    yield "|---|---:|---|---:|---:|---:|"
    for each, (points, (block, published)) in zip(columns, COLUMNS.items(), strict=True):
        took = each.cycles / CLOCK * 1e6 * points / each.points
        cells = (
            f"{each.points:,}, {block}", f"{each.cycles:,.1f}", f"{each.least:,.1f} to {each.most:,.1f}", f"{took:.2f}",
            f"{published:.2f}", f"{took / published - 1:+.1%}",
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def by_side(found: Sequence[Steady]) -> Iterator[str]:
    """Markdown: cycles of a step by the size of the fabric."""
    yield "| PEs | cycles of a step | least to most of a PE |"
    yield "|---|---:|---|"
    for each in found:
        yield f"| {each.side} x {each.side} | {each.cycles:,.1f} | {each.least:,.1f} to {each.most:,.1f} |"


def by_begin(sizes: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Simulate the first two steps of columns of 4 points, and print them as markdown, for PEs away from the edge."""
    yield "| PEs | cycles of two steps | least to most of a PE |"
    yield "|---|---:|---|"
    for width, height in sizes:
        inner = stamps(BUSY_WAFER, width, height, 4, 4, 2)[EDGE:-EDGE, EDGE:-EDGE]
        yield f"| {width} x {height} | {np.median(inner):,.0f} | {inner.min():,} to {inner.max():,} |"


@dataclass(frozen=True)
class Scaled:
    """Simulated cycles, scaled to the published fabric.

    Args:
        fit: cycles of a step by points
        parts: relative errors of the rate, by their causes
    """

    fit: Line
    parts: Mapping[str, float]

    @property
    def rate(self) -> float:
        """TFLOP/s of the published fabric, with the longest published column."""
        return rate(self.fit.at(LONGEST), LONGEST)

    @property
    def error(self) -> float:
        """Of the rate, as a part of it: its parts are taken as independent."""
        return float(np.sqrt(np.sum(np.square(list(self.parts.values())))))


def scaled(columns: Sequence[Steady], sizes: Sequence[Steady], share: float, model: Mapping[str, float]) -> Scaled:
    """Scale to all PEs and the longest column.

    Args:
        columns: steps by the points of a column
        sizes: steps by the size of the fabric
        share: of the cycles, of code and vectors in memory
        model: the largest held-out error of the model of time, for "memory" and "fabric"
    """
    fit = line([each.points for each in columns], [each.cycles for each in columns])
    medians = [each.cycles for each in sizes]
    code = CODE * OPERATIONS * -(-LONGEST // COLUMNS[LONGEST][0])
    return Scaled(fit, {
        f"vectors in memory, {share:.0%} of the cycles: {model['memory']:.1%}": share * model["memory"],
        f"the fabric, {1 - share:.0%}: {model['fabric']:.1%}": (1 - share) * model["fabric"],
        f"code around {OPERATIONS} operations of a block: {CODE} cycles each": code / fit.at(LONGEST),
        "PEs of a fabric": max(each.spread for each in columns),
        "sizes of the fabric": (max(medians) - min(medians)) / 2 / float(np.median(medians)),
        "points of a column": fit.residual,
    })  # fmt: skip


def by_cause(found: Scaled) -> Iterator[str]:
    """Markdown: the error of the rate; the rate beside the published one."""
    yield "| cause | error of the rate |"
    yield "|---|---:|"
    for cause, part in found.parts.items():
        yield f"| {cause} | {part:.1%} |"
    yield f"| all, as independent ones | {found.error:.1%} |"
    yield ""
    yield f"| {SIDES[0]} x {SIDES[1]} PEs, {LONGEST:,} points | TFLOP/s |"
    yield "|---|---:|"
    scaled_rate = f"{found.rate:.0f} +- {found.rate * found.error:.0f}"
    yield f"| simulated, scaled: {found.fit.start:,.0f} + {found.fit.point:.2f} n cycles a step | {scaled_rate} |"
    yield f"| published | {PUBLISHED:.0f} |"


def tables(sides: Sequence[int], model: Mapping[str, float], *, large: bool = False) -> Iterator[str]:
    """Simulate all, and print the tables as they come.

    Args:
        sides: of the fabrics for columns of 50 points
        model: as for `scaled`
        large: whether two steps of larger fabrics are among them: 6 GB of memory and ten minutes more
    """
    columns = [steady(SMALLEST, -(-points // block) * block, block) for points, (block, _) in COLUMNS.items()]
    yield from by_column(columns)
    yield ""
    sizes = [steady(side, SHORT, SHORT) for side in sides]
    yield from by_side(sizes)
    yield ""
    if large:
        yield from by_begin(BEGIN)
        yield ""
    yield from by_cause(scaled(columns, sizes, memory_share(SMALLEST, 200, 200), model))
