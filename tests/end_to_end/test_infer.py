"""`cstool run --mode infer`: text and classes, what is printed where, and what it refuses."""

import csv
import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cstool.inference.sampling import Choice, Sampling
from tests.end_to_end.refusals import Outcome, error
from tests.end_to_end.runs import TEXT, gpt_params
from tests.unit.training.machine.machines import rewrite

A = "--prompt", "a"
FILE_HINT, NEWLINE = "or --prompt_file, with a prompt in each line", "a newline is enough to go on from"
WRITTEN = "the abcdefghijklmnopqrstuvwxyz. "[:31] + "\n"
GREEDY = ("--temperature", "0", "--max_tokens", "24")


@pytest.fixture
def infer(cstool, ready) -> Callable[..., Outcome]:
    """Have the model that has learnt its text answer."""
    return partial(cstool, "run", "--params", ready, "--mode", "infer")


def test_text_goes_on_on_stdout_and_the_log_is_on_stderr(infer, ready):
    outcome = infer("--prompt", "the abc", *GREEDY)
    assert outcome.code == 0
    assert outcome.stdout == WRITTEN
    log = [line.partition("INFO:   ")[2] for line in outcome.stderr.splitlines()]
    assert log[2:6] == [
        'Checkpoint autoloading is enabled. Looking for latest checkpoint in "TMP/model_dir" directory with the '
        "following naming convention: `checkpoint_(step)(_timestamp)?.mdl`.",
        'Found latest checkpoint at "TMP/model_dir/checkpoint_60.mdl".',
        "Loading weights from checkpoint TMP/model_dir/checkpoint_60.mdl",
        "Model state found in checkpoint and loaded successfully.",
    ]
    assert re.fullmatch(
        r"\| Inference Device=CSX, Step=24, Rate=[\d.]+ tokens/sec, GlobalRate=[\d.]+ tokens/sec", log[6]
    )
    assert log[7] == "The text has 24 tokens, ended by length."
    assert re.fullmatch(
        r"On this host: 7 prompt tokens, first token after [\d.e-]+ s; 24 tokens in [\d.e-]+ s, [\d.]+ tokens/s after "
        r"the first; weights in memory, [\d.]+ kB of keys and values\.",
        log[8],
    )
    (written,) = (ready.parent / "model_dir" / "cerebras_logs").glob("*/run.log")
    assert written.read_text().splitlines()[-1].endswith(log[8])


def test_weights_may_be_bfloat16(infer):
    """A model that knows its text well says the same; what it reads is half as much."""
    ways = ("float32",), ("bfloat16",), ("bfloat16", "--memoryx", "file")
    asked = "--prompt", "the abc", *GREEDY, "--precision"
    wide, narrow, in_file = (infer(*asked, *way, "--json").document for way in ways)
    assert wide["completions"] == narrow["completions"] == in_file["completions"]
    assert (wide["host"]["precision"], narrow["host"]["precision"]) == ("float32", "bfloat16")
    assert narrow["host"]["streamed_bytes"] < 0.6 * wide["host"]["streamed_bytes"]
    outcome = infer(*asked, "bfloat16")
    assert outcome.stdout == WRITTEN
    assert "; bfloat16 weights in memory, " in outcome.stderr


def test_where_model_dir_cannot_be_written_the_log_is_not_kept(infer, ready, monkeypatch):
    model_dir, temporary = ready.parent / "model_dir", ready.parent / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: not (path == model_dir and mode == os.W_OK) and real(path, mode)
    )
    before = sorted(model_dir.rglob("*"))
    outcome = infer("--prompt", "the abc", *GREEDY)
    assert outcome.stdout == WRITTEN
    log = [line.partition("INFO:   ")[2] for line in outcome.stderr.splitlines()]
    assert "TMP/model_dir cannot be written: this log is not kept." in log
    assert (sorted(model_dir.rglob("*")), list(temporary.iterdir())) == (before, [])


def test_a_stop_text_and_the_end_of_text_end_it(infer):
    outcome = infer("--prompt", "uvw", "--stop", ". ", "--stop", "zebra", *GREEDY)
    assert outcome.stdout == "uvwxyz\n"
    assert "The text has 5 tokens, ended by stop.\n" in outcome.stderr


def test_a_search_finds_the_likeliest_text(infer):
    searched = "--num_beams", "3", "--max_tokens", "24"
    outcome = infer("--prompt", "the abc", *searched)
    assert outcome.stdout == WRITTEN
    assert "The text has 24 tokens, ended by length.\n" in outcome.stderr
    ended = infer("--prompt", "uvw", "--stop", ". ", "--stop", "zebra", *searched)
    assert ended.stdout == "uvwxyz\n"
    assert "The text has 5 tokens, ended by stop.\n" in ended.stderr
    prompts = [word for text in ("the ", "a dog ate", "h") for word in ("--prompt", text)]
    together, by_turns, from_file = (
        json.loads(infer(*prompts, *searched, "--json", *other).stdout)["completions"]
        for other in ((), ("--batch_size", "2", "--no_kv_cache"), ("--memoryx", "file", "--lanes", "1"))
    )
    assert together == by_turns == from_file


def test_beams_need_memory(infer, monkeypatch):
    monkeypatch.setattr("cstool.inference.model.available_memory_bytes", lambda: 100_000)
    outcome = infer("--prompt", "the abc", "--num_beams", "50", "--max_tokens", "24")
    assert outcome.code == 2, outcome
    rule = "50 beams of 31 tokens: keys and values must fit half of the free memory (50,000 bytes), got 1,587,200 bytes"
    assert outcome.stderr.endswith(error(rule, "a smaller --max_tokens, or fewer beams, needs less"))


def test_nothing_but_the_request_changes_the_text(infer, ready):
    prompts = [word for text in ("the ", "a dog ate", "h") for word in ("--prompt", text)]
    asked = (*prompts, "--max_tokens", "20", "--temperature", "0.9", "--json")
    plain = infer(*asked).document
    assert [len(completion["tokens"]) for completion in plain["completions"]] == [20, 20, 20]
    assert plain["host"]["weights"] == "resident"
    assert plain["host"]["passes"] == 20
    for others in (
        ("--no_kv_cache", "--lanes", "3"),
        ("--batch_size", "1", "--lanes", "1"),
        ("--batch_size", "2", "--num_csx", "3"),
        ("--executor", "python"),
        ("--memoryx", "file"),
    ):
        found = infer(*asked, *others).document
        assert found["completions"] == plain["completions"], others
    # A file streams in every pass: the last of the runs above.
    assert found["host"]["weights"] == "streamed"
    assert not list((ready.parent / "model_dir").glob("memoryx*"))


def test_the_seed_changes_what_is_drawn_and_nothing_else(infer):
    def text(*arguments: object) -> str:
        return infer("--prompt", "the", "--max_tokens", "30", *arguments).stdout

    hot = "--temperature", "2"
    assert text(*hot, "--seed", "1") == text(*hot) != text(*hot, "--seed", "2")
    assert text("--top_k", "1", "--seed", "2") == text("--temperature", "0")
    assert text("--top_p", "0.01", *hot) == text("--temperature", "0")


def test_what_the_model_section_says_counts_where_nothing_is_typed(infer):
    said = [f"trainer.init.model.{key}" for key in ("max_tokens=5", "temperature=0", "top_k=3", "top_p=0.9")]
    assert infer("--prompt", "abc", "--set", *said).stdout == "abcdefgh\n"
    assert infer("--prompt", "abc", "--max_tokens", "4", "--set", *said).stdout == "abcdefg\n"


def test_several_prompts_come_one_after_the_other_in_a_file_a_line_each(infer, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_bytes(b"abc\r\n\r\nmno\n")
    outcome = infer("--prompt", "xy", "--prompt_file", file, *GREEDY, "--max_tokens", "4")
    assert outcome.stdout.splitlines() == [
        "--- prompt 1 of 3: 4 tokens, ended by length",
        "xyz. a",
        "--- prompt 2 of 3: 4 tokens, ended by length",
        "abcdefg",
        "--- prompt 3 of 3: 4 tokens, ended by length",
        "mnopqrs",
    ]
    out = tmp_path / "out.jsonl"
    found = infer("--prompt", "the", "--prompt", "a", *GREEDY, "--json", "--output", out).document
    assert [json.loads(line) for line in out.read_text().splitlines()] == found["completions"]


def test_prompts_of_a_jsonl_file_and_of_stdin(infer, tmp_path, monkeypatch):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "the cat\\nsat"}\n\n{"prompt": "h", "id": 7}\n')
    found = infer("--prompt_file", file, "--json", "--max_tokens", "1").document
    assert [completion["prompt"] for completion in found["completions"]] == ["the cat\nsat", "h"]
    file.write_bytes('\ufeff{"prompt": "a\u2028b"}\r\n'.encode())
    found = infer("--prompt_file", file, "--json", "--max_tokens", "1").document
    assert [completion["prompt"] for completion in found["completions"]] == ["a\u2028b"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\x0c1\ntwo")))
    found = infer("--prompt_file", "-", "--json", "--max_tokens", "1").document
    assert [completion["prompt"] for completion in found["completions"]] == ["one\x0c1", "two"]
    monkeypatch.setattr(sys, "stdin", None)
    message = error("stdin: must be open to read prompts from, got a process without one")
    assert infer("--prompt_file", "-") == (2, "", message)


def test_a_terminal_gets_no_control_characters(infer, monkeypatch):
    asked = "--prompt", "\x1b[31mab\tc\n", "--max_tokens", "2", "--temperature", "0"
    assert infer(*asked).stdout.startswith("\x1b[31mab\tc\n")
    monkeypatch.setattr("cstool.foundation.terminal.screen.is_terminal", lambda stream: stream is sys.stdout)
    assert infer(*asked).stdout.startswith("\ufffd[31mab\tc\n")


def test_ctrl_c_ends_it_with_what_there_is(infer, monkeypatch):
    whole = infer("--prompt", "abc", "--prompt", "xyz", *GREEDY, "--json").document
    choice = Sampling.choice

    def interrupted(self: Sampling, prompt: int, position: int) -> Choice:
        if (prompt, position) == (1, 3 + 5):
            signal.raise_signal(signal.SIGINT)
        return choice(self, prompt, position)

    monkeypatch.setattr(Sampling, "choice", interrupted)
    outcome = infer("--prompt", "abc", "--prompt", "xyz", *GREEDY, "--json")
    assert outcome.code == 130
    assert outcome.stderr.endswith("interrupted: stopped by SIGINT after 12 tokens\n")
    assert "SIGINT: stopping as soon as the tokens under way are there. Another SIGINT (Ctrl-C) " in outcome.stderr
    found = json.loads(outcome.stdout)["completions"]
    assert [completion["finish_reason"] for completion in found] == ["interrupted", "interrupted"]
    assert [c["tokens"] for c in found] == [c["tokens"][:6] for c in whole["completions"]]
    # By turns, of the second nothing is there.
    monkeypatch.setattr(Sampling, "choice", lambda *of: signal.raise_signal(signal.SIGINT) or choice(*of))
    outcome = infer("--prompt", "abc", "--prompt", "xyz", "--batch_size", "1", "--json")
    found = [(c["prompt"], len(c["tokens"]), c["finish_reason"]) for c in json.loads(outcome.stdout)["completions"]]
    assert found == [("abc", 1, "interrupted"), ("xyz", 0, "interrupted")]


def test_the_log_of_a_training_stays_the_latest(infer, cstool, ready):
    link = ready.parent / "model_dir" / "latest_run.log"
    assert cstool("run", "--params", ready, "--max_steps", "61").code == 0
    before = link.readlink()
    assert infer("--prompt", "abc", *GREEDY).code == 0
    assert link.readlink() == before


def test_a_checkpoint_has_the_params_of_its_model(infer, cstool, ready, tmp_path):
    with_file = infer("--prompt", "the cat", *GREEDY).stdout
    ready.unlink()
    # The text of its data set says which tokenizer it was; it may lie anywhere.
    outcome = cstool(
        *("run", "--mode", "infer", "--checkpoint_path", f"{tmp_path / 'model_dir'}:latest"),
        *("--tokenizer", "bytes", "--prompt", "the cat", *GREEDY),
    )
    assert (outcome.code, outcome.stdout) == (0, with_file)


def test_a_prompt_that_is_too_long_can_be_cut_and_a_sequence_ends_where_the_context_does(infer):
    def answer(prompt: str, *flags: str) -> dict[str, Any]:
        (found,) = infer("--prompt", prompt, *flags, *GREEDY, "--json").document["completions"]
        return found

    cut, same, last = answer(TEXT[:90], "--truncate_prompt"), answer(TEXT[50:90]), answer(TEXT[:60])
    assert (cut["tokens"], cut["prompt_tokens"], cut["prompt"]) == (same["tokens"], 40, TEXT[:90])
    assert (len(last["tokens"]), last["finish_reason"]) == (4, "context")


def test_a_sparse_model_answers_and_streams_its_non_zeros(infer, cstool, ready, tmp_path):
    sparse = ("--set", "trainer.init.sparsity=0.9", "--model_dir", tmp_path / "sparse")
    assert cstool("run", "--params", ready, *sparse, "--max_steps", "2").code == 0
    asked = "--prompt", "the cat", *GREEDY, "--json", *sparse
    found = infer(*asked).document
    assert infer(*asked, "--no_kv_cache").document["completions"] == found["completions"]
    dense = infer("--prompt", "the cat", *GREEDY, "--json").document
    assert found["host"]["streamed_bytes"] < 0.7 * dense["host"]["streamed_bytes"]


def digits_params(folder: Path) -> Path:
    """Write pictures whose class can be seen, and the params of a small classifier of them."""
    rng = np.random.default_rng(0)
    (folder / "mnist").mkdir()
    for part, count in (("train", 200), ("t10k", 50)):
        labels = rng.integers(0, 10, count).astype(np.uint8)
        pictures = rng.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        for picture, label in zip(pictures, labels, strict=True):
            picture[2 * label : 2 * label + 4] = 250
        header = np.array([2051, count, 28, 28], ">i4").tobytes()
        (folder / "mnist" / f"{part}-images-idx3-ubyte").write_bytes(header + pictures.tobytes())
        header = np.array([2049, count], ">i4").tobytes()
        (folder / "mnist" / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())
    text = (Path(__file__).parents[2] / "params" / "fc_mnist.yaml").read_text()
    file = folder / "digits.yaml"
    file.write_text(re.sub(r"(?<=data_dir: ).*mnist", str(folder / "mnist"), text))
    return file


@pytest.fixture
def digits(cstool, tmp_path) -> tuple[object, ...]:
    """Arguments that name a trained classifier."""
    named = "--params", digits_params(tmp_path), "--model_dir", tmp_path / "digits"
    batches = "--set", "trainer.fit.train_dataloader.batch_size=20", "trainer.fit.val_dataloader.batch_size=16"
    assert cstool("run", *named, "--max_steps", "40", *batches).code == 0
    return (*named, *batches)


def test_classes_go_to_csv_and_hdf5(cstool, digits, tmp_path):
    found = cstool("run", *digits, "--mode", "infer", "--json").document
    assert found["predictions"]["path"] == "TMP/digits/predictions_40.csv"
    with (tmp_path / "digits" / "predictions_40.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["sample"]) for row in rows] == list(range(50))
    right = [row["label"] == row["prediction"] for row in rows]
    evaluated = cstool("run", *digits, "--mode", "eval", "--json").document
    assert found["predictions"]["accuracy"] == sum(right) / 50 == evaluated["evaluations"][-1]["accuracy"] > 0.9
    out = tmp_path / "out.h5"
    again = cstool("run", *digits, "--mode", "infer", "--output", out, "--batch_size", "7")
    assert (again.code, again.stdout) == (0, "")
    assert again.stderr.endswith(f"TMP/out.h5: 50 predictions, {sum(right) / 50:.2%} of them right.\n")
    with h5py.File(out) as file:
        probabilities = file["probability"][...]
        assert file["prediction"][...].tolist() == [int(row["prediction"]) for row in rows]
        assert file["label"][...].tolist() == [int(row["label"]) for row in rows]
    assert probabilities.dtype == np.float32
    written = np.array([[float(row[f"probability_{k}"]) for k in range(10)] for row in rows])
    np.testing.assert_allclose(probabilities, written, rtol=1e-5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)


def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(cstool, digits, tmp_path):
    rule = "must be a file in a folder that can be written"
    for output, found in (
        ("nowhere/x.csv", "a folder that is not there, or not to be written to"),
        ("taken.csv", "a folder of that name"),
    ):
        (tmp_path / "taken.csv").mkdir(exist_ok=True)
        outcome = cstool("run", *digits, "--mode", "infer", "--output", tmp_path / output)
        assert outcome == (2, "", error(f"--output TMP/{output}: {rule}, got {found}"))
    assert not list(tmp_path.glob(".taken*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), error("--prompt: must be given for a model that generates text", FILE_HINT)),
        (("--prompt", ""), error("prompt: must have at least one character, got an empty one", NEWLINE)),
        ((*A, "--prompt", ""), error("prompt 2: must have at least one character, got an empty one", NEWLINE)),
        (("--prompt", "a" * 64),
         error("prompt: must leave room for a token in the model's context of 64, got 64 tokens",
               "--truncate_prompt goes on from its last 32")),
        ((*A, "--max_tokens", "0"), error("max_tokens: must be at least 1, got 0")),
        ((*A, "--num_beams", "4", "--top_k", "9"),
         error("top_k: must go without num_beams, got num_beams 4", "a search draws nothing")),
        ((*A, "--length_penalty", "2"), error("length_penalty: must go with num_beams, got one beam")),
        ((*A, "--stop", ""), error("stop: must have at least one character, got an empty one")),
        ((*A, "--batch_size", "0"), error("batch_size: must be at least 1, got 0")),
        ((*A, "--output", "x.csv"), error("--output x.csv: must end in .jsonl, got .csv")),
        ((*A, "--output", "x"), error("--output x: must end in .jsonl, got no ending")),
        ((*A, "--tokenizer", "TMP/none.json"),
         error("TMP/none.json: must be bytes or a tokenizers JSON file, found nothing there")),
        (("--prompt_file", "TMP/none.txt"), error("TMP/none.txt: must be a file of prompts, found nothing there")),
        (("--prompt_file", "TMP"), error("TMP: must be a readable file, got: Is a directory")),
        (("--prompt_file", "TMP/empty.txt"), error("TMP/empty.txt: must have a prompt, got nothing")),
        (("--prompt_file", "TMP/blank.txt"), error("TMP/blank.txt: must have a prompt, got only empty lines")),
        (("--prompt_file", "TMP/latin1.txt"), error("TMP/latin1.txt: must be UTF-8, got the byte 0xe4 at 4")),
        (("--prompt_file", "TMP/bad.jsonl"),
         error('TMP/bad.jsonl:2: must be a JSON object with a text under "prompt", got {"text": "a"}')),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for_is_refused_before_anything_is_read(infer, tmp_path, arguments, message):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "latin1.txt").write_bytes("ein älter".encode("latin-1"))
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\n{"text": "a"}\n')
    outcome = infer(*(argument.replace("TMP", str(tmp_path)) for argument in arguments))
    assert outcome == (2, "", message)


@pytest.mark.parametrize(
    "flag", ["--max_steps=5", "--trace=t.json", "--artifact=a.json", "--compile_only", "--system=cs3"]
)
def test_flags_of_other_modes_are_not(infer, flag):
    name = flag.partition("=")[0]
    message = error(f"{name}: must go with a mode that trains or evaluates, got --mode infer")
    assert infer("--prompt", "a", flag) == (2, "", message)


def test_a_classifier_takes_no_prompt(cstool, tmp_path):
    params = digits_params(tmp_path)
    message = error("--prompt: must be for a model that generates text, got fc_mnist")
    assert cstool("run", "-p", params, "--mode", "infer", "--prompt", "a") == (2, "", message)
    message = error("--output x.txt: must end in .csv or .h5, got .txt")
    assert cstool("run", "-p", params, "--mode", "infer", "--output", "x.txt") == (2, "", message)


def test_a_tokenizer_must_be_known_and_be_that_of_the_model(cstool, data, tmp_path):
    params, hint = gpt_params(tmp_path, data), "bytes, or the tokenizer.json of the training data"
    rule = "--tokenizer: must be given where the data set does not say how it was made, and DATA does not"
    assert cstool("run", "-p", params, "--mode", "infer", "--prompt", "a").refusal == error(rule, hint)
    rule = "prompt: its tokens must be below the model's vocab_size (64), got 99"
    other = "the tokenizer (bytes) has 256 tokens: --tokenizer names that of the training data"
    asked = "run", "-p", params, "--mode", "infer", "--prompt"
    assert cstool(*asked, "abc", "--tokenizer", "bytes").refusal == error(rule, other)
    params.write_text(params.read_text().partition("  fit:")[0])
    rule = "--tokenizer: must be given where the params name no data set"
    assert cstool("run", "-p", params, "--mode", "infer", "--prompt", "a").refusal == error(rule, hint)


def test_a_checkpoint_without_params_is_refused(cstool, ready, tmp_path):
    bare = tmp_path / "bare.mdl"
    rewrite(tmp_path / "model_dir" / "checkpoint_60.mdl", bare, __metadata__="left out")
    outcome = cstool("run", "--mode", "infer", "--checkpoint_path", bare, "--prompt", "a")
    message = "TMP/bare.mdl: must have the params of its model, it has none"
    assert outcome.refusal == error(message, "--params names the file of the model")
    assert cstool("run", "--mode", "infer", "--prompt", "a").refusal.startswith("error: cstool run: missing option")
