"""Pairs of answers from JSON Lines to the vendor's files."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.params import LabelledParams, PreferencesParams
from cstool.training.data import (
    ByteTokenizer,
    PreferencePlan,
    check_data,
    data_info,
    open_part,
    prepare_preferences,
    tokenizer_of,
)
from cstool.training.data.preference_preparation import KEYS, PreferencePart, pair_of
from cstool.training.data.preferences import LabelledDataset, PreferenceDataset
from tests.unit.training.data.encoder_files import opened_by, read
from tests.unit.training.data.made import ANOTHER, content_of, preparer, save_words

open_preferences = partial(opened_by, PreferenceDataset, PreferencesParams)

HINT = 'hint: a line is {"prompt": "...", "chosen": "...", "rejected": "..."}'
LINES = [{"prompt": f"{n}+{n}=", "chosen": str(2 * n), "rejected": "many", "score": n} for n in range(20)]


@pytest.fixture
def prepare(tmp_path):
    """Write lines, objects as JSON, and prepare them; what is asked for may be changed."""

    def call(lines=LINES, output=tmp_path / "out", name="pairs.jsonl", **changes):
        path = tmp_path / name
        path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        usual = {"sequence_length": 16, "val_fraction": 0.2}
        return preparer(prepare_preferences, PreferencePlan, path, output, **usual)(**changes)

    return call


class WithBegin(ByteTokenizer):
    """Bytes behind two tokens."""

    begin = (1, 2)


def slow_text(prompt: list[int], answer: list[int], length: int) -> tuple[list[int], list[int], list[int]]:
    """Ids, mask and labels of a text, place by place; `prompt` has what it begins with."""
    tokens = (prompt + answer)[:length]
    ids, labels, mask = [], [], []
    for place in range(length):
        ids.append(tokens[place] if place < len(tokens) else 0)
        counts = len(prompt) - 1 <= place < len(tokens) - 1
        labels.append(tokens[place + 1] if counts else 0)
        mask.append(int(counts))
    return ids, mask, labels


@given(lengths=st.tuples(*[st.integers(1, 12)] * 3), length=st.integers(4, 24), begins=st.booleans())
def test_a_sample_is_two_texts_of_which_answers_count(lengths, length, begins):
    tokenizer = WithBegin() if begins else ByteTokenizer()
    prompt, chosen, rejected = ("abcdefghijkl"[:count] for count in lengths)
    found, is_cut = pair_of({"prompt": prompt, "chosen": chosen, "rejected": rejected}, tokenizer, length, "x:1")
    begin, shown = list(tokenizer.begin), list(prompt.encode())
    answers = [[*text.encode(), 0] for text in (chosen, rejected)]
    while len(shown) > 1 and len(begin) + len(shown) + max(map(len, answers)) > length:
        shown = shown[1:]
    assert (found.shape, found.dtype) == ((6, length), np.int32)
    for text, answer in enumerate(answers):
        expected = slow_text(begin + shown, answer, length)
        assert found[3 * text : 3 * text + 3].tolist() == list(expected)
        assert sum(expected[1]) >= 1
    assert is_cut == (len(begin) + len(prompt) + max(map(len, answers)) > length)


def test_what_a_prompt_begins_with_is_not_put_before_it_twice():
    texts = {"prompt": "\x01\x02a", "chosen": "b", "rejected": "c"}
    found, _ = pair_of(texts, WithBegin(), 8, "x:1")
    assert found[0].tolist() == [1, 2, 97, 98, 0, 0, 0, 0]


def held(folder: Path) -> dict[str, list[int]]:
    """The numbers of the lines of each part, of their prompts."""
    found = {}
    for part in ("train", "val"):
        dataset = open_preferences([folder / part])
        ids = read(dataset, range(dataset.sample_count))["input_ids"]
        found[part] = [int(bytes(row).split(b"+")[0]) for row in ids]
    assert sorted(found["train"] + found["val"]) == list(range(20))
    assert found["train"] == sorted(found["train"])
    return found


def test_pairs_are_made_held_out_and_read(prepare, tmp_path):
    made, out = prepare(), tmp_path / "out"
    tokens = {name: sum(len(str(2 * n)) + 1 + 5 for n in numbers) for name, numbers in held(out).items()}
    assert (made.train, made.val) == (PreferencePart(16, tokens["train"], 0), PreferencePart(4, tokens["val"], 0))
    assert (made.path, made.left_out, made.tokenizer, made.already_prepared) == (out, 0, "bytes", False)
    info = data_info(out)
    assert (info.format, info.vocab_size, info.packing) == ("HDF5 of preferences", 256, None)
    assert (info.parts["val"].samples, info.parts["val"].tokens) == (4, made.val.tokens)
    assert read(open_part(out, "train"), [0])["mask"] == [[1.0]]
    assert check_data(out).findings == []
    (out / "val" / "data_00000.h5").unlink()
    assert check_data(out).findings[-1] == f"{out}/val: must have 4 samples as it was made, got 0"


def test_which_are_held_out_follows_from_the_seed(prepare, tmp_path):
    for name, changes in (("one", {}), ("again", {}), ("two", {"seed": 2})):
        prepare(output=tmp_path / name, **changes)
    assert held(tmp_path / "one")["val"] != held(tmp_path / "two")["val"]
    first, again = (content_of(tmp_path / name) for name in ("one", "again"))
    assert {name: first[name] for name in first if name.endswith(".h5")}.items() <= again.items()


def test_lines_without_a_prompt_or_an_answer_are_left_out(prepare, tmp_path):
    without = [{"prompt": " ", "chosen": "a", "rejected": "b"}, {"prompt": "a", "chosen": "a", "rejected": ""}]
    made = prepare(["", *LINES, *without], val_fraction=0)
    assert (made.train.pairs, made.val.pairs, made.left_out) == (20, 0, 2)
    assert [*data_info(tmp_path / "out").parts] == ["train"]


def test_progress_comes_to_the_end_what_was_made_is_kept_and_nothing_else_replaced(prepare, tmp_path, error_of):
    told = []
    first, again = prepare(progress=lambda *state: told.append(state)), prepare()
    size = (tmp_path / "pairs.jsonl").stat().st_size
    assert (told[0], told[-1]) == ((size, 2 * size), (2 * size, 2 * size))
    assert told == sorted(told)
    assert again == replace(first, already_prepared=True, duration_s=again.duration_s)
    assert error_of(prepare, seed=5) == f"DIR/out: {ANOTHER}"


def test_a_tokenizer_is_copied_and_found_again(prepare, tmp_path):
    saved = save_words(tmp_path / "words.json", "<unk>", **{"<unk>": 0, "</s>": 1, "many": 2, "=": 3})
    lines = [{"prompt": "=", "chosen": "many", "rejected": "="}] * 2
    found = prepare(lines, tokenizer=str(saved), val_fraction=0)
    assert (found.tokenizer, found.vocab_size) == (f"{tmp_path}/out/tokenizer.json", 4)
    assert tokenizer_of(tmp_path / "out" / "train").vocab_size == 4
    [ids] = read(open_part(tmp_path / "out", "train"), [0])["input_ids"]
    assert (ids[:4], ids[16:20]) == ([3, 2, 1, 0], [3, 3, 1, 0])


LISTED, WHOLE = "must have texts under prompt, chosen, rejected, got", "must have whole characters under chosen"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "must be a JSON object, got its end after 1 characters"),
        ('{"prompt": "a", "chosen": "b"}', f"{LISTED} none under rejected\n{HINT}"),
        ('{"prompt": ["a"], "chosen": "b", "rejected": "c"}', f"{LISTED} something else under prompt\n{HINT}"),
        ('{"prompt": "a", "chosen": "\\ud800", "rejected": "c"}', f"{WHOLE}, got half of one"),
    ],
)
def test_a_wrong_line_is_an_error_with_its_number(prepare, tmp_path, error_of, line, message):
    assert error_of(prepare, [LINES[0], line]) == f"DIR/pairs.jsonl:2: {message}"
    assert not (tmp_path / "out").exists()


def test_what_no_pairs_can_be_made_of_is_refused(prepare, tmp_path, error_of):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("notes")
    few = "at least 2 lines with a prompt and both answers"
    for changes, message in [
        ({"sequence_length": 3}, "--sequence_length: must be from 4 to 1,048,576, got 3"),
        ({"val_fraction": 1.0}, "--val_fraction: must be at least 0 and less than 1, got 1.0"),
        ({"tokenizer": "no.json"}, "no.json: must be bytes or a tokenizers JSON file, found nothing there"),
        ({"name": "pairs.json"}, f"DIR/pairs.json: must be JSON Lines, a file .jsonl or .ndjson, got another\n{HINT}"),
        ({"sources": [tmp_path / "folder"]}, f"DIR/folder: must hold files .jsonl or .ndjson, got none\n{HINT}"),
        ({"lines": LINES[:1]}, f"DIR/pairs.jsonl: must have {few}, got 1\n{HINT}"),
    ]:
        assert error_of(prepare, **changes) == message


def test_a_text_must_have_room_and_a_prompt_a_token(error_of):
    texts = dict.fromkeys(KEYS, "a")

    class Long(ByteTokenizer):
        begin = (1, 2, 3)

    assert error_of(pair_of, texts, Long(), 4, "x:1") == (
        "--sequence_length: must leave tokens for a prompt and an answer behind the 3 that the tokenizer begins a text "
        "with, got 4"
    )
    rule = "x:1: must have a prompt of at least one token, got none"
    assert error_of(pair_of, {**texts, "prompt": "\x01\x02"}, WithBegin(), 8, "x:1") == rule


LABELLED = [{"prompt": f"{n}=", "completion": "abc"[: 1 + n % 3], "label": n % 3 == 0} for n in range(6)]
OF_LABELLED = 'hint: a line is {"prompt": "...", "completion": "...", "label": true}'


def test_beside_a_labelled_answer_stands_that_of_the_next_line_and_beside_the_last_the_first(prepare, tmp_path):
    made = prepare(
        ["", *LABELLED, {"prompt": "a", "completion": " ", "label": True}], sequence_length=8, val_fraction=0
    )
    dataset = opened_by(LabelledDataset, LabelledParams, [tmp_path / "out" / "train"])
    samples = read(dataset, range(6))
    assert samples["desirable"] == [[float(line["label"])] for line in LABELLED]
    for number, row in enumerate(samples["input_ids"]):
        answers = [LABELLED[n % 6]["completion"] for n in (number, number + 1)]
        texts = [list(f"{number}={answer}".encode()) for answer in answers]
        assert row == [token for text in texts for token in (*text, *[0] * (8 - len(text)))]
    assert (made.train.pairs, made.train.tokens, made.left_out) == (6, sum(2 + n % 3 for n in range(6)), 1)
    info = data_info(tmp_path / "out")
    assert (info.format, info.sequence_length) == ("HDF5 of labelled answers", 8)
    assert check_data(tmp_path / "out").findings == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"prompt": "a", "completion": "b"}, "must have true or false under label, got none under label"),
        ({"prompt": "a", "completion": "b", "label": 1},
         "must have true or false under label, got something else under label"),
        ({"prompt": "a", "label": True}, "must have texts under prompt, completion, got none under completion"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_labelled_answer_is_told(prepare, error_of, line, message):
    assert error_of(prepare, [LABELLED[0], line]) == f"DIR/pairs.jsonl:2: {message}\n{OF_LABELLED}"


def test_one_labelled_answer_is_too_few_where_some_are_held_out(prepare, error_of):
    rule = "must have at least 2 lines with a prompt and its answer, got 1"
    assert error_of(prepare, LABELLED[:1]) == f"DIR/pairs.jsonl: {rule}\n{OF_LABELLED}"
