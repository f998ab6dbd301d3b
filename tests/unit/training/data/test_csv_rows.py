"""Tables of CSV, and other files that are no text: a column is taken, or the file is refused by its kind."""

import csv
import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.data import TextRequest, data_info, prepare_text
from cstool.training.data.csv_rows import cut_rows, texts_of_rows
from cstool.training.data.file_kinds import kind_of
from cstool.training.data.sources import find_files
from tests.unit.training.data.made import preparer, refusals, text_of

ROWS = [["1", "hello\nworld, yes", "a"], ["2", 'é "quoted" 世', ""], ["3", "", "c"], ["4", "\r\n;\t", "d"]]
TEXTS = [row[1] for row in ROWS if row[1]]


def table(rows, divider=",", **how):
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=divider, **how).writerows([["id", "text", "label"], *rows])
    return out.getvalue().encode()


@pytest.fixture
def prepare(tmp_path):
    """Prepare the texts of a table, or of other sources, with samples of 4 tokens, nothing held out."""
    call = preparer(prepare_text, TextRequest, tmp_path / "x.csv", tmp_path / "text", sequence_length=4, val_fraction=0)

    def of_table(content, name="x.csv", **changes):
        (tmp_path / name).write_bytes(content)
        return call([tmp_path / name], **{"csv_column": "text", **changes})

    return of_table


def documents(file, most_bytes=2**25):
    return [found for run in cut_rows(file, most_bytes) for found in texts_of_rows(file, "text", *run)]


@pytest.mark.parametrize("divider", ",;\t")
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_each_row_is_a_document(tmp_path, prepare, divider, end, bom):
    summary = prepare(bom + table(ROWS, divider, lineterminator=end) + end.encode() * 2)
    assert text_of(tmp_path / "text" / "train") == "\0".join(TEXTS).encode()
    assert (summary.train.documents, summary.other_files) == (3, {})
    record = json.loads((tmp_path / "text" / "prepared.json").read_text())
    assert record["csv_column"] == "text"
    assert data_info(tmp_path / "text").source.endswith(', 35 bytes in 3 documents, column "text" of CSV')


def test_another_column_is_another_data_set(tmp_path, prepare, error_of):
    prepare(table(ROWS))
    assert error_of(prepare, table(ROWS), csv_column="label").startswith("DIR/text: must not hold another data set")
    prepare(table(ROWS), csv_column="label", overwrite=True)
    assert text_of(tmp_path / "text" / "train") == b"a\0c\0d"


fields = st.text("ab ,;\t\n\"'\v\f\x1c\x85\u2028\ufeffé世🎉", max_size=8)


@given(rows=st.lists(st.tuples(fields, fields, fields), min_size=1, max_size=8), most_bytes=st.integers(100, 200))
def test_runs_of_rows_are_the_table_wherever_it_is_cut(tmp_path_factory, rows, most_bytes):
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_bytes(table(rows, lineterminator="\n"))
    (file,) = find_files([path])
    whole = documents(file)
    assert [text.decode() for _, text in whole] == [text for _, text, _ in rows if text]
    assert documents(file, most_bytes) == whole
    runs = [*cut_rows(file, most_bytes)]
    assert all(stop - start <= most_bytes for start, stop, _ in runs)
    assert [start for start, _, _ in runs[1:]] == [stop for _, stop, _ in runs[:-1]]


REFUSED = refusals(r"""
{content: "id,text\n1,a\n\n2\n"} => DIR/x.csv:4: must have a field for column 'text', number 2, got 1 fields
{content: "id,txt\n1,a\n"} => DIR/x.csv:1: must have the column 'text' once, got id, txt
    hint: --csv_column names another one
{content: "text,text\n1,a\n"} => DIR/x.csv:1: must have the column 'text' once, got text, text
    hint: --csv_column names another one
{content: "id,text\n1,\"a\"b\n"} => DIR/x.csv:2: must be a row of CSV, got: ',' expected after '"'
{content: "id,text\n1,\"a\n"} => DIR/x.csv:2: must be a row of CSV, got: unexpected end of data
{content: "text\n\u00e9\n", encoding: latin-1} => DIR/x.csv:2: must be UTF-8, got byte 0xe9, 0 bytes after its begin
{content: "id,text\n"} => DIR/x.csv: must have a row below the names of its columns, got none
{content: "id,text\n1,\n"} => DIR/x.csv: must have a text in one of its lines, got none
{content: "\n\n"} => DIR/x.csv: must begin with the names of its columns, got no row
{content: "id,text\n1,abc\n2,aaaaaaaaaaaaaaaaaaa\n"} => DIR/x.csv:3: a row must have at most 20 bytes, got more
    hint: cut its text, or give it as a file of text
""")


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_a_table_that_cannot_be_read_is_refused_with_the_line(prepare, error_of, monkeypatch, given, message):
    monkeypatch.setattr("cstool.training.data.json_lines.RUN_BYTES", 20)
    assert error_of(prepare, given["content"].encode(given.get("encoding", "utf-8"))) == message


def test_a_column_stands_beside_tables(prepare, error_of):
    rule = "must stand beside files .csv or .tsv, got none among the sources"
    assert error_of(prepare, b"some text", name="x.txt") == f"--csv_column: {rule}\nhint: leave it out"
    assert error_of(prepare, b"some text", name="x.txt", csv_column=None, any_file=True, train_vocab=300) == (
        "--any_file: must stand beside --tokenizer bytes; others need text\nhint: leave it out"
    )


BYTES_AS_THEY_ARE = "leave it out; with --tokenizer bytes --any_file takes its bytes as they are"
KINDS = {
    "a.csv": (table(ROWS), "CSV", "--csv_column takes the texts of a column; it has id, text, label"),
    "a.tsv": (table(ROWS, "\t"), "CSV", "--csv_column takes the texts of a column; it has id, text, label"),
    "a.txt.gz": (gzip.compress(b"text"), "gzip", "unpack it first: gunzip -k DIR/a.txt.gz"),
    "a.tar": (bytes(257) + b"ustar\0" + bytes(300), "tar", "unpack it first: tar -xf DIR/a.tar"),
    "a.parquet": (
        b"PAR1" + bytes(20) + b"PAR1",
        "Parquet",
        "write its texts as JSON Lines: pandas.read_parquet('DIR/a.parquet')"
        '.to_json("texts.jsonl", orient="records", lines=True)',
    ),
    "a.txt": ("text".encode("utf-16"), "UTF-16", "iconv -f UTF-16 -t UTF-8 DIR/a.txt > texts.txt makes it UTF-8"),
    "a.pdf": (b"%PDF-1.7\n", "PDF", "pdftotext DIR/a.pdf writes its text"),
    "a.png": (b"\x89PNG\r\n\x1a\n", "PNG", BYTES_AS_THEY_ARE),
    "a": (b"abc\0", "binary", BYTES_AS_THEY_ARE),
}


@pytest.mark.parametrize(
    ("name", "content", "kind", "hint"), [(name, *each) for name, each in KINDS.items()], ids=KINDS
)
def test_what_is_no_text_is_refused_by_kind_and_left_out_of_folders(
    tmp_path, prepare, error_of, name, content, kind, hint
):
    got = "a binary file" if kind == "binary" else f"a file of {kind}"
    assert error_of(prepare, content, name, csv_column=None) == f"DIR/{name}: must be text, got {got}\nhint: {hint}"
    (tmp_path / "all").mkdir()
    (tmp_path / name).rename(tmp_path / "all" / name)
    request = TextRequest(4, val_fraction=0)
    assert error_of(prepare_text, [tmp_path / "all"], tmp_path / "text", request) == (
        f"DIR/all: must hold files of text, got none: 1 {kind}\nhint: {hint.replace('DIR', 'DIR/all')}"
    )
    (tmp_path / "all" / "z.txt").write_bytes(b"some text")
    summary = prepare_text([tmp_path / "all"], tmp_path / "text", request)
    assert (text_of(tmp_path / "text" / "train"), summary.other_files) == (b"some text", {kind: 1})
    everything = TextRequest(4, val_fraction=0, any_file=True)
    assert prepare_text([tmp_path / "all"], tmp_path / "every", everything).other_files == {}
    assert text_of(tmp_path / "every" / "train") == content + b"\0some text"


@pytest.mark.parametrize("text", [b"", b"plain", "é".encode(), b"Latin-1: \xe9", b"PK", b"a,b\n", b"{}", b"BM"])
def test_text_has_no_kind(text):
    assert kind_of("a.txt", text, has_zeros=False) is None
