"""The batch script of `--launch slurm`."""

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import cstool
from cstool.foundation.errors import ClusterError
from cstool.foundation.slurm.batch_script import BatchJob, ahead_s, limit_s
from tests.contract.refusal import refusal

JOB = BatchJob(
    name="gpt_tiny",
    typed=["cstool", "run", "--params", "gpt_tiny", "--set", "a=1", "--launch", "slurm", "--nodes", "2"],
    command=["/venv/bin/python", "-m", "cstool", "run", "--params", "gpt_tiny", "--set", "a=1", "--num_csx", "4"],
    flags=["--launch", "slurm", "--nodes", "2"],
    working_dir=Path("/home/me"),
    folder=Path("/home/me/checkpoints/gpt_tiny/slurm"),
    nodes=2,
    ranks=4,
    lanes=None,
    partition="main",
    time="2:00:00",
    options=["--account=mine --mem 8G"],
    max_restarts=3,
    continues=True,
    pmi="pmi2",
)
ODD = replace(
    JOB,
    typed=["cstool", "run", "--params", "a\nb"],
    command=["python", "-m", "cstool", "run", "--params", "a\nb $(date)"],
    folder=Path("/home/it's 100%/j#"),
    lanes=3,
    ranks=1,
    nodes=1,
    partition=None,
    time=None,
    options=[],
    max_restarts=0,
    continues=False,
    pmi=None,
)


def scripts(folder: Path, **programs: str) -> dict[str, str]:
    """An environment in which these programs are scripts."""
    for name, content in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{content}\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_the_script(golden):
    golden("slurm/job.sh", JOB.text().replace(cstool.__version__, "VERSION"))


def test_what_is_odd_stays_what_it_is():
    lines = ODD.text().splitlines()
    assert r"#     cstool run --params 'a\nb'" in lines
    options = [word for line in lines if line.startswith("#SBATCH ") for word in shlex.split(line)[1:]]
    assert options == ODD.sbatch_options()
    assert options == [
        *("--job-name=gpt_tiny", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--cpus-per-task=3"),
        *("--chdir=/home/me", "--output=/home/it's 100%%/j#/%j.out", "--error=/home/it's 100%%/j#/%j.err"),
        *("--open-mode=append", "--no-requeue", "--signal=B:USR1@120"),
    ]


@pytest.mark.parametrize(
    ("place", "option"),
    [
        ("name", r"job-name=a\ntouch PWN"),
        ("partition", r"partition=a\ntouch PWN"),
        ("working_dir", r"chdir=a\ntouch PWN"),
        ("folder", r"output=a\ntouch PWN/%j.out"),
    ],
)
def test_an_option_that_would_end_its_line(place, option):
    odd = replace(JOB, **{place: (Path if place in ("working_dir", "folder") else str)("a\ntouch PWN")})
    with refusal(ClusterError, f"a batch script: must have options without control characters, got '--{option}'"):
        odd.text()


@pytest.mark.parametrize(("job", "command"), [(JOB, "--mpi=pmi2 --cpu-bind=none"), (ODD, "--cpus-per-task=3")])
def test_the_shell_starts_just_the_command(tmp_path, job, command):
    """srun here is a script that says what it was asked."""
    environment = scripts(tmp_path, srun='printf "%s\\0" "$@"; exit 2')
    done = subprocess.run(["/bin/bash", "-c", job.text()], env=environment, capture_output=True, text=True, check=False)
    words = ["--quiet", *command.split(), "--kill-on-bad-exit=0", "--wait=60", *job.command]
    assert (done.returncode, done.stderr, done.stdout.split("\0")[:-1]) == (2, "", words)


@pytest.mark.parametrize(
    ("code", "restarts", "exit_code"),
    [(0, 0, 0), (1, 0, 1), (130, 0, 130), (137, 0, None), (137, 2, None), (137, 3, 1), (139, 0, None)],
)
def test_how_a_job_ends(tmp_path, code, restarts, exit_code):
    """Only after a rank died it is queued again; a signal that came to a rank was meant to end the run."""
    environment = scripts(tmp_path, srun=f"exit {code}", scontrol='echo "$@"')
    environment |= {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(restarts)}
    done = subprocess.run(["/bin/bash", "-c", JOB.text()], env=environment, capture_output=True, text=True, check=False)
    way_on = f"restart {restarts + 1} of 3 after a rank died: the run goes on from its last commit or checkpoint\n"
    ended = (1, "requeue 7\n", way_on) if exit_code is None else (exit_code, "", "")
    assert (done.returncode, done.stdout, done.stderr) == ended


def test_time_limits_are_read_as_sbatch_reads_them():
    limits = {"90": 5400, "1:30": 90, "1:30:00": 5400, "2-12": 216_000, "2-12:30": 217_800, "2-12:30:05": 217_805}
    limits |= {"UNLIMITED": None, "infinite": None}
    assert {time: limit_s(time) for time in limits} == limits


def test_a_run_is_stopped_ahead_of_its_time_limit():
    ahead = {"1": 10, "10": 30, "60": 180, "2-0": 300, "unlimited": 120, None: 120}
    assert {time: ahead_s(time) for time in ahead} == ahead
