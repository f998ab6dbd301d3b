"""The older layout means what the trainer layout means, and errors name its own keys and lines."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.foundation.errors import ParamsError
from cstool.model.params import legacy_keys, load_params
from cstool.model.params.keys import legacy_tables
from cstool.model.params.legacy import convert_legacy_data, is_legacy
from tests.unit.model.params.conftest import LEGACY, VAL, each_meaning, each_message, told

INTEROP = Path(__file__).parents[3] / "interop"


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the small file with keys of its sections changed."""
    data = copy.deepcopy(LEGACY)
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


def test_the_vendor_s_file_means_what_the_vendor_s_conversion_of_it_means():
    assert load_params(INTEROP / "fc_mnist_legacy.yaml") == load_params(INTEROP / "fc_mnist_trainer.yaml")


WHOLE = yaml.safe_load("""
optimizer: {AdamW: {weight_decay: 0.01, betas: [0.9, 0.95], eps: 1.0e-8, correct_bias: true}}
schedulers:
- SequentialLR:
    schedulers:
    - LinearLR: {initial_learning_rate: 0.0, end_learning_rate: 6.0e-4, total_iters: 1600}
    - LinearLR: {initial_learning_rate: 6.0e-4, end_learning_rate: 0.0, total_iters: 150000}
    milestones: [1600]
precision: {enabled: true, fp16_type: cbfloat16, max_gradient_norm: 1.0, loss_scaling_factor: dynamic,
            initial_loss_scale: 2147483648.0, max_loss_scale: 2147483648.0}
loop: {max_steps: 151600, eval_frequency: 10000, eval_steps: 32}
checkpoint: {steps: 10000, autoload_last_checkpoint: true, disable_strict_checkpoint_loading: false,
             save_initial_checkpoint: true, checkpoint_name: 'checkpoint_{step}.mdl'}
logging: {log_steps: 100, log_level: INFO}
""")


def test_a_whole_file_of_the_vendor_is_understood():
    params = load_params(INTEROP / "gpt2_small_legacy.yaml")
    init = params.resolved()["trainer"]["init"]
    assert {name: init[name] for name in WHOLE} == WHOLE
    assert params.precision.loss_scaling == (2.0**31, 2.0**-14, 2.0**31, 2000)
    train, val = params.dataloaders("train")[0], params.dataloaders("val")[0]
    assert (train.batch_size, train.shuffle_seed, train.data_dir[0].name) == (112, 256, "train_8M_msl2048")
    assert (val.data_dir[0].name, params.eval_dataloaders) == ("val_msl2048", (val,))


@each_meaning("""\
model_dir: run => init.model_dir: run
seed: 7 => init.seed: 7
num_csx: 4 => init.backend.cluster_config.num_csx: 4
num_steps: 5 => init.loop.num_steps: 5
num_epochs: 5 => init.loop.num_epochs: 5
steps_per_epoch: 5 => init.loop.steps_per_epoch: 5
eval_frequency: 5 => init.loop.eval_frequency: 5
eval_steps: 5 => init.loop.eval_steps: 5
checkpoint_steps: 5 => init.checkpoint.steps: 5
save_initial_checkpoint: true => init.checkpoint.save_initial_checkpoint: true
autoload_last_checkpoint: false => init.checkpoint.autoload_last_checkpoint: false
disable_strict_checkpoint_loading: true => init.checkpoint.disable_strict_checkpoint_loading: true
log_steps: 5 => init.logging.log_steps: 5
logging: DEBUG => init.logging.log_level: DEBUG
checkpoint_path: a.mdl => fit.ckpt_path: a.mdl
summary_dir: curves => init.loggers: [{TensorBoardLogger: {summary_dir: curves}}]
max_checkpoints: 3 => init.callbacks: [{KeepNCheckpoints: {n: 3}}]
keep_checkpoint_max: 3 => init.callbacks: [{KeepNCheckpoints: {n: 3}}]
load_checkpoint_states: model => init.callbacks: [{LoadCheckpointStates: {load_checkpoint_states: model}}]
""")
def test_a_key_of_runconfig_is_acted_on(old, load, written, expected):
    [(name, value)] = written.items()
    new = load({"init.schedulers": [{"ConstantLR": {"learning_rate": 0.001}}], **expected})
    params = old({f"runconfig.{name}": value})
    assert params == new != old({})
    assert params.notes == ()


@pytest.mark.parametrize("value", [1, None])
def test_keys_of_runconfig_that_change_nothing_here_are_noted_as_they_were_written(old, value):
    [runconfig] = (table for table in legacy_tables() if table.places == ("runconfig",))
    noted = {key.name for key in runconfig.keys if key.fate == "noted"} - {"op_profiler_config"}
    assert len(noted) == 51
    params = old({f"runconfig.{name}": value for name in noted})
    # A null is as good as nothing, but for keys that are nowhere in the trainer layout.
    told = noted if value else legacy_keys.NO_EFFECT
    assert sorted(params.notes) == [f"runconfig.{name}: accepted, no effect" for name in sorted(told)]
    assert params == old({})


@each_meaning("""\
optimizer.log_summaries: true => computes_norms: true
optimizer.log_summaries: false => computes_norms: false
{runconfig.compile_dir: artifacts, runconfig.compile_only: true} => {compile_dir.name: artifacts, compile_only: true}
runconfig.validate_only: true => validate_only: true
runconfig.checkpoint_path: null => {checkpoint_path: null, checkpoint.autoload_last_checkpoint: true}
{optimizer.beta1: 0.8, optimizer.beta2: 0.9, optimizer.epsilon: 1e-3, optimizer.weight_decay_rate: 0.5,
    optimizer.use_bias_correction: false} =>
    optimizer: {learning_rate: 0.001, betas: [0.8, 0.9], eps: 1e-3, weight_decay: 0.5, correct_bias: false}
model.use_rms_norm: true => model.norm_type: rmsnorm
model.use_rms_norm: false => model.norm_type: layernorm
model.use_position_embedding: true => model.position_embedding_type: learned
model.use_position_embedding: false => model.position_embedding_type: null
model.scale_by_layer_index: true => model.scale_qk_dot_by_layer_idx: true
model.scale_by_layer_index: false => model.scale_qk_dot_by_layer_idx: false
""")
def test_what_older_files_say_is_acted_on(means, written, expected):
    means(yaml.safe_dump(changed(written)), {**expected, "notes": []})


def test_the_layout_is_worth_one_warning_and_the_trainer_layout_none(old, load):
    assert old({}).warnings == (
        "x.yaml: is in the older layout (train_input, model, optimizer, runconfig); "
        "`cstool config convert_legacy x.yaml` writes it in the trainer layout",
    )
    assert load({}).warnings == ()


@each_meaning("""\
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
def test_learning_rate_becomes_schedulers(old, load, written, expected):
    assert old({"optimizer.learning_rate": written}).schedulers == load({"init.schedulers": expected}).schedulers


def test_adjusted_learning_rates_stay_with_the_optimizer_and_wrap_the_schedule(old):
    linear = {"initial_learning_rate": 0.0, "end_learning_rate": 0.1, "total_iters": 5}
    rate = {"scheduler": "Linear", **linear}
    params = old({"optimizer.adjust_learning_rate": {"decoder_kernel": 0.1}, "optimizer.learning_rate": rate})
    assert dict(params.optimizer.adjust_learning_rate) == {"decoder_kernel": 0.1}
    assert params.schedulers[0].entry() == {"ScalePerParamLR": {"scheduler": {"LinearLR": linear}}}


MOVED = yaml.safe_load("""
train_input.micro_batch_size: 4
model.mixed_precision: true
model.use_bfloat16: true
optimizer.max_gradient_norm: 0.5
optimizer.loss_scaling_factor: dynamic
optimizer.log_summaries: true
optimizer.grad_accum_steps: 2
sparsity: {sparsity: 0.5, add_summaries: true}
""")


def test_what_moved_between_sections_acts_or_is_noted_where_it_was_written(old):
    params = old({**MOVED, "eval_input": {**VAL, "micro_batch_size": "auto"}})
    precision = params.precision
    found = (precision.max_gradient_norm, precision.loss_scaling_factor, precision.log_loss_scale)
    assert found == (0.5, "dynamic", True)
    assert (params.micro_batch_size, params.operand_bits) == (4, 16)
    wafer = "acted on by the compiler: operands on the modelled wafer; false keeps those on this host float32"
    noted = (
        "eval_input.micro_batch_size",
        "model.use_bfloat16",
        "optimizer.grad_accum_steps",
        "sparsity.add_summaries",
    )
    assert {*params.notes} == {f"model.mixed_precision: {wafer}", *(f"{key}: accepted, no effect" for key in noted)}


def test_without_training_data_the_checkpoint_is_that_of_the_evaluation(old, folder):
    params = old({"train_input": None, "eval_input": VAL, "runconfig.checkpoint_path": "a.mdl"})
    assert params.eval_checkpoint_path.path == folder / "a.mdl"
    assert params.dataloaders("eval")[0].data_dir == (folder / "data/val",)


@each_meaning("""\
position_embedding_type: learned => gpt2
position_embedding_type: alibi => gpt2
{position_embedding_type: rotary, norm_type: rmsnorm} => gpt2
use_untied_layer_norm: false => gptj
""")
def test_a_model_without_a_name_is_what_its_keys_leave_no_doubt_about(old, written, expected):
    params = old({"model": written})
    assert params.model.name == expected
    assert params.notes[0].startswith(f"model.name: not given, taken to be {expected} from ")


@each_meaning("""\
nlp/llama/configs => llama
nlp/gpt3/configs/sparsity => gpt3
nlp/gptj/continuous_pretraining/configs => gptj
""")
def test_a_model_without_a_name_is_named_after_the_vendor_s_folder(folder, written, expected):
    path = folder / written / "x.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(changed({"model": {"position_embedding_type": "rotary", "rotary_dim": 16}})))
    params = load_params(path)
    assert params.model.name == expected
    assert params.notes == (f"model.name: not given, taken to be {expected} from the name of the folder",)


def test_a_folder_that_is_not_the_vendor_s_says_nothing_and_a_model_that_could_be_two_needs_a_name(folder, old_failure):
    path = folder / "llama" / "x.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(changed({"model": {"position_embedding_type": "learned"}})))
    assert load_params(path).model.name == "gpt2"
    message = old_failure({"model": {"position_embedding_type": "rotary"}})
    assert message.startswith("x.yaml:5: model.name is missing\nhint: the names are fc_mnist, gpt2, ")


@pytest.mark.parametrize("layout", ["old", "new"])
def test_the_name_may_stand_at_its_former_key(old, load, layout):
    model = {"model_name": "gpt3"}
    params = old({"model": model}) if layout == "old" else load({"init.model": model})
    assert params.model.name == "gpt3"


@each_message("""\
runconfig.max_steps: 0 => 13: runconfig.max_steps must be at least 1, got 0
runconfig.max_stepz: 1 => 14: runconfig.max_stepz is not a known key\nhint: did you mean max_steps?
runconfig: 5 => 12: runconfig must be a mapping, got 5
{runconfig.compile_only: true, runconfig.validate_only: true} =>
    15: runconfig.validate_only cannot stand beside compile_only, got true\nhint: keep one of the two
runconfig.checkpoint_path: 5 => 14: runconfig.checkpoint_path must be text, got 5
runconfig.load_checkpoint_states: 5 => 14: runconfig.load_checkpoint_states must be all, or names of states, got 5
    hint: for example model
model.model_name: gpt3 => 9: model.model_name is another name of name: give one of the two
model: null => 5: model is missing
model: 5 => 5: model must be a mapping, got 5
model.lora_params: {r: 8, layers: [q], target_modules: [Linear]} =>
    9: model.lora_params.0 must have target_modules or layers, not both
    hint: target_modules: [Linear] is for all linear layers, null for those and all tables of tokens
optimizer: 5 => 9: optimizer must be a mapping with one name, got 5
    hint: the names are SGD, Adam, AdamW, Lion, Adafactor
optimizer.optimizer_type: null => 10: optimizer.optimizer_type is missing
    hint: the names are SGD, Adam, AdamW, Lion, Adafactor
optimizer.optimizer_type: adamx => 10: optimizer.optimizer_type is not a known name, got 'adamx'
    hint: did you mean Adamax?
optimizer.optimizer_type: lamb => 10: not supported: optimizer.optimizer_type: Lamb
    hint: supported: SGD, Adam, AdamW, Lion, Adafactor
optimizer.learning_rate: null => 11: optimizer.learning_rate is missing\nhint: or give schedulers
optimizer.betas: [0.9, 1] => 14: optimizer.betas.1 must be less than 1, got 1
{optimizer.beta1: 0.9, optimizer.beta2: 1} => 13: optimizer.beta2 must be less than 1, got 1
optimizer.disable_lr_steps_reset: true => 12: not supported: optimizer.disable_lr_steps_reset: true\nhint: leave it out
optimizer.learning_rate: [{scheduler: Linear, initial_learning_rate: 0.0, end_learning_rate: 0.1, total_iters: 0}] =>
    15: optimizer.learning_rate.0.total_iters must be at least 1, got 0
optimizer.learning_rate: [{scheduler: Linear, initial_learning_rate: 0.0, end_learning_rate: 0.1, total_iters:
    5}, {scheduler: Constant, steps: 0, learning_rate: 1}] =>
    17: optimizer.learning_rate.1.steps must be at least 1, got 0
optimizer.learning_rate: {scheduler: Lineer, initial_learning_rate: 0.0, end_learning_rate: 0.1, total_iters: 5} =>
    12: optimizer.learning_rate.scheduler is not a known name, got 'Lineer'\nhint: did you mean LinearLR?
train_input: 5 => 1: train_input must be a mapping, got 5
eval_input: {data_processor: GptHDF5MapDataProcessor, data_dir: data/val, batch_size: 0} =>
    17: eval_input.batch_size must be at least 1, got 0
eval_input: {data_processor: GptHDF5MapDataProcessor, data_dir: data/val, batch_size: 4, shufle: true} =>
    18: eval_input.shufle is not a known key\nhint: did you mean shuffle?
sparsity: {sparsity: 1.5} => 15: sparsity.sparsity must be at least 0 and less than 1, got 1.5
rumconfig: {} => 14: rumconfig is not a known key\nhint: did you mean runconfig?
callbacks: [] => 14: callbacks is not a known key
    hint: the keys here are train_input, eval_input, model, optimizer, sparsity, runconfig, csconfig, wandb
""")
def test_an_error_names_the_key_and_the_line_as_written(old_failure, written, message):
    assert old_failure(written) == told(message)


@pytest.mark.parametrize("key", ["trainer", "init", "fit", "validate", "validate_all"])
def test_keys_of_both_layouts_in_one_file_are_one_error(old_failure, key):
    assert old_failure({key: {}, "runconfig.max_steps": 0}) == (
        f"x.yaml:1: train_input is of the older layout, {key} (line 14) of the trainer layout: a file is in one of them"
    )


@pytest.mark.parametrize("section", ["runconfig", "trainer.init.loop"])
def test_set_takes_the_keys_of_either_layout_and_an_error_names_what_was_typed(old, old_failure, section):
    assert old({}, overrides=[f"{section}.max_steps=3"]).loop.max_steps == 3
    loop = old({}, overrides=[f"{section}.num_steps=3"]).loop
    assert (loop.num_steps, loop.max_steps) == (3, None)
    key = f"{section}.max_steps=0"
    assert old_failure({}, overrides=[key]) == f"--set {key}: must be at least 1, got 0"


def test_data_for_both_evaluations_can_be_changed_in_one_of_them(old):
    params = old({"eval_input": VAL}, overrides=["trainer.fit.val_dataloader.batch_size=2"])
    assert (params.val_dataloaders[0].batch_size, params.eval_dataloaders[0].batch_size) == (2, 4)


def test_a_section_replaced_on_the_command_line_is_known_by_the_key_typed(old_failure):
    assert old_failure({}, overrides=["trainer.init.model={name: gpt2, num_heads: 0}"]) == (
        "--set trainer.init.model={name: gpt2, num_heads: 0}: trainer.init.model.num_heads must be at least 1, got 0"
    )


def test_plain_data_is_converted_with_nothing_filled_in():
    data = changed({"eval_input": VAL, "runconfig.num_csx": 2, "runconfig.max_checkpoints": 3, "model.fp16_type": "x"})
    before = copy.deepcopy(data)
    expected = yaml.safe_load("""
init:
  device: CSX
  backend: {cluster_config: {num_csx: 2}}
  model: {name: gpt2, num_heads: 4, hidden_size: 64}
  optimizer: {AdamW: {learning_rate: 0.001}}
  schedulers: [{ConstantLR: {learning_rate: 0.001}}]
  precision: {fp16_type: x}
  loop: {max_steps: 10}
  callbacks: [{KeepNCheckpoints: {n: 3}}]
""")
    expected["fit"] = {"train_dataloader": LEGACY["train_input"], "val_dataloader": VAL}
    expected |= {"validate": {"val_dataloader": VAL}, "validate_all": {"val_dataloaders": VAL}}
    assert convert_legacy_data(data) == {"trainer": expected}
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


NO_SECTIONS = "must have one of train_input, eval_input, model, optimizer, sparsity, runconfig, and no trainer"
UNKNOWN = "runconfig.max_stepz is not a known key\nhint: did you mean max_steps?"


@pytest.mark.parametrize(
    ("data", "message"), [({"trainer": {}}, NO_SECTIONS), (changed({"runconfig.max_stepz": 1}), UNKNOWN)]
)
def test_plain_data_that_cannot_be_converted_is_an_error(data, message):
    with pytest.raises(ParamsError) as caught:
        convert_legacy_data(data)
    assert str(caught.value) == f"the file: {message}"


def test_the_layout_is_known_by_its_sections():
    others = ({"trainer": {}, "model": {}}, {}, [], None)
    assert (is_legacy({"model": {}}), *map(is_legacy, others)) == (True, False, False, False, False)
