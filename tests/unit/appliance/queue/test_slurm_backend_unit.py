"""The Slurm back end without a Slurm: what its commands say is said here by small scripts, and read."""

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from cstool.appliance.queue.client import Jobs, open_jobs
from cstool.appliance.queue.job import CANCELLED, COMPILING, FAILED, QUEUED, RUNNING, SUCCEEDED, Job, JobOrder
from cstool.appliance.queue.slurm_journal import Entry, Journal
from cstool.appliance.queue.slurm_news import BatchState, end_of, next_change
from cstool.appliance.queue.slurm_script import JobScript, comment_of, slurm_folder
from cstool.foundation.errors import CstoolError
from cstool.foundation.slurm.listing import Listed, accounted_jobs, known_jobs, number_of
from tests.appliances import NEEDS, small_order
from tests.unit.appliance.queue.queues import refused

SILENT = 'echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1'
UNKNOWN = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'
NO_ACCOUNTS = 'echo "Slurm accounting storage is disabled" >&2; exit 1'
# As squeue and sacct of Slurm 22.05 printed it, with SLURM_TIME_FORMAT=%s.
SQUEUE = """\
7|PENDING||1795617400|1795617700|Resources
8|RUNNING|alpha|1795617223|1795620823|None
9|FAILED|beta|1795617223|1795617224|NonZeroExitCode
10|PENDING||N/A|N/A|Licenses|with a bar
"""
SACCT = """\
7|COMPLETED|alpha|1795617223|1795617224|None
8|CANCELLED by 0|None assigned|None|1795617224|BeginTime
9|TIMEOUT|alpha,beta|1795617223|Unknown|None
"""
WAIT = "nothing is lost: jobs go on, and the same command works again once Slurm answers"
LONG_AGO = 1795617224.0


@pytest.fixture
def put(tmp_path, monkeypatch) -> Callable[..., None]:
    """Put commands of Slurm on PATH, by name what they do; what they were called with is in the file `said`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def write(**commands: str) -> None:
        for name, content in commands.items():
            (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/said\n{content}\n')
            (folder / name).chmod(0o755)

    write(sbatch="echo '7;cluster'", squeue="", sacct=NO_ACCOUNTS, scontrol=UNKNOWN, scancel="")
    return write


def printing(text: str) -> str:
    return f"cat <<'END'\n{text}END"


@pytest.fixture
def jobs(tmp_path, put) -> Iterator[Jobs]:
    with open_jobs(tmp_path / "root", "slurm", makes=True) as found:
        yield found


@pytest.fixture
def order(tmp_path) -> JobOrder:
    return small_order(tmp_path / "model_dir", "pass", "run", compile_words=("compile",))


def submitted(jobs: Jobs, put: Callable[..., None], order: JobOrder, listed: str = ""):
    """Submit a job of which squeue says this."""
    put(squeue=printing(listed) if listed else UNKNOWN)
    return jobs.submit(order)


def journal_of(jobs: Jobs, job: Job) -> Journal:
    return Journal(slurm_folder(jobs.folder(job.name)) / "journal")


def entry(phase: str, stage: str = "execute", attempt: int = 1, **changes) -> Entry:
    kinds = {COMPILING: "compile_started", RUNNING: "started", QUEUED: "compiled", SUCCEEDED: "succeeded"}
    kind = kinds.get(phase, phase.lower())
    return replace(Entry(LONG_AGO, kind, f"{phase} {stage} {attempt}", phase, stage, attempt), **changes)


LIFE = [
    entry(COMPILING, "compile"),
    entry(QUEUED, "execute", 0),
    entry(RUNNING, cpus=(0, 1), nodes="alpha"),
    entry(QUEUED, kind="crashed", reason="crashed", restarts=1),
    entry(RUNNING, attempt=2, restarts=1),
    entry(SUCCEEDED, attempt=2, restarts=1, exit_code=0, peak_bytes=5),
]


def test_lists_of_squeue(put):
    put(squeue=printing(SQUEUE))
    found = [*known_jobs(["7", "8", "9", "10"]).values()]
    assert found == [
        Listed("7", "PENDING", "", 1795617400.0, 1795617700.0, "Resources"),
        Listed("8", "RUNNING", "alpha", 1795617223.0, 1795620823.0, ""),
        Listed("9", "FAILED", "beta", 1795617223.0, 1795617224.0, "NonZeroExitCode"),
        Listed("10", "PENDING", "", None, None, "Licenses|with a bar"),
    ]
    assert [job.has_ended for job in found] == [False, False, True, False]


def test_what_squeue_forgot_accounting_knows(put, tmp_path):
    put(squeue=UNKNOWN, sacct=printing(SACCT))
    assert [*known_jobs(["7", "8", "9"]).values()] == [
        Listed("7", "COMPLETED", "alpha", 1795617223.0, 1795617224.0, ""),
        Listed("8", "CANCELLED", "", None, 1795617224.0, "BeginTime"),
        Listed("9", "TIMEOUT", "alpha,beta", 1795617223.0, None, ""),
    ]
    assert "--jobs=7,8,9" in (tmp_path / "said").read_text().splitlines()[-1]


def test_there_is_no_accounting(put):
    put(squeue=UNKNOWN, sacct=NO_ACCOUNTS)
    assert known_jobs(["7"]) == accounted_jobs(["7"]) == {}
    put(sacct="exit 127")
    assert accounted_jobs(["7"]) == {}


def test_a_number_by_its_name(put):
    for squeue, sacct, number in (
        ("printf '7\\n12\\n'", NO_ACCOUNTS, "12"),
        ("", "echo 5", "5"),
        ("", NO_ACCOUNTS, None),
    ):
        put(squeue=squeue, sacct=sacct)
        assert number_of("wsjob-x") == number


OPTIONS = "--sbatch: must be options as one types them, got {!r}", "as --sbatch=--account=NAME"


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        (
            {"preempts": True},
            "--preempt: must be left out with --backend slurm: by its own rules Slurm decides which job makes way",
            "a partition or a QOS that may preempt others does: --sbatch=--qos=NAME",
        ),
        *(
            ({"backend_options": (option,)}, f"--sbatch: must leave --{name} to the appliance, got {option!r}", None)
            for option, name in (
                ("--array=1-2", "array"),
                ("--arr=1", "array"),
                ("-a 1", "array"),
                ("--qos=x -Mother", "clusters"),
            )
        ),
        *(
            ({"backend_options": (option,)}, OPTIONS[0].format(option), OPTIONS[1])
            for option in ("", "qos", "--comment='x", "--a\nb")
        ),
    ],
)
def test_what_is_left_to_slurm_or_to_the_appliance(jobs, order, changes, message, hint):
    assert refused(jobs.submit, replace(order, **changes)) == (message, hint)
    assert jobs.jobs() == []


def test_there_is_no_slurm(jobs, order, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    message = "--backend slurm: needs Slurm, found no sbatch on PATH"
    assert refused(jobs.submit, order) == (message, "`--backend local` needs no Slurm")


def test_sbatch_refuses_and_nothing_is_left(jobs, order, put):
    put(sbatch='echo "sbatch: error: Batch job submission failed: Invalid account" >&2; exit 1')
    message, hint = refused(jobs.submit, order)
    assert message == (
        "--backend slurm: sbatch must take the job, it refuses: Batch job submission failed: Invalid account"
    )
    assert re.fullmatch(r"the script is .*/wsjob-\w+/slurm/job\.sh", hint)
    assert (jobs.jobs(), [*jobs.root.jobs.iterdir()]) == ([], [])


def test_slurm_does_not_answer(jobs, order, put):
    job = submitted(jobs, put, order, "7|PENDING||N/A|N/A|Priority\n")
    journal_of(jobs, job).add(LIFE[0])
    put(squeue=SILENT, scancel=SILENT)
    said = "it says: slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    assert refused(jobs.job, job.name) == (f"Slurm: squeue must answer, {said}", WAIT)
    assert jobs.queue.job(job.name).phase == COMPILING
    message = f"job 7 of Slurm: scancel must end it, {said}"
    assert refused(jobs.cancel, job.name) == (message, "`scancel 7` tries it again")
    assert jobs.queue.job(job.name).asked == "cancel"


def test_the_script(jobs, order, put, tmp_path):
    changes = {"priority": "p3", "labels": {"a": "b c", "d": ""}, "note": "it's a note", "max_restarts": 2}
    needs = replace(NEEDS, cores=3, memory_bytes=2**30, limit_s=90.0)
    job = submitted(jobs, put, replace(order, needs=needs, backend_options=("--qos=low -x n1",), **changes))
    assert job.backend_id == "7"
    folder = jobs.folder(job.name)
    script = JobScript(folder, folder.order(job.digest), job.digest)
    text = script.script.read_text()
    options = [
        f"--job-name={job.name}",
        *("--nodes=1", "--ntasks=1", "--cpus-per-task=3", "--mem=1088M", "--time=12", "--nice=2000"),
        "--comment=a=b c,d=; it's a note",
        "--chdir=/",
        *(f"--output={folder.path}/slurm/%j.log", f"--error={folder.path}/slurm/%j.log", "--open-mode=append"),
        *("--requeue", "--signal=B:USR1@60", "--qos=low", "-x", "n1"),
    ]
    assert script.sbatch_options() == options
    assert (tmp_path / "said").read_text().splitlines()[-1] == f"sbatch --parsable {' '.join(options)} {script.script}"
    assert "# p3: users may lower their priority, not raise it, so p1 has the usual one." in text
    assert text.endswith(f" -m cstool.appliance.queue.slurm_node {folder.path} {job.digest}\n")
    assert os.access(script.script, os.X_OK)


def test_options_of_other_jobs(jobs, order):
    def options(**changes: object) -> list[str]:
        return JobScript(jobs.root.job("wsjob-" + "a" * 22), replace(order, **changes), "0").sbatch_options()

    for priority, nice in (("p1", 0), ("p2", 1000), ("p3", 2000)):
        assert f"--nice={nice}" in options(priority=priority), "priorities are only lowered"
    found = options(preemptible=False)
    assert "--no-requeue" in found, "it could not go on"
    assert not any(option.startswith(("--time", "--comment")) for option in found)
    assert len(comment_of(replace(order, labels={f"k{n}": "v" * 60 for n in range(20)}))) == 500


def test_a_journal_reads_as_it_was_written(tmp_path):
    journal = Journal(tmp_path / "journal")
    assert journal.read() == []
    assert all(journal.add(each) for each in LIFE)
    assert journal.read() == LIFE
    assert [each.place for each in LIFE] == sorted({each.place for each in LIFE})


def test_a_journal_that_is_damaged(tmp_path):
    journal = Journal(tmp_path / "journal")
    lines = ('{"at": 1', "[]", "{}", "nan", "\0", '{"at": 1e999, "kind": "started"}', "[" * 5000, "\x1b[2J")
    for line in lines:
        (tmp_path / "journal").write_text(line)
        journal.add(LIFE[0])
        assert journal.read() == [LIFE[0]], line


def test_an_entry_that_no_job_would_write_and_one_that_is_too_long(tmp_path):
    journal = Journal(tmp_path / "journal")
    wrong = [{"phase": "X"}, {"kind": "x"}, {"stage": "y"}, {"attempt": -1}, {"restarts": "1"}, {"exit_code": 256}]
    wrong += [{"cpus": (-1,)}, {"at": -1}, {"phase": COMPILING}, {"stopped": 1}, {"text": 5}]
    for changes in wrong:
        journal.add(replace(LIFE[2], **changes))
        assert journal.read() == [], changes
    journal.add(replace(LIFE[2], text="a\nb\x1b[2J" + "x" * 1000))
    [found] = journal.read()
    assert (found.text[:12], len(found.text)) == ("a\\nb\\x1b[2Jx", 500)


def test_a_journal_that_is_a_link_or_a_pipe(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "journal")
    Journal(tmp_path / "journal").add(LIFE[0])
    assert Journal(tmp_path / "link").read() == []
    assert not Journal(tmp_path / "link").add(LIFE[0])
    os.mkfifo(tmp_path / "pipe")
    assert Journal(tmp_path / "pipe").read() == []


def test_what_could_not_be_written_is_written_later(tmp_path):
    journal = Journal(tmp_path / "folder" / "journal")
    assert not journal.add(LIFE[0])
    (tmp_path / "folder").mkdir()
    assert journal.add(LIFE[1])
    assert journal.read() == LIFE[:2]


def test_a_life_is_told_once_and_in_order(jobs, order, put):
    job = submitted(jobs, put, order, "7|RUNNING|alpha|1|2|None\n")
    journal = journal_of(jobs, job)
    for number, each in enumerate(LIFE, start=1):
        journal.add(each)
        # Each time, or all at once.
        if number not in (2, 3):
            jobs.job(job.name)
            jobs.job(job.name)
    events = jobs.events(job.name)
    assert [event.kind for event in events] == ["submitted", *(each.kind for each in LIFE)]
    job = jobs.job(job.name)
    assert (job.phase, job.attempt, job.restarts, job.exit_code, job.peak_bytes) == (SUCCEEDED, 2, 1, 0, 5)
    assert (job.started_at, job.ended_at, job.cpus) == (LONG_AGO, LONG_AGO, ())
    data = {"attempt": 1, "cpus": [0, 1], "nodes": "alpha", "slurm_job": "7", "memory_bytes": NEEDS.memory_bytes}
    assert {**events[3].data, **data} == events[3].data


def test_while_it_waits(jobs, order, put):
    needs = replace(NEEDS, seconds=100.0)
    job = submitted(jobs, put, replace(order, needs=needs), "7|PENDING||1795617400|1795617700|Resources\n")
    job = jobs.job(job.name)
    assert (job.phase, job.reason) == (QUEUED, "waits in Slurm: Resources")
    assert (job.expected_start, job.expected_end) == (1795617400.0, 1795617500.0)


OF_SLURM = "job 7 of Slurm: "
NO_BEGIN = "its batch job ended as FAILED (JobLaunchFailure) before it began; its log is in `slurm` of its folder"
SLURM_ENDS = {
    "7|CANCELLED|a|1|2|None\n": (CANCELLED, "cancelled by Slurm's commands"),
    "7|TIMEOUT|a|1|2|TimeLimit\n": (FAILED, f"{OF_SLURM}Slurm's time limit is over"),
    "7|OUT_OF_MEMORY|a|1|2|OutOfMemory\n": (FAILED, f"{OF_SLURM}it took more memory than Slurm lets it have"),
    "7|NODE_FAIL|a|1|2|None\n": (FAILED, f"{OF_SLURM}its node failed"),
    "7|FAILED|a|1|2|JobLaunchFailure\n": (FAILED, f"{OF_SLURM}{NO_BEGIN}"),
    "": (FAILED, f"{OF_SLURM}Slurm knows it no longer, and it did not say how it ended"),
}


@pytest.mark.parametrize("listed", SLURM_ENDS)
def test_what_slurm_ended(jobs, order, put, listed):
    job = jobs.job(submitted(jobs, put, order, listed).name)
    assert (job.phase, job.reason) == SLURM_ENDS[listed]
    assert jobs.events(job.name)[-1].text == job.reason


def test_what_it_wrote_or_may_still_write_counts_more_than_what_slurm_says(jobs, order, put):
    job = submitted(jobs, put, order, f"7|COMPLETED|a|1|{int(time.time())}|None\n")
    assert jobs.job(job.name).phase == QUEUED  # it has just ended, and may say how
    journal_of(jobs, job).add(LIFE[-1])
    assert jobs.job(job.name).phase == SUCCEEDED


STOPPED = entry(QUEUED, kind="preempted", stopped=True)


def test_what_was_stopped_from_outside(jobs, order, put):
    job = replace(submitted(jobs, put, order), phase=RUNNING, stage="execute", attempt=1)
    for asked, listed, expected in (
        ("cancel", None, "cancelled"),
        ("cancel", "RUNNING", "cancelled"),
        ("", None, None),
        ("", "PENDING", "preempted"),
        ("", "CANCELLED", "cancelled"),
        ("", "FAILED", "cancelled"),
    ):
        state = None if listed is None else BatchState(Listed("7", listed, "", 1.0, 2.0, ""))
        found = next_change(replace(job, asked=asked), [STOPPED], state)
        assert (None if found is None else found.kind) == expected, (asked, listed)
        # Where it ran again, it is told of as it was.
        assert next_change(replace(job, asked=asked), [STOPPED, entry(RUNNING, attempt=2)], None) == STOPPED


def test_a_cancelled_job_that_slurm_ended(jobs, order, put):
    job = replace(submitted(jobs, put, order), phase=RUNNING, asked="cancel_now")
    found = end_of(job, BatchState(Listed("7", "CANCELLED", "", 1.0, 2.0, "")), 3.0)
    assert (found.phase, found.at, found.text) == (CANCELLED, 2.0, "cancelled; Slurm ended it")


def test_a_stop_reaches_slurm_and_is_said_again_where_it_did_not(jobs, order, put, tmp_path, monkeypatch):
    monkeypatch.setattr("cstool.appliance.queue.slurm.ASK_S", 0.0)

    def scancels() -> list[str]:
        lines = (tmp_path / "said").read_text().splitlines()
        (tmp_path / "said").unlink()
        return [line.removeprefix("scancel --quiet ") for line in lines if line.startswith("scancel")]

    job = submitted(jobs, put, order, "7|PENDING||N/A|N/A|Priority\n")
    assert jobs.cancel(job.name).phase == CANCELLED
    assert scancels() == ["--state=PENDING 7", "--state=RUNNING --batch --signal=TERM 7"]
    job = submitted(jobs, put, order, "7|RUNNING|a|1|2|None\n")
    journal_of(jobs, job).add(LIFE[2])
    jobs.queue.change(job.name, (QUEUED,), phase=RUNNING, stage="execute", attempt=1, asked="cancel_now")
    jobs.job(job.name)
    assert scancels() == ["--state=PENDING 7", "--state=RUNNING --batch --signal=INT 7", "7"]


def test_a_submitter_that_was_killed(jobs, order, put, monkeypatch):
    job = submitted(jobs, put, order)
    jobs.queue.change(job.name, (QUEUED,), backend_id="")
    assert jobs.job(job.name).backend_id == ""
    monkeypatch.setattr("cstool.appliance.queue.slurm.ACCEPTED_S", -1.0)
    monkeypatch.setattr("cstool.appliance.queue.slurm.ASK_S", 0.0)
    put(squeue="echo 12")
    assert jobs.job(job.name).backend_id == "12"
    jobs.queue.change(job.name, (QUEUED,), backend_id="")
    put(squeue="")
    job = jobs.job(job.name)
    reason = "it was not handed in to Slurm: the command that submitted it was ended"
    assert (job.phase, job.reason) == (FAILED, reason)


def test_a_folder_that_is_gone(jobs, order, put):
    job = submitted(jobs, put, order, "7|COMPLETED|a|1|2|None\n")
    jobs.folder(job.name).remove()
    assert jobs.job(job.name).reason.startswith("job 7 of Slurm: its batch job ended as COMPLETED before it began")
    with pytest.raises(CstoolError):
        jobs.cancel(job.name)
