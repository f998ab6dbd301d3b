"""Small runs on several ranks under a real mpirun, which must have the bits of the same runs in one process.

Those of as many ranks go one after the other under one mpirun. Each has 12 grains of 4 samples to a batch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cstool.foundation.errors import ToldElsewhere
from cstool.foundation.progress import Silent
from cstool.model.params import load_params
from cstool.training.machine.ranks.joining import joined
from cstool.training.run.follow import follow
from cstool.training.run.run import run
from cstool.training.run.session import RunOrder
from tests.end_to_end.memoryx_files import IN_FILE
from tests.end_to_end.ranks import MPIRUN
from tests.end_to_end.runs import bits, compiled, gpt_params, run_file, write_text
from tests.models import FAMILIES, SPARSITIES

NUM_CSX = "init__backend__cluster_config__num_csx"
PATIENCE_S = 900.0
OPTIONS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "llama": {f"init__model__{key}": value for key, value in FAMILIES["llama"].items()},
    "dropout": {"init__model__dropout_rate": 0.1},
    **{name: {"init__sparsity": sparsity} for name, sparsity in SPARSITIES.items()},
    "unclipped": {"init__precision": {}},
    "bfloat16": {"init__precision__host": "bfloat16"},
    "file": IN_FILE,
    "one node": {"init__memoryx__nodes": 1},
    "two nodes": {"init__memoryx__nodes": 2},
    "again": {"init__activation_checkpointing": "always"},
}
"""what a work may ask for beside its number of systems"""


def work_file(folder: Path, data: Path, num_csx: int, asked: str = "gpt2", **more: Any) -> Path:
    """Write the params of a work: words of `OPTIONS` with commas between them."""
    words = asked.split(", ")
    usual = {"init__loop": {"max_steps": 3}, "init__checkpoint": {"steps": 3}, NUM_CSX: num_csx}
    if "again" in words:
        usual["init__model__num_hidden_layers"] = 3
    for word in words:
        usual |= OPTIONS[word]
    return gpt_params(folder, data, **{**usual, **more})


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


def differing(ranks: int, works: Sequence[tuple[int, str]], folder: Path) -> list[tuple[int, str]]:
    """Run works, (systems, what is asked for), on ranks and in one process on one system; those with other bits."""
    data = write_text(folder / "text" / "train", 150)
    files = [work_file(folder / str(number), data, *work) for number, work in enumerate(works)]
    done = mpirun(ranks, "-m", "tests.rank_works", *files)
    alone = [
        bits(run_file(work_file(folder / f"{number} alone", data, 1, asked), execution_mode="weight_streaming"))
        for number, (_, asked) in enumerate(works)
    ]
    found = json.loads(done.stdout.splitlines()[-1])
    return [work for work, came, expected in zip(works, found, alone, strict=True) if came != [*expected]]


def main() -> None:
    """Be one of the ranks that run params files; rank 0 prints their bits."""
    with suppress(ToldElsewhere), joined("mpi") as link:
        trainers = [load_params(Path(file)) for file in sys.argv[1:]]
        if link.rank > 0:
            follow(trainers, "train", 1, link)
        found = []
        for number, params in enumerate(trainers):
            order = RunOrder("train", lanes=1, sparse_kernels="always", link=link, trainer=number)
            found.append(bits(run(params, compiled(params, "train", "weight_streaming"), order, Silent())))
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
