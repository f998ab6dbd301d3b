"""What it costs to train on several ranks: GPT-2 small, 4 x 512 tokens, on the cores of this host.

    python -m benchmarks.ranks --rounds 3
    python -m benchmarks.ranks --bandwidth

Sides take turns; each turn is a whole `cstool run` of some steps, of which the median without the first counts. The
bandwidth is that of arrays as large as panels, from one rank to another: by MPI alone, and by the link that trains.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from cstool.training.data import write_hdf5_text

STEPS = 4
BATCH, SEQUENCE = 4, 512
SIDES = {
    "1 rank, 1 lane": (1, 1),
    "1 rank, 2 lanes": (1, 2),
    "2 ranks, 1 lane each": (2, 1),
}
"""name -> ranks, lanes of each"""
MIB = 2**20
STREAMS = {
    "1 MiB": [MIB] * 40,
    "9 MiB": [9 * MIB] * 40,
    "32 MiB": [32 * MIB] * 40,
    "GPT-2 small": [32 * MIB] * 4 + 12 * [9 * MIB // 4] * 4 + 12 * [9 * MIB] * 2,
}
"""what is sent, one after the other [bytes]; at last the panels of the model: embedding, attention, feed-forward"""
MPIRUN = Path(sys.executable).with_name("mpirun")


def write_samples(folder: Path) -> Path:
    """Write random tokens."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    count = BATCH * STEPS
    tokens = rng.integers(0, 50257, (count, 3, SEQUENCE), dtype=np.int32)
    tokens[:, 1] = 1
    write_hdf5_text(folder / "part.h5", [tokens], count, SEQUENCE)
    return folder


def one_turn(side: str, data: Path, folder: Path) -> dict[str, Any]:
    """Run some steps; what `cstool run --json` prints."""
    ranks, lanes = SIDES[side]
    loader = "trainer.fit.train_dataloader"
    changes = {
        f"{loader}.data_dir": data,
        f"{loader}.batch_size": BATCH,
        "trainer.init.model.max_position_embeddings": SEQUENCE,
        "trainer.init.checkpoint.steps": 0,
    }
    command = [sys.executable, "-m", "cstool", "run", "--params", "params/gpt2_small.yaml", "--json"]
    command += ["--model_dir", str(folder), "--num_csx", str(ranks), "--lanes", str(lanes), "--num_steps", str(STEPS)]
    command += ["--compile_dir", str(folder.parent / "compiled"), "--execution_mode", "weight_streaming"]
    for key, value in changes.items():
        command += ["--set", f"{key}={value}"]
    prefix = [str(MPIRUN), "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*prefix, *command], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compare(rounds: int) -> None:
    """Let the sides take turns, and print their medians."""
    with tempfile.TemporaryDirectory(prefix="ranks.") as name:
        folder = Path(name)
        data = write_samples(folder / "text")
        steps: dict[str, list[float]] = {side: [] for side in SIDES}
        losses = set()
        for turn in range(rounds):
            for side in SIDES:
                result = one_turn(side, data, folder / f"{turn} {side}")
                steps[side].append(result["median_step_s"])
                losses.add(tuple(result["losses"]))
                print(f"round {turn + 1}: {side:<22} {steps[side][-1]:7.3f} s a step", flush=True)
        assert len(losses) == 1, "the losses of all sides must have the same bits"
        print(f"\n{'GPT-2 small, 4 x 512 tokens':<24} {'s/step':>8}  1 rank, 1 lane = 1")
        for side, times in steps.items():
            ratio = median(a / b for a, b in zip(steps["1 rank, 1 lane"], times, strict=True))
            print(f"{side:<24} {median(times):8.3f}  {ratio:.2f}x")
        pairs = zip(steps["1 rank, 2 lanes"], steps["2 ranks, 1 lane each"], strict=True)
        print(f"2 ranks of 1 lane against 1 rank of 2 lanes: {median(a / b for a, b in pairs):.3f}x")
        weights = 4 * result["parameters"]
        for use in result["ranks"]:
            sent = use["sent_bytes"] / STEPS
            print(
                f"rank {use['rank']} sent {sent / 1e6:,.1f} MB a step, {sent / weights:.2f} times the weights, "
                f"and waited {use['waited_s'] / result['seconds']:.1%}"
            )


def be_a_rank() -> None:
    """Measure the bandwidth, as one of two ranks."""
    from cstool.training.machine.ranks.mpi import MpiLink

    link = MpiLink()
    rows = [(name, _link_s(link, name, sizes)) for name, sizes in STREAMS.items()]
    link.close()
    if link.rank == 0:
        print(json.dumps(rows))


def _arrays(sizes: list[int]) -> list[np.ndarray]:
    """Four arrays of each size, in turn."""
    own = {size: [np.ones(size, np.uint8) for _ in range(4)] for size in set(sizes)}
    return [own[size][number % 4] for number, size in enumerate(sizes)]


def _link_s(link: Any, name: str, sizes: list[int]) -> float:
    """Seconds of a stream from rank 0 to rank 1."""
    arrays = _arrays(sizes)
    if link.rank == 1:
        placed, heard = iter(arrays), iter(range(len(arrays), 0, -1))

        def hear(*_: object) -> None:
            if next(heard) == 1:
                link.send(0, f"all of {name}")

        link.listen(name, hear, lambda _, __: [next(placed)])
        link.send(0, f"ready for {name}")
        link.receive(0, f"end of {name}")
        return 0.0
    link.receive(1, f"ready for {name}")
    began = time.perf_counter()
    for array in arrays:
        link.send(1, name, None, [array])
    link.receive(1, f"all of {name}")
    seconds = time.perf_counter() - began
    link.send(1, f"end of {name}")
    return seconds


def be_a_plain_rank() -> None:
    """The same by MPI alone: requests that are tested until they are done."""
    from mpi4py import MPI

    world, rows = MPI.COMM_WORLD, []
    rank = world.Get_rank()
    for name, sizes in STREAMS.items():
        arrays = _arrays(sizes)
        world.Barrier()
        began = time.perf_counter()
        for array in arrays:
            request = world.Isend(array, 1, 7) if rank == 0 else world.Irecv(array, 0, 7)
            while not request.Test():
                pass
        world.Barrier()
        rows.append((name, time.perf_counter() - began))
    if rank == 0:
        print(json.dumps(rows))


def bandwidth(rounds: int) -> None:
    """Print the bandwidth of the link beside that of MPI."""
    found: dict[str, list[dict[str, float]]] = {"--plain_rank": [], "--rank": []}
    for _ in range(rounds):
        for side, times in found.items():
            command = [str(MPIRUN), "-n", "2", sys.executable, "-m", "benchmarks.ranks", side]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ))
            times.append(dict(json.loads(done.stdout.splitlines()[-1])))
    print(f"{'arrays':<12} {'MPI alone':>12} {'the link':>12}  share")
    for name, sizes in STREAMS.items():
        plain, link = (median(turn[name] for turn in found[side]) for side in ("--plain_rank", "--rank"))
        rates = f"{sum(sizes) / plain / 1e9:7.2f} GB/s {sum(sizes) / link / 1e9:7.2f} GB/s"
        print(f"{name:<12} {rates}  {plain / link:.2f}x")


def main() -> None:
    """Compare steps, or bandwidths."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bandwidth", action="store_true", help="of the link, against that of MPI alone")
    parser.add_argument("--rank", action="store_true", help="be one of two ranks that measure the link")
    parser.add_argument("--plain_rank", action="store_true", help="be one of two ranks that measure MPI")
    asked = parser.parse_args()
    if asked.rank:
        be_a_rank()
    elif asked.plain_rank:
        be_a_plain_rank()
    elif asked.bandwidth:
        bandwidth(asked.rounds)
    else:
        compare(asked.rounds)


if __name__ == "__main__":
    main()
