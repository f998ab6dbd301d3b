"""A copy is the same to the last byte, or is not there."""

import os
from pathlib import Path

import numpy as np
import pytest

from cstool.foundation.errors import CheckpointError, DamagedCheckpointError
from cstool.training.store import (
    CheckpointReader,
    CheckpointWriter,
    IndexEntry,
    copy_checkpoint,
    read_index,
    register_checkpoint,
)
from tests.contract.refusal import refusal
from tests.unit.training.store.stored import write_state


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept"


def test_a_copy_has_everything_that_a_checkpoint_can_have(tmp_path, monkeypatch):
    """A row longer than a piece, no elements, a scalar, values of every length, a link, another writer."""
    monkeypatch.setattr("cstool.training.store.saved_state.PIECE", 7)
    wide = np.arange(40, dtype=np.float64).reshape(2, 20)
    with CheckpointWriter(tmp_path / "a.mdl", cstool_version="0.0.9") as writer:
        writer.add_value("first", {"a": [1, 2.5, None, "é"]})
        writer.add_tensor("wide", wide.shape, "float64", [wide])
        writer.link("tied", "wide")
        writer.add_tensor("nothing", (0, 3), "int8", [])
        writer.add_tensor("scalar", (), "bool", [np.array(True)])
        writer.add_value("long", "x" * 100_000)
    copy_checkpoint(tmp_path / "a.mdl", tmp_path / "b.mdl")
    assert (tmp_path / "a.mdl").read_bytes() == (tmp_path / "b.mdl").read_bytes()
    with CheckpointReader(tmp_path / "b.mdl") as reader:
        assert (reader.cstool_version, reader.link_of("tied")) == ("0.0.9", "wide")


def test_a_folder_that_is_not_there_is_not_made(write_checkpoint, tmp_path):
    source = write_checkpoint()
    with pytest.raises(CheckpointError, match="got: No such file or directory") as caught:
        copy_checkpoint(source, f"{tmp_path}/new/")
    assert str(caught.value.message).startswith(f"{tmp_path}/new/checkpoint_3.mdl: a checkpoint of ")
    assert caught.value.hint == "create the folder first; the previous checkpoint is untouched"
    assert os.listdir(tmp_path) == ["checkpoint_3.mdl"]


def test_nothing_is_overwritten_not_even_the_checkpoint_itself(write_checkpoint, tmp_path):
    source, other = write_checkpoint(), tmp_path / "other.mdl"
    other.write_text("mine")
    before = {path: path.read_bytes() for path in (source, other)}
    for target, taken in ((other, other), (tmp_path, source)):
        with refusal(CheckpointError, f"Checkpoint at '{taken}' already exists", "delete it or choose another name"):
            copy_checkpoint(source, target)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_damaged_checkpoint_leaves_no_copy(write_checkpoint, weight, folder):
    source = write_checkpoint()
    source.write_bytes(source.read_bytes().replace(weight.tobytes(), weight[::-1].tobytes()))
    with pytest.raises(DamagedCheckpointError, match="model.weight is damaged"):
        copy_checkpoint(source, folder)
    assert os.listdir(folder) == []


@pytest.mark.parametrize("step", [3, "3", None])
def test_a_copy_is_entered_in_the_index_of_its_folder_if_it_knows_its_step(tmp_path, folder, step):
    write_state(tmp_path / "a.mdl", values={"global_step": step})
    (folder / "checkpoint_1.mdl").touch()
    register_checkpoint(folder, 1, folder / "checkpoint_1.mdl")
    copy_checkpoint(tmp_path / "a.mdl", folder)
    entered = [IndexEntry(3, "a.mdl")] if step == 3 else []
    assert read_index(folder) == [IndexEntry(1, "checkpoint_1.mdl"), *entered]


@pytest.mark.parametrize("slash", ["", "/"])
def test_in_a_folder_the_name_stays_no_index_is_made_and_it_is_told_how_far_it_is(write_checkpoint, folder, slash):
    source, told = write_checkpoint(), []
    assert copy_checkpoint(source, f"{folder}{slash}", lambda *at: told.append(at)) == folder / "checkpoint_3.mdl"
    assert (told, os.listdir(folder)) == ([(48, 56), (56, 56)], ["checkpoint_3.mdl"])
