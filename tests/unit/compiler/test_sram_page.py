"""docs/sram.md: what one PE holds, to the byte; its tables are those that the compiler makes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from cstool.compiler import compile_model
from cstool.ir import SramEntry
from cstool.params import Params, load_params
from cstool.system import load_system

PARAMS = Path(__file__).parents[3] / "params"
PAGE = """\
# What one PE holds

A PE of WSE-2 has 48 KiB, 49,152 bytes. The compiler accounts for every one of them; nothing on this page is measured,
all is **modelled**. An artifact has the account of the fullest PE, entry by entry with its arithmetic, and for a
pipelined model one for every stage. `ceil(a / b)` is what the PE with most of `a` things has when `b` PEs share them.
The tables below are made by the compiler, and a test keeps them so.

How many bytes the code of a kernel and its stack take is published nowhere. The {code:,} and {stack:,} bytes of the
system files are chosen by this project; a system file of one's own may have others (see [systems.md](systems.md)).

## Weight streaming: attention of GPT-3 13B

`params/gpt3_13b.yaml` on cs2. Activations lie with their tokens over the rows of the wafer and their hidden elements
over its columns: with micro-batches of {size} sample{s} of 2,048 tokens, a PE has {tokens} tokens, and
ceil(5,120 / 750) = 7 elements of each. Weights pass by, two rows at a time, and never stay. The fullest kernel is
`{kernel}`, while backward goes through a layer in the middle:

{streaming}

What backward needs of other layers is most of it: 39 layers x 236 bytes for every token. A micro-batch of two samples
would be 5 tokens to a PE: {next_bytes:,} bytes, more than there are.

## Pipelined: the second linear layer of GPT-2 small

`params/gpt2_small.yaml` on cs2, stage {stage} of {stages}: `{name}`
in a region of {width} x {height} PEs. Its weights stay, each with the master copy, the two averages of Adam and the
gradient in 32 bits. {in_flight} samples are between their forward and their backward pass in this stage, since it is
that far from the end; the stage keeps what it needs of each, and nothing is computed again:

{pipelined}

## A product of 100,000 x 100,000

The largest layer that the vendor claims one wafer runs without cutting it into blocks. Two fully connected layers of
100,000 (10 billion weights) with one sample for each of the 994 rows:

{matmul}

So it fits, and {free:,} bytes are free. Activations of more samples are what limits it: of a batch of 65,536, {most:,}
are on the wafer at a time. Ten billion weights in place, on the other hand, would be {in_place:,} bytes for each PE,
with master copies, averages and gradients.
"""


def table(entries: Sequence[SramEntry]) -> str:
    rows = [f"| {entry.name} | {entry.arithmetic} | {entry.bytes:,} |" for entry in entries]
    total = sum(entry.bytes for entry in entries)
    return "\n".join(["| what | arithmetic | bytes |", "|---|---|---|", *rows, f"| **in all** | | **{total:,}** |"])


def two_layers(folder: Path, batch_size: int) -> Params:
    trainer = {
        "init": {
            "model": {"name": "fc_mnist", "hidden_sizes": [100_000, 100_000]},
            "optimizer": {"AdamW": {"learning_rate": 0.1}},
            "loop": {"max_steps": 1},
        },
        "fit": {
            "train_dataloader": {"data_processor": "MNISTDataProcessor", "data_dir": ".", "batch_size": batch_size}
        },
    }
    file = folder / "wide.yaml"
    file.write_text(yaml.safe_dump({"trainer": trainer}))
    return load_params(file)


def test_the_page_says_what_the_compiler_makes(golden, tmp_path):
    cs2 = load_system("cs2")
    streamed = compile_model(load_params(PARAMS / "gpt3_13b.yaml"), cs2, recompute="needed")
    assert streamed.streaming is not None
    plan = streamed.streaming
    per_token = sum(entry.bytes for entry in plan.sram if " token" in entry.arithmetic) // plan.layout.tokens_per_pe
    fixed = sum(entry.bytes for entry in plan.sram if " token" not in entry.arithmetic)
    next_bytes = fixed + 5 * per_token
    assert plan.layout.tokens_per_pe == 3
    assert next_bytes > cs2.pe.sram_bytes

    pipelined = compile_model(
        load_params(PARAMS / "gpt2_small.yaml"), cs2, execution_mode="pipelined", recompute="needed"
    )
    assert pipelined.pipelined is not None
    stages = pipelined.pipelined.stages
    number = next(n for n, stage in enumerate(stages) if stage.name.endswith("layers.0.ffn.ffn.1.linear_layer"))
    stage = stages[number]

    wide = compile_model(two_layers(tmp_path, 994), cs2, execution_mode="weight_streaming", recompute="needed")
    assert wide.streaming is not None
    assert wide.streaming.layout.groups == 1
    many = compile_model(two_layers(tmp_path, 65_536), cs2, execution_mode="weight_streaming", recompute="needed")

    page = PAGE.format(
        code=cs2.pe.code_bytes,
        stack=cs2.pe.stack_bytes,
        size=streamed.micro_batch_size,
        s="s" if streamed.micro_batch_size > 1 else "",
        tokens=plan.layout.tokens_per_pe,
        kernel=plan.fullest_kernel,
        streaming=table(plan.sram),
        next_bytes=next_bytes,
        stage=number + 1,
        stages=len(stages),
        name=stage.name,
        width=stage.region.width,
        height=stage.region.height,
        in_flight=stage.in_flight,
        pipelined=table(stage.sram),
        matmul=table(wide.streaming.sram),
        free=cs2.pe.sram_bytes - wide.sram_used_bytes,
        most=many.micro_batch_size,
        in_place=-(-(10**10) * 18 // cs2.fabric.pes),
    )
    golden("../../docs/sram.md", page)
