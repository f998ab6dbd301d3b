"""From prompts to tokens: the same ones with a cache and without, alone and together, in one pass and in many."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import NonFiniteError
from cstool.inference import decoding
from cstool.inference.decoding import Decoder
from cstool.inference.sampling import Beams, Sampling
from cstool.inference.sequences import TokenRequest
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
