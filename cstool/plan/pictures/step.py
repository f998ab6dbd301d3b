"""The kernels of a step as bars: modelled cycles by phase, and the limit of each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from cstool.foundation.drawing.lettering import text_width
from cstool.foundation.drawing.page import HEADING_PT, SMALL_PT, TEXT_PT, Block, keep_largest
from cstool.foundation.drawing.palette import BOUNDS, INK, NO_WORK, PHASE_WORDS, PHASES
from cstool.foundation.words import seconds_text
from cstool.model.ir import Artifact, KernelCycles, PipelinedPlan, Stage, StreamingPlan
from cstool.model.short_names import group_name, short_name

ROW_PT, BAR_PT, ABOVE_PT, BELOW_PT, RIGHT_PT = 15.0, 10.5, 40.0, 30.0, 62.0
MOST_ROWS = 40
SWATCH_PT = 20.0


@dataclass(frozen=True)
class Part:
    """Cycles of one phase, and the limit that counts."""

    cycles: int
    bound: str


@dataclass(frozen=True)
class Row:
    """A kernel, all its repetitions and micro-batches together.

    Args:
        label: name, and number of repetitions
        parts: phase -> its cycles in a step, and its limit
    """

    label: str
    parts: dict[str, Part]

    @property
    def cycles(self) -> int:
        """Of all phases."""
        return sum(part.cycles for part in self.parts.values())


@dataclass(frozen=True)
class Breakdown:
    """Work of a system in a step, kernel by kernel.

    Args:
        rows: kernels or stages, of which one has cycles
        heading: of the panel
        axis_label: base of the percentages
        whole: cycles that are 100%
    """

    rows: Sequence[Row]
    heading: str
    axis_label: str
    whole: int


def step(artifact: Artifact, plan: StreamingPlan, width_pt: float) -> Block:
    """Return the block."""
    rows = step_rows(artifact, plan)
    total = sum(row.cycles for row in rows)
    heading = f"The kernels of a step: {cycles_text(total, artifact.system.clock_hz)} (modelled)"
    return bars(Breakdown(rows, heading, "modelled cycles of all its repetitions [% of the step]", total), width_pt)


def cycles_text(cycles: int, clock_hz: float) -> str:
    """Return cycles, and their time, in words."""
    return f"{cycles:,} cycles, {seconds_text(cycles / clock_hz)} at {clock_hz / 1e9:,.4g} GHz"


def bars(picture: Breakdown, width_pt: float) -> Block:
    """Return a block with a bar for each row."""
    rows, whole = picture.rows, picture.whole or 1
    left = max(text_width(row.label, TEXT_PT) for row in rows) + 10
    longest_pt = width_pt - left - RIGHT_PT
    height = ROW_PT * len(rows)

    def draw(block: Axes) -> None:
        block.text(0, 0, picture.heading, size=HEADING_PT, color=INK, va="top")
        _draw_legend(block, rows, 22.0)
        longest = max(row.cycles for row in rows) or 1
        for number, row in enumerate(rows):
            middle = ABOVE_PT + (number + 0.5) * ROW_PT
            block.text(left - 6, middle, row.label, size=TEXT_PT, color=INK, ha="right", va="center_baseline")
            x = left
            for phase, part in row.parts.items():
                length = longest_pt * part.cycles / longest
                draw_bar(block, (x, middle - BAR_PT / 2), length, PHASES[phase], BOUNDS[part.bound])
                x += length
            block.text(x + 4, middle, f"{row.cycles / whole:.1%}", size=SMALL_PT, color=INK, va="center_baseline")
        axis = share_axis(block, (left, ABOVE_PT + height), longest_pt, longest / whole)
        axis.set_xlabel(picture.axis_label, size=TEXT_PT, labelpad=2)

    return Block(width_pt, ABOVE_PT + height + BELOW_PT, draw)


def share_axis(block: Axes, corner: tuple[float, float], width_pt: float, largest: float) -> Axes:
    """Draw an axis of shares from zero on, told in percent, and return it."""
    axis = block.inset_axes((*corner, width_pt, 0.1), transform=block.transData)
    axis.set(xlim=(0, largest), yticks=[])
    axis.patch.set_visible(False)
    for side in ("left", "right", "top"):
        axis.spines[side].set_visible(False)
    axis.tick_params(labelsize=SMALL_PT, length=2.5, width=0.6)
    axis.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.3g}")
    axis.set_xticks(_ticks(largest))
    return axis


def step_rows(artifact: Artifact, plan: StreamingPlan) -> list[Row]:
    """Return the kernels in the order of the stream; of very many, the shorter ones as one."""
    rows = []
    for segment, kernels in zip(artifact.graph.segments, plan.kernels, strict=True):
        for kernel in kernels:
            parts = _parts(kernel.cycles, segment.count * plan.micro_batches)
            repeats = f"  x {segment.count:,}" if segment.count > 1 else ""
            rows.append(Row(short_name(kernel.name) + repeats, parts))
    return keep_largest(rows, MOST_ROWS, lambda row: row.cycles, _together)


def stage_rows(plan: PipelinedPlan) -> list[Row]:
    """Return the stages of a pipeline; of stages that are alike but for the layer, the slowest.

    They run at the same time: of very many, the shorter ones are drawn as their slowest.
    """
    alike: dict[str, list[Stage]] = {}
    for stage in plan.stages:
        alike.setdefault(group_name(stage.name), []).append(stage)
    rows = []
    for name, stages in alike.items():
        label = f"{name}, slowest of {len(stages):,}" if len(stages) > 1 else short_name(stages[0].name)
        rows.append(Row(label, _parts(max((stage.cycles for stage in stages), key=lambda cycles: cycles.total), 1)))
    return keep_largest(rows, MOST_ROWS, lambda row: row.cycles, _slowest)


def _slowest(rows: list[Row]) -> Row:
    return replace(max(rows, key=lambda row: row.cycles), label=f"slowest of {len(rows):,} others")


def _parts(cycles: KernelCycles, times: int) -> dict[str, Part]:
    phases = [Part(times * p.cycles, p.bound) for p in (cycles.forward, cycles.delta, cycles.gradient)]
    phases.append(Part(times * cycles.recompute_cycles, cycles.forward.bound))
    return {name: part for name, part in zip(PHASES, phases, strict=True) if part.cycles}


def _together(rows: list[Row]) -> Row:
    parts = {}
    for phase in PHASES:
        found = [row.parts[phase] for row in rows if phase in row.parts]
        if found:
            bound = max(found, key=lambda part: part.cycles).bound
            parts[phase] = Part(sum(part.cycles for part in found), bound)
    return Row(f"{len(rows):,} shorter ones", parts)


def _ticks(largest: float) -> list[float]:
    """Return shares for the ticks of the axis: round ones, about five."""
    step = next((s for s in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2) if largest / s <= 6), 0.25)
    return [number * step for number in range(int(largest / step + 1e-9) + 1)]


def draw_bar(
    block: Axes, corner: tuple[float, float], length: float, color: str, hatch: str = "", thick: float = BAR_PT
) -> None:
    """Draw a bar, the thinner its edge the shorter it is."""
    edge = min(0.5, length / 4)
    block.add_patch(
        Rectangle(corner, length, thick, facecolor=color, edgecolor=INK, linewidth=edge, hatch=hatch or None)
    )


def draw_samples(block: Axes, samples: Sequence[tuple[str, str, str]], middle: float) -> None:
    """Draw in a line the meanings of bars: words, colour and hatch of each."""
    x = 0.0
    for text, color, hatch in samples:
        draw_bar(block, (x, middle - BAR_PT / 2), SWATCH_PT, color, hatch)
        block.text(x + SWATCH_PT + 4, middle, text, size=SMALL_PT, color=INK, va="center_baseline")
        x += SWATCH_PT + text_width(text, SMALL_PT) + 16


def _draw_legend(block: Axes, rows: Sequence[Row], middle: float) -> None:
    """Draw in a line the meanings of colours (phases) and hatches (limits) that occur."""
    phases = [phase for phase in PHASES if any(phase in row.parts for row in rows)]
    bounds = [bound for bound in BOUNDS if any(part.bound == bound for row in rows for part in row.parts.values())]
    samples = [(PHASE_WORDS[phase], PHASES[phase], "") for phase in phases]
    samples += [(f"limited by {_LIMITS[bound]}", NO_WORK, BOUNDS[bound]) for bound in bounds]
    draw_samples(block, samples, middle)


_LIMITS = {
    "compute": "compute",
    "link": "links between PEs",
    "ingress": "links onto the wafer",
    "egress": "links off the wafer",
}
