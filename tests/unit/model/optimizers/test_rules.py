"""The optimizers of the params: which state they keep, and their updates against a slow twin."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.optimizers import (
    Step,
    WholeOptimizer,
    costed_optimizer,
    forms,
    make_optimizer,
    state_numbers,
    state_share,
    whole_arrays,
)
from cstool.model.params import SGD, Adam, AdamW
from cstool.model.params.sections.optimizers import OPTIMIZERS, Adafactor, Lion
from cstool.model.params.sections.optimizers import Optimizer as Settings
from cstool.plan.compiler.chain import Chain
from cstool.plan.compiler.compile import KERNEL_PASSES
from cstool.plan.timing.wafer import schedule_of
from tests.examples import examples
from tests.models import fc_mnist
from tests.reference import kernels as reference
from tests.unit.model.ir.artifacts import streaming_artifact
from tests.unit.plan.compiler.programs import a_request, compiled

TOLERANCE = 1e-6
"""relative; some ten operations of 6e-8 each"""
FORMS = ("vendor", "pytorch")


def train(params: Settings, *, steps: int = 3, clip=None, scale=1.0, decays: bool = True, shape=(50,)):
    """Return the weight before, its gradients, and the weight after `steps` updates."""
    rng = np.random.default_rng(0)
    before = rng.standard_normal(shape).astype(np.float32)
    gradients = [rng.standard_normal(shape).astype(np.float32) for _ in range(steps)]
    optimizer = make_optimizer(params, clip)
    after, states = before.copy(), [np.zeros(found, np.float32) for found in optimizer.states(shape).values()]
    for number, gradient in enumerate(gradients, start=1):
        optimizer.update(after, gradient.copy(), states, Step(number, 0.01, scale), decays)
    return before.astype(np.float64), [gradient.astype(np.float64) for gradient in gradients], after


def twin(params: Settings, before, gradients):
    """Return the weight after updates by the slow twin, at a learning rate of 0.01."""
    match params:
        case SGD():
            how = (params.momentum, params.dampening, params.nesterov, params.weight_decay, params.form)
            return reference.sgd(before, gradients, 0.01, *how)
        case Adam():
            how = (params.betas, params.eps, params.weight_decay, isinstance(params, AdamW), params.form)
            return reference.adam(before, gradients, 0.01, *how)
        case Lion():
            return reference.lion(before, gradients, 0.01, params.betas, params.weight_decay)
        case Adafactor():
            how = {"eps": params.eps, "rate": params.decay_rate, "scales": params.scale_parameter}
            return reference.adafactor(before, gradients, 0.01, params.weight_decay, **how)


def assert_same(params: Settings, after, expected) -> None:
    tolerance = 5 * TOLERANCE if isinstance(params, Adafactor) else TOLERANCE
    np.testing.assert_allclose(after, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("params", "states", "told"),
    [
        (SGD(), {}, ("SGD", "0", 3)),
        (SGD(momentum=0.9), {"momentum_buffer": (4, 5)}, ("SGD with momentum", "1", 5)),
        (Adam(), {"exp_avg": (4, 5), "exp_avg_sq": (4, 5)}, ("Adam", "2", 12)),
        (AdamW(), {"exp_avg": (4, 5), "exp_avg_sq": (4, 5)}, ("Adam", "2", 12)),
        (Lion(), {"exp_avg": (4, 5)}, ("Lion", "1, of Lion", 8)),
        (Adafactor(), {"exp_avg_sq_row": (4,), "exp_avg_sq_col": (5,)}, ("Adafactor", "factored", 12)),
    ],
)
def test_state_and_costs(params, states, told):
    optimizer, whole = make_optimizer(params, None), list(states.values()).count((4, 5))
    assert optimizer.states((4, 5)) == states
    assert (optimizer.name, optimizer.artifact_key, optimizer.update_ops) == told
    assert whole_arrays(optimizer) == whole
    numbers = sum(map(math.prod, states.values()))
    kept = numbers - 13 * whole
    assert (state_numbers(optimizer, (4, 5)), state_numbers(optimizer, (4, 5), 7)) == (numbers, kept)
    if whole == len(states):
        assert state_share(optimizer, fc_mnist()) == whole


def test_what_costs_differently_has_a_name_of_its_own():
    names = [optimizer.name for optimizer in forms()]
    assert names == ["SGD", "SGD with momentum", "Adam", "Lion", "Adafactor"]
    assert {make_optimizer(section.model_validate({}), None).name for section in OPTIMIZERS.values()} < set(names)
    assert make_optimizer(Adafactor(), None).states((5,)) == {"exp_avg_sq": (5,)}
    assert (state_numbers(None, (4, 5)), costed_optimizer(None).name, costed_optimizer(Lion()).name) == (
        0,
        "SGD",
        "Lion",
    )


@pytest.mark.parametrize("optimizer", [*forms()][:-1], ids=lambda optimizer: optimizer.name)
@examples(30)
@given(cuts=st.lists(st.integers(0, 1000), max_size=6), seed=st.integers(0, 99))
def test_any_cut_gives_the_same_bits(optimizer, cuts, seed):
    rng = np.random.default_rng(seed)
    weight, gradient, *states = rng.standard_normal((2 + whole_arrays(optimizer), 1000), np.float32)
    states, edges, arrays = [abs(state) for state in states], [0, *sorted(cuts), 1000], []
    for parts in ([slice(0, 1000)], [slice(*pair) for pair in itertools.pairwise(edges)]):
        arrays.append([array.copy() for array in (weight, *states)])
        for part in parts:
            tiles = [array[part] for array in arrays[-1]]
            optimizer.update(tiles[0], gradient[part], tiles[1:], Step(3, 0.1, 0.3), True)
    np.testing.assert_array_equal(*arrays)


@pytest.mark.parametrize("section", OPTIMIZERS.values())
@pytest.mark.parametrize("form", FORMS)
def test_steps_that_were_skipped_made_no_update(section, form):
    keys = {"momentum": 0.9} if section is SGD else {}
    optimizer = make_optimizer(section.model_validate({**keys, "form": form}), None)
    found = []
    for step in (Step(1, 0.1, 1.0), Step(5, 0.1, 1.0, skipped=4), Step(2, 0.1, 1.0)):
        weight, gradient = np.ones((2, 8), np.float32)
        states = [np.full(shape, 0.5, np.float32) for shape in optimizer.states(weight.shape).values()]
        optimizer.update(weight, gradient, states, step, True)
        found.append([weight.tolist(), *(state.tolist() for state in states)])
    assert found[0] == found[1]
    sees_the_number = issubclass(section, Adam | Adafactor) or (section, form) == (SGD, "pytorch")
    assert (found[0] != found[2]) == sees_the_number


@pytest.mark.parametrize("clip", [0.4, None])
@pytest.mark.parametrize(
    ("section", "shape"), [*((section, (1000,)) for section in OPTIMIZERS.values()), (Adafactor, (7, 300))]
)
def test_nan_in_a_gradient_comes_out_in_the_weight(section, clip, shape):
    """There alone, but of Adafactor, whose steps depend on all of a gradient."""
    optimizer = make_optimizer(section.model_validate({}), clip)
    weight, gradient = np.zeros((2, *shape), np.float32)
    gradient[5] = np.nan
    states = [np.zeros(found, np.float32) for found in optimizer.states(shape).values()]
    optimizer.update(weight, gradient, states, Step(1, 0.1, 1.0), True)
    assert np.isnan(weight[5]).all()
    assert section is Adafactor or np.isfinite(np.delete(weight, 5, axis=0)).all()


SHAPES = ((50,), (7, 300), (30, 20), (1, 9), (9, 1))
SGDS = ({}, {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.5}, {"momentum": 0.9, "nesterov": True})
ADAFACTORS = ({}, {"weight_decay": 0.1}, {"scale_parameter": False, "decay_rate": -0.5}, {"eps": (0.3, 5.0)})


@pytest.mark.parametrize(
    ("params", "steps", "shape"),
    [
        *((SGD(weight_decay=0.1, form=form, **keys), 3, (50,)) for keys in SGDS for form in FORMS),
        *(
            (kind(betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1, form=form), 3, (50,))
            for kind in (Adam, AdamW)
            for form in FORMS
        ),
        (Lion(betas=(0.8, 0.95), weight_decay=0.1), 20, (50,)),
        *((Adafactor(**keys), 20, shape) for keys in ADAFACTORS for shape in SHAPES),
    ],
)
def test_updates_are_those_of_the_twin(params, steps, shape):
    before, gradients, after = train(params, steps=steps, shape=shape)
    assert_same(params, after, twin(params, before, gradients))


@pytest.mark.parametrize(
    ("params", "shape"),
    [(SGD(), (50,)), (AdamW(eps=0.1), (50,)), *((Adafactor(), shape) for shape in SHAPES)],
)
def test_gradients_are_clipped_by_value_after_they_are_scaled(params, shape):
    before, gradients, after = train(params, clip=0.3, scale=0.5, shape=shape)
    assert_same(params, after, twin(params, before, [np.clip(0.5 * gradient, -0.3, 0.3) for gradient in gradients]))


@pytest.mark.parametrize(("params", "shape"), [(Adafactor(), (3, 2)), (Lion(), (3,))])
def test_a_vanishing_gradient_makes_no_step(params, shape):
    weight, zero = np.ones(shape, np.float32), np.zeros(shape, np.float32)
    optimizer = make_optimizer(params, None)
    states = [np.zeros(each, np.float32) for each in optimizer.states(shape).values()]
    optimizer.update(weight, zero, states, Step(1, 0.1, 1.0), True)
    np.testing.assert_array_equal(weight, 1.0)


@pytest.mark.parametrize("shape", [(1000,), (40, 301), (1000, 3)])
@examples(30)
@given(cuts=st.lists(st.integers(0, 1000), max_size=6), seed=st.integers(0, 99))
def test_any_cut_in_rows_gives_the_same_bits_of_adafactor(shape, cuts, seed):
    rng, edges, found = np.random.default_rng(seed), sorted({0, *(min(cut, shape[0]) for cut in cuts), shape[0]}), []
    weight, gradient = rng.standard_normal((2, *shape), np.float32)
    optimizer = make_optimizer(Adafactor(weight_decay=0.1), None)
    assert isinstance(optimizer, WholeOptimizer)
    begun = [rng.random(each, np.float32) for each in optimizer.states(shape).values()]
    for parts in ([(0, shape[0])], [*itertools.pairwise(edges)]):
        after, states = weight.copy(), [state.copy() for state in begun]

        def go(visit, *, changes=False, after=after, parts=parts):
            for start, stop in parts:
                rows = after[start:stop] if changes else after[start:stop].copy()
                visit(rows, gradient[start:stop].copy(), start)

        optimizer.update_whole(shape, states, go, Step(3, 0.1, 0.3), True)
        found.append([after, *states])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_vendors_early_epsilon_is_larger_by_the_root_of_the_correction():
    before, [gradient], after = train(AdamW(betas=(0.9, 0.999), eps=1e-2), steps=1)
    effective = 1e-2 / np.sqrt(1 - 0.999)
    assert effective == pytest.approx(0.316, abs=1e-3)
    # Relative: 1.3e-5, since the vendor's power of beta2 is a float32. Absolute: weights up to 2 are rounded.
    np.testing.assert_allclose(before - after, 0.01 * gradient / (np.abs(gradient) + effective), rtol=5e-5, atol=2e-7)


@pytest.mark.parametrize("beta", [0.9, 0.95, 0.999])
def test_the_vendors_correction_of_the_bias_is_multiplied_up_in_float32(beta):
    """Up to where nothing is left to correct, and beyond."""
    power, factor = np.float32(beta), np.float32(beta)
    optimizer, slow = make_optimizer(AdamW(betas=(0.0, beta), eps=1e-12), None), []
    for _ in range(20_000):
        slow.append(float(np.float32(1) - power))
        power = power * factor
    found = []
    for step in (1, 2, 100, 10_000, 20_000):
        weight, states = np.zeros(1, np.float32), [np.zeros(1, np.float32) for _ in range(2)]
        optimizer.update(weight, np.ones(1, np.float32), states, Step(step, 1.0, 1.0), True)
        found.append(-float(weight[0]) * np.sqrt(states[1][0]))
    np.testing.assert_allclose(np.square(found), [slow[n - 1] for n in (1, 2, 100, 10_000, 20_000)], rtol=TOLERANCE)


def test_adam_without_correction_of_the_bias_takes_smaller_first_steps():
    before, [gradient], after = train(AdamW(betas=(0.8, 0.95), eps=1e-3, correct_bias=False), steps=1)
    expected = before - 0.01 * 0.2 * gradient / (np.sqrt(0.05) * np.abs(gradient) + 1e-3)
    np.testing.assert_allclose(after, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, Lion, Adafactor])
@pytest.mark.parametrize("form", FORMS)
def test_a_weight_that_does_not_decay_is_updated_as_without_decay_but_by_the_vendors_adam(kind, form):
    params = kind.model_validate({"weight_decay": 0.5, "form": form})
    spares_none = kind is Adam and form == "vendor"
    as_with = params if spares_none else params.model_copy(update={"weight_decay": 0.0})
    np.testing.assert_array_equal(train(params, decays=False)[2], train(as_with)[2])


@pytest.mark.parametrize("optimizer", [*forms()], ids=lambda optimizer: optimizer.name)
def test_the_wafer_and_memoryx_take_the_operations_of_each(optimizer):
    artifact = streaming_artifact()
    expected = optimizer.update_ops / artifact.system.memoryx.flops
    assert schedule_of(artifact, optimizer.update_ops).cluster.update_s_per_weight == expected


def test_an_optimizer_with_more_operations_takes_longer_where_weights_stay_on_the_wafer():
    lion, momentum = (make_optimizer(params, None) for params in (Lion(), SGD(momentum=0.9)))
    programs = (compiled(fc_mnist(), KERNEL_PASSES, a_request(optimizer=each)) for each in (momentum, lion))
    fewer, more = (Chain(program).update_cycles((1, 1)) for program in programs)
    assert fewer < more
