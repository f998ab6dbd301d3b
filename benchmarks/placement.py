"""Compare placements with what a long annealing finds: how long the way along the chain of stages is.

Run from the project's folder::

    python -m benchmarks.placement

Four chains on cs2, placed as the compiler places them. Then annealing over slicing trees: a wafer is cut in two, side
by side or one above the other, the parts again, until every stage has a part of its own. A stage may lie anywhere,
whatever its neighbours in the chain; it takes any rectangle of its part in which it takes at most 1.02 times the
cycles of the slowest stage of the placement. A tenth of the PEs may be left over; the compiler leaves none.
What is minimised is what the compiler reports as the length of wires: the Manhattan distances of the centres of
consecutive regions. Annealing runs from a random tree and from the compiler's own, each as long as it is told.
All of it is computed for the modelled wafer; what is measured on this host is how long the compiler's placement takes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt

from cstool.model.ir import Region
from cstool.model.params import load_params
from cstool.model.system import load_system
from cstool.plan.compiler import compile_model, pipelining
from cstool.plan.compiler.placement import Placement, place, wire_length
from cstool.plan.compiler.stage import PipelineStage, stage_cycles

PARAMS = (
    "params/fc_mnist.yaml",
    "params/gpt2_small.yaml",
    "tests/interop/cerebras_gpt_111m.yaml",
    "tests/unit/plan/compiler/gpt_100m.yaml",
)
SLACK = 1.02
"""how much slower than the compiler's placement an annealed one may be"""
ASSIGNED = 0.9
"""of the PEs must be in the region of a stage"""
TOO_HIGH = 1 << 20
"""rows of a stage in a part that is too narrow for it"""
EIGHTHS = 8
"""of what a cut may move, are the places where it is tried"""
HEAT = 0.006, 0.00002
"""temperatures at the beginning and the end, as parts of the wires' length at the beginning"""
Ints = npt.NDArray[np.int64]


class Case:
    """A chain of stages as the compiler placed it.

    Args:
        params: path of a params file
    """

    def __init__(self, params: Path) -> None:
        self.name = params.stem
        kept: list[tuple[Placement, Sequence[PipelineStage], int, int]] = []

        def keep(stages: Sequence[PipelineStage], width: int, height: int) -> Placement:
            placement = place(stages, width, height)
            kept.append((placement, stages, width, height))
            return placement

        pipelining.place = keep
        try:
            artifact = compile_model(load_params(params), load_system("cs2"), execution_mode="pipelined")
        finally:
            pipelining.place = place
        plan = artifact.pipelined
        assert plan is not None
        regions = tuple(stage.region for stage in plan.stages)
        self.placement, self.stages, self.width, self.height = next(one for one in kept if one[0].regions == regions)

    def place_seconds(self, times: int = 5) -> float:
        """Return the least time that the compiler's placement took on this host."""
        taken = []
        for _ in range(times):
            start = time.perf_counter()
            place(self.stages, self.width, self.height)
            taken.append(time.perf_counter() - start)
        return min(taken)

    def least_rows(self) -> Ints:
        """Return, per stage and width from 0 up, the rows it needs within the bound."""
        bound = int(self.placement.bottleneck_cycles * SLACK)
        rows = np.full((len(self.stages), self.width + 1), TOO_HIGH, np.int64)
        heights = np.arange(1, self.height + 1)[None, :]
        for number, stage in enumerate(self.stages):
            for first in range(1, self.width + 1, 128):
                widths = np.arange(first, min(first + 128, self.width + 1))[:, None]
                fast = stage_cycles(stage, widths, heights) <= bound
                least = np.where(fast.any(axis=1), fast.argmax(axis=1) + 1, TOO_HIGH)
                rows[number, first : first + len(least)] = least
        return np.minimum.accumulate(rows, axis=1)


def own_tree(regions: Sequence[Region]) -> Ints:
    """Return the compiler's placement as a slicing tree.

    Leaves are nodes 0 to n - 1, the root is the last. Rows of the result: first part, second part, whether the
    second lies below the first (else east of it), where the cut is in eighths of what it may move.
    """
    count = len(regions)
    tree = np.zeros((2 * count - 1, 4), np.int64)
    free = iter(range(count, 2 * count - 1))

    def cut(members: list[int]) -> int:
        if len(members) == 1:
            return members[0]
        for below in (0, 1):
            starts = [(r.y, r.y + r.height) if below else (r.x, r.x + r.width) for r in regions]
            ordered = sorted(members, key=lambda n: (starts[n], n))
            for at in range(1, len(ordered)):
                if max(starts[n][1] for n in ordered[:at]) <= min(starts[n][0] for n in ordered[at:]):
                    first, second = cut(ordered[:at]), cut(ordered[at:])
                    node = next(free)
                    tree[node] = first, second, below, EIGHTHS // 2
                    return node
        raise AssertionError("not slicing")

    cut(list(range(count)))
    return tree


def random_tree(count: int, rng: np.random.Generator) -> Ints:
    """Return a random slicing tree, in the form of `own_tree`."""
    tree = np.zeros((2 * count - 1, 4), np.int64)
    roots = list(range(count))
    for node in range(count, 2 * count - 1):
        first, second = (roots.pop(int(rng.integers(len(roots)))) for _ in range(2))
        tree[node] = first, second, rng.integers(2), EIGHTHS // 2
        roots.append(node)
    return tree


@numba.njit(cache=True)  # type: ignore[misc]
def curve(tree: Ints, rows: Ints, node: int) -> None:
    """Work out the rows that a part needs, for every width, from those of its two parts."""
    first, second, below = tree[node, 0], tree[node, 1], tree[node, 2]
    width = rows.shape[1]
    if below:
        for w in range(width):
            rows[node, w] = min(TOO_HIGH, rows[first, w] + rows[second, w])
        return
    # Whichever is the higher gets the next column.
    a, b = 0, 0
    for w in range(width):
        high_a, high_b = rows[first, a], rows[second, b]
        rows[node, w] = max(high_a, high_b)
        if high_a >= high_b:
            a += 1
        else:
            b += 1


@numba.njit(cache=True)  # type: ignore[misc]
def narrowest(row: Ints, height: int) -> int:
    """Return the least width with which a part is not higher."""
    low, high = 0, len(row) - 1
    while low < high:
        middle = (low + high) // 2
        if row[middle] <= height:
            high = middle
        else:
            low = middle + 1
    return low


@numba.njit(cache=True)  # type: ignore[misc]
def lay_out(tree: Ints, rows: Ints, sides: Ints, boxes: Ints, height: int) -> float:
    """Cut the wafer, and return the length of wires; `boxes` gets (x, y, width, height) of all parts.

    A stage fills its part (side 0), or takes as few rows as it needs, to the north or south, or columns, to the
    west or east.
    """
    count = (len(tree) + 1) // 2
    root = len(tree) - 1 if count > 1 else 0
    stack = np.empty(len(tree), np.int64)
    stack[0], depth = root, 1
    boxes[root] = np.array([0, 0, rows.shape[1] - 1, height])
    while depth:
        depth -= 1
        node = stack[depth]
        x, y, w, h = boxes[node]
        if node < count:
            if sides[node] in (1, 2):
                least = rows[node, w]
                boxes[node, 3] = least
                if sides[node] == 2:
                    boxes[node, 1] = y + h - least
            elif sides[node] in (3, 4):
                least = narrowest(rows[node], h)
                boxes[node, 2] = least
                if sides[node] == 4:
                    boxes[node, 0] = x + w - least
            continue
        first, second, below, at = tree[node]
        if below:
            low, high = rows[first, w], h - rows[second, w]
            middle = low + (high - low) * at // EIGHTHS
            boxes[first] = np.array([x, y, w, middle])
            boxes[second] = np.array([x, y + middle, w, h - middle])
        else:
            low, high = narrowest(rows[first], h), w - narrowest(rows[second], h)
            middle = low + (high - low) * at // EIGHTHS
            boxes[first] = np.array([x, y, middle, h])
            boxes[second] = np.array([x + middle, y, w - middle, h])
        stack[depth], stack[depth + 1] = first, second
        depth += 2
    total = 0.0
    for n in range(count - 1):
        for axis in range(2):
            here = 2 * boxes[n, axis] + boxes[n, axis + 2]
            there = 2 * boxes[n + 1, axis] + boxes[n + 1, axis + 2]
            total += abs(here - there) / 2
    return total


@numba.njit(cache=True)  # type: ignore[misc]
def set_parents(tree: Ints, parents: Ints) -> None:
    """Note whose part each node is."""
    parents[:] = -1
    for node in range((len(tree) + 1) // 2, len(tree)):
        parents[tree[node, 0]] = node
        parents[tree[node, 1]] = node


@numba.njit(cache=True)  # type: ignore[misc]
def is_within(parents: Ints, node: int, other: int) -> bool:
    """Say whether a node is another or a part of it."""
    while node >= 0:
        if node == other:
            return True
        node = parents[node]
    return False


@numba.njit(cache=True)  # type: ignore[misc]
def replace_part(tree: Ints, node: int, old: int, new: int) -> None:
    """Put another part in a part's place."""
    if tree[node, 0] == old:
        tree[node, 0] = new
    else:
        tree[node, 1] = new


@numba.njit(cache=True)  # type: ignore[misc]
def change(tree: Ints, parents: Ints, sides: Ints, count: int) -> tuple[int, int]:
    """Change a tree at random; return the nodes (or -1) from which on, up to the root, parts are others."""
    kind = np.random.randint(12)
    inner = np.random.randint(count, 2 * count - 1)
    if kind == 0:
        tree[inner, 3] = np.random.randint(EIGHTHS + 1)
        return -1, -1
    if kind == 1:
        sides[np.random.randint(count)] = np.random.randint(5)
        return -1, -1
    if kind == 2:
        tree[inner, 2] = 1 - tree[inner, 2]
        return inner, -1
    if kind == 3:
        tree[inner, 0], tree[inner, 1] = tree[inner, 1], tree[inner, 0]
        return inner, -1
    if kind == 4:
        # Mirrored, all of it.
        below = np.random.randint(2)
        for node in range(count, 2 * count - 1):
            if tree[node, 2] == below and is_within(parents, node, inner):
                tree[node, 0], tree[node, 1] = tree[node, 1], tree[node, 0]
                tree[node, 3] = EIGHTHS - tree[node, 3]
        return -1, -1
    root = 2 * count - 2
    a = np.random.randint(2 * count - 2)
    if kind == 5:
        a, b = np.random.randint(count), np.random.randint(count)
    elif kind == 6:
        a = np.random.randint(count - 1)
        b = a + 1
    else:
        b = np.random.randint(2 * count - 2)
        if kind >= 9 and a < count:
            b = min(count - 1, max(0, a + 2 * np.random.randint(2) - 1))
            while np.random.randint(2) and parents[b] != root:
                b = parents[b]
    if is_within(parents, a, b) or is_within(parents, b, a):
        return -1, -1
    if kind <= 7:
        up_a, up_b = parents[a], parents[b]
        if up_a == up_b:
            tree[up_a, 0], tree[up_a, 1] = tree[up_a, 1], tree[up_a, 0]
        else:
            replace_part(tree, up_a, a, b)
            replace_part(tree, up_b, b, a)
        set_parents(tree, parents)
        return up_a, up_b
    # Taken out, and put beside another.
    up = parents[a]
    if up == root or parents[b] == up:
        return -1, -1
    sibling = tree[up, 0] + tree[up, 1] - a
    above = parents[up]
    replace_part(tree, above, up, sibling)
    replace_part(tree, above if parents[b] == up else parents[b], b, up)
    if np.random.randint(2):
        tree[up, 0], tree[up, 1] = a, b
    else:
        tree[up, 0], tree[up, 1] = b, a
    tree[up, 2] = np.random.randint(2)
    set_parents(tree, parents)
    return up, above


@numba.njit(cache=True)  # type: ignore[misc]
def anneal_some(
    tree: Ints, rows: Ints, sides: Ints, best: Ints, state: npt.NDArray[np.float64], height: int, moves: int
) -> None:
    """Try so many changes. `state` is (temperature, length now, least length found), `best` its regions."""
    nodes, count = len(tree), (len(tree) + 1) // 2
    parents = np.empty(nodes, np.int64)
    boxes = np.empty((nodes, 4), np.int64)
    set_parents(tree, parents)
    kept_rows = np.empty((nodes, rows.shape[1]), np.int64)
    kept_tree, kept_sides, changed = tree.copy(), sides.copy(), np.empty(nodes, np.int64)
    for _ in range(moves):
        kept_tree[:], kept_sides[:] = tree, sides
        starts = change(tree, parents, sides, count)
        number = 0
        # Deepest first: the second path may join the first, which is then worked out again from there on.
        for start in starts:
            node = start
            while node >= 0:
                seen = False
                for n in range(number):
                    seen = seen or changed[n] == node
                if not seen:
                    changed[number], kept_rows[number] = node, rows[node]
                    number += 1
                curve(tree, rows, node)
                node = parents[node]
        if starts[1] >= 0:
            node = starts[0]
            while node >= 0:
                curve(tree, rows, node)
                node = parents[node]
        needed = rows[nodes - 1, rows.shape[1] - 1]
        length, missing = np.inf, 0.0
        if needed < TOO_HIGH:
            length = lay_out(tree, rows, sides, boxes, max(height, needed)) + 20 * max(0, needed - height)
            missing = ASSIGNED * height * (rows.shape[1] - 1)
            for n in range(count):
                missing -= boxes[n, 2] * boxes[n, 3]
            length += max(0.0, missing)
        if length <= state[1] or np.random.random() < np.exp((state[1] - length) / state[0]):
            state[1] = length
            if length < state[2] and needed <= height and missing <= 0:
                state[2] = length
                best[:] = boxes[:count]
        else:
            tree[:], sides[:] = kept_tree, kept_sides
            set_parents(tree, parents)
            for n in range(number):
                rows[changed[n]] = kept_rows[n]


@numba.njit(cache=True)  # type: ignore[misc]
def seed_numba(seed: int) -> None:
    """Seed the random numbers of compiled functions."""
    np.random.seed(seed)


def anneal(tree: Ints, case: Case, least: Ints, seconds: float, seed: int) -> tuple[float, int]:
    """Anneal from a tree; return the least length of wires, and how many changes were tried."""
    seed_numba(seed)
    count = len(case.stages)
    rows = np.full((2 * count - 1, case.width + 1), TOO_HIGH, np.int64)
    rows[:count] = least
    done: set[int] = set(range(count))

    def work_out(node: int) -> None:
        if node not in done:
            work_out(int(tree[node, 0]))
            work_out(int(tree[node, 1]))
            curve(tree, rows, node)
            done.add(node)

    work_out(2 * count - 2)
    sides, best = np.zeros(count, np.int64), np.zeros((count, 4), np.int64)
    scale = float(wire_length(case.placement.regions))
    state = np.array([HEAT[0] * scale, np.inf, np.inf])
    start, moves, tried = time.monotonic(), 1000, 0
    while (spent := (time.monotonic() - start) / seconds) < 1:
        state[0] = scale * HEAT[0] * (HEAT[1] / HEAT[0]) ** spent
        anneal_some(tree, rows, sides, best, state, case.height, moves)
        tried += moves
    if np.isfinite(state[2]):
        check(best, case)
    return float(state[2]), tried


def check(regions: Ints, case: Case) -> None:
    """Assert that what was found is a placement within the bound."""
    taken = np.zeros((case.height, case.width), bool)
    bound = int(case.placement.bottleneck_cycles * SLACK)
    for stage, (x, y, w, h) in zip(case.stages, regions, strict=True):
        assert min(x, y) >= 0
        assert x + w <= case.width
        assert y + h <= case.height
        assert not taken[y : y + h, x : x + w].any()
        taken[y : y + h, x : x + w] = True
        fewer = stage_cycles(stage, np.arange(1, w + 1)[:, None], np.arange(1, h + 1)[None, :])
        assert fewer.min() <= bound
    assert taken.mean() >= ASSIGNED


def main() -> None:
    """Anneal, and print the table."""
    parser = argparse.ArgumentParser(description="Compare placements with a long annealing.")
    parser.add_argument("params", nargs="*", default=PARAMS, help="params files")
    parser.add_argument("--seconds", type=float, default=180.0, help="of each annealing; there are two per file")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    for path in asked.params:
        case = Case(Path(path))
        placement, count = case.placement, len(case.stages)
        print(f"{case.name}: {count} stages on {case.width} x {case.height} PEs (modelled)")
        print(f"  placed in {case.place_seconds():.2f} s, measured on this host")
        print(
            f"  {placement.bottleneck_cycles:,} cycles, wires of {wire_length(placement.regions):,} PEs (modelled)",
            flush=True,
        )
        least = case.least_rows()
        starts = {"own": own_tree(placement.regions), "random": random_tree(count, np.random.default_rng(asked.seed))}
        found = []
        for name, tree in starts.items():
            length, tried = anneal(tree, case, least, asked.seconds, asked.seed)
            found.append(length)
            print(f"  from {name}: {length:,.0f} PEs, {tried:,} changes in {asked.seconds:.0f} s", flush=True)
        print(f"  ours / best annealed: {wire_length(placement.regions) / min(found):.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
