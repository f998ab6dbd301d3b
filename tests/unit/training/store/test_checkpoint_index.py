"""The index of checkpoints follows the files, whoever updates it."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from cstool.foundation.errors import CheckpointError
from cstool.training.store import IndexEntry, checkpoint_index, read_index, register_checkpoint
from cstool.training.store.checkpoint_index import INDEX_NAME, forget_deleted
from tests.contract.refusal import refusal


def _register(folder: Path, step: int) -> list[IndexEntry]:
    path = folder / f"checkpoint_{step}.mdl"
    path.touch()
    return register_checkpoint(folder, step, path)


def test_the_index_is_yaml_that_people_read(tmp_path):
    _register(tmp_path, 5)
    _register(tmp_path, 10)
    # A file is entered once.
    assert _register(tmp_path, 10) == [IndexEntry(5, "checkpoint_5.mdl"), IndexEntry(10, "checkpoint_10.mdl")]
    assert (tmp_path / "checkpoints_index.yaml").read_text() == (
        "checkpoints:\n- step: 5\n  file: checkpoint_5.mdl\n- step: 10\n  file: checkpoint_10.mdl\n"
    )
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".mdl"} == {INDEX_NAME, f"{INDEX_NAME}.lock"}


def test_entries_whose_file_is_gone_are_not_read_and_dropped(tmp_path):
    forget_deleted(tmp_path)
    assert os.listdir(tmp_path) == [], "where there is no index none is made to forget"
    for step in (5, 6):
        _register(tmp_path, step)
    (tmp_path / "checkpoint_5.mdl").unlink()
    assert read_index(tmp_path) == [IndexEntry(6, "checkpoint_6.mdl")]
    forget_deleted(tmp_path)
    assert (tmp_path / INDEX_NAME).read_text() == "checkpoints:\n- step: 6\n  file: checkpoint_6.mdl\n"
    (tmp_path / "checkpoint_6.mdl").unlink()
    _register(tmp_path, 10)
    assert "checkpoint_6" not in (tmp_path / INDEX_NAME).read_text()


def test_a_checkpoint_elsewhere_is_entered_by_its_way_there_and_as_one_of_a_run(tmp_path):
    (tmp_path / "model_dir").mkdir()
    (tmp_path / "checkpoint_1.mdl").touch()
    entries = register_checkpoint(tmp_path / "model_dir", 1, tmp_path / "checkpoint_1.mdl")
    assert entries == [IndexEntry(1, "../checkpoint_1.mdl")]
    for step, run in ((1, None), (2, "abc"), (3, "abc")):
        (tmp_path / f"{step}.mdl").touch()
        register_checkpoint(tmp_path, step, tmp_path / f"{step}.mdl", run)
    assert [(entry.step, entry.run) for entry in read_index(tmp_path)] == [(1, None), (2, "abc"), (3, "abc")]
    assert "run" not in (tmp_path / INDEX_NAME).read_text().partition("- step: 2")[0]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: None], ids=["pipe", "nothing"])
def test_what_is_no_index_is_an_empty_one_and_keeps_nobody_waiting(tmp_path, make):
    make(tmp_path / INDEX_NAME)
    assert read_index(tmp_path) == []


NONSENSE = ["", "[1, 2", "checkpoints: 5", "- a", "checkpoints: [{step: x, file: y}]", "\x00", "[" * 2000]
NONSENSE += [f"checkpoints: [{{step: 1, file: {'x' * 300}}}]", 'checkpoints: [{step: 1, file: "\\0"}]']


@pytest.mark.parametrize("text", NONSENSE, ids=range(len(NONSENSE)))
def test_an_index_that_makes_no_sense_is_begun_anew(tmp_path, text):
    (tmp_path / "checkpoints_index.yaml").write_text(text)
    assert _register(tmp_path, 5) == [IndexEntry(5, "checkpoint_5.mdl")]


def test_what_would_be_elsewhere_does_not_count(tmp_path):
    folder, other = tmp_path / "run", tmp_path / "other" / "checkpoint_77.mdl"
    for path in (other, folder / "checkpoint_4.mdl", folder / "inside" / "checkpoint_3.mdl"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    names = ["../other/checkpoint_77.mdl", str(other), "inside/checkpoint_3.mdl", "../run/checkpoint_4.mdl", "."]
    entries = [{"step": 1, "file": name, "run": "abc"} for name in [*names, "checkpoint_4.mdl"]]
    (folder / INDEX_NAME).write_text(yaml.safe_dump({"checkpoints": entries}))
    assert read_index(folder) == [IndexEntry(1, "checkpoint_4.mdl", "abc")]


def test_runs_that_register_at_the_same_time_lose_nothing(tmp_path):
    def register_some(first: int) -> None:
        for step in range(first, 20, 4):
            _register(tmp_path, step)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(register_some, range(4)))
    assert sorted(entry.step for entry in read_index(tmp_path)) == list(range(20))


def test_an_index_that_cannot_be_written_is_named(tmp_path):
    _register(tmp_path, 4)
    (tmp_path / "checkpoints_index.yaml.lock").unlink()
    (tmp_path / "checkpoints_index.yaml.lock").mkdir()
    message = f"{tmp_path}/checkpoints_index.yaml: the index of checkpoints must be writable, got: Is a directory"
    with refusal(CheckpointError, message, f"the checkpoint {tmp_path}/checkpoint_5.mdl itself is complete"):
        _register(tmp_path, 5)
    with refusal(CheckpointError, message, "its entries of deleted checkpoints do no harm"):
        forget_deleted(tmp_path)


def test_an_index_that_is_far_too_long_counts_as_empty(tmp_path, monkeypatch):
    """Whoever made it, reading it would take long and much memory."""
    monkeypatch.setattr(checkpoint_index, "MOST_BYTES", 100)
    (tmp_path / "checkpoint_5.mdl").touch()
    text = "checkpoints:\n- step: 5\n  file: checkpoint_5.mdl\n"
    for size_bytes, found in ((100, [IndexEntry(5, "checkpoint_5.mdl")]), (101, [])):
        (tmp_path / INDEX_NAME).write_text(text.ljust(size_bytes, "#"))
        assert read_index(tmp_path) == found
    assert _register(tmp_path, 7) == [IndexEntry(7, "checkpoint_7.mdl")]
