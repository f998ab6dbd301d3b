"""Params: where the parts come from, and the file that they can be written as."""

import pytest
import yaml

from cstool.foundation.errors import ParamsError
from cstool.model.params import load_params
from tests.unit.model.params.conftest import VAL, each_meaning

CHANGES = yaml.safe_load("""
- {init.model: {name: fc_mnist, depth: 2, hidden_size: 50}}
- {init.model: {name: gpt3, initializer: {name: uniform, a: -0.1, b: 0.1}}}
- {init.optimizer: {SGD: {lr: 0.1, momentum: 0.9, nesterov: true}}}
- {init.precision: {max_gradient_value: 0.5}, init.checkpoint: {steps: 5}, init.seed: 9}
- {init.loop: {num_epochs: 2, steps_per_epoch: 5, eval_frequency: 0.5}}
- {init.schedulers: [{PiecewiseConstantLR: {learning_rates: [0.1, 0.01], milestones: [5]}}]}
- {init.schedulers: [{SequentialLR: {schedulers: [{ConstantLR: {learning_rate: 1, total_iters: 2}}]}}]}
- {init.schedulers: [{ScalePerParamLR: {scheduler: {ConstantLR: {learning_rate: 1}}}}]}
- {fit.val_dataloader: &val {data_processor: GptHDF5MapDataProcessor, data_dir: data/val, batch_size: 4},
   validate.val_dataloader: {data_processor: GptHDF5MapDataProcessor, data_dir: b, batch_size: 4, drop_last: false}}
- {fit.ckpt_path: checkpoint_5.mdl}
- {fit.ckpt_path: null}
- {fit.ckpt_path: a.mdl, validate.ckpt_path: b.mdl}
- {init.optimizer: {adamw: {lr: 0.1, adjust_learning_rate: {decoder_kernel: 0.1}}}}
- {init.precision.enabled: false, init.backend: {compile_dir: artifacts, compile_only: true}}
- {init.backend.validate_only: true, fit.train_dataloader.micro_batch_size: 4}
- {init.activation_checkpointing: always}
- {init.sparsity: 0.5}
- {init.sparsity: [{sparsity: [0.1, 0.2], algorithm: gmp, update: {freq: 5}, param_filter: '*'}]}
- {init.sparsity: [{sparsity: 0.1, algorithm: dropconnect, samples: 3, param_filter: '*'}]}
- {init.sparsity: {init_method: from_checkpoint, mask_checkpoint: a.mdl, rewind_checkpoint: b.mdl}}
- {fit: null, validate.val_dataloader: *val}
- {fit.val_dataloader: [*val, *val], validate.val_dataloader: *val}
- {validate_all: {val_dataloaders: [*val, *val], ckpt_paths: [a.mdl, b.mdl]}}
- {init.callbacks: [{KeepNCheckpoints: {n: 2}}, {LoadCheckpointStates: {load_checkpoint_states: model}}]}
- {init.callbacks: [{SaveCheckpointState: {k: 2}}], init.checkpoint: {steps: 5}}
- {init.callbacks: [{EarlyStopping: {patience: 2, monitor: eval/accuracy, min_delta: 0.5}}],
   init.loop.eval_frequency: 0.5, fit.val_dataloader: *val}
- {init.callbacks: [{ComputeNorm: {}}], fit.train_dataloader.num_workers: 8}
""")


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: ", ".join(changes))
def test_what_is_resolved_asks_for_the_same_when_read_from_elsewhere(load, changes, folder):
    params = load(changes)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "y.yaml").write_text(yaml.safe_dump(params.resolved()))
    assert load_params(folder / "elsewhere" / "y.yaml") == params


def test_the_model_dir_is_named_after_the_file_or_lies_in_the_working_directory(load, folder, monkeypatch):
    params = load({})
    assert params.text == (folder / "x.yaml").read_text()
    assert params.model_dir == folder / "checkpoints" / "x"
    assert params.resolve("a/b").path == folder / "a" / "b"
    assert params != load({"init.seed": 2})
    load({"init.model_dir": "./run"})
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    assert load_params(folder / "x.yaml").model_dir == folder / "work" / "run"


def test_evaluation_alone_takes_the_data_of_validate_if_there_is_some_else_the_held_out_data_of_fit(load, folder):
    params = load({"fit.val_dataloader": VAL, "validate.val_dataloader": {**VAL, "data_dir": "data/test"}})
    dirs = [params.dataloaders(purpose)[0].data_dir for purpose in ("val", "eval")]
    assert dirs == [(folder / "data/val",), (folder / "data/test",)]
    params = load({"fit.val_dataloader": VAL})
    assert params.eval_all_dataloaders == params.eval_dataloaders == params.val_dataloaders != ()


@pytest.mark.parametrize(
    ("purpose", "missing"), [("train", "train"), ("val", "val"), ("eval", "val"), ("eval_all", "val")]
)
def test_a_dataloader_that_a_mode_needs_and_the_file_lacks_is_an_error(load, purpose, missing):
    params = load({"fit": None})
    with pytest.raises(ParamsError) as caught:
        params.dataloaders(purpose)
    assert str(caught.value) == f"x.yaml: trainer.fit.{missing}_dataloader is missing"


def test_training_alone_needs_an_optimizer(load):
    params = load({"init.optimizer": None, "fit.val_dataloader": VAL})
    assert params.optimizer is None
    assert "optimizer" not in params.resolved()["trainer"]["init"]
    assert params.dataloaders("val")
    with pytest.raises(ParamsError) as caught:
        params.dataloaders("train")
    message = "x.yaml:7: trainer.init.optimizer is missing\nhint: without it a model can be evaluated, and generate"
    assert str(caught.value) == message


@each_meaning("""\
{} => {checkpoint_path: null, checkpoint.autoload_last_checkpoint: true}
fit.ckpt_path: null => {checkpoint_path: null, checkpoint.autoload_last_checkpoint: false}
fit.ckpt_path: a => {checkpoint_path.path: DIR/a, eval_checkpoint_path.path: DIR/a}
validate.ckpt_path: b => eval_checkpoint_path.path: DIR/b
{fit.ckpt_path: a, validate.ckpt_path: b} => eval_checkpoint_path.path: DIR/b
""")
def test_a_run_starts_from_the_checkpoint_of_fit_and_evaluation_alone_from_that_of_validate(means, written, expected):
    means(written, expected)


def test_what_a_file_says_of_a_job_is_kept_for_jobs_and_noted_for_a_run_that_is_none(load):
    asked = {"job_labels": ["a=b"], "job_priority": "p1", "job_time_sec": 100}
    params = load({"init.backend": {"cluster_config": {**asked, "num_csx": 2, "mount_dirs": []}}})
    assert params.job_keys == asked
    notes = [f"trainer.init.backend.cluster_config.{key}: accepted, no effect" for key in (*asked, "mount_dirs")]
    assert sorted(params.notes) == sorted(notes)


@pytest.mark.parametrize("backend", [None, {}, {"cluster_config": None}, {"cluster_config": {"job_priority": None}}])
def test_a_file_may_say_nothing_of_a_job(load, backend):
    assert load({"init.backend": backend}).job_keys == {}
