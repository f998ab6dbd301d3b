"""Sessions for tests: a small fully connected network, params from a file, samples from memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cstool.model.optimizers import make_optimizer
from cstool.model.params import Params, load_params, parse_states
from cstool.training.data import Field
from cstool.training.machine.start import choose_start
from cstool.training.run.session import RunOrder, Session
from cstool.training.run.setup import take_up
from tests.models import fc_mnist
from tests.unit.training.machine.machines import machine

Array = np.ndarray
BATCH_SIZE = 4


class Digits:
    """Random samples with ten classes; sample i has class i % 10."""

    fields: Mapping[str, Field] = {
        "x": Field((784,), "float32"),
        "labels": Field((), "int32"),
        "mask": Field((), "float32"),
    }

    def __init__(self, sample_count: int = 20, unlabelled: int = 0) -> None:
        self.sample_count = sample_count
        self.unlabelled = unlabelled
        """how many samples at the beginning have no label that counts"""
        self.x = np.random.default_rng(0).standard_normal((sample_count, 784)).astype(np.float32)
        self.seen: list[list[int]] = []
        """the samples of each batch that was read"""

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0) -> None:
        self.seen.append(indices.tolist())
        out["x"][:] = self.x[indices]
        out["labels"][:] = indices % 10
        out["mask"][:] = indices >= self.unlabelled


class Recorder:
    """A progress that remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def start(self, task: str, total: int | None) -> None:
        self.events.append(("start", task, total))

    def advance(self, task: str, done: int, detail: str = "", *, loss: float | None = None) -> None:
        self.events.append(("advance", task, done))

    def finish(self, task: str) -> None:
        self.events.append(("finish", task))


def params_of(folder: Path, **init: Any) -> Params:
    """Return the params of a small network; keywords are sections of trainer.init."""
    sections = {
        "model": {"name": "fc_mnist", "hidden_sizes": [6, 4]},
        "optimizer": {"SGD": {"learning_rate": 0.1, "momentum": 0.9}},
        "model_dir": str(folder / "model_dir"),
        **init,
    }
    loader = {"data_processor": "MNISTDataProcessor", "data_dir": str(folder), "batch_size": BATCH_SIZE}
    folder.mkdir(exist_ok=True)
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": sections, "fit": {"train_dataloader": loader}}}))
    return load_params(file)


@contextmanager
def session(folder: Path, *, weights: tuple[int, ...] = (6, 4), **init: Any) -> Iterator[Session]:
    """Lend a session of a small network with random weights."""
    params = params_of(folder, **init)
    params.model_dir.mkdir(exist_ok=True, parents=True)
    graph = fc_mnist(*weights)
    with machine(graph, BATCH_SIZE, optimizer=make_optimizer(params.optimizer, None)) as appliance:
        yield Session(params, RunOrder("train"), graph, appliance, Recorder())


def restored(found: Session, checkpoint: Path | None, states: str | None, *, strict: bool) -> None:
    """Do what a run does before it trains or evaluates."""
    trains = found.appliance.memoryx.optimizer is not None
    wanted = None if states is None else parse_states(states)
    if not strict:
        loading = found.params.checkpoint.model_copy(update={"disable_strict_checkpoint_loading": True})
        found.params = replace(found.params, checkpoint=loading)
    take_up(found, choose_start(found.params, checkpoint, wanted, trains=trains))
