"""Runs as batch jobs of a real Slurm, with two nodes on this machine, have the bits of runs in one process."""

import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest

from tests.end_to_end.pages import blocks, plain_lines, typed, without_numbers
from tests.end_to_end.ranks import CSTOOL, Command, Said, committed
from tests.end_to_end.ranks import run as run_command
from tests.end_to_end.runs import digest, gpt_params, latest_bits, run_file, write_text
from tests.end_to_end.worked import write_data, write_params
from tests.job_contract import STREAMED
from tests.patience import wait_until

STEPS = 30
LOOP = {"init__loop": {"max_steps": STEPS}, "init__checkpoint": {"steps": STEPS}, "init__memoryx": {"store": "file"}}
SYSTEMS = {"init__backend": {"cluster_config": {"num_csx": 4}}, "init__model__dropout_rate": 0.1}
WAY_ON = "hint: the same command goes on from the last commit or checkpoint\n"
STOPS = "stops after this step. Another Ctrl-C cancels it."
DIED = (
    rf"error: rank 1 on {re.escape(socket.gethostname())}: must last as long as the run, it died "
    r"(before the first step|in step \d+(, after the op of [\w.]+)?)\n" + WAY_ON
)
RESTART = "restart {} of {} after {}: the run goes on from its last commit or checkpoint\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "train", 150)


@pytest.fixture(scope="module")
def straight(tmp_path_factory, data) -> tuple[list[float], str]:
    one = {**SYSTEMS, "init__backend": {"cluster_config": {"num_csx": 1}}}
    file = gpt_params(tmp_path_factory.mktemp("straight"), data, **LOOP, **one)
    result = run_file(file, execution_mode="weight_streaming")
    return result.losses, digest(Path(result.checkpoints[-1]))


@pytest.fixture
def file(tmp_path, data, cluster) -> Path:
    return gpt_params(tmp_path, data, **LOOP, **SYSTEMS)


def as_job(file: Path, *flags: str) -> tuple[str, ...]:
    """The command of a batch job with a rank on each of two nodes."""
    return (*CSTOOL, "run", "-p", str(file), *STREAMED, "--launch", "slurm", "--nodes", "2", "--lanes", "1", *flags)


def wait_for_commit(file: Path, step: int) -> None:
    # Before it begins a job waits, and so does one that is queued again.
    wait_until(lambda: committed(file.parent / "model_dir") >= step, f"no commit of step {step}", patience_s=180)


def kill_rank(command: Command, file: Path) -> None:
    wait_for_commit(file, 1)
    os.kill(command.rank(1), signal.SIGKILL)


def said_of_the_job(said: Said) -> list[str]:
    """What was said of the job itself, without its number and where its files are."""
    lines = [line for line in said.errors.splitlines() if re.match(r"job \d+: ", line)]
    return [line.partition(": ")[2] for line in lines if "submitted with" not in line and ": waits" not in line]


def other_errors(said: Said) -> str:
    """What else was said on stderr; srun and Slurm's daemons say how each process ended."""
    lines = said.errors.splitlines(keepends=True)
    return "".join(line for line in lines if not re.match(r"job \d+: (?!was )|srun: |slurmstepd-", line))


def stopped(file: Path, name: str) -> str:
    """The message of a run that was stopped."""
    return (
        f"interrupted: stopped by {name} after step {committed(file.parent / 'model_dir')}; "
        f"it is committed in {file.parent / 'model_dir' / 'memoryx_1_of_2.h5'}\n"
        "hint: the same command continues from there\n"
    )


def test_a_job_has_the_bits_of_one_process_and_flags_win_over_the_environment(file, straight):
    others = {**os.environ, "SBATCH_PARTITION": "nowhere", "SBATCH_TIMELIMIT": "1"}
    said = run_command(*as_job(file, "--json", "--time", "10", "--partition", "main"), environment=others)
    assert (said.exit_code, said_of_the_job(said)) == (0, ["runs on alpha,beta"]), said.errors
    result = json.loads(said.output)
    assert result["losses"] == straight[0]
    assert latest_bits(file.parent / "model_dir") == straight[1]
    assert [rank["rank"] for rank in result["ranks"]] == [0, 1]
    assert result["commands"]["continue"].endswith("--launch slurm --nodes 2 --partition main --time 10")


def test_one_rank_needs_no_mpi_and_the_script_is_as_good_by_hand(file, cluster, straight):
    said = run_command(*CSTOOL, "run", "-p", str(file), *STREAMED, "--launch", "slurm", "--max_steps", "10")
    assert (said.exit_code, other_errors(said)) == (0, "")
    script = file.parent / "model_dir" / "slurm" / "job.sh"
    assert "--mpi=pmi2" not in script.read_text()
    script.write_text(script.read_text().replace("--max_steps 10", f"--max_steps {STEPS}"))
    cluster.ask("sbatch", "--wait", str(script))
    assert latest_bits(file.parent / "model_dir") == straight[1]


def test_ranks_on_one_node_in_a_folder_with_an_odd_name_go_on_after_one_of_them_died(tmp_path, cluster, data, straight):
    """They share memory, which those that die leave behind."""
    file = gpt_params(tmp_path / "a b'c#%j", data, **LOOP, **SYSTEMS)
    flags = (*STREAMED, "--launch", "slurm", "--ranks", "2", "--lanes", "1", "--max_restarts", "1")
    with Command(*CSTOOL, "run", "-p", str(file), *flags, "--sbatch=--comment='two words'") as command:
        kill_rank(command, file)
        said = command.wait()
    found = re.fullmatch(DIED + RESTART.format(1, 1, "a rank died"), other_errors(said))
    assert (said.exit_code, found is None) == (0, False), said.errors
    assert {*said_of_the_job(said)} & {"runs on alpha", "runs on beta"}
    assert latest_bits(file.parent / "model_dir") == straight[1]


def test_an_srun_that_was_typed(file, straight):
    words = ("--nodes=2", *CSTOOL, "run", "-p", str(file), *STREAMED, "--lanes", "1", "--json")
    said = run_command("srun", "--mpi=none", *words)
    assert said.exit_code == 2
    assert re.fullmatch(
        r"error: --transport mpi: the launcher must belong to the MPI of this Python \(.+\); it started 2 processes, "
        r"of which this MPI sees 1\n"
        r"hint: srun --mpi=pmi2 does, as `--launch slurm` uses it; `srun --mpi=list` says what there is\n",
        other_errors(said),
    ), said.errors
    assert not (file.parent / "model_dir").exists()
    said = run_command("srun", "--mpi=pmi2", *words)
    result = json.loads(said.output)
    assert (said.exit_code, result["losses"]) == (0, straight[0]), said.errors
    assert result["commands"]["continue"].startswith("srun --mpi=pmi2 -n 2 cstool run ")


def test_a_signal_finishes_the_step_and_saves(file):
    with Command(*as_job(file)) as command:
        wait_for_commit(file, 1)
        os.kill(command.process.pid, signal.SIGTERM)
        said = command.wait()
    assert said.exit_code == 130
    assert said_of_the_job(said) == ["runs on alpha,beta", STOPS]
    assert other_errors(said) == stopped(file, "SIGTERM")


def test_a_second_ctrl_c_cancels_and_the_same_command_goes_on(file, straight):
    with Command(*as_job(file)) as command:
        wait_for_commit(file, 1)
        os.kill(command.process.pid, signal.SIGINT)
        # Two that come at once are one. It has no time to finish its step.
        assert command.process.stderr is not None
        assert any(STOPS in line for line in command.process.stderr)
        os.kill(command.process.pid, signal.SIGINT)
        said = command.wait()
    assert (said.exit_code, said_of_the_job(said)) == (130, ["is cancelled"])
    said = run_command(*as_job(file))
    assert (said.exit_code, other_errors(said)) == (0, "")
    assert latest_bits(file.parent / "model_dir") == straight[1]


def test_ctrl_c_before_the_job_runs(file, cluster):
    with Command(*as_job(file, "--sbatch=--begin=now+1hour")) as command:
        wait_until(lambda: bool(cluster.jobs()), "there is no job")
        [job] = cluster.jobs()
        os.kill(command.process.pid, signal.SIGINT)
        said = command.wait()
    assert (said.exit_code, cluster.state(job)) == (130, "CANCELLED")
    assert other_errors(said) == "interrupted: stopped by SIGINT before the run began\n"


def test_a_job_that_somebody_else_cancels(file, cluster):
    with Command(*as_job(file)) as command:
        wait_for_commit(file, 1)
        [job] = cluster.jobs()
        cluster.ask("scancel", job)
        said = command.wait()
    assert said.exit_code == 130
    assert other_errors(said) == stopped(file, "SIGTERM") + f"interrupted: job {job} was cancelled\n{WAY_ON}"


def test_where_the_terminal_is_closed_the_job_goes_on(file, cluster, straight):
    with Command(*as_job(file)) as command:
        wait_for_commit(file, 1)
        [job] = cluster.jobs()
        os.kill(command.process.pid, signal.SIGHUP)
        said = command.wait()
    log = file.parent / "model_dir" / "slurm" / f"{job}.out"
    left = f"interrupted: SIGHUP: job {job} is no longer followed, its log is {log}\nhint: `scancel {job}` ends it\n"
    assert (said.exit_code, other_errors(said)) == (130, left)
    wait_until(lambda: cluster.state(job) == "COMPLETED", "the job does not end")
    assert "Training completed successfully!" in log.read_text()
    assert latest_bits(file.parent / "model_dir") == straight[1]


def test_after_a_rank_died_and_the_time_limit_came_the_job_goes_on_by_itself(file, cluster, straight):
    with Command(*as_job(file, "--max_restarts", "2")) as command:
        kill_rank(command, file)
        wait_for_commit(file, committed(file.parent / "model_dir") + 2)
        [job] = cluster.jobs()
        # What Slurm does ahead of the time limit.
        cluster.ask("scancel", "--batch", "--signal=USR1", job)
        said = command.wait()
    stops = r"interrupted: stopped by SIGTERM after step \d+; .*\nhint: .*\n"
    pattern = DIED + RESTART.format(1, 2, "a rank died") + stops + RESTART.format(2, 2, "its time limit")
    assert (said.exit_code, bool(re.fullmatch(pattern, other_errors(said)))) == (0, True), said.errors
    assert latest_bits(file.parent / "model_dir") == straight[1]


def test_slurms_own_time_limit(file, cluster):
    """A minute is the least that there is; Slurm looks at it every 30 s, and tells the job in time."""
    with Command(*as_job(file, "--max_steps", "1000000", "--time", "1", "--max_restarts", "1")) as command:
        wait_for_commit(file, 1)
        [job] = cluster.jobs()
        asks = ("squeue", "-h", "-j", job, "--Format=RestartCnt:9")
        wait_until(lambda: cluster.ask(*asks) == "1", "not queued again", patience_s=180)
        at = committed(file.parent / "model_dir")
        wait_for_commit(file, at + 2)
        os.kill(command.process.pid, signal.SIGINT)
        said = command.wait()
    assert said.exit_code == 130
    assert re.fullmatch(
        rf"interrupted: stopped by SIGTERM after step {at}; .*\nhint: .*\n"
        + RESTART.format(1, 1, "its time limit")
        + re.escape(stopped(file, "SIGINT")),
        other_errors(said),
    ), said.errors
    assert f"from global step {at + 1} " in (file.parent / "model_dir" / "latest_run.log").read_text()


def test_sbatch_refuses(file):
    refusal = "error: --launch slurm: sbatch must take the job, it refuses: "
    for flag, said in (
        (
            "--partition=nowhere",
            "invalid partition specified: nowhere; Batch job submission failed: Invalid partition name specified\n"
            "hint: `sinfo` lists the partitions\n",
        ),
        (
            "--sbatch=--speed=high",
            "unrecognized option '--speed=high'; Try \"sbatch --help\" for more information\n"
            f"hint: the script is {file.parent / 'model_dir' / 'slurm' / 'job.sh'}\n",
        ),
    ):
        found = run_command(*as_job(file, flag))
        assert (found.exit_code, found.output, found.errors) == (2, "", refusal + said)


def test_the_page(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_params(tmp_path)
    write_data(tmp_path)
    a_job, told, same, *_, alone = blocks("cluster")[10:16]
    done = typed(a_job.removeprefix("$ "))
    assert done.code == 0, done.stderr
    # How long it waits, and whether that is seen, is another each time.
    shown, found = ([line for line in text.splitlines() if ": waits" not in line] for text in (told, done.stderr))
    assert [without_numbers(line.replace(str(tmp_path), "/home/me")) for line in found] == [
        without_numbers(line) for line in shown
    ]
    one = a_job.partition("--num_csx")[0].removeprefix("$ ") + "--max_steps 3 --model_dir checkpoints/one_process"
    assert typed(one).code == 0
    command, _, seen = same.removeprefix("$ ").partition("\n")
    done = typed(command)
    assert (done.code, plain_lines(done.stdout)) == (0, plain_lines(seen))
    command, _, seen = alone.removeprefix("$ ").partition("\n")
    done = typed(command)
    assert done.code == 2
    seen, found = ([line for line in text.splitlines() if "srun: " not in line] for text in (seen, done.stderr))
    assert [without_numbers(line) for line in found] == [without_numbers(line) for line in seen]
