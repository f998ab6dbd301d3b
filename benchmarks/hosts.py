"""What it costs to train on three hosts: the step predicted, the step measured, and what prefetch hides.

    python -m benchmarks.hosts --rounds 3

The hosts are network namespaces of this machine (`tests/namespaces.py`; Linux, as root), with cables of 1 Gbit/s and
5 ms, or others by `--rate` and `--delay`. They have the cores of this machine between them, before anybody else, and
a lane each. `cstool estimate` takes each to have such cores of its own; so the same prediction is made once more for
lanes that share them.

A turn is a run of some steps, of which the median without the first counts. Two sides take turns: the run on those
hosts, and its arithmetic, which is the samples of one rank in one process on one such host. What MPI alone gets
through the cables is measured beside it.

What can be hidden: forward or backward, the arithmetic of a rank takes C seconds, and the bytes of the busiest cable
take W seconds at the rate of the cable. One after the other that is C + W, one behind the other max(C, W): so
min(C, W) can be hidden, and C + W less the measured time was. Passes are added up; the rest of the arithmetic counts
as C, and hides nothing.
"""

from __future__ import annotations

import argparse
import json
import os
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

from cstool.model.graphs import build_graph, declared_form
from cstool.model.params import load_params
from cstool.training.data import write_hdf5_text
from cstool.training.host.planned import planned_ranks
from cstool.training.host.ranks import Link, RanksSetup, predict_ranks
from cstool.training.host.rates import load_rates
from cstool.training.host.step import HostRates
from tests.namespaces import Hosts

STEPS = 4
RANKS = 3
HIDDEN = 768
MPIRUN = str(Path(sys.executable).with_name("mpirun"))
MESSAGE_BYTES, MESSAGES = 4 * 2**20, 24
"""of what is sent to measure the cables"""
PASSES = ("forward", "backward")
SIDES = ("on three hosts", "one rank alone")
CARRIED = 1448 / 1538
"""of the rate of an Ethernet, what TCP leaves: bytes of data in a full frame, and all that it takes on the wire"""


@dataclass(frozen=True)
class Case:
    """Layers of GPT-2 small, and a batch of one sample for each rank."""

    layers: int
    sequence: int
    nodes: int
    """of MemoryX"""

    def params(self, folder: Path, batch: int) -> Path:
        """Write its params and its data, for so many samples, each on a system of its own."""
        rng = np.random.default_rng(0)
        tokens = rng.integers(0, 1024, (batch * STEPS, 3, self.sequence), dtype=np.int32)
        tokens[:, 1] = 1
        folder.mkdir(parents=True)
        write_hdf5_text(folder / "part.h5", [tokens], len(tokens), self.sequence)
        model = {
            "name": "gpt2",
            "vocab_size": 1024,
            "hidden_size": HIDDEN,
            "num_heads": HIDDEN // 64,
            "num_hidden_layers": self.layers,
            "filter_size": 4 * HIDDEN,
            "max_position_embeddings": self.sequence,
            "dropout_rate": 0.0,
            "attention_dropout_rate": 0.0,
        }
        init = {
            "model": model,
            "optimizer": {"AdamW": {"learning_rate": 1e-3, "weight_decay": 0.1}},
            # Clipping would hold all updates back until the last gradient is there.
            "precision": {"max_gradient_norm": None},
            "loop": {"num_steps": STEPS},
            "checkpoint": {"steps": 0},
            "logging": {"log_steps": 1},
            "backend": {"cluster_config": {"num_csx": batch}},
            "memoryx": {"nodes": min(self.nodes, batch)},
            "model_dir": str(folder / "model_dir"),
        }
        loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(folder), "batch_size": batch}
        file = folder / "params.yaml"
        file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": loader}}}))
        return file


CASES = {
    "one node": Case(layers=12, sequence=512, nodes=1),
    "three nodes": Case(layers=12, sequence=128, nodes=3),
    "wire": Case(layers=3, sequence=64, nodes=1),
}
"""with all of MemoryX on one host, with a shard on each, and with next to no arithmetic"""


def run(command: Sequence[str], hosts: Hosts) -> dict[str, Any]:
    """Run a command that prints JSON at its end."""
    environment = {**os.environ, **hosts.environment}
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
    """What `cstool run --json` printed of a case, turn by turn."""

    cables: list[dict[str, Any]]
    """on three hosts"""
    alone: list[dict[str, Any]]
    """the samples of one rank on one host"""


def measured(turns: list[dict[str, Any]], phase: str = "step") -> float:
    """Median of a phase of the step [s]."""
    return median(turn["predicted"][phase]["measured"] for turn in turns)


def planned(file: Path, rates: HostRates, link: Link) -> RanksSetup:
    """What is planned for three hosts that have the cores of this machine between them, a lane each."""
    params = load_params(file)
    loader = params.train_dataloader
    assert loader is not None
    graph = build_graph(params.model, declared_form(params))
    setup = planned_ranks(params, graph, loader.batch_size, RANKS, rates, link)
    lanes = tuple(replace(own, lanes=1, lanes_beside=RANKS - 1) for own in setup.setups)
    return replace(setup, setups=lanes, hosts=(0,) * RANKS)


def report(name: str, file: Path, turns: Turns, estimate: Mapping[str, Any], rates: HostRates) -> None:
    """Print what was found of a case."""
    step = measured(turns.cables)
    said = median(turn["predicted"]["step"]["predicted"] for turn in turns.cables)
    arithmetic = {phase: measured(turns.alone, phase) for phase in PASSES}
    whole = measured(turns.alone)
    setup = planned(file, rates, Link(**estimate["ranks"]["link"]))
    shared = predict_ranks(build_graph(load_params(file).model, CASES[name].sequence), rates, setup)
    print(f"\n{name}: {step:.3f} s a step measured")
    for who, seconds in (("estimated", estimate["step_s"]), ("cores shared", shared.step_s), ("by the run", said)):
        print(f"  {who:<12} {seconds:.3f} s  {seconds / step - 1:+.1%}")
    expected = shared.ranks[0]
    print(f"  arithmetic   {whole:.3f} s measured, {expected.step_s:.3f} s estimated")
    wires = dict(zip(PASSES, setup.traffic.wires_s(setup.link), strict=True))
    for phase in PASSES:
        print(f"  {phase:<12} arithmetic {arithmetic[phase]:.3f} s, wire {wires[phase]:.3f} s")
    hideable = sum(min(arithmetic[phase], wires[phase]) for phase in PASSES)
    hidden = whole + sum(wires.values()) - step
    print(f"  hidden       {hidden:.3f} s of {hideable:.3f} s: {hidden / hideable:.0%}")


def compare(names: Sequence[str], rounds: int, rate: str, delay_s: float) -> None:
    """Let the sides take turns, and print their medians."""
    rates = load_rates()
    if rates is None:
        raise SystemExit("this host is not measured: cstool estimate --system host")
    megabits = float(rate.removesuffix("mbit"))
    link = f"{CARRIED * megabits:.1f}Mb/s,{1e3 * delay_s:g}ms"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hosts.")))
        hosts = stack.enter_context(Hosts(RANKS, rate, delay_s, goes_first=True))
        files = {name: CASES[name].params(folder / name, RANKS) for name in names}
        alone = {name: CASES[name].params(folder / f"{name} alone", 1) for name in names}
        asked = ("--ranks", str(RANKS), "--link", link)
        estimates = {
            name: run(hosts.on("alpha", *cstool("estimate", "--system", "host", "--params", str(file), *asked)), hosts)[
                "predicted"
            ]
            for name, file in files.items()
        }
        measure = hosts.mpirun(MPIRUN, sys.executable, "-m", "benchmarks.hosts", "--rank")
        carried: list[dict[str, float]] = []
        turns = {name: Turns([], []) for name in names}
        for turn in range(rounds):
            carried.append(run(measure, hosts))
            print(f"round {turn + 1}: " + ", ".join(f"{way} {v / 1e6:.1f} MB/s" for way, v in carried[-1].items()))
            for name, own in turns.items():
                own.cables.append(run(hosts.mpirun(MPIRUN, *training(files[name], turn)), hosts))
                own.alone.append(run(hosts.on("alpha", *training(alone[name], turn)), hosts))
                steps = [side[-1]["median_step_s"] for side in (own.cables, own.alone)]
                load = Path("/proc/loadavg").read_text().split()[0]
                said = ", ".join(f"{step:.3f} s {side}" for step, side in zip(steps, SIDES, strict=True))
                print(f"  {name}: {said}; load {load}", flush=True)
        for name in names:
            report(name, files[name], turns[name], estimates[name], rates)


def main() -> None:
    """Compare steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--rate", default="1000mbit", help="of a cable")
    parser.add_argument("--delay", type=float, default=5e-3, help="from host to host [s]")
    parser.add_argument("--rank", action="store_true", help="be one of the ranks that measure the cables")
    asked = parser.parse_args()
    if asked.rank:
        be_a_rank()
    else:
        compare(asked.only, asked.rounds, asked.rate, asked.delay)


if __name__ == "__main__":
    main()
