"""The dataloader sections."""

from __future__ import annotations

from pathlib import Path

import pytest

from cstool.params import load_params

TRAIN = "fit.train_dataloader"


def test_a_dataloader_has_defaults(load, folder: Path) -> None:
    assert load({}).dataloader("train").dump() == {
        "data_processor": "GptHDF5MapDataProcessor",
        "data_dir": [str(folder / "data/train")],
        "batch_size": 8,
        "shuffle": False,
        "shuffle_seed": 1,
        "drop_last": True,
        "split": "train",
    }


def test_a_list_of_folders_is_kept_in_order(load, folder: Path) -> None:
    assert load({f"{TRAIN}.data_dir": ["b", "a"]}).dataloader("train").data_dir == (folder / "b", folder / "a")


def test_all_places_where_a_folder_was_looked_for_can_be_shown(load, folder: Path, monkeypatch) -> None:
    load({})
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    dataloader = load_params(folder / "x.yaml").dataloader("train")
    assert dataloader.tried == f"{folder}/data/train, {folder}/work/data/train"


def test_the_seed_of_the_shuffle_is_that_of_the_run_unless_given(load) -> None:
    assert load({"init.seed": 7}).dataloader("train").shuffle_seed == 7


def test_the_seed_of_the_shuffle_can_be_given(load) -> None:
    assert load({"init.seed": 7, f"{TRAIN}.shuffle_seed": 0}).dataloader("train").shuffle_seed == 0


def test_drop_last_batch_is_another_name_of_drop_last(load) -> None:
    assert load({f"{TRAIN}.drop_last_batch": False}).dataloader("train").drop_last is False


def test_held_out_data_is_the_split_val_unless_said_otherwise(load) -> None:
    val = {"data_processor": "MNISTDataProcessor", "data_dir": "mnist", "batch_size": 1}
    assert load({"fit.val_dataloader": val}).dataloader("val").split == "val"


def test_keys_about_worker_processes_are_noted(load) -> None:
    keys = {"num_workers": 8, "prefetch_factor": 10, "persistent_workers": True, "to_float16": True}
    assert load({f"{TRAIN}.{key}": value for key, value in keys.items()}).notes == tuple(
        f"trainer.fit.train_dataloader.{key}: accepted, no effect" for key in keys
    )


T = f"trainer.{TRAIN}"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("batch_size", 0, f"x.yaml:16: {T}.batch_size must be at least 1, got 0"),
        ("batch_size", None, f"x.yaml:16: {T}.batch_size is missing"),
        ("data_dir", [], f"x.yaml:15: {T}.data_dir must hold at least 1, got []"),
        ("data_dir", 5, f"x.yaml:15: {T}.data_dir must be a folder or a list of folders, got 5"),
        ("data_dir", ["a", ""], f"x.yaml:15: {T}.data_dir must be a folder or a list of folders, got ['a', '']"),
        (
            "data_processor",
            "GptHDF5MapDataProcesor",
            f"x.yaml:14: {T}.data_processor must be GptHDF5MapDataProcessor, GptHDF5DataProcessor or "
            "MNISTDataProcessor, got 'GptHDF5MapDataProcesor'",
        ),
        ("split", "test", f"x.yaml:17: {T}.split must be train or val, got 'test'"),
        ("max_sequence_length", 0, f"x.yaml:17: {T}.max_sequence_length must be at least 1, got 0"),
        ("shuffle_seed", -1, f"x.yaml:17: {T}.shuffle_seed must be at least 0, got -1"),
        ("batchsize", 3, f"x.yaml:17: {T}.batchsize is not a known key\nhint: did you mean batch_size?"),
        ("use_vsl", True, f"x.yaml:17: not supported: {T}.use_vsl: true\nhint: leave it out"),
    ],
)
def test_a_dataloader_that_makes_no_sense_is_an_error(failure, key, value, message) -> None:
    assert failure({f"{TRAIN}.{key}": value}) == message
