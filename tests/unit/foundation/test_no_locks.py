"""A file system without locks: what needs one names it and the remedy, everything else does without."""

import errno
import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import cstool
from cstool.appliance.queue import guard
from cstool.appliance.queue.holders import holder_of
from cstool.appliance.queue.queue_lock import QueueLock
from cstool.foundation.atomic_file import NO_LOCKS, NoLocksError, lock_file
from cstool.foundation.errors import CstoolError
from cstool.training.data import TextRequest, hdf5_rows, open_hdf5_text, prepare_text, write_hdf5_text
from cstool.training.store.checkpoint_index import read_index, register_checkpoint
from cstool.training.store.folder import sweep_temporary
from cstool.training.store.pending_file import PendingFile
from cstool.training.store.store_lock import StoreLock
from tests.contract.refusal import refusal

HINT = "a local disk has them; so has NFS or Lustre, where it is mounted so (local_lock=flock, flock)"


@pytest.fixture(params=NO_LOCKS, ids=errno.errorcode.get)
def said(request, monkeypatch) -> str:
    """What the system says to whoever wants a lock."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", flock)
    return os.strerror(request.param)


def hold_queue(path: Path) -> None:
    with QueueLock(path, 0o600).held():
        pass


@pytest.mark.parametrize("needs", [lock_file, StoreLock, hold_queue, holder_of])
def test_what_needs_a_lock_names_it(said, tmp_path, needs: Callable[[Path], object]):
    path = tmp_path / "lock"
    if needs is holder_of:
        path.touch()
    with pytest.raises(CstoolError) as caught:
        needs(path)
    expected = f"{path}: must be on a file system with locks (flock), got: {said}"
    assert (caught.value.message, caught.value.hint, caught.value.exit_code) == (expected, HINT, 2)


def test_a_preparation_and_a_guard_say_it_and_leave_nothing(said, tmp_path, capsys):
    (tmp_path / "source.txt").write_text("text " * 100)
    path = tmp_path / ".text.partial" / "lock"
    with refusal(NoLocksError, f"{path}: must be on a file system with locks (flock), got: {said}", HINT):
        prepare_text([tmp_path / "source.txt"], tmp_path / "text", TextRequest(8))
    assert guard.main([str(tmp_path)]) == 2
    message = f"error: {tmp_path}/guard.lock: must be on a file system with locks (flock), got: {said}\nhint: {HINT}\n"
    assert capsys.readouterr().err == message
    assert os.listdir(tmp_path) == ["source.txt"]


def test_checkpoints_do_without(said, tmp_path):
    file = PendingFile(tmp_path / "a.mdl")
    assert sweep_temporary(tmp_path, age_s=0) == []  # whose writer may live
    file.commit()
    assert register_checkpoint(tmp_path, 1, tmp_path / "a.mdl") == read_index(tmp_path) != []
    StoreLock(tmp_path / "run.lock", optional=True).close()


@pytest.mark.parametrize("number", NO_LOCKS, ids=errno.errorcode.get)
def test_data_are_written_and_read_without(monkeypatch, tmp_path, number):
    """What HDF5 itself locks; the file is not told to be damaged."""
    opened = []

    def file(path: Path, mode: str, locking: str | bool, opens=h5py.File) -> h5py.File:
        opened.append(locking)
        if locking:
            raise OSError(number, "Unable to synchronously open file (unable to lock file)")
        return opens(path, mode, locking=locking)

    monkeypatch.setattr(hdf5_rows.h5py, "File", file)
    write_hdf5_text(tmp_path / "data.h5", [np.zeros((2, 3, 4), np.int32)], 2, 4)
    assert open_hdf5_text([tmp_path]).sample_count == 2
    assert set(opened) == {"best-effort", False}


def test_one_function_takes_all_locks():
    """Others would tell of no locks in words of their own, or of a file that is damaged."""
    package = Path(cstool.__file__).parent
    texts = {path.relative_to(package).as_posix(): path.read_text() for path in package.rglob("*.py")}
    takers = [name for name, text in texts.items() if re.search(r"flock\((?!.*LOCK_UN)", text)]
    assert takers == ["foundation/atomic_file.py"]
    opens = [name for name, text in texts.items() if re.search(r"h5py\.File\((?!.*locking)", text)]
    assert opens == []
