"""The whole compiler: what it makes of the files that people have, and what it says when nothing fits."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cstool.compiler import compile_model
from cstool.errors import CompileError
from cstool.ir import Artifact, ExecutionMode, SramEntry, verify_artifact
from cstool.models import SampleForm
from cstool.params import Params, load_params
from cstool.system import load_system, system_names
from tests.unit.compiler.programs import SMALL_GPT, written_params

ROOT = Path(__file__).parents[3]
FILES = sorted([*(ROOT / "params").glob("*.yaml"), *(ROOT / "tests" / "interop").glob("*.yaml")])


def small_gpt(folder: Path, batch_size: int = 48, **model: Any) -> Params:
    """Return the params of a GPT with two layers of width 64 and 128 tokens, but for `model`."""
    return written_params(folder / "gpt.yaml", {**SMALL_GPT, **model}, batch_size=batch_size)


def accounts(artifact: Artifact) -> list[tuple[SramEntry, ...]]:
    if artifact.pipelined is not None:
        return [stage.sram for stage in artifact.pipelined.stages]
    return [artifact.streaming.sram]


def evaluate(arithmetic: str) -> int:
    """Work out the arithmetic of an entry: numbers with units and words, x, +, brackets, ceil(a / b)."""
    text = arithmetic.replace(",", "").replace(" x ", " * ")
    text = re.sub(r"ceil\((\d+(?: \* \d+)?) / (\d+)\)", r"-(-(\1) // \2)", text)
    text = re.sub(r"\b(?!\*)[A-Za-z][A-Za-z ]*\b", "", text)
    return int(eval(text))  # noqa: S307 - the arithmetic of our own artifacts


# The MemoryX of CS-3 is too small for one of them: test_memoryx_has_a_capacity.
PLACES = [(file, system) for system in ("cs2", "cs3") for file in FILES if (file.stem, system) != ("gpt_120t", "cs3")]


@pytest.mark.parametrize(("file", "system"), PLACES, ids=[f"{file.stem}-{system}" for file, system in PLACES])
def test_every_account_of_every_artifact_adds_up(file, system):
    artifact = compile_model(load_params(file), load_system(system))
    verify_artifact(artifact)
    sums = [sum(entry.bytes for entry in account) for account in accounts(artifact)]
    assert max(sums) == artifact.sram_used_bytes <= artifact.system.pe.sram_bytes == 49152
    assert {account[0].bytes for account in accounts(artifact)} == {artifact.system.pe.code_bytes}
    for account in accounts(artifact):
        for entry in account:
            if "as the system file says" not in entry.arithmetic:
                assert evaluate(entry.arithmetic) == entry.bytes, entry


@pytest.mark.parametrize(
    ("file", "mode"),
    [
        ("fc_mnist", ExecutionMode.PIPELINED),
        ("gpt3_13b", ExecutionMode.WEIGHT_STREAMING),
        ("gpt_120t", ExecutionMode.WEIGHT_STREAMING),
    ],
)
def test_a_small_model_is_pipelined_and_a_large_one_streamed(file, mode):
    assert compile_model(load_params(ROOT / "params" / f"{file}.yaml"), load_system("cs2")).mode is mode


def test_a_model_beyond_the_memory_of_the_wafer_is_streamed_and_says_why():
    params = load_params(ROOT / "params" / "gpt3_13b.yaml")
    artifact = compile_model(params, load_system("cs2"), recompute="needed")
    assert artifact.mode is ExecutionMode.WEIGHT_STREAMING
    assert artifact.reasons == (
        "pipelined does not fit: embedding_layer.word_embeddings (2,048 tokens, a table of 50,257 x 5,120) and 201 "
        "other stages: their weights with master copies, optimizer state and gradients must fit the SRAM of cs2 that "
        "code and stack leave, 32,062,464,000 bytes, got 235,992,637,440 bytes",
        "--recompute fastest was not asked for: it would make a step 6.11x as fast, modelled",
    )


def test_three_wafers_give_three_answers():
    """WSE-1 has no MemoryX; WSE-3 has more PEs, so its tiles are smaller and larger micro-batches fit."""
    tiny, xl = (load_params(ROOT / "params" / f"{name}.yaml") for name in ("gpt_tiny", "gpt3_xl"))
    found = {name: compile_model(tiny, load_system(name), execution_mode="pipelined") for name in system_names()}
    assert all(slower.step_s > faster.step_s for slower, faster in pairwise(found.values()))
    with pytest.raises(CompileError, match=r"must fit the SRAM of cs1 that code and stack leave, 15,174,727,680 bytes"):
        compile_model(xl, load_system("cs1"))
    streamed = [compile_model(xl, load_system(name), recompute="needed") for name in ("cs2", "cs3")]
    assert [artifact.micro_batch_size for artifact in streamed] == [4, 8]


@pytest.mark.parametrize("mode", ["pipelined", "weight_streaming"])
def test_artifacts_do_not_depend_on_the_process_or_the_hash_seed(mode):
    program = (
        "import hashlib, sys; from cstool.system import load_system; from cstool.compiler import compile_model; "
        "from cstool.ir import artifact_text; from cstool.params import load_params; "
        f"artifact = compile_model(load_params(sys.argv[1]), load_system('cs2'), execution_mode='{mode}'); "
        "print(hashlib.sha256(artifact_text(artifact).encode()).hexdigest())"
    )
    file = ROOT / "params" / "gpt_tiny.yaml"
    found = {
        subprocess.run(
            [sys.executable, "-c", program, str(file)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "12345")
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("system", "num_csx", "asked", "message"),
    [
        ("cs2", 5, {}, "num_csx must divide batch_size (48), got 5\nhint: 4 and 6 are the nearest"),
        ("cs2", 32, {}, "num_csx must divide batch_size (48), got 32\nhint: 24 and 48 are the nearest"),
        ("cs1", 2, {}, "num_csx must be at most 1, the systems of a cluster of cs1, got 2"),
        ("cs2", 1, {"micro_batch_size": 49}, "micro_batch_size must be at most the samples of a system (48), got 49"),
    ],
)
def test_systems_and_micro_batches_are_of_what_there_is(tmp_path, system, num_csx, asked, message):
    file = small_gpt(tmp_path).path
    params = load_params(file, overrides=[f"trainer.init.backend.cluster_config.num_csx={num_csx}"])
    with pytest.raises(CompileError) as raised:
        compile_model(params, load_system(system), **asked)
    assert str(raised.value) == f"{file}: {message}"


def test_micro_batches_that_are_asked_for_are_cut_evenly(tmp_path):
    asked: dict[str, Any] = {"execution_mode": "weight_streaming", "micro_batch_size": 10}
    artifact = compile_model(small_gpt(tmp_path, batch_size=47), load_system("cs2"), **asked)
    assert (artifact.streaming.micro_batches, artifact.micro_batch_size) == (5, 10)
    assert artifact.alternatives[0].why == "2 micro-batches of 10 samples and 3 of 9"
    artifact = compile_model(small_gpt(tmp_path, batch_size=41), load_system("cs2"), **asked)
    assert artifact.micro_batch_size == 9
    assert "micro-batches of 9: those of 10 that are asked for are cut evenly from 41 samples" in artifact.reasons


@pytest.mark.parametrize("mode", ["pipelined", "weight_streaming"])
def test_a_prime_batch_is_nearly_as_fast_as_its_neighbours(tmp_path, mode):
    """A replica or a micro-batch more than 96 samples need is all that 97 may cost."""

    def per_s(batch_size: int) -> float:
        params = small_gpt(tmp_path, batch_size=batch_size, max_position_embeddings=1024, hidden_size=512)
        return batch_size / compile_model(params, load_system("cs2"), execution_mode=mode).step_s

    assert per_s(97) > 0.85 * per_s(96)


def test_colors_of_their_own_are_kept_for_what_moves_within_regions(tmp_path):
    params, cs2 = small_gpt(tmp_path), load_system("cs2")
    enough, few = (replace(cs2, name="few", links=replace(cs2.links, colors=count)) for count in (12, 11))
    artifact = compile_model(params, enough)
    assert sorted(artifact.streaming.colors.values()) == list(range(9))
    assert artifact.reasons == (
        "pipelined does not fit: links.colors of few: must leave 10 colors to what moves within regions, beside those "
        "of input and output, got 9",
    )
    with pytest.raises(CompileError) as raised:
        compile_model(params, few)
    assert str(raised.value) == (
        "few: links.colors must leave 9 colors for weight streaming beside those of input and output, got 11 and 3"
    )


def test_a_large_prime_batch_takes_no_longer(tmp_path):
    artifact = compile_model(small_gpt(tmp_path, batch_size=2**31 - 1), load_system("cs2"))
    assert artifact.pipelined.replicas[0] * artifact.pipelined.replicas[1] > 1


def test_memoryx_has_a_capacity():
    """20 bytes a weight are what the vendor's largest MemoryX of 2021 has for 120 trillion; we need 16."""
    params = load_params(ROOT / "params" / "gpt_120t.yaml")
    assert compile_model(params, load_system("cs2")).memoryx.total_bytes == 16 * 120_006_530_700_000
    with pytest.raises(CompileError) as raised:
        compile_model(params, load_system("cs3"))
    assert str(raised.value) == (
        f"{params.path}: 120,006,530,700,000 weights with optimizer state and gradients: must fit MemoryX of cs3, "
        "1,200,000,000,000,000 bytes, got 1,920,104,491,200,000 bytes\n"
        "hint: this fits: --system cs2"
    )


@pytest.mark.parametrize(
    ("file", "system", "asked", "hint"),
    [
        ("gpt3_175b", "cs2", {"micro_batch_size": 64, "recompute": "needed"}, "this fits: micro_batch_size 4"),
        ("gpt3_xl", "cs2", {"execution_mode": "pipelined"}, "this fits: --execution_mode weight_streaming"),
        ("gpt2_small", "cs1", {}, "this fits: --system cs3"),
        ("gpt3_xl", "cs1", {"execution_mode": "weight_streaming"}, "this fits: --system cs3"),
    ],
)
def test_the_changes_that_an_error_names_do_fit(file, system, asked, hint):
    params = load_params(ROOT / "params" / f"{file}.yaml")
    with pytest.raises(CompileError) as raised:
        compile_model(params, load_system(system), **asked)
    assert raised.value.hint.startswith(hint)
    _, _, changes = raised.value.hint.partition("fits: ")
    for change in changes.split("; "):
        name, value = change.removeprefix("--").split()
        changed: dict[str, Any] = {"system": system, **asked, name: int(value) if value.isdigit() else value}
        length = changed.pop("max_sequence_length", None)
        machine = load_system(changed.pop("system"))
        assert compile_model(params, machine, form=length and SampleForm(length), **changed).sram_used_bytes <= 49152
