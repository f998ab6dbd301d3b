"""Fitted numbers are what their results give, and are named in the files that they stand in."""

from dataclasses import replace

import pytest

from cstool.errors import EstimateError
from cstool.estimation.fit import Fitted, fitted_numbers, left_out, mean_error, refit
from cstool.estimation.published import load_published, number_of, predict
from cstool.system import load_system

RESULTS = load_published()
BY_NAME = {result.name: result for result in RESULTS}
NUMBERS = fitted_numbers(RESULTS)


def ids(fitted: Fitted) -> str:
    return f"{fitted.system} {fitted.key}"


@pytest.mark.parametrize("fitted", NUMBERS, ids=ids)
def test_the_number_in_the_file_is_what_its_results_give(fitted):
    # Two units of its last digit, or of a thousandth, to which PEs round their efficiency.
    assert abs(mean_error(fitted)) < 2e-3
    status, source = load_system(fitted.system).sources[fitted.key]
    assert status == "F"
    for result in fitted.results:
        assert f"{result.name} of perf/published.yaml" in source or result.name in source.partition("; ")[2]


def test_results_are_fitted_or_host_bound_where_a_number_comes_from_them():
    for result in RESULTS:
        assert (result.use == "fitted") <= bool(result.fits)
        assert not result.fits or result.use in ("fitted", "host-bound")


@pytest.mark.parametrize("start", [0.7, 1.4])
def test_a_fit_finds_the_number_from_elsewhere(start):
    (fitted,) = (each for each in NUMBERS if each.key == "hosts.releases.2.6.norm_s")
    moved = replace(fitted, value=fitted.value * start)
    assert refit(moved, fitted.results) == pytest.approx(fitted.value, rel=0.02)


def test_a_number_that_changes_nothing_fits_nothing():
    result = BY_NAME["llama_7b_cs3_32"]
    idle = Fitted("cs3", "hosts.releases.2.6.evaluation_s", 20.7, (result,))
    far = replace(result, published=2 * result.published)
    with pytest.raises(EstimateError) as caught:
        refit(idle, [far])
    assert caught.value.message == (
        "hosts.releases.2.6.evaluation_s of cs3: must fit llama_7b_cs3_32, but no number does"
    )


def test_what_is_left_out_is_predicted_by_the_others_alone():
    found = left_out(RESULTS)
    shared = [fitted for fitted in NUMBERS if len(fitted.results) == 2]
    assert set(found) == {result.name for fitted in shared for result in fitted.results}
    for fitted in shared:
        one, other = fitted.results
        alone = refit(fitted, [other])
        assert predict(replace(other, numbers={fitted.key: alone})).error == pytest.approx(0, abs=3e-3)
        assert found[one.name].predicted == predict(replace(one, numbers={fitted.key: alone})).predicted


def test_a_number_of_a_system_is_found_and_replaced_by_its_key():
    system = load_system("cs2")
    assert number_of(system, "pe.efficiency") == system.pe.efficiency
    assert number_of(system, "hosts.releases.2.0.step_s") == system.hosts.releases["2.0"].step_s
    base = BY_NAME["llama_7b_cs2"]
    slower = predict(replace(base, numbers={"pe.efficiency": 0.5 * system.pe.efficiency})).predicted
    assert slower == pytest.approx(0.5 * predict(base).predicted, rel=0.03)
