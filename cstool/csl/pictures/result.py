"""The result of a program on the fabric: a field as an image, or numbers as lines."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from cstool.foundation.drawing.page import HEADING_PT, SMALL_PT, Block, Page, compose
from cstool.foundation.drawing.palette import BLUE, INK

WIDTH_PT = 470.0
"""width of the panel"""
LEFT_PT, TOP_PT, BOTTOM_PT, BAR_PT = 34.0, 18.0, 18.0, 58.0
"""room for numbers and the heading; for the scale of an image"""
COLORS = "inferno"
"""of amounts of one sign: its lightness rises throughout"""
SIGNED = "RdBu_r"
"""of amounts of both signs: white is zero"""


def result_page(values: NDArray[Any], title: str, said: str, of: str, *, upward: bool = False) -> Page:
    """Return the picture of a result.

    Args:
        values: [rows, columns], or [n]
        title: heading of the page
        said: text below it
        of: what is drawn
        upward: whether the first row is at the bottom; it is at the top otherwise
    """
    height = WIDTH_PT * 0.4 if values.ndim == 1 else min(WIDTH_PT, (WIDTH_PT - BAR_PT) * _aspect(values))

    def draw(block: Axes) -> None:
        block.text(LEFT_PT, 0, of, size=HEADING_PT, color=INK, va="top")
        width = WIDTH_PT if values.ndim == 1 else min(WIDTH_PT - BAR_PT, height / _aspect(values))
        axes = block.inset_axes((LEFT_PT, TOP_PT, width, height), transform=block.transData)
        axes.tick_params(labelsize=SMALL_PT, length=2.0, width=0.6)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if values.ndim == 1:
            axes.plot(np.arange(values.size), values, color=BLUE, linewidth=1.0)
            return
        low, high = float(values.min()), float(values.max())
        is_signed = low < 0
        if is_signed:
            low, high = min(low, -high), max(high, -low)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        colors = SIGNED if is_signed else COLORS
        image = axes.imshow(values, cmap=colors, vmin=low, vmax=high, interpolation="nearest", aspect="auto")
        if upward:
            axes.invert_yaxis()
        assert block.figure is not None
        bar = block.inset_axes((LEFT_PT + width + 10, TOP_PT, 9, height), transform=block.transData)
        block.figure.colorbar(image, cax=bar)
        bar.tick_params(labelsize=SMALL_PT, length=2.0, width=0.6)

    return compose(title, said, [[[Block(LEFT_PT + WIDTH_PT, TOP_PT + height + BOTTOM_PT, draw)]]])


def _aspect(values: NDArray[Any]) -> float:
    """Rows for one column, not so many or few that nothing is seen."""
    return float(np.clip(values.shape[0] / values.shape[1], 0.2, 1.0))
