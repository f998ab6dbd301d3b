"""MemoryX in shards: how panels are dealt, and that it does not matter who keeps which. Ranks are threads here."""

from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import ClusterError, StoreError
from cstool.model.ir import Graph, _graph, panels_of
from cstool.model.optimizers import Optimizer, WholeOptimizer, make_optimizer
from cstool.model.params import SGD, AdamW
from cstool.model.params.sections.optimizers import Adafactor
from cstool.training.machine.committed import Committed
from cstool.training.machine.memoryx.commits import Commits
from cstool.training.machine.memoryx.elsewhere import NOWHERE
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.shards import Shards, deal_panels, dealt_already
from cstool.training.machine.memoryx.sparse_weights import DENSE, SparsityRules
from cstool.training.machine.memoryx_store import _check_not_in_the_way
from tests.contract.refusal import refusal
from tests.examples import examples
from tests.models import decoder, fc_mnist
from tests.patience import PATIENCE_S, in_thread
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.test_ranks import GRAPH, LINEAR

WHOLE = make_optimizer(Adafactor(learning_rate=0.01), None)
OPTIMIZERS = {
    "none": None,
    "sgd": make_optimizer(SGD(learning_rate=0.01), None),
    "adamw": make_optimizer(AdamW(learning_rate=0.01), None),
    "adafactor": WHOLE,
}

SPARSE = SparsityRules({LINEAR: group(0.75)}, 3)


@pytest.fixture(autouse=True, scope="module")
def _small_panels() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_graph, "PANEL_BYTES", 3 * 4 * 8)
        yield


def rows_of(shards: Shards) -> list[dict[str, list[tuple[int, int]]]]:
    found: list[dict[str, list[tuple[int, int]]]] = [{} for _ in range(shards.nodes)]
    for panel, node in shards.owners.items():
        found[node].setdefault(panel.weight, []).append((panel.start, panel.stop))
    return found


@examples(60)
@given(
    st.sampled_from([GRAPH, decoder(share_embedding_weights=False), fc_mnist(12, 8)]),
    st.sampled_from([*OPTIMIZERS]),
    st.booleans(),
    st.integers(2, 9),
)
def test_panels_are_dealt_once_and_evenly(graph: Graph, optimizer: str, is_sparse: bool, nodes: int):
    rule, sparsity = OPTIMIZERS[optimizer], SPARSE if is_sparse and LINEAR in graph.weights else DENSE
    kept = KeptModel(graph, rule, sparsity)
    found = deal_panels(kept, nodes)
    panels = {panel for weight in graph.weights.values() for panel in panels_of(weight)}
    assert {*found.owners} == panels
    assert all(0 <= node < nodes for node in found.owners.values())
    largest = total = 0
    for name, weight in graph.weights.items():
        size_bytes, cut = kept.weight_bytes(weight), panels_of(weight)
        stays_whole = name in sparsity.groups or isinstance(rule, WholeOptimizer)
        assert not stays_whole or len({found.owners[panel] for panel in cut}) == 1
        largest = max(largest, size_bytes if stays_whole else size_bytes * max(p.size for p in cut) // weight.size)
        total += size_bytes
    assert max(found.shard_bytes) <= total / nodes + largest
    assert total - len(panels) <= sum(found.shard_bytes) <= total
    # Shards that are there are gone on from as they are.
    again = dealt_already(kept, rows_of(found), found.name)
    assert again.owners == found.owners


def dealt_for(optimizer: Optimizer | None, needs: Optimizer | None, sparsity: SparsityRules = DENSE) -> Shards | None:
    return dealt_already(
        KeptModel(GRAPH, needs, sparsity), rows_of(deal_panels(KeptModel(GRAPH, optimizer), 3, "a")), "a"
    )


def test_shards_are_gone_on_from_as_they_were_dealt_if_that_can_be():
    assert deal_panels(KeptModel(GRAPH, WHOLE), 3).owners != deal_panels(KeptModel(GRAPH), 3).owners
    found = dealt_for(WHOLE, None)
    assert (found.nodes, found.name, found.owners) == (3, "a", deal_panels(KeptModel(GRAPH, WHOLE), 3).owners)
    # Who needs all of a weight does not find it at one node; and of rows that nobody has there is no dealing.
    assert dealt_for(None, WHOLE) is None
    assert dealt_for(None, None, SPARSE) is None
    assert dealt_already(KeptModel(GRAPH), rows_of(deal_panels(KeptModel(GRAPH), 3))[:2], "a") is None


@pytest.fixture
def commits() -> Iterator[Commits]:
    """Those of a node whose file is not looked at."""
    found = Commits(SimpleNamespace(file=None), NOWHERE)
    yield found
    found.close()


def test_a_node_may_be_asked_for_a_commit_before_it_knows_of_it(commits):
    """The order that tells it comes by one thread, and what the first node asks for by another."""
    update: Future[None] = Future()
    waiting = in_thread(commits.await_updates)
    for tell in (partial(commits.expect, 3, [update]), partial(update.set_result, None)):
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.05)
        tell()
    waiting.result(PATIENCE_S)


def test_a_node_that_is_asked_for_a_commit_and_never_hears_of_it_does_not_wait_for_ever(commits):
    waiting = in_thread(commits.await_updates)
    commits.end(ClusterError("rank 2 on b: the disk is full"))
    with pytest.raises(ClusterError, match="the disk is full"):
        waiting.result(PATIENCE_S)


def test_shards_that_lie_at_other_ranks_are_not_replaced_before_a_commit(tmp_path):
    """A file of a new set has the name of one that is gone on from: at its own rank, or nobody could write it."""
    _check_not_in_the_way(Committed(tmp_path, 4, "set", (1, 2, 0)), 3)
    _check_not_in_the_way(Committed(tmp_path, 4, "set", (0, 2, 1)), 2)
    rule = f"{tmp_path}: the shards of MemoryX must be at the ranks of their numbers, or none of them, "
    with refusal(StoreError, f"{rule}memoryx_2_of_3.h5 is at rank 2", "--memoryx_nodes 2 spreads them anew"):
        _check_not_in_the_way(Committed(tmp_path, 4, "set", (0, 2, 1)), 3)
