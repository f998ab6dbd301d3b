"""One real appliance: its supervisor is killed, then its job; the job runs once, and goes on to the same bits."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from cstool.training.store import list_checkpoints
from tests.appliances import TestAppliance
from tests.end_to_end.refusals import Outcome, error
from tests.end_to_end.runs import digest, gpt_params, latest_bits, run_file
from tests.job_contract import run_of
from tests.patience import wait_until


@pytest.mark.takes("a supervisor and two attempts of a run, which are processes of their own")
def test_killed_with_its_supervisor_a_job_goes_on_to_the_bits_of_a_straight_run(cstool, tmp_path, data, monkeypatch):
    changes = {"init__loop": {"max_steps": 12}, "init__checkpoint": {"steps": 1}, "init__model__dropout_rate": 0.1}
    straight = digest(Path(run_file(gpt_params(tmp_path / "straight", data, **changes)).checkpoints[-1]))
    file = gpt_params(tmp_path / "job", data, **changes)
    words = ["job", "submit", "-p", file, "--lanes", 1, "--max_restarts", 1, "--memory", "2GiB", "--disk", "1GB"]
    monkeypatch.setenv("CSTOOL_APPLIANCE", str(tmp_path / "appliance"))
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-m", "cstool", *map(str, words)])
    with TestAppliance(tmp_path / "appliance") as appliance:
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
        assert latest_bits(model_dir) == straight
        assert "from global step" in "".join(cstool("job", "logs", name).stdout.splitlines()[1:])
        assert cstool("appliance", "stop").said == "The supervisor has ended\n"
        assert appliance.starts() == 2
        appliance.capacity = appliance.capacity.__class__(**status["capacity"])
        assert appliance.faults() == []
