"""Predict the time of a training step on this host, and measure it: five models, rounds in turn.

`cstool estimate --system host` measures first what the host can do, on models of its own. Every run is a process of its
own, `cstool run --json`, which says what was predicted for it. Run from the project's folder, on a quiet machine::

    python -m benchmarks.host --rounds 3
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml

from benchmarks.memoryx import JOB_LAYERS, PROJECT, file_flags, run

IMAGES = 4_000
STEPS = {"fc_mnist": 300, "gpt_tiny": 30, "gpt2_small": 5, "sparse": 8, "out_of_core": 10}
SIDES = ("predicted", "measured")
OUT_OF_CORE_MIB = 256
"""for the buffers of MemoryX"""


def write_images(folder: Path) -> Path:
    """Write random images and labels as MNIST's files, and return their folder."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (IMAGES, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, IMAGES, dtype=np.uint8)
    for name, array in (("train-images-idx3-ubyte", images), ("train-labels-idx1-ubyte", labels)):
        head = np.array([0x800 + array.ndim, *array.shape], ">u4").tobytes()
        (folder / name).write_bytes(head + array.tobytes())
    return folder


def write_text(folder: Path, tokens: int) -> Path:
    """Prepare the sources of the standard library as samples of so many bytes."""
    command = ["data", "prepare", "text", "--output", str(folder), "--sequence_length", str(tokens)]
    subprocess.run([sys.executable, "-m", "cstool", *command], cwd=PROJECT, check=True, capture_output=True)
    return folder / "train"


def models(folder: Path) -> dict[str, tuple[dict[str, Any], list[str]]]:
    """Return the params of each model, and the flags of its run."""
    images, short, long = (
        write_images(folder / "mnist"),
        write_text(folder / "s128", 128),
        write_text(folder / "s512", 512),
    )

    def stock(name: str, data: Path, change: Callable[[dict[str, Any]], None], **loader: Any) -> dict[str, Any]:
        document: dict[str, Any] = yaml.safe_load((PROJECT / "params" / f"{name}.yaml").read_text())
        trainer = document["trainer"]
        trainer["fit"].pop("val_dataloader", None)
        trainer["fit"]["train_dataloader"] |= {"data_dir": str(data), **loader}
        trainer["init"]["checkpoint"] = {"steps": 0}
        trainer["init"]["loop"] = {"num_steps": 1}
        change(trainer["init"])
        return document

    def nothing(init: dict[str, Any]) -> None:
        pass

    def sparse(init: dict[str, Any]) -> None:
        init["model"] |= {"vocab_size": 256, "num_hidden_layers": 4, "max_position_embeddings": 512}
        init["sparsity"] = 0.9

    def job(init: dict[str, Any]) -> None:
        init["model"] = {"name": "fc_mnist", "hidden_sizes": [2048] * (JOB_LAYERS + 1), "use_bias": False}
        init["optimizer"] = {"AdamW": {"learning_rate": 1e-4, "weight_decay": 0.1}}
        init.pop("schedulers")

    return {
        "fc_mnist": (stock("fc_mnist", images, nothing), []),
        "gpt_tiny": (stock("gpt_tiny", short, nothing), []),
        "gpt2_small": (stock("gpt2_small", long, nothing, batch_size=4, max_sequence_length=512), []),
        "sparse": (stock("gpt3_xl", long, sparse, batch_size=4), []),
        "out_of_core": (stock("fc_mnist", images, job, batch_size=64), file_flags(OUT_OF_CORE_MIB)),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(STEPS))
    parser.add_argument("--keep_rates", action="store_true", help="do not calibrate again")
    arguments = parser.parse_args()
    if not arguments.keep_rates:
        command = [sys.executable, "-m", "cstool", "estimate", "--system", "host", "--calibrate"]
        subprocess.run(command, cwd=PROJECT, check=True)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.only}
    with tempfile.TemporaryDirectory(dir=PROJECT, prefix=".host-") as scratch:
        folder = Path(scratch)
        known = models(folder)
        for number in range(arguments.rounds):
            for name in arguments.only:
                params, flags = known[name]
                params["trainer"]["init"]["loop"] = {"num_steps": STEPS[name]}
                found[name].append(run(params, folder, *flags)["predicted"])
                step = found[name][-1]["step"]
                print(f"  round {number + 1}, {name}: {step['predicted']:.4g} / {step['measured']:.4g} s", flush=True)
    print(f"\nA training step on this host, predicted / measured, medians of {arguments.rounds} rounds in turn [s]")
    for name, results in found.items():
        parts = []
        for phase in results[0]:
            predicted, measured = (
                median(result[phase][side] for result in results) for side in ("predicted", "measured")
            )
            if predicted or measured:
                parts.append(f"{phase} {predicted:.3g} / {measured:.3g}")
        step = [median(result["step"][side] for result in results) for side in SIDES]
        print(f"  {name:<12}{step[0] / step[1] - 1:+7.1%}   {', '.join(parts)}")


if __name__ == "__main__":
    main()
