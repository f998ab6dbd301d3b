"""The picture of a pipelined model: every kernel in its region of the fabric, to scale."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from cstool.foundation.drawing.page import SMALL_PT, TEXT_PT, Block, Page, Row, compose, listing
from cstool.foundation.drawing.palette import INK, MEMORY_BOUND_HATCH, NO_WORK
from cstool.foundation.words import counted
from cstool.model.ir import Artifact, PipelinedPlan, Region
from cstool.model.short_names import short_name
from cstool.plan.pictures.floorplan_legend import Coloring, color_bar, color_stages, legend, replicas
from cstool.plan.pictures.region_names import Written, route_boxes, write_name, write_number
from cstool.plan.pictures.routes import draw_routes

WIDEST_PT, TALLEST_PT = 560.0, 690.0
"""largest size of the fabric"""
AXIS_LEFT_PT, AXIS_BELOW_PT = 40.0, 34.0
"""space for the numbers along the fabric"""
SIDE_PT = 210.0
"""width of the column beside the fabric"""
FLAT = 0.6
"""share of the column's height beside the fabric: where the fabric is lower, the legend stands below"""


def draw_floorplan(artifact: Artifact, color_by: str) -> Page:
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
    covered = route_boxes(plan.routes, scale)
    names = [write_name(short_name(stage.name), stage.region, scale, covered) for stage in plan.stages]
    numbered = [
        f"{number}  {short_name(stage.name)}"
        for number, (stage, name) in enumerate(zip(plan.stages, names, strict=True), start=1)
        if name is None
    ]
    written = [
        name or write_number(number, stage.region, scale, covered)
        for number, (stage, name) in enumerate(zip(plan.stages, names, strict=True), start=1)
    ]
    regions = _regions(plan, coloring, written, (width, height), scale)
    colors, lines = color_bar(coloring, SIDE_PT), legend(plan, SIDE_PT)
    wafer = [replicas(artifact, plan, coloring, SIDE_PT)] if several else []
    side = [colors, *wafer, lines]
    page: list[Row] = [[[regions], side]]
    if wafer and regions.height_pt < FLAT * sum(block.height_pt for block in side):
        page = [[[regions]], [[colors, lines], wafer]]
    if numbered:
        below = max(sum(column[0].width_pt for column in row) for row in page)
        page.append([[listing(numbered, below, "Regions too small for their names")]])
    what = f"One of {columns:,} x {rows:,} replicas that work side by side" if several else "The usable fabric"
    subtitle = (
        f"{what}, {width:,} x {height:,} PEs, to scale. "
        f"Micro-batch of {counted(artifact.micro_batch_size, 'sample')}. Cycles are modelled, not measured."
    )
    return compose(picture_title(artifact, "pipelined"), subtitle, page)


def picture_title(artifact: Artifact, mode: str) -> str:
    """Return the title of all pictures of an artifact: the model, the system, the mode, and that it is a model."""
    systems = f"{artifact.num_csx} x {artifact.system.name}" if artifact.num_csx > 1 else artifact.system.name
    parameters = artifact.graph.parameter_count
    return f"{artifact.graph.name}, {parameters:,} parameters, on {systems}: {mode} (modelled)"


def _regions(
    plan: PipelinedPlan, coloring: Coloring, written: Sequence[Written], size: tuple[int, int], scale: float
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
        for letters, color in zip(written, coloring.colors, strict=True):
            _write(axes, letters, scale, color)

    return Block(AXIS_LEFT_PT + width * scale, height * scale + AXIS_BELOW_PT, draw)


def _prepare(axes: Axes, width: int, height: int) -> None:
    axes.set(xlim=(0, width), ylim=(height, 0), facecolor=NO_WORK)
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


def _write(axes: Axes, written: Written, scale: float, color: str) -> None:
    letters, (x, y) = written.letters, written.middle
    style: dict[str, Any] = {
        "size": letters.size_pt,
        "rotation": letters.rotation,
        "ha": "center",
        "color": INK,
        "zorder": 6,
    }
    # A plate behind the letters, which hides the hatch of the region.
    plate = {"boxstyle": "square,pad=0.08", "facecolor": color, "edgecolor": "none", "alpha": 0.8}
    middle = "center" if letters.rotation else "center_baseline"
    axes.text(x / scale, y / scale, letters.text, va=middle, bbox=plate, **style)
