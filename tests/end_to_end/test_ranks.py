"""Runs on several ranks, under a real mpirun, have the bits of runs in one process."""

import json
import os
import re
import signal
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.foundation.words import bytes_text
from cstool.model.graphs import build_graph
from cstool.model.params import load_params
from cstool.training.host.planned import planned_ranks
from tests.end_to_end.ranks import Command, Said, by_mpirun, launched, run
from tests.end_to_end.runs import SEQUENCE, write_text
from tests.hosts import round_rates
from tests.patience import wait_until
from tests.rank_works import differing, mpirun, work_file

WORKS = {
    2: [(3, "llama, rigl, unclipped, file, again, bfloat16"), (12, "gpt2, dropout, file, one node")],
    3: [(4, "gpt2, dropconnect, unclipped, file, one node, again"), (12, "llama, static, again, bfloat16")],
    4: [(4, "gpt2, dropout, set, file, bfloat16"), (48, "llama, gmp, unclipped, file, two nodes")],
}
"""ranks -> systems and other keys; `tests/unit/training/machine/test_same_bits.py` has ranks that are threads"""


@pytest.mark.takes("whole runs under mpirun, on two ranks, which are processes")
@pytest.mark.parametrize("ranks", [2, *(pytest.param(ranks, marks=pytest.mark.lab) for ranks in (3, 4))])
def test_the_bits_do_not_depend_on_ranks(tmp_path, ranks):
    assert differing(ranks, WORKS[ranks], tmp_path) == []


WITH_RATES = """
from pathlib import Path
from cstool.cli import main
from cstool.training.host import rates as host_rates
host_rates.rates_file = lambda: Path({rates!r})
main()
"""
"""is cstool on a host that was measured"""


def loader_of(data: Path) -> dict[str, Any]:
    """A dataloader with 8 grains to a batch."""
    return {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data), "batch_size": 32}


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """What a run on two ranks printed, its `--json` and its trace; each rank has a half of the tree of 8 grains."""
    folder = tmp_path_factory.mktemp("traced")
    data = write_text(folder / "text" / "train", 150)
    file = work_file(folder, data, 2, init__loop={"max_steps": 5}, fit={"train_dataloader": loader_of(data)})
    trace, rates = folder / "trace.json", folder / "host.yaml"
    rates.write_text(yaml.safe_dump(asdict(round_rates())))
    done = mpirun(2, "-c", WITH_RATES.format(rates=str(rates)), "run", "--params", file, "--trace", trace, "--json")
    return done.stderr, json.loads(done.stdout), json.loads(trace.read_text())


def test_the_summary_says_what_each_rank_sent_and_how_long_it_waited(traced):
    log, result, _ = traced
    [line] = [line for line in log.splitlines() if "INFO:     ranks " in line]
    weights = 4 * result["parameters"]
    found = re.fullmatch(
        r".*  ranks +2 ranks on 1 host: rank 0 sent (.*) a step and waited [\d.]+%; "
        r"rank 1 sent (.*) a step and waited [\d.]+%",
        line,
    )
    assert found, line
    sent = [rank["sent_bytes"] // 5 for rank in result["ranks"]]
    # Weights go out twice, that of the embedding a second time for the output layer, and their gradients come back: by
    # one rank or the other. Of the embedding itself they are rows with their numbers, here all of them.
    embedding = 4 * 64 * 32
    assert sum(sent) == 3 * (weights + embedding) + 4 * 64
    assert [bytes_text(size) for size in sent] == [*found.groups()]
    assert [rank["rank"] for rank in result["ranks"]] == [0, 1]


@pytest.mark.lab
def test_bfloat16_takes_half_the_bytes_of_what_is_sent(tmp_path):
    data = write_text(tmp_path / "text" / "train", 150)
    changes = {"init__loop": {"max_steps": 2}, "fit": {"train_dataloader": loader_of(data)}}
    sent = {}
    for precision in ("float32", "bfloat16"):
        file = work_file(tmp_path / precision, data, 2, **changes, init__precision__host=precision)
        done = json.loads(mpirun(2, "-m", "cstool", "run", "--params", file, "--json").stdout)
        sent[precision] = sum(rank["sent_bytes"] for rank in done["ranks"]) // 2
    # The matrices of two layers, and twice the table of embeddings, are sent forward and backward.
    layer = 4 * 32 * 32 + 2 * 32 * 64
    assert sent["float32"] - sent["bfloat16"] == 2 * 2 * (2 * layer + 2 * 64 * 32)


def test_what_was_sent_is_what_an_estimate_says(traced, tmp_path):
    """To the byte: 64 tokens have rows of gradients, and all of them are there."""
    file = work_file(tmp_path, tmp_path, 2, fit={"train_dataloader": loader_of(tmp_path)})
    params = load_params(file)
    traffic = planned_ranks(params, build_graph(params.model, SEQUENCE), 32, 2, round_rates(), None).traffic
    assert tuple(rank["sent_bytes"] // 5 for rank in traced[1]["ranks"]) == traffic.sent_bytes


def test_what_was_predicted_stands_beside_what_was_measured(traced):
    log, result, _ = traced
    [line] = [line for line in log.splitlines() if "predicted / measured" in line]
    assert line.endswith(" s; between ranks copies in memory at 8 GB/s.")
    step = result["predicted"]["step"]
    assert step["predicted"] > result["predicted"]["forward"]["predicted"] > 0
    assert step["measured"] == result["median_step_s"]


def test_the_trace_has_the_systems_of_all_ranks_on_one_clock(traced):
    events = traced[2]["traceEvents"]
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X" and processes[event["pid"]].startswith("CSX")]
    times = {
        (processes[span["pid"]], lanes[span["tid"]]): [
            each["ts"] for each in spans if each["tid"] == span["tid"] and each["args"]["step"] == 3
        ]
        for span in spans
    }
    assert {*times} >= {("CSX 0 (measured)", "lane 0: compute"), ("CSX 1 (measured)", "rank 1 lane 0: compute")}
    # The same step is at the same time everywhere.
    [step] = [event for event in events if event["name"] == "step 3"]
    for found in times.values():
        assert step["ts"] - 1e4 <= min(found) <= max(found) <= step["ts"] + step["dur"] + 1e4


def test_what_to_type_next_starts_as_many_ranks(traced):
    assert {name: command.split("cstool")[0] for name, command in traced[1]["commands"].items()} == {
        "continue": "mpirun -n 2 "
    }


# Answers of several ranks: the same text, and how they end before their time.


ASKED = ("--mode", "infer", "--prompt", "the abc", "--prompt", "uvw", "--max_tokens", "12", "--temperature", "0.5")


@pytest.mark.takes("runs on two ranks, which are processes")
@pytest.mark.parametrize("store", [pytest.param("ram", marks=pytest.mark.lab), "file"])
def test_two_ranks_answer_as_one_process(cstool, ready, store):
    one = cstool("run", "-p", ready, *ASKED, "--json").document
    found = run(*by_mpirun(ready, *ASKED, "--json", "--memoryx", store))
    document = json.loads(found.output)
    assert document["completions"] == one["completions"]
    host = document["host"]
    assert (host["weights"], host["nodes"]) == ("streamed", 2)
    assert 0 < host["arrived_bytes"] < host["streamed_bytes"]
    assert "nodes" not in one["host"]
    # Nothing is said after it of what was on its way to the next pass.
    last = found.errors.splitlines()[-1]
    assert re.search(
        r"of weights a pass, kept by 2 ranks, [\d.]+ kB a token from others, .* of keys and values\.$", last
    )


@pytest.mark.lab
def test_the_launcher_hands_prompts_on_stdin_to_the_first_rank(ready):
    words = launched(
        ready, "--mode", "infer", "--prompt_file", "-", "--max_tokens", "3", "--temperature", "0", "--json"
    )
    found = subprocess.run(words, input="abc\nuvw\n", capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    assert [each["text"] for each in json.loads(found.stdout)["completions"]] == ["def", "xyz"]


def stopped(ready: Path, rank: int, number: int) -> Said:
    """What came of a signal to a rank that has many prompts before it."""
    prompts = ready.parent / "prompts.txt"
    prompts.write_text("abc\n" * 20_000)
    asked = ("--prompt_file", str(prompts), "--batch_size", "1", "--temperature", "0")
    logs = ready.parent / "model_dir" / "cerebras_logs"

    def answers() -> bool:
        return any("Model state found" in log.read_text() for log in logs.glob("*/run.log") if log not in before)

    before = {*logs.glob("*/run.log")}
    with Command(*launched(ready, "--mode", "infer", *asked)) as command:
        wait_until(answers, "nothing is answered")
        os.kill(command.rank(rank), number)
        return command.wait()


@pytest.mark.lab
@pytest.mark.parametrize(
    ("number", "exit_code", "message"),
    [
        (signal.SIGTERM, 130, r"interrupted: stopped by SIGTERM after \d+ tokens\n"),
        (
            signal.SIGKILL,
            1,
            r"error: rank 1 on \S+: must last as long as the run, it died (in step \d+|before the first step)\n",
        ),
    ],
)
def test_a_signal_to_another_rank_ends_the_answer(ready, number, exit_code, message):
    found = stopped(ready, 1, number)
    assert found.exit_code == exit_code
    assert re.search(message, found.errors), found.errors
