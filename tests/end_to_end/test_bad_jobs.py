"""What is wrong with jobs, folders, labels and flags: one clear error each, by the real command; nothing is lost."""

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.appliances import end_processes_of
from tests.end_to_end.refusals import Outcome, error
from tests.end_to_end.runs import gpt_params

NAME = r"wsjob-[a-z0-9]{22}"
CHANGED = "TMP/appliance: nobody else must be able to change an appliance"
OTHER_ROOT = "--root or CSTOOL_APPLIANCE names another"
CLUSTER = "trainer.init.backend.cluster_config"


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch) -> Iterator[Path]:
    """The usual appliance of a test, of which no process stays."""
    root = tmp_path / "appliance"
    monkeypatch.setenv("CSTOOL_APPLIANCE", str(root))
    try:
        yield root
    finally:
        if root.exists():
            end_processes_of(root)


@pytest.fixture
def submit(cstool, tmp_path, data, monkeypatch) -> Callable[..., Outcome]:
    """Submit a small GPT."""

    def run(*flags: object, **changes: object) -> Outcome:
        words = ["job", "submit", "-p", gpt_params(tmp_path, data, **changes), "--lanes", 1, *flags]
        # How this program was started, for the job to start it, too.
        monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-m", "cstool", *words])
        return cstool(*words)

    return run


def name_of(outcome: Outcome) -> str:
    """The name of the job that was submitted."""
    assert outcome.code == 0, outcome.stderr
    found = re.fullmatch(f"({NAME})\n", outcome.stdout)
    assert found is not None
    return found[1]


def test_without_a_supervisor_a_job_waits_and_says_so(cstool, submit):
    outcome = submit()
    name = name_of(outcome)
    assert outcome.stderr == (f"job {name}: waits until a supervisor runs; `cstool appliance start` starts one\n")
    assert cstool("job", "list", "--json").document["jobs"][0]["phase"] == "QUEUED"
    assert cstool("job", "cancel", name).said == "Job canceled successfully\n"
    outcome = cstool("job", "cancel", name)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert re.fullmatch(
        f"error: job {name}: only a job that has not ended can be stopped, it is CANCELLED since [-0-9 :]+\n",
        outcome.stderr,
    )


def test_a_job_file_that_was_edited_fails_alone(cstool, submit, root):
    edited, other = name_of(submit()), name_of(submit(init__model_dir=str(root.parent / "other")))
    file = root / "jobs" / edited / "job.json"
    document = json.loads(file.read_text())
    file.chmod(0o600)
    file.write_text(json.dumps(document | {"note": "edited"}))
    assert cstool("appliance", "start").code == 0
    outcome = cstool("job", "wait", edited)
    rule = "must stay as it was submitted, it was edited"
    assert outcome == Outcome(1, f"{edited}: FAILED, TMP/appliance/jobs/{edited}/job.json: {rule}\n", "")
    assert cstool("job", "wait", other).said == f"{other}: SUCCEEDED\n"


@pytest.mark.parametrize("verb", [["list"], ["submit"]])
def test_a_root_folder_that_others_may_write_to(cstool, submit, root, verb):
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    outcome = submit() if verb == ["submit"] else cstool("job", *verb)
    assert outcome == Outcome(2, "", error(f"{CHANGED}: others may write to it (mode 0777)", OTHER_ROOT))
    assert list(root.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_root_folder_of_somebody_else(cstool, submit, root):
    root.mkdir(mode=0o700)
    os.chown(root, 65534, 65534)
    assert submit() == Outcome(2, "", error(f"{CHANGED}: it belongs to nobody (uid 65534)", OTHER_ROOT))


def test_a_root_that_is_a_file(cstool, root):
    root.write_text("")
    message = "TMP/appliance: the folder of an appliance cannot be used, got: Not a directory"
    assert cstool("job", "list") == Outcome(2, "", error(message, OTHER_ROOT))


def test_a_second_supervisor(cstool):
    assert cstool("appliance", "start").code == 0
    supervisor = cstool("appliance", "status", "--json").document["supervisor"]
    assert cstool("appliance", "start") == Outcome(
        2,
        "",
        error(
            f"TMP/appliance: an appliance has one supervisor, one runs already: {supervisor}",
            "`cstool appliance status` says how it is, `cstool appliance stop` ends it",
        ),
    )
    assert cstool("appliance", "stop").said == "The supervisor has ended\n"


@pytest.mark.parametrize(
    ("flags", "message", "hint"),
    [
        (
            ["--mode", "infer"],
            "--mode: must be one that trains or evaluates, got infer for a job",
            "`cstool run --mode infer` answers at once; a job waits for its turn",
        ),
        (
            ["--transport", "mpi"],
            "--transport: must be auto or in_process for a job, which is one process, got mpi",
            None,
        ),
        (["--sbatch=--account=x", "--backend", "local"], "--sbatch: must go with --backend slurm, got local", None),
        (["--memory", "lots"], "--memory: must be a size, such as 2GiB, got 'lots'", None),
        (
            ["--time", "1x"],
            "--time: must be a time limit as sbatch takes it, got '1x'",
            "90 or 1:30:00 is an hour and a half, 2-12 two days and a half; 1:30 is a minute and a half",
        ),
        (["--max_restarts", "-1"], "--max_restarts: must be at least 0, got -1", None),
        (["--note", "a\nb"], "note: must be one line of characters that can be seen, got 'a\\nb'", None),
        (["--note", "a" * 501], "note: must have at most 500 characters, it has 501", None),
        (["--job_labels", "a"], "label 'a': must be KEY=VALUE, or KEY- to remove one", None),
        (
            ["--job_labels", "a=b\nc"],
            "label a: its value must be one line of characters that can be seen, got 'b\\nc'",
            None,
        ),
        (
            ["--job_labels", "a=" + 10_240 * "b"],
            "label a: its value must have at most 63 characters, it has 10,240",
            None,
        ),
    ],
)
def test_what_cannot_be_a_job(cstool, submit, root, flags, message, hint):
    assert submit(*flags) == Outcome(2, "", error(message, hint))
    assert not root.exists() or list((root / "jobs").iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "message", "hint"),
    [
        (
            ["--appliance", "--launch", "mpi"],
            "--launch: must not be with --appliance, got both",
            "a job is one process, with a lane for each core",
        ),
        (
            ["--appliance", "--json"],
            "--json: must not be with --appliance, got both",
            "`cstool job submit --json --wait` prints a document about the job",
        ),
        (
            ["--appliance", "--mode", "infer"],
            "--mode: must be one that trains or evaluates, got infer for a job",
            "`cstool run --mode infer` answers at once; a job waits for its turn",
        ),
        (["--appliance", "--prompt", "x"], "--prompt: must go with --mode infer, got --mode train", None),
        (["--priority", "p1"], "--priority: must go with --appliance, got it alone", "or with `cstool job submit`"),
        (
            ["--on_interrupt", "detach"],
            "--on_interrupt: must go with --appliance, got it alone",
            "or with `cstool job submit`",
        ),
        (["--root", "x"], "--root: must go with --appliance, got it alone", "or with `cstool job submit`"),
    ],
)
def test_flags_that_do_not_go_together(cstool, tmp_path, data, root, flags, message, hint):
    assert cstool("run", "-p", gpt_params(tmp_path, data), *flags) == Outcome(2, "", error(message, hint))
    assert not root.exists()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"job_priority": "p0"}, f"{CLUSTER}.job_priority: must be one of p1, p2, p3, got 'p0'"),
        (
            {"job_labels": "a=b"},
            f"TMP/params.yaml: {CLUSTER}.job_labels must be a list of KEY=VALUE for a job, got 'a=b'",
        ),
        (
            {"job_time_sec": -1},
            f"TMP/params.yaml: {CLUSTER}.job_time_sec must be a number of seconds for a job, got -1",
        ),
    ],
)
def test_what_a_params_file_says_of_a_job(submit, keys, message):
    assert submit(init__backend={"cluster_config": keys}) == Outcome(2, "", error(message))


def test_a_job_that_never_fits(cstool, submit, root):
    assert cstool("appliance", "start", "--systems", "2", "--memory", "2GiB").code == 0
    assert submit("--num_csx", "3") == Outcome(
        2,
        "",
        error(
            "the job must fit the appliance: at most 2 systems, got 3 systems",
            "--lanes, --memory, --disk and --num_csx say what a job takes",
        ),
    )
    assert list((root / "jobs").iterdir()) == []


def test_what_is_kept_is_for_its_user_alone(submit, root):
    folder = root / "jobs" / name_of(submit())
    assert {stat.S_IMODE(path.stat().st_mode) for path in (root, folder)} == {0o700}
    assert stat.S_IMODE((folder / "job.json").stat().st_mode) & 0o077 == 0
