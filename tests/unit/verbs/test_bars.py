"""Progress bars fit the terminal."""

import io

import pytest
from rich.console import Console

from cstool.verbs.bars import FittingBars
from cstool.words import bytes_text


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
