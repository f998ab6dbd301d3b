"""Only checkpoints are deleted, and by pruning never the latest that is whole."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from cstool.foundation.errors import CheckpointError
from cstool.training.store import (
    IndexEntry,
    check_deletable,
    delete_checkpoints,
    plan_pruning,
    read_index,
    register_checkpoint,
)
from tests.contract.refusal import refusal

A_LINK = "must be a checkpoint itself to be deleted, this is a symbolic link"
NAMING = "checkpoints of cstool are called checkpoint_{step}.mdl"


@pytest.fixture
def write_run(write_checkpoint) -> Callable[..., dict[int, Path]]:
    """Write checkpoints of some steps, of which some are damaged, with their index: `write_run(1, 2, damaged=[2])`."""

    def write(*steps: int, damaged: list[int] | tuple[()] = ()) -> dict[int, Path]:
        paths = {step: write_checkpoint(f"checkpoint_{step}.mdl", step) for step in steps}
        for step, path in paths.items():
            register_checkpoint(path.parent, step, path)
            if step in damaged:
                damage(path)
        return paths

    return write


def damage(path: Path) -> None:
    """Change a tensor behind the back of its checksum."""
    whole = path.read_bytes()
    seven = (7).to_bytes(8, "little")
    assert whole.count(seven) == 1
    path.write_bytes(whole.replace(seven, bytes(8)))


def test_checkpoints_are_deleted_and_the_index_follows(write_run, tmp_path):
    paths = write_run(1, 2, 3)
    delete_checkpoints([paths[1], paths[3]])
    assert ([*tmp_path.glob("*.mdl")], read_index(tmp_path)) == ([paths[2]], [IndexEntry(2, "checkpoint_2.mdl")])
    assert "checkpoint_1" not in (tmp_path / "checkpoints_index.yaml").read_text()


def test_a_checkpoint_is_deleted_also_if_it_is_damaged_and_no_index_is_made(write_checkpoint, tmp_path):
    for spoil in (damage, lambda path: os.truncate(path, 1000), lambda path: None):
        spoil(path := write_checkpoint())
        delete_checkpoints([path])
        assert os.listdir(tmp_path) == []


def _data_set(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["data"] = 1


@pytest.mark.parametrize(
    ("make", "rule", "hint"),
    [
        (lambda path: path.write_text("mine"), "a checkpoint must be an HDF5 file, this one is not", NAMING),
        (_data_set, "must be a checkpoint, this is an HDF5 file of another kind", NAMING),
        (lambda path: path.symlink_to("checkpoint_1.mdl"), A_LINK, "it is to checkpoint_1.mdl"),
        (lambda path: path.symlink_to(path), A_LINK, "it is to DIR/checkpoint_9.mdl"),
    ],
)
def test_what_is_no_checkpoint_is_not_deleted_nor_is_anything_with_it(write_run, tmp_path, make, rule, hint):
    whole, path = write_run(1)[1], tmp_path / "checkpoint_9.mdl"
    make(path)
    before = sorted(os.listdir(tmp_path))
    with refusal(CheckpointError, f"{path}: {rule}", hint.replace("DIR", str(tmp_path))):
        delete_checkpoints([whole, path])
    assert sorted(os.listdir(tmp_path)) == before


def test_a_data_set_that_was_cut_short_is_not_taken_for_a_checkpoint(tmp_path):
    _data_set(path := tmp_path / "part.h5")
    os.truncate(path, 1000)
    message = f"{path}: must be a checkpoint to be deleted, this is too damaged to tell and not called .mdl"
    with refusal(CheckpointError, message):
        check_deletable(path)


@pytest.mark.parametrize(("refused", "number"), [(1, errno.EROFS), (2, errno.EIO)])
def test_where_one_cannot_be_deleted_that_is_told_and_the_index_follows(write_run, monkeypatch, refused, number):
    paths, unlink = write_run(1, 2), os.unlink

    def refuse(path: Path) -> None:
        if path == paths[refused]:
            raise OSError(number, os.strerror(number))
        unlink(path)

    monkeypatch.setattr(os, "unlink", refuse)
    message = f"{paths[refused]}: must be where it can be deleted, got: {os.strerror(number)}"
    with refusal(CheckpointError, message):
        delete_checkpoints([paths[1], paths[2]])
    index = (paths[1].parent / "checkpoints_index.yaml").read_text()
    assert ("checkpoint_1" in index, "checkpoint_2" in index) == (refused == 1, True)


@pytest.mark.parametrize(
    ("steps", "damaged", "keep", "kept", "deleted"),
    [
        ([], [], 1, [], []),
        ([1], [], 1, [1], []),
        ([1, 2, 10], [], 2, [2, 10], [1]),
        ([1, 2, 10], [], 5, [1, 2, 10], []),
        ([1, 2, 3, 4], [4], 1, [3], [1, 2]),
        ([1, 2, 3, 4], [2, 4], 2, [1, 3], []),
        ([1, 2, 3, 4], [1], 2, [3, 4], [1, 2]),
        ([1, 2], [1, 2], 1, [], []),
    ],
)
def test_the_latest_whole_ones_are_kept(write_run, tmp_path, steps, damaged, keep, kept, deleted):
    paths = write_run(*steps, damaged=damaged)
    plan = plan_pruning(tmp_path, keep)
    assert (plan.kept, plan.deleted) == ([paths[s] for s in kept], [paths[s] for s in deleted])
    unlike = [step for step in steps if step not in kept + deleted]
    assert [str(error).partition(":")[0] for error in plan.damaged] == [str(paths[step]) for step in unlike]
    assert all("optimizer.count is damaged: its checksum must be" in error.message for error in plan.damaged)


def test_of_a_step_with_several_timestamps_the_latest_is_kept(write_checkpoint, tmp_path):
    old, new = (write_checkpoint(f"checkpoint_3{time}.mdl") for time in ("", "_20250101_000000"))
    plan = plan_pruning(tmp_path, 1)
    assert (plan.kept, plan.deleted) == ([new], [old])


def test_what_is_only_called_like_a_checkpoint_neither_counts_nor_goes(write_run, tmp_path):
    paths = write_run(1, 4)
    (tmp_path / "checkpoint_0.mdl").write_text("mine")
    _data_set(tmp_path / "checkpoint_2.mdl")
    (tmp_path / "checkpoint_5.mdl").symlink_to(paths[4])
    plan = plan_pruning(tmp_path, 1)
    assert (plan.kept, plan.deleted, plan.damaged) == ([paths[4]], [paths[1]], [])
    assert [error.message.removeprefix(f"{tmp_path}/") for error in plan.strange] == [
        "checkpoint_0.mdl: a checkpoint must be an HDF5 file, this one is not",
        "checkpoint_2.mdl: must be a checkpoint, this is an HDF5 file of another kind",
        "checkpoint_5.mdl: must be a checkpoint itself to be deleted, this is a symbolic link",
    ]
