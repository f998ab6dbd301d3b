"""Numbers of bfloat16, and ops on arrays of them: what ops on float32 give for the same numbers, rounded."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

from cstool.model.ir import OpKind
from cstool.training.kernels.activation import FUNCTIONS, GATES
from cstool.training.kernels.bfloat16 import BFLOAT16, convert, narrowed, widened
from cstool.training.kernels.gemm_providers import EMULATED
from cstool.training.kernels.table import KERNELS
from tests.unit.training.kernels.calls import make_call
from tests.unit.training.kernels.tolerances import TOLERANCE

HALF_UNIT = 2.0**-8
"""largest relative error of a number that is rounded"""
Array = np.ndarray


@given(arrays(np.uint32, 50))
def test_rounding_is_to_the_nearest_of_two_the_even_one(bits):
    numbers = bits.view(np.float32)
    found = widened(narrowed(numbers))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(numbers))
    finite = np.isfinite(numbers) & (np.abs(numbers) < 3.3895e38)
    below = (bits[finite] & 0xFFFF0000).astype(np.uint32)
    above = (below + 0x10000).view(np.float32).astype(np.float64)
    low, exact = below.view(np.float32).astype(np.float64), numbers[finite].astype(np.float64)
    nearest = np.where(np.abs(exact - low) < np.abs(above - exact), low, above)
    is_middle, is_even = np.abs(exact - low) == np.abs(above - exact), below >> 16 & 1 == 0
    np.testing.assert_array_equal(found[finite], np.where(is_middle & is_even, low, nearest))


def test_what_is_bfloat16_already_stays_as_it_is_but_nan_becomes_quiet():
    bits = np.arange(2**16, dtype=np.uint32).astype(BFLOAT16)
    wide = widened(bits)
    np.testing.assert_array_equal(narrowed(wide), np.where(np.isnan(wide), bits | 0x40, bits))
    upper_bits_of_infinity = np.array([0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(widened(narrowed(upper_bits_of_infinity)))[0]


def test_convert_goes_both_ways_and_between_slices(rng):
    numbers = rng.standard_normal((5, 9)).astype(np.float32)
    bits, wide = np.zeros((5, 12), BFLOAT16), np.empty((5, 9), np.float32)
    convert(numbers, bits[:, 2:11])
    convert(bits[:, 2:11], wide)
    np.testing.assert_array_equal(wide, widened(narrowed(numbers)))
    assert not bits[:, :2].any()
    assert not bits[:, 11:].any()


ROTARY = {"head_width": 4, "frequencies": (1.0, 0.1), "amplitude": 1.0}
CASES: dict[str, tuple[OpKind, str, dict[str, Any]]] = {
    **{f"activation {name}": (OpKind.ACTIVATION, "b", {"function": name}) for name in FUNCTIONS},
    **{f"gate {name}": (OpKind.GATED_ACTIVATION, "bb", {"function": name}) for name in GATES},
    "rotary": (OpKind.ROTARY, "b", ROTARY),
    "layer norm": (OpKind.LAYER_NORM, "f", {"epsilon": 1e-5}),
    "rms norm": (OpKind.RMS_NORM, "f", {"epsilon": 1e-5}),
    "norm of heads": (OpKind.HEAD_NORM, "f", {"epsilon": 1e-5, "heads": 2}),
}
"""kind; inputs: b bfloat16, f float32; attributes. Attention is `test_attention`'s."""
TOKENS, WIDTH = 20, 16


@pytest.mark.parametrize("delta_is_narrow", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_an_op_on_bfloat16_gives_what_it_gives_on_float32_rounded(case, delta_is_narrow, rng):
    kind, forms, attributes = CASES[case]
    narrow = [narrowed(rng.standard_normal((TOKENS, WIDTH))) for _ in forms]
    wide = [widened(x) for x in narrow]
    count = (2 if kind is OpKind.LAYER_NORM else 1) if forms == "f" else 0
    width = WIDTH // attributes["heads"] if kind is OpKind.HEAD_NORM else WIDTH
    weights = [rng.standard_normal(width).astype(np.float32) for _ in range(count)]
    delta_y = narrowed(rng.standard_normal((TOKENS, WIDTH)))
    is_norm = forms == "f"
    of_wide = run(kind, wide, weights, widened(delta_y), np.float32, np.float32, attributes)
    inputs = wide if is_norm else narrow
    # What a norm gets back is float32: several ops read what it makes.
    delta, delta_dtype = (widened(delta_y), np.float32) if is_norm else (delta_y, BFLOAT16)
    if not delta_is_narrow:
        delta = widened(delta_y)
    of_narrow = run(kind, inputs, weights, delta, BFLOAT16, delta_dtype, attributes)
    for found, expected in zip(of_narrow, of_wide, strict=True):
        exact = widened(found) if found.dtype == BFLOAT16 else found
        allowed = (HALF_UNIT if found.dtype == BFLOAT16 else 0.0) * np.abs(expected)
        assert (np.abs(exact - expected) <= allowed + TOLERANCE[np.dtype(np.float32)] * np.abs(expected).max()).all()


def run(kind, inputs, weights, delta_y, dtype, delta_dtype, attributes):
    """What an op makes: its output, the deltas of its inputs and its gradients."""
    of_call = {"gemm": EMULATED, "delta_inputs": tuple(np.empty(x.shape, delta_dtype) for x in inputs)}
    more = {"y": np.empty(inputs[0].shape, dtype), "sequence": TOKENS // 2, "of_call": of_call}
    call = make_call(kind, inputs, weights, delta_y=delta_y, **more, **attributes)
    KERNELS[kind].forward(call)
    KERNELS[kind].backward(call)
    return [*call.outputs, *call.delta_inputs, *call.gradients]  # type: ignore[list-item]
