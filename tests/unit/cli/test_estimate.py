"""`cstool estimate`: what it prints, writes and refuses."""

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.estimation import calibrate as calibrate_module
from cstool.machine import grains
from cstool.run.report import host_rates
from tests.hosts import round_rates

GPT: dict[str, Any] = yaml.safe_load("""
init:
  model: {name: gpt3, vocab_size: 50257, hidden_size: 2048, num_heads: 16, num_hidden_layers: 24, filter_size: 8192,
          max_position_embeddings: 2048}
  optimizer: {AdamW: {learning_rate: 0.1}}
  precision: {max_gradient_norm: 1.0}
  loop: {max_steps: 5}
fit:
  train_dataloader: {data_processor: GptHDF5MapDataProcessor, data_dir: ., batch_size: 512}
""")
FC: dict[str, Any] = yaml.safe_load("""
init:
  model: {name: fc_mnist, hidden_sizes: [256, 128]}
  optimizer: {SGD: {learning_rate: 0.1}}
  loop: {max_steps: 5}
fit:
  train_dataloader: {data_processor: MNISTDataProcessor, data_dir: ., batch_size: 120}
""")
NODES_1 = "trainer.init.memoryx.nodes=1"
NUM_CSX = "trainer.init.backend.cluster_config.num_csx"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gpt.yaml").write_text(yaml.safe_dump({"trainer": GPT}))
    Path("fc.yaml").write_text(yaml.safe_dump({"trainer": FC}))


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
    flags = ("-p", "gpt.yaml", "--execution_mode", "weight_streaming", "--json")
    dense = cstool("estimate", *flags).document["modelled"]
    over = ("--set", "trainer.init.sparsity=0.9", "--sparsity", "0,0.5")
    found = cstool("estimate", *flags, *over).document["modelled"]
    assert found["step_s"] == dense["step_s"]
    assert [row["zero_weights"] > 0 for row in found["sparsities"]] == [False, True]


def test_the_document_has_the_kernels_of_the_compiler_and_everything_modelled_under_that_name(cstool):
    flags = ("-p", "gpt.yaml", "--execution_mode", "weight_streaming")
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


def test_rows_go_into_a_file(cstool):
    flags = ("--num_csx", "1,2,5", "--sparsity", "0,0.9", "--csv", "rows.csv")
    outcome = cstool("estimate", "-p", "gpt.yaml", *flags)
    assert outcome.code == 0
    rows = list(csv.DictReader(Path("rows.csv").read_text().splitlines()))
    shown = [(row["num_csx"], row["sparsity"]) for row in rows]
    assert shown == [("1", "0.0"), ("2", "0.0"), ("5", "0.0"), ("1", "0.0"), ("1", "0.9")]
    assert float(rows[1]["speedup"]) > 1.9
    assert rows[2]["step_s"] == ""
    assert rows[2]["why"] == "--num_csx: must divide batch_size (512), got 5"


def test_a_timeline_is_written(cstool):
    outcome = cstool("estimate", "-p", "gpt.yaml", "--num_csx", "4", "--trace", "step.json")
    assert outcome.code == 0
    document = json.loads(Path("step.json").read_text())
    assert document["otherData"]["kind"] == "modelled"


@pytest.mark.usefixtures("predicted_once")
def test_published_results(cstool, golden):
    golden("cli/estimate_validate.txt", cstool("estimate", "--validate").said)


@pytest.mark.usefixtures("predicted_once")
def test_published_results_for_scripts(cstool):
    found = cstool("estimate", "--validate", "--json").document
    assert found["errors"]["fitted"]["count"] == 6
    assert found["errors"]["held out"]["count"] >= 30
    assert found["held_out_within_range"] >= 0.8 * found["errors"]["held out"]["count"]
    assert found["held_out"]["training"]["median"] < 0.1
    assert found["held_out"]["training"]["average"] < 0.15
    left_out = {result["name"] for result in found["results"] if result["left_out"] is not None}
    assert left_out == {"llama_7b_cs2", "gptj_6b_2_cs2"}
    assert all(result["modelled"] > 0 for result in found["results"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--params is missing\nhint: cstool estimate --params FILE, or cstool estimate --validate"),
        (("-p", "gpt.yaml", "--num_csx", "none"),
         "--num_csx: must be numbers of systems, got none\nhint: such as 4, or 1,2,4..192, where .. doubles"),
        (("-p", "gpt.yaml", "--memoryx", "20GB"),
         "gpt.yaml: MemoryX of cs2 must hold 21.1 GB: weights, optimizer state and gradients; got 20 GB\n"
         "hint: the smallest unit that holds it is 1.5 TB, of cs2: --system cs2 --memoryx 1.5TB"),
        (("-p", "two.yaml"), "--params: must be of one trainer, got 2 in two.yaml\nhint: estimate them apart"),
        (("-p", "gpt.yaml", "--tokens", "0"), "--tokens: must be more than zero, such as 300B, got 0"),
        (("-p", "gpt.yaml", "--sparsity", "-0.5"),
         "--sparsity: must be shares of zeros from 0 to below 1, got -0.5\nhint: such as 0,0.5,0.9"),
        (("-p", "gpt.yaml", "--set", "trainer.init.optimizer={Adafactor: {learning_rate: 0.1}}", "--sparsity", "0.5"),
         "--sparsity: must not be given with Adafactor, got 0.5\n"
         "hint: of sparse weights Adafactor keeps no state: AdamW, Lion or SGD trains them"),
        (("-p", "none.yaml"),
         "none.yaml:3: trainer.fit.train_dataloader.batch_size is missing"),
        (("-p", "no_loader.yaml"),
         "no_loader.yaml: trainer.fit.train_dataloader is missing: its batch_size is what a step is\n"
         "hint: --set trainer.fit.train_dataloader.batch_size=N gives one, with its data_processor and data_dir"),
        (("-p", "no_loader.yaml", "--system", "host"),
         "no_loader.yaml: trainer.fit.train_dataloader is missing: its batch_size is what a step is\n"
         "hint: --set trainer.fit.train_dataloader.batch_size=N gives one, with its data_processor and data_dir"),
        (("-p", "gpt.yaml", "--trace", "step.txt"), "--trace: must end in .json, got step.txt"),
        (("-p", "gpt.yaml", "--trace", "none/step.json"),
         "--trace: must be in a folder that can be written, got none/step.json: No such file or directory\n"
         "hint: create the folder first"),
        (("-p", "gpt.yaml", "--plot", "step.gif"), "--plot: must end in .svg or .png, got step.gif"),
        (("-p", "gpt.yaml", "--plot", "step"), "--plot: must end in .svg or .png, got step"),
        (("-p", "gpt.yaml", "--plot", "none/a.png"), "none/a.png: cannot be written: No such file or directory"),
        (("-p", "gpt.yaml", "--csv", "none/rows.csv"), "none/rows.csv: cannot be written: No such file or directory"),
        (("-p", "gpt.yaml", "--csv", "gpt.yaml"), "--csv: must end in .csv, got gpt.yaml"),
        (("-p", "gpt.yaml", "--csv", "folder.csv"), "--csv: must be a file, got a folder: folder.csv"),
        (("-p", "gpt.yaml", "--plot", "a.svg", "--plot", "./a.svg"),
         "--plot: must be another file than --plot, got a.svg"),
        (("-p", "gpt.yaml", "--num_csx", "1..1000"),
         "--num_csx: must be at most 192, the systems of a cluster of cs2, got 1,000\n"
         "hint: --system cs3 has clusters of that size"),
        (("-p", "gpt.yaml", "--num_csx", "2", "--system", "lone.yaml"),
         "--num_csx: must be 1: lone has no SwarmX, got 2"),
        (("-p", "gpt.yaml", "--memoryx", "abc"), "--memoryx: must be a number, such as 12TB, got abc"),
        (("--validate", "--plot", "x.svg"), "--plot: must be left out beside --validate, where it has no effect"),
        (("--validate", "-p", "gpt.yaml"), "--params: must be left out beside --validate, where it has no effect"),
        (("-p", "gpt.yaml", "--system", "host", "--num_csx", "4"),
         "--num_csx: must be left out beside --system host, where it has no effect"),
        (("--system", "host", "--tokens", "1B"),
         "--tokens: must be left out beside --system host, where it has no effect"),
        (("-p", "gpt.yaml", "--num_csx", "8..4"),
         "--num_csx: must go up in 8..4, got 8..4\nhint: such as 4, or 1,2,4..192, where .. doubles"),
        (("-p", "gpt.yaml", "--calibrate"), "--calibrate: must stand beside --system host, got --system cs2"),
        (("-p", "fc.yaml", "--ranks", "2"), "--ranks: must stand beside --system host, got --system cs2"),
        (("-p", "fc.yaml", "--link", "1Gb/s", "--system", "cs3"),
         "--link: must stand beside --system host, got --system cs3"),
        (("--system", "host", "--ranks", "2"),
         "--ranks: must be left out beside --system host, where it has no effect"),
        (("-p", "fc.yaml", "--system", "host", "--link", "1Gb/s"),
         "--link: must stand beside --ranks of 2 or more, got --ranks 1"),
        (("-p", "fc.yaml", "--system", "host", "--ranks", "2"),
         "--ranks: must be at most 1, the num_csx of fc.yaml, got 2\n"
         "hint: --set trainer.init.backend.cluster_config.num_csx=N, where N divides the batch_size, 120"),
        (("-p", "fc.yaml", "--system", "host", "--ranks", "7", "--set", f"{NUM_CSX}=7"),
         "num_csx: must divide the batch_size (120) of fc.yaml: trainer.fit.train_dataloader, got 7\n"
         "hint: 6 and 8 are the nearest; all that do: 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60, 120"),
        (("-p", "fc.yaml", "--system", "host", "--ranks", "5", "--set", f"{NUM_CSX}=6"),
         "--ranks: must be at most 4, the grains of a batch of 120 samples, got 5\n"
         "hint: a larger batch_size has more of them"),
        (("-p", "fc.yaml", "--system", "host", "--ranks", "2", "--set", f"{NUM_CSX}=2", "--link", "10Gb"),
         "--link: must be a rate of bits (b) or bytes (B), perhaps with a latency, got 10Gb\n"
         "hint: such as 10Gb/s, 1.25GB/s, or 1Gb/s,5ms"),
    ],
)  # fmt: skip
def test_what_cannot_be_estimated(cstool, monkeypatch, flags, message):
    monkeypatch.setattr(host_rates, "rates_file", lambda: write_rates())
    document = {"trainer": {"init": GPT["init"]}}
    Path("no_loader.yaml").write_text(yaml.safe_dump(document))
    Path("folder.csv").mkdir()
    Path("lone.yaml").write_text("extends: cs2\nswarmx: null\n")
    Path("two.yaml").write_text(yaml.safe_dump({"trainer": [{"trainer": GPT}, {"trainer": GPT}]}))
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": "."}
    Path("none.yaml").write_text(
        yaml.safe_dump({"trainer": {"fit": {"train_dataloader": loader}, "init": GPT["init"]}})
    )
    before = sorted(Path().iterdir())
    outcome = cstool("estimate", *flags)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (2, "", f"error: {message}\n")
    assert sorted(Path().iterdir()) == before


def write_rates() -> Path:
    """Write the rates, as their file has them, where they are looked for, outside of the folder of the test."""
    path = Path("..").resolve() / "host.yaml"
    path.write_text(yaml.safe_dump(asdict(round_rates())))
    return path


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
    names = ["step", "forward", "backward", "the rest", "ranks", "grains", "weights", "gradients"]
    names += ["wire", "link", "SwarmX"]
    assert [line.partition("  ")[0].strip() for line in here] == [*names, "MemoryX"]
    assert [line.partition("  ")[0].strip() for line in linked] == [*names, "MemoryX"]
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
    assert {name: found[name] for name in ("on_one_host", "num_csx", "grains", "lanes", "link")} == {
        "on_one_host": False,
        "num_csx": 2,
        "grains": [2, 2],
        "lanes": [1, 1],
        "link": {"bytes_per_s": 1.25e8, "latency_s": 5e-3, "both_ways": True},
    }
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
