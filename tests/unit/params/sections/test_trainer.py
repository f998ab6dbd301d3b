"""Precision, loop, checkpoint, logging, backend and callbacks."""

from pathlib import Path

import pytest

from cstool.params import ALL_STATES, EarlyStopping, load_params
from tests.unit.params.conftest import cases, told

I = "trainer.init"  # noqa: E741
VAL = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": "d", "batch_size": 4}


def test_the_sections_have_defaults(load):
    params = load({})
    sections = (params.precision, params.loop, params.checkpoint, params.logging)
    assert [section.dump() for section in sections] == [
        {"enabled": True},
        {"max_steps": 10, "eval_frequency": 1.0},
        {
            "autoload_last_checkpoint": True,
            "disable_strict_checkpoint_loading": False,
            "save_initial_checkpoint": False,
            "checkpoint_name": "checkpoint_{step}.mdl",
        },
        {"log_steps": 1, "log_level": "INFO"},
    ]


@pytest.mark.parametrize("loop", [None, {}, {"eval_steps": 5}])
def test_a_loop_without_a_length_is_one_epoch(load, loop):
    assert load({"init.loop": loop}).loop.num_epochs == 1


@pytest.mark.parametrize(
    ("frequency", "interval"), [(7, 7), (1, 1), (1.0, 100), (0.5, 50), (0.001, 1), (0, None), (0.0, None), (None, None)]
)
def test_eval_frequency_is_steps_or_a_share_of_the_run(load, frequency, interval):
    assert load({"init.loop.eval_frequency": frequency}).loop.eval_interval(100) == interval


@pytest.mark.parametrize("key", ["max_gradient_norm", "max_gradient_value"])
def test_clipping_is_by_norm_or_by_value(load, key):
    assert load({"init.precision": {key: 1}}).precision.dump() == {"enabled": True, key: 1.0}


def test_the_other_kind_of_clipping_may_be_null(load):
    precision = load({"init.precision": {"max_gradient_norm": None, "max_gradient_value": 0.5}}).precision
    assert precision.dump() == {"enabled": True, "max_gradient_value": 0.5}


FOR_THE_HOST = "products on this host take bfloat16 operands, sums are float32"
WAFER_ONLY = "acted on by the compiler: operands on the modelled wafer; false keeps those on this host float32"


@pytest.mark.parametrize(("enabled", "bits"), [(True, 16), (False, 32)])
def test_mixed_precision_says_how_wide_the_operands_on_the_wafer_are(load, enabled, bits):
    params = load({"init.precision": {"enabled": enabled}})
    assert (params.operand_bits, params.notes) == (bits, (f"{I}.precision.enabled: {WAFER_ONLY}",))
    assert params.resolved()["trainer"]["init"]["precision"] == {"enabled": enabled}


@pytest.mark.parametrize("precision", [None, {}, {"enabled": None, "fp16_type": None}])
def test_operands_have_16_bits_where_nothing_is_said(load, precision):
    params = load({"init.precision": precision})
    assert (params.operand_bits, params.notes) == (16, ())


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "cbfloat16"])
def test_a_kind_of_half_precision_is_bfloat16_on_this_host(load, kind):
    params = load({"init.precision": {"fp16_type": kind}})
    taken = f"{I}.precision.fp16_type: {kind} is taken as bfloat16: {FOR_THE_HOST}"
    assert params.notes == (() if kind == "bfloat16" else (taken,))
    assert params.host_precision == "bfloat16"
    assert params.resolved()["trainer"]["init"]["precision"] == {"enabled": True, "fp16_type": kind}
    wide = load({"init.precision": {"fp16_type": kind, "enabled": False}})
    assert (wide.operand_bits, wide.host_precision) == (32, "float32")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, "float32"),
        ({"enabled": True}, "float32"),
        ({"host": "bfloat16"}, "bfloat16"),
        ({"host": "bfloat16", "enabled": False}, "bfloat16"),
        ({"host": "float32", "fp16_type": "cbfloat16"}, "float32"),
        ({"host": None, "fp16_type": "cbfloat16"}, "bfloat16"),
    ],
)
def test_what_is_said_of_this_host_overrides_the_vendors_keys(load, written, expected):
    params = load({"init.precision": written})
    assert params.host_precision == expected
    assert params.operand_bits == (32 if written.get("enabled") is False else 16)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("enabled", "yes please", "must be true or false, got 'yes please'"),
        ("enabled", 16, "must be true or false, got 16"),
        ("host", "float16", "must be float32 or bfloat16, got 'float16'"),
        ("fp16_type", "float32", "must be float16, bfloat16 or cbfloat16, got 'float32'"),
    ],
)
def test_a_precision_that_makes_no_sense_is_an_error(failure, key, value, message):
    assert failure({f"init.precision.{key}": value}) == f"x.yaml:13: {I}.precision.{key} {message}"


INF = float("inf")


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
        (
            {
                "loss_scaling_factor": "dynamic",
                "initial_loss_scale": 6.0,
                "min_loss_scale": 1.0,
                "max_loss_scale": 10.0,
                "steps_per_increase": 5,
            },
            (6.0, 1.0, 10.0, 5),
        ),
        ({"loss_scaling_factor": "dynamic", "enabled": False}, (1.0, None, INF, 2000)),
    ],
)
def test_the_loss_is_scaled_as_the_keys_say_and_the_type_where_they_do_not(load, written, expected):
    assert load({"init.precision": written}).precision.loss_scaling == expected


@pytest.mark.parametrize(
    ("written", "waits", "logs"),
    [
        ({}, False, False),
        ({"log_loss_scale": True}, False, False),
        ({"max_gradient_norm": 1.0}, True, False),
        ({"loss_scaling_factor": 8.0}, False, False),
        ({"loss_scaling_factor": 8.0, "log_loss_scale": True}, False, True),
        ({"loss_scaling_factor": "dynamic"}, True, True),
        ({"loss_scaling_factor": "dynamic", "log_loss_scale": False}, True, False),
        ({"loss_scaling_factor": "dynamic", "enabled": False}, False, False),
        ({"loss_scaling_factor": "dynamic", "fp16_type": "bfloat16"}, False, False),
    ],
)
def test_gradients_wait_and_the_log_has_a_scale_where_it_is_dynamic(load, written, waits, logs):
    params = load({"init.precision": written})
    assert (params.precision.gradients_wait, params.precision.logs_loss_scale) == (waits, logs)
    about_it = [note for note in params.notes if "loss_scal" in note]
    reasons = {"enabled": "enabled is false", "fp16_type": "fp16_type is bfloat16"}
    noted = f"{I}.precision.loss_scaling_factor: accepted, no effect: "
    assert about_it == [noted + reason for key, reason in reasons.items() if key in written]


def test_keys_about_the_real_cluster_are_noted(load):
    backend = {"backend_type": "CSX", "cluster_config": {"num_csx": 2, "mount_dirs": ["/data"]}}
    params = load({"init.backend": backend})
    assert (params.num_csx, params.notes) == (
        2,
        (
            "trainer.init.backend.backend_type: accepted, no effect",
            "trainer.init.backend.cluster_config.mount_dirs: accepted, no effect",
        ),
    )


def test_callbacks_that_change_no_result_are_noted(load):
    callbacks = [
        {"ScopedValidateFlags": {"csx.performance.micro_batch_size": 88}},
        {"CheckLoss": None},
        {"checkloss": {}},
        {"KeepNCheckpoints": None},
        {"LogOptimizerParamGroup": {"keys": "lr"}},
    ]
    assert load({"init.callbacks": callbacks}).notes == tuple(
        f"trainer.init.callbacks.{key}: accepted, no effect"
        for key in (
            "0.ScopedValidateFlags.csx.performance.micro_batch_size",
            "1.CheckLoss",
            "2.checkloss",
            "3.KeepNCheckpoints",
            "4.LogOptimizerParamGroup.keys",
        )
    )


@pytest.mark.parametrize(
    ("written", "states"),
    [
        ("model", {"model"}),
        ("model, optimizer", {"model", "optimizer"}),
        (["model", "optimizer"], {"model", "optimizer"}),
        ("dataloader,optimizer,model", ALL_STATES),
        ("All", ALL_STATES),
    ],
)
def test_the_states_to_load_from_a_checkpoint_are_acted_on(load, written, states):
    params = load({"init.callbacks": [{"LoadCheckpointStates": {"load_checkpoint_states": written}}]})
    assert (params.load_checkpoint_states, params.notes) == (states, ())


@pytest.mark.parametrize("callback", [None, {}, {"load_checkpoint_states": None}])
def test_all_states_are_loaded_unless_the_callback_names_some(load, callback):
    assert load({"init.callbacks": [{"LoadCheckpointStates": callback}]}).load_checkpoint_states == ALL_STATES


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
    assert [(found.k, found.checkpoint_states) for found in params.saved_states] == [
        (2, {"model"}),
        (5, {"model", "optimizer"}),
    ]
    assert [found.file_name("a.mdl") for found in params.saved_states] == ["model_a.mdl", "w-a.mdl"]


STOP = {"init.loop.eval_frequency": 2, "fit.val_dataloader": VAL}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"patience": 3}, ("eval/loss", 3, 0.0, "min")),
        ({"patience": 1, "monitor": "eval/accuracy", "min_delta": 0.01}, ("eval/accuracy", 1, 0.01, "max")),
        ({"patience": 1, "monitor": "eval/lm_perplexity"}, ("eval/lm_perplexity", 1, 0.0, "min")),
        ({"patience": 1, "monitor": "eval/accuracy", "mode": "min"}, ("eval/accuracy", 1, 0.0, "min")),
    ],
)
def test_when_to_stop_early_is_acted_on(load, arguments, found):
    params = load({"init.callbacks": [{"EarlyStopping": arguments}], **STOP})
    stopping = params.early_stopping
    assert (stopping.monitor, stopping.patience, stopping.min_delta, stopping.mode) == found
    assert params.notes == ()


@pytest.mark.parametrize(
    ("monitor", "mode"),
    [
        ("eval/accuracy_cls", "max"),
        ("eval/rewards_accuracies", "max"),
        ("eval/val/f1_score", "max"),
        ("eval/rouge2", "max"),
        ("eval/mlm_perplexity", "min"),
        ("eval/accuracy/loss", "min"),
    ],
)
def test_more_is_better_of_accuracies_and_scores(monitor, mode):
    assert EarlyStopping.model_validate({"patience": 1, "monitor": monitor}).mode == mode


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
        f"hint: they are {', '.join(f'eval/{name}/{metric}' for name in 'db' for metric in METRICS)}",
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


NO_SECOND_FILES = cases("""\
k: 0 => k must be at least 1, got 0
[{k: 1}, {init.checkpoint.steps: null}] => needs checkpoints, and checkpoint.steps is missing
    hint: checkpoint.steps: N saves them
{k: 1, checkpoint_states: wheels} => checkpoint_states must be all or some of model, optimizer, dataloader, got 'wheels'
{k: 1, checkpoint_states: 'model,'} =>
    checkpoint_states must be all or some of model, optimizer, dataloader, got 'model,'
{k: 1, checkpoint_states: []} => checkpoint_states must be all or some of model, optimizer, dataloader, got []
[{k: 1, checkpoint_states: optimizer}, {init.sparsity: 0.5}] =>
    checkpoint_states must have model in it where weights are sparse, got 'optimizer'
{k: 1, checkpoint_name: weights} => checkpoint_name must be a file name that holds {ckpt_name} and more, got 'weights'
    hint: for example {checkpoint_states}_{ckpt_name}
{k: 1, checkpoint_name: '../{ckpt_name}'} =>
    checkpoint_name must be a file name that holds {ckpt_name} and more, got '../{ckpt_name}'
    hint: for example {checkpoint_states}_{ckpt_name}
{k: 1, checkpoint_name: '{ckpt_name}'} =>
    checkpoint_name must be a file name that holds {ckpt_name} and more, got '{ckpt_name}'
    hint: for example {checkpoint_states}_{ckpt_name}
[{k: 1, checkpoint_name: '1{ckpt_name}'}, {init.checkpoint.checkpoint_name: '{step}.mdl'}] =>
    checkpoint_name must not make the name of a checkpoint ({step}.mdl), got '1{ckpt_name}'
""")


@pytest.mark.parametrize(("arguments", "message"), NO_SECOND_FILES)
def test_a_second_file_that_makes_no_sense_is_an_error(failure, arguments, message):
    arguments, changes = arguments if isinstance(arguments, list) else (arguments, {})
    assert callback_error(failure, "SaveCheckpointState", arguments, **{**SAVED, **changes}) == message


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


@pytest.mark.parametrize(
    ("callbacks", "computes"), [([], False), ([{"ComputeNorm": {}}], True), ([{"ComputeNorm": None}], False)]
)
def test_norms_are_computed_where_the_callback_is_there(load, callbacks, computes):
    params = load({"init.callbacks": callbacks})
    assert (params.computes_norms, params.notes) == (computes, ())


@pytest.mark.parametrize("value", [{}, {"summary_dir": None}])
def test_events_are_in_model_dir_by_default(load, value):
    params = load({"init.loggers": [{"TensorBoardLogger": value}]})
    assert params.events_dir == load({}).events_dir == params.model_dir / "events"


def test_events_can_go_elsewhere_or_nowhere(load):
    loggers = [{"TensorBoardLogger": {"summary_dir": "curves", "legacy_event_dirs": True}}]
    params = load({"init.loggers": loggers})
    assert params.events_dir == Path("curves").absolute()
    assert params.notes == ("trainer.init.loggers.0.TensorBoardLogger.legacy_event_dirs: accepted, no effect",)
    assert load({"init.loggers": [{"TensorBoardLogger": None}]}).events_dir is None


def test_other_loggers_are_noted(load):
    loggers = [{"ProgressLogger": {}}, {"WandbLogger": {"project": "p"}}]
    assert load({"init.loggers": loggers}).notes == (
        "trainer.init.loggers.0.ProgressLogger: accepted, no effect",
        "trainer.init.loggers.1.WandbLogger.project: accepted, no effect",
    )


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"init.device": "CSX"}, "trainer.init.device"),
        ({"init.autorestart": {"max_num_restarts": 3}}, "trainer.init.autorestart.max_num_restarts"),
        ({"init.loop.grad_accum_steps": 4}, "trainer.init.loop.grad_accum_steps"),
        ({"init.backend.sync_batchnorm": True}, "trainer.init.backend.sync_batchnorm"),
    ],
)
def test_other_keys_without_effect_are_noted(load, changes, note):
    assert load(changes).notes == (f"{note}: accepted, no effect",)


def test_checkpoints_every_0_steps_are_none(load):
    assert load({"init.checkpoint.steps": 0}).checkpoint.steps is None


REFUSED = cases("""\
precision: {max_gradient_norm: 1.0, max_gradient_value: 0.5} =>
    14: @.precision.max_gradient_value cannot stand beside max_gradient_norm, got 0.5\nhint: keep one of the two
precision: {max_gradient_norm: 0} => 13: @.precision.max_gradient_norm must be greater than 0, got 0
precision: {loss_scaling_factor: auto} =>
    13: @.precision.loss_scaling_factor must be dynamic, or a number greater than 0 that float32 has, got 'auto'
precision: {loss_scaling_factor: 0} =>
    13: @.precision.loss_scaling_factor must be dynamic, or a number greater than 0 that float32 has, got 0
precision: {loss_scaling_factor: -2.0} =>
    13: @.precision.loss_scaling_factor must be dynamic, or a number greater than 0 that float32 has, got -2.0
precision: {loss_scaling_factor: 1.0e+39} =>
    13: @.precision.loss_scaling_factor must be dynamic, or a number greater than 0 that float32 has, got 1e+39
precision: {loss_scaling_factor: true} =>
    13: @.precision.loss_scaling_factor must be dynamic, or a number greater than 0 that float32 has, got true
precision: {loss_scaling_factor: [dynamic]} =>
    13: @.precision.loss_scaling_factor must be dynamic, or a number greater than 0 that float32 has, got ['dynamic']
precision: {min_loss_scale: 2, max_loss_scale: 1.5} =>
    14: @.precision.max_loss_scale must be at least min_loss_scale (2), got 1.5
precision: {initial_loss_scale: 1, min_loss_scale: 2} =>
    13: @.precision.initial_loss_scale must be at least min_loss_scale (2), got 1
precision: {initial_loss_scale: 32, max_loss_scale: 16.0} =>
    13: @.precision.initial_loss_scale must be at most max_loss_scale (16), got 32
precision: {initial_loss_scale: 0} => 13: @.precision.initial_loss_scale must be greater than 0, got 0
precision: {max_loss_scale: 1.0e+39} => 13: @.precision.max_loss_scale must be less than 3.40282e+38, got 1e+39
precision: {min_loss_scale: tiny} => 13: @.precision.min_loss_scale must be a number, got 'tiny'
precision: {steps_per_increase: 0} => 13: @.precision.steps_per_increase must be at least 1, got 0
precision: {log_loss_scale: 1} => 13: @.precision.log_loss_scale must be true or false, got 1
loop: {max_steps: 0} => 11: @.loop.max_steps must be at least 1, got 0
loop: {num_steps: -1} => 11: @.loop.num_steps must be at least 1, got -1
loop: {max_steps: 2147483648} => 11: @.loop.max_steps must be at most 2147483647, got 2147483648
loop: {num_epochs: 1.5} => 11: @.loop.num_epochs must be a whole number, got 1.5
loop: {eval_frequency: -1} =>
    11: @.loop.eval_frequency must be at least 1 step, or a share of the run between 0.0 and 1.0, or 0 for never, got -1
loop: {eval_frequency: 1.5} =>
    11: @.loop.eval_frequency must be at least 1 step, or a share of the run between 0.0 and 1.0, or 0 for never,
        got 1.5
loop: {eval_frequency: never} =>
    11: @.loop.eval_frequency must be a number of steps, or a share of the run up to 1.0, got 'never'
loop: [] => 10: @.loop must be a mapping, got []
checkpoint: {steps: -1} => 13: @.checkpoint.steps must be at least 1, got -1
checkpoint: {checkpoint_name: final.mdl} =>
    13: @.checkpoint.checkpoint_name must be a file name that holds {step} once, got 'final.mdl'
    hint: for example checkpoint_{step}.mdl
checkpoint: {checkpoint_name: 'a/{step}.mdl'} =>
    13: @.checkpoint.checkpoint_name must be a file name that holds {step} once, got 'a/{step}.mdl'
    hint: for example checkpoint_{step}.mdl
checkpoint: {checkpoint_root: 's3://bucket'} => 13: not supported: @.checkpoint.checkpoint_root: s3://bucket
    hint: leave it out
logging: {log_level: LOUD} => 13: @.logging.log_level must be DEBUG, INFO, WARNING or ERROR, got 'LOUD'
backend: {cluster_config: {num_csx: 0}} => 14: @.backend.cluster_config.num_csx must be at least 1, got 0
backend: {cluster_config: {num_cxs: 2}} => 14: @.backend.cluster_config.num_cxs is not a known key
    hint: did you mean num_csx?
backend: {cluster_config: 3} => 13: @.backend.cluster_config must be a mapping, got 3
callbacks: {ComputeNorm: {}} => 12: @.callbacks must be a list, got a mapping
callbacks: [{ComputeNom: {}}] => 13: @.callbacks.0.ComputeNom is not a known name\nhint: did you mean ComputeNorm?
callbacks: [{Lora: {r: 8}}] => 13: not supported: @.callbacks.0.Lora\nhint: leave it out
seed: -1 => 12: @.seed must be at least 0, got -1
seed: true => 12: @.seed must be a whole number, got true
activation_checkpointing: allways => 12: @.activation_checkpointing must be auto, always or never, got 'allways'
model_dir: 5 => 12: @.model_dir must be text, got 5
callbacks: [{EleutherEvalHarness: {eeh_args: {}}}] => 13: not supported: @.callbacks.0.EleutherEvalHarness
    hint: leave it out
callbacks: [{LoadCheckpointStates: {load_checkpoint_state: model}}] =>
    14: @.callbacks.0.LoadCheckpointStates.load_checkpoint_state is not a known key
    hint: did you mean load_checkpoint_states?
callbacks: [{LoadCheckpointStates: {load_checkpoint_states: 5}}] =>
    14: @.callbacks.0.LoadCheckpointStates.load_checkpoint_states must be all, or names of states, got 5
    hint: for example model
callbacks: [{KeepNCheckpoints: {n: 0}}] => 14: @.callbacks.0.KeepNCheckpoints.n must be at least 1, got 0
callbacks: [{SaveCheckpointState: {}}] => 13: @.callbacks.0.SaveCheckpointState.k is missing
callbacks: [{CountParams: {order: 1}}] => 14: @.callbacks.0.CountParams.order is not a known key
    hint: did you mean order_by?
callbacks: [{GlobalFlags: 5}] => 13: @.callbacks.0.GlobalFlags must be a mapping, got 5
loggers: [{WandLogger: {}}] => 13: @.loggers.0.WandLogger is not a known name\nhint: did you mean WandbLogger?
loggers: [{WandbLogger: {projet: p}}] => 14: @.loggers.0.WandbLogger.projet is not a known key
    hint: did you mean project?
autorestart: {restarts: 3} => 13: @.autorestart.restarts is not a known key\nhint: did you mean max_num_restarts?
sparsty: 0.5 => 12: @.sparsty is not a known key\nhint: did you mean sparsity?
""")


@pytest.mark.parametrize(("sections", "message"), REFUSED)
def test_a_section_that_makes_no_sense_is_an_error(failure, sections, message):
    assert failure({f"init.{key}": value for key, value in sections.items()}) == told(message, I)


def test_a_run_compiles_and_trains_unless_it_is_told_otherwise(load):
    params = load({})
    assert (params.compile_dir, params.compile_only, params.validate_only) == (None, False, False)
    assert params.resolved()["trainer"]["init"]["backend"] == {
        "cluster_config": {"num_csx": 1},
        "compile_only": False,
        "validate_only": False,
    }


@pytest.mark.parametrize("key", ["compile_only", "validate_only"])
def test_a_run_may_be_only_to_compile_or_to_check(load, key):
    for params in (load({f"init.backend.{key}": True}), load({}, flags={f"{I}.backend.{key}": (f"--{key}", True)})):
        assert (params.compile_only, params.validate_only) == (key == "compile_only", key == "validate_only")
        assert params.resolved()["trainer"]["init"]["backend"][key] is True
        assert params.notes == ()
    assert load({f"init.backend.{key}": True}) != load({})


def test_one_cannot_only_compile_and_only_check(failure):
    both = {"compile_only": True, "validate_only": True}
    rule = "cannot stand beside compile_only, got true\nhint: keep one of the two"
    assert failure({"init.backend": both}) == f"x.yaml:14: {I}.backend.validate_only {rule}"
    flags = {f"{I}.backend.validate_only": ("--validate_only", True)}
    assert failure({"init.backend.compile_only": True}, flags=flags) == f"--validate_only: {rule}"


def test_a_compile_dir_lies_in_the_working_directory(load, folder, monkeypatch):
    flags = {f"{I}.backend.compile_dir": ("--compile_dir", "typed")}
    assert load({"init.backend.compile_dir": "/abs/x"}).compile_dir == Path("/abs/x")
    assert load({"init.backend.compile_dir": "/abs/x"}, flags=flags).compile_dir == folder / "typed"
    load({"init.backend.compile_dir": "./artifacts"})
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    params = load_params(folder / "x.yaml")
    assert params.compile_dir == folder / "work" / "artifacts"
    assert params.resolved()["trainer"]["init"]["backend"]["compile_dir"] == f"{folder}/work/artifacts"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("compile_dir", 5, "must be text, got 5"),
        ("compile_only", "true", "must be true or false, got 'true'"),
        ("validate_only", 1, "must be true or false, got 1"),
    ],
)
def test_a_backend_that_makes_no_sense_is_an_error(failure, key, value, message):
    assert failure({f"init.backend.{key}": value}) == f"x.yaml:13: {I}.backend.{key} {message}"


NO_VALIDATE_ALL = cases("""\
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


@pytest.mark.parametrize(("value", "message"), NO_VALIDATE_ALL)
def test_a_validate_all_that_makes_no_sense_is_an_error(failure, value, message):
    assert failure({"validate_all": value}) == told(message, "trainer.validate_all")


@pytest.mark.parametrize("key", ["fit.ckpt_path", "validate.ckpt_path"])
def test_a_checkpoint_path_that_is_no_path_is_an_error(failure, key):
    assert failure({key: 5}).endswith(f"trainer.{key} must be text, got 5")
