"""docs/estimate_accuracy.md shows what validation prints, and its numbers are those of the files."""

import re
import shutil

import pytest

from cstool.estimation.fit import fitted_numbers
from cstool.estimation.published import load_published
from tests.end_to_end.pages import PROJECT, blocks, page, plain_lines

NAME = "estimate_accuracy"


@pytest.fixture(autouse=True)
def _in_a_folder_with_params(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")


@pytest.mark.usefixtures("predicted_once")
def test_the_tables_are_those_of_validation_and_meet_the_aim(cstool):
    _, lines, tables = blocks(NAME, "console", "text", "text")
    printed = cstool("estimate", "--validate").stdout
    assert printed.startswith(tables)
    assert set(re.findall(r"`(\w+_(?:cs2|cs3|120t|16)\w*)`", page(NAME))) <= {each.name for each in load_published()}
    median, average = map(float, re.search(r"off by ([\d.]+)% in the median, by ([\d.]+)%", held_out(printed)).groups())
    assert median < 10
    assert average < 15
    within = re.search(r"(\d+)%, are in their 80% range", held_out(printed))
    assert int(within[1]) >= 80
    shown = cstool("estimate", "--params", "params/gpt3_13b.yaml", "--tokens", "260B").stdout
    assert set(plain_lines(lines)) <= set(plain_lines(shown))


def held_out(printed: str) -> str:
    """Return the part of the held-out results."""
    return printed[printed.index("\nheld out: ") : printed.index("\nhost-bound: ")]


def test_whatever_is_off_beyond_60_percent_says_why(cstool):
    for result in cstool("estimate", "--validate", "--json").document["results"]:
        if result["use"] == "held out" and abs(result["error"]) > 0.6:
            assert result["reason"], result["name"]


def test_fitted_numbers_are_on_the_page():
    text = page(NAME)
    for fitted in fitted_numbers(load_published()):
        if "tokens_per_s" not in fitted.key:
            name = fitted.key.rpartition(".")[2]
            assert re.search(rf"^\| `(?:pe\.)?{name}`.*\b{fitted.value:g}\b", text, re.MULTILINE)
            assert all(f"`{result.name}`" in text for result in fitted.results)
