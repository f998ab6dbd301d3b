"""What this host can do, and how two programs are compared on it.

Neighbours on a shared machine can halve the speed of a kernel from one minute to the next. So the sides take turns,
only ratios of neighbouring turns are trusted, and the limit they are held against is measured in the same run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from cstool.training.kernels.bfloat16 import BFLOAT16, narrowed
from cstool.training.kernels.gemm import NUMPY, Gemm

GEMM_SHAPES = ((512, 768, 3072), (512, 3072, 768), (3072, 512, 768))
"""(rows, inner, columns) of a grain of 512 tokens in a GPT-2 small block: up, down, gradient of up"""
GEMMS_PER_ROUND = 20
GEMMS_PER_LOOK = 3
SLOW_PERCENT = 10
SETTLE_S = 0.05


def gemm_limit_flops_per_s(threads: int, rounds: int = 4, gemm: Gemm = NUMPY) -> float:
    """Return the best rate of a provider of products over `GEMM_SHAPES` and rounds [FLOP/s], all threads together.

    Every thread runs products of its own, each in one thread: the way that lanes use the machine.
    """
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        return max(_gemm_flops_per_s(pool, threads, shape, gemm) for _ in range(rounds) for shape in GEMM_SHAPES)


def _gemm_flops_per_s(
    pool: ThreadPoolExecutor, threads: int, shape: tuple[int, int, int], gemm: Gemm, count: int = GEMMS_PER_ROUND
) -> float:
    rows, inner, columns = shape
    start_together = threading.Barrier(threads)

    def multiply(seed: int) -> tuple[float, float]:
        generator = np.random.default_rng(seed)
        a, b = (generator.standard_normal(s, dtype=np.float32) for s in ((rows, inner), (inner, columns)))
        if gemm.operands == BFLOAT16:
            a, b = narrowed(a), narrowed(b)
        out = np.empty((rows, columns), np.float32)
        gemm.multiply(a, b, out)  # Touches every page before the clock starts.
        start_together.wait()
        begin_s = time.perf_counter()
        for _ in range(count):
            gemm.multiply(a, b, out)
        return begin_s, time.perf_counter()

    begins, ends = zip(*pool.map(multiply, range(threads)), strict=True)
    elapsed_s: float = max(ends) - min(begins)
    return 2.0 * rows * inner * columns * count * threads / elapsed_s


class Neighbours:
    """Whether others on this machine spoil a run: the spread of one fixed product, timed between its turns.

    Args:
        threads: that multiply at once
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._rates: list[float] = []

    def look(self) -> None:
        """Time the product."""
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(self._threads) as pool:
            self._rates.append(_gemm_flops_per_s(pool, self._threads, GEMM_SHAPES[0], NUMPY, GEMMS_PER_LOOK))

    @property
    def spread(self) -> float:
        """How many times as fast the product was in a usual look as in the slowest tenth of them."""
        return float(np.median(self._rates) / np.percentile(self._rates, SLOW_PERCENT))


def alternate(sides: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each call, `rounds` per side, the sides taking turns in this one process.

    One round more is run first and not counted: it compiles, allocates and touches memory. Before each turn there is
    a moment of rest, so that threads of the other side that still spin in wait for work do not cost this one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds + 1):
        for name, side in sides.items():
            time.sleep(SETTLE_S)
            begin_s = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - begin_s)
    return {name: measured[1:] for name, measured in seconds.items()}
