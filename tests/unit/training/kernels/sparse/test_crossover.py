"""Which kernel for which density. Nothing here depends on how fast this machine is: clocks and kernels are made up."""

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from cstool.training.kernels._cache import KernelFolder
from cstool.training.kernels.gemm import NUMPY, Gemm
from cstool.training.kernels.gemm_providers import EMULATED
from cstool.training.kernels.sparse import KernelChoice, Pattern
from cstool.training.kernels.sparse.crossover import (
    DENSITIES,
    MOST_CALLS,
    MOST_ROUNDS,
    ROUNDS,
    Crossover,
    choose,
    crossover,
    find_crossover,
    measure_crossover,
)

MODULE = "cstool.training.kernels.sparse.crossover"


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (lambda d: d / 0.4, 0.4),  # between two densities
        (lambda d: 0.5 + d, 0.5),  # at one of them
        (lambda d: d / 0.8, 0.8),  # beyond the last
        (lambda d: d / 1.2, 1.0),  # there is nothing above 1
        (lambda d: 0.9, 1.0),
        (lambda d: 0.9 - d, 1.0),
        (lambda d: 1.01, 0.0),  # slower from the beginning
        (lambda d: 1 + (d - 0.05) * 10, 0.05),
        (lambda d: 1 + (d - 0.12345) * 0.7, 0.123),  # 3 digits
    ],
)
def test_the_crossover_is_where_the_ratio_is_1(ratio, expected):
    assert find_crossover([ratio(density) for density in DENSITIES]) == pytest.approx(expected, abs=1e-12)


def test_kernels_are_sparse_up_to_their_crossover():
    found = Crossover(forward=0.5, delta=0.3, gradient=0.0)
    choices = {0.0: (True, True, True), 0.3: (True, True, False), 0.31: (True, False, False), 0.51: (False,) * 3}
    assert {density: choose(found, density) for density in choices} == {d: KernelChoice(*c) for d, c in choices.items()}


class Machine:
    """A machine on which a kernel takes as long as it is told, and which looks at what it is called with.

    Args:
        dense_s: of any dense kernel
        per_density_s: of "forward", "delta", "gradient" and "collect", at density 1
    """

    def __init__(self, dense_s: float, **per_density_s: float) -> None:
        self.now_s = 0.0
        self.dense_s = dense_s
        self.per_density_s = per_density_s
        self.slow_until_s = 0.0
        self.extra_s: Callable[[], float] = lambda: 0.0
        self.patterns: list[Pattern] = []
        self.arrays: list[np.ndarray] = []
        self.blas_threads: set[int] = set()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(f"{MODULE}.time", SimpleNamespace(perf_counter=lambda: self.now_s))
        for name in ("linear_forward", "linear_backward_delta", "linear_backward_weight"):
            monkeypatch.setattr(f"{MODULE}.{name}", self._dense)
        for name in ("sparse_linear_forward", "sparse_linear_delta", "sparse_linear_gradient", "collect"):
            monkeypatch.setattr(f"{MODULE}.{name}", partial(self._sparse, name.rpartition("_")[2]))

    def _dense(self, *arguments: object) -> None:
        self.now_s += self.dense_s
        self.arrays += [a for a in arguments if isinstance(a, np.ndarray)]
        self.blas_threads |= {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    def _sparse(self, kernel: str, *arguments: Any) -> None:
        (pattern,) = (a for a in arguments if isinstance(a, Pattern))
        nominal = min(DENSITIES, key=lambda density: abs(density - pattern.density))
        slowness = 100.0 if self.now_s < self.slow_until_s else 1.0
        self.now_s += self.per_density_s[kernel] * nominal * slowness + self.extra_s()
        self.patterns.append(pattern)
        if kernel != "collect":
            self.arrays += [a for a in arguments if isinstance(a, np.ndarray)]


@pytest.fixture
def machine(monkeypatch) -> Machine:
    """Return a machine whose gradient is 50 d / (10 + 10 d) of the dense one: 1 at a quarter."""
    made = Machine(10.0, forward=25.0, delta=100.0, gradient=50.0, collect=10.0)
    made.install(monkeypatch)
    return made


@pytest.mark.parametrize("slow_rounds", [0, 1, 101, 201], ids=["none", "the first", "one more", "two more"])
def test_each_kernel_is_held_against_its_dense_twin_and_disturbed_rounds_do_not_count(machine, slow_rounds):
    """The first never counts; a round that others disturb takes a hundred times as long."""
    machine.slow_until_s = slow_rounds * (3 * machine.dense_s + sum(machine.per_density_s.values()) * sum(DENSITIES))
    assert measure_crossover(64, 1024, 512) == Crossover(forward=0.4, delta=0.1, gradient=0.25)


def test_it_ends_when_nothing_ever_agrees(machine):
    grows = itertools.count(1)
    machine.extra_s = lambda: float(next(grows))
    measure_crossover(64, 1024, 512)
    assert len(machine.patterns) == 4 * len(DENSITIES) * (1 + MOST_ROUNDS)


def test_of_a_large_panel_some_rows_are_timed(machine):
    measure_crossover(8192, 2048, 512)
    assert {tuple(sorted(pattern.shape)) for pattern in machine.patterns} == {(1024, 2048)}


@pytest.mark.parametrize(("shape", "calls"), [((64, 1024, 512), 1), ((32, 1024, 64), 4), ((8, 16, 16), MOST_CALLS)])
def test_short_calls_are_timed_several_times_over(shape, calls, machine):
    measure_crossover(*shape)
    assert len(machine.patterns) == 4 * len(DENSITIES) * (1 + ROUNDS) * calls


def test_kernels_run_on_one_thread_and_aligned_arrays_at_the_densities_that_were_asked_for(machine):
    measure_crossover(512, 512, 64)
    assert machine.blas_threads == {1}
    assert {array.ctypes.data % 64 for array in machine.arrays} == {0}
    assert sorted({pattern.density for pattern in machine.patterns}) == pytest.approx(DENSITIES, rel=0.02)


@pytest.mark.parametrize("gemm", [NUMPY, EMULATED], ids=["float32", "bfloat16"])
def test_real_kernels_can_be_timed(gemm):
    found = measure_crossover(40, 70, 16, gemm)
    assert all(0 <= density <= 1 for density in (found.forward, found.delta, found.gradient))


MEASURED = Crossover(forward=0.4, delta=0.3, gradient=0.2)


@pytest.fixture
def measured(monkeypatch, tmp_path) -> list[tuple[int, int, int]]:
    """Return the shapes that were measured, each with what the one before gave and 0.1 more; nothing is cached yet."""
    shapes: list[tuple[int, int, int]] = []
    steps = itertools.count()

    def measure(rows: int, columns: int, tokens: int, gemm: Gemm) -> Crossover:
        shapes.append((rows, columns, tokens))
        more = next(steps) / 10
        return Crossover(MEASURED.forward + more, MEASURED.delta + more, MEASURED.gradient + more)

    monkeypatch.setattr(f"{MODULE}.measure_crossover", measure)
    monkeypatch.setattr(f"{MODULE}.kernel_folder", lambda: KernelFolder(tmp_path))
    return shapes


def _cached(tmp_path: Path) -> Path:
    (path,) = tmp_path.glob("crossover-*.json")
    return path


def test_a_shape_is_measured_once_and_again_for_a_refresh_which_is_kept(measured):
    found = [crossover(40, 70, 512, refresh=number == 2) for number in range(4)]
    assert [each.forward for each in found] == [0.4, 0.4, 0.5, 0.5]
    assert (found[0], measured) == (MEASURED, [(40, 70, 512)] * 2)


def test_shapes_are_kept_side_by_side(measured, tmp_path):
    for _ in range(2):
        assert [crossover(70, 40, 512).delta, crossover(40, 70, 512).delta] == [0.3, 0.4]
    assert json.loads(_cached(tmp_path).read_text()) == {
        "40x70x512": {"forward": 0.5, "delta": 0.4, "gradient": pytest.approx(0.3)},
        "70x40x512": {"forward": 0.4, "delta": 0.3, "gradient": 0.2},
    }


def test_large_panels_nearly_alike_are_one_and_another_blas_has_its_own_file(measured, tmp_path, monkeypatch):
    assert crossover(8192, 2048, 512) == crossover(8191, 2048, 512)
    assert measured == [(1024, 2048, 512)]
    monkeypatch.setattr(f"{MODULE}.blas_digest", lambda: "another")
    assert crossover(8192, 2048, 512).forward == 0.5
    assert len(list(tmp_path.glob("crossover-*.json"))) == 2


NONSENSE = [
    *(b"", b"\xff", b"[]", b"1", b'{"40x70x512": 1}', b'{"40x70x512": {"forward": 0.4, "delta": 0.3}}'),
    b'{"40x70x512": {"forward": 0.4, "delta": 0.3, "gradient": "0.2"}}',
    b'{"40x70x512": {"forward": 0.4, "delta": 0.3, "gradient": 1.2}}',
    b'{"40x70x512": {"forward": 0.4, "delta": 0.3, "gradient": NaN}}',
    b'{"40x70x512": {"forward": 0.4, "delta": 0.3, "gradient": 0.2, "more": 0.2}}',
    b'{"40x70x512": {"forward": 0.4, "delta": 0.3, "gradient": 0.2}',
]


@pytest.mark.parametrize("content", NONSENSE)
def test_a_file_that_makes_no_sense_is_replaced(content, measured, tmp_path):
    crossover(1, 1, 512)
    _cached(tmp_path).write_bytes(content)
    assert [crossover(40, 70, 512).forward for _ in range(2)] == [0.5, 0.5]
    assert len(measured) == 2


@pytest.mark.parametrize("missing", ["no folder", "a folder that is gone"])
def test_without_a_folder_to_write_to_it_is_measured_each_time(missing, measured, tmp_path, monkeypatch):
    folder = KernelFolder(None if missing == "no folder" else tmp_path / "missing")
    monkeypatch.setattr(f"{MODULE}.kernel_folder", lambda: folder)
    assert [crossover(40, 70, 512).forward for _ in range(2)] == [0.4, 0.5]


@pytest.mark.parametrize(
    ("tokens", "nearest", "forward"),
    [
        (1, 16, 0.025),
        (16, 16, None),
        (22, 16, None),
        (23, 32, None),
        (33, 32, 0.413),  # 33 of 64, where 32 of 64 were measured
        (48, 64, 0.3),  # 48 of 64, where all 64 were
        (70, 64, 0.219),  # 70 of 128, and all 64
        (90, 64, None),
        (91, 128, None),
        (129, 128, 0.269),  # 129 of 192, and all 128 of those that were measured
        (500, 512, 0.391),  # 500 of 512
        (512, 512, 0.4),
        (4096, 512, 0.4),
    ],
)
def test_tokens_are_rounded_and_those_that_the_last_tile_wastes_count(tokens, nearest, forward, measured):
    found = crossover(40, 70, tokens).forward
    assert measured == [(40, 70, nearest)]
    assert forward is None or found == pytest.approx(forward)


def test_a_crossover_is_at_most_1(measured):
    for _ in range(6):
        crossover(40, 70, 32, refresh=True)
    assert crossover(40, 70, 44).forward == 1.0
