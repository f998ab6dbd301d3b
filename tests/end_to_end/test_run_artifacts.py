"""What a run leaves behind and says at its end: the log as others parse it, events, performance.json, the summary."""

import contextlib
import json
import os
import re
import shlex
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cstool.model.graphs.statistics import count_statistics
from cstool.model.params import load_params
from cstool.training.host import rates as host_rates
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.data_sets import check_data
from cstool.training.machine.inputs import InputWorker
from cstool.training.machine.memoryx.stream import WeightStream
from cstool.training.run import checkpoints
from cstool.training.run.run import run as run_module
from tests.end_to_end.pages import without_numbers
from tests.end_to_end.runs import gpt_params, run_file
from tests.end_to_end.worked import run
from tests.event_files import scalars_of
from tests.hosts import round_rates

EVALUATES = {"init__loop": {"max_steps": 5, "eval_frequency": 2, "eval_steps": 1}, "init__logging": {"log_steps": 2}}
SCHEDULE = {"LinearLR": {"initial_learning_rate": 0.0, "end_learning_rate": 0.01, "total_iters": 8}}
TRAIN = (
    r"\| Train Device=CSX, Step=(\d+), Loss=[^,]+, Rate=([\d.]+) samples/sec, GlobalRate=([\d.]+) samples/sec",
    r"\|\s*Train\b.*?\bStep=(\d+).*?\bRate=([0-9]*\.?[0-9]+).*?\bGlobalRate=([0-9]*\.?[0-9]+)\s+samples/sec",
    r"\| Train Device=.*Step=(\d+).*Rate=([\d\.]+) samples/sec, GlobalRate=([\d\.]+) samples/sec",
)
"""how scripts of the vendor's users read its log: the first is in several public repositories, the others are alike"""
EVAL = r"\|\s*Eval Device=CSX, GlobalStep=(\d+), Batch=(\d+), Loss=([\d.]+), .*\bGlobalRate=[\d.]+\s+samples/sec"
METRIC = r"\s+-\s+eval/accuracy\s+=\s+([\d\.]+)"
PROCESSED = r"Processed \d+ training sample\(s\) in ([\d\.]+) seconds\."
STAMP = r"^(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2},\d{3}) (INFO|WARNING):   "


def float32(value: float) -> float:
    (found,) = struct.unpack("<f", struct.pack("<f", value))
    return float(found)


def summary_of(log: str) -> dict[str, str]:
    """Return the lines of the summary of a run by name."""
    lines = [re.sub(STAMP, "", line) for line in log.splitlines()]
    rows = lines[lines.index("Run summary:") + 1 :]
    return {row.split()[0] if not row.startswith("  held") else "held out": row[2:] for row in rows}


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory, data) -> Path:
    """The model_dir of a run that trained and evaluated, and what it printed with --json, beside it."""
    folder = tmp_path_factory.mktemp("artifacts")
    file = gpt_params(folder, data, **EVALUATES, init__schedulers=[SCHEDULE])
    typed = ["run", "-p", str(file), "-m", "train_and_eval"]
    for name, more in (("stdout", []), ("document.json", ["--model_dir", str(folder / "again"), "--json"])):
        with (folder / name).open("w") as printed, contextlib.redirect_stdout(printed):
            assert run(*typed, *more) == 0
    return folder


@pytest.mark.parametrize("log", ["stdout", "model_dir/latest_run.log"])
def test_scripts_for_the_vendors_log_read_ours(artifacts, log):
    text = (artifacts / log).read_text()
    for pattern in TRAIN:
        assert [int(found[0]) for found in re.findall(pattern, text)] == [1, 2, 4, 5]
    assert [(found[0], found[1]) for found in re.findall(EVAL, text)] == [("2", "1"), ("4", "1"), ("5", "1")]
    assert len(re.findall(METRIC, text)) == 3
    assert len(re.findall(PROCESSED, text)) == 1
    lines = text.splitlines()
    assert all(re.match(STAMP, line) for line in lines)
    for words in (
        "Trainer Fit Summary",
        "Trainer will run 1 train loop.",
        "Validation will run every 2 steps, and after the last step.",
        "Checkpoints will be taken every 4 steps, and on the last step, for a total of 2 checkpoints.",
        "Progress will be logged every 2 steps.",
        "Starting train loop 1 of 1, from global step 1 to 5 (5 steps)",
        "Saving checkpoint at step 4",
        "Training completed successfully!",
    ):
        assert sum(line.endswith(f"INFO:   {words}") for line in lines) == 1, words


def test_tensorboard_reads_what_the_log_and_the_document_say(artifacts):
    document = json.loads((artifacts / "document.json").read_text())
    log = (artifacts / "model_dir" / "latest_run.log").read_text()
    found, again = (scalars_of(artifacts / name / "events") for name in ("model_dir", "again"))
    logged = {
        int(step): tuple(map(float, (loss, rate, global_rate, norm)))
        for step, loss, rate, global_rate, norm in re.findall(
            r"\| Train .*Step=(\d+), Loss=([^,]+), Rate=(\S+) .*GlobalRate=(\S+) .*GradientNorm=(\S+)", log
        )
    }
    tags = ("loss", "local_samples_per_sec", "avg_samples_per_sec", "model_wise_grad_norm")
    for column, rounding in enumerate((6e-6, 6e-3, 6e-3, 6e-6)):
        values = dict(found[tags[column]])
        assert values == pytest.approx({step: row[column] for step, row in logged.items()}, abs=rounding, rel=1e-6)
    assert found["loss"] == again["loss"] == [(s, float32(document["losses"][s - 1])) for s in (1, 2, 4, 5)]
    params = load_params(artifacts / "params.yaml")
    assert found["lr/0"] == [(step, float32(params.learning_rate(step - 1))) for step in (1, 2, 4, 5)]
    for tag, key in (("loss", "loss"), ("accuracy", "accuracy"), ("lm_perplexity", "perplexity")):
        expected = [(each["step"], float32(each[key])) for each in document["evaluations"]]
        assert found[f"eval/{tag}"] == again[f"eval/{tag}"] == expected
    ours = {"avg_steps_per_sec", "host/input_wait_share", "host/stream_wait_share", "host/peak_resident_bytes"}
    assert set(found) == {*tags, *ours, "lr/0", "eval/loss", "eval/accuracy", "eval/lm_perplexity"}
    assert found["host/peak_resident_bytes"][-1][1] <= float32(document["peak_resident_bytes"]) * 2


def test_performance_json_has_the_vendors_keys_and_ours_apart(artifacts):
    document = json.loads((artifacts / "document.json").read_text())
    found = json.loads((artifacts / "again" / "performance.json").read_text())
    assert os.readlink(artifacts / "again" / "performance.json").startswith("cerebras_logs/2")
    assert list(found) == ["total_samples", "total_time", "rate", "global_rate", "samples_per_sec", "host", "modelled"]
    assert found["total_samples"] == document["samples"] == 5 * 48
    assert found["samples_per_sec"] == found["global_rate"] == found["total_samples"] / found["total_time"]
    host = found["host"]
    assert host["wall_s"] == document["wall_s"] == sum(host["time_s"].values())
    assert (host["time_s"], host["steps"]) == (document["time_s"], 5)
    assert host["peak_resident_bytes"] == document["peak_resident_bytes"] > sum(host["allocated_bytes"].values())
    assert found["modelled"] == document["modelled"]


PREDICTED = r"Time per step on this host, predicted / measured: \S+ / \S+ s \([+-]\d+%\); forward "
UNPREDICTED = "Nothing was predicted for this host: `cstool estimate --system host` measures what it can do."


def test_of_a_calibrated_host_it_says_the_share_used_and_what_was_predicted(cstool, tmp_path, data, monkeypatch):
    monkeypatch.setattr(host_rates, "rates_file", lambda: tmp_path / "host.yaml")
    host_rates.save_rates(rates := round_rates())
    file = gpt_params(tmp_path, data)
    outcome = cstool("run", "-p", file, "--lanes", "1", "--json")
    assert re.search(PREDICTED, outcome.stderr)
    assert outcome.document["predicted"]["step"]["predicted"] > 0
    found = json.loads((tmp_path / "model_dir" / "performance.json").read_text())
    flops = count_statistics(check_data(load_params(file), "train")).sample_flops.total * found["global_rate"]
    peak = 1 / rates.costs["linear forward"].flop_s
    assert found["host"]["flops_per_s"] == pytest.approx(flops)
    assert found["flops_utilization"] == pytest.approx(flops / peak)
    assert found["host"]["flops_utilization_of"] == (
        f"products of linear ops on 1 of {rates.cores} cores of {rates.cpu}, as `cstool estimate --system host` "
        "measured them"
    )
    (tmp_path / "host.yaml").unlink()
    assert UNPREDICTED not in cstool("run", "-p", file, "--max_steps", "5").stdout
    monkeypatch.setattr("cstool.training.run.train.WORTH_S", 0.0)
    assert UNPREDICTED in cstool("run", "-p", file, "--max_steps", "6").stdout


def test_the_summary_says_what_was_done_and_what_to_type_next(cstool, tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gpt_params(Path("r"), data, **EVALUATES, init__model_dir="out")
    flags = ("--num-csx", "2", "--set", "trainer.init.logging.log_steps=5", "trainer.init.seed=3", "--lanes", "1")
    first = cstool("run", "-p", "r/params.yaml", "-m", "train_and_eval", *flags, "--max_steps", "3")
    assert first.code == 0
    found = summary_of(first.stdout)
    typed = (
        "cstool run --params r/params.yaml --num_csx 2 --set trainer.init.logging.log_steps=5 --set "
        "trainer.init.seed=3 --lanes 1"
    )
    out = tmp_path / "out"
    assert list(found) == ["model", "trained", "held out", "time", "step", "memory", "files", "continue", "evaluate"]
    assert [without_numbers(row) for name, row in found.items() if name != "time"] == [
        without_numbers(row)
        for row in (
            "model     gpt2, 23,296 parameters; 2 CSX, 1 lane",
            "trained   steps 1 to 3: 144 samples, 17,519 tokens; loss 4.07976 to 3.77",
            "held out  loss 3.6, accuracy 0.3, lm_perplexity 37.1 (48 samples, after step 3)",
            "step      0.0951 s measured on this host (median); 6.34e-05 s modelled for 2 x cs2, pipelined",
            "memory    412.4 MB at the peak, 28.9 MB of arrays in it",
            f"files     {out}/checkpoint_3.mdl, {out}/latest_run.log, {out}/events".replace(str(tmp_path), "TMP"),
            f"continue  {typed} --mode train_and_eval --num_steps 3",
            f"evaluate  {typed} --mode eval",
        )
    ]
    assert re.match(r"time +\d+\.\d s: (computing|start-up) \d+\.\d", found["time"])
    assert found["trained"].startswith("trained   steps 1 to 3: 144 samples, ")
    assert found["continue"].split(maxsplit=1)[1] == f"{typed} --mode train_and_eval --num_steps 3"
    for name, steps in (("continue", "steps 4 to 6: "), ("evaluate", None)):
        outcome = cstool(*shlex.split(found[name].split(maxsplit=1)[1])[1:])
        assert outcome.code == 0, outcome.stderr
        after = summary_of(outcome.stdout)
        assert steps is None or steps in after["trained"]
    assert list(after) == ["model", "held out", "time", "memory", "files"]
    assert ", after step 6)" in after["held out"]


def test_where_the_latest_checkpoint_is_not_looked_for_it_is_named(cstool, tmp_path, data):
    file = gpt_params(tmp_path, data, init__checkpoint={"steps": 2, "autoload_last_checkpoint": False})
    command = cstool("run", "-p", file, "--json", "--num_steps", "2").document["commands"]["continue"]
    assert command == (
        "cstool run --params TMP/params.yaml --mode train --checkpoint_path TMP/model_dir/checkpoint_2.mdl "
        "--num_steps 2"
    )
    again = cstool(*shlex.split(command.replace("TMP", str(tmp_path)))[1:], "--json").document
    assert (again["first_step"], again["last_step"]) == (2, 4)


def test_an_interrupted_run_says_what_it_did_and_how_to_go_on(cstool, tmp_path, data, monkeypatch):
    train_step = Appliance.train_step

    def signalled(self: Appliance, *arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return train_step(self, *arguments)

    file = gpt_params(tmp_path, data)
    with monkeypatch.context() as patch:
        patch.setattr(Appliance, "train_step", signalled)
        outcome = cstool("run", "-p", file, "--num_steps", "3")
    assert outcome.code == 130
    found = summary_of(outcome.stdout)
    assert found["trained"].startswith("trained   steps 1 to 1: 48 samples, ")
    command = found["continue"].split(maxsplit=1)[1]
    assert command == "cstool run --params TMP/params.yaml --mode train --num_steps 2"
    assert json.loads((tmp_path / "model_dir" / "performance.json").read_text())["total_samples"] == 48
    again = cstool(*shlex.split(command.replace("TMP", str(tmp_path)))[1:])
    assert summary_of(again.stdout)["trained"].startswith("trained   steps 2 to 3: ")


@pytest.mark.lab
def test_the_parts_of_the_time_add_up_and_have_what_belongs_to_them(tmp_path, data, monkeypatch):
    def slower(owner: Any, name: str, seconds: float) -> None:
        original = getattr(owner, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            time.sleep(seconds)
            return original(*arguments, **keywords)

        monkeypatch.setattr(owner, name, call)

    slower(sys.modules[run_module.__module__], "choose_start", 0.2)
    slower(InputWorker, "_read", 0.05)
    slower(WeightStream, "_look_at", 0.001)
    slower(Appliance, "evaluate", 0.15)
    slower(checkpoints, "save_state", 0.25)
    began = time.perf_counter()
    result = run_file(gpt_params(tmp_path, data, **EVALUATES), mode="train_and_eval")
    passed = time.perf_counter() - began
    assert sum(result.time_s.values()) == result.wall_s <= passed
    least = {
        "compute": 0.0,
        "stream_wait": 5 * 40 * 0.001,
        "input_wait": 0.05 - 0.01,  # the worker reads a little before the first step asks
        "checkpoint": 2 * 0.25,
        "evaluation": 3 * 0.15,
        "start_up": 0.2,
    }
    assert list(result.time_s) == list(least)
    for name, seconds in least.items():
        assert result.time_s[name] >= seconds, name
    training = sum(result.time_s[name] for name in ("compute", "stream_wait", "input_wait"))
    assert training >= result.seconds


def test_what_is_not_asked_for_is_neither_made_nor_offered(cstool, tmp_path, data):
    """No events, no checkpoints; and nothing to train once all steps are done."""
    changes = {"init__checkpoint": {}, "init__loggers": [{"TensorBoardLogger": None}]}
    outcome = cstool("run", "-p", gpt_params(tmp_path / "none", data, **changes), "--json")
    assert outcome.document["events"] is None
    assert not (tmp_path / "none" / "model_dir" / "events").exists()
    assert not {"continue", "evaluate"} & set(outcome.document["commands"])
    file = gpt_params(tmp_path, data)
    cstool("run", "-p", file)
    events = scalars_of(tmp_path / "model_dir" / "events")
    outcome = cstool("run", "-p", file)
    assert summary_of(outcome.stdout)["trained"] == "trained   nothing: the run is at step 4, and its last step is 4"
    assert scalars_of(tmp_path / "model_dir" / "events") == events
