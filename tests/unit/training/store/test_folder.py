"""How the checkpoints of a folder are named, found and swept, and which is the newest: by what it holds."""

import datetime
import os
import time
from pathlib import Path

import pytest

from cstool.foundation.errors import CheckpointError
from cstool.training.store import (
    CheckpointEntry,
    CheckpointWriter,
    checkpoint_path,
    list_checkpoints,
    newest_checkpoints,
    sweep_temporary,
)
from tests.contract.refusal import refusal

NOON = datetime.datetime(2026, 3, 4, 12, 0, 59)


@pytest.mark.parametrize(
    ("template", "names"),
    [
        (
            "checkpoint_{step}.mdl",
            [f"checkpoint_12{at}.mdl" for at in ("", "_20260304_120059", "_20260304_120100")],
        ),
        ("run.{step}-of-9.h5", ["run.12-of-9.h5", "run.12-of-9_20260304_120059.h5"]),
    ],
)
@pytest.mark.parametrize("take", [Path.touch, lambda path: path.symlink_to("gone")], ids=["file", "dangling link"])
def test_a_checkpoint_is_named_after_its_step_then_the_time_then_the_next_second(tmp_path, template, names, take):
    for name in names:
        assert checkpoint_path(tmp_path, 12, template, now=NOON) == tmp_path / name
        take(tmp_path / name)


@pytest.mark.parametrize("template", ["checkpoint.mdl", "{step}_{step}.mdl", "a/{step}.mdl", "a.{step}"])
def test_a_template_has_one_step_in_its_stem(tmp_path, template):
    message = f"the name of checkpoints must be a file name with one {{step}} in its stem, got {template}"
    with refusal(ValueError, message):
        checkpoint_path(tmp_path, 1, template)


def test_checkpoints_are_listed_by_step_then_timestamp(tmp_path):
    listed = [(0, None), (9, None), (10, None), (10, "20250304_120059"), (10, "20260304_120059")]
    paths = [tmp_path / f"checkpoint_{step}{f'_{time}' if time else ''}.mdl" for step, time in listed]
    for path in reversed(paths):
        path.touch()
    assert list_checkpoints(tmp_path) == [CheckpointEntry(*at, path) for at, path in zip(listed, paths, strict=True)]
    # Those of another template are listed by it.
    (tmp_path / "run+7.h5").touch()
    assert list_checkpoints(tmp_path, "run+{step}.h5") == [CheckpointEntry(7, None, tmp_path / "run+7.h5")]


OTHERS = (
    *("checkpoint_1.mdl.0123abcd.tmp", "checkpoint_1.mdl.bak", "my_checkpoint_1.mdl", "checkpoint_-1.mdl"),
    *("checkpoint_.mdl", "checkpoint_1_2026.mdl", "checkpoint_1xmdl", "checkpoint_²³.mdl", "checkpoints_index.yaml"),
)


def test_other_files_and_folders_are_no_checkpoints(tmp_path):
    for name in OTHERS:
        (tmp_path / name).touch()
    (tmp_path / "checkpoint_1.mdl").mkdir()
    assert list_checkpoints(tmp_path) == []


def test_a_missing_folder_has_no_checkpoints_and_a_file_is_no_folder(tmp_path):
    assert list_checkpoints(tmp_path / "missing") == []
    assert sweep_temporary(tmp_path / "missing") == []
    (tmp_path / "file").touch()
    with refusal(CheckpointError, f"{tmp_path}/file: must be a folder that can be read, got: Not a directory"):
        list_checkpoints(tmp_path / "file")


def _aged(path: Path, age_s: float) -> Path:
    path.touch()
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_an_old_temporary_file_of_nobody_is_swept_young_and_foreign_ones_are_not(tmp_path):
    stale = _aged(tmp_path / "checkpoint_1.mdl.0123abcd.tmp", 100)
    kept = {"checkpoint_1.mdl.0123abce.tmp": 10, "notes.tmp": 100, "checkpoint_1.mdl.0123abc.tmp": 100, "a.mdl": 100}
    for name, age_s in kept.items():
        _aged(tmp_path / name, age_s)
    with CheckpointWriter(tmp_path / "checkpoint_1.mdl") as writer:
        (living,) = {*os.listdir(tmp_path)} - {*kept, stale.name}
        _aged(tmp_path / living, 100)
        assert (sweep_temporary(tmp_path), {*os.listdir(tmp_path)}) == ([stale], {*kept, living})
        writer.add_value("step", 1)


def newest(folder: Path) -> list[tuple[str, int, bool]]:
    return [(held.entry.path.name, held.step, held.is_misnamed) for held in newest_checkpoints(folder)]


@pytest.mark.parametrize(
    ("holding", "found"),
    [
        ({}, []),
        ({12: 2, 9: 6, 7: 7}, [(12, 2, True), (9, 6, True), (7, 7, False)]),
        ({9: 20, 10: 6}, [(10, 6, True), (9, 20, True)]),
        ({9: 6, 6: 6}, [(9, 6, True), (6, 6, False)]),
    ],
    ids=["none", "less than their names say", "more than its name says", "the same: the one that is named for it"],
)
def test_the_newest_is_that_which_holds_the_latest_step(tmp_path, write_checkpoint, holding, found):
    for name, step in holding.items():
        write_checkpoint(f"checkpoint_{name}.mdl", step)
    assert newest(tmp_path) == [(f"checkpoint_{name}.mdl", step, misnamed) for name, step, misnamed in found]


def test_older_names_are_not_looked_into_and_one_that_cannot_be_read_counts_by_its_name(tmp_path, write_checkpoint):
    write_checkpoint("checkpoint_7.mdl", 7)
    (tmp_path / "checkpoint_6.mdl").mkdir()
    (tmp_path / "checkpoint_5.mdl").write_text("nothing")
    assert newest(tmp_path) == [("checkpoint_7.mdl", 7, False)]
    os.truncate(write_checkpoint("checkpoint_9.mdl", 9), 100)
    assert newest(tmp_path) == [("checkpoint_9.mdl", 9, False)]
