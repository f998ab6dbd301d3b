"""Checkpoints made sparse and made dense: whole, true to the zeros, and runs go on from them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cstool.convert.convert import Request, convert
from cstool.model.sparsity.masks import topk_mask
from cstool.training.store import CheckpointReader, CheckpointWriter
from tests.end_to_end.refusals import Outcome
from tests.end_to_end.runs import digest, gpt_params, run_file
from tests.models import fc_mnist

Array = np.ndarray
TOPK = {"sparsity": 0.75, "init_method": "topk"}
SET = {"sparsity": 0.75, "algorithm": "set", "update": {"freq": 1}}
TWO_STEPS = {"init__loop": {"max_steps": 2}, "init__checkpoint": {"steps": 2}}


def trained(folder: Path, data: Path, sparsity: Any) -> Path:
    run_file(gpt_params(folder, data, init__sparsity=sparsity, **TWO_STEPS))
    return folder / "model_dir" / "checkpoint_2.mdl"


@pytest.fixture(scope="module")
def dense(tmp_path_factory, data) -> Path:
    return trained(tmp_path_factory.mktemp("dense"), data, [])


@pytest.fixture(scope="module")
def sparse(tmp_path_factory, data) -> Path:
    return trained(tmp_path_factory.mktemp("sparse"), data, TOPK)


@pytest.fixture(scope="module")
def grown(tmp_path_factory, data) -> Path:
    """A sparse checkpoint right after its masks changed: what grew is stored, and zero."""
    return trained(tmp_path_factory.mktemp("grown"), data, SET)


def arrays(checkpoint: Path) -> dict[str, Array]:
    """Return all tensors with their zeros, read with h5py alone."""
    found = {}
    with h5py.File(checkpoint) as file:
        described = json.loads(file.attrs.get("sparsity.__metadata__", b'{"value": {}}'))["value"]
        for name in file:
            weight = name.removeprefix("model.")
            if name.startswith("optimizer."):
                weight = name.removeprefix("optimizer.").rpartition(".")[0]
            if weight not in described:
                found[name] = file[name][:]
            elif not name.endswith(".indices"):
                found[name] = np.zeros(described[weight]["shape"], np.float32)
                found[name].flat[file[f"model.{weight}.indices"][:]] = file[name][:]
    return {name: array for name, array in found.items() if not name.endswith((".indices", ".__metadata__"))}


def losses(cstool: Callable[..., Outcome], file: Path, checkpoint: Path, states: str) -> list[float]:
    """Go on from a checkpoint, in another model_dir, up to step 4."""
    flags = ("--checkpoint_path", checkpoint, "--load_checkpoint_states", states, "--sparse_kernels", "always")
    document = cstool("run", "-p", file, *flags, "--model_dir", file.parent / f"on_{states}", "--json").document
    assert document["last_step"] == 4
    return list(document["losses"])


@pytest.mark.takes("runs before and after")
def test_the_largest_are_kept_with_their_optimizer_state_and_a_sparse_run_goes_on(cstool, tmp_path, data, dense):
    out = tmp_path / "sparse.mdl"
    outcome = cstool("checkpoint", "convert", dense, out, "--to", "sparse", "--sparsity", "0.75")
    said = "12 of 36 weights are sparse, with 75.0% zeros on average\nCheckpoint saved to TMP/sparse.mdl\n"
    assert outcome == (0, said, "")
    before, after = arrays(dense), arrays(out)
    assert before.keys() == after.keys()
    for name, whole in before.items():
        weight = name.removeprefix("model.").removeprefix("optimizer.")
        weight = weight.rpartition(".")[0] if name.startswith("optimizer.") else weight
        is_linear = "layers" in name and ".norm" not in name and ".bias" not in name
        mask = topk_mask(before[f"model.{weight}"], 0.75) if is_linear else True
        np.testing.assert_array_equal(after[name], np.where(mask, whole, 0), err_msg=name)
    file = gpt_params(tmp_path, data, init__sparsity=TOPK)
    # The run itself prunes in the same way.
    assert losses(cstool, file, out, "model") == losses(cstool, file, dense, "model")
    # With all states it goes on at step 3, with its own moments.
    assert len(losses(cstool, file, out, "all")) == 2


@pytest.mark.takes("runs before and after")
def test_zeros_are_written_out_a_dense_run_goes_on_and_by_its_zeros_sparse_again_it_is_the_same(
    cstool, tmp_path, data, sparse
):
    out, back = tmp_path / "dense.mdl", tmp_path / "back.mdl"
    outcome = cstool("checkpoint", "convert", sparse, out, "--to", "dense")
    assert outcome == (0, "Checkpoint saved to TMP/dense.mdl\n", "")
    before, after = arrays(sparse), arrays(out)
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array, err_msg=name)
    with CheckpointReader(out) as reader:
        assert not [name for name in reader.tensor_names() if name.endswith(".indices")]
        assert reader.value("global_step") == 2
        assert "sparsity" not in reader.values()
        assert "sparse_kernels" not in reader.value("choices")
    file = gpt_params(tmp_path, data)
    assert losses(cstool, file, out, "model") == losses(cstool, file, sparse, "model")
    assert len(losses(cstool, file, out, "all")) == 2
    assert cstool("checkpoint", "convert", out, back, "--to", "sparse").code == 0
    assert digest(back) == digest(sparse)
    with CheckpointReader(back) as new, CheckpointReader(sparse) as old:
        assert new.value("sparsity") == old.value("sparsity")
        assert new.link_of("model.lm_head.weight") == old.link_of("model.lm_head.weight") is not None


def test_the_filter_says_which_become_sparse_and_those_that_are_stay_as_they_are(cstool, tmp_path, data, dense):
    first, second = tmp_path / "first.mdl", tmp_path / "second.mdl"
    command = ("checkpoint", "convert", dense, first, "--to", "sparse", "--sparsity", "0.5")
    filters = ("--param_filter", "*proj_q*", "--param_filter", "*.0.*proj_k*")
    document = cstool(*command, *filters, "--json").document
    layer = "transformer_decoder.layers.{}.self_attn.proj_{}_dense_layer.weight"
    assert document["densities"] == {layer.format(n, part): 0.5 for n, part in ((0, "q"), (0, "k"), (1, "q"))}
    # A params file says it as well; what is sparse already and not named keeps its zeros.
    groups = [{"sparsity": 0.9, "param_filter": "*ffn*weight"}, {"algorithm": "dropconnect", "sparsity": 0.1}]
    file = gpt_params(tmp_path, data, init__sparsity=groups)
    command = ("checkpoint", "convert", first, second, "--to", "sparse", "--sparsity", "0.75", "-p", file, "--json")
    densities = cstool(*command).document["densities"]
    assert {density for name, density in densities.items() if "ffn" in name} == {0.25}
    assert {name: density for name, density in densities.items() if "ffn" not in name} == document["densities"]


def test_numbers_that_are_stored_though_zero_stay_stored(tmp_path, data, grown):
    """A number that has only just grown: masks count it, and its optimizer state."""
    first = "transformer_decoder.layers.0.self_attn.proj_q_dense_layer.weight"
    with h5py.File(grown) as file:
        stored = {name: file[name][:] for name in file if first in name}
    assert np.count_nonzero(stored[f"model.{first}"] == 0) > 0
    with_dense = tmp_path / "part.mdl"
    convert(Request(grown, tmp_path / "dense.mdl", to="dense"))
    convert(Request(grown, with_dense, to="sparse", sparsity=0.9, param_filter=("*ffn*",)))
    with h5py.File(with_dense) as file:
        for name, numbers in stored.items():
            np.testing.assert_array_equal(file[name][:], numbers, err_msg=name)


def test_a_run_of_digits_becomes_sparse_too(tmp_path):
    graph = fc_mnist(6, 4)
    rng = np.random.default_rng(1)
    model = {"name": "fc_mnist", "hidden_sizes": [6, 4]}
    with CheckpointWriter(tmp_path / "a.mdl") as writer:
        for name, weight in graph.weights.items():
            writer.add_tensor(f"model.{name}", weight.shape, "float32", [rng.random(weight.shape, np.float32) + 1])
        params = {"trainer": {"init": {"model": model}}}
        writer.add_value("__metadata__", [{"version": "1", "model_name": "fc_mnist", "params": params}])
    done = convert(Request(tmp_path / "a.mdl", tmp_path / "b.mdl", to="sparse", sparsity=0.5))
    assert done.densities == {"fc_layers.0.weight": 0.5, "fc_layers.1.weight": 0.5}
