"""The losses of pairs, and the cross entropies that they are made of, against the formulas one pair at a time."""

import math

import numpy as np
import pytest

from cstool.ir import OpKind
from cstool.kernels.call import Call, sum_losses
from cstool.kernels.loss import (
    softmax_loss_backward,
    softmax_loss_forward,
    token_loss_backward,
    token_loss_forward,
)
from cstool.kernels.preference import pair_loss, preference_loss_backward, preference_loss_forward
from tests.reference import kernels as reference
from tests.unit.kernels.calls import make_call
from tests.unit.kernels.tolerances import assert_close, assert_derivative

PAIRS, LENGTH, BETA, PENALTY, SCALE = 5, 7, 0.3, 0.8, 0.25
KINDS = ("sigmoid", "hinge", "ipo", "dpop")
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
        """Return the call after forward."""
        flat = [array.reshape(-1) for array in (self.policy, self.counts)]
        inputs = [*flat, self.pairs, *([self.reference.reshape(-1)] if has_reference else [])]
        of_call = {"scale": SCALE}
        call = make_call(
            OpKind.PREFERENCE_LOSS,
            inputs,
            y=np.full(PAIRS, np.nan, self.policy.dtype),
            of_call=of_call,
            loss_type=kind,
            beta=BETA,
            penalty=PENALTY,
        )
        preference_loss_forward(call)
        return call

    def expected(self, kind: str, *, has_reference: bool) -> np.ndarray:
        """(B, 3): loss and rewards of each pair."""
        wide = (array.astype(np.float64) for array in (self.policy, self.counts, self.reference))
        policy, counts, other = wide
        found = reference.preference_losses(
            kind, policy, counts, other if has_reference else None, beta=BETA, penalty=PENALTY
        )
        return np.array(found)


@every_kind
@with_and_without
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_forward(kind, has_reference, dtype, rng):
    case = Case(dtype, rng)
    call = case.call(kind, has_reference=has_reference)
    expected = case.expected(kind, has_reference=has_reference)
    assert_close(call.outputs[0], expected[:, 0])
    assert call.loss is not None
    assert call.loss.total == pytest.approx(expected[:, 0].sum(), rel=1e-12)
    assert call.loss.correct == int((expected[:, 1] > expected[:, 2]).sum())
    *rewards, _, _ = call.loss.extras
    told = [expected[:, 1].sum(), expected[:, 2].sum(), (expected[:, 1] - expected[:, 2]).sum()]
    assert rewards == pytest.approx(told if has_reference else [], rel=1e-12)


@every_kind
@with_and_without
def test_backward_is_the_slope_of_forward(kind, has_reference, rng):
    case = Case(np.float64, rng)
    call = case.call(kind, has_reference=has_reference)
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
        assert call.loss is not None
        assert call.loss.correct == 0


def test_margins_of_any_size_have_a_loss():
    far = np.array([[1e4, 0.0], [0.0, 1e4]])
    found = pair_loss("sigmoid", far, np.zeros_like(far), 1.0, 0.0)
    assert found.loss.tolist() == [0.0, 1e4]
    assert found.by_chosen.tolist() == [0.0, -1.0]


def test_extras_are_summed_over_grains(rng):
    case = Case(np.float32, rng)
    found = case.call("sigmoid", has_reference=True).loss
    assert found is not None
    [both] = sum_losses([(found,), (found,)])
    assert both.extras == tuple(2 * each for each in found.extras)


class TestTokenLoss:
    """It is the softmax loss without its mask, whose tokens have deltas of their own."""

    def call(self, kind: OpKind, inputs: list[np.ndarray], weight: np.ndarray, delta_y: np.ndarray | None) -> Call:
        call = make_call(kind, inputs, [weight], delta_y=delta_y, logits_scale=1.0, logits_softcap=None)
        call.outputs = (np.full(len(inputs[0]), np.nan, inputs[0].dtype),)
        call.start, call.stop, call.scale = 0, len(weight), 1.0
        call.scratch = lambda _, shape: np.empty(shape, inputs[0].dtype)
        return call

    def test_both_have_the_same_bits(self, rng):
        x, weight = rng.standard_normal((9, 6)).astype(np.float32), rng.standard_normal((20, 6)).astype(np.float32)
        labels, delta = rng.integers(0, 20, 9).astype(np.int32), rng.random(9).astype(np.float32)
        ours = self.call(OpKind.TOKEN_LOSS, [x, labels], weight, delta)
        theirs = self.call(OpKind.SOFTMAX_LOSS, [x, labels, delta], weight, None)
        token_loss_forward(ours)
        softmax_loss_forward(theirs)
        token_loss_backward(ours)
        softmax_loss_backward(theirs)
        assert ours.loss is None
        np.testing.assert_array_equal(ours.outputs[0], theirs.outputs[0])
        np.testing.assert_array_equal(ours.delta_x(0), theirs.delta_x(0))
        np.testing.assert_array_equal(ours.grad(0), theirs.grad(0))

    def test_backward_is_the_slope_of_forward(self, rng):
        x, weight = rng.standard_normal((9, 6)), rng.standard_normal((20, 6))
        labels, delta = rng.integers(0, 20, 9).astype(np.int32), rng.standard_normal(9)

        def losses(at: np.ndarray) -> np.ndarray:
            call = self.call(OpKind.TOKEN_LOSS, [at, labels], weight, delta)
            token_loss_forward(call)
            return call.outputs[0]

        call = self.call(OpKind.TOKEN_LOSS, [x, labels], weight, delta)
        token_loss_forward(call)
        token_loss_backward(call)
        assert_derivative(losses, x, call.delta_x(0), delta)
