"""The wafer in weight streaming, to scale: tokens over rows, hidden over columns; and the tile of one PE."""

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

from cstool.foundation.drawing.lettering import LINE_HEIGHT, fit_text, wrap_text
from cstool.foundation.drawing.page import HEADING_PT, SMALL_PT, TEXT_PT, Block, text_height
from cstool.foundation.drawing.palette import BLUE, COPY, FAINT, INK, NO_WORK, SKY, VERMILION
from cstool.foundation.words import bytes_text, counted
from cstool.model.ir import Artifact, Layout, StreamedKernel, StreamingPlan
from cstool.model.short_names import short_name

WIDEST_PT, TALLEST_PT = 300.0, 330.0
"""largest size of the wafer"""
LEFT_PT, ABOVE_PT, BELOW_PT = 34.0, 46.0, 30.0
TILE_PT, CELL_PT, TILE_GAP_PT = 130.0, 13.0, 60.0
MOST_CELLS = 48
"""cells in a row or column of the tile; of more, the grid is left out"""
NARROWEST_ARROW_PT = 20.0
LEAST_ARROW_PT = 44.0
"""from the top to the arrow along the rows, so that its label is clear of the arrows down the columns"""
PE_PT = 5.0
"""size of the mark where the PE is"""


def array(artifact: Artifact, plan: StreamingPlan) -> Block:
    """Return the block."""
    fabric, layout = artifact.system.fabric, plan.layout
    scale = min(WIDEST_PT / fabric.width, TALLEST_PT / fabric.height)
    width, height = fabric.width * scale, fabric.height * scale
    tile_left = LEFT_PT + width + TILE_GAP_PT
    used = layout.columns * layout.groups

    def draw(block: Axes) -> None:
        block.text(0, 0, "The wafer as one array, to scale", size=HEADING_PT, color=INK, va="top")
        axes = block.inset_axes((LEFT_PT, ABOVE_PT, width, height), transform=block.transData)
        axes.set(xlim=(0, fabric.width), ylim=(fabric.height, 0), facecolor=NO_WORK)
        axes.tick_params(labelsize=SMALL_PT, length=2.5, width=0.6)
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
        axes.set_xlabel("hidden elements over columns [PEs]", size=TEXT_PT, labelpad=2)
        axes.set_ylabel("tokens over rows [PEs]", size=TEXT_PT, labelpad=2)
        _draw_groups(axes, layout, scale)
        _flows(block, layout, scale)
        bottom = _draw_tile(block, tile_left, plan)
        _zoom(block, LEFT_PT + used * scale, tile_left, bottom)
        _facts(block, tile_left, bottom + 14, plan)

    return Block(tile_left + TILE_PT + 26, ABOVE_PT + height + BELOW_PT, draw)


def _draw_groups(axes: Axes, layout: Layout, scale: float) -> None:
    """Draw the groups of columns, and their numbers if there is room for all."""
    count = layout.groups
    for group in range(count):
        color = (SKY + "90", COPY)[group % 2]
        corner = (group * layout.columns, 0)
        axes.add_patch(Rectangle(corner, layout.columns, layout.rows, facecolor=color, edgecolor=INK, linewidth=0.7))
    height = layout.rows * scale / 3
    letters = fit_text(f"group {count}", layout.columns * scale * 0.9 - 2, height, 9.0)
    if count > 1 and letters is not None:
        places = {
            (group + 0.5) * layout.columns: letters.text.replace(str(count), str(group + 1)) for group in range(count)
        }
        size, rotation = letters.size_pt, letters.rotation
    else:
        places = {layout.columns * count / 2: f"{count} groups of columns" if count > 1 else "one group of columns"}
        size, rotation = 9.0, 0
    for x, text in places.items():
        middle = {"ha": "center", "va": "center"}
        axes.text(x, layout.rows / 2, text, size=size, rotation=rotation, color=INK, fontdict=middle)


def _flows(block: Axes, layout: Layout, scale: float) -> None:
    """Draw how weights come down the columns and sums go along the rows of each group."""
    group = layout.columns * scale
    used = group * layout.groups
    for part in (0.12, 0.5, 0.88):
        x = LEFT_PT + part * used
        block.add_patch(_arrow((x, ABOVE_PT - 13), (x, ABOVE_PT + 26), VERMILION))
    _say(block, LEFT_PT + used / 2, ABOVE_PT - 15, "weights, to all PEs of a column", VERMILION)
    y = ABOVE_PT + max(LEAST_ARROW_PT, 0.8 * layout.rows * scale)
    for number in range(layout.groups):
        if group >= NARROWEST_ARROW_PT:
            left = LEFT_PT + number * group
            block.add_patch(_arrow((left + 0.12 * group, y), (left + 0.88 * group, y), BLUE))
    each = "a group" if layout.groups == 1 else "each group"
    _say(block, LEFT_PT + used / 2, y - 5, f"partial sums, along the rows of {each}", BLUE)


def _say(block: Axes, x: float, y: float, text: str, color: str) -> None:
    plate = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
    block.text(x, y, text, size=TEXT_PT, color=color, ha="center", va="bottom", zorder=9, bbox=plate)


def _arrow(start: tuple[float, float], end: tuple[float, float], color: str) -> FancyArrowPatch:
    return FancyArrowPatch(
        start, end, arrowstyle="-|>", mutation_scale=8, color=color, linewidth=1.3, shrinkA=0, shrinkB=0, zorder=8
    )


def _draw_tile(block: Axes, left: float, plan: StreamingPlan) -> float:
    """Draw the tile of one PE, and return where it ends."""
    kernel, tokens = tile_kernel(plan), plan.layout.tokens_per_pe
    elements = kernel.inputs_per_pe
    text = wrap_text(
        f"A PE's tile: {counted(tokens, 'token')} x {counted(elements, 'hidden element')}, input of "
        f"{short_name(kernel.name)}",
        TILE_PT + 26,
        HEADING_PT,
    )
    block.text(left, 0, text, size=HEADING_PT, color=INK, va="top", linespacing=LINE_HEIGHT)
    across, down = min(CELL_PT, TILE_PT / elements), min(CELL_PT, TILE_PT / tokens)
    width, height = across * elements, down * tokens
    block.add_patch(
        Rectangle((left, ABOVE_PT), width, height, facecolor=SKY + "90", edgecolor=INK, linewidth=1.0, zorder=3)
    )
    if elements <= MOST_CELLS:
        block.vlines(
            [left + across * n for n in range(1, elements)], ABOVE_PT, ABOVE_PT + height, color=INK, lw=0.4, zorder=3
        )
    if tokens <= MOST_CELLS:
        block.hlines([ABOVE_PT + down * n for n in range(1, tokens)], left, left + width, color=INK, lw=0.4, zorder=3)
    return ABOVE_PT + height


def tile_kernel(plan: StreamingPlan) -> StreamedKernel:
    """Return the kernel whose input the tile shows: the kernel of the fullest moment, else the widest beside it."""
    segment = next(
        (kernels for kernels in plan.kernels if any(kernel.name == plan.fullest_kernel for kernel in kernels)),
        plan.kernels[0],
    )
    fullest = next((kernel for kernel in segment if kernel.name == plan.fullest_kernel), segment[0])
    return fullest if fullest.inputs_per_pe else max(segment, key=lambda kernel: kernel.inputs_per_pe)


def _zoom(block: Axes, x: float, left: float, bottom: float) -> None:
    """Mark the PE at the upper right corner of the working PEs, and draw the lines to its tile."""
    pe = Rectangle((x - PE_PT, ABOVE_PT), PE_PT, PE_PT, facecolor="white", edgecolor=INK, linewidth=0.9, zorder=9)
    block.add_patch(pe)
    for start, end in ((ABOVE_PT, ABOVE_PT), (ABOVE_PT + PE_PT, bottom)):
        block.plot([x, left], [start, end], color=FAINT, linewidth=0.7, linestyle=(0, (3, 2)), zorder=8)


def _facts(block: Axes, left: float, top: float, plan: StreamingPlan) -> None:
    layout = plan.layout
    each = "Each group has samples of its own; the weights go to all. " if layout.groups > 1 else ""
    facts = (
        f"{counted(layout.groups, 'group')} of {layout.columns:,} columns x {layout.rows:,} rows. {each}",
        f"Per CSX and step, {bytes_text(plan.streamed_bytes)} of weights come in and "
        f"{bytes_text(plan.gradient_bytes)} of gradients go out.",
    )
    for fact in facts:
        text = wrap_text(fact, TILE_PT + 26, TEXT_PT)
        block.text(left, top, text, size=TEXT_PT, color=INK, va="top", linespacing=LINE_HEIGHT)
        top += text_height(text, TEXT_PT) + 6
