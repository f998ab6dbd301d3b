"""The search against every candidate there is, compiled and estimated one by one; and the bounds that it relies on."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from cstool.foundation.errors import CompileError, EstimateError
from cstool.plan.compiler.prepared import Prepared
from cstool.plan.estimation import EstimateOptions, Estimator, make_request
from cstool.plan.estimation.cost import CostInputs, job_cost
from cstool.plan.estimation.limits import BUDGET, DAYS, POWER, Limits, Space, samples_of
from cstool.plan.estimation.plan import Plan, front
from cstool.plan.estimation.point import estimate_of
from cstool.plan.estimation.search import MODES, Model, Search
from cstool.plan.timing.micro_batches import even_sizes
from tests.examples import WHOLE, examples
from tests.unit.plan.estimation.requests import gpt

TOKENS = "1B"
INPUTS = CostInputs(price=10.0, checkpoint_bytes_per_s=1e10)
IN_LAB = settings.default.max_examples >= WHOLE
MOST = 4 if IN_LAB else 2
"""systems"""
few = settings(max_examples=6 if IN_LAB else 2, phases=(Phase.explicit, Phase.reuse, Phase.generate))
"""each takes a second or more"""
fewest = settings(few, max_examples=2 if IN_LAB else 1)
"""each compiles hundreds of plans"""


def models_of(
    mode: str,
    system: str = "cs2",
    shares: tuple[float | None, ...] = (None,),
    variant: dict[str, str] | None = None,
    **shape: Any,
) -> list[Model]:
    asked = {"tokens": TOKENS, "execution_mode": mode, **(variant or {})}
    params = [gpt(batch_size=12, sparsity=share or 0.0, **shape) for share in shares]
    return [
        Model(s, make_request(p, EstimateOptions(system, **asked)), INPUTS, None)
        for s, p in zip(shares, params, strict=True)
    ]


def every_candidate(models: list[Model], space: Space) -> list[Plan]:
    """All numbers of systems, batches, micro-batches, modes and choices of recomputation, each by the compiler."""
    found = []
    for model, count in product(models, range(1, (space.most or MOST) + 1)):
        request, recomputes = model.request, ("fastest", "needed", "none", "all")
        for samples, mode, recompute in product(samples_of(space, count), MODES[request.execution_mode], recomputes):
            asked = Estimator(replace(request, recompute=recompute))
            for size in [None] if mode == "pipelined" else [None, *even_sizes(samples, samples)]:
                with contextlib.suppress(CompileError):
                    artifact = asked.compiled(samples, mode, size, num_csx=count)
                    estimate = estimate_of(request, artifact)
                    found.append(Plan(model.sparsity, estimate, job_cost(estimate, INPUTS, None)))
    return found


shapes = st.fixed_dictionaries(
    {
        "hidden_size": st.sampled_from([256, 1024]),
        "num_hidden_layers": st.integers(1, 5 if IN_LAB else 2),
        "filter_size": st.sampled_from([512, 4096]),
        "vocab_size": st.sampled_from([300, 20_000]),
    }
)
spaces = st.one_of(
    st.lists(st.sampled_from([1, 2, 4, 7, 8, 12] if IN_LAB else [1, 2, 4]), min_size=1, max_size=2, unique=True).map(
        lambda batches: Space(tuple(batches), (), MOST)
    ),
    st.integers(1, 4 if IN_LAB else 2).map(lambda samples: Space((), (samples,), MOST)),
)
variants = st.sampled_from([{}, {"frozen": "first:1,*ffn*"}, {"adapters": "rank=8,layers=all"}])


PLAIN = {"shares": (None,), "mode": "auto", "system": "cs2", "variant": {}, "at": (0.0, 0.0, 0.0), "confident": True}


def once(layers: int, vocab_size: int, filter_size: int, **given: Any) -> Callable[[Any], Any]:
    """Try a case that broke it once, in the lab but for the smallest."""
    shape = {"hidden_size": 256, "num_hidden_layers": layers, "vocab_size": vocab_size, "filter_size": filter_size}
    return example(**{**PLAIN, "shape": shape, **given}) if IN_LAB or layers == 2 else lambda test: test


@fewest
# The fastest has a wider range than one of another share of zeros.
@once(2, 20_000, 512, space=Space((1,), (), 1), shares=(0.0, 0.75), at=(0.0, 1.0, 0.0), kinds={POWER})
# Pipelined is faster, and its range wider.
@once(5, 300, 4096, space=Space((1, 2), (), MOST), kinds={DAYS})
# What draws least computes layers again that need not be.
@once(
    *(3, 300, 4096),
    space=Space((12, 1), (), MOST),
    mode="weight_streaming",
    system="cs3",
    variant={"frozen": "first:1,*ffn*"},
    at=(0.5, 0.5, 0.5),
    kinds={POWER},
    confident=False,
)
@pytest.mark.takes("compiles every candidate that there is")
@given(
    shape=shapes,
    space=spaces,
    shares=st.sampled_from([(None,), (0.0, 0.75)]),
    mode=st.sampled_from(["auto", "weight_streaming", "pipelined"]),
    system=st.sampled_from(["cs2", "cs3"]),
    variant=variants,
    at=st.tuples(*[st.floats(0.0, 1.0)] * 3),
    kinds=st.sets(st.sampled_from([DAYS, POWER, BUDGET]), min_size=1),
    confident=st.booleans(),
)
def test_the_search_finds_what_trying_everything_finds(
    shape, space, shares, mode, system, variant, at, kinds, confident
):
    models = models_of(mode, system, shares, variant, **shape)
    every = every_candidate(models, space)
    if not every:
        return
    # Limits between the least and the most that there is, or a little below: some can be kept, some cannot.
    limits = {}
    for flag, place in zip((DAYS, POWER, BUDGET), at, strict=True):
        amounts = sorted(plan.amounts()[flag] for plan in every)
        limits[flag] = amounts[int(place * (len(amounts) - 1))] * (0.999 if place < 0.1 else 1.001)
    asked = Limits(*(limits[flag] if flag in kinds else None for flag in (DAYS, POWER, BUDGET)), confident)
    search = Search(models, space, asked)
    found = search.run()
    meeting = [plan for plan in every if not plan.breaks(asked)]
    assert (found is None) == (not meeting)
    if found is not None:
        assert not found.best.breaks(asked)
        if DAYS in kinds:
            best = min(meeting, key=lambda plan: plan.order)
            assert found.best.systems == best.systems
            assert found.best.days <= best.days * (1 + 1e-9)
            assert found.beside is None or found.beside.systems < best.systems
            assert found.beside is None or found.broken
        else:
            slow = min(plan.amounts(is_confident=confident)[DAYS] for plan in meeting)
            assert found.best.amounts(is_confident=confident)[DAYS] <= slow * (1 + 1e-9)
    for flag in (DAYS, POWER, BUDGET):
        least = search.least_within(flag, Limits(is_confident=confident))
        assert least is not None
        amount = least.amounts(is_confident=confident)[flag]
        assert amount <= min(plan.amounts(is_confident=confident)[flag] for plan in every) * (1 + 1e-9)


@few
@given(
    shape=shapes,
    count=st.integers(1, 40),
    samples=st.integers(1, 24),
    system=st.sampled_from(["cs2", "cs3"]),
    variant=variants,
)
def test_no_plan_is_below_its_bounds(shape, count, samples, system, variant):
    (model,) = models_of("auto", system, variant=variant, **shape)
    bounds = model.least(count, samples)
    for plan in model.every(count, samples):
        for flag, amount in plan.amounts().items():
            assert amount >= bounds[flag]


@few
@given(shape=shapes, count=st.sampled_from([1, 3, 16]), samples=st.integers(1, 40))
def test_what_is_prepared_is_what_the_compiler_makes(shape, count, samples):
    """Of each size of micro-batch the fastest way is the compiler's, or by a hair faster, of all none is slower.

    The compiler compares layouts for as many micro-batches as there are; what is prepared, for one and for many.
    """
    params = gpt(batch_size=12, **shape)
    request = make_request(params, EstimateOptions("cs2", tokens=TOKENS, execution_mode="weight_streaming"))
    prepared, alone = Prepared(params, request.system), Estimator(request)
    ways = prepared.streamed(samples)
    for size in {way.samples for way in ways}:
        made = min(
            (prepared.artifact(way, count, samples) for way in ways if way.samples == size), key=lambda a: a.step_cycles
        )
        compiled = alone.compiled(samples, "weight_streaming", size, num_csx=count)
        assert 0.999 * compiled.step_cycles <= made.step_cycles <= compiled.step_cycles
        assert (made.recompute, made.memoryx) == (compiled.recompute, compiled.memoryx)
        if made.step_cycles == compiled.step_cycles:
            assert made.streaming == compiled.streaming
    fastest = min(prepared.artifact(way, count, samples).step_cycles for way in ways)
    assert fastest <= alone.compiled(samples, "weight_streaming", num_csx=count).step_cycles


@examples()
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2)), max_size=12))
def test_the_front_is_what_nothing_beats(plans):
    kept = front(plans, lambda plan: plan)
    beats = [(a, b) for a in plans for b in plans if a != b and all(x <= y for x, y in zip(a, b, strict=True))]
    assert set(kept) == {plan for plan in plans if not any(beaten == plan for _, beaten in beats)}
    assert len(set(kept)) == len(kept)


def test_a_slower_plan_counts_where_the_fastest_draws_too_much():
    """Between what the fastest plan of one system draws and what the slowest does there is a limit for another one."""
    models = models_of("weight_streaming")
    every = models[0].every(1, 12)
    powers = {plan.power_w for plan in every}
    fastest = models[0].fastest(1, 12)
    assert fastest is not None
    limit = (min(powers) + fastest.power_w) / 2
    assert min(powers) < limit < fastest.power_w
    found = Search(models, Space((12,), (), 1), Limits(power_w=limit)).run()
    assert found is not None
    assert found.best.days > fastest.days
    assert found.best.power_w <= limit


def test_where_nothing_fits_the_compiler_says_why_and_a_cluster_has_no_more_systems():
    models = models_of("pipelined", hidden_size=8192, num_hidden_layers=60, filter_size=32768)
    search = Search(models, Space((12,), (), None), Limits(days=1))
    assert search.run() is None
    with pytest.raises(CompileError):
        search.raise_misfit()
    with pytest.raises(EstimateError) as error:
        Search(models_of("auto"), Space((12,), (), 193), Limits(days=1))
    assert str(error.value) == "--num_csx: must be at most 192, the systems of a cluster of cs2, got 193"
