"""The losses of pairs, and the cross entropies that they are made of, against the formulas one pair at a time."""

import math

import numpy as np
import pytest

from cstool.model.ir import OpKind
from cstool.training.kernels.call import Call, sum_losses
from cstool.training.kernels.preference import (
    masked_loss_backward,
    masked_loss_forward,
    pair_loss,
    preference_loss_backward,
    preference_loss_forward,
    unpaired_loss_backward,
    unpaired_loss_forward,
)
from cstool.training.kernels.table import KERNELS
from tests.reference import kernels as reference
from tests.unit.training.kernels.calls import make_call
from tests.unit.training.kernels.tolerances import assert_close, assert_derivative

PAIRS, LENGTH, BETA, PENALTY, SCALE = 5, 7, 0.3, 0.8, 0.25
KINDS = ("sigmoid", "hinge", "ipo", "dpop", "orpo")
every_kind = pytest.mark.parametrize("kind", KINDS)
with_and_without = pytest.mark.parametrize("has_reference", [True, False], ids=["reference", "none"])


class Case:
    """Cross entropies of pairs, of which one token in four does not count."""

    def __init__(self, dtype: type, rng: np.random.Generator) -> None:
        shape = (PAIRS, 2, LENGTH)
        self.policy, self.reference = (rng.random(shape).astype(dtype) * 3 for _ in range(2))
        self.counts = (rng.random(shape) < 0.75).astype(dtype)
        self.counts[:, :, 0] = 1
        self.pairs = np.ones(PAIRS, dtype)

    def call(self, kind: str, *, has_reference: bool) -> Call:
        flat = [array.reshape(-1) for array in (self.policy, self.counts)]
        inputs = [*flat, self.pairs, *([self.reference.reshape(-1)] if has_reference else [])]
        y, more = np.full(PAIRS, np.nan, self.policy.dtype), {"loss_type": kind, "beta": BETA, "penalty": PENALTY}
        call = make_call(OpKind.PREFERENCE_LOSS, inputs, y=y, of_call={"scale": SCALE}, **more)
        preference_loss_forward(call)
        return call

    def expected(self, kind: str, *, has_reference: bool) -> np.ndarray:
        """(B, 3): loss and rewards of each pair."""
        policy, counts, other = (array.astype(np.float64) for array in (self.policy, self.counts, self.reference))
        given = kind, policy, counts, other if has_reference else None
        return np.array(reference.preference_losses(*given, beta=BETA, penalty=PENALTY))


@every_kind
@with_and_without
def test_losses_are_those_of_the_formula_and_deltas_their_slope(kind, has_reference, dtype, rng):
    has_reference = has_reference and kind != "orpo"
    case = Case(dtype, rng)
    call = case.call(kind, has_reference=has_reference)
    expected = case.expected(kind, has_reference=has_reference)
    assert_close(call.outputs[0], expected[:, 0])
    assert call.loss.total == pytest.approx(expected[:, 0].sum(), rel=1e-12)
    assert call.loss.correct == int((expected[:, 1] > expected[:, 2]).sum())
    *rewards, _, _ = call.loss.extras
    told = [expected[:, 1].sum(), expected[:, 2].sum(), (expected[:, 1] - expected[:, 2]).sum()]
    assert rewards == pytest.approx(told if has_reference else [], rel=1e-12)
    if dtype == np.float32:
        return
    preference_loss_backward(call)
    before, delta = case.policy, call.delta_x(0).reshape(case.policy.shape)

    def losses(at: np.ndarray) -> np.ndarray:
        case.policy = at
        return case.call(kind, has_reference=has_reference).outputs[0]

    assert_derivative(losses, before, delta, np.full(PAIRS, SCALE))


@every_kind
def test_what_does_not_count_changes_nothing(kind, rng):
    """Neither a token that is masked, whatever its cross entropy, nor a pair."""
    case = Case(np.float32, rng)
    case.pairs[2] = 0
    clean = case.call(kind, has_reference=True)
    case.policy[case.counts == 0] = np.inf
    case.reference[case.counts == 0] = np.nan
    case.policy[2], case.reference[2], case.counts[2] = 1e3, 2e3, 1
    found = case.call(kind, has_reference=True)
    assert found.loss == clean.loss
    preference_loss_backward(found)
    delta = found.delta_x(0).reshape(case.policy.shape)
    assert not delta[2].any()
    assert not delta[case.counts == 0].any()


def test_a_policy_that_is_its_reference_has_the_loss_of_no_preference(rng):
    case = Case(np.float32, rng)
    case.reference = case.policy
    expected = {"sigmoid": math.log(2), "hinge": 1.0, "ipo": 1 / (2 * BETA) ** 2, "dpop": math.log(2)}
    for kind, loss in expected.items():
        call = case.call(kind, has_reference=True)
        assert call.outputs[0].tolist() == [np.float32(loss)] * PAIRS
        assert call.loss.correct == 0


def test_margins_of_any_size_have_a_loss():
    far = np.array([[1e4, 0.0], [0.0, 1e4]])
    found = pair_loss("sigmoid", far, np.zeros_like(far), 1.0, 0.0)
    assert found.loss.tolist() == [0.0, 1e4]
    assert found.by_chosen.tolist() == [0.0, -1.0]


def test_extras_are_summed_over_grains(rng):
    case = Case(np.float32, rng)
    found = case.call("sigmoid", has_reference=True).loss
    [both] = sum_losses([(found,), (found,)])
    assert both.extras == tuple(2 * each for each in found.extras)


def token_loss(kind: OpKind, inputs: list[np.ndarray], weight: np.ndarray, delta_y: np.ndarray | None) -> Call:
    call = make_call(kind, inputs, [weight], delta_y=delta_y, logits_scale=1.0, logits_softcap=None)
    call.outputs = (np.full(len(inputs[0]), np.nan, inputs[0].dtype),)
    call.start, call.stop, call.scale = 0, len(weight), 1.0
    call.scratch = lambda _, shape: np.empty(shape, inputs[0].dtype)
    KERNELS[kind].forward(call)
    KERNELS[kind].backward(call)
    return call


def test_a_token_loss_is_the_softmax_loss_without_its_mask_whose_tokens_have_deltas_of_their_own(rng):
    x, weight = rng.standard_normal((9, 6)), rng.standard_normal((20, 6))
    labels, delta = rng.integers(0, 20, 9).astype(np.int32), rng.random(9)
    narrow, matrix, mask = (array.astype(np.float32) for array in (x, weight, delta))
    ours = token_loss(OpKind.TOKEN_LOSS, [narrow, labels], matrix, mask)
    theirs = token_loss(OpKind.SOFTMAX_LOSS, [narrow, labels, mask], matrix, None)
    assert ours.loss is None
    for mine, other in ((ours.outputs[0], theirs.outputs[0]), (ours.delta_x(0), theirs.delta_x(0))):
        np.testing.assert_array_equal(mine, other)
    np.testing.assert_array_equal(ours.grad(0), theirs.grad(0))

    def losses(at: np.ndarray) -> np.ndarray:
        return token_loss(OpKind.TOKEN_LOSS, [at, labels], weight, delta).outputs[0]

    assert_derivative(losses, x, token_loss(OpKind.TOKEN_LOSS, [x, labels], weight, delta).delta_x(0), delta)


def test_a_masked_loss_is_of_the_tokens_that_count_alone(dtype):
    entropies = np.array([1.5, np.nan, 0.25, np.inf], dtype)
    call = make_call(
        OpKind.MASKED_LOSS,
        [entropies, np.array([1, 0, 1, 0], dtype)],
        y=np.full(4, np.nan, dtype),
        of_call={"scale": SCALE},
    )
    masked_loss_forward(call)
    masked_loss_backward(call)
    assert call.outputs[0].tolist() == [1.5, 0.0, 0.25, 0.0]
    assert (call.loss.total, call.loss.correct) == (1.75, 0)
    assert call.delta_x(0).tolist() == [SCALE, 0.0, SCALE, 0.0]


def test_losses_of_labelled_answers_are_those_of_the_formula_and_deltas_their_slope(rng):
    """One sample does not count; mismatched answers have no deltas, nor has what they say of the whole batch."""
    case, good, weights = Case(np.float64, rng), np.array([1.0, 0, 1, 1, 0]), (0.8, 1.5)
    case.pairs[3] = 0
    case.reference[:, 1] += 0.5

    def call() -> Call:
        flat = [array.reshape(-1) for array in (case.policy, case.counts)]
        inputs = [*flat, case.pairs, good, case.reference.reshape(-1)]
        more = {"beta": BETA, "desirable_weight": weights[0], "undesirable_weight": weights[1]}
        found = make_call(OpKind.UNPAIRED_LOSS, inputs, y=np.full(PAIRS, np.nan), of_call={"scale": SCALE}, **more)
        unpaired_loss_forward(found)
        return found

    found = call()
    given = case.policy, case.counts, case.pairs, good, case.reference, weights, BETA
    assert_close(found.outputs[0], np.array(reference.unpaired_losses(*given)))
    ratios = ((case.reference - case.policy) * case.counts).sum(axis=2)
    limit = max(0.0, ratios[case.pairs == 1, 1].mean())
    assert limit > 0
    assert found.loss.extras == pytest.approx((4 * limit,), rel=1e-12)
    unpaired_loss_backward(found)
    delta = found.delta_x(0).reshape(case.policy.shape)
    assert not delta[:, 1].any()
    assert not delta[3].any()

    def losses(at: np.ndarray) -> np.ndarray:
        case.policy = np.stack([at, mismatched], axis=1)
        return call().outputs[0]

    mismatched = case.policy[:, 1]
    assert_derivative(losses, case.policy[:, 0], delta[:, 0], np.full(PAIRS, SCALE))
