"""Schedules that come back, against the recurrences and definitions that PyTorch documents."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.params.sections.schedules import (
    SCHEDULES,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    OneCycleLR,
    Schedule,
)
from tests.unit.model.params.conftest import cases, told

RATES = st.floats(1e-6, 10.0)
STEPS = st.integers(1, 40)


def rates(schedule: Schedule, steps: int) -> list[float]:
    return [schedule.rate(step) for step in range(steps)]


@given(RATES, st.floats(0.0, 1e-6), STEPS)
def test_cosine_annealing_is_the_recurrence_of_pytorch(initial, eta_min, t_max):
    expected = [initial]
    for step in range(1, 100):
        if (step - 1 - t_max) % (2 * t_max) == 0:
            expected.append(expected[-1] + (initial - eta_min) * (1 - math.cos(math.pi / t_max)) / 2)
            continue
        above = 1 + math.cos(math.pi * step / t_max)
        below = 1 + math.cos(math.pi * (step - 1) / t_max)
        expected.append(above / below * (expected[-1] - eta_min) + eta_min)
    found = CosineAnnealingLR(initial_learning_rate=initial, eta_min=eta_min, T_max=t_max)
    assert rates(found, 100) == pytest.approx(expected, rel=1e-6, abs=1e-9 * initial)


def restarted(initial: float, eta_min: float, t_0: int, t_mult: int, steps: int) -> list[float]:
    """Count T_cur and T_i as PyTorch does: one step after the other."""
    found, t_cur, t_i = [], 0, t_0
    for _ in range(steps):
        found.append(eta_min + (initial - eta_min) * (1 + math.cos(math.pi * t_cur / t_i)) / 2)
        t_cur += 1
        if t_cur >= t_i:
            t_cur, t_i = t_cur - t_i, t_i * t_mult
    return found


@given(RATES, st.floats(0.0, 1.0), STEPS, st.integers(1, 4))
def test_warm_restarts_count_as_pytorch_does(initial, eta_min, t_0, t_mult):
    found = CosineAnnealingWarmRestarts(initial_learning_rate=initial, eta_min=eta_min, T_0=t_0, T_mult=t_mult)
    expected = restarted(initial, eta_min, t_0, t_mult, 200)
    assert rates(found, 200) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def cycled(base_lr: float, max_lr: float, up: int, down: int, mode: str, gamma: float, step: int) -> float:
    """PyTorch's get_lr of CyclicLR."""
    total = float(up + down)
    cycle = math.floor(1 + step / total)
    x = 1.0 + step / total - cycle
    ratio = up / total
    height = (max_lr - base_lr) * (x / ratio if x <= ratio else (x - 1) / (ratio - 1))
    scale = {"triangular": 1.0, "triangular2": 1 / 2.0 ** (cycle - 1), "exp_range": gamma**step}[mode]
    return base_lr + height * scale


@given(
    st.floats(0.0, 0.1),
    st.floats(0.1, 1.0),
    STEPS,
    STEPS | st.none(),
    st.sampled_from(["triangular", "triangular2", "exp_range"]),
    st.floats(0.9, 1.0),
)
def test_cyclic_is_the_formula_of_pytorch(base_lr, max_lr, up, down, mode, gamma):
    keys = {"base_lr": base_lr, "max_lr": max_lr, "step_size_up": up, "step_size_down": down, "mode": mode}
    expected = [cycled(base_lr, max_lr, up, down or up, mode, gamma, step) for step in range(150)]
    assert rates(CyclicLR(**keys, gamma=gamma), 150) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def one_cycle(keys: dict[str, object], step: int) -> float:
    """PyTorch's phases of OneCycleLR, with the initial rate in place of max_lr / div_factor."""
    initial, peak, steps, start = (keys[key] for key in ("initial_learning_rate", "max_lr", "total_steps", "pct_start"))
    least = initial / keys["final_div_factor"]
    if keys["three_phase"]:
        ends = [start * steps - 1, 2 * start * steps - 2, steps - 1]
        spans = [(initial, peak), (peak, initial), (initial, least)]
    else:
        ends = [start * steps - 1, steps - 1]
        spans = [(initial, peak), (peak, least)]
    begin = 0.0
    for number, (end, (low, high)) in enumerate(zip(ends, spans, strict=True)):
        if step <= end or number == len(ends) - 1:
            share = (step - begin) / (end - begin)
            if keys["anneal_strategy"] == "linear":
                return (high - low) * share + low
            return high + (low - high) / 2.0 * (math.cos(math.pi * share) + 1)
        begin = end
    raise AssertionError("the last phase takes the rest")


@given(
    RATES, RATES, st.integers(10, 60), st.floats(0.2, 0.45), st.floats(1.0, 1e4), st.booleans(),
    st.sampled_from(["cos", "linear"]),
)  # fmt: skip
def test_one_cycle_has_the_phases_of_pytorch(initial, peak, steps, start, final, three, anneal):
    keys = {"initial_learning_rate": initial, "max_lr": peak, "total_steps": steps, "pct_start": start}
    keys |= {"final_div_factor": final, "three_phase": three, "anneal_strategy": anneal}
    expected = [one_cycle(keys, step) for step in range(steps)]
    assert rates(OneCycleLR(**keys), steps) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_bounds_are_touched_exactly_and_steps_without_end_take_no_longer():
    assert CosineAnnealingWarmRestarts(initial_learning_rate=1.0, T_0=1).rate(2**31 - 1) == 1.0
    cyclic = CyclicLR(base_lr=0.1, max_lr=0.7, step_size_up=3, step_size_down=5)
    assert [cyclic.rate(step) for step in (0, 3, 8, 11, 16)] == [0.1, 0.7, 0.1, 0.7, 0.1]
    one = OneCycleLR(initial_learning_rate=0.4, max_lr=1.0, total_steps=10, final_div_factor=4.0)
    assert [one.rate(step) for step in (9, 10, 10**9)] == pytest.approx([0.1, 0.1, 0.1], rel=1e-15)


ENTRIES = [
    {"CosineAnnealingLR": {"initial_learning_rate": 1.0, "T_max": 5}},
    {"CosineAnnealingWarmRestarts": {"initial_learning_rate": 1.0, "T_0": 5, "T_mult": 2, "eta_min": 0.5}},
    {"CyclicLR": {"base_lr": 0.0, "max_lr": 1.0, "mode": "exp_range", "gamma": 0.5, "step_size_down": 7}},
    {"OneCycleLR": {"initial_learning_rate": 0.1, "max_lr": 1.0, "three_phase": True}},
    {"MultiplicativeLR": {"initial_learning_rate": 0.1, "coefficient": 0.5}},
]


@pytest.mark.parametrize("entry", [*ENTRIES, {"ChainedScheduler": {"schedulers": ENTRIES[:2]}}], ids=lambda e: [*e][0])
def test_a_schedule_is_the_same_after_it_was_written_out(load, entry):
    params = load({"init.schedulers": [entry]})
    again = load({"init.schedulers": params.resolved()["trainer"]["init"]["schedulers"]})
    assert again.schedulers == params.schedulers
    assert type(params.schedulers[0]) is SCHEDULES[next(iter(entry))]


def test_what_follows_from_other_keys_is_noted(load):
    entry = {"CyclicLR": {"base_lr": 0.0, "max_lr": 1.0, "scale_mode": "cycle", "cycle_momentum": False}}
    assert load({"init.schedulers": [entry]}).notes == (
        "trainer.init.schedulers.0.CyclicLR.scale_mode: accepted, no effect",
    )


REFUSED = cases("""\
CyclicLR: {base_lr: 1.0, max_lr: 0.5} => 15: @.CyclicLR.max_lr must be at least base_lr (1), got 0.5
CyclicLR: {base_lr: 0.0, max_lr: 0.5, mode: square} =>
    16: @.CyclicLR.mode must be triangular, triangular2 or exp_range, got 'square'
CyclicLR: {base_lr: 0.0, max_lr: 0.5, cycle_momentum: true} => 16: not supported: @.CyclicLR.cycle_momentum: true
    hint: leave it out
OneCycleLR: {initial_learning_rate: 0.1, max_lr: 1.0, cycle_momentum: true} =>
    16: not supported: @.OneCycleLR.cycle_momentum: true\nhint: leave it out
OneCycleLR: {initial_learning_rate: 0.1, max_lr: 1.0, total_steps: 10, pct_start: 0.1} =>
    17: @.OneCycleLR.pct_start must be more than one of the total_steps (10), got 0.1
OneCycleLR: {initial_learning_rate: 0.1, max_lr: 1.0, pct_start: 0.6, three_phase: true} =>
    17: @.OneCycleLR.three_phase must leave steps after twice the pct_start (0.6), got true
    hint: pct_start below 0.5 does
CosineAnnealingWarmRestarts: {initial_learning_rate: 0.1, T_0: 0, T_mult: 1.5} =>
    15: @.CosineAnnealingWarmRestarts.T_0 must be at least 1, got 0
    16: @.CosineAnnealingWarmRestarts.T_mult must be a whole number, got 1.5
""")


@pytest.mark.parametrize(("entry", "message"), REFUSED)
def test_a_schedule_that_makes_no_sense_is_an_error(failure, entry, message):
    assert failure({"init.schedulers": [entry]}) == told(message, "trainer.init.schedulers.0")
