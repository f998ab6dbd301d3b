"""What sparsity, or bfloat16, costs in quality: the same runs with and without it, over paired seeds.

Run from the project's folder, with data prepared as `datasets/README.md` says::

    python -m benchmarks.quality --of sparsity --model fc_mnist --seeds 5
    python -m benchmarks.quality --of sparsity --model gpt_tiny --seeds 3
    python -m benchmarks.quality --of precision --model llama_tiny --seeds 3

Runs of one seed begin with the same weights and see the same batches; they differ in `sparsity`, or in the precision of
their products, alone.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev

import yaml

from cstool.model.params import load_params
from cstool.training.kernels.gemm_providers import PRECISIONS
from cstool.training.run.result import RunResult
from cstool.training.verbs.run import RunRequest, run_trainers

FOLDER = Path(__file__).parent.parent / "params"
MEASURES = {
    "fc_mnist": ("accuracy", 100.0, "%"),
    "gpt_tiny": ("loss", 1.0, "nats/byte"),
    "llama_tiny": ("loss", 1.0, "nats/byte"),
}
"""by model: what is compared of the last evaluation, times what, in what unit"""


WIDE_DIGITS = (
    "trainer.init.model.hidden_sizes=[1024, 512]",
    "trainer.init.schedulers=[{CosineDecayLR: {initial_learning_rate: 0.2, end_learning_rate: 0.004, "
    "total_iters: 660}}]",
)
"""of `fc_mnist`, dense and sparse. A unit with a tenth of its inputs begins with a tenth of the variance: at the 0.05
of the stock file the sparse network is still learning after ten epochs."""

Sides = dict[str, tuple[str, ...]]
"""name of a side -> what it changes in the stock file; the others are held against the first"""


def sides_of_sparsity(model: str, sparsity: float) -> Sides:
    """Dense, static masks, and RigL for decoders."""
    static: dict[str, object] = {"sparsity": sparsity}
    rigl: dict[str, object] = {
        **static,
        "algorithm": "rigl",
        "drop_fraction": {"type": "cosine", "init": 0.3, "half_period": 450},
        "update": {"freq": 25, "stop": 450},
    }
    is_digits = model == "fc_mnist"
    always = WIDE_DIGITS if is_digits else ()

    def section(values: dict[str, object]) -> str:
        return f"trainer.init.sparsity={yaml.safe_dump(values, default_flow_style=True, width=1000)}"

    found: Sides = {"dense": always, "static": (*always, section(static))}
    return found if is_digits else {**found, "rigl": (*always, section(rigl))}


def sides_of_precision() -> Sides:
    """Both precisions."""
    return {name: (f"trainer.init.precision.host={name}",) for name in PRECISIONS}


def quality(model: str, seed: int, changes: Sequence[str]) -> float:
    """Train a stock file with a seed, and return the measure of its last evaluation."""
    name, factor, _ = MEASURES[model]
    with tempfile.TemporaryDirectory() as folder:
        overrides = [f"trainer.init.seed={seed}", f"trainer.init.model_dir={folder}"]
        overrides += [f"trainer.fit.train_dataloader.shuffle_seed={seed}", "trainer.init.checkpoint.steps=null"]
        params = load_params(FOLDER / f"{model}.yaml", overrides=[*overrides, *changes])
        (result,) = run_trainers([params], RunRequest(mode="train_and_eval"), progress="none")
        assert isinstance(result, RunResult)
    return factor * result.evaluations[-1][name]


def main() -> None:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description="Quality of sparse training, or of bfloat16, over paired seeds")
    parser.add_argument("--of", choices=("sparsity", "precision"), default="sparsity", help="what is looked at")
    parser.add_argument("--model", choices=MEASURES, default="fc_mnist")
    parser.add_argument("--sparsity", type=float, default=0.9)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    model, is_sparsity = arguments.model, arguments.of == "sparsity"
    name, _, unit = MEASURES[model]
    sides = sides_of_sparsity(model, arguments.sparsity) if is_sparsity else sides_of_precision()
    print(f"{model}{f', {arguments.sparsity:.0%} zeros' * is_sparsity}: {name} [{unit}] of the last evaluation")
    print("seed" + "".join(f"{side:>12}" for side in sides), flush=True)
    found: dict[str, list[float]] = {side: [] for side in sides}
    for seed in range(1, arguments.seeds + 1):
        for side, changes in sides.items():
            found[side].append(quality(model, seed, changes))
        print(f"{seed:4}" + "".join(f"{values[-1]:12.4f}" for values in found.values()), flush=True)
    print("mean" + "".join(f"{fmean(values):12.4f}" for values in found.values()))
    for one, other in combinations(found, 2):
        gaps = [b - a for a, b in zip(found[one], found[other], strict=True)]
        spread = f", standard deviation {stdev(gaps):.4f}" if len(gaps) > 1 else ""
        larger = sum(gap > 0 for gap in gaps)
        share = fmean(gaps) / fmean(found[one])
        print(f"{other} - {one}: {fmean(gaps):+.4f} ({share:+.2%}){spread}, larger in {larger} of {len(gaps)}")


if __name__ == "__main__":
    main()
