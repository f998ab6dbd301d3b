"""Numbers in words."""

from __future__ import annotations

import pytest

from cstool.run.report.wording import counted, format_rate, format_seconds


@pytest.mark.parametrize(
    ("rate", "text"),
    [(1234.567, "1234.57"), (1.0, "1.00"), (0.98765, "0.988"), (0.0123456, "0.0123"), (0.0, "0")],
)
def test_a_rate_has_two_decimals_or_three_digits_below_one(rate: float, text: str) -> None:
    assert format_rate(rate) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00:00"), (59.6, "0:01:00"), (3661.0, "1:01:01"), (360_000.0, "100:00:00")]
)
def test_a_time_is_written_in_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 waves"), (1, "1 wave"), (2, "2 waves"), (12345, "12,345 waves")])
def test_a_count_comes_with_its_noun(count: int, text: str) -> None:
    assert counted(count, "wave") == text
