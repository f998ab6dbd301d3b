"""Letters that fit: size and direction of a text in a rectangle."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from cstool.foundation.plain_text import one_line

FONT = "DejaVu Sans"
"""font that comes with matplotlib, so that pictures are the same everywhere"""
LINE_HEIGHT = 1.22
"""distance from line to line, in sizes of the type"""
SMALLEST_PT = 5.0
"""smallest type that can be read in print"""
_MEASURED_PT = 100.0


@dataclass(frozen=True)
class Lettering:
    """A text set so that it fits.

    Args:
        text: with line breaks
        size_pt: size of the type
        rotation: 0 or 90 [degrees]
    """

    text: str
    size_pt: float
    rotation: int


@cache
def text_width(text: str, size_pt: float = 1.0) -> float:
    """Return the width of a line of text, as it is shown [points]."""
    font = FontProperties(family=FONT, size=_MEASURED_PT)
    width, _, _ = text_to_path.get_text_width_height_descent(one_line(text), font, ismath=False)
    return float(width) / _MEASURED_PT * size_pt


def fit_text(
    text: str, width_pt: float, height_pt: float, largest_pt: float, smallest_pt: float = SMALLEST_PT
) -> Lettering | None:
    """Return the text in the largest type that fits a rectangle: in one line or broken at a space, level or upright.

    Level wins unless upright type is larger by half.

    Args:
        text: in words
        width_pt: width of the rectangle, without margins
        height_pt: height of the rectangle, without margins
        largest_pt: type size that is large enough
        smallest_pt: type size below which text is illegible

    Returns:
        None if it does not fit
    """
    words = text.split()
    ways = ["\n".join((" ".join(words[:cut]), " ".join(words[cut:]))) for cut in range(1, len(words))]
    best: Lettering | None = None
    for rotation, (along, across) in ((0, (width_pt, height_pt)), (90, (height_pt, width_pt))):
        for way in (text, *ways):
            size = min(largest_pt, *_limits(way.split("\n"), along, across))
            if size >= smallest_pt and (best is None or size > best.size_pt * (1.5 if rotation > best.rotation else 1)):
                best = Lettering(way, size, rotation)
    return best


def _limits(lines: Sequence[str], along_pt: float, across_pt: float) -> tuple[float, float]:
    return along_pt / max(map(text_width, lines)), across_pt / (LINE_HEIGHT * len(lines))


def wrap_text(text: str, width_pt: float, size_pt: float) -> str:
    """Break a text into lines no wider than `width_pt`, at spaces."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size_pt) <= width_pt:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)
