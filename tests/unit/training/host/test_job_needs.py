"""What is estimated for a run is no less than what it allocates, purpose by purpose, and not much more."""

import os
from pathlib import Path
from typing import Any

import pytest

from cstool.foundation.errors import ClusterError
from cstool.model.ir import Graph
from cstool.model.params import Params, load_params
from cstool.training.host.job_needs import (
    BASE_BYTES,
    COMPILING_BYTES,
    START_S,
    estimate_disk,
    estimate_memory,
    estimate_seconds,
    lanes_of,
)
from cstool.training.machine.data_sets import check_data
from cstool.training.run.result import RunResult
from tests.end_to_end.runs import gpt_params, run_file, write_text

MIB = 2**20
RIGL = {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 1, "stop": 2}}
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    # lanes, and what is asked for
    "plain": (1, {}),
    "plain, lanes": (2, {}),
    "wide words, no clipping": (1, {"init__model__vocab_size": 4096, "init__precision": {}}),
    "SGD": (1, {"init__optimizer": {"SGD": {"learning_rate": 0.1, "momentum": 0.0}}}),
    "bfloat16": (1, {"init__precision": {"host": "bfloat16"}}),
    "recomputed": (1, {"init__activation_checkpointing": "always"}),
    "sparse": (2, {"init__sparsity": 0.75}),
    "rigl": (1, {"init__sparsity": RIGL}),
    "file": (2, {"init__memoryx": {"store": "file", "memory": "32MiB"}}),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "train", 60)


@pytest.fixture(scope="module")
def small(tmp_path_factory, data) -> tuple[Params, Graph]:
    params = load_params(gpt_params(tmp_path_factory.mktemp("small"), data, init__loop={"max_steps": 10}))
    return params, check_data(params, "train")


def ran(folder: Path, data: Path, lanes: int, mode: str = "train", **changes: Any) -> tuple[Params, RunResult]:
    """Params, and what came of running them for two steps."""
    changes = {"init__loop": {"max_steps": 2, "eval_steps": 1}, "init__checkpoint": {"steps": 1}} | changes
    file = gpt_params(folder, data, init__model__hidden_size=64, init__model__filter_size=256, **changes)
    return load_params(file), run_file(file, lanes=lanes, mode=mode)


@pytest.mark.parametrize("case", CASES)
def test_no_purpose_takes_more_than_is_estimated(tmp_path, data, case):
    lanes, changes = CASES[case]
    params, result = ran(tmp_path, data, lanes, **changes)
    graph = check_data(params, "train")
    need = estimate_memory(params, graph, "train", lanes, compiled=True)
    found = result.memory_bytes
    names = {"weights", "optimizer_state", "memoryx_buffers", "sparse_patterns", "gradients"}
    assert sum(found.get(name, 0) for name in names) <= need.state + need.gradients + need.beyond
    if case not in ("file", "bfloat16"):
        assert found["weights"] + found["optimizer_state"] == need.state
        assert found["gradients"] <= need.gradients
    assert found["activations"] == need.activations, "the layout is that of the run"
    assert found["scratch"] <= need.lanes
    assert sum(found.values()) <= need.total - BASE_BYTES
    on_disk = sum(path.lstat().st_blocks * 512 for path in (tmp_path / "model_dir").rglob("*"))
    assert on_disk <= estimate_disk(params, graph, "train", 2**30)


def test_checkpoints_that_go_are_not_counted_but_the_one_that_is_yet_to_go(tmp_path, data, small):
    sizes = []
    for kept in (None, 1, 2):
        callbacks = {} if kept is None else {"init__callbacks": [{"KeepNCheckpoints": {"n": kept}}]}
        file = gpt_params(tmp_path, data, init__loop={"max_steps": 10}, init__checkpoint={"steps": 1}, **callbacks)
        sizes.append(estimate_disk(load_params(file), small[1], "train", 2**30))
    of_one = sizes[2] - sizes[1]
    assert of_one > 0
    assert sizes[0] - sizes[1] == 8 * of_one


def test_evaluation_beside_training_has_activations_of_its_own(tmp_path, data):
    params, result = ran(tmp_path, data, 2, mode="train_and_eval")
    graph = check_data(params, "train_and_eval")
    both, alone = (estimate_memory(params, graph, mode, 2, compiled=True) for mode in ("train_and_eval", "eval"))
    assert result.memory_bytes["activations"] == both.activations
    assert alone.gradients == 0
    assert alone.total < both.total


def test_what_does_not_fit_goes_in_waves_and_needs_less_what_never_fits_says_so(tmp_path, data, small):
    params = load_params(gpt_params(tmp_path, data, init__model__hidden_size=128, init__model__filter_size=1024))
    graph = check_data(params, "train")
    much, little = (estimate_memory(params, graph, "train", 1, room, compiled=True) for room in (2**34, 330 * MIB))
    assert little.activations < much.activations
    assert little.total <= 330 * MIB
    assert much.slack > 0
    with pytest.raises(ClusterError) as raised:
        estimate_memory(*small, "train", 1, 200 * MIB, compiled=True)
    message, hint = str(raised.value).splitlines()
    assert message.startswith(
        "the model: its weights, optimizer state and gradients must fit what a job may take (0 bytes beside the "
        "program itself), got "
    )
    assert hint.endswith(
        "--memoryx file keeps them on disk; a narrower model, a smaller vocabulary or fewer layers need less"
    )
    # Kernels that are yet to be compiled take memory, too.
    there, missing = (estimate_memory(*small, "train", 1, compiled=found) for found in (True, False))
    assert missing.beyond - there.beyond == COMPILING_BYTES


def test_a_model_that_is_too_large_to_lay_out_gets_what_a_job_may_be_given(small, monkeypatch):
    laid_out = estimate_memory(*small, "train", 1, 2**34, compiled=True)
    assert not laid_out.is_capped
    monkeypatch.setattr("cstool.training.host.job_needs.PLANNED_OPS", len(small[1].ops) - 1)
    for name in ("lay_out", "planned_setup"):
        monkeypatch.setattr(f"cstool.training.host.job_needs.{name}", None)
    capped = estimate_memory(*small, "train", 1, 2**34, compiled=True)
    assert capped.is_capped
    assert (capped.total, capped.state, capped.gradients) == (2**34, laid_out.state, laid_out.gradients)
    with pytest.raises(ClusterError, match="must fit what a job may take"):
        estimate_memory(*small, "train", 1, 200 * MIB, compiled=True)
    # Its time is known from others alone.
    monkeypatch.setattr("cstool.training.host.job_needs.load_rates", lambda: object())
    assert estimate_seconds(*small, "train", 1) is None
    assert estimate_seconds(*small, "train", 1, 2.0) == START_S + 20.0


def test_lanes_are_those_of_a_run_and_no_more_than_there_are(tmp_path, data, small, monkeypatch):
    monkeypatch.setattr("cstool.training.machine.grains.available_cores", lambda: 8)
    large = load_params(gpt_params(tmp_path, data, init__model__hidden_size=512, init__model__filter_size=2048))
    assert lanes_of(*small, "train") == 1
    assert [lanes_of(large, check_data(large, "train"), "train", cores) for cores in (None, 3, 1)] == [8, 3, 1]


def test_time_is_that_of_steps_that_were_measured_or_unknown(tmp_path, data, monkeypatch):
    monkeypatch.setattr("cstool.training.host.job_needs.load_rates", lambda: None)
    loop = {"max_steps": 100, "eval_steps": 3, "eval_frequency": 50}
    params = load_params(gpt_params(tmp_path, data, init__loop=loop))
    graph = check_data(params, "train")
    assert estimate_seconds(params, graph, "train", 1) is None
    assert estimate_seconds(params, graph, "eval", 1, 0.5) is None
    assert estimate_seconds(params, graph, "train", 1, 0.5) == START_S + 50
    # Twice three batches, forward.
    assert estimate_seconds(params, graph, "train_and_eval", 1, 0.5) == pytest.approx(START_S + 51)
    epochs = load_params(gpt_params(tmp_path / "epochs", data, init__loop={"num_epochs": 1}))
    assert estimate_seconds(epochs, graph, "train", 1, 0.5) is None
    assert os.environ.get("CSTOOL_MEMORY") is None
