"""Texts whose masks are drawn as they are read."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from cstool.model.params import MaskedTextParams
from cstool.training.data import allocate
from cstool.training.data.masked_text import MaskedTextDataset
from tests.end_to_end.refusals import rows
from tests.examples import examples
from tests.unit.training.data.encoder_files import (
    OTHER_VOCABULARY,
    WORDS,
    opened_by,
    read,
    shapes,
    write_rows,
    write_vocabulary,
)

COLUMNS = ("tokens", "segment_ids", "is_random_next")
TEXTS = (
    ["[CLS]", "the", "cat", "##s", "sat", "[SEP]", "on", "a", "mat", "[SEP]"],
    ["[CLS]", "The", "dog", "[SEP]", "'", "whale", ".", "[SEP]"],
    ["[CLS]", "a", "[SEP]", "mat", "[SEP]"],
)
SEGMENTS = ([0] * 6 + [1] * 4, [0] * 4 + [1] * 4, [0] * 3 + [1] * 2)
ROWS = [[str(text), str(ids), number % 2] for number, (text, ids) in enumerate(zip(TEXTS, SEGMENTS, strict=True))]


@pytest.fixture
def opened(tmp_path):
    """Write three pairs in two files, and open them; arguments may be changed."""
    folder = tmp_path / "data"
    write_rows(folder, "a.csv", COLUMNS, ROWS[:2])
    write_rows(folder, "b.csv", COLUMNS, ROWS[2:])

    def call(folders=(folder,), **changes):
        usual = {"max_sequence_length": 12, "max_predictions_per_seq": 3, "vocab_file": write_vocabulary(tmp_path)}
        return opened_by(MaskedTextDataset, MaskedTextParams, folders, **{**usual, **changes})

    return call


def original(sample: dict, row: int) -> list[int]:
    """The tokens of a sample with its labels put back."""
    ids = list(sample["input_ids"][row])
    names = ("masked_lm_positions", "labels", "mask")
    for position, label, counts in zip(*(sample[name][row] for name in names), strict=True):
        if counts:
            ids[position] = label
    return ids


def test_fields_are_those_of_pairs_or_of_texts(opened, tmp_path):
    texts = dict.fromkeys(("input_ids", "attention_mask"), ((12,), "int32"))
    texts |= dict.fromkeys(("masked_lm_positions", "labels"), ((3,), "int32")) | {"mask": ((3,), "float32")}
    pairs = {"token_type_ids": ((12,), "int32"), "next_sentence_label": ((1,), "int32")}
    assert shapes(opened()) == {**texts, **pairs, "sample_mask": ((1,), "float32")}
    assert shapes(opened(disable_nsp=True)) == texts
    assert opened().describe() == f"{tmp_path}/data: 3 samples of 12 tokens"


def test_a_sample_is_its_row_with_masks(opened):
    sample = read(opened(input_pad_id=9), [0, 1, 2])
    expected = [[WORDS.index(word) if word in WORDS else 1 for word in text] for text in TEXTS]
    assert [original(sample, row) for row in range(3)] == [ids + [9] * (12 - len(ids)) for ids in expected]
    assert sample["attention_mask"] == [[1] * len(text) + [0] * (12 - len(text)) for text in TEXTS]
    assert sample["token_type_ids"] == [segments + [0] * (12 - len(segments)) for segments in SEGMENTS]
    assert (sample["next_sentence_label"], sample["sample_mask"]) == ([[0], [1], [0]], [[1.0]] * 3)
    assert [sum(mask) for mask in sample["mask"]] == [2, 1, 1]  # 15 % of 10, 8 and 5, at least 1
    # Where they are no pairs, texts are cut.
    sample = read(opened(max_sequence_length=6, disable_nsp=True), [0])
    assert original(sample, 0) == [2, 5, 6, 8, 7, 3]


def test_lower_case_is_of_texts_vocabulary_and_special_tokens(opened, tmp_path):
    (tmp_path / "cased").mkdir()
    cased = write_vocabulary(tmp_path / "cased", [word.upper() for word in WORDS])
    sample = read(opened(do_lower=True, vocab_file=cased), [1])
    assert original(sample, 0)[:4] == [2, 5, 13, 3]


@examples(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(indices=st.lists(st.integers(0, 2), max_size=8), epoch=st.integers(0, 2))
def test_reading_in_any_order_gives_the_same_samples(opened, indices, epoch):
    dataset = opened()
    whole = read(dataset, [0, 1, 2], epoch)
    assert read(dataset, indices, epoch) == {name: [values[i] for i in indices] for name, values in whole.items()}


def test_masks_are_others_in_another_epoch_or_with_another_seed(opened):
    found = [read(dataset, [0, 1, 2], epoch) for dataset in (opened(), opened(shuffle_seed=2)) for epoch in range(4)]
    assert len({str(sample["masked_lm_positions"]) for sample in found}) > 5
    assert all(sample["attention_mask"] == found[0]["attention_mask"] for sample in found)


def test_long_batches_are_read_in_blocks_and_files_closed(opened, monkeypatch):
    before, dataset = len(os.listdir("/proc/self/fd")), opened()
    whole = read(dataset, [0, 1, 2, 1])
    monkeypatch.setattr("cstool.training.data.masked_text._BLOCK_TOKENS", 13)
    assert read(dataset, [0, 1, 2, 1]) == whole
    dataset.read(np.empty(0, np.int64), allocate(dataset.fields, 0))
    dataset.close()
    dataset.close()
    assert len(os.listdir("/proc/self/fd")) == before


PAIRS = "disable_nsp: true takes texts that do not come in pairs; `cstool data prepare mlm --nsp` makes some that do"


def test_texts_must_be_there_and_pairs_need_segments(opened, tmp_path, error_of):
    missing = "tokens and segment_ids and is_random_next are missing"
    for name, hint in (("tokens", PAIRS), ("words", missing)):
        write_rows(tmp_path / name, "a.csv", [name], [[str(TEXTS[0])]])
        rule = "must have the columns tokens, segment_ids, is_random_next, got"
        assert error_of(opened, [tmp_path / name]) == f"DIR/{name}/a.csv: {rule} {name}\nhint: {hint}"
    assert opened([tmp_path / "tokens"], disable_nsp=True).sample_count == 1


REFUSED = rows("""\
without_mask => /without_mask: must have the token [MASK], got 14 others\nhint: VOCABULARY
without_unk => /without_unk: must have the token [UNK], got 14 others\nhint: VOCABULARY
none.txt => /none.txt: LINES, found nothing there\nhint: VOCABULARY
$ZOO/none.txt => /$ZOO/none.txt: LINES, found nothing there
    hint: ZOO is not set in the environment: set it to the folder that it stands for
. => : LINES, got a folder\nhint: give the vocab.txt in it
binary => /binary: LINES, got byte 0x89 at offset 0\nhint: VOCABULARY
""")
VOCABULARY = "it is the vocab.txt of a BERT model, or of a data set of `cstool data prepare mlm`"
LINES = "must be a vocabulary, a token on each line"


@pytest.mark.parametrize(("name", "message"), REFUSED)
def test_a_vocabulary_must_be_there_and_whole(opened, tmp_path, error_of, name, message):
    for missing in ("mask", "unk"):
        words = [word for word in WORDS if word != f"[{missing.upper()}]"]
        write_vocabulary(tmp_path, words).rename(tmp_path / f"without_{missing}")
    (tmp_path / "binary").write_bytes(b"\x89PNG")
    expected = message.replace("VOCABULARY", VOCABULARY).replace("LINES", LINES)
    assert error_of(opened, vocab_file=tmp_path / name) == f"DIR{expected}"


def test_a_vocabulary_must_fit_the_model_and_leave_tokens_to_mask(opened, error_of):
    rule = "DIR/vocab.txt: must have at most vocab_size (14) tokens, got 15"
    assert error_of(opened, vocab_size=14) == f"{rule}\n{OTHER_VOCABULARY}"
    rule = "DIR/vocab.txt: must have tokens that are not excluded from masking, got none"
    assert error_of(opened, exclude_from_masking=WORDS) == rule


def test_a_pair_is_not_cut(opened, error_of):
    assert error_of(read, opened(max_sequence_length=8), [0]) == (
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
    assert error_of(read, opened([tmp_path / "bad"]), [0, 1]) == f"DIR/bad/a.csv:3: {message}"


QUOTES = st.text("ab'\"\\,[] \n\té", min_size=1, max_size=4)


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tokens=st.lists(QUOTES, min_size=1, max_size=6))
def test_tokens_of_any_characters_are_found_again(tmp_path_factory, tokens):
    folder = tmp_path_factory.mktemp("tokens")
    words = list(dict.fromkeys([*WORDS, *(token.strip() for token in tokens if token.strip() and "\n" not in token)]))
    write_rows(folder, "a.csv", ["tokens"], [[str(tokens)]])
    keys = {"max_sequence_length": 8, "max_predictions_per_seq": 3, "disable_nsp": True}
    words_of = write_vocabulary(folder, words)
    sample = read(opened_by(MaskedTextDataset, MaskedTextParams, [folder], **keys, vocab_file=words_of), [0])
    ids = {word: number for number, word in enumerate(words)}
    assert original(sample, 0)[: len(tokens)] == [ids.get(token, 1) for token in tokens]
