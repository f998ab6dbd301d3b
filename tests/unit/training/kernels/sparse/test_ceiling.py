"""The speedup of kernels alone: the arithmetic, and that what is timed are the kernels."""

import pytest

from cstool.training.kernels.sparse import KernelChoice, ceiling, crossover
from cstool.training.kernels.sparse.ceiling import Ceiling, ProductSeconds, measure_ceiling

TIMES = Ceiling(ProductSeconds(4.0, 5.0, 6.0), ProductSeconds(1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("choice", "with_delta", "speedup"),
    [
        ((True, True, True), True, 15 / 6),
        ((True, False, True), True, 15 / 9),
        ((True, True, True), False, 10 / 4),
        ((False, False, False), True, 1.0),
    ],
)
def test_a_layer_takes_the_time_of_the_kernels_that_were_chosen(choice, with_delta, speedup):
    assert TIMES.speedup(KernelChoice(*choice), with_delta) == speedup


def test_the_fastest_round_counts(monkeypatch):
    """A clock by which kernel k takes 10 k and a second more in every round but the fourth."""
    now, calls = [0.0], [0] * 6

    def kernel(number: int) -> None:
        calls[number] += 1
        now[0] += 10 * (1 + number) + (calls[number] != 4)

    runs = [lambda number=number: kernel(number) for number in range(6)]
    monkeypatch.setattr(ceiling, "_kernels", lambda *_: runs)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    found = measure_ceiling(2048, 1024, 512, 0.5)
    assert found == Ceiling(ProductSeconds(10.0, 20.0, 30.0), ProductSeconds(40.0, 50.0, 60.0))


def test_it_times_the_kernels_at_the_shape_and_density(monkeypatch):
    seen: dict[str, list[object]] = {}
    for name in ("linear_forward", "linear_backward_delta", "linear_backward_weight"):
        monkeypatch.setattr(crossover, name, lambda *given, name=name: seen.setdefault(name, []).append(given[0].shape))
    for name in ("sparse_linear_forward", "sparse_linear_delta", "sparse_linear_gradient"):

        def call(*given, name=name):
            pattern = next(each for each in given if hasattr(each, "count"))
            seen.setdefault(name, []).append((pattern.shape, pattern.count))

        monkeypatch.setattr(crossover, name, call)
    measure_ceiling(30, 20, 7, 0.1)
    assert set(seen["linear_forward"]) == {(7, 20)}
    assert set(seen["linear_backward_delta"]) == {(7, 30)}
    assert set(seen["sparse_linear_forward"]) == set(seen["sparse_linear_gradient"]) == {((30, 20), 60)}
    assert set(seen["sparse_linear_delta"]) == {((20, 30), 60)}
