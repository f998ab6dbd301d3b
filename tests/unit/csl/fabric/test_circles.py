"""The search for circles against a slow twin: a matrix of who can be reached, and all paths."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.fabric.circles import circular_parts, shortest_circle
from tests.examples import examples

graphs = st.integers(1, 6).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, size - 1), max_size=3, unique=True), min_size=size, max_size=size)
)


def reached(graph):
    """Return, for each node, which nodes can be reached by one edge or more."""
    sets = [set(targets) for targets in graph]
    for _ in graph:
        sets = [found | {far for near in found for far in sets[near]} for found in sets]
    return sets


def shortest_length(graph):
    """Return the length of the shortest circle, found by trying all orders of all nodes; None if there is none."""
    for length in range(1, len(graph) + 1):
        for nodes in permutations(range(len(graph)), length):
            if all(after in graph[node] for node, after in zip(nodes, (*nodes[1:], nodes[0]), strict=True)):
                return length
    return None


@given(graphs)
@examples(200)
def test_parts_lead_to_each_other_and_the_circle_of_each_is_one_and_none_is_shorter(graph):
    parts = circular_parts(range(len(graph)), graph.__getitem__)
    far = reached(graph)
    slow = {frozenset(other for other in far[node] if node in far[other]) for node in range(len(graph))} - {frozenset()}
    assert sorted(map(sorted, parts)) == sorted(map(sorted, slow))
    circles = [shortest_circle(part, graph.__getitem__) for part in parts]
    for circle in circles:
        assert len(set(circle)) == len(circle)
        assert all(after in graph[node] for node, after in zip(circle, circle[1:] + circle[:1], strict=True))
    assert min(map(len, circles), default=None) == shortest_length(graph)


def test_a_long_chain_into_a_large_circle_takes_no_recursion():
    size = 20_000
    targets = lambda node: [(node + 1) if node + 1 < size else size - 1000]  # noqa: E731
    (part,) = circular_parts([0], targets)
    assert len(part) == 1000
    assert shortest_circle(part, targets) == list(range(size - 1000, size))
