"""`cstool run --mode infer` on several ranks, under a real mpirun: the same text, and how it ends before its time."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.ranks import Command, Said, by_mpirun, launched, run
from tests.patience import wait_until

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
