"""docs/sram.md: what one PE holds, to the byte; its tables are those that the compiler makes."""

import re
from collections.abc import Sequence

from cstool.compiler import compile_model
from cstool.ir import SramEntry
from cstool.system import load_system
from tests.unit.compiler.programs import ROOT, stock, written_params

TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def table(entries: Sequence[SramEntry]) -> str:
    rows = [f"| {entry.name} | {entry.arithmetic} | {entry.bytes:,} |" for entry in entries]
    total = sum(entry.bytes for entry in entries)
    return "\n".join(["| what | arithmetic | bytes |", "|---|---|---|", *rows, f"| **in all** | | **{total:,}** |", ""])


def test_the_page_says_what_the_compiler_makes(golden, tmp_path):
    cs2 = load_system("cs2")
    streamed = stock("gpt3_13b", recompute="needed")
    plan = streamed.streaming
    per_token = sum(entry.bytes for entry in plan.sram if " token" in entry.arithmetic) // plan.layout.tokens_per_pe
    fixed = sum(entry.bytes for entry in plan.sram if " token" not in entry.arithmetic)
    next_bytes = fixed + 5 * per_token
    assert plan.layout.tokens_per_pe == 3
    assert next_bytes > cs2.pe.sram_bytes

    stages = stock("gpt2_small", execution_mode="pipelined", recompute="needed").pipelined.stages
    number = next(n for n, stage in enumerate(stages) if stage.name.endswith("layers.0.ffn.ffn.1.linear_layer"))
    stage = stages[number]

    model, asked = {"name": "fc_mnist", "hidden_sizes": [100_000, 100_000]}, {"execution_mode": "weight_streaming"}
    wide, many = (
        compile_model(written_params(tmp_path / "wide.yaml", model, batch_size=size), cs2, recompute="needed", **asked)
        for size in (994, 65_536)
    )
    assert wide.streaming.layout.groups == 1

    page = (ROOT / "docs" / "sram.md").read_text(encoding="utf-8")
    tables = iter([table(plan.sram), table(stage.sram), table(wide.streaming.sram)])
    golden("../../docs/sram.md", TABLE.sub(lambda _: next(tables), page))
    text = " ".join(page.split())
    for said in (
        f"The {cs2.pe.code_bytes:,} and {cs2.pe.stack_bytes:,} bytes of the system files",
        f"micro-batches of {streamed.micro_batch_size} sample of 2,048 tokens, a PE has 3 tokens",
        f"The fullest kernel is `{plan.fullest_kernel}`",
        f"would be 5 tokens to a PE: {next_bytes:,} bytes",
        f"stage {number + 1} of {len(stages)}: `{stage.name}`",
        f"in a region of {stage.region.width} x {stage.region.height} PEs",
        f"{stage.in_flight} samples are between their forward and their backward pass",
        f"{cs2.pe.sram_bytes - wide.sram_used_bytes:,} bytes are free",
        f"of a batch of 65,536, {many.micro_batch_size:,} are on the wafer at a time",
        f"would be {-(-(10**10) * 18 // cs2.fabric.pes):,} bytes for each PE",
    ):
        assert said in text
