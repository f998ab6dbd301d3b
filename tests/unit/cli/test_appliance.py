"""`cstool appliance`: what is said of one, and what is refused before a supervisor starts."""

import os

import pytest

from tests.shown_jobs import Shown, name_of

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


@pytest.mark.parametrize("verb", ["status", "stop", "drain", "serve"])
def test_there_is_none(cstool, tmp_path, verb):
    outcome = cstool("appliance", verb)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"error: {tmp_path / 'appliance'}: there is no appliance\nhint: ")


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
        "cstool.jobs.appliance.start_appliance", lambda root, capacity, **_: started.append(capacity) or 1
    )
    with Shown(tmp_path / "appliance") as shown:
        assert cstool("appliance", "start", "--systems", "3").code == 0
        assert (started[0].systems, started[0].memory_bytes, started[0].compiles) == (3, 16 * 10**9, 1)
        assert shown.root.folder == tmp_path / "appliance"
    assert cstool("appliance", "start", "--root", str(tmp_path / "new"), "--memory", "1GiB").code == 0
    assert (len(started[1].cpus), started[1].systems, started[1].memory_bytes) == (CORES, 192, 2**30)
