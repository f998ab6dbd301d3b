"""`cstool estimate optimize`: what it says of a job, and of limits that cannot be kept, word for word."""

import csv
import re
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.conftest import SMALL

pytestmark = pytest.mark.usefixtures("estimated")
FLAGS = ("estimate", "optimize", "-p", "small.yaml", "--tokens", "100B", "--execution_mode", "weight_streaming")
FLAGS += ("--num_csx", "8")


@pytest.fixture(scope="module")
def found_days() -> dict[int, float]:
    return {}


@pytest.fixture
def days(cstool, found_days) -> dict[int, float]:
    """Days of the job, by numbers of systems, searched once."""
    if not found_days:
        rows = cstool(*FLAGS, "--power", "100MW", "--json").document["modelled"]["front"]
        found_days |= {row["num_csx"]: row["days"] for row in rows}
    return found_days


def between(days: dict[int, float], few: int, more: int) -> str:
    assert days[few] > days[more]
    return f"{(days[few] + days[more]) / 2:.6f}"


def test_the_answer_in_sentences(cstool, days):
    counts = sorted(days)
    few, more = counts[:2]
    found = cstool(*FLAGS, "--days", between(days, few, more), "--price", "40")
    assert (found.code, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    assert lines[0].startswith("gpt3: ")
    assert lines[1] == "Everything is modelled; nothing is measured."
    assert re.fullmatch(rf"{more} x cs2 are the fewest that keep within [\d.]+ \w+\.", lines[3])
    assert re.fullmatch(r"The job takes .*; 80% interval: [\d.]+( \w+)? to [\d.]+ \w+\.", lines[4])
    assert re.fullmatch(r"Batches of \d+ samples: \d+ to a system, weights streamed in .*\.", lines[5])
    assert re.fullmatch(r"It draws .* kW \(systems .*\) and takes .* MWh\.", lines[6])
    assert re.fullmatch(r"It costs [\d,]+, for [\d,]+ hours of a system\.", lines[7])
    asks = rf"On {few} systems?, the next fewer that share out a batch, it is (just over )?[\d.]+ \w+: above --days\."
    assert re.fullmatch(asks, lines[8])
    table = found.stdout.partition("what else there is: ")[2].splitlines()
    assert table[0] == "Pareto-optimal plans in systems, days, power, price, modelled"
    assert table[1].split() == "num_csx batch micro-batch mode days 80% power energy price limits".split()
    assert [row.rpartition("  ")[2].strip() for row in table[2:4]] == ["breaks --days", "the answer"]


def test_the_document_and_the_rows(cstool, days):
    few, more = sorted(days)[:2]
    document = cstool(*FLAGS, "--days", between(days, few, more), "--csv", "front.csv", "--json").document
    found = document["modelled"]
    assert (found["answer"]["num_csx"], found["next_fewer"]["num_csx"], found["binding"]) == (more, few, ["--days"])
    assert document["limits"]["--power"] is None
    rows = list(csv.DictReader(Path("front.csv").read_text().splitlines()))
    assert [int(row["num_csx"]) for row in rows if row["is_answer"] == "True"] == [more]
    assert {row["kind"] for row in (*rows, *found["front"])} == {"modelled"}


def test_the_days_are_those_of_the_estimate(cstool, days):
    """Of the same systems, batch and mode, where nothing but steps takes time."""
    count = sorted(days)[1]
    plain = cstool(*FLAGS[:1], *FLAGS[2:], "--num_csx", str(count), "--json").document["modelled"]
    assert plain["cost"]["days"] == pytest.approx(days[count], rel=1e-6)


@pytest.mark.lab
def test_shares_of_zeros(cstool, days):
    few, more = sorted(days)[:2]
    found = cstool(*FLAGS, "--days", between(days, few, more), "--sparsity", "0,0.9")
    section = found.stdout.partition("fewest systems for each share of zeros, modelled; the tokens are the same\n")[2]
    rows = section.partition("\n\n")[0].splitlines()
    assert rows[0].split() == ["sparsity", "num_csx", "days", "power", "way"]
    assert [row.split()[0] for row in rows[1:]] == ["0%", "90%"]


def test_pictures_and_one_system_may_be_enough(cstool):
    asked = ("--days", "100000", "--price", "1", "--plot", "a.svg", "--theme", "dark", "--sparsity", "0,0.5")
    found = cstool(*FLAGS, *asked).said
    assert "1 x cs2 is the fewest that keep within 100,000 days." in found
    assert "One system is enough for all limits." in found
    text = Path("a.svg").read_text()
    for said in ("systems (modelled)", "power of systems", "price"):
        assert f"Days against {said}" in text
    assert "answer" in text


def test_days_that_cannot_be_met(cstool, days):
    outcome = cstool(*FLAGS, "--days", "0.0001", "--num_csx", "4")
    assert outcome.code == 2
    message, hint = outcome.stderr.splitlines()
    asks = r"error: --days: cannot be met: [\d.]+ \w+ is the least, on 4 x cs2, as many as --num_csx allows, got 0.0001"
    assert re.fullmatch(asks, message)
    nearest = re.match(r"hint: possible: --days ([\d.e-]+)", hint)
    assert nearest is not None
    assert days[4] <= float(nearest[1]) <= 1.02 * days[4]
    assert cstool(*FLAGS, "--days", nearest[1], "--num_csx", "4").code == 0


@pytest.mark.lab
def test_power_that_cannot_be_met(cstool):
    outcome = cstool(*FLAGS, "--power", "10kW")
    message, hint = outcome.stderr.splitlines()
    assert re.fullmatch(r"error: --power: cannot be met: [\d.]+ kW is the least, on 1 x cs2, got 10kW", message)
    nearest = re.match(r"hint: possible: --power ([\d.]+kW)", hint)
    assert nearest is not None
    assert cstool(*FLAGS, "--power", nearest[1]).code == 0


@pytest.mark.lab
def test_limits_that_cannot_be_met_together(cstool, days):
    counts = sorted(days)
    asked = ("--days", f"{days[counts[-1]] * 1.01:.6f}", "--power", "40kW")
    outcome = cstool(*FLAGS, *asked)
    assert outcome.code == 2
    message, hint = outcome.stderr.splitlines()
    asks = (
        r"error: --days \S+ and --power 40kW: cannot be met together: within 40 kW it takes [\d.]+ \w+ at least, on "
        r"\d+ systems?; within [\d.]+ \w+ it draws [\d,.]+ kW at least, on \d+ systems?"
    )
    assert re.fullmatch(asks, message)
    nearest = re.match(r"hint: possible: --days (\S+); --power (\S+?)(;|$)", hint)
    assert nearest is not None
    assert cstool(*FLAGS, "--days", nearest[1], *asked[2:]).code == 0
    assert cstool(*FLAGS, *asked[:2], "--power", nearest[2]).code == 0


@pytest.mark.lab
def test_adapters_take_less_and_are_those_of_the_file(cstool, days):
    """All else is frozen: fewer bytes, fewer products, so the same systems take fewer days; and the page says so."""
    asked = ("--power", "100MW")
    adapters = ("--adapters", "rank=4,layers=all")
    found = cstool(*FLAGS, *asked, *adapters, "--json").document
    trained, parameters = found["trained_parameters"], found["parameters"]
    assert trained < parameters
    assert all(row["days"] < days.get(row["num_csx"], float("inf")) for row in found["modelled"]["front"])
    lines = cstool(*FLAGS, *asked, *adapters).stdout.splitlines()
    assert lines[1] == (
        f"{trained:,} of {parameters:,} weights, {trained / parameters:.3%}, all of them of adapters; "
        "the others are frozen: no gradient, no update, no optimizer state."
    )
    # A file with the vendor's callback is searched as one whose adapters are asked for.
    callback = {
        "Lora": {"lora_params": {"r": 4, "alpha": 4.0, "target_modules": ["TransformerDecoderLayer", "Linear"]}}
    }
    data = {"init": {**SMALL["init"], "callbacks": [callback]}, "fit": SMALL["fit"]}
    Path("lora.yaml").write_text(yaml.safe_dump({"trainer": data}))
    assert cstool(*FLAGS[:3], "lora.yaml", *FLAGS[4:], *asked).stdout.splitlines() == lines
