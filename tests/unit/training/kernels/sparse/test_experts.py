"""Matrices of experts: product, delta and gradient of the tokens that chose each, against a slow twin."""

from typing import NamedTuple

import numpy as np
import pytest

from cstool.model.ir import Panel
from cstool.training.kernels import mixture
from cstool.training.kernels.bfloat16 import BFLOAT16, narrowed, widened
from cstool.training.kernels.call import Array, Call, Rows
from cstool.training.kernels.gemm import NUMPY
from cstool.training.kernels.gemm_providers import EMULATED
from cstool.training.kernels.sparse import KernelChoice, SparseMatrix, collect, make_pattern
from tests.reference import mixture as reference

EXPERTS, CHOSEN, INPUTS, OUTPUTS = 5, 2, 9, 7
IDLE, LONELY = 2, 4
"""experts without tokens, and with a single one"""
SPARSE, DENSE = KernelChoice(True, True, True), KernelChoice(False, False, False)
FORMS: dict[str, tuple[KernelChoice | None, bool]] = {
    "sparse kernels": (SPARSE, False),
    "dense kernels": (DENSE, False),
    "sparse kernels, gradients of zeros": (SPARSE, True),
    "dense kernels, gradients of zeros": (DENSE, True),
    "arrays": (None, True),
}
"""kernels of a sparse matrix, or none where it is an array; whether zeros have a gradient, too"""


class Case(NamedTuple):
    """A layer of experts, its rows by token as the slow twin has them."""

    choices: Array
    x: Array
    delta_y: Array
    matrices: list[Array]
    biases: list[Array]
    order: Array
    """of the rows by expert, which row by token each is"""


def make_case(tokens: int) -> Case:
    rng = np.random.default_rng(tokens)
    others = [expert for expert in range(EXPERTS) if expert not in (IDLE, LONELY)]
    choices = np.array([rng.permutation(others)[:CHOSEN] for _ in range(tokens)], np.int32)
    choices[tokens // 2, 1] = LONELY
    x, delta_y = (rng.standard_normal((tokens, CHOSEN * width)).astype(np.float32) for width in (INPUTS, OUTPUTS))
    masks = rng.random((EXPERTS, OUTPUTS, INPUTS)) < 0.3
    matrices = [np.where(mask, rng.standard_normal(mask.shape), 0).astype(np.float32) for mask in masks]
    biases = [rng.standard_normal(OUTPUTS).astype(np.float32) for _ in range(EXPERTS)]
    return Case(choices, x, delta_y, matrices, biases, np.argsort(choices.reshape(-1), kind="stable"))


def by_expert(case: Case, array: Array) -> Array:
    """Rows by token as rows by expert, both (T, k * width)."""
    return array.reshape(case.choices.size, -1)[case.order].reshape(array.shape)


def by_token(case: Case, array: Array) -> Array:
    """The way back."""
    found = np.empty_like(array.reshape(case.choices.size, -1))
    found[case.order] = array.reshape(case.choices.size, -1)
    return found.reshape(array.shape)


class Run(NamedTuple):
    """What the kernels make of a case, rows by token; `gradients` of each panel."""

    y: Array
    delta_x: Array
    gradients: dict[Panel, Array | Rows]
    grad_biases: list[Array]
    panels: dict[Panel, SparseMatrix | Array]


def run(case, choice, dense_gradient=False, *, cut=OUTPUTS, narrow=False):
    """Run a layer whose matrices, arrays without a choice, have a panel of `cut` rows, and one of the others."""
    names = tuple(str(expert) for expert in range(EXPERTS))
    precise = narrowed if narrow else np.copy
    panels = {}
    for name, matrix in zip(names, case.matrices, strict=True):
        for index, (start, stop) in enumerate(((0, cut), (cut, OUTPUTS))):
            if start < stop:
                rows = matrix[start:stop]
                panel = Panel(name, index, start, stop, rows.shape)
                if choice is None:
                    panels[panel] = precise(rows)
                    continue
                pattern, places = make_pattern(np.flatnonzero(rows), rows.shape)
                values = precise(rows.reshape(-1)[np.flatnonzero(rows)][places][None])[0]
                lend = lambda shape, _room, dtype: np.empty(shape, dtype)  # noqa: E731
                panels[panel] = SparseMatrix(pattern, values, choice, dense_gradient, pattern.count, lend)
    x, delta_y = precise(by_expert(case, case.x)), by_expert(case, case.delta_y)
    y, delta_x = np.full(delta_y.shape, np.nan, np.float32), np.full(x.shape, np.nan, np.float32)
    call = Call(
        {"experts": EXPERTS}, 1, (x, case.choices), (y,), {}, gemm=EMULATED if narrow else NUMPY, matrices=names
    )
    for panel, held in panels.items():
        call.hold([held, *case.biases], panel, False, False)
        mixture.expert_linear_forward(call)
    call.delta_outputs, call.delta_inputs, call.accumulate = (delta_y,), (delta_x, None), (False,)
    gradients, grad_biases = {}, [np.full(OUTPUTS, np.nan, np.float32) for _ in range(EXPERTS)]
    for panel, held in reversed(panels.items()):
        call.hold([held, *case.biases], panel, False, False)
        call.gradients = [
            np.full(panel.shape if choice is None else held.gradient_shape, np.nan, np.float32),
            *grad_biases,
        ]
        mixture.expert_linear_backward(call)
        gradients[panel] = call.gradients[0]
    return Run(by_token(case, y), by_token(case, delta_x), gradients, grad_biases, panels)


def losses(case: Case, x: Array, matrices: list[Array], biases: list[Array]) -> Array:
    """What has `delta_y` as the delta of the outputs, token by token, by the slow twin in float64."""
    return np.sum(case.delta_y * reference.expert_linear(x, case.choices, matrices, biases), axis=1)


def slopes(case: Case, of: Array) -> Array:
    """Central differences of the loss by the numbers of an array of the case; those of all tokens of x at once."""
    exact = [case.x.astype(np.float64), *(a.astype(np.float64) for a in (*case.matrices, *case.biases))]
    changed = exact[next(i for i, a in enumerate([case.x, *case.matrices, *case.biases]) if a is of)]
    found, step = np.zeros(of.shape), 2.0**-3  # of a linear function any step is exact
    by_token = of is case.x
    for place in np.ndindex(of.shape[1:] if by_token else of.shape):
        here, ends = (slice(None), *place) if by_token else place, []
        for sign in (1, -1):
            changed[here] += sign * step
            ends.append(losses(case, exact[0], exact[1 : 1 + EXPERTS], exact[1 + EXPERTS :]))
            changed[here] -= sign * step
        difference = (ends[0] - ends[1]) / (2 * step)
        found[here] = difference if by_token else difference.sum()
    return found


def close(found: Array, expected: Array, tokens: int) -> None:
    """Sums of at most so many terms, each of the size of a few."""
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * max(10, tokens))


@pytest.mark.parametrize("tokens", [1, 6, 100])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [OUTPUTS, 3])
def test_outputs_are_those_of_the_slow_twin_and_slopes_those_of_its_differences(tokens, form, cut):
    case, (choice, of_zeros) = make_case(tokens), FORMS[form]
    found = run(case, choice, of_zeros, cut=cut)
    exact = [array.astype(np.float64) for array in case.matrices]
    close(found.y, reference.expert_linear(case.x.astype(np.float64), case.choices, exact, case.biases), tokens)
    close(found.delta_x, slopes(case, case.x), tokens)
    for expert, bias in enumerate(case.biases):
        close(found.grad_biases[expert], slopes(case, bias), tokens)
    by_expert = [slopes(case, matrix) for matrix in case.matrices]
    for panel, gradient in found.gradients.items():
        expected = by_expert[int(panel.weight)][panel.start : panel.stop]
        has_tokens = bool(np.any(case.choices == int(panel.weight)))
        assert isinstance(gradient, Rows) != has_tokens
        if not has_tokens:
            assert (len(gradient.indices), gradient.values.shape) == (0, (0, INPUTS))
            assert not np.any(expected)
        elif of_zeros:
            close(gradient, expected, tokens)
        else:
            pattern = found.panels[panel].pattern
            of_panel = np.empty(pattern.count, np.float32)
            collect(pattern, expected.astype(np.float32), of_panel)
            close(gradient, of_panel, tokens)


def test_products_of_bfloat16_are_those_of_the_rounded_numbers():
    case = make_case(6)
    rounded = [widened(narrowed(array)) for array in (case.x, case.delta_y, *case.matrices)]
    wide = case._replace(x=rounded[0], delta_y=rounded[1], matrices=rounded[2:])
    for choice in (SPARSE, DENSE, None):
        found, expected = run(case, choice, narrow=True), run(wide, choice)
        assert next(iter(found.panels.values())).dtype == BFLOAT16
        close(found.y, expected.y, 6)
        close(found.delta_x, expected.delta_x, 6)
        for panel, gradient in found.gradients.items():
            if not isinstance(gradient, Rows):
                close(gradient, expected.gradients[panel], 6)


def test_a_panel_that_nobody_needs_is_not_looked_at():
    case, names = make_case(6), tuple(str(expert) for expert in range(EXPERTS))
    y, delta_x = np.empty((6, CHOSEN * OUTPUTS), np.float32), np.empty((6, CHOSEN * INPUTS), np.float32)
    call = Call({"experts": EXPERTS}, 1, (case.x, case.choices), (y,), {}, matrices=names)
    call.delta_outputs, call.delta_inputs, call.accumulate = (case.delta_y,), (delta_x, None), (False,)
    call.hold([np.empty((0, 0), np.float32)], Panel(str(IDLE), 0, 0, OUTPUTS, (OUTPUTS, INPUTS)), True, True)
    call.gradients = [None]
    mixture.expert_linear_forward(call)
    mixture.expert_linear_backward(call)
    assert isinstance(call.gradients[0], Rows)
