"""The record of a data set: what this program writes, or one error."""

import pytest

from cstool.foundation.errors import DataError
from cstool.training.data import check_data, data_info, read_record
from tests.contract.refusal import refusal
from tests.unit.training.data.made import PART, RECORD, write_record

HINT = "prepare the data set anew; without the record its files are read as anybody's"


def test_what_this_program_writes_is_read_without_nulls_and_what_a_later_version_says(tmp_path):
    assert read_record(write_record(tmp_path, RECORD)) == RECORD
    more = {"shuffle_seed": None, "of_a_later_version": [1], "parts": {"train": {**PART, "x": 1}, "val": PART}}
    assert read_record(write_record(tmp_path, {**RECORD, **more})) == RECORD


@pytest.mark.parametrize("record", ["", "{", "[]", "3", "[" * 100_000, '{"files": {}}', "\x00", "1" * 5000])
def test_files_and_folders_of_that_name_that_others_wrote_are_none(tmp_path, record):
    assert read_record(write_record(tmp_path, record)) is None
    (tmp_path / "prepared.json").unlink()
    (tmp_path / "prepared.json").mkdir()
    assert read_record(tmp_path) is None


WRONG = [
    ({"files": []}, "files must be a mapping, got []"),
    ({"files": {"a": "x"}}, "files.a must be a whole number, got 'x'"),
    ({"files": {"a": 2**64}}, "files.a must be at most 9223372036854775807, got 18446744073709551616"),
    ({"files": {"../a": 1}}, "files must stay in the folder of the record, '../a' does not"),
    ({"parts": None}, "parts is missing"),
    ({"parts": {"train": PART}}, "parts must have train and val"),
    ({"parts": {"train": None}}, "parts.train must be a mapping, got null"),
    ({"parts": {"train": {**PART, "samples": 1.5}}}, "parts.train.samples must be a whole number, got 1.5"),
    ({"parts": {**RECORD["parts"], "/etc": PART}}, "parts must stay in the folder of the record, '/etc' does not"),
    ({"sequence_length": "4"}, "sequence_length must be a whole number, got '4'"),
    ({"sequence_length": 0}, "sequence_length must be at least 2, got 0"),
    ({"sources": "text"}, "sources must be a list, got 'text'"),
    ({"tokenizer": []}, "tokenizer must be a mapping, got []"),
    ({"tokenizer": {**RECORD["tokenizer"], "file": "a/../../b"}},
     "tokenizer.file must stay in the folder of the record, 'a/../../b' does not, got 'a/../../b'"),
    ({"tokenizer": {**RECORD["tokenizer"], "vocab_size": 0}}, "tokenizer.vocab_size must be at least 1, got 0"),
    ({"other_files": {"PNG": -1}}, "other_files.PNG must be at least 0, got -1"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "rule"), WRONG, ids=[rule for _, rule in WRONG])
def test_what_is_wrong_is_named_by_whoever_reads_it(tmp_path, change, rule):
    write_record(tmp_path, {**RECORD, **change})
    for read in (read_record, data_info, check_data):
        with refusal(DataError, f"{tmp_path / 'prepared.json'}: {rule}", HINT):
            read(tmp_path)


def test_a_record_of_pictures_says_less(tmp_path):
    pictures = {"digest": "0", "files": {}, "parts": {"train": {"samples": 3}}, "source": "scikit-learn"}
    assert read_record(write_record(tmp_path, pictures)) == pictures
    with refusal(DataError, f"{tmp_path / 'prepared.json'}: source must be text, got 3", HINT):
        read_record(write_record(tmp_path, {**pictures, "source": 3}))
