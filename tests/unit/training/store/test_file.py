"""The store in a file keeps the contract of all stores; what it makes of the files that are there, and leaves."""

import errno
import itertools
import os
import re
import shutil
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cstool.foundation.errors import StoreError
from cstool.training.store import CheckpointReader, CheckpointWriter, CommittedStore, FileStore, committed_step
from cstool.training.store.base_file import BaseFile
from cstool.training.store.commit_record import read_record
from cstool.training.store.file_layout import lock_path, record_path
from cstool.training.store.store_lock import StoreLock
from tests.contract.refusal import failing, refusal
from tests.contract.store_contract import StoreContract, StoreMaker
from tests.unit.training.store.stored import ROOM, committed_arrays, rows_of, write_store


class TestFileStore(StoreContract):
    @pytest.fixture(params=[2, 1], ids=["two slots", "one slot"])
    def make_store(self, tmp_path, request) -> StoreMaker:
        numbers = itertools.count()
        return lambda: FileStore(tmp_path / f"{next(numbers)}.h5", ROOM, slots=request.param)


def test_a_new_file_takes_the_place_of_another_when_it_is_used(tmp_path):
    path = write_store(tmp_path / "memoryx.h5", steps=(3,))
    before = committed_arrays(path)
    store = FileStore(path, ROOM)
    store.create("a", (4,))
    store.close()
    assert committed_arrays(path).keys() == before.keys()
    store = FileStore(path, ROOM)
    store.create("a", (4,))
    assert rows_of(store, "a").tolist() == [0, 0, 0, 0]
    assert committed_step(path) is None
    store.commit({"global_step": 1}, {})
    store.close()
    assert [*committed_arrays(path)] == ["a"]


@pytest.mark.parametrize("slots", [1, 2])
def test_nothing_is_left_of_a_file_that_was_never_committed(tmp_path, slots):
    store = FileStore(tmp_path / "memoryx.h5", ROOM, slots=slots)
    store.create("a", (4,))
    store.create("b", (4,), scratch=True)
    store.write("a", 0, np.ones(4, np.float32))
    temporary, lock = sorted(os.listdir(tmp_path))
    assert re.fullmatch(r"memoryx\.h5\.[0-9a-f]{8}\.tmp", temporary)
    assert lock == "memoryx.h5.lock"
    store.close()
    assert sorted(os.listdir(tmp_path)) == []


def test_what_a_run_left_that_was_killed_before_its_first_commit_is_swept(tmp_path):
    for name in ("memoryx.h5.0123abcd.tmp", "memoryx.h5.commit.0123abcd.tmp"):
        (tmp_path / name).write_bytes(b"x")
    other = FileStore(tmp_path / "other.h5", ROOM)
    theirs = sorted(os.listdir(tmp_path))
    FileStore(tmp_path / "memoryx.h5", ROOM).close()
    assert {*theirs} - {*sorted(os.listdir(tmp_path))} == {"memoryx.h5.0123abcd.tmp", "memoryx.h5.commit.0123abcd.tmp"}
    other.close()


def test_an_array_that_was_not_committed_cannot_be_made_later(tmp_path):
    path = write_store(tmp_path / "memoryx.h5", steps=(3,))
    before = path.read_bytes()
    store = FileStore(path, ROOM, adopt=True)
    hint = "the file is of another model or optimizer: choose another --model_dir"
    with refusal(StoreError, f"{path}: lacks a, which this run keeps", hint):
        store.create("a", (4,))
    with refusal(StoreError, f"{path}: model.weight must be 5 x 3 float32, got 6 x 3 float32", hint):
        store.create("model.weight", (5, 3))
    store.create("scratch", (4,), scratch=True)
    store.write("scratch", 0, np.ones(4, np.float32))
    store.close()
    assert path.read_bytes() == before


def test_one_slot_is_not_committed(tmp_path):
    store = FileStore(tmp_path / "memoryx.h5", ROOM, slots=1)
    with refusal(ValueError, f"{tmp_path}/memoryx.h5: a commit must have two slots, this store has 1"):
        store.commit({"global_step": 1}, {})
    store.close()


def test_commits_are_let_go_of_when_there_are_newer_ones(tmp_path):
    store, records = FileStore(tmp_path / "memoryx.h5", ROOM), []
    store.create("a", (4,))
    for step in range(1, 6):
        store.commit({"global_step": step}, {})
        records.append(weakref.ref(store.record))
    assert [record() is store.record for record in records] == [False, False, False, False, True]
    assert [record() is None for record in records] == [True, True, True, True, False]
    assert (store.record.older.step, store.record.older.older) == (4, None)
    store.close()


def test_what_must_stay_is_checked_before_anything_else(tmp_path):
    path = write_store(tmp_path / "memoryx.h5", steps=(3,))

    def check() -> None:
        with pytest.raises(StoreError):
            StoreLock(lock_path(path))
        raise StoreError("it must stay")

    with refusal(StoreError, "it must stay"):
        FileStore(path, ROOM, check=check)
    assert committed_step(path) == 3
    StoreLock(lock_path(path)).close()


def test_the_disk_has_set_space_aside_before_anything_is_written_in_a_folder_that_is_there(tmp_path):
    store = FileStore(tmp_path / "memoryx.h5", ROOM)
    store.create("a", (2**16,))
    store.create("b", (2**16,), scratch=True)
    rows_of(store, "a")
    assert 512 * os.fstat(store.file.fileno()).st_blocks >= 2 * 2**18
    assert 512 * os.fstat(store._scratch.fileno()).st_blocks >= 2**18
    store.close()
    path = tmp_path / "gone" / "memoryx.h5"
    message = f"{path}.lock: cannot be locked, got: No such file or directory"
    with refusal(StoreError, message, "create the folder first"):
        FileStore(path, ROOM)


def test_a_disk_that_is_too_small_is_found_before_anything_is_written(tmp_path, monkeypatch):
    path = write_store(tmp_path / "memoryx.h5", steps=(3,))
    store = FileStore(path, ROOM)
    store.create("a", (2**20,))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5000))
    with pytest.raises(StoreError) as caught:
        store.expect([], 0)
    start = f"{path}: MemoryX needs 8,3"
    assert caught.value.message.startswith(start)
    assert re.fullmatch(rf"{re.escape(start)}\d\d,\d{{3}} bytes of disk, \d+,\d{{3}} are free", caught.value.message)
    assert caught.value.hint == (
        "free some space, or choose another model_dir; memoryx.commit_steps: 0 needs about half"
    )
    # Whoever asks again is told again, and what was there stays.
    with refusal(StoreError, caught.value.message, caught.value.hint):
        store.borrow("a", 0, 1)
    store.close()
    assert committed_step(path) == 3


# A run goes on from the commit before the last one, which is then given up; crashes are `test_durability`'s.


@pytest.fixture
def path(tmp_path) -> Path:
    """A file with commits of the steps 3 and 4, in a folder of its own."""
    return write_store(tmp_path / "model_dir" / "memoryx.h5", steps=(3, 4))


def test_of_the_commit_before_it_everything_is_as_it_was_and_the_last_one_is_given_up(path):
    wanted = committed_arrays(path, older=True)
    store = FileStore(path, ROOM, adopt=True, at_step=3)
    found = read_record(record_path(path))
    assert (found.steps, found) == ((3,), store.record)
    store.verify()
    for name, array in wanted.items():
        store.create(name, array.shape)
        assert rows_of(store, name).tobytes() == array.tobytes()
    # Its slots are free, those of the commit before it are not.
    for name, array in wanted.items():
        store.write(name, 0, array + 100)
    with CommittedStore(path, is_ours=True) as state:
        state.verify_all()
        assert state.record.step == 3
    store.commit({"global_step": 4}, {})
    assert store.record.steps == (4, 3)
    store.close()
    assert {name: array.tobytes() for name, array in committed_arrays(path, older=True).items()} == {
        name: array.tobytes() for name, array in wanted.items()
    }
    assert all((committed_arrays(path)[name] == array + 100).all() for name, array in wanted.items())


def test_a_step_that_was_not_committed_is_refused_and_nothing_changes(path, tmp_path):
    before = record_path(path).read_bytes()
    message = f"{path}: the MemoryX file must have been committed at step 2, it has at step 4 and 3"
    with refusal(StoreError, message):
        FileStore(path, ROOM, adopt=True, at_step=2)
    with refusal(StoreError, message):
        CommittedStore(path, at_step=2)
    assert record_path(path).read_bytes() == before
    other = write_store(tmp_path / "other.h5", steps=(3,))
    with refusal(StoreError, f"{other}: the MemoryX file must have been committed at step 4, it has at step 3"):
        FileStore(other, ROOM, adopt=True, at_step=4)
    # Whoever comes after finds no lock.
    FileStore(path, ROOM, adopt=True).close()


def test_a_disk_that_cannot_give_up_the_last_commit_or_be_read_is_told_and_nothing_is_lost(path, monkeypatch):
    before = record_path(path).read_bytes()
    with monkeypatch.context() as broken:
        broken.setattr("cstool.training.store.commit_record.write_replacing", failing(errno.ENOSPC))
        message = f"{path}.commit: cannot be written, got: No space left on device"
        with refusal(StoreError, message, "free some space, or choose another model_dir"):
            FileStore(path, ROOM, adopt=True, at_step=3)
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(StoreError):
        FileStore(path, ROOM, adopt=True, at_step=3)
    assert record_path(path).read_bytes() == before
    path.write_bytes(content)
    FileStore(path, ROOM, adopt=True, at_step=3).close()


def test_arrays_of_a_base_are_read_where_they_lie_and_never_written(tmp_path):
    path, rows = tmp_path / "base.mdl", np.arange(4096 * 8, dtype=np.float32).reshape(4096, 8)
    with CheckpointWriter(path) as writer:
        writer.add_tensor("model.a", rows.shape, "float32", [rows])
    with CheckpointReader(path) as reader:
        base = BaseFile(reader, ["model.a"])
    path.unlink()
    # As in a run with a large base: past the page cache, which a file that is only read allows, too.
    store = FileStore(tmp_path / "memoryx.h5", ROOM, direct=True, base=base)
    store.create("model.a", rows.shape)
    store.create("b", (4,))
    assert (store.lends("model.a"), store.lends("b"), store.lent_bytes) == (True, False, rows.nbytes)
    part = store.borrow("model.a", 100, 200)
    assert np.array_equal(part, rows[100:200])
    store.give_back("model.a", 100, 200, part, changed=False)
    assert np.array_equal(rows_of(store, "model.a"), rows)
    assert store.traffic.read_bytes == base.traffic.read_bytes >= rows.nbytes
    with pytest.raises(ValueError, match=r"^model\.a: must not be written, it lies in a checkpoint$"):
        store.write("model.a", 0, rows[:1])
    store.commit({"global_step": 1}, {})
    store.verify()
    store.close()
    assert [*committed_arrays(tmp_path / "memoryx.h5")] == ["b"]


def test_an_array_is_created_as_the_base_has_it(tmp_path):
    with CheckpointWriter(tmp_path / "base.mdl") as writer:
        writer.add_tensor("model.a", (4,), "float32", [np.zeros(4, np.float32)])
    with CheckpointReader(tmp_path / "base.mdl") as reader:
        store = FileStore(tmp_path / "memoryx.h5", ROOM, base=BaseFile(reader, ["model.a"]))
    with pytest.raises(ValueError, match=r"^model\.a: must be as it lies in .*base\.mdl, 4 float32$"):
        store.create("model.a", (5,))
    store.close()
