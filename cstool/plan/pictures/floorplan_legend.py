"""Beside the fabric: meaning of colours, lines and frames, and the places of the replicas."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import Normalize, to_hex, to_rgba
from matplotlib.patches import Rectangle

from cstool.foundation.drawing.page import HEADING_PT, SMALL_PT, TEXT_PT, Block, text_height
from cstool.foundation.drawing.palette import COPY, FAINT, INK, MEMORY_BOUND_HATCH, NO_WORK, ROUTES, amounts
from cstool.model.ir import Artifact, PipelinedPlan
from cstool.plan.pictures.routes import draw_head, draw_line

MOST_COPIES = 400
"""replicas whose regions are drawn; of more, only the outlines are"""
BAR_PT = 11.0
"""thickness of the colour bar"""
SAMPLE_PT, LINE_PT = 30.0, 15.0
"""width of a sample of a line or an area, and from one to the next"""
TALLEST_PT = 240.0
"""largest height of the small wafer"""
WORDS = {
    "activation": "activations, forward",
    "delta": "deltas, backward",
    "tie": "a weight that two kernels share",
    "input": "input, from the west edge",
}


@dataclass(frozen=True)
class Coloring:
    """Colours of stages.

    Args:
        colors: one for each stage
        largest: end of the scale
        label: of the colour bar, with its unit
    """

    colors: tuple[str, ...]
    largest: float
    label: str


def color_stages(artifact: Artifact, plan: PipelinedPlan, color_by: str) -> Coloring:
    """Meaning of the stages' colours.

    Args:
        artifact: the whole
        plan: of it
        color_by: "work" or "sram"
    """
    if color_by == "sram":
        values = [stage.used_bytes / 1024 for stage in plan.stages]
        largest, label = artifact.system.pe.sram_bytes / 1024, "SRAM that the fullest PE uses [KiB]"
    else:
        slowest = plan.stages[plan.bottleneck].cycles.total
        values = [100 * stage.cycles.total / slowest for stage in plan.stages]
        largest, label = 100.0, f"Modelled cycles per sample\n[% of {slowest:,}, the slowest stage's]"
    colors, scale = amounts(), Normalize(0, largest)
    return Coloring(tuple(to_hex(colors(scale(value))) for value in values), largest, label)


def color_bar(coloring: Coloring, width_pt: float) -> Block:
    """Return the block that explains the colours."""
    above = text_height(coloring.label, HEADING_PT) + 3

    def draw(block: Axes) -> None:
        block.text(0, 0, coloring.label, size=HEADING_PT, color=INK, va="top")
        bar = block.inset_axes((4, above, width_pt - 20, BAR_PT), transform=block.transData)
        scale = ScalarMappable(Normalize(0, coloring.largest), amounts())
        block.figure.colorbar(scale, cax=bar, orientation="horizontal")
        bar.tick_params(labelsize=SMALL_PT, length=2.5, width=0.6)

    return Block(width_pt, above + BAR_PT + 14, draw)


def legend(plan: PipelinedPlan, width_pt: float) -> Block:
    """Return the block that explains lines and frames."""
    kinds = {route.kind for route in plan.routes}
    rows: list[tuple[str, Callable[[Axes, float], None]]] = [
        (WORDS[kind], partial(_line_sample, kind=kind)) for kind in ROUTES if kind in kinds
    ]
    rows.append(("slowest stage", partial(_area_sample, linewidth=2.4)))
    if any(stage.is_memory_bound for stage in plan.stages):
        rows.append(("as large as its memory asks for", partial(_area_sample, hatch=MEMORY_BOUND_HATCH)))
    rows.append(("PEs without work", partial(_area_sample, facecolor=NO_WORK, linewidth=0.4)))
    above = HEADING_PT + 8

    def draw(block: Axes) -> None:
        block.text(0, 0, "Routes and regions", size=HEADING_PT, color=INK, va="top")
        for number, (text, sample) in enumerate(rows):
            middle = above + (number + 0.5) * LINE_PT
            sample(block, middle)
            block.text(SAMPLE_PT + 10, middle, text, size=TEXT_PT, color=INK, va="center")

    return Block(width_pt, above + LINE_PT * len(rows), draw)


def _line_sample(block: Axes, middle: float, kind: str) -> None:
    path = ((2.0, middle), (SAMPLE_PT, middle))
    draw_line(block, kind, path)
    draw_head(block, kind, path, 1.0)


def _area_sample(block: Axes, middle: float, facecolor: str = "", hatch: str = "", linewidth: float = 0.8) -> None:
    corner, height = (2.0, middle - LINE_PT * 0.35), LINE_PT * 0.7
    color = facecolor or amounts()(0.6)
    block.add_patch(Rectangle(corner, SAMPLE_PT - 2, height, facecolor=color, edgecolor=INK, linewidth=linewidth))
    if hatch:
        area = Rectangle(corner, SAMPLE_PT - 2, height, fill=False, hatch=hatch, linewidth=0)
        area.set_edgecolor(to_rgba(INK, 0.28))
        block.add_patch(area)


def replicas(artifact: Artifact, plan: PipelinedPlan, coloring: Coloring, width_pt: float) -> Block:
    """Return the block with the whole wafer: the first replica in its colours, the others as light copies."""
    fabric = artifact.system.fabric
    columns, rows = plan.replicas
    scale = min((width_pt - 4) / fabric.width, TALLEST_PT / fabric.height)
    text = f"The wafer: {columns:,} x {rows:,} replicas on\n{fabric.width:,} x {fabric.height:,} PEs"
    above = text_height(text, HEADING_PT) + 4

    def draw(block: Axes) -> None:
        block.text(0, 0, text, size=HEADING_PT, color=INK, va="top")
        box = (2, above, fabric.width * scale, fabric.height * scale)
        axes = block.inset_axes(box, transform=block.transData)
        axes.set(xlim=(0, fabric.width), ylim=(fabric.height, 0), xticks=[], yticks=[], facecolor=NO_WORK)
        corners = [
            (column * plan.replica_width, row * plan.replica_height) for row in range(rows) for column in range(columns)
        ]
        regions = [stage.region for stage in plan.stages]
        if len(corners) <= MOST_COPIES:
            copies = [
                Rectangle((x + region.x, y + region.y), region.width, region.height)
                for x, y in corners[1:]
                for region in regions
            ]
        else:
            copies = [Rectangle(corner, plan.replica_width, plan.replica_height) for corner in corners[1:]]
        thin = min(0.4, 0.12 * scale * min(plan.replica_width, plan.replica_height))
        axes.add_collection(PatchCollection(copies, facecolor=COPY, edgecolor=FAINT, linewidth=thin / 2))
        for region, color in zip(regions, coloring.colors, strict=True):
            sides = region.width, region.height
            axes.add_patch(Rectangle((region.x, region.y), *sides, facecolor=color, edgecolor=INK, linewidth=thin))
        outlines = [Rectangle(corner, plan.replica_width, plan.replica_height) for corner in corners]
        axes.add_collection(PatchCollection(outlines, facecolor="none", edgecolor=INK, linewidth=thin))
        first = Rectangle((0, 0), plan.replica_width, plan.replica_height, fill=False, edgecolor=INK, linewidth=1.2)
        axes.add_patch(first)

    return Block(width_pt, above + fabric.height * scale + 2, draw)
