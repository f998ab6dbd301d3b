"""`cstool estimate`: what it prints, writes and refuses."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from cstool.estimation import calibrate as calibrate_module
from cstool.machine import grains
from cstool.run.report import host_rates
from tests.hosts import round_rates

pytestmark = pytest.mark.usefixtures("estimated")
NODES_1 = "trainer.init.memoryx.nodes=1"
NUM_CSX = "trainer.init.backend.cluster_config.num_csx"


@pytest.mark.takes("a report with all its tables, of a model of 24 layers")
def test_the_report_with_its_tables(cstool, golden):
    stdout = cstool(
        "estimate", "-p", "gpt.yaml", "--num_csx", "1,2,4..192", "--sparsity", "0,0.5,0.9", "--tokens", "300B"
    ).said
    golden("cli/estimate.txt", stdout)


def test_a_pipelined_model(cstool, golden):
    stdout = cstool("estimate", "-p", "fc.yaml", "--num_csx", "1,2", "--execution_mode", "pipelined").said
    golden("cli/estimate_pipelined.txt", stdout)


def test_a_sparse_model_says_so(cstool):
    flags = ("-p", "gpt.yaml", "--sparsity", "0.75", "--execution_mode")
    streamed = cstool("estimate", *flags, "weight_streaming").stdout
    # Of 24 layers, 4 x 2048^2 + 2 x 2048 x 8192 weights each.
    zeros = 24 * 3 * (4 * 2048**2 + 2 * 2048 * 8192) // 4
    assert f"zeros           {zeros:,} of all weights, 68.9%, are not stored, streamed or multiplied\n" in streamed
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
    assert cstool("estimate", "-p", "gpt.yaml", *flags).code == 0
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
    assert (found["on_one_host"], found["num_csx"], found["grains"], found["lanes"]) == (False, 2, [2, 2], [1, 1])
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
