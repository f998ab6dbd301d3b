"""Runs whose MemoryX is in a file: the same bits, whatever ends them, and whatever they go on from."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.foundation.errors import NonFiniteError
from cstool.training.machine import memoryx_store
from cstool.training.machine.appliance import Appliance, TrainStep
from cstool.training.machine.inputs import Batch
from cstool.training.run.result import RunResult
from cstool.training.store import FILE_NAME, committed_step, list_checkpoints, panel_cache
from tests.end_to_end.memoryx_files import IN_FILE, run_small, small_params
from tests.end_to_end.refusals import kept
from tests.end_to_end.runs import latest_bits
from tests.models import SPARSITIES
from tests.patience import within_patience

ROOM_BYTES = 5 * 2**14
"""for weights: five of the largest panels [bytes]"""
SPARSE = {"init__sparsity": SPARSITIES["rigl"]}


def file_run(folder: Path, data: Path, **changes: Any) -> RunResult:
    return run_small(small_params(folder, data, **{**SPARSE, **IN_FILE, **changes}), lanes=2)


@pytest.fixture(autouse=True)
def _little_room(monkeypatch):
    """Weights come and go, even of these small models."""
    monkeypatch.setattr(panel_cache, "STAYS_BYTES", 256)
    monkeypatch.setattr(memoryx_store, "_share", lambda *_, **__: (ROOM_BYTES, ROOM_BYTES // 4))


@pytest.fixture(scope="module")
def straight(undisturbed) -> str:
    return undisturbed(small_params, run_small, **SPARSE)


def test_a_checkpoint_on_its_way_is_saved_when_the_next_step_fails(tmp_path, data, monkeypatch, caplog):
    train_step = Appliance.train_step

    def fail_third(appliance: Appliance, batch: Batch, step: int, learning_rate: float) -> TrainStep:
        if step == 3:
            raise NonFiniteError("step 3: the loss is not finite")
        return train_step(appliance, batch, step, learning_rate)

    monkeypatch.setattr(Appliance, "train_step", fail_third)
    with caplog.at_level("INFO", "cstool"), pytest.raises(NonFiniteError):
        within_patience(lambda: file_run(tmp_path, data, init__checkpoint={"steps": 2}))
    folder = tmp_path / "model_dir"
    assert [entry.step for entry in list_checkpoints(folder)] == [2]
    assert (committed_step(folder / FILE_NAME), caplog.messages[-1].partition(" (")[0]) == (
        2,
        f"Saved checkpoint {folder / 'checkpoint_2.mdl'}",
    )


def test_a_run_killed_before_the_checkpoint_of_a_committed_step_saves_it_when_it_goes_on(tmp_path, data, straight):
    """Here it saves none at first; that it is in memory then changes nothing, either."""
    file_run(tmp_path, data, init__checkpoint={"steps": None})
    for memoryx in (IN_FILE, {}):
        gone_on = file_run(tmp_path, data, **memoryx)
        assert (len(gone_on.losses), len(gone_on.checkpoints)) == (0, 1)
        assert latest_bits(tmp_path / "model_dir") == straight
        assert file_run(tmp_path, data, **memoryx).checkpoints == []
        Path(gone_on.checkpoints[0]).unlink()


def test_an_evaluation_leaves_nothing_and_changes_nothing(tmp_path, data):
    file_run(tmp_path, data)
    folder = tmp_path / "model_dir"
    before = kept(folder)
    losses = set()
    checkpoint = {"fit__ckpt_path": str(folder / "checkpoint_4.mdl")}
    for changes in ({}, IN_FILE, checkpoint, {**IN_FILE, **checkpoint}):
        result = run_small(small_params(tmp_path, data, **SPARSE, **changes), mode="eval", lanes=2)
        losses.add(result.evaluations[0]["loss"])
        assert kept(folder) == before, changes
    assert len(losses) == 1


def test_evaluations_on_the_way_change_no_bit(tmp_path, data, straight):
    file = small_params(tmp_path, data, **SPARSE, **IN_FILE, init__loop={"max_steps": 4, "eval_frequency": 1})
    assert len(run_small(file, mode="train_and_eval", lanes=2).evaluations) == 4
    assert latest_bits(tmp_path / "model_dir") == straight


@pytest.mark.parametrize("memoryx", [IN_FILE, {}], ids=["file", "memory"])
def test_weights_alone_of_a_committed_step_are_where_a_run_begins(tmp_path, data, memoryx):
    """The file itself is replaced, since its step has a checkpoint."""
    file_run(tmp_path / "one", data)
    folder = tmp_path / "one" / "model_dir"
    checkpoint = shutil.copy(folder / "checkpoint_4.mdl", tmp_path)
    two = {**SPARSE, "init__loop": {"max_steps": 2}}
    expected = small_params(tmp_path / "two", data, fit__ckpt_path=checkpoint, **two)
    found = small_params(tmp_path / "one", data, **memoryx, **two)
    assert run_small(found, states="model").losses == run_small(expected, states="model").losses


def test_trainers_of_one_file_go_on_from_each_others_commits(cstool, tmp_path, data, straight):
    trainers = []
    for last in (1, 4):
        changes = {"init__loop": {"max_steps": last}, "init__checkpoint": {"steps": 4}}
        file = small_params(tmp_path, data, **SPARSE, **IN_FILE, **changes)
        trainers.append(yaml.safe_load(file.read_text()))
    file.write_text(yaml.safe_dump({"trainer": trainers}))
    first, second = cstool("run", "-p", file, "--json", "--sparse_kernels", "always").document["trainers"]
    assert (first["memoryx"]["committed_step"], second["first_step"], second["memoryx"]["committed_step"]) == (1, 1, 4)
    assert latest_bits(tmp_path / "model_dir") == straight


def test_validate_has_its_runs_in_memory(cstool, tmp_path, data):
    """It compares steps of runs that take turns; their memory is that of weights, too."""
    file = small_params(tmp_path, data, **IN_FILE, init__loop__eval_steps=1)
    asked = ("--sparsity", 0.5, "--num_steps", 3, "--max_loss_gap", 9, "--model_dir", tmp_path / "kept", "--json")
    assert not list((tmp_path / "kept").rglob(f"{FILE_NAME}*"))
    found = cstool("validate", "-p", file, *asked).document
    assert found["cost"]["dense_memory_bytes"]["weights"] > 0
    assert found["notes"] == ["memoryx does not count: the runs keep weights and optimizer state in main memory"]
