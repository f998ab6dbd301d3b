"""Pictures drawn once for all tests, and what can be read on them and where."""

from collections.abc import Callable
from functools import cache

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from cstool.csl.pictures.heat import heat_page
from cstool.csl.pictures.routes import routes_page
from cstool.foundation.drawing.figure import STYLE
from cstool.plan.pictures.draw import draw_streaming
from cstool.plan.pictures.estimate import estimate_figure
from cstool.plan.pictures.floorplan import draw_floorplan
from cstool.plan.pictures.pareto import FrontPanel, FrontPicture, FrontPoint, FrontSeries, front_figure
from tests.unit.csl.fabric.waits import config, fabric
from tests.unit.csl.pictures.fabrics import many, single, stats, switched
from tests.unit.plan.pictures.artifacts import pipelined, streaming
from tests.unit.plan.pictures.estimates import PICTURES

ALL_PORTS = {(x, y): config("RWENS>RWENS", "WENS>RWENS", "R>E", "RWENS>N") for x in range(3) for y in range(3)}
LONG = "a rather long name of a directory with a compiled program"


def series(label: str, factor: float, answer: int = 0) -> FrontSeries:
    """Twice the systems, a little more than half the days; one plan is beaten."""
    points = tuple(
        FrontPoint(n, days := factor * 900 / n**0.9, (0.7 * days, 1.4 * days), f"{n}", n == answer)
        for n in (1, 2, 4, 8, 16, 32)
    )
    beaten = (FrontPoint(24, factor * 90, (factor * 80, factor * 110), "24"),)
    return FrontSeries(label, points, beaten)


def front(*each: FrontSeries, most: float | None = 20.0, most_days: float | None = 80.0) -> FrontPicture:
    panel = FrontPanel("Days against systems (modelled)", "systems", each, most, most_days)
    return FrontPicture("a model (modelled)", "16 systems are the fewest. Everything is modelled.", (panel,) * 3)


FRONTS = {
    "one": front(series("", 1.0, 16)),
    "three": front(series("0", 1.0), series("0.5", 0.6), series("0.75", 0.3, 8)),
    "no limit of days": front(series("", 1.0, 16), most_days=None),
    "one plan": front(FrontSeries("", (FrontPoint(1, 5.0, (4.0, 6.0), "1", True),)), most=None),
}
FABRICS: dict[str, Callable[[], Figure]] = {
    "one PE": lambda: routes_page(single(), "out"),
    "switches": lambda: routes_page(switched(), "out"),
    "all ports": lambda: routes_page(fabric(3, 3, {3: ALL_PORTS}), "out"),
    "a color": lambda: routes_page(switched(), "out", [9]),
    "9 x 5": lambda: routes_page(many(9, 5), "out"),
    "16 x 16": lambda: routes_page(many(16, 16), LONG),
    "64 x 64": lambda: routes_page(many(64, 64), "out"),
    "750 x 1": lambda: routes_page(many(750, 1), "out"),
    "1 x 99": lambda: routes_page(many(1, 99), "out"),
    "heat of one PE": lambda: heat_page(stats(1, 1), "gemv"),
    "heat of 4 x 3": lambda: heat_page(stats(4, 3), "gemv"),
    "heat of 64 x 64": lambda: heat_page(stats(64, 64), "out"),
    "heat of 300 x 200": lambda: heat_page(stats(300, 200, 20_000), "out"),
    "heat of 1 x 40": lambda: heat_page(stats(1, 40), "out"),
    "heat of 400 x 1": lambda: heat_page(stats(400, 1, 20_000), "out"),
}
ARTIFACTS: dict[str, Callable[[], Figure]] = {
    "3 regions, 4 replicas": lambda: draw_floorplan(pipelined(3, (2, 2)), "work"),
    "100 regions": lambda: draw_floorplan(pipelined(100), "work"),
    "streaming": lambda: draw_streaming(streaming()),
    "1,000 layers": lambda: draw_streaming(streaming(1000, width=100_000, tokens_per_pe=3, groups=1)),
}
FIGURES = {
    "estimate": {name: lambda shown=shown: estimate_figure(shown) for name, shown in PICTURES.items()},
    "front": {name: lambda shown=shown: front_figure(shown) for name, shown in FRONTS.items()},
    "fabric": FABRICS,
    "artifact": ARTIFACTS,
}


def draw(figure: Callable[[], Figure]) -> tuple[Figure, list[tuple[Text, Bbox]]]:
    """Return a figure, drawn, and all texts that can be seen with their boxes."""
    with matplotlib.style.context(["default", STYLE]):
        found = figure()
        renderer = FigureCanvasAgg(found).get_renderer()
        found.draw(renderer)
        texts = [text for text in found.findobj(Text) if text.get_text().strip() and text.get_visible()]
        # Ticks beyond the limits are there, but not drawn.
        hidden = {
            id(label)
            for axes in found.findobj(Axes)
            for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim())))
            for tick in axis.get_major_ticks() + axis.get_minor_ticks()
            for label in (tick.label1, tick.label2)
            if not axes.axison or not low <= tick.get_loc() <= high
        }
        return found, [(text, text.get_window_extent(renderer)) for text in texts if id(text) not in hidden]


@cache
def drawn(kind: str, name: str) -> tuple[Figure, list[tuple[Text, Bbox]]]:
    return draw(FIGURES[kind][name])


def said(kind: str, name: str) -> list[str]:
    return [text.get_text() for text, _ in drawn(kind, name)[1]]
