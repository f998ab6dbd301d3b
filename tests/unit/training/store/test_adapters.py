"""Checkpoints of adapters: laid over their base, folded into it, and refused where the two do not belong together."""

from pathlib import Path

import numpy as np
import pytest

from cstool.foundation.errors import CheckpointError, DamagedCheckpointError
from cstool.training.store import (
    ADAPTERS,
    CheckpointReader,
    CheckpointWriter,
    Folded,
    adapters_of,
    merge_adapters,
    open_with_base,
)
from cstool.training.store import folding as module
from cstool.training.store.adapters import weights_digest
from tests.contract.refusal import refusal

GENERATOR = np.random.default_rng(5)
WEIGHT, BIAS = GENERATOR.standard_normal((7, 5), np.float32), GENERATOR.standard_normal(7, np.float32)
A, B = GENERATOR.standard_normal((2, 5), np.float32), GENERATOR.standard_normal((7, 2), np.float32)
PARAMS = {"trainer": {"init": {"callbacks": [{"Lora": {}}, {"KeepNCheckpoints": {"n": 1}}]}}}
TOTAL = (WEIGHT + 0.75 * (B.astype(np.float64) @ A)).astype(np.float32)


def write(path: Path, tensors: dict[str, np.ndarray], values: dict | None = None, links: dict | None = None) -> Path:
    with CheckpointWriter(path) as writer:
        for name, array in tensors.items():
            writer.add_tensor(name, array.shape, str(array.dtype), [array])
        for name, target in (links or {}).items():
            writer.link(name, target)
        for name, value in (values or {}).items():
            writer.add_value(name, value)
    return path


@pytest.fixture
def base(tmp_path) -> Path:
    tensors = {"model.layer.weight": WEIGHT, "model.layer.bias": BIAS, "optimizer.layer.weight.exp_avg": WEIGHT}
    return write(tmp_path / "base.mdl", tensors, {"global_step": 9}, {"model.tied": "model.layer.weight"})


@pytest.fixture
def tuned(base) -> Path:
    """A checkpoint of adapters beside the base."""
    with CheckpointReader(base) as reader:
        found = {"path": str(base), "digest": weights_digest(reader)}
    values = {
        "global_step": 3,
        ADAPTERS: {"scales": {"layer": 0.75}, "base": found},
        "__metadata__": [{"version": "1", "params": PARAMS}],
    }
    return write(base.with_name("tuned.mdl"), {"model.layer.lora_A": A, "model.layer.lora_B": B}, values)


def test_adapters_are_read_with_the_weights_of_their_base(tuned, base):
    with open_with_base(tuned) as state:
        assert state.values()["global_step"] == 3
        assert state.paths == (tuned, base)
        names = ["model.layer.lora_A", "model.layer.lora_B", "model.layer.weight", "model.layer.bias"]
        assert state.tensor_names() == names
        assert state.link_of("model.tied") == "model.layer.weight"
        for name, array in zip(names, (A, B, WEIGHT, BIAS), strict=True):
            np.testing.assert_array_equal(state.read(name), array)
            np.testing.assert_array_equal(
                np.concatenate([part.copy() for part in state.pieces(name)]), array.reshape(-1)
            )
        np.testing.assert_array_equal(state.read("model.tied", None, 2, 4), WEIGHT[2:4])
        state.verify_all()
    with open_with_base(base) as state:
        assert adapters_of(state) is None


def test_folded_weights_are_the_sums_in_any_parts(tuned, monkeypatch):
    monkeypatch.setattr(module, "_FOLDED_ROWS", 3)
    monkeypatch.setattr("cstool.training.store.saved_state.PIECE", 4)
    with open_with_base(tuned) as state:
        folded = Folded(state, adapters_of(state)["scales"])
        assert folded.tensor_names() == ["model.layer.weight", "model.layer.bias"]
        np.testing.assert_array_equal(folded.read("model.layer.weight"), TOTAL)
        np.testing.assert_array_equal(folded.read("model.layer.weight", None, 1, 6), TOTAL[1:6])
        np.testing.assert_array_equal(
            np.concatenate([part.copy() for part in folded.pieces("model.layer.weight")]), TOTAL.reshape(-1)
        )
        np.testing.assert_array_equal(np.concatenate([part.copy() for part in folded.pieces("model.layer.bias")]), BIAS)
        folded.verify_all()


def test_merged_they_are_a_model_like_any_other(tuned, tmp_path):
    assert merge_adapters(tuned, tmp_path / "merged.mdl") == 1
    with CheckpointReader(tmp_path / "merged.mdl") as state:
        np.testing.assert_array_equal(state.read("model.layer.weight"), TOTAL)
        np.testing.assert_array_equal(state.read("model.tied"), TOTAL)
        kept = {"trainer": {"init": {"callbacks": [{"KeepNCheckpoints": {"n": 1}}]}}}
        assert state.values() == {"__metadata__": [{"version": "1", "params": kept}]}
        assert [name for name in state.tensor_names() if "lora" in name or "optimizer" in name] == []


def test_a_base_that_was_moved_is_found_beside_its_adapters(tuned, base, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    tuned.rename(elsewhere / tuned.name)
    base.rename(elsewhere / base.name)
    with open_with_base(elsewhere / tuned.name) as state:
        assert state.paths[1] == elsewhere / base.name


def test_a_base_that_is_not_there(tuned, base):
    base.unlink()
    message = f"{tuned}: has adapters beside the weights of {base}, which is not there"
    with refusal(CheckpointError, message, f"{base} is looked for, too"):
        open_with_base(tuned)


def test_a_base_with_other_weights(tuned, base):
    base.unlink()
    write(base, {"model.layer.weight": WEIGHT + 1, "model.layer.bias": BIAS})
    message = f"{tuned}: must be beside the weights that its adapters were trained with, {base} has others"
    with refusal(CheckpointError, message, "the file has changed since, or is another of that name"):
        open_with_base(tuned)


@pytest.mark.parametrize("value", [5, {}, {"scales": 1}, {"scales": {"layer": "x"}}, {"scales": {}, "base": "there"}])
def test_a_value_that_makes_no_sense(tmp_path, value):
    path = write(tmp_path / "x.mdl", {"model.layer.lora_A": A}, {ADAPTERS: value})
    message = f"{path}: adapters must be scales by module, and a base, got {value!r}"
    with refusal(DamagedCheckpointError, message, None):
        open_with_base(path)


def test_a_checkpoint_without_adapters_has_nothing_to_merge(base, tmp_path):
    with refusal(CheckpointError, f"{base}: must have adapters to fold into the weights, it has none", None):
        merge_adapters(base, tmp_path / "merged.mdl")
    assert not (tmp_path / "merged.mdl").exists()


def test_adapters_beside_sparse_weights_are_not_folded(tmp_path):
    tensors = {"model.layer.weight": WEIGHT[0], "model.layer.weight.indices": np.arange(5, dtype=np.uint8)}
    tensors |= {"model.layer.lora_A": A, "model.layer.lora_B": B}
    values = {ADAPTERS: {"scales": {"layer": 0.75}}, "sparsity": {"layer.weight": {"shape": [7, 5]}}}
    path = write(tmp_path / "x.mdl", tensors, values)
    message = f"{path}: has adapters beside sparse weights, such as layer, which they cannot be folded into"
    with refusal(CheckpointError, message, "a run with the same params evaluates them, and trains them on"):
        merge_adapters(path, tmp_path / "merged.mdl")
