"""The picture of the front: what it says, and that nothing is cut off or over anything else."""

import time
from itertools import combinations
from pathlib import Path

import matplotlib.style
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation, Text

from cstool.pictures.draw import STYLE
from cstool.pictures.pareto import FrontPanel, FrontPicture, FrontPoint, FrontSeries, draw_front, front_figure


def series(label: str, factor: float, answer: int = 0) -> FrontSeries:
    """Twice the systems, a little more than half the days; one plan is beaten."""
    counts = (1, 2, 4, 8, 16, 32)
    points = tuple(
        FrontPoint(n, days := factor * 900 / n**0.9, (0.7 * days, 1.4 * days), f"{n}", n == answer) for n in counts
    )
    beaten = (FrontPoint(24, factor * 90, (factor * 80, factor * 110), "24"),)
    return FrontSeries(label, points, beaten)


def picture(*each: FrontSeries, most: float | None = 20.0, most_days: float | None = 80.0) -> FrontPicture:
    panel = FrontPanel("Days against systems (modelled)", "systems", each, most, most_days)
    return FrontPicture(
        "a model (modelled)", "16 systems are the fewest. Everything is modelled.", (panel, panel, panel)
    )


PICTURES = {
    "one": picture(series("", 1.0, 16)),
    "three": picture(series("0", 1.0), series("0.5", 0.6), series("0.75", 0.3, 8)),
    "no limit of days": picture(series("", 1.0, 16), most_days=None),
    "one plan": picture(FrontSeries("", (FrontPoint(1, 5.0, (4.0, 6.0), "1", True),)), most=None),
}


def drawn(shown: FrontPicture):
    with matplotlib.style.context(["default", STYLE]):
        figure = front_figure(shown)
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
        return figure, [(text, text.get_window_extent(renderer)) for text in texts]


@pytest.mark.parametrize("name", PICTURES)
def test_labels_are_over_nothing(name):
    figure, boxes = drawn(PICTURES[name])
    labels = [(text, box) for text, box in boxes if isinstance(text, Annotation)]
    assert len(labels) >= 3
    over = [
        (a.get_text(), b.get_text()) for (a, first), (b, second) in combinations(labels, 2) if first.overlaps(second)
    ]
    assert over == []
    for _, box in labels:
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def test_what_is_said():
    _, boxes = drawn(PICTURES["three"])
    said = {text.get_text() for text, _ in boxes}
    assert {"limits", "answer", "sparsity 0", "sparsity 0.5", "sparsity 0.75", "systems, modelled"} <= said
    said = {text.get_text() for text, _ in drawn(PICTURES["one"])[1]}
    assert {"the front", "beaten", "80% of results like it"} <= said


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_same_bytes_each_time(tmp_path: Path, theme: str):
    contents = []
    for name in ("a.svg", "b.svg"):
        draw_front(PICTURES["three"], tmp_path / name, theme)
        contents.append((tmp_path / name).read_bytes())
        time.sleep(0.01)
    assert contents[0] == contents[1]
