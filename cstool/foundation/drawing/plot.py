"""Axes of plots: below a heading within a block, with ticks at round numbers."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from cstool.foundation.drawing.labels import Box, Label, Placed, Point, place_labels
from cstool.foundation.drawing.lettering import LINE_HEIGHT, text_width
from cstool.foundation.drawing.page import HEADING_PT, POINTS_PER_INCH, SMALL_PT
from cstool.foundation.drawing.palette import FAINT, INK

PLOT_WIDTH_PT, PLOT_HEIGHT_PT = 380.0, 270.0
LEFT_PT, TOP_PT, BOTTOM_PT, RIGHT_PT = 34.0, 20.0, 34.0, 6.0
_BESIDE_LEVELS_PT = 20.0
Curve = tuple[str, Sequence[float], str, str, Any]
FEW_DECADES = 2.0
"""most decades of an axis with ticks at 2 and 5, too"""


def plot_axes(block: Axes, heading: str, levels: Sequence[str] = (), *, top_pt: float = TOP_PT) -> Axes:
    """Return axes for a plot, below a heading, within a block of the size of a plot.

    Args:
        block: a block of that size
        heading: above the axes
        levels: labels of the vertical axis, if they are wide; there is room for them and for the name of the axis
        top_pt: distance of the axes from the top
    """
    left_pt = max([LEFT_PT, *(_BESIDE_LEVELS_PT + text_width(level, SMALL_PT) for level in levels)])
    block.text(0, 0, heading, size=HEADING_PT, color=INK, va="top")
    left, bottom = block.transData.transform((left_pt, PLOT_HEIGHT_PT - BOTTOM_PT))
    right, top = block.transData.transform((PLOT_WIDTH_PT - RIGHT_PT, top_pt))
    figure = block.get_figure(root=True)
    assert figure is not None
    box = Bbox.from_extents(left, bottom, right, top).transformed(figure.transFigure.inverted())
    axes = figure.add_axes(box.bounds)
    for side in ("right", "top"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=SMALL_PT, length=2.5, width=0.6)
    axes.grid(color="#e4e4e4", linewidth=0.5)
    axes.set_axisbelow(True)
    return axes


def draw_curves(axes: Axes, densities: Sequence[float], curves: Iterable[Curve]) -> None:
    """Draw speedups over densities, both on logarithmic scales, above and below a line for none.

    Args:
        axes: of the plot
        densities: shares of non-zeros
        curves: label, values, color, marker, dashes
    """
    for label, values, color, marker, dashes in curves:
        style = {"color": color, "marker": marker, "markersize": 4, "linewidth": 1.3, "linestyle": dashes}
        axes.plot(densities, values, label=label, **style)
    axes.axhline(1, color=INK, linewidth=0.6)
    axes.set(xscale="log", yscale="log")


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers within limits for an axis with a logarithmic scale, ends included.

    >>> log_ticks(0.9, 25), log_ticks(1, 1e5)
    ([1.0, 2.0, 5.0, 10.0, 20.0], [1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0])
    """
    decades = math.log10(high / low)
    digits = (1, 2, 5) if decades <= FEW_DECADES else (1,)
    every = max(1, round(decades / 8))
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{digit}e{power}") for power in powers if power % every == 0 for digit in digits]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def _points_per_pixel(axes: Axes) -> float:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return POINTS_PER_INCH / figure.dpi


def axes_points(axes: Axes, places: Sequence[Point]) -> list[Point]:
    """Positions of data, from the lower left corner of axes whose limits are set [points]."""
    scale = _points_per_pixel(axes)
    pixels = axes.transData.transform(places) - (axes.bbox.x0, axes.bbox.y0)
    return [(float(x) * scale, float(y) * scale) for x, y in pixels]


def fit_labels(
    axes: Axes,
    labels: Sequence[tuple[Point, str]],
    taken: Sequence[Box],
    *,
    farthest_pt: float = 90.0,
    crossable: Sequence[Box] = (),
) -> list[Placed]:
    """Positions of labels beside their points; labels without room are left out.

    Args:
        axes: axes with their limits set
        labels: points, from the lower left corner of the axes, and texts; the earlier ones choose first
        taken: boxes that no label may cover, and no line cross
        farthest_pt: largest distance of a label from its point
        crossable: boxes that no label may cover, but lines cross
    """
    scale = _points_per_pixel(axes)
    area = (2.0, 2.0, axes.bbox.width * scale - 2, axes.bbox.height * scale - 2)
    wanted = [Label(point, text, text_width(text, SMALL_PT)) for point, text in labels]
    pitch = SMALL_PT * LINE_HEIGHT
    return place_labels(wanted, taken, area, pitch, farthest_pt=farthest_pt, crossable=crossable)


def write_labels(axes: Axes, labels: Sequence[Placed]) -> None:
    """Write labels, with thin lines to distant ones."""
    for placed in labels:
        if placed.line_end is not None:
            line = {"arrowstyle": "-", "color": FAINT, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 0}
            ends = placed.label.point, placed.line_end
            axes.annotate("", *ends, xycoords="axes points", textcoords="axes points", arrowprops=line)
        shift, side = (1, "left") if placed.is_right else (-1, "right")
        style: dict[str, Any] = {"size": SMALL_PT, "color": INK, "ha": side, "va": "center_baseline"}
        axes.annotate(placed.label.text, (placed.x + shift, placed.y), xycoords="axes points", **style)
