"""Progress in a notebook: one output that is written anew, and the curve of the losses."""

from __future__ import annotations

import io
import re
import sys
import types
from typing import Any

import pytest
from rich.console import Console

from cstool.foundation.progress.bars import BarProgress, FittingBars
from cstool.foundation.progress.notebook import HEIGHT, MARGIN, WIDTH, NotebookProgress, loss_curve
from cstool.foundation.progress.screen import is_notebook, screen_of
from cstool.foundation.words import bytes_text


class Cell:
    """Stands for IPython: remembers what the one output of a cell showed."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> Cell:
        assert (raw, display_id, self.shown) == (True, True, [])
        return self.update(bundle, raw=raw)

    def update(self, bundle: dict[str, str], *, raw: bool) -> Cell:
        self.shown.append(bundle)
        return self


@pytest.fixture
def cell(monkeypatch) -> Cell:
    found = Cell()
    shell = types.SimpleNamespace(kernel=object())
    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = found.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return found


def points(html: str) -> list[tuple[float, float]]:
    [written] = re.findall(r'<polyline points="([^"]*)"', html)
    return [(float(x), float(y)) for x, y in (point.split(",") for point in written.split())]


def test_a_task_is_a_bar_with_its_words(cell):
    with NotebookProgress() as progress:
        progress.start("Evaluating <val>", 10)
        assert cell.shown[-1]["text/plain"] == "Evaluating <val> 0/10"
        assert 'value="0" max="10"' in cell.shown[-1]["text/html"]
        assert "Evaluating &lt;val&gt; 0/10</div>" in cell.shown[-1]["text/html"]
        progress.finish("Evaluating <val>")
    assert cell.shown[-1] == {"text/plain": "", "text/html": ""}


def test_the_curve_stays_when_training_is_over(cell):
    with NotebookProgress() as progress:
        progress.start("Training", 2)
        progress.advance("Training", 1, "loss 3.000", loss=3.0)
        progress.advance("Training", 2, "loss 2.000", loss=2.0)
        progress.finish("Training")
    last = cell.shown[-1]
    assert last["text/plain"] == "Training 2/2, loss 2.000"
    assert points(last["text/html"]) == [(MARGIN, MARGIN), (WIDTH - MARGIN, HEIGHT - MARGIN)]
    assert "<progress" not in last["text/html"]


def test_steps_that_follow_quickly_are_drawn_together(cell, monkeypatch):
    now = 0.0
    monkeypatch.setattr("cstool.foundation.progress.notebook.time.monotonic", lambda: now)
    with NotebookProgress() as progress:
        progress.start("Training", 100)
        for step in range(1, 101):
            now = 0.01 * step
            progress.advance("Training", step, loss=1.0)
    # At the start, every quarter of a second, and at the end.
    assert len(cell.shown) == 6


def test_an_error_leaves_no_bar_behind(cell):
    def fail() -> None:
        with NotebookProgress() as progress:
            progress.start("Training", 2)
            raise ValueError("why")

    with pytest.raises(ValueError, match=r"^why$"):
        fail()
    assert "<progress" not in cell.shown[-1]["text/html"]


def test_a_curve_has_means_of_neighbours_and_room_for_a_loss_that_never_changes():
    drawn = points(loss_curve([float(step % 2) for step in range(2 * WIDTH)]))
    assert (len(drawn), len({y for _, y in drawn})) == (WIDTH, 1)
    assert points(loss_curve([2.0, 2.0])) == [(MARGIN, HEIGHT - MARGIN), (WIDTH - MARGIN, HEIGHT - MARGIN)]
    assert len(points(loss_curve([2.0, float("nan"), float("inf"), 1.0]))) == 2
    assert loss_curve([float("nan"), float("nan")]) == ""


def test_the_picture_of_three_steps():
    assert loss_curve([2.5, 2.0, 1.25]) == (
        '<svg width="480" height="120" role="img" aria-label="loss of 3 steps">'
        '<polyline points="14.0,14.0 240.0,50.8 466.0,106.0" fill="none" stroke="#1f77b4" stroke-width="1.5"/>'
        '<text x="466" y="10" font-size="11" fill="currentColor" text-anchor="end">highest loss 2.500</text>'
        '<text x="14" y="118" font-size="11" fill="currentColor">lowest loss 1.250</text>'
        '<text x="466" y="118" font-size="11" fill="currentColor" text-anchor="end">3 steps</text></svg>'
    )


def test_a_notebook_is_known_by_its_kernel(cell, monkeypatch):
    assert is_notebook()
    with screen_of("auto")() as screen:
        assert isinstance(screen.progress, NotebookProgress)
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)
    assert not is_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not is_notebook()


# Bars on a terminal.


def line_of(width: int, amount=str, total: int | None = 600) -> str:
    """Return the line of a task on a terminal of some width, without what is blank at its end."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    bars = FittingBars(console, amount)
    bars.add_task("Training", total=total, completed=120, detail="loss 2.123, 12,345 tokens/s")
    with console.capture() as captured:
        console.print(bars.make_tasks_table(bars.tasks))
    return captured.get().rstrip("\n").rstrip()


def test_the_count_is_always_there_and_the_last_four_columns_are_free():
    for width in range(12, 121):
        line = line_of(width)
        assert "120/600" in line
        assert len(line) <= width - 4


@pytest.mark.parametrize(
    ("width", "shown"),
    [(80, "Training ━ --:-- loss"), (60, "Training --:-- loss"), (40, "Training --:--"), (20, "")],
)
def test_in_a_short_line_the_bar_goes_first_and_then_the_detail(width, shown):
    line = line_of(width)
    assert [word for word in ("Training", "━", "--:--", "loss") if word in line] == shown.split()


def test_an_unknown_total_is_a_question_mark_and_amounts_may_be_bytes():
    assert "120/?" in line_of(80, total=None)
    assert "120 B/2.1 MB" in line_of(80, bytes_text, total=2**21)


def test_bars_are_there_while_tasks_run():
    progress = BarProgress(Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None), str)

    def shown() -> list[tuple[str, float | None, float, str]]:
        assert progress._bars is not None
        return [(task.description, task.total, task.completed, task.fields["detail"]) for task in progress._bars.tasks]

    progress.advance("Training", 1)
    progress.finish("Training")
    assert progress._bars is None
    progress.start("Training", 10)
    progress.start("Evaluating", None)
    progress.advance("Training", 4, "loss 2.0")
    assert shown() == [("Training", 10, 4, "loss 2.0"), ("Evaluating", None, 0, "")]
    progress.start("Training", 20)
    assert shown() == [("Evaluating", None, 0, ""), ("Training", 20, 0, "")]
    progress.finish("Evaluating")
    progress.finish("Evaluating")
    assert shown() == [("Training", 20, 0, "")]
    progress.finish("Training")
    assert progress._bars is None
    progress.start("Training", 5)
    progress.close()
    assert (progress._bars, progress._ids) == (None, {})
