"""The whole compiler: what it makes of the files that people have, and what it says when nothing fits."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, pairwise, product
from pathlib import Path
from typing import Any

import pytest

from cstool.foundation.errors import CompileError
from cstool.model.graphs import SampleForm
from cstool.model.ir import ExecutionMode, SramEntry, artifact_text, verify_artifact
from cstool.model.params import Params, load_params
from cstool.model.system import load_system, system_names
from cstool.plan.compiler import compile_model
from cstool.plan.compiler.compile import PASSES
from cstool.plan.compiler.program import Program
from tests.models import decoder
from tests.unit.plan.compiler.programs import ROOT, SMALL_GPT, a_request, compiled, small_system, stock, written_params

STOCK, INTEROP = (sorted(folder.glob("*.yaml")) for folder in (ROOT / "params", ROOT / "tests" / "interop"))
USUAL = ("fc_mnist-cs2", "gpt_tiny-cs3", "gpt3_13b-cs2", "moe_tiny-cs3")


def places() -> Iterator[Any]:
    """Yield each stock file with each system, those of the vendor with one.

    The MemoryX of CS-3 is too small for one: test_memoryx_has_a_capacity.
    """
    for file, system in (*product(STOCK, ("cs2", "cs3")), *zip(INTEROP, cycle(("cs2", "cs3")), strict=False)):
        if (name := f"{file.stem}-{system}") != "gpt_120t-cs3":
            yield pytest.param(file, system, id=name, marks=[] if name in USUAL else pytest.mark.lab)


CS2 = load_system("cs2")


def small_gpt(folder: Path, batch_size: int = 48, **model: Any) -> Params:
    """Return the params of a GPT with two layers of width 64 and 128 tokens, but for `model`."""
    return written_params(folder / "gpt.yaml", {**SMALL_GPT, **model}, batch_size=batch_size)


def evaluate(arithmetic: str) -> int:
    """Work out the arithmetic of an entry: numbers with units and words, x, +, brackets, ceil(a / b)."""
    text = arithmetic.replace(",", "").replace(" x ", " * ")
    text = re.sub(r"ceil\((\d+(?: \* \d+)?) / (\d+)\)", r"-(-(\1) // \2)", text)
    text = re.sub(r"\b(?!\*)[A-Za-z][A-Za-z ]*\b", "", text)
    return int(eval(text))  # noqa: S307 - the arithmetic of our own artifacts


@pytest.mark.parametrize(("file", "system"), list(places()))
def test_every_account_of_every_artifact_adds_up(file, system):
    artifact = compile_model(load_params(file), load_system(system))
    verify_artifact(artifact)
    plan = artifact.pipelined
    accounts = [artifact.streaming.sram] if plan is None else [stage.sram for stage in plan.stages]
    assert max(sum(entry.bytes for entry in account) for account in accounts) == artifact.sram_used_bytes <= 49152
    assert artifact.system.pe.sram_bytes == 49152
    assert {account[0].bytes for account in accounts} == {artifact.system.pe.code_bytes}
    for entry in (entry for account in accounts for entry in account):
        if "as the system file says" not in entry.arithmetic:
            assert evaluate(entry.arithmetic) == entry.bytes, entry


def test_a_model_beyond_the_memory_of_the_wafer_is_streamed_and_says_why():
    assert stock("fc_mnist").mode is ExecutionMode.PIPELINED
    artifact = stock("gpt3_13b", recompute="needed")
    assert artifact.mode is ExecutionMode.WEIGHT_STREAMING
    assert artifact.reasons == (
        "pipelined does not fit: embedding_layer.word_embeddings (2,048 tokens, a table of 50,257 x 5,120) and 201 "
        "other stages: their weights with master copies, optimizer state and gradients must fit the SRAM of cs2 that "
        "code and stack leave, 32,062,464,000 bytes, got 235,992,637,440 bytes",
        "--recompute fastest was not asked for: it would make a step 6.11x as fast, modelled",
    )


def test_three_wafers_give_three_answers():
    """WSE-1 has no MemoryX; WSE-3 has more PEs, so its tiles are smaller and larger micro-batches fit."""
    found = [stock("gpt_tiny", name, execution_mode="pipelined") for name in system_names()]
    assert all(slower.step_s > faster.step_s for slower, faster in pairwise(found))
    with pytest.raises(CompileError, match=r"must fit the SRAM of cs1 that code and stack leave, 15,174,727,680 bytes"):
        stock("gpt3_xl", "cs1")
    asked = {"recompute": "needed", "execution_mode": "weight_streaming"}
    assert [stock("gpt3_xl", name, **asked).micro_batch_size for name in ("cs2", "cs3")] == [4, 8]


@pytest.mark.takes("a process of Python with another seed of hashes")
def test_artifacts_do_not_depend_on_the_process_or_the_hash_seed(monkeypatch):
    program = (
        "from cstool.model.ir import artifact_text; from tests.unit.plan.compiler.programs import stock\n"
        "for mode in ('pipelined', 'weight_streaming'): print(artifact_text(stock('gpt_tiny', execution_mode=mode)))"
    )
    monkeypatch.setenv("PYTHONHASHSEED", "12345")
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    artifacts = (stock("gpt_tiny", "cs2", execution_mode=mode) for mode in ("pipelined", "weight_streaming"))
    assert found == "".join(f"{artifact_text(artifact)}\n" for artifact in artifacts)


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
    one, other = (
        compile_model(small_gpt(tmp_path, size), CS2, execution_mode="weight_streaming", micro_batch_size=10)
        for size in (47, 41)
    )
    assert (one.streaming.micro_batches, one.micro_batch_size) == (5, 10)
    assert one.alternatives[0].why == "2 micro-batches of 10 samples and 3 of 9"
    assert other.micro_batch_size == 9
    assert "micro-batches of 9: those of 10 that are asked for are cut evenly from 41 samples" in other.reasons


@pytest.mark.parametrize("mode", ["pipelined", "weight_streaming"])
def test_a_prime_batch_is_nearly_as_fast_as_its_neighbours_and_may_be_large(tmp_path, mode):
    """A replica or a micro-batch more than 96 samples need is all that 97 may cost."""

    def per_s(batch_size: int) -> float:
        params = small_gpt(tmp_path, batch_size=batch_size, max_position_embeddings=512, num_hidden_layers=1)
        return batch_size / compile_model(params, CS2, execution_mode=mode).step_s

    assert per_s(97) > 0.85 * per_s(96)
    assert per_s(2**31 - 1) > 0.85 * per_s(96)


def test_colors_of_their_own_are_kept_for_what_moves_within_regions(tmp_path):
    params = small_gpt(tmp_path)
    enough, few = (replace(CS2, name="few", links=replace(CS2.links, colors=count)) for count in (12, 11))
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


def test_memoryx_has_a_capacity():
    """20 bytes a weight are what the vendor's largest MemoryX of 2021 has for 120 trillion; we need 16."""
    found = stock("gpt_120t", execution_mode="weight_streaming")
    assert found.memoryx.total_bytes == 16 * 120_006_530_700_000
    with pytest.raises(CompileError) as raised:
        stock("gpt_120t", "cs3")
    assert str(raised.value) == (
        f"{ROOT}/params/gpt_120t.yaml: 120,006,530,700,000 weights with optimizer state and gradients: must fit "
        "MemoryX of cs3, 1,200,000,000,000,000 bytes, got 1,920,104,491,200,000 bytes\n"
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
    with pytest.raises(CompileError) as raised:
        stock(file, system, **asked)
    assert raised.value.hint.startswith(hint)
    _, _, changes = raised.value.hint.partition("fits: ")
    for change in changes.split("; "):
        name, value = change.removeprefix("--").split()
        changed: dict[str, Any] = {"system": system, **asked, name: int(value) if value.isdigit() else value}
        length = changed.pop("max_sequence_length", None)
        assert stock(file, form=length and SampleForm(length), **changed).sram_used_bytes <= 49152


MODES = (ExecutionMode.WEIGHT_STREAMING, ExecutionMode.PIPELINED)


@pytest.mark.parametrize("mode", MODES)
def test_none_is_none_all_is_every_layer_once_and_the_fastest_no_slower_than_any(mode):
    def choices(batch_size: int) -> dict[str, Program]:
        request = a_request(small_system(40, 60), batch_size, execution_mode=mode)
        names = ("none", "all", "needed", "fastest")
        return {how: compiled(decoder(layers=2), PASSES, replace(request, recompute=how)) for how in names}

    found = {how: program.recompute[mode] for how, program in choices(8).items()}
    assert (found["none"].levels, found["none"].kept_blocks, found["all"].levels) == (0, 0, 1)
    assert found["all"].kept_blocks == (2 if mode is MODES[0] else 0)
    steps = {how: program.step_cycles[mode] for how, program in choices(64).items()}
    assert steps["fastest"] <= min(steps.values())


def test_the_reason_says_that_it_was_asked_for_and_one_layer_has_nothing_to_compute_again():
    """To run it again from its input would hold that in addition."""
    request = a_request(small_system(40, 60), 8, recompute="all")
    one, three = (compiled(decoder(layers=layers), PASSES, request) for layers in (1, 3))
    assert one.recompute[MODES[0]].levels == 0
    assert "activations are recomputed in the backward pass, once per layer: all of them are to be" in three.reasons


# docs/plan/sram.md: what one PE holds, to the byte; its tables are those that the compiler makes.
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def table(entries: Sequence[SramEntry]) -> str:
    rows = [f"| {entry.name} | {entry.arithmetic} | {entry.bytes:,} |" for entry in entries]
    total = sum(entry.bytes for entry in entries)
    return "\n".join(["| what | arithmetic | bytes |", "|---|---|---|", *rows, f"| **in all** | | **{total:,}** |", ""])


def test_the_page_says_what_the_compiler_makes(golden, tmp_path):
    streamed = stock("gpt3_13b", recompute="needed")
    plan = streamed.streaming
    per_token = sum(entry.bytes for entry in plan.sram if " token" in entry.arithmetic) // plan.layout.tokens_per_pe
    fixed = sum(entry.bytes for entry in plan.sram if " token" not in entry.arithmetic)
    next_bytes = fixed + 5 * per_token
    assert plan.layout.tokens_per_pe == 3
    assert next_bytes > CS2.pe.sram_bytes
    stages = stock("gpt2_small", execution_mode="pipelined", recompute="needed").pipelined.stages
    number = next(n for n, stage in enumerate(stages) if stage.name.endswith("layers.0.ffn.ffn.1.linear_layer"))
    stage = stages[number]
    model, asked = {"name": "fc_mnist", "hidden_sizes": [100_000, 100_000]}, {"execution_mode": "weight_streaming"}
    wide, many = (
        compile_model(written_params(tmp_path / "wide.yaml", model, batch_size=size), CS2, recompute="needed", **asked)
        for size in (994, 65_536)
    )
    assert wide.streaming.layout.groups == 1
    page = (ROOT / "docs" / "plan" / "sram.md").read_text(encoding="utf-8")
    tables = iter([table(plan.sram), table(stage.sram), table(wide.streaming.sram)])
    golden("../../docs/plan/sram.md", TABLE.sub(lambda _: next(tables), page))
    text = " ".join(page.split())
    for said in (
        f"The {CS2.pe.code_bytes:,} and {CS2.pe.stack_bytes:,} bytes of the system files",
        f"micro-batches of {streamed.micro_batch_size} sample of 2,048 tokens, a PE has 3 tokens",
        f"The fullest kernel is `{plan.fullest_kernel}`",
        f"would be 5 tokens to a PE: {next_bytes:,} bytes",
        f"stage {number + 1} of {len(stages)}: `{stage.name}`",
        f"in a region of {stage.region.width} x {stage.region.height} PEs",
        f"{stage.in_flight} samples are between their forward and their backward pass",
        f"{CS2.pe.sram_bytes - wide.sram_used_bytes:,} bytes are free",
        f"of a batch of 65,536, {many.micro_batch_size:,} are on the wafer at a time",
        f"would be {-(-(10**10) * 18 // CS2.fabric.pes):,} bytes for each PE",
    ):
        assert said in text
