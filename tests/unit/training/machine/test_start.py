"""What a run starts from: of a checkpoint that has weights alone these, of any other all that was asked for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.model.params import ALL_STATES, load_params
from cstool.training.machine.start import choose_start
from cstool.training.store import CheckpointWriter

PARAMS = load_params(Path(__file__).parents[4] / "params" / "fc_mnist.yaml")
LOADER = {"dataloader": {"batches_streamed": 0, "batch_size": 0}}
WEIGHTS, STATE = ("model.w",), ("model.w", "optimizer.w.exp_avg")
ALONE = "has weights alone, no state of an optimizer."


@pytest.mark.parametrize(
    ("names", "values", "asked", "trains", "states"),
    [
        (WEIGHTS, {}, None, True, {"model"}),
        # That of a policy, or of the vendor's where the state of the optimizer was left out.
        (WEIGHTS, {"global_step": 7}, None, True, {"model"}),
        (WEIGHTS, {}, {"model", "optimizer"}, True, {"model"}),
        # What loads no weights is told what it lacks where it is loaded.
        (WEIGHTS, {}, {"optimizer"}, True, {"optimizer"}),
        # SGD without momentum keeps nothing for a weight, and its run goes on.
        (WEIGHTS, {"global_step": 7, **LOADER}, None, True, ALL_STATES),
        (STATE, {"global_step": 7}, None, True, ALL_STATES),
        (WEIGHTS, {}, None, False, ALL_STATES),
    ],
)
def test_weights_alone_are_begun_with(tmp_path, caplog, names, values, asked, trains, states):
    path, kept = tmp_path / "a.mdl", None if asked is None else frozenset(asked)
    with CheckpointWriter(path) as writer:
        for name in names:
            writer.add_tensor(name, (2,), "float32", [np.zeros(2, np.float32)])
        for key, value in values.items():
            writer.add_value(key, value)
    with caplog.at_level("INFO", "cstool"):
        found: Any = choose_start(PARAMS, path, kept, trains=trains)
    assert (found.checkpoint, found.states) == (path, states)
    wanted = ALL_STATES if kept is None else kept
    assert caplog.messages == ([f"{path} {ALONE}"] if states != wanted else [])
