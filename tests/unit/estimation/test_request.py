"""What is asked for, and what is wrong with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.cli.estimate import parse_counts, parse_sparsities
from cstool.errors import CstoolError
from cstool.estimation.request import parse_tokens
from tests.unit.estimation.requests import estimator, gpt


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("1", [1]),
        ("1,2,4..192", [1, 2, 4, 8, 16, 32, 64, 128, 192]),
        ("3..3", [3]),
        ("8,2,2..8", [2, 4, 8]),
        (" 1 , 5..11", [1, 5, 10, 11]),
    ],
)
def test_counts(text, counts):
    assert parse_counts(text) == counts


@pytest.mark.parametrize("text", ["0", "a", "1,,2", "-4", "1.5", "1..2..3", "0..4", ""])
def test_counts_that_are_none(text):
    with pytest.raises(CstoolError) as found:
        parse_counts(text)
    assert str(found.value) == (
        f"--num_csx: must be numbers of systems, got {text}\nhint: such as 4, or 1,2,4..192, where .. doubles"
    )


@given(st.integers(1, 500), st.integers(0, 500))
def test_a_range_doubles_from_its_first_to_its_last(first, more):
    found = parse_counts(f"{first}..{first + more}")
    assert found[0] == first
    assert found[-1] == first + more
    assert all(b == 2 * a for a, b in zip(found[:-2], found[1:-1], strict=True))


def test_shares_of_zeros():
    assert parse_sparsities("0.5,0,.9,0.5") == [0.0, 0.5, 0.9]
    for text in ("-0.1", "1", "0.5,1.5", "x", "nan"):
        with pytest.raises(CstoolError) as found:
            parse_sparsities(text)
        wrong = text.rpartition(",")[2]
        assert str(found.value) == (
            f"--sparsity: must be shares of zeros from 0 to below 1, got {wrong}\nhint: such as 0,0.5,0.9"
        )


@pytest.mark.parametrize(
    ("text", "tokens"), [("300B", 300 * 10**9), ("1.5T", 1_500 * 10**9), ("20_000", 20_000), ("7k", 7_000)]
)
def test_tokens(text, tokens):
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize("text", ["0", "-3B", "B", "many", "inf", "nan", "1e400"])
def test_tokens_that_are_none(text):
    with pytest.raises(CstoolError) as found:
        parse_tokens(text)
    rule = "must be more than zero" if text in ("0", "-3B") else "must be a number"
    assert str(found.value) == f"--tokens: {rule}, such as 300B, got {text}"


@pytest.mark.parametrize(
    ("num_csx", "asked", "rule", "hint"),
    [
        (193, {}, "--num_csx: must be at most 192, the systems of a cluster of cs2, got 193",
         "--system cs3 has clusters of that size"),
        (2049, {"system": "cs3"},
         "--num_csx: must be at most 2,048, the systems of a cluster of cs3, got 2,049", None),
        (7, {}, "--num_csx: must divide batch_size (64), got 7",
         "4 and 8 are the nearest; --batch_per_csx gives each system a batch of its own"),
        # 51.7 million weights are 16 bytes each: the weight, its gradient, and two numbers of Adam's.
        (1, {"memoryx": "0.5GB"},
         "gpt.yaml: MemoryX of cs2 must hold 827 MB: weights, optimizer state and gradients; got 500 MB",
         "the smallest unit that holds it is 1.5 TB, of cs2: --system cs2 --memoryx 1.5TB"),
        (1, {"system": "cs9"}, "cs9: is not a known system",
         "did you mean cs3? known are cs1, cs2, cs3, and paths of YAML files"),
        (1, {"memoryx": "lots"}, "--memoryx: must be a number, such as 12TB, got lots", None),
        (1, {"system": "cs1", "memoryx": "12TB"}, "--memoryx: must be left out: cs1 has no MemoryX",
         "cs2 and cs3 have it"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused(num_csx, asked, rule, hint):
    with pytest.raises(CstoolError) as found:
        estimator(gpt(), **asked).at(num_csx)
    assert str(found.value) == (rule if hint is None else f"{rule}\nhint: {hint}")


MOE = {"num_experts": 8, "top_k": 2}


@pytest.mark.parametrize(
    ("shape", "imbalance", "rule"),
    [
        ({}, 2.0, "--expert_imbalance: must be left out: gpt3 of gpt.yaml has no mixture of experts"),
        *(
            (
                {"moe": MOE},
                imbalance,
                "--expert_imbalance: must be from 1 to 4, where one of 8 experts has all tokens, each of which meets 2"
                f"; got {imbalance:g}",
            )
            for imbalance in (0.5, 4.1, float("nan"))
        ),
    ],
)
def test_experts_cannot_be_more_uneven_than_one_that_has_all_tokens(shape, imbalance, rule):
    with pytest.raises(CstoolError) as found:
        estimator(gpt(**shape), expert_imbalance=imbalance)
    assert str(found.value) == rule


@pytest.mark.parametrize("mode", ["weight_streaming", "pipelined"])
def test_uneven_experts_take_longer_for_the_same_products(mode):
    params = gpt(moe=MOE, hidden_size=256, filter_size=256, num_hidden_layers=1)
    found = [estimator(params, execution_mode=mode, expert_imbalance=each).at(1) for each in (1, 2, 4)]
    assert found[0].step_s == estimator(params, execution_mode=mode).at(1).step_s
    # Tokens of a PE are whole numbers, which a step in between may gain by.
    assert found[0].step_s < found[-1].step_s
    assert found[1].step_s < found[-1].step_s
    assert len({each.flops for each in found}) == 1


def test_a_batch_of_its_own_for_each_system_is_never_shared_out():
    found = estimator(gpt(), batch_per_csx=5).at(7)
    assert (found.samples_per_csx, found.batch_size) == (5, 35)
