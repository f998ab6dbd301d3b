"""Routes as they run over the fabric: kinds told apart by colour, by dashes, by width and by their heads."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Polygon

from cstool.foundation.drawing.palette import ROUTES
from cstool.model.ir import PipelinedPlan

HEAD_PT = 5.0
"""length of an arrow's head"""

Path = Sequence[tuple[float, float]]


def draw_routes(axes: Axes, points_per_pe: float, plan: PipelinedPlan) -> None:
    """Draw all routes, each where the first of its lanes runs, with a head where it ends."""
    for route in plan.routes:
        path = [(x + 0.5, y + 0.5) for x, y in route.path]
        draw_line(axes, route.kind, path)
        draw_head(axes, route.kind, path, points_per_pe)


def draw_line(axes: Axes, kind: str, path: Path) -> None:
    """Draw the line of a kind of route, light at its sides so that it shows on any ground."""
    style = ROUTES[kind]
    x, y = zip(*path, strict=True)
    axes.plot(x, y, color="#ffffffb0", linewidth=style.width + 1.2, zorder=3)
    axes.plot(x, y, color=style.color, linestyle=style.dashes, linewidth=style.width, zorder=4)


def draw_head(axes: Axes, kind: str, path: Path, points_per_unit: float) -> None:
    """Draw the head of an arrow at the end of a path: full for forward flows, hollow for backward flows."""
    style = ROUTES[kind]
    x, y = path[-1]
    before = next((corner for corner in reversed(path) if corner != path[-1]), (x - 1, y))
    toward = math.atan2(y - before[1], x - before[0])
    length = HEAD_PT / points_per_unit
    half = 0.42 * length
    cos, sin = math.cos(toward), math.sin(toward)
    back = (x - length * cos, y - length * sin)
    corners = [(x, y), (back[0] - half * sin, back[1] + half * cos), (back[0] + half * sin, back[1] - half * cos)]
    face = "white" if kind == "delta" else style.color
    axes.add_patch(Polygon(corners, facecolor=face, edgecolor=style.color, linewidth=0.7, zorder=5))
