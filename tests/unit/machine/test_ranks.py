"""Several ranks train as one: the same bits, wherever the systems are. Here ranks are threads of this process."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.data import Field, Sampler
from cstool.errors import ClusterError, NonFiniteError, ToldElsewhere
from cstool.ir import Graph, Panel, _graph
from cstool.machine.appliance import Appliance
from cstool.machine.buffers import BufferPool
from cstool.machine.memoryx.gradients import Room
from cstool.machine.memoryx.shards import Shards, deal_panels
from cstool.machine.memoryx.sparse_weights import DENSE, SparsityRules
from cstool.machine.plan import make_plan
from cstool.machine.ranks import sending
from cstool.machine.ranks.orders import Identify
from cstool.machine.ranks.sending import ArrivingSums, Broadcast
from cstool.machine.ranks.traffic import count_traffic, present_bytes
from cstool.machine.ranks.worker import Opened, Worker
from cstool.machine.recorder import OFF, LaneTape
from cstool.machine.swarmx import GradientTree, Node
from cstool.optimizers import make_optimizer
from cstool.params import AdamW
from cstool.perf.ranks import Traffic
from cstool.store import FileStore
from tests.examples import examples
from tests.models import decoder, fc_mnist
from tests.patience import within_patience
from tests.unit.machine.links import ThreadLink, linked
from tests.unit.machine.machines import USUAL, arrays_of, randomize, set_array
from tests.unit.machine.test_sparse_weights import group

BATCH = 12
WHERE = "params.yaml: trainer.fit.train_dataloader"
GRAPH = decoder(layers=2, dropout=0.1)
ADAMW = AdamW(learning_rate=0.01, weight_decay=0.1)
FEW_KINDS = ("mask", "token_type_ids")
"""inputs that are 0 or 1"""
LINEAR = "transformer_decoder.layers.0.ffn.ffn.0.linear_layer.weight"


class Samples:
    """A data set of random numbers for a graph; sample i follows from i alone."""

    def __init__(self, graph: Graph, sample_count: int = 30) -> None:
        rng = np.random.default_rng(5)
        self.sample_count = sample_count
        self.fields: Mapping[str, Field] = {t.name: Field(t.shape, t.dtype) for t in graph.inputs}
        self.arrays = {
            name: rng.integers(0, 2 if name.endswith(FEW_KINDS) else 10, (sample_count, *of.shape)).astype(of.dtype)
            for name, of in self.fields.items()
        }
        self.read_samples: set[int] = set()

    def read(self, indices: np.ndarray, out: Mapping[str, np.ndarray], epoch: int = 0) -> None:
        self.read_samples |= set(indices.tolist())
        for name, array in self.arrays.items():
            out[name][:] = array[indices]


@dataclass
class Came:
    """What training came to."""

    losses: list[float] = field(default_factory=list)
    norms: list[float | None] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    evaluated: list[tuple[float, int]] = field(default_factory=list)
    seen: list[dict[str, float]] = field(default_factory=list)
    """norms of each step, where they are looked at"""
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    waves: int = 0
    traffic: Traffic | None = None
    """of a step, as it is counted"""


@contextmanager
def heard_by_all(links: list[ThreadLink]) -> Iterator[None]:
    """Have all ranks hear what goes wrong at one of them, as where its process ends: nobody waits for it."""
    try:
        yield
    except ToldElsewhere:
        raise
    except Exception as error:
        for link in links:
            link.fail(error)
        raise


@contextmanager
def others(links: list[ThreadLink], samples: list[Samples], lanes: int) -> Iterator[None]:
    """Have the other ranks work, and let them go."""

    def serve(rank: int) -> None:
        def open_trainer(_: int, __: ExitStack) -> Opened:
            return Opened({WHERE: samples[rank]}, {})

        with Worker(links[rank], open_trainer, lanes) as worker, pytest.raises(ToldElsewhere), heard_by_all(links):
            worker.serve()

    with ThreadPoolExecutor(max(1, len(links) - 1)) as threads:
        serving = [threads.submit(serve, rank) for rank in range(1, len(links))]
        try:
            yield
        finally:
            for link in links[1:]:
                link.fail(ToldElsewhere(0))
            for future in serving:
                future.result()
            for link in links:
                link.close()


def train(
    graph: Graph,
    ranks: int,
    *,
    num_csx: int = 4,
    steps: int = 3,
    lanes: int = 2,
    evaluates: bool = True,
    nodes: int | None = None,
    looks: bool = False,
    late_s: float = 0.0,
    **more: Any,
) -> tuple[Came, list[Samples], list[ThreadLink]]:
    """Train for some steps, and evaluate at the end; each rank has a node of MemoryX if nothing else is said."""
    came, links, samples = Came(), linked(ranks), [Samples(graph) for _ in range(ranks)]
    for link in links:
        link.late_s = late_s
    optimizer = make_optimizer(ADAMW, None)
    usual: dict[str, Any] = {**USUAL, "optimizer": optimizer, "lanes": lanes, "num_csx": num_csx, **more}
    usual["shards"] = deal_panels(graph, usual["optimizer"], usual.get("sparsity", DENSE), nodes or ranks)
    with others(links, samples, lanes), Appliance(graph, link=links[0], **usual) as appliance:
        identify(links)
        appliance.memoryx.statistics.with_norms = looks
        for trains in (True, False) if evaluates else (True,):
            appliance.prepare(BATCH, trains=trains)
        appliance.multiply_with(appliance.gemm)
        appliance.memoryx.initialize(1)
        appliance.memoryx.reserve()
        if not appliance.memoryx.arrays.sparse:
            randomize(appliance)
        sampler = Sampler(samples[0].sample_count, BATCH, True, 1, False)
        with appliance.reading(WHERE, samples[0], sampler, 0, steps, trains=True) as worker:
            for step in range(1, steps + 1):
                batch = worker.next()
                appliance.memoryx.statistics.begin_step(looks=looks)
                trained = appliance.train_step(batch, step, 0.01)
                came.seen.append(appliance.memoryx.statistics.norms())
                came.losses.append(trained.loss)
                came.norms.append(trained.gradient_norm)
                came.tokens.append(batch.tokens)
            # As for a checkpoint, while batches are read: to end that would wait for the others, too.
            came.weights = arrays_of(appliance, "model.")
        if evaluates:
            with appliance.reading(WHERE, samples[0], sampler, 0, 2, trains=False) as worker:
                came.evaluated = [tuple(appliance.evaluate(worker.next(), steps)[0]) for _ in range(2)]
        came.waves = appliance.training_cluster.waves
        layout = appliance.training_cluster.layout
        came.traffic = count_traffic(layout, present_bytes(appliance.memoryx), usual["shards"])
    return came, samples, links


def identify(links: list[ThreadLink]) -> None:
    """Tell the others the number of the trainer, by which they open their data."""
    for rank in range(1, len(links)):
        links[0].send(rank, "order", Identify(0))
        links[0].receive(rank, "identity")


def assert_same(found: Came, expected: Came) -> None:
    # NaN is like NaN.
    assert str((found.losses, found.norms, found.tokens)) == str((expected.losses, expected.norms, expected.tokens))
    assert (found.evaluated, found.seen) == (expected.evaluated, expected.seen)
    for name, values in expected.weights.items():
        np.testing.assert_array_equal(found.weights[name], values, err_msg=name)


@pytest.fixture(autouse=True)
def _small_panels(monkeypatch) -> None:
    monkeypatch.setattr(_graph, "PANEL_BYTES", 3 * 4 * 8)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(("num_csx", "lanes"), [(4, 1), (6, 2), (12, 3)])
def test_ranks_learn_as_one(ranks, num_csx, lanes):
    expected, _, _ = train(GRAPH, 1, num_csx=num_csx)
    assert_same(within_patience(lambda: train(GRAPH, ranks, num_csx=num_csx, lanes=lanes))[0], expected)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"max_gradient_norm": 0.5}, id="clipped"),
        pytest.param({"recompute": "always"}, id="recomputed"),
        pytest.param({"precision": "bfloat16"}, id="bfloat16"),
        pytest.param({"sparsity": SparsityRules({LINEAR: group(0.75)}, 3)}, id="sparse"),
        pytest.param(
            {"sparsity": SparsityRules({LINEAR: group(0.75, algorithm="rigl", update={"freq": 2})}, 3)}, id="rigl"
        ),
        pytest.param({"sparsity": SparsityRules({LINEAR: group(0.3, algorithm="dropconnect")}, 3)}, id="dropconnect"),
    ],
)
def test_ranks_learn_as_one_whatever_is_asked_for(more):
    expected, _, _ = train(GRAPH, 1, **more)
    found, _, _ = within_patience(lambda: train(GRAPH, 3, **more))
    assert_same(found, expected)


def test_no_panel_of_a_matrix_waits_for_the_bias_that_is_kept_until_it_has_come(monkeypatch):
    """Where each panel is larger than the window, which goes alone."""
    monkeypatch.setattr(sending, "WINDOW_BYTES", 2)
    expected, _, _ = train(GRAPH, 1)
    assert_same(within_patience(lambda: train(GRAPH, 2))[0], expected)


@pytest.mark.parametrize("algorithm", [{"algorithm": "rigl", "update": {"freq": 1}}, {"algorithm": "dropconnect"}])
def test_a_panel_that_is_thought_to_be_on_its_way_still_is_not_lent_again_as_it_was(algorithm):
    """A sender hears late that a panel has left; in the next step its mask is another one."""
    sparsity = SparsityRules({LINEAR: group(0.5, **algorithm)}, 3)
    expected, _, _ = train(GRAPH, 1, sparsity=sparsity)
    found, _, _ = within_patience(lambda: train(GRAPH, 2, sparsity=sparsity, late_s=0.3))
    assert_same(found, expected)


@pytest.mark.parametrize("more", [{}, {"max_gradient_norm": 0.5}, {"sparsity": SparsityRules({LINEAR: group(0.5)}, 3)}])
@pytest.mark.parametrize("ranks", [2, 3])
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
    lender = Lender(deal_panels(GRAPH, None, DENSE, 1))
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


def test_ranks_go_in_waves_together_where_one_of_them_is_short_of_memory():
    """Each has two grains of 3 samples, and rank 0 room for one of them."""
    memory_bytes = int(1.5 * make_plan(GRAPH, 3, trains=True).slot_bytes)
    expected, _, _ = train(GRAPH, 1, num_csx=2, evaluates=False)
    found, _, _ = train(GRAPH, 2, num_csx=2, evaluates=False, memory_bytes=memory_bytes, recompute="never")
    assert (expected.waves, found.waves) == (1, 2)
    assert_same(found, expected)


def test_ranks_learn_as_one_with_memoryx_in_a_file(tmp_path):
    found = [
        train(
            GRAPH, ranks, store=FileStore(tmp_path / f"{ranks}.h5", 2**20), max_gradient_norm=norm, waiting_bytes=2**16
        )
        for ranks, norm in ((1, None), (3, None))
    ]
    assert_same(found[1][0], found[0][0])


def test_a_model_without_tokens_is_trained_by_ranks_too():
    expected, _, _ = train(fc_mnist(), 1)
    assert_same(train(fc_mnist(), 2)[0], expected)


def test_a_rank_reads_the_samples_of_its_own_grains_alone():
    _, samples, _ = train(GRAPH, 3, steps=1)
    batch = Sampler(30, BATCH, True, 1, False).indices(0).tolist()
    # Two batches more are read to evaluate: all samples of the data set but six, by one or the other.
    read = [each.read_samples & set(batch) for each in samples]
    assert sum(len(each) for each in read) >= BATCH
    assert set(batch) == set().union(*read)
    assert all(len(each.read_samples) < 30 for each in samples)


def test_each_rank_sends_its_panels_twice_and_one_sum_of_each_panel_of_others():
    """One rank's grains are a whole half of the tree, so a sum of a panel is as large as the panel."""
    graph = decoder(layers=1, share_embedding_weights=False)
    _, _, links = train(graph, 2, num_csx=2, steps=4)
    _, _, fewer = train(graph, 2, num_csx=2, steps=3)
    weights, sums = [0, 0], [0, 0]
    for panel, node in deal_panels(graph, make_optimizer(ADAMW, None), DENSE, 2).owners.items():
        weights[node] += 4 * panel.size
        if panel.weight != "embedding_layer.word_embeddings.weight":
            sums[1 - node] += 4 * panel.size
    total_rows = 0
    for rank in (0, 1):
        sent = links[rank].sent_bytes - fewer[rank].sent_bytes
        # The gradient of the embedding is sent as the rows that are not zero, each with its number.
        rows, rest = divmod(sent - 2 * weights[rank] - sums[rank], 4 + 4 * 8)
        assert (rows >= 0, rest) == (True, 0)
        total_rows += rows
    assert 0 < total_rows <= 10


def test_a_loss_that_is_not_finite_at_another_rank_is_found_there(tmp_path):
    graph = decoder(layers=2)
    links, samples = linked(2), [Samples(graph) for _ in range(2)]
    norm = "transformer_decoder.layers.1.norm1.weight"
    with others(links, samples, 1), Appliance(graph, link=links[0], num_csx=2, optimizer=None, **USUAL) as appliance:
        identify(links)
        appliance.prepare(BATCH, trains=False)
        randomize(appliance)
        set_array(appliance, f"model.{norm}", np.full(8, np.inf, np.float32))
        sampler = Sampler(30, BATCH, False, 1, False)
        with (
            pytest.raises(NonFiniteError) as caught,
            appliance.reading(WHERE, samples[0], sampler, 0, 1, trains=False) as worker,
        ):
            appliance.evaluate(worker.next(), 7)
    assert caught.value.message == f"step 7: the loss is not finite; the first tensor that is not: weight {norm}"


def test_what_goes_wrong_at_another_rank_ends_the_step_here():
    graph = decoder()
    links, samples = linked(2), [Samples(graph) for _ in range(2)]
    with others(links, samples, 1), Appliance(graph, link=links[0], num_csx=2, optimizer=None, **USUAL) as appliance:
        identify(links)
        appliance.prepare(BATCH, trains=False)
        randomize(appliance)
        sampler = Sampler(30, BATCH, False, 1, False)
        with appliance.reading(WHERE, samples[0], sampler, 0, 2, trains=False) as worker:
            batch = worker.next()
            links[0].fail(ClusterError("rank 1 on b: the disk is full"))
            with pytest.raises(ClusterError, match="rank 1 on b: the disk is full"):
                within_patience(lambda: [appliance.evaluate(batch, 0) for _ in range(50)])


@examples(60)
@given(st.data(), st.integers(1, 17), st.integers(1, 5))
def test_sums_that_ranks_make_of_their_own_leaves_have_the_bits_of_the_tree(data, grains, ranks):
    """Each rank sends what it can sum no further, whichever grains are its own, and the tree of MemoryX adds up."""
    owner = data.draw(st.lists(st.integers(0, ranks - 1), min_size=grains, max_size=grains))
    order = data.draw(st.permutations(range(grains)))
    rng = np.random.default_rng(grains)
    leaves = [rng.standard_normal(6).astype(np.float32) * 10.0**i for i in range(grains)]
    tape, panel = LaneTape(OFF, 0, []), _graph.Panel("w", 0, 0, 6, (6,))

    def buffer_of(pool: BufferPool, leaf: int) -> np.ndarray:
        buffer = pool.take((6,))
        buffer[:] = leaves[leaf]
        return buffer

    pools = [BufferPool() for _ in range(ranks)]
    trees = [
        GradientTree(grains, pool, [leaf for leaf in range(grains) if owner[leaf] == rank])
        for rank, pool in enumerate(pools)
    ]
    whole, alone = GradientTree(grains, BufferPool()), GradientTree(grains, BufferPool())
    sums, expected = [], []
    for leaf in order:
        rank = owner[leaf]
        found = trees[rank].add(panel, "op", Node(0, leaf), buffer_of(pools[rank], leaf), tape)
        if found is not None:
            mine = whole._buffers.take((6,))
            mine[:] = found[1]
            sums.append(whole.add(panel, "op", found[0], mine, tape))
        expected.append(alone.add(panel, "op", Node(0, leaf), buffer_of(alone._buffers, leaf), tape))
    [(_, total)] = [each for each in sums if each is not None]
    [(_, straight)] = [each for each in expected if each is not None]
    np.testing.assert_array_equal(total, straight)


def test_batches_that_nobody_takes_hold_nobody_up():
    """Rank 0 is a batch ahead of the other, which will not come to those that rank 0 has begun to read."""
    graph = decoder()
    links, samples = linked(2), [Samples(graph) for _ in range(2)]
    with others(links, samples, 1), Appliance(graph, link=links[0], num_csx=2, optimizer=None, **USUAL) as appliance:
        identify(links)
        appliance.prepare(BATCH, trains=False)
        sampler = Sampler(30, BATCH, False, 1, False)

        def look(count: int) -> list[int]:
            with appliance.reading(WHERE, samples[0], sampler, 0, 100, trains=False) as worker:
                return [worker.next().number for _ in range(count)]

        for taken in (0, 1, 2):
            assert within_patience(lambda taken=taken: look(taken)) == list(range(taken))


def test_the_wire_to_another_host_is_measured():
    links = linked(3)
    with (
        others(links, [Samples(GRAPH)] * 3, 1),
        Appliance(GRAPH, link=links[0], num_csx=3, optimizer=None, **USUAL) as appliance,
    ):
        assert appliance.others.measure_wire() is None
        appliance.others.used[2].host = "elsewhere"
        wire = appliance.others.measure_wire()
    assert wire is not None
    assert wire.bytes_per_s > 0
    assert wire.latency_s > 0
