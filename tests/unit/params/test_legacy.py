"""The older layout means what the trainer layout means, and errors name its own keys and lines."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.errors import ParamsError
from cstool.params import load_params
from cstool.params.legacy import convert_legacy_data, is_legacy
from cstool.yaml_lines.document import parse_value
from tests.unit.params.conftest import cases, told

INTEROP = Path(__file__).parents[2] / "interop"
LINEAR = {"scheduler": "Linear", "initial_learning_rate": 0.0, "end_learning_rate": 0.1, "total_iters": 5}
SMALL: dict[str, Any] = {
    "train_input": {"data_processor": "GptHDF5MapDataProcessor", "data_dir": "data/train", "batch_size": 8},
    "model": {"name": "gpt2", "num_heads": 4, "hidden_size": 64},
    "optimizer": {"optimizer_type": "AdamW", "learning_rate": 0.001},
    "runconfig": {"max_steps": 10},
}
EVAL = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": "data/val", "batch_size": 4}


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the small file with keys of its sections changed."""
    data = copy.deepcopy(SMALL)
    for key, value in changes.items():
        section, _, name = key.partition(".")
        if name:
            data.setdefault(section, {})[name] = value
        else:
            data[section] = value
    return data


@pytest.fixture
def old(load):
    """Load the small file with changes."""
    return lambda changes, **options: load(yaml.safe_dump(changed(changes), sort_keys=False), **options)


@pytest.fixture
def old_failure(failure):
    """Return the message that loading the small file with changes fails with."""
    return lambda changes, **options: failure(yaml.safe_dump(changed(changes), sort_keys=False), **options)


# What it means


def test_the_vendor_s_file_means_what_the_vendor_s_conversion_of_it_means():
    assert load_params(INTEROP / "fc_mnist_legacy.yaml") == load_params(INTEROP / "fc_mnist_trainer.yaml")


def test_a_whole_file_of_the_vendor_is_understood():
    params = load_params(INTEROP / "gpt2_small_legacy.yaml")
    init = params.resolved()["trainer"]["init"]
    assert init["optimizer"] == {
        "AdamW": {"weight_decay": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "correct_bias": True}
    }
    assert init["schedulers"] == [
        {
            "SequentialLR": {
                "schedulers": [
                    {"LinearLR": {"initial_learning_rate": 0.0, "end_learning_rate": 6e-4, "total_iters": 1600}},
                    {"LinearLR": {"initial_learning_rate": 6e-4, "end_learning_rate": 0.0, "total_iters": 150_000}},
                ],
                "milestones": [1600],
            }
        }
    ]
    assert init["precision"] == {
        "enabled": True,
        "fp16_type": "cbfloat16",
        "max_gradient_norm": 1.0,
        "loss_scaling_factor": "dynamic",
        "initial_loss_scale": 2.0**31,
        "max_loss_scale": 2.0**31,
    }
    assert params.precision.loss_scaling == (2.0**31, 2.0**-14, 2.0**31, 2000)
    assert init["loop"] == {"max_steps": 151_600, "eval_frequency": 10_000, "eval_steps": 32}
    assert init["checkpoint"] == {
        "steps": 10_000,
        "autoload_last_checkpoint": True,
        "disable_strict_checkpoint_loading": False,
        "save_initial_checkpoint": True,
        "checkpoint_name": "checkpoint_{step}.mdl",
    }
    assert init["logging"] == {"log_steps": 100, "log_level": "INFO"}
    train, val = params.dataloaders("train")[0], params.dataloaders("val")[0]
    assert (train.batch_size, train.shuffle_seed, train.data_dir[0].name) == (112, 256, "train_8M_msl2048")
    assert (val.data_dir[0].name, params.eval_dataloaders) == ("val_msl2048", (val,))


RUNCONFIG: list[tuple[str, Any, str, Any]] = [
    ("model_dir", "run", "init.model_dir", "run"),
    ("seed", 7, "init.seed", 7),
    ("num_csx", 4, "init.backend.cluster_config.num_csx", 4),
    ("num_steps", 5, "init.loop.num_steps", 5),
    ("num_epochs", 5, "init.loop.num_epochs", 5),
    ("steps_per_epoch", 5, "init.loop.steps_per_epoch", 5),
    ("eval_frequency", 5, "init.loop.eval_frequency", 5),
    ("eval_steps", 5, "init.loop.eval_steps", 5),
    ("checkpoint_steps", 5, "init.checkpoint.steps", 5),
    ("save_initial_checkpoint", True, "init.checkpoint.save_initial_checkpoint", True),
    ("autoload_last_checkpoint", False, "init.checkpoint.autoload_last_checkpoint", False),
    ("disable_strict_checkpoint_loading", True, "init.checkpoint.disable_strict_checkpoint_loading", True),
    ("log_steps", 5, "init.logging.log_steps", 5),
    ("logging", "DEBUG", "init.logging.log_level", "DEBUG"),
    ("checkpoint_path", "a.mdl", "fit.ckpt_path", "a.mdl"),
    ("max_checkpoints", 3, "init.callbacks", [{"KeepNCheckpoints": {"n": 3}}]),
    ("keep_checkpoint_max", 3, "init.callbacks", [{"KeepNCheckpoints": {"n": 3}}]),
    (
        "load_checkpoint_states",
        "model",
        "init.callbacks",
        [{"LoadCheckpointStates": {"load_checkpoint_states": "model"}}],
    ),
]


@pytest.mark.parametrize(("old_name", "old_value", "key", "value"), RUNCONFIG, ids=[row[0] for row in RUNCONFIG])
def test_a_key_of_runconfig_is_acted_on(old, load, old_name, old_value, key, value):
    new = load({"init.schedulers": [{"ConstantLR": {"learning_rate": 0.001}}], key: value})
    params = old({f"runconfig.{old_name}": old_value})
    assert params == new != old({})
    assert params.notes == ()


NOTED = (
    "cbcore_image credentials_path debug_args debug_args_path disable_version_check dist_addr dist_backend "
    "drop_data dump_activations enable_act_frequency enable_distributed fabric_type_blacklist hf_cache_dir ini "
    "init_method job_labels job_priority job_time_sec lazy_initialization legacy_event_dirs log_initialization "
    "log_input_summaries main_process_id mgmt_address mgmt_namespace mode "
    "mount_dirs num_act_servers num_wgt_servers num_workers_per_csx precision_opt_level python_paths "
    "retrace_every_iteration sync_batchnorm target_device transfer_processes use_cs_grad_accum variant "
    "wsc_log_level check_loss_values compile_crd_memory_gi execute_crd_memory_gi wrk_memory_gi act_memory_gi "
    "cmd_memory_gi wgt_memory_gi chf_memory_gi"
).split()


@pytest.mark.parametrize("name", NOTED)
@pytest.mark.parametrize("value", [1, None])
def test_a_key_of_runconfig_that_changes_nothing_here_is_noted_as_it_was_written(old, name, value):
    params = old({f"runconfig.{name}": value})
    # A null is as good as nothing, but for keys that are nowhere in the trainer layout.
    dropped = value is None and name not in ("dist_addr", "mode", "use_cs_grad_accum", "variant")
    assert params.notes == (() if dropped else (f"runconfig.{name}: accepted, no effect",))
    assert params == old({})


def test_the_folder_of_events_is_acted_on(old, folder):
    params = old({"runconfig.summary_dir": "curves"})
    assert (params.events_dir, params.notes) == (folder / "curves", ())


def test_summaries_of_the_optimizer_are_norms_in_the_events(old):
    assert old({"optimizer.log_summaries": True}).computes_norms
    assert not old({"optimizer.log_summaries": False}).computes_norms


def test_how_far_to_compile_is_acted_on(old, folder):
    params = old({"runconfig.compile_dir": "artifacts", "runconfig.compile_only": True})
    assert (params.compile_dir, params.compile_only, params.notes) == (folder / "artifacts", True, ())
    params = old({"runconfig.validate_only": True, "model.mixed_precision": False})
    assert (params.validate_only, params.operand_bits) == (True, 32)


def test_one_warning_tells_of_the_layout(old):
    assert old({}).warnings == (
        "x.yaml: is in the older layout (train_input, model, optimizer, runconfig); "
        "`cstool config convert_legacy x.yaml` writes it in the trainer layout",
    )


def test_the_trainer_layout_is_no_reason_for_a_warning(load):
    assert load({}).warnings == ()


RATES = cases("""\
0.001 => [{ConstantLR: {learning_rate: 0.001}}]
{scheduler: Constant, learning_rate: 0.1} => [{ConstantLR: {learning_rate: 0.1}}]
[{scheduler: constantlr, learning_rate: 0.1}] => [{ConstantLR: {learning_rate: 0.1}}]
{scheduler: CosineDecay, initial_learning_rate: 1, end_learning_rate: 0, steps: 5} =>
    [{CosineDecayLR: {initial_learning_rate: 1, end_learning_rate: 0, total_iters: 5}}]
{scheduler: Exponential, initial_learning_rate: 1, decay_rate: 0.5, decay_steps: 5} =>
    [{ExponentialLR: {initial_learning_rate: 1, decay_rate: 0.5, total_iters: 5}}]
{scheduler: PiecewiseConstant, learning_rates: [1, 2], milestones: [5]} =>
    [{PiecewiseConstantLR: {learning_rates: [1, 2], milestones: [5]}}]
[{scheduler: Linear, initial_learning_rate: 0.0, end_learning_rate: 0.1, total_iters: 5},
    {scheduler: Multiplicative, main_scheduler: chained, initial_learning_rate: 1.0, coefficient: 0.5}] =>
    [{ChainedScheduler: {schedulers: [{LinearLR: {initial_learning_rate: 0, end_learning_rate: 0.1, total_iters: 5}},
        {MultiplicativeLR: {initial_learning_rate: 1.0, coefficient: 0.5}}]}}]
[{scheduler: Linear, initial_learning_rate: 0.0, end_learning_rate: 0.1, total_iters: 5},
    {scheduler: Constant, main_scheduler: sequential, learning_rate: 0.1}] =>
    [{SequentialLR: {schedulers: [{LinearLR: {initial_learning_rate: 0, end_learning_rate: 0.1, total_iters: 5}},
        {ConstantLR: {learning_rate: 0.1}}]}}]
""")


@pytest.mark.parametrize(("rate", "schedulers"), RATES)
def test_learning_rate_becomes_schedulers(old, load, rate, schedulers):
    new = load({"init.schedulers": parse_value(schedulers, "schedulers")})
    assert old({"optimizer.learning_rate": rate}).schedulers == new.schedulers


def test_adjusted_learning_rates_stay_with_the_optimizer_and_wrap_the_schedule(old):
    params = old({"optimizer.adjust_learning_rate": {"decoder_kernel": 0.1}, "optimizer.learning_rate": LINEAR})
    assert dict(params.optimizer.adjust_learning_rate) == {"decoder_kernel": 0.1}
    assert params.schedulers[0].entry() == {
        "ScalePerParamLR": {
            "scheduler": {"LinearLR": {"initial_learning_rate": 0.0, "end_learning_rate": 0.1, "total_iters": 5}}
        }
    }


def test_keys_of_releases_before_2_0_are_known(old):
    names = {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3, "weight_decay_rate": 0.5, "use_bias_correction": False}
    params = old({f"optimizer.{name}": value for name, value in names.items()})
    assert params.optimizer.dump() == {
        "learning_rate": 0.001,
        "betas": [0.8, 0.9],
        "eps": 1e-3,
        "weight_decay": 0.5,
        "correct_bias": False,
    }


@pytest.mark.parametrize(
    ("name", "value", "key", "found"),
    [
        ("use_rms_norm", True, "norm_type", "rmsnorm"),
        ("use_rms_norm", False, "norm_type", "layernorm"),
        ("use_position_embedding", True, "position_embedding_type", "learned"),
        ("use_position_embedding", False, "position_embedding_type", None),
        ("scale_by_layer_index", True, "scale_qk_dot_by_layer_idx", True),
        ("scale_by_layer_index", False, "scale_qk_dot_by_layer_idx", False),
    ],
)
def test_switches_of_older_models_are_known(old, name, value, key, found):
    params = old({f"model.{name}": value})
    assert (getattr(params.model, key), params.notes) == (found, ())


def test_what_moved_between_sections_acts_or_is_noted_where_it_was_written(old):
    params = old(
        {
            "train_input.micro_batch_size": 4,
            "eval_input": {**EVAL, "micro_batch_size": "auto"},
            "model.mixed_precision": True,
            "model.use_bfloat16": True,
            "optimizer.max_gradient_norm": 0.5,
            "optimizer.loss_scaling_factor": "dynamic",
            "optimizer.log_summaries": True,
            "optimizer.grad_accum_steps": 2,
            "sparsity": {"sparsity": 0.5, "add_summaries": True},
        }
    )
    precision = params.precision
    assert (precision.max_gradient_norm, precision.loss_scaling_factor, precision.log_loss_scale) == (
        0.5,
        "dynamic",
        True,
    )
    assert (params.micro_batch_size, params.operand_bits) == (4, 16)
    wafer = "acted on by the compiler: operands on the modelled wafer; false keeps those on this host float32"
    assert f"model.mixed_precision: {wafer}" in params.notes
    assert sorted(note for note in params.notes if wafer not in note) == [
        f"{key}: accepted, no effect"
        for key in (
            "eval_input.micro_batch_size",
            "model.use_bfloat16",
            "optimizer.grad_accum_steps",
            "sparsity.add_summaries",
        )
    ]


def test_without_training_data_the_checkpoint_is_that_of_the_evaluation(old, folder):
    params = old({"train_input": None, "eval_input": EVAL, "runconfig.checkpoint_path": "a.mdl"})
    assert params.eval_checkpoint_path.path == folder / "a.mdl"
    assert params.dataloaders("eval")[0].data_dir == (folder / "data/val",)


def test_a_checkpoint_path_of_null_is_none_given(old):
    params = old({"runconfig.checkpoint_path": None})
    assert (params.checkpoint_path, params.checkpoint.autoload_last_checkpoint) == (None, True)


def test_anchors_and_merge_keys_work(load):
    text = """\
train_input: &data
  data_processor: GptHDF5MapDataProcessor
  data_dir: a
  batch_size: 8
eval_input:
  <<: *data
  data_dir: b
model: {name: gpt2}
optimizer: {optimizer_type: SGD, learning_rate: 0.1}
runconfig:
"""
    params = load(text)
    assert [params.dataloaders(purpose)[0].data_dir[0].name for purpose in ("train", "val")] == ["a", "b"]
    assert params.dataloaders("val")[0].batch_size == 8


# The model's name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ({"position_embedding_type": "learned"}, "gpt2"),
        ({"position_embedding_type": "alibi"}, "gpt2"),
        ({"position_embedding_type": "rotary", "norm_type": "rmsnorm"}, "gpt2"),
        ({"use_untied_layer_norm": False}, "gptj"),
    ],
)
def test_a_model_without_a_name_is_what_its_keys_leave_no_doubt_about(old, model, name):
    params = old({"model": model})
    assert params.model.name == name
    assert params.notes[0].startswith(f"model.name: not given, taken to be {name} from ")


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("nlp/llama/configs", "llama"),
        ("nlp/gpt3/configs/sparsity", "gpt3"),
        ("nlp/gptj/continuous_pretraining/configs", "gptj"),
    ],
)
def test_a_model_without_a_name_is_named_after_the_vendor_s_folder(folder, place, name):
    path = folder / place / "x.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(changed({"model": {"position_embedding_type": "rotary", "rotary_dim": 16}})))
    params = load_params(path)
    assert params.model.name == name
    assert params.notes == (f"model.name: not given, taken to be {name} from the name of the folder",)


def test_a_folder_that_is_not_the_vendor_s_says_nothing(folder):
    path = folder / "llama" / "x.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(changed({"model": {"position_embedding_type": "learned"}})))
    assert load_params(path).model.name == "gpt2"


def test_a_model_that_could_be_two_needs_a_name(old_failure):
    message = old_failure({"model": {"position_embedding_type": "rotary"}})
    assert message.startswith("x.yaml:5: model.name is missing\nhint: the names are fc_mnist, gpt2, ")


@pytest.mark.parametrize("layout", ["old", "new"])
def test_the_name_may_stand_at_its_former_key(old, load, layout):
    model = {"model_name": "gpt3"}
    params = old({"model": model}) if layout == "old" else load({"init.model": model})
    assert params.model.name == "gpt3"


def test_two_names_of_a_model_are_an_error(old_failure):
    assert old_failure({"model.model_name": "gpt3"}) == (
        "x.yaml:9: model.model_name is another name of name: give one of the two"
    )


# Errors


REFUSED = cases("""\
runconfig.max_steps: 0 => 13: runconfig.max_steps must be at least 1, got 0
runconfig.num_csx: 0 => 14: runconfig.num_csx must be at least 1, got 0
runconfig.max_stepz: 1 => 14: runconfig.max_stepz is not a known key\nhint: did you mean max_steps?
runconfig: 5 => 12: runconfig must be a mapping, got 5
{runconfig.compile_only: true, runconfig.validate_only: true} =>
    15: runconfig.validate_only cannot stand beside compile_only, got true\nhint: keep one of the two
runconfig.max_checkpoints: 0 => 14: runconfig.max_checkpoints must be at least 1, got 0
runconfig.checkpoint_path: 5 => 14: runconfig.checkpoint_path must be text, got 5
runconfig.load_checkpoint_states: 5 => 14: runconfig.load_checkpoint_states must be all, or names of states, got 5
    hint: for example model
model: null => 5: model is missing
model: 5 => 5: model must be a mapping, got 5
model.lora_params: {r: 8} => 9: not supported: model.lora_params\nhint: leave it out
optimizer: 5 => 9: optimizer must be a mapping with one name, got 5
    hint: the names are SGD, Adam, AdamW, Lion, Adafactor
optimizer.optimizer_type: null => 10: optimizer.optimizer_type is missing
    hint: the names are SGD, Adam, AdamW, Lion, Adafactor
optimizer.optimizer_type: adamx => 10: optimizer.optimizer_type is not a known name, got 'adamx'
    hint: did you mean Adamax?
optimizer.optimizer_type: lamb => 10: not supported: optimizer.optimizer_type: Lamb
    hint: supported: SGD, Adam, AdamW, Lion, Adafactor
optimizer.learning_rate: -1 => 11: optimizer.learning_rate must be at least 0, got -1
optimizer.learning_rate: null => 11: optimizer.learning_rate is missing\nhint: or give schedulers
optimizer.betas: [0.9, 1] => 14: optimizer.betas.1 must be less than 1, got 1
{optimizer.beta1: 0.9, optimizer.beta2: 1} => 13: optimizer.beta2 must be less than 1, got 1
optimizer.max_gradient_norm: 0 => 12: optimizer.max_gradient_norm must be greater than 0, got 0
optimizer.disable_lr_steps_reset: true => 12: not supported: optimizer.disable_lr_steps_reset: true\nhint: leave it out
optimizer.learning_rate: [{scheduler: Linear, initial_learning_rate: 0.0, end_learning_rate: 0.1, total_iters: 0}] =>
    15: optimizer.learning_rate.0.total_iters must be at least 1, got 0
optimizer.learning_rate: [{scheduler: Linear, initial_learning_rate: 0.0, end_learning_rate: 0.1, total_iters:
    5}, {scheduler: Constant, steps: 0, learning_rate: 1}] =>
    17: optimizer.learning_rate.1.steps must be at least 1, got 0
optimizer.learning_rate: {scheduler: Lineer, initial_learning_rate: 0.0, end_learning_rate: 0.1, total_iters: 5} =>
    12: optimizer.learning_rate.scheduler is not a known name, got 'Lineer'\nhint: did you mean LinearLR?
train_input.batch_size: 0 => 4: train_input.batch_size must be at least 1, got 0
train_input: 5 => 1: train_input must be a mapping, got 5
eval_input: {data_processor: GptHDF5MapDataProcessor, data_dir: data/val, batch_size: 0} =>
    17: eval_input.batch_size must be at least 1, got 0
sparsity: {sparsity: 1.5} => 15: sparsity.sparsity must be at least 0 and less than 1, got 1.5
rumconfig: {} => 14: rumconfig is not a known key\nhint: did you mean runconfig?
callbacks: [] => 14: callbacks is not a known key
    hint: the keys here are train_input, eval_input, model, optimizer, sparsity, runconfig, csconfig, wandb
""")


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_an_error_names_the_key_and_the_line_as_written(old_failure, changes, message):
    assert old_failure(changes) == told(message)


@pytest.mark.parametrize("key", ["trainer", "init", "fit", "validate", "validate_all"])
def test_keys_of_both_layouts_in_one_file_are_one_error(old_failure, key):
    assert old_failure({key: {}, "runconfig.max_steps": 0}) == (
        f"x.yaml:1: train_input is of the older layout, {key} (line 14) of the trainer layout: a file is in one of them"
    )


def test_a_mistake_in_data_used_twice_is_told_once(old_failure):
    message = old_failure({"eval_input": {**EVAL, "shufle": True}})
    assert message == "x.yaml:18: eval_input.shufle is not a known key\nhint: did you mean shuffle?"


# The command line


@pytest.mark.parametrize("key", ["runconfig.max_steps", "trainer.init.loop.max_steps"])
def test_set_takes_the_keys_of_either_layout(old, key):
    assert old({}, overrides=[f"{key}=3"]).loop.max_steps == 3


@pytest.mark.parametrize("key", ["runconfig.max_steps", "trainer.init.loop.max_steps"])
def test_an_error_names_what_was_typed(old_failure, key):
    assert old_failure({}, overrides=[f"{key}=0"]) == f"--set {key}=0: must be at least 1, got 0"


def test_a_flag_counts_for_the_older_layout(old):
    flags = {"trainer.init.backend.cluster_config.num_csx": ("--num_csx", 3)}
    assert old({"runconfig.num_csx": 2}, flags=flags).num_csx == 3


@pytest.mark.parametrize("key", ["runconfig.num_steps", "trainer.init.loop.num_steps"])
def test_a_typed_length_replaces_that_of_the_file(old, key):
    loop = old({}, overrides=[f"{key}=3"]).loop
    assert (loop.num_steps, loop.max_steps) == (3, None)


def test_data_for_both_evaluations_can_be_changed_in_one_of_them(old):
    params = old({"eval_input": EVAL}, overrides=["trainer.fit.val_dataloader.batch_size=2"])
    assert (params.val_dataloaders[0].batch_size, params.eval_dataloaders[0].batch_size) == (2, 4)


def test_a_section_replaced_on_the_command_line_is_known_by_the_key_typed(old_failure):
    assert old_failure({}, overrides=["trainer.init.model={name: gpt2, num_heads: 0}"]) == (
        "--set trainer.init.model={name: gpt2, num_heads: 0}: trainer.init.model.num_heads must be at least 1, got 0"
    )


def test_a_key_of_the_older_layout_means_nothing_for_the_other(failure):
    assert failure({}, overrides=["runconfig.max_steps=3"]) == (
        "--set runconfig.max_steps=3: runconfig is not a known key\nhint: all keys stand below trainer"
    )


# The conversion of plain data


def test_plain_data_is_converted_with_nothing_filled_in():
    data = changed({"eval_input": EVAL, "runconfig.num_csx": 2, "runconfig.max_checkpoints": 3, "model.fp16_type": "x"})
    before = copy.deepcopy(data)
    assert convert_legacy_data(data) == {
        "trainer": {
            "init": {
                "device": "CSX",
                "backend": {"cluster_config": {"num_csx": 2}},
                "model": {"name": "gpt2", "num_heads": 4, "hidden_size": 64},
                "optimizer": {"AdamW": {"learning_rate": 0.001}},
                "schedulers": [{"ConstantLR": {"learning_rate": 0.001}}],
                "precision": {"fp16_type": "x"},
                "loop": {"max_steps": 10},
                "callbacks": [{"KeepNCheckpoints": {"n": 3}}],
            },
            "fit": {"train_dataloader": SMALL["train_input"], "val_dataloader": EVAL},
            "validate": {"val_dataloader": EVAL},
            "validate_all": {"val_dataloaders": EVAL},
        }
    }
    assert data == before


@pytest.mark.parametrize("name", ["fc_mnist_legacy.yaml", "gpt2_small_legacy.yaml"])
def test_a_converted_file_means_the_same(name, tmp_path, monkeypatch):
    monkeypatch.chdir(INTEROP)
    data = yaml.load((INTEROP / name).read_text(), Loader=yaml.BaseLoader)
    assert is_legacy(data)
    text = (INTEROP / name).read_text()
    path = tmp_path / name
    path.write_text(yaml.safe_dump(convert_legacy_data(yaml.safe_load(text))))
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    (new, old) = (load_params(path), load_params(tmp_path / "old" / name))
    assert new.resolved()["trainer"]["init"] == old.resolved()["trainer"]["init"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"trainer": {}},
            "the file: must have one of train_input, eval_input, model, optimizer, sparsity, runconfig, and no trainer",
        ),
        (
            changed({"runconfig.max_stepz": 1}),
            "the file: runconfig.max_stepz is not a known key\nhint: did you mean max_steps?",
        ),
    ],
)
def test_plain_data_that_cannot_be_converted_is_an_error(data, message):
    with pytest.raises(ParamsError) as caught:
        convert_legacy_data(data)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("data", "answer"),
    [({"model": {}}, True), ({"trainer": {}, "model": {}}, False), ({}, False), ([], False), (None, False)],
)
def test_the_layout_is_known_by_its_sections(data, answer):
    assert is_legacy(data) is answer
