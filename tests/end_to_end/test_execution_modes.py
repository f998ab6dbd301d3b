"""The runtime executes what the artifact says, and a mode of the modelled wafer changes no bit of what it computes."""

from itertools import groupby
from pathlib import Path
from typing import Any

from cstool.foundation.progress import Silent
from cstool.model.graphs import SampleForm
from cstool.model.ir import Artifact, ExecutionMode, Panel
from cstool.model.params import load_params
from cstool.model.system import load_system
from cstool.plan.compiler import compile_model
from cstool.training.machine.memoryx import memoryx
from cstool.training.run.result import RunResult
from cstool.training.run.run import run
from cstool.training.run.session import RunOrder
from tests.end_to_end.runs import SEQUENCE, bits, gpt_params
from tests.models import FAMILIES


def compile_and_run(file: Path, system: str, mode: str, **asked: Any) -> tuple[Artifact, RunResult]:
    flags = {f"trainer.{key.replace('__', '.')}": (f"--{key}", value) for key, value in asked.items()}
    params = load_params(file, flags=flags)
    artifact = compile_model(params, load_system(system), execution_mode=mode, form=SampleForm(SEQUENCE))
    return artifact, run(params, artifact, RunOrder("train", lanes=2), Silent())


def test_modes_systems_and_micro_batches_leave_the_bits_alone(tmp_path, data):
    model = {f"init__model__{key}": value for key, value in FAMILIES["llama"].items()}
    ways = [("cs2", "weight_streaming"), ("cs3", "weight_streaming"), ("cs1", "pipelined")]
    found = []
    for number, (system, mode) in enumerate(ways):
        artifact, result = compile_and_run(gpt_params(tmp_path / str(number), data, **model), system, mode)
        assert artifact.mode is ExecutionMode(mode)
        modelled = {"system": system, "execution_mode": mode, "step_s": artifact.step_s}
        assert result.as_dict()["modelled"] == modelled
        found.append(bits(result))
    callbacks = [{"ScopedTrainFlags": {"csx.performance.micro_batch_size": 3}}]
    file = gpt_params(tmp_path / "small", data, **model, init__callbacks=callbacks)
    artifact, result = compile_and_run(file, "cs2", "weight_streaming")
    assert artifact.micro_batch_size == 3
    assert [*found, bits(result)] == [found[0]] * 4


def test_weights_stream_in_the_order_of_the_artifact(tmp_path, data, monkeypatch):
    """One grain, one lane: kernel after kernel forward, then the other way round for the deltas."""
    streamed: list[str] = []
    acquire = memoryx.MemoryX.acquire

    def recorded(self: memoryx.MemoryX, panel: Panel) -> Any:
        streamed.append(panel.weight)
        return acquire(self, panel)

    monkeypatch.setattr(memoryx.MemoryX, "acquire", recorded)
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data), "batch_size": 4}
    changes = {"init__loop": {"max_steps": 1}, "init__model__share_embedding_weights": False}
    file = gpt_params(tmp_path, data, **changes, fit={"train_dataloader": loader})
    artifact = compile_model(load_params(file), load_system("cs2"), form=SampleForm(SEQUENCE))
    run(load_params(file), artifact, RunOrder("train", lanes=1), Silent())
    kernel_of = {
        segment.name_of(weight, repetition): segment.name_of(kernel.name, repetition)
        for segment, kernels in zip(artifact.graph.segments, artifact.kernels, strict=True)
        for repetition in range(segment.count)
        for kernel in kernels
        for weight in kernel.weights
    }
    order = list(dict.fromkeys(kernel_of.values()))
    visited = [name for name, _ in groupby(kernel_of[weight] for weight in streamed)]
    # The last kernel, that of the loss, does both at once.
    assert visited == [*order, *reversed(order[:-1])]


# Activations computed again: what the log and the result say of it.


LAYER = "transformer_decoder.layers"


def said(log: list[str]) -> list[str]:
    """Return how the grains are worked on, according to the log."""
    return [line for line in log if line.startswith(("Preparing to execute", "Recomputing"))]


def test_the_log_and_the_result_say_what_is_recomputed_and_what_that_saves_and_costs(cstool, tmp_path, data):
    """Of a GPT of 3 layers."""

    def trained(choice: str) -> tuple[dict[str, Any], list[str]]:
        changes = {"init__model__num_hidden_layers": 3, "init__activation_checkpointing": choice}
        file = gpt_params(tmp_path / choice, data, **changes)
        document = cstool("run", "-p", file, "--json", "--lanes", 2).document
        log = (tmp_path / choice / "model_dir" / "latest_run.log").read_text().splitlines()
        return document, [line.partition("INFO:   ")[2] for line in log]

    (kept, kept_log), (recomputed, log) = trained("never"), trained("always")
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
