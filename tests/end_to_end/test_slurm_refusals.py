"""`--launch slurm`: what is refused before there is a job, and what is said of jobs that Slurm ends.

What stands for Slurm here are small scripts, so these tests need none; `test_slurm.py` has a real one.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.refusals import Outcome, error, rows
from tests.end_to_end.runs import gpt_params

JOB = "JobId=7 JobName=x JobState={state} Reason={reason} ExitCode={code} NodeList=alpha"
PMI = "MPI plugin types are...\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4"
WRITES = """
for word in "$@"; do
    case $word in --output=*) out=${word#--output=} ;; --error=*) err=${word#--error=} ;; esac
done
echo "a line of the log" >"$(echo "$out" | sed "s/%j/7/")"
echo "an error of the run" >"$(echo "$err" | sed "s/%j/7/")"
echo "7;cluster"
"""
"""is an sbatch whose job is over at once"""
WAY_ON = "the same command goes on from the last commit or checkpoint"


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Callable[..., None]:
    """Put commands of Slurm on PATH, by name what they do."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(**commands: str) -> None:
        usual = {
            "sbatch": WRITES,
            "srun": f"echo '{PMI}' >&2",
            "scancel": "",
            "scontrol": f"echo '{JOB.format(state='COMPLETED', reason='None', code='0:0')}'",
        }
        for name, content in {**usual, **commands}.items():
            (folder / name).write_text(f"#!/bin/sh\n{content}\n")
            (folder / name).chmod(0o755)

    return put


@pytest.fixture
def job(cstool, tmp_path, data) -> Callable[..., Outcome]:

    def run(*flags: object, **changes: object) -> Outcome:
        changes = {"init__backend": {"cluster_config": {"num_csx": 4}}, **changes}
        return cstool("run", "-p", gpt_params(tmp_path, data, **changes), *flags)

    return run


@pytest.fixture
def refused(job, slurm, tmp_path) -> Callable[..., None]:
    slurm()

    def check(message: str, hint: str | None, *flags: object, **changes: object) -> None:
        assert job("--launch", "slurm", *flags, **changes) == Outcome(2, "", error(message, hint))
        assert not (tmp_path / "model_dir").exists()

    return check


def test_there_is_no_slurm(refused, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    refused("--launch slurm: needs Slurm, found no sbatch on PATH", "`--launch mpi` needs no Slurm, on one host")


def test_a_time_limit_that_is_none(refused):
    hint = "90 or 1:30:00 is an hour and a half, 2-12 two days and a half; 1:30 is a minute and a half"
    for time in ("1x", "", "0", "0:00", "-5", "1:2:3:4", "1-", "1-2:3:4:5", "1.5", "1h", " 1", "²"):
        refused(f"--time: must be a time limit as sbatch takes it, got {time!r}", hint, f"--time={time}")


NO_JOB = rows("""\
--nodes 0 => --nodes: must be at least 1, got 0
--nodes 3 --ranks 2 => --ranks: must be at least the number of nodes (3), got 2
--transport in_process => --launch slurm: must not be with --transport in_process, got both
    hint: one process needs no launch
--sbatch account => --sbatch: must be options as one types them, got 'account'\nhint: as --sbatch=--account=NAME
--sbatch "--comment='two" => --sbatch: must be options as one types them, got "--comment='two"
    hint: as --sbatch=--account=NAME
--nodes 5 => num_csx: must be at least the number of processes (5), got 4\nhint: --num_csx 5, or fewer processes
""")


@pytest.mark.parametrize(("flags", "message"), NO_JOB)
def test_what_cannot_be_a_job(refused, flags, message):
    refused(message, None, *shlex.split(flags))


def test_an_option_of_sbatch_has_one_line(refused):
    rule = "--sbatch: must be options as one types them, got '--a\\nrm x'"
    refused(rule, "as --sbatch=--account=NAME", "--sbatch", "--a\nrm x")


def test_flags_of_slurm_without_it(job):
    for flag, value in (("--nodes", "2"), ("--partition", "main"), ("--time", "1"), ("--sbatch", "--account=a")):
        for others, got in (((), "it alone"), (("--launch", "mpi"), "--launch mpi")):
            said = error(f"{flag}: must go with --launch slurm, got {got}")
            assert job(flag, value, *others) == Outcome(2, "", said)
    assert job(flag, value, "--mode", "infer", "--launch", "mpi") == Outcome(2, "", said)


def test_one_of_several_processes(refused, monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    monkeypatch.setenv("SLURM_PROCID", "0")
    refused(
        "--launch slurm: must be typed where no launcher started the process, got one of 2",
        "without --launch the processes find each other",
    )


OFFERS = rows("""\
echo 'MPI plugin types are...\\n\\tnone\\n\\tpmix' >&2 | print('MPICH Version: 5.0.2') => --launch slurm: srun must
        offer pmi2, by which ranks of MPICH Version: 5.0.2 find each other, it offers none, pmix
    hint: an mpi4py built for an MPI of this cluster may use what there is
exit 1 | print('Open MPI v5.0.6') =>
    --launch slurm: srun must offer pmix, by which ranks of Open MPI v5.0.6 find each other, it offers nothing
    hint: an mpi4py built for an MPI of this cluster may use what there is
exit 1 | raise RuntimeError('cannot load MPI library') =>
    --launch slurm: needs MPI for several ranks, got RuntimeError: cannot load MPI library
    hint: pip install 'cstool[mpi]' installs mpi4py and MPICH
""")


@pytest.mark.parametrize(("commands", "message"), OFFERS)
def test_an_srun_that_cannot_tell_ranks_of_each_other(refused, slurm, monkeypatch, commands, message):
    srun, _, library = commands.replace("\\n", "\n").replace("\\t", "\t").partition(" | ")
    monkeypatch.setattr("cstool.foundation.slurm.commands.LIBRARY", library)
    slurm(srun=srun)
    refused(message, None, "--nodes", "2")


def test_sbatch_refuses_and_model_dir_cannot_be_written(job, slurm, tmp_path):
    slurm(sbatch="echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1")
    message = "--launch slurm: sbatch must take the job, it refuses: Batch job submission failed: Invalid account"
    hint = "the script is TMP/model_dir/slurm/job.sh"
    assert job("--launch", "slurm") == Outcome(2, "", error(message, hint))
    shutil.rmtree(tmp_path / "model_dir")
    (tmp_path / "model_dir").write_text("no folder")
    message = "TMP/model_dir/slurm: model_dir must be a folder that can be written, got: Not a directory"
    assert job("--launch", "slurm") == Outcome(2, "", error(message, "choose another one with --model_dir"))


ENDED = "job 7: must end by itself, it was ended by {}"
LONGER = "a longer --time, or a larger one of `--signal` in the script, helps"
SUBMITTED = "job 7: submitted with TMP/model_dir/slurm/job.sh; its log is TMP/model_dir/slurm/7.out\n"


@pytest.mark.parametrize(
    ("state", "reason", "code", "exit_code", "message"),
    [
        ("COMPLETED", "None", "0:0", 0, ""),
        ("FAILED", "NonZeroExitCode", "1:0", 1, ""),
        ("FAILED", "NonZeroExitCode", "130:0", 130, ""),
        ("FAILED", "JobLaunchFailure", "0:9", 1, error(ENDED.format("signal 9 of its script"), WAY_ON)),
        ("TIMEOUT", "TimeLimit", "0:15", 1, error(ENDED.format("TIMEOUT"), f"{WAY_ON}; {LONGER}")),
        ("NODE_FAIL", "None", "0:0", 1, error(ENDED.format("NODE_FAIL"), WAY_ON)),
        ("CANCELLED", "None", "0:15", 130, f"interrupted: job 7 was cancelled\nhint: {WAY_ON}\n"),
    ],
)
def test_a_job_that_is_over(job, slurm, state, reason, code, exit_code, message):
    """What it wrote is shown, on stdout and stderr, and then how it ended."""
    slurm(scontrol=f"echo '{JOB.format(state=state, reason=reason, code=code)}'")
    expected = Outcome(exit_code, "a line of the log\n", f"{SUBMITTED}an error of the run\n{message}")
    assert job("--launch", "slurm") == expected


def test_a_job_that_slurm_knows_no_longer(job, slurm):
    slurm(scontrol="echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    message = "job 7: must be known to Slurm until it has ended, it is no longer"
    said = f"{SUBMITTED}an error of the run\n{error(message, 'its log is in the folder `slurm` of model_dir')}"
    assert job("--launch", "slurm") == Outcome(2, "a line of the log\n", said)


def test_slurm_does_not_answer_for_a_while(job, slurm, tmp_path, monkeypatch):
    monkeypatch.setattr("cstool.foundation.slurm.following.STATE_S", 0.01)
    states = [("PENDING", "Resources"), ("PENDING", "Resources"), ("RUNNING", "None"), ("COMPLETED", "None")]
    lines = [JOB.format(state=state, reason=reason, code="0:0") for state, reason in states]
    (tmp_path / "lines").write_text("\n".join([lines[0], "", *lines[1:], ""]))
    # Each call takes a line; an empty one is a controller that does not answer.
    slurm(
        scontrol=f"line=$(head -1 {tmp_path}/lines); sed -i 1d {tmp_path}/lines\n"
        '[ "$line" ] || { echo \'Unable to contact slurm controller\' >&2; exit 1; }; echo "$line"'
    )
    outcome = job("--launch", "slurm")
    said = [line for line in outcome.stderr.splitlines() if "an error" not in line]
    assert (outcome.code, said) == (0, [SUBMITTED.rstrip(), "job 7: waits (Resources)", "job 7: runs on alpha"])


def test_the_script_is_kept_and_runs_the_same_command(job, slurm, tmp_path, monkeypatch):
    slurm()
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-m", "cstool", *["typed"] * 11])
    typed = ("--lanes", "3", "--seed", "5", "--launch", "slurm", "--time", "2:00:00")
    assert job(*typed).code == 0
    text = (tmp_path / "model_dir" / "slurm" / "job.sh").read_text()
    command = [sys.executable, "-P", "-m", "cstool", "run", "\\\n    --params", str(Path(tmp_path, "params.yaml"))]
    assert " ".join([*command, "\\\n    --seed 5 \\\n    --lanes 3 &\n"]) in text
    assert "#SBATCH --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=3\n" in text
