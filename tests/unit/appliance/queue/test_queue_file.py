"""The file of the queue: many processes at once, some killed; full disks, damage, and files that are no queue."""

import contextlib
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from cstool.appliance.queue import queue_file, queue_lock
from cstool.appliance.queue.job import CANCEL
from cstool.appliance.queue.queue import Queue
from cstool.appliance.queue.root import Root, open_root
from cstool.foundation.errors import CstoolError
from tests.end_to_end.disk import Disk
from tests.patience import PATIENCE_S, within_patience
from tests.unit.appliance.queue.queue_clients import ROUNDS
from tests.unit.appliance.queue.queues import NOBODY, add, refusal

FULL = "cannot be written, its disk is full\nhint: nothing was lost; make room, then try again"
DAMAGED = (
    "{}: the queue must be whole, it is damaged: {}\n"
    "hint: stop the appliance and move the file aside, and those beside it; what the jobs wrote is in their folders"
)
NONE = "{}: the queue must be there, it is not\nhint: cstool appliance start makes one"


@pytest.fixture
def start(root) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(what: str, number: int = 0) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "tests.unit.appliance.queue.queue_clients", what, str(root.folder), str(number)]
        project = Path(__file__).parents[4]
        client = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=project)
        started.append(client)
        assert what not in ("hang", "busy") or client.stdout.readline() == "in it\n"
        return client

    yield start
    for client in started:
        client.kill()
        client.communicate()


def end_all(clients: list[subprocess.Popen[str]]) -> None:
    for client in clients:
        out, err = client.communicate(timeout=PATIENCE_S)
        assert (client.returncode, err) == (0, "")


def check(root: Root) -> None:
    with contextlib.closing(sqlite3.connect(root.queue_file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("count", [3, pytest.param(8, marks=pytest.mark.lab)])
def test_many_processes_and_one_that_is_killed_again_and_again(root, start, count):
    """They all make the queue, too: nobody did before. Nothing that was begun alone is seen; nothing is lost."""
    clients = [start("work", number) for number in range(count)]
    kills = 0
    while any(client.poll() is None for client in clients) or kills < 2:
        victim = start("hang" if kills % 2 else "busy")
        if kills % 2 == 0:
            time.sleep(random.uniform(0, 0.05))  # so that it dies anywhere
        victim.kill()
        victim.wait()
        kills += 1
    end_all(clients)
    with Queue(root, makes=False) as queue:
        jobs, events = queue.jobs(), queue.events()
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert [event.at for event in events] == sorted(event.at for event in events)
    per_job = {job.name: [event.kind for event in events if event.job == job.name] for job in jobs}
    theirs = [job for job in jobs if job.user != "victim"]
    assert len(theirs) == count * ROUNDS
    last = {"RUNNING": "stop_asked", "SUCCEEDED": "succeeded"}
    assert all(per_job[job.name] == ["submitted", "started", "labelled", last[job.phase]] for job in theirs)
    assert all(job.asked == (CANCEL if job.phase == "RUNNING" else "") for job in theirs)
    assert all(per_job[job.name] == ["submitted"] for job in jobs if job.user == "victim")
    check(root)


def test_what_was_not_ended_never_happened(root, start, monkeypatch):
    with Queue(root) as queue:
        kept = add(queue)
        victim = start("hang")
        assert queue.jobs() == [kept]  # who reads does not wait
        with monkeypatch.context() as patch:
            patch.setattr(queue_lock, "PATIENCE_S", 0.0)
            assert refusal(add, queue) == (
                f"{root.queue_lock}: who writes to the queue must let go of it, it was held for 0 s\n"
                f"hint: it is held by process {victim.pid}, which may have been stopped"
            )
        victim.kill()
        victim.wait()
        assert within_patience(lambda: len(queue.events())) == 1
        added = within_patience(lambda: add(queue))
        assert [job.name for job in queue.jobs()] == [kept.name, added.name]
        assert added.number == 2


def test_a_job_is_started_once_whoever_tries(root, start):
    with Queue(root) as queue:
        names = [add(queue).name for _ in range(20)]
    end_all([start("claim", number) for number in range(3)])
    with Queue(root) as queue:
        assert sorted(event.job for event in queue.events() if event.kind == "started") == sorted(names)


def test_threads_may_share_it(root):
    with Queue(root) as queue, ThreadPoolExecutor(4) as threads:
        assert len({*threads.map(lambda _: (add(queue).number, len(queue.jobs(limit=3))), range(40))}) == 40
        assert len(queue.jobs()) == 40


def test_a_program_that_does_not_know_our_lock_is_waited_for(root, monkeypatch):
    monkeypatch.setattr(queue_file, "_SQLITE_PATIENCE_S", 0.0)
    with Queue(root) as queue, contextlib.closing(sqlite3.connect(root.queue_file, isolation_level=None)) as other:
        tries = []
        original = queue_file.pause

        def pause() -> None:
            tries.append(1)
            if len(tries) == 3:
                other.execute("COMMIT")
            original()

        monkeypatch.setattr(queue_file, "pause", pause)
        other.execute("BEGIN IMMEDIATE")
        add(queue)
        assert len(tries) >= 3
        monkeypatch.setattr(queue_file, "PATIENCE_S", 0.0)
        monkeypatch.setattr(queue_file, "pause", original)
        other.execute("BEGIN IMMEDIATE")
        assert refusal(add, queue) == (
            f"{root.queue_file}: who uses the queue must let go of it, it was held for 0 s\n"
            "hint: another program than cstool has it open"
        )
        other.execute("ROLLBACK")
        assert len(queue.jobs()) == 1
        add(queue)


def test_an_error_in_a_transaction_lets_go_of_everything(root, monkeypatch):
    """Such as Ctrl-C."""
    with Queue(root) as queue, Queue(root) as other:
        for where in ("add", "add_event"):
            with monkeypatch.context() as patch:
                patch.setattr(f"cstool.appliance.queue.queue.Tables.{where}", Mock(side_effect=KeyboardInterrupt))
                with pytest.raises(KeyboardInterrupt):
                    add(queue)
        assert other.jobs() == []
        add(other)
        add(queue)


def test_a_lock_file_that_somebody_removes_is_made_again(root):
    with Queue(root) as first, Queue(root) as second:
        root.queue_lock.unlink()
        add(first)
        root.queue_lock.unlink()
        add(second)
        add(first)
        assert len(second.jobs()) == 3


def test_closing_more_than_once_does_no_harm(root):
    queue = Queue(root)
    queue.close()
    queue.close()
    with pytest.raises(ValueError, match="the queue is closed"):
        queue.jobs()
    assert sorted(path.name for path in root.folder.iterdir()) == ["jobs", "queue.db", "queue.lock"]


@pytest.fixture
def full(make_disk) -> Disk:
    return make_disk(2**20)


def test_on_a_full_disk_one_error_and_nothing_half_written(full):
    root = open_root(full.place / "appliance", makes=True)
    with Queue(root) as queue:
        first = add(queue)
        full.fill()
        with contextlib.suppress(CstoolError):
            while True:  # what is left in the file's pages
                add(queue)
        large = "y" * 100_000
        for work in (
            lambda: add(queue, note="x" * 500, model=large),
            lambda: queue.put("big", large),
            lambda: queue.change(first.name, ("QUEUED",), event=("started", "", {"x": large}), phase="RUNNING"),
        ):
            assert refusal(work) == f"{root.queue_file}: {FULL}"
        jobs = queue.jobs()
        assert jobs[0] == first
        assert [event.job for event in queue.events()] == [job.name for job in jobs]
        full.grow(4 * 2**20)
        added = add(queue)
        assert queue.jobs() == [*jobs, added]
    check(root)
    full.fill()
    assert refusal(lambda: Queue(root, makes=False).job(first.name)) == f"{root.queue_file}: {FULL}"
    full.grow(8 * 2**20)
    with Queue(root, makes=False) as queue:
        assert queue.jobs() == [*jobs, added]


def test_on_a_full_disk_none_is_made_and_later_there_is_one(full):
    root = open_root(full.place / "appliance", makes=True)
    full.fill()
    assert refusal(Queue, root) == f"{root.queue_file}: {FULL}"
    assert refusal(lambda: Queue(root, makes=False)) in (f"{root.queue_file}: {FULL}", NONE.format(root.queue_file))
    full.grow(4 * 2**20)
    with Queue(root) as queue:
        add(queue)
    check(root)


def test_where_there_is_none(root):
    assert refusal(lambda: Queue(root, makes=False)) == NONE.format(root.queue_file)
    assert [path.name for path in root.folder.iterdir()] == ["jobs"]


@pytest.mark.parametrize("content", [b"no database, whatever it says\n" * 200, b"SQLite format 3\0" + b"\xff" * 8000])
def test_another_file_is_no_queue(content, root):
    root.queue_file.write_bytes(content)
    assert refusal(Queue, root) == DAMAGED.format(root.queue_file, "file is not a database")
    assert root.queue_file.read_bytes() == content


@pytest.mark.parametrize("how", ["overwritten", "cut short"])
def test_a_damaged_one_is_told_and_left_alone(root, how):
    with Queue(root) as queue:
        for _ in range(50):
            add(queue)
    with root.queue_file.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.truncate(4096 if how == "overwritten" else 8192)
        file.seek(4096)
        file.write(b"\xab" * (size - 4096) if how == "overwritten" else b"")
    content, said = root.queue_file.read_bytes(), DAMAGED.format(root.queue_file, "database disk image is malformed")

    def use(work: str, *words: object) -> None:
        with Queue(root) as queue:
            add(queue) if work == "add" else getattr(queue, work)(*words)

    for work in (("jobs",), ("add",), *((("events",), ("put", "a", 1), ("prune",)) if how == "overwritten" else ())):
        assert refusal(use, *work) == said
    assert root.queue_file.read_bytes() == content


@pytest.mark.parametrize(("column", "what"), [(b"restartz", "no such column: max_restarts"), (b"\xef\xbf", None)])
def test_one_whose_tables_are_others(root, column, what):
    """The text of a table was changed in the file; where SQLite's own message is no text, that is said."""
    with Queue(root) as queue:
        add(queue)
    content = root.queue_file.read_bytes()
    at = content.index(b"restarts INTEGER" if what else b"jobs (phase")
    root.queue_file.write_bytes(content[:at] + column + content[at + len(column) :])

    def look() -> None:
        with Queue(root) as queue:
            queue.jobs()

    said = refusal(look)
    assert said == DAMAGED.format(root.queue_file, what or "a name in it is no text")


def test_a_newer_one_is_refused(root, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(queue_file, "FORMAT", 2)
        Queue(root).close()
    content = root.queue_file.read_bytes()
    assert refusal(Queue, root) == (
        f"{root.queue_file}: the queue must be of format 1, got 2\n"
        "hint: a newer cstool made it: use that, or another --root"
    )
    assert root.queue_file.read_bytes() == content


def test_another_database_is_refused(root):
    with contextlib.closing(sqlite3.connect(root.queue_file)) as other:
        other.execute("CREATE TABLE jobs (name)")
    content = root.queue_file.read_bytes()
    assert refusal(Queue, root) == (f"{root.queue_file}: must be a queue of cstool, it is another database")
    assert root.queue_file.read_bytes() == content


def test_one_whose_making_was_cut_off_is_made(root):
    root.queue_file.touch(mode=0o600)
    with Queue(root, makes=False) as queue:
        assert queue.jobs() == []


def test_a_file_system_without_shared_memory_is_told(root, monkeypatch):
    """Such as one of a network: SQLite keeps to another journal there."""
    Queue(root).close()

    class Other(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
            return super().execute(sql.replace("= WAL", "= DELETE"), *values)  # type: ignore[arg-type]

    original = sqlite3.connect
    monkeypatch.setattr(queue_file.sqlite3, "connect", lambda *a, **named: original(*a, **named, factory=Other))
    assert refusal(Queue, root) == (
        f"{root.queue_file}: its file system must let processes share memory, it does not\nhint: --root on a local disk"
    )


@pytest.mark.parametrize("kind", ["link", "hard link", "folder", "pipe"])
def test_something_else_is_no_queue(kind, root, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"")
    makes = {"link": lambda: root.queue_file.symlink_to(elsewhere), "pipe": lambda: os.mkfifo(root.queue_file)}
    makes |= {"hard link": lambda: root.queue_file.hardlink_to(elsewhere), "folder": root.queue_file.mkdir}
    makes[kind]()
    assert refusal(Queue, root) == (f"{root.queue_file}: the queue must be a file, and no link, it is something else")
    assert elsewhere.read_bytes() == b""


def test_a_loose_one_and_that_of_another_user_are_refused(root):
    Queue(root).close()
    root.queue_file.chmod(0o660)
    said = f"{root.queue_file}: others must not be able to write to the queue (mode 0660)"
    assert refusal(Queue, root) == said
    if os.geteuid() == 0:
        root.queue_file.chmod(0o600)
        os.chown(root.queue_file, NOBODY, NOBODY)
        said = f"{root.queue_file}: the queue must belong to this user, it belongs to uid {NOBODY}"
        assert refusal(Queue, root) == said


@pytest.mark.parametrize("replaced", [True, False])
def test_one_that_is_moved_away_in_use_is_told(replaced, root):
    with Queue(root) as queue:
        add(queue)
        for end in ("", "-wal", "-shm"):
            path = Path(f"{root.queue_file}{end}")
            path.rename(f"{path}.old")
        if replaced:
            Queue(root).close()
        for work in (queue.jobs, lambda: add(queue), queue.version):
            assert refusal(work) == (
                f"{root.queue_file}: the queue must stay where it is while it is in use, it was removed or replaced\n"
                "hint: what uses it must be started again"
            )


def test_a_lock_that_is_a_link_is_told(root, tmp_path):
    root.queue_lock.symlink_to(tmp_path / "elsewhere")
    assert refusal(Queue, root) == (
        f"{root.queue_lock}: cannot be read or written, got: Too many levels of symbolic links"
    )
    assert not (tmp_path / "elsewhere").exists()


def test_errors_of_the_disk_are_told(root):
    """SQLite's words, where it is not about room."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
    assert str(queue_file.problem_of(root.queue_file, error)) == (
        f"{root.queue_file}: cannot be read or written, got: disk I/O error"
    )
    assert queue_file.problem_of(root.queue_file, sqlite3.ProgrammingError("no")) is None


def test_nobody_waits_for_ever(root):
    """A thread of this process has the lock for a while; the other goes on as soon as it is let go of."""
    with Queue(root) as queue, Queue(root) as other, ThreadPoolExecutor(1) as thread:
        with queue_lock.QueueLock(root.queue_lock, 0o600).held():
            added = thread.submit(add, other)
            assert queue.jobs() == []
        assert queue.job(added.result(PATIENCE_S).name).phase == "QUEUED"
