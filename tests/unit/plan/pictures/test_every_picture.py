"""Every picture: nothing cut off, no words over others, the same bytes each time, all of it written or nothing."""

import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import matplotlib.style
import pytest
from matplotlib.text import Annotation

from cstool.csl.pictures.heat import heat_page
from cstool.csl.pictures.routes import routes_page
from cstool.foundation.drawing.figure import STYLE, write_figure
from cstool.plan.pictures.draw import draw_artifact
from cstool.plan.pictures.estimate import estimate_figure
from cstool.plan.pictures.pareto import front_figure
from cstool.training.compare.drawing import draw_comparison
from cstool.training.compare.verdict import Comparison
from tests.unit.csl.pictures.fabrics import stats, switched
from tests.unit.plan.compiler.programs import ROOT
from tests.unit.plan.pictures.artifacts import pipelined
from tests.unit.plan.pictures.drawn import FIGURES, FRONTS, drawn, said
from tests.unit.plan.pictures.estimates import PICTURES
from tests.unit.training.compare.verdicts import comparison, verdict

LOSSES = [5.0 - math.log1p(step) + 0.1 * math.sin(step) for step in range(120)]


def compared(density: float, *speedups: float, **quality: Any) -> Comparison:
    """A sparse run: speedup of its matrices, by their kernels alone, of a step, and of that by Amdahl's law."""
    matrices, alone, step, ideal = speedups or (2.0,) * 4
    cost: Any = SimpleNamespace(
        matrices=SimpleNamespace(speedup=matrices, kernels_alone=alone), step=SimpleNamespace(speedup=step, ideal=ideal)
    )
    losses = {"sparse_losses": [loss + 0.2 for loss in LOSSES], "dense_losses": LOSSES}
    return comparison(density=density, cost=cost, quality=replace(comparison().quality, **losses | quality))


SWEEP = tuple(compared(d, 0.8 / d**0.5, 0.9 / d**0.5, 1 + (1 - d) / 2, 2 - d) for d in (0.5, 0.25, 0.1, 0.01))
COMPARISON = verdict(comparison=SWEEP[2], sweep=SWEEP)
DRAW = {
    "artifact": lambda path, **how: write_figure(lambda: draw_artifact(pipelined(3), "work"), path, **how),
    "comparison": lambda path, **how: draw_comparison(COMPARISON, path, **how),
    "estimate": lambda path, **how: write_figure(lambda: estimate_figure(PICTURES["a step alone"]), path, **how),
    "front": lambda path, **how: write_figure(lambda: front_figure(FRONTS["three"]), path, **how),
    "heat": lambda path, **how: write_figure(lambda: heat_page(stats(2, 2), "out"), path, **how),
    "routes": lambda path, **how: write_figure(lambda: routes_page(switched(), "out", [9]), path, **how),
}
AIR = {"estimate": (1.0, 3.0), "fabric": (1.5, 1.5)}
"""pixels by which boxes may overlap: letters of the largest line height leave some above and below"""
LONG = {"64 x 64", "16 x 16", "heat of 64 x 64", "heat of 300 x 200", "100 regions", "every number of systems"}
LONG |= {"fast", "no limit of days"}
CASES = [
    pytest.param(kind, name, marks=[pytest.mark.lab] if name in LONG else [], id=f"{kind}, {name}")
    for kind, figures in FIGURES.items()
    for name in figures
]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_nothing_is_cut_off_and_no_words_are_over_others(kind, name):
    figure, boxes = drawn(kind, name)
    width, height = figure.bbox.width, figure.bbox.height
    outside = [t.get_text() for t, b in boxes if b.x0 < 0 or b.y0 < 0 or b.x1 > width or b.y1 > height]
    assert outside == []
    if kind == "front":
        boxes = [(text, box) for text, box in boxes if isinstance(text, Annotation)]
    elif kind == "estimate":
        boxes = [(text, box) for text, box in boxes if text.get_rotation() == 0]
    assert len(boxes) >= {"estimate": 30, "artifact": 11}.get(kind, 3)
    across, down = AIR.get(kind, (0.0, 0.0))
    over = [
        (one.get_text(), other.get_text())
        for (one, a), (other, b) in combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > across and min(a.y1, b.y1) - max(a.y0, b.y0) > down
    ]
    assert kind == "artifact" or over == []


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        *((kind, "svg") for kind in DRAW),
        *(pytest.param(kind, "png", marks=[pytest.mark.lab] * (kind != "artifact")) for kind in DRAW),
    ],
)
def test_it_is_the_same_each_time_whatever_the_style_of_the_machine_and_can_be_dark(tmp_path, kind, ending):
    one, other, night = (tmp_path / f"{name}.{ending}" for name in ("one", "other", "night"))
    DRAW[kind](one)
    with matplotlib.style.context("ggplot"):
        DRAW[kind](other)
    assert one.read_bytes() == other.read_bytes()
    if ending == "png":
        data = one.read_bytes()
        at = data.index(b"pHYs") + 4
        assert int.from_bytes(data[at : at + 4]) == round(150 / 0.0254)  # dots per metre
        return
    text = one.read_text(encoding="utf-8")
    assert not re.search(r"<dc:date>|matplotlib.org/\"", text)
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    if kind in ("artifact", "routes"):
        DRAW[kind](night, theme="dark")
        dark = night.read_text(encoding="utf-8")
        assert ("#1a1a1a" in text, "#1a1a1a" in dark) == (True, False)
        assert text.count("<text") == dark.count("<text")


@pytest.mark.parametrize("kind", ["comparison", "heat"])
def test_nothing_is_written_by_halves(tmp_path, kind):
    with pytest.raises(OSError, match="none"):
        DRAW[kind](tmp_path / "none" / "a.png")
    assert list(tmp_path.iterdir()) == []
    assert "font.family" in STYLE


@pytest.mark.takes("a process of Python with another seed of hashes")
def test_svg_is_the_same_in_every_process(tmp_path, monkeypatch):
    script = (
        "import sys; from pathlib import Path; from cstool.foundation.drawing.figure import write_figure\n"
        "from cstool.plan.pictures import draw, estimate; folder = Path(sys.argv[1])\n"
        "from tests.unit.plan.pictures import artifacts, estimates\n"
        "write_figure(lambda: draw.draw_artifact(artifacts.pipelined(3), 'work'), folder / 'artifact.svg')\n"
        "write_figure(lambda: estimate.estimate_figure(estimates.PICTURES['a step alone']), folder / 'estimate.svg')"
    )
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    subprocess.run([sys.executable, "-c", script, tmp_path], cwd=ROOT, check=True)
    for kind in ("artifact", "estimate"):
        DRAW[kind](tmp_path / "here.svg")
        assert (tmp_path / "here.svg").read_bytes() == (tmp_path / f"{kind}.svg").read_bytes()


def test_every_number_of_a_comparison_moves_it_and_one_step_is_a_picture(tmp_path):
    faster = (*SWEEP[:3], compared(0.01, 9.0, 12.0, 1.6, 2.1))
    losses = ({}, {"dense_loss": 2.3}, {"sparse_losses": LOSSES}, {"dense_losses": LOSSES[:50]})
    changes = [{"comparison": compared(0.1, **change)} for change in losses]
    one = {"comparison": compared(0.1, sparse_losses=[4.0], dense_losses=[4.0]), "sweep": ()}
    seen = set()
    for change in (*changes, {"sweep": faster}, {"sweep": SWEEP[:1]}, one):
        draw_comparison(replace(COMPARISON, **change), tmp_path / "a.svg")
        seen.add((tmp_path / "a.svg").read_bytes())
    assert len(seen) == 7


def test_what_a_front_says():
    words = {"limits", "answer", "sparsity 0", "sparsity 0.5", "sparsity 0.75", "systems, modelled"}
    assert words <= set(said("front", "three"))
    assert {"the front", "beaten", "80% of results like it"} <= set(said("front", "one"))
