"""Alternate a training step of a small model, 4 x 512 tokens: cstool against PyTorch eager.

Run from the project's folder, with the extras "bench" and "bf16" installed::

    python -m benchmarks.step --model gpt2 --rounds 5
    python -m benchmarks.step --model gpt2 --rounds 5 --precision bfloat16

In bfloat16 the peer is autocast, and cstool in float32 a third side. Then the limit is that of products in bfloat16.

Both sides live in one process and share its cores. cstool pins BLAS to one thread per lane; PyTorch uses all cores by
OpenMP, whose idle threads (libgomp) by default spin for some 5 ms after an operation and then sleep. `alternate` waits
for that. OMP_WAIT_POLICY=ACTIVE would let them spin for good and take the cores from cstool; PASSIVE was seen to cost
PyTorch 1 to 4 % on a feed-forward layer. So both are unset here, and PyTorch runs with its defaults.

`--huge_pages` sets THP_MEM_ALLOC_ENABLE=1 for PyTorch, which is off by default: a step allocates some GB anew, in about
750,000 page faults, and with huge pages in 40,000. Neither is the fairer peer, so the report says which was measured.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.machine import alternate, gemm_limit_flops_per_s, report
from cstool.kernels.gemm_providers import FLOAT32, PRECISIONS
from cstool.machine.appliance import Appliance
from cstool.machine.inputs import Batch
from cstool.models import build_graph
from cstool.models.statistics import count_statistics
from cstool.optimizers import make_optimizer
from cstool.params import load_params

FOLDER = Path(__file__).parent.parent / "params"
_NO_DROPOUT = ("dropout_rate=0.0", "attention_dropout_rate=0.0")
MODELS: dict[str, tuple[Path, tuple[str, ...]]] = {
    "gpt2": (FOLDER / "gpt2_small.yaml", _NO_DROPOUT),
    "llama": (
        FOLDER / "llama3_8b.yaml",
        (
            *_NO_DROPOUT,
            *("vocab_size=32000", "hidden_size=768", "num_hidden_layers=12", "num_heads=12", "filter_size=2048"),
            *("extra_attention_params.num_kv_groups=4", "rotary_dim=64", "pos_scaling_type=linear"),
            *("pos_scaling_factor=1.0", "pos_scaling_extra_args=null", "rope_theta=10000.0"),
        ),
    ),
}
"""by name: a stock file, and what is changed in its model section"""
BATCH_SIZE = 4
SEQUENCE_LENGTH = 512


def cstool_side(model: str, batch_size: int, precision: str = FLOAT32) -> tuple[Callable[[], None], Appliance]:
    """Return a function that trains one step of a model on 512 random tokens a sample.

    Dropout is off. Each call ends with `drain`, so that the updates that would overlap the next forward pass are on
    its own clock.
    """
    file, changes = MODELS[model]
    overrides = [f"trainer.fit.train_dataloader.batch_size={batch_size}"]
    overrides += [f"trainer.init.model.{change}" for change in changes]
    params = load_params(file, overrides=overrides)
    graph = build_graph(params.model, SEQUENCE_LENGTH)
    appliance = Appliance(
        graph,
        optimizer=make_optimizer(params.optimizer, None),
        max_gradient_norm=params.precision.max_gradient_norm,
        loss_scaling="num_tokens",
        loss_weight=1.0,
        seed=1,
        precision=precision,
    )
    appliance.memoryx.initialize(seed=1)
    appliance.prepare(batch_size, trains=True)
    vocab_size: int = graph.weights["embedding_layer.word_embeddings.weight"].shape[0]
    batch = random_batch(vocab_size, batch_size)
    steps = itertools.count(1)

    def step() -> None:
        number = next(steps)
        appliance.train_step(batch, number, params.learning_rate(number))
        appliance.memoryx.drain()

    return step, appliance


def random_batch(vocab_size: int, batch_size: int) -> Batch:
    """Return samples of `SEQUENCE_LENGTH` random tokens, always the same ones."""
    tokens = np.random.default_rng(0).integers(0, vocab_size, (batch_size, SEQUENCE_LENGTH + 1)).astype(np.int32)
    arrays = {
        "input_ids": tokens[:, :-1].copy(),
        "labels": tokens[:, 1:].copy(),
        "mask": np.ones((batch_size, SEQUENCE_LENGTH), np.float32),
    }
    return Batch(0, arrays, samples=batch_size, tokens=batch_size * SEQUENCE_LENGTH, size=batch_size)


def main() -> None:
    """Run the comparison and print its report."""
    parser = argparse.ArgumentParser(description="A training step: cstool against PyTorch eager")
    parser.add_argument("--model", choices=MODELS, default="gpt2", help="what is trained (default: gpt2)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side is measured (default: 5)")
    parser.add_argument("--precision", choices=PRECISIONS, default=FLOAT32, help="of products (default: float32)")
    parser.add_argument("--huge_pages", action="store_true", help="let PyTorch allocate huge pages")
    arguments = parser.parse_args()
    precision, threads = arguments.precision, len(os.sched_getaffinity(0))
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        os.environ.pop(name, None)
    os.environ["THP_MEM_ALLOC_ENABLE"] = "1" if arguments.huge_pages else "0"
    own, in_float32 = f"cstool {precision}", f"cstool {FLOAT32}"
    peer = "PyTorch eager" if precision == FLOAT32 else "PyTorch autocast"
    peer += ", huge pages" if arguments.huge_pages else ""

    appliances = {}
    sides: dict[str, Callable[[], None]] = {}
    for name, kind in {own: precision, in_float32: FLOAT32}.items():
        sides[name], appliances[name] = cstool_side(arguments.model, BATCH_SIZE, kind)
    # Late: OpenMP and PyTorch read their environment when they are loaded.
    from benchmarks.torch_models import torch_step_runner

    of_peer = {"threads": threads, "batch_size": BATCH_SIZE, "sequence_length": SEQUENCE_LENGTH, "precision": precision}
    sides[peer] = torch_step_runner(name=arguments.model, **of_peer)
    gemm = appliances[own].gemm
    # Before and after: a neighbour that was busy during one of them does not lower the limit.
    limit_before = gemm_limit_flops_per_s(threads, gemm=gemm)
    seconds = alternate(sides, arguments.rounds)
    limit = max(limit_before, gemm_limit_flops_per_s(threads, gemm=gemm))
    # Causal pairs only, logits once: who computes more than needed gets no credit.
    flops = BATCH_SIZE * count_statistics(appliances[own].graph).sample_flops.total
    print(f"products by {gemm.name}")
    for other in sides:
        if other != own:
            print(report(seconds, ours=own, theirs=other, flops=flops, limit_flops_per_s=limit))


if __name__ == "__main__":
    main()
