"""The scale of the loss: its schedule, what it leaves as it is, and steps that are skipped."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import NonFiniteError
from cstool.model.ir import _graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import SGD, Adam, AdamW, LossScaling
from cstool.model.params.sections.optimizers import Adafactor
from cstool.training.machine.loss_scale import LossScale
from cstool.training.machine.memoryx.sparse_weights import SparsityRules
from cstool.training.store import FileStore
from tests.models import decoder, fc_mnist
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.machines import array_of, machine, random_batch

BATCH = 12
TIED = decoder(layers=1, dropout=0.1)
LINEAR = "transformer_decoder.layers.0.ffn.ffn.0.linear_layer.weight"
ADAMW = AdamW(weight_decay=0.1)
TOO_LARGE = LossScaling(2.0**132, 1.0, 2.0**132)
"""overflows for three or four steps"""


def powers(low: int, high: int) -> st.SearchStrategy[float]:
    return st.integers(low, high).map(lambda exponent: 2.0**exponent)


@given(
    powers(-3, 3),
    st.lists(powers(-3, 3), min_size=2, max_size=2),
    st.integers(1, 4),
    st.text("+-", max_size=40),
    st.integers(0, 40),
)
def test_the_schedule_is_that_of_its_slow_twin_wherever_it_is_interrupted(
    initial, limits, steps_per_increase, steps, cut
):
    least, most = min(*limits, initial), max(*limits, initial)
    asked = LossScaling(initial, least, most, steps_per_increase)
    scale = LossScale(asked)
    for number, step in enumerate(steps):
        if number == cut:
            saved, scale = scale.saved, LossScale(asked)
            scale.adopt(saved)
        scale.finish_step(is_skipped=step == "-")
    expected = initial
    for found in re.findall(rf"-|\+{{{steps_per_increase}}}|\+", steps):
        if found == "-":
            expected = max(expected / 2, least)
        elif len(found) == steps_per_increase:
            expected = min(expected * 2, most)
    assert (scale.value, scale.skipped) == (expected, steps.count("-"))


def test_another_run_keeps_its_own_limits_and_what_was_skipped():
    begun = LossScale(LossScaling(8.0, 1.0, 8.0, 3))
    begun.finish_step(is_skipped=True)
    found = {}
    for name, asked in {
        "no lower": LossScaling(16.0, 6.0, 16.0),
        "no higher": LossScaling(2.0, 1.0, 2.0),
        "static": LossScaling(3.0),
    }.items():
        scale = LossScale(asked)
        scale.adopt(begun.saved)
        found[name] = (scale.value, scale.skipped, scale.saved is not None)
    assert found == {"no lower": (6.0, 1, True), "no higher": (2.0, 1, True), "static": (3.0, 1, True)}
    assert LossScale(LossScaling(3.0)).saved is None


def run(graph, scaling, optimizer=ADAMW, first=1, last=6, **more):
    """Train from a step to a step, those before it skipped; the norms, all arrays, and the appliance."""
    more |= {} if scaling is None else {"loss_scaling": scaling}
    with machine(graph, BATCH, optimizer=make_optimizer(optimizer, None), **more) as appliance:
        appliance.loss_scale.skipped = first - 1
        norms = []
        for step in range(first, last + 1):
            batch = random_batch(graph, BATCH, seed=step)
            norms.append(appliance.train_step(batch, step, 0.01).gradient_norm)
            if appliance.memoryx.arrays.file is not None:
                appliance.memoryx.commit(lambda step=step: {"global_step": step})
        return norms, {name: array_of(appliance, name) for name in appliance.memoryx.arrays.names}, appliance


@pytest.mark.parametrize(
    ("scaling", "precision", "limit"),
    [
        (LossScaling(2.0**10), "float32", 0.5),
        (LossScaling(2.0**-5), "bfloat16", None),
        (LossScaling(2.0**15, 2.0**-14, 2.0**31, 2), "float32", None),
        (LossScaling(2.0**15, 2.0**-14, 2.0**31, 2), "bfloat16", 0.5),
    ],
    ids=str,
)
def test_a_power_of_two_changes_no_bit(precision, limit, scaling):
    more = {"precision": precision, "max_gradient_norm": limit, "last": 5}
    expected_norms, expected, _ = run(TIED, None, **more)
    norms, found, _ = run(TIED, scaling, **more)
    np.testing.assert_equal(found, expected)
    assert norms == expected_norms or (limit is None and scaling.is_dynamic and all(map(math.isfinite, norms)))


def test_any_other_number_changes_what_it_rounds():
    _, expected, _ = run(fc_mnist(), None, SGD(momentum=0.9), last=3)
    _, found, _ = run(fc_mnist(), LossScaling(3.0), SGD(momentum=0.9), last=3)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)
    assert any((found[name] != expected[name]).any() for name in expected)


RIGL = SparsityRules({LINEAR: group(0.5, algorithm="rigl", update={"freq": 1})}, 3)
VARIANTS = {
    "AdamW": {},
    "Adam of PyTorch": {"optimizer": Adam(form="pytorch")},
    "momentum": {"optimizer": SGD(momentum=0.9, dampening=0.5, form="pytorch")},
    "Adafactor": {"optimizer": Adafactor(weight_decay=0.1)},
    "clipped": {"max_gradient_norm": 0.5},
    "rigl": {"sparsity": RIGL},
    "rigl, clipped": {"sparsity": RIGL, "max_gradient_norm": 0.5},
    "2 CSX, 2 lanes": {"num_csx": 2, "lanes": 2},
    "bfloat16": {"precision": "bfloat16"},
    "recomputed": {"recompute": "always"},
}


@pytest.mark.parametrize(("variant", "in_file"), [(name, number % 2 == 0) for number, name in enumerate(VARIANTS)])
def test_skipped_steps_change_nothing_but_the_scale(tmp_path: Path, monkeypatch, variant, in_file):
    """What follows is what a run has that begins there, with the scale that was found."""
    monkeypatch.setattr(_graph, "PANEL_BYTES", 3 * 4 * 8)
    more = dict(VARIANTS[variant])

    def store(name: str) -> dict[str, Any]:
        return {"store": FileStore(tmp_path / name, 2**13), "waiting_bytes": 2**16} if in_file else {}

    norms, found, appliance = run(TIED, TOO_LARGE, **more, **store("found.h5"))
    skipped, scale = appliance.loss_scale.skipped, appliance.loss_scale.value
    assert 2 < skipped < 5
    assert scale == TOO_LARGE.initial / 2**skipped
    assert [norm is not None and math.isfinite(norm) for norm in norms] == [step >= skipped for step in range(6)]
    later, expected, _ = run(TIED, LossScaling(scale, 1.0, scale), first=skipped + 1, **more, **store("expected.h5"))
    assert norms[skipped:] == later
    np.testing.assert_equal(found, expected)


def test_the_norms_that_are_looked_at_are_those_without_the_scale():
    found = []
    for scaling in (LossScaling(), LossScaling(2.0**10), LossScaling(2.0**10, 1.0, 2.0**10)):
        with machine(TIED, BATCH, optimizer=make_optimizer(ADAMW, None), loss_scaling=scaling) as appliance:
            appliance.memoryx.statistics.with_norms = True
            appliance.memoryx.statistics.begin_step(looks=True)
            appliance.train_step(random_batch(TIED, BATCH), 1, 0.01)
            found.append(appliance.memoryx.statistics.norms())
    assert found[0]
    assert found == [found[0]] * 3


@pytest.mark.parametrize("limit", [None, 1.0])
def test_at_the_smallest_scale_the_run_stops(limit):
    weight = "last_layer.bias"
    with pytest.raises(NonFiniteError) as failure:
        run(fc_mnist(), LossScaling(2.0**200, 2.0**198, 2.0**200), max_gradient_norm=limit)
    first, hint = str(failure.value).split("\n")
    assert re.sub(r"that of \S+ with", f"that of {weight} with", first) == (
        "step 3: Minimum loss scale threshold was reached but gradient norms are still encountering NaN or inf values, "
        f"that of {weight} with a loss scale of 4.01735e+59"
    )
    assert hint == "hint: check the hyperparameters, the learning rate first, and the input data"
    assert failure.value.exit_code == 1


def test_with_a_scale_that_stays_a_gradient_that_is_not_finite_is_an_error():
    with pytest.raises(NonFiniteError, match=r"^step 1: the gradient of \S+ is not finite"):
        run(fc_mnist(), LossScaling(2.0**200), max_gradient_norm=1.0)
