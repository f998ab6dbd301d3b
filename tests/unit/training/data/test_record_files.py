"""Records of files of JSON Lines, JSON, CSV and Parquet."""

import json
import sys
import types

import pytest

from cstool.training.data.record_files import BrokenLines, record_files, records_of
from tests.unit.training.data.made import write_files

A, B = {"prompt": "a", "completion": "1, 2"}, {"prompt": "b\n", "completion": ""}


@pytest.fixture
def records(tmp_path):
    """Return place and content of the records of some files, and the broken lines."""

    def call(**contents):
        write_files(tmp_path, **{name.replace("_", "."): content for name, content in contents.items()})
        broken = BrokenLines()
        found = [each for file in record_files([tmp_path]) for each in records_of(file, broken)]
        return [(each.where.replace(str(tmp_path), "DIR"), each.content) for each in found], broken

    return call


def test_records_come_from_lines_arrays_and_tables(records):
    lines = f"\ufeff{json.dumps(A)}\n\n\ufeff{json.dumps(B)}"
    found, broken = records(
        a_jsonl=lines,
        b_json=json.dumps([A, B], indent=1),
        c_json=f"\ufeff {json.dumps([A])}",
        d_json=lines,
        e_csv='prompt,completion\na,"1, 2"\n"b\n",\n',
        f_tsv="prompt\tcompletion\na\t1, 2\n",
        g_txt="no records",
    )
    assert found == [
        ("DIR/a.jsonl:1", A),
        ("DIR/a.jsonl:3", B),
        ("DIR/b.json: item 1", A),
        ("DIR/b.json: item 2", B),
        ("DIR/c.json: item 1", A),
        ("DIR/d.json:1", A),
        ("DIR/d.json:3", B),
        ("DIR/e.csv:2", A),
        ("DIR/e.csv:3", B),
        ("DIR/f.tsv:2", A),
    ]
    assert broken.count == 0
    broken.refuse()


def test_numbers_stay_whole_numbers(records):
    assert records(a_jsonl='{"a": 1, "b": [1.5, true]}')[0] == [("DIR/a.jsonl:1", {"a": 1, "b": [1.5, True]})]


def test_broken_lines_are_counted_and_told_at_once(records, error_of):
    lines = "\n".join(['{"a": 1}', "{", "[]", '{"b": 2}', "x"])
    found, broken = records(a_jsonl=lines, b_jsonl="{}\n\n" + "{\n" * 4)
    assert [place for place, _ in found] == ["DIR/a.jsonl:1", "DIR/a.jsonl:4", "DIR/b.jsonl:1"]
    places = "DIR/a.jsonl:2, DIR/a.jsonl:3, DIR/a.jsonl:5, DIR/b.jsonl:3, DIR/b.jsonl:4 and 2 more"
    assert error_of(broken.refuse) == (
        f"7 lines must be JSON objects, but are not: {places}; the first: must be a JSON object, got its end after 1 "
        "characters\nhint: --skip_broken leaves such lines out"
    )
    _, broken = records(a_jsonl="{}\n3", b_jsonl="{}")
    message = "DIR/a.jsonl:2: must be a JSON object, got a number\nhint: --skip_broken leaves such lines out"
    assert error_of(broken.refuse) == message


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"a_json": "[{},"}, "DIR/a.json:1: must be an array of JSON objects, got: Expecting value, column 5"),
        ({"a_json": "[{}, 3]"}, "DIR/a.json: item 2: must be a JSON object, got something else"),
        ({"a_json": "[" * 99_999}, "DIR/a.json: must be an array of JSON objects, got one that is nested too deeply"),
        ({"a_json": b"[\xff]"}, "DIR/a.json: must be UTF-8, got byte 0xff, 1 bytes after its begin"),
        ({"a_jsonl": b"\x1f\x8b"}, "DIR/a.jsonl: must be text, as its name says, got a file of gzip"),
        ({"a_csv": "a,b\n1\n"}, "DIR/a.csv:2: must have 2 fields, one for each column, got 1"),
        ({"a_csv": "\n"}, "DIR/a.csv: must begin with the names of its columns, got no row"),
        ({"a_txt": "a"}, "DIR: must hold files of .jsonl, .ndjson, .json, .csv, .tsv, .parquet, got none"),
    ],
)
def test_files_without_records_are_refused(records, error_of, contents, message):
    assert error_of(records, **contents) == message


def test_a_file_of_another_kind_is_refused_by_name(tmp_path, error_of):
    write_files(tmp_path, **{"a.txt": "a"})
    kinds = ".jsonl, .ndjson, .json, .csv, .tsv, .parquet"
    assert error_of(record_files, [tmp_path / "a.txt"]) == f"DIR/a.txt: must be a file of {kinds}, got another"


class Fault(Exception):
    """As pyarrow raises it."""


class ParquetFile:
    """Rows as pyarrow reads them; the file is JSON."""

    def __init__(self, path):
        self.content = path.read_bytes()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def iter_batches(self, rows):
        if not self.content.startswith(b"PAR1["):
            raise Fault("no footer")
        found = json.loads(self.content[4:])
        for start in range(0, len(found), 2):
            yield types.SimpleNamespace(to_pylist=lambda start=start: found[start : start + min(2, rows)])


def test_rows_of_parquet_are_read_by_pyarrow(records, monkeypatch, error_of):
    monkeypatch.setitem(sys.modules, "pyarrow", types.SimpleNamespace(ArrowException=Fault))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", types.SimpleNamespace(ParquetFile=ParquetFile))
    found, _ = records(a_parquet=b"PAR1" + json.dumps([A, B, A]).encode())
    assert found == [(f"DIR/a.parquet: row {number}", each) for number, each in enumerate([A, B, A], 1)]
    message = "DIR/a.parquet: must be a file of Parquet, got: no footer"
    assert error_of(records, a_parquet=b"PAR1") == message


def test_parquet_needs_pyarrow(records, monkeypatch, error_of):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert error_of(records, a_parquet=b"PAR1") == (
        "DIR/a.parquet: reading Parquet needs the package pyarrow, which is not installed\n"
        "hint: pip install 'cstool[parquet]', or pyarrow itself"
    )
