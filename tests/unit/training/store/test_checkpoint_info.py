"""What is told about a checkpoint."""

import datetime
import os

import numpy as np
import pytest

import cstool
from cstool.training.store import (
    CheckpointInfo,
    TensorInfo,
    describe_checkpoint,
    open_checkpoint,
    tensor_norms,
)
from tests.unit.training.store.stored import write_state


def test_a_checkpoint_is_described(write_checkpoint):
    path = write_checkpoint()
    os.utime(path, (0, 0))
    with open_checkpoint(path) as state:
        found = describe_checkpoint(state)
    assert found == CheckpointInfo(
        path=path,
        version="1.1",
        cstool_version=cstool.__version__,
        step=3,
        model_name="gpt2",
        seed=None,
        batches_streamed=None,
        parameter_count=12,
        bytes=path.stat().st_size,
        created=datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
        tensors=(TensorInfo("model.weight", (4, 3), "float32", 48), TensorInfo("optimizer.count", (), "int64", 8)),
        links={"model.tied": "model.weight"},
        values=("global_step", "__metadata__"),
    )


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("random", {"seed": 5, "generator": "philox4x32-10"}, {"seed": 5}),
        ("dataloader", {"batches_streamed": 30, "batch_size": 8}, {"batches_streamed": 30}),
        *(
            ("__metadata__", said, {})
            for said in (None, [], [{"version": "1"}], {"model_name": "a"}, [{"model_name": 5}])
        ),
        *(("global_step", step, {}) for step in ("3", 3.0, None, True)),
    ],
)
def test_what_a_checkpoint_says_of_its_run_is_told_and_what_it_does_not_say_is_none(tmp_path, key, value, found):
    with open_checkpoint(write_state(tmp_path / "a.mdl", values={key: value})) as state:
        info = describe_checkpoint(state)
    none = {"step": None, "model_name": None, "seed": None, "batches_streamed": None}
    assert {name: getattr(info, name) for name in none} == {**none, **found}


def test_norms_are_those_of_numpy_in_float64_and_tell_how_far_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr("cstool.training.store.saved_state.PIECE", 7)
    rng = np.random.default_rng(0)
    arrays = {
        "half": rng.standard_normal((5, 9)).astype(np.float16),
        "single": rng.standard_normal((40, 3)).astype(np.float32) * 1e30,
        "whole": rng.integers(-9, 9, (4, 4)),
        "scalar": np.array(-3, np.int8),
        "nothing": np.zeros((0, 4), np.float32),
    }
    odd = {"nan": np.array([1, np.nan]), "inf": np.array([1, np.inf]), "1e200": np.array([1, 1e200])}
    told: list[tuple[int, int]] = []
    with open_checkpoint(write_state(tmp_path / "a.mdl", {**arrays, **odd})) as state:
        norms = tensor_norms(state, arrays, lambda *at: told.append(at))
        assert [str(norm) for norm in tensor_norms(state, odd).values()] == ["nan", "inf", "inf"]
    total = sum(array.nbytes for array in arrays.values())
    assert (told[0], told[-1]) == ((14, total), (total, total))
    assert norms == pytest.approx(
        {name: float(np.linalg.norm(array.astype(np.float64).reshape(-1))) for name, array in arrays.items()}, rel=1e-14
    )
