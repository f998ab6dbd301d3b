"""`cstool estimate --software`: hosts in the text, in the document, in the timeline, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.perf.schedule import COORDINATOR, HOSTS, NORM, SERVERS, WORKERS
from tests.unit.cli.test_estimate import GPT

SMALL: dict[str, Any] = {
    "init": {**GPT["init"], "model": {**GPT["init"]["model"], "hidden_size": 512, "num_hidden_layers": 2}},
    "fit": GPT["fit"],
}
FLAGS = ("-p", "gpt.yaml", "--system", "cs3", "--execution_mode", "weight_streaming", "--software", "2.6")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gpt.yaml").write_text(yaml.safe_dump({"trainer": SMALL}))


def test_hosts_in_words(cstool):
    """512 samples of 2,048 tokens are 1,048,576, which take a worker of 2,398,000 a second 437 ms."""
    lines = [" ".join(line.split()) for line in cstool("estimate", *FLAGS).stdout.splitlines()]
    assert "hosts release 2.6: 1 input worker of 2,398,000 tokens/s and 1 activation server to a system" in lines
    assert any(line.startswith("step 437.3 ms, bound by input workers") for line in lines)
    rows = {name: line for name in (WORKERS, *HOSTS) for line in lines if line.startswith(f"{name} ")}
    assert rows.keys() == {WORKERS, SERVERS, COORDINATOR, NORM}
    assert rows[WORKERS].endswith("437.3 ms 100.0%")
    more = cstool("estimate", *FLAGS, "--num_workers_per_csx", "8").stdout
    assert "release 2.6: 8 input workers of 2,398,000 tokens/s and 2 activation servers to a system" in more


def test_hosts_in_the_document(cstool):
    modelled = cstool("estimate", *FLAGS, "--json").document["modelled"]
    assert modelled["software"]["release"] == "2.6"
    assert modelled["software"]["worker_tokens_per_s"] == 2.398e6
    assert modelled["resources"][WORKERS]["busy"] == pytest.approx(1)
    assert modelled["bound_by"] == WORKERS
    ideal = cstool("estimate", *FLAGS[:-2], "--json").document["modelled"]
    assert ideal["software"] is None
    assert not set(HOSTS) & set(ideal["resources"])
    assert ideal["step_s"] < modelled["step_s"]


def test_hosts_in_the_timeline(cstool):
    assert cstool("estimate", *FLAGS, "--trace", "t.json").code == 0
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    named = {event["args"]["name"] for event in events if event["name"] in ("process_name", "thread_name")}
    assert {"input workers (modelled)", "activation servers (modelled)", "coordinator (modelled)"} <= named
    assert "norm of all gradients" in named


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("-p", "gpt.yaml", "--software", "1.0"),
            "--software: must be a release whose hosts are known on cs2, got 1.0\n"
            "hint: known are 2.0 on cs2; 2.6 on cs3",
        ),
        (
            ("-p", "gpt.yaml", "--num_workers_per_csx", "2"),
            "--num_workers_per_csx: must stand beside --software, which says what a worker does, got 2",
        ),
        (
            ("-p", "gpt.yaml", "--system", "host", "--software", "2.0"),
            "--software: must be left out beside --system host, where it has no effect",
        ),
    ],
)
def test_what_is_refused(cstool, flags, message):
    outcome = cstool("estimate", *flags)
    assert (outcome.code, outcome.stderr) == (2, f"error: {message}\n")
