"""The picture of a sparse run beside a dense one."""

import math

import matplotlib.style
import pytest

from cstool.pictures.comparison import ComparisonPicture, SweepPoint, draw_comparison
from cstool.pictures.draw import STYLE

LOSSES = [5.0 - math.log1p(step) + 0.1 * math.sin(step) for step in range(120)]
SWEEP = tuple(SweepPoint(d, 0.8 / d**0.5, 0.9 / d**0.5, 1 + (1 - d) / 2, 2 - d, 3.0) for d in (0.5, 0.25, 0.1, 0.01))


def picture(**changes):
    given = {
        "title": "a title",
        "subtitle": "a subtitle",
        "unit": "nats per token",
        "sparsity": "0.9",
        "sparse_losses": [loss + 0.2 for loss in LOSSES],
        "dense_losses": LOSSES,
        "sparse_held_out": 1.4,
        "dense_held_out": 1.2,
        "sweep": SWEEP,
    }
    return ComparisonPicture(**{**given, **changes})


@pytest.mark.parametrize("ending", ["svg", "png"])
@pytest.mark.parametrize("sweep", [(), SWEEP[:1], SWEEP])
def test_it_is_the_same_each_time_whatever_the_style_of_the_machine(tmp_path, ending, sweep):
    one, other = (tmp_path / f"{name}.{ending}" for name in "ab")
    draw_comparison(picture(sweep=sweep), one)
    with matplotlib.style.context("ggplot"):
        draw_comparison(picture(sweep=sweep), other)
    assert one.read_bytes() == other.read_bytes()


def test_every_number_moves_it(tmp_path):
    path = tmp_path / "a.svg"
    seen = set()
    faster = (*SWEEP[:3], SweepPoint(0.01, 9.0, 12.0, 1.6, 2.1, 3.0))
    changes = ({}, {"dense_held_out": 1.3}, {"sparse_losses": LOSSES}, {"dense_losses": LOSSES[:50]}, {"sweep": faster})
    for change in changes:
        draw_comparison(picture(**change), path)
        seen.add(path.read_bytes())
    assert len(seen) == len(changes)


def test_one_step_is_a_picture(tmp_path):
    draw_comparison(picture(sparse_losses=[4.0], dense_losses=[4.0], sweep=()), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_nothing_is_written_by_halves(tmp_path):
    with pytest.raises(OSError, match="none"):
        draw_comparison(picture(), tmp_path / "none" / "a.png")
    assert "font.family" in STYLE
