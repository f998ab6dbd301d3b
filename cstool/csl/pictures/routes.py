"""Routes as they are laid out before a run: a panel for each color, with the inputs and outputs of each router.

Where there is room, a PE is a square in the hue of its program; arrows lead into it and on; a dot marks a router whose
PE sends, a ring one whose PE takes. Where a switch has several positions, letters a to d give an arrow's positions.
Where there is less room only lines are left, and in the end a hue for each kind of route.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from math import cos, pi, sin

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Circle, Polygon, Rectangle
from numpy.typing import NDArray

from cstool.csl.fabric.arch import ports_text
from cstool.csl.fabric.program import ColorConfig, FabricProgram
from cstool.csl.pictures.grid import (
    Corner,
    draw_lines,
    draw_shapes,
    grid_axes,
    grid_block,
    in_rows,
    kind_hues,
    program_image,
    program_swatches,
    scale_of,
    swatches,
)
from cstool.csl.pictures.strokes import HALF, Strokes, strokes_of
from cstool.foundation.drawing.lettering import text_width
from cstool.foundation.drawing.page import HEADING_PT, NARROWEST_PT, SMALL_PT, Block, Page, compose
from cstool.foundation.drawing.palette import FAINT, INK, NO_WORK, VERMILION
from cstool.foundation.words import counted

SQUARES_FROM_PT, LETTERS_FROM_PT, LINES_FROM_PT = 24.0, 44.0, 8.0
"""least pitch of PEs for squares, for letters, for lines"""
MOST_PANELS = 24
MOST_KINDS = 8
"""kinds of routes of one color with a hue of their own; the rarer ones share the last"""


def routes_page(program: FabricProgram, title: str, colors: Sequence[int] | None = None) -> Page:
    """Return the picture.

    Args:
        program: the program
        title: name of the program
        colors: colors to draw; None for all with routes
    """
    wanted = (
        [color for color, table in sorted(program.routes.items()) if (table >= 0).any()] if colors is None else colors
    )
    rows = in_rows([_panel(program, color) for color in wanted[:MOST_PANELS]])
    width = max([NARROWEST_PT, *(sum(block.width_pt for column in row for block in column) for row in rows)])
    scale = scale_of(program.width, program.height)
    if scale >= LINES_FROM_PT:
        lettered = any(len(config.positions) > 1 for color in wanted for config, _ in program.configs_of(color))
        rows += [[[_legend(lettered)]], [[program_swatches(program, width)]]]
    size = f"{program.width:,} x {program.height:,} PEs of {program.arch}"
    left_out = f" Of {len(wanted)} colors the first {MOST_PANELS} are shown." if len(wanted) > MOST_PANELS else ""
    said = f"As they are laid out before the run: what each router takes, and where it sends it.{left_out}"
    return compose(f"{title}: routes of {counted(len(wanted), 'color')} on {size}", said, rows)


def _panel(program: FabricProgram, color: int) -> Block:
    heading = _heading(program, color)
    width, height = grid_block(program.width, program.height, heading)
    if scale_of(program.width, program.height) >= LINES_FROM_PT:
        return Block(width, height, partial(_draw_arrows, program=program, color=color, heading=heading))
    names, numbers = _kinds(program, color)
    colors = kind_hues(names)
    below = swatches(colors, "", width)

    def draw(block: Axes) -> None:
        axes = grid_axes(block, program.width, program.height, heading)
        shades = np.array([*colors.values(), to_rgb(NO_WORK)])
        axes.imshow(
            shades[numbers], extent=(0, program.width, program.height, 0), interpolation="nearest", aspect="auto"
        )
        beneath = block.inset_axes((0, height, below.width_pt, below.height_pt), transform=block.transData)
        beneath.set(xlim=(0, below.width_pt), ylim=(below.height_pt, 0))
        beneath.set_axis_off()
        below.draw(beneath)

    return Block(max(width, below.width_pt), height + below.height_pt, draw)


def _heading(program: FabricProgram, color: int) -> str:
    sends, takes = program.ends_of(color)
    names = [name for name, stream in program.streams.items() if stream == color]
    name = f" ({', '.join(names)})" if names else ""
    return f"color {color}{name}: {counted(sends, 'PE')} can send, {takes:,} can take"


def _draw_arrows(block: Axes, program: FabricProgram, color: int, heading: str) -> None:
    width, height = program.width, program.height
    axes, scale = grid_axes(block, width, height, heading), scale_of(width, height)
    table = program.routes[color]
    places = zip(*(found.tolist() for found in np.nonzero(table >= 0)), strict=True)
    configs = {(x, y): program.configs[table[y, x]] for y, x in places}
    strokes = strokes_of(configs, (width, height), scale, is_host=color in program.streams.values())
    image = program_image(program)
    if scale >= SQUARES_FROM_PT:
        for y in range(height):
            for x in range(width):
                edge, line = (INK, 0.7) if (x, y) in configs else (FAINT, 0.3)
                style = {"facecolor": image[y, x], "edgecolor": edge, "linewidth": line, "zorder": 2}
                axes.add_patch(Rectangle((x + 0.5 - HALF, y + 0.5 - HALF), 2 * HALF, 2 * HALF, **style))
    else:
        axes.imshow(image, extent=(0, width, height, 0), interpolation="nearest", zorder=1)
    line = min(1.1, 0.07 * scale)
    draw_lines(axes, strokes.faint, FAINT, 0.7 * line, zorder=3, linestyle=(0, (2, 1.5)))
    draw_lines(axes, strokes.lines, INK, line, zorder=4)
    draw_shapes(axes, strokes.heads, INK, zorder=4)
    draw_lines(axes, strokes.dead, VERMILION, 1.5 * line, zorder=5)
    _draw_ends(axes, strokes, scale)
    if scale >= LETTERS_FROM_PT:
        for (left, top), text, side in strokes.letters:
            axes.text(left, top, text, size=SMALL_PT, color=INK, ha=side, va="center_baseline", zorder=8)


def _draw_ends(axes: Axes, strokes: Strokes, scale: float) -> None:
    """Draw dots where PEs send, and rings where they take; a PE that does both has the dot in the ring."""
    dot, ring = min(2.0, 0.13 * scale) / scale, min(3.9, 0.24 * scale) / scale
    corners = 16 if scale >= SQUARES_FROM_PT else 6
    rings = [_round(middle, ring, corners) for middle in strokes.sinks]
    line = min(1.1, 0.07 * scale)
    draw_shapes(axes, rings, "white", zorder=6, edgecolor=INK, linewidth=line)
    draw_shapes(axes, [_round(middle, dot, corners) for middle in strokes.sources], INK, zorder=7)


def _round(middle: Corner, radius: float, corners: int) -> list[Corner]:
    """Corners of a polygon that looks like a circle."""
    angles = [2 * pi * number / corners for number in range(corners)]
    return [(middle[0] + radius * cos(angle), middle[1] + radius * sin(angle)) for angle in angles]


def _legend(lettered: bool) -> Block:
    """The legend of dots, rings and lines."""
    entries = [("dot", "its PE sends"), ("ring", "its PE takes"), ("line", "goes to a neighbour that takes it")]
    entries += [("faint", "taken, but nothing comes"), ("dead", "sent, but not taken")]
    letters = "a to d: the arrow is there in this switch position, a is the first (●: sends, ○: takes)"
    widths = [text_width(text, SMALL_PT) + 36 for _, text in entries]

    def draw(block: Axes) -> None:
        block.text(0, 0, "Routes", size=HEADING_PT, color=INK, va="top")
        x, y = 0.0, 22.0
        for (kind, text), width in zip(entries, widths, strict=True):
            if kind in ("dot", "ring"):
                radius, face = (2.0, INK) if kind == "dot" else (3.9, "white")
                block.add_patch(Circle((x + 10, y), radius, facecolor=face, edgecolor=INK, linewidth=1.1))
            else:
                dashes = (0, (2, 1.5)) if kind == "faint" else "solid"
                color = {"line": INK, "faint": FAINT, "dead": VERMILION}[kind]
                block.plot([x, x + 18], [y, y], color=color, linewidth=1.2, linestyle=dashes)
                if kind == "line":
                    block.add_patch(
                        Polygon([(x + 19, y), (x + 14, y - 2.2), (x + 14, y + 2.2)], facecolor=INK, linewidth=0)
                    )
            block.text(x + 23, y, text, size=SMALL_PT, color=INK, va="center_baseline")
            x += width
        if lettered:
            block.text(0, y + 12, letters, size=SMALL_PT, color=INK, va="center_baseline")

    return Block(max(sum(widths), text_width(letters, SMALL_PT)), 44.0 if lettered else 30.0, draw)


def _kinds(program: FabricProgram, color: int) -> tuple[list[str], NDArray[np.int64]]:
    """Kinds of routes in words with their counts, the most frequent first; [height, width] kind of each router."""
    table = program.routes[color]
    texts = [_config_text(config) for config in program.configs]
    counts: Counter[str] = Counter()
    for config, count in program.configs_of(color):
        counts[_config_text(config)] += count
    ordered = [text for text, _ in counts.most_common()]
    shown = ordered if len(ordered) <= MOST_KINDS else ordered[: MOST_KINDS - 1]
    numbers = np.array([*(shown.index(text) if text in shown else len(shown) for text in texts), -1])
    names = [f"{text}: {counted(counts[text], 'PE')}" for text in shown]
    if rest := ordered[len(shown) :]:
        names.append(f"{len(rest)} other kinds: {counted(sum(counts[text] for text in rest), 'PE')}")
    return names, numbers[table]


def _config_text(config: ColorConfig) -> str:
    pairs = ((ports_text(ports, ", ", "nowhere") for ports in (route.rx, route.tx)) for route in config.positions)
    return "; then ".join(map(" to ".join, pairs))
