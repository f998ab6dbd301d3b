"""Training on ranks that are threads of this process, or on one, for tests: what it came to."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from cstool.foundation.errors import ToldElsewhere
from cstool.model.ir import Graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import AdamW
from cstool.training.data import Field, Sampler
from cstool.training.host.ranks import Traffic
from cstool.training.host.traffic import count_traffic, present_bytes
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.shards import deal_panels
from cstool.training.machine.memoryx.sparse_weights import DENSE
from cstool.training.machine.ranks.orders import Identify
from cstool.training.machine.ranks.worker import Opened, Worker
from tests.unit.training.machine.links import ThreadLink, linked, serving
from tests.unit.training.machine.machines import USUAL, array_of, make_appliance, random_batch, randomize

BATCH = 12
WHERE = "params.yaml: trainer.fit.train_dataloader"
ADAMW = AdamW(learning_rate=0.01, weight_decay=0.1)


class Samples:
    """A data set of random numbers for a graph; sample i follows from i alone."""

    def __init__(self, graph: Graph, sample_count: int = 30) -> None:
        self.sample_count = sample_count
        self.fields: Mapping[str, Field] = {t.name: Field(t.shape, t.dtype) for t in graph.inputs}
        self.arrays = random_batch(graph, sample_count, seed=5).arrays
        self.read_samples: set[int] = set()

    def read(self, indices: np.ndarray, out: Mapping[str, np.ndarray], epoch: int = 0) -> None:
        self.read_samples |= set(indices.tolist())
        for name in out:
            out[name][:] = self.arrays[name][indices]


@dataclass
class Came:
    losses: list[float] = field(default_factory=list)
    norms: list[float | None] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    evaluated: list[tuple[float, int]] = field(default_factory=list)
    seen: list[dict[str, float]] = field(default_factory=list)
    """norms of each step, where they are looked at"""
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """weights and optimizer state"""
    waves: int = 0
    recomputed: int = 0
    """layers"""
    by_table: bool = False
    """whether the last steps and evaluations were walked by tables"""
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


def others(links: list[ThreadLink], samples: list[Samples], lanes: int) -> AbstractContextManager[None]:
    """Have the other ranks work, and let them go."""

    def serve(link: ThreadLink) -> None:
        def open_trainer(_: int, __: ExitStack) -> Opened:
            return Opened({WHERE: samples[link.rank]}, {})

        with Worker(link, open_trainer, lanes) as worker, pytest.raises(ToldElsewhere), heard_by_all(links):
            worker.serve()

    return serving(links, serve)


def train(graph, ranks, *, num_csx=4, steps=3, lanes=2, evaluates=True, nodes=None, looks=False, late_s=0.0, **more):
    """Train for some steps, and evaluate at the end; each rank has a node of MemoryX if nothing else is said."""
    batch_size, gemm = more.pop("batch_size", BATCH), more.pop("gemm", None)
    came, links, samples = Came(), linked(ranks), [Samples(graph) for _ in range(ranks)]
    for link in links:
        link.late_s = late_s
    optimizer = make_optimizer(ADAMW, None)
    usual: dict[str, Any] = {**USUAL, "optimizer": optimizer, "lanes": lanes, "num_csx": num_csx, **more}
    usual["shards"] = deal_panels(KeptModel(graph, usual["optimizer"], usual.get("sparsity", DENSE)), nodes or ranks)
    with others(links, samples, lanes), make_appliance(graph, link=links[0], **usual) as appliance:
        identify(links)
        appliance.memoryx.statistics.with_norms = looks
        for trains in (True, False) if evaluates else (True,):
            appliance.prepare(batch_size, trains=trains)
        appliance.multiply_with(gemm or appliance.gemm)
        appliance.memoryx.initialize(1)
        appliance.memoryx.reserve()
        randomize(appliance)
        sampler = Sampler(samples[0].sample_count, batch_size, True, 1, False)
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
            came.arrays = {name: array_of(appliance, name) for name in appliance.memoryx.arrays.names}
        if evaluates:
            with appliance.reading(WHERE, samples[0], sampler, 0, 2, trains=False) as worker:
                came.evaluated = [tuple(appliance.evaluate(worker.next(), steps)[0]) for _ in range(2)]
        came.by_table = all(cluster.is_by_table for cluster in appliance.clusters)
        came.waves = appliance.training_cluster.waves
        came.recomputed = len(appliance.training_cluster.plan.timeline.recomputed)
        layout = appliance.training_cluster.layout
        came.traffic = count_traffic(layout, present_bytes(appliance.memoryx), usual["shards"])
    return came, samples, links


def identify(links: list[ThreadLink]) -> None:
    """Tell the others the number of the trainer, by which they open their data."""
    for rank in range(1, len(links)):
        links[0].send(rank, "order", Identify(0))
        links[0].receive(rank, "identity")


def assert_same(found: Came, expected: Came) -> None:
    # NaN is like NaN. Where it was not looked, there are no norms of weights.
    seen = ("seen",) if any(found.seen) and any(expected.seen) else ()
    for name in ("losses", "norms", "tokens", "evaluated", *seen):
        assert str(getattr(found, name)) == str(getattr(expected, name)), name
    assert found.arrays.keys() == expected.arrays.keys()
    for name, values in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], values, err_msg=name)
