"""Throughput over systems, and speedup over sparsity, each beside the ideal."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from cstool.foundation.drawing.labels import path_boxes, point_box
from cstool.foundation.drawing.lettering import text_width
from cstool.foundation.drawing.page import SMALL_PT, TEXT_PT, Block
from cstool.foundation.drawing.palette import BLUE, FAINT, ORANGE, SKY
from cstool.foundation.drawing.plot import (
    PLOT_HEIGHT_PT,
    PLOT_WIDTH_PT,
    axes_points,
    draw_curves,
    fit_labels,
    log_ticks,
    plot_axes,
    write_labels,
)
from cstool.foundation.words import digits_text

_LABEL_FARTHEST_PT = 16.0
_MILLION = 1e6


@dataclass(frozen=True)
class ScalingPoint:
    """So many systems.

    Args:
        num_csx: systems
        per_s: throughput of all of them
        efficiency: throughput of a system, relative to a system of the first point
        range_per_s: throughput of 80% of results like it, the lowest and the highest; None where nothing is known
    """

    num_csx: int
    per_s: float
    efficiency: float
    range_per_s: tuple[float, float] | None = None


@dataclass(frozen=True)
class Scaling:
    """Throughput over systems.

    Args:
        points: by rising number of systems, one or more
        unit: of throughput
        heading: of the panel
    """

    points: tuple[ScalingPoint, ...]
    unit: str
    heading: str


@dataclass(frozen=True)
class SparsityPoint:
    """A share of zeros.

    Args:
        sparsity: of the linear layers
        speedup: of a step, relative to the first point
        products: of a step of the first point, over the remaining products
    """

    sparsity: float
    speedup: float
    products: float


def scaling(picture: Scaling) -> Block:
    """Return the block."""

    def draw(block: Axes) -> None:
        first, counts = picture.points[0], [point.num_csx for point in picture.points]
        is_large = max(point.per_s for point in picture.points) >= _MILLION
        unit, name = (_MILLION, f"million {picture.unit}") if is_large else (1.0, picture.unit)
        rates = [point.per_s / unit for point in picture.points]
        ideal = [rates[0] * count / first.num_csx for count in counts]
        ranges = [tuple(end / unit for end in point.range_per_s) for point in picture.points if point.range_per_s]
        ends = [end for both in ranges for end in both]
        low, high = min(*rates, *ends, rates[0]), max(*rates, *ideal, *ends)
        margin = 1.2 * (high / low) ** 0.06
        levels = log_ticks(low / margin, high * margin)
        words = list(map(digits_text, levels))
        axes = plot_axes(block, picture.heading, words)
        if len(ranges) == len(counts):
            lows, highs = zip(*ranges, strict=True)
            axes.fill_between(counts, lows, highs, color=SKY, alpha=0.25, linewidth=0, label="80% of results like it")
        axes.plot(counts, ideal, color=FAINT, linewidth=1.0, linestyle=(0, (4, 2)), label="ideal: in proportion")
        axes.plot(counts, rates, color=BLUE, marker="o", markersize=4, linewidth=1.3, label="modelled; % of ideal")
        sides = counts[0] / 1.25, counts[-1] * (counts[-1] / counts[0]) ** 0.09 * 1.25
        axes.set(xscale="log", yscale="log", xlim=sides, ylim=(low / margin, high * margin))
        shown = _apart(axes, counts)
        axes.set_xticks(shown, [f"{count:,}" for count in shown])
        axes.set_yticks(levels, words)
        axes.minorticks_off()
        axes.set_xlabel("systems (num_csx)", size=TEXT_PT)
        axes.set_ylabel(f"{name}, modelled", size=TEXT_PT, labelpad=2)
        axes.legend(fontsize=TEXT_PT, frameon=False, loc="upper left")
        here = axes_points(axes, list(zip(counts, rates, strict=True)))
        covered = path_boxes(here) + path_boxes(axes_points(axes, list(zip(counts, ideal, strict=True))))
        covered += [point_box(point, 2.5) for point in here]
        # The ends first: of very many points, not all can be labelled.
        order = sorted(range(len(counts)), key=lambda number: (0 < number < len(counts) - 1, -number))
        labels = [(here[number], f"{picture.points[number].efficiency:.1%}") for number in order]
        write_labels(axes, fit_labels(axes, labels, covered, farthest_pt=_LABEL_FARTHEST_PT))

    return Block(PLOT_WIDTH_PT, PLOT_HEIGHT_PT, draw)


def _apart(axes: Axes, counts: Sequence[int]) -> list[int]:
    """Counts that can stand below the axis beside each other, the last one for certain."""
    places = [x for x, _ in axes_points(axes, [(count, 1.0) for count in counts])]
    widths = [text_width(f"{count:,}", SMALL_PT) for count in counts]
    kept: list[int] = []
    for number in reversed(range(len(counts))):
        if not kept or places[kept[-1]] - places[number] > (widths[kept[-1]] + widths[number]) / 2 + 4:
            kept.append(number)
    return [counts[number] for number in reversed(kept)]


def sparsities(points: Sequence[SparsityPoint], heading: str) -> Block:
    """Return the block.

    Args:
        points: the one that the others are set beside, and then others
        heading: of the panel
    """

    def draw(block: Axes) -> None:
        axes = plot_axes(block, heading)
        first = points[0]
        ordered = sorted(points, key=lambda point: point.sparsity)
        densities = [1 - point.sparsity for point in ordered]
        ideal = [(1 - first.sparsity) / density for density in densities]
        products = [point.products for point in ordered]
        speedups = [point.speedup for point in ordered]
        base = "1" if not first.sparsity else f"{1 - first.sparsity:.3g}"
        curves = (
            (f"sparse products alone: {base} / (1 - sparsity)", ideal, FAINT, "", (0, (4, 2))),
            ("all products that are left", products, ORANGE, "v", (0, (1, 1.2))),
            ("modelled step", speedups, BLUE, "o", "solid"),
        )
        draw_curves(axes, densities, curves)
        axes.set_xlim(densities[0] * 1.15, densities[-1] / 1.15 / (densities[0] / densities[-1]) ** 0.06)
        every = [*ideal, *products, *speedups, 1.0]
        margin = 1.1 * (max(every) / min(every)) ** 0.04
        axes.set_ylim(min(every) / margin, max(every) * margin)
        axes.set_xticks(densities, [f"{point.sparsity:.4g}" for point in ordered])
        ticks = log_ticks(min(every) / margin, max(every) * margin)
        axes.set_yticks(ticks, [f"{tick:g}x" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("sparsity of the linear layers (share of zeros)", size=TEXT_PT)
        axes.set_ylabel(f"speedup over sparsity {first.sparsity:.4g}, modelled", size=TEXT_PT, labelpad=2)
        axes.legend(fontsize=TEXT_PT, frameon=False, loc="upper left")
        covered = [
            box
            for _, values, *_ in curves
            for place in [axes_points(axes, list(zip(densities, values, strict=True)))]
            for box in [*path_boxes(place), *(point_box(point, 2.5) for point in place)]
        ]
        here = axes_points(axes, list(zip(densities, speedups, strict=True)))
        labels = [(point, f"{speedup:.2f}x") for point, speedup in zip(here, speedups, strict=True)]
        write_labels(axes, fit_labels(axes, labels[::-1], covered, farthest_pt=_LABEL_FARTHEST_PT))

    return Block(PLOT_WIDTH_PT, PLOT_HEIGHT_PT, draw)
