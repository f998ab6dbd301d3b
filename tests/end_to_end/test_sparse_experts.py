"""Mixtures with sparse experts as a whole: files, ranks, interruptions, answers, the verdict, the modelled wafer."""

import json
from pathlib import Path
from typing import Any

import h5py
import pytest

from cstool.run.result import RunResult
from tests.end_to_end.memoryx_files import IN_FILE, run_small, small_params
from tests.end_to_end.runs import digest
from tests.memoryx_works import EXPERTS
from tests.thread_ranks import run_ranks

RARELY = {"init__memoryx": {**IN_FILE["init__memoryx"], "commit_steps": 4}}
LOOP = {"init__loop": {"max_steps": 8}, "init__checkpoint": {"steps": 8}}
CHANGING: dict[str, dict[str, Any]] = {
    "rigl": {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 3}},
    "set": {"algorithm": "set", "sparsity": [0.5, 0.9, 0.75], "update": {"freq": 2}},
    "gmp": {"algorithm": "gmp", "sparsity": {"type": "linear", "init": 0.0, "slope": 0.1}, "update": {"freq": 2}},
    "dropconnect": {"algorithm": "dropconnect", "sparsity": 0.5},
}


def ending(result: RunResult) -> tuple[list[float], str]:
    return result.losses, digest(Path(result.checkpoints[-1]))


@pytest.mark.parametrize("algorithm", CHANGING)
def test_bits_are_the_same_in_a_file_on_several_ranks_and_interrupted(tmp_path, data, algorithm):
    changes = {**EXPERTS, "init__sparsity": CHANGING[algorithm]}
    straight = run_small(small_params(tmp_path / "ram", data, **changes, **LOOP))
    filed = run_small(small_params(tmp_path / "file", data, **changes, **LOOP, **RARELY))
    ranks = run_ranks(small_params(tmp_path / "ranks", data, **changes, **LOOP, **RARELY), 2)
    for result in (filed, ranks):
        assert ending(result) == ending(straight)
    if algorithm != "dropconnect":
        assert filed.memoryx.idle_panels >= filed.memoryx.idle_visits > 0
    losses: list[float] = []
    for stop in (3, 4, 8):
        loop = {"init__loop": {"max_steps": stop}, "init__checkpoint": {"steps": stop}}
        part = run_small(small_params(tmp_path / "stopped", data, **changes, **loop), lanes=1 + stop % 2)
        losses += part.losses
    assert (losses, ending(part)[1]) == ending(straight)


def test_bfloat16_has_the_same_bits_in_a_file_and_on_ranks(tmp_path, data):
    changes = {**EXPERTS, "init__sparsity": CHANGING["rigl"], "init__precision__host": "bfloat16", **LOOP}
    expected = ending(run_small(small_params(tmp_path / "ram", data, **changes)))
    assert ending(run_small(small_params(tmp_path / "file", data, **changes, **RARELY), lanes=2)) == expected
    assert ending(run_ranks(small_params(tmp_path / "ranks", data, **changes, **RARELY), 2)) == expected


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
