"""A MemoryX file has one writer, or any number of readers."""

import errno
import multiprocessing
import os
import re
import socket
from pathlib import Path

import pytest

from cstool.foundation.errors import StoreError
from cstool.training.store.store_lock import StoreLock
from tests.contract.refusal import failing, refusal

HINT = "wait for it, stop it, or choose another --model_dir"
OURS = rf"process {os.getpid()} on {re.escape(socket.gethostname())} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "memoryx.h5.lock"


@pytest.mark.parametrize("shared", [False, True])
def test_nobody_may_read_or_write_beside_a_writer(path, shared):
    lock = StoreLock(path)
    with pytest.raises(StoreError) as caught:
        StoreLock(path, shared=shared)
    rule = f"{path}: the MemoryX file must be used by one run at a time, it is in use by "
    assert re.fullmatch(re.escape(rule) + OURS, caught.value.message)
    assert caught.value.hint == HINT
    lock.close()
    StoreLock(path, shared=shared).close()


def test_many_read_and_nobody_writes_meanwhile(path):
    locks = [StoreLock(path, shared=True) for _ in range(3)]
    for lock in locks:
        with pytest.raises(StoreError):
            StoreLock(path)
        lock.close()
        lock.close()
    StoreLock(path).close()


def hold_and_die(path: Path) -> None:
    StoreLock(path)
    os._exit(1)


def test_whoever_dies_lets_go(path):
    process = multiprocessing.get_context("fork").Process(target=hold_and_die, args=(path,))
    process.start()
    process.join()
    assert path.read_text().startswith(f"process {process.pid} on ")
    StoreLock(path).close()


def test_a_lock_of_a_file_that_nobody_finds_any_more_does_not_count(path, monkeypatch):
    """Another process removes the file, and makes a new one, between the opening and the locking."""
    original, others = os.open, []

    def open_too_early(name: Path, *arguments: int) -> int:
        descriptor = original(name, *arguments)
        if not others:
            os.unlink(name)
            others.append(original(name, *arguments))
        return descriptor

    monkeypatch.setattr(os, "open", open_too_early)
    lock = StoreLock(path)
    monkeypatch.undo()
    assert os.path.samestat(os.stat(path), os.fstat(others[0]))
    with pytest.raises(StoreError):
        StoreLock(path)
    lock.close()
    os.close(others[0])


def test_who_removes_the_file_holds_the_lock_until_then(path):
    lock = StoreLock(path)
    lock.remove()
    assert not path.exists()
    StoreLock(path).close()


def test_where_nothing_can_be_written_a_reader_does_without(path, monkeypatch):
    monkeypatch.setattr(os, "open", failing(errno.EACCES))
    StoreLock(path, shared=True).close()
    message = f"{path}: cannot be locked, got: Permission denied"
    with refusal(StoreError, message, "choose a model_dir that can be written"):
        StoreLock(path)
