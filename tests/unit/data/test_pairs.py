"""Samples of encoder-decoders from lines of tokens."""

import json
import os

import pytest

from cstool.data.sequence_pairs import PairRequest
from cstool.data.text_spans import open_text_spans
from cstool.data.translations import open_translations
from tests.reference.pair_cases import LENGTHS, PLACE, SENTINELS, SOURCE, TARGET, WORDS, text, write_pair_files
from tests.unit.data.encoder_files import read, shapes

VENDOR = json.loads(PLACE.read_text())
VOCAB = len(WORDS) + SENTINELS


@pytest.fixture
def files(tmp_path):
    """The folder of the reference's files."""
    write_pair_files(tmp_path / "files")
    return tmp_path / "files"


@pytest.fixture
def spans(files):
    """Open the texts; arguments may be changed."""

    def call(*, sentinels=SENTINELS, folders=None, vocab_size=None, documents=1, seed=1, **request):
        asked = PairRequest(**{"sequence_length": SOURCE, "target_length": TARGET, **request})
        return open_text_spans(
            folders or [files / "texts"],
            asked,
            files / "vocab.txt",
            sentinels=sentinels,
            documents=documents,
            seed=seed,
            vocab_size=vocab_size,
        )

    return call


@pytest.fixture
def translation(files):
    """Open the pairs; arguments may be changed."""

    def call(vocab_size=None, **request):
        asked = PairRequest(**{"sequence_length": SOURCE, "target_length": TARGET, **request})
        return open_translations([files / "pairs"], asked, files / "vocab.txt", vocab_size=vocab_size)

    return call


def recorded(kind: str) -> dict[str, list[list[int]]]:
    return {
        name: [[int(number) for number in sample[name].split()] for sample in VENDOR[kind]] for name in VENDOR[kind][0]
    }


def whole(source: list[int], target: list[int]) -> list[int]:
    """The tokens of a text before spans were taken out."""
    taken: dict[int, list[int]] = {}
    for token in target:
        if token >= len(WORDS):
            taken[token] = []
        else:
            taken[list(taken)[-1]].append(token)
    return [token for each in source for token in taken.get(each, [each])]


def texts_of(samples: dict[str, list]) -> list[list[int]]:
    """The texts of samples."""
    names = ("input_ids", "attention_mask", "labels", "decoder_attention_mask")
    return [
        whole(counted(source, mask), counted(labels, told)[:-1])
        for source, mask, labels, told in zip(*(samples[name] for name in names), strict=True)
    ]


def counted(ids: list[int], mask: list[int]) -> list[int]:
    return [token for token, counts in zip(ids, mask, strict=True) if counts]


def test_fields_are_those_of_an_encoder_and_a_decoder(spans, translation):
    expected = {
        "input_ids": ((32,), "int32"),
        "attention_mask": ((32,), "int32"),
        "decoder_input_ids": ((16,), "int32"),
        "decoder_attention_mask": ((16,), "int32"),
        "labels": ((16,), "int32"),
        "mask": ((16,), "float32"),
    }
    assert shapes(spans()) == shapes(translation()) == expected


def test_texts_are_cut_and_padded_as_by_the_vendor(spans):
    dataset, theirs = spans(), recorded("spans")
    ours = read(dataset, range(dataset.sample_count))
    for name in ("attention_mask", "decoder_attention_mask"):
        assert ours[name] == theirs[name]
    texts = texts_of(ours)
    assert texts == texts_of(theirs)
    # What is taken out is drawn otherwise, but for texts of one span at the end.
    same = [a == b for a, b in zip(ours["input_ids"], theirs["input_ids"], strict=True)]
    assert [len(text) for text, is_same in zip(texts, same, strict=True) if not is_same] == [34] * 7
    for found in (ours, theirs):
        for labels, shifted, told in zip(
            found["labels"], found["decoder_input_ids"], found["decoder_attention_mask"], strict=True
        ):
            length = sum(told)
            assert (labels[length - 1], shifted[0]) == (1, 3)
            assert shifted[1:length] == labels[: length - 1]
            assert set(labels[length:] + shifted[length:]) <= {0}
    assert ours["mask"] == [[float(counts) for counts in mask] for mask in ours["decoder_attention_mask"]]


def test_pairs_are_those_of_the_vendor(translation):
    dataset = translation()
    ours, theirs = read(dataset, range(dataset.sample_count)), recorded("translation")
    assert ours == {**theirs, "mask": [[float(counts) for counts in mask] for mask in theirs["decoder_attention_mask"]]}
    assert read(dataset, [2, 0])["labels"] == [theirs["labels"][2], theirs["labels"][0]]


def test_each_epoch_takes_other_spans_out(spans):
    dataset = spans()
    numbers = list(range(dataset.sample_count))
    first, second = read(dataset, numbers, epoch=0), read(dataset, numbers, epoch=1)
    assert first["input_ids"] != second["input_ids"]
    assert read(spans(), numbers[::-1], epoch=1)["input_ids"] == second["input_ids"][::-1]
    assert read(spans(seed=2), numbers)["input_ids"] != first["input_ids"]


def test_lines_may_be_put_together(spans):
    dataset = spans(documents=3)
    found = texts_of(read(dataset, range(dataset.sample_count)))
    ids = {word: number for number, word in enumerate(WORDS)}
    lines = [[ids.get(word, 2) for word in text(length, number).split()] for number, length in enumerate(LENGTHS)]
    groups = [sum(lines[start : start + 3], []) for start in range(0, len(lines), 3)]
    assert found == [group[start : start + 34] for group in groups for start in range(0, len(group), 34)]


def test_paddings_and_tokens_may_be_others(translation):
    sample = read(translation(input_padding=7, label_padding=9, begin="<pad>", end="w0"), [0])
    assert sample["input_ids"][0][3:] == [7] * 29
    assert sample["decoder_input_ids"][0] == [0, *sample["labels"][0][:4], *[7] * 11]
    assert sample["labels"][0][4:] == [4, *[9] * 11]


def test_text_in_lower_case_has_the_tokens_of_a_vocabulary_in_lower_case(files, translation):
    (files / "vocab.txt").write_text("".join(f"{word.upper()}\n" for word in WORDS))
    assert read(translation(do_lower=True), [0]) == {
        name: values[:1]
        for name, values in {
            **recorded("translation"),
            "mask": [[1.0] * 5 + [0.0] * 11],
        }.items()
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"target_length": 7},
            "DIR/texts: tgt_max_sequence_length must be at least 8, the targets of src_max_sequence_length (32), "
            "got 7\n"
            "hint: 34 tokens of text, of which 2 spans are taken out, make such a sample",
        ),
        (
            {"sentinels": 1},
            "DIR/texts: extra_ids must be at least 2, the spans taken out of a sample of src_max_sequence_length (32), "
            "got 1\n"
            "hint: each has a token of its own, at the end of the vocabulary; the model needs as many",
        ),
        (
            {"vocab_size": VOCAB - 1},
            "DIR/vocab.txt: must have at most as many tokens as the model (73), got 64 and extra_ids (10) more\n"
            "hint: src_vocab_size, tgt_vocab_size and extra_ids of the model must be those of the data set",
        ),
        ({"input_padding": VOCAB}, "input_pad_id: must be less than the number of tokens (74), got 74"),
        ({"label_padding": 99}, "labels_pad_id: must be less than the number of tokens (74), got 99"),
        (
            {"begin": "[CLS]"},
            "DIR/vocab.txt: must have the token [CLS], got 64 others\nhint: it is the vocab.txt of a data set of "
            "`cstool data prepare span`, or that of the vendor's preparation",
        ),
    ],
)
def test_what_does_not_go_together_is_an_error(files, spans, error_of, changes, message):
    assert error_of(files, spans, **changes) == message


def test_files_that_are_not_as_meta_dat_says_are_errors(files, spans, translation, error_of):
    texts, pairs = files / "texts", files / "pairs"
    (texts / "b.txt").write_text("w1 w2\n")
    assert error_of(files, spans) == (
        "DIR/texts/b.txt: must have 3 rows, as meta.dat says, got 1\n"
        "hint: the file was cut short, copy it again; or it is meta.dat that is wrong"
    )
    (texts / "b.txt").write_bytes(b"w1\nw2 \xff\nw3\n")
    assert error_of(files, spans) == "DIR/texts/b.txt:2: must be UTF-8, got byte 0xff"
    (texts / "meta.dat").write_text("a.txt\n")
    assert error_of(files, spans) == (
        "DIR/texts/meta.dat:1: must be a name and a number of rows, got 'a.txt'\n"
        "hint: it has a line for each file, its name and how many rows it has: `train.csv 1000`"
    )
    (texts / "meta.dat").write_text("")
    assert error_of(files, spans) == (
        "DIR/texts/meta.dat: must list at least one row, got none\n"
        "hint: it has a line for each file, its name and how many rows it has: `train.csv 1000`"
    )
    (texts / "empty.txt").write_text("\n \n")
    (texts / "meta.dat").write_text("empty.txt 1\n")
    assert error_of(files, spans) == "DIR/texts/empty.txt: must have at least one token, got none"
    (pairs / "meta.dat").write_text("x.en 6\n")
    assert error_of(files, translation) == (
        "DIR/pairs/meta.dat:1: must be 2 names and a number of rows, got 'x.en 6'\n"
        "hint: it has a line for each two files, their names and how many rows they have: `train.en train.de 1000`"
    )
    (pairs / "meta.dat").write_text("x.en x.fr 6\n")
    assert error_of(files, translation) == "DIR/pairs/x.fr: must be a file of rows, found nothing there"


def test_pairs_that_are_all_too_long_are_an_error(files, translation, error_of):
    with_none = error_of(files, translation, sequence_length=1, target_length=4)
    assert with_none == (
        "DIR/pairs/x.en: must have a pair of fewer than 1 and 4 tokens, got none of 6\n"
        "hint: give a larger src_max_sequence_length and tgt_max_sequence_length"
    )


def test_a_file_that_changes_while_it_is_read_is_an_error(files, spans, error_of):
    dataset = spans()
    path = files / "texts" / "a.txt"
    content = path.read_text()
    with path.open("r+") as file:
        file.write(content.replace("w3 ", "   "))
    os.utime(path)
    assert error_of(files, read, dataset, [3]) == (
        "DIR/texts/a.txt:4: must have 40 tokens, got 39\nhint: the file changed after it was opened"
    )


def test_lines_know_where_samples_come_from(files, spans, translation):
    assert spans().describe() == f"{files}/texts: 15 samples of 32 and 16 tokens"
    assert translation().describe() == f"{files}/pairs: 3 samples of 32 and 16 tokens"
