"""Fixtures for the tests of the store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.training.store import CheckpointWriter

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3)

WriteCheckpoint = Callable[..., Path]


@pytest.fixture
def weight() -> np.ndarray[Any, Any]:
    return WEIGHT


@pytest.fixture
def write_checkpoint(tmp_path) -> WriteCheckpoint:
    """Write a small checkpoint: `write_checkpoint("checkpoint_3.mdl", step=3)`."""

    def write(name: str = "checkpoint_3.mdl", step: int = 3) -> Path:
        with CheckpointWriter(tmp_path / name, WEIGHT.nbytes) as writer:
            writer.add_tensor("model.weight", WEIGHT.shape, "float32", [WEIGHT[:1], WEIGHT[1:]])
            writer.link("model.tied", "model.weight")
            writer.add_tensor("optimizer.count", (), "int64", [np.array(7)])
            writer.add_value("global_step", step)
            writer.add_value("__metadata__", [{"version": "0.1.0", "model_name": "gpt2", "params": {"seed": 1}}])
        return tmp_path / name

    return write
