"""From prompts to tokens: the same ones with a cache and without, alone and together, in one pass and in many."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import NonFiniteError
from cstool.inference import decoding
from cstool.inference.decoding import Decoder
from cstool.inference.drafts import PASS_TOKENS, Drafts, Guessed, LookedUp, NoDrafts
from cstool.inference.memory import KvCache
from cstool.inference.sampling import Beams, Sampling
from cstool.inference.sequences import Made, TokenRequest, TokenSequence
from cstool.inference.walk import Walk
from tests.examples import examples
from tests.models import FAMILIES
from tests.unit.inference.machines import PROMPTS, decoded, logits_of, made, one_token, walking


@pytest.mark.parametrize(("name", "temperature"), [("gpt2", 0.0), *((name, 1.0) for name in FAMILIES)])
def test_the_cache_changes_no_token(name, temperature):
    with walking(one_token(layers=2, sequence=16, **FAMILIES[name]), sequences=3, capacity=16) as (walk, _):
        sampling = Sampling(temperature)
        cached = made(walk, PROMPTS, 9, sampling=sampling)
        assert cached == made(walk, PROMPTS, 9, sampling=sampling, uses_cache=False)
    assert [len(tokens) for tokens in cached] == [9, 9, 9]


@examples(50)
@given(order=st.permutations(range(3)), rows=st.integers(1, 7))
def test_neither_other_prompts_nor_the_size_of_passes_change_a_token(walk, order, rows):
    sampling = Sampling(1.0, seed=3)
    alone = [made(walk, [prompt], 5, first_prompt=k, sampling=sampling)[0] for k, prompt in enumerate(PROMPTS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "PASS_ROWS", rows)
        assert made(walk, PROMPTS, 5, sampling=sampling) == alone
    # By their numbers, which the draws are keyed by, the greedy ones are the same in any order.
    greedy = made(walk, PROMPTS, 5)
    assert made(walk, [PROMPTS[k] for k in order], 5) == [greedy[k] for k in order]


def test_each_token_is_the_likeliest_after_all_before_it(walk):
    (tokens,) = made(walk, [[1, 2, 3]], 6)
    assert logits_of(walk, [1, 2, 3, *tokens])[2:-1].argmax(axis=1).tolist() == tokens


def test_prompts_are_read_in_wide_passes_then_all_go_on_together(walk):
    before = walk.passes
    made(walk, PROMPTS, 4)
    assert walk.passes - before == 1 + 3


def test_why_sequences_end(walk):
    _, stop, *_ = made(walk, [[1], [2]], 2)[1]

    def ends(tokens: Sequence[int]) -> str | None:
        return "stop" if len(tokens) == 2 and tokens[-1] == stop else None

    found = decoded(walk, [[2], [3] * 14], 4, Sampling(0.0), first_prompt=6, finish=ends)
    found += decoded(walk, [[1]], 4, Sampling(0.0), first_prompt=5)
    assert [token.prompt for token in found] == [6, 7, 6, 7, 5, 5, 5, 5]
    reasons = [None, None, "stop", "context", None, None, None, "length"]
    assert [token.finish_reason for token in found] == reasons


@pytest.mark.parametrize("choice", [Sampling(1.0, seed=3), Beams(2)])
def test_requests_that_come_while_others_are_under_way_change_no_token(choice):
    with walking(one_token(layers=2, sequence=16), sequences=4, capacity=16) as (walk, _):
        expected = [decoded(walk, [prompt], 5, choice, first_prompt=k) for k, prompt in enumerate(PROMPTS)]
        decoder, found = Decoder(walk), []
        for turn in range(20):
            # The third begins in a slot that another one has left.
            if turn in (0, 2, 6):
                k = (0, 2, 6).index(turn)
                decoder.admit(TokenRequest(k, PROMPTS[k], 5, choice))
            found += decoder.step()
        assert not decoder.is_busy
    assert [[one for one in found if one.prompt == k] for k in range(3)] == expected


def test_a_file_streams_all_weights_in_each_pass(tmp_path):
    graph = one_token(sequence=16)
    with walking(graph, capacity=16) as (walk, _):
        resident = made(walk, [[1, 2]], 3)
        assert walk.stream.streamed_bytes == 4 * graph.parameter_count
    with walking(graph, capacity=16, file=tmp_path / "m.h5") as (walk, _):
        assert made(walk, [[1, 2]], 3) == resident
        # The table of words twice: it is the output layer, too.
        words = graph.weights["embedding_layer.word_embeddings.weight"].size
        assert walk.stream.streamed_bytes == 3 * 4 * (graph.parameter_count + words)


def test_logits_that_are_not_finite_are_an_error():
    with walking(one_token(sequence=16), capacity=16) as (walk, _):
        walk.stream._memoryx.arrays.load(
            "model.transformer_decoder.norm.weight", lambda out, start, stop: out.fill(np.nan)
        )
        with pytest.raises(NonFiniteError) as caught:
            made(walk, [[1, 2]], 3)
    assert str(caught.value) == (
        "prompt 1, token 2: the logits must be finite, got nan\n"
        "hint: the checkpoint may be of a run that went astray: cstool checkpoint verify, or an earlier one"
    )


class _Mixed:
    """Requests of every kind, and the tokens that each gets alone, without pages and without drafts."""

    def __init__(self, walk: Walk) -> None:
        begin = [5, 3, 8, 1] * 40
        self.requests = [
            TokenRequest(1, begin[:140], 9, Sampling(0.0), top=2),
            TokenRequest(2, [*begin[:130], 7, 2], 7, Sampling(1.0, seed=5), draws=4, prediction=[1, 2, 3, 1, 2, 3]),
            TokenRequest(3, begin[:129], 8, Sampling(0.7, top_k=9, seed=6), top=0, echoes=True),
            TokenRequest(4, [2, 7], 6, Sampling(1.3, top_p=0.9, seed=7), frequency_penalty=0.6, presence_penalty=0.2),
            TokenRequest(5, [9] * 128, 5, Sampling(0.0), bias={10: 2.5, 3: -1e9}, ends=(9,), min_tokens=4),
            TokenRequest(6, [1, 2, 3, 1, 2, 3, 1, 2, 3], 9, Sampling(0.0), presence_penalty=-2.0),
            TokenRequest(7, begin[:150], 0, Sampling(0.0), top=1, echoes=True),
        ]
        alone = [self.run(Decoder(walk), [(0, request)]) for request in self.requests]
        self.expected = {number: one for each in alone for number, one in each.items()}

    @staticmethod
    def run(decoder: Decoder, coming: Sequence[tuple[int, TokenRequest]]) -> dict[int, tuple[Any, ...]]:
        """Let requests come at their steps; return the tokens, log probabilities and echo of each, and its end."""
        found: dict[int, list[Made]] = {request.prompt: [] for _, request in coming}
        step = 0
        while decoder.is_busy or step <= max(turn for turn, _ in coming):
            for turn, request in coming:
                if turn == step:
                    decoder.admit(request)
            for one in decoder.step():
                found[one.prompt].append(one)
            step += 1
        return {number: _joined(each) for number, each in found.items()}


def _joined(made: Sequence[Made]) -> tuple[Any, ...]:
    (echo,) = {tuple(one.echo) for one in made if one.echo is not None} or {None}
    tokens = [token for one in made for token in one.tokens]
    return tokens, [log for one in made for log in one.logprobs], echo, [one.finish_reason for one in made][-1]


def _paged(walk: Walk, pages: int) -> Walk:
    return Walk(walk.graph, walk.stream, walk.team, KvCache(walk.graph, 7, 200, pages=pages), 200)


def _unpaged(walk: Walk) -> Walk:
    return Walk(walk.graph, walk.stream, walk.team, KvCache(walk.graph, PASS_TOKENS, 200), 200)


@pytest.fixture(scope="module")
def mixed() -> Iterator[tuple[Walk, _Mixed]]:
    with walking(one_token(layers=2, sequence=200, **FAMILIES["llama"]), capacity=200) as (walk, _):
        yield walk, _Mixed(walk)


@examples(40)
@given(data=st.data())
def test_no_company_pages_prefixes_drafts_or_pauses_change_a_token(mixed, data):
    walk, requests = mixed
    # Of two pages one request can go on: the others wait, or give theirs back.
    paged = _paged(walk, data.draw(st.sampled_from([2, 3, 5, 14])))
    guessed = Guessed(_unpaged(walk))
    drafts = data.draw(st.sampled_from([None, LookedUp(), _RightAtFirst(requests), guessed]))
    decoder = Decoder(paged, rows_beside=data.draw(st.sampled_from([None, 3, 64])), drafts=drafts)
    order = data.draw(st.permutations(requests.requests))
    coming = [(data.draw(st.integers(0, 12)), request) for request in order]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "PASS_ROWS", data.draw(st.sampled_from([16, 512])))
        assert requests.run(decoder, coming) == requests.expected
    memory = paged.memory
    assert isinstance(memory, KvCache)
    assert memory.pool.available == memory.pool.pages
    assert len(memory._free) == 7


class _RightAtFirst:
    """Drafts that are right at first, and then wrong."""

    def __init__(self, requests: _Mixed) -> None:
        self._expected = requests.expected

    def propose(self, sequences: Sequence[TokenSequence]) -> None:
        for sequence in sequences:
            made, known = sequence.made, self._expected[sequence.request.prompt][0]
            room = sequence.request.max_tokens - len(made) - 1
            sequence.drafts = [*known[len(made) : len(made) + 2], 1, 2][:room] if known else []


def test_drafts_that_are_right_save_passes(mixed):
    walk, requests = mixed
    request = requests.requests[0]
    paged = _paged(walk, 14)
    (plain,) = requests.run(Decoder(paged), [(0, request)]).values()
    passes = paged.passes
    told = replace(request, prediction=plain[0])
    decoder, made = Decoder(paged, drafts=LookedUp()), []
    decoder.admit(told)
    while decoder.is_busy:
        made += decoder.step()
    assert _joined(made) == plain
    # One pass for the prompt; then a draft and the next token, two and the next, four, but for the last one.
    assert passes == 1 + 8
    assert paged.passes - passes == 1 + 3
    assert (sum(one.accepted for one in made), sum(one.rejected for one in made)) == (5, 0)
    # The prompt of the second time was in the memory, but for its end that fills no page.
    assert [one.reused for one in made] == [128] * len(made)


@pytest.mark.parametrize("number", [0, 1])
def test_a_smaller_model_drafts_with_the_same_random_numbers(mixed, number):
    walk, requests = mixed
    request = replace(requests.requests[number], prediction=())
    paged = _paged(walk, 14)
    # This one is as large, so that all its drafts are right.
    decoder, made = Decoder(paged, drafts=Guessed(_unpaged(walk))), []
    decoder.admit(request)
    while decoder.is_busy:
        made += decoder.step()
    assert _joined(made) == requests.expected[request.prompt]
    assert sum(one.rejected for one in made) == 0
    assert sum(one.accepted for one in made) >= request.max_tokens // 2


def test_the_log_probabilities_of_a_prompt_are_those_of_its_logits(mixed):
    walk, requests = mixed
    tokens = requests.requests[6].tokens
    logits = logits_of(walk, tokens).astype(np.float64)
    logs = (
        logits
        - np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True))
        - logits.max(axis=1, keepdims=True)
    )
    made, _, echo, reason = requests.expected[7]
    assert (made, reason, echo[0].logprob, echo[0].top) == ([], "length", None, ())
    assert [one.token for one in echo] == tokens
    np.testing.assert_allclose([one.logprob for one in echo[1:]], logs[np.arange(149), tokens[1:]], rtol=1e-5)
    assert [one.top[0][0] for one in echo[1:]] == logits[:-1].argmax(axis=1).tolist()


def test_a_request_that_is_cancelled_gives_its_pages_back(mixed):
    walk, requests = mixed
    paged = _paged(walk, 4)
    decoder = Decoder(paged)
    decoder.admit(requests.requests[0])
    decoder.step()
    decoder.cancel(1)
    decoder.cancel(99)
    assert not decoder.is_busy
    assert paged.memory.pool.available == 4


def test_a_grammar_chooses_among_its_tokens_with_drafts_and_without(mixed):
    class OddAndEven:
        """Odd and even tokens in turn."""

        def __init__(self) -> None:
            self.taken: list[int] = []

        def allowed(self, drafts: Sequence[int]) -> list[np.ndarray]:
            turns = [len(self.taken) % 2]
            for draft in drafts:
                if draft % 2 != turns[-1]:
                    break
                turns.append(1 - turns[-1])
            return [np.packbits(np.arange(32) % 2 == turn, bitorder="little").view(np.uint32) for turn in turns]

        def take(self, token: int) -> None:
            self.taken.append(token)

    walk, _ = mixed

    def tokens_of(prediction: Sequence[int], drafts: Drafts) -> tuple[list[int], int, int]:
        grammar, made = OddAndEven(), []
        decoder = Decoder(walk, drafts=drafts)
        request = TokenRequest(0, [1, 2, 1], 12, Sampling(1.0), grammar=grammar, prediction=prediction)
        decoder.admit(request)
        while decoder.is_busy:
            made += decoder.step()
        return grammar.taken, sum(one.accepted for one in made), sum(one.rejected for one in made)

    tokens, *none = tokens_of([], NoDrafts())
    assert none == [0, 0]
    assert [token % 2 for token in tokens] == [0, 1] * 6
    found, right, wrong = tokens_of(tokens, LookedUp())
    assert (found, right > 5, wrong) == (tokens, True, 0)
    # One of the predicted tokens may not follow.
    found, right, wrong = tokens_of([*tokens[:3], tokens[3] + 1, *tokens[4:]], LookedUp())
    assert (found, right > 0, wrong > 0) == (tokens, True, True)
