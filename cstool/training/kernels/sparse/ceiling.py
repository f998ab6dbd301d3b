"""Speed of the sparse kernels over the dense ones at one shape and density, measured on this machine.

It is the most that a layer of a run can reach: the kernels alone, in one thread, with nothing beside them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cstool.training.kernels.gemm import NUMPY, Gemm
from cstool.training.kernels.one_thread import one_blas_thread
from cstool.training.kernels.sparse.crossover import calls_at_a_time, kernel_calls, time_s, timed_rows
from cstool.training.kernels.sparse.matrix import KernelChoice
from cstool.training.kernels.sparse.pattern import make_pattern

ROUNDS = 7
"""rounds of turns of the kernels; the fastest counts: other work on the machine only makes a kernel slower"""

_Run = Callable[[], None]


@dataclass(frozen=True)
class ProductSeconds:
    """Time of a call of each product of a linear layer [s], of kernels of one kind."""

    forward: float
    delta: float
    gradient: float

    def total(self, with_delta: bool) -> float:
        """Return the time of a layer, forward and backward [s], with or without the delta of its input."""
        return self.forward + self.gradient + (self.delta if with_delta else 0.0)


@dataclass(frozen=True)
class Ceiling:
    """Time of a linear layer with dense and with sparse kernels [s]."""

    dense: ProductSeconds
    sparse: ProductSeconds

    def speedup(self, choice: KernelChoice, with_delta: bool = True) -> float:
        """Speedup of the kernels that a run chose over dense ones, forward and backward together."""
        names = zip(("forward", "delta", "gradient"), choice, strict=True)
        chosen = ProductSeconds(
            **{name: getattr(self.sparse if sparse else self.dense, name) for name, sparse in names}
        )
        return self.dense.total(with_delta) / chosen.total(with_delta)


def measure_ceiling(rows: int, columns: int, tokens: int, density: float, gemm: Gemm = NUMPY) -> Ceiling:
    """Time dense and sparse kernels in turns, all of them on one thread.

    Args:
        rows, columns: of the panel; of a very large one some rows are timed
        tokens: of a grain
        density: share of non-zeros, which lie at random
        gemm: provider of the products of dense kernels
    """
    rows = timed_rows(rows, columns)
    calls = calls_at_a_time(rows, columns, tokens)
    runs = _kernels(rows, columns, tokens, density, gemm)
    found: list[list[float]] = [[] for _ in runs]
    with one_blas_thread():
        for _ in range(ROUNDS):
            for run, seconds in zip(runs, found, strict=True):
                seconds.append(time_s(run, calls) / calls)
    dense, sparse = (ProductSeconds(*map(min, found[first : first + 3])) for first in (0, 3))
    return Ceiling(dense, sparse)


def _kernels(rows: int, columns: int, tokens: int, density: float, gemm: Gemm) -> list[_Run]:
    """Return calls: forward, delta and gradient of dense kernels, then of sparse ones."""
    size = rows * columns
    places = np.random.default_rng(0).permutation(size)[: max(1, round(density * size))]
    patterns = [make_pattern(np.sort(places), (rows, columns))[0]]
    dense, sparse = kernel_calls(rows, columns, tokens, patterns, gemm)
    return [*dense, *(call for ((call, _),) in sparse)]
