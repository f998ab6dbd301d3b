"""Set the memory that is estimated for a job beside what runs take: with no budget, and with the estimate as theirs.

Run from the project's folder::

    python -m benchmarks.job_memory [NAME...]

Each run is two steps of a small model on random tokens, in a process of its own; its peak is ru_maxrss, that of the
process tree. An estimate must not be less, nor much more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cstool.foundation.host_memory import BUDGET_VARIABLE
from cstool.model.params import load_params
from cstool.training.data import write_hdf5_text
from cstool.training.host.job_needs import estimate_memory
from cstool.training.machine.data_sets import check_data

MIB = 2**20
TOKENS, SAMPLES = 128, 64
RUN = """
import resource, sys
from cstool.cli import main
code = main()
print(max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * 1024)
sys.exit(code)
"""
"""a run that prints its peak as its last line [bytes]"""
ADAM = {"AdamW": {"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "learning_rate": 1e-3}}
RIGL = {"algorithm": "rigl", "sparsity": 0.9, "update": {"freq": 1, "stop": 2}}


@dataclass(frozen=True)
class Case:
    """A model, and how it is run.

    Args:
        layers, width, words: of a GPT
        batch_size: samples
        lanes: host threads
        mode: of the run
        init: of the params, beside the model
    """

    layers: int = 2
    width: int = 768
    words: int = 16384
    batch_size: int = 8
    lanes: int = 2
    mode: str = "train"
    init: Mapping[str, Any] = field(default_factory=dict)


CASES = {
    "tiny": Case(4, 128, 256, 24, lanes=1),
    "tiny, 2 lanes": Case(4, 128, 256, 24),
    "tiny, MemoryX in a file": Case(4, 128, 256, 24, init={"memoryx": {"store": "file", "memory": "16MiB"}}),
    "tiny, evaluated too": Case(4, 128, 256, 24, mode="train_and_eval"),
    "wide": Case(lanes=1),
    "wide, 2 lanes": Case(),
    "wide, file": Case(init={"memoryx": {"store": "file", "memory": "256MiB"}}),
    "wide, bfloat16": Case(init={"precision": {"host": "bfloat16"}}),
    "wide, 90% zeros": Case(init={"sparsity": 0.9}),
    "wide, RigL": Case(init={"sparsity": RIGL}),
    "wide, SGD": Case(init={"optimizer": {"SGD": {"learning_rate": 1e-3, "momentum": 0.0}}}),
    "wide, clipped": Case(init={"precision": {"max_gradient_norm": 1.0}}),
    "deep, recomputed": Case(6, init={"activation_checkpointing": "always"}),
    "deep, larger batch": Case(6, words=4096, batch_size=32),
}


def write_params(folder: Path, case: Case) -> Path:
    """Write params, and the data that they name."""
    data = folder / "text"
    if not data.exists():
        data.mkdir(parents=True)
        tokens = np.random.default_rng(0).integers(0, 256, (SAMPLES, TOKENS + 1))
        fields = np.stack([tokens[:, :-1], np.ones((SAMPLES, TOKENS), int), tokens[:, 1:]], axis=1).astype(np.int32)
        write_hdf5_text(data / "part.h5", [fields], SAMPLES, TOKENS)
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data), "batch_size": case.batch_size}
    model = {
        "name": "gpt2",
        "vocab_size": case.words,
        "hidden_size": case.width,
        "num_heads": case.width // 64,
        "num_hidden_layers": case.layers,
        "filter_size": 4 * case.width,
        "max_position_embeddings": TOKENS,
    }
    init = {
        "model": model,
        "optimizer": ADAM,
        "loop": {"max_steps": 2, "eval_steps": 1},
        "checkpoint": {"steps": 2},
        "model_dir": str(folder / "model_dir"),
        **case.init,
    }
    file = folder / "params.yaml"
    file.write_text(
        yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": loader, "val_dataloader": loader}}})
    )
    return file


def peak_bytes(file: Path, case: Case, model_dir: Path, budget_bytes: int | None = None) -> tuple[int, str]:
    """Run params; return the peak [bytes], and how the systems were laid out."""
    environment = {name: value for name, value in os.environ.items() if name != BUDGET_VARIABLE}
    if budget_bytes is not None:
        environment[BUDGET_VARIABLE] = str(budget_bytes)
    words = ["run", "-p", str(file), "--lanes", str(case.lanes), "--mode", case.mode, "--model_dir", str(model_dir)]
    ended = subprocess.run([sys.executable, "-c", RUN, *words], env=environment, capture_output=True, text=True)
    lines = ended.stdout.splitlines()
    if ended.returncode:
        raise RuntimeError(ended.stderr)
    layout = [line.partition("INFO:")[2] for line in lines if "CSX:" in line or "Recomputing" in line]
    return int(lines[-1]), "".join(layout)


def main(names: Sequence[str] = ()) -> int:
    """Print the table; return 1 if an estimate is less than what a run took, or a budget was not kept to."""
    print(f"{'memory of a job [MiB]':<26}{'estimated':>10}{'taken':>8}{'ratio':>7}{'within it':>11}  layout")
    is_wrong = False
    for name in names or CASES:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            file = write_params(Path(folder), case)
            params = load_params(file)
            need = estimate_memory(params, check_data(params, case.mode), case.mode, case.lanes).total
            free, layout = peak_bytes(file, case, Path(folder, "free"))
            within, layout_within = peak_bytes(file, case, Path(folder, "within"), need)
        wrong = max(free, within) > need
        is_wrong |= wrong
        same = "TOO LITTLE" if wrong else "the same" if layout == layout_within else "another"
        print(
            f"{name:<26}{need / MIB:>10.0f}{free / MIB:>8.0f}{need / free:>7.2f}{within / MIB:>11.0f}  {same}",
            flush=True,
        )
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
