"""How fast cstool is beside PyTorch, row by row: training steps of models large and small, and generation.

The models are decoders, dense, sparse and with experts, encoders, an encoder with a decoder, and vision transformers.

Run from the project's folder, with the extra "bench" installed::

    python -m benchmarks.suite --rounds 5
    python -m benchmarks.suite --quick
    python -m benchmarks.suite --rows "gpt2_small, 4 x 512" --json > found.json
    python -m benchmarks.suite --columns "cstool float32" "PyTorch eager"

Every column of a row is a process of its own, which has built and compiled all it needs before the first turn. They
take turns; the one that waits is idle, so its threads take no core from the others, and its peak of memory is its own.
The limit is the rate of matrix products alone, in the precision of the column, measured before and after the row:
NumPy's for float32, oneDNN's for bfloat16. A step counts the products that the mathematics needs (causal pairs only,
logits once, zeros of sparse weights as if they were none), so that who computes more than needed gets no credit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import llvmlite.binding
import numpy as np

from benchmarks.machine import Neighbours, gemm_limit_flops_per_s
from benchmarks.turns import Side, TooSlow, serve
from cstool.training.kernels.gemm_providers import BFLOAT16_NAME, FLOAT32, choose_gemm, found_providers

PROJECT = Path(__file__).resolve().parents[1]
THREADS = len(os.sched_getaffinity(0))
QUICK_ROUNDS = 2
SPOILT = 1.15
"""spread of a fixed product from which neighbours spoil a row"""

Build = Callable[[], Callable[[], object]]
"""makes what a turn calls"""


@dataclass(frozen=True)
class Column:
    """Who computes, and how."""

    ours: bool
    precision: str
    compiled: bool = False


COLUMNS = {
    "cstool float32": Column(True, FLOAT32),
    "cstool bfloat16": Column(True, BFLOAT16_NAME),
    "PyTorch eager": Column(False, FLOAT32),
    "torch.compile": Column(False, FLOAT32, compiled=True),
    "autocast": Column(False, BFLOAT16_NAME),
    "autocast compiled": Column(False, BFLOAT16_NAME, compiled=True),
}
PAIRS = (
    ("cstool float32", ("PyTorch eager",)),
    ("cstool float32", ("torch.compile",)),
    ("cstool bfloat16", ("autocast", "autocast compiled")),
    ("cstool bfloat16", ("cstool float32",)),
)
"""whose speed is compared with whose; with several, with whichever is faster"""


@dataclass(frozen=True)
class Step:
    """A training step of a model.

    Args:
        model: a key of `benchmarks.step.MODELS`
        sparsity: of our side: share of zeros; PyTorch's stays dense
        adapters: rank and scale of adapters beside all linear layers of blocks; None to train all weights
    """

    model: str
    batch_size: int
    sequence_length: int
    sparsity: float | None = None
    adapters: tuple[int, float] | None = None

    @property
    def _lora(self) -> str | None:
        return self.adapters and f"rank={self.adapters[0]},alpha={self.adapters[0] * self.adapters[1]},targets=all"

    def build(self, column: Column) -> Callable[[], object]:
        """Return what a turn of a column calls."""
        if column.ours:
            from benchmarks.step import cstool_side

            shape = self.batch_size, column.precision, self.sequence_length, self.sparsity
            return cstool_side(self.model, *shape, adapters=self._lora)[0]
        from benchmarks.torch_models import torch_step_runner

        return torch_step_runner(
            name=self.model,
            threads=THREADS,
            batch_size=self.batch_size,
            sequence_length=self.sequence_length,
            precision=column.precision,
            compiled=column.compiled,
            adapters=self.adapters,
        )

    @property
    def flops(self) -> int:
        """Of the products of a step, of dense weights."""
        from benchmarks.step import model_graph
        from cstool.model.graphs.statistics import count_statistics

        overrides = [] if self._lora is None else [f"trainer.init.lora={self._lora}"]
        graph = model_graph(self.model, self.sequence_length, overrides)[1]
        return self.batch_size * count_statistics(graph).sample_flops.total


@dataclass(frozen=True)
class Generation:
    """Tokens of a GPT, after prompts; PyTorch's autocast is a model that is bfloat16 throughout."""

    prompt_tokens: int
    tokens: int
    prompts: int = 1
    model: str = "gpt2"
    flops = None

    def build(self, column: Column) -> Callable[[], object]:
        """Return what a turn of a column calls."""
        prompts = [list(range(1, self.prompt_tokens + 1))] * self.prompts
        if column.ours:
            from benchmarks.generate import Ours

            ours = Ours(THREADS, self.prompts, self.prompt_tokens + self.tokens, column.precision, self.model)
            return lambda: ours.run(prompts, self.tokens)
        import torch

        from benchmarks.torch_models import make_model

        torch.set_num_threads(THREADS)
        model = make_model(self.model).to(getattr(torch, column.precision))
        return lambda: list(model.generate(torch.tensor(prompts), self.tokens))


ROWS: dict[str, Step | Generation] = {
    "gpt2_small, 4 x 512": Step("gpt2", 4, 512),
    "gpt2_small, 4 x 512, adapters": Step("gpt2", 4, 512, adapters=(16, 2.0)),
    "gpt2_small, 1 x 1024": Step("gpt2", 1, 1024),
    "llama 125M, 4 x 512": Step("llama", 4, 512),
    "gpt3_xl_wide, 4 x 512": Step("gpt3_xl_wide", 4, 512),
    "gpt3_xl_wide, 4 x 512, 90 % zeros": Step("gpt3_xl_wide", 4, 512, 0.9),
    "gpt_tiny, 24 x 128": Step("gpt_tiny", 24, 128),
    "bert_base, 8 x 128": Step("bert_base", 8, 128),
    "bert_tiny, 32 x 128": Step("bert_tiny", 32, 128),
    "t5_base, 2 x 512": Step("t5_base", 2, 512),
    "t5_tiny, 32 x 128": Step("t5_tiny", 32, 128),
    "moe as wide as gpt2_small, 4 x 512": Step("moe_gpt2_wide", 4, 512),
    "moe_tiny, 24 x 128": Step("moe_tiny", 24, 128),
    "vit_base, 8 images": Step("vit_base", 8, 1),
    "vit_tiny, 80 images": Step("vit_tiny", 80, 1),
    "fc_mnist, 120": Step("fc_mnist", 120, 1),
    "generate 128 tokens": Generation(64, 128),
    "gpt_tiny, generate 112 tokens": Generation(8, 112, 1, "gpt_tiny"),
    "gpt_tiny, generate 8 x 112 tokens": Generation(8, 112, 8, "gpt_tiny"),
}
QUICK_ROWS: dict[str, Step | Generation] = {
    "gpt2_small, 2 x 256": Step("gpt2", 2, 256),
    **{name: ROWS[name] for name in ("gpt_tiny, 24 x 128", "fc_mnist, 120")},
    "generate 32 tokens": Generation(64, 32),
}
"""of `--quick`"""


def columns_of(row: Step | Generation) -> dict[str, Column]:
    """The columns that a row has: generation is not compiled, since its cache has another shape for each token."""
    return {name: column for name, column in COLUMNS.items() if isinstance(row, Step) or not column.compiled}


def measure(row: str, rounds: int, wanted: Collection[str] = COLUMNS) -> dict[str, object]:
    """Measure some columns of a row; return it ready for JSON. Times in seconds, memory in bytes, rates in FLOP/s.

    A column that this CPU cannot do in earnest is left out, with the reason.
    """
    of_float32 = [found.gemm for found in found_providers(FLOAT32) if found.gemm is not None]
    gemms = {FLOAT32: of_float32, BFLOAT16_NAME: [choose_gemm(BFLOAT16_NAME)]}

    def limits() -> dict[str, float]:
        return {
            precision: max(gemm_limit_flops_per_s(THREADS, gemm=gemm) for gemm in found)
            for precision, found in gemms.items()
        }

    # Before and after: a neighbour that was busy during one of them does not lower the limit.
    before = limits()
    sides: dict[str, Side] = {}
    left_out: dict[str, str] = {}
    for name in filter(wanted.__contains__, columns_of(_row(row))):
        try:
            sides[name] = _side(row, name)
        except TooSlow as reason:
            left_out[name] = str(reason)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    neighbours = Neighbours(THREADS)
    neighbours.look()
    for _ in range(rounds):
        for name, side in sides.items():
            seconds[name].append(side.turn())
            neighbours.look()
    peaks = {name: side.peak_bytes() for name, side in sides.items()}
    for side in sides.values():
        side.end()
    limit = {precision: max(rate, before[precision]) for precision, rate in limits().items()}
    flops = _row(row).flops
    found = {}
    for name, times in seconds.items():
        share = None if flops is None else flops / (median(times) * limit[COLUMNS[name].precision])
        numbers = {"median_s": median(times), "min_s": min(times), "max_s": max(times)}
        found[name] = {**numbers, "peak_bytes": peaks[name], "share_of_limit": share}
    speeds = {f"{ours} / {' or '.join(theirs)}": ratio for ours, theirs, ratio in _speeds(seconds)}
    return {
        "flops": flops,
        "limit_flops_per_s": limit,
        "columns": found,
        "left_out": left_out,
        "speeds": speeds,
        "spread": neighbours.spread,
    }


def _row(name: str) -> Step | Generation:
    return (ROWS | QUICK_ROWS)[name]


def _side(row: str, column: str) -> Side:
    command = [sys.executable, "-m", "benchmarks.suite", "--serve", row, column]
    return Side(command, PROJECT, {"PYTHONPATH": str(PROJECT)})


def _speeds(seconds: Mapping[str, list[float]]) -> Iterator[tuple[str, tuple[str, ...], dict[str, float]]]:
    """How many times as fast one column is as another, turn by turn."""
    for ours, theirs in PAIRS:
        peers = tuple(name for name in theirs if name in seconds)
        if peers and ours in seconds:
            fastest = [min(turns) for turns in zip(*(seconds[name] for name in peers), strict=True)]
            ratios = [b / a for a, b in zip(seconds[ours], fastest, strict=True)]
            yield ours, peers, {"median": median(ratios), "min": min(ratios), "max": max(ratios)}


def table(row: str, found: Mapping[str, object]) -> str:
    """Return a row as lines of text."""
    columns, speeds, limits = found["columns"], found["speeds"], found["limit_flops_per_s"]
    left_out, spread = found["left_out"], found["spread"]
    assert isinstance(columns, dict)
    assert isinstance(left_out, dict)
    assert isinstance(speeds, dict)
    assert isinstance(limits, dict)
    assert isinstance(spread, float)
    lines = [f"{row:34}  median s      min      max   peak MiB  of its GEMM limit"]
    for name, numbers in columns.items():
        times = "".join(f"{numbers[key]:9.4f}" for key in ("median_s", "min_s", "max_s"))
        share = "" if numbers["share_of_limit"] is None else f"{numbers['share_of_limit']:18.0%}"
        lines.append(f"  {name:32} {times}{numbers['peak_bytes'] / 2**20:11,.0f}{share}")
    lines += [f"  {name:32} left out: {reason}" for name, reason in left_out.items()]
    lines += [
        f"  {pair:50}{ratio['median']:6.2f}x  ({ratio['min']:.2f} to {ratio['max']:.2f})"
        for pair, ratio in speeds.items()
    ]
    rates = ", ".join(f"{precision} {rate / 1e9:,.0f}" for precision, rate in limits.items())
    lines.append(f"  GEMM limit, GFLOP/s: {rates}")
    spoilt = ": neighbours spoil this row, measure it again" if spread > SPOILT else ""
    lines.append(f"  a fixed product between turns: {spread:.2f}x slower in its slowest tenth{spoilt}")
    return "\n".join(lines)


def main() -> None:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description="cstool beside PyTorch, row by row")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each column (default: 5)")
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="ROW", help="only these")
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, metavar="COLUMN", default=COLUMNS, help="only these")
    parser.add_argument("--quick", action="store_true", help="four rows, two rounds: some five minutes")
    parser.add_argument("--json", action="store_true", help="one document on stdout, the table on stderr")
    parser.add_argument("--serve", nargs=2, metavar=("ROW", "COLUMN"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    # PyTorch with its defaults: OpenMP's threads spin for some 5 ms after an operation, then sleep.
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        os.environ.pop(name, None)
    if arguments.serve is not None:
        row, column = arguments.serve
        serve(lambda: _row(row).build(COLUMNS[column]))
        return
    rounds = QUICK_ROUNDS if arguments.quick else arguments.rounds
    host = f"{THREADS} cores of {llvmlite.binding.get_host_cpu_name()}, NumPy {np.__version__}"
    out = sys.stderr if arguments.json else sys.stdout
    print(f"measured on this host ({host}), {rounds} rounds, columns taking turns", file=out, flush=True)
    rows = {}
    for row in QUICK_ROWS if arguments.quick else arguments.rows or ROWS:
        rows[row] = measure(row, rounds, arguments.columns)
        print(f"\n{table(row, rows[row])}", file=out, flush=True)
    if arguments.json:
        print(json.dumps({"host": host, "rounds": rounds, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
