"""Alternate the three products of a linear layer whose weight is sparse: our kernels, dense BLAS, SciPy, PyTorch.

Run from the project's folder; with the extra "bench" installed PyTorch takes part::

    python -m benchmarks.sparse --quick

float32. Each lane is a thread with a grain of its own and a BLAS of one thread, as in a run, and calls the kernels
panel by panel; a turn ends when all lanes are through. SciPy runs in lanes, too; PyTorch gets the tokens of all lanes
at once and as many threads. Positions of the non-zeros are random. "all three" is forward and backward, where our
backward computes delta and gradient in one go; for the others it is the sum of the three.

"tiles given" leaves out what it takes to turn activations into tiles and back, measured on its own: what the loops
over the non-zeros take alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from operator import methodcaller
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from benchmarks.machine import alternate, gemm_limit_flops_per_s
from benchmarks.neighbours import Neighbours
from benchmarks.sparse_lanes import Case, Lane, make_weight
from benchmarks.sparse_peers import scipy_ways, torch_ways, use_torch_threads

PRODUCTS = ("forward", "delta", "gradient")
ALL = "all three"
ASKED = {("forward", 50): 1.0, ("forward", 75): 2.2, ("forward", 90): 5.0, ("forward", 95): 8.0, (ALL, 90): 4.0}
"""by product and sparsity in percent: the speed, relative to dense, that the project asks for"""
TURN_S = 0.02
"""shortest turn: shorter calls are made several times over, so that waking threads does not count"""
CASES = (
    Case("linear layer", 4096, 1024, 512),
    Case("linear layer", 4096, 1024, 2048),
    Case("GPT-3 XL q, k, v, output", 2048, 2048, 512),
    Case("GPT-3 XL up", 8192, 2048, 512),
    Case("GPT-3 XL down", 2048, 8192, 512),
)
QUIET = 0.03
"""share of the machine that others may have in a measurement that counts as undisturbed"""
SPARSITIES = (50, 75, 90, 95, 99)


@dataclass(frozen=True)
class Row:
    """A line of the table; speeds are relative to dense BLAS, medians over neighbouring turns."""

    case: Case
    lanes: int
    sparsity_percent: int
    product: str
    dense_s: float
    sparse_s: float
    dense_flops_per_s: float
    sparse_flops_per_s: float
    speed: float
    slowest: float
    fastest: float
    speed_tiles_given: float
    speed_scipy: float
    speed_torch: float | None
    others: float
    """share of the machine that other processes took meanwhile"""

    @property
    def verdict(self) -> str:
        """Say how the speed relates to what was asked for, if anything was."""
        asked = ASKED.get((self.product, self.sparsity_percent))
        return "" if asked is None else f"{asked:g}x asked for, {'reached' if self.speed >= asked else 'MISSED'}"


class Turns:
    """Makes turns of at least `TURN_S` out of calls, in all lanes at once, and remembers of how many.

    Args:
        pool: with a thread for every lane
    """

    def __init__(self, pool: ThreadPoolExecutor, lanes: Sequence[Lane]) -> None:
        self.pool, self.lanes = pool, lanes
        self.calls: dict[str, int] = {}
        self.sides: dict[str, Callable[[], None]] = {}

    def add(self, name: str, call: Callable[[Lane], object]) -> None:
        """Add a side whose lanes each make this call."""

        def in_lanes(calls: int) -> None:
            def work(lane: Lane) -> None:
                for _ in range(calls):
                    call(lane)

            for _ in self.pool.map(work, self.lanes):
                pass

        self._add(name, in_lanes)

    def add_whole(self, name: str, call: Callable[[], object]) -> None:
        """Add a side with threads of its own."""

        def whole(calls: int) -> None:
            for _ in range(calls):
                call()

        self._add(name, whole)

    def _add(self, name: str, side: Callable[[int], None]) -> None:
        side(1)
        calls = self.calls[name] = max(1, math.ceil(TURN_S / _seconds(lambda: side(1))))
        self.sides[name] = lambda: side(calls)

    def measure(self, rounds: int) -> dict[str, np.ndarray]:
        """Return the seconds of a call of each side in each round."""
        measured = alternate(self.sides, rounds)
        return {name: np.array(seconds) / self.calls[name] for name, seconds in measured.items()}


def _seconds(call: Callable[[], object]) -> float:
    begin_s = time.perf_counter()
    call()
    return time.perf_counter() - begin_s


def _fastest(ways: Sequence[Callable[[], object]]) -> int:
    """Return which of several ways is the fastest in its second call."""
    if len(ways) == 1:
        return 0
    for way in ways:
        way()
    return min(range(len(ways)), key=lambda i: min(_seconds(ways[i]) for _ in range(2)))


def _call(calls: Mapping[Lane, Callable[[], object]], lane: Lane) -> None:
    calls[lane]()


def measure_at_rest(case: Case, sparsity_percent: int, lanes: int, rounds: int, repeats: int) -> list[Row]:
    """Return the rows of `measure`, repeated while others took more than `QUIET`: those they disturbed the least."""
    best: list[Row] = []
    for _ in range(1 + repeats):
        rows = measure(case, sparsity_percent, lanes, rounds)
        if not best or rows[0].others < best[0].others:
            best = rows
        if best[0].others <= QUIET:
            break
    return best


def measure(case: Case, sparsity_percent: int, lanes: int, rounds: int) -> list[Row]:
    """Return a row for each product, and one for all three."""
    weight, panels = make_weight(case, sparsity_percent)
    workers = [Lane(case, weight, panels, seed) for seed in range(lanes)]
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(lanes) as pool:
        turns = Turns(pool, workers)
        scipy = {lane: scipy_ways(weight, lane.x, lane.delta_y) for lane in workers}
        for product in PRODUCTS:
            for side in ("dense", "sparse", "turn"):
                turns.add(f"{side} {product}", methodcaller(side, product))
        for side in ("sparse", "turn"):
            turns.add(f"{side} backward", methodcaller(side, "backward"))
        for product in PRODUCTS:
            way = _fastest(scipy[workers[0]][product])
            turns.add(f"scipy {product}", partial(_call, {lane: scipy[lane][product][way] for lane in workers}))
        if has_torch():
            use_torch_threads(lanes)
            tokens = (np.concatenate([getattr(lane, name) for lane in workers]) for name in ("x", "delta_y"))
            for product, ways in torch_ways(weight, *tokens).items():
                turns.add_whole(f"torch {product}", ways[_fastest(ways)])
        neighbours = Neighbours()
        seconds = turns.measure(rounds)
        others = neighbours.share()
    for name in ("sparse", "turn"):
        seconds[f"{name} {ALL}"] = seconds[f"{name} forward"] + seconds[f"{name} backward"]
    for name in ("dense", "scipy", *(("torch",) if has_torch() else ())):
        seconds[f"{name} {ALL}"] = sum((seconds[f"{name} {product}"] for product in PRODUCTS), np.zeros(rounds))
    kept = sum(panel.pattern.count for panel in panels) / weight.size
    return [_row(case, lanes, sparsity_percent, product, seconds, kept, others) for product in (*PRODUCTS, ALL)]


def _row(
    case: Case,
    lanes: int,
    sparsity_percent: int,
    product: str,
    seconds: Mapping[str, np.ndarray],
    kept: float,
    others: float,
) -> Row:
    dense, sparse = seconds[f"dense {product}"], seconds[f"sparse {product}"]
    flops = 2.0 * case.rows * case.columns * case.tokens * lanes * (len(PRODUCTS) if product == ALL else 1)
    ratios = dense / sparse
    torch = seconds.get(f"torch {product}")
    return Row(
        case=case,
        lanes=lanes,
        sparsity_percent=sparsity_percent,
        product=product,
        dense_s=median(dense),
        sparse_s=median(sparse),
        dense_flops_per_s=flops / median(dense),
        sparse_flops_per_s=flops * kept / median(sparse),
        speed=median(ratios),
        slowest=min(ratios),
        fastest=max(ratios),
        speed_tiles_given=median(dense / (sparse - seconds[f"turn {product}"])),
        speed_scipy=median(dense / seconds[f"scipy {product}"]),
        speed_torch=None if torch is None else median(dense / torch),
        others=others,
    )


def has_torch() -> bool:
    """Say whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def describe_host() -> dict[str, str]:
    """Return what was measured on, when, and with which versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    packages = ("numpy", "numba", "scipy", *(("torch",) if has_torch() else ()))
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": f"{models[0] if models else platform.processor()}, {len(os.sched_getaffinity(0))} cores",
        "blas": ", ".join(sorted({f"{b['internal_api']} {b['version']} ({b.get('architecture')})" for b in blas})),
        "python": platform.python_version(),
    } | {package: version(package) for package in packages}


HEADER = (
    f"{'':5}{'product':10}{'dense ms':>9}{'ours ms':>9}{'GFLOP/s':>8}"
    f"{'ours':>8}{'(min to max)':>16}{'tiles given':>12}{'scipy':>7}{'torch':>7}{'others':>8}"
)


def line_of(row: Row) -> str:
    """Return a row as text."""
    torch = "-" if row.speed_torch is None else f"{row.speed_torch:.2f}"
    between = f"({row.slowest:.2f} to {row.fastest:.2f})"
    sparsity = f"{row.sparsity_percent}%" if row.product == PRODUCTS[0] else ""
    return (
        f"{sparsity:5}{row.product:10}{row.dense_s * 1e3:9.2f}{row.sparse_s * 1e3:9.2f}"
        f"{row.sparse_flops_per_s / 1e9:8.0f}{row.speed:7.2f}x{between:>16}{row.speed_tiles_given:12.2f}"
        f"{row.speed_scipy:7.2f}{torch:>7}{row.others:8.0%}  {row.verdict}"
    ).rstrip()


def main() -> None:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description="Products of sparse linear layers: cstool, dense, SciPy, PyTorch")
    parser.add_argument("--rounds", type=int, default=7, help="how often each side is measured (default: 7)")
    parser.add_argument("--quick", action="store_true", help="one matrix, at 50, 90 and 99 %% sparsity")
    parser.add_argument("--cases", type=int, nargs="+", metavar="N", help="of the shapes only these, from 1 on")
    parser.add_argument("--lanes", type=int, nargs="+", metavar="N", default=(1, 2), help="(default: 1 2)")
    parser.add_argument("--repeats", type=int, default=0, help="how often to measure again what others disturbed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there, too")
    arguments = parser.parse_args()
    host = describe_host()
    print("measured on this host:", ", ".join(f"{name} {value}" for name, value in host.items()))
    print(f"{arguments.rounds} rounds, sides alternating, first round discarded; speeds are relative to dense;")
    print("others: the share of the machine that other processes took meanwhile")
    if not has_torch():
        print("torch is not installed: its column is empty")
    rows: list[Row] = []
    for case in CASES[:1] if arguments.quick else [CASES[n - 1] for n in arguments.cases or range(1, 1 + len(CASES))]:
        for lanes in arguments.lanes:
            limit = gemm_limit_flops_per_s(lanes)
            print(f"\n{case.name}, {case.rows} x {case.columns}, {case.tokens} tokens a lane, lanes: {lanes};", end=" ")
            print(f"GEMM limit {limit / 1e9:.0f} GFLOP/s\n{HEADER}")
            for sparsity_percent in (50, 90, 99) if arguments.quick else SPARSITIES:
                for row in measure_at_rest(case, sparsity_percent, lanes, arguments.rounds, arguments.repeats):
                    print(line_of(row), flush=True)
                    rows.append(row)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"host": host, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
