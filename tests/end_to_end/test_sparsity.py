"""Sparse training as a whole: masks, kernels, what zeros cost; checkpoints made sparse and made dense."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np
import pytest

from cstool.convert.convert import Request, convert
from cstool.model.params import load_params
from cstool.model.sparsity import is_update_step, starts_sparse
from cstool.model.sparsity.masks import topk_mask
from cstool.model.sparsity.schedules import drop_fraction_at
from cstool.training.kernels.sparse import matrix
from cstool.training.kernels.sparse.crossover import Crossover
from cstool.training.machine import sparsity as kernel_choice
from cstool.training.run.result import RunResult
from cstool.training.store import CheckpointReader, CheckpointWriter
from tests.end_to_end.memoryx_files import run_small, small_params
from tests.end_to_end.refusals import Outcome
from tests.end_to_end.runs import bits, digest, gpt_params, run_file
from tests.models import fc_mnist

INTEROP = Path(__file__).parents[1] / "interop"
LAYER = "transformer_decoder.layers.{}."
MATRICES = {
    **{f"self_attn.proj_{part}_dense_layer.weight": (32, 32) for part in ("q", "k", "v", "output")},
    **{f"ffn.ffn.{number}.linear_layer.weight": shape for number, shape in enumerate(((64, 32), (32, 64)))},
}
SHAPES = {LAYER.format(layer) + name: shape for layer in (0, 1) for name, shape in MATRICES.items()}
DROPCONNECT = {"algorithm": "dropconnect", "sparsity": 0.5}
LINEAR = 2 * (4 * 128 * 128 + 2 * 128 * 512)
"""weights of the matrices of a model of width 128"""


def train(
    folder: Path, data: Path, sparsity: Any, steps: int, changes: Mapping[str, Any] = MappingProxyType({}), **flags: Any
) -> RunResult:
    loop = {"init__loop": {"max_steps": steps}, "init__checkpoint": {"steps": steps}}
    return run_small(small_params(folder, data, init__sparsity=sparsity, **loop, **changes), **flags)


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "model_dir").glob("checkpoint_*.mdl"), key=lambda path: int(path.stem.split("_")[1]))


def indices(checkpoint: Path) -> dict[str, list[int]]:
    with h5py.File(checkpoint) as file:
        found = [key for key in file if key.endswith(".indices")]
        return {key[len("model.") : -len(".indices")]: file[key][:].tolist() for key in found}


def weight_bytes(result: RunResult) -> int:
    return sum(result.memory_bytes.get(key, 0) for key in ("weights", "sparse_patterns", "optimizer_state"))


def test_a_tenth_of_the_weights_takes_less_than_a_quarter_of_the_memory(tmp_path, data):
    """Of the linear weights: what is allocated for them and their optimizer state, and what a checkpoint holds."""
    width = {"init__model__hidden_size": 128, "init__model__filter_size": 512}
    asked = {"dense": [], "static": 0.9, "rigl": {"algorithm": "rigl", "sparsity": 0.9, "update": {"freq": 2}}}
    dense, *others = (train(tmp_path / name, data, sparsity, 2, width) for name, sparsity in asked.items())
    assert dense.memory_bytes["weights"] == 4 * dense.parameters
    others_bytes = 3 * 4 * (dense.parameters - LINEAR)
    assert weight_bytes(dense) - others_bytes == 3 * 4 * LINEAR
    whole_bytes, *sizes = (Path(result.checkpoints[-1]).stat().st_size for result in (dense, *others))
    with h5py.File(dense.checkpoints[-1]) as file:
        rest_bytes = whole_bytes - sum(tensor.nbytes for tensor in file.values())
    assert rest_bytes < 0.05 * whole_bytes
    for sparse, size_bytes in zip(others, sizes, strict=True):
        assert 0.1 < (weight_bytes(sparse) - others_bytes) / (3 * 4 * LINEAR) < 0.15
        assert (size_bytes - others_bytes - rest_bytes) / (3 * 4 * LINEAR) < 0.15
    assert others[0].memory_bytes["gradients"] < 0.25 * dense.memory_bytes["gradients"]


SMALLER = """
model.hidden_size=32 model.num_heads=2 model.filter_size=64 model.num_hidden_layers=2 model.max_position_embeddings=128
model.vocab_size=64 loop.max_steps=5 checkpoint.steps=1 checkpoint.save_initial_checkpoint=true
""".split()


@pytest.mark.parametrize(
    ("name", "freq", "updates"), [("params_gpt3_125m_static75", None, []), ("params_gpt3_125m_rigl75", 2, [2, 4])]
)
def test_the_vendors_sparse_files_train_as_they_are_but_smaller(cstool, tmp_path, data, name, freq, updates):
    settings = [*SMALLER, *([] if freq is None else [f"sparsity.update.freq={freq}"])]
    loader = "trainer.fit.train_dataloader"
    flags = ["--set", *(f"trainer.init.{each}" for each in settings), f"{loader}.data_dir={data}", "--model_dir"]
    flags += [tmp_path / "model_dir", "--set", f"{loader}.batch_size=8", "--json"]
    found = cstool("run", "-p", INTEROP / f"{name}.yaml", *flags).document
    assert sum(row["count"] for row in found["sparsity"]) == len(SHAPES)
    masks = [indices(path) for path in checkpoints(tmp_path)]
    assert len(masks) == 6
    for mask in masks:
        assert {weight: len(kept) for weight, kept in mask.items()} == {
            weight: rows * columns // 4 for weight, (rows, columns) in SHAPES.items()
        }
    for weight in SHAPES:
        assert [step for step in range(1, 6) if masks[step][weight] != masks[step - 1][weight]] == updates


def test_the_vendors_rigl_updates_after_every_100th_step_up_to_3500():
    [group] = load_params(INTEROP / "params_gpt3_125m_rigl75.yaml").sparsity
    assert [step for step in range(1, 4779) if is_update_step(group.update, step)] == [*range(100, 3501, 100)]
    assert starts_sparse(group.update)
    assert drop_fraction_at(group, 100) == pytest.approx(0.15 + 0.15 * math.cos(math.pi * 100 / 3584))


@pytest.mark.parametrize("group", [{"sparsity": 0.75}, pytest.param(DROPCONNECT, marks=pytest.mark.lab)], ids=str)
def test_a_run_that_goes_on_keeps_the_kernels_with_which_it_began(tmp_path, data, monkeypatch, group):
    """Though the machine would now measure otherwise; a run that takes the weights alone goes by the machine."""

    def train_where(measured: float, folder: str, steps: int, states: str | None = None) -> tuple[RunResult, set[str]]:
        """Return the run, and which kernels computed."""
        used: set[str] = set()
        crossover = Crossover(measured, measured, measured)
        with monkeypatch.context() as patch:
            patch.setattr(kernel_choice, "crossover", lambda *_, **__: crossover)
            for name in ("sparse_linear_forward", "linear_forward"):
                original = getattr(matrix, name)
                patch.setattr(matrix, name, lambda *a, name=name, original=original: (used.add(name), original(*a))[1])
            return train(tmp_path / folder, data, group, steps, sparse_kernels="auto", states=states), used

    straight, used = train_where(1.0, "straight", 4)
    assert used == {"sparse_linear_forward"}
    other, used = train_where(0.0, "other", 4)
    assert used == {"linear_forward"}
    assert bits(other) != bits(straight)
    train_where(1.0, "stopped", 2)
    resumed, used = train_where(0.0, "stopped", 4)
    assert used == {"sparse_linear_forward"}
    assert bits(resumed)[1] == bits(straight)[1]
    _, used = train_where(0.0, "stopped", 6, states="model,optimizer")
    assert used == {"linear_forward"}


def test_other_kernels_than_before_are_told(tmp_path, data, caplog):
    caplog.set_level("WARNING", "cstool")
    group = {"sparsity": 0.75}
    for steps, kernels in ((1, "never"), (2, "never"), (3, "always")):
        assert not caplog.messages
        train(tmp_path, data, group, steps, sparse_kernels=kernels)
    assert caplog.messages == [
        "Not as it was in the checkpoint: sparse_kernels never -> always. Bits may differ from a straight run."
    ]


def test_a_static_mask_that_goes_on_with_other_zeros_than_asked_for_is_told(tmp_path, data, caplog):
    train(tmp_path, data, 0.75, 1)
    train(tmp_path, data, 0.5, 2)
    name = LAYER.format(0) + "self_attn.proj_q_dense_layer.weight"
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"{name} goes on with the 75.0% zeros that it has in the checkpoint: a static mask does not change, whatever "
        "sparsity the params ask for."
    ]


# Mixtures with sparse experts: checkpoints, answers, the verdict.


def mixture(folder: Path, data: Path, **changes: Any) -> Path:
    moe = {"num_experts": 4, "top_k": 2}
    return small_params(folder, data, **{"init__model__moe": moe, "init__sparsity": 0.75, **changes})


def test_a_checkpoint_has_the_non_zeros_of_experts_and_the_run_says_what_was_sparse(tmp_path, data):
    result = run_small(mixture(tmp_path, data))
    layers = "transformer_decoder.layers."
    with h5py.File(result.checkpoints[-1]) as file:
        indices = [key.removesuffix(".indices") for key in file if key.endswith(".indices")]
        of_experts = [key for key in indices if ".ffn.experts.experts." in key]
        for key in of_experts:
            assert len(file[key]) == len(file[f"{key}.indices"]) == 64 * 32 // 4
            assert len(file[f"{key.replace('model.', 'optimizer.', 1)}.exp_avg"]) == 64 * 32 // 4
        # Routers stay dense.
        assert file[f"model.{layers}0.ffn.gate.weight"].shape == (4, 32)
    assert (len(of_experts), len(indices)) == (2 * 4 * 2, 2 * 4 * 2 + 2 * 4)
    rows = {row["weights"]: (row["count"], row["shape"], row["density"]) for row in result.sparsity}
    assert rows[f"{layers}*.ffn.experts.experts.*.0.linear_layer.weight"] == (8, [64, 32], 0.25)
    assert rows[f"{layers}*.ffn.experts.experts.*.1.linear_layer.weight"] == (8, [32, 64], 0.25)
    assert len(rows) == 2 + 4


@pytest.mark.takes("two trained models, and three answers")
def test_it_answers_as_its_dense_checkpoint_does_and_streams_less(cstool, conversion, ready, tmp_path):
    """One expert of six answers a token, so that the others are not read."""
    moe = "trainer.init.model.moe={num_experts: 6, top_k: 1}"
    sparse = ("--set", moe, "trainer.init.sparsity=0.9", "--model_dir", tmp_path / "sparse")
    dense = ("--set", moe, "--model_dir", tmp_path / "dense")
    assert cstool("run", "-p", ready, *sparse, "--max_steps", 2).code == 0
    converted = tmp_path / "dense" / "checkpoint_2.mdl"
    converted.parent.mkdir()
    source = tmp_path / "sparse" / "checkpoint_2.mdl"
    assert conversion(source, converted, "--to", "dense").code == 0
    asked = ("run", "-p", ready, "--mode", "infer", "--prompt", "the cat", "--temperature", 0, "--max_tokens", 24)
    found, expected = (cstool(*asked, "--json", *flags).document for flags in (sparse, dense))
    assert found["completions"][0]["text"] == expected["completions"][0]["text"]
    assert found["host"]["streamed_bytes"] < 0.7 * expected["host"]["streamed_bytes"]
    filed = cstool(*asked, "--json", *sparse, "--set", "trainer.init.memoryx.store=file").document
    assert filed["completions"] == found["completions"]


@pytest.mark.lab
def test_it_holds_against_its_dense_twin(cstool, tmp_path, data):
    file = mixture(tmp_path, data, init__loop__eval_steps=1)
    asked = ("--num_steps", 3, "--max_loss_gap", 1, "--json", "--lanes", 1)
    found = cstool("validate", "-p", file, *asked).document
    assert (found["holds"], found["problems"]) == (True, [])
    name = "transformer_decoder.layers.*.ffn.experts.experts.*.0.linear_layer.weight"
    [row] = [row for row in found["cost"]["rows"] if row["name"] == name]
    # An op of each layer, with a matrix of 64 x 32 for each of its experts.
    assert (row["count"], row["shape"], row["density"]) == (2, [64, 32], 0.25)
    assert row["sparse"]["flops"] == row["dense"]["flops"] / 4
    assert row["sparse"]["memory_bytes"] < 0.4 * row["dense"]["memory_bytes"]


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
def test_the_largest_are_kept_with_their_optimizer_state_and_a_sparse_run_goes_on(
    cstool, conversion, tmp_path, data, dense
):
    out = tmp_path / "sparse.mdl"
    outcome = conversion(dense, out, "--to", "sparse", "--sparsity", "0.75")
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
    cstool, conversion, tmp_path, data, sparse
):
    out, back = tmp_path / "dense.mdl", tmp_path / "back.mdl"
    outcome = conversion(sparse, out, "--to", "dense")
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
    assert conversion(out, back, "--to", "sparse").code == 0
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
