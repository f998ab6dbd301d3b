"""Ranges of estimates: wide where little is known, of the size of errors where more is, never from themselves."""

import math
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.estimation.bands import (
    FILE,
    PRIOR,
    QUANTILE,
    SHARE,
    Band,
    Case,
    Known,
    band_for,
    band_from,
    band_of,
    known_errors,
    student_quantile,
    without,
)
from cstool.estimation.errors_file import errors_text
from cstool.estimation.published import compare, known_of
from tests.examples import examples
from tests.unit.estimation.requests import estimator, gpt

STREAMED = "weight_streaming"
CASES = st.builds(
    Case,
    st.sampled_from(["training", "inference", "one PE"]),
    st.sampled_from(["", STREAMED, "pipelined"]),
    st.booleans(),
    st.sampled_from([0.0, 1e8, 7e9, 1e12]),
    st.sampled_from(["cs2", "cs3"]),
)
ERRORS = st.floats(-2, 2).map(lambda error: round(error, 6))
RESULTS = st.lists(st.tuples(CASES, ERRORS), min_size=1, max_size=30).map(
    lambda found: [Known(f"r{number}", case, error) for number, (case, error) in enumerate(found)]
)


def width(band: Band) -> float:
    """Half of the range, as a logarithm."""
    return math.log(band.high)


def slow_width(case: Case, known: list[Known]) -> float:
    """The same, class by class: the spread of a class is that of its own results and of `PRIOR` like those around."""
    levels = [lambda other: True, lambda other: other.kind == case.kind]
    if case.mode:
        levels += [
            lambda other: levels[1](other) and (other.mode, other.is_sparse) == (case.mode, case.is_sparse),
            lambda other: levels[2](other) and size_of(other) == size_of(case),
            lambda other: levels[3](other) and other.system == case.system,
        ]
    squares: list[float] = [each.error**2 for each in known]
    freedom, variance = len(squares), sum(squares) / len(squares)
    for is_in in levels[1:]:
        squares = [each.error**2 for each in known if is_in(each.case)] + PRIOR * [variance]
        freedom, variance = len(squares), sum(squares) / len(squares)
    return student_quantile(freedom) * math.sqrt(variance)


def size_of(case: Case) -> int:
    return (case.parameters >= 1e9) + (case.parameters >= 2e10)


@given(CASES, RESULTS)
def test_the_range_is_that_of_the_slow_twin(case, known):
    assert width(band_from(case, known)) == pytest.approx(slow_width(case, known), abs=1e-12)


@given(CASES, RESULTS)
def test_it_is_as_far_up_as_down_and_names_a_class_with_results(case, known):
    band = band_from(case, known)
    assert band.low * band.high == pytest.approx(1)
    assert 1 <= band.count <= len(known)
    assert band.of


@given(RESULTS)
def test_where_no_result_is_alike_it_is_wider_than_that_of_all(known):
    others = band_from(Case("games"), known)
    of_all = math.sqrt(sum(each.error**2 for each in known) / len(known))
    assert width(others) == pytest.approx(student_quantile(PRIOR) * of_all)
    assert student_quantile(PRIOR) > QUANTILE


@given(st.integers(1, 3))
def test_a_few_results_that_hit_do_not_make_it_narrow(count):
    """Four more like those around are held to have been seen."""
    around = [Known(f"a{number}", Case("training", STREAMED, False, 1e8, "cs2"), 0.3) for number in range(20)]
    hits = [Known(f"b{number}", Case("training", "pipelined", False, 1e8, "cs2"), 0.0) for number in range(count)]
    band = band_from(Case("training", "pipelined", False, 1e8, "cs2"), around + hits)
    assert width(band) > 0.3 * math.sqrt(PRIOR / (PRIOR + count)) ** 3


def test_it_holds_about_as_many_as_it_says():
    """Of results drawn with another spread in each class, each in the range of the others."""
    draw = random.Random(1)
    spreads = {"cs2": 0.1, "cs3": 0.3}
    held = total = 0
    for _ in range(60):
        known = [
            Known(f"{system}{number}", Case("training", STREAMED, False, 7e9, system), draw.gauss(0, spread))
            for system, spread in spreads.items()
            for number in range(8)
        ]
        held += sum(band_from(each.case, without(known, each.name)).holds(each.error) for each in known)
        total += len(known)
    assert SHARE - 0.05 < held / total < SHARE + 0.1


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(4, 1.533), (5, 1.476), (6, 1.440), (8, 1.397), (10, 1.372), (20, 1.325), (60, 1.296)]
)
def test_quantiles_are_those_of_the_tables(freedom, quantile):
    assert student_quantile(freedom) == pytest.approx(quantile, abs=2e-3)


@given(st.floats(0.1, 1), st.floats(1, 10), st.floats(1e-3, 1e6))
def test_ranges_of_times_and_of_rates_are_the_same(low, high, seconds):
    band = Band(low, high, 4, "toys")
    slowest, fastest = band.of_rate(1 / seconds)
    assert band.of_time(seconds) == pytest.approx((1 / fastest, 1 / slowest))


def test_the_file_is_what_validation_gives():
    assert FILE.read_text(encoding="utf-8") == errors_text(known_of(compare().predictions)), (
        "python -m cstool.estimation.errors_file writes it anew"
    )
    assert {each.name: each.case for each in known_errors()} == {
        each.name: each.case for each in known_of(compare().predictions)
    }


def test_an_estimate_has_the_range_of_results_like_it_and_validates_nothing():
    found = estimator(gpt()).at(1)
    artifact = found.artifact
    case = Case("training", artifact.mode, False, artifact.graph.parameter_count, artifact.system.name)
    assert found.band == band_for(found) == band_of(case)
    code = "import cstool.estimation, sys; sys.exit('cstool.estimation.published' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@examples(20)
@given(st.sampled_from([each.name for each in known_errors()]))
def test_a_result_is_no_part_of_its_own_range(name):
    (mine,) = (each for each in known_errors() if each.name == name)
    (found,) = (each for each in compare().predictions if each.result.name == name)
    others = [each for each in known_of(compare().predictions) if each.name != name]
    assert found.band == band_from(mine.case, others)
