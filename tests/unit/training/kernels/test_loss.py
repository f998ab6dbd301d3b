"""The output layer with its loss, by panels and chunks, against all logits at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.ir import OpKind
from cstool.training.kernels import loss
from cstool.training.kernels.bfloat16 import narrowed
from cstool.training.kernels.call import Call
from cstool.training.kernels.gemm_providers import EMULATED
from cstool.training.kernels.loss import softmax_loss_backward, softmax_loss_forward
from tests.examples import examples
from tests.reference import kernels as reference
from tests.unit.training.kernels.calls import make_call
from tests.unit.training.kernels.conftest import lender
from tests.unit.training.kernels.tolerances import Scratch, assert_close, assert_derivative

TOKENS, HIDDEN, CLASSES, SCALE = 9, 12, 40, 0.125
PANELS = [0, 7, 8, 25, 40]

Bend = tuple[float, float | None, float]
"""scale and softcap of the logits, and the share by which labels are smoothed"""

BENDS: dict[str, Bend] = {
    "plain": (1.0, None, 0.0),
    "scaled": (0.35, None, 0.0),
    "opposite": (-0.7, None, 0.0),
    "capped": (1.0, 6.0, 0.0),
    "scaled and capped": (0.35, 2.5, 0.0),
    "smoothed": (1.0, None, 0.1),
    "smoothed, scaled and capped": (0.35, 2.5, 0.6),
}

every_bend = pytest.mark.parametrize("bend", BENDS.values(), ids=BENDS)


class Case:
    """Inputs of the loss, and the loss by panels."""

    def __init__(self, dtype, with_bias, rng, bend=(1.0, None, 0.0)):
        self.bend = bend
        self.x = rng.standard_normal((TOKENS, HIDDEN)).astype(dtype)
        self.weight = rng.standard_normal((CLASSES, HIDDEN)).astype(dtype)
        self.bias = rng.standard_normal(CLASSES).astype(dtype) if with_bias else None
        self.labels = rng.integers(0, CLASSES, TOKENS).astype(np.int32)
        self.mask = np.array([1, 1, 0, 1, 1, 1, 0, 1, 1], np.float32)

    def wide(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
        bias = None if self.bias is None else self.bias.astype(np.float64)
        return self.x.astype(np.float64), self.weight.astype(np.float64), bias, self.labels

    def call(self, scratch: Scratch, edges: list[int], **more: Any) -> Call:
        """Return the call after forward, panel by panel."""
        given = [self.x, self.labels, self.mask], [self.weight, self.bias]
        scale, cap, smoothing = self.bend
        gradients = [np.full(self.weight.shape, np.nan, self.x.dtype), np.full(CLASSES, np.nan, self.x.dtype)]
        of_call = {"scratch": scratch, "scale": SCALE, "gradients": gradients, **more}
        sequence = of_call.pop("sequence", 1)
        bend = {"logits_scale": scale, "logits_softcap": cap}
        bend |= {"label_smoothing": smoothing, "classes": CLASSES, "tallies": True}
        call = make_call(OpKind.SOFTMAX_LOSS, *given, sequence=sequence, of_call=of_call, **bend)
        self._by_panels(softmax_loss_forward, call, edges)
        return call

    def _by_panels(self, function: Callable[[Call], None], call: Call, edges: list[int]) -> None:
        weight, gradients = self.weight, call.gradients
        for call.start, call.stop in zip(edges, edges[1:], strict=False):
            rows = slice(call.start, call.stop)
            call.weights, call.gradients = [weight[rows], self.bias], [gradients[0][rows], *gradients[1:]]
            call.first, call.last = call.start == 0, call.stop == CLASSES
            function(call)
        call.gradients = gradients

    def forward(self, scratch: Scratch, edges: list[int]) -> tuple[np.ndarray, float, int, np.ndarray]:
        """Return the loss per token, the total, the number of correct tokens and the state."""
        call = self.call(scratch, edges)
        np.testing.assert_array_equal(call.loss.total, np.sum(call.outputs[0].astype(np.float64) * self.mask))
        likeliest = call.kept["state"][-1] == self.labels
        assert call.loss.correct == np.count_nonzero(likeliest & (self.mask != 0))
        return call.outputs[0], call.loss.total, call.loss.correct, call.kept["state"]

    def backward(self, scratch: Scratch, edges: list[int], **more: Any) -> list[np.ndarray]:
        """Return the delta of x, and the gradients of weight and bias."""
        call = self.call(scratch, edges, **more)
        self._by_panels(softmax_loss_backward, call, edges)
        return [call.delta_inputs[0], *call.gradients]


@pytest.fixture(params=[2048, 5], ids=["one chunk", "chunks"])
def _chunk_classes(request, monkeypatch):
    monkeypatch.setattr(loss, "CHUNK_CLASSES", request.param)


@pytest.fixture
def plain(rng) -> Case:
    return Case(np.dtype(np.float32), False, rng)


@pytest.mark.usefixtures("_chunk_classes")
@every_bend
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
def test_losses_and_deltas_are_those_of_the_twin(with_bias, bend, dtype, rng, scratch):
    case = Case(dtype, with_bias, rng, bend)
    deltas = reference.softmax_loss_deltas(*case.wide(), case.mask, SCALE, *case.bend)
    for edges in ([0, CLASSES], PANELS):
        assert_close(case.forward(scratch, edges)[0], reference.softmax_losses(*case.wide(), *case.bend))
        for actual, array in zip(case.backward(scratch, edges), deltas, strict=True):
            assert_close(actual, array)


def test_total_and_correct_are_those_of_unmasked_tokens(plain, scratch32):
    best = np.argmax(plain.x @ plain.weight.T, axis=1)
    plain.labels[:] = best
    plain.labels[4] = (best[4] + 1) % CLASSES
    per_token, total, correct, _ = plain.forward(scratch32, PANELS)
    assert total == sum(float(value) for value, counts in zip(per_token, plain.mask, strict=True) if counts)
    assert correct == plain.mask.sum() - 1
    delta_x, _, _ = plain.backward(scratch32, PANELS)
    np.testing.assert_array_equal((delta_x == 0.0).all(axis=1), plain.mask == 0)
    plain.bend = (1.0, 20.0, 0.0)  # under a cap the likeliest stays the likeliest
    assert plain.forward(scratch32, PANELS)[2] == correct
    plain.bend = (1.0, None, 0.0)
    plain.labels[plain.mask == 0] = -100  # which is no class
    assert plain.forward(scratch32, PANELS)[1] == total


def test_of_equal_classes_the_first_is_the_likeliest(plain, scratch32):
    plain.x[:], plain.weight[:] = np.rint(plain.x), np.rint(plain.weight[0])  # whole numbers: logits without rounding
    plain.labels[:] = 0
    assert plain.forward(scratch32, PANELS)[2] == plain.mask.sum()


@every_bend
def test_backward_is_the_slope_of_forward(bend, rng, scratch64):
    case = Case(np.dtype(np.float64), True, rng, bend)
    deltas = case.backward(scratch64, PANELS)
    for name, delta in zip(("x", "weight", "bias"), deltas, strict=True):
        before = getattr(case, name)

        def losses(at: np.ndarray, name: str = name) -> np.ndarray:
            setattr(case, name, at)
            return case.forward(scratch64, PANELS)[0]

        assert_derivative(losses, before, delta, SCALE * case.mask)
        setattr(case, name, before)


@examples(30)
@given(
    cuts=st.sets(st.integers(1, CLASSES - 1), max_size=6),
    seed=st.integers(0, 99),
    bend=st.sampled_from(list(BENDS.values())),
)
def test_any_cut_in_panels_gives_the_loss_and_the_gradients_of_the_whole(cuts, seed, bend):
    case = Case(np.dtype(np.float32), True, np.random.default_rng(seed), bend)
    scratch = lender(np.dtype(np.float32))
    whole, parts = (
        [case.forward(scratch, edges)[0], *case.backward(scratch, edges)]
        for edges in ([0, CLASSES], [0, *sorted(cuts), CLASSES])
    )
    for actual, expected in zip(parts, whole, strict=True):
        assert_close(actual, expected.astype(np.float64))


@pytest.mark.usefixtures("_chunk_classes")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("edges", [[0, CLASSES], PANELS], ids=["one panel", "panels"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_kept_logits_give_the_bits_of_those_computed_again(plain, edges, smoothing, precision, scratch32):
    plain.bend = (1.0, None, smoothing)
    plain.bias = np.linspace(-1, 1, CLASSES, dtype=np.float32)
    more: dict[str, Any] = {}
    if precision == "bfloat16":
        more["gemm"] = EMULATED
        plain.weight = narrowed(plain.weight)
    again = plain.backward(scratch32, edges, **more)
    logits = np.full((CLASSES, TOKENS), np.nan, np.float32)
    state = np.full((4, TOKENS), np.nan, np.float32)
    kept = plain.backward(scratch32, edges, kept={"state": state, "logits": logits}, **more)
    for one, other in zip(again, kept, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(logits).all()


def test_logits_are_not_computed_again_where_they_are_kept(plain, scratch32):
    """Backward of logits that somebody changed meanwhile is that of the changed ones."""
    kept = {"state": np.empty((4, TOKENS), np.float32), "logits": np.empty((CLASSES, TOKENS), np.float32)}
    call = plain.call(scratch32, [0, CLASSES], kept=kept)
    kept["logits"][:] = -np.inf
    softmax_loss_backward(call)
    expected = np.zeros((TOKENS, CLASSES), np.float32)
    expected[np.arange(TOKENS), plain.labels] = -SCALE * plain.mask
    assert_close(call.gradients[0], expected.astype(np.float64).T @ plain.x)


def test_delta_is_added_when_asked(plain, scratch32):
    alone = plain.backward(scratch32, [0, CLASSES])
    more = {"delta_inputs": (np.ones_like(plain.x),), "accumulate": (True,), "gradients": [np.empty_like(plain.weight)]}
    added, _ = plain.backward(scratch32, [0, CLASSES], **more)
    np.testing.assert_array_equal(added, 1.0 + alone[0])


@given(exponent=st.integers(-3, 3), seed=st.integers(0, 99))
def test_a_scale_does_to_the_loss_what_it_does_to_the_weights(exponent, seed):
    scaled = Case(np.dtype(np.float32), True, np.random.default_rng(seed), (2.0**exponent, None, 0.0))
    plain, scratch = Case(np.dtype(np.float32), True, np.random.default_rng(seed)), lender(np.dtype(np.float32))
    plain.weight, plain.bias = np.ldexp(plain.weight, exponent), np.ldexp(plain.bias, exponent)
    np.testing.assert_array_equal(scaled.forward(scratch, PANELS)[3], plain.forward(scratch, PANELS)[3])


@given(cap=st.floats(0.1, 50.0), seed=st.integers(0, 99))
def test_under_a_cap_no_loss_is_larger_than_the_cap_allows(cap, seed):
    case = Case(np.dtype(np.float64), True, np.random.default_rng(seed), (1.0, cap, 0.0))
    case.x *= 100.0
    losses = case.forward(lender(np.dtype(np.float64)), PANELS)[0]
    assert 0.0 <= losses.min() <= losses.max() <= (2.0 * cap + np.log(CLASSES)) * (1 + 1e-14)


@every_bend
def test_numbers_of_any_size_are_safe_and_nan_comes_out_without_a_warning(bend, rng, scratch32):
    def both(x: tuple[Any, float] = ((), 0.0), weight: tuple[Any, float] = ((), 0.0), size: float = 1.0) -> list[Any]:
        case = Case(np.dtype(np.float32), False, rng, bend)
        case.x *= size
        for array, (place, value) in ((case.x, x), (case.weight, weight)):
            if place:
                array[place] = value
        losses, total, _, _ = case.forward(scratch32, PANELS)
        return [total, losses, *case.backward(scratch32, PANELS)[:2]]

    assert all(np.isfinite(found).all() for found in both(size=1e4))
    for masked in (True, False):
        assert np.isnan(both(x=((2 if masked else 0, 3), np.nan))[0])
    for row in (0, 39):
        assert all(np.isnan(found).all() for found in both(weight=((row, 3), np.nan)))
    _, losses, delta_x, _ = both(x=((0, 0), 1e30), weight=((slice(None), 0), 1e30))
    assert np.isnan(losses[0])
    assert np.isnan(delta_x[0]).all()


def test_smoothed_labels_make_the_loss_of_the_vendor_which_evaluations_leave_as_it_is(rng, scratch64):
    """That of the label, and the mean of those of all classes."""
    share = 0.3
    case = Case(np.dtype(np.float64), True, rng, (1.0, None, share))
    plain = Case(np.dtype(np.float64), True, rng)
    plain.x, plain.weight, plain.bias, plain.labels = case.x, case.weight, case.bias, case.labels
    logits = case.x @ case.weight.T + case.bias
    by_class = np.log(np.exp(logits).sum(axis=1, keepdims=True)) - logits
    of_labels = by_class[np.arange(TOKENS), case.labels]
    expected = (1 - share) * of_labels + share * by_class.mean(axis=1)
    np.testing.assert_allclose(case.forward(scratch64, PANELS)[0], expected, rtol=1e-12)
    evaluated = case.call(scratch64, PANELS, evaluates=True)
    np.testing.assert_array_equal(evaluated.outputs[0], plain.forward(scratch64, PANELS)[0])


def test_where_scores_are_wanted_the_likeliest_classes_are_counted(plain, scratch32):
    """Panel by panel, in all tokens of samples of which some count; else nothing is."""
    plain.mask[:] = [1, 0, 0, 0, 0, 0, 1, 1, 1]
    best = np.argmax(plain.x @ plain.weight.T, axis=1)
    plain.labels[::2] = best[::2]
    assert plain.call(scratch32, PANELS).loss.tallies == ()
    call = plain.call(scratch32, PANELS, evaluates=True, sequence=3)
    there = [0, 1, 2, 6, 7, 8]
    rightly = [number for number in there if best[number] == plain.labels[number]]
    counted = [np.bincount(found, minlength=CLASSES) for found in (best[rightly], best[there], plain.labels[there])]
    assert call.loss.tallies == tuple(np.concatenate(counted))


def test_of_sentences_the_words_are_counted(rng, scratch32):
    """Two samples of three sentences; the likeliest class says which are chosen."""
    x = np.array([[1, 0], [0, 1], [1, 0], [0, 1], [0, 1], [1, 0]], np.float32)
    labels, mask = np.array([0, 1, 1, 1, 0, 0], np.int32), np.array([1, 1, 1, 1, 1, 0], np.float32)
    positions = np.array([0, 2, 4, 0, 1, 0], np.int32)
    words = np.array([-1, 0, -1, 1, -1, 2, 7, 7, -1, 8, 9, -1], np.int32)
    given = [x, labels, mask, positions, words], [np.eye(2, dtype=np.float32), None]
    of_call = {"stop": 2, "evaluates": True, "scratch": scratch32}
    attributes = {"logits_scale": 1.0, "logits_softcap": None, "tallies": True}
    call = make_call(OpKind.SOFTMAX_LOSS, *given, sequence=3, of_call=of_call, **attributes)
    softmax_loss_forward(call)
    # Chosen are "1", then "7" and "7 8 9"; to be chosen are "1 2", then "7".
    assert call.loss.tallies == (2, 0, 5, 3, 3, 1)
