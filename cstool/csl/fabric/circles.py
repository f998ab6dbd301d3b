"""Circles of a directed graph: its circular parts, and a shortest circle."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)
MOST_TRIED = 300
"""most nodes of a part that a search for a shortest circle begins from"""


def circular_parts(starts: Iterable[Node], targets: Callable[[Node], Sequence[Node]]) -> list[list[Node]]:
    """Return the parts of a graph in which each node leads to each, in order of discovery.

    Tarjan's strongly connected components (1972), without recursion. A part of one node is left out, unless the node
    has an edge to itself.

    Args:
        starts: nodes to begin from
        targets: targets of the edges of a node
    """
    number: dict[Node, int] = {}
    low: dict[Node, int] = {}
    open_nodes: list[Node] = []
    is_open: set[Node] = set()
    found: list[list[Node]] = []

    def enter(node: Node) -> tuple[Node, Iterator[Node]]:
        number[node] = low[node] = len(number)
        open_nodes.append(node)
        is_open.add(node)
        return node, iter(targets(node))

    for start in starts:
        path = [] if start in number else [enter(start)]
        while path:
            node, rest = path[-1]
            for target in rest:
                if target not in number:
                    path.append(enter(target))
                    break
                if target in is_open:
                    low[node] = min(low[node], number[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    part = _taken_off(open_nodes, node)
                    is_open.difference_update(part)
                    if len(part) > 1 or node in targets(node):
                        found.append(part)
    return found


def shortest_circle(
    part: Sequence[Node], targets: Callable[[Node], Sequence[Node]], through: Sequence[Node] | None = None
) -> list[Node]:
    """Return the nodes of a shortest circle; each leads to the next, and the last to the first.

    Args:
        part: as of `circular_parts`
        targets: targets of the edges of a node
        through: nodes of the part; the circle has at least one of them; None for any circle
    """
    within = set(part)
    best: list[Node] = []
    for start in (part if through is None else through)[:MOST_TRIED]:
        circle = _circle_through(start, within, targets)
        if not best or len(circle) < len(best):
            best = circle
    return best


def _taken_off(nodes: list[Node], last: Node) -> list[Node]:
    """Take nodes off the end, down to `last`; return them in their order."""
    taken = [nodes.pop()]
    while taken[-1] != last:
        taken.append(nodes.pop())
    return taken[::-1]


def _circle_through(start: Node, within: set[Node], targets: Callable[[Node], Sequence[Node]]) -> list[Node]:
    """Return a shortest circle through a node, of nodes of its part alone."""
    before: dict[Node, Node] = {}
    waiting = deque([start])
    while start not in before:
        node = waiting.popleft()
        for target in targets(node):
            if target in within and target not in before:
                before[target] = node
                waiting.append(target)
    circle = [before[start]]
    while circle[-1] != start:
        circle.append(before[circle[-1]])
    return circle[::-1]
