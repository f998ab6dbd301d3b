"""How the checkpoints of a folder are named, found and swept."""

import datetime
import os
import time
from pathlib import Path

import pytest

from cstool.errors import CheckpointError
from cstool.store import CheckpointEntry, CheckpointWriter, checkpoint_path, list_checkpoints, sweep_temporary
from tests.contract.refusal import refusal

NOON = datetime.datetime(2026, 3, 4, 12, 0, 59)


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        ([], "checkpoint_12.mdl"),
        (["checkpoint_12.mdl"], "checkpoint_12_20260304_120059.mdl"),
        (["checkpoint_12.mdl", "checkpoint_12_20260304_120059.mdl"], "checkpoint_12_20260304_120100.mdl"),
    ],
    ids=["free", "taken: the time", "that, too: the next second"],
)
def test_a_checkpoint_is_named_after_its_step(tmp_path, taken, name):
    for other in taken:
        (tmp_path / other).touch()
    assert checkpoint_path(tmp_path, 12, now=NOON) == tmp_path / name


def test_a_dangling_link_takes_its_name_too(tmp_path):
    (tmp_path / "checkpoint_12.mdl").symlink_to("gone")
    assert checkpoint_path(tmp_path, 12, now=NOON).name == "checkpoint_12_20260304_120059.mdl"


def test_the_template_is_the_users(tmp_path):
    (tmp_path / "run.7-of-9.h5").touch()
    assert checkpoint_path(tmp_path, 7, "run.{step}-of-9.h5", NOON).name == "run.7-of-9_20260304_120059.h5"


@pytest.mark.parametrize("template", ["checkpoint.mdl", "{step}_{step}.mdl", "a/{step}.mdl", "a.{step}"])
def test_a_template_has_one_step_in_its_stem(tmp_path, template):
    message = f"the name of checkpoints must be a file name with one {{step}} in its stem, got {template}"
    with refusal(ValueError, message):
        checkpoint_path(tmp_path, 1, template)


def test_checkpoints_are_listed_by_step_then_timestamp(tmp_path):
    steps = ["10", "9", "10_20260304_120059", "10_20250304_120059", "0"]
    for step in steps:
        (tmp_path / f"checkpoint_{step}.mdl").touch()
    assert list_checkpoints(tmp_path) == [
        CheckpointEntry(0, None, tmp_path / "checkpoint_0.mdl"),
        CheckpointEntry(9, None, tmp_path / "checkpoint_9.mdl"),
        CheckpointEntry(10, None, tmp_path / "checkpoint_10.mdl"),
        CheckpointEntry(10, "20250304_120059", tmp_path / "checkpoint_10_20250304_120059.mdl"),
        CheckpointEntry(10, "20260304_120059", tmp_path / "checkpoint_10_20260304_120059.mdl"),
    ]


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint_1.mdl.0123abcd.tmp",
        "checkpoint_1.mdl.bak",
        "my_checkpoint_1.mdl",
        "checkpoint_-1.mdl",
        "checkpoint_.mdl",
        "checkpoint_1_2026.mdl",
        "checkpoint_1xmdl",
        "checkpoint_²³.mdl",
        "checkpoints_index.yaml",
    ],
)
def test_other_files_and_folders_are_no_checkpoints(tmp_path, name):
    (tmp_path / name).touch()
    (tmp_path / "checkpoint_1.mdl").mkdir()
    assert list_checkpoints(tmp_path) == []


def test_checkpoints_of_another_template_are_listed_by_it(tmp_path):
    (tmp_path / "run+7.h5").touch()
    assert list_checkpoints(tmp_path, "run+{step}.h5") == [CheckpointEntry(7, None, tmp_path / "run+7.h5")]


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


def test_an_old_temporary_file_of_nobody_is_swept(tmp_path):
    stale = _aged(tmp_path / "checkpoint_1.mdl.0123abcd.tmp", 100)
    assert (sweep_temporary(tmp_path), os.listdir(tmp_path)) == ([stale], [])


@pytest.mark.parametrize(
    ("name", "age_s"),
    [
        ("checkpoint_1.mdl.0123abcd.tmp", 10),
        ("notes.tmp", 100),
        ("checkpoint_1.mdl.0123abc.tmp", 100),
        ("checkpoint_1.mdl", 100),
    ],
)
def test_young_and_foreign_files_are_not_swept(tmp_path, name, age_s):
    _aged(tmp_path / name, age_s)
    assert (sweep_temporary(tmp_path), os.listdir(tmp_path)) == ([], [name])


def test_the_file_of_a_living_writer_is_not_swept_however_old(tmp_path):
    with CheckpointWriter(tmp_path / "checkpoint_1.mdl"):
        (temporary,) = tmp_path.iterdir()
        _aged(temporary, 100)
        assert (sweep_temporary(tmp_path), temporary.exists()) == ([], True)
