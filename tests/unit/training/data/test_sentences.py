"""Sentences with classes: tables of GLUE."""

import csv

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from cstool.foundation.errors import DataError
from cstool.model.params import SentencesParams
from cstool.training.data.sentences import MNLI, SST2, SentencesDataset, cut_to
from tests.contract.refusal import refusal
from tests.unit.training.data.encoder_files import WORDS, opened_by, read, shapes, write_vocabulary

SINGLES = [("the cats sat", "1"), (" The dog, 'sat' ", "0")]
PAIRS = [("the cat sat", "the dog", "neutral"), ("a mat", "a cat sat on a mat", "entailment")]


def write_table(folder, name, columns, rows):
    folder.mkdir(exist_ok=True)
    with (folder / name).open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, lineterminator="\n")
        writer.writerows([columns, *rows])


@pytest.fixture
def glue(tmp_path):
    """Write both tasks, each with an index column before."""
    sst2, mnli = tmp_path / "SST-2", tmp_path / "MNLI"
    write_table(sst2, "train.tsv", ["sentence", "label"], SINGLES)
    write_table(sst2, "dev.tsv", ["sentence", "label"], SINGLES[:1])
    for number, name in enumerate(("train", "dev_matched", "dev_mismatched")):
        rows = [(i, *pair) for i, pair in enumerate(PAIRS[: 2 if number < 2 else 1])]
        write_table(mnli, f"{name}.tsv", ["index", "sentence1", "sentence2", "gold_label"], rows)

    def call(task=SST2, split="train", folders=None, **changes):
        chosen = [sst2 if task is SST2 else mnli] if folders is None else folders
        usual = {"split": split, "max_sequence_length": 12, "vocab_file": write_vocabulary(tmp_path)}
        reader = f"{task.name.replace('-', '')}DataProcessor"
        return opened_by(SentencesDataset, SentencesParams, chosen, data_processor=reader, **{**usual, **changes})

    return call


def ids(text: str) -> list[int]:
    return [WORDS.index(word) if word in WORDS else 1 for word in text.split()]


def test_a_sentence_is_cut_into_tokens(glue):
    dataset = glue(do_lower=True, input_pad_id=9)
    assert shapes(dataset) == {
        **dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), ((12,), "int32")),
        "last_position": ((1,), "int32"),
        "labels": ((1,), "int32"),
        "mask": ((1,), "float32"),
    }
    tokens = [ids("[CLS] the cat ##s sat [SEP]"), ids("[CLS] the dog , ' sat ' [SEP]")]
    assert read(dataset, [0, 1]) == {
        "input_ids": [found + [9] * (12 - len(found)) for found in tokens],
        "token_type_ids": [[0] * 12] * 2,
        "attention_mask": [[1] * len(found) + [0] * (12 - len(found)) for found in tokens],
        "last_position": [[len(found) - 1] for found in tokens],
        "labels": [[1], [0]],
        "mask": [[1.0]] * 2,
    }
    # Cased text is not the lower-case word.
    assert read(glue(), [1])["input_ids"][0][1] == 1


def test_the_second_of_a_pair_is_segment_1_with_its_separator_and_cut_where_it_is_longer(glue):
    pairs = ["[CLS] a mat [SEP] a cat sat [SEP]", "[CLS] the cat sat [SEP] the dog [SEP]"]
    sample = read(glue(MNLI), [0])
    assert sample["input_ids"] == [ids(pairs[1]) + [0] * 4]
    assert sample["token_type_ids"] == [[0] * 5 + [1] * 3 + [0] * 4]
    sample = read(glue(MNLI, max_sequence_length=8), [1, 0])
    assert (sample["input_ids"], sample["labels"]) == ([ids(text) for text in pairs], [[0], [1]])


@pytest.mark.parametrize(
    ("lengths", "most", "left"),
    [((5,), 3, [3]), ((4, 4), 5, [3, 2]), ((1, 6), 4, [1, 3]), ((6, 2), 5, [3, 2]), ((2, 2), 9, [2, 2])],
)
def test_of_equals_the_second_is_cut(lengths, most, left):
    parts = [list(range(length)) for length in lengths]
    cut_to(parts, most)
    assert parts == [list(range(length)) for length in left]


def test_both_held_out_tables_of_mnli_are_read(glue):
    train, val, other = glue(MNLI), glue(MNLI, "val"), glue(SST2, "val")
    assert [dataset.sample_count for dataset in (train, val, other)] == [2, 3, 1]
    assert read(val, [2, 0])["labels"] == [[1], [1]]
    assert (read(val, [0, 1, 2])["matched"], read(train, [0, 1])["matched"]) == ([[1], [1], [0]], [[1], [1]])


HINT = "hint: unpack {} of GLUE (gluebenchmark.com) there, and name the folder with its tables"


def test_what_is_wrong_is_told(glue, tmp_path, error_of):
    single, pairs = HINT.format("SST-2"), HINT.format("MNLI")
    none = f"DIR/none: must be a folder with train.tsv, found none\n{single}"
    assert error_of(glue, folders=[tmp_path / "none"]) == none
    (tmp_path / "MNLI" / "dev_mismatched.tsv").unlink()
    names = "dev_matched.tsv and dev_mismatched.tsv, dev_mismatched.tsv is not there"
    assert error_of(glue, MNLI, "val") == f"DIR/MNLI: must be a folder with {names}\n{pairs}"
    assert error_of(glue, folders=[tmp_path / "MNLI"]) == (
        "DIR/MNLI/train.tsv: must have the columns sentence, label, got index, sentence1, sentence2, gold_label\n"
        "hint: sentence and label are missing"
    )
    assert error_of(glue, folders=[tmp_path, tmp_path]) == "data_dir: must be one folder for SST-2, got 2"
    rule = "num_labels of the model must be at least 3, the labels of MNLI, got 2"
    assert error_of(glue, MNLI, classes=2) == f"DIR/MNLI: {rule}"
    write_table(tmp_path / "SST-2", "train.tsv", ["sentence", "label"], [])
    assert error_of(glue) == f"DIR/SST-2/train.tsv: must have at least one row, got none\n{single}"
    write_table(tmp_path / "MNLI", "train.tsv", ["sentence1", "sentence2", "gold_label"], [("a", "a", "-")])
    rule = "gold_label must be entailment, neutral, contradiction, got '-'"
    assert error_of(read, glue(MNLI), [0]) == f"DIR/MNLI/train.tsv:2: {rule}"


def test_a_tokenizers_file_cuts_sentences_and_puts_them_together_by_its_template(glue, tmp_path):
    """One that begins a text, and ends none."""
    path, names = tmp_path / "tokenizer.json", ["<s>", *WORDS[5:]]
    loaded = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<s>"))
    loaded.pre_tokenizer = pre_tokenizers.Whitespace()
    template = {"single": "<s> $A", "pair": "<s> $A $B:1", "special_tokens": [("<s>", 0)]}
    loaded.post_processor = processors.TemplateProcessing(**template)
    loaded.save(str(path))
    tokens = [0, *map(names.index, "the cat sat the dog".split())]
    sample = read(glue(MNLI, vocab_file=path, max_sequence_length=7, input_pad_id=9), [0])
    assert sample["input_ids"] == [[*tokens, 9]]
    assert (sample["token_type_ids"], sample["last_position"]) == ([[0, 0, 0, 0, 1, 1, 0]], [[5]])
    rule = f"{path}: must have at most vocab_size (10) tokens, got {len(names)}"
    with refusal(DataError, rule, "vocab_size of the model must be that of the data set"):
        glue(vocab_file=path, vocab_size=10)
