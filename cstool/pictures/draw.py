"""From an artifact to a picture in a file, the same bytes each time."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import matplotlib
import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from cstool.atomic_file import write_replacing
from cstool.ir import Artifact, ExecutionMode
from cstool.pictures.floorplan import draw_floorplan
from cstool.pictures.lettering import FONT
from cstool.pictures.streaming import draw_streaming

DPI = 150
"""of PNG files"""
STYLE = {"font.family": FONT, "svg.hashsalt": "cstool", "svg.fonttype": "path", "hatch.linewidth": 0.6}
"""on top of matplotlib's own"""


def draw_picture(artifact: Artifact, path: Path, color_by: str = "work") -> None:
    """Write the picture of an artifact.

    Args:
        artifact: of either mode
        path: a file; its ending is .svg or .png
        color_by: "work" or "sram": what the colours of regions say

    Raises:
        OSError: the file cannot be written
    """
    write_figure(lambda: _figure(artifact, color_by), path)


def write_figure(draw: Callable[[], Figure], path: Path) -> None:
    """Draw a figure in this project's style, and write it.

    Args:
        draw: makes the figure
        path: a file; its ending is .svg or .png

    Raises:
        OSError: the file cannot be written
    """
    # Whatever a matplotlibrc of this machine says, pictures look the same.
    with matplotlib.style.context(["default", STYLE]):
        data = picture_bytes(draw(), path.suffix.lower())
    write_replacing(path, data)


def _figure(artifact: Artifact, color_by: str) -> Figure:
    if artifact.mode is ExecutionMode.PIPELINED:
        return draw_floorplan(artifact, color_by)
    return draw_streaming(artifact)


def picture_bytes(figure: Figure, ending: str) -> bytes:
    """Return a figure as a file of the kind that its ending says, without dates and versions."""
    buffer = io.BytesIO()
    if ending == ".png":
        FigureCanvasAgg(figure)
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    else:
        FigureCanvasSVG(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
