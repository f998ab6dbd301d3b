"""Placement: made-up chains on wafers of all sizes, tiny ones against all serpentine cuts, and real models."""

import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cstool.model.ir import Artifact, Region
from cstool.model.params import load_params
from cstool.model.system import load_system
from cstool.plan.compiler import compile_model
from cstool.plan.compiler.columns import Column
from cstool.plan.compiler.placement import Cut, Floor, NoPlacement, place, stage_cycles
from tests.examples import examples
from tests.unit.plan.compiler.programs import stock
from tests.unit.plan.compiler.stages import NEVER, STAGES, MadeUp

CHAINS = st.lists(STAGES, min_size=1, max_size=30)


@cache
def gpt_100m() -> Artifact:
    params = load_params(Path(__file__).with_name("gpt_100m.yaml"))
    return compile_model(params, load_system("cs2"), execution_mode="pipelined")


def shared_pe_sides(a: Region, b: Region) -> int:
    """How many sides of PEs two regions have in common."""
    across = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
    down = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
    return max(across, down) if min(across, down) == 0 else 0


def assert_tiles(regions: Sequence[Region], width: int, height: int) -> None:
    """Regions are disjoint, cover the wafer, and each touches the next."""
    taken = set()
    for r in regions:
        assert min(r.width, r.height) > 0
        taken |= set(itertools.product(range(r.x, r.x + r.width), range(r.y, r.y + r.height)))
    assert sum(r.pes for r in regions) == len(taken), "two regions have a PE in common"
    assert taken == set(itertools.product(range(width), range(height)))
    for a, b in itertools.pairwise(regions):
        assert shared_pe_sides(a, b) >= 1, (a, b)


@examples(300)
@given(stages=CHAINS, width=st.integers(1, 80), height=st.integers(1, 60))
@example(stages=[MadeUp()], width=1, height=1)
@example(stages=[MadeUp(work=100)] * 30, width=30, height=1)
@example(stages=[MadeUp(work=100)] * 30, width=1, height=30)
@example(stages=[MadeUp()] * 7, width=2, height=3)
def test_placements_are_sound_or_the_first_stage_that_does_not_fit_alone_is_named(stages, width, height):
    alone = [stage.slow_cycles(width, height) < NEVER for stage in stages]
    try:
        placement = place(stages, width, height)
    except NoPlacement as error:
        named = error.stage, str(error)
        number = None if all(alone) else alone.index(False)
        assert named == (number, "the stages together" if number is None else f"stage {number}")
        return
    regions = placement.regions
    assert_tiles(regions, width, height)
    cycles = [stage.slow_cycles(r.width, r.height) for stage, r in zip(stages, regions, strict=True)]
    assert placement.bottleneck_cycles == max(cycles) < NEVER
    assert placement.memory_bound <= set(range(len(stages)))
    assert place(stages, width, height) == placement
    assert len(stages) <= width * height


@examples()
@given(stages=CHAINS, width=st.integers(1, 80), height=st.integers(1, 60), number=st.integers(0, 29))
def test_a_stage_that_does_not_fit_alone_is_named(stages, width, height, number):
    number %= len(stages)
    assume(all(stage.slow_cycles(width, height) < NEVER for stage in stages[:number]))
    stages[number] = MadeUp(spread_bytes=1000 * width * height + 1)
    with pytest.raises(NoPlacement) as error:
        place(stages, width, height)
    assert error.value.stage == number


def serpentines(count: int, width: int, height: int) -> Iterator[list[tuple[int, int]]]:
    """Sizes of the regions of all cuts of a rectangle into columns of stages: all widths, cuts and rows."""

    def ways(total: int, parts: int) -> Iterator[tuple[int, ...]]:
        for cuts in itertools.combinations(range(1, total), parts - 1):
            edges = (0, *cuts, total)
            yield tuple(b - a for a, b in itertools.pairwise(edges))

    for columns in range(1, min(count, width) + 1):
        for widths in ways(width, columns):
            for stages in ways(count, columns):
                if max(stages) > height:
                    continue
                for rows in itertools.product(*(list(ways(height, part)) for part in stages)):
                    yield [(w, h) for w, heights in zip(widths, rows, strict=True) for h in heights]


def least_cycles(stages: Sequence[MadeUp], width: int, height: int) -> int:
    """The fewest cycles of the slowest stage of any serpentine, upright or lying on its side; NEVER if none fits.

    Every column is dealt on its own, since the slowest stage of all is the slowest of some column.
    """
    known: dict[tuple[int, int, int], int] = {}

    def cycles(number: int, w: int, h: int) -> int:
        if (number, w, h) not in known:
            known[number, w, h] = stages[number].slow_cycles(w, h)
        return known[number, w, h]

    best = NEVER
    for turned in (False, True):
        for sizes in serpentines(len(stages), *((height, width) if turned else (width, height))):
            turned_sizes = ((h, w) if turned else (w, h) for w, h in sizes)
            best = min(best, max(cycles(number, w, h) for number, (w, h) in enumerate(turned_sizes)))
    return best


@examples(60)
@given(stages=st.lists(STAGES, min_size=1, max_size=5), width=st.integers(1, 6), height=st.integers(1, 6))
def test_none_of_all_serpentines_is_much_faster(stages, width, height):
    best = least_cycles(stages, width, height)
    try:
        placement = place(stages, width, height)
    except NoPlacement:
        assert best == NEVER
        return
    # Bisection ends within a 256th; wires shorter by a third are worth a 20th.
    bound = best + max(1, best // 256)
    assert placement.bottleneck_cycles <= bound + bound // 20


def test_the_twin_tries_all_serpentines():
    # Two stages on 2 x 2: one column of 1 + 1 rows, two columns.
    assert sorted(serpentines(2, 2, 2)) == [[(1, 2), (1, 2)], [(2, 1), (2, 1)]]
    # Three on 2 x 3: one column 1 + 1 + 1; two columns with 1 and 2 stages, of 1 + 2 or 2 + 1 rows, or the reverse.
    assert len(list(serpentines(3, 2, 3))) == 1 + 2 * 2
    assert least_cycles([MadeUp(work=60), MadeUp(work=30)], 3, 1) == 34


def test_stages_across_the_columns_touch_the_next():
    for before, after, columns in itertools.product(range(3), range(3), range(1, 5)):
        if before and after and columns % 2 == 0:
            continue  # the way down an even number of columns would end at the top: not tried
        # Two stages per column, of 3 + 2 rows; the others have one row each.
        stacked = [Column(before + 2 * n, before + 2 * n + 2, 2) for n in range(columns)]
        cut = Cut(before, before + 2 * columns, tuple(stacked))
        width, height = 2 * columns, before + 5 + after
        regions = cut.regions([1] * before + [3, 2] * columns + [1] * after, Floor(width, height))
        assert_tiles(regions, width, height)


def test_regions_are_in_proportion_to_work_and_larger_where_memory_asks_for_it():
    placement = place([MadeUp(work=60_000), MadeUp(work=30_000)], 3, 100)
    assert placement.regions == (Region(0, 0, 2, 100), Region(2, 0, 1, 100))
    assert placement.bottleneck_cycles == 304
    # The table needs 40 of the 100 PEs of its one column; its time asks for next to none.
    stages = [MadeUp(work=600), MadeUp(spread_bytes=40 * 996, work=4), MadeUp(work=600)]
    placement = place(stages, 1, 100)
    assert [r.height for r in placement.regions] == [30, 40, 30]
    assert placement.memory_bound == {1}
    assert place([MadeUp(work=600)] * 3, 1, 100).memory_bound == frozenset()


@pytest.mark.parametrize("make", [lambda: stock("fc_mnist", execution_mode="pipelined"), gpt_100m])
def test_nine_tenths_of_the_pes_of_cs2_work_and_the_slowest_stage_is_within_a_tenth_of_the_mean(make):
    """Of the stages whose size time has set: not memory, nor that a region has no less than one row."""
    artifact = make()
    plan = artifact.pipelined
    replicas = plan.replicas[0] * plan.replicas[1]
    assert replicas * sum(stage.region.pes for stage in plan.stages) >= 0.9 * artifact.system.fabric.pes
    timed = [s for s in plan.stages if not s.is_memory_bound and min(s.region.width, s.region.height) > 1]
    assert len(timed) >= 3
    assert plan.stages[plan.bottleneck].cycles.total <= 1.1 * sum(s.cycles.total for s in timed) / len(timed)


def test_cycles_either_way_round_are_those_of_plain_numbers():
    stage = MadeUp(inputs=100, outputs=7, work=30, spread_bytes=100, samples_bytes=300)
    for width, height in itertools.product(range(1, 12), repeat=2):
        found = int(stage_cycles(stage, width, height))
        assert min(found, NEVER) == stage.slow_cycles(width, height)
