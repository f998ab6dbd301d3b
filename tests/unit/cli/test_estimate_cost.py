"""`cstool estimate`: what a job costs, frozen weights, adapters, choices of what is computed again."""

import pytest

pytestmark = pytest.mark.usefixtures("estimated")
FLAGS = ("estimate", "-p", "small.yaml", "--execution_mode", "weight_streaming")


def section(text: str, title: str) -> dict[str, str]:
    """Return the rows of a section: name -> text."""
    _, _, rest = text.partition(f"\n{title}\n")
    rows = rest.partition("\n\n")[0].splitlines()
    return {name.strip(): said.strip() for name, _, said in (row.partition("  ") for row in rows)}


def test_what_a_job_costs(cstool):
    asked = ("--tokens", "300B", "--price", "100", "--mtbf", "2000", "--checkpoint_rate", "1GB")
    said = section(cstool(*FLAGS, *asked).stdout, "what a job costs, modelled")
    assert list(said) == [
        *("training", "checkpoints", "failures", "expected", "servers", "power", "energy", "price", "80% of such"),
        "input workers",
    ]
    assert "at 1 GB/s, as --checkpoint_rate says" in said["checkpoints"]
    assert said["failures"].startswith("one every 83.3 days, ")
    assert said["price"].endswith(" hours of a system")
    made = cstool(*FLAGS, *asked, "--json").document["modelled"]["cost"]
    assert made["kind"] == "modelled"
    assert made["price"] == pytest.approx(100 * made["expected_s"] / 3600)
    assert made["mwh"] == pytest.approx(sum(made["energy_j"].values()) / 3.6e9)
    assert made["checkpoints"]["interval_from"] == "best"


def test_without_failures_or_price_neither_is_told(cstool):
    said = section(cstool(*FLAGS, "--tokens", "1B").stdout, "what a job costs, modelled")
    assert "price" not in said
    assert "failures" not in said
    assert said["expected"].endswith("; --mtbf adds failures")
    assert "what a job costs" not in cstool(*FLAGS).stdout
    assert cstool(*FLAGS, "--json").document["modelled"]["cost"] is None


def test_a_job_on_several_numbers_of_systems(cstool):
    asked = ("--tokens", "300B", "--price", "100", "--num_csx", "1,4,16")
    found = cstool(*FLAGS, *asked).stdout
    table = found.partition("what the job costs on so many systems, modelled\n")[2].splitlines()
    assert table[0].split("  ")[0].strip() == "num_csx"
    assert [row.split()[0] for row in table[1:4]] == ["1", "4", "16"]
    document = cstool(*FLAGS, *asked, "--json").document["modelled"]
    costs = [document["cost"], *document["costs"]]
    assert [made["num_csx"] for made in costs] == [1, 4, 16]
    assert costs[0]["work_s"] > costs[1]["work_s"] > costs[2]["work_s"]


def test_a_system_of_which_nothing_is_known(cstool):
    """CS-1: no MemoryX, no servers, no rates."""
    asked = ("estimate", "-p", "fc.yaml", "--system", "cs1", "--tokens", "1B")
    said = section(cstool(*asked).stdout, "what a job costs, modelled")
    assert said["servers"] == "nothing is known of them on this system: they are left out"
    assert "nothing is known of it on cs1, they are taken to need no time; --checkpoint_rate" in said["checkpoints"]
    assert said["input workers"].endswith("; nothing is known of it on cs1: --worker_rate says how many that takes")


def test_adapters_say_what_is_trained_and_that_a_run_has_none(cstool):
    found = cstool(*FLAGS, "--adapters", "rank=16,layers=q,v").stdout
    # 2 layers, two matrices of 512 by 512 in each.
    count = 2 * 2 * 16 * (512 + 512)
    assert f"\ntrained         {count:,} of " in found
    assert "all of them of adapters; the others are frozen: no gradient, no update, no optimizer state\n" in found
    assert "\n--frozen and --adapters are of estimates alone: cstool run trains all weights\n" in found
    document = cstool(*FLAGS, "--adapters", "rank=16,layers=q,v", "--json").document["modelled"]
    assert document["trained_parameters"] == count
    assert "trained  " not in cstool(*FLAGS).stdout


def test_choices_of_what_is_computed_again_side_by_side(cstool):
    found = cstool(*FLAGS, "--recompute_table").stdout
    title = "activations that are computed again in the backward pass, choice by choice, modelled\n"
    table = found.partition(title)[2].splitlines()
    assert [row.split()[0] for row in table[:5]] == ["--recompute", "none", "all", "needed", "fastest"]
    rows = cstool(*FLAGS, "--recompute_table", "--json").document["modelled"]["recompute"]
    steps = {row["recompute"]: row["step_s"] for row in rows}
    assert steps["fastest"] == min(steps.values())
    assert [row["levels"] for row in rows[:2]] == [0, 1]
    assert all(row["sram_used_bytes"] <= 49152 for row in rows)


def test_a_choice_that_does_not_fit_says_why(cstool):
    """Layers of 100,000: of one sample nothing fits but with layers computed again."""
    wide = ("--set", "trainer.init.model.hidden_size=24576", "--set", "trainer.init.model.filter_size=98304")
    found = cstool("estimate", "-p", "gpt.yaml", *FLAGS[3:], *wide, "--recompute_table").stdout
    assert "\nnone: left out: gpt.yaml: " in found
