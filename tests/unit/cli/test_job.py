"""`cstool job` over a queue without a supervisor: lists, a job, events, logs, labels, cancelling, waiting."""

import json
import os
from collections.abc import Iterator

import pytest
import yaml

from cstool.appliance.queue.following import cores_text
from cstool.appliance.queue.job import FAILED
from tests.shown_jobs import Shown, name_of
from tests.terminal import on_terminal

HINT = "hint: cstool job list -a shows all names; the first letters of one suffice\n"


@pytest.fixture
def shown(tmp_path, monkeypatch) -> Iterator[Shown]:
    """An appliance that is the usual one, with a job that has ended, one that runs, and one that waits."""
    monkeypatch.setenv("CSTOOL_APPLIANCE", str(tmp_path / "appliance"))
    with Shown(tmp_path / "appliance") as shown:
        shown.now -= 4000
        for number, changes in enumerate(({"labels": {"team": "a"}}, {"priority": "p1"}, {"priority": "p3"})):
            shown.submit(number, **changes)
        shown.compile(name_of(0), 60)
        shown.start(name_of(0), [0])
        shown.now += 723
        shown.end(name_of(0), FAILED, "it took more memory than it may", exit_code=None)
        shown.start(name_of(1), [1])
        shown.now += 4000 - 783
        shown.queue.set_expected({name_of(2): (shown.now + 125.5, None)}, {name_of(2): "waits for 1 core"})
        yield shown


def test_a_list(cstool, shown):
    """What has not ended, the newest last; columns are the vendor's, and more."""
    usual = ["NAME", "PRIORITY", "AGE", "DURATION", "PHASE", "SYSTEMS", "USER", "LABELS"]
    head, first, second = (line.split() for line in cstool("job", "list").said.splitlines())
    assert head == [*usual, "POSITION", "STARTS"]
    assert (first[:2], first[4:]) == ([name_of(1), "p1"], ["RUNNING", "1", shown.queue.job(name_of(1)).user])
    assert (second[:2], second[-3:-1]) == ([name_of(2), "p3"], ["1", "in"])
    ended = cstool("job", "list", "--phase", "failed").said.splitlines()
    assert (ended[0].split(), ended[1].split()[3:5]) == (usual, ["12m3s", "FAILED"])
    assert ended[1].endswith("team=a")
    for reason, starts in (
        ("the job must fit the appliance: at most 2 cores, got 4 cores", "never"),
        ("waits for 1 core", "unknown"),
    ):
        shown.queue.set_expected({name_of(2): (None, None)}, {name_of(2): reason})
        assert cstool("job", "list").said.splitlines()[2].split()[-1] == starts


def test_what_is_listed(cstool, shown):
    for typed, numbers in (
        ("", [1, 2]),
        ("-a", [0, 1, 2]),
        ("-a --limit 2", [1, 2]),
        ("-a --label team=a", [0]),
        ("--label team=a", []),
        ("--phase RUNNING --phase QUEUED", [1, 2]),
        ("-a --user nobody-of-here", []),
    ):
        document = cstool("job", "list", "--json", *typed.split()).document
        assert [job["name"] for job in document["jobs"]] == [name_of(number) for number in numbers]


def test_a_list_of_none_says_so_on_stderr(cstool, shown):
    assert cstool("job", "list", "-a", "--label", "x=y") == (0, "", "no such job\n")
    cstool("job", "cancel", name_of(2))
    shown.end(name_of(1))
    assert cstool("job", "list") == (0, "", "no job waits or runs; -a lists those that have ended\n")


def test_of_many_that_have_ended_the_newest_are_listed_and_how_many_more_there_are(cstool, shown, monkeypatch):
    monkeypatch.setattr("cstool.appliance.verbs.jobs.MOST_ENDED", 2)
    for number in range(3, 7):
        shown.submit(number)
        shown.end(name_of(number))

    def listed(*typed: str) -> tuple[list[int], int]:
        document = cstool("job", "list", "--json", *typed).document
        numbers = {name_of(number): number for number in range(7)}
        return [numbers[job["name"]] for job in document["jobs"]], document["more"]

    for typed, found in (
        ("", ([1, 2], 0)),
        ("-a", ([1, 2, 5, 6], 3)),
        ("--phase succeeded", ([5, 6], 2)),
        ("-a --label team=a", ([0], 0)),
        ("-a --limit 3", ([4, 5, 6], 0)),
        ("-a --limit 0", ([*range(7)], 0)),
        ("-a --limit all", ([*range(7)], 0)),
    ):
        assert listed(*typed.split()) == found
    code, said, wrong = cstool("job", "list", "-a")
    assert (code, wrong) == (0, "3 more have ended before; --limit all lists them\n")
    assert len(said.splitlines()) == 5


def test_a_limit_of_a_list_is_a_number_or_all(cstool, shown):
    for limit in ("-1", "many", "1.5", "", "9" * 20):
        wrong = f"error: --limit: must be a number of jobs, or all, got {limit!r}\n"
        assert cstool("job", "list", "--limit", limit) == (2, "", wrong)


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_on_a_terminal_a_job_is_a_line_that_fits(cstool, shown, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    seen = on_terminal(columns, lambda: cstool("job", "list", "-a").code)
    assert seen.code == 0
    assert len(seen.lines) == 4
    assert [line.split()[0] for line in seen.lines[1:]] == [name_of(number) for number in range(3)]
    assert ("LABELS" in seen.lines[0], "PHASE" in seen.lines[0]) == (columns >= 100, True)
    seen = on_terminal(columns, lambda: cstool("job", "get", name_of(0)).code)
    assert (seen.code, max(map(len, seen.lines)) <= max(columns, 80)) == (0, True)


def test_a_job_is_shown_with_what_it_needs_who_said_so_and_its_phases(cstool, shown):
    said = cstool("job", "get", name_of(0)).said
    facts = {line[:10].strip(): line[11:].strip() for line in said.split("\n\n")[0].splitlines()}
    stated = {"Phase": "FAILED", "Reason": "it took more memory than it may", "Labels": "team=a", "Duration": "12m3s"}
    assert {**facts, **stated} == facts
    assert facts["Ended"].endswith(" ago)")
    assert "Cores    1 (stated), was on 0\nMemory   2 GB (estimated)\n" in said
    phases = [line.split() for line in said.split("PHASE")[1].splitlines()[1:]]
    stays = [("QUEUED", "0s"), ("COMPILING", "1m"), ("QUEUED", "0s"), ("RUNNING", "12m3s"), ("FAILED",)]
    assert [(phase[0], *phase[3:]) for phase in phases] == stays
    # The first letters of a name suffice.
    assert cstool("job", "get", "--json", name_of(2)[:-1]).document["name"] == name_of(2)


def test_a_job_as_the_vendors_yaml_and_json(cstool, shown):
    document = yaml.safe_load(cstool("job", "get", name_of(0), "-oyaml").said)
    assert document == cstool("job", "get", name_of(0), "-o", "json").document
    assert (document["meta"]["name"], document["meta"]["labels"]) == (name_of(0), {"team": "a"})
    assert (document["status"]["phase"], document["status"]["systems"]) == ("FAILED", 1)
    assert document["spec"]["needs"]["memory_bytes"] == 2 * 10**9


def test_what_happened(cstool, shown):
    lines = cstool("job", "events", name_of(0)).said.splitlines()
    kinds = ["submitted", "compile_started", "compiled", "started", "failed"]
    assert [line.split()[2] for line in lines[1:]] == kinds
    document = cstool("job", "events", "--all", "--json", "--limit", "1").document
    assert [(event["job"], event["kind"]) for event in document["events"]] == [(name_of(1), "started")]
    for typed, got in (([], "neither"), (["wsjob-", "--all"], "both")):
        message = f"error: cstool job events: must have the name of a job or --all, got {got}\n"
        assert cstool("job", "events", *typed) == (2, "", message)


def test_logs_go_where_a_run_writes_them(cstool, shown):
    shown.log(name_of(0), "out one\n")
    (shown.root.job(name_of(0)).path / "out.1").write_text("older\n")
    shown.log(name_of(0), "error two\n", "err")
    assert cstool("job", "logs", name_of(0)) == (0, "older\nout one\n", "error two\n")
    assert cstool("job", "logs", name_of(0), "--stream", "err").said == "error two\n"
    assert cstool("job", "logs", name_of(0), "-f", "--stream", "out").said == "older\nout one\n"
    document = cstool("job", "logs", name_of(0), "--json").document
    assert document == {"name": name_of(0), "out": "older\nout one\n", "err": "error two\n"}


def test_cancelling_says_what_the_vendor_says(cstool, shown):
    note = f"job {name_of(1)}: stops after its step, and saves\n"
    assert cstool("job", "cancel", name_of(1), name_of(2)) == (0, "Job canceled successfully\n" * 2, note)
    assert (shown.queue.job(name_of(1)).asked, shown.queue.job(name_of(2)).phase) == ("cancel", "CANCELLED")
    assert cstool("job", "cancel", "--now", name_of(1)).stderr == f"job {name_of(1)}: is ended\n"
    assert shown.queue.job(name_of(1)).asked == "cancel_now"


def test_cancelling_is_done_before_one_that_has_ended_is_refused_and_not_where_a_name_is_none(cstool, shown):
    outcome = cstool("job", "cancel", name_of(2), "wsjob-zzzz")
    assert (outcome.code, outcome.stdout, shown.queue.job(name_of(2)).phase) == (2, "", "QUEUED")
    outcome = cstool("job", "cancel", name_of(2), name_of(0))
    assert (outcome.code, outcome.stdout) == (2, "Job canceled successfully\n")
    said = f"error: job {name_of(0)}: only a job that has not ended can be stopped, it is FAILED since "
    assert outcome.stderr.startswith(said)


def test_labels_are_set_and_removed(cstool, shown):
    assert cstool("job", "label", name_of(0), "run=3", "team-").said == f"{name_of(0)}: run=3\n"
    assert cstool("job", "label", name_of(0), "run-").said == f"{name_of(0)}: no labels\n"
    assert cstool("job", "label", name_of(0), "x=", "--json").document["labels"] == {"x": ""}
    wrong = "error: label 'a': must be KEY=VALUE, or KEY- to remove one\n"
    assert cstool("job", "label", name_of(0), "a") == (2, "", wrong)


@pytest.mark.parametrize("verb", ["get", "logs", "cancel", "events", "wait"])
def test_a_name_that_tries_to_leave_the_folder(cstool, shown, verb):
    for name in ("../x", "x\ny", ""):
        message = f"error: job {name!r}: a job is called wsjob- and 22 small letters or digits\n"
        assert cstool("job", verb, name) == (2, "", message + HINT)


def test_waiting_ends_with_the_exit_code_of_the_job(cstool, shown):
    said = f"{name_of(0)}: FAILED, it took more memory than it may\n"
    assert cstool("job", "wait", name_of(0)) == (1, said, "")
    shown.end(name_of(1), FAILED, "the run said what is wrong", exit_code=2)
    cstool("job", "cancel", name_of(2))
    assert cstool("job", "wait", name_of(1)).code == 2
    assert cstool("job", "wait", name_of(2)).code == 130
    document = json.loads(cstool("job", "wait", name_of(2), name_of(0), "--json").stdout)
    assert (document["exit_code"], [job["phase"] for job in document["jobs"]]) == (130, ["CANCELLED", "FAILED"])


def test_waiting_no_longer_than_asked(cstool, shown):
    message = f"error: job {name_of(1)}: must have ended within 0.01 s, it is RUNNING\n"
    assert cstool("job", "wait", name_of(1), "--timeout", "0.01") == (1, "", message)


OF_JOBS = ["job list", "job get wsjob-a", "job events --all", "job logs wsjob-a"]
OF_APPLIANCES = [f"appliance {verb}" for verb in ("status", "stop", "drain", "serve")]


@pytest.mark.parametrize("typed", [*OF_JOBS, *OF_APPLIANCES])
def test_where_there_is_no_appliance(cstool, tmp_path, typed):
    outcome = cstool(*typed.split(), "--root", tmp_path / "none")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"error: {tmp_path / 'none'}: there is no appliance\nhint: ")
    assert not (tmp_path / "none").exists()


def test_cores_in_words():
    texts = [cores_text(cpus) for cpus in ((3,), (0, 2), (0, 1, 2, 3, 6))]
    assert texts == ["core 3", "cores 0 and 2", "cores 0-3 and 6"]


# `cstool appliance`: what is said of one, and what is refused before a supervisor starts.


CORES = len(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def _usual_root(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CSTOOL_APPLIANCE", str(tmp_path / "appliance"))


def test_how_it_is(cstool, tmp_path):
    with Shown(tmp_path / "appliance") as shown:
        for number in range(3):
            shown.submit(number)
        shown.start(name_of(0), [2])
        assert cstool("appliance", "status").said.splitlines() == [
            f"Folder      {tmp_path / 'appliance'}",
            "Supervisor  none; `cstool appliance start` starts one",
            "Back end    local",
            "Cores       1 of 4 in use",
            "Memory      2 GB of 16 GB in use",
            "Disk        1 GB of 200 GB in use",
            "Systems     1 of 8 in use",
            "Compiles    1 job at a time",
            "Jobs        2 QUEUED, 1 RUNNING",
        ]
        document = cstool("appliance", "status", "--json").document
        cpus = document["capacity"]["cpus"], document["used"]["cpus"]
        assert (document["supervisor"], cpus) == (None, ([0, 1, 2, 3], [2]))


def test_one_that_is_drained(cstool, tmp_path):
    with Shown(tmp_path / "appliance") as shown:
        assert cstool("appliance", "drain").said == "No more jobs are started; none runs\n"
        assert "Drained     no more jobs are started; " in cstool("appliance", "status").said
        shown.submit(0)
        shown.start(name_of(0), [0])
        assert cstool("appliance", "drain", "--json").document == {"drained": True, "idle": False}
        assert cstool("appliance", "drain").said == "No more jobs are started; some still run\n"
        assert cstool("appliance", "drain", "--off").said == "Jobs are started again\n"
        assert "Drained" not in cstool("appliance", "status").said


def test_one_that_nobody_supervises_is_stopped(cstool, tmp_path):
    with Shown(tmp_path / "appliance"):
        assert cstool("appliance", "stop").said == "No supervisor was there\n"
        assert cstool("appliance", "stop", "--json").document == {"stopped": False}


SIZE = "must be a number with one of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB, got"


@pytest.mark.parametrize(
    ("flag", "value", "rule"),
    [
        ("--cores", str(CORES + 1), f"must be from 1 to {CORES}, which this process may use, got {CORES + 1}"),
        ("--memory", "much", f"{SIZE} 'much'\nhint: for example 4GiB"),
        ("--disk", "0", f"{SIZE} '0'\nhint: for example 4GiB"),
    ],
)
def test_what_an_appliance_cannot_have(cstool, flag, value, rule):
    assert cstool("appliance", "start", flag, value) == (2, "", f"error: {flag}: {rule}\n")


def test_what_is_not_said_stays_as_it_was(cstool, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(
        "cstool.appliance.verbs.appliance.start_appliance", lambda root, capacity, **_: started.append(capacity) or 1
    )
    with Shown(tmp_path / "appliance") as shown:
        assert cstool("appliance", "start", "--systems", "3").code == 0
        assert (started[0].systems, started[0].memory_bytes, started[0].compiles) == (3, 16 * 10**9, 1)
        assert shown.root.folder == tmp_path / "appliance"
    assert cstool("appliance", "start", "--root", str(tmp_path / "new"), "--memory", "1GiB").code == 0
    assert (len(started[1].cpus), started[1].systems, started[1].memory_bytes) == (CORES, 192, 2**30)
