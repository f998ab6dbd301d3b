"""One whole run for each promise has the bits of a straight one; the unit tests of this name have the rest."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info

from cstool.training.machine import appliance
from cstool.training.machine.lanes import Lane, Pace
from cstool.training.run.result import RunResult
from tests.end_to_end.memoryx_files import IN_FILE, go_past_the_page_cache, run_small, small_params
from tests.end_to_end.runs import DROPOUT, bits, digest, gpt_params, run_file, write_text
from tests.models import SPARSITIES
from tests.thread_ranks import run_ranks

NUM_CSX = "trainer__init__backend__cluster_config__num_csx"
STEPS = "trainer__init__loop__max_steps"
RARELY = {"init__memoryx": {**IN_FILE["init__memoryx"], "commit_steps": 3}}
EXPERTS = {"init__model__moe": {"num_experts": 12, "top_k": 1}, "init__model__filter_size": 16}
KINDS: dict[str, dict[str, Any]] = {
    "dropout, clipped": DROPOUT,
    "rigl, experts": {**EXPERTS, "init__sparsity": SPARSITIES["rigl"], "init__precision": {}},
    "dropconnect, bfloat16": {"init__sparsity": SPARSITIES["dropconnect"], "init__precision__host": "bfloat16"},
    "set, Lion, data sets": {
        "init__sparsity": SPARSITIES["set"],
        "init__optimizer": {"Lion": {"learning_rate": 1e-3, "weight_decay": 0.1}},
    },
    "Adafactor": {"init__optimizer": {"Adafactor": {"learning_rate": 1e-2, "weight_decay": 0.1}}, **DROPOUT},
}


@pytest.fixture(scope="module")
def params(tmp_path_factory, data) -> Callable[..., Path]:
    """Write the params of a kind of run, by a way."""
    other = write_text(tmp_path_factory.mktemp("other") / "train", 90, seed=1)

    def write(folder: Path, kind: str, **changes: Any) -> Path:
        parts = [{"data_dir": str(each), "weight": share} for each, share in ((data, 0.7), (other, 0.3))]
        mixed = {"fit__train_dataloader__mixture": parts, "fit__train_dataloader__data_dir": None}
        return small_params(folder, data, **KINDS[kind], **(mixed if "data sets" in kind else {}), **changes)

    return write


@pytest.fixture(scope="module")
def straight(tmp_path_factory, params) -> Callable[[str], RunResult]:
    """Return a run in memory, on one system and one lane, all in one wave; the same is run once."""
    never = {"init__activation_checkpointing": "never"}
    return functools.cache(lambda kind: run_small(params(tmp_path_factory.mktemp("straight"), kind, **never)))


def some(*kinds: str) -> pytest.MarkDecorator:
    """Have a test with some kinds of runs; in the lab with all."""
    return pytest.mark.parametrize(
        "kind", [pytest.param(kind, marks=() if kind in kinds else pytest.mark.lab) for kind in KINDS]
    )


def ended(result: RunResult, losses: list[float] | None = None) -> tuple[list[float], str]:
    return losses or result.losses, digest(Path(result.checkpoints[-1]))


@some("dropout, clipped", "dropconnect, bfloat16")
def test_on_systems_and_lanes_in_waves_and_with_layers_that_run_again(tmp_path, params, straight, monkeypatch, kind):
    expected = straight(kind)
    found = run_small(params(tmp_path / "systems", kind), lanes=2, **{NUM_CSX: 4})
    assert ended(found) == ended(expected)
    kept = expected.memory_bytes["activations"]
    monkeypatch.setattr(appliance, "activation_budget_bytes", lambda *_: kept // 2)
    never = {"init__activation_checkpointing": "never"}
    found = run_small(params(tmp_path / "waves", kind, **never), lanes=2)
    assert (ended(found), found.waves) == (ended(expected), 2)
    monkeypatch.undo()
    always = {"init__activation_checkpointing": "always"}
    found = run_small(params(tmp_path / "again", kind, **always), lanes=2, **{NUM_CSX: 2})
    assert ended(found) == ended(expected)
    assert found.recomputed is not None
    assert found.memory_bytes["activations"] < kept
    assert found.streamed_bytes_per_step > expected.streamed_bytes_per_step


@pytest.mark.takes("runs with many experts, in a file, and on ranks that are threads")
@some("rigl, experts", "Adafactor")
def test_in_a_file_and_on_ranks(tmp_path, params, straight, kind):
    filed = run_small(params(tmp_path / "file", kind, **RARELY), lanes=2)
    ranks = run_ranks(params(tmp_path / "ranks", kind, **RARELY, init__backend__cluster_config__num_csx=2), 2)
    assert ended(filed) == ended(ranks) == ended(straight(kind))
    if "experts" in kind:
        # Updates that panels were owed were made together.
        assert filed.memoryx.idle_panels >= filed.memoryx.idle_visits > 0
        told = f"{filed.memoryx.idle_panels:,} panels of experts alone that no token of a step chose"
        assert told in filed.memoryx.line()


@some("dropout, clipped", "set, Lion, data sets")
def test_in_parts_each_in_another_place(tmp_path, params, straight, monkeypatch, kind):
    """Before, at and after steps that change masks; past the page cache at the end."""
    losses: list[float] = []
    for last, changes, flags in [
        (1, {}, {"lanes": 2}),
        (2, IN_FILE, {NUM_CSX: 2}),
        (3, {"init__activation_checkpointing": "always"}, {NUM_CSX: 4, "lanes": 3}),
        (4, IN_FILE, {}),
    ]:
        if last == 4:
            go_past_the_page_cache(monkeypatch.setattr)
        part = run_small(params(tmp_path, kind, **changes), **flags, **{STEPS: last})
        assert part.first_step == len(losses)
        losses += part.losses
    assert ended(part, losses) == ended(straight(kind))


def test_in_a_thread_and_with_a_run_beside_it(tmp_path, params, straight, monkeypatch):
    """BLAS must not have two threads: for some CPUs it sums in another order then."""
    seen, forward = set(), Lane.forward

    def look(lane: Lane, pace: Pace) -> None:
        seen.update(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        forward(lane, pace)

    def train(name: str, steps: int) -> RunResult:
        return run_small(params(tmp_path / name, kind), lanes=2, **{STEPS: steps})

    kind = "dropout, clipped"
    monkeypatch.setattr(Lane, "forward", look)
    with ThreadPoolExecutor(2) as threads:
        longer = threads.submit(train, "in a thread", 4)
        threads.submit(train, "beside it", 1).result()
        assert ended(longer.result()) == ended(straight(kind))
    assert seen == {1}


def test_what_has_no_weight_in_a_mixture_is_not_read(tmp_path, data):
    """Nor does interleaving one data set change its order."""
    other = write_text(tmp_path / "other" / "train", 90, seed=1)
    parts = [{"data_dir": str(data), "weight": 0}, {"data_dir": str(other), "weight": 1}]
    loader = {"data_processor": "GptHDF5MapDataProcessor", "batch_size": 48}
    mixed, plain, shuffled = (
        run_file(gpt_params(tmp_path / str(number), other, fit__train_dataloader={**loader, **of}))
        for number, of in enumerate(
            ({"mixture": parts}, {"data_dir": str(other)}, {"data_dir": str(other), "shuffle": True})
        )
    )
    assert bits(mixed) == bits(plain)
    assert mixed.losses != shuffled.losses


def test_the_losses_fall(tmp_path, data):
    losses = run_file(gpt_params(tmp_path, data, init__loop={"max_steps": 20})).losses
    assert losses[0] == pytest.approx(4.1, abs=0.1)  # about ln 64, what a model that knows nothing has
    assert losses[-1] < 3.0
