"""How far gradients in bfloat16 are from those in float32: cstool's beside those of PyTorch under autocast.

Run from the project's folder, with the extra "bench" installed::

    python -m benchmarks.gradients --model gpt2 --batches 3

Each side is held against itself in float32, at the same weights and on the same tokens: one sample of 256 random tokens
a batch, matrices normal with a standard deviation of 0.02, each side with its own.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np

from benchmarks.step import MODELS, model_graph
from cstool.model.optimizers import Step
from cstool.training.kernels.gemm_providers import BFLOAT16_NAME, FLOAT32
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.inputs import Batch
from cstool.training.machine.memoryx.kept_model import KeptModel

TOKENS = 256
STANDARD_DEVIATION = np.float32(0.02)

Gradients = Mapping[str, np.ndarray]
"""by weight"""


class Keeper:
    """Stands in for an optimizer: keeps the gradient as its state and leaves the weights alone."""

    name, artifact_key, update_ops = "keeper", "1", 1

    def states(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """See `Optimizer.states`."""
        return {"gradient": shape}

    def update(
        self,
        weight: np.ndarray,  # noqa: ARG002
        gradient: np.ndarray,
        states: Sequence[np.ndarray],
        step: Step,
        decays: bool,  # noqa: ARG002
    ) -> None:
        """See `Optimizer.update`."""
        np.multiply(gradient, np.float32(step.gradient_scale), out=states[0])


def own_gradients(model: str, tokens: np.ndarray, precision: str) -> Gradients:
    """Gradients of cstool at its first weights; tokens (1, TOKENS + 1)."""
    _, graph = model_graph(model, TOKENS)
    with Appliance(KeptModel(graph, Keeper(), precision=precision), seed=1) as appliance:
        memoryx, generator = appliance.memoryx, np.random.default_rng(1)
        memoryx.initialize(seed=1)
        for name, weight in graph.weights.items():
            if len(weight.shape) > 1:
                memoryx.arrays.load(f"model.{name}", lambda rows, *_: _fill(rows, generator))
        appliance.prepare(1, trains=True)
        arrays = {
            "input_ids": tokens[:, :-1].copy(),
            "labels": tokens[:, 1:].copy(),
            "mask": np.ones((1, TOKENS), np.float32),
        }
        appliance.train_step(Batch(0, arrays, samples=1, tokens=TOKENS, size=1), 1, 0.0)
        memoryx.drain()
        return {
            name: np.concatenate([*map(np.copy, memoryx.arrays.chunks(f"optimizer.{name}.gradient"))])
            for name in graph.weights
        }


def _fill(rows: np.ndarray, generator: np.random.Generator) -> None:
    generator.standard_normal(dtype=np.float32, out=rows)
    rows *= STANDARD_DEVIATION


def errors(found: Gradients, exact: Gradients) -> tuple[float, list[float]]:
    """Relative errors: of all numbers together, and of each matrix alone; those that PyTorch packs are one."""
    of: defaultdict[str, float] = defaultdict(float)
    sizes: defaultdict[str, float] = defaultdict(float)
    matrices = set()
    for name, gradient in exact.items():
        packed = re.sub("proj_[qkv]_|_for_glu", "", name)
        if gradient.ndim > 1:
            matrices.add(packed)
        of[packed] += float(np.sum((found[name] - gradient) ** 2, dtype=np.float64))
        sizes[packed] += float(np.sum(gradient**2, dtype=np.float64))
    each = [math.sqrt(of[name] / sizes[name]) for name in sorted(matrices) if sizes[name]]
    return math.sqrt(sum(of.values()) / sum(sizes.values())), each


def main() -> None:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description="Gradients in bfloat16 against those in float32")
    parser.add_argument("--model", choices=[name for name in MODELS if name != "fc_mnist"], default="gpt2")
    parser.add_argument("--batches", type=int, default=3)
    arguments = parser.parse_args()
    from benchmarks.torch_models import gradients_of

    _, graph = model_graph(arguments.model, TOKENS)
    vocab_size = graph.weights["embedding_layer.word_embeddings.weight"].shape[0]
    sides: dict[str, Callable[[np.ndarray, str], Gradients]] = {
        "cstool": lambda tokens, precision: own_gradients(arguments.model, tokens, precision),
        "autocast": lambda tokens, precision: gradients_of(arguments.model, tokens, precision),
    }
    print(f"{arguments.model}, {TOKENS} tokens: error of gradients in bfloat16, relative to those in float32")
    print(f"{'batch':8}{'side':12}{'all':>10}{'matrices, median':>20}{'largest':>10}")
    for batch in range(1, arguments.batches + 1):
        tokens = np.random.default_rng(batch).integers(0, vocab_size, (1, TOKENS + 1)).astype(np.int32)
        for name, gradients in sides.items():
            whole, each = errors(gradients(tokens, BFLOAT16_NAME), gradients(tokens, FLOAT32))
            print(f"{batch:<8}{name:12}{whole:10.5f}{median(each):20.5f}{max(each):10.5f}", flush=True)


if __name__ == "__main__":
    main()
