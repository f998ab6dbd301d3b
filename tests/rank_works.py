"""Small runs on several ranks, which must have the bits of the same runs in one process.

    python -m tests.rank_works --works 36 --seed 1

Each work is drawn from what runs can ask for: the model, how its weights are sparse, whether gradients are clipped,
what is recomputed, where MemoryX is, how many systems and how many ranks. Those of as many ranks go one after the other
under one mpirun.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py

from cstool.data import prepare_digits
from cstool.errors import ToldElsewhere
from cstool.machine.ranks.joining import joined
from cstool.params import load_params
from cstool.progress import Silent
from cstool.run.follow import follow
from cstool.run.run import run
from cstool.run.session import RunOrder
from tests.end_to_end.memoryx_files import IN_FILE
from tests.end_to_end.ranks import MPIRUN
from tests.end_to_end.runs import bits, compiled, gpt_params, run_file, write_text
from tests.models import FAMILIES, SPARSITIES
from tests.reference.deterministic import preference_batches

MEMORYX = "init__memoryx"
NUM_CSX = "init__backend__cluster_config__num_csx"
PATIENCE_S = 900.0
MODELS: dict[str, dict[str, Any]] = {
    **{name: {f"init__model__{key}": value for key, value in FAMILIES[name].items()} for name in ("gpt2", "llama")},
    "fc_mnist": {"init__model": {"name": "fc_mnist", "hidden_sizes": [40, 24], "dropout": 0.1}},
    "dpo": {
        "init__model": {
            "name": "dpo",
            "dpo": {"beta": 0.1, "disable_dropout": False},
            "policy_model": {
                "name": "gpt2",
                "vocab_size": 40,
                "hidden_size": 32,
                "num_heads": 2,
                "num_hidden_layers": 2,
                "filter_size": 64,
                "max_position_embeddings": 16,
                "dropout_rate": 0.0,
                "attention_dropout_rate": 0.0,
            },
        }
    },
}
WEIGHTS: dict[str, dict[str, Any]] = {
    "dense": {},
    "dropout": {"init__model__dropout_rate": 0.1},
    **{name: {"init__sparsity": SPARSITIES[name]} for name in ("static", "gmp", "rigl", "dropconnect")},
}
GRADIENTS: dict[str, dict[str, Any]] = {"clipped": {}, "not clipped": {"init__precision": {}}}
STORES: dict[str, dict[str, Any]] = {"ram": {}, "file": IN_FILE}
NODES: dict[str, dict[str, Any]] = {
    "all nodes": {},
    "one node": {"nodes": 1},
    "two nodes": {"nodes": 2},
}
PRECISIONS: dict[str, dict[str, Any]] = {
    precision: {"init__precision__host": precision} for precision in ("float32", "bfloat16")
}
LAYERS: dict[str, dict[str, Any]] = {
    "kept": {},
    "recomputed": {"init__activation_checkpointing": "always", "init__model__num_hidden_layers": 3},
}
SYSTEMS = {2: (2, 3, 4, 6, 12), 3: (3, 4, 6, 12), 4: (4, 6, 12, 48)}
"""ranks -> systems; a batch has 12 grains of 4 samples"""


@dataclass(frozen=True)
class RankWork:
    """A run, and on how many ranks."""

    ranks: int
    num_csx: int
    model: str
    weights: str
    gradients: str
    store: str
    nodes: str
    layers: str
    precision: str

    @property
    def changes(self) -> dict[str, Any]:
        """What it changes of the params of a small GPT."""
        options = (MODELS[self.model], WEIGHTS[self.weights], GRADIENTS[self.gradients], STORES[self.store])
        options = (*options, LAYERS[self.layers], PRECISIONS[self.precision])
        found = {key: value for each in options for key, value in each.items()}
        if self.model == "dpo":
            # What is said of a model is of its policy there.
            prefix, policy = "init__model__", "init__model__policy_model__"
            found = {key.replace(prefix, policy): value for key, value in found.items()}
        return {**found, MEMORYX: {**found.get(MEMORYX, {}), **NODES[self.nodes]}}

    def file(self, folder: Path, data: Path, **more: Any) -> Path:
        """Write its params."""
        usual = {"init__loop": {"max_steps": 3}, "init__checkpoint": {"steps": 3}, NUM_CSX: self.num_csx}
        if self.model == "fc_mnist":
            pictures = str(data.parent / "pictures")
            loader = {"data_processor": "MNISTDataProcessor", "data_dir": pictures, "batch_size": 48}
            usual |= {"fit__train_dataloader": loader, "fit__val_dataloader": loader}
        if self.model == "dpo":
            pairs = str(data.parent / "pairs")
            loader = {"data_processor": "DpoHDF5DataProcessor", "data_dir": pairs, "batch_size": 48}
            usual |= {"fit__train_dataloader": loader, "fit__val_dataloader": loader}
        return gpt_params(folder, data, **{**usual, **self.changes, **more})


def drawn(count: int, seed: int) -> list[RankWork]:
    """Draw so many works, those of the fewest ranks first."""
    chance, found = random.Random(seed), []
    for number in range(count):
        ranks = sorted(SYSTEMS)[number % len(SYSTEMS)]
        kinds = (MODELS, WEIGHTS, GRADIENTS, STORES, NODES, LAYERS, PRECISIONS)
        work = RankWork(ranks, chance.choice(SYSTEMS[ranks]), *(chance.choice(list(kind)) for kind in kinds))
        if work.model == "fc_mnist":
            # It is no transformer: it has dropout of its own, and nothing to recompute.
            work = replace(work, weights="dense" if work.weights == "dropout" else work.weights, layers="kept")
        if work.model == "dpo" and work.weights != "dropout":
            # Beside DPO no weights are sparse.
            work = replace(work, weights="dense")
        found.append(work)
    return sorted(found, key=lambda work: work.ranks)


Bits = tuple[list[str], str]


def in_one_process(work: RankWork, folder: Path, data: Path) -> Bits:
    """The bits of a work in this process, on one system."""
    return bits(run_file(work.file(folder, data, **{NUM_CSX: 1}), execution_mode="weight_streaming"))


def mpirun(ranks: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run this Python with arguments on so many ranks.

    Raises:
        AssertionError: that fails, with what was printed
    """
    project = str(Path(__file__).parents[1])
    command = [MPIRUN, "-n", str(ranks), sys.executable, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": project}
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def on_ranks(ranks: int, files: Sequence[Path]) -> list[Bits]:
    """The bits of params files, one after the other, on so many ranks."""
    done = mpirun(ranks, "-m", "tests.rank_works", "--files", *files)
    return [(losses, digest) for losses, digest in json.loads(done.stdout.splitlines()[-1])]


def run_files(files: Sequence[Path]) -> None:
    """Be one of the ranks that run params files; rank 0 prints their bits."""
    with suppress(ToldElsewhere), joined("mpi") as link:
        trainers = [load_params(file) for file in files]
        if link.rank > 0:
            follow(trainers, "train", 1, link)
        found = []
        for number, params in enumerate(trainers):
            order = RunOrder("train", lanes=1, sparse_kernels="always", link=link, trainer=number)
            found.append(bits(run(params, compiled(params, "train", "weight_streaming"), order, Silent())))
        print(json.dumps(found), flush=True)


def write_pairs(folder: Path) -> None:
    """Write the pairs that a policy learns from."""
    folder.mkdir()
    pairs = preference_batches(batch_size=16, sequence_length=16, vocab_size=40, seed=7).reshape(-1, 6, 16)
    with h5py.File(folder / "pairs.h5", "w") as file:
        file["data"] = pairs
        file.attrs["n_examples"] = len(pairs)


def differing(works: Sequence[RankWork], folder: Path) -> list[RankWork]:
    """Run works in one process and on their ranks; those whose bits are not the same."""
    data = write_text(folder / "text" / "train", 150)
    if any(work.model == "fc_mnist" for work in works):
        prepare_digits(data.parent / "pictures")
    if any(work.model == "dpo" for work in works):
        write_pairs(data.parent / "pairs")
    found = []
    for ranks in sorted({work.ranks for work in works}):
        those = [work for work in works if work.ranks == ranks]
        files = [work.file(folder / f"{ranks}-{number}", data) for number, work in enumerate(those)]
        for number, (work, got) in enumerate(zip(those, on_ranks(ranks, files), strict=True)):
            if got != in_one_process(work, folder / f"{ranks}-{number} alone", data):
                found.append(work)
    return found


def main() -> int:
    """Draw works, run them, and say which differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--works", type=int, default=36, help="how many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", nargs="*", type=Path, default=[], help="be a rank that runs these")
    asked = parser.parse_args()
    if asked.files:
        run_files(asked.files)
        return 0
    works = drawn(asked.works, asked.seed)
    with tempfile.TemporaryDirectory(prefix="rank_works.") as folder:
        found = differing(works, Path(folder))
    for work in works:
        print(f"{'OTHER BITS' if work in found else 'same bits'}: {work}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
