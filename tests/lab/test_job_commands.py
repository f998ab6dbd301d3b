"""Jobs through the real commands and a real supervisor: submitted, followed, waited for, left."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.appliances import end_processes_of
from tests.end_to_end.pages import blocks
from tests.end_to_end.runs import gpt_params, latest_bits, write_text
from tests.job_contract import STREAMED
from tests.lab.test_appliance_page import plain
from tests.patience import PATIENCE_S

NAME = r"wsjob-[a-z0-9]{22}"
_OTHERS = re.compile(
    r"\| Train|Saved ch|Processed|  (time|step|memory|files|continue|evaluate) |Running command|Compil|Found ex"
)
"""what lines begin with that have times, or say where a run was compiled and what to type next"""
Typed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def type_in(folder) -> Iterator[Typed]:

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cstool", *map(str, words)]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)

    write_text(folder / "text", 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CSTOOL_APPLIANCE", str(folder / "appliance"))
        try:
            done = run("appliance", "start", "--memory", "4GiB")
            assert done.returncode == 0, done.stderr
            yield run
            assert run("appliance", "stop").stdout == "The supervisor has ended\n"
        finally:
            end_processes_of(folder / "appliance")


@pytest.fixture
def params(folder, tmp_path) -> Callable[..., Path]:
    return lambda **changes: gpt_params(tmp_path, folder / "text", **changes)


def lines_of(log: str) -> list[str]:
    """The lines of a log without their times, those without others in them."""
    lines = (line.partition("INFO:   ")[2] for line in log.splitlines())
    return [line for line in lines if not _OTHERS.match(line)]


def test_a_run_as_a_job_says_and_does_what_a_run_does(type_in, cstool, params, folder, tmp_path):
    file = params()
    alone = type_in("run", "-p", file, *STREAMED, "--lanes", 1)
    assert (alone.returncode, alone.stderr) == (0, "")
    bits = latest_bits(tmp_path / "model_dir")
    shutil.rmtree(tmp_path / "model_dir")
    job = type_in("run", "--appliance", "-p", file, *STREAMED, "--lanes", 1, "--note", "a test")
    assert job.returncode == 0, job.stderr
    losses = [re.findall(r"Loss=[0-9.]+", log) for log in (job.stdout, alone.stdout)]
    assert losses[0] == losses[1] != []
    assert [line for line in lines_of(job.stdout) if "precision.enabled" not in line] == lines_of(alone.stdout)
    assert latest_bits(tmp_path / "model_dir") == bits
    name = re.match(f"job ({NAME}): submitted; its log is ", job.stderr)[1]
    said = [line for line in plain(job.stderr, folder) if ": waits" not in line]
    assert (said[1], said[-2]) == ("job NAME: compiles", "job NAME: runs on core N")
    [shown] = [plain(block, folder) for block in blocks("appliance") if block.startswith("job wsjob-")]
    assert (said[0], said[-1]) == (shown[0], shown[-1])
    assert cstool("job", "logs", name).stdout == job.stdout
    assert "Note       a test\n" in cstool("job", "get", name).stdout


def test_submitted_and_waited_for_it_may_be_looked_at(type_in, cstool, params, tmp_path):
    file = params(init__backend={"cluster_config": {"job_labels": ["team=a"], "job_priority": "p3"}})
    done = type_in("job", "submit", "-p", file, *STREAMED, "--lanes", 1, "--job_labels", "run=3", "--wait")
    name, end = done.stdout.splitlines()
    assert (done.returncode, done.stderr, end) == (0, "", f"{name}: SUCCEEDED")
    listed = cstool("job", "list", "-a", "--label", "team=a").stdout.splitlines()[-1]
    assert [listed.split()[place] for place in (0, 1, 4)] == [name, "p3", "SUCCEEDED"]
    assert listed.endswith(("run=3, team=a", "team=a, run=3"))
    assert (tmp_path / "model_dir" / "checkpoint_4.mdl").exists()


@pytest.mark.usefixtures("type_in")
def test_ctrl_c_detaches_if_asked(cstool, folder, params):
    flags = ("--lanes", 1, "--max_steps", 500, "--on_interrupt", "detach")
    words = ["run", "--appliance", "-p", params(), *STREAMED, *flags]
    command = [sys.executable, "-m", "cstool", *map(str, words)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, text=True, **streams) as process:
        assert process.stdout is not None
        assert any("Step=1," in line for line in process.stdout)
        process.send_signal(2)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    name = re.search(NAME, stderr)[0]
    assert f"interrupted: SIGINT: job {name} is no longer followed\n" in stderr
    assert cstool("job", "get", name, "-o", "json").stdout.count('"RUNNING"') == 1
    assert cstool("job", "cancel", name, "--now").code == 0
    assert cstool("job", "wait", name).stdout.startswith(f"{name}: CANCELLED")
