"""Logs are opened for who may read them, whatever lies in the folder of a job."""

import io
import os
from pathlib import Path

import pytest

from cstool.appliance.page.log_files import may_read_log, open_log, tail

OWNER, STRANGER = 4000001, 4000002
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The folder of a job, in one that everybody may search."""
    monkeypatch.setattr("cstool.appliance.page.log_files.may_reach", lambda user_id, folder: user_id is not None)
    path = tmp_path / "job"
    path.mkdir(mode=0o700)
    (path / "out").write_text("a line\n")
    return path


def read(folder: Path, user_id: int | None, name: str = "out") -> bytes | None:
    file = open_log(folder, name, user_id)
    if file is None:
        return None
    with file:
        return file.read()


def give(path: Path, user: int, mode: int) -> None:
    os.chown(path, user, user)
    path.chmod(mode)


@needs_root
def test_owner_and_root_alone(folder):
    give(folder, OWNER, 0o700)
    give(folder / "out", OWNER, 0o644)
    assert read(folder, OWNER) == read(folder, 0) == b"a line\n"
    for viewer in (STRANGER, None):
        with pytest.raises(PermissionError):
            read(folder, viewer)
        assert not may_read_log(folder, "out", viewer)
        assert not may_read_log(folder, "err", viewer)  # whether it is there is not for them either
    assert may_read_log(folder, "err", OWNER)


@needs_root
def test_open_folder(folder, monkeypatch):
    for folder_mode, file_mode, sees in (
        (0o755, 0o644, True),
        (0o711, 0o644, True),
        (0o755, 0o640, False),
        (0o744, 0o644, False),
        (0o700, 0o644, False),
    ):
        give(folder, OWNER, folder_mode)
        give(folder / "out", OWNER, file_mode)
        assert may_read_log(folder, "out", STRANGER) is sees
    give(folder, OWNER, 0o755)
    assert may_read_log(folder, "out", STRANGER)
    # Where a file has an access list, its group bits are something else: the owner alone is sure.
    monkeypatch.setattr("os.listxattr", lambda file: ["system.posix_acl_access"])
    assert may_read_log(folder, "out", OWNER)
    assert not may_read_log(folder, "out", STRANGER)


@needs_root
def test_links_lead_nowhere(folder, tmp_path):
    """The owner of a folder has the server, which is root, open what that user may not read."""
    secret = tmp_path / "secret"
    secret.write_text("root's\n")
    secret.chmod(0o600)
    give(folder, OWNER, 0o700)
    (folder / "err").symlink_to(secret)
    assert read(folder, OWNER, "err") is None
    os.link(secret, folder / "out.1")
    with pytest.raises(PermissionError):
        read(folder, OWNER, "out.1")
    other = tmp_path / "other"
    other.symlink_to(folder)
    assert read(other, OWNER) is None


def test_what_is_no_log(folder):
    me = os.geteuid()
    os.mkfifo(folder / "err")
    (folder / "out.1").mkdir()
    assert [read(folder, me, name) for name in ("err", "out.1", "none")] == [None, None, None]
    assert read(folder.parent / "none", me) is None


def test_way_to_the_folder(tmp_path):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "out").touch()
    tmp_path.chmod(0o700)
    with pytest.raises(PermissionError):
        read(tmp_path / "job", STRANGER)
    assert read(tmp_path / "job", os.geteuid()) == b""


@pytest.mark.parametrize(
    ("content", "most", "shown"),
    [
        (b"", 10, ""),
        (b"one\ntwo\n", 10, "one\ntwo\n"),
        (b"one\ntwo\nthree\n", 8, "three\n"),
        (b"one long line without an end", 8, "t an end"),
        (b"\x1b[2J\xff\xe2\x80\xae\n", 100, "\\x1b[2J\ufffd\\u202e\n"),
    ],
)
def test_tail(tmp_path, content, most, shown):
    (tmp_path / "out").write_bytes(content)
    with open(tmp_path / "out", "rb") as file:
        assert isinstance(file, io.BufferedReader)
        assert tail(file, most) == shown
