"""SwarmX sums gradients over one fixed tree."""

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.ir import Panel
from cstool.training.kernels.call import Payload, Rows
from cstool.training.machine.buffers import BufferPool
from cstool.training.machine.recorder import OFF, LaneTape
from cstool.training.machine.swarmx import GradientTree, InProcess, Node, leaving_nodes
from tests.examples import examples

UNTAPED = LaneTape(OFF, 0, [])
PANEL = Panel("w", 0, 0, 3, (3, 2))


class Receiver:
    """A stand-in for MemoryX that hands each sum to a function."""

    def __init__(self, buffers: BufferPool, receive: Callable[[Panel, str, Payload], object]) -> None:
        self.buffers = buffers
        self.receive = receive

    def acquire(self, panel: Panel) -> np.ndarray:
        return np.full(panel.shape, 5.0, np.float32)

    def release(self, panel: Panel) -> None:
        assert panel == PANEL


def in_buffer(buffers: BufferPool, gradient: np.ndarray) -> np.ndarray:
    buffer = buffers.take(gradient.shape)
    buffer[:] = gradient
    return buffer


def hand_in(swarmx: InProcess, leaf: int, gradient: np.ndarray, op: str = "op") -> None:
    """Hand in a gradient as a lane does: in a buffer of the pool."""
    swarmx.reduce(PANEL, op, Node(0, leaf), in_buffer(swarmx.buffers, gradient), UNTAPED)


def summing(grains: int) -> tuple[InProcess, list[tuple[str, Payload]]]:
    """SwarmX, and what MemoryX will have received: (op, sum)."""
    sums: list[tuple[str, Payload]] = []
    return InProcess(grains, Receiver(BufferPool(), lambda panel, op, payload: sums.append((op, payload)))), sums


def tree_sum(leaves: list[np.ndarray]) -> np.ndarray:
    """The tree written down: neighbours are added, an odd one passes up."""
    while len(leaves) > 1:
        pairs = [a + b for a, b in zip(leaves[::2], leaves[1::2], strict=False)]
        leaves = pairs + leaves[len(pairs) * 2 :]
    return leaves[0]


@examples(60)
@given(st.data(), st.integers(1, 17), st.integers(1, 5))
def test_sums_have_the_bits_of_the_tree_in_whatever_order_leaves_arrive_at_whichever_rank(data, grains, ranks):
    """Each rank sends what it can sum no further, whichever grains are its own, and the tree of MemoryX adds up."""
    owner = data.draw(st.lists(st.integers(0, ranks - 1), min_size=grains, max_size=grains))
    order = data.draw(st.permutations(range(grains)))
    rng = np.random.default_rng(grains)
    leaves = [rng.standard_normal(PANEL.shape).astype(np.float32) * 10.0**i for i in range(grains)]
    own = [[leaf for leaf in order if owner[leaf] == rank] for rank in range(ranks)]
    buffers = BufferPool()
    *trees, whole = (GradientTree(grains, buffers, leaves) for leaves in (*own, None))
    sums, sent = [], defaultdict(list)
    for leaf in order:
        found = trees[owner[leaf]].add(PANEL, "op", Node(0, leaf), in_buffer(buffers, leaves[leaf]), UNTAPED)
        if found is not None:
            sent[owner[leaf]].append(found[0])
            sums.append(whole.add(PANEL, "op", found[0], in_buffer(buffers, found[1]), UNTAPED))
    [(_, total)] = [each for each in sums if each is not None]
    np.testing.assert_array_equal(total, tree_sum(leaves))
    assert all(sorted(sent[rank]) == sorted(leaving_nodes(grains, own[rank])) for rank in range(ranks))


def test_threads_that_race_get_the_same_bits():
    rng = np.random.default_rng(0)
    leaves = [rng.standard_normal(PANEL.shape).astype(np.float32) for _ in range(12)]
    swarmx, sums = summing(12)

    def work(part: range) -> None:
        for leaf in part:
            hand_in(swarmx, leaf, leaves[leaf])

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, (range(i, 12, 3) for i in range(3))))
    [(_, found)] = sums
    np.testing.assert_array_equal(found, tree_sum(leaves))


def test_sums_of_two_ops_for_one_panel_stay_apart():
    swarmx, sums = summing(2)
    for leaf in range(2):
        hand_in(swarmx, leaf, np.full(PANEL.shape, 1.0), "head")
        hand_in(swarmx, leaf, np.full(PANEL.shape, 5.0), "embedding")
    assert [(op, found[0, 0]) for op, found in sums] == [("head", 2.0), ("embedding", 10.0)]


def test_sparse_rows_are_merged():
    swarmx, sums = summing(2)
    swarmx.reduce(PANEL, "op", Node(0, 0), Rows(np.array([0, 2]), np.array([[1, 1], [2, 2]], np.float32)), UNTAPED)
    swarmx.reduce(PANEL, "op", Node(0, 1), Rows(np.array([1, 2]), np.array([[5, 5], [6, 6]], np.float32)), UNTAPED)
    [(_, found)] = sums
    assert found.indices.tolist() == [0, 1, 2]
    assert found.values.tolist() == [[1, 1], [5, 5], [8, 8]]


@pytest.mark.parametrize("grains", [1, 2, 5, 8])
def test_buffers_come_back_so_that_later_steps_allocate_nothing(grains):
    pool = BufferPool()
    swarmx = InProcess(grains, Receiver(pool, lambda panel, op, payload: pool.give_back(payload)))
    allocated = []
    for _ in range(3):
        for leaf in range(grains):
            swarmx.reduce(PANEL, "op", Node(0, leaf), pool.take(PANEL.shape), UNTAPED)
        allocated.append(pool.allocated_bytes)
    assert allocated[0] == allocated[2]


def test_panels_of_nearly_the_same_size_share_their_buffers():
    pool = BufferPool()
    pool.give_back(pool.take((10051, 768)))
    assert pool.take((10052, 768)).shape == (10052, 768)
    assert pool.allocated_bytes == 30 * 4 * 2**18


def test_panels_come_from_memoryx_and_go_back_there():
    swarmx = InProcess(2, Receiver(BufferPool(), lambda panel, op, payload: None))
    np.testing.assert_array_equal(swarmx.acquire(PANEL), np.full(PANEL.shape, 5.0))
    swarmx.release(PANEL)
