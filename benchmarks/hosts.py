"""What it costs to train on three hosts: the step that is predicted, the step that is measured, and what prefetch hides.

    python -m benchmarks.hosts --rounds 3

The hosts are network namespaces of this machine (`tests/namespaces.py`; Linux, as root), with cables of 1 Gbit/s and
5 ms, or others by `--rate` and `--delay`. Each has a share of a core, which nobody else gets; to predict for them, what
was measured of this machine is divided by that share.

A turn is a run of some steps, of which the median without the first counts. Sides take turns: the run on three hosts,
and its arithmetic alone, which is a run of the samples of one rank in one process on one such host. What the cables
carry is measured by MPI alone.

Forward and backward, arithmetic alone takes C seconds, and the bytes of the pass take W seconds of the wire. One after
the other they are C + W, one behind the other max(C, W). The share that is hidden says where the measured step is
between the two: (C + W + rest - step) / min(C, W), where C and W are summed over the passes, and so is min(C, W).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml

from cstool.data import write_hdf5_text
from cstool.kernels import cache_root
from cstool.perf.host import Cost, HostRates
from cstool.run.report.host_rates import load_rates, save_rates
from tests.namespaces import Hosts

STEPS = 6
RANKS = 3
MPIRUN = str(Path(sys.executable).with_name("mpirun"))
MESSAGE_BYTES, MESSAGES = 4 * 2**20, 24
"""of what is sent to measure the cables"""
PASSES = ("forward", "backward")


@dataclass(frozen=True)
class Case:
    """A small GPT, and its batch."""

    hidden: int
    layers: int
    batch: int
    sequence: int

    def params(self, folder: Path, ranks: int) -> Path:
        """Write its params and its data, for a batch of so many of its ranks' samples."""
        rng = np.random.default_rng(0)
        batch = self.batch * ranks // RANKS
        tokens = rng.integers(0, 1024, (batch * STEPS, 3, self.sequence), dtype=np.int32)
        tokens[:, 1] = 1
        folder.mkdir(parents=True)
        write_hdf5_text(folder / "part.h5", [tokens], len(tokens), self.sequence)
        model = {
            "name": "gpt2",
            "vocab_size": 1024,
            "hidden_size": self.hidden,
            "num_heads": self.hidden // 64,
            "num_hidden_layers": self.layers,
            "filter_size": 4 * self.hidden,
            "max_position_embeddings": self.sequence,
            "dropout_rate": 0.0,
            "attention_dropout_rate": 0.0,
        }
        init = {
            "model": model,
            "optimizer": {"AdamW": {"learning_rate": 1e-3, "weight_decay": 0.1}},
            "precision": {"max_gradient_norm": 1.0},
            "loop": {"num_steps": STEPS},
            "checkpoint": {"steps": 0},
            "logging": {"log_steps": 1},
            "backend": {"cluster_config": {"num_csx": ranks}},
            "model_dir": str(folder / "model_dir"),
        }
        loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(folder), "batch_size": batch}
        file = folder / "params.yaml"
        file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": loader}}}))
        return file


CASES = {
    "balanced": Case(hidden=384, layers=4, batch=6, sequence=256),
    "arithmetic": Case(hidden=384, layers=4, batch=12, sequence=256),
    "wire": Case(hidden=768, layers=3, batch=3, sequence=64),
}
"""arithmetic takes as long as the wire; longer; hardly any time"""


def slowed(rates: HostRates, share: float) -> HostRates:
    """What is to be expected of a host that has a share of a core of this one."""
    rest = ("step_s", "stage_s")
    rows = ("cached_bytes_per_s", "read_bytes_per_s", "write_bytes_per_s")
    return replace(
        rates,
        cores=1,
        costs={name: Cost(*(value / share for value in cost.row)) for name, cost in rates.costs.items()},
        update_s={name: value / share for name, value in rates.update_s.items()},
        **{name: getattr(rates, name) / share for name in rest},
        **{name: getattr(rates, name) * share for name in rows},
    )


def run(command: Sequence[str], hosts: Hosts, cache: Path) -> dict[str, Any]:
    """Run a command that prints JSON at its end."""
    environment = {**os.environ, **hosts.environment, "CSTOOL_CACHE_DIR": str(cache)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def cstool(*words: str) -> list[str]:
    """The command line of cstool."""
    return [sys.executable, "-m", "cstool", *words, "--json"]


def training(file: Path, turn: int) -> list[str]:
    """The command of a run."""
    own = file.parent / f"turn {turn}"
    return cstool(
        *("run", "--params", str(file), "--lanes", "1", "--model_dir", str(own)),
        *("--execution_mode", "weight_streaming"),
    )


def be_a_rank() -> None:
    """Measure what the cable of rank 0 carries down, up, and each way where it does both."""
    from mpi4py import MPI

    world, rows = MPI.COMM_WORLD, {}
    others = range(1, world.size) if world.rank == 0 else [0]
    leaving, arriving = (np.zeros(MESSAGE_BYTES, np.uint8) for _ in range(2))
    for way in ("down", "up", "both"):
        sends = way == "both" or (way == "down") == (world.rank == 0)
        receives = way == "both" or not sends
        world.Barrier()
        began = time.perf_counter()
        requests = []
        for _ in range(MESSAGES):
            for other in others:
                requests += [world.Isend(leaving, other, 1)] if sends else []
                requests += [world.Irecv(arriving, other, 1)] if receives else []
        while not MPI.Request.Testall(requests):
            time.sleep(1e-3)
        world.Barrier()
        rows[way] = (world.size - 1) * MESSAGES * MESSAGE_BYTES / (time.perf_counter() - began)
    if world.rank == 0:
        print(json.dumps(rows))


@dataclass
class Turns:
    """What was found of a case, turn by turn."""

    steps: list[dict[str, Any]]
    """of three hosts, as `cstool run --json` has them"""
    alone: list[dict[str, Any]]
    """of the arithmetic of one rank"""

    def seconds(self, phase: str, side: str = "measured", *, alone: bool = False) -> float:
        """Median of a phase of the step [s]."""
        return median(turn["predicted"][phase][side] for turn in (self.alone if alone else self.steps))


def report(name: str, turns: Turns, estimate: Mapping[str, Any], carried: Mapping[str, float]) -> None:
    """Print what was found of a case."""
    print(json.dumps(estimate["ranks"], default=str)[:0], end="")
    traffic, others = estimate["ranks"]["traffic"], RANKS - 1
    step, said = turns.seconds("step"), turns.seconds("step", "predicted")
    print(f"\n{name}: {step:.3f} s a step, measured on {RANKS} hosts")
    print(f"  estimated    {estimate['step_s']:.3f} s ({estimate['step_s'] / step - 1:+.1%})")
    print(f"  by the run   {said:.3f} s ({said / step - 1:+.1%})")
    # Weights go down while gradients come up.
    wire = {
        "forward": others * traffic["forward_bytes"] / carried["down"],
        "backward": max(others * traffic["backward_bytes"], sum(traffic["gradient_bytes"])) / carried["both"],
    }
    alone = {phase: turns.seconds(phase, alone=True) for phase in PASSES}
    rest = turns.seconds("rest", alone=True)
    expected = {phase: estimate[f"{phase}_s"] for phase in PASSES}
    for phase in PASSES:
        print(
            f"  {phase:<12} arithmetic {alone[phase]:.3f} s, estimated {expected[phase]:.3f} s; "
            f"wire {wire[phase]:.3f} s"
        )
    print(f"  rest         {rest:.3f} s alone, estimated {estimate['rest_s']:.3f} s")
    total = sum(alone.values()) + sum(wire.values()) + rest
    hideable = sum(min(alone[phase], wire[phase]) for phase in PASSES)
    print(f"  hidden       {total - step:.3f} s of {hideable:.3f} s: {(total - step) / hideable:.1%}")


def compare(names: Sequence[str], rounds: int, rate: str, delay_s: float, share: float) -> None:
    """Let the sides take turns, and print their medians."""
    rates = load_rates()
    if rates is None:
        raise SystemExit("this host is not measured: cstool estimate --system host")
    link = f"{rate.removesuffix('bit').upper()}b/s,{1e3 * delay_s:g}ms"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hosts.")))
        hosts = stack.enter_context(Hosts(RANKS, rate, delay_s, share))
        cache = shutil.copytree(cache_root(), folder / "cache")
        os.environ["CSTOOL_CACHE_DIR"] = str(cache)
        save_rates(slowed(rates, share))
        files = {name: CASES[name].params(folder / name, RANKS) for name in names}
        alone = {name: CASES[name].params(folder / f"{name} alone", 1) for name in names}
        estimates = {
            name: run(
                hosts.on(
                    "alpha",
                    *cstool("estimate", "--system", "host", "--params", str(file)),
                    *("--ranks", str(RANKS), "--link", link),
                ),
                hosts,
                cache,
            )["predicted"]
            for name, file in files.items()
        }
        measure = hosts.mpirun(MPIRUN, sys.executable, "-m", "benchmarks.hosts", "--rank")
        carried: list[dict[str, float]] = []
        turns = {name: Turns([], []) for name in names}
        for turn in range(rounds):
            carried.append(run(measure, hosts, cache))
            print(f"round {turn + 1}: " + ", ".join(f"{way} {v / 1e6:.1f} MB/s" for way, v in carried[-1].items()))
            for name in names:
                turns[name].alone.append(run(hosts.on("alpha", *training(alone[name], turn)), hosts, cache))
                turns[name].steps.append(run(hosts.mpirun(MPIRUN, *training(files[name], turn)), hosts, cache))
                load = Path("/proc/loadavg").read_text().split()[0]
                steps = (each[-1]["median_step_s"] for each in (turns[name].alone, turns[name].steps))
                print(
                    f"  {name}: {next(steps):.3f} s alone, {next(steps):.3f} s on {RANKS} hosts; load {load}",
                    flush=True,
                )
        rows = {way: median(each[way] for each in carried) for way in carried[0]}
        for name in names:
            report(name, turns[name], estimates[name], rows)


def main() -> None:
    """Compare steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--rate", default="1gbit", help="of a cable, as `tc` has it")
    parser.add_argument("--delay", type=float, default=5e-3, help="from host to host [s]")
    parser.add_argument("--share", type=float, default=0.4, help="of a core, for each host")
    parser.add_argument("--rank", action="store_true", help="be one of the ranks that measure the cables")
    asked = parser.parse_args()
    if asked.rank:
        be_a_rank()
    else:
        compare(asked.only, asked.rounds, asked.rate, asked.delay, asked.share)


if __name__ == "__main__":
    main()
