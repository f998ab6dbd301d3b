"""Writes a page as a picture in a file, the same bytes each time."""

import io
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

import matplotlib
import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.text import Text

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.drawing.lettering import FONT
from cstool.foundation.drawing.page import Page
from cstool.foundation.drawing.theme import make_dark
from cstool.foundation.plain_text import lines

DPI = 150
"""resolution of PNG files"""
STYLE = {"font.family": FONT, "svg.hashsalt": "cstool", "svg.fonttype": "none", "hatch.linewidth": 0.6}
"""style settings on top of matplotlib's own"""


def write_figure(draw: Callable[[], Page], path: Path, theme: str = "light") -> None:
    """Draw a figure in this project's style, and write it.

    Args:
        draw: makes the figure
        path: a file; its ending is .svg or .png
        theme: "light" or "dark"

    Raises:
        OSError: the file cannot be written
    """
    # Pictures look the same with any matplotlibrc of this machine.
    with matplotlib.style.context(["default", STYLE]):
        page = draw()
        if theme == "dark":
            make_dark(page)
        data = picture_bytes(page, path.suffix.lower())
    write_replacing(path, data)


def picture_bytes(page: Page, ending: str) -> bytes:
    """Return a page as a file, of the kind of its ending, with its title, without dates and versions."""
    for text in page.findobj(Text):  # names are shown, and no formula in them is read
        assert isinstance(text, Text)
        text.set_parse_math(False)
        text.set_text(lines(text.get_text()))
    buffer = io.BytesIO()
    if ending == ".png":
        FigureCanvasAgg(page)
        about = {"Title": page.title, "Description": page.description, "Software": None}
        page.savefig(buffer, format="png", dpi=DPI, metadata=about)
        return buffer.getvalue()
    FigureCanvasSVG(page)
    about = {"Title": page.title, "Description": page.description, "Date": None, "Creator": None}
    page.savefig(buffer, format="svg", metadata=about)
    return _told(buffer.getvalue().decode("utf-8"), page).encode("utf-8")


def _told(svg: str, page: Page) -> str:
    """Return an SVG file with its description, and with letters that have a font everywhere.

    Verdana's letters are as wide as DejaVu's.
    """
    title = f"<title>{escape(page.title)}</title>"
    svg = svg.replace(title, f"{title}\n <desc>{escape(page.description)}</desc>", 1)
    svg = svg.replace("<svg ", '<svg role="img" ', 1)
    return svg.replace(f"'{FONT}'", f"'{FONT}', Verdana, sans-serif")
