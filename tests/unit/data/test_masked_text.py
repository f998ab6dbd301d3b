"""Texts whose masks are drawn as they are read."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from cstool.data import allocate
from cstool.data.masked_text import MaskedTextRequest, open_masked_text
from tests.examples import examples
from tests.unit.data.encoder_files import WORDS, read, shapes, write_rows, write_vocabulary

COLUMNS = ("tokens", "segment_ids", "is_random_next")
TEXTS = (
    ["[CLS]", "the", "cat", "##s", "sat", "[SEP]", "on", "a", "mat", "[SEP]"],
    ["[CLS]", "The", "dog", "[SEP]", "'", "whale", ".", "[SEP]"],
    ["[CLS]", "a", "[SEP]", "mat", "[SEP]"],
)
SEGMENTS = ([0] * 6 + [1] * 4, [0] * 4 + [1] * 4, [0] * 3 + [1] * 2)
ROWS = [[str(tokens), str(segments), number % 2] for number, (tokens, segments) in enumerate(zip(TEXTS, SEGMENTS))]  # noqa: B905


@pytest.fixture
def opened(tmp_path):
    """Write three pairs in two files, and open them; arguments may be changed."""
    folder = tmp_path / "data"
    write_rows(folder, "a.csv", COLUMNS, ROWS[:2])
    write_rows(folder, "b.csv", COLUMNS, ROWS[2:])

    def call(folders=(folder,), **changes):
        request = {"sequence_length": 12, "predictions": 3, "has_pairs": True, **changes}
        others = {name: request.pop(name) for name in ("do_lower", "vocab_size", "vocabulary") if name in request}
        vocabulary = others.pop("vocabulary", write_vocabulary(tmp_path))
        return open_masked_text(folders, MaskedTextRequest(**request), vocabulary, **others)

    return call


def original(sample: dict, row: int) -> list[int]:
    """The tokens of a sample with its labels put back."""
    ids = list(sample["input_ids"][row])
    for position, label, counts in zip(
        *(sample[name][row] for name in ("masked_lm_positions", "labels", "mask")), strict=True
    ):
        if counts:
            ids[position] = label
    return ids


def test_fields_are_those_of_pairs_or_of_texts(opened):
    texts = {
        "input_ids": ((12,), "int32"),
        "attention_mask": ((12,), "int32"),
        "masked_lm_positions": ((3,), "int32"),
        "labels": ((3,), "int32"),
        "mask": ((3,), "float32"),
    }
    pairs = {
        "token_type_ids": ((12,), "int32"),
        "next_sentence_label": ((1,), "int32"),
        "sample_mask": ((1,), "float32"),
    }
    assert shapes(opened()) == texts | pairs
    assert shapes(opened(has_pairs=False)) == texts


def test_a_sample_is_its_row_with_masks(opened):
    sample = read(opened(padding=9), [0, 1, 2])
    expected = [[WORDS.index(word) if word in WORDS else 1 for word in text] for text in TEXTS]
    assert [original(sample, row) for row in range(3)] == [ids + [9] * (12 - len(ids)) for ids in expected]
    assert sample["attention_mask"] == [[1] * len(text) + [0] * (12 - len(text)) for text in TEXTS]
    assert sample["token_type_ids"] == [segments + [0] * (12 - len(segments)) for segments in SEGMENTS]
    assert (sample["next_sentence_label"], sample["sample_mask"]) == ([[0], [1], [0]], [[1.0]] * 3)
    assert [sum(mask) for mask in sample["mask"]] == [2, 1, 1]  # 15 % of 10, 8 and 5, at least 1


def test_lower_case_is_of_texts_vocabulary_and_special_tokens(opened, tmp_path):
    (tmp_path / "cased").mkdir()
    cased = write_vocabulary(tmp_path / "cased", [word.upper() for word in WORDS])
    sample = read(opened(do_lower=True, vocabulary=cased), [1])
    assert original(sample, 0)[:4] == [2, 5, 13, 3]


@examples(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(indices=st.lists(st.integers(0, 2), max_size=8), epoch=st.integers(0, 2))
def test_reading_in_any_order_gives_the_same_samples(opened, indices, epoch):
    dataset = opened()
    whole = read(dataset, [0, 1, 2], epoch)
    assert read(dataset, indices, epoch) == {name: [values[i] for i in indices] for name, values in whole.items()}


def test_masks_are_others_in_another_epoch_or_with_another_seed(opened):
    found = [read(dataset, [0, 1, 2], epoch) for dataset in (opened(), opened(seed=2)) for epoch in range(4)]
    masks = [str(sample["masked_lm_positions"]) for sample in found]
    assert len(set(masks)) > 5
    assert all(sample["attention_mask"] == found[0]["attention_mask"] for sample in found)


def test_long_batches_are_read_in_blocks(opened, monkeypatch):
    whole = read(opened(), [0, 1, 2, 1])
    monkeypatch.setattr("cstool.data.masked_text._BLOCK_TOKENS", 13)
    assert read(opened(), [0, 1, 2, 1]) == whole


def test_texts_are_cut_where_they_are_no_pairs(opened):
    sample = read(opened(sequence_length=6, has_pairs=False), [0])
    assert original(sample, 0) == [2, 5, 6, 8, 7, 3]


def test_files_are_closed(opened):
    before = len(os.listdir("/proc/self/fd"))
    dataset = opened()
    read(dataset, [0, 2])
    dataset.close()
    dataset.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_nothing_is_read_for_nothing(opened):
    dataset = opened()
    dataset.read(np.empty(0, np.int64), allocate(dataset.fields, 0))


def test_it_describes_itself(opened, tmp_path):
    assert opened().describe() == f"{tmp_path}/data: 3 samples of 12 tokens"


PAIRS = "disable_nsp: true takes texts that do not come in pairs; `cstool data prepare mlm --nsp` makes some that do"


def test_pairs_need_segments(opened, tmp_path, error_of):
    write_rows(tmp_path / "texts", "a.csv", ["tokens"], [[str(TEXTS[0])]])
    assert error_of(tmp_path, opened, [tmp_path / "texts"]) == (
        f"DIR/texts/a.csv: must have the columns tokens, segment_ids, is_random_next, got tokens\nhint: {PAIRS}"
    )
    assert opened([tmp_path / "texts"], has_pairs=False).sample_count == 1


def test_texts_must_be_there(opened, tmp_path, error_of):
    write_rows(tmp_path / "texts", "a.csv", ["words"], [[str(TEXTS[0])]])
    assert error_of(tmp_path, opened, [tmp_path / "texts"]) == (
        "DIR/texts/a.csv: must have the columns tokens, segment_ids, is_random_next, got words\n"
        "hint: tokens and segment_ids and is_random_next are missing"
    )


VOCABULARY = "hint: it is the vocab.txt of a BERT model, or of a data set of `cstool data prepare mlm`"


def test_the_vocabulary_needs_the_mask_and_the_unknown_token(opened, tmp_path, error_of):
    (tmp_path / "other").mkdir()
    for missing in ("[MASK]", "[UNK]"):
        vocabulary = write_vocabulary(tmp_path / "other", [word for word in WORDS if word != missing])
        assert error_of(tmp_path, opened, vocabulary=vocabulary) == (
            f"DIR/other/vocab.txt: must have the token {missing}, got 14 others\n{VOCABULARY}"
        )


def test_a_vocabulary_must_be_there(opened, tmp_path, error_of):
    rule = "must be a vocabulary, a token on each line"
    assert error_of(tmp_path, opened, vocabulary=tmp_path / "none.txt") == (
        f"DIR/none.txt: {rule}, found nothing there\n{VOCABULARY}"
    )
    assert error_of(tmp_path, opened, vocabulary=tmp_path / "$ZOO" / "none.txt") == (
        f"DIR/$ZOO/none.txt: {rule}, found nothing there\n"
        "hint: ZOO is not set in the environment: set it to the folder that it stands for"
    )
    assert (
        error_of(tmp_path, opened, vocabulary=tmp_path) == f"DIR: {rule}, got a folder\nhint: give the vocab.txt in it"
    )
    (tmp_path / "binary").write_bytes(b"\x89PNG")
    assert error_of(tmp_path, opened, vocabulary=tmp_path / "binary") == (
        f"DIR/binary: {rule}, got byte 0x89 at offset 0\n{VOCABULARY}"
    )


def test_a_vocabulary_must_fit_the_model(opened, tmp_path, error_of):
    assert error_of(tmp_path, opened, vocab_size=14) == (
        "DIR/vocab.txt: must have at most vocab_size (14) tokens, got 15\n"
        "hint: vocab_size of the model must be that of the data set"
    )


def test_something_must_be_left_to_mask(opened, tmp_path, error_of):
    assert error_of(tmp_path, opened, excluded=WORDS) == (
        "DIR/vocab.txt: must have tokens that are not excluded from masking, got none"
    )


def test_a_pair_is_not_cut(opened, tmp_path, error_of):
    assert error_of(tmp_path, read, opened(sequence_length=8), [0]) == (
        "DIR/data/a.csv:2: tokens must be at most max_sequence_length (8), got 10\n"
        "hint: a pair is not cut; give a larger max_sequence_length, or prepare the data with a smaller one"
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["[1, 2]", "[0]", 0], "tokens must be a list of texts, such as ['a', 'b'], got '[1, 2]'"),
        (["the cat", "[0]", 0], "tokens must be a list of texts, such as ['a', 'b'], got 'the cat'"),
        (["['a', 'b]", "[0]", 0], """tokens must be a list of texts, such as ['a', 'b'], got "['a', 'b]\""""),
        (["[]", "[]", 0], "tokens must have at least one, got none"),
        (["['a']", "[0, 1]", 0], "segment_ids must have 1 value, one for each token, got 2"),
        (["['a']", "[2]", 0], "segment_ids must be in [0, 2), got 2"),
        (["['a']", "x", 0], "segment_ids must be a list of whole numbers, such as [1, 2], got 'x'"),
        (["['a']", "[0]", 2], "is_random_next must be in [0, 2), got 2"),
        (["['a']", "[0]", "[0, 1]"], "is_random_next must be one whole number, got '[0, 1]'"),
    ],
)
def test_a_row_that_makes_no_sample_is_an_error_with_its_line(opened, tmp_path, error_of, row, message):
    write_rows(tmp_path / "bad", "a.csv", COLUMNS, [ROWS[0], row])
    assert error_of(tmp_path, read, opened([tmp_path / "bad"]), [0, 1]) == f"DIR/bad/a.csv:3: {message}"


QUOTES = st.text("ab'\"\\,[] \n\té", min_size=1, max_size=4)


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tokens=st.lists(QUOTES, min_size=1, max_size=6))
def test_tokens_of_any_characters_are_found_again(tmp_path_factory, tokens):
    folder = tmp_path_factory.mktemp("tokens")
    words = list(dict.fromkeys([*WORDS, *(token.strip() for token in tokens if token.strip() and "\n" not in token)]))
    write_rows(folder, "a.csv", ["tokens"], [[str(tokens)]])
    request = MaskedTextRequest(sequence_length=8, predictions=3, has_pairs=False)
    sample = read(open_masked_text([folder], request, write_vocabulary(folder, words)), [0])
    ids = {word: number for number, word in enumerate(words)}
    assert original(sample, 0)[: len(tokens)] == [ids.get(token, 1) for token in tokens]
