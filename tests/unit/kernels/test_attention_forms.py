"""Attention beyond decoders: both directions, other tokens, segments, learned biases, chunks and columns."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.ir import OpKind
from cstool.kernels import attention, shared_gemm
from cstool.kernels.attention_form import Attention
from cstool.kernels.bfloat16 import BFLOAT16, narrowed, widened
from cstool.kernels.emulated import EMULATED
from cstool.kernels.gemm import NUMPY
from cstool.kernels.random import Dropout
from cstool.kernels.shared_gemm import SharedGemm
from tests.examples import examples
from tests.reference import kernels as reference
from tests.unit.kernels.calls import backward, forward
from tests.unit.kernels.conftest import lender
from tests.unit.kernels.tolerances import TOLERANCE, assert_close, assert_derivative

Array = np.ndarray
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
HEADS, WIDTH = 4, 4
SLOPES = (0.5, 0.25, 0.125, 0.7)
BOTH: dict[str, Any] = {"causal": False}
TABLE = {"buckets": 8, "max_distance": 12}

FORMS: dict[str, dict[str, Any]] = {
    "both directions": BOTH,
    "both directions, capped": {**BOTH, "softcap": 0.8},
    "both directions, alibi": {**BOTH, "slopes": SLOPES},
    "other tokens": {**BOTH, "keys": 23, "kv_heads": 2},
    "fewer other tokens": {**BOTH, "keys": 2},
    "padded": {**BOTH, "segments": "padded"},
    "other tokens, padded": {**BOTH, "keys": 17, "segments": "padded", "softcap": 0.8, "slopes": SLOPES},
    "packed": {**BOTH, "segments": "packed"},
    "packed, nobody's padding": {**BOTH, "segments": "ending"},
    "causal, packed, nobody's padding": {"segments": "ending"},
    "packed anyhow": {**BOTH, "segments": "mixed", "kv_heads": 1},
    "causal, padded": {"segments": "padded"},
    "causal, packed": {"segments": "packed", "kv_heads": 2},
    "causal, packed anyhow": {"segments": "mixed", "slopes": SLOPES},
    "window, packed": {"segments": "packed", "window": 4},
    "window and sinks, packed": {"segments": "packed", "window": 4, "sinks": 3},
    "table": {**BOTH, **TABLE},
    "table of one direction": {**TABLE, "bidirectional": False, "kv_heads": 2},
    "table, one direction of both": {**BOTH, **TABLE, "bidirectional": False},
    "table of other tokens, padded": {**BOTH, **TABLE, "keys": 19, "segments": "padded"},
    "table, packed": {**BOTH, **TABLE, "segments": "packed", "softcap": 0.8},
    "trained slopes": {"slope_scale": 0.7, "softcap": 0.8},
    "trained slopes, both directions": {**BOTH, "slope_scale": 1.0, "kv_heads": 1},
    "trained slopes and a table": {**BOTH, **TABLE, "slope_scale": 0.3, "keys": 13},
    "chunks": {"chunk": 4},
    "chunk of one": {"chunk": 1},
    "wide chunk": {"chunk": 100, "kv_heads": 2},
    "chunks, packed": {"chunk": 5, "segments": "packed"},
    "columns": {"columns": (5, 2), "window": 2},
    "columns wider than their spacing": {"columns": (3, 5), "window": 2},
    "columns and chunks": {"columns": (4, 1), "chunk": 4, "slope_scale": 1.0},
    "columns, sinks and packed": {"columns": (6, 1), "window": 3, "sinks": 2, "segments": "packed"},
}
in_every_form = pytest.mark.parametrize("keys", FORMS.values(), ids=FORMS.keys())
with_and_without_dropout = pytest.mark.parametrize("rate", [0.0, 0.25], ids=["keep", "drop"])


class Case(NamedTuple):
    """An op, and arrays for it."""

    form: Attention
    arrays: list[Array]
    """query, key, value and the delta of the context"""
    segments: list[Array]
    weights: list[Array]

    def forward(self, dropout: Dropout | None = None, **of_call: Any) -> list[Array]:
        """Return the context and the log of the sum of exp of scores."""
        return forward(OpKind.ATTENTION, *self._given(), **self._more(dropout, of_call))

    def backward(self, dropout: Dropout | None = None, **of_call: Any) -> list[Array]:
        """Return the deltas of query, key and value, and the gradients."""
        found = backward(OpKind.ATTENTION, *self._given(), self.arrays[3], **self._more(dropout, of_call))
        assert all(np.isnan(unwanted).all() for unwanted in found[3 : 3 + len(self.segments)])
        return [*found[:3], *found[3 + len(self.segments) :]]

    def _given(self) -> tuple[list[Array], list[Array]]:
        return [*self.arrays[:3], *self.segments], self.weights

    def _more(self, dropout: Dropout | None, of_call: dict[str, Any]) -> dict[str, Any]:
        of_call = {"dropout": dropout, "scratch": lender(self.arrays[3].dtype), **of_call}
        return {"sequence": self.form.sequence, **self.form._asdict(), "of_call": of_call}

    def expected(self, dropout: Dropout | None = None) -> tuple[list[Array], list[Array]]:
        """Return what the slow twin makes of it, forward and backward."""
        arrays, weights = ([x.astype(np.float64) for x in group] for group in (self.arrays, self.weights))
        others = self.form, dropout, self.segments, weights
        return [*reference.attention(*arrays[:3], *others)], reference.attention_deltas(*arrays, *others)

    def samples(self, *chosen: int) -> "Case":
        """The same op on some of its samples."""
        counts = (self.form.sequence, *(self.form.key_count,) * 2, self.form.sequence)
        of_segments = counts[1::-1]
        groups = zip((self.arrays, self.segments), (counts, of_segments), strict=True)
        arrays, segments = (
            [x.reshape(-1, count, *x.shape[1:])[list(chosen)].reshape(-1, *x.shape[1:]) for x, count in zip(*group)]  # noqa: B905
            for group in groups
        )
        return self._replace(arrays=arrays, segments=segments)


def case(keys: dict[str, Any], samples: int, sequence: int, rng: np.random.Generator, dtype: Any = FLOAT32) -> Case:
    """Return an op in some form, and random arrays."""
    keys = dict(keys)
    kind, kv_heads = keys.pop("segments", None), keys.pop("kv_heads", HEADS)
    form = Attention(HEADS, kv_heads, sequence, 0.3, **keys)
    shapes = (sequence, HEADS), (form.key_count, kv_heads), (form.key_count, kv_heads), (sequence, HEADS)
    arrays = [rng.standard_normal((samples * tokens, heads * WIDTH)).astype(dtype) for tokens, heads in shapes]
    weights = [rng.standard_normal((form.buckets, HEADS)).astype(dtype)] if form.buckets else []
    weights += [rng.standard_normal((HEADS, 1)).astype(dtype)] if form.slope_scale is not None else []
    return Case(form, arrays, [] if kind is None else segments_of(kind, samples, form, rng), weights)


def segments_of(kind: str, samples: int, form: Attention, rng: np.random.Generator) -> list[Array]:
    """Return segments: real tokens, then padding; runs, of queries as of keys, perhaps then nobody's; any numbers."""
    count = form.key_count
    if kind == "padded":
        real = rng.integers(0, count + 1, samples)
        return [(np.arange(count) < real[:, None]).astype(np.int32).reshape(-1)]
    numbers = rng.integers(0, 3, (samples, max(count, form.sequence)))
    if kind in ("packed", "ending"):
        numbers = np.cumsum(numbers == 0, axis=1)
    if kind == "ending":
        numbers[:, -(count // 3) :] = -1
    return [np.ascontiguousarray(numbers[:, :n]).astype(np.int32).reshape(-1) for n in (count, form.sequence)]


def dropout_of(rate: float, form: Attention) -> Dropout | None:
    return Dropout(rate, (5, 6), 7, 8, form.sequence) if rate else None


# Samples, S, rows of a block, scores per call.
CUTS = {
    "one token": (3, 1, 128, 10_000),
    "one block": (2, 9, 128, 10_000),
    "unequal blocks": (2, 11, 4, 10_000),
    "one pair per call": (2, 11, 4, 1),
    "three heads per call": (2, 21, 8, 500),
}


@pytest.fixture(params=CUTS.values(), ids=CUTS.keys())
def shape(request, monkeypatch) -> tuple[int, int]:
    """Return samples and tokens, with blocks that cut them."""
    samples, sequence, block_rows, scores_per_call = request.param
    monkeypatch.setattr(attention, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(attention, "SCORES_PER_CALL", scores_per_call)
    return samples, sequence


def assert_as_expected(found: list[Array], expected: list[Array]) -> None:
    """Compare with the slow twin. Deltas may be 0 up to rounding where what is summed up for them is not."""
    largest = max(1.0, *(np.abs(array[np.isfinite(array)]).max(initial=0.0) for array in expected))
    for actual, array in zip(found, expected, strict=True):
        finite = np.isfinite(array)
        np.testing.assert_array_equal(actual[~finite], array[~finite])
        assert_close(actual[finite], array[finite], largest) if finite.any() else None


@in_every_form
@with_and_without_dropout
def test_it_is_what_its_slow_twin_is(shape, keys, rate, dtype, rng):
    given_case = case(keys, *shape, rng, dtype)
    dropout = dropout_of(rate, given_case.form)
    ahead, back = given_case.expected(dropout)
    assert_as_expected(given_case.forward(dropout), ahead)
    assert_as_expected(given_case.backward(dropout), back)


@in_every_form
@with_and_without_dropout
def test_backward_is_the_slope_of_forward(keys, rate, rng):
    given_case = case(keys, 2, 9, rng, FLOAT64)
    dropout = dropout_of(rate, given_case.form)
    found = given_case.backward(dropout)
    for place, derivative in enumerate(found):

        def context(at: Array, place: int = place) -> Array:
            given = [*given_case.arrays[:3], *given_case.weights]
            given[place] = at
            changed = given_case._replace(arrays=[*given[:3], given_case.arrays[3]], weights=given[3:])
            return changed.forward(dropout)[0]

        at = [*given_case.arrays[:3], *given_case.weights][place]
        if keys.get("chunk") == 1 and place < 2:
            assert np.abs(derivative).max() < 1e-12, "a token that sees itself alone needs no score"
        else:
            assert_derivative(context, at, derivative, given_case.arrays[3])


@examples()
@given(data=st.data(), samples=st.integers(1, 3), sequence=st.integers(1, 30), block=st.integers(1, 12))
def test_no_cut_changes_what_is_seen(data, samples, sequence, block):
    keys: dict[str, Any] = {"causal": data.draw(st.booleans()), "kv_heads": data.draw(st.sampled_from([1, 2, 4]))}
    if not keys["causal"]:
        keys["keys"] = data.draw(st.none() | st.integers(1, 30))
    else:
        kind = data.draw(st.sampled_from(["all", "window", "chunk"]))
        keys |= (
            {"window": data.draw(st.integers(1, 35)), "sinks": data.draw(st.integers(0, 5))} if kind == "window" else {}
        )
        keys |= {"chunk": data.draw(st.integers(1, 35))} if kind == "chunk" else {}
        keys["columns"] = data.draw(st.none() | st.tuples(st.integers(1, 9), st.integers(1, 9)))
    keys["segments"] = data.draw(st.sampled_from([None, "padded", "packed", "ending", "mixed"]))
    keys |= data.draw(st.sampled_from([{}, TABLE, {**TABLE, "bidirectional": False}]))
    keys["slope_scale"] = data.draw(st.none() | st.just(0.5))
    given_case = case(keys, samples, sequence, np.random.default_rng(sequence), FLOAT64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "BLOCK_ROWS", block)
        patch.setattr(attention, "SCORES_PER_CALL", data.draw(st.integers(1, 2000)))
        found = [*given_case.forward(), *given_case.backward()]
    for actual, expected in zip(found, [part for both in given_case.expected() for part in both], strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-11)


@in_every_form
@pytest.mark.parametrize("sequence", [9, 300])
def test_a_sample_has_the_same_bits_alone_and_beside_others(keys, sequence, rng):
    together = case(keys, 4, sequence, rng)
    apart = [together.samples(number) for number in range(4)]
    context, deltas = together.forward()[0], together.backward()[:3]
    np.testing.assert_array_equal(context, np.concatenate([alone.forward()[0] for alone in apart]))
    for found, *alone in zip(deltas, *(one.backward()[:3] for one in apart), strict=True):
        np.testing.assert_array_equal(found, np.concatenate(alone))


@in_every_form
def test_other_samples_in_another_order_are_the_same_samples(keys, rng):
    given_case, order = case(keys, 3, 20, rng), (2, 0, 1)
    found = given_case._replace(arrays=[given_case.forward()[0], *given_case.arrays[1:]]).samples(*order).arrays[0]
    np.testing.assert_array_equal(given_case.samples(*order).forward()[0], found)


@pytest.mark.parametrize(
    "name", ["padded", "causal, padded", "other tokens, padded", "packed", "causal, packed, nobody's padding"]
)
@pytest.mark.parametrize("sequence", [9, 300])
def test_what_stands_in_other_segments_does_not_matter(name, sequence, rng):
    given_case = case(FORMS[name], 2, sequence, rng)
    segment = 1
    others = given_case.segments[0] != segment
    mine = given_case.segments[1] == segment if given_case.segments[1:] else np.full(2 * sequence, True)
    q, k, v, delta = given_case.arrays
    changed = [np.where(others[:, None], 100 * x + 3, x) for x in (k, v)]
    moved = given_case._replace(arrays=[q, *changed, delta])
    np.testing.assert_array_equal(given_case.forward()[0][mine], moved.forward()[0][mine])
    np.testing.assert_array_equal(given_case.backward()[0][mine], moved.backward()[0][mine])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_query_that_sees_nothing_gets_nothing(causal, kind, rng):
    """Of the first sample nobody is seen, of the second the first three tokens are."""
    given_case = case({"causal": causal, **TABLE, "slope_scale": 0.5}, 2, 200, rng)
    real = np.concatenate([np.zeros(200), np.arange(200) < 3]).astype(np.int32)
    given_case = given_case._replace(segments=[real])
    of_call: dict[str, Any] = {}
    if kind == "bfloat16":
        given_case = given_case._replace(arrays=[narrowed(x) for x in given_case.arrays])
        of_call = {"gemm": EMULATED, "scratch": lender(FLOAT32)}
    context, logsumexp = given_case.forward(**of_call)
    assert not context[:200].any()
    assert np.isposinf(logsumexp[:, :200]).all()
    assert np.isfinite(logsumexp[:, 200:]).all()
    found = given_case.backward(**of_call)
    assert all(np.isfinite(part).all() for part in found)
    assert not any(delta[:200].any() for delta in found[:3])
    assert not any(delta[203:].any() for delta in found[1:3])
    assert all(part.any() for part in found)


def test_keys_that_nobody_sees_are_not_multiplied(rng):
    """Of 1,000 tokens 10 are real: one block of keys forward, none of those without a real token backward."""
    multiplied = []

    class Counting(type(NUMPY)):  # type: ignore[misc]
        def multiply(self, a: Array, b: Array, out: Array, bias: Array | None = None) -> None:
            multiplied.append(out[..., 0, 0].size * a.shape[-2] * a.shape[-1] * b.shape[-1])
            super().multiply(a, b, out, bias)

    given_case = case(BOTH, 1, 1000, rng)
    given_case = given_case._replace(segments=[(np.arange(1000) < 10).astype(np.int32)])
    given_case.forward(gemm=Counting())
    assert sum(multiplied) == 2 * HEADS * 1000 * 10 * WIDTH
    multiplied.clear()
    packed = given_case._replace(segments=[np.repeat(np.arange(8, dtype=np.int32), 125)] * 2)
    packed.forward(gemm=Counting())
    assert sum(multiplied) == 2 * HEADS * 8 * 125 * 125 * WIDTH
    multiplied.clear()
    nobody = given_case._replace(segments=[np.where(np.arange(1000) < 125, 0, -1).astype(np.int32)] * 2)
    nobody.backward(gemm=Counting())
    assert sum(multiplied) == (2 + 5) * HEADS * 125 * 125 * WIDTH


@in_every_form
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_that_share_the_heads_have_the_same_bits(keys, threads, rng, monkeypatch):
    monkeypatch.setattr(shared_gemm, "SHARED_FLOPS", 1)
    given_case = case(keys, 1, 30, rng)
    shared = SharedGemm(NUMPY, threads)
    found = [given_case.backward(dropout_of(0.25, given_case.form), gemm=gemm) for gemm in (NUMPY, shared)]
    shared.close()
    for actual, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(actual, expected)


@in_every_form
def test_in_bfloat16_it_is_what_it_is_on_float32_rounded(keys, rng):
    """Probabilities and deltas of scores are rounded, too: of each sum the terms are off by half a unit.

    So is the context, whose product with its delta is part of every delta of a score, and these add up to gradients.
    """
    given_case = case(keys, 2, 10, rng)
    bits = given_case._replace(arrays=[narrowed(x) for x in given_case.arrays])
    wide = given_case._replace(arrays=[widened(x) for x in bits.arrays])
    delta_inputs = tuple(np.empty(x.shape, BFLOAT16) for x in (*bits.arrays[:3], *bits.segments))
    of_call = {"gemm": EMULATED, "scratch": lender(FLOAT32)}
    y = np.empty(bits.arrays[0].shape, BFLOAT16)
    found, expected = call_in_bfloat16(bits, y, delta_inputs, of_call), [wide.forward()[0], *wide.backward()]
    rounding = max(1.0, *(np.abs(x).max() for x in expected)) * TOLERANCE[FLOAT32]
    for actual, array in zip(found[:4], expected[:4], strict=True):
        allowed = 2.0**-8 * (np.abs(array) + 3 * np.abs(array).max())
        assert (np.abs(widened(actual) - array) <= allowed + rounding).all()
    products = np.abs(expected[0] * wide.arrays[3]).reshape(-1, HEADS, WIDTH).sum(axis=(0, 2))
    farthest = [1.0] * (given_case.form.buckets > 0) + [float(given_case.form.distances().max())]
    for actual, array, distance in zip(found[4:], expected[4:], farthest, strict=False):
        allowed = 2.0**-8 * distance * products
        error = np.abs(actual - array)
        assert (error <= (allowed if array.shape[-1] == HEADS else allowed[:, None])).all()


def call_in_bfloat16(bits: Case, y: Array, deltas: tuple[Array, ...], of_call: dict[str, Any]) -> list[Array]:
    """Return the context, the deltas and the gradients."""
    given, weights = bits._given()
    more = {**bits._more(None, {**of_call, "delta_inputs": deltas}), "y": y}
    found = backward(OpKind.ATTENTION, given, weights, bits.arrays[3], **more)
    return [y, *found[:3], *found[len(given) :]]


BUCKETS = {
    (32, 128, True): {0: 0, -1: 1, 1: 17, -7: 7, -8: 8, -11: 8, -12: 9, -16: 10, -64: 14, -91: 15, -999: 15, 999: 31},
    (32, 128, False): {0: 0, 5: 0, -1: 1, -15: 15, -16: 16, -32: 21, -64: 26, -128: 31, -999: 31},
}


@pytest.mark.parametrize(("kind", "known"), BUCKETS.items())
def test_known_buckets(kind, known):
    """Of T5: 32 buckets up to a distance of 128, in both directions in an encoder, in one in a decoder."""
    buckets, most, bidirectional = kind
    more = {"causal": False, "buckets": buckets, "max_distance": most, "bidirectional": bidirectional}
    found = Attention(1, 1, 1000, 1.0, **more).bucket_numbers()
    assert {ahead: found[ahead + 999] for ahead in known} == known


@given(
    buckets=st.integers(4, 80),
    longer=st.floats(1.1, 40),
    bidirectional=st.booleans(),
    causal=st.booleans(),
    sequence=st.integers(1, 150),
)
def test_buckets_are_those_of_the_formula(buckets, longer, bidirectional, causal, sequence):
    more = {"causal": causal, "buckets": buckets, "max_distance": int(buckets * longer), "bidirectional": bidirectional}
    form = Attention(1, 1, sequence, 1.0, **more)
    expected = [reference.bucket(form, ahead) for ahead in range(1 - sequence, 1 if causal else sequence)]
    np.testing.assert_array_equal(form.bucket_numbers(), expected)
