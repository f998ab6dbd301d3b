"""What it costs to train on three hosts: the step that is predicted, the step that is measured, and what prefetch hides.

    python -m benchmarks.hosts --rounds 3

The hosts are network namespaces of this machine (`tests/namespaces.py`; Linux, as root), with cables of 1 Gbit/s and
5 ms, or others by `--rate` and `--delay`. They share the cores of this machine, one lane each, and the prediction is told
so. Each turn is a whole `cstool run` of some steps, of which the median without the first counts; sides take turns: with
those cables, and with cables that take no time. How much the cables carry is measured beside it, by MPI alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml

from cstool.data import write_hdf5_text
from cstool.models import build_graph
from cstool.params import load_params
from cstool.perf.host import HostRates
from cstool.perf.ranks import Link, RankedStep, RanksSetup, predict_ranks
from cstool.run.report.host_prediction import planned_ranks
from cstool.run.report.host_rates import load_rates
from tests.namespaces import Hosts

STEPS = 6
RANKS = 3
MPIRUN = str(Path(sys.executable).with_name("mpirun"))
QUICK = "100gbit"
"""rate of cables that take no time"""
MESSAGE_BYTES, MESSAGES = 4 * 2**20, 24
"""of what is sent to measure how much the cables carry"""


@dataclass(frozen=True)
class Case:
    """A small GPT, and its batch."""

    hidden: int
    layers: int
    vocabulary: int
    batch: int
    sequence: int

    def params(self, folder: Path) -> Path:
        """Write its params and its data."""
        rng = np.random.default_rng(0)
        count = self.batch * STEPS
        tokens = rng.integers(0, self.vocabulary, (count, 3, self.sequence), dtype=np.int32)
        tokens[:, 1] = 1
        folder.mkdir(parents=True)
        write_hdf5_text(folder / "part.h5", [tokens], count, self.sequence)
        loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(folder), "batch_size": self.batch}
        model = {
            "name": "gpt2",
            "vocab_size": self.vocabulary,
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
            "backend": {"cluster_config": {"num_csx": RANKS}},
            "model_dir": str(folder / "model_dir"),
        }
        file = folder / "params.yaml"
        trainer = {"init": init, "fit": {"train_dataloader": loader}}
        file.write_text(yaml.safe_dump({"trainer": trainer}, sort_keys=False))
        return file


CASES = {
    "both": Case(hidden=384, layers=4, vocabulary=1024, batch=12, sequence=256),
    "compute": Case(hidden=384, layers=4, vocabulary=1024, batch=24, sequence=256),
    "wire": Case(hidden=768, layers=3, vocabulary=1024, batch=3, sequence=64),
}
"""arithmetic and wire take about as long; arithmetic takes longer; next to nothing but the wire"""


def one_turn(hosts: Hosts, file: Path, turn: str) -> dict[str, Any]:
    """Run some steps; what `cstool run --json` prints."""
    words = [sys.executable, "-m", "cstool", "run", "--params", str(file), "--json", "--lanes", "1"]
    words += ["--model_dir", str(file.parent / turn), "--execution_mode", "weight_streaming"]
    command = hosts.mpirun(MPIRUN, *words)
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, **hosts.environment}
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def predicted(file: Path, rates: HostRates, link: Link | None) -> tuple[RanksSetup, RankedStep]:
    """What is predicted for three hosts that have the cores of this machine between them, a lane each."""
    params = load_params(file)
    loader = params.train_dataloader
    assert loader is not None
    graph = build_graph(params.model, params.model.max_position_embeddings)
    setup = planned_ranks(params, graph, loader.batch_size, RANKS, rates, link or Link(1e12))
    lanes = [replace(own, lanes=1, lanes_beside=RANKS - 1) for own in setup.setups]
    setup = replace(setup, setups=tuple(lanes), hosts=(0,) * RANKS)
    return setup, predict_ranks(graph, rates, setup)


def be_a_rank() -> None:
    """Measure what the cable of rank 0 carries down, up, and both ways at once."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    rows = {}
    for way in ("down", "up", "both"):
        world.Barrier()
        began = time.perf_counter(); cpu0=time.process_time()
        requests = []
        others = range(1, world.size) if world.rank == 0 else [0]
        buffers = [np.zeros(MESSAGE_BYTES, np.uint8) for _ in range(2)]
        for _ in range(MESSAGES):
            for other in others:
                if way != ("up" if world.rank == 0 else "down"):
                    requests.append(world.Isend(buffers[0], other, 1))
                if way != ("down" if world.rank == 0 else "up"):
                    requests.append(world.Irecv(buffers[1], other, 1))
        while not MPI.Request.Testall(requests):
            time.sleep(1e-3)
        world.Barrier()
        rows[way] = (world.size - 1) * MESSAGES * MESSAGE_BYTES / (time.perf_counter() - began)
        rows[way+" cpu"] = 1e9*(time.process_time()-cpu0)/((world.size - 1) * MESSAGES * MESSAGE_BYTES)*1e6
    if world.rank == 0:
        print(json.dumps(rows))


def carried(hosts: Hosts) -> dict[str, float]:
    """Bytes per second into and out of the first host by MPI alone: down, up, and each of both ways at once."""
    command = hosts.mpirun(MPIRUN, sys.executable, "-m", "benchmarks.hosts", "--rank")
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **hosts.environment})
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(names: Sequence[str], rounds: int, rate: str, delay_s: float) -> None:
    """Let the sides take turns, and print their medians."""
    rates = load_rates()
    if rates is None:
        raise SystemExit("this host is not measured: cstool estimate --system host")
    digits = float(rate.removesuffix("mbit").removesuffix("gbit"))
    link = Link(digits * (1e6 if rate.endswith("mbit") else 1e9) / 8, delay_s)
    with (
        tempfile.TemporaryDirectory(prefix="hosts.") as scratch,
        Hosts(RANKS, rate, delay_s) as slow,
    ):
        folder = Path(scratch)
        files = {name: CASES[name].params(folder / name) for name in names}
        raw = carried(slow)
        print("MPI alone, MB/s:", {way: round(value / 1e6, 1) for way, value in raw.items()}, flush=True)
        steps: dict[tuple[str, str], list[float]] = {}
        for turn in range(rounds):
            for name, file in files.items():
                with Hosts(RANKS, QUICK, 0.0, "1") as quick:
                    found = one_turn(quick, file, f"{turn} quick")
                steps.setdefault((name, "no wire"), []).append(found["median_step_s"])
                losses = found["losses"]
                found = one_turn(slow, file, f"{turn} slow")
                assert losses == found["losses"], "the losses of all sides must have the same bits"
                steps.setdefault((name, "cables"), []).append(found["median_step_s"])
                load = Path("/proc/loadavg").read_text().split()[0]
                print(f"round {turn + 1}, {name}: " + ", ".join(f"{s} {v[-1]:.3f}" for (n, s), v in steps.items() if n == name), f"load {load}", flush=True)
                print("   ", {k: {a: round(b, 3) for a, b in v.items()} for k, v in found["predicted"].items()}, [(u["sent_bytes"] / STEPS / 1e6, round(u["waited_s"]/STEPS,3)) for u in found["ranks"]], flush=True)
        for name, file in files.items():
            setup, step = predicted(file, rates, link)
            _, alone = predicted(file, rates, None)
            t = setup.traffic
            n = RANKS - 1
            fw, bd, up = n * t.forward_bytes, n * t.backward_bytes, t.up_bytes
            wire_f, wire_b = fw / raw["down"], max(bd, up) / raw["both"]
            s, c = median(steps[name, "cables"]), median(steps[name, "no wire"])
            print(f"{name}: predicted {step.step_s:.3f} measured {s:.3f} ({step.step_s / s - 1:+.1%}); no wire predicted {alone.step_s:.3f} measured {c:.3f}; wire {wire_f:.3f}+{wire_b:.3f} s by MPI alone, predicted {step.wire_s:.3f}; computes {[(round(r.forward_s,3), round(r.backward_s,3), round(r.rest_s,3)) for r in step.ranks]}; hidden {c + wire_f + wire_b - s:.3f} of min {min(c, wire_f + wire_b):.3f}: {(c + wire_f + wire_b - s) / min(c, wire_f + wire_b):.1%}", flush=True)


def main() -> None:
    """Compare steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--rate", default="1gbit", help="of a cable, as `tc` has it")
    parser.add_argument("--delay", type=float, default=5e-3, help="from host to host [s]")
    parser.add_argument("--rank", action="store_true", help="be one of the ranks that measure the cables")
    asked = parser.parse_args()
    if asked.rank:
        be_a_rank()
    else:
        compare(asked.only, asked.rounds, asked.rate, asked.delay)


if __name__ == "__main__":
    main()
