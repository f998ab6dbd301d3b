"""What a training loop says before it begins, in the vendor's words."""

import pytest

from cstool.run.report.summary import fit_summary
from tests.unit.run.sessions import params_of


@pytest.mark.parametrize(
    ("init", "start", "last", "interval", "lines"),
    [
        (
            {"checkpoint": {"steps": 200}, "logging": {"log_steps": 50}},
            *(0, 200, None),
            [
                "* 1 loop of 200 steps",
                "for a total of 200 train steps.",
                "Checkpoints will be taken every 200 steps, for a total of 1 checkpoint.",
                "Progress will be logged every 50 steps.",
            ],
        ),
        (
            {"checkpoint": {"steps": 3}},
            *(4, 8, 2),
            [
                "* 1 loop of 4 steps",
                "for a total of 4 train steps.",
                "Validation will run every 2 steps, and after the last step.",
                "Checkpoints will be taken every 3 steps, and on the last step, for a total of 2 checkpoints.",
                "Progress will be logged every step.",
            ],
        ),
        (
            {"checkpoint": {"steps": 1}},
            *(7, 8, 8),
            [
                "* 1 loop of 1 step",
                "for a total of 1 train step.",
                "Checkpoints will be taken every step, for a total of 1 checkpoint.",
                "Progress will be logged every step.",
            ],
        ),
    ],
)
def test_it_says_how_long_and_how_often(tmp_path, init, start, last, interval, lines):
    rule = "=" * 75
    head = [rule, "Trainer Fit Summary", "-" * 75, "Trainer will run 1 train loop.", "Train steps per train loop:"]
    assert fit_summary(params_of(tmp_path, **init), start, last, interval) == [*head, *lines, rule]
