"""Several ranks train as one: the same bits, wherever the systems are. Here ranks are threads of this process."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cstool.foundation.errors import ClusterError, NonFiniteError
from cstool.model.ir import Graph, Panel, _graph
from cstool.training.data import Sampler
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.buffers import BufferPool
from cstool.training.machine.memoryx.gradients import Room
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.shards import Shards, deal_panels
from cstool.training.machine.memoryx.sparse_weights import SparsityRules
from cstool.training.machine.ranks import sending
from cstool.training.machine.ranks.sending import ArrivingSums, Broadcast
from tests.models import decoder
from tests.patience import within_patience
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.links import ThreadLink, linked
from tests.unit.training.machine.machines import USUAL, make_appliance, randomize, set_array
from tests.unit.training.machine.training import BATCH, WHERE, Samples, assert_same, identify, others, train

GRAPH = decoder(layers=2, dropout=0.1)
LINEAR = "transformer_decoder.layers.0.ffn.ffn.0.linear_layer.weight"


@pytest.fixture(autouse=True)
def _small_panels(monkeypatch) -> None:
    monkeypatch.setattr(_graph, "PANEL_BYTES", 3 * 4 * 8)


def test_no_panel_of_a_matrix_waits_for_the_bias_that_is_kept_until_it_has_come(monkeypatch):
    """Where each panel is larger than the window, which goes alone."""
    monkeypatch.setattr(sending, "WINDOW_BYTES", 2)
    expected, _, _ = train(GRAPH, 1)
    assert_same(within_patience(lambda: train(GRAPH, 2))[0], expected)


@pytest.mark.parametrize("algorithm", [{"algorithm": "rigl", "update": {"freq": 1}}, {"algorithm": "dropconnect"}])
def test_a_panel_that_is_thought_to_be_on_its_way_still_is_not_lent_again_as_it_was(algorithm):
    """A sender hears late that a panel has left; in the next step its mask is another one."""
    sparsity = SparsityRules({LINEAR: group(0.5, **algorithm)}, 3)
    expected, _, _ = train(GRAPH, 1, sparsity=sparsity, steps=2)
    found, _, _ = within_patience(lambda: train(GRAPH, 2, sparsity=sparsity, steps=2, late_s=0.1))
    assert_same(found, expected)


@pytest.mark.parametrize(
    ("ranks", "more"),
    [(3, {}), (2, {"max_gradient_norm": 0.5}), (3, {"sparsity": SparsityRules({LINEAR: group(0.5)}, 3)})],
)
def test_a_node_that_is_still_in_the_step_is_waited_for_before_its_arrays_are_read(monkeypatch, ranks, more):
    """Rank 0 is through with a step once its own sums have come; a checkpoint takes the arrays of all nodes."""
    take = ArrivingSums._take

    def take_late(self: ArrivingSums, *sum_of: Any) -> None:
        if self._memoryx.arrays.node:
            time.sleep(0.002)
        take(self, *sum_of)

    expected, _, _ = train(GRAPH, 1, evaluates=False, **more)
    monkeypatch.setattr(ArrivingSums, "_take", take_late)
    found, _, _ = within_patience(lambda: train(GRAPH, ranks, evaluates=False, **more))
    assert_same(found, expected)


class Lender:
    """Stands in for MemoryX: counts what is given back."""

    def __init__(self, shards: Shards) -> None:
        self.arrays, self.buffers = SimpleNamespace(shards=shards), BufferPool()
        self.released: Counter[int] = Counter()

    def keeps(self, _: Panel) -> bool:
        return True

    def acquire(self, _: Panel) -> np.ndarray:
        return np.zeros((2, 2), np.float32)

    def release(self, panel: Panel) -> None:
        self.released[panel.index] += 1


def test_a_panel_that_leaves_for_all_ranks_at_once_is_given_back_once(monkeypatch):
    """Some have it before the sender looks, some at that very moment."""
    switched = sys.getswitchinterval()
    lender = Lender(deal_panels(KeptModel(GRAPH), 1))
    with ThreadPoolExecutor(4) as leaving:
        link = linked(4)[0]
        monkeypatch.setattr(link, "send", lambda *_: leaving.submit(lambda: None))
        broadcast = Broadcast(link, lender)
        monkeypatch.setattr(broadcast, "_window", Room(None))
        sys.setswitchinterval(1e-6)
        try:
            for index in range(3000):
                broadcast.acquire(Panel("w", index, 0, 2, (2, 2)))
            within_patience(broadcast.finish)
        finally:
            sys.setswitchinterval(switched)
    assert {*lender.released.values()} == {1}


def test_a_rank_reads_the_samples_of_its_own_grains_alone():
    _, samples, _ = train(GRAPH, 3, steps=1)
    batch = Sampler(30, BATCH, True, 1, False).indices(0).tolist()
    # Two batches more are read to evaluate: all samples of the data set but six, by one or the other.
    read = [each.read_samples & set(batch) for each in samples]
    assert sum(len(each) for each in read) >= BATCH
    assert set(batch) == set().union(*read)
    assert all(len(each.read_samples) < 30 for each in samples)


@contextmanager
def rank_0(graph: Graph, ranks: int = 2) -> Iterator[tuple[Appliance, list[ThreadLink], Callable[[int], Any]]]:
    """Lend the appliance of the first of ranks, ready to evaluate, their links, and the reading of some batches."""
    links, samples, sampler = linked(ranks), [Samples(graph)] * ranks, Sampler(30, BATCH, False, 1, False)
    with (
        others(links, samples, 1),
        make_appliance(graph, link=links[0], num_csx=ranks, optimizer=None, **USUAL) as appliance,
    ):
        identify(links)
        appliance.prepare(BATCH, trains=False)
        randomize(appliance)
        yield appliance, links, lambda count: appliance.reading(WHERE, samples[0], sampler, 0, count, trains=False)


def test_a_loss_that_is_not_finite_at_another_rank_is_found_there():
    norm = "transformer_decoder.layers.1.norm1.weight"
    with rank_0(decoder(layers=2)) as (appliance, links, read):
        set_array(appliance, f"model.{norm}", np.full(8, np.inf, np.float32))
        with pytest.raises(NonFiniteError) as caught, read(1) as worker:
            appliance.evaluate(worker.next(), 7)
    assert caught.value.message == f"step 7: the loss is not finite; the first tensor that is not: weight {norm}"


def test_what_goes_wrong_at_another_rank_ends_the_step_here():
    with rank_0(decoder()) as (appliance, links, read), read(2) as worker:
        batch = worker.next()
        links[0].fail(ClusterError("rank 1 on b: the disk is full"))
        with pytest.raises(ClusterError, match="rank 1 on b: the disk is full"):
            within_patience(lambda: [appliance.evaluate(batch, 0) for _ in range(50)])


def test_batches_that_nobody_takes_hold_nobody_up():
    """Rank 0 is a batch ahead of the other, which will not come to those that rank 0 has begun to read."""
    with rank_0(decoder()) as (appliance, links, read):

        def look(count: int) -> list[int]:
            with read(100) as worker:
                return [worker.next().number for _ in range(count)]

        for taken in (0, 1, 2):
            assert within_patience(lambda taken=taken: look(taken)) == list(range(taken))


def test_the_wire_to_another_host_is_measured():
    with rank_0(GRAPH, 3) as (appliance, _, _):
        assert appliance.others.measure_wire() is None
        appliance.others.used[2].host = "elsewhere"
        wire = appliance.others.measure_wire()
    assert wire.bytes_per_s > 0
    assert wire.latency_s > 0
