"""Routing: random edges between placed stages against a checker that walks every hop, and the checker's own tests."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from cstool.model.ir import Region, Route
from cstool.plan.compiler.placement import NoPlacement, place
from cstool.plan.compiler.routing import Edge, NoColors, color_graph, route
from tests.examples import examples
from tests.reference.check_routes import faults, lanes_of
from tests.unit.plan.compiler.programs import stock
from tests.unit.plan.compiler.stages import STAGES, MadeUp
from tests.unit.plan.compiler.test_placement import gpt_100m

COLORS = range(10, 21)
KERNEL_COLORS = {"inputs": 0, "partial sums": 9}


@st.composite
def floors(draw: st.DrawFn) -> tuple[tuple[Region, ...], int, int]:
    width, height = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    stages = draw(st.lists(STAGES, min_size=1, max_size=20))
    try:
        return place(stages, width, height).regions, width, height
    except NoPlacement:
        return place([MadeUp(work=500)], width, height).regions, width, height


def route_legally(regions: Sequence[Region], routed: Sequence[Edge], size: tuple[int, int], cycles: int) -> None:
    """Every edge gets a route with lanes enough, and the checker finds nothing; the same each time."""
    routes = route(regions, routed, cycles, COLORS)
    for edge, found in zip(routed, routes, strict=True):
        assert (found.name, found.source, found.target, found.kind) == (edge.name, edge.source, edge.target, edge.kind)
        assert (found.lanes - 1) * cycles < edge.wavelets <= found.lanes * cycles
    assert faults(regions, routes, size, COLORS, KERNEL_COLORS) == []
    assert route(regions, routed, cycles, COLORS) == routes


@st.composite
def edges(draw: st.DrawFn, count: int, most_wavelets: int) -> list[Edge]:
    """What moves: along the chain and back, over some stages, ties both ways, inputs; not all of it each time."""
    found = []

    def add(kind: str, source: int, target: int, wavelets: int) -> None:
        found.append(Edge(f"edge {len(found)}", source, target, kind, wavelets))

    sizes = st.integers(1, most_wavelets)
    for number in range(count - 1):
        size = draw(sizes)
        add("activation", number, number + 1, size)
        add("delta", number + 1, number, size)
    for number in draw(st.lists(st.integers(0, max(0, count - 3)), max_size=4)) if count > 2 else ():
        target = draw(st.integers(number + 2, min(count - 1, number + 5)))
        add("activation", number, target, draw(sizes))
        add("delta", target, number, draw(sizes))
    if count > 1 and draw(st.booleans()):
        add("tie", count - 1, 0, 1)
        add("tie", 0, count - 1, 1)
    for target in draw(st.lists(st.sampled_from([0, count - 1]), max_size=2, unique=True)):
        add("input", -1, target, draw(sizes))
    return found


@examples(200)
@given(data=st.data(), floor=floors())
def test_routes_are_legal_or_colors_do_not_suffice(data, floor):
    regions, width, height = floor
    try:
        route_legally(regions, data.draw(edges(len(regions), 300)), (width, height), 100)
    except NoColors as error:
        event(f"no colors: {str(error)[-20:]}")


@examples()
@given(data=st.data(), count=st.integers(2, 20), width=st.integers(20, 60), height=st.integers(20, 60))
def test_narrow_edges_along_a_chain_always_have_colors(data, count, width, height):
    """As they come in models: each stage to the next and back, and residual connections over three of them."""
    regions = place([MadeUp(work=data.draw(st.integers(500, 5_000))) for _ in range(count)], width, height).regions
    pairs = [(n, n + 1) for n in range(count - 1)] + [(n, n + 3) for n in range(0, count - 3, 2)]
    routed = [Edge(f"{a} to {b}", a, b, "activation", 1) for a, b in pairs]
    routed += [Edge(f"{b} to {a}", b, a, "delta", 1) for a, b in pairs]
    route_legally(regions, [*routed, Edge("x", -1, 0, "input", 1)], (width, height), 1)


@pytest.mark.parametrize("make", [lambda: stock("fc_mnist", execution_mode="pipelined"), gpt_100m])
def test_routes_of_real_models_are_legal(make):
    plan = make().pipelined
    regions = [stage.region for stage in plan.stages]
    size = plan.replica_width, plan.replica_height
    colors = [color for color in range(21) if color not in plan.kernel_colors.values()]
    assert len(plan.routes) >= 2 * (len(regions) - 1)
    assert faults(regions, plan.routes, size, colors, plan.kernel_colors) == []


# Two regions side by side, two below them.
SQUARES = (Region(0, 0, 5, 5), Region(5, 0, 5, 5), Region(5, 5, 5, 5), Region(0, 5, 5, 5))


def one(source: int, target: int, wavelets: int = 1, kind: str = "activation") -> Edge:
    return Edge(f"{source} to {target}", source, target, kind, wavelets)


def test_neighbours_are_connected_across_their_border_opposite_corners_with_one_bend_inputs_from_the_west():
    (east, west, south) = route(SQUARES, [one(0, 1, 2), one(1, 0), one(1, 2)], 1, COLORS)
    assert east == Route("0 to 1", 0, 1, "activation", 10, 2, east.path)
    for found, (start, end) in zip((east, west), ((4, 5), (5, 4)), strict=True):
        assert [x for x, _ in found.path] == [start, end]
        assert len({y for _, y in found.path}) == 1
    assert [y for _, y in south.path] == [4, 5]
    (corner,) = route(SQUARES, [one(0, 2)], 1, COLORS)
    assert (len(corner.path), faults(SQUARES, [corner], (10, 10), COLORS, {})) == (3, [])
    found = route(SQUARES, [one(-1, 0, kind="input"), one(-1, 1, kind="input")], 1, COLORS)
    assert [(route.path[0][0], route.path[-1][0]) for route in found] == [(0, 0), (0, 5)]
    assert [len(route.path) for route in found] == [1, 2]
    # Of more lanes than the first region has rows they come from above or below.
    low = (Region(0, 0, 20, 2), Region(0, 2, 20, 8))
    (wide,) = route(low, [one(-1, 0, 5, kind="input")], 1, COLORS)
    assert (wide.lanes, len(wide.path), faults(low, [wide], (20, 10), COLORS, {})) == (5, 3, [])
    with pytest.raises(NoColors, match="^0 to 1 takes 6 lanes, more than its regions have PEs side by side$"):
        route(SQUARES[:2], [one(0, 1, 6)], 1, COLORS)


def test_routes_that_all_meet_need_a_color_each():
    row = (Region(0, 0, 1, 1), Region(1, 0, 1, 1))
    routed = [Edge(f"{n}", n % 2, 1 - n % 2, "activation", 1) for n in range(4)]
    assert sorted(found.color for found in route(row, routed, 1, range(4))) == [0, 1, 2, 3]
    with pytest.raises(NoColors) as error:
        route(row, routed, 1, range(3))
    assert str(error.value) == "a route that meets 3 others, of 3 colors"


def graph(count: int, *pairs: tuple[int, int]) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(count)]
    for a, b in pairs:
        found[a].add(b)
        found[b].add(a)
    return found


def ring(count: int, step: int = 1, first: int = 0) -> list[tuple[int, int]]:
    return [(first + n, first + (n + step) % count) for n in range(count)]


KNOWN = {
    "nothing": (graph(0), 0),
    "no edges": (graph(4), 1),
    "an odd ring": (graph(7, *ring(7)), 3),
    "all with all": (graph(5, *((a, b) for a in range(5) for b in range(a))), 5),
    "a wheel of 5": (graph(6, *ring(5), *((5, n) for n in range(5))), 4),
    "Petersen's": (graph(10, *ring(5), *((n, n + 5) for n in range(5)), *ring(5, 2, 5)), 3),
}


@pytest.mark.parametrize(("neighbours", "needed"), KNOWN.values(), ids=KNOWN)
def test_known_graphs_take_as_many_colors_as_they_need(neighbours, needed):
    found = color_graph(neighbours, range(100, 100 + needed))
    assert len(set(found)) == needed
    assert all(found[a] != found[b] for a, others in enumerate(neighbours) for b in others)
    if needed > 1:
        with pytest.raises(NoColors, match=r"^a route that meets \d+ others, of \d+ colors$"):
            color_graph(neighbours, range(needed - 1))


@given(st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=2, max_size=12), st.booleans())
def test_graphs_with_two_sides_take_two_colors(rows, reverse):
    """Proven of DSATUR in the article that it comes from."""
    count = len(rows)
    pairs = [(a, count + b) for a, row in enumerate(rows) for b, meets in enumerate(row) if meets]
    if reverse:
        pairs = [(count + 11 - a, count + 11 - b) for a, b in pairs]
    color_graph(graph(count + 12, *pairs), range(2))


def legal(*, path: tuple[tuple[int, int], ...] = ((4, 1), (5, 1)), **changes: Any) -> Route:
    """A route from the first square to the second, with changes."""
    return replace(Route("a", 0, 1, "activation", 10, 1, path), **changes)


def test_lanes_keep_to_the_right():
    spiral = legal(lanes=2, path=((0, 0), (3, 0), (3, 3), (0, 3), (0, 2)))
    first, second = lanes_of(replace(spiral, path=spiral.path[:3]))
    assert first == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (3, 3)]
    assert second == [(0, 1), (1, 1), (2, 1), (2, 2), (2, 3)]
    first, second = lanes_of(replace(spiral, path=((5, 5), (3, 5), (3, 2))))
    assert first == [(5, 5), (4, 5), (3, 5), (3, 4), (3, 3), (3, 2)]
    assert second == [(5, 4), (4, 4), (4, 3), (4, 2)]
    assert list(lanes_of(legal(lanes=2, path=((0, 3),)))) == [[(0, 3)], [(0, 4)]]


ONE = "activation a 0->1"
ONE_ROUTE: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"color": 21}, [": color 21 is not allowed"]),
    ({"color": 9}, [": color 9 is not allowed", ": color 9 belongs to kernels"]),
    ({"lanes": 0}, [": no lanes"]),
    ({"path": ()}, [": no path"]),
    ({"path": ((4, 1), (5, 2))}, [": from (4, 1) to (5, 2) is neither across nor down"]),
    ({"path": ((4, 1), (4, 1))}, [": from (4, 1) to (4, 1) is neither across nor down"]),
    ({"lanes": 2, "path": ((4, 1), (5, 1), (5, 2), (4, 2))}, [": lane 1 has no room to turn before (4, 1)"]),
    ({"path": ((5, 1), (6, 1))}, [", lane 0: begins at (5, 1), not at the border of its source"]),
    (
        {"lanes": 2, "path": ((4, 4), (5, 4))},
        [", lane 1: begins at (4, 5), not at the border of its source", ", lane 1: ends at (5, 5), outside its target"],
    ),
    ({"path": ((4, 1), (4, 0))}, [", lane 0: ends at (4, 0), outside its target"]),
    ({"path": ((4, 0), (4, -1), (5, -1), (5, 0))}, [", lane 0: leaves the replica at (4, -1)"]),
    ({"path": ((4, 1), (6, 1), (6, 2), (5, 2), (5, 0))}, [", lane 0: crosses itself"]),
]
BEYOND = legal(path=((4, 1), (6, 1)))
PLANTED: list[tuple[list[Route], list[str]]] = [
    *(([legal(**changes)], [ONE + message for message in messages]) for changes, messages in ONE_ROUTE),
    (
        [legal(source=-1, kind="input", path=((1, 1), (5, 1)))],
        ["input a -1->1, lane 0: begins at (1, 1), not at the west edge"],
    ),
    (
        [BEYOND, legal(name="b", source=2, path=((6, 5), (6, 0)))],
        [f"activation b 2->1, lane 0: color 10 at (6, 1) is that of {ONE}, lane 0"],
    ),
    ([BEYOND, legal(source=2, color=11, path=((6, 5), (6, 0)))], []),
    (
        [legal(), legal(name="b")],
        [
            *(f"activation b 0->1, lane 0: color 10 at ({x}, 1) is that of {ONE}, lane 0" for x in (4, 5)),
            f"activation b 0->1, lane 0: the link (4, 1) to (5, 1) carries color 10 for {ONE}, lane 0",
        ],
    ),
]


@pytest.mark.parametrize(("routes", "expected"), PLANTED)
def test_the_checker_finds_what_is_planted(routes, expected):
    assert faults(SQUARES, routes, (10, 10), COLORS, KERNEL_COLORS) == expected
