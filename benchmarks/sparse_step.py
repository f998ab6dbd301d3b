"""Alternate a training step of a sparse model with that of its dense twin, and say where the rest goes.

A byte-level GPT of the width of GPT-3 XL (hidden size 2048, feed-forward 8192), 2 layers, 512 tokens a sample; or, with
`--model moe_wide`, a mixture of eight experts (hidden size 1024, feed-forward 4096), of which a token meets two. Run
from the project's folder::

    python -m benchmarks.sparse_step --sparsity 0.9 --rounds 5
"""

from __future__ import annotations

import argparse
import re
from contextlib import ExitStack
from statistics import median

from benchmarks.machine import alternate
from benchmarks.step import MODELS, cstool_side
from cstool.training.kernels.gemm_providers import FLOAT32, PRECISIONS
from cstool.training.machine.appliance import Appliance


def breakdown(appliance: Appliance, steps: int) -> dict[str, float]:
    """Return the seconds that all lanes together spend in each kind of op in a step, layers added up."""
    (systems,) = appliance.clusters
    found: dict[str, float] = {}
    for name, seconds in systems.op_seconds.items():
        kind = re.sub(r"\.\d+\.", ".*.", name, count=1)
        found[kind] = found.get(kind, 0.0) + sum(seconds.values()) / steps
    return found


def main() -> None:
    """Run the comparison and print its report."""
    parser = argparse.ArgumentParser(description="A training step: sparse against dense")
    parser.add_argument("--sparsity", type=float, default=0.9)
    parser.add_argument("--model", choices=MODELS, default="gpt3_xl_wide", help="(default: gpt3_xl_wide)")
    parser.add_argument("--batch_size", type=int, default=4, help="samples of 512 tokens (default: 4)")
    parser.add_argument("--precision", choices=PRECISIONS, default=FLOAT32, help="of both (default: float32)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side is measured (default: 5)")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        shape = arguments.model, arguments.batch_size, arguments.precision
        dense, dense_machine = cstool_side(*shape)
        sparse, sparse_machine = cstool_side(*shape, sparsity=arguments.sparsity)
        stack.enter_context(dense_machine)
        stack.enter_context(sparse_machine)
        seconds = alternate({"dense": dense, "sparse": sparse}, arguments.rounds)
        ratios = [a / b for a, b in zip(seconds["dense"], seconds["sparse"], strict=True)]
        print(f"measured on this host, {arguments.rounds} rounds, sides alternating, first round discarded")
        for name, measured in seconds.items():
            print(f"{name:8}{median(measured):8.3f} s a step (min {min(measured):.3f}, max {max(measured):.3f})")
        print(
            f"speed of sparse relative to dense at {arguments.sparsity:.0%} zeros: {median(ratios):.2f}x "
            f"(min {min(ratios):.2f}, max {max(ratios):.2f}); ideal for the sparse ops alone "
            f"{1 / (1 - arguments.sparsity):.1f}x"
        )
        before, after = (breakdown(m, arguments.rounds + 1) for m in (dense_machine, sparse_machine))
        width = max(map(len, before))
        print(f"\n{'seconds a step, all lanes':{width}}   dense  sparse   ratio")
        for kind in sorted(before, key=lambda kind: -before[kind]):
            print(f"{kind:{width}}{before[kind]:8.3f}{after[kind]:8.3f}{before[kind] / max(after[kind], 1e-9):7.2f}x")
        print(f"{'all ops':{width}}{sum(before.values()):8.3f}{sum(after.values()):8.3f}")
        for name, machine in (("dense", dense_machine), ("sparse", sparse_machine)):
            memory = {k: f"{v / 2**20:,.0f} MiB" for k, v in machine.memory_account().items()}
            print(f"{name}: streamed {machine.streamed_bytes(machine.clusters[0]) / 2**20:,.0f} MiB a step; {memory}")


if __name__ == "__main__":
    main()
