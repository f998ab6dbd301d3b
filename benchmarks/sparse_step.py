"""Alternate a training step of a sparse model with that of its dense twin, and say where the rest goes.

A byte-level GPT of the width of GPT-3 XL (hidden size 2048, feed-forward 8192), 4 layers, 512 tokens a sample. Run from
the project's folder::

    python -m benchmarks.sparse_step --sparsity 0.9 --rounds 5
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.machine import alternate
from benchmarks.step import SEQUENCE_LENGTH, random_batch
from cstool.machine.appliance import Appliance
from cstool.machine.sparsity import KernelChooser, sparsity_rules
from cstool.models import build_graph
from cstool.optimizers import make_optimizer
from cstool.params import Params, load_params

FILE = Path(__file__).parent.parent / "params" / "gpt3_xl.yaml"
MODEL = ("vocab_size=256", "num_hidden_layers=4", "max_position_embeddings=512")


def side(
    sparsity: float | None, batch_size: int, kernels: str, stack: ExitStack
) -> tuple[Callable[[], None], Appliance]:
    """Return a function that trains one step, all updates included, and the appliance that does it."""
    overrides = [f"trainer.fit.train_dataloader.batch_size={batch_size}"]
    overrides += [f"trainer.init.model.{change}" for change in MODEL]
    if sparsity is not None:
        overrides.append(f"trainer.init.sparsity={sparsity}")
    params: Params = load_params(FILE, overrides=overrides)
    graph = build_graph(params.model, SEQUENCE_LENGTH)
    chooser = KernelChooser(kernels)
    appliance = stack.enter_context(
        Appliance(
            graph,
            optimizer=make_optimizer(params.optimizer, None),
            max_gradient_norm=params.precision.max_gradient_norm,
            loss_scaling="num_tokens",
            loss_weight=1.0,
            seed=1,
            sparsity=sparsity_rules(params, graph, chooser),
        )
    )
    appliance.memoryx.initialize(seed=1)
    plan = appliance.prepare(batch_size, trains=True).plan
    chooser.settle(appliance.memoryx.arrays.sparse_shapes(), plan.samples * plan.sequence)
    batch = random_batch(256, batch_size)
    steps = itertools.count(1)

    def step() -> None:
        number = next(steps)
        appliance.train_step(batch, number, 1e-4)
        appliance.memoryx.drain()

    return step, appliance


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
    parser = argparse.ArgumentParser(description="A training step: sparse against dense, float32")
    parser.add_argument("--sparsity", type=float, default=0.9)
    parser.add_argument("--batch_size", type=int, default=4, help="samples of 512 tokens (default: 4)")
    parser.add_argument("--kernels", default="auto", help="as --sparse_kernels of a run (default: auto)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side is measured (default: 5)")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        dense, dense_machine = side(None, arguments.batch_size, "auto", stack)
        sparse, sparse_machine = side(arguments.sparsity, arguments.batch_size, arguments.kernels, stack)
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
