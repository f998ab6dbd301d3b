"""The folder of a job: whole or not there, and read as if somebody had changed it."""

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from cstool.appliance.queue import job_folder
from cstool.appliance.queue.attempt import Attempt
from cstool.appliance.queue.job_folder import JobFolder, is_leftover
from cstool.appliance.queue.names import new_name
from cstool.foundation.errors import CstoolError
from tests.unit.appliance.queue.queues import NOBODY, an_order, refusal

AGAIN = "\nhint: submit the job again"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def folder(tmp_path) -> JobFolder:
    return JobFolder(tmp_path / new_name())


@pytest.fixture
def made(folder) -> JobFolder:
    folder.make(an_order())
    return folder


def unread(folder: JobFolder, digest: str) -> str:
    """Return why the order of a job is not read."""
    return refusal(lambda: folder.order(digest))


def digest_of(folder: JobFolder) -> str:
    return hashlib.sha256(folder.job_file.read_bytes()).hexdigest()


def test_what_is_made_is_read_again_and_is_its_owners_alone(folder):
    order = an_order(params="a: ü\udcff\n", model_dir=Path("/a/\udcff"), max_steps=None, note="ü")
    old = os.umask(0)
    try:
        digest = folder.make(order)
    finally:
        os.umask(old)
    assert folder.order(digest) == order
    assert digest == digest_of(folder)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder.path, *folder.path.iterdir())}
    assert modes == {folder.name: 0o700, "job.json": 0o600, "params.yaml": 0o600}
    assert folder.params_file.read_bytes() == "a: ü".encode() + b"\xff\n"
    assert folder.owner() is None
    assert os.listdir(folder.path.parent) == [folder.name]


def test_its_places():
    folder = JobFolder(Path("/jobs/wsjob-x"))
    attempt = Attempt(folder, "execute", 2)
    assert [str(p) for p in (folder.log("out"), folder.log("err"), folder.lock, attempt.path)] == [
        f"/jobs/wsjob-x/{name}" for name in ("out", "err", "lock", "attempts/execute-2")
    ]


def test_the_last_attempt_is_the_one_with_the_largest_number(made):
    assert made.last_attempt("execute") == 0
    made.attempts.mkdir()
    assert made.last_attempt("execute") == 0
    for name in ("execute-2", "execute-10", "execute-9", "compile-11", "execute-x", "execute-", "execute-²"):
        (made.attempts / name).mkdir()
    assert (made.last_attempt("execute"), made.last_attempt("compile")) == (10, 11)


def test_what_a_power_cut_left_is_known(folder, monkeypatch):
    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job_folder.os, "rename", die)
    monkeypatch.setattr(job_folder.shutil, "rmtree", lambda *arguments, **named: None)
    with pytest.raises(KeyboardInterrupt):
        folder.make(an_order())
    (left,) = os.listdir(folder.path.parent)
    assert is_leftover(left)
    others = (folder.name, ".", "..", ".tmp", f".{folder.name}", ".x.tmp", f"{folder.name}.tmp", f"..{folder.name}.tmp")
    assert not any(is_leftover(name) for name in others)


def test_one_that_is_there_stays_as_it_is(made):
    digest = digest_of(made)
    found = refusal(lambda: made.make(an_order(note="another")))
    assert found == f"{made.path}: cannot be written, got: Directory not empty"
    assert made.order(digest) == an_order()
    assert os.listdir(made.path.parent) == [made.name]
    made.remove()
    made.remove()
    assert not made.path.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"note": "a\nb"}, r"note: must be one line of characters that can be seen, got 'a\nb'"),
        ({"labels": {"a": "v" * 10_240}}, "label a: its value must have at most 63 characters, it has 10,240"),
        ({"priority": "p9"}, "priority: must be one of p1, p2, p3, got 'p9'"),
        ({"params": "x" * 16_000_001}, "params: a job must take at most 16MB, got 16,000,001 bytes"),
    ],
)
def test_an_order_that_makes_no_job_is_refused(changes, message, folder):
    assert refusal(lambda: folder.make(an_order(**changes))) == message
    assert os.listdir(folder.path.parent) == []


def test_a_name_that_leaves_the_folder_is_refused(tmp_path):
    with pytest.raises(CstoolError, match="^job 'x': a job is called wsjob- and 22 small letters or digits\n"):
        JobFolder(tmp_path / "jobs" / "x").make(an_order())


def test_on_a_full_disk_nothing_is_left_of_it(make_disk):
    jobs = make_disk(64 * 1024).place / "jobs"
    jobs.mkdir()
    folder = JobFolder(jobs / new_name())
    found = refusal(lambda: folder.make(an_order(params="x" * 100_000)))
    assert found == f"{folder.path}: cannot be written, got: No space left on device"
    assert os.listdir(jobs) == []
    assert folder.order(folder.make(an_order())) == an_order()


@pytest.mark.parametrize("step", ["rename", "sync"])
def test_whatever_fails_leaves_nothing(step, folder, monkeypatch):
    def fail(*arguments: object) -> None:
        raise OSError(5, "Input/output error")

    if step == "rename":
        monkeypatch.setattr(job_folder.os, "rename", fail)
    else:
        original = job_folder.sync_folder
        monkeypatch.setattr(
            job_folder, "sync_folder", lambda path: fail() if path == folder.path.parent else original(path)
        )
    found = refusal(lambda: folder.make(an_order()))
    assert found == f"{folder.path}: cannot be written, got: Input/output error"
    assert os.listdir(folder.path.parent) == []


def test_what_was_edited_is_refused(made):
    digest, edited = digest_of(made), "must stay as it was submitted, it was edited"
    order, content = json.loads(made.job_file.read_text()), made.job_file.read_bytes()
    made.job_file.write_text(json.dumps({**order, "run_words": ["rm", "-rf"]}))
    assert unread(made, digest) == f"{made.job_file}: {edited}{AGAIN}"
    made.job_file.write_bytes(content)
    with made.params_file.open("a") as file:
        file.write("# more\n")
    assert unread(made, digest) == f"{made.params_file}: {edited}{AGAIN}"


def test_an_order_that_is_none_is_refused(made):
    order = json.loads(made.job_file.read_text())
    wrong = [{**order, field: value} for field in ("needs", "priority", "typed", "model_dir") for value in (None, 7)]
    contents = [b"", b"{}", b"[]", b'{"format": 1}', b"\xff", b"[" * 100_000]
    for content in (*contents, *(json.dumps(each).encode() for each in wrong), b'{"format": 2}'):
        made.job_file.write_bytes(content)
        what = "it is of another cstool" if content == b'{"format": 2}' else "it is no order"
        said = f"{made.job_file}: must be the order of a job, {what}{AGAIN}"
        assert unread(made, digest_of(made)) == said, content[:60]


@pytest.mark.parametrize("name", ["job.json", "params.yaml"])
def test_a_file_that_is_gone_or_something_else_is_refused(name, made, tmp_path):
    digest, path = digest_of(made), made.path / name
    (tmp_path / "elsewhere").write_bytes(path.read_bytes())
    stays = f"{path}: must stay as it was submitted, it was"

    def large() -> None:
        with path.open("wb") as file:
            file.truncate(2**40)

    for replace, said in (
        (lambda: None, f"{stays} removed{AGAIN}"),
        (
            lambda: path.symlink_to(tmp_path / "elsewhere"),
            f"{path}: cannot be read, got: Too many levels of symbolic links",
        ),
        (lambda: os.mkfifo(path), f"{stays} replaced{AGAIN}"),  # which nobody writes to: who waited would wait for ever
        (large, f"{stays} replaced{AGAIN}"),
    ):
        path.unlink(missing_ok=True)
        replace()
        assert unread(made, digest) == said


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_what_others_may_write_to_is_refused(mode, made):
    digest = digest_of(made)
    for path in (made.job_file, made.params_file, made.path):
        path.chmod(mode)
        rule = f"nobody but its owner must be able to write to it (mode {mode:04o})"
        assert unread(made, digest) == f"{path}: {rule}{AGAIN}"
        path.chmod(0o700)


def test_a_folder_that_is_gone_or_a_link_is_refused(made):
    digest = digest_of(made)
    elsewhere = made.path.rename(made.path.with_name("elsewhere"))
    assert unread(made, digest) == f"{made.path}: the folder of the job must be there, it is not{AGAIN}"
    made.path.symlink_to(elsewhere)
    assert unread(made, digest) == f"{made.path}: the folder of the job cannot be read, got: Not a directory"


@needs_root
def test_the_file_of_another_user_is_refused_and_the_folders_owner_is_told(made):
    """A member of a group may link the order of another one into a folder of his own."""
    digest = digest_of(made)
    os.chown(made.path, NOBODY, NOBODY)
    assert made.path.stat().st_uid == NOBODY
    expected = f"{made.job_file}: must belong to who submitted the job, it belongs to uid 0{AGAIN}"
    assert unread(made, digest) == expected
