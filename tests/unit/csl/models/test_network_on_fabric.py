"""A training step of a network on the fabric beside the same in float64, and programs that are refused."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.csl.fabric.arch import SRAM_BYTES
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.models.emit import plan_of, write_folder
from cstool.csl.models.host import NetworkOnFabric
from cstool.csl.models.memory import plan_memory, room_bytes
from cstool.csl.models.network import Linear, Network
from cstool.csl.models.simulated import SimulatedFabric, compile_network
from cstool.foundation.errors import CompileError

UNIT = 2.0**-24
"""relative error of one rounding of float32"""


def network_of(*sizes: int, columns: int, rows: int, tokens: int, samples: int, **keys: Any) -> Network:
    sparse, biased = keys.get("sparse", ()), keys.get("biased", True)
    layers = [
        Linear(f"fc.{n}", inputs, outputs, biased, n in sparse)
        for n, (inputs, outputs) in enumerate(zip(sizes, sizes[1:], strict=False))
    ]
    return Network("fc", columns, rows, tokens, samples, tuple(layers))


NETWORKS = {
    "a grid": network_of(11, 7, 5, 4, columns=3, rows=2, tokens=4, samples=7),
    "one PE": network_of(6, 4, 3, columns=1, rows=1, tokens=2, samples=2),
    "a row": network_of(9, 6, 10, columns=4, rows=1, tokens=2, samples=1),
    "a column, no bias": network_of(5, 6, 3, columns=1, rows=3, tokens=2, samples=6, biased=False),
    "one layer": network_of(8, 3, columns=2, rows=2, tokens=2, samples=4),
    "sparse": network_of(11, 7, 5, 4, columns=3, rows=2, tokens=4, samples=7, sparse=(0, 1, 2)),
}


@cache
def program_of(name: str) -> FabricProgram:
    return compile_network(NETWORKS[name])


def weights_of(network: Network, *, zeros: float = 0.0) -> dict[str, np.ndarray]:
    random, found = np.random.default_rng(5), {}
    for layer in network.layers:
        matrix = random.standard_normal((layer.outputs, layer.inputs)) / layer.inputs**0.5
        found[f"{layer.name}.weight"] = np.where(random.random(matrix.shape) < zeros, 0, matrix).astype(np.float32)
        if layer.has_bias:
            found[f"{layer.name}.bias"] = random.standard_normal(layer.outputs).astype(np.float32)
    return found


def batch_of(network: Network) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs with zeros among them, labels, and factors of the losses, of which the last may be 0."""
    random, count = np.random.default_rng(6), network.samples
    x = random.standard_normal((count, network.layers[0].inputs)).astype(np.float32)
    scale = np.full(count, 1 / count, np.float32)
    scale[-1] *= count == 1
    labels = random.integers(0, network.layers[-1].outputs, count)
    return np.maximum(x, 0), labels, scale if count > 1 else np.ones(1, np.float32)


def step(name: str, weights: Mapping[str, np.ndarray], **changed: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Losses and gradients of a batch on the fabric."""
    network = NETWORKS[name]
    plan = plan_of(network, plan_memory(network)) | changed
    plan["layers"] = list(plan["layers"])
    walk = NetworkOnFabric(SimulatedFabric(program_of(name)), plan)
    result = walk.run_forward(*batch_of(network), weights)
    return result, walk.run_backward(weights)


def twin(network: Network, weights: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Losses, bounds on their errors in float32, and gradients, in float64."""
    x, labels, scale = batch_of(network)
    values, error = [x.astype(float)], np.zeros(x.shape)
    for number, layer in enumerate(network.layers):
        matrix = weights[f"{layer.name}.weight"].astype(float)
        bias = weights.get(f"{layer.name}.bias", np.zeros(layer.outputs)).astype(float)
        terms = layer.inputs + network.columns + 2
        size = np.abs(values[-1]) @ np.abs(matrix).T + np.abs(bias)
        error = (error @ np.abs(matrix).T) * (1 + terms * UNIT) + terms * UNIT * size
        z = values[-1] @ matrix.T + bias
        values.append(z if number == len(network.layers) - 1 else np.maximum(z, 0))
    z, everyone = values[-1], np.arange(len(x))
    total = np.exp(z).sum(axis=1)
    losses = np.log(total) - z[everyone, labels]
    own = (z.shape[1] + 16) * UNIT * (1 + np.abs(z).max(axis=1) + losses)
    delta = np.exp(z) / total[:, None]
    delta[everyone, labels] -= 1
    delta *= scale[:, None]
    found = {}
    for number in reversed(range(len(network.layers))):
        layer = network.layers[number]
        found[f"{layer.name}.weight"] = delta.T @ values[number]
        if layer.has_bias:
            found[f"{layer.name}.bias"] = delta.sum(axis=0)
        delta = (delta @ weights[f"{layer.name}.weight"]) * (values[number] > 0)
    return losses, 2 * error.max(axis=1) + own, found


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_is_that_of_numpy(name):
    network = NETWORKS[name]
    weights = weights_of(network, zeros=0.4 if name == "sparse" else 0.0)
    result, gradients = step(name, weights)
    losses, bound, expected = twin(network, weights)
    assert (np.abs(result.losses - losses) <= bound).all()
    assert bound.max() < 1e-4
    x, labels, _ = batch_of(network)
    assert result.correct.shape == labels.shape
    assert gradients.keys() == expected.keys()
    for key, gradient in gradients.items():
        # Sums of few terms of about 1: some ten roundings each.
        np.testing.assert_allclose(gradient, expected[key], rtol=2e-5, atol=2e-6, err_msg=key)


def test_the_likeliest_class_is_correct():
    weights = weights_of(NETWORKS["one layer"])
    _, labels, _ = batch_of(NETWORKS["one layer"])
    weights["fc.0.bias"][labels[0]] += 100
    result, _ = step("one layer", weights)
    assert (result.correct == (labels == labels[0])).all()
    assert 0 < result.correct.sum() < len(labels)


def test_zeros_that_are_not_sent_change_no_bit():
    weights = weights_of(NETWORKS["a grid"], zeros=0.4)
    dense, dense_gradients = step("a grid", weights)
    sparse, gradients = step("sparse", weights)
    assert dense.losses.tobytes() == sparse.losses.tobytes()
    assert all((gradients[key] == dense_gradients[key]).all() for key in gradients)


@pytest.mark.parametrize("name", ["a grid", "sparse"])
def test_matrices_may_pass_in_parts(name):
    weights = weights_of(NETWORKS[name])
    whole, gradients = step(name, weights)
    parts, found = step(name, weights, rows_at_a_time=[3, 1, 2])
    assert whole.losses.tobytes() == parts.losses.tobytes()
    assert all((gradients[key] == found[key]).all() for key in gradients)


def test_a_weight_without_numbers_sends_none():
    weights = weights_of(NETWORKS["sparse"], zeros=1.0)
    result, gradients = step("sparse", weights)
    np.testing.assert_allclose(result.losses, twin(NETWORKS["sparse"], weights)[0], rtol=1e-6)
    assert not gradients["fc.0.weight"].any()


def test_cycles_of_zeros():
    """Of sparse weights the cycles go with the numbers that are left; each call is counted."""
    network = NETWORKS["sparse"]
    plan, cycles = plan_of(network, plan_memory(network)), {}
    for zeros in (0.0, 0.5, 1.0):
        fabric = SimulatedFabric(program_of("sparse"))
        walk = NetworkOnFabric(fabric, plan)
        walk.run_forward(*batch_of(network), weights_of(network, zeros=zeros))
        cycles[zeros] = dict(fabric.cycles)["fc_0_forward"]
    assert cycles[1.0] < 0.2 * cycles[0.0]
    assert 0.3 * cycles[0.0] < cycles[0.5] < 0.8 * cycles[0.0]


@pytest.mark.parametrize("sparse", [(), (0,)])
def test_the_largest_network_that_fits_compiles(sparse):
    def at(hidden: int) -> Network:
        return network_of(64, hidden, 10, columns=2, rows=1, tokens=8, samples=8, sparse=sparse)

    def fits(hidden: int) -> bool:
        try:
            plan_memory(at(hidden))
        except CompileError:
            return False
        return True

    hidden = max(filter(fits, range(2, 1000, 2)))
    assert hidden > 300
    program = compile_network(at(hidden))  # more than 48 KiB would be an error of the compiler
    arena = 4 * plan_memory(at(hidden)).size
    assert arena < room_bytes(at(hidden)) < SRAM_BYTES
    assert program.width == 2


def test_a_layer_that_does_not_fit_is_named():
    network = network_of(64, 2000, 10, columns=2, rows=1, tokens=8, samples=8)
    with pytest.raises(CompileError) as caught:
        plan_memory(network)
    assert caught.value.message == (
        "fc.0: must fit 43,760 bytes of a PE beside the code, needs 181,128, 137,368 more (2 x 1 PEs, 8 tokens to each)"
    )
    assert caught.value.hint == "narrower hidden_sizes, a smaller batch_size, or a larger rectangle"


@pytest.mark.golden
def test_the_program_reads_well(golden, tmp_path):
    network = replace(NETWORKS["a grid"], layers=(*NETWORKS["a grid"].layers[:1], Linear("fc.1", 7, 4, True, True)))
    names = write_folder(network, tmp_path / "program")
    assert sorted(names) == sorted(path.name for path in Path(tmp_path / "program").iterdir())
    golden("fabric/network_pe.csl", (tmp_path / "program/pe.csl").read_text())
    golden("fabric/network_layout.csl", (tmp_path / "program/layout.csl").read_text())
