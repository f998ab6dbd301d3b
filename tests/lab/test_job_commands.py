"""Jobs through the real commands and a real supervisor: submitted, followed, waited for, cancelled."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.appliances import end_processes_of
from tests.end_to_end.runs import gpt_params, latest_bits, write_text
from tests.patience import PATIENCE_S, wait_until

NAME = r"wsjob-[a-z0-9]{22}"
_OTHERS = re.compile(
    r"\| Train|Saved ch|Processed|  (time|step|memory|files|continue|evaluate) |Running command|Compil|Found ex"
)
"""what lines begin with that have times, or say where a run was compiled and what to type next"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    """A folder with data, and an appliance that is supervised."""
    folder = tmp_path_factory.mktemp("jobs")
    write_text(folder / "text", 60)
    root = folder / "appliance"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CSTOOL_APPLIANCE", str(root))
        try:
            done = type_in(folder, "appliance", "start", "--memory", "4GiB")
            assert done.returncode == 0, done.stderr
            yield folder
            assert type_in(folder, "appliance", "stop").stdout == "The supervisor has ended\n"
        finally:
            end_processes_of(root)


@pytest.fixture
def params(folder, tmp_path) -> Callable[..., Path]:
    """Write params with a model_dir of this test."""
    return lambda **changes: gpt_params(tmp_path, folder / "text", **changes)


def type_in(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Type a command."""
    return subprocess.run(
        [sys.executable, "-m", "cstool", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def lines_of(log: str) -> list[str]:
    """The lines of a log without their times, those without others in them."""
    lines = (line.partition("INFO:   ")[2] for line in log.splitlines())
    return [line for line in lines if not _OTHERS.match(line)]


def losses_of(log: str) -> list[str]:
    return re.findall(r"Loss=[0-9.]+", log)


def test_a_run_as_a_job_says_and_does_what_a_run_does(folder, params, tmp_path):
    file = params()
    alone = type_in(folder, "run", "-p", file, "--lanes", 1)
    assert (alone.returncode, alone.stderr) == (0, "")
    bits = latest_bits(tmp_path / "model_dir")
    shutil.rmtree(tmp_path / "model_dir")
    job = type_in(folder, "run", "--appliance", "-p", file, "--lanes", 1, "--note", "a test")
    assert job.returncode == 0, job.stderr
    assert losses_of(job.stdout) == losses_of(alone.stdout) != []
    assert [line for line in lines_of(job.stdout) if "precision.enabled" not in line] == lines_of(alone.stdout)
    assert latest_bits(tmp_path / "model_dir") == bits
    name = re.match(f"job ({NAME}): submitted; its log is ", job.stderr)[1]
    said = [line.removeprefix(f"job {name}: ") for line in job.stderr.splitlines()[1:]]
    assert [line for line in said if not line.startswith("waits")][0] == "compiles"
    assert re.fullmatch(r"runs on core \d+", said[-2])
    assert re.fullmatch(r"succeeded after \d+s", said[-1])
    assert type_in(folder, "job", "logs", name).stdout == job.stdout
    assert "Note       a test\n" in type_in(folder, "job", "get", name).stdout


def test_what_a_run_has_to_complain_of_comes_on_stderr_with_its_code(folder, params):
    flags = ["--lanes", 1, "--set", "trainer.init.optimizer.AdamW.learning_rate=1e30"]
    job = type_in(folder, "run", "--appliance", "-p", params(), *flags)
    assert job.returncode == 1
    assert "error: " in job.stderr
    assert "failed" in job.stderr.splitlines()[-1]


def test_submitted_waited_for_and_looked_at(folder, params, tmp_path):
    file = params(init__backend={"cluster_config": {"job_labels": ["team=a"], "job_priority": "p3"}})
    done = type_in(folder, "job", "submit", "-p", file, "--lanes", 1, "--job_labels", "run=3", "--wait")
    name, end = done.stdout.splitlines()
    assert (done.returncode, done.stderr, end) == (0, "", f"{name}: SUCCEEDED")
    assert re.fullmatch(NAME, name)
    listed = type_in(folder, "job", "list", "-a", "--label", "team=a").stdout.splitlines()
    assert [listed[-1].split()[place] for place in (0, 1, 4)] == [name, "p3", "SUCCEEDED"]
    assert listed[-1].endswith("run=3, team=a") or listed[-1].endswith("team=a, run=3")
    assert (tmp_path / "model_dir" / "checkpoint_4.mdl").exists()


def test_the_job_keeps_its_own_copy_of_the_params(folder, params, tmp_path):
    type_in(folder, "appliance", "drain")
    file = params()
    done = type_in(folder, "job", "submit", "-p", file, "--lanes", 1)
    name = done.stdout.strip()
    assert done.stderr == (
        f"job {name}: waits until the appliance starts jobs again; `cstool appliance drain --off` has it do so\n"
    )
    file.unlink()
    type_in(folder, "appliance", "drain", "--off")
    assert type_in(folder, "job", "wait", name).stdout == f"{name}: SUCCEEDED\n"
    assert (tmp_path / "model_dir" / "checkpoint_4.mdl").exists()


def test_a_running_job_is_cancelled_and_has_saved(folder, params, tmp_path):
    name = type_in(folder, "job", "submit", "-p", params(), "--lanes", 1, "--max_steps", 500).stdout.strip()
    root = folder / "appliance" / "jobs" / name
    wait_until(lambda: (root / "out").exists() and "Step=1," in (root / "out").read_text(), "it never trains")
    cancelled = type_in(folder, "job", "cancel", name)
    assert (cancelled.stdout, cancelled.stderr) == (
        "Job canceled successfully\n",
        f"job {name}: stops after its step, and saves\n",
    )
    assert type_in(folder, "job", "wait", name).returncode == 130
    assert list((tmp_path / "model_dir").glob("checkpoint_*.mdl"))


def test_ctrl_c_detaches_if_asked(folder, params):
    words = ["run", "--appliance", "-p", params(), "--lanes", 1, "--max_steps", 500, "--on_interrupt", "detach"]
    with subprocess.Popen(
        [sys.executable, "-m", "cstool", *map(str, words)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert any("Step=1," in line for line in process.stdout)
        process.send_signal(2)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    name = re.search(NAME, stderr)[0]
    assert f"interrupted: SIGINT: job {name} is no longer followed\n" in stderr
    assert type_in(folder, "job", "get", name, "-o", "json").stdout.count('"RUNNING"') == 1
    assert type_in(folder, "job", "cancel", name, "--now").returncode == 0
    assert type_in(folder, "job", "wait", name).stdout.startswith(f"{name}: CANCELLED")
