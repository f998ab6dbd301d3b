"""Whatever fails in a step, in whichever thread, ends the step with that error: nobody waits for what never comes."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.model.ir import _graph
from cstool.model.optimizers import Step, make_optimizer
from cstool.model.params import AdamW
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.budgets import update_threads
from cstool.training.machine.memoryx.memoryx import MemoryX
from cstool.training.machine.swarmx import InProcess
from cstool.training.store import CommittedStore, FileStore
from cstool.training.store.block_file import BlockFile
from cstool.training.store.panel_cache import PanelCache
from tests.models import decoder
from tests.patience import PATIENCE_S, within_patience
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.machines import USUAL, GradientKeeper, make_appliance, random_batch
from tests.unit.training.machine.sparse_machines import rules

Array = np.ndarray
PANEL_BYTES = 3 * 4 * 8
MEMORY_BYTES = 8 * 2**10


class Broken(Exception):
    """What a test makes happen."""


@pytest.fixture(autouse=True)
def _many_panels(monkeypatch):
    monkeypatch.setattr(_graph, "PANEL_BYTES", PANEL_BYTES)


@contextmanager
def file_machine(path: Path, **settings: Any) -> Iterator[Appliance]:
    """Lend an appliance whose store is a file, with room for one gradient at a time on its way to an update."""
    adamw = make_optimizer(AdamW(learning_rate=0.01), None)
    usual = {**USUAL, "optimizer": adamw, "lanes": 3, "waiting_bytes": PANEL_BYTES, "memory_bytes": 2**30}
    with make_appliance(decoder(), store=FileStore(path, MEMORY_BYTES), **{**usual, **settings}) as appliance:
        appliance.prepare(8, trains=True)
        appliance.memoryx.initialize(1)
        appliance.memoryx.reserve()
        yield appliance


def train(path: Path, *, steps: int = 3, before: Callable[[], object] = lambda: None, **settings: Any) -> None:
    """Train and commit some steps; `before` is called when the first has been committed."""

    def work() -> None:
        with file_machine(path, **settings) as appliance:
            for step in range(1, steps + 1):
                appliance.train_step(random_batch(appliance.graph, 8), step, 0.01)
                appliance.memoryx.commit(lambda step=step: {"global_step": step})  # type: ignore[misc]
                if step == 1:
                    appliance.memoryx.drain()
                    before()
            appliance.memoryx.drain()

    within_patience(work)


@pytest.mark.parametrize(
    ("algorithm", "lanes", "max_gradient_norm"),
    [("set", 1, 1.0), ("rigl", 3, None), ("rigl", 1, 1.0), ("dropconnect", 3, 1.0), ("dropconnect", 1, None)],
)
def test_gradients_of_a_weight_whose_mask_changes_need_no_more_room(tmp_path, max_gradient_norm, lanes, algorithm):
    update = {} if algorithm == "dropconnect" else {"update": {"freq": 2}}
    name = "transformer_decoder.layers.0.ffn.ffn.0.linear_layer.weight"
    sparsity = rules({name: group(0.5, algorithm=algorithm, **update)})
    train(tmp_path / "m.h5", sparsity=sparsity, max_gradient_norm=max_gradient_norm, lanes=lanes)


def breaking(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, after: int = 0) -> None:
    original, calls = getattr(owner, method), []

    def call(*arguments: Any, **keys: Any) -> Any:
        calls.append(None)
        if len(calls) > after:
            raise Broken
        return original(*arguments, **keys)

    monkeypatch.setattr(owner, method, call)


PLACES = {
    "a read": (BlockFile, "read"),
    "a write": (BlockFile, "write"),
    "an update": (FileStore, "rewrite"),
    "the begin of an update": (PanelCache, "claim"),
    "a lane that wants weights": (InProcess, "acquire"),
    "a lane that hands in a gradient": (InProcess, "reduce"),
    "the end of a loan": (InProcess, "release"),
    "a lane with the sum of a gradient": (MemoryX, "receive"),
    "the end of a commit": (BlockFile, "sync"),
    "a commit": (FileStore, "commit"),
}
WAYS = [[(0, 3, None), (40, 3, 1.0)], [(40, 1, None), (0, 1, 1.0)]]
WAYS_OF_COMMITS = [(0, 3, 1.0), (2, 3, None)]
"""calls before it fails, lanes, the norm: of each place at once and later, with a norm and without"""
CASES = [
    pytest.param(place, *way, marks=() if number == turn // 2 % 2 else pytest.mark.lab)
    for turn, place in enumerate(PLACES)
    for number, way in enumerate(WAYS_OF_COMMITS if "commit" in place else WAYS[turn % 2])
]


@pytest.mark.parametrize(("place", "after", "lanes", "max_gradient_norm"), CASES)
def test_what_fails_ends_the_run(tmp_path, monkeypatch, place, after, max_gradient_norm, lanes):
    def before() -> None:
        breaking(monkeypatch, *PLACES[place], after)

    with pytest.raises(Broken):
        train(tmp_path / "m.h5", steps=5, before=before, lanes=lanes, max_gradient_norm=max_gradient_norm)


def test_a_commit_under_way_is_made_when_the_next_step_fails(tmp_path, monkeypatch):
    """Nothing of the step that failed is in it."""
    train(tmp_path / "two.h5", steps=2, max_gradient_norm=1.0)

    def train_and_fail() -> None:
        with file_machine(tmp_path / "three.h5", max_gradient_norm=1.0) as appliance:
            for step in (1, 2, 3):
                if step == 3:
                    breaking(monkeypatch, InProcess, "reduce", 40)
                appliance.train_step(random_batch(appliance.graph, 8), step, 0.01)
                appliance.memoryx.commit(lambda step=step: {"global_step": step})  # type: ignore[misc]

    with pytest.raises(Broken):
        within_patience(train_and_fail)
    expected, found = (committed(tmp_path / name) for name in ("two.h5", "three.h5"))
    assert found == expected


def committed(path: Path) -> tuple[int, list[bytes]]:
    with CommittedStore(path) as found:
        found.verify_all()
        return found.record.step, [found.read(name).tobytes() for name in found.tensor_names()]


class Gated(GradientKeeper):
    """An optimizer whose updates all wait for a gate to open."""

    is_one_loop = False

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun: list[int] = []
        """the sizes of the weights"""

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        self.begun.append(weight.size)
        assert self.gate.wait(PATIENCE_S)


def test_updates_of_a_step_that_will_not_be_finished_are_not_waited_for(tmp_path, monkeypatch):
    """But for one in each thread, which has begun."""
    optimizer, lanes = Gated(), 1

    def train_and_fail() -> None:
        with file_machine(tmp_path / "m.h5", optimizer=optimizer, lanes=lanes, waiting_bytes=2**20) as appliance:
            shutdown = appliance.memoryx._workers.shutdown

            def open_the_gate_when_no_update_begins_any_more(*, cancel_futures: bool) -> None:
                shutdown(wait=False, cancel_futures=cancel_futures)
                optimizer.gate.set()
                shutdown()

            monkeypatch.setattr(appliance.memoryx._workers, "shutdown", open_the_gate_when_no_update_begins_any_more)
            appliance.train_step(random_batch(appliance.graph, 8), 1, 0.01)
            raise Broken

    with pytest.raises(Broken):
        within_patience(train_and_fail)
    assert len(optimizer.begun) <= update_threads(lanes)
