"""The root folder: a user's alone, or shared with a group; all others are refused."""

import grp
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cstool.appliance.queue.names import new_name
from cstool.appliance.queue.queue import Queue
from cstool.appliance.queue.root import Root, make_shared_root, open_root, usual_root
from cstool.foundation.errors import CstoolError
from tests.unit.appliance.queue.queues import NOBODY, add, an_order, as_user, refusal

ELSEWHERE = "\nhint: --root or CSTOOL_APPLIANCE names another"
NONE = "there is no appliance\nhint: cstool appliance start makes one, and so does a first job; "
NONE += "--root or CSTOOL_APPLIANCE names another"
RULE = "nobody else must be able to change an appliance"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root shares an appliance")
GROUP = "users"
MEMBER, OTHER_MEMBER, STRANGER = NOBODY, NOBODY - 1, 2**31 - 5


@pytest.fixture
def place(tmp_path) -> Path:
    return tmp_path / "state" / "appliance"


def refused(path: Path, *, makes: bool = True) -> str:
    return refusal(lambda: open_root(path, makes=makes))


def no_marker(path: Path) -> str:
    rule = f"its appliance.json must be root's and say that it is shared with the group {GROUP}"
    return f"{path}: {rule}, it does not{ELSEWHERE}"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_where_the_usual_one_is(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    for name in ("XDG_STATE_HOME", "CSTOOL_APPLIANCE"):
        monkeypatch.delenv(name, raising=False)
    assert usual_root() == Path("/home/me/.local/state/cstool/appliance")
    for name, value, where in (
        ("XDG_STATE_HOME", "/state", "/state/cstool/appliance"),
        ("CSTOOL_APPLIANCE", "~/mine", "/home/me/mine"),
    ):
        monkeypatch.setenv(name, value)
        assert usual_root() == Path(where)


def test_it_is_made_for_this_user_alone(place, monkeypatch):
    monkeypatch.setenv("CSTOOL_APPLIANCE", str(place))
    old = os.umask(0)
    try:
        root = open_root(None, makes=True)
        Queue(root).close()
    finally:
        os.umask(old)
    assert root == Root(place)
    assert [mode(path) for path in (place, root.jobs, root.queue_file, root.queue_lock)] == [0o700, 0o700, 0o600, 0o600]
    assert open_root(place, makes=False) == open_root(place, makes=True) == root


def test_its_places(tmp_path):
    root, name = Root(tmp_path), new_name()
    assert root.job(name).path == tmp_path / "jobs" / name
    files = (root.queue_file, root.queue_lock, root.supervisor_lock, root.supervisor_log, root.compiled)
    names = ("queue.db", "queue.lock", "supervisor.lock", "supervisor.log", "compiled")
    assert [*files] == [tmp_path / name for name in names]
    for name in ("..", "../../x", "/etc", "wsjob-", ""):
        with pytest.raises(CstoolError, match=f"^job '{name}': a job is called wsjob- and 22 small letters or digits"):
            root.job(name)


def test_where_there_is_none_nothing_is_made(place, tmp_path):
    assert refused(place, makes=False) == f"{place}: {NONE}"
    assert list(tmp_path.iterdir()) == []
    place.parent.mkdir()
    place.symlink_to(tmp_path / "nowhere")
    assert refused(place, makes=False) == f"{place}: {NONE}"
    assert not (tmp_path / "nowhere").exists()


def test_an_empty_folder_may_become_one_and_one_with_other_files_may_not(place):
    place.mkdir(parents=True)
    assert refused(place, makes=False) == f"{place}: {NONE}"
    (place / "thesis.tex").touch()
    assert refused(place, makes=False) == f"{place}: {NONE}"
    assert refused(place) == f"{place}: must be an appliance, or empty, it holds other files{ELSEWHERE}"
    assert [path.name for path in place.iterdir()] == ["thesis.tex"]
    (place / "thesis.tex").unlink()
    assert open_root(place, makes=True) == open_root(place, makes=False) == Root(place)


@pytest.mark.parametrize("makes", [True, False])
def test_a_file_is_refused(makes, place):
    place.parent.mkdir()
    place.touch()
    expected = f"{place}: the folder of an appliance cannot be used, got: Not a directory{ELSEWHERE}"
    assert refused(place, makes=makes) == expected
    assert refused(place / "below") == expected


def loose(path: Path, mode: str) -> str:
    return f"{path}: {RULE}: others may write to it (mode {mode}){ELSEWHERE}"


def test_loose_permissions_are_refused(place, tmp_path):
    root = open_root(place, makes=True)
    for mode, makes in (("0702", True), ("0777", False), ("1777", True)):
        place.chmod(int(mode, 8))
        assert refused(place, makes=makes) == loose(place, mode)
    place.chmod(0o700)
    place.parent.chmod(0o777)
    assert refused(place, makes=False) == loose(place.parent, "0777")
    place.parent.chmod(0o755)
    (tmp_path / "link").symlink_to(place)
    assert open_root(tmp_path / "link", makes=False) == root


@needs_root
def test_that_of_a_group_is_refused_unless_it_is_shared(place):
    open_root(place, makes=True)
    os.chown(place, 0, grp.getgrnam(GROUP).gr_gid)
    for mode, said in ((0o770, loose(place, "0770")), (0o2770, no_marker(place))):
        place.chmod(mode)
        assert refused(place) == said


@needs_root
def test_that_of_another_user_is_refused(place, tmp_path):
    open_root(place, makes=True)
    link = tmp_path / "link"
    link.symlink_to(place)
    for path, user, told in ((place, NOBODY, f"nobody (uid {NOBODY})"), (place, STRANGER, f"uid {STRANGER}")):
        os.chown(path, user, 0)
        assert refused(path) == refused(path, makes=False) == f"{path}: {RULE}: it belongs to {told}{ELSEWHERE}"
    os.chown(place, 0, 0)
    os.chown(link, STRANGER, 0, follow_symlinks=False)
    assert refused(link, makes=False) == f"{link}: {RULE}: it belongs to uid {STRANGER}{ELSEWHERE}"


def test_a_disk_without_room_is_told(make_disk):
    disk = make_disk(64 * 1024)
    subprocess.run(["mount", "-o", "remount,nr_inodes=1", str(disk.place)], check=True)
    place = disk.place / "appliance"
    expected = f"{place}: the folder of an appliance cannot be used, got: No space left on device{ELSEWHERE}"
    assert refused(place) == expected


@pytest.fixture
def open_place() -> Iterator[Path]:
    """Where all users can pass, other than pytest's own folder."""
    folder = Path(tempfile.mkdtemp(prefix="cstool_shared_"))
    folder.chmod(0o755)
    yield folder / "appliance"
    shutil.rmtree(folder)


@pytest.fixture
def shared(open_place) -> Root:
    return make_shared_root(open_place, GROUP)


def test_only_root_shares_and_with_a_group_that_is_there(open_place, monkeypatch):
    if os.geteuid() == 0:
        for name in ("no_such_group", "", "a\0b", "../x"):
            said = f"--group: must be a group of this machine, got {name!r}"
            assert refusal(make_shared_root, open_place, name) == said
        assert not open_place.exists()
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    said = f"--group {GROUP}: only root can share an appliance, this is uid {STRANGER}"
    assert refusal(make_shared_root, open_place, GROUP) == said


@needs_root
def test_a_shared_one_is_made_whatever_the_umask(open_place):
    old = os.umask(0o077)
    try:
        root = make_shared_root(open_place / "deeper" / "still", GROUP)
    finally:
        os.umask(old)
    assert root == Root(open_place / "deeper" / "still", GROUP)
    modes = [mode(path) for path in (open_place, open_place / "deeper", root.folder, root.jobs)]
    assert modes == [0o755, 0o755, 0o2770, 0o3770]
    assert [mode(path) for path in (root.queue_file, root.queue_lock)] == [0o660, 0o660]
    group = grp.getgrnam(GROUP).gr_gid
    found = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in (root.folder, *root.folder.iterdir())}
    theirs = dict.fromkeys(("still", "jobs", "queue.db", "queue.lock"), (0, group))
    assert found == {**theirs, "appliance.json": (0, 0)}
    assert open_root(root.folder, makes=False) == open_root(root.folder, makes=True) == root
    assert make_shared_root(root.folder, GROUP) == root


@needs_root
def test_another_is_not_shared(shared):
    private, closed, full = (shared.folder.parent / name for name in ("private", "closed", "full"))
    Queue(open_root(private, makes=True)).close()
    closed.mkdir(mode=0o750)
    full.mkdir()
    (full / "thesis.tex").touch()
    for folder, group, said in (
        (shared.folder, "games", f"{shared.folder}: is shared with the group {GROUP}, not with games{ELSEWHERE}"),
        (private, GROUP, f"{private}: is the appliance of root alone, it cannot be shared later{ELSEWHERE}"),
        (
            closed / "appliance",
            GROUP,
            f"{closed}: the group {GROUP} must be able to pass it, it is closed to it (mode 0750)",
        ),
        (full, GROUP, f"{full}: must be an appliance, or empty, it holds other files{ELSEWHERE}"),
    ):
        assert refusal(make_shared_root, folder, group) == said


@needs_root
@pytest.mark.parametrize(("step", "last"), [("chown", 1), ("chown", 2), ("chmod", 1), ("chmod", 2), ("chmod", 4)])
def test_making_it_goes_on_where_it_was_killed(step, last, open_place, monkeypatch):
    original, calls = getattr(os, step), []

    def die(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == last:
            raise KeyboardInterrupt
        original(*arguments)

    monkeypatch.setattr(os, step, die)
    with pytest.raises(KeyboardInterrupt):
        make_shared_root(open_place, GROUP)
    monkeypatch.undo()
    assert not mode(open_place) & stat.S_IWGRP
    assert make_shared_root(open_place, GROUP) == open_root(open_place, makes=False) == Root(open_place, GROUP)
    assert [mode(path) for path in (open_place, open_place / "jobs")] == [0o2770, 0o3770]


@needs_root
def test_members_use_it_together_and_others_do_not(shared):
    group = grp.getgrnam(GROUP).gr_gid

    def submit() -> tuple[str, int, int]:
        root = open_root(shared.folder, makes=True)
        with Queue(root) as queue:
            name = new_name()
            digest = root.job(name).make(an_order())
            queue.add(name, an_order(), digest, "local", user="x", user_id=os.getuid())
            beside = [root.folder / f"queue.db{end}" for end in ("-wal", "-shm")]
            assert [(mode(path), path.stat().st_gid) for path in beside] == [(0o660, group)] * 2, beside
            assert root.job(name).order(digest) == an_order()
            return name, len(queue.jobs()), root.job(name).path.stat().st_uid

    first, count, owner = as_user(MEMBER, [group], submit)
    assert (count, owner) == (1, MEMBER)
    assert as_user(OTHER_MEMBER, [group], submit)[1:] == (2, OTHER_MEMBER)
    with Queue(open_root(shared.folder, makes=False)) as queue:
        add(queue)
        assert as_user(MEMBER, [group], submit)[1:] == (4, MEMBER)
        assert len(queue.jobs()) == 4
        digest = queue.job(first).digest
    folder = shared.job(first)
    assert (mode(folder.path), folder.path.stat().st_uid) == (0o700, MEMBER)
    assert folder.order(digest) == an_order()

    def meddle() -> list[str]:
        said = []
        for work in (
            folder.path.rmdir,
            lambda: folder.path.rename(folder.path.with_name("x")),
            folder.job_file.read_bytes,
        ):
            try:
                work()
            except OSError as error:
                said.append(type(error).__name__)
        return said

    assert as_user(OTHER_MEMBER, [group], meddle) == ["PermissionError"] * 3
    assert as_user(MEMBER, [], lambda: open_root(shared.folder, makes=True)) == (
        f"CstoolError: {shared.folder}: is shared with the group {GROUP}, nobody is not one of it\n"
        "hint: who became a member must log in again"
    )


@needs_root
def test_a_marker_that_is_not_roots_is_refused(shared, tmp_path):
    path = shared.folder / "appliance.json"
    content = path.read_bytes()
    assert json.loads(content) == {"shared_with": GROUP}
    (tmp_path / "marker").write_bytes(content)
    for spoil in (
        path.unlink,
        lambda: (path.unlink(), path.symlink_to(tmp_path / "marker")),
        lambda: path.chmod(0o664),
        lambda: os.chown(path, MEMBER, MEMBER),
        *(
            lambda text=text: path.write_text(text)
            for text in ("", "[]", "[" * 5000, '{"shared_with": "games"}', '{"shared_with": 7}')
        ),
    ):
        spoil()
        assert refused(shared.folder, makes=False) == no_marker(shared.folder)
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(0o644)
        assert open_root(shared.folder, makes=False) == shared
    shared.folder.chmod(0o2777)
    said = f"{shared.folder}: others than the group must not write to an appliance (mode 2777)"
    assert refused(shared.folder) == said


@needs_root
def test_a_queue_that_a_member_put_there_is_refused(shared):
    group = grp.getgrnam(GROUP).gr_gid
    shared.queue_file.unlink()
    assert as_user(MEMBER, [group], lambda: Queue(shared)) == (
        f"CstoolError: {shared.queue_file}: the queue must be there, it is not\n"
        "hint: root makes one: cstool appliance start"
    )
    as_user(MEMBER, [group], shared.queue_file.touch)
    assert refusal(Queue, shared) == (f"{shared.queue_file}: the queue must belong to root, it belongs to uid {MEMBER}")
