"""`cstool estimate optimize`: what it says of a job, and of limits that cannot be kept, word for word."""

import csv
import re
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.test_estimate import GPT

FLAGS = ("estimate", "optimize", "-p", "gpt.yaml", "--tokens", "100B", "--execution_mode", "weight_streaming")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gpt.yaml").write_text(yaml.safe_dump({"trainer": GPT}))


@pytest.fixture
def days(cstool) -> dict[int, float]:
    """Days of the job, by numbers of systems."""
    rows = cstool(*FLAGS, "--power", "100MW", "--json").document["modelled"]["front"]
    return {row["num_csx"]: row["days"] for row in rows}


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
    assert re.fullmatch(r"The job takes .*; 80% of such results: [\d.]+( \w+)? to [\d.]+ \w+\.", lines[4])
    assert re.fullmatch(r"Batches of \d+ samples: \d+ to a system, weights streamed in .*\.", lines[5])
    assert re.fullmatch(r"It draws .* kW \(systems .*\) and takes .* MWh\.", lines[6])
    assert re.fullmatch(r"It costs [\d,]+, for [\d,]+ hours of a system\.", lines[7])
    asks = rf"On {few} systems?, the next fewer that share out a batch, it is (just over )?[\d.]+ \w+: --days binds\."
    assert re.fullmatch(asks, lines[8])
    table = found.stdout.partition("what else there is: ")[2].splitlines()
    assert table[0] == "plans that no other one beats in systems, days, power, price, modelled"
    assert table[1].split() == "num_csx batch micro-batch mode days 80% power energy price limits".split()
    assert [row.rpartition("  ")[2].strip() for row in table[2:4]] == ["breaks --days", "the answer"]


def test_one_system_may_be_enough(cstool):
    found = cstool(*FLAGS, "--days", "100000")
    assert "1 x cs2 is the fewest that keep within 100,000 days." in found.stdout
    assert "One system is enough: nothing binds." in found.stdout


def test_the_document_and_the_rows(cstool, days):
    few, more = sorted(days)[:2]
    asked = (*FLAGS, "--days", between(days, few, more), "--csv", "front.csv", "--json")
    document = cstool(*asked).document
    modelled = document["modelled"]
    assert modelled["answer"]["num_csx"] == more
    assert modelled["next_fewer"]["num_csx"] == few
    assert modelled["binding"] == ["--days"]
    assert document["limits"]["--power"] is None
    assert all(row["kind"] == "modelled" for row in modelled["front"])
    rows = list(csv.DictReader(Path("front.csv").read_text().splitlines()))
    assert [int(row["num_csx"]) for row in rows if row["is_answer"] == "True"] == [more]
    assert {row["kind"] for row in rows} == {"modelled"}


def test_the_days_are_those_of_the_estimate(cstool, days):
    """Of the same systems, batch and mode, where nothing but steps takes time."""
    count = sorted(days)[1]
    plain = cstool(*FLAGS[:1], *FLAGS[2:], "--num_csx", str(count), "--json").document["modelled"]
    assert plain["cost"]["days"] == pytest.approx(days[count], rel=1e-6)


def test_shares_of_zeros(cstool, days):
    few, more = sorted(days)[:2]
    found = cstool(*FLAGS, "--days", between(days, few, more), "--sparsity", "0,0.9")
    section = found.stdout.partition("fewest systems for each share of zeros, modelled; the tokens are the same\n")[2]
    rows = section.partition("\n\n")[0].splitlines()
    assert rows[0].split() == ["sparsity", "num_csx", "days", "power", "way"]
    assert [row.split()[0] for row in rows[1:]] == ["0%", "90%"]


def test_pictures(cstool):
    for theme in ("light", "dark"):
        asked = ("--days", "100000", "--price", "1", "--plot", f"{theme}.svg", "--theme", theme)
        assert cstool(*FLAGS, *asked, "--sparsity", "0,0.5").code == 0
        text = Path(f"{theme}.svg").read_text()
        for said in (
            "Days against systems (modelled)",
            "Days against power of systems",
            "Days against price",
            "answer",
        ):
            assert said in text


NO_JOB = ("estimate", "optimize", "-p", "gpt.yaml")
REFUSED = [
    (("estimate", "optimize", "--days", "3"), "--params is missing", "cstool estimate optimize --params FILE"),
    ((*NO_JOB, "--days", "3"), "--tokens is missing: a job is so many tokens", "such as --tokens 300B"),
    (FLAGS, "--days, --power or --budget is missing: without a limit there is nothing to search", "such as --days 30"),
    ((*FLAGS, "--days", "0"), "--days: must be days, more than 0, got 0", None),
    ((*FLAGS, "--days", "-2"), "--days: must be days, more than 0, got -2", None),
    ((*FLAGS, "--days", "nan"), "--days: must be days, more than 0, got nan", None),
    ((*FLAGS, "--power", "lots"), "--power: must be a power in W, kW or MW, such as 500kW, got lots", None),
    ((*FLAGS, "--power", "500"), "--power: must be a power in W, kW or MW, such as 500kW, got 500", None),
    ((*FLAGS, "--power", "0kW"), "--power: must be a power in W, kW or MW, such as 500kW, more than 0, got 0kW", None),
    ((*FLAGS, "--budget", "2M"), "--budget: must stand beside --price, of a system for an hour, got 2M", None),
    ((*FLAGS, "--budget", "much", "--price", "1"), "--budget: must be an amount, such as 2M, got much", None),
    ((*FLAGS, "--budget", "2M", "--price", "0"), "--price: must be more than 0 beside --budget, got 0", None),
    (
        (*FLAGS, "--budget", "2M", "--price", "-4"),
        "--price: must be a price of a system for an hour, at least 0, got -4",
        None,
    ),
    (
        (*FLAGS, "--power", "1MW", "--confident"),
        "--confident: must stand beside --days or --budget: the range is one of time",
        None,
    ),
    (
        (*FLAGS, "--days", "3", "--batch_size", "8..4"),
        "--batch_size: must go up in 8..4, got 8..4",
        "such as 1536, or 512..4096, where .. doubles",
    ),
    (
        (*FLAGS, "--days", "3", "--batch_size", "many"),
        "--batch_size: must be numbers of samples, got many",
        "such as 1536, or 512..4096, where .. doubles",
    ),
    (
        (*FLAGS, "--days", "3", "--batch_size", "8", "--batch_per_csx", "4"),
        "--batch_per_csx: must be left out beside --batch_size, got 4",
        None,
    ),
    (
        (*FLAGS, "--days", "3", "--num_csx", "500"),
        "--num_csx: must be at most 192, the systems of a cluster of cs2, got 500",
        None,
    ),
    ((*FLAGS, "--days", "3", "--plot", "a.pdf"), "--plot: must end in .svg or .png, got a.pdf", None),
    ((*FLAGS, "--days", "3", "--csv", "a.txt"), "--csv: must end in .csv, got a.txt", None),
    (
        (*FLAGS, "--days", "3", "--sparsity", "1.5"),
        "--sparsity: must be shares of zeros from 0 to below 1, got 1.5",
        "such as 0,0.5,0.9",
    ),
]


@pytest.mark.parametrize(("arguments", "message", "hint"), REFUSED, ids=lambda value: str(value)[-40:])
def test_what_is_refused(cstool, arguments, message, hint):
    outcome = cstool(*arguments)
    assert (outcome.code, outcome.stdout) == (2, "")
    error, *rest = outcome.stderr.splitlines()
    assert error == f"error: {message}"
    assert [line.startswith(f"hint: {hint}") for line in rest] == ([] if hint is None else [True])


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


def test_power_that_cannot_be_met(cstool):
    outcome = cstool(*FLAGS, "--power", "10kW")
    message, hint = outcome.stderr.splitlines()
    assert re.fullmatch(r"error: --power: cannot be met: [\d.]+ kW is the least, on 1 x cs2, got 10kW", message)
    nearest = re.match(r"hint: possible: --power ([\d.]+kW)", hint)
    assert nearest is not None
    assert cstool(*FLAGS, "--power", nearest[1]).code == 0


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


def test_adapters_take_less(cstool):
    """All else is frozen: fewer bytes, fewer products, so the same systems take fewer days; and the page says so."""
    asked = (*FLAGS, "--power", "100MW")
    all_weights = cstool(*asked, "--json").document
    found = cstool(*asked, "--adapters", "rank=4,layers=all", "--json").document
    assert found["trained_parameters"] < all_weights["trained_parameters"] == all_weights["parameters"]
    days = {row["num_csx"]: row["days"] for row in all_weights["modelled"]["front"]}
    assert all(row["days"] < days.get(row["num_csx"], float("inf")) for row in found["modelled"]["front"])
    lines = cstool(*asked, "--adapters", "rank=4,layers=all").stdout.splitlines()
    trained, parameters = found["trained_parameters"], found["parameters"]
    assert lines[1] == (
        f"{trained:,} of {parameters:,} weights, {trained / parameters:.3%}, all of them of adapters; "
        "the others are frozen: no gradient, no update, no optimizer state."
    )
    assert lines[-1] == "--frozen and --adapters are of estimates alone: cstool run trains all weights"


def test_adapters_of_the_file(cstool):
    """A file with the vendor's callback is searched as one whose adapters are asked for."""
    callback = {"Lora": {"lora_params": {"r": 4, "target_modules": ["Linear"]}}}
    data = {"init": {**GPT["init"], "callbacks": [callback]}, "fit": GPT["fit"]}
    Path("lora.yaml").write_text(yaml.safe_dump({"trainer": data}))
    of_file = cstool(*FLAGS[:3], "lora.yaml", *FLAGS[4:], "--power", "100MW")
    asked = cstool(*FLAGS, "--power", "100MW", "--adapters", "rank=4,layers=all")
    *of_file_lines, said, last = of_file.stdout.splitlines()
    assert said == "adapters as the callback Lora of the file has them: --adapters rank=4,layers=all"
    assert [*of_file_lines, last] == asked.stdout.splitlines()


def test_frozen_layers_that_there_are_not(cstool):
    found = cstool(*FLAGS, "--power", "100MW", "--frozen", "first:99")
    layers = GPT["init"]["model"]["num_hidden_layers"]
    assert (found.code, found.stdout) == (2, "")
    assert found.stderr == f"error: --frozen: must be of at most the {layers:,} layers of gpt3, got first:99\n"
