"""`cstool estimate`: what it prints, writes and refuses."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cstool.plan.commands.compile_report import number_text
from cstool.plan.timing.resources import COORDINATOR, HOSTS, NORM, SERVERS, WORKERS
from cstool.training.host import calibrate as calibrate_module
from cstool.training.host import rates as host_rates
from cstool.training.machine import grains
from tests.hosts import round_rates
from tests.unit.cli.conftest import SMALL

pytestmark = pytest.mark.usefixtures("estimated")
NODES_1 = "trainer.init.memoryx.nodes=1"
NUM_CSX = "trainer.init.backend.cluster_config.num_csx"


@pytest.mark.takes("a report with all its tables, of a model of 24 layers")
def test_the_report_with_its_tables_streamed_and_pipelined(cstool, golden):
    asked = ("-p", "gpt.yaml", "--num_csx", "1,64..192", "--sparsity", "0,0.9", "--tokens", "300B")
    golden("cli/estimate.txt", cstool("estimate", *asked).said)
    asked = ("-p", "fc.yaml", "--num_csx", "1,2", "--execution_mode", "pipelined")
    golden("cli/estimate_pipelined.txt", cstool("estimate", *asked).said)


@pytest.mark.takes("four more searches for a layout, of a model of 24 layers")
@pytest.mark.parametrize(
    ("flags", "name", "key", "text", "gain"),
    [
        pytest.param(
            *(("gpt.yaml", "--num_csx", "4"), "faster batch", "smaller_batch"),
            *("480 samples, 120 to a system", "{:.1%} more"),
            marks=pytest.mark.lab,
        ),
        (("fc.yaml", "--num_csx", "2"), "fewer systems", "fewer_systems", "1 with this batch", "{1:.1f} times as many"),
    ],
)
def test_a_smaller_batch_and_fewer_systems_that_are_faster_are_named(cstool, flags, name, key, text, gain):
    modes = {"smaller_batch": "weight_streaming", "fewer_systems": "pipelined"}
    asked = ("estimate", "-p", *flags, "--execution_mode", modes[key])
    found = cstool(*asked, "--json").document["modelled"]
    other = found.pop(key)
    assert other["samples_per_s"] == pytest.approx((1 + other["gain"]) * found["samples_per_s"])
    assert other["step_s"] == pytest.approx(other["batch_size"] / other["samples_per_s"])
    assert other["gain"] > 0.01
    rates = f"{number_text(other['samples_per_s'])} samples/s, {gain.format(other['gain'], 1 + other['gain'])}"
    lines = [" ".join(line.split()) for line in cstool(*asked).stdout.splitlines()]
    assert [line for line in lines if line.startswith(name)] == [f"{name} {text}: {rates}"]
    # Of the other there is none.
    assert {found.get(each, None) for each in modes} == {None}


def test_a_sparse_model_says_so(cstool):
    flags = ("-p", "small.yaml", "--sparsity", "0.75", "--execution_mode")
    streamed = cstool("estimate", *flags, "weight_streaming").stdout
    # Of 2 layers, 4 x 512^2 + 2 x 512 x 8192 weights each.
    zeros = 2 * 3 * (4 * 512**2 + 2 * 512 * 8192) // 4
    assert f"zeros           {zeros:,} of all weights, 31.0%, are not stored, streamed or multiplied\n" in streamed
    assert cstool("estimate", *flags, "weight_streaming", "--json").document["modelled"]["zero_weights"] == zeros
    pipelined = cstool("estimate", "-p", "fc.yaml", "--sparsity", "0.5", "--execution_mode", "pipelined").stdout
    assert "note: sparsity gains nothing here: pipelined keeps zeros on the wafer and computes with them\n" in pipelined


def test_the_first_share_of_zeros_takes_the_place_of_that_of_the_file(cstool):
    flags = ("estimate", "-p", "small.yaml", "--execution_mode", "weight_streaming", "--json")
    dense = cstool(*flags).document["modelled"]
    over = ("--set", "trainer.init.sparsity=0.9", "--sparsity", "0,0.5")
    found = cstool(*flags, *over).document["modelled"]
    assert found["step_s"] == dense["step_s"]
    assert [row["zero_weights"] > 0 for row in found["sparsities"]] == [False, True]


def test_the_document_has_the_kernels_of_the_compiler_and_everything_modelled_under_that_name(cstool):
    flags = ("-p", "small.yaml", "--execution_mode", "weight_streaming")
    found = cstool("estimate", *flags, "--num_csx", "1,4", "--sparsity", "0,0.5", "--json").document
    assert list(found) == ["model", "parameters", "system", "modelled"]
    modelled = found["modelled"]
    assert modelled["num_csx"] == 1
    assert modelled["tokens_per_s"] == pytest.approx(512 * 2048 / modelled["step_s"])
    assert [row["num_csx"] for row in modelled["scaling"]] == [1, 4]
    assert [row["sparsity"] for row in modelled["sparsities"]] == [0, 0.5]
    assert modelled["longest_resource_s"] <= modelled["step_s"] <= modelled["serial_s"]
    compiled = cstool("compile", *flags, "--recompute", "fastest", "--out", "a.json", "--json")
    assert compiled.code == 0
    artifact = json.loads(Path("a.json").read_text())
    kernels = [kernel for kernels in artifact["streaming"]["kernels"] for kernel in kernels]
    assert len(kernels) == len(modelled["kernels"])
    for ours, theirs in zip(modelled["kernels"], kernels, strict=True):
        assert ours["name"] == theirs["name"]
        for phase in ("forward", "delta", "gradient"):
            assert {key: ours[phase][key] for key in theirs["cycles"][phase]} == theirs["cycles"][phase]


def test_rows_and_a_timeline_go_into_files(cstool):
    flags = ("--num_csx", "1,2,5", "--sparsity", "0,0.9", "--csv", "rows.csv", "--trace", "step.json")
    assert cstool("estimate", "-p", "small.yaml", "--execution_mode", "weight_streaming", *flags).code == 0
    rows = list(csv.DictReader(Path("rows.csv").read_text().splitlines()))
    shown = [(row["num_csx"], row["sparsity"]) for row in rows]
    assert shown == [("1", "0.0"), ("2", "0.0"), ("5", "0.0"), ("1", "0.0"), ("1", "0.9")]
    assert float(rows[1]["speedup"]) > 1.9
    assert (rows[2]["step_s"], rows[2]["why"]) == ("", "--num_csx: must divide batch_size (512), got 5")
    assert json.loads(Path("step.json").read_text())["otherData"]["kind"] == "modelled"


@pytest.mark.lab
@pytest.mark.usefixtures("predicted_once")
def test_published_results(cstool, golden):
    golden("cli/estimate_validate.txt", cstool("estimate", "--validate").said)
    found = cstool("estimate", "--validate", "--json").document
    assert found["errors"]["fitted"]["count"] == 6
    assert found["errors"]["held out"]["count"] >= 30
    left_out = {result["name"] for result in found["results"] if result["left_out"] is not None}
    assert left_out == {"llama_7b_cs2", "gptj_6b_2_cs2"}
    assert all(result["modelled"] > 0 for result in found["results"])
    far_off = [each for each in found["results"] if each["use"] == "held out" and abs(each["error"]) > 0.6]
    assert all(result["reason"] for result in far_off)


def test_a_step_on_this_host(cstool, monkeypatch):
    monkeypatch.setattr(host_rates, "rates_file", lambda: Path("host.yaml"))
    host_rates.save_rates(round_rates())
    lines = cstool("estimate", "--system", "host", "-p", "fc.yaml", "--tokens", "1M").said.splitlines()
    assert lines[0] == "fc_mnist: 235,146 parameters, batches of 120 samples"
    assert lines[1].endswith("Predicted from what was measured on it; nothing ran.")
    assert [line.partition("  ")[0].strip() for line in lines[3:]] == [
        "step", "forward", "backward", "the rest", "grains", "MemoryX", "training",
    ]  # fmt: skip
    document = cstool("estimate", "--system", "host", "-p", "fc.yaml", "--json").document
    assert document["rates"]["measured_now"] is False
    assert document["predicted"]["step_s"] > 0


def test_a_step_on_several_ranks(cstool, monkeypatch):
    """Two ranks with two of four grains each; every weight goes out twice, its gradient comes back once.

    Rank 0 keeps the 784 x 256 numbers of the first layer, and rank 1 the other 34,442.
    """
    monkeypatch.setattr(host_rates, "rates_file", lambda: Path("host.yaml"))
    host_rates.save_rates(replace(round_rates(), cores=2))
    monkeypatch.setattr(host_rates, "available_cores", lambda: 2)
    monkeypatch.setattr(grains, "available_cores", lambda: 2)
    flags = ("estimate", "--system", "host", "-p", "fc.yaml", "--ranks", "2", "--set", f"{NUM_CSX}=2")
    here, linked = (cstool(*flags, *link).said.splitlines()[3:] for link in ((), ("--link", "1Gb/s,5ms")))
    names = "step,forward,backward,the rest,ranks,grains,weights,gradients,wire,link,SwarmX,MemoryX".split(",")
    for lines in (here, linked):
        assert [line.partition("  ")[0].strip() for line in lines] == names
    assert here[4:8] == [
        "ranks      2, all on this host, with 2 CSX",
        "grains     of 30 samples, by rank: 2 each; lanes: 1 each",
        "weights    sent in a step, by rank: 1.61 MB, 276 kB",
        "gradients  sent in a step at most, by rank: 138 kB, 803 kB",
    ]
    # 940,584 B, and twice that, at 8 GB/s; at 125 MB/s rank 0 sends 802,816 B, and 137,768 B more on the way back.
    assert here[8:10] == [
        "wire       352.7 us of the busiest link: forward 117.6 us, on the way back 235.1 us",
        "link       8 GB/s both ways together: copies in memory, as measured on this host",
    ]
    assert linked[4] == "ranks      2, each on a host like this one, with 2 CSX"
    assert linked[8:10] == [
        "wire       13.95 ms of the busiest link: forward 6.423 ms, on the way back 7.525 ms",
        "link       0.125 GB/s each way, 5 ms of latency, as --link says",
    ]
    three = cstool(*flags[:5], "--ranks", "3", "--set", f"{NUM_CSX}=3").said.splitlines()[3:]
    assert three[5] == "grains     of 30 samples, by rank: 1, 1, 2; lanes: 1 each"
    assert three[6] == "weights    sent in a step, by rank: 3.21 MB, 524 kB, 26.8 kB"
    assert three[-1] == "MemoryX    in memory, shared out among 3 ranks"
    alone = cstool(*flags[:5], "--ranks", "3", "--set", f"{NUM_CSX}=3", "--set", NODES_1).said.splitlines()[3:]
    assert alone[6:8] == [
        "weights    sent in a step, by rank: 3.76 MB, 0 B, 0 B",
        "gradients  sent in a step at most, by rank: 0 B, 941 kB, 941 kB",
    ]
    assert alone[-1] == "MemoryX    in memory"
    document = cstool(*flags, "--link", "1Gb/s,5ms", "--json").document["predicted"]
    found = document["ranks"]
    assert (found["on_one_host"], found["num_csx"], found["grains"], found["lanes"]) == (False, 2, [2, 2], [2, 2])
    assert found["link"] == {"bytes_per_s": 1.25e8, "latency_s": 5e-3, "both_ways": True}
    first, others = 4 * 784 * 256, 4 * (235_146 - 784 * 256)
    assert found["traffic"]["forward_bytes"] == found["traffic"]["backward_bytes"] == [first, others]
    assert found["traffic"]["gradient_bytes"] == [[0, others], [first, 0]]
    assert found["traffic"]["sent_bytes"] == [2 * first + others, 2 * others + first]
    assert found["wire_s"] == pytest.approx({"forward": first / 1.25e8, "backward": (first + others) / 1.25e8})
    assert document["step_s"] > sum(found["wire_s"].values()) + 4 * 5e-3
    assert found["swarmx_share"] == pytest.approx(found["swarmx_s"] / document["step_s"])
    assert "ranks" not in cstool(*flags[:5], "--json").document["predicted"]


def test_this_host_is_measured_where_nobody_did(cstool, monkeypatch):
    monkeypatch.setattr(host_rates, "rates_file", lambda: Path("host.yaml"))
    monkeypatch.setattr(calibrate_module, "calibrate", lambda folder, report: round_rates())
    outcome = cstool("estimate", "--system", "host")
    assert outcome.code == 0
    assert outcome.stdout.startswith("Measuring what this host can do: half a minute, best while nothing else runs.\n")
    assert host_rates.load_rates() == round_rates()
    monkeypatch.setattr(calibrate_module, "calibrate", lambda folder, report: 1 / 0)
    assert "kernel, pass" in cstool("estimate", "--system", "host").stdout


# What a job costs, frozen weights, adapters, choices of what is computed again.


STREAMED = ("estimate", "-p", "small.yaml", "--execution_mode", "weight_streaming")


def section(text: str, title: str) -> dict[str, str]:
    """Return the rows of a section: name -> text."""
    _, _, rest = text.partition(f"\n{title}\n")
    rows = rest.partition("\n\n")[0].splitlines()
    return {name.strip(): said.strip() for name, _, said in (row.partition("  ") for row in rows)}


def test_what_a_job_costs(cstool):
    asked = ("--tokens", "300B", "--price", "100", "--mtbf", "2000", "--checkpoint_rate", "1GB")
    said = section(cstool(*STREAMED, *asked).stdout, "what a job costs, modelled")
    assert list(said) == [
        *("training", "checkpoints", "failures", "expected", "servers", "power", "energy", "price", "80% interval"),
        "input workers",
    ]
    assert "at 1 GB/s, as --checkpoint_rate says" in said["checkpoints"]
    assert said["failures"].startswith("one every 83.3 days, ")
    assert said["price"].endswith(" hours of a system")
    made = cstool(*STREAMED, *asked, "--json").document["modelled"]["cost"]
    assert made["kind"] == "modelled"
    assert made["price"] == pytest.approx(100 * made["expected_s"] / 3600)
    assert made["mwh"] == pytest.approx(sum(made["energy_j"].values()) / 3.6e9)
    assert made["checkpoints"]["interval_from"] == "best"


def test_what_was_not_asked_for_is_not_told(cstool):
    said = section(cstool(*STREAMED, "--tokens", "1B").stdout, "what a job costs, modelled")
    assert "price" not in said
    assert "failures" not in said
    assert said["expected"].endswith("; --mtbf adds failures")
    plain = cstool(*STREAMED).stdout
    assert [text for text in ("what a job costs", "trained  ") if text in plain] == []
    assert cstool(*STREAMED, "--json").document["modelled"]["cost"] is None


def test_a_job_on_several_numbers_of_systems(cstool):
    asked = ("--tokens", "300B", "--price", "100", "--num_csx", "1,4,16")
    found = cstool(*STREAMED, *asked).stdout
    table = found.partition("what the job costs on so many systems, modelled\n")[2].splitlines()
    assert table[0].split("  ")[0].strip() == "num_csx"
    assert [row.split()[0] for row in table[1:4]] == ["1", "4", "16"]
    document = cstool(*STREAMED, *asked, "--json").document["modelled"]
    costs = [document["cost"], *document["costs"]]
    assert [made["num_csx"] for made in costs] == [1, 4, 16]
    assert costs[0]["work_s"] > costs[1]["work_s"] > costs[2]["work_s"]


def test_a_system_of_which_nothing_is_known(cstool):
    """CS-1: no MemoryX, no servers, no rates."""
    asked = ("estimate", "-p", "fc.yaml", "--system", "cs1", "--tokens", "1B")
    said = section(cstool(*asked).stdout, "what a job costs, modelled")
    assert said["servers"] == "nothing is known of them on this system: they are left out"
    assert "nothing is known of it on cs1, they are taken to need no time; --checkpoint_rate" in said["checkpoints"]
    assert said["input workers"].endswith("; nothing is known of images: --worker_rate says how many that takes")


def test_of_models_of_images_neither_workers_nor_a_range_are_known(cstool):
    asked = ("estimate", "-p", "fc.yaml", "--num_csx", "1,2", "--tokens", "1B")
    said = cstool(*asked, "--software", "2.0").stdout
    assert said.count("80% interval") == 1
    assert re.search("80% interval +not known: no result of a model of images was published\n", said)
    hosts = "1 input worker taken to keep up (how fast they decode images is not known) and 1 activation server"
    assert f"release 2.0: {hosts} to a system" in said
    assert len(re.findall("^ +[12] .*s  not known  ", said, flags=re.MULTILINE)) == 2
    document = cstool(*asked, "--json").document["modelled"]
    assert [document["band"], document["cost"]["band"]] == [None, None]
    assert cstool(*asked, "--csv", "rows.csv").code == 0
    with Path("rows.csv").open() as file:
        assert {(row["step_low_s"], row["step_high_s"]) for row in csv.DictReader(file)} == {("", "")}


def test_adapters_say_how_much_is_trained(cstool):
    found = cstool(*STREAMED, "--adapters", "rank=16,layers=q,v").stdout
    # 2 layers, two matrices of 512 by 512 in each.
    count = 2 * 2 * 16 * (512 + 512)
    assert f"\ntrained         {count:,} of " in found
    assert "all of them of adapters; the others are frozen: no gradient, no update, no optimizer state\n" in found
    document = cstool(*STREAMED, "--adapters", "rank=16,layers=q,v", "--json").document["modelled"]
    assert document["trained_parameters"] == count


def test_choices_of_what_is_computed_again_side_by_side(cstool):
    found = cstool(*STREAMED, "--recompute_table").stdout
    title = "activations recomputed in the backward pass, choice by choice, modelled\n"
    table = found.partition(title)[2].splitlines()
    assert [row.split()[0] for row in table[:5]] == ["--recompute", "none", "all", "needed", "fastest"]
    rows = cstool(*STREAMED, "--recompute_table", "--json").document["modelled"]["recompute"]
    steps = {row["recompute"]: row["step_s"] for row in rows}
    assert steps["fastest"] == min(steps.values())
    assert [row["levels"] for row in rows[:2]] == [0, 1]
    assert all(row["sram_used_bytes"] <= 49152 for row in rows)


def test_a_choice_that_does_not_fit_says_why(cstool):
    """Layers of 100,000: of one sample nothing fits but with layers computed again."""
    wide = ("--set", "trainer.init.model.hidden_size=24576", "--set", "trainer.init.model.filter_size=98304")
    found = cstool("estimate", "-p", "gpt.yaml", *STREAMED[3:], *wide, "--recompute_table").stdout
    assert "\nnone: left out: gpt.yaml: " in found


# Of other things: GPUs, a model that answers, hosts and their software, adapters of the file.


def test_gpus_and_how_many_are_as_fast(cstool):
    asked = ("estimate", "-p", "gpt3_xl", "--gpus", "16")
    gpus = cstool(*asked, "--json").document["gpus"]
    (row,) = gpus["rows"]
    assert (gpus["gpu"], row["gpus"], row["kind"]) == ("a100", 16, "modelled")
    split = row["split"]
    assert split["tensor"] * split["stages"] * split["data"] == 16
    assert gpus["as_fast"]["tokens_per_s"] > 0
    # The legend of splits is above its table, and the last line says why not half as many.
    lines = cstool(*asked).stdout.splitlines()
    assert lines[-3].startswith("GPUs  split ")
    assert lines[-4] == ("split: tensor x stages x copies, samples of a micro-batch, parts of a stage, recomputation")
    assert lines[-1] == "as fast as 1 system with 195,181 tokens/s: 16, of those that are powers of two; 8 have 147,182"


# A trained model that answers

INFER = ("-p", "llama3_8b", "--system", "cs3", "--mode", "infer", "--prompt_tokens", "2048", "--new_tokens", "512")


def test_answers_in_words_and_as_a_document(cstool, golden):
    golden("cli/estimate_infer.txt", cstool("estimate", *INFER, "--batch", "1,8,64,100000", "--num_csx", "1").stdout)
    document = cstool("estimate", *INFER, "--batch", "1,8,100000", "--json").document
    assert (document["model"], document["prompt_tokens"], document["new_tokens"]) == ("llama", 2048, 512)
    one, eight, many = document["modelled"]["batches"]
    assert many == {"users": 100000, "fits": False, "why": many["why"]}
    assert one["kind"] == "modelled"
    assert one["answer_s"] == one["first_token_s"] + 511 * one["token_s"]
    assert one["tokens_per_s"] == pytest.approx(one["tokens_per_s_each"])
    assert eight["tokens_per_s"] > one["tokens_per_s"]
    assert sum(one["spent_s"].values()) == pytest.approx(one["token_s"])
    band = one["band"]
    assert (band["share"], band["results"], band["of"]) == (0.8, 2, "inference")
    assert band["token_s"] == pytest.approx([band["low"] * one["token_s"], band["high"] * one["token_s"]])
    assert band["tokens_per_s_each"] == pytest.approx([1 / seconds for seconds in reversed(band["token_s"])])
    assert band["high"] / band["low"] > 1.3, "two results say little"


# Hosts

OF_HOSTS = ("-p", "small.yaml", "--system", "cs3", "--execution_mode", "weight_streaming", "--software", "2.6")


def test_hosts_in_words_in_the_document_and_in_the_timeline(cstool):
    """512 samples of 2,048 tokens are 1,048,576, which take a worker of 2,398,000 a second 437 ms."""
    lines = [" ".join(line.split()) for line in cstool("estimate", *OF_HOSTS).stdout.splitlines()]
    assert "hosts release 2.6: 1 input worker of 2,398,000 tokens/s and 1 activation server to a system" in lines
    assert any(line.startswith("step 437.3 ms, bound by input workers") for line in lines)
    rows = {name: line for name in (WORKERS, *HOSTS) for line in lines if line.startswith(f"{name} ")}
    assert rows.keys() == {WORKERS, SERVERS, COORDINATOR, NORM}
    assert rows[WORKERS].endswith("437.3 ms 100.0%")
    more = cstool("estimate", *OF_HOSTS, "--num_workers_per_csx", "8").stdout
    assert "release 2.6: 8 input workers of 2,398,000 tokens/s and 2 activation servers to a system" in more
    modelled = cstool("estimate", *OF_HOSTS, "--trace", "t.json", "--json").document["modelled"]
    assert modelled["software"]["release"] == "2.6"
    assert modelled["software"]["worker_tokens_per_s"] == 2.398e6
    assert modelled["resources"][WORKERS]["busy"] == pytest.approx(1)
    assert modelled["bound_by"] == WORKERS
    ideal = cstool("estimate", *OF_HOSTS[:-2], "--json").document["modelled"]
    assert ideal["software"] is None
    assert not set(HOSTS) & set(ideal["resources"])
    assert ideal["step_s"] < modelled["step_s"]
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    named = {event["args"]["name"] for event in events if event["name"] in ("process_name", "thread_name")}
    assert {"input workers (modelled)", "activation servers (modelled)", "coordinator (modelled)"} <= named
    assert "norm of all gradients" in named


def test_an_estimate_has_the_adapters_of_the_file(cstool):
    callback = {"Lora": {"lora_params": {"r": 8, "alpha": 16.0, "target_modules": ["MultiheadAttention", "Linear"]}}}
    file = Path("lora.yaml")
    file.write_text(yaml.safe_dump({"trainer": {**SMALL, "init": {**SMALL["init"], "callbacks": [callback]}}}))
    asked = ("estimate", "-p", file, *STREAMED[3:])
    assert cstool(*asked, "--json").document["modelled"]["trained_parameters"] == 2 * 4 * 8 * (512 + 512)
    # What is typed wins.
    typed = cstool(*asked, "--adapters", "rank=1,layers=q", "--json").document["modelled"]
    assert typed["trained_parameters"] == 2 * (512 + 512)
