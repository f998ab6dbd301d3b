"""A run goes on from the commit before the last one, which is then given up; crashes are `test_durability`'s."""

from pathlib import Path

import pytest

from cstool.errors import StoreError
from cstool.store import CommittedStore, FileStore
from cstool.store.commit_record import read_record
from cstool.store.file_layout import record_path
from tests.contract.refusal import refusal
from tests.unit.store.stored import committed_arrays, rows_of, write_store

ROOM = 2**20


@pytest.fixture
def path(tmp_path) -> Path:
    """A file with commits of the steps 3 and 4, in a folder of its own."""
    return write_store(tmp_path / "model_dir" / "memoryx.h5", steps=(3, 4))


def test_of_the_commit_before_it_everything_is_as_it_was_and_the_last_one_is_given_up(path):
    wanted = committed_arrays(path, older=True)
    store = FileStore(path, ROOM, adopt=True, at_step=3)
    found = read_record(record_path(path))
    assert found is not None
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
    assert store.record is not None
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

    def refuse(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("cstool.store.commit_record.write_replacing", refuse)
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
