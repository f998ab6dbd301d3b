"""Every schedule against its formula written out, and at its edges."""

import math

import pytest

from tests.unit.model.params.conftest import cases, meanings, told


def linear(start: float, end: float, total_iters: int) -> dict[str, object]:
    return {"LinearLR": {"initial_learning_rate": start, "end_learning_rate": end, "total_iters": total_iters}}


@pytest.fixture
def rates(load):
    """Return the rates at some steps under one schedule."""

    def _rates(entry: dict[str, object], *steps: int) -> list[float]:
        params = load({"init.schedulers": [entry]})
        return [params.learning_rate(step) for step in steps]

    return _rates


FORMULAS = meanings("""\
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


@pytest.mark.parametrize(("entry", "expected"), FORMULAS)
def test_a_schedule_is_its_formula(rates, entry, expected):
    found = rates(entry, *map(int, expected))
    assert found == pytest.approx([*expected.values()], rel=1e-14, abs=1e-15)


def test_a_cosine_goes_over_half_a_period_and_stays(rates):
    entry = {"CosineDecayLR": {"initial_learning_rate": 1.0, "end_learning_rate": 0.0, "total_iters": 6}}
    # cos of 0, 30, 60, 90, 120, 150, 180 degrees, plus one, halved
    expected = [1.0, (1 + math.sqrt(3) / 2) / 2, 0.75, 0.5, 0.25, (1 - math.sqrt(3) / 2) / 2, 0.0, 0.0]
    assert rates(entry, *range(7), 600) == pytest.approx(expected, rel=1e-14, abs=1e-15)


def test_schedules_at_their_edges(rates):
    keys = {"initial_learning_rate": 0.3, "end_learning_rate": 0.07, "total_iters": 7}
    assert rates({"PolynomialLR": keys}, *range(12)) == rates({"LinearLR": keys}, *range(12))
    assert rates({"CosineDecayLR": keys}, 7) == [0.07]
    # Growth ends in infinity and not in a crash.
    entry = {"ExponentialLR": {"initial_learning_rate": 1.0, "total_iters": 1, "decay_rate": 10.0}}
    assert rates(entry, 5000) == [math.inf]


def test_a_sequence_starts_each_schedule_at_its_own_step_zero(rates):
    parts = [linear(0.0, 1.0, 2), linear(0.5, 0.0, 5), linear(4.0, 5.0, 2)]
    steps = (0, 1, 2, 3, 6, 7, 8, 9, 50)
    found = rates({"SequentialLR": {"schedulers": parts}}, *steps)
    assert found == pytest.approx([0.0, 0.5, 0.5, 0.4, 0.1, 4.0, 4.5, 5.0, 5.0])
    assert rates({"SequentialLR": {"schedulers": parts, "milestones": [2, 7]}}, *steps) == found


def test_milestones_part_schedules_that_have_no_total_iters(rates):
    step = {"StepLR": {"initial_learning_rate": 1.0, "step_size": 2, "gamma": 0.5}}
    assert rates({"SequentialLR": {"schedulers": [step, step], "milestones": [3]}}, 0, 2, 3, 5) == [1.0, 0.5, 1.0, 0.5]
    chain = {"ChainedScheduler": {"schedulers": [linear(1.0, 0.0, 2)]}}
    entry = {"SequentialLR": {"schedulers": [chain, linear(5.0, 5.0, 1)], "milestones": [1]}}
    assert rates(entry, 0, 1, 2) == [1, 5, 5]


def test_a_sequence_in_a_sequence_lasts_as_long_as_its_parts(rates):
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


def test_what_the_formula_does_not_depend_on_is_noted(load):
    entry = linear(0.0, 1.0, 4)
    entry["LinearLR"] |= {"alpha": 0.1, "cycle": True}
    place = "trainer.init.schedulers.0.LinearLR"
    assert {*load({"init.schedulers": [entry]}).notes} == {
        f"{place}.alpha: accepted, no effect",
        f"{place}.cycle: accepted, no effect",
    }


def test_scale_per_param_has_the_rates_and_the_length_of_the_schedule_in_it(load):
    inner = linear(1.0, 0.0, 4)
    params = load({"init.schedulers": [{"ScalePerParamLR": {"scheduler": inner}}]})
    plain = load({"init.schedulers": [inner]})
    assert [params.learning_rate(step) for step in range(6)] == [plain.learning_rate(step) for step in range(6)]
    assert params.schedulers[0].length == 4
