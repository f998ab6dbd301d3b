"""What the benchmarks measure can still be built, and the table of the suite reads as its page shows it."""

import importlib
import pkgutil
import sys

import pytest

import benchmarks
from benchmarks import beside_servers, turns
from benchmarks.invariance import Answer, read_answer
from benchmarks.llama_cpp_side import words
from benchmarks.machine import Neighbours
from benchmarks.step import MODELS, cstool_side, model_graph
from benchmarks.suite import COLUMNS, PROJECT, QUICK_ROWS, ROWS, Step, _speeds, columns_of, table
from benchmarks.turns import Side, TooSlow

WITH_PEERS = {"torch_models", "sparse_peers", "neighbours"}
"""modules that import what only the extra `bench` installs"""


@pytest.mark.parametrize(
    "name", sorted({module.name for module in pkgutil.iter_modules(benchmarks.__path__)} - WITH_PEERS)
)
def test_every_module_can_be_imported(name):
    importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("model", "batch_size", "sequence"),
    [("gpt_tiny", 2, 16), ("fc_mnist", 6, 1), ("bert_tiny", 2, 16), ("t5_tiny", 2, 16)],
)
def test_a_step_of_a_small_model_trains(model, batch_size, sequence, precision):
    step, appliance = cstool_side(model, batch_size, precision, sequence)
    with appliance:
        step()
        step()


def test_rows_name_a_model_and_their_columns_and_a_graph_has_the_tokens_that_are_asked_for():
    for row in (*ROWS.values(), *QUICK_ROWS.values()):
        assert not isinstance(row, Step) or row.model in MODELS
    assert list(columns_of(ROWS["gpt_tiny, 24 x 128"])) == list(COLUMNS)
    expected = ["cstool float32", "cstool bfloat16", "PyTorch eager", "autocast"]
    assert list(columns_of(ROWS["generate 128 tokens"])) == expected
    assert model_graph("gpt_tiny", 16)[1].sequence_length == 16
    assert model_graph("fc_mnist", 1)[1].sequence_length is None


def test_operations_of_rows_are_those_written_out():
    def flops(row):
        return ROWS[row].flops / ROWS[row].batch_size

    # Of each layer: matrices of attention, then those of the feed-forward part. A pair of tokens has two products.
    square, ffn, pair = 128 * 128, 2 * 128 * 512, 2 * 128
    encoder = 3 * (128 * (4 * square + ffn) + 128 * 128 * pair)
    decoder = 3 * (32 * (6 * square + ffn) + 128 * 2 * square + (32 * 33 // 2 + 32 * 128) * pair)
    assert flops("t5_tiny, 32 x 128") == 6 * (encoder + decoder + 32 * 4112 * 128)
    pairs = 128 * 129 // 2 * pair
    # A token meets two experts of eight.
    mixture = 4 * (128 * (4 * square + 8 * 128 + 2 * 2 * 128 * 256) + pairs) + 128 * 256 * 128
    assert flops("moe_tiny, 24 x 128") == 6 * mixture
    bert = 4 * (128 * (4 * square + ffn) + 128 * 128 * pair) + 20 * (square + 4096 * 128)
    assert flops("bert_tiny, 32 x 128") == 6 * bert
    vit = 4 * (17 * (4 * 96 * 96 + 2 * 96 * 384) + 17 * 17 * 2 * 96) + 10 * 96
    # Nobody needs the delta of the pixels.
    assert flops("vit_tiny, 80 images") == 6 * vit + 4 * 16 * 49 * 96


def test_sparse_weights_of_a_row_are_sparse():
    _, appliance = cstool_side("gpt_tiny", 2, sequence_length=16, sparsity=0.9)
    with appliance:
        assert len(appliance.memoryx.arrays.sparse) > 0


def test_speeds_are_those_of_neighbouring_turns_and_the_faster_peer_counts():
    seconds = {
        "cstool float32": [2.0, 4.0, 2.0],
        "cstool bfloat16": [1.0, 1.0, 2.0],
        "autocast": [2.0, 3.0, 9.0],
        "autocast compiled": [3.0, 2.5, 8.0],
    }
    assert list(_speeds(seconds)) == [
        ("cstool bfloat16", ("autocast", "autocast compiled"), {"median": 2.5, "min": 2.0, "max": 4.0}),
        ("cstool bfloat16", ("cstool float32",), {"median": 2.0, "min": 1.0, "max": 4.0}),
    ]


def test_the_table_of_a_row():
    numbers = {"median_s": 1.5, "min_s": 1.25, "max_s": 12.0, "peak_bytes": 2**32, "share_of_limit": 0.8}
    found = {
        "columns": {"cstool float32": numbers, "PyTorch eager": {**numbers, "share_of_limit": None}},
        "speeds": {"cstool float32 / PyTorch eager": {"median": 1.3, "min": 1.0, "max": 2.0}},
        "left_out": {"autocast": "a call took 97 s"},
        "limit_flops_per_s": {"float32": 2e11, "bfloat16": 4.1e11},
        "spread": 1.04,
    }
    assert table("gpt2_small, 4 x 512", found).splitlines() == [
        "gpt2_small, 4 x 512                 median s      min      max   peak MiB  of its GEMM limit",
        "  cstool float32                      1.5000   1.2500  12.0000      4,096               80%",
        "  PyTorch eager                       1.5000   1.2500  12.0000      4,096",
        "  autocast                         left out: a call took 97 s",
        "  cstool float32 / PyTorch eager                      1.30x  (1.00 to 2.00)",
        "  GEMM limit, GFLOP/s: float32 200, bfloat16 410",
        "  a fixed product between turns: 1.04x slower in its slowest tenth",
    ]
    spoilt = "neighbours spoil this row, measure it again"
    last = f"  a fixed product between turns: 1.40x slower in its slowest tenth: {spoilt}"
    assert table("gpt2_small, 4 x 512", {**found, "spread": 1.4}).splitlines()[-1] == last


@pytest.mark.parametrize(
    ("name", "most_s", "reason"),
    [("LONGEST_CALL_S", 0.0, "a call took 0 s"), ("LONGEST_WARM_UP_S", 0.001, "not ready after 0 s")],
)
def test_a_side_that_is_too_slow_ends_and_says_why(monkeypatch, name, most_s, reason):
    monkeypatch.setattr(turns, name, most_s)
    code = "from benchmarks.turns import serve; serve(lambda: lambda: sum(range(1000)))"
    with pytest.raises(TooSlow, match=f"^{reason}$"):
        Side([sys.executable, "-c", code], PROJECT, {})


def test_of_usual_looks_and_a_slow_one_the_spread_is_their_ratio():
    neighbours = Neighbours(1)
    neighbours.look()
    assert neighbours.spread == 1.0
    neighbours._rates[:] = [2e11, 2.2e11, 1e11]
    assert neighbours.spread == pytest.approx(2e11 / 1.2e11)


@pytest.mark.parametrize(
    "logprobs", [{"token_logprobs": [-1.5, -0.25]}, {"content": [{"token": "a", "logprob": -1.5}, {"logprob": -0.25}]}]
)
def test_log_probabilities_of_a_completion_are_read_in_the_form_of_chats_too(logprobs):
    assert read_answer({"choices": [{"text": "ab", "logprobs": logprobs}]}) == Answer("ab", (-1.5, -0.25))
    assert read_answer({"choices": [{"text": "", "logprobs": None}]}) == Answer("", ())


def test_words_of_a_random_model_are_one_end_all_bytes_and_words_that_byte_pairs_make():
    found = words(32000)
    assert (len(found), len(set(found)), found[257:260], found[-1]) == (32000, 32000, ["aa", "ab", "ac"], "kMw")
    assert found[1 + 33] == "!"
    assert found[1] == "Ā"
    # A merge is of a word and a letter, which must be tokens as well.
    assert {word[:-1] for word in found[257:]} | {word[-1] for word in found[257:]} <= set(found)


def test_the_gaps_of_a_text_beside_a_long_prompt_include_those_that_reach_over_its_ends():
    pieces = [0.0, 0.1, 0.2, 0.3, 1.5, 2.0, 4.0, 4.1]
    found = beside_servers.reading_of(pieces, began=0.35, first=2.35)
    assert found == pytest.approx((2.0, 0.1, 2.0, 1.0))
    assert str(found) == "first token 2.00 s, between tokens 100 ms, then at most 2000 ms, 1.0 tokens/s"


def test_ratios_of_servers_are_the_median_and_the_range():
    assert beside_servers.ratios([2.0, 3.0, 8.0], [1.0, 1.0, 2.0]) == "3.00x (2.00 to 4.00)"


def test_a_server_that_does_not_start_ends_the_comparison_with_its_own_words(tmp_path):
    command = [sys.executable, "-c", "print('no such model'); raise SystemExit(3)"]
    with (
        pytest.raises(SystemExit, match=r"^no server: .* raise SystemExit\(3\)\nno such model\n$"),
        beside_servers.serving(command, tmp_path / "log", {}),
    ):
        pass
