"""Folders that nobody else can change."""

import grp
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cstool.foundation import folders
from cstool.foundation.folders import SharedFolderError, checked_way, make_private_folder

ME, EVE = os.geteuid(), 2**31 - 5


@pytest.fixture
def owned_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Let a path look as if it belonged to another user, whoever runs the tests."""
    owners: dict[str, int] = {}
    real = os.lstat

    def lstat(path: Path) -> object:
        entry = real(path)
        return SimpleNamespace(st_uid=owners.get(str(path), entry.st_uid), st_gid=entry.st_gid, st_mode=entry.st_mode)

    monkeypatch.setattr(folders.os, "lstat", lstat)
    return lambda path, user: owners.update({str(path): user})


def refusal(folder: Path) -> str:
    with pytest.raises(OSError, match=".") as found:
        make_private_folder(folder)
    return f"{found.value.filename}: {found.value.strerror}"


def test_it_is_made_with_what_leads_to_it(tmp_path):
    make_private_folder(tmp_path / "a" / "b")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", tmp_path / "a" / "b")] == [0o700, 0o700]


@pytest.mark.parametrize("place", ["a", "a/b"])
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o722, 0o702, 0o777])
def test_others_must_not_be_able_to_write_to_it_or_above_it(place, mode, tmp_path, owned_by):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / place).chmod(mode)
    if mode & 0o022:
        assert refusal(tmp_path / "a" / "b") == f"{tmp_path / place}: others may write to it (mode {mode:04o})"
        return
    make_private_folder(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / place).stat().st_mode) == mode
    owned_by(tmp_path / place, EVE)
    assert refusal(tmp_path / "a" / "b") == f"{tmp_path / place}: it belongs to uid {EVE}"


def test_above_it_a_folder_may_be_open_if_entries_are_their_owners_alone(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o1777)
    make_private_folder(tmp_path / "a" / "b")
    assert refusal(tmp_path / "a") == f"{tmp_path / 'a'}: others may write to it (mode 1777)"


def test_above_it_folders_may_be_the_systems(tmp_path, owned_by, monkeypatch):
    monkeypatch.setattr(folders.os, "geteuid", lambda: EVE)
    for path in (tmp_path, *tmp_path.parents):
        owned_by(path, 0)
    (tmp_path / "a").mkdir()
    owned_by(tmp_path / "a", EVE)
    make_private_folder(tmp_path / "a")
    owned_by(tmp_path / "a", 0)
    assert refusal(tmp_path / "a") == f"{tmp_path / 'a'}: it belongs to {pwd.getpwuid(0).pw_name} (uid 0)"


def test_a_link_of_ones_own_is_followed_where_nobody_else_can_change_what_it_is(tmp_path, owned_by):
    (tmp_path / "true").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("true/../true")
    make_private_folder(tmp_path / "link" / "a")
    assert (tmp_path / "true" / "a").is_dir()
    (tmp_path / "open" / "mine").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "outside").symlink_to(tmp_path / "open" / "mine")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").write_text("")
    owned_by(tmp_path / "link", EVE)
    for path, where, why in (
        ("outside", "open", "others may write to it (mode 0777)"),
        ("link", "link", f"it belongs to uid {EVE}"),
        ("circle/a", "circle/a", "Too many levels of symbolic links"),
        ("file/b", "file", "Not a directory"),
    ):
        assert refusal(tmp_path / path) == f"{tmp_path / where}: {why}"


@pytest.mark.parametrize(
    ("group", "members", "is_own"),
    [("ada", [], True), ("ada", ["ada"], True), ("ada", ["eve"], False), ("staff", [], False)],
)
def test_a_group_of_this_user_alone_may_write(group, members, is_own, tmp_path, monkeypatch):
    folder = tmp_path / "a"
    folder.mkdir()
    folder.chmod(0o775)
    group_id = folder.stat().st_gid
    monkeypatch.setattr(pwd, "getpwuid", lambda user: SimpleNamespace(pw_name="ada", pw_gid=group_id))
    monkeypatch.setattr(grp, "getgrgid", lambda group_id: SimpleNamespace(gr_name=group, gr_mem=members))
    if is_own:
        make_private_folder(folder)
    else:
        with pytest.raises(SharedFolderError):
            make_private_folder(folder)


def test_the_way_alone_may_be_checked(tmp_path):
    (tmp_path / "true" / "open").mkdir(parents=True)
    (tmp_path / "true" / "open").chmod(0o777)
    (tmp_path / "link").symlink_to("true")
    assert checked_way(tmp_path / "link" / "open") == tmp_path / "true" / "open"
    assert checked_way(tmp_path / "new" / "none") == tmp_path / "new" / "none"
    with pytest.raises(SharedFolderError) as found:
        checked_way(tmp_path / "link" / "open" / "below")
    assert found.value.filename == str(tmp_path / "true" / "open")
