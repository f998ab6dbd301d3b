"""The density up to which sparse kernels are the faster ones: measured on this machine, once.

It depends on the CPU, on the BLAS and on the shape, and no formula knows it. So each kernel is timed against its dense
twin at a few densities, and the result is kept beside the compiled kernels.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from cstool.foundation.atomic_file import write_replacing
from cstool.training.kernels._cache import blas_digest, kernel_folder
from cstool.training.kernels.bfloat16 import BFLOAT16, narrowed
from cstool.training.kernels.gemm import NUMPY, Gemm
from cstool.training.kernels.linear import linear_backward_delta, linear_backward_weight, linear_forward
from cstool.training.kernels.one_thread import one_blas_thread
from cstool.training.kernels.sparse.linear import (
    TILE_TOKENS,
    sparse_linear_delta,
    sparse_linear_forward,
    sparse_linear_gradient,
)
from cstool.training.kernels.sparse.matrix import KernelChoice
from cstool.training.kernels.sparse.pattern import Pattern, collect, make_pattern

DENSITIES = (0.02, 0.1, 0.25, 0.5)
"""densities at which sparse kernels are timed, ascending"""
ROUNDS, MOST_ROUNDS = 3, 12
"""rounds of turns of the kernels, at the least and at the most; one more goes before them and does not count"""
AGREEMENT = 1.03
"""largest ratio of the two fastest calls of every kernel when it has been measured enough"""
MOST_WEIGHTS = 1 << 21
"""weights that are timed: of a larger panel some rows, as the time of a weight no longer depends on their number"""
SHORT_CALL = 1 << 23
"""products of a call below which it is timed several times over"""
MOST_CALLS = 16
FEWEST_TOKENS, MOST_TOKENS = 16, 512
"""least and largest power of two that is measured"""
_ALIGNMENT_BYTES = 64

_Run = Callable[[], None]


@dataclass(frozen=True)
class Crossover:
    """For each product of a linear layer the largest density at which the sparse kernel is taken, from 0 to 1."""

    forward: float
    delta: float
    gradient: float


def choose(crossover: Crossover, density: float) -> KernelChoice:
    """The sparse kernels for a panel of a density."""
    return KernelChoice(**{product: density <= largest for product, largest in asdict(crossover).items()})


def crossover(rows: int, columns: int, tokens: int, gemm: Gemm = NUMPY, *, refresh: bool = False) -> Crossover:
    """Return the crossover of a panel: an earlier measurement, maybe by another process, or a new one.

    The nearest power of two of tokens is measured; then the waste of the last tile is corrected for the real number.

    Args:
        rows, columns: of the panel
        tokens: of a grain
        gemm: provider of the products of dense kernels, in whose precision sparse ones compute, too
        refresh: measure again, even with a known result
    """
    nearest = min(max(1 << round(math.log2(tokens)), FEWEST_TOKENS), MOST_TOKENS)
    timed = timed_rows(rows, columns)
    path, key = _file(), f"{timed}x{columns}x{nearest}" + f"@{gemm.name}" * (gemm.name != NUMPY.name)
    found = None if refresh else _read(path).get(key)
    if found is None:
        found = measure_crossover(timed, columns, nearest, gemm)
        _write(path, _read(path) | {key: found})
    share = _used_of_tiles(tokens) / _used_of_tiles(nearest)
    return Crossover(**{product: round(min(1.0, largest * share), 3) for product, largest in asdict(found).items()})


def _used_of_tiles(tokens: int) -> float:
    return tokens / (math.ceil(tokens / TILE_TOKENS) * TILE_TOKENS)


def timed_rows(rows: int, columns: int) -> int:
    """Number of rows of a panel that are timed: of a large one some."""
    return max(1, min(rows, MOST_WEIGHTS // columns))


def calls_at_a_time(rows: int, columns: int, tokens: int) -> int:
    """Number of calls that are timed together, so that the clock does not count."""
    return min(max(1, SHORT_CALL // (rows * columns * tokens)), MOST_CALLS)


def measure_crossover(rows: int, columns: int, tokens: int, gemm: Gemm = NUMPY) -> Crossover:
    """Time sparse kernels against dense ones, all of them on one thread.

    A layer that takes the dense gradient has to read it at the non-zeros; that counts. It has to write its weights out
    for dense kernels, too, or bring them into the transposed order for sparse ones: once for all grains, which does
    not count.

    Args:
        rows, columns: of the panel
        tokens: of a grain
        gemm: provider of the products of dense kernels
    """
    with one_blas_thread():
        return Crossover(*map(find_crossover, _measure_ratios(timed_rows(rows, columns), columns, tokens, gemm)))


def find_crossover(ratios: Sequence[float]) -> float:
    """Return the density up to which a sparse kernel wins, rounded to 3 digits.

    Between densities the ratio is a straight line, which goes on beyond the last one.

    Args:
        ratios: for each of `DENSITIES`: time of the sparse kernel / time of the dense one
    """
    if ratios[0] > 1:
        return 0.0
    end = next((i for i, ratio in enumerate(ratios) if ratio > 1), len(ratios) - 1)
    slope = (ratios[end] - ratios[end - 1]) / (DENSITIES[end] - DENSITIES[end - 1])
    if slope <= 0:
        return 1.0
    return round(min(1.0, DENSITIES[end] + (1 - ratios[end]) / slope), 3)


def _measure_ratios(rows: int, columns: int, tokens: int, gemm: Gemm) -> list[list[float]]:
    """Return for forward, delta and gradient the ratio at each of `DENSITIES`.

    The fastest call of each kernel counts: others on the machine only ever make one slower. So there are more rounds
    while the two fastest calls of a kernel do not agree.
    """
    chance = np.random.default_rng(0).random((rows, columns), dtype=np.float32)
    patterns = [make_pattern(np.flatnonzero(chance < density), chance.shape)[0] for density in DENSITIES]
    dense, sparse = kernel_calls(rows, columns, tokens, patterns, gemm)
    calls = calls_at_a_time(rows, columns, tokens)
    runs = [run for run_dense, kernels in zip(dense, sparse, strict=True) for run in (run_dense, *chain(*kernels))]
    times_s: list[list[float]] = [[] for _ in runs]
    for turn in range(1 + MOST_ROUNDS):
        for run, found in zip(runs, times_s, strict=True):
            seconds = time_s(run, calls)
            if turn > 0:
                found.append(seconds)
        if turn >= ROUNDS and all(fast[1] <= fast[0] * AGREEMENT for fast in map(sorted, times_s)):
            break
    fastest = iter(map(min, times_s))
    ratios = []
    for _ in dense:
        dense_s = next(fastest)
        pairs = [(next(fastest), next(fastest)) for _ in DENSITIES]
        ratios.append([sparse_s / (dense_s + with_dense_s) for sparse_s, with_dense_s in pairs])
    return ratios


def time_s(run: Callable[[], None], calls: int) -> float:
    """Time of `calls` calls together [s]."""
    begin_s = time.perf_counter()
    for _ in range(calls):
        run()
    return time.perf_counter() - begin_s


def kernel_calls(
    rows: int, columns: int, tokens: int, patterns: Sequence[Pattern], gemm: Gemm = NUMPY
) -> tuple[list[_Run], list[list[tuple[_Run, _Run]]]]:
    """Return calls for forward, delta and gradient: of the dense kernel; of the sparse ones, one for each pattern.

    Each sparse call is paired with the other work of a layer that takes the dense kernel in its place.
    """
    generator = np.random.default_rng(0)

    def random(*shape: int) -> np.ndarray:
        numbers = random_aligned(generator, *shape)
        return narrowed(numbers) if gemm.operands == BFLOAT16 else numbers

    x, weight, delta_y = (random(*shape) for shape in ((tokens, columns), (rows, columns), (tokens, rows)))
    y, delta_x, grad_weight = random(tokens, rows), random(tokens, columns), random_aligned(generator, rows, columns)
    lent: dict[str, np.ndarray] = {}

    def scratch(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name not in lent:
            lent[name] = np.zeros(shape, np.float32)
        return lent[name]

    def of_pattern(pattern: Pattern) -> list[tuple[_Run, _Run]]:
        values, grad, transposed = random(pattern.count), random_aligned(generator, pattern.count), pattern.transposed
        return [
            (lambda: sparse_linear_forward(x, pattern, values, None, y, scratch), lambda: None),
            (lambda: sparse_linear_delta(delta_y, transposed, values, delta_x, False, scratch), lambda: None),
            (
                lambda: sparse_linear_gradient(x, delta_y, pattern, grad, scratch),
                lambda: collect(pattern, grad_weight, grad),
            ),
        ]

    dense: list[_Run] = [
        lambda: linear_forward(x, weight, None, y, gemm),
        lambda: linear_backward_delta(delta_y, weight, delta_x, False, scratch, gemm),
        lambda: linear_backward_weight(x, delta_y, grad_weight, gemm),
    ]
    return dense, [list(kernels) for kernels in zip(*map(of_pattern, patterns), strict=True)]


def random_aligned(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Return float32 numbers as they lie in a run: on a multiple of 64 bytes."""
    count = math.prod(shape)
    memory = np.empty(count + _ALIGNMENT_BYTES // 4, np.float32)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES // 4
    array = memory[start : start + count]
    generator.standard_normal(dtype=np.float32, out=array)
    return array.reshape(shape)


def _file() -> Path | None:
    """Return the file beside the compiled kernels, whose folder stands for sources, NumPy and CPU."""
    folder = kernel_folder().path
    return None if folder is None else folder / f"crossover-{blas_digest()}.json"


def _read(path: Path | None) -> dict[str, Crossover]:
    """Measurements by shape; none where there is no such file, or one that makes no sense."""
    if path is None:
        return {}
    try:
        found = {shape: Crossover(**largest) for shape, largest in json.loads(path.read_bytes()).items()}
        if all(0 <= largest <= 1 for known in found.values() for largest in asdict(known).values()):
            return found
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        pass
    return {}


def _write(path: Path | None, known: dict[str, Crossover]) -> None:
    if path is None:
        return
    text = json.dumps({shape: asdict(largest) for shape, largest in sorted(known.items())}, indent=1)
    with contextlib.suppress(OSError):
        write_replacing(path, text + "\n")
