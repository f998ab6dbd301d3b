"""The rectangle of PEs in pictures of fabrics: its scale, its axes, and hues for the programs on it."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from numpy.typing import NDArray

from cstool.csl.fabric.program import FabricProgram
from cstool.foundation.drawing.lettering import text_width
from cstool.foundation.drawing.page import HEADING_PT, SMALL_PT, TEXT_PT, Block
from cstool.foundation.drawing.palette import BLUE, GREEN, INK, NO_WORK, ORANGE, PURPLE, SKY, VERMILION, YELLOW
from cstool.foundation.words import counted

LARGEST_PE_PT = 62.0
"""largest pitch of PEs, used for few"""
PANEL_PT = 400.0
"""largest width and height of a rectangle"""
THINNEST_PT = 10.0
"""smallest width and height of a rectangle"""
AXIS_LEFT_PT, AXIS_BELOW_PT, HEAD_PT = 32.0, 28.0, 18.0
"""room for the numbers along the rectangle, and for its heading"""
ROW_PT = 970.0
"""width for panels side by side"""
_HUES = (SKY, ORANGE, GREEN, PURPLE, YELLOW, BLUE, VERMILION, "#999999")
_TINT = 0.55
"""share of white in hues of programs, so that lines and letters can be read on them"""
Corner = tuple[float, float]


def scale_of(width: int, height: int) -> float:
    """Points from one PE to the next."""
    return min(LARGEST_PE_PT, PANEL_PT / width, PANEL_PT / height)


def grid_size(width: int, height: int) -> tuple[float, float]:
    """Width and height of a rectangle [points]; a very long one gets a visible thickness, not to scale."""
    scale = scale_of(width, height)
    return max(THINNEST_PT, width * scale), max(THINNEST_PT, height * scale)


def grid_block(width: int, height: int, heading: str) -> tuple[float, float]:
    """Width and height of the block of a rectangle with its heading and numbers [points]."""
    across, down = grid_size(width, height)
    return max(AXIS_LEFT_PT + across + 8, text_width(heading, HEADING_PT) + 2), HEAD_PT + down + AXIS_BELOW_PT


def grid_axes(block: Axes, width: int, height: int, heading: str) -> Axes:
    """Axes of a rectangle in PEs, y to the south, below a heading."""
    across, down = grid_size(width, height)
    block.text(0, 0, heading, size=HEADING_PT, color=INK, va="top")
    axes = block.inset_axes((AXIS_LEFT_PT, HEAD_PT, across, down), transform=block.transData)
    axes.set(xlim=(0, width), ylim=(height, 0), facecolor="white")
    axes.tick_params(labelsize=SMALL_PT, length=2.5, width=0.6)
    # A number stands below the middle of its PE.
    for axis, size, length, set_ticks in ((0, width, across, axes.set_xticks), (1, height, down, axes.set_yticks)):
        numbers = _ticks(size, length / size, axis)
        set_ticks([number + 0.5 for number in numbers], [f"{number}" for number in numbers])
    labels = [
        text if length >= text_width(text, TEXT_PT) else text[0]
        for text, length in (("x, east [PEs]", across), ("y, south [PEs]", down))
    ]
    axes.set_xlabel(labels[0], size=TEXT_PT, labelpad=2)
    axes.set_ylabel(labels[1], size=TEXT_PT, labelpad=2)
    for spine in axes.spines.values():
        spine.set_linewidth(0.6)
    return axes


def _ticks(size: int, scale: float, axis: int) -> range:
    """Numbers that fit along an axis, a round step apart."""
    room = text_width(f"{size}", SMALL_PT) + 5 if axis == 0 else 1.6 * SMALL_PT
    steps = (factor * 10**power for power in range(7) for factor in (1, 2, 5))
    return range(0, size, next(step for step in steps if step * scale >= room))


def files_of(program: FabricProgram) -> tuple[list[str], NDArray[np.int32]]:
    """The files that programs were compiled from, and for each PE the number of its file; -1 for none."""
    names = list(dict.fromkeys(each.name for each in program.programs))
    numbers = np.array([*(names.index(each.name) for each in program.programs), -1], np.int32)
    return names, numbers[program.tiles]


def hues(names: Sequence[str]) -> dict[str, tuple[float, float, float]]:
    """A light hue for each file; files beyond the number of hues share the last one."""
    return {name: _lighter(_HUES[min(number, len(_HUES) - 1)]) for number, name in enumerate(names)}


def kind_hues(names: Sequence[str]) -> dict[str, tuple[float, float, float]]:
    """A full hue for each of at most eight kinds."""
    return {name: to_rgb(_HUES[number]) for number, name in enumerate(names)}


def _lighter(color: str) -> tuple[float, float, float]:
    red, green, blue = (part + (1 - part) * _TINT for part in to_rgb(color))
    return red, green, blue


def swatches(samples: Mapping[str, tuple[float, float, float]], heading: str, width_pt: float) -> Block:
    """The legend of hues, in as many columns as there is room for."""
    column = max((text_width(name, SMALL_PT) for name in samples), default=0.0) + 30
    columns = max(1, min(len(samples), int(width_pt // column)))
    rows = -(-len(samples) // columns)
    top = 17.0 if heading else 2.0

    def draw(block: Axes) -> None:
        block.text(0, 0, heading, size=HEADING_PT, color=INK, va="top")
        for number, (name, color) in enumerate(samples.items()):
            x, y = number // rows * column, top + number % rows * 11
            block.add_patch(Rectangle((x, y), 12, 8, facecolor=color, edgecolor=INK, linewidth=0.4))
            block.text(x + 16, y + 4, name, size=SMALL_PT, color=INK, va="center_baseline")

    return Block(max(columns * column, text_width(heading, HEADING_PT)), top + 11 * rows, draw)


def program_swatches(program: FabricProgram, width_pt: float) -> Block:
    """The legend of programs: the hue and the number of PEs of each."""
    names, numbers = files_of(program)
    named = hues(names)
    samples = {f"{name}, {counted(int((numbers == n).sum()), 'PE')}": named[name] for n, name in enumerate(names)}
    if (numbers < 0).any():
        samples[f"no program, {counted(int((numbers < 0).sum()), 'PE')}"] = to_rgb(NO_WORK)
    return swatches(samples, "Programs", width_pt)


def program_image(program: FabricProgram) -> NDArray[np.float64]:
    """[height, width, 3] hues of programs."""
    names, numbers = files_of(program)
    table = np.array([*(hues(names)[name] for name in names), to_rgb(NO_WORK)])
    return table[numbers]


def draw_lines(axes: Axes, lines: Sequence[Sequence[Corner]], color: str, width_pt: float, **more: object) -> None:
    """Draw many lines as one shape, to keep files small."""
    _draw(axes, lines, closed=False, facecolor="none", edgecolor=color, linewidth=width_pt, **more)


def draw_shapes(axes: Axes, shapes: Sequence[Sequence[Corner]], color: str, **more: object) -> None:
    """Draw many filled polygons as one shape."""
    _draw(axes, shapes, closed=True, **{"facecolor": color, "edgecolor": "none", "linewidth": 0.0, **more})


def _draw(axes: Axes, outlines: Sequence[Sequence[Corner]], *, closed: bool, **style: object) -> None:
    if not outlines:
        return
    corners: list[Corner] = []
    codes: list[int] = []
    for outline in outlines:
        corners += outline
        codes += [int(Path.MOVETO)] + [int(Path.LINETO)] * (len(outline) - 1)
        if closed:
            corners.append(outline[0])
            codes.append(int(Path.CLOSEPOLY))
    axes.add_patch(PathPatch(Path(corners, codes), **style))


def in_rows(blocks: Sequence[Block]) -> list[list[list[Block]]]:
    """Blocks side by side, as many as fit the page, row by row."""
    rows: list[list[list[Block]]] = []
    room = 0.0
    for block in blocks:
        if block.width_pt > room:
            rows.append([])
            room = ROW_PT
        rows[-1].append([block])
        room -= block.width_pt + 22
    return rows
