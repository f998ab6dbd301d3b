"""One real appliance, whose job runs once, to the same bits; and what is wrong with jobs: one clear error each."""

import os
import re
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cstool.foundation.atomic_file import lock_file
from cstool.training.store import list_checkpoints
from tests.appliances import TestAppliance
from tests.end_to_end.refusals import Outcome, error, rows
from tests.end_to_end.runs import DROPOUT, LONGER, gpt_params, latest_bits
from tests.job_contract import run_of
from tests.patience import wait_until


@pytest.mark.takes("a supervisor and two attempts of a run, which are processes of their own")
def test_killed_with_its_supervisor_a_job_goes_on_to_the_bits_of_a_straight_run(
    cstool, tmp_path, data, monkeypatch, root, undisturbed
):
    file = gpt_params(tmp_path / "job", data, **LONGER, **DROPOUT, init__checkpoint__steps=1)
    words = ["job", "submit", "-p", file, "--lanes", 1, "--max_restarts", 1, "--memory", "2GiB", "--disk", "1GB"]
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-m", "cstool", *map(str, words)])
    with TestAppliance(root) as appliance:
        assert cstool("appliance", "start", "--systems", "2").code == 0
        status = cstool("appliance", "status", "--json").document
        assert cstool("appliance", "start") == Outcome(
            2,
            "",
            error(
                f"TMP/appliance: an appliance has one supervisor, one runs already: {status['supervisor']}",
                "`cstool appliance status` says how it is, `cstool appliance stop` ends it",
            ),
        )
        hint = "--lanes, --memory, --disk and --num_csx say what a job takes"
        refusal = error("the job must fit the appliance: at most 2 systems, got 3 systems", hint)
        assert cstool(*words, "--num_csx", "3") == Outcome(2, "", refusal)
        assert [*appliance.root.jobs.iterdir()] == []
        submitted = cstool(*words)
        name = submitted.said.strip()
        assert re.fullmatch(r"wsjob-[a-z0-9]{22}", name)
        model_dir = tmp_path / "job" / "model_dir"
        wait_until(lambda: bool(list_checkpoints(model_dir)), "it never trains")
        appliance.kill_supervisor()
        os.kill(run_of(appliance.jobs, appliance.queue.job(name)), signal.SIGKILL)
        assert cstool("job", "wait", name) == Outcome(0, f"{name}: SUCCEEDED\n", "")
        job = appliance.queue.job(name)
        assert (job.reason, job.exit_code, job.attempt, job.restarts) == ("", 0, 2, 1)
        assert job.peak_bytes > 2**24
        kinds = ["submitted", "compile_started", "compiled", "started", "crashed", "started", "succeeded"]
        assert appliance.kinds(job) == kinds
        assert latest_bits(model_dir) == undisturbed(**LONGER, **DROPOUT)
        assert "from global step" in "".join(cstool("job", "logs", name).stdout.splitlines()[1:])
        assert cstool("appliance", "stop").said == "The supervisor has ended\n"
        assert appliance.starts() == 2
        appliance.capacity = appliance.capacity.__class__(**status["capacity"])
        assert appliance.faults() == []


NAME = r"wsjob-[a-z0-9]{22}"
INFER = "--mode: must be one that trains or evaluates, got infer for a job"


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CSTOOL_APPLIANCE", str(tmp_path / "appliance"))
    return tmp_path / "appliance"


@pytest.fixture
def submit(cstool, tmp_path, data, monkeypatch) -> Callable[..., Outcome]:

    def run(*flags: object, **changes: object) -> Outcome:
        words = ["job", "submit", "-p", gpt_params(tmp_path, data, **changes), "--lanes", 1, *flags]
        # How this program was started, for the job to start it, too.
        monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-m", "cstool", *words])
        return cstool(*words)

    return run


def test_without_a_supervisor_a_job_waits_and_says_so_and_is_for_its_user_alone(cstool, submit, root):
    outcome = submit()
    name = outcome.stdout.removesuffix("\n")
    assert re.fullmatch(NAME, name)
    waits = f"job {name}: waits until a supervisor runs; `cstool appliance start` starts one\n"
    assert outcome == Outcome(0, f"{name}\n", waits)
    assert cstool("job", "list", "--json").document["jobs"][0]["phase"] == "QUEUED"
    folder = root / "jobs" / name
    assert {stat.S_IMODE(path.stat().st_mode) for path in (root, folder)} == {0o700}
    assert stat.S_IMODE((folder / "job.json").stat().st_mode) & 0o077 == 0
    assert cstool("job", "cancel", name).said == "Job canceled successfully\n"
    said = f"error: job {name}: only a job that has not ended can be stopped, it is CANCELLED since [-0-9 :]+\n"
    assert re.fullmatch(said, cstool("job", "cancel", name).refusal)
    assert cstool("appliance", "drain").code == 0
    held = lock_file(root / "supervisor.lock")
    waits = "waits until the appliance starts jobs again; `cstool appliance drain --off` has it do so\n"
    assert submit().stderr.endswith(f": {waits}")
    os.close(held)


@pytest.mark.parametrize("verb", ["list", "submit"])
def test_a_root_folder_that_others_may_write_to(cstool, submit, root, verb):
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    rule = "TMP/appliance: nobody else must be able to change an appliance: others may write to it (mode 0777)"
    outcome = submit() if verb == "submit" else cstool("job", verb)
    assert outcome == Outcome(2, "", error(rule, "--root or CSTOOL_APPLIANCE names another"))
    assert list(root.iterdir()) == []


AT_ONCE = "hint: `cstool run --mode infer` answers at once; a job waits for its turn"
NO_JOB = rows(f"""\
--transport mpi => --transport: must be auto or in_process for a job, which is one process, got mpi
--mode infer => {INFER}\n{AT_ONCE}
--sbatch=--account=x --backend local => --sbatch: must go with --backend slurm, got local
--note LONG => note: must have at most 500 characters, it has 501
""")


@pytest.mark.parametrize(("flags", "message"), NO_JOB)
def test_what_cannot_be_a_job(submit, root, flags, message):
    assert submit(*flags.replace("LONG", "a" * 501).split()) == Outcome(2, "", error(message))
    assert not root.exists() or list((root / "jobs").iterdir()) == []


APART = rows(f"""\
--appliance --launch mpi => --launch: must not be with --appliance, got both
    hint: a job is one process, with a lane for each core
--appliance --json => --json: must not be with --appliance, got both
    hint: `cstool job submit --json --wait` prints a document about the job
--appliance --mode infer => {INFER}\n{AT_ONCE}
--appliance --prompt x => --prompt: must go with --mode infer, got --mode train
--priority p1 => --priority: must go with --appliance, got it alone\nhint: or with `cstool job submit`
--on_interrupt detach => --on_interrupt: must go with --appliance, got it alone\nhint: or with `cstool job submit`
--root x => --root: must go with --appliance, got it alone\nhint: or with `cstool job submit`
""")


@pytest.mark.parametrize(("flags", "message"), APART)
def test_flags_that_do_not_go_together(cstool, tmp_path, data, root, flags, message):
    assert cstool("run", "-p", gpt_params(tmp_path, data), *flags.split()) == Outcome(2, "", error(message))
    assert not root.exists()
