"""Precision, loop, checkpoint, logging, backend and callbacks."""

import pytest

from cstool.model.params import EarlyStopping, load_params
from tests.unit.model.params.conftest import VAL, cases, each_meaning, each_message, told

I = "trainer.init"  # noqa: E741


@each_meaning("""\
{} => {precision: {enabled: true}, loop: {max_steps: 10, eval_frequency: 1.0}, checkpoint.steps: null,
    checkpoint.autoload_last_checkpoint: true, checkpoint.disable_strict_checkpoint_loading: false,
    checkpoint.save_initial_checkpoint: false, checkpoint.checkpoint_name: 'checkpoint_{step}.mdl', compile_dir: null,
    logging: {log_steps: 1, log_level: INFO}, compile_only: false, validate_only: false, operand_bits: 16,
    host_precision: float32, no_effect: [], load_checkpoint_states: [dataloader, model, optimizer],
    events_dir: DIR/checkpoints/x/events, computes_norms: false}
init.loop: null => loop.num_epochs: 1
init.loop: {} => loop.num_epochs: 1
init.loop: {eval_steps: 5} => loop.num_epochs: 1
init.checkpoint.steps: 0 => checkpoint.steps: null
init.precision: {max_gradient_norm: 1} => precision: {enabled: true, max_gradient_norm: 1.0}
init.precision: {max_gradient_norm: null, max_gradient_value: 1} => precision: {enabled: true, max_gradient_value: 1.0}
init.precision: null => {operand_bits: 16, host_precision: float32, no_effect: []}
init.precision: {enabled: null, fp16_type: null} => {operand_bits: 16, host_precision: float32, no_effect: []}
init.precision: {enabled: true} => {operand_bits: 16, host_precision: float32}
init.precision: {host: bfloat16} => {operand_bits: 16, host_precision: bfloat16}
init.precision: {host: bfloat16, enabled: false} => {operand_bits: 32, host_precision: bfloat16}
init.precision: {host: float32, fp16_type: cbfloat16} => {operand_bits: 16, host_precision: float32}
init.precision: {host: null, fp16_type: cbfloat16} => {operand_bits: 16, host_precision: bfloat16}
init.precision: {fp16_type: float16, enabled: false} => {operand_bits: 32, host_precision: float32}
init.backend: {backend_type: CSX, cluster_config: {num_csx: 2, mount_dirs: [/data]}} =>
    {num_csx: 2, no_effect: [init.backend.backend_type, init.backend.cluster_config.mount_dirs]}
init.device: CSX => no_effect: [init.device]
init.autorestart: {max_num_restarts: 3} => no_effect: [init.autorestart.max_num_restarts]
init.loop.grad_accum_steps: 4 => no_effect: [init.loop.grad_accum_steps]
init.backend.sync_batchnorm: true => no_effect: [init.backend.sync_batchnorm]
init.callbacks: [{ScopedValidateFlags: {csx.performance.micro_batch_size: 88}}, {CheckLoss: null}, {checkloss: {}},
    {KeepNCheckpoints: null}, {LogOptimizerParamGroup: {keys: lr}}] =>
    no_effect: [init.callbacks.0.ScopedValidateFlags.csx.performance.micro_batch_size, init.callbacks.1.CheckLoss,
        init.callbacks.2.checkloss, init.callbacks.3.KeepNCheckpoints, init.callbacks.4.LogOptimizerParamGroup.keys]
init.callbacks: [{LoadCheckpointStates: {load_checkpoint_states: 'model, optimizer'}}] =>
    {load_checkpoint_states: [model, optimizer], no_effect: []}
init.callbacks: [{LoadCheckpointStates: {load_checkpoint_states: [model]}}] => load_checkpoint_states: [model]
init.callbacks: [{LoadCheckpointStates: {load_checkpoint_states: All}}] =>
    load_checkpoint_states: [dataloader, model, optimizer]
init.callbacks: [{LoadCheckpointStates: null}] => load_checkpoint_states: [dataloader, model, optimizer]
init.callbacks: [{LoadCheckpointStates: {load_checkpoint_states: null}}] =>
    load_checkpoint_states: [dataloader, model, optimizer]
init.callbacks: [{ComputeNorm: {}}] => {computes_norms: true, no_effect: []}
init.callbacks: [{ComputeNorm: null}] => {computes_norms: false, no_effect: []}
init.loggers: [{TensorBoardLogger: {summary_dir: null}}] => events_dir: DIR/checkpoints/x/events
init.loggers: [{TensorBoardLogger: null}] => events_dir: null
init.loggers: [{TensorBoardLogger: {summary_dir: curves, legacy_event_dirs: true}}] =>
    {events_dir: DIR/curves, no_effect: [init.loggers.0.TensorBoardLogger.legacy_event_dirs]}
init.loggers: [{ProgressLogger: {}}, {WandbLogger: {project: p}}] =>
    no_effect: [init.loggers.0.ProgressLogger, init.loggers.1.WandbLogger.project]
init.backend: {compile_dir: /abs/x, compile_only: true} =>
    {compile_dir: /abs/x, compile_only: true, validate_only: false, no_effect: []}
init.backend.validate_only: true => {compile_only: false, validate_only: true, no_effect: []}
""")
def test_what_a_section_says_is_acted_on_or_noted(means, written, expected):
    means(written, expected)


@pytest.mark.parametrize(
    ("frequency", "interval"), [(7, 7), (1, 1), (1.0, 100), (0.5, 50), (0.001, 1), (0, None), (0.0, None), (None, None)]
)
def test_eval_frequency_is_steps_or_a_share_of_the_run(load, frequency, interval):
    assert load({"init.loop.eval_frequency": frequency}).loop.eval_interval(100) == interval


FOR_THE_HOST = "products on this host take bfloat16 operands, sums are float32"
WAFER_ONLY = "acted on by the compiler: operands on the modelled wafer; false keeps those on this host float32"


def test_of_mixed_precision_it_is_told_what_it_does_where(load):
    params = load({"init.precision": {"enabled": False}})
    assert (params.operand_bits, params.notes) == (32, (f"{I}.precision.enabled: {WAFER_ONLY}",))
    for kind in ("float16", "bfloat16", "cbfloat16"):
        params = load({"init.precision": {"fp16_type": kind}})
        taken = f"{I}.precision.fp16_type: {kind} is taken as bfloat16: {FOR_THE_HOST}"
        assert (params.host_precision, params.notes) == ("bfloat16", () if kind == "bfloat16" else (taken,))
        assert params.resolved()["trainer"]["init"]["precision"] == {"enabled": True, "fp16_type": kind}


INF = float("inf")
DYNAMIC_IN_BOUNDS = {"loss_scaling_factor": "dynamic", "initial_loss_scale": 6.0, "min_loss_scale": 1.0}
DYNAMIC_IN_BOUNDS |= {"max_loss_scale": 10.0, "steps_per_increase": 5}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, (1.0, None, INF, 2000)),
        ({"loss_scaling_factor": None}, (1.0, None, INF, 2000)),
        ({"loss_scaling_factor": 1}, (1.0, None, INF, 2000)),
        ({"loss_scaling_factor": 1000, "initial_loss_scale": 8.0}, (1000.0, None, INF, 2000)),
        ({"loss_scaling_factor": "dynamic"}, (2.0**15, 2.0**-14, 2.0**15, 2000)),
        ({"loss_scaling_factor": "dynamic", "fp16_type": "float16"}, (2.0**15, 2.0**-14, 2.0**15, 2000)),
        ({"loss_scaling_factor": "dynamic", "fp16_type": "bfloat16"}, (1.0, None, INF, 2000)),
        ({"loss_scaling_factor": 8.0, "fp16_type": "bfloat16"}, (1.0, None, INF, 2000)),
        ({"loss_scaling_factor": "dynamic", "fp16_type": "cbfloat16"}, (2.0**31, 2.0**-14, 2.0**31, 2000)),
        ({"loss_scaling_factor": "dynamic", "initial_loss_scale": 8}, (8.0, 2.0**-14, 2.0**15, 2000)),
        ({"loss_scaling_factor": "dynamic", "initial_loss_scale": 2.0**20}, (2.0**20, 2.0**-14, 2.0**20, 2000)),
        ({"loss_scaling_factor": "dynamic", "initial_loss_scale": 2.0**-20}, (2.0**-20, 2.0**-20, 2.0**15, 2000)),
        ({"loss_scaling_factor": "dynamic", "min_loss_scale": 2.0**20}, (2.0**20, 2.0**20, 2.0**20, 2000)),
        ({"loss_scaling_factor": "dynamic", "max_loss_scale": 2.0**-20}, (2.0**-20, 2.0**-20, 2.0**-20, 2000)),
        (DYNAMIC_IN_BOUNDS, (6.0, 1.0, 10.0, 5)),
        ({"loss_scaling_factor": "dynamic", "enabled": False}, (1.0, None, INF, 2000)),
    ],
)
def test_the_loss_is_scaled_as_the_keys_say_and_the_type_where_they_do_not(load, written, expected):
    assert load({"init.precision": written}).precision.loss_scaling == expected


@each_meaning("""\
{} => [false, false]
log_loss_scale: true => [false, false]
max_gradient_norm: 1.0 => [true, false]
loss_scaling_factor: 8.0 => [false, false]
{loss_scaling_factor: 8.0, log_loss_scale: true} => [false, true]
loss_scaling_factor: dynamic => [true, true]
{loss_scaling_factor: dynamic, log_loss_scale: false} => [true, false]
{loss_scaling_factor: dynamic, enabled: false} => [false, false]
{loss_scaling_factor: dynamic, fp16_type: bfloat16} => [false, false]
""")
def test_gradients_wait_and_the_log_has_a_scale_where_it_is_dynamic(load, written, expected):
    params = load({"init.precision": written})
    assert [params.precision.gradients_wait, params.precision.logs_loss_scale] == expected
    about_it = [note for note in params.notes if "loss_scal" in note]
    reasons = {"enabled": "enabled is false", "fp16_type": "fp16_type is bfloat16"}
    noted = f"{I}.precision.loss_scaling_factor: accepted, no effect: "
    assert about_it == [noted + reason for key, reason in reasons.items() if key in written]


BOTH = ["optimizer", "model"]


def test_how_many_checkpoints_are_kept_and_what_is_saved_beside_them_is_acted_on(load):
    callbacks = [
        {"KeepNCheckpoints": {"n": 3}},
        {"SaveCheckpointState": {"k": 2}},
        {"SaveCheckpointState": {"k": 5, "checkpoint_states": BOTH, "checkpoint_name": "w-{ckpt_name}"}},
        {"KeepNCheckpoints": {"n": 4}},
    ]
    params = load({"init.callbacks": callbacks, "init.checkpoint.steps": 1})
    assert (params.keep_checkpoints, params.notes) == (4, ())
    saved = [(found.k, found.checkpoint_states, found.file_name("a.mdl")) for found in params.saved_states]
    assert saved == [(2, {"model"}, "model_a.mdl"), (5, {*BOTH}, "w-a.mdl")]


STOP = {"init.loop.eval_frequency": 2, "fit.val_dataloader": VAL}


@each_meaning("""\
patience: 3 => [eval/loss, 3, 0.0, min]
{patience: 1, monitor: eval/accuracy, min_delta: 0.01} => [eval/accuracy, 1, 0.01, max]
{patience: 1, monitor: eval/lm_perplexity} => [eval/lm_perplexity, 1, 0.0, min]
{patience: 1, monitor: eval/accuracy, mode: min} => [eval/accuracy, 1, 0.0, min]
""")
def test_when_to_stop_early_is_acted_on(load, written, expected):
    params = load({"init.callbacks": [{"EarlyStopping": written}], **STOP})
    stopping = params.early_stopping
    assert [stopping.monitor, stopping.patience, stopping.min_delta, stopping.mode] == expected
    assert params.notes == ()


def test_more_is_better_of_accuracies_and_scores():
    modes = {"accuracy_cls": "max", "rewards_accuracies": "max", "val/f1_score": "max", "rouge2": "max"}
    modes |= {"mlm_perplexity": "min", "accuracy/loss": "min"}
    stops = {name: EarlyStopping.model_validate({"patience": 1, "monitor": f"eval/{name}"}) for name in modes}
    assert {name: stop.mode for name, stop in stops.items()} == modes


def callback_error(failure, name: str, arguments: object, **changes: object) -> str:
    """Return what is wrong with a callback, without its place."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    message = failure({"init.callbacks": [{name: arguments}], **dotted})
    return message.partition(f"trainer.init.callbacks.0.{name}")[2].lstrip(". ")


METRICS = ("loss", "accuracy", "lm_perplexity")
ON_THE_WAY = "needs evaluations on the way, and loop.eval_frequency"
EVERY = "hint: eval_frequency: 100 evaluates after every 100 steps, 0.1 after every tenth of the run"
NO_STOPS = cases("""\
patience: 0 => patience must be at least 1, got 0
{} => patience is missing
{patience: 1, min_delta: -0.1} => min_delta must be at least 0, got -0.1
{patience: 1, mode: up} => mode must be min or max, got 'up'
{patience: 1, monitor: loss} => monitor must be a metric of the evaluations, got 'loss'
    hint: they are eval/loss, eval/accuracy, eval/lm_perplexity
""")
SEVERAL = [VAL, {**VAL, "data_dir": "b"}]
NO_EVALUATIONS = [
    (
        {**STOP, "fit.val_dataloader": SEVERAL},
        "monitor must be a metric of the evaluations, got 'eval/loss'\n"
        f"hint: they are {', '.join(f'eval/{name}/{metric}' for name in ('val', 'b') for metric in METRICS)}",
    ),
    ({"init.loop.eval_frequency": 2}, "needs evaluations, and trainer.fit.val_dataloader is missing"),
    ({"fit.val_dataloader": VAL}, f"{ON_THE_WAY} is 1.0, the end of the run\n{EVERY}"),
    ({**STOP, "init.loop.eval_frequency": None}, f"{ON_THE_WAY} is missing, null or 0\n{EVERY}"),
]


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        *((arguments, STOP, message) for arguments, message in NO_STOPS),
        *(({"patience": 1}, changes, message) for changes, message in NO_EVALUATIONS),
    ],
)
def test_an_early_stopping_that_makes_no_sense_is_an_error(failure, arguments, changes, message):
    assert callback_error(failure, "EarlyStopping", arguments, **changes) == message


SAVED = {"init.checkpoint.steps": 5}
STATES = "must be all or some of model, optimizer, dataloader"
NAME = "checkpoint_name must be a file name that holds {ckpt_name} and more"
EXAMPLE = "for example {checkpoint_states}_{ckpt_name}"


@each_message("""\
k: 0 => k must be at least 1, got 0
[{k: 1}, {init.checkpoint.steps: null}] => needs checkpoints, and checkpoint.steps is missing
    hint: checkpoint.steps: N saves them
{k: 1, checkpoint_states: wheels} => checkpoint_states STATES, got 'wheels'
{k: 1, checkpoint_states: []} => checkpoint_states STATES, got []
[{k: 1, checkpoint_states: optimizer}, {init.sparsity: 0.5}] =>
    checkpoint_states must have model in it where weights are sparse, got 'optimizer'
{k: 1, checkpoint_name: weights} => NAME, got 'weights'\nhint: HINT
{k: 1, checkpoint_name: '../{ckpt_name}'} => NAME, got '../{ckpt_name}'\nhint: HINT
{k: 1, checkpoint_name: '{ckpt_name}'} => NAME, got '{ckpt_name}'\nhint: HINT
[{k: 1, checkpoint_name: '1{ckpt_name}'}, {init.checkpoint.checkpoint_name: '{step}.mdl'}] =>
    checkpoint_name must not make the name of a checkpoint ({step}.mdl), got '1{ckpt_name}'
""")
def test_a_second_file_that_makes_no_sense_is_an_error(failure, written, message):
    written, changes = written if isinstance(written, list) else (written, {})
    found = callback_error(failure, "SaveCheckpointState", written, **{**SAVED, **changes})
    assert found == told(message, STATES=STATES, NAME=NAME, HINT=EXAMPLE)


def test_a_second_file_that_will_never_be_saved_is_worth_a_warning(load):
    [warning] = load({"init.callbacks": [{"SaveCheckpointState": {"k": 3}}], **SAVED}).warnings
    assert warning == (
        "x.yaml:14: trainer.init.callbacks.0.SaveCheckpointState.k is 3, and the run makes 2: nothing is saved beside "
        "them"
    )
    assert load({"init.callbacks": [{"SaveCheckpointState": {"k": 2}}], **SAVED}).warnings == ()


def test_two_second_files_of_one_name_are_an_error(failure):
    entry = {"SaveCheckpointState": {"k": 1}}
    assert failure({"init.callbacks": [entry, entry], **SAVED}).endswith(
        "trainer.init.callbacks.1.SaveCheckpointState.checkpoint_name must be another one than that of the "
        "SaveCheckpointState before it, both make model_checkpoint_{step}.mdl"
    )


WORDS = {
    "FACTOR": "must be dynamic, or a number greater than 0 that float32 has",
    "FREQUENCY": "must be at least 1 step, or a share of the run between 0.0 and 1.0, or 0 for never",
    "MODULES": "must have Linear or Embedding and, of the modules around it, only those known here",
    "TURNED": "matrices here have a row for each output",
    "ONCE": "must have rank and targets, once each, and at most alpha, dropout, rslora beside them",
    "CHECKPOINT_NAME": "must be a file name that holds {step} once",
}


@each_message("""\
precision: {max_gradient_norm: 1.0, max_gradient_value: 0.5} =>
    14: @.precision.max_gradient_value cannot stand beside max_gradient_norm, got 0.5\nhint: keep one of the two
precision: {loss_scaling_factor: auto} => 13: @.precision.loss_scaling_factor FACTOR, got 'auto'
precision: {loss_scaling_factor: 0} => 13: @.precision.loss_scaling_factor FACTOR, got 0
precision: {loss_scaling_factor: 1.0e+39} => 13: @.precision.loss_scaling_factor FACTOR, got 1e+39
precision: {loss_scaling_factor: true} => 13: @.precision.loss_scaling_factor FACTOR, got true
precision: {min_loss_scale: 2, max_loss_scale: 1.5} =>
    14: @.precision.max_loss_scale must be at least min_loss_scale (2), got 1.5
precision: {initial_loss_scale: 1, min_loss_scale: 2} =>
    13: @.precision.initial_loss_scale must be at least min_loss_scale (2), got 1
precision: {initial_loss_scale: 32, max_loss_scale: 16.0} =>
    13: @.precision.initial_loss_scale must be at most max_loss_scale (16), got 32
precision: {initial_loss_scale: 0} => 13: @.precision.initial_loss_scale must be greater than 0, got 0
precision: {max_loss_scale: 1.0e+39} => 13: @.precision.max_loss_scale must be less than 3.40282e+38, got 1e+39
loop: {num_epochs: 1.5} => 11: @.loop.num_epochs must be a whole number, got 1.5
loop: {eval_frequency: -1} => 11: @.loop.eval_frequency FREQUENCY, got -1
loop: {eval_frequency: 1.5} => 11: @.loop.eval_frequency FREQUENCY, got 1.5
loop: {eval_frequency: never} =>
    11: @.loop.eval_frequency must be a number of steps, or a share of the run up to 1.0, got 'never'
loop: [] => 10: @.loop must be a mapping, got []
checkpoint: {checkpoint_name: final.mdl} =>
    13: @.checkpoint.checkpoint_name CHECKPOINT_NAME, got 'final.mdl'\nhint: for example checkpoint_{step}.mdl
checkpoint: {checkpoint_name: 'a/{step}.mdl'} =>
    13: @.checkpoint.checkpoint_name CHECKPOINT_NAME, got 'a/{step}.mdl'\nhint: for example checkpoint_{step}.mdl
checkpoint: {checkpoint_root: s3} => 13: not supported: @.checkpoint.checkpoint_root: s3\nhint: leave it out
logging: {log_level: LOUD} => 13: @.logging.log_level must be DEBUG, INFO, WARNING or ERROR, got 'LOUD'
backend: {cluster_config: {num_cxs: 2}} => 14: @.backend.cluster_config.num_cxs is not a known key
    hint: did you mean num_csx?
callbacks: {ComputeNorm: {}} => 12: @.callbacks must be a list, got a mapping
callbacks: [{ComputeNom: {}}] => 13: @.callbacks.0.ComputeNom is not a known name\nhint: did you mean ComputeNorm?
callbacks: [{Lora: {lora_params: {r: 8, layers: [q], target_modules: [Linear]}}}] =>
    14: @.callbacks.0.Lora.lora_params.0 must have target_modules or layers, not both
    hint: target_modules: [Linear] is for all linear layers, null for those and all tables of tokens
callbacks: [{Lora: {lora_params: {target_modules: [Linear]}}}] => 14: @.callbacks.0.Lora.lora_params.0.r is missing
callbacks: [{Lora: {lora_params: {r: 0, layers: [q]}}}] =>
    14: @.callbacks.0.Lora.lora_params.0.r must be at least 1, got 0
callbacks: [{Lora: {lora_params: {r: 8, layers: [q], fan_in_fan_out: true}}}] =>
    14: @.callbacks.0.Lora.lora_params.0.fan_in_fan_out must be false: TURNED, got true
callbacks: [{Lora: {lora_params: [{r: 8, target_modules: [Linear, Swin]}]}}] =>
    16: @.callbacks.0.Lora.lora_params.0.target_modules MODULES, got ['Linear', 'Swin']
    hint: they are EmbeddingLayer, TransformerDecoder, TransformerEncoder, TransformerDecoderLayer,
        TransformerEncoderLayer, MultiheadAttention, FeedForwardNetwork
callbacks: [{Lora: {lora_params: []}}] => 14: @.callbacks.0.Lora.lora_params must hold at least one mapping, got []
lora: rank=4 => 12: @.lora ONCE, got 'rank=4'
    hint: such as --lora rank=16,targets=q,v
{lora: "rank=4,targets=q", frozen: "*norm*"} => 13: @.frozen cannot stand beside trainer.init.lora
    hint: keep one of the two
frozen: "first:" => 12: @.frozen must be patterns of weights, or first:N, got 'first:'
    hint: such as first:16 for embeddings and 16 layers, or '*ffn*,*embedding*' for names of weights
activation_checkpointing: allways => 12: @.activation_checkpointing must be auto, always or never, got 'allways'
model_dir: 5 => 12: @.model_dir must be text, got 5
callbacks: [{LoadCheckpointStates: {load_checkpoint_state: model}}] =>
    14: @.callbacks.0.LoadCheckpointStates.load_checkpoint_state is not a known key
    hint: did you mean load_checkpoint_states?
callbacks: [{LoadCheckpointStates: {load_checkpoint_states: 5}}] =>
    14: @.callbacks.0.LoadCheckpointStates.load_checkpoint_states must be all, or names of states, got 5
    hint: for example model
callbacks: [{CountParams: {order: 1}}] => 14: @.callbacks.0.CountParams.order is not a known key
    hint: did you mean order_by?
loggers: [{WandLogger: {}}] => 13: @.loggers.0.WandLogger is not a known name\nhint: did you mean WandbLogger?
loggers: [{WandbLogger: {projet: p}}] => 14: @.loggers.0.WandbLogger.projet is not a known key
    hint: did you mean project?
backend: {compile_dir: 5, compile_only: 'true', validate_only: 1} =>
    13: @.backend.compile_dir must be text, got 5
    14: @.backend.compile_only must be true or false, got 'true'
    15: @.backend.validate_only must be true or false, got 1
precision: {enabled: yes please, host: float16, fp16_type: float32} =>
    13: @.precision.enabled must be true or false, got 'yes please'
    14: @.precision.host must be float32 or bfloat16, got 'float16'
    15: @.precision.fp16_type must be float16, bfloat16 or cbfloat16, got 'float32'
sparsty: 0.5 => 12: @.sparsty is not a known key\nhint: did you mean sparsity?
""")
def test_a_section_that_makes_no_sense_is_an_error(failure, written, message):
    assert failure({f"init.{key}": value for key, value in written.items()}) == told(message, I, **WORDS)


@pytest.mark.parametrize("key", ["compile_only", "validate_only"])
def test_a_run_may_be_only_to_compile_or_to_check_and_not_both(load, failure, key):
    typed = load({}, flags={f"{I}.backend.{key}": (f"--{key}", True)})
    assert typed == load({f"init.backend.{key}": True}) != load({})
    backend = {"cluster_config": {"num_csx": 1}, "compile_only": False, "validate_only": False}
    assert load({}).resolved()["trainer"]["init"]["backend"] == backend
    assert typed.resolved()["trainer"]["init"]["backend"] == {**backend, key: True}
    rule = "cannot stand beside compile_only, got true\nhint: keep one of the two"
    both = {"compile_only": True, "validate_only": True}
    assert failure({"init.backend": both}) == f"x.yaml:14: {I}.backend.validate_only {rule}"
    flags = {f"{I}.backend.validate_only": ("--validate_only", True)}
    assert failure({"init.backend.compile_only": True}, flags=flags) == f"--validate_only: {rule}"


def test_a_compile_dir_lies_in_the_working_directory(load, folder, monkeypatch):
    flags = {f"{I}.backend.compile_dir": ("--compile_dir", "typed")}
    assert load({"init.backend.compile_dir": "/abs/x"}, flags=flags).compile_dir == folder / "typed"
    load({"init.backend.compile_dir": "./artifacts"})
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    params = load_params(folder / "x.yaml")
    assert params.compile_dir == folder / "work" / "artifacts"
    assert params.resolved()["trainer"]["init"]["backend"]["compile_dir"] == f"{folder}/work/artifacts"


@each_message("""\
5 => 17: @ must be a mapping, got 5
val_dataloader: {} => 18: @.val_dataloader is not a known key\nhint: did you mean val_dataloaders?
ckpt_paths: [] => 18: @.ckpt_paths must hold at least one path, got []
    hint: without the key, all of model_dir are evaluated
ckpt_paths: [a, b, ./a] => 21: @.ckpt_paths.2 is the same file as ckpt_paths.0, got './a'
val_dataloaders: [] => 18: @.val_dataloaders must hold at least one dataloader, got []
ckpt_paths: [5] => 18: @.ckpt_paths must be a path or a list of paths, got [5]
val_dataloaders: [{data_processor: MNISTDataProcessor, data_dir: d, batch_size: 0}] =>
    21: @.val_dataloaders.0.batch_size must be at least 1, got 0
""")
def test_a_validate_all_that_makes_no_sense_is_an_error(failure, written, message):
    assert failure({"validate_all": written}) == told(message, "trainer.validate_all")


@pytest.mark.parametrize("key", ["fit.ckpt_path", "validate.ckpt_path"])
def test_a_checkpoint_path_that_is_no_path_is_an_error(failure, key):
    assert failure({key: 5}).endswith(f"trainer.{key} must be text, got 5")
