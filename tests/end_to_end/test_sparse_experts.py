"""Mixtures with sparse experts as a whole: checkpoints, answers, the verdict."""

import json
from pathlib import Path
from typing import Any

import h5py
import pytest

from tests.end_to_end.memoryx_files import run_small, small_params


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
def test_it_answers_as_its_dense_checkpoint_does_and_streams_less(cstool, ready, tmp_path):
    """One expert of six answers a token, so that the others are not read."""
    moe = "trainer.init.model.moe={num_experts: 6, top_k: 1}"
    sparse = ("--set", moe, "trainer.init.sparsity=0.9", "--model_dir", tmp_path / "sparse")
    dense = ("--set", moe, "--model_dir", tmp_path / "dense")
    assert cstool("run", "-p", ready, *sparse, "--max_steps", 2).code == 0
    converted = tmp_path / "dense" / "checkpoint_2.mdl"
    converted.parent.mkdir()
    source = tmp_path / "sparse" / "checkpoint_2.mdl"
    assert cstool("checkpoint", "convert", source, converted, "--to", "dense").code == 0
    asked = (
        "run",
        "-p",
        ready,
        "--mode",
        "infer",
        "--prompt",
        "the cat",
        "--temperature",
        0,
        "--max_tokens",
        24,
        "--json",
    )
    found, expected = (json.loads(cstool(*asked, *flags).stdout) for flags in (sparse, dense))
    assert found["completions"][0]["text"] == expected["completions"][0]["text"]
    assert found["host"]["streamed_bytes"] < 0.7 * expected["host"]["streamed_bytes"]
    filed = json.loads(cstool(*asked, *sparse, "--set", "trainer.init.memoryx.store=file").stdout)
    assert filed["completions"] == found["completions"]


@pytest.mark.lab
def test_it_holds_against_its_dense_twin(cstool, tmp_path, data):
    file = mixture(tmp_path, data, init__loop__eval_steps=1)
    asked = ("--num_steps", 3, "--max_loss_gap", 1, "--json", "--lanes", 1)
    outcome = cstool("validate", "-p", file, *asked)
    assert outcome.code == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    assert (found["holds"], found["problems"]) == (True, [])
    name = "transformer_decoder.layers.*.ffn.experts.experts.*.0.linear_layer.weight"
    [row] = [row for row in found["cost"]["rows"] if row["name"] == name]
    # An op of each layer, with a matrix of 64 x 32 for each of its experts.
    assert (row["count"], row["shape"], row["density"]) == (2, [64, 32], 0.25)
    assert row["sparse"]["flops"] == row["dense"]["flops"] / 4
    assert row["sparse"]["memory_bytes"] < 0.4 * row["dense"]["memory_bytes"]
