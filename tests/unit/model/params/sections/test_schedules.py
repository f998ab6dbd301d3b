"""Every schedule against its formula written out, and at its edges; those that come back, against PyTorch's."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.params.sections import schedules
from tests.unit.model.params.conftest import cases, each_meaning, each_message, told


def linear(start: float, end: float, total_iters: int) -> dict[str, object]:
    return {"LinearLR": {"initial_learning_rate": start, "end_learning_rate": end, "total_iters": total_iters}}


@pytest.fixture
def rates(load):
    """Return the rates at some steps under one schedule."""

    def _rates(entry: dict[str, object], *steps: int) -> list[float]:
        params = load({"init.schedulers": [entry]})
        return [params.learning_rate(step) for step in steps]

    return _rates


@each_meaning("""\
ConstantLR: {learning_rate: 0.3, total_iters: 5} => {0: 0.3, 4: 0.3, 5: 0.3, 1000000000: 0.3}
constantlr: {learning_rate: 0.3} => {0: 0.3}
LinearLR: {initial_learning_rate: 0.0, end_learning_rate: 1.0, total_iters: 4} =>
    {0: 0.0, 1: 0.25, 2: 0.5, 3: 0.75, 4: 1.0, 1000: 1.0}
LinearLR: {initial_learning_rate: 1.0, end_learning_rate: 0.5, total_iters: 2} => {0: 1.0, 1: 0.75, 2: 0.5, 3: 0.5}
PolynomialLR: {initial_learning_rate: 1.0, end_learning_rate: 0.2, total_iters: 4, power: 2} =>
    {0: 1.0, 1: 0.65, 2: 0.4, 3: 0.25, 4: 0.2, 5: 0.2}
ExponentialLR: {initial_learning_rate: 8.0, total_iters: 2, decay_rate: 0.25} => {0: 8.0, 1: 4.0, 2: 2.0, 4: 0.5}
ExponentialLR: {initial_learning_rate: 8.0, total_iters: 2, decay_rate: 0.25, staircase: true} =>
    {0: 8.0, 1: 8.0, 2: 2.0, 3: 2.0, 4: 0.5}
InverseExponentialTimeDecayLR: {initial_learning_rate: 1.0, total_iters: 4, decay_rate: 1.0, step_exponent: 2} =>
    {0: 1.0, 1: 0.8, 2: 0.5, 4: 0.2, 6: 0.1}
InverseExponentialTimeDecayLR: {initial_learning_rate: 1.0, total_iters: 4, decay_rate: 0.6, step_exponent: 1,
    staircase: true} => {0: 1.0, 3: 1.0, 4: 0.625, 7: 0.625, 10: 0.45454545454545453}
InverseSquareRootDecayLR: {initial_learning_rate: 3.0, scale: 2.0, warmup_steps: 4} => {0: 3.0, 4: 3.0, 9: 2.0, 16: 1.5}
StepLR: {initial_learning_rate: 8.0, step_size: 3, gamma: 0.5} => {0: 8.0, 2: 8.0, 3: 4.0, 5: 4.0, 6: 2.0}
MultiStepLR: {initial_learning_rate: 8.0, gamma: 0.5, milestones: [2, 5]} =>
    {0: 8.0, 1: 8.0, 2: 4.0, 4: 4.0, 5: 2.0, 99: 2.0}
PiecewiseConstantLR: {learning_rates: [0.1, 0.01, 0.001], milestones: [10, 30]} =>
    {0: 0.1, 9: 0.1, 10: 0.01, 29: 0.01, 30: 0.001, 99: 0.001}
MultiplicativeLR: {initial_learning_rate: 2.0, coefficient: 0.5} => {0: 2.0, 1: 1.0, 2: 0.5, 3: 0.25}
""")
def test_a_schedule_is_its_formula(rates, written, expected):
    found = rates(written, *map(int, expected))
    assert found == pytest.approx([*expected.values()], rel=1e-14, abs=1e-15)


def test_schedules_at_their_edges(rates):
    entry = {"CosineDecayLR": {"initial_learning_rate": 1.0, "end_learning_rate": 0.0, "total_iters": 6}}
    # cos of 0, 30, 60, 90, 120, 150, 180 degrees, plus one, halved
    expected = [1.0, (1 + math.sqrt(3) / 2) / 2, 0.75, 0.5, 0.25, (1 - math.sqrt(3) / 2) / 2, 0.0, 0.0]
    assert rates(entry, *range(7), 600) == pytest.approx(expected, rel=1e-14, abs=1e-15)
    keys = {"initial_learning_rate": 0.3, "end_learning_rate": 0.07, "total_iters": 7}
    assert rates({"PolynomialLR": keys}, *range(12)) == rates({"LinearLR": keys}, *range(12))
    assert rates({"CosineDecayLR": keys}, 7) == [0.07]
    # Growth ends in infinity and not in a crash.
    entry = {"ExponentialLR": {"initial_learning_rate": 1.0, "total_iters": 1, "decay_rate": 10.0}}
    assert rates(entry, 5000) == [math.inf]


def test_a_sequence_starts_each_at_its_own_step_zero_and_lasts_as_long_as_its_parts_or_milestones_say(rates):
    parts = [linear(0.0, 1.0, 2), linear(0.5, 0.0, 5), linear(4.0, 5.0, 2)]
    steps = (0, 1, 2, 3, 6, 7, 8, 9, 50)
    found = rates({"SequentialLR": {"schedulers": parts}}, *steps)
    assert found == pytest.approx([0.0, 0.5, 0.5, 0.4, 0.1, 4.0, 4.5, 5.0, 5.0])
    assert rates({"SequentialLR": {"schedulers": parts, "milestones": [2, 7]}}, *steps) == found
    step = {"StepLR": {"initial_learning_rate": 1.0, "step_size": 2, "gamma": 0.5}}
    assert rates({"SequentialLR": {"schedulers": [step, step], "milestones": [3]}}, 0, 2, 3, 5) == [1.0, 0.5, 1.0, 0.5]
    chain = {"ChainedScheduler": {"schedulers": [linear(1.0, 0.0, 2)]}}
    entry = {"SequentialLR": {"schedulers": [chain, linear(5.0, 5.0, 1)], "milestones": [1]}}
    assert rates(entry, 0, 1, 2) == [1, 5, 5]
    inner = {"SequentialLR": {"schedulers": [linear(0.0, 1.0, 2), linear(1.0, 0.0, 2)]}}
    assert rates({"SequentialLR": {"schedulers": [inner, linear(7.0, 7.0, 1)]}}, 0, 1, 2, 3, 4) == [0, 0.5, 1, 0.5, 7]


def test_chained_schedules_multiply_what_each_makes_of_its_initial_rate(rates):
    halves = {"MultiplicativeLR": {"initial_learning_rate": 4.0, "coefficient": 0.5}}
    parts = [linear(0.0, 1.0, 4), halves, {"StepLR": {"initial_learning_rate": 0.3, "step_size": 2, "gamma": 0.1}}]
    expected = [step / 4 * 0.5**step * 0.1 ** (step // 2) for step in range(4)]
    assert rates({"ChainedScheduler": {"schedulers": parts}}, *range(4)) == pytest.approx(expected, rel=1e-15)


NAMES = (
    "ConstantLR, LinearLR, CosineDecayLR, ExponentialLR, InverseExponentialTimeDecayLR, InverseSquareRootDecayLR, "
    "PolynomialLR, PiecewiseConstantLR, StepLR, MultiStepLR, MultiplicativeLR, CosineAnnealingLR, "
    "CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR, SequentialLR, ChainedScheduler, ScalePerParamLR"
)
CASES = cases(
    """\
SequentialLR: {schedulers: [UP, DOWN], milestones: [3]} =>
    23: @.SequentialLR.milestones must be [2], the running sums of total_iters, got [3]\nhint: leave milestones out
SequentialLR: {schedulers: [UP], milestones: [3]} =>
    19: @.SequentialLR.milestones must hold 0, one less than schedulers, got [3]
SequentialLR: {schedulers: [{ConstantLR: {learning_rate: 1.0}}, DOWN]} =>
    13: @.SequentialLR needs milestones, because ConstantLR has no total_iters
SequentialLR: {schedulers: []} => 14: @.SequentialLR.schedulers must hold at least 1, got []
SequentialLR: {schedulers: 5, milestones: []} => 14: @.SequentialLR.schedulers must be a list, got 5
PiecewiseConstantLR: {learning_rates: [0.1], milestones: [3]} =>
    16: @.PiecewiseConstantLR.milestones must hold 0, one less than learning_rates, got [3]
MultiStepLR: {initial_learning_rate: 1.0, gamma: 0.5, milestones: [5, 5]} =>
    16: @.MultiStepLR.milestones must increase, got [5, 5]
LinearLR: {initial_learning_rate: 0.0, end_learning_rate: -1.0, total_iters: 0} =>
    15: @.LinearLR.end_learning_rate must be at least 0, got -1.0
    16: @.LinearLR.total_iters must be at least 1, got 0
CosineDecayLR: {initial_learning_rate: 1.0, end_learning_rate: 0.0} => 13: @.CosineDecayLR.total_iters is missing
LinearLr2: {} => 13: @.LinearLr2 is not a known name\nhint: did you mean LinearLR?
LambdaLR: {initial_learning_rate: 1.0} => 13: not supported: @.LambdaLR
    hint: its rates come from a function in Python: PiecewiseConstantLR and SequentialLR take numbers alone
ChainedScheduler: {schedulers: [UP, {ConstantLR: {learning_rate: 1.0}}]} =>
    14: @.ChainedScheduler.schedulers NEEDS_A_RATE, ConstantLR has none\nhint: COUNTS
ChainedScheduler: {schedulers: [UP, UP]} =>
    14: @.ChainedScheduler.schedulers NEEDS_A_RATE, LinearLR has none\nhint: COUNTS
ChainedScheduler: {schedulers: []} => 14: @.ChainedScheduler.schedulers must hold at least 1, got []
ScalePerParamLR: {scheduler: {ConstantLR: {learning_rate: -1}}} =>
    16: @.ScalePerParamLR.scheduler.ConstantLR.learning_rate must be at least 0, got -1
ScalePerParamLR: null => 13: @.ScalePerParamLR.scheduler is missing
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
Warp: {} => 13: @.Warp is not a known name\nhint: the names are NAMES
LinearLR => 13: @ must be a mapping with one name, got 'LinearLR'\nhint: the names are NAMES
""".replace("UP", "{LinearLR: {initial_learning_rate: 0, end_learning_rate: 1, total_iters: 2}}").replace(
        "DOWN", "{LinearLR: {initial_learning_rate: 1, end_learning_rate: 0, total_iters: 5}}"
    )
)
WORDS = {
    "NAMES": NAMES,
    "NEEDS_A_RATE": "needs an initial_learning_rate above 0 in every schedule after the first",
    "COUNTS": "what counts of these is the rate over the initial one",
}


@pytest.mark.parametrize(("entry", "message"), CASES)
def test_a_schedule_that_makes_no_sense_is_an_error(failure, entry, message):
    assert failure({"init.schedulers": [entry]}) == told(message, "trainer.init.schedulers.0", **WORDS)


def test_two_schedules_side_by_side_are_an_error(failure):
    entry = {"ConstantLR": {"learning_rate": 1.0}}
    assert failure({"init.schedulers": [entry, entry]}) == (
        "x.yaml:12: trainer.init.schedulers must hold one entry, got 2\nhint: put them below one SequentialLR"
    )


@each_message("""\
LinearLR: {initial_learning_rate: 0.0, end_learning_rate: 1.0, total_iters: 4, alpha: 0.1, cycle: true} => alpha cycle
CyclicLR: {base_lr: 0.0, max_lr: 1.0, scale_mode: cycle, cycle_momentum: false} => scale_mode
""")
def test_what_the_formula_does_not_depend_on_is_noted(load, written, message):
    [name] = written
    noted = {f"trainer.init.schedulers.0.{name}.{key}: accepted, no effect" for key in message.split()}
    assert {*load({"init.schedulers": [written]}).notes} == noted


def test_scale_per_param_has_the_rates_and_the_length_of_the_schedule_in_it(load):
    inner = linear(1.0, 0.0, 4)
    params = load({"init.schedulers": [{"ScalePerParamLR": {"scheduler": inner}}]})
    plain = load({"init.schedulers": [inner]})
    assert [params.learning_rate(step) for step in range(6)] == [plain.learning_rate(step) for step in range(6)]
    assert params.schedulers[0].length == 4


# Schedules that come back, against the recurrences and definitions that PyTorch documents.
RATES = st.floats(1e-6, 10.0)
STEPS = st.integers(1, 40)


def first_rates(schedule: schedules.Schedule, steps: int) -> list[float]:
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
    found = schedules.CosineAnnealingLR(initial_learning_rate=initial, eta_min=eta_min, T_max=t_max)
    assert first_rates(found, 100) == pytest.approx(expected, rel=1e-6, abs=1e-9 * initial)


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
    found = schedules.CosineAnnealingWarmRestarts(
        initial_learning_rate=initial, eta_min=eta_min, T_0=t_0, T_mult=t_mult
    )
    expected = restarted(initial, eta_min, t_0, t_mult, 200)
    assert first_rates(found, 200) == pytest.approx(expected, rel=1e-12, abs=1e-15)


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
    assert first_rates(schedules.CyclicLR(**keys, gamma=gamma), 150) == pytest.approx(expected, rel=1e-9, abs=1e-12)


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
    assert first_rates(schedules.OneCycleLR(**keys), steps) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_bounds_are_touched_exactly_and_steps_without_end_take_no_longer():
    assert schedules.CosineAnnealingWarmRestarts(initial_learning_rate=1.0, T_0=1).rate(2**31 - 1) == 1.0
    cyclic = schedules.CyclicLR(base_lr=0.1, max_lr=0.7, step_size_up=3, step_size_down=5)
    assert [cyclic.rate(step) for step in (0, 3, 8, 11, 16)] == [0.1, 0.7, 0.1, 0.7, 0.1]
    one = schedules.OneCycleLR(initial_learning_rate=0.4, max_lr=1.0, total_steps=10, final_div_factor=4.0)
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
    assert type(params.schedulers[0]) is schedules.SCHEDULES[next(iter(entry))]
