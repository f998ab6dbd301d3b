"""Params: where the parts come from, and the file that they can be written as."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.errors import ParamsError
from cstool.params import load_params

STOCK = sorted((Path(__file__).parents[3] / "params").glob("*.yaml"))
VAL = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": "data/val", "batch_size": 4}


@pytest.mark.parametrize("path", STOCK, ids=lambda path: path.name)
def test_a_stock_file_asks_for_nothing_without_effect(path):
    assert load_params(path).notes == ()


@pytest.mark.parametrize("path", STOCK, ids=lambda path: path.name)
def test_a_stock_file_survives_being_resolved_and_read_again(path, tmp_path):
    params = load_params(path)
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(params.resolved()))
    again = load_params(tmp_path / "again.yaml")
    assert (again, again.resolved()) == (params, params.resolved())


CHANGES: list[dict[str, Any]] = [
    {"init.model": {"name": "fc_mnist", "depth": 2, "hidden_size": 50}},
    {"init.model": {"name": "gpt3", "initializer": {"name": "uniform", "a": -0.1, "b": 0.1}}},
    {"init.optimizer": {"SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True}}},
    {"init.precision": {"max_gradient_value": 0.5}, "init.checkpoint": {"steps": 5}, "init.seed": 9},
    {"init.loop": {"num_epochs": 2, "steps_per_epoch": 5, "eval_frequency": 0.5}},
    {"init.schedulers": [{"PiecewiseConstantLR": {"learning_rates": [0.1, 0.01], "milestones": [5]}}]},
    {"init.schedulers": [{"SequentialLR": {"schedulers": [{"ConstantLR": {"learning_rate": 1, "total_iters": 2}}]}}]},
    {"fit.val_dataloader": VAL, "validate.val_dataloader": {**VAL, "drop_last": False}},
    {"fit.ckpt_path": "checkpoint_5.mdl"},
    {"fit.ckpt_path": None},
    {"fit.ckpt_path": "a.mdl", "validate.ckpt_path": "b.mdl"},
    {"init.callbacks": [{"LoadCheckpointStates": {"load_checkpoint_states": "model"}}]},
    {"init.schedulers": [{"ScalePerParamLR": {"scheduler": {"ConstantLR": {"learning_rate": 1}}}}]},
    {"init.optimizer": {"adamw": {"lr": 0.1, "adjust_learning_rate": {"decoder_kernel": 0.1}}}},
    {"init.precision.enabled": False, "init.backend": {"compile_dir": "artifacts", "compile_only": True}},
    {"init.backend.validate_only": True, "fit.train_dataloader.micro_batch_size": 4},
    {"init.activation_checkpointing": "always"},
    {"init.sparsity": 0.5},
    {"init.sparsity": [{"sparsity": [0.1, 0.2], "algorithm": "gmp", "update": {"freq": 5}, "param_filter": "*"}]},
    {"init.sparsity": [{"sparsity": 0.1, "algorithm": "dropconnect", "samples": 3, "param_filter": "*"}]},
    {"init.sparsity": {"init_method": "from_checkpoint", "mask_checkpoint": "a.mdl", "rewind_checkpoint": "b.mdl"}},
    {"fit": None, "validate.val_dataloader": VAL},
    {"fit.val_dataloader": [VAL, {**VAL, "data_dir": "b"}], "validate.val_dataloader": VAL},
    {"validate_all": {"val_dataloaders": [VAL, {**VAL, "data_dir": "b"}], "ckpt_paths": ["a.mdl", "b.mdl"]}},
    {"init.callbacks": [{"KeepNCheckpoints": {"n": 2}}, {"LoadCheckpointStates": {"load_checkpoint_states": "model"}}]},
    {"init.callbacks": [{"SaveCheckpointState": {"k": 2}}], "init.checkpoint": {"steps": 5}},
    {
        "init.callbacks": [{"EarlyStopping": {"patience": 2, "monitor": "eval/accuracy", "min_delta": 0.5}}],
        "init.loop.eval_frequency": 0.5,
        "fit.val_dataloader": VAL,
    },
    {"init.callbacks": [{"ComputeNorm": {}}], "fit.train_dataloader.num_workers": 8},
]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: ", ".join(changes))
def test_what_is_resolved_asks_for_the_same_when_read_from_elsewhere(load, changes, folder):
    params = load(changes)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "y.yaml").write_text(yaml.safe_dump(params.resolved()))
    assert load_params(folder / "elsewhere" / "y.yaml") == params


def test_the_text_is_that_of_the_file(load, folder):
    params = load({})
    assert params.text == (folder / "x.yaml").read_text()


def test_two_files_that_ask_for_different_things_are_not_equal(load):
    assert load({}) != load({"init.seed": 2})


def test_the_model_dir_is_named_after_the_file(load, folder):
    assert load({}).model_dir == folder / "checkpoints" / "x"


def test_a_model_dir_lies_in_the_working_directory(load, folder, monkeypatch):
    load({"init.model_dir": "./run"})
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    assert load_params(folder / "x.yaml").model_dir == folder / "work" / "run"


def test_evaluation_alone_takes_the_data_of_validate_if_there_is_some(load, folder):
    params = load({"fit.val_dataloader": VAL, "validate.val_dataloader": {**VAL, "data_dir": "data/test"}})
    dirs = [params.dataloaders(purpose)[0].data_dir for purpose in ("val", "eval")]
    assert dirs == [(folder / "data/val",), (folder / "data/test",)]


def test_evaluation_alone_falls_back_to_the_held_out_data_of_fit(load):
    params = load({"fit.val_dataloader": VAL})
    assert params.eval_all_dataloaders == params.eval_dataloaders == params.val_dataloaders != ()


@pytest.mark.parametrize(
    ("purpose", "message"),
    [
        ("train", "x.yaml: trainer.fit.train_dataloader is missing"),
        ("val", "x.yaml: trainer.fit.val_dataloader is missing"),
        ("eval", "x.yaml: trainer.fit.val_dataloader is missing"),
        ("eval_all", "x.yaml: trainer.fit.val_dataloader is missing"),
    ],
)
def test_a_dataloader_that_a_mode_needs_and_the_file_lacks_is_an_error(load, purpose, message):
    params = load({"fit": None})
    with pytest.raises(ParamsError) as caught:
        params.dataloaders(purpose)
    assert str(caught.value) == message


def test_training_alone_needs_an_optimizer(load):
    params = load({"init.optimizer": None, "fit.val_dataloader": VAL})
    assert params.optimizer is None
    assert "optimizer" not in params.resolved()["trainer"]["init"]
    assert params.dataloaders("val")
    with pytest.raises(ParamsError) as caught:
        params.dataloaders("train")
    message = "x.yaml:7: trainer.init.optimizer is missing\nhint: without it a model can be evaluated, and generate"
    assert str(caught.value) == message


def test_a_checkpoint_to_start_from_is_resolved_like_any_path(load, folder):
    assert load({"fit.ckpt_path": "a.mdl"}).checkpoint_path.path == folder / "a.mdl"


def test_without_a_checkpoint_to_start_from_the_latest_is_looked_for(load):
    params = load({})
    assert (params.checkpoint_path, params.checkpoint.autoload_last_checkpoint) == (None, True)


def test_a_checkpoint_of_null_means_to_start_fresh(load):
    params = load({"fit.ckpt_path": None})
    assert (params.checkpoint_path, params.checkpoint.autoload_last_checkpoint) == (None, False)


def test_other_paths_can_be_resolved_the_same_way(load, folder):
    assert load({}).resolve("a/b").path == folder / "a" / "b"


@pytest.mark.parametrize(("fit", "validate", "found"), [("a", None, "a"), (None, "b", "b"), ("a", "b", "b")])
def test_evaluation_alone_takes_the_checkpoint_of_validate_if_there_is_one(load, folder, fit, validate, found):
    written = {"fit.ckpt_path": fit, "validate.ckpt_path": validate}
    params = load({key: value for key, value in written.items() if value is not None})
    assert params.eval_checkpoint_path.path == folder / found


def test_what_a_file_says_of_a_job_is_kept_for_jobs_and_noted_for_a_run_that_is_none(load):
    asked = {"job_labels": ["a=b"], "job_priority": "p1", "job_time_sec": 100}
    params = load({"init.backend": {"cluster_config": {**asked, "num_csx": 2, "mount_dirs": []}}})
    assert params.job_keys == asked
    notes = [f"trainer.init.backend.cluster_config.{key}: accepted, no effect" for key in (*asked, "mount_dirs")]
    assert sorted(params.notes) == sorted(notes)


@pytest.mark.parametrize("backend", [None, {}, {"cluster_config": None}, {"cluster_config": {"job_priority": None}}])
def test_a_file_may_say_nothing_of_a_job(load, backend):
    assert load({"init.backend": backend}).job_keys == {}
