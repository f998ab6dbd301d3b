"""The picture of a pipelined model: every kernel in its region of the fabric, to scale."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from cstool.ir import Artifact, PipelinedPlan, Region
from cstool.pictures.coloring import Coloring, color_bar, color_stages
from cstool.pictures.floorplan_legend import legend, replicas
from cstool.pictures.lettering import Lettering, fit_text, text_width
from cstool.pictures.names import short_name
from cstool.pictures.page import SMALL_PT, TEXT_PT, Block, compose, listing, picture_title
from cstool.pictures.palette import INK, MEMORY_BOUND_HATCH, NO_WORK
from cstool.pictures.routes import draw_routes

WIDEST_PT, TALLEST_PT = 560.0, 690.0
"""of the fabric"""
AXIS_LEFT_PT, AXIS_BELOW_PT = 40.0, 34.0
"""for the numbers along the fabric"""
SIDE_PT = 210.0
"""width of the column beside the fabric"""
LARGEST_NAME_PT, SMALLEST_NAME_PT = 10.0, 5.5
LARGEST_NUMBER_PT, SMALLEST_NUMBER_PT = 7.0, 3.5
DIGIT_HEIGHT = 0.75
"""of a digit, which has nothing below the line, in sizes of the type"""


def draw_floorplan(artifact: Artifact, color_by: str) -> Figure:
    """Return the picture.

    Args:
        artifact: of a pipelined model
        color_by: "work" or "sram"
    """
    plan = artifact.pipelined
    assert plan is not None
    coloring = color_stages(artifact, plan, color_by)
    columns, rows = plan.replicas
    several = columns * rows > 1
    fabric = artifact.system.fabric
    width, height = (plan.replica_width, plan.replica_height) if several else (fabric.width, fabric.height)
    scale = min(WIDEST_PT / width, TALLEST_PT / height)
    names = [_fit(short_name(stage.name), stage.region, scale) for stage in plan.stages]
    numbered = [
        f"{number}  {short_name(stage.name)}"
        for number, (stage, name) in enumerate(zip(plan.stages, names, strict=True), start=1)
        if name is None
    ]
    side = [color_bar(coloring, SIDE_PT), legend(plan, SIDE_PT)]
    if several:
        side.insert(1, replicas(artifact, plan, coloring, SIDE_PT))
    page = [[[_regions(plan, coloring, names, (width, height), scale)], side]]
    if numbered:
        page.append([[listing(numbered, AXIS_LEFT_PT + width * scale + SIDE_PT, "Regions too small for their names")]])
    what = f"One of {columns:,} x {rows:,} replicas that work side by side" if several else "The usable fabric"
    samples = artifact.micro_batch_size
    subtitle = (
        f"{what}, {width:,} x {height:,} PEs, to scale. "
        f"Micro-batch of {samples:,} sample{'s' * (samples != 1)}. Cycles are modelled, not measured."
    )
    return compose(picture_title(artifact, "pipelined"), subtitle, page)


def _fit(name: str, region: Region, scale: float) -> Lettering | None:
    return fit_text(name, *_room(region, scale), LARGEST_NAME_PT, SMALLEST_NAME_PT)


def fit_number(number: int, region: Region, scale: float) -> Lettering:
    """Return a number as large as it fits: it is always written, as the list below explains it.

    Level wins unless upright type is larger by half.

    Args:
        number: of the stage, from 1
        region: of it
        scale: [points per PE]
    """
    sides = (max(0.0, region.width * scale - 1), max(0.0, region.height * scale - 1))
    level, upright = (
        min(LARGEST_NUMBER_PT, along / text_width(str(number)), across / DIGIT_HEIGHT)
        for along, across in (sides, sides[::-1])
    )
    size, rotation = (upright, 90) if upright > 1.5 * level else (level, 0)
    return Lettering(str(number), max(size, SMALLEST_NUMBER_PT), rotation)


def _room(region: Region, scale: float) -> tuple[float, float]:
    """Return what a region has for letters, without a margin [points]."""
    return 0.92 * region.width * scale - 2, 0.92 * region.height * scale - 2


def _regions(
    plan: PipelinedPlan,
    coloring: Coloring,
    names: Sequence[Lettering | None],
    size: tuple[int, int],
    scale: float,
) -> Block:
    """Return the block with all regions of one replica, or of the fabric."""
    width, height = size

    def draw(block: Axes) -> None:
        axes = block.inset_axes((AXIS_LEFT_PT, 0, width * scale, height * scale), transform=block.transData)
        _prepare(axes, width, height)
        for number, stage in enumerate(plan.stages):
            _draw_region(axes, stage.region, coloring.colors[number], scale, stage.is_memory_bound)
        _outline(axes, plan.stages[plan.bottleneck].region, scale)
        draw_routes(axes, scale, plan)
        for number, (stage, name) in enumerate(zip(plan.stages, names, strict=True), start=1):
            _write(axes, stage.region, name or fit_number(number, stage.region, scale))

    return Block(AXIS_LEFT_PT + width * scale, height * scale + AXIS_BELOW_PT, draw)


def _prepare(axes: Axes, width: int, height: int) -> None:
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_facecolor(NO_WORK)
    axes.tick_params(labelsize=SMALL_PT, length=2.5, width=0.6)
    axes.set_xlabel("x, east [PEs]", size=TEXT_PT, labelpad=2)
    axes.set_ylabel("y, south [PEs]", size=TEXT_PT, labelpad=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    for spine in axes.spines.values():
        spine.set_linewidth(0.8)


def _draw_region(axes: Axes, region: Region, color: str, scale: float, is_memory_bound: bool) -> None:
    corner, sides = (region.x, region.y), (region.width, region.height)
    edge = min(0.8, 0.15 * scale * min(sides))
    axes.add_patch(Rectangle(corner, *sides, facecolor=color, edgecolor=INK, linewidth=edge, zorder=1))
    if is_memory_bound:
        hatch = Rectangle(corner, *sides, fill=False, hatch=MEMORY_BOUND_HATCH, linewidth=0, zorder=1.5)
        hatch.set_edgecolor(to_rgba(INK, 0.28))
        axes.add_patch(hatch)


def _outline(axes: Axes, region: Region, scale: float) -> None:
    """Draw the frame of the slowest stage, inside of its region."""
    line = min(2.4, 0.2 * scale * min(region.width, region.height))
    inset = line / 2 / scale
    corner, sides = (region.x + inset, region.y + inset), (region.width - 2 * inset, region.height - 2 * inset)
    axes.add_patch(Rectangle(corner, *sides, fill=False, edgecolor=INK, linewidth=line, zorder=2))


def _write(axes: Axes, region: Region, letters: Lettering) -> None:
    axes.text(
        region.x + region.width / 2,
        region.y + region.height / 2,
        letters.text,
        size=letters.size_pt,
        rotation=letters.rotation,
        ha="center",
        va="center" if letters.rotation else "center_baseline",
        color=INK,
        zorder=6,
        path_effects=[withStroke(linewidth=letters.size_pt / 4, foreground="#ffffffc0")],
    )
