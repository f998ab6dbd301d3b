"""The page of a picture: blocks in rows and columns, measured in points, none of them cut off."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cstool.foundation.drawing.lettering import LINE_HEIGHT, text_width, wrap_text
from cstool.foundation.drawing.palette import FAINT, INK
from cstool.foundation.plain_text import one_line

POINTS_PER_INCH = 72.0
MARGIN_PT = 26.0
GAP_PT = 22.0
TITLE_PT, SUBTITLE_PT, HEADING_PT, TEXT_PT, SMALL_PT = 13.0, 8.5, 8.5, 7.5, 6.5
NARROWEST_PT = 520.0
T = TypeVar("T")


@dataclass(frozen=True)
class Block:
    """A part of a picture.

    Args:
        width_pt: its width
        height_pt: its height
        draw: called with axes of that size, in points from the upper left corner, y down
    """

    width_pt: float
    height_pt: float
    draw: Callable[[Axes], None]


Column = Sequence[Block]
Row = Sequence[Column]


class Page(Figure):
    """A figure with a title and a description, for blind readers, too.

    Args:
        title: of the picture
        description: the text below it
    """

    def __init__(self, title: str, description: str, **of_figure: Any) -> None:
        super().__init__(**of_figure)
        self.title, self.description = one_line(title), one_line(description)


def compose(title: str, subtitle: str, rows: Sequence[Row]) -> Page:
    """Return a figure with a title and rows of columns of blocks, of the size of these."""
    widths = [sum(map(_column_width, row)) + GAP_PT * (len(row) - 1) for row in rows]
    width = max(NARROWEST_PT, *widths)
    heading = Block(width, *_heading(title, subtitle, width))
    heights = [
        max(sum(block.height_pt for block in column) + GAP_PT * (len(column) - 1) for column in row) for row in rows
    ]
    height = heading.height_pt + sum(heights) + GAP_PT * len(rows)
    page_width, page_height = width + 2 * MARGIN_PT, height + 2 * MARGIN_PT
    size = page_width / POINTS_PER_INCH, page_height / POINTS_PER_INCH
    figure = Page(title, subtitle, figsize=size, facecolor="white")

    def place(block: Block, left: float, top: float) -> None:
        corner = left / page_width, 1 - (top + block.height_pt) / page_height
        axes = figure.add_axes((*corner, block.width_pt / page_width, block.height_pt / page_height))
        axes.set_axis_off()
        axes.set(xlim=(0, block.width_pt), ylim=(block.height_pt, 0))
        block.draw(axes)

    place(heading, MARGIN_PT, MARGIN_PT)
    top = MARGIN_PT + heading.height_pt + GAP_PT
    for row, row_height in zip(rows, heights, strict=True):
        left = MARGIN_PT
        for column in row:
            below = top
            for block in column:
                place(block, left, below)
                below += block.height_pt + GAP_PT
            left += _column_width(column) + GAP_PT
        top += row_height + GAP_PT
    return figure


def _column_width(column: Column) -> float:
    return max(block.width_pt for block in column)


def _heading(title: str, subtitle: str, width: float) -> tuple[float, Callable[[Axes], None]]:
    texts = [
        (wrap_text(title, width / 1.1, TITLE_PT), TITLE_PT, INK),  # bold letters are wider
        (wrap_text(subtitle, width, SUBTITLE_PT), SUBTITLE_PT, FAINT),
    ]
    heights = [text_height(text, size) + 4 for text, size, _ in texts]

    def draw(axes: Axes) -> None:
        top = 0.0
        for (text, size, color), height in zip(texts, heights, strict=True):
            weight = "bold" if size == TITLE_PT else "normal"
            axes.text(0, top, text, size=size, color=color, va="top", weight=weight, linespacing=LINE_HEIGHT)
            top += height

    return sum(heights), draw


def keep_largest(items: Sequence[T], most: int, size: Callable[[T], int], join: Callable[[list[T]], T]) -> list[T]:
    """Return at most `most` items in their order; the smallest ones are joined into the last."""
    if len(items) <= most:
        return list(items)
    kept = set(sorted(range(len(items)), key=lambda number: -size(items[number]))[: most - 1])
    rest = [item for number, item in enumerate(items) if number not in kept]
    return [*(item for number, item in enumerate(items) if number in kept), join(rest)]


def text_height(text: str, size_pt: float) -> float:
    """Return the height of a text, line breaks counted [points]."""
    return (text.count("\n") + 1) * size_pt * LINE_HEIGHT


def listing(items: Sequence[str], width_pt: float, heading: str) -> Block:
    """Return a block with a heading and short texts in as many columns as there is room for."""
    column = max(text_width(item, SMALL_PT) for item in items) + 14
    columns = max(1, int(width_pt // column))
    rows = -(-len(items) // columns)
    line = SMALL_PT * LINE_HEIGHT * 1.1

    def draw(axes: Axes) -> None:
        axes.text(0, 0, heading, size=HEADING_PT, color=INK, va="top")
        for number, item in enumerate(items):
            x, y = (number // rows) * column, 16 + (number % rows) * line
            axes.text(x, y, item, size=SMALL_PT, color=INK, va="top")

    return Block(width_pt, 16 + rows * line, draw)
