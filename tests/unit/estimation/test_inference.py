"""Answering: which wafers, how many users, what the time goes to."""

from dataclasses import replace

import pytest

from cstool.errors import EstimateError
from cstool.estimation.inference import PARTS, WEIGHTS, infer_rows, make_infer_request
from cstool.params import load_params
from cstool.system import load_system
from tests.unit.estimation.requests import gpt

LARGE = {"hidden_size": 8192, "num_hidden_layers": 40, "num_heads": 64, "filter_size": 32768}


def answers(params, system="cs2", prompt=128, new=64, users=(1,), **asked):
    """Estimates for each number of users."""
    request = make_infer_request(params, system, prompt_tokens=prompt, new_tokens=new, batches=users, **asked)
    return [row.estimate for row in infer_rows(request)]


def test_what_a_token_is_spent_on_adds_up():
    for found in answers(gpt(), users=(1, 7, 64)):
        assert sum(found.parts_s.values()) == pytest.approx(found.token_s)
        assert set(found.parts_s) <= set(PARTS)
        assert found.tokens_per_s == pytest.approx(found.users * found.user_tokens_per_s)
        assert found.system.idle_power_w <= found.power_w / found.wafers <= found.system.power_w
        assert found.joules_per_token == pytest.approx(found.power_w / found.tokens_per_s)
        assert found.sram_bytes <= found.system.pe.sram_bytes


def test_more_users_get_more_tokens_in_all_and_wait_longer_for_the_first():
    found = answers(gpt(), users=(1, 2, 8, 64, 256))
    rates = [each.tokens_per_s for each in found]
    assert rates == sorted(rates)
    first = [each.first_token_s for each in found]
    assert first == sorted(first)
    assert all(each.wafers == 1 and each.is_resident for each in found)


def test_a_longer_prompt_is_never_faster():
    found = [answers(gpt(), prompt=prompt)[0] for prompt in (16, 64, 128, 190)]
    for attribute in ("first_token_s", "token_s", "cache_bytes"):
        values = [getattr(each, attribute) for each in found]
        assert values == sorted(values), attribute


def test_a_large_model_lies_on_the_fewest_wafers_that_hold_it():
    """33 billion weights are 66 GB; two CS-2 have 64 GB beside code and stack, three 96."""
    found = answers(gpt(**LARGE))[0]
    assert (found.wafers, found.is_resident) == (3, True)
    more = answers(gpt(**LARGE), wafers=6)[0]
    assert more.wafers == 6
    assert more.weights_bytes < found.weights_bytes


def test_on_too_few_wafers_weights_are_streamed_for_each_token():
    found = answers(gpt(**LARGE), wafers=1)[0]
    assert not found.is_resident
    assert found.bound == WEIGHTS
    assert found.token_s >= 2 * found.parameters / load_system("cs2").io_bytes_per_s
    # For all users the same weights.
    many = answers(gpt(**LARGE), wafers=1, users=(16,))[0]
    assert many.tokens_per_s == pytest.approx(16 * found.tokens_per_s, rel=0.02)


def test_users_beyond_the_memory_are_left_out_with_the_most_that_fit():
    request = make_infer_request(
        load_params("params/llama3_8b.yaml"), "cs2", prompt_tokens=2048, new_tokens=512, batches=(1, 10_000), wafers=1
    )
    one, many = infer_rows(request)
    assert many.estimate is None
    assert many.why == (
        "--batch: keys and values of 10,000 users with 2,560 tokens each must fit 1 wafer of cs2 beside the weights"
    )
    assert one.estimate is not None
    most = one.estimate.most_users
    fits, does_not = infer_rows(replace(request, batches=(most, 100_000)))
    assert fits.estimate is not None
    assert does_not.estimate is None


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        (
            {"prompt": 200, "new": 100},
            "--prompt_tokens and --new_tokens: must be at most 256 together, the context of gpt3, got 200 and 100",
            "--new_tokens 56 is left",
        ),
        (
            {"prompt": 300},
            "--prompt_tokens and --new_tokens: must be at most 256 together, the context of gpt3, got 300 and 64",
            None,
        ),
        ({"wafers": 500}, "--num_csx: must be at most 192, the systems of a cluster of cs2, got 500", None),
        (
            {"users": (10**6,), "wafers": 1},
            "--batch: keys and values of 1,000,000 users with 192 tokens each must fit 1 wafer of cs2 beside "
            "the weights",
            "1,539 users are the most; more wafers have room for more: --num_csx",
        ),
    ],
)
def test_what_cannot_be(asked, message, hint):
    with pytest.raises(EstimateError) as caught:
        answers(gpt(), **asked)
    assert caught.value.message == message
    assert caught.value.hint == hint


def test_a_system_without_memoryx_cannot_stream():
    with pytest.raises(EstimateError) as caught:
        answers(gpt(**LARGE), system="cs1")
    assert caught.value.message.startswith(
        "--mode infer: weights of gpt.yaml must fit 1 wafer of cs1, which has no MemoryX"
    )


def test_models_that_do_not_decode_are_refused():
    with pytest.raises(EstimateError) as caught:
        answers(load_params("params/bert_tiny.yaml"))
    assert caught.value.message == (
        "--mode infer: must be for a decoder, which makes one token after the other, got bert of params/bert_tiny.yaml"
    )
    assert caught.value.hint == "without --mode infer a training step of it is estimated"
