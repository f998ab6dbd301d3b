"""Routers, and tokens by expert, against the slow twin; ties, experts without tokens, bfloat16."""

import math
from typing import Any

import numpy as np
import pytest

from cstool.model.ir import Panel
from cstool.training.kernels import mixture
from cstool.training.kernels.bfloat16 import BFLOAT16, narrowed, widened
from cstool.training.kernels.call import Array, Call, Rows, add_payloads
from tests.reference import mixture as reference

TOKENS, EXPERTS, CHOSEN, WIDTH, OUTPUTS = 7, 4, 2, 8, 6
CHOICES = np.array([[0, 3], [3, 1], [1, 0], [3, 0], [0, 1], [1, 3], [3, 1]], np.int32)
"""nobody chooses expert 2"""
ROUTER = {"experts": EXPERTS, "selection": "softmax", "weighting": "softmax", "normalizes": True, "null_bias": 0.0}


def numbers(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def routed(x: Array, gate: Array, **changes: Any) -> tuple[Array, ...]:
    tokens, experts = len(x), len(gate)
    outputs = np.empty((tokens, CHOSEN), np.float32), np.empty((tokens, CHOSEN), np.int32)
    probabilities = np.empty((tokens, experts), np.float32)
    logits = np.empty((experts, tokens), np.float32)
    call = Call({**ROUTER, **changes}, 1, (x,), (*outputs, probabilities), {"logits": logits}, weights=(gate,))
    call.stop = experts
    mixture.router_forward(call)
    return call.outputs


@pytest.mark.parametrize("weighting", ["softmax", "sigmoid"])
@pytest.mark.parametrize("selection", ["softmax", "sigmoid"])
@pytest.mark.parametrize("divides", [{"normalizes": False}, {"normalizes": True, "null_bias": 1.1}, {}])
def test_a_router_is_as_the_slow_twin_has_it(selection, weighting, divides):
    x, gate, attributes = numbers(TOKENS, WIDTH), numbers(EXPERTS, WIDTH, seed=2), {**ROUTER, "top_k": CHOSEN}
    attributes |= {"selection": selection, "weighting": weighting, **divides}
    expected = reference.route(x.astype(np.float64), gate, 0.0, attributes)
    weights, choices, probabilities = routed(x, gate, **attributes)
    np.testing.assert_array_equal(choices, expected[1])
    np.testing.assert_allclose(weights, expected[0], rtol=1e-6)
    np.testing.assert_allclose(probabilities, expected[2], rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_of_experts_that_are_equal_or_no_numbers_the_first_are_chosen(value):
    weights, choices, _ = routed(numbers(3, WIDTH), np.full((EXPERTS, WIDTH), value, np.float32))
    np.testing.assert_array_equal(choices, [[0, 1]] * 3)
    assert np.isnan(weights).all() == np.isnan(value)


def dispatched(x: Array, y: Array) -> Array:
    mixture.dispatch_forward(Call({"experts": EXPERTS}, 1, (x, CHOICES), (y,), {}))
    return y


def test_dispatch_products_and_combination_are_as_the_slow_twin_has_them():
    x, weights = numbers(TOKENS, WIDTH), numbers(TOKENS, CHOSEN, seed=3)
    matrices = [numbers(OUTPUTS, WIDTH, seed=10 + expert) for expert in range(EXPERTS)]
    rows, names = dispatched(x, np.empty((TOKENS, CHOSEN * WIDTH), np.float32)), tuple(map(str, range(EXPERTS)))
    y, found = np.full((TOKENS, CHOSEN * OUTPUTS), np.nan, np.float32), np.empty((TOKENS, OUTPUTS), np.float32)
    call = Call({"experts": EXPERTS}, 1, (rows, CHOICES), (y,), {}, matrices=names)
    for name, matrix in zip(names, matrices, strict=True):
        call.hold([matrix], Panel(name, 0, 0, OUTPUTS, matrix.shape), False, False)
        mixture.expert_linear_forward(call)
    mixture.combine_forward(Call({"experts": EXPERTS}, 1, (y, weights, CHOICES), (found,), {}))
    expected = reference.expert_linear(reference.dispatch(x.astype(np.float64), CHOICES), CHOICES, matrices, [])
    np.testing.assert_allclose(found, reference.combine(expected, weights, CHOICES), rtol=1e-5, atol=1e-6)


def test_tokens_of_bfloat16_are_dispatched_as_they_are():
    x = numbers(TOKENS, WIDTH)
    rows = dispatched(x, np.empty((TOKENS, CHOSEN * WIDTH), BFLOAT16))
    of_float32 = dispatched(widened(narrowed(x)), np.empty((TOKENS, CHOSEN * WIDTH), np.float32))
    np.testing.assert_array_equal(widened(rows), of_float32)


def test_no_rows_and_a_gradient_are_that_gradient():
    nothing, gradient = Rows(np.empty(0, np.int32), np.empty((0, 3), np.float32)), numbers(2, 3)
    assert add_payloads(nothing, gradient) is gradient
    assert add_payloads(gradient, nothing) is gradient


@pytest.mark.parametrize("samples", [1, 2, 3, 7, 40])
def test_the_loss_that_balances_is_the_exact_sum_over_samples_rounded_once(samples):
    generator, losses, figures = np.random.default_rng(samples), np.empty(samples, np.float32), np.full(2, np.nan)
    for spread in (1, 2**26, 2**53, 2**54, 2**60):
        sums = generator.choice([1.0, 0.5, 1.5, 1 / 3, 1 / spread, -1 / spread, spread / 3, spread], samples)
        mixture.add_losses(sums, 8, losses, figures)
        assert figures.tolist() == [math.fsum(8 * sums), 0.0]
        np.testing.assert_array_equal(losses, (8 * sums).astype(np.float32))
    sums[0] = np.nan
    mixture.add_losses(sums, 8, losses, figures)
    assert np.isnan(figures[0])


@pytest.mark.parametrize("width", [8, 16, 40, 100])
def test_deltas_have_the_same_bits_where_they_lie_where_the_rows_were(width):
    """A plan may give the rows' memory to their deltas, and gives them other memory where rows are made again."""
    rows, delta_y = numbers(TOKENS * CHOSEN, width), numbers(TOKENS, width, seed=2)
    weights = numbers(TOKENS, CHOSEN, seed=3)

    def deltas(delta_rows: Array, of: Array) -> tuple[bytes, bytes]:
        delta_weights = np.empty_like(weights)
        mixture.combine_back(delta_y, of, weights, CHOICES, EXPERTS, delta_rows, delta_weights)
        return delta_rows.tobytes(), delta_weights.tobytes()

    over = rows.copy()
    assert deltas(np.empty_like(rows), rows) == deltas(over, over)
