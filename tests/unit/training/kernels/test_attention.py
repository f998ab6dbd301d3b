"""Attention by blocks, in every form, against the whole matrix and its own slopes."""

import itertools
import random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.ir import OpKind
from cstool.training.kernels import attention, shared_gemm
from cstool.training.kernels.attention_form import Attention
from cstool.training.kernels.bfloat16 import BFLOAT16, narrowed, widened
from cstool.training.kernels.gemm import NUMPY
from cstool.training.kernels.gemm_providers import EMULATED
from cstool.training.kernels.random import Dropout
from cstool.training.kernels.shared_gemm import SharedGemm
from tests.examples import examples
from tests.reference import kernels as reference
from tests.unit.training.kernels.calls import backward, forward
from tests.unit.training.kernels.conftest import lender
from tests.unit.training.kernels.tolerances import TOLERANCE, assert_close, assert_derivative

Array = np.ndarray
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
HEADS, WIDTH = 4, 4
BOTH: dict[str, Any] = {"causal": False}
TABLE = {"buckets": 8, "max_distance": 12}

FACTORS: dict[str, dict[str, Any]] = {
    "view": {
        "causal": {},
        "window": {"window": 3},
        "lone": {"window": 1},
        "sinks": {"window": 2, "sinks": 6},
        "chunks": {"chunk": 4},
        "columns": {"columns": (5, 2), "window": 2},
        "overlap": {"columns": (3, 5), "window": 2},
        "grid": {"columns": (4, 1), "chunk": 4},
        "both": BOTH,
        "others": {**BOTH, "keys": 23},
        "few": {**BOTH, "keys": 2},
    },
    "heads": {"4": {}, "2": {"kv_heads": 2}, "1": {"kv_heads": 1}},
    "cap": {"-": {}, "cap": {"softcap": 0.8}},
    "bias": {
        "-": {},
        "alibi": {"slopes": (0.5, 0.25, 0.125, 0.7)},
        "trained": {"slope_scale": 0.7},
        "table": TABLE,
        "one-way": {**TABLE, "bidirectional": False, "slope_scale": 0.3},
    },
    "segments": {"-": {}, **{kind: {"segments": kind} for kind in ("padded", "packed", "ending", "mixed")}},
    # Samples, tokens, rows of a block, scores per call.
    "cut": {
        "token": (3, 1, 128, 10_000),
        "block": (2, 9, 128, 10_000),
        "blocks": (2, 11, 4, 10_000),
        "pair": (2, 11, 4, 1),
        "heads": (2, 21, 8, 500),
    },
    "rate": {"keep": 0.0, "drop": 0.25},
    "dtype": {"f32": FLOAT32, "f64": FLOAT64},
}
FORM = ("view", "heads", "cap", "bias", "segments")
COVER = """
causal 4 - alibi - blocks keep f32
causal 4 - trained mixed pair drop f64
causal 2 - - ending token drop f32
causal 1 - table padded block keep f64
causal 1 cap one-way packed heads keep f64
window 4 - - padded block keep f32
window 4 - trained packed heads drop f32
window 2 - alibi mixed pair drop f64
window 2 - one-way ending token drop f64
window 1 cap table - blocks keep f64
lone 4 - trained - token drop f64
lone 4 - table mixed blocks keep f64
lone 2 cap - packed block keep f64
lone 1 - alibi ending pair drop f32
lone 1 - one-way padded heads drop f64
sinks 4 - - ending token keep f64
sinks 4 - one-way mixed blocks keep f32
sinks 2 cap alibi packed pair drop f32
sinks 1 cap trained padded block drop f64
sinks 1 cap table - heads keep f64
chunks 4 - table padded pair drop f64
chunks 4 cap alibi packed blocks drop f64
chunks 2 - trained - block keep f32
chunks 1 cap - mixed heads keep f64
chunks 1 cap one-way ending token drop f64
columns 4 cap alibi ending block keep f64
columns 2 - table mixed heads drop f32
columns 2 cap trained packed token keep f32
columns 1 - - padded pair drop f64
columns 1 cap one-way - blocks keep f64
overlap 4 - table mixed block drop f32
overlap 2 - - packed blocks keep f32
overlap 2 - alibi padded heads keep f32
overlap 2 cap one-way - pair drop f64
overlap 1 - trained ending token drop f32
grid 4 cap - - pair keep f64
grid 4 cap table padded token drop f32
grid 2 - one-way packed block drop f32
grid 1 - trained ending blocks keep f64
grid 1 cap alibi mixed heads keep f32
both 4 - alibi - token keep f32
both 4 - trained padded block keep f32
both 2 cap - mixed blocks drop f64
both 1 cap table packed pair drop f32
both 1 cap one-way ending heads drop f32
others 4 - alibi mixed pair drop f32
others 4 cap one-way padded blocks keep f64
others 2 - table packed token keep f64
others 1 cap - - heads drop f32
others 1 cap trained ending block keep f64
few 4 - - padded pair keep f64
few 4 - one-way packed blocks keep f32
few 2 - table ending heads keep f32
few 2 cap alibi - block keep f64
few 1 cap trained mixed token drop f32
""".strip().splitlines()
"""rows in which every pair of values of two factors occurs"""


def test_every_pair_of_values_is_tried():
    tried = {pair for row in COVER for pair in itertools.combinations(enumerate(row.split()), 2)}
    factors = [[(place, word) for word in words] for place, words in enumerate(FACTORS.values())]
    assert tried == {pair for two in itertools.combinations(factors, 2) for pair in itertools.product(*two)}


def chosen(row: str) -> dict[str, Any]:
    """Return what the words of a row stand for, by factor."""
    return {name: words[word] for (name, words), word in zip(FACTORS.items(), row.split(), strict=True)}


def form_of(row: str) -> dict[str, Any]:
    """Return the keys of the form of a row."""
    found = chosen(row)
    return {key: value for name in FORM for key, value in found[name].items()}


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

    def backward(self, dropout: Dropout | None = None, y: Array | None = None, **of_call: Any) -> list[Array]:
        """Return the deltas of query, key and value, and the gradients."""
        found = backward(OpKind.ATTENTION, *self._given(), self.arrays[3], y=y, **self._more(dropout, of_call))
        assert all(np.isnan(unwanted).all() for unwanted in found[3 : 3 + len(self.segments)])
        return [*found[:3], *found[3 + len(self.segments) :]]

    def _given(self) -> tuple[list[Array], list[Array]]:
        return [*self.arrays[:3], *self.segments], self.weights

    def _more(self, dropout: Dropout | None, of_call: dict[str, Any]) -> dict[str, Any]:
        of_call = {"dropout": dropout, "scratch": lender(self.arrays[3].dtype), **of_call}
        return {"sequence": self.form.sequence, **self.form._asdict(), "of_call": of_call}

    def expected(self, dropout: Dropout | None = None) -> list[Array]:
        """Return what the slow twin makes of it, forward and backward."""
        arrays, weights = ([x.astype(np.float64) for x in group] for group in (self.arrays, self.weights))
        others = self.form, dropout, self.segments, weights
        return [*reference.attention(*arrays[:3], *others), *reference.attention_deltas(*arrays, *others)]

    def samples(self, *chosen: int) -> "Case":
        """The same op on some of its samples."""
        counts = (self.form.sequence, *(self.form.key_count,) * 2, self.form.sequence)

        def some(x: Array, count: int) -> Array:
            return x.reshape(-1, count, *x.shape[1:])[list(chosen)].reshape(-1, *x.shape[1:])

        arrays = [some(x, count) for x, count in zip(self.arrays, counts, strict=True)]
        return self._replace(arrays=arrays, segments=[some(x, n) for x, n in zip(self.segments, counts[1::-1])])  # noqa: B905


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


def assert_as_expected(found: list[Array], expected: list[Array]) -> None:
    """Compare with the slow twin. Deltas may be 0 up to rounding where what is summed up for them is not."""
    largest = max(1.0, *(np.abs(array[np.isfinite(array)]).max(initial=0.0) for array in expected))
    for actual, array in zip(found, expected, strict=True):
        finite = np.isfinite(array)
        np.testing.assert_array_equal(actual[~finite], array[~finite])
        assert_close(actual[finite], array[finite], largest) if finite.any() else None


def check_against_the_twin(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = chosen(row)
    samples, sequence, block_rows, scores_per_call = found["cut"]
    monkeypatch.setattr(attention, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(attention, "SCORES_PER_CALL", scores_per_call)
    given_case = case(form_of(row), samples, sequence, np.random.default_rng(1), found["dtype"])
    dropout = dropout_of(found["rate"], given_case.form)
    made = [*given_case.forward(dropout), *given_case.backward(dropout)]
    assert_as_expected(made, given_case.expected(dropout))


in_every_row = pytest.mark.parametrize("row", COVER)


@pytest.fixture(params=[attention.LEAST_PRODUCTS, 0], ids=["by blocks", "by pairs"])
def least_products(request, monkeypatch):
    """Numbers multiplied from which our own kernels compute attention: as it is, or none."""
    monkeypatch.setattr(attention, "LEAST_PRODUCTS", request.param)


@pytest.mark.usefixtures("least_products")
@in_every_row
def test_it_is_what_its_slow_twin_is(row, monkeypatch):
    check_against_the_twin(row, monkeypatch)


@pytest.mark.lab
@pytest.mark.parametrize("view", FACTORS["view"])
def test_it_is_what_its_slow_twin_is_whatever_goes_together(view, monkeypatch):
    rows = list(itertools.product((view,), *[*FACTORS.values()][1:]))
    for words in random.Random(view).sample(rows, len(rows) // 32):
        check_against_the_twin(" ".join(words), monkeypatch)


@in_every_row
def test_backward_is_the_slope_of_forward(row, rng):
    given_case = case(form_of(row), 2, 9, rng, FLOAT64)
    dropout = dropout_of(chosen(row)["rate"], given_case.form)
    for place, derivative in enumerate(given_case.backward(dropout)):

        def context(at: Array, place: int = place) -> Array:
            given = [*given_case.arrays[:3], *given_case.weights]
            given[place] = at
            changed = given_case._replace(arrays=[*given[:3], given_case.arrays[3]], weights=given[3:])
            return changed.forward(dropout)[0]

        at = [*given_case.arrays[:3], *given_case.weights][place]
        if np.abs(derivative).max() < 1e-12:  # as of a token that sees itself alone, which needs no score
            moved = context(at + rng.standard_normal(at.shape))
            np.testing.assert_allclose(moved, context(at), rtol=0, atol=1e-12)
        else:
            assert_derivative(context, at, derivative, given_case.arrays[3])


@examples()
@given(data=st.data(), samples=st.integers(1, 3), sequence=st.integers(1, 40), block=st.integers(1, 20))
def test_no_cut_changes_what_is_seen(data, samples, sequence, block):
    keys: dict[str, Any] = {"causal": data.draw(st.booleans()), "kv_heads": data.draw(st.sampled_from([1, 2, 4]))}
    if not keys["causal"]:
        keys["keys"] = data.draw(st.none() | st.integers(1, 30))
    else:
        kind = data.draw(st.sampled_from(["all", "window", "chunk"]))
        of_window = {"window": st.integers(1, 45), "sinks": st.integers(0, 45)} if kind == "window" else {}
        of_chunk = {"chunk": st.integers(1, 45)} if kind == "chunk" else {}
        keys |= data.draw(st.fixed_dictionaries({**of_window, **of_chunk}))
        keys["columns"] = data.draw(st.none() | st.tuples(st.integers(1, 9), st.integers(1, 9)))
    keys["segments"] = data.draw(st.sampled_from([None, "padded", "packed", "ending", "mixed"]))
    keys |= data.draw(st.sampled_from([{}, TABLE, {**TABLE, "bidirectional": False}]))
    keys["slope_scale"] = data.draw(st.none() | st.just(0.5))
    given_case = case(keys, samples, sequence, np.random.default_rng(sequence), FLOAT64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "BLOCK_ROWS", block)
        patch.setattr(attention, "SCORES_PER_CALL", data.draw(st.integers(1, 2000)))
        found = [*given_case.forward(), *given_case.backward()]
    for actual, expected in zip(found, given_case.expected(), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("keys", [{}, {"kv_heads": 1}, {"window": 150, "sinks": 10}], ids=str)
def test_blocks_of_the_real_size_agree_with_the_whole(keys, rng):
    given_case = case(keys, 1, 600, rng)
    for actual, array in zip(given_case.backward(), given_case.expected()[2:], strict=True):
        assert_close(actual, array)


@pytest.mark.usefixtures("least_products")
@in_every_row
def test_a_sample_has_the_same_bits_alone_and_beside_others_in_any_order(row, rng):
    together = case(form_of(row), 3, 300 if chosen(row)["rate"] else 9, rng)
    apart = [together.samples(number) for number in (2, 0, 1)]
    found = together._replace(arrays=[together.forward()[0], *together.arrays[1:]]).samples(2, 0, 1).arrays[0]
    np.testing.assert_array_equal(found, np.concatenate([alone.forward()[0] for alone in apart]))
    np.testing.assert_array_equal(found, together.samples(2, 0, 1).forward()[0])
    for deltas, *alone in zip(
        together.samples(2, 0, 1).backward()[:3], *(one.backward()[:3] for one in apart), strict=True
    ):
        np.testing.assert_array_equal(deltas, np.concatenate(alone))


@pytest.mark.usefixtures("least_products")
@pytest.mark.parametrize(
    "keys",
    [
        {**BOTH, "segments": "padded"},
        {"segments": "padded"},
        {**BOTH, "keys": 17, "segments": "padded", "softcap": 0.8},
        {**BOTH, "segments": "packed"},
        {"segments": "ending"},
    ],
    ids=str,
)
@pytest.mark.parametrize("sequence", [9, 300])
def test_what_stands_in_other_segments_does_not_matter(keys, sequence, rng):
    given_case, segment = case(keys, 2, sequence, rng), 1
    others = given_case.segments[0] != segment
    mine = given_case.segments[1] == segment if given_case.segments[1:] else np.full(2 * sequence, True)
    q, k, v, delta = given_case.arrays
    changed = [np.where(others[:, None], 100 * x + 3, x) for x in (k, v)]
    moved = given_case._replace(arrays=[q, *changed, delta])
    np.testing.assert_array_equal(given_case.forward()[0][mine], moved.forward()[0][mine])
    np.testing.assert_array_equal(given_case.backward()[0][mine], moved.backward()[0][mine])


@pytest.mark.usefixtures("least_products")
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
    for ask, segments, expected in (
        ("forward", [(np.arange(1000) < 10).astype(np.int32)], 2 * 1000 * 10),
        ("forward", [np.repeat(np.arange(8, dtype=np.int32), 125)] * 2, 2 * 8 * 125 * 125),
        ("backward", [np.where(np.arange(1000) < 125, 0, -1).astype(np.int32)] * 2, (2 + 5) * 125 * 125),
    ):
        multiplied.clear()
        getattr(given_case._replace(segments=segments), ask)(gemm=Counting())
        assert sum(multiplied) == expected * HEADS * WIDTH


@pytest.mark.usefixtures("least_products")
@in_every_row
def test_threads_that_share_the_heads_have_the_same_bits(row, rng, monkeypatch):
    monkeypatch.setattr(shared_gemm, "SHARED_FLOPS", 1)
    given_case = case(form_of(row), 1, 30, rng)
    dropout = dropout_of(chosen(row)["rate"], given_case.form)
    alone = given_case.backward(dropout, gemm=NUMPY)
    for threads in (1, 2, 5):
        shared = SharedGemm(NUMPY, threads)
        found = given_case.backward(dropout, gemm=shared)
        shared.close()
        for actual, expected in zip(found, alone, strict=True):
            np.testing.assert_array_equal(actual, expected)


@in_every_row
def test_in_bfloat16_it_is_what_it_is_on_float32_rounded(row):
    """Probabilities and deltas of scores are rounded, too: of each sum the terms are off by half a unit.

    So is the context, whose product with its delta is part of every delta of a score, and these add up to gradients.
    """
    given_case = case(form_of(row), 2, 10, np.random.default_rng(2))
    bits = given_case._replace(arrays=[narrowed(x) for x in given_case.arrays])
    wide = given_case._replace(arrays=[widened(x) for x in bits.arrays])
    deltas = tuple(np.full(x.shape, 0xFFFF, BFLOAT16) for x in (*bits.arrays[:3], *bits.segments))
    y = np.empty(bits.arrays[0].shape, BFLOAT16)
    given, weights = bits._given()
    more = bits._more(None, {"gemm": EMULATED, "scratch": lender(FLOAT32), "delta_inputs": deltas})
    made = backward(OpKind.ATTENTION, given, weights, bits.arrays[3], y=y, **more)
    found, expected = [y, *made[:3], *made[len(given) :]], [wide.forward()[0], *wide.backward()]
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


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, range(8)),
        ({"window": 5}, range(3, 8)),
        ({"window": 12}, range(8)),
        ({"window": 5, "sinks": 2}, [0, 1, *range(3, 8)]),
        ({"chunk": 4}, range(4, 8)),
        ({"chunk": 4, "columns": (5, 2)}, range(3, 8)),
        (BOTH, range(12)),
    ],
    ids=str,
)
def test_a_token_sees_what_its_form_says(keys, expected, rng):
    """The eighth of twelve."""
    given_case = case(keys, 1, 12, rng)
    q, k, v, delta = given_case.arrays
    seen = []
    for token in range(12):
        changed = [x.copy() for x in (k, v)]
        for x in changed:
            x[token] += 1.0
        after = given_case._replace(arrays=[q, *changed, delta]).forward()[0]
        if (after[7] != given_case.forward()[0][7]).any():
            seen.append(token)
    assert seen == [*expected]


@pytest.mark.usefixtures("least_products")
def test_queries_keys_and_values_may_be_slices_of_one_array(rng):
    given_case, packed = case({}, 2, 9, rng), rng.standard_normal((18, 48)).astype(np.float32)
    slices = [packed[:, i : i + 16] for i in (0, 16, 32)]
    found = [
        given_case._replace(arrays=[*arrays, given_case.arrays[3]]).forward()[0]
        for arrays in (slices, [np.ascontiguousarray(array) for array in slices])
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.usefixtures("least_products")
@pytest.mark.parametrize("keys", [{}, {"softcap": 30.0}], ids=["plain", "capped"])
def test_scores_of_any_size_are_safe_and_infinite_ones_come_out_as_nan_without_a_warning(keys, rng):
    given_case = case(keys, 1, 12, rng)
    q, k, *others = given_case.arrays
    assert all(np.isfinite(x).all() for x in given_case._replace(arrays=[1e4 * q, 1e4 * k, *others]).forward())
    q[5], k[5] = 1e30, 1e30
    assert np.isnan(given_case.forward()[0][5]).all()
    assert np.isnan(given_case.backward()[0][5]).all()


@pytest.mark.usefixtures("least_products")
@pytest.mark.parametrize("view", [*FACTORS["view"]][:8])
@pytest.mark.parametrize("more", [{}, {"softcap": 0.8, "kv_heads": 2}, FACTORS["bias"]["alibi"]], ids=str)
def test_nan_comes_out(view, more, rng):
    for spoilt in range(4):
        given_case = case({**FACTORS["view"][view], **more}, 1, 40, rng)
        given_case.arrays[spoilt][30, 2] = np.nan
        if spoilt < 3:
            assert np.isnan(given_case.forward()[0][30, 2])
        assert any(np.isnan(delta[30]).any() for delta in given_case.backward())


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
