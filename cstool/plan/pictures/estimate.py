"""The picture of an estimate: scaling, bounds of kernels, busy shares of resources in a step, time of a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from cstool.foundation.drawing.lettering import text_width
from cstool.foundation.drawing.page import GAP_PT, HEADING_PT, SMALL_PT, TEXT_PT, Block, Page, compose
from cstool.foundation.drawing.page import Row as PageRow
from cstool.foundation.drawing.palette import BLUE, INK, SKY
from cstool.foundation.drawing.plot import PLOT_HEIGHT_PT, PLOT_WIDTH_PT
from cstool.foundation.words import seconds_text
from cstool.plan.pictures.roofline import Roofline, roofline
from cstool.plan.pictures.scaling import Scaling, SparsityPoint, scaling, sparsities
from cstool.plan.pictures.step import Breakdown, bars, draw_bar, draw_samples, share_axis

WIDTH_PT = 2 * PLOT_WIDTH_PT + GAP_PT
_ABOVE_PT, _BELOW_PT = 40.0, 34.0
_COLORS = (SKY, BLUE)


@dataclass(frozen=True)
class Busy:
    """Busy shares of the resources in a step.

    Args:
        label: which estimate it is
        step_s: that the step takes [s]
        work_s: resource -> its work [s]
    """

    label: str
    step_s: float
    work_s: Mapping[str, float]


@dataclass(frozen=True)
class EstimatePicture:
    """Contents of the picture.

    Args:
        title, subtitle: of the picture
        roofline: of a system
        busy: of one estimate, or of two side by side
        breakdown: of a system's time
        scaling: over systems; None for one number of systems
        sparsities: the one that others are set beside, and these; empty for none
        sparsities_heading: of their panel
    """

    title: str
    subtitle: str
    roofline: Roofline
    busy: tuple[Busy, ...]
    breakdown: Breakdown
    scaling: Scaling | None = None
    sparsities: tuple[SparsityPoint, ...] = ()
    sparsities_heading: str = ""


def estimate_figure(picture: EstimatePicture) -> Page:
    """Return the figure."""
    plots = [roofline(picture.roofline)]
    if picture.sparsities:
        plots.insert(0, sparsities(picture.sparsities, picture.sparsities_heading))
    if picture.scaling is not None:
        plots.insert(0, scaling(picture.scaling))
    is_beside = len(plots) % 2 == 1
    plots.append(busy(picture.busy, PLOT_WIDTH_PT if is_beside else WIDTH_PT))
    pairs = [plots[first : first + 2] for first in range(0, len(plots), 2)]
    rows: list[PageRow] = [[[block] for block in pair] for pair in pairs]
    rows.append([[bars(picture.breakdown, WIDTH_PT)]])
    return compose(picture.title, picture.subtitle, rows)


def busy(estimates: Sequence[Busy], width_pt: float) -> Block:
    """Return the block: a bar for each resource of each estimate.

    Args:
        estimates: one or two, with the same resources
        width_pt: of the block
    """
    names = list(estimates[0].work_s)
    left = max(text_width(name, TEXT_PT) for name in names) + 10
    words = [[_words(each, name) for name in names] for each in estimates]
    right = max(text_width(text, SMALL_PT) for texts in words for text in texts) + 10
    is_plot = width_pt <= PLOT_WIDTH_PT
    pitch = (PLOT_HEIGHT_PT - _ABOVE_PT - _BELOW_PT) / len(names) if is_plot else 10.0 * len(estimates) + 5
    thick = min(10.5, (pitch - 4) / len(estimates))
    height = pitch * len(names)
    longest_pt = width_pt - left - right

    def draw(block: Axes) -> None:
        heading = "Who works how much of a step (modelled)"
        block.text(0, 0, heading, size=HEADING_PT, color=INK, va="top")
        labels = [f"{each.label}: a step takes {seconds_text(each.step_s)}" for each in estimates]
        draw_samples(block, [(text, color, "") for text, color in zip(labels, _COLORS, strict=False)], 22.0)
        largest = max(1.0, *(work / each.step_s for each in estimates for work in each.work_s.values()))
        for number, name in enumerate(names):
            middle = _ABOVE_PT + (number + 0.5) * pitch
            block.text(left - 6, middle, name, size=TEXT_PT, color=INK, ha="right", va="center_baseline")
            top = middle - thick * len(estimates) / 2
            for each, texts, color in zip(estimates, words, _COLORS, strict=False):
                length = longest_pt * each.work_s[name] / each.step_s / largest
                draw_bar(block, (left, top), length, color, thick=thick)
                place = left + length + 4, top + thick / 2
                block.text(*place, texts[number], size=SMALL_PT, color=INK, va="center_baseline")
                top += thick
        axis = share_axis(block, (left, _ABOVE_PT + height), longest_pt, largest)
        axis.set_xlabel("share of the step in which it works, modelled [%]", size=TEXT_PT, labelpad=2)

    return Block(width_pt, _ABOVE_PT + height + _BELOW_PT, draw)


def _words(each: Busy, name: str) -> str:
    work = each.work_s[name]
    return f"{work / each.step_s:.1%}  {seconds_text(work)}" if work else "0%"
