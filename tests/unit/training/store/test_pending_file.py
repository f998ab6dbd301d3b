"""A pending file gets to its name whole, or not at all."""

import errno
import fcntl
import os

import numpy as np
import pytest

from cstool.training.store.pending_file import TEMPORARY_NAME, PendingFile
from tests.contract.refusal import failing


def test_a_pending_file_is_named_after_its_goal_and_eight_hex_digits_and_discarded(tmp_path):
    file = PendingFile(tmp_path / "a.mdl")
    assert file.temporary.name.startswith("a.mdl.")
    assert TEMPORARY_NAME.fullmatch(file.temporary.name)
    file.discard()
    assert list(tmp_path.iterdir()) == []


def test_committing_gives_the_file_its_name_and_reserved_space_that_is_not_used_back(tmp_path):
    file = PendingFile(tmp_path / "a.mdl")
    file.reserve(100_000)
    assert file.temporary.stat().st_size == 100_000
    file.write_at(1, np.array([1, 2], np.uint16))
    file.commit()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a.mdl": b"\0\1\0\2\0"}


def test_a_file_system_that_cannot_reserve_is_fine(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.EOPNOTSUPP))
    file = PendingFile(tmp_path / "a.mdl")
    file.reserve(100_000)
    assert file.temporary.stat().st_size == 0
    file.discard()


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("taken", [False, True])
def test_a_taken_name_is_never_overwritten_with_hard_links_or_without(tmp_path, monkeypatch, taken, has_links):
    if not has_links:
        monkeypatch.setattr(os, "link", failing(errno.EPERM))
    file = PendingFile(tmp_path / "a.mdl")
    if taken:
        (tmp_path / "a.mdl").write_text("before")
        with pytest.raises(FileExistsError):
            file.commit()
    else:
        file.commit()
    file.discard()
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a.mdl": "before" if taken else ""}


def test_a_failed_write_is_kept_from_hdf5_and_the_first_error_stays(tmp_path, monkeypatch):
    file = PendingFile(tmp_path / "a.mdl")
    monkeypatch.setattr(os, "pwrite", failing(errno.ENOSPC))
    assert (file.write(b"abc"), file.first_error.errno) == (3, errno.ENOSPC)
    monkeypatch.setattr(os, "pread", failing(errno.EIO))
    assert (file.read(3), file.first_error.errno) == (b"\0\0\0", errno.ENOSPC)
    file.discard()


def test_a_write_in_pieces_is_carried_on_and_the_file_is_locked_meanwhile(tmp_path, monkeypatch):
    file, whole_write = PendingFile(tmp_path / "a.mdl"), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole_write(fd, data[:3], offset))
    file.write_at(0, np.arange(10, dtype=np.uint8))
    assert file.temporary.read_bytes() == bytes(range(10))
    with open(file.temporary) as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    file.discard()
