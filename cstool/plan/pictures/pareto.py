"""The front of a search: days against systems, power, price; plans that no other plan beats, and the limits."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from cstool.foundation.drawing.labels import Box, path_boxes, point_box
from cstool.foundation.drawing.page import TEXT_PT, Block, Page, compose
from cstool.foundation.drawing.palette import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION
from cstool.foundation.drawing.plot import (
    PLOT_HEIGHT_PT,
    PLOT_WIDTH_PT,
    axes_points,
    fit_labels,
    log_ticks,
    plot_axes,
    write_labels,
)
from cstool.foundation.words import digits_text

STYLES = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (PURPLE, "D"), (SKY, "v"))
"""colour and marker of each series, one after the other"""
_FARTHEST_PT = 26.0
_MARGIN = 1.25


@dataclass(frozen=True)
class FrontPoint:
    """A plan.

    Args:
        amount: on the horizontal axis
        days: that it takes
        range_days: of 80% of results like it, the lowest and the highest
        label: short
        is_answer: of the search
    """

    amount: float
    days: float
    range_days: tuple[float, float]
    label: str
    is_answer: bool = False


@dataclass(frozen=True)
class FrontSeries:
    """Plans with one share of zeros.

    Args:
        label: which share; empty where there is only one
        points: plans that no other of them beats, by rising amounts
        beaten: all others
    """

    label: str
    points: tuple[FrontPoint, ...]
    beaten: tuple[FrontPoint, ...] = ()


@dataclass(frozen=True)
class FrontPanel:
    """Days against an amount.

    Args:
        heading: of the panel
        axis: name of the amount, with its unit
        series: one or more
        most: of the amount that is allowed; None for no limit
        most_days: that are allowed; None for no limit
    """

    heading: str
    axis: str
    series: tuple[FrontSeries, ...]
    most: float | None = None
    most_days: float | None = None


@dataclass(frozen=True)
class FrontPicture:
    """Contents of the picture.

    Args:
        title, subtitle: of the picture
        panels: one or more
    """

    title: str
    subtitle: str
    panels: tuple[FrontPanel, ...]


def front_figure(picture: FrontPicture) -> Page:
    """Return the figure."""
    blocks = [front_panel(panel) for panel in picture.panels]
    pairs = [blocks[first : first + 2] for first in range(0, len(blocks), 2)]
    return compose(picture.title, picture.subtitle, [[[block] for block in pair] for pair in pairs])


def front_panel(panel: FrontPanel) -> Block:
    """Return the block."""

    def draw(block: Axes) -> None:
        every = [point for series in panel.series for point in (*series.points, *series.beaten)]
        low, high = _ends([end for point in every for end in (*point.range_days, point.days)], panel.most_days)
        left, right = _ends([point.amount for point in every], panel.most)
        levels = log_ticks(low, high)
        words = list(map(digits_text, levels))
        axes = plot_axes(block, panel.heading, words)
        axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
        ticks = log_ticks(left, right)
        axes.set_xticks(ticks, list(map(digits_text, ticks)))
        axes.set_yticks(levels, words)
        axes.minorticks_off()
        axes.set_xlabel(f"{panel.axis}, modelled", size=TEXT_PT)
        axes.set_ylabel("days, modelled", size=TEXT_PT, labelpad=2)
        _draw_limits(axes, panel)
        for number, series in enumerate(panel.series):
            _draw_series(axes, series, *STYLES[number % len(STYLES)], has_band=len(panel.series) == 1)
        answer = next((point for point in every if point.is_answer), None)
        if answer is not None:
            place = [answer.amount], [answer.days]
            axes.scatter(*place, 120, VERMILION, marker="*", edgecolor=INK, linewidth=0.5, zorder=5, label="answer")
        # Above lines of limits.
        legend = axes.legend(fontsize=TEXT_PT, loc="upper right", framealpha=1.0, facecolor="white", edgecolor="white")
        legend.set_zorder(6)
        limits = [] if panel.most is None else [(panel.most, low), (panel.most, high)]
        taken = path_boxes(axes_points(axes, limits)) if limits else []
        if panel.most_days is not None:
            taken += path_boxes(axes_points(axes, [(left, panel.most_days), (right, panel.most_days)]))
        _write_points(axes, panel.series, answer, taken)

    return Block(PLOT_WIDTH_PT, PLOT_HEIGHT_PT, draw)


def _ends(values: Sequence[float], limit: float | None) -> tuple[float, float]:
    """Both ends of a logarithmic axis, the limit within."""
    every = [*values, *([] if limit is None else [limit])]
    low, high = min(every), max(every)
    margin = _MARGIN * (high / low) ** 0.04
    return low / margin, high * margin


def _draw_limits(axes: Axes, panel: FrontPanel) -> None:
    """Draw the limits: allowed plans are left of a line, below a line."""
    label = "limits"
    for most, draw in ((panel.most, axes.axvline), (panel.most_days, axes.axhline)):
        if most is not None:
            draw(most, color=VERMILION, linewidth=0.9, linestyle=(0, (5, 2)), label=label, zorder=1)
            label = ""


def _draw_series(axes: Axes, series: FrontSeries, color: str, marker: str, *, has_band: bool) -> None:
    x = [point.amount for point in series.points]
    y = [point.days for point in series.points]
    if has_band:
        lows, highs = zip(*(point.range_days for point in series.points), strict=True)
        axes.fill_between(x, lows, highs, color=SKY, alpha=0.25, linewidth=0, label="80% of results like it")
    label = f"sparsity {series.label}" if series.label else "the front"
    axes.plot(x, y, color=color, marker=marker, markersize=4, linewidth=1.2, label=label, zorder=3)
    if series.beaten:
        bx, by = [point.amount for point in series.beaten], [point.days for point in series.beaten]
        said = "beaten" if has_band else ""
        axes.plot(
            bx, by, color=color, marker=marker, markersize=4, linestyle="", markerfacecolor="none", label=said, zorder=2
        )


def _write_points(axes: Axes, series: Sequence[FrontSeries], answer: FrontPoint | None, taken: Sequence[Box]) -> None:
    """Write the labels of the points beside them, the answer first, then the ends."""
    covered = list(taken)
    points: list[FrontPoint] = []
    for each in series:
        places = axes_points(axes, [(point.amount, point.days) for point in each.points])
        covered += path_boxes(places) + [point_box(place, 2.5) for place in places]
        order = sorted(range(len(each.points)), key=lambda k: (0 < k < len(places) - 1, -k))  # noqa: B023
        points += [each.points[k] for k in order]
    if answer is not None:
        points.sort(key=lambda point: not point.is_answer)
    places = axes_points(axes, [(point.amount, point.days) for point in points]) if points else []
    labels = [(place, point.label) for place, point in zip(places, points, strict=True)]
    write_labels(axes, fit_labels(axes, labels, covered, farthest_pt=_FARTHEST_PT))
