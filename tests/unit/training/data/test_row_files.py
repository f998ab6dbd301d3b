"""Tables in files of text."""

import os

import pytest

from cstool.training.data import row_files
from cstool.training.data.row_files import RowFiles, csv_rows, index_file, read_meta
from tests.unit.training.data.encoder_files import write_rows

META = "hint: it has a line for each file, its name and how many rows it has: `train.csv 1000`"


@pytest.fixture
def table(tmp_path):
    """Write two files of rows; return their folder."""
    write_rows(tmp_path / "rows", "a.csv", ["x", "y"], [["1", 'say "a, b"'], ["2", "é"]])
    write_rows(tmp_path / "rows", "b.csv", ["y", "x"], [["c", "3"]])
    return tmp_path / "rows"


def test_rows_are_those_of_the_files_one_after_another(table):
    rows = csv_rows([table, table], ["x"])
    found = [rows.read(number) for number in (5, 0, 1, 2)]
    last = {"y": "c", "x": "3"}
    assert rows.count == 6
    assert [row.values for row in found] == [last, {"x": "1", "y": 'say "a, b"'}, {"x": "2", "y": "é"}, last]
    places = ("b.csv:2", "a.csv:2", "a.csv:3", "b.csv:2")
    assert [row.where for row in found] == [f"{table}/{place}" for place in places]
    assert [row.number for row in found] == [5, 0, 1, 2]


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (b"x\n1\n2\n", ["1", "2"]),
        (b"x\r\n1\r\n2\r\n", ["1", "2"]),
        (b"x\n1\n2", ["1", "2"]),
        (b"x\n1\n2\n\n\r\n", ["1", "2"]),
        (b"\xef\xbb\xbfx\n12\n", ["12"]),
        (b"x\n", []),
        (b"x", []),
    ],
)
def test_lines_end_in_several_ways(tmp_path, content, values):
    (tmp_path / "a.csv").write_bytes(content)
    file = index_file(tmp_path / "a.csv")
    rows = RowFiles([file], [len(file.starts)])
    assert [rows.read(number).values["x"] for number in range(rows.count)] == values


def test_a_long_file_is_indexed_in_blocks_and_quotes_mean_nothing_in_tsv(tmp_path, table, monkeypatch):
    monkeypatch.setattr(row_files, "_BLOCK_BYTES", 3)
    (table / "a.csv").touch()
    assert csv_rows([table], ["x"]).read(1).values == {"x": "2", "y": "é"}
    (tmp_path / "a.tsv").write_text('x\ty\n"a\tb, c\n')
    rows = RowFiles([index_file(tmp_path / "a.tsv", "tsv")], [1])
    assert rows.read(0).values == {"x": '"a', "y": "b, c"}


def test_meta_counts_the_rows_that_are_taken_and_names_files_of_another_machine_by_their_last_part(table):
    (table / "meta.dat").write_text("a.csv 1\n\nb.csv 1\n")
    assert csv_rows([table], ["x"]).count == 2
    (table / "meta.dat").write_text(f"/elsewhere/rows/a.csv 2\n{table}/b.csv 1\n")
    assert read_meta(table) == [((table / "a.csv",), 2), ((table / "b.csv",), 1)]


def test_few_open_files_are_enough(table, monkeypatch):
    monkeypatch.setattr(row_files, "OPEN_FILES_LIMIT", 1)
    rows = csv_rows([table], ["x"])
    before = len(os.listdir("/proc/self/fd"))
    assert [rows.read(number).values["x"] for number in (0, 2, 1)] == ["1", "3", "2"]
    assert len(os.listdir("/proc/self/fd")) == before + 1
    with pytest.raises(IndexError, match=r"samples are numbered from 0 to 2, got 3"):
        rows.read(3)
    rows.close()


COLUMNS = "DIR/rows/a.csv: must have the columns"
THERE, LOOKED = "must be there and list the files, found", "looked for its folder as A, B"
CUT = "the file was cut short, copy it again; or it is meta.dat that is wrong"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"folder": "none", "tried": "A, B"}, f"DIR/none/meta.dat: {THERE} no such folder ({LOOKED})\n{META}"),
        ({"folder": ""}, f"DIR/meta.dat: {THERE} nothing there\nhint: DIR/rows has one"),
        ({"needed": ("x", "z", "w")}, f"{COLUMNS} x, z, w, got x, y\nhint: z and w are missing"),
        ({"of_pairs": ("z",), "hint": "make it"}, f"{COLUMNS} x, z, got x, y\nhint: make it"),
        ({"needed": "w", "of_pairs": ("z",), "hint": "a"}, f"{COLUMNS} w, z, got x, y\nhint: w and z are missing"),
        (b"a.csv 3\n", f"DIR/rows/a.csv: must have 3 rows, as meta.dat says, got 2\nhint: {CUT}"),
        (b"a.csv two\n", f"DIR/rows/meta.dat:1: must be a name and a number of rows, got 'a.csv two'\n{META}"),
        (b"c.csv 2\n", "DIR/rows/c.csv: must be a file of rows, found nothing there"),
        (b"a.csv 0\n", f"DIR/rows/meta.dat: must list at least one row, got none\n{META}"),
        (b"\xff", f"DIR/rows/meta.dat: must be text, got something else\n{META}"),
    ],
)
def test_what_is_missing_is_told(table, tmp_path, error_of, changes, message):
    if isinstance(changes, bytes):
        (table / "meta.dat").write_bytes(changes)
        changes = {}
    asked = {"folder": "rows", "needed": ("x",), **changes}
    assert error_of(csv_rows, [tmp_path / asked.pop("folder")], asked.pop("needed"), **asked) == message


def test_other_things_than_files_are_refused(tmp_path, error_of):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary.csv").write_bytes(b"\x89PNG\n")
    for name, message in (
        ("", ": must be a file of rows, got a folder"),
        ("pipe", "/pipe: must be a file of rows, got a pipe or a device\nhint: remove it"),
        ("binary.csv", "/binary.csv: must begin with the names of its columns, got no text"),
    ):
        assert error_of(index_file, tmp_path / name) == f"DIR{message}"


DAMAGED = "hint: the file is damaged, or changed after it was opened; make or copy it again"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1", f"must have 2 values, x, y, got 1\n{DAMAGED}"),
        (b'1,"a', f"must be a whole row of CSV on one line, got: unexpected end of data\n{DAMAGED}"),
        (b"1,\xff", "must be UTF-8, got byte 0xff"),
    ],
)
def test_a_damaged_row_is_an_error_with_its_line(tmp_path, error_of, line, message):
    (tmp_path / "a.csv").write_bytes(b"x,y\n" + line + b"\n3,4\n")
    assert error_of(RowFiles([index_file(tmp_path / "a.csv")], [2]).read, 0) == f"DIR/a.csv:2: {message}"
