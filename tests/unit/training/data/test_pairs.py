"""Samples of encoder-decoders from lines of tokens."""

import json
import os

import pytest

from cstool.model.params import TextSpansParams, TranslationsParams
from cstool.training.data.text_spans import TextSpansDataset
from cstool.training.data.translations import TranslationsDataset
from tests.reference.pair_cases import LENGTHS, PLACE, SENTINELS, SOURCE, TARGET, WORDS, text, write_pair_files
from tests.unit.training.data.encoder_files import opened_by, read, shapes
from tests.unit.training.data.made import refusals

VENDOR = json.loads(PLACE.read_text())


@pytest.fixture
def files(tmp_path):
    write_pair_files(tmp_path)
    return tmp_path


@pytest.fixture
def usual(files):
    lengths = {"src_max_sequence_length": SOURCE, "tgt_max_sequence_length": TARGET}
    return {"src_vocab_file": files / "vocab.txt", **lengths}


@pytest.fixture
def spans(files, usual):
    usual = {"extra_ids": SENTINELS, **usual}
    return lambda **changes: opened_by(TextSpansDataset, TextSpansParams, [files / "texts"], **{**usual, **changes})


@pytest.fixture
def translation(files, usual):
    folders = [files / "pairs"]
    return lambda **changes: opened_by(TranslationsDataset, TranslationsParams, folders, **{**usual, **changes})


def recorded(kind: str) -> dict[str, list[list]]:
    """What the vendor's makes of the files; how much a target counts is written once more, as numbers."""
    samples = VENDOR[kind]
    found = {name: [[int(number) for number in sample[name].split()] for sample in samples] for name in samples[0]}
    return {**found, "mask": [[float(counts) for counts in mask] for mask in found["decoder_attention_mask"]]}


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
    names = ("input_ids", "attention_mask", "labels", "decoder_attention_mask")
    return [
        whole(source[: sum(mask)], labels[: sum(told) - 1])
        for source, mask, labels, told in zip(*(samples[name] for name in names), strict=True)
    ]


def test_fields_are_those_of_an_encoder_and_a_decoder_and_lines_know_where_samples_come_from(files, spans, translation):
    expected = dict.fromkeys(("input_ids", "attention_mask"), ((32,), "int32"))
    expected |= dict.fromkeys(("decoder_input_ids", "decoder_attention_mask", "labels"), ((16,), "int32"))
    assert shapes(spans()) == shapes(translation()) == {**expected, "mask": ((16,), "float32")}
    assert spans().describe() == f"{files}/texts: 15 samples of 32 and 16 tokens"
    assert translation().describe() == f"{files}/pairs: 3 samples of 32 and 16 tokens"


def test_texts_are_cut_and_padded_as_by_the_vendor(spans):
    dataset, theirs = spans(), recorded("spans")
    ours = read(dataset, range(dataset.sample_count))
    for name in ("attention_mask", "decoder_attention_mask", "mask"):
        assert ours[name] == theirs[name]
    texts = texts_of(ours)
    assert texts == texts_of(theirs)
    # What is taken out is drawn otherwise, but for texts of one span at the end.
    same = [a == b for a, b in zip(ours["input_ids"], theirs["input_ids"], strict=True)]
    assert [len(text) for text, is_same in zip(texts, same, strict=True) if not is_same] == [34] * 7
    for found in (ours, theirs):
        names = ("labels", "decoder_input_ids", "decoder_attention_mask")
        for labels, shifted, told in zip(*(found[name] for name in names), strict=True):
            length = sum(told)
            assert (labels[length - 1], shifted[0]) == (1, 3)
            assert shifted[1:length] == labels[: length - 1]
            assert set(labels[length:] + shifted[length:]) <= {0}


def test_pairs_are_those_of_the_vendor(translation):
    dataset, theirs = translation(), recorded("translation")
    assert read(dataset, range(dataset.sample_count)) == theirs
    assert read(dataset, [2, 0])["labels"] == [theirs["labels"][2], theirs["labels"][0]]


def test_each_epoch_takes_other_spans_out(spans):
    dataset = spans()
    numbers = list(range(dataset.sample_count))
    first, second = (read(dataset, numbers, epoch=epoch)["input_ids"] for epoch in (0, 1))
    assert first != second
    assert read(spans(), numbers[::-1], epoch=1)["input_ids"] == second[::-1]
    assert read(spans(shuffle_seed=2), numbers)["input_ids"] != first


def test_lines_may_be_put_together(spans):
    dataset = spans(pack_sequences=True, num_documents_to_concatenate=3)
    found = texts_of(read(dataset, range(dataset.sample_count)))
    ids = {word: number for number, word in enumerate(WORDS)}
    lines = [[ids.get(word, 2) for word in text(length, number).split()] for number, length in enumerate(LENGTHS)]
    groups = [sum(lines[start : start + 3], []) for start in range(0, len(lines), 3)]
    assert found == [group[start : start + 34] for group in groups for start in range(0, len(group), 34)]


def test_paddings_and_tokens_may_be_others_and_text_in_lower_case(files, translation):
    sample = read(translation(input_pad_id=7, labels_pad_id=9, sos_token="<pad>", eos_token="w0"), [0])
    assert sample["input_ids"][0][3:] == [7] * 29
    assert sample["decoder_input_ids"][0] == [0, *sample["labels"][0][:4], *[7] * 11]
    assert sample["labels"][0][4:] == [4, *[9] * 11]
    (files / "vocab.txt").write_text("".join(f"{word.upper()}\n" for word in WORDS))
    assert read(translation(do_lower=True), [0]) == {name: rows[:1] for name, rows in recorded("translation").items()}


REFUSED = refusals("""\
{tgt_max_sequence_length: 7} => DIR/texts: tgt_max_sequence_length must be at least 8, the targets of
        src_max_sequence_length (32), got 7\nhint: 34 tokens of text, of which 2 spans are taken out, make such a sample
{extra_ids: 1} => DIR/texts: extra_ids must be at least 2, the spans taken out of a sample of src_max_sequence_length
        (32), got 1\nhint: each has a token of its own, at the end of the vocabulary; the model needs as many
{vocab_size: 73} => DIR/vocab.txt: must have at most as many tokens as the model (73), got 64 and extra_ids (10) more
    hint: src_vocab_size, tgt_vocab_size and extra_ids of the model must be those of the data set
{sos_token: "[CLS]"} => DIR/vocab.txt: must have the token [CLS], got 64 others
    hint: it is the vocab.txt of a data set of `cstool data prepare span`, or that of the vendor's preparation
{input_pad_id: 74} => input_pad_id: must be less than the number of tokens (74), got 74
{labels_pad_id: 99} => labels_pad_id: must be less than the number of tokens (74), got 99
""")


@pytest.mark.parametrize(("asked", "message"), REFUSED)
def test_what_does_not_go_together_is_an_error(spans, error_of, asked, message):
    assert error_of(spans, **asked) == message


ONE = "it has a line for each file, its name and how many rows it has: `train.csv 1000`"
TWO = "it has a line for each two files, their names and how many rows they have: `train.en train.de 1000`"
CUT, NUMBER = "the file was cut short, copy it again; or it is meta.dat that is wrong", "a number of rows"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("texts/b.txt", b"w1 w2\n", f"texts/b.txt: must have 3 rows, as meta.dat says, got 1\nhint: {CUT}"),
        ("texts/b.txt", b"w1\nw2 \xff\nw3\n", "texts/b.txt:2: must be UTF-8, got byte 0xff"),
        ("texts/meta.dat", b"a.txt\n", f"texts/meta.dat:1: must be a name and {NUMBER}, got 'a.txt'\nhint: {ONE}"),
        ("texts/meta.dat", b"", f"texts/meta.dat: must list at least one row, got none\nhint: {ONE}"),
        ("texts/meta.dat", b"empty.txt 1\n", "texts/empty.txt: must have at least one token, got none"),
        ("pairs/meta.dat", b"x.en 6\n", f"pairs/meta.dat:1: must be 2 names and {NUMBER}, got 'x.en 6'\nhint: {TWO}"),
        ("pairs/meta.dat", b"x.en x.fr 6\n", "pairs/x.fr: must be a file of rows, found nothing there"),
    ],
)
def test_files_that_are_not_as_meta_dat_says_are_errors(files, spans, translation, error_of, file, content, message):
    (files / "texts" / "empty.txt").write_text("\n \n")
    (files / file).write_bytes(content)
    assert error_of(translation if "pairs" in file else spans) == f"DIR/{message}"


def test_pairs_that_are_all_too_long_are_an_error(translation, error_of):
    assert error_of(translation, src_max_sequence_length=1, tgt_max_sequence_length=4) == (
        "DIR/pairs/x.en: must have a pair of fewer than 1 and 4 tokens, got none of 6\n"
        "hint: give a larger src_max_sequence_length and tgt_max_sequence_length"
    )


def test_a_file_that_changes_while_it_is_read_is_an_error(files, spans, error_of):
    dataset, path = spans(), files / "texts" / "a.txt"
    content = path.read_text()
    with path.open("r+") as file:
        file.write(content.replace("w3 ", "   "))
    os.utime(path)
    told = "DIR/texts/a.txt:4: must have 40 tokens, got 39\nhint: the file changed after it was opened"
    assert error_of(read, dataset, [3]) == told
