"""A text file is there whole, or as it was before; a name that a file gives does not leave its folder."""

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from cstool.foundation.atomic_file import is_inner_name, is_plain_name, write_replacing


def test_a_file_is_replaced_in_one_go_or_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index").write_text("old")
    write_replacing(tmp_path / "index", "new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"index": "new"}
    write_replacing(tmp_path / "odd", os.fsdecode(b"a \xff"))
    assert (tmp_path / "odd").read_bytes() == b"a \xff"
    (tmp_path / "odd").unlink()
    with pytest.raises(FileNotFoundError):
        write_replacing(tmp_path / "missing" / "index", "newer")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_replacing(tmp_path / "index", "newer")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"index": "new"}


INNER = ("a/b", "train/.a/b.h5")
OTHERS = ("", ".", "..", "../a", "a/../../b", "a/..", "/a", "/", "a//b", "./a", "a/", "a\0b", None, 7, b"a", ["a"])


@pytest.mark.parametrize("name", ["a.mdl", "..a", "a b", "~", "-", "\u00e4", *INNER, *OTHERS])
def test_names_of_files_of_a_folder_and_in_folders_of_it(name: object) -> None:
    assert is_inner_name(name) == (name not in OTHERS)
    assert is_plain_name(name) == (name not in (*OTHERS, *INNER))
