"""The command line changes any key of a file, and errors name what was typed."""

from pathlib import Path

import pytest

from tests.unit.model.params.conftest import each_message

NUM_CSX = "trainer.init.backend.cluster_config.num_csx"
LINEAR = {"LinearLR": {"initial_learning_rate": 0.0, "end_learning_rate": 1.0, "total_iters": 10}}
MAX_STEPS = "trainer.init.loop.max_steps"


def test_what_is_typed_wins_over_the_file_the_later_and_a_flag_over_all_which_may_hold_a_path(load, folder):
    sets = [f"{MAX_STEPS}=20", f"{MAX_STEPS}=30"]
    for overrides, flags, steps in ((sets[:1], {}, 20), (sets, {}, 30), (sets, {MAX_STEPS: ("--max_steps", 40)}, 40)):
        for content in ({}, {"init.loop": {"max_steps": "many"}}):
            assert load(content, overrides=overrides, flags=flags).loop.max_steps == steps
    assert load({}, flags={"trainer.init.model_dir": ("--model_dir", Path("run"))}).model_dir == folder / "run"


@pytest.mark.parametrize("content", [{}, {"init.backend": None}])
def test_set_makes_the_mappings_that_are_missing_or_null(load, content):
    assert load(content, overrides=[f"{NUM_CSX}=4"]).num_csx == 4


def test_the_value_of_set_is_yaml_and_a_number_in_the_key_the_index_of_a_list(load):
    overrides = ["trainer.init.optimizer={SGD: {learning_rate: 1e-2, momentum: 0.9}}", "trainer.init.model_dir=a=b"]
    params = load({"init.seed": 7}, overrides=[*overrides, "trainer.init.seed="])
    optimizer = params.optimizer
    assert (type(optimizer).__name__, optimizer.learning_rate, optimizer.momentum) == ("SGD", 0.01, 0.9)
    assert (params.model_dir.name, params.seed) == ("a=b", 1)
    overrides = ["trainer.init.schedulers.0.LinearLR.total_iters=5"]
    assert load({"init.schedulers": [LINEAR]}, overrides=overrides).learning_rate(5) == 1.0


def test_a_typed_length_replaces_the_lengths_of_the_file(load):
    lengths = {"num_steps": 1, "max_steps": 2, "num_epochs": 3}
    for typed in lengths:
        loop = load({"init.loop": lengths}, overrides=[f"trainer.init.loop.{typed}=9"]).loop
        assert {name: getattr(loop, name) for name in lengths} == {**dict.fromkeys(lengths), typed: 9}


@each_message("""\
trainer.init.loop.max_stepz=20 => is not a known key\nhint: did you mean max_steps?
trainer.init.loop.max_steps=0 => must be at least 1, got 0
trainer.init.foo.bar=3 => trainer.init.foo is not a known key
seed=3 => is not a known key\nhint: all keys stand below trainer
runconfig.max_steps=3 => runconfig is not a known key\nhint: all keys stand below trainer
triner.init.seed=3 => triner is not a known key\nhint: did you mean trainer?
'trainer.init.loop={max_steps: 0}' => trainer.init.loop.max_steps must be at least 1, got 0
trainer.init.backend=5 => must be a mapping, got 5
trainer.init.model.memory_tokens=8 => not supported: trainer.init.model.memory_tokens: 8\nhint: leave it out
trainer.init.loop => must be KEY=VALUE\nhint: for example --set trainer.init.loop.max_steps=20
=3 => must be KEY=VALUE\nhint: for example --set trainer.init.loop.max_steps=20
a..b=3 => must be KEY=VALUE\nhint: for example --set trainer.init.loop.max_steps=20
trainer.init.seed=[1 => not valid YAML: while parsing a flow sequence expected ',' or ']', but got '<stream end>'
trainer.init.loop.max_steps.x=3 => trainer.init.loop.max_steps must be a mapping to hold 'x'
trainer.init.schedulers.1.LinearLR.total_iters=3 =>
    trainer.init.schedulers is a list of 1, so a number below that must follow, got '1'
trainer.init.schedulers.LinearLR=3 =>
    trainer.init.schedulers is a list of 1, so a number below that must follow, got 'LinearLR'
""")
def test_an_error_names_the_override_as_typed(failure, written, message):
    assert failure({"init.schedulers": [LINEAR]}, overrides=[written]) == f"--set {written}: {message}"


def test_errors_of_the_command_line_follow_those_of_the_file_in_the_order_of_typing_and_name_the_flag(failure):
    overrides = ["trainer.init.seed=-1", "trainer.init.loop.max_steps=0"]
    assert failure({"init.logging": {"log_steps": 0}}, overrides=overrides) == (
        "x.yaml:13: trainer.init.logging.log_steps must be at least 1, got 0\n"
        "--set trainer.init.seed=-1: must be at least 0, got -1\n"
        "--set trainer.init.loop.max_steps=0: must be at least 1, got 0"
    )
    assert failure({}, flags={NUM_CSX: ("--num_csx", 0)}) == "--num_csx: must be at least 1, got 0"
