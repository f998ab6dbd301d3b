"""What holds of all kernels that go token by token: their slow twins, their slopes, their bits, and NaN."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

from cstool.model.ir import Op, OpKind, rules_of
from cstool.training.kernels.activation import FUNCTIONS, GATES
from cstool.training.kernels.random import Dropout
from tests.reference.models import output
from tests.unit.training.kernels.calls import backward, forward
from tests.unit.training.kernels.tolerances import assert_close, assert_derivative

TOKENS, SEQUENCE, WIDTH = 8, 4, 84
DROPOUT = Dropout(0.25, (1, 2), 3, 4, SEQUENCE)
with_and_without_dropout = pytest.mark.parametrize("dropout", [None, DROPOUT], ids=["keep", "drop"])

Arrays = tuple[list[np.ndarray], list[np.ndarray], np.ndarray]


class Case(NamedTuple):
    """An op: of how many activations, what weights."""

    kind: OpKind
    inputs: int
    weights: tuple[tuple[int, ...], ...]
    attributes: Mapping[str, Any] = {}

    def arrays(self, rng: np.random.Generator, dtype: type | np.dtype = np.float32) -> Arrays:
        """Return inputs, far from 0 as activations may be, weights and the delta of the output."""
        inputs, delta_y = (rng.standard_normal((n, TOKENS, WIDTH)) for n in (self.inputs, 1))
        weights = [rng.standard_normal(shape).astype(dtype) for shape in self.weights]
        return [x.astype(dtype) for x in 2.0 * inputs + 0.5], weights, delta_y[0].astype(dtype)

    def forward(self, inputs: list[np.ndarray], weights: list[np.ndarray], **more: Any) -> np.ndarray:
        return forward(self.kind, inputs, weights, **self._more(**more))[0]

    def backward(self, inputs, weights, delta_y, **more):
        return backward(self.kind, inputs, weights, delta_y, **self._more(**more))

    def _more(self, dropout: Dropout | None = None, **more: Any) -> dict[str, Any]:
        return {"sequence": SEQUENCE, "of_call": {"dropout": dropout}, **self.attributes, **more}


def rotary(width, pairs, amplitude):
    frequencies = tuple(10000.0 ** (-i / max(pairs, 1)) for i in range(pairs))
    return {"head_width": width, "frequencies": frequencies, "amplitude": amplitude}


VECTOR = (WIDTH,)
ROTARY_FORMS = [(14, 7, 1.0), (14, 7, 1.3), (28, 3, 1.0), (28, 3, 0.7), (7, 3, 1.0), (2, 1, 1.0), (12, 0, 1.3)]
CASES = {
    "layer norm": Case(OpKind.LAYER_NORM, 1, (VECTOR, VECTOR), {"epsilon": 1e-3}),
    "layer norm, no bias": Case(OpKind.LAYER_NORM, 1, (VECTOR,), {"epsilon": 1e-3}),
    "rms norm": Case(OpKind.RMS_NORM, 1, (VECTOR,), {"epsilon": 1e-3}),
    "norm of heads": Case(OpKind.HEAD_NORM, 1, ((WIDTH // 4,),), {"epsilon": 1e-3, "heads": 4}),
    "norm of one head": Case(OpKind.HEAD_NORM, 1, (VECTOR,), {"epsilon": 1e-3, "heads": 1}),
    "scale": Case(OpKind.SCALE, 1, (), {"factor": 27.7128}),
    "positions": Case(OpKind.POSITION_EMBEDDING, 1, ((6, WIDTH),)),
    "fixed positions": Case(OpKind.FIXED_POSITION_EMBEDDING, 1, ()),
    "residual": Case(OpKind.RESIDUAL, 2, (VECTOR,)),
    "residual, no bias": Case(OpKind.RESIDUAL, 2, ()),
    **{f: Case(OpKind.ACTIVATION, 1, (VECTOR,), {"function": f}) for f in FUNCTIONS},
    **{f"{f}, no bias": Case(OpKind.ACTIVATION, 1, (), {"function": f}) for f in FUNCTIONS},
    **{f"gate {f}": Case(OpKind.GATED_ACTIVATION, 2, (VECTOR, VECTOR), {"function": f}) for f in GATES},
    **{f"gate {f}, no biases": Case(OpKind.GATED_ACTIVATION, 2, (), {"function": f}) for f in GATES},
    **{
        f"{pairs} pairs of {width}, x {amplitude}": Case(OpKind.ROTARY, 1, (), rotary(width, pairs, amplitude))
        for width, pairs, amplitude in ROTARY_FORMS
    },
}
IN_PLACE = {OpKind.SCALE, OpKind.POSITION_EMBEDDING, OpKind.FIXED_POSITION_EMBEDDING, OpKind.RESIDUAL, OpKind.ROTARY}
WHOLE_ROWS = {OpKind.LAYER_NORM, OpKind.RMS_NORM, OpKind.HEAD_NORM, OpKind.ROTARY}
"""whose elements depend on others of their token"""
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every_case
@with_and_without_dropout
def test_forward_is_that_of_the_twin_and_backward_in_float32_that_in_float64(case, dropout, rng):
    inputs, weights, delta_y = case.arrays(rng, np.float64)
    heeded = None if case.kind in WHOLE_ROWS else dropout
    for dtype in (np.float32, np.float64):
        narrow = [[array.astype(dtype) for array in arrays] for arrays in (inputs, weights, [delta_y])]
        wide = [[array.astype(np.float64) for array in arrays] for arrays in narrow]
        op = Op(case.kind, "", (), (), (), case.attributes)
        assert_close(case.forward(*narrow[:2], dropout=dropout), output(op, *wide[:2], SEQUENCE, heeded))
        expected = case.backward(*wide[:2], wide[2][0], dropout=dropout)
        for actual, array in zip(case.backward(*narrow[:2], narrow[2][0], dropout=dropout), expected, strict=True):
            if not np.isnan(array).all():  # the delta of a residual is that of the output
                assert_close(actual, array)


@every_case
@with_and_without_dropout
def test_backward_is_the_slope_of_forward(case, dropout, rng):
    inputs, weights, delta_y = case.arrays(rng, np.float64)
    arrays = [*inputs, *weights]
    found = case.backward(inputs, weights, delta_y, dropout=dropout)
    if case.kind is OpKind.RESIDUAL:
        found[1] = delta_y  # as nobody computes it
    for place, derivative in enumerate(found):

        def y(at: np.ndarray, place: int = place) -> np.ndarray:
            moved = [*arrays[:place], at, *arrays[place + 1 :]]
            return case.forward(moved[: case.inputs], moved[case.inputs :], dropout=dropout)

        assert_derivative(y, arrays[place], derivative, delta_y)


@every_case
@with_and_without_dropout
def test_in_place_has_the_same_bits_and_a_sample_does_not_depend_on_the_others(case, dropout, rng):
    inputs, weights, delta_y = case.arrays(rng)
    y, apart = case.forward(inputs, weights, dropout=dropout), case.backward(inputs, weights, delta_y, dropout=dropout)
    if dropout is None:
        last = [x[SEQUENCE:] for x in inputs]
        np.testing.assert_array_equal(case.forward(last, weights), y[SEQUENCE:])
        for part, whole in zip(case.backward(last, weights, delta_y[SEQUENCE:])[: case.inputs], apart, strict=False):
            np.testing.assert_array_equal(part, whole[SEQUENCE:])
    in_place = case.backward(inputs, weights, delta_y, dropout=dropout, delta_x=delta_y)
    for actual, expected in zip(in_place, apart, strict=True):
        np.testing.assert_array_equal(actual, expected)
    for place in range(case.inputs if case.kind in IN_PLACE else 0):
        here = [x.copy() for x in inputs]
        np.testing.assert_array_equal(case.forward(here, weights, dropout=dropout, y=here[place]), y)


@every_case
@with_and_without_dropout
def test_nan_comes_out(case, dropout, rng):
    for place in range(case.inputs):
        inputs, weights, _ = case.arrays(rng)
        inputs[place][3, 50] = np.nan
        _assert_spoilt(case, case.forward(inputs, weights, dropout=dropout))
    for place in range(len(case.weights)):
        inputs, weights, _ = case.arrays(rng)
        # A weight may be that of each head.
        width = weights[place].shape[-1]
        weights[place][..., 50 % width] = np.nan
        y = case.forward(inputs, weights, dropout=dropout)
        np.testing.assert_array_equal(np.isnan(y).all(axis=0), np.arange(WIDTH) % width == 50 % width)
    for x_there in (1.0, -1.0):
        inputs, weights, delta_y = case.arrays(rng)
        inputs[-1][3, 50], delta_y[3, 50] = x_there, np.nan
        deltas = case.backward(inputs, weights, delta_y, dropout=dropout)
        _assert_spoilt(case, deltas[0])
        for gradient in deltas[case.inputs :]:
            width = gradient.shape[-1]
            spoilt = np.isnan(gradient).reshape(-1, width).any(axis=0)
            np.testing.assert_array_equal(np.flatnonzero(spoilt), [50 % width])
    if not rules_of(Op(case.kind, "", (), ())).reads_inputs or case.attributes.get("function") == "linear":
        return
    for place in range(case.inputs):
        inputs, weights, delta_y = case.arrays(rng)
        inputs[place][3, 50] = np.nan
        # What a gate multiplies does not depend on it but through the gate.
        _assert_spoilt(case, case.backward(inputs, weights, delta_y, dropout=dropout)[case.inputs - 1])


def _assert_spoilt(case: Case, array: np.ndarray) -> None:
    """Look for NaN at token 3, element 50, and only there, or only in this token where others depend on it."""
    spoilt = np.isnan(array)
    assert spoilt[3, 50]
    assert spoilt.sum() == (spoilt[3].sum() if case.kind in WHOLE_ROWS else 1)
