"""Activations computed again, by the command line: what the log and the result say of it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.end_to_end.runs import gpt_params

ALWAYS, NEVER = (("--set", f"trainer.init.activation_checkpointing={choice}") for choice in ("always", "never"))
LAYER = "transformer_decoder.layers"


@pytest.fixture
def run(cstool, tmp_path, data) -> Callable[..., tuple[dict[str, Any], list[str]]]:
    """Train a GPT of 3 layers, and return the result and the log, without times."""

    def run(name: str, *arguments: object) -> tuple[dict[str, Any], list[str]]:
        file = gpt_params(tmp_path / name, data, init__model__num_hidden_layers=3)
        outcome = cstool("run", "-p", file, "--json", "--lanes", 2, *arguments)
        assert outcome.code == 0, outcome.stderr
        log = (tmp_path / name / "model_dir" / "latest_run.log").read_text().splitlines()
        return json.loads(outcome.stdout), [line.partition("INFO:   ")[2] for line in log]

    return run


def said(log: list[str]) -> list[str]:
    """Return how the grains are worked on, according to the log."""
    return [line for line in log if line.startswith(("Preparing to execute", "Recomputing"))]


def test_the_log_and_the_result_say_what_is_recomputed_and_what_that_saves_and_costs(run):
    (kept, kept_log), (recomputed, log) = run("never", *NEVER), run("always", *ALWAYS)
    prepared = "Preparing to execute using 1 CSX: 12 grains of 4 samples, 2 lanes, 1 wave"
    assert said(kept_log) == [prepared]
    assert said(log) == [
        prepared,
        "Recomputing the activations of 2 layers in backward: a grain takes 1.14 MB, 2.74 MB if all were kept",
    ]
    assert kept["recomputed"] is None
    grain_bytes, whole_grain_bytes = (found["memory_bytes"]["activations"] // 12 for found in (recomputed, kept))
    assert recomputed["recomputed"] == {"layers": 2, "grain_bytes": grain_bytes, "whole_grain_bytes": whole_grain_bytes}
    assert recomputed["losses"] == kept["losses"]
    assert {tuple(seconds) for seconds in kept["op_seconds"].values()} == {("forward", "backward")}
    again = {op for op, seconds in recomputed["op_seconds"].items() if "again" in seconds}
    first_layers = {op for op in kept["op_seconds"] if op.startswith((f"{LAYER}.0.", f"{LAYER}.1."))}
    ends = ("ffn.ffn.1.linear_layer", "ffn.ffn.1.linear_layer.residual")
    assert again == {op for op in first_layers if not op.endswith(ends)}
    # Two layers: two norms, four matrices of attention, the first of the feed-forward part; with their biases.
    weights = 2 * (4 * 32 + 4 * (32 * 32 + 32) + (64 * 32 + 64))
    assert recomputed["streamed_bytes_per_step"] - kept["streamed_bytes_per_step"] == 4 * weights
