"""A learning rate that suits the other way to fine-tune is warned of, once, and never in training from scratch."""

from dataclasses import replace
from pathlib import Path

import pytest

from cstool.model.params.sections.tuning import parse_tuning
from cstool.training.run.checkpoints import save
from cstool.training.run.rates import unusual_rate
from tests.unit.training.run.sessions import Digits, params_of, restored, session
from tests.unit.training.run.test_train import go

BASE = Path("base.mdl")
LOW = (
    "The learning rate is at most 1e-05, as for all weights: adapters hardly learn below 2e-05, some ten times the "
    "rate of all weights, such as 2e-4, is usual for them."
)
HIGH = (
    "The learning rate is up to 0.003, and all weights of base.mdl are trained: above 0.001 a model forgets what it "
    "has learned, 1e-6 to 1e-4 is usual for all weights, more is for adapters."
)
WARMS_UP = [{"LinearLR": {"initial_learning_rate": 0.0, "end_learning_rate": 0.003, "total_iters": 10}}]


@pytest.mark.parametrize(
    ("rate", "adapters", "warning"),
    [
        (1e-5, "rank=2,layers=all", LOW),
        (2e-4, "rank=2,layers=all", None),
        (3e-3, "rank=2,layers=all", None),
        (1e-5, None, None),
        (3e-3, None, HIGH),
    ],
)
def test_what_suits_all_weights_does_not_suit_adapters_nor_the_other_way_round(tmp_path, rate, adapters, warning):
    params = params_of(tmp_path, optimizer={"AdamW": {"learning_rate": rate}})
    assert unusual_rate(replace(params, tuning=parse_tuning(None, adapters)), BASE, 20) == warning


def test_the_highest_rate_of_the_steps_of_a_run_counts(tmp_path):
    params = params_of(tmp_path, optimizer={"AdamW": {}}, schedulers=WARMS_UP)
    assert [unusual_rate(params, BASE, steps) for steps in (3, 20)] == [None, HIGH]


def test_rates_of_other_rules_and_of_some_weights_are_left_alone(tmp_path):
    params = params_of(tmp_path, optimizer={"SGD": {"learning_rate": 0.5, "momentum": 0.9}})
    assert unusual_rate(params, BASE, 20) is None
    params = params_of(tmp_path, optimizer={"AdamW": {"learning_rate": 0.5}})
    assert unusual_rate(replace(params, tuning=parse_tuning("*bias*", None)), BASE, 20) is None


@pytest.mark.parametrize("is_base", [True, False])
def test_a_run_that_begins_with_the_weights_of_another_is_told_once(tmp_path, caplog, is_base):
    with session(tmp_path, optimizer={"AdamW": {"learning_rate": 3e-3}}, loop={"max_steps": 2}) as found:
        save(found)
        path, found.saved_step = Path(found.checkpoints[-1]), None
        restored(found, path if is_base else None, "model" if is_base else "all", strict=True)
        go(found, Digits(), None)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ([HIGH.replace("base.mdl", str(path))] if is_base else [])
