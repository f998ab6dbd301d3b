"""The roofline of a system: work of its kernels for each byte that crosses its edge, below the system's peak."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from cstool.foundation.drawing.labels import Box, Placed, Point, clusters, path_boxes, point_box
from cstool.foundation.drawing.lettering import LINE_HEIGHT, text_width
from cstool.foundation.drawing.page import SMALL_PT, TEXT_PT, Block
from cstool.foundation.drawing.palette import FAINT, INK, PHASE_WORDS, PHASES, VERMILION
from cstool.foundation.drawing.plot import (
    PLOT_HEIGHT_PT,
    PLOT_WIDTH_PT,
    axes_points,
    fit_labels,
    log_ticks,
    plot_axes,
    write_labels,
)
from cstool.foundation.words import bytes_text, digits_text
from cstool.model.short_names import short_name
from cstool.plan.timing.roofline import WHOLE_STEP, Load

MARKERS = {"forward": ("o", 46.0), "delta": ("s", 22.0), "gradient": ("^", 26.0), WHOLE_STEP: ("*", 90.0)}
"""phase -> its marker, and how large: where they are over each other, all can be seen"""
SHORT_WORDS = {"forward": "forward", "delta": "dX", "gradient": "dW"}
"""names of phases in labels of points"""
MOST_LABELS = 24
_HALF_MARKER_PT = 3.6
TOGETHER_PT = (6.0, 10.0, 15.0, 22.0)
"""points of one phase that are so near each other have one label: the first with which there is room for all labels"""
FARTHEST_PT = (90.0, 160.0)
"""distance of a label from its point, at most: the second where the first leaves one out"""
MOST_NAMES = (5, 2)
"""names in one label: the second where there is no room for longer ones"""
_TOP_PT = 36.0
_ROOM, _ABOVE = 0.25, 0.14
"""shares of the height between the slowest and the peak: below for labels, above for the words on the peak"""
_STRIP = 0.12
"""share of the width, for kernels that move no bytes"""


@dataclass(frozen=True)
class Roofline:
    """Peak rates of a system, and rates of its kernels.

    Args:
        io_bytes_per_s: of the links off the wafer, each direction
        peak_flops: of the datapaths [FLOP/s]
        efficiency: share of it that PEs are taken to sustain
        loads: of kernels, and of the whole step
        heading: of the panel
    """

    io_bytes_per_s: float
    peak_flops: float
    efficiency: float
    loads: tuple[Load, ...]
    heading: str

    @property
    def ridge(self) -> float:
        """From where on links could not hold the datapaths up [FLOP/byte]."""
        return self.peak_flops / self.io_bytes_per_s


def roofline(picture: Roofline) -> Block:
    """Return the block."""

    def draw(block: Axes) -> None:
        unit, name = _unit(picture.peak_flops)
        left, right, edge = _limits_x(picture)
        slowest = min(load.flops_per_s for load in picture.loads)
        low = min(slowest, picture.peak_flops / 4) / (1.5 * max(1.0, picture.peak_flops / slowest) ** _ROOM)
        high = picture.peak_flops * (picture.peak_flops / low) ** _ABOVE
        levels = log_ticks(low, high)
        words = [digits_text(level / unit) for level in levels]
        axes = plot_axes(block, picture.heading, words, top_pt=_TOP_PT)
        axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
        _draw_roof(axes, picture, left, edge)
        taken = _say_peak(axes, picture, unit, name, edge) + _say_links(axes, picture, left, low)
        ticks = log_ticks(left, edge)
        wall: list[Box] = []
        if edge < right:
            axes.axvline(edge, color=FAINT, linewidth=0.6)
            wall = path_boxes(axes_points(axes, [(edge, low), (edge, high)]))
            place = math.sqrt(edge * right)
            ticks = [tick for tick in ticks if tick < edge / (right / left) ** 0.04]
            axes.set_xticks([*ticks, place], [*map(digits_text, ticks), "on-wafer only"])
        else:
            axes.set_xticks(ticks, [*map(digits_text, ticks)])
        axes.set_yticks(levels, words)
        axes.minorticks_off()
        axes.set_xlabel("useful FLOPs per byte over the wafer's edge, modelled [FLOP/B]", size=TEXT_PT)
        axes.set_ylabel(f"modelled {name}", size=TEXT_PT, labelpad=2)
        _draw_points(axes, picture.loads, math.sqrt(edge * right), taken, wall)

    return Block(PLOT_WIDTH_PT, PLOT_HEIGHT_PT, draw)


def _limits_x(picture: Roofline) -> tuple[float, float, float]:
    """Both ends of the axis, and the beginning of the part for ops that move no bytes."""
    found = [load.flops_per_byte for load in picture.loads if load.flops_per_byte is not None]
    left = min([picture.ridge / 4, *found]) / 2.5
    edge = max([picture.ridge, *found]) * 4
    has_strip = len(found) < len(picture.loads)
    return left, edge * (edge / left) ** (_STRIP / (1 - _STRIP)) if has_strip else edge, edge


def _draw_roof(axes: Axes, picture: Roofline, left: float, edge: float) -> None:
    sustained = picture.peak_flops * picture.efficiency
    knee = sustained / picture.io_bytes_per_s
    heights = [left * picture.io_bytes_per_s, picture.peak_flops, picture.peak_flops]
    axes.plot([left, picture.ridge, edge], heights, color=INK, linewidth=1.1)
    axes.plot([knee, edge], [sustained, sustained], color=INK, linewidth=0.8, linestyle=(0, (4, 2)))


def _say_peak(axes: Axes, picture: Roofline, unit: float, name: str, edge: float) -> list[Box]:
    """Write the names of the level lines, and return the boxes of words and lines."""
    peak, efficiency = picture.peak_flops, picture.efficiency
    text = f"peak {digits_text(peak / unit)} {name}"
    if efficiency < 1:
        text += f"; dashed: x {efficiency:g}, what PEs are taken to sustain"
    axes.annotate(
        text, (edge, peak), (-3, 3), textcoords="offset points", size=SMALL_PT, color=INK, ha="right", va="bottom"
    )
    ridge = picture.ridge
    *dashed, start, end = axes_points(
        axes, [(efficiency * ridge, efficiency * peak), (edge, efficiency * peak), (ridge, peak), (edge, peak)]
    )
    words = (end[0] - 3 - text_width(text, SMALL_PT), end[1] + 2, end[0], end[1] + 4 + SMALL_PT * LINE_HEIGHT)
    return [words, *path_boxes(dashed), *path_boxes([start, end])]


def _say_links(axes: Axes, picture: Roofline, left: float, low: float) -> list[Box]:
    """Write the name of the slope, along it, from where it comes into sight; return the boxes of words and slope."""
    io = picture.io_bytes_per_s
    first = max(left, low / io)
    start, end = axes_points(axes, [(first, first * io), (picture.ridge, picture.peak_flops)])
    angle = math.atan2(end[1] - start[1], end[0] - start[0])
    text = f"links: {bytes_text(io)}/s each way"

    def beside(along: float, above: float) -> Point:
        x, y = start[0] + along * math.cos(angle), start[1] + along * math.sin(angle)
        return x - above * math.sin(angle), y + above * math.cos(angle)

    # So far along that no letter is left of the axes.
    along, gap = (2 + (SMALL_PT * LINE_HEIGHT + 3) * math.sin(angle)) / math.cos(angle), 3.0
    turned: dict[str, Any] = {"rotation": math.degrees(angle), "rotation_mode": "anchor", "ha": "left", "va": "bottom"}
    axes.annotate(text, beside(along, gap), xycoords="axes points", size=SMALL_PT, color=INK, **turned)
    middle = gap + SMALL_PT / 2
    letters = path_boxes([beside(along, middle), beside(along + text_width(text, SMALL_PT), middle)])
    return [*path_boxes([start, end]), *((box[0] - 3, box[1] - 3, box[2] + 3, box[3] + 3) for box in letters)]


def _draw_points(axes: Axes, loads: Sequence[Load], no_bytes: float, taken: list[Box], wall: list[Box]) -> None:
    places = [(load.flops_per_byte or no_bytes, load.flops_per_s) for load in loads]
    for phase, (marker, size) in MARKERS.items():
        found = [place for load, place in zip(loads, places, strict=True) if load.phase == phase]
        if found:
            x, y = zip(*found, strict=True)
            color, label = PHASES.get(phase, VERMILION), PHASE_WORDS.get(phase, "the whole step")
            axes.scatter(x, y, size, color, marker=marker, label=label, edgecolor=INK, linewidth=0.5, zorder=4)
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "ncol": 4}
    axes.legend(fontsize=SMALL_PT, frameon=False, borderpad=0, handletextpad=0.2, columnspacing=1.2, **place)
    points = axes_points(axes, places)
    taken = [point_box(point, _HALF_MARKER_PT) for point in points] + taken
    placed: list[Placed] = []
    for most, farthest, reach in itertools.product(MOST_NAMES, FARTHEST_PT, TOGETHER_PT):
        labels = _labels(loads, points, reach, most)
        placed = fit_labels(axes, labels[:MOST_LABELS], taken, farthest_pt=farthest, crossable=wall)
        if len(placed) == len(labels):
            break
    write_labels(axes, placed)


def _labels(loads: Sequence[Load], points: Sequence[Point], reach_pt: float, most: int) -> list[tuple[Point, str]]:
    """Positions and texts of labels, the longest time first."""
    found: list[tuple[float, Point, str]] = []
    for phase in PHASES:
        numbers = [number for number, load in enumerate(loads) if load.phase == phase]
        for cluster in clusters([points[number] for number in numbers], reach_pt):
            members = [numbers[index] for index in cluster]
            seconds = sum(loads[number].times * loads[number].seconds for number in members)
            names = names_text([short_name(loads[number].name) for number in members], most)
            found.append((seconds, points[members[0]], f"{SHORT_WORDS[phase]}: {names}"))
    found.sort(key=lambda label: -label[0])
    return [(point, text) for _, point, text in found]


def names_text(names: Sequence[str], most: int = MOST_NAMES[0]) -> str:
    """Return names in a row, a layer said once for all of its kernels, and of very many the number of further ones.

    >>> names_text(["L* qkv", "L* out", "lm_head"]), names_text(["a", "b", "c", "d", "e", "f"])
    ('lm_head, L* qkv, out', 'a, b, c, d + 2 more')
    """
    unlike = sorted(dict.fromkeys(names), key=lambda name: name.partition(" ")[0] if " " in name else "")
    kept = unlike if len(unlike) <= most else unlike[: most - 1]
    said, before = [], ""
    for name in kept:
        layer, _, rest = name.partition(" ")
        said.append(rest if rest and layer == before else name)
        before = layer if rest else ""
    more = f" + {len(unlike) - len(kept):,} more" if len(kept) < len(unlike) else ""
    return ", ".join(said) + more


def _unit(flops_per_s: float) -> tuple[float, str]:
    for unit, name in ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s")):
        if flops_per_s >= unit:
            return unit, name
    return 1e6, "MFLOP/s"
