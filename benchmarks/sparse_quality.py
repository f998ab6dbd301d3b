"""What sparsity costs in quality: the same runs dense, static and with RigL, over paired seeds.

Run from the project's folder, with data prepared as `datasets/README.md` says::

    python -m benchmarks.sparse_quality --model fc_mnist --seeds 5
    python -m benchmarks.sparse_quality --model gpt_tiny --seeds 3

Runs of one seed begin with the same weights and see the same batches; they differ in `sparsity` alone.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import fmean, stdev

import yaml

from cstool.params import load_params
from cstool.run.result import RunResult
from cstool.verbs.run import RunRequest, run_trainers

FOLDER = Path(__file__).parent.parent / "params"
MEASURES = {"fc_mnist": ("accuracy", 100.0, "%"), "gpt_tiny": ("loss", 1.0, "nats/byte")}
"""by model: what is compared of the last evaluation, times what, in what unit"""


CHANGES = {
    "fc_mnist": (
        "trainer.init.model.hidden_sizes=[1024, 512]",
        "trainer.init.schedulers=[{CosineDecayLR: {initial_learning_rate: 0.2, end_learning_rate: 0.004, "
        "total_iters: 660}}]",
    ),
    "gpt_tiny": (),
}
"""in the stock files, for all sides. A unit with a tenth of its inputs begins with a tenth of the variance: at the 0.05
of the stock file the sparse network is still learning after ten epochs."""


def sides(model: str, sparsity: float) -> dict[str, dict[str, object] | None]:
    """Return the sparsity sections that are compared."""
    static: dict[str, object] = {"sparsity": sparsity}
    if model == "fc_mnist":
        return {"dense": None, "static": static}
    rigl: dict[str, object] = {
        **static,
        "algorithm": "rigl",
        "drop_fraction": {"type": "cosine", "init": 0.3, "half_period": 450},
        "update": {"freq": 25, "stop": 450},
    }
    return {"dense": None, "static": static, "rigl": rigl}


def quality(model: str, seed: int, sparsity: dict[str, object] | None) -> float:
    """Train a stock file with a seed, and return the measure of its last evaluation."""
    name, factor, _ = MEASURES[model]
    with tempfile.TemporaryDirectory() as folder:
        overrides = [f"trainer.init.seed={seed}", f"trainer.init.model_dir={folder}"]
        overrides += [f"trainer.fit.train_dataloader.shuffle_seed={seed}", "trainer.init.checkpoint.steps=null"]
        overrides += CHANGES[model]
        if sparsity is not None:
            overrides.append(f"trainer.init.sparsity={yaml.safe_dump(sparsity, default_flow_style=True, width=1000)}")
        params = load_params(FOLDER / f"{model}.yaml", overrides=overrides)
        (result,) = run_trainers([params], RunRequest(mode="train_and_eval"), progress="none")
        assert isinstance(result, RunResult)
    return factor * result.evaluations[-1][name]


def main() -> None:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description="Quality of sparse training over paired seeds")
    parser.add_argument("--model", choices=MEASURES, default="fc_mnist")
    parser.add_argument("--sparsity", type=float, default=0.9)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    name, _, unit = MEASURES[arguments.model]
    sections = sides(arguments.model, arguments.sparsity)
    print(f"{arguments.model}, {arguments.sparsity:.0%} zeros: {name} [{unit}] of the last evaluation")
    print("seed" + "".join(f"{side:>12}" for side in sections), flush=True)
    found: dict[str, list[float]] = {side: [] for side in sections}
    for seed in range(1, arguments.seeds + 1):
        for side, section in sections.items():
            found[side].append(quality(arguments.model, seed, section))
        print(f"{seed:4}" + "".join(f"{values[-1]:12.4f}" for values in found.values()), flush=True)
    print("mean" + "".join(f"{fmean(values):12.4f}" for values in found.values()))
    first = found["dense"]
    for side, values in found.items():
        if side != "dense":
            gaps = [value - dense for value, dense in zip(values, first, strict=True)]
            spread = f", standard deviation {stdev(gaps):.4f}" if len(gaps) > 1 else ""
            print(f"{side} - dense: {fmean(gaps):+.4f}{spread}")
    if "rigl" in found:
        gaps = [rigl - static for rigl, static in zip(found["rigl"], found["static"], strict=True)]
        print(f"rigl - static: {fmean(gaps):+.4f}, better in {sum(gap < 0 for gap in gaps)} of {len(gaps)}")


if __name__ == "__main__":
    main()
