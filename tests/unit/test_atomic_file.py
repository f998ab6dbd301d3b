"""A text file is there whole, or as it was before."""

import errno
import os
from pathlib import Path

import pytest

from cstool.atomic_file import write_replacing

FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_file_is_replaced_in_one_go(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("old")
    write_replacing(tmp_path / "index", "new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"index": "new"}


def test_a_replacement_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index").write_text("old")
    monkeypatch.setattr(os, "fsync", _full)
    with pytest.raises(OSError, match="No space left"):
        write_replacing(tmp_path / "index", "new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"index": "old"}


def test_a_file_that_cannot_be_begun_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_replacing(tmp_path / "missing" / "index", "new")
    assert list(tmp_path.iterdir()) == []


def _full(_: int) -> None:
    raise FULL
