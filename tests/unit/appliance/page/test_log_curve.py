"""The loss curve of a log: every line once, the last value of a step, peaks that stay."""

import contextlib
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.appliance.page.log_curve import LogCurve, Progress, thinned
from tests.examples import examples
from tests.shown_jobs import step_lines

TRAIN = "| Train Device=CSX, Step={}, Loss={}, Rate=76.24 samples/sec, GlobalRate=70.72 samples/sec"
LEFT = TRAIN + ", LoopTimeRemaining=0:06:42, TimeRemaining>{}, InputWait=0.1%"


def read(curve: LogCurve, folder: Path) -> None:
    with contextlib.ExitStack() as stack:
        paths = folder / "out", folder / "out.1"
        curve.update(*(stack.enter_context(open(path, "rb")) if path.exists() else None for path in paths))


def curve_of(folder: Path, text: str | bytes) -> LogCurve:
    (folder / "out").write_bytes(text if isinstance(text, bytes) else text.encode())
    curve = LogCurve()
    read(curve, folder)
    return curve


def test_steps_and_progress(tmp_path):
    curve = curve_of(tmp_path, "INFO:   Beginning appliance run\n" + step_lines(1, 20))
    assert [step for step, _ in curve.points()] == list(range(1, 21))
    assert curve.progress == Progress(20, curve.losses[20], 76.24, 1980.0)


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (LEFT.format(7, "2.5", "0:06:42"), Progress(7, 2.5, 76.24, 402.0)),
        (LEFT.format(7, "2.5", "100:00:01"), Progress(7, 2.5, 76.24, 360_001.0)),
        (TRAIN.format(7, "2.5"), Progress(7, 2.5, 76.24, None)),
        ("| Train Device=CSX, Step=7, Loss=2.50000", Progress(7, 2.5, None, None)),
        ("2024-03-14 03:20:31,277 INFO:   " + TRAIN.format(7, "1e-3"), Progress(7, 0.001, 76.24, None)),
        ("| Eval Device=CSX, GlobalStep=7, Batch=1, Loss=2.5", None),
        (TRAIN.format(7, "none"), None),
        (TRAIN.format("seven", "2.5"), None),
        ("x" * 100_000, None),
    ],
)
def test_line(tmp_path, line, progress):
    assert curve_of(tmp_path, line + "\n").progress == progress


def test_last_value_of_a_step_counts_and_nan_is_a_point(tmp_path):
    steps = ((1, 5), (2, 4), (3, 9), (2, 3), (3, 2), (4, "nan"))
    curve = curve_of(tmp_path, "".join(TRAIN.format(*each) + "\n" for each in steps))
    assert curve.points()[:3] == [(1, 5.0), (2, 3.0), (3, 2.0)]
    assert math.isnan(curve.losses[4])


def test_log_that_was_cut(tmp_path):
    curve = curve_of(tmp_path, step_lines(1, 10))
    (tmp_path / "out.1").write_text(step_lines(1, 12))
    (tmp_path / "out").write_text(step_lines(13, 14))
    read(curve, tmp_path)
    assert [step for step, _ in curve.points()] == list(range(1, 15))
    anew = LogCurve()
    read(anew, tmp_path)
    assert anew.losses == curve.losses
    none = LogCurve()
    read(none, tmp_path / "none")
    assert (none.points(), none.progress) == ([], None)


@examples(40)
@given(st.lists(st.integers(0, 4000), max_size=8))
def test_what_was_added_is_read_once(tmp_path_factory, cuts):
    """However the log grows, in the middle of a line too, it is read as if it had been there whole."""
    folder = tmp_path_factory.mktemp("log")
    content = f"{step_lines(1, 12)}no step\n{step_lines(9, 16)}".encode()
    content += b"\xff\xfe\n| Train Device=CSX, Step=99, Lo"
    whole = curve_of(folder, content).losses
    curve = LogCurve()
    for cut in sorted(cuts):
        with open(folder / "out", "r+b") as file:
            file.truncate(0)
            file.write(content[:cut])
        read(curve, folder)
    (folder / "out").write_bytes(content)
    read(curve, folder)
    assert curve.losses == whole
    assert 99 not in whole


def test_long_line_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("cstool.appliance.page.log_curve._CHUNK", 64)
    curve = curve_of(tmp_path, "x" * 20_000 + "\n" + step_lines(1, 3) + "y" * 9_000)
    assert sorted(curve.losses) == [1, 2, 3]
    with open(tmp_path / "out", "a") as file:
        file.write("\n" + step_lines(4, 5))
    read(curve, tmp_path)
    assert sorted(curve.losses) == [1, 2, 3, 4, 5]


@examples(60)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(4, 60))
def test_peaks_stay(losses, most):
    points = list(enumerate(losses))
    kept = thinned(points, most)
    assert len(kept) <= max(most, 4)
    assert kept == sorted(set(kept))
    assert set(kept) <= set(points)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert {min(losses), max(losses)} <= {loss for _, loss in kept}


def test_no_number_stays():
    points = [(step, math.nan if step == 777 else 1.0) for step in range(5000)]
    kept = thinned(points)
    assert len(kept) <= 500
    assert 777 in dict(kept)


def test_points_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("cstool.appliance.page.log_curve._MOST_KEPT", 100)
    curve = curve_of(tmp_path, step_lines(1, 300))
    assert len(curve.losses) <= 100
    assert {1, 300} <= set(curve.losses)
