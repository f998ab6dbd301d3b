"""When a run stops before its last step."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.params import EarlyStopping
from cstool.run.patience import Patience


def after(values: list[float], **keys: Any) -> Patience:
    """Return the patience after evaluations every ten steps; each counts once."""
    found = Patience(EarlyStopping.model_validate({"patience": 2, **keys}))
    for number, value in enumerate(values, start=1):
        for _ in range(2):
            found.look(10 * number, {found.asked.monitor: value})
    return found


@pytest.mark.parametrize(
    ("values", "keys", "best", "best_step", "bad"),
    [
        ([3.0, 2.0, 1.0], {}, 1.0, 30, 0),
        ([3.0, 2.0, 2.0], {}, 2.0, 20, 1),
        ([3.0, 2.0, 2.5, 1.9], {}, 1.9, 40, 0),
        ([3.0, 2.0, 1.95, 1.91, 1.85], {"min_delta": 0.1}, 1.85, 50, 0),
        ([3.0, 2.0, 1.95, 1.9], {"min_delta": 0.25}, 2.0, 20, 2),
        ([0.1, 0.3, 0.2], {"monitor": "eval/accuracy"}, 0.3, 20, 1),
        ([0.1, 0.3, 0.2], {"mode": "max"}, 0.3, 20, 1),
        ([math.nan, math.nan], {}, None, 0, 2),
        ([2.0, math.nan, math.inf], {}, 2.0, 10, 2),
    ],
)
def test_the_best_is_what_nothing_was_better_than(values, keys, best, best_step, bad):
    found = after(values, **keys)
    assert (found.best, found.best_step, found.bad, found.is_over) == (best, best_step, bad, bad >= 2)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=12), st.integers(0, 12))
def test_after_an_interruption_it_goes_on_as_if_there_had_been_none(values, cut):
    found = after([])
    found.adopt(json.loads(json.dumps(after(values[:cut]).as_dict())))
    for number, value in list(enumerate(values, start=1))[cut:]:
        found.look(10 * number, {"eval/loss": value})
    assert found == after(values)


@pytest.mark.parametrize(
    "state",
    [
        *(None, 5, {}),
        *(after([2.0], **keys).as_dict() for keys in ({"monitor": "eval/accuracy"}, {"mode": "max"})),
        *(after([2.0]).as_dict() | damage for damage in ({"bad": "x"}, {"best": "x"}, {"step": True})),
    ],
)
def test_what_is_of_another_metric_or_of_none_is_not_gone_on_from(state):
    found = after([])
    found.adopt(state)
    assert found == after([])


def test_it_says_why():
    rule = "EarlyStopping: eval/loss has not improved on"
    assert after([2.0, 3.0]).reason() == f"{rule} 2.00000, that of step 10, in 1 evaluation"
    assert after([math.nan, math.nan]).reason() == f"{rule} nothing, in 2 evaluations"
