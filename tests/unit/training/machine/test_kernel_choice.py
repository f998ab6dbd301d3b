"""Which kernels a run computes with: forced, or as measured, and kept when it goes on. Nothing is measured here."""

import json
from typing import Any

import numpy as np
import pytest

from cstool.model.sparsity import assign_groups
from cstool.training.kernels.gemm import NUMPY, Gemm
from cstool.training.kernels.sparse import KernelChoice, Pattern, make_pattern
from cstool.training.kernels.sparse.crossover import Crossover
from cstool.training.machine import sparsity as kernel_choice
from cstool.training.machine.memoryx.sparse_weights import SparsityRules
from cstool.training.machine.sparsity import KernelChooser
from tests.models import FAMILIES, decoder
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.machines import GradientKeeper
from tests.unit.training.machine.training import train

MEASURED = Crossover(forward=0.5, delta=0.25, gradient=0.1)


def pattern(density: float, shape: tuple[int, int] = (8, 25)) -> Pattern:
    return make_pattern(np.arange(round(density * shape[0] * shape[1])), shape)[0]


@pytest.fixture
def calls(monkeypatch) -> list[tuple[Any, ...]]:
    """What was measured: (rows, columns, tokens, anew)."""
    found: list[tuple[Any, ...]] = []

    def measure(rows: int, columns: int, tokens: int, gemm: Gemm, *, refresh: bool) -> Crossover:
        assert gemm is NUMPY
        found.append((rows, columns, tokens, refresh))
        return MEASURED

    monkeypatch.setattr(kernel_choice, "crossover", measure)
    return found


def settled(mode: str, *shapes: tuple[int, int], kept: Any = None) -> KernelChooser:
    chooser = KernelChooser(mode)
    chooser.settle([(*shape, 1.0) for shape in shapes], 512, NUMPY, kept)
    return chooser


@pytest.mark.parametrize(("mode", "sparse"), [("always", True), ("never", False)])
@pytest.mark.parametrize("density", [0.0, 0.01, 1.0])
def test_forced_kernels_need_no_measurement(calls, mode, sparse, density):
    chooser = settled(mode, (8, 25), kept={"crossovers": {"8x25": {"forward": 1, "delta": 1, "gradient": 1}}})
    assert chooser(pattern(density)) == KernelChoice(sparse, sparse, sparse)
    assert chooser.as_dict() == {"mode": mode, "crossovers": {}}
    assert calls == []


@pytest.mark.parametrize(("mode", "anew"), [("auto", False), ("measure", True)])
def test_each_shape_is_measured_once(calls, mode, anew):
    settled(mode, (8, 25), (25, 8), (8, 25))
    assert calls == [(8, 25, 512, anew), (25, 8, 512, anew)]


@pytest.mark.usefixtures("calls")
def test_a_product_is_sparse_up_to_its_crossover():
    chooser = settled("auto", (8, 25))
    found = {density: sum(chooser(pattern(density))) for density in (0.0, 0.1, 0.105, 0.25, 0.5, 0.505)}
    assert found == {0.0: 3, 0.1: 3, 0.105: 2, 0.25: 2, 0.5: 1, 0.505: 0}
    assert chooser(pattern(0.25)) == KernelChoice(True, True, False)
    assert chooser(pattern(0.5)) == KernelChoice(True, False, False)


@pytest.mark.parametrize("before", ["auto", "measure"])
def test_a_run_that_goes_on_keeps_what_was_measured_and_measures_what_is_new(calls, monkeypatch, before):
    kept = settled(before, (8, 25)).as_dict()
    assert kept == {"mode": before, "crossovers": {"8x25": {"forward": 0.5, "delta": 0.25, "gradient": 0.1}}}
    assert json.loads(json.dumps(kept)) == kept
    calls.clear()
    settled("measure", (8, 25), kept=kept)
    assert calls == [(8, 25, 512, True)]
    calls.clear()
    slower = Crossover(forward=0.0, delta=0.0, gradient=0.0)
    monkeypatch.setattr(kernel_choice, "crossover", lambda *shape, **_: calls.append(shape[:3]) or slower)
    chooser = settled("auto", (8, 25), (4, 4), kept=kept)
    assert calls == [(4, 4, 512)]
    assert chooser(pattern(0.1)) == KernelChoice(True, True, True)
    assert chooser(pattern(0.5, (4, 4))) == KernelChoice(False, False, False)
    assert chooser.as_dict()["crossovers"] == {
        "8x25": {"forward": 0.5, "delta": 0.25, "gradient": 0.1},
        "4x4": {"forward": 0.0, "delta": 0.0, "gradient": 0.0},
    }


def test_what_meets_a_part_of_the_tokens_is_measured_with_these_and_kept_beside_others_of_its_shape(calls, monkeypatch):
    shapes = [(8, 25, 1.0), (8, 25, 0.25), (4, 4, 0.001), (8, 25, 0.25)]
    chooser = KernelChooser("auto")
    chooser.settle(shapes, 512, NUMPY)
    assert calls == [(8, 25, 512, False), (8, 25, 128, False), (4, 4, 1, False)]
    kept = chooser.as_dict()
    assert [*kept["crossovers"]] == ["8x25", "8x25 of 0.25 of the tokens", "4x4 of 0.001 of the tokens"]
    slower = Crossover(forward=0.0, delta=0.0, gradient=0.0)
    monkeypatch.setattr(kernel_choice, "crossover", lambda *_, **__: slower)
    resumed, other = KernelChooser("auto"), KernelChooser("auto")
    resumed.settle(shapes, 64, NUMPY, kept)
    assert resumed.crossovers == chooser.crossovers
    other.settle(shapes, 512, NUMPY, {"crossovers": {"8x25": kept["crossovers"]["8x25"]}})
    assert other(pattern(0.1)) == KernelChoice(True, True, True)
    assert other(pattern(0.1), 0.25) == KernelChoice(False, False, False)


@pytest.mark.parametrize(
    "kept",
    [
        None,
        "auto",
        {"mode": "always", "crossovers": {}},
        {"crossovers": 3},
        {"crossovers": {"8x25": 0.5}},
        {"crossovers": {"8x25": {"forward": 0.5}}},
        {"crossovers": {"8x25": {"forward": 0.5, "delta": "0.5", "gradient": 0.5}}},
    ],
)
def test_where_no_measurement_was_kept_it_measures(calls, kept):
    assert settled("auto", (8, 25), kept=kept).crossovers == {(8, 25, 1.0): MEASURED}
    assert calls == [(8, 25, 512, False)]


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "mixtral", "bloom"])
def test_a_step_with_sparse_kernels_is_one_with_dense_kernels_but_for_rounding(family):
    graph, by = decoder(layers=2, **FAMILIES[family]), group(0.75)
    groups = dict.fromkeys(assign_groups([by], graph, ("x.yaml:1", "sparsity")), by)
    sparse, dense = (
        train(
            graph,
            1,
            steps=1,
            optimizer=GradientKeeper(),
            sparsity=SparsityRules(groups, 3, choose=lambda *_, each=each: KernelChoice(each, each, each)),
        )[0]
        for each in (True, False)
    )
    assert sparse.losses == pytest.approx(dense.losses, rel=1e-6)
    # The gradient of a bias of keys vanishes but for rounding.
    largest = max(np.abs(values).max() for name, values in dense.arrays.items() if name.endswith(".gradient"))
    for name, values in dense.arrays.items():
        np.testing.assert_allclose(sparse.arrays[name], values, rtol=1e-4, atol=1e-6 * largest, err_msg=name)
