"""Train adapters beside GPT-3 2.7B in a small memory, and all of its weights: time of a step, memory, disk.

Run from the project's folder, on a disk with 45 GB free::

    python -m benchmarks.large_base FOLDER [--rounds 2]

The base is a checkpoint of random weights in FOLDER, 10.6 GB, made once. Each side is a run of `cstool run` in a
process of its own, MemoryX in a file, one sample of 512 tokens, without clipping; full training makes no commits (32
GB). Sides take turns, that of adapters with a budget of memory of 1.45 GB. Steps but the first count. At the end the
bytes of the base are compared with those before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from hashlib import blake2b
from pathlib import Path
from statistics import median

import numpy as np

from cstool.foundation.host_memory import BUDGET_VARIABLE
from cstool.foundation.random_keys import key_of
from cstool.model.graphs import build_graph
from cstool.model.ir import Panel, Weight, panels_of
from cstool.model.params import load_params
from cstool.training.kernels.random import fill
from cstool.training.store import CheckpointWriter

PARAMS, TOKENS = Path("params/gpt3_2p7b.yaml"), 512
STEPS = 3
SIDES = {
    "adapters": ("--lora", "rank=16,alpha=32,targets=all", "--memoryx_memory", "400MiB"),
    "all weights": ("--load_checkpoint_states", "model", "--memoryx_memory", "1GiB"),
}
BUDGET_BYTES = 1_450_000_000
"""of the run of adapters; all weights need more"""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="Train beside a large base.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sides", nargs="*", default=[*SIDES], choices=[*SIDES])
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    base = asked.folder / "base.mdl"
    if not base.exists():
        write_random_base(base)
    prepare = ("data", "prepare", "text", "--output", asked.folder / "data", "--sequence_length", TOKENS)
    if not (asked.folder / "data").exists():
        subprocess.run([sys.executable, "-m", "cstool", *map(str, prepare)], check=True, stdout=subprocess.DEVNULL)
    before = _digest(base)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in asked.sides}
    for _ in range(asked.rounds):
        for name in asked.sides:
            found[name].append(_run(asked.folder, base, SIDES[name]))
            print(name, found[name][-1], flush=True)
    print(f"the base has the same bytes: {_digest(base) == before}")
    for name, runs in found.items():
        print(
            f"{name:<12} {median(run['step_s'] for run in runs):>7.1f} s a step, peak "
            f"{max(run['peak_bytes'] for run in runs) / 1e6:,.0f} MB, files {runs[0]['file_bytes'] / 1e9:.3f} GB"
        )


def write_random_base(path: Path) -> None:
    """Write a checkpoint of GPT-3 2.7B with the weights that a run begins with."""
    graph = build_graph(load_params(PARAMS).model, TOKENS)
    with CheckpointWriter(path, total_bytes=4 * graph.parameter_count) as writer:
        for name, weight in graph.weights.items():
            writer.add_tensor(f"model.{name}", weight.shape, "float32", map(partial(_drawn, weight), panels_of(weight)))
        for alias, name in graph.aliases.items():
            writer.link(f"model.{alias}", f"model.{name}")


def _drawn(weight: Weight, panel: Panel) -> np.ndarray:
    rows = np.empty((panel.stop - panel.start, *weight.shape[1:]), np.float32)
    fill(weight.initializer, key_of(1, weight.name), panel.start * (weight.size // weight.shape[0]), rows.reshape(-1))
    return rows


def _run(folder: Path, base: Path, flags: tuple[str, ...]) -> dict[str, float]:
    """Train some steps in a process: median seconds of a step, peak of its memory, size of its files [bytes]."""
    with tempfile.TemporaryDirectory(dir=folder) as model_dir:
        settings = (
            f"trainer.fit.train_dataloader.data_dir={folder.absolute() / 'data/train'}",
            "trainer.fit.train_dataloader.batch_size=1",
            "trainer.init.precision.max_gradient_norm=null",
            "trainer.init.activation_checkpointing=always",
            "trainer.init.checkpoint.steps=0",
            f"trainer.init.memoryx.commit_steps={int('--lora' in flags)}",
        )
        command = [sys.executable, "-m", "cstool", "run", "-p", PARAMS, "-o", model_dir, "--memoryx", "file", *flags]
        command += ["--checkpoint_path", base, "--max_steps", str(STEPS), "--json", "--set", *settings]
        budget = {BUDGET_VARIABLE: str(BUDGET_BYTES)} if "--lora" in flags else {}
        process = subprocess.Popen(
            [*map(str, command)], stdout=subprocess.PIPE, text=True, env={**os.environ, **budget}
        )
        output = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(output)
        document = json.loads(output)
        files = sum(path.stat().st_size for path in Path(model_dir).rglob("*") if path.is_file())
        steps = document["step_seconds"][1:] if "step_seconds" in document else [document["median_step_s"]]
        return {"step_s": median(steps), "peak_bytes": usage.ru_maxrss * 1024, "file_bytes": files}


def _digest(path: Path) -> str:
    found = blake2b()
    with path.open("rb") as file:
        while part := file.read(2**24):
            found.update(part)
    return found.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
