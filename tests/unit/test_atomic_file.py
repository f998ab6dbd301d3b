"""A text file is there whole, or as it was before; a name that a file gives does not leave its folder."""

import errno
import os
from pathlib import Path

import pytest

from cstool.atomic_file import is_inner_name, is_plain_name, write_replacing


def test_a_file_is_replaced_in_one_go(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("old")
    write_replacing(tmp_path / "index", "new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"index": "new"}


def test_a_replacement_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index").write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_replacing(tmp_path / "index", "new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"index": "old"}


def test_a_file_that_cannot_be_begun_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_replacing(tmp_path / "missing" / "index", "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.mdl", "..a", "a b", "~", "-", "\u00e4"])
def test_names_of_files_of_the_folder(name: str) -> None:
    assert is_plain_name(name)
    assert is_inner_name(name)


@pytest.mark.parametrize("name", ["a/b", "train/.a/b.h5"])
def test_names_of_files_in_folders_of_it(name: str) -> None:
    assert is_inner_name(name)
    assert not is_plain_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/../../b", "a/..", "/a", "/", "a//b", "./a", "a/", "a\0b", None, 7, b"a", ["a"]]
)
def test_names_of_others(name: object) -> None:
    assert not is_inner_name(name)
    assert not is_plain_name(name)
