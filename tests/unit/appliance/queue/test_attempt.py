"""The supervisor's side of keepers: what it sees in folders that it does not trust, and jobs of other users."""

import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.appliance.queue import keeper, records
from cstool.appliance.queue.attempt import ABSENT, ALIVE, BEGINNING, DEAD, ENDED, MEMORY, Attempt, AttemptState, End
from cstool.appliance.queue.holders import kill_holders
from cstool.appliance.queue.job import CANCEL, CANCEL_NOW, EXECUTE, PREEMPT
from cstool.appliance.queue.job_folder import JobFolder, User
from tests.examples import examples
from tests.patience import PATIENCE_S, wait_until
from tests.unit.appliance.queue.keepers import IGNORES, STOPS_WELL, KeptJob, is_there, python
from tests.unit.appliance.queue.queues import refusal

END = {"exit_code": 0, "signal": None, "why": "", "asked": "", "peak_bytes": 5, "seconds": 1.5, "at": 99.0}
BEGAN = {"pid": 1, "boot_id": "some-boot", "at": 98, "boottime": 5.0, "memory_guard": "watch", "disk_bytes": 0}
NOBODY = User(65534, 65534, ())
EVERYBODYS_PYTHON = "/usr/bin/python3"


@pytest.fixture
def folder(tmp_path) -> JobFolder:
    """A folder with an attempt whose records are written by hand."""
    made = JobFolder(tmp_path / "wsjob-two")
    Attempt(made, EXECUTE, 1).path.mkdir(parents=True)
    record(made, records.BEGAN).write_text(json.dumps(BEGAN))
    return made


@pytest.fixture
def other_users_job() -> Iterator[KeptJob]:
    if os.geteuid() != 0 or not os.access(EVERYBODYS_PYTHON, os.X_OK):
        pytest.skip("only root starts jobs of other users")
    # The folders of pytest are for its user alone.
    place = Path(f"/tmp/cstool-test-{os.getpid()}")
    with KeptJob(place / "wsjob-theirs") as made:
        os.chmod(place, 0o755)
        os.chown(made.folder.path, NOBODY.user_id, NOBODY.group_id)
        yield made
    shutil.rmtree(place)


def look(folder: JobFolder, number: int = 1) -> AttemptState:
    return Attempt(folder, EXECUTE, number).look()


def record(folder: JobFolder, name: str) -> Path:
    return Attempt(folder, EXECUTE, 1).path / name


def test_what_is_not_there_is_absent_and_what_nobody_is_at_is_dead(tmp_path, folder):
    assert look(JobFolder(tmp_path / "none")) == AttemptState(ABSENT)
    assert look(folder, 2) == AttemptState(ABSENT)
    assert look(folder) == AttemptState(DEAD, None, "some-boot", 98.0, "watch")
    assert records.this_boot_id() not in ("", "some-boot")
    record(folder, records.BEGAN).unlink()
    assert look(folder) == AttemptState(DEAD)


def test_whoever_holds_the_lock_is_at_it(folder):
    place = records.open_folder(folder.path)
    lock = records.take_lock(place)
    assert lock is not None
    assert records.take_lock(place) is None
    assert look(folder) == AttemptState(ALIVE, None, "some-boot", 98.0, "watch")
    assert look(folder, 2) == AttemptState(BEGINNING)
    record(folder, records.END).write_text(json.dumps(END))
    ended = AttemptState(ENDED, End(0, None, "", "", 5, 1.5, 99.0), "some-boot", 98.0, "watch")
    assert look(folder) == ended
    os.close(lock)
    os.close(place)
    assert look(folder) == ended


def test_an_attempt_that_begins_or_ends_while_it_looks_is_not_dead(folder, monkeypatch):
    attempt, aside = Attempt(folder, EXECUTE, 1), Attempt(folder, EXECUTE, 9)
    attempt.path.rename(aside.path)

    def begins(_: int) -> bool:
        if aside.path.exists():
            aside.path.rename(attempt.path)
            return False
        return True

    monkeypatch.setattr(records, "is_locked", begins)
    assert look(folder).state == ALIVE
    monkeypatch.setattr(
        records, "is_locked", lambda _: bool(record(folder, records.END).write_text(json.dumps(END))) and False
    )
    assert look(folder).state == ENDED


def test_while_attempts_come_and_go_none_is_ever_seen_dead(job):
    seen: list[list[str]] = [[] for _ in range(4)]
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            for attempt, states in enumerate(seen, start=1):
                found = job.look(attempt).state
                if states[-1:] != [found]:
                    states.append(found)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        for attempt in range(1, len(seen) + 1):
            assert job.start("", attempt=attempt).wait(PATIENCE_S) == 0
        wait_until(lambda: all(states[-1:] == [ENDED] for states in seen), "an attempt has not ended")
    finally:
        is_over.set()
        watching.join()
    for states in seen:
        assert DEAD not in states
        assert [state for state in states if state in (ALIVE, ENDED)] in ([ENDED], [ALIVE, ENDED])


NO_END = [
    *({"exit_code": code} for code in (None, -1, 256, True, "0")),
    *({"peak_bytes": count} for count in (-1, 10**400, 1.5)),
    *({"seconds": seconds} for seconds in (float("nan"), float("inf"), -1)),
    *({"signal": 9}, {"why": "because"}, {"why": ["memory"]}, {"asked": {}}, {"at": 10**400}, {"at": None}),
]


def test_an_end_that_no_keeper_wrote_is_none(folder):
    for changes in NO_END:
        record(folder, records.END).write_text(json.dumps(END | changes))
        assert look(folder).state == DEAD, changes


def test_damaged_records_are_none(folder):
    large = json.dumps(END) + " " * 2**16
    for content in ("", "{", "[]", "7", "[" * 60_000, '{"a":' * 10_000, large, "\udcff", "1" * 5000):
        raw = content.encode(errors="surrogateescape")
        record(folder, records.END).write_bytes(raw)
        record(folder, records.BEGAN).write_bytes(raw)
        assert look(folder) == AttemptState(DEAD), content[:20]


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*END, *BEGAN]), inner, max_size=4),
    max_leaves=4,
)


def near(record: dict[str, Any]) -> st.SearchStrategy[Any]:
    """A record of which a few things are something else, or something else."""
    return st.dictionaries(st.sampled_from([*record]), JSON, max_size=3).map(lambda changes: record | changes) | JSON


@examples(60)
@given(end=st.binary(max_size=99) | near(END), began=near(BEGAN))
def test_whatever_is_written_it_neither_raises_nor_believes_it(tmp_path_factory, end, began):
    folder = JobFolder(tmp_path_factory.getbasetemp() / "wsjob-any")
    Attempt(folder, EXECUTE, 1).path.mkdir(parents=True, exist_ok=True)
    record(folder, records.BEGAN).write_text(json.dumps(began))
    record(folder, records.END).write_bytes(end if isinstance(end, bytes) else json.dumps(end).encode())
    found = look(folder)
    assert found.state in (ENDED, DEAD)
    assert (found.end is not None) == (found.state == ENDED)
    if found.end is not None:
        assert (found.end.exit_code is None) != (found.end.signal is None)


def test_pipes_links_and_folders_are_no_records(folder, tmp_path):
    real = tmp_path / "end.json"
    real.write_text(json.dumps(END))
    for path in (record(folder, records.END), folder.lock):
        for make in (path.mkdir, lambda path=path: os.mkfifo(path), lambda path=path: path.symlink_to(real)):
            make()
            assert look(folder).state == DEAD
            path.rmdir() if path.is_dir() else path.unlink()


def test_folders_that_are_links_are_not_followed(folder, tmp_path):
    record(folder, records.END).write_text(json.dumps(END))
    for number, link in enumerate((Attempt(folder, EXECUTE, 1).path, folder.attempts, folder.path)):
        assert look(folder).state == ENDED
        elsewhere = link.rename(tmp_path / f"elsewhere-{number}")
        link.symlink_to(elsewhere)
        assert look(folder) == AttemptState(ABSENT)
        link.unlink()
        elsewhere.rename(link)


def test_what_cannot_be_asked_says_why(folder):
    for attempt, what, said in (
        (1, "please", "must be asked for cancel, cancel_now or preempt, got please"),
        (2, CANCEL, "cannot be told to stop, got: No such file or directory"),
    ):
        assert refusal(Attempt(folder, EXECUTE, attempt).ask, what) == f"wsjob-two: {said}"


def test_a_link_in_the_way_of_what_is_asked_is_replaced_and_not_followed(folder, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    record(folder, records.STOP).symlink_to(victim)
    Attempt(folder, EXECUTE, 1).ask(CANCEL)
    assert victim.read_text() == "precious"
    assert json.loads(record(folder, records.STOP).read_text()) == {"asked": CANCEL}


def test_why_a_keeper_could_not_begin(job, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/not/there")
        assert refusal(job.start, "") == "/not/there: must start, got: No such file or directory"
    job.folder.path.rmdir()
    kept = job.start("")
    assert kept.wait(PATIENCE_S) == keeper.NOT_BEGUN
    assert kept.trouble() == "No such file or directory"
    job.folder.path.mkdir()
    kept = job.start(STOPS_WELL)
    job.wait_for("ready")
    assert kept.trouble() is None
    kept.kill()
    kept.wait()
    assert kept.trouble() == "its keeper ended with exit code -9"


def test_another_users_job_runs_as_that_user_in_all_that_it_does(other_users_job):
    job = other_users_job
    script = f"import os; print(os.getresuid(), os.getresgid(), os.getgroups())\n{STOPS_WELL}"
    user = User(NOBODY.user_id, NOBODY.group_id, (NOBODY.group_id, 12345))
    kept = job.start(python(script, EVERYBODYS_PYTHON), user=user)
    job.wait_for("ready")
    assert job.text().startswith(f"{(65534,) * 3} {(65534,) * 3} [12345, 65534]\n")
    for number in (kept.pid, job.run_process()):
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{number}/status").read_text().splitlines())
        assert status["Uid"].split() == status["Gid"].split() == ["65534"] * 4
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    job.ask(PREEMPT)
    end = job.end()
    assert (end.exit_code, end.asked) == (130, PREEMPT)
    assert {path.stat().st_uid for path in [job.folder.path, *job.folder.path.rglob("*")]} == {NOBODY.user_id}


def test_the_memory_of_another_users_job_is_watched(other_users_job):
    script = "import os, time\nkept = bytearray(b'x') * 50_000_000\nif os.fork(): time.sleep(600)\n"
    script += "kept[::4096] = b'y' * len(kept[::4096]); time.sleep(600)"
    other_users_job.start(python(script, EVERYBODYS_PYTHON), user=NOBODY, memory_bytes=80_000_000)
    assert other_users_job.end().why == MEMORY


def test_root_writes_nothing_where_another_user_put_links(other_users_job, tmp_path):
    job = other_users_job
    victim = tmp_path / "victim"
    victim.write_text("precious")
    job.start(python(STOPS_WELL, EVERYBODYS_PYTHON), user=NOBODY)
    job.wait_for("ready")
    run = job.run_process()
    attempt = Attempt(job.folder, EXECUTE, 1).path
    attempt.rename(attempt.with_name("kept"))
    attempt.symlink_to(tmp_path)
    assert refusal(job.ask, CANCEL_NOW) == "wsjob-theirs: cannot be told to stop, got: Not a directory"
    assert sorted(os.listdir(tmp_path)) == ["victim"]
    os.kill(run, signal.SIGTERM)
    wait_until(lambda: not is_there(run), "it does not stop")


def test_a_folder_of_another_user_is_not_enough(other_users_job):
    kept = other_users_job.start("", user=User(65533, 65533, ()))
    assert kept.wait(PATIENCE_S) == keeper.NOT_BEGUN
    assert kept.trouble() == "Permission denied"


# What holds the lock of a job is killed, and nothing else.


def begun(job: KeptJob) -> tuple[int, int]:
    keeper = job.start(IGNORES)
    job.wait_for("ready")
    return keeper.pid, job.run_process()


def kill(job: KeptJob, *, spares_keeper: bool = True) -> list[int]:
    return Attempt(job.folder, EXECUTE, 1).kill(spares_keeper=spares_keeper)


def test_a_run_that_does_not_stop_when_its_keeper_is_killed_is_reached_by_its_lock(job):
    _, run = begun(job)
    job.keepers[-1].kill()
    job.keepers[-1].wait()
    job.ask(CANCEL_NOW)
    assert (job.look().state, is_there(run)) == (ALIVE, True)
    assert kill(job) == [run]
    wait_until(lambda: job.look().state == DEAD, "it lives")
    assert not is_there(run)
    assert kill(job) == []


@pytest.mark.parametrize("spares_keeper", [True, False])
def test_a_keeper_is_spared_and_records_the_end_or_killed_with_its_run(job, spares_keeper):
    keeper, run = begun(job)
    killed = kill(job, spares_keeper=spares_keeper)
    if spares_keeper:
        assert (killed, job.end().signal) == ([run], signal.SIGKILL)
    else:
        assert (sorted(killed), job.keepers[-1].wait()) == (sorted([keeper, run]), -signal.SIGKILL)
        wait_until(lambda: job.look().state == DEAD, "it lives")


def test_who_only_has_the_file_open_is_no_holder(job):
    _, run = begun(job)
    looker = os.fork()
    if looker == 0:
        os.open(job.folder.path / records.LOCK, os.O_RDONLY)
        (job.folder.path / "open").touch()
        signal.pause()
        os._exit(0)
    try:
        wait_until((job.folder.path / "open").exists, "it is not open")
        assert kill(job) == [run]
        assert is_there(looker)
    finally:
        os.kill(looker, signal.SIGKILL)
        os.waitpid(looker, 0)


def test_the_lock_of_another_job_is_not_taken_for_ones_own(job, tmp_path):
    lock = job.folder.path / records.LOCK
    with KeptJob(tmp_path / "other") as other:
        _, run = begun(other)
        for make in (os.link, os.symlink, lambda _, own: own.touch()):
            make(other.folder.path / records.LOCK, lock)
            assert kill(job) == []
            lock.unlink()
        assert is_there(run)


def test_this_process_does_not_kill_itself(job):
    folder = records.open_folder(job.folder.path)
    lock = records.take_lock(folder)
    assert lock is not None
    assert kill_holders(folder) == []
    os.close(lock)
    os.close(folder)


def test_without_a_folder_or_a_lock_there_is_nobody(job):
    assert kill(job) == []
    job.folder.path.rename(job.folder.path.with_name("gone"))
    assert kill(job) == []
