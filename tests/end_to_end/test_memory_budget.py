"""A run keeps to the memory that it is given, however it must be laid out for that; its bits do not depend on it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cstool.foundation.host_memory import BUDGET_VARIABLE
from cstool.model.params import load_params
from cstool.training.host.job_needs import estimate_memory
from cstool.training.machine.data_sets import check_data
from tests.end_to_end.refusals import error
from tests.end_to_end.runs import gpt_params, latest_bits

MIB = 2**20
RUN = """
import re, sys
from cstool.cli import main
code = main()
status = open("/proc/self/status").read()
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) * 1024, file=sys.stderr)
sys.exit(code)
"""
"""a run that says its peak as the last line of stderr [bytes]; ru_maxrss has that of the process that forked it, too"""
WIDE: dict[str, Any] = {f"init__model__{key}": n for key, n in (("hidden_size", 128), ("filter_size", 512))}
WIDE |= {"init__model__num_hidden_layers": 3, "init__loop": {"max_steps": 2}, "init__checkpoint": {"steps": 2}}


class Ended(NamedTuple):
    """How a run ended."""

    code: int
    stdout: str
    stderr: str
    peak_bytes: int


def run(file: Path, folder: Path, budget_bytes: int | None, *words: str) -> Ended:
    """Run a params file in a process of its own, within a budget."""
    environment = {name: value for name, value in os.environ.items() if name != BUDGET_VARIABLE}
    if budget_bytes is not None:
        environment[BUDGET_VARIABLE] = str(budget_bytes)
    typed = ["run", "-p", str(file), "--model_dir", str(folder), "--lanes", "2", *words]
    ended = subprocess.run([sys.executable, "-c", RUN, *typed], env=environment, capture_output=True, text=True)
    *lines, peak = ended.stderr.splitlines()
    return Ended(ended.returncode, ended.stdout, "\n".join(lines) + "\n" * bool(lines), int(peak))


def preparing(ended: Ended) -> str:
    """What a run says of its layout."""
    return next(line.split("INFO:")[1].strip() for line in ended.stdout.splitlines() if "Preparing to execute" in line)


@pytest.fixture(scope="module")
def file(tmp_path_factory, data) -> Path:
    """Params of a GPT whose activations are most of what it takes."""
    return gpt_params(tmp_path_factory.mktemp("wide"), data, **WIDE)


@pytest.fixture(scope="module")
def free(tmp_path_factory, file) -> tuple[Ended, str]:
    """A run without a budget, and the digest of its checkpoint."""
    folder = tmp_path_factory.mktemp("free")
    ended = run(file, folder, None)
    assert ended.code == 0, ended.stderr
    return ended, latest_bits(folder)


def needed(file: Path, **flags: Any) -> int:
    """What is estimated for a run of two lanes."""
    params = load_params(file, flags={key: (key, value) for key, value in flags.items()})
    return estimate_memory(params, check_data(params, "train"), "train", 2, compiled=True).total


@pytest.mark.lab
def test_with_what_is_estimated_a_run_is_laid_out_as_without_a_budget(file, free, tmp_path):
    ended = run(file, tmp_path / "model_dir", needed(file))
    assert ended.code == 0
    assert preparing(ended) == preparing(free[0])
    assert "Recomputing" not in ended.stdout
    assert ended.peak_bytes <= needed(file)
    assert latest_bits(tmp_path / "model_dir") == free[1]


@pytest.mark.takes("whole runs are processes, whose memory at the peak is looked at")
@pytest.mark.parametrize(
    ("share", "words", "says"),
    [
        pytest.param(0.72, (), "Recomputing the activations", marks=pytest.mark.lab),
        pytest.param(0.61, (), "2 lanes, 2 waves"),
        pytest.param(0.65, ("--memoryx", "file"), "MemoryX is in", marks=pytest.mark.lab),
    ],
    ids=["recomputed", "waves", "file"],
)
def test_with_less_it_keeps_to_that_and_the_bits_are_the_same(file, free, tmp_path, share, words, says):
    budget = int(share * needed(file))
    ended = run(file, tmp_path / "model_dir", budget, *words)
    assert ended.code == 0, ended.stderr
    assert free[0].peak_bytes > budget, "without a budget it takes more"
    assert ended.peak_bytes <= budget
    assert says in ended.stdout
    assert latest_bits(tmp_path / "model_dir") == free[1]


MUST_FIT = "error: the model: its weights, optimizer state and gradients must fit the memory (0 bytes are free), got "
LEAVES = "error: a budget of 104,857,600 bytes of memory: what it leaves for MemoryX must be at least "
WHOSE = (
    "hint: half of what the run may take is for it: CSTOOL_MEMORY, or --memory of a job, says how much that is; "
    "--lanes 1 needs less"
)


@pytest.mark.parametrize(
    ("store", "begin", "end", "hint"),
    [("ram", MUST_FIT, "", ""), ("file", LEAVES, "with 2 lanes; got 0", WHOSE)],
)
def test_with_far_too_little_it_says_so_before_it_trains(cstool, monkeypatch, file, tmp_path, store, begin, end, hint):
    """In this process, which has taken more than its budget already."""
    monkeypatch.setenv(BUDGET_VARIABLE, str(100 * MIB))
    outcome = cstool("run", "-p", file, "--model_dir", tmp_path / "model_dir", "--lanes", 2, "--memoryx", store)
    assert outcome.code == 2
    assert not list((tmp_path / "model_dir").glob("*.mdl"))
    message, said, *_ = outcome.stderr.splitlines()
    assert (message[: len(begin)], message.endswith(end), hint in ("", said)) == (begin, True, True)


def test_a_budget_that_is_no_number_is_one_clear_error(cstool, monkeypatch, file):
    monkeypatch.setenv(BUDGET_VARIABLE, "2GiB")
    assert cstool("run", "-p", file).stderr == error(
        "CSTOOL_MEMORY: must be a number of bytes, got '2GiB'", "without it a run takes what is free"
    )
