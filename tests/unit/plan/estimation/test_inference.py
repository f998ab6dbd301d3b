"""Answering: which wafers, how many users, what the time goes to."""

from dataclasses import replace

import pytest

from cstool.foundation.errors import EstimateError
from cstool.model.params import load_params
from cstool.model.system import load_system
from cstool.plan.estimation.gpu import beside_gpus, validate_gpus
from cstool.plan.estimation.inference import PARTS, WEIGHTS, infer_rows, make_infer_request
from tests.unit.plan.estimation.requests import estimator, gpt

LARGE = {"hidden_size": 8192, "num_hidden_layers": 40, "num_heads": 64, "filter_size": 32768}


def answers(params, system="cs2", prompt=128, new=64, users=(1,), **asked):
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


def test_more_users_get_more_tokens_in_all_and_a_longer_prompt_is_never_faster():
    found = answers(gpt(), users=(1, 2, 8, 64, 256))
    for values in ([each.tokens_per_s for each in found], [each.first_token_s for each in found]):
        assert values == sorted(values)
    assert all(each.wafers == 1 and each.is_resident for each in found)
    found = [answers(gpt(), prompt=prompt)[0] for prompt in (16, 64, 128, 190)]
    for attribute in ("first_token_s", "token_s", "cache_bytes"):
        values = [getattr(each, attribute) for each in found]
        assert values == sorted(values), attribute


def test_a_large_model_lies_on_the_fewest_wafers_that_hold_it_and_is_streamed_on_fewer():
    """33 billion weights are 66 GB; two CS-2 have 64 GB beside code and stack, three 96."""
    found, more, less = (answers(gpt(**LARGE), wafers=wafers)[0] for wafers in (None, 6, 1))
    assert (found.wafers, found.is_resident, more.wafers) == (3, True, 6)
    assert more.weights_bytes < found.weights_bytes
    assert (less.is_resident, less.bound) == (False, WEIGHTS)
    assert less.token_s >= 2 * less.parameters / load_system("cs2").io_bytes_per_s
    # For all users the same weights.
    many = answers(gpt(**LARGE), wafers=1, users=(16,))[0]
    assert many.tokens_per_s == pytest.approx(16 * less.tokens_per_s, rel=0.02)


def test_users_beyond_the_memory_are_left_out_with_the_most_that_fit():
    params = load_params("params/llama3_8b.yaml")
    asked = {"prompt_tokens": 2048, "new_tokens": 512, "wafers": 1}
    request = make_infer_request(params, "cs2", batches=(1, 10_000), **asked)
    one, many = infer_rows(request)
    assert (many.estimate, many.why) == (
        None,
        "--batch: keys and values of 10,000 users with 2,560 tokens each must fit 1 wafer of cs2 beside the weights",
    )
    fits, does_not = infer_rows(replace(request, batches=(one.estimate.most_users, 100_000)))
    assert (fits.estimate is None, does_not.estimate is None) == (False, True)


TOGETHER = "--prompt_tokens and --new_tokens: must be at most 256 together, the context of gpt3, got"
DECODER = "--mode infer: must be for a decoder, which makes one token after the other, got"


@pytest.mark.parametrize(
    ("model", "asked", "message", "hint"),
    [
        ({}, {"prompt": 200, "new": 100}, f"{TOGETHER} 200 and 100", "--new_tokens 56 is left"),
        ({}, {"prompt": 300}, f"{TOGETHER} 300 and 64", None),
        ({}, {"wafers": 500}, "--num_csx: must be at most 192, the systems of a cluster of cs2, got 500", None),
        (
            {},
            {"users": (10**6,), "wafers": 1},
            "--batch: keys and values of 1,000,000 users with 192 tokens each must fit 1 wafer of cs2 beside "
            "the weights",
            "1,539 users are the most; more wafers have room for more: --num_csx",
        ),
        (
            LARGE,
            {"system": "cs1"},
            "--mode infer: weights of gpt.yaml must fit 1 wafer of cs1, which has no MemoryX",
            ...,
        ),
        (
            "bert_tiny",
            {},
            f"{DECODER} bert of params/bert_tiny.yaml",
            "without --mode infer a training step of it is estimated",
        ),
    ],
)
def test_what_cannot_be(model, asked, message, hint):
    params = load_params(f"params/{model}.yaml") if isinstance(model, str) else gpt(**model)
    with pytest.raises(EstimateError) as caught:
        answers(params, **asked)
    if hint is ...:
        assert caught.value.message.startswith(message)
    else:
        assert (caught.value.message, caught.value.hint) == (message, hint)


# The same job on GPUs, and how far off published steps are.
def test_published_steps_on_a100s_are_met():
    """Calculon is off by 3.65 % on average on the eight of Korthikanti et al., by 8.87 % at most."""
    found = validate_gpus()
    for name, published, most in (("Korthikanti", 8, (0.0365, 0.0887)), ("Narayanan", 10, (0.07, 0.1))):
        source = next(each.source for each in found.results if each.source.startswith(name))
        count, _, average, largest = found.errors(source)
        assert (count, average < most[0], largest < most[1]) == (published, True, True)


def test_the_same_job():
    params = gpt(batch_size=64)
    found = estimator(params, tokens="1B").at(1)
    beside = beside_gpus(params, found, "a100", [1, 8])
    one, eight = (row.estimate for row in beside.rows)
    assert one is not None
    assert eight is not None
    assert eight.tokens_per_s > one.tokens_per_s
    assert one.days == pytest.approx(1e9 / one.tokens_per_s / 86_400)
    assert 0 < one.share_of_peak < 1
    assert eight.power_w == 8 * 812.5
    assert eight.joules_per_token == pytest.approx(eight.power_w / eight.tokens_per_s)
    assert beside.match is None or beside.match.tokens_per_s >= beside.rate
    if beside.fewer is not None:
        gpus, rate = beside.fewer
        assert beside.match is not None
        assert 2 * gpus == beside.match.gpus
        assert rate is None or rate < beside.rate


def test_what_does_not_fit_says_how_many_hold_it():
    params = load_params("params/gpt3_175b.yaml")
    found = estimator(params).at(1)
    for count, hint in (
        (8, "64 hold it"),
        (999_999_999, "are the most, of powers of two, that have layers and samples to share"),
    ):
        with pytest.raises(EstimateError) as caught:
            beside_gpus(params, found, "a100", [count])
        assert caught.value.hint.endswith(hint)
        rule = "no split of the model and of batches of 1,536 fits"
        assert caught.value.message == f"--gpus: {rule} {count:,} x a100" or count > 8
    rows = beside_gpus(params, found, "a100", [8, 64]).rows
    assert [row.estimate is None for row in rows] == [True, False]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "bert_tiny",
            "--gpus: must be left out: its closed forms are of decoders that make text, got bert of "
            "params/bert_tiny.yaml",
        ),
        ("moe_tiny", "--gpus: must be left out: its closed forms know no experts, params/moe_tiny.yaml has a mixture"),
    ],
)
def test_models_that_the_forms_do_not_know(name, message):
    params = load_params(f"params/{name}.yaml")
    with pytest.raises(EstimateError) as caught:
        beside_gpus(params, estimator(params).at(1), "a100", [8])
    assert caught.value.message == message
