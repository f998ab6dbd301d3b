"""The published results: that the table is sound, and that the model is what it says of itself."""

import math
import random
import subprocess
import sys
from dataclasses import replace
from statistics import mean

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import EstimateError
from cstool.model.system import load_system, system_names
from cstool.plan.estimation import bands, published
from cstool.plan.estimation.bands import PRIOR, Case, Known, band_from, student_quantile
from cstool.plan.estimation.comparison import compare, errors_of, first_errors, known_of
from cstool.plan.estimation.errors_file import errors_text
from cstool.plan.estimation.fit import Fitted, fitted_numbers, left_out, mean_error, refit
from cstool.plan.estimation.published import Prediction, Published, load_published, number_of, predict
from tests.unit.plan.estimation.requests import estimator, gpt

RESULTS = load_published()
BY_NAME = {result.name: result for result in RESULTS}
HEADLINES = {
    "near_linear_192": "192 CS-2",
    "parameters_120t": "120-trillion parameter models on a single CS-2",
    "trillion_on_16": "15.3x",
    "sparse_10x": "10x weight sparsity speedup",
    "layer_100k": "100k*100k",
    "gpt3_in_a_day": "GPT-3 in a day",
    "trillion_over_a_weekend": "1T parameter model over a long weekend",
    "exaflops_2048": "2,048 CS-3",
    "parameters_24t": "24T parameters as one logical device",
}


@pytest.fixture(autouse=True)
def _predicted_once(predicted_once, monkeypatch):
    """Fits predict the same results with the same numbers again and again."""
    monkeypatch.setattr("cstool.plan.estimation.fit.predict", published.predict)


def test_every_result_says_where_it_stands_and_how_it_is_used():
    assert len(BY_NAME) == len(RESULTS)
    for result in RESULTS:
        assert result.use in published.USES
        assert result.status in ("R1", "R2")
        assert result.quantity in published.QUANTITIES
        assert result.source
        assert result.says
        assert result.system in system_names()
        assert 1 <= result.num_csx <= load_system(result.system).max_systems
        assert result.published > 0
        assert result.batch_per_csx is None or result.batch_size is None
        if result.use == "headline":
            assert result.assumed, f"{result.name}: slides never say all conditions"


def test_every_headline_of_the_seeds_is_there_few_results_are_fitted_and_all_models_used():
    for name, words in HEADLINES.items():
        result = BY_NAME[name]
        said = f"{result.says} {result.num_csx} {result.system}"
        assert result.use == "headline" or result.fits
        assert words in said or words == "192 CS-2" and "192 cs2" in said
    # How wide weights are on their way was settled by it, and the system file says so.
    chosen = ["llama_7b_cs3_8_forward", "matvec_100", "matvec_10", "meshgemm_720_1"]
    chosen += ["meshgemv_656_g2", "meshgemv_656_g4", "meshgemv_144_g8"]
    assert [result.name for result in RESULTS if result.use == "chosen"] == chosen
    assert "0.136 s per batch of 8" in load_system("cs2").sources["memoryx.gradient_bytes"][1]
    fitted = {result.name for result in RESULTS if result.use == "fitted" and result.quantity == "samples_per_s"}
    assert fitted == {"llama_7b_cs2", "gptj_6b_2_cs2", "gpt2_small_cs2", "llama_7b_cs3_32", "llama_7b_cs3_128"}
    assert len([result for result in RESULTS if result.use == "held out"]) > 3 * len(fitted)
    document = yaml.safe_load(published.FILE.read_text(encoding="utf-8"))
    conditions = [entry for each in document["results"] for entry in (each, each.get("relative_to", {}))]
    assert {entry["model"] for entry in conditions if "model" in entry} == set(document["models"])


@pytest.mark.takes("all published results, predicted here once for all tests")
def test_every_result_is_predicted():
    for found in compare().predictions:
        assert found.predicted is not None, found.note
        assert found.predicted > 0


def test_a_model_that_does_not_fit_is_no_prediction_and_says_why():
    wide = dict(BY_NAME["gpt2_small_cs2"].model or {}) | {"hidden_size": 3_000_000, "num_heads": 3_000}
    found = predict(replace(BY_NAME["gpt2_small_cs2"], model=wide))
    assert found.predicted is None
    assert found.error is None
    assert found.note == (
        "gpt2_small_cs2: MemoryX of cs2 must hold 6.92 PB: weights, optimizer state and gradients; got 2.4 PB"
    )


def test_results_that_were_added_keep_the_error_that_the_model_had_then():
    """None that was known while the model was built has one; of headlines nothing is concluded."""
    first = first_errors(RESULTS)
    assert first == compare().first
    assert first is not None
    added = [result for result in RESULTS if result.first_error is not None]
    assert first.count == sum(result.use in ("held out", "chosen") for result in added) < len(added)
    assert (first.largest, first.name) == (0.9607, "meshgemm_720_1")
    assert first_errors([BY_NAME["llama_7b_cs2"]]) is None


def test_kernels_that_answer_are_met_where_they_were_not_looked_at():
    """Products of the same kernels on a WSE-3, and rates of a WSE-2 whose cycles were converted at 1.1 GHz."""
    predictions = {each.result.name: each for each in compare().predictions}
    found = [each for name, each in predictions.items() if name.startswith("mesh") and each.result.use == "held out"]
    assert len(found) == 6
    assert all(abs(each.error) < 0.08 for each in found)
    for name, rate in (("waferllm_llama3_8b", 2700), ("waferllm_qwen2_72b", 840)):
        result = predictions[name].result
        assert (result.published, result.numbers) == (rate, {"clock_hz": 1.1e9})
        slower = predict(replace(result, numbers={}))
        assert predictions[name].predicted > 1.2 * slower.predicted


def test_errors_have_no_signs_and_name_the_largest():
    def off(name: str, predicted: float | None, use: str = "held out") -> Prediction:
        return Prediction(Published(name, "", "", "R1", use, "days", 10.0, "cs2"), predicted)

    found = errors_of(
        [off("a", 9.0), off("b", 14.0), off("c", 10.0), off("d", None), off("e", 99.0, "fitted")], "held out"
    )
    assert found is not None
    assert (found.count, found.name) == (3, "b")
    assert (found.median, found.average, found.largest) == pytest.approx((0.1, 0.5 / 3, 0.4))
    assert errors_of([], "fitted") is None


# Fitted numbers are what their results give, and are named in the files that they stand in.
NUMBERS = fitted_numbers(RESULTS)


def test_the_numbers_in_the_files_are_what_their_results_give():
    log_times = {each.result.name: each.log_time for each in compare().predictions}
    for fitted in NUMBERS:
        # Two units of its last digit, or of a thousandth, to which PEs round their efficiency.
        error = mean(log_times[result.name] for result in fitted.results)
        assert abs(error) < 2e-3, fitted.key
        if fitted.key == "hosts.releases.2.6.norm_s":
            assert mean_error(fitted) == pytest.approx(error)
        status, source = load_system(fitted.system).sources[fitted.key]
        assert status == "F"
        for result in fitted.results:
            assert f"{result.name} of perf/published.yaml" in source or result.name in source.partition("; ")[2]
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
        assert published.predict(replace(other, numbers={fitted.key: alone})).error == pytest.approx(0, abs=3e-3)
        assert found[one.name].predicted == published.predict(replace(one, numbers={fitted.key: alone})).predicted


def test_a_number_of_a_system_is_found_and_replaced_by_its_key():
    system = load_system("cs2")
    assert number_of(system, "pe.efficiency") == system.pe.efficiency
    assert number_of(system, "hosts.releases.2.0.step_s") == system.hosts.releases["2.0"].step_s
    base = BY_NAME["llama_7b_cs2"]
    slower = predict(replace(base, numbers={"pe.efficiency": 0.5 * system.pe.efficiency})).predicted
    assert slower == pytest.approx(0.5 * predict(base).predicted, rel=0.03)


# Ranges of estimates: wide where little is known, of the size of errors where more is, never from themselves.
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
DRAWN = st.lists(st.tuples(CASES, ERRORS), min_size=1, max_size=30).map(
    lambda found: [Known(f"r{number}", case, error) for number, (case, error) in enumerate(found)]
)


def slow_width(case: Case, known: list[Known]) -> float:
    """Half of the range, as a logarithm: a class is as wide as its results and `PRIOR` like those around."""

    def size(case: Case) -> int:
        return (case.parameters >= 1e9) + (case.parameters >= 2e10)

    levels = [lambda other: True, lambda other: other.kind == case.kind]
    if case.kind == "inference":
        levels.insert(1, lambda other: other.kind in ("training", "inference"))
    of_kind = len(levels) - 1
    if case.mode:
        levels += [
            lambda other: levels[of_kind](other) and (other.mode, other.is_sparse) == (case.mode, case.is_sparse),
            lambda other: levels[of_kind + 1](other) and size(other) == size(case),
            lambda other: levels[of_kind + 2](other) and other.system == case.system,
        ]
    variance = 0.0
    for prior, is_in in zip((0, *[PRIOR] * 5), levels, strict=False):
        squares = [each.error**2 for each in known if is_in(each.case)] + prior * [variance]
        freedom, variance = len(squares), sum(squares) / len(squares)
    return student_quantile(freedom) * math.sqrt(variance)


@given(CASES, DRAWN, st.floats(1e-3, 1e6))
def test_the_range_is_that_of_the_slow_twin_as_far_up_as_down_of_times_as_of_rates(case, known, seconds):
    band = band_from(case, known)
    assert math.log(band.high) == pytest.approx(slow_width(case, known), abs=1e-12)
    assert band.low * band.high == pytest.approx(1)
    assert 1 <= band.count <= len(known)
    assert band.of
    slowest, fastest = band.of_rate(1 / seconds)
    assert band.of_time(seconds) == pytest.approx((1 / fastest, 1 / slowest))


@given(DRAWN)
def test_where_no_result_is_alike_it_is_wider_than_that_of_all(known):
    of_all = math.sqrt(sum(each.error**2 for each in known) / len(known))
    assert math.log(band_from(Case("games"), known).high) == pytest.approx(student_quantile(PRIOR) * of_all)
    assert student_quantile(PRIOR) > bands.QUANTILE


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_results_that_hit_do_not_make_it_narrow(count):
    """Four more like those around are held to have been seen."""
    missed, hit = (Case("training", mode, False, 1e8, "cs2") for mode in (STREAMED, "pipelined"))
    known = [Known(f"a{n}", missed, 0.3) for n in range(20)] + [Known(f"b{n}", hit, 0.0) for n in range(count)]
    assert math.log(band_from(hit, known).high) > 0.3 * math.sqrt(PRIOR / (PRIOR + count)) ** 3


def test_of_answers_whole_systems_are_around_not_kernels():
    """Kernels that are met make the range of an answer no narrower; training that is not makes it wider."""
    answers = [Known("a", Case("inference"), 0.1), Known("b", Case("inference"), -0.1)]
    kernels = [Known(f"k{n}", Case("one PE"), 0.0) for n in range(40)]
    training = [Known(f"t{n}", Case("training", STREAMED), 0.4) for n in range(20)]
    alone, beside = (band_from(Case("inference"), answers + training + more).high for more in ([], kernels))
    assert math.log(beside) > 0.9 * math.log(alone)
    assert math.log(alone) > 1.5 * math.log(band_from(Case("inference"), answers).high)


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
        held += sum(band_from(each.case, bands.without(known, each.name)).holds(each.error) for each in known)
        total += len(known)
    assert bands.SHARE - 0.05 < held / total < bands.SHARE + 0.1


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(4, 1.533), (5, 1.476), (6, 1.440), (8, 1.397), (10, 1.372), (20, 1.325), (60, 1.296)]
)
def test_quantiles_are_those_of_the_tables(freedom, quantile):
    assert student_quantile(freedom) == pytest.approx(quantile, abs=2e-3)


def test_an_estimate_has_the_range_of_results_like_it_and_validates_nothing():
    found = estimator(gpt()).at(1)
    artifact = found.artifact
    case = Case("training", artifact.mode, False, artifact.graph.parameter_count, artifact.system.name)
    assert found.band == bands.band_for(found) == bands.band_of(case)
    code = "import cstool.plan.estimation, sys; sys.exit('cstool.plan.estimation.published' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_file_is_what_validation_gives_and_a_result_is_no_part_of_its_own_range():
    predictions = {each.result.name: each for each in compare().predictions}
    for mine in bands.known_errors():
        others = [each for each in known_of(compare().predictions) if each.name != mine.name]
        assert predictions[mine.name].band == band_from(mine.case, others)
    known = known_of(compare().predictions)
    assert bands.FILE.read_text(encoding="utf-8") == errors_text(known), (
        "python -m cstool.plan.estimation.errors_file writes it"
    )
    assert {each.name: each.case for each in bands.known_errors()} == {each.name: each.case for each in known}
