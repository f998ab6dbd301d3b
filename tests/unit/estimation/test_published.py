"""The published results: that the table is sound, and that the model is what it says of itself."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cstool.estimation.published import (
    FILE,
    QUANTITIES,
    USES,
    Prediction,
    Published,
    errors_of,
    load_published,
    predict,
)
from cstool.system import load_system, system_names

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


def test_every_result_says_where_it_stands_and_how_it_is_used():
    assert len(BY_NAME) == len(RESULTS)
    for result in RESULTS:
        assert result.use in USES
        assert result.status in ("R1", "R2")
        assert result.quantity in QUANTITIES
        assert result.source
        assert result.says
        assert result.system in system_names()
        assert 1 <= result.num_csx <= load_system(result.system).max_systems
        assert result.published > 0
        assert result.batch_per_csx is None or result.batch_size is None
        if result.use == "headline":
            assert result.assumed, f"{result.name}: slides never say all conditions"


def test_every_headline_of_the_seeds_is_there():
    for name, words in HEADLINES.items():
        result = BY_NAME[name]
        said = f"{result.says} {result.num_csx} {result.system}"
        assert result.use == "headline" or result.fits
        assert words in said or words == "192 CS-2" and "192 cs2" in said


def test_one_result_was_chosen_by_and_the_system_file_says_so():
    """How wide weights are on their way was settled by it."""
    assert [result.name for result in RESULTS if result.use == "chosen"] == [
        "llama_7b_cs3_8_forward",
        "matvec_100",
        "matvec_10",
    ]
    assert "0.136 s per batch of 8" in load_system("cs2").sources["memoryx.gradient_bytes"][1]


def test_of_each_model_and_system_only_a_few_results_are_fitted():
    fitted = {result.name for result in RESULTS if result.use == "fitted" and result.quantity == "samples_per_s"}
    assert fitted == {"llama_7b_cs2", "gptj_6b_2_cs2", "gpt2_small_cs2", "llama_7b_cs3_32", "llama_7b_cs3_128"}
    held_out = [result for result in RESULTS if result.use == "held out"]
    assert len(held_out) > 3 * len(fitted)


def test_models_are_named_once_and_all_are_used():
    document = yaml.safe_load(Path(FILE).read_text(encoding="utf-8"))
    used = {entry[key] for entry in document["results"] for key in ("model",) if key in entry}
    used |= {entry["relative_to"]["model"] for entry in document["results"] if "relative_to" in entry}
    assert used == set(document["models"])


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.name)
def test_every_result_is_predicted(result):
    found = predict(result)
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
