"""Passes by tables against the interpreter's walk, their slow twin: the same logits, the same tokens, to the bit."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.inference import walk as walk_module
from cstool.inference.decoding import Decoder
from cstool.inference.pass_table import PassTable
from cstool.inference.sampling import Beams, Sampling
from cstool.inference.sequences import Finish, Made, TokenRequest
from cstool.inference.walk import Walk
from cstool.training.kernels.cached_attention import News
from cstool.training.kernels.driver import NativeError
from cstool.training.machine.cluster import INTERPRETER
from tests.examples import examples
from tests.models import BALANCED, FAMILIES
from tests.unit.inference.machines import PROMPTS, decoded, logits_of, one_token, sparse_rules, walking

CAPACITY = 16
MODELS: dict[str, dict[str, Any]] = {
    **{name: keys for name, keys in FAMILIES.items() if "moe" not in keys},
    "fixed positions": {"position_embedding_type": "fixed"},
    "no positions": {"position_embedding_type": None},
    "window and sinks": {**FAMILIES["mistral"], "attention_sink_tokens": 2, "apply_attention_sinks": True},
}


@contextmanager
def both(threads: int = 1, **keys: Any) -> Iterator[tuple[Walk, Walk]]:
    """A walk by tables and one by the interpreter, over the same weights."""
    graph = one_token(layers=2, sequence=CAPACITY, **keys)
    with ExitStack() as stack:
        sides = ({"threads": threads}, {"executor": INTERPRETER})
        walks = [
            stack.enter_context(walking(graph, sequences=12, capacity=CAPACITY, **side))[0]  # type: ignore[arg-type]
            for side in sides
        ]
        yield walks[0], walks[1]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Walk, Walk]]:
    """Walks over a model with positions that turn, and fewer heads of keys than of queries."""
    with both(**FAMILIES["llama"]) as walks:
        yield walks


def next_logits(walk: Walk, steps: int, sequences: int = 3) -> np.ndarray:
    """The logits of tokens that follow prompts of different length, pass by pass."""
    slots = [walk.memory.open() for _ in range(sequences)]
    for slot in slots:
        logits_of(walk, range(1, slot % 4 + 3), [], slot=slot)
    found = []
    for step in range(steps):
        ids, before = [(3 * slot + step) % 11 for slot in slots], [slot % 4 + 2 + step for slot in slots]
        found.append(walk.next(ids, slots, before))
    for slot in slots:
        walk.memory.close(slot)
    return np.stack(found)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_have_the_bits_of_the_interpreters(name, precision):
    graph, found = one_token(layers=2, sequence=CAPACITY, **MODELS[name]), []
    for side in ({}, {"executor": INTERPRETER}):
        with walking(graph, sequences=3, capacity=CAPACITY, precision=precision, **side) as (walk, _):  # type: ignore[arg-type]
            found.append(next_logits(walk, 4))
            assert bool(walk._tables) == (not side)
    np.testing.assert_array_equal(*found)


def said(walk: Walk, requests: list[tuple[int, TokenRequest]]) -> list[Made]:
    """All that requests make which are admitted in given turns."""
    decoder, found, turn = Decoder(walk), [], 0
    while decoder.is_busy or any(at >= turn for at, _ in requests):
        for at, request in requests:
            if at == turn:
                decoder.admit(request)
        found += decoder.step() if decoder.is_busy else []
        turn += 1
    return found


def _at(token: int) -> Finish:
    return lambda tokens: "end" if tokens[-1] == token else None


@st.composite
def request_lists(draw: Callable[..., Any]) -> list[tuple[int, TokenRequest]]:
    """Requests that begin in different turns, and end by their number of tokens, by a token, or by the capacity."""
    found, slots = [], 0
    for number in range(draw(st.integers(1, 6))):
        choice = draw(st.sampled_from([Sampling(0.0), Sampling(1.0), Sampling(0.7, top_k=5, top_p=0.8), Beams(3)]))
        slots += choice.count if isinstance(choice, Beams) else 1
        if slots > 12:
            break
        prompt = draw(st.lists(st.integers(0, 10), min_size=1, max_size=6))
        ends = _at(draw(st.sampled_from([-1, 4])))
        request = TokenRequest(number, prompt, draw(st.integers(1, 20)), choice, ends)
        found.append((draw(st.integers(0, 8)), request))
    return found


@examples(50)
@given(requests=request_lists())
def test_tokens_are_the_interpreters_whoever_comes_and_goes(pair, requests):
    before = [walk.passes for walk in pair]
    tables, interpreter = (said(walk, requests) for walk in pair)
    assert tables == interpreter
    assert len({walk.passes - passes for walk, passes in zip(pair, before, strict=True)}) == 1


@pytest.mark.parametrize("name", ["experts", "sparse", "file"])
def test_what_no_table_can_do_the_interpreter_does(name, tmp_path):
    graph = one_token(layers=2, sequence=CAPACITY, **(BALANCED if name == "experts" else {}))
    settings: dict[str, Any] = {
        "experts": {},
        "sparse": {"sparsity": sparse_rules(graph, 0.25)},
        "file": {"file": tmp_path / "m.h5"},
    }[name]
    with walking(graph, sequences=3, capacity=CAPACITY, **settings) as (walk, _):
        found = decoded(walk, PROMPTS, 4, Sampling(0.0))
        assert not walk._tables
    with walking(graph, sequences=3, capacity=CAPACITY, **settings, executor=INTERPRETER) as (walk, _):
        assert decoded(walk, PROMPTS, 4, Sampling(0.0)) == found


def mixed_logits(walk: Walk, seed: int) -> list[np.ndarray]:
    """Logits of passes with several tokens of some sequences: prompts in pieces, single tokens, drafts."""
    numbers, found, had = np.random.default_rng(seed), [], np.zeros(6, np.int64)
    for _ in range(12):
        slots = numbers.permutation(6)[: numbers.integers(1, 5)]
        counts = numbers.integers(1, 6, len(slots))
        had[slots[had[slots] + counts > CAPACITY]] = 0
        ids = numbers.integers(0, 11, int(counts.sum())).astype(np.int32)
        wanted = np.flatnonzero(numbers.random(len(ids)) < 0.5)
        found.append(walk.run({walk.ids: ids}, News.of(slots.tolist(), counts.tolist(), had[slots].tolist()), wanted))
        had[slots] += counts
    return found


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["gpt2", "llama", "window and sinks", "relative positions"])
def test_several_tokens_of_a_sequence_have_the_bits_of_the_interpreters(name, threads, monkeypatch):
    # With so little work to share, all products and attention are shared by a team of two.
    monkeypatch.setattr("cstool.inference.team.WORTH_SHARING", 1)
    with both(threads, **MODELS[name]) as (walk, twin):
        for one, two in zip(mixed_logits(walk, 7), mixed_logits(twin, 7), strict=True):
            np.testing.assert_array_equal(one, two)
        assert walk._tables
        assert all((table._program is None) == (threads == 1) for table in walk._tables.values())


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", "q4_0"])
def test_a_team_that_shares_the_ops_of_a_table_changes_no_token(precision, monkeypatch):
    monkeypatch.setattr("cstool.inference.team.WORTH_SHARING", 100)
    graph, found = one_token(layers=2, sequence=CAPACITY, **FAMILIES["llama"]), []
    for side in ({"threads": 3}, {"executor": INTERPRETER}):
        with walking(graph, sequences=3, capacity=CAPACITY, precision=precision, **side) as (walk, _):  # type: ignore[arg-type]
            found.append(decoded(walk, PROMPTS, 8, Sampling(1.0)))
    assert found[0] == found[1]


def test_attention_is_shared_where_there_are_many_keys(monkeypatch):
    monkeypatch.setattr("cstool.inference.team.WORTH_SHARING", 1000)
    with both(2) as (walk, twin):
        np.testing.assert_array_equal(next_logits(walk, 10), next_logits(twin, 10))
        walk._tables.clear()
        walk.next([1] * 9, range(9), [15] * 9)
        walk.next([1], [0], [0])
        assert [key[2] for key in walk._tables] == [True, False]


def test_after_a_failure_in_a_kernel_the_interpreter_walks(pair, monkeypatch):
    walk, twin = pair
    expected = decoded(twin, PROMPTS, 4, Sampling(0.0))

    def fail(*_arguments: object) -> None:
        raise NativeError(0)

    monkeypatch.setattr(PassTable, "run", fail)
    assert decoded(walk, PROMPTS, 4, Sampling(0.0)) == expected


def test_tables_for_many_numbers_of_sequences_do_not_pile_up(pair, monkeypatch):
    monkeypatch.setattr(walk_module, "MOST_TABLES", 2)
    walk, _ = pair
    walk._tables.clear()
    for count in (1, 2, 4, 5, 9, 8):
        walk.next([0] * count, range(count), [0] * count)
    assert [key[0] for key in walk._tables] == [12, 8]
