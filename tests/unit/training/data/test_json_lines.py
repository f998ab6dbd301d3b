"""Documents in JSON Lines."""

import json
import os

import pytest

from cstool.foundation.errors import Interrupted
from cstool.training.data import TextPart, TextRequest, check_data, data_info, json_lines, prepare_text, text_work
from cstool.training.data.json_lines import cut_lines, documents_of, has_json_lines, text_key, write_texts
from cstool.training.data.sources import find_files, read_bytes, split_text
from tests.end_to_end.refusals import rows
from tests.unit.training.data.made import (
    content_of,
    cut_short,
    interrupt_after,
    names,
    preparer,
    save_words,
    text_of,
    write_files,
)

TEXTS = ["hello\nworld", 'é "世🎉', "{}", "x" * 50, "a\\tb"]
SIZE_BYTES = sum(len(text.encode()) for text in TEXTS)


def lines_of(texts, key="text", **more):
    return "".join(json.dumps({**more, key: text}) + "\n" for text in texts)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(lines_of(TEXTS))
    return path


@pytest.fixture
def train(tmp_path):
    return tmp_path / "text" / "train"


@pytest.fixture
def prepare(source, train):
    """Prepare lines, or the source, with samples of 4 tokens, nothing held out; what is asked for may be changed."""
    call = preparer(prepare_text, TextRequest, source, train.parent, sequence_length=4, val_fraction=0, processes=1)

    def with_lines(content=None, **changes):
        if content is None:
            return call(**changes)
        path = source.with_name("lines.jsonl")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return call([path], **changes)

    return with_lines


@pytest.fixture
def documents(tmp_path):
    """Write a file and return its documents: names and texts."""

    def call(content):
        path = tmp_path / "docs.jsonl"
        path.write_text(content)
        (file,) = find_files([path])
        runs = cut_lines(file, text_key(file), tmp_path / "00000")
        for run in runs:
            write_texts(run)
        return {found.name: read_bytes(found, 0, found.size_bytes).decode() for found in documents_of(runs)}

    return call


def test_each_line_is_a_document_with_a_zero_after_it(tmp_path, train, prepare):
    summary = prepare()
    assert text_of(train) == "\0".join(TEXTS).encode()
    assert (summary.train.files, summary.train.documents, summary.val) == (1, 5, TextPart(0, 0, 0, 0, 0))
    assert (names(tmp_path), names(train.parent)) == (["text", "x.jsonl"], ["prepared.json", "train"])


@pytest.mark.parametrize("changes", [{}, {"packing": "documents"}, {"train_vocab": 260}, {"shuffle_seed": 1}], ids=str)
def test_lines_make_the_samples_that_files_make(tmp_path, prepare, changes):
    write_files(tmp_path / "files", **{f"{number}": content for number, content in enumerate(TEXTS)})
    prepare(sources=[tmp_path / "files"], output=tmp_path / "files_of", **changes)
    prepare(**changes)
    one, other = content_of(tmp_path / "files_of"), content_of(tmp_path / "text")
    del one["prepared.json"], other["prepared.json"]
    assert one == other


def test_lines_stand_among_files_in_the_order_of_names(tmp_path, train, prepare):
    two, one = lines_of(["second", "third"], key="content"), lines_of(["fourth"], key="body")
    write_files(tmp_path / "folder", **{"a.txt": "first", "b.NDJSON": two, "c.jsonl": one, "d.json": "{}"})
    summary = prepare(sources=[tmp_path / "folder"])
    assert text_of(train) == b"first\0second\0third\0fourth\0{}"
    assert (summary.train.files, summary.train.documents) == (4, 5)


def test_a_link_counts_by_its_own_name(tmp_path):
    (tmp_path / "blob").write_text(lines_of(["a"]))
    for link, target, has_lines in (("x.jsonl", "blob", True), ("y.txt", "x.jsonl", False)):
        (tmp_path / link).symlink_to(target)
        assert [has_json_lines(file) for file in find_files([tmp_path / link])] == [has_lines]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('\n  \n{"text": "a"}\r\n\n{"text": "b"}', {"docs.jsonl:3": "a", "docs.jsonl:5": "b"}),
        ('\ufeff{"text": "a"}\n', {"docs.jsonl:1": "a"}),
        ('{"text": ""}\n{"text": "a"}\n', {"docs.jsonl:2": "a"}),
        ('{"text": "a\\u2028b\u2028c\\ud83c\\udf89"}\n', {"docs.jsonl:1": "a\u2028b\u2028c🎉"}),
        (f'{{"text": "a", "n": {"9" * 5000}, "more": {{"text": 1}}}}\n', {"docs.jsonl:1": "a"}),
        ('{"text": "a"}\n{"text": "b", "content": "c"}\n', {"docs.jsonl:1": "a", "docs.jsonl:2": "b"}),
        ('{"title": "t", "content": "a", "text": "b"}', {"docs.jsonl:1": "b"}),
        ('{"title": "t", "raw_content": "a"}', {"docs.jsonl:1": "a"}),
        ('\n{"story": "s", "id": 7}\n', {"docs.jsonl:2": "s"}),
    ],
    ids="blank_lines order_mark empty_text separators long_number other_keys key usual_key only_key".split(),
)
def test_what_lines_may_look_like(documents, content, expected):
    assert documents(content) == expected


def test_another_key_is_named_and_makes_another_data_set(train, prepare, error_of):
    lines = '{"text": "hello", "title": "a title"}\n'
    prepare(lines)
    assert prepare(lines).already_prepared
    assert error_of(prepare, lines, jsonl_key="title").startswith("DIR/text: must not hold another data set")
    prepare(lines, jsonl_key="title", overwrite=True)
    assert text_of(train) == b"a title"


OBJECT, TEXT, HINT = "must be a JSON object", 'must have a text under "text"', "\nhint: --jsonl_key names another key"
EIGHT = ", ".join(f'"k{number}"' for number in range(8))
MANY = json.dumps({f"k{i}": i for i in range(9)} | {"k" * 41: 0}).encode()
HALF = "must have a text of whole characters under \"text\", got half of one, '\\udc00', at 2"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": oops}', f"{OBJECT}, got 'oops}}' after 9 characters"),
        (b'{"text":', f"{OBJECT}, got its end after 8 characters"),
        (b"[" * 100_000, f"{OBJECT}, got one that is nested too deeply"),
        (b'["text"]', f"{OBJECT}, got a list"),
        (b'"text"', f"{OBJECT}, got a text"),
        (b"7", f"{OBJECT}, got a number"),
        (b"false", f"{OBJECT}, got true or false"),
        (b"{}", f"{TEXT}, got an empty object{HINT}"),
        (b'{"id": 1, "b\\u0007": 2}', f'{TEXT}, got an object with "id", "b\\u0007"{HINT}'),
        (MANY, f"{TEXT}, got an object with {EIGHT} and 2 more{HINT}"),
        (b'{"text": null}', f"{TEXT}, got null there{HINT}"),
        (b'{"text": {}}', f"{TEXT}, got an object there{HINT}"),
        (b'{"text": "a\xff"}', "must be UTF-8, got byte 0xff, 11 bytes after its begin"),
        (b'{"text": "ab\\udc00"}', HALF),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_made(tmp_path, prepare, error_of, line, message):
    assert error_of(prepare, b'{"text": "a"}\n\n' + line + b"\n") == f"DIR/lines.jsonl:3: {message}"
    assert names(tmp_path) == ["lines.jsonl", "x.jsonl"]


def test_files_with_a_mark_of_their_encoding_may_be_joined(documents):
    """As `cat` does, after which the mark of the second one begins a line."""
    found = documents("\ufeff" + lines_of(["a", "b"]) + "\ufeff" + lines_of(["c"]) + "\ufeff\n")
    assert found == {"docs.jsonl:1": "a", "docs.jsonl:2": "b", "docs.jsonl:3": "c"}


UNTOLD = rows(r"""
{"id": "7", "my story": "once upon", "n": 1} => :1: USUAL "id", "my story"
    hint: name the key, for example --jsonl_key 'my story'
{"prompt": "a longer one", "completion": "b"} => :1: USUAL "prompt", "completion"
    hint: `jq -c '{text: (.prompt + .completion)}' DIR/docs.jsonl > texts.jsonl` makes one text of "prompt" and
        "completion"; --jsonl_key KEY takes the texts of one key alone
{"prompt": "a", "chosen": "b", "rejected": "c"} => :1: USUAL "prompt", "chosen", "rejected"
    hint: `cstool data prepare preferences` makes a data set of them, for DPO
\n{"a": 1, "b": []} => :2: must have a field of text, got an object with "a", "b"
{} => :1: must have a field of text, got an empty object
no JSON\n => :1: must be a JSON object, got 'no JSON' after 0 characters
\n \n => : must have a text in one of its lines, got none
{"text": ""}\n => : must have a text in one of its lines, got none
""")
USUAL = "must have its text under a usual key (text, content, document, body, raw_content), got texts under"


@pytest.mark.parametrize(("content", "message"), UNTOLD)
def test_a_first_object_that_does_not_say_where_its_text_is(documents, error_of, content, message):
    assert error_of(documents, content.replace("\\n", "\n")) == f"DIR/docs.jsonl{message.replace('USUAL', USUAL)}"


def test_an_empty_file_is_no_text_and_a_key_stands_beside_json_lines(tmp_path, prepare, error_of):
    hint = "give files, or folders with files that are not empty"
    assert error_of(prepare, "") == f"DIR/lines.jsonl: must hold files of text, got none\nhint: {hint}"
    (tmp_path / "a.txt").write_text("text")
    assert error_of(prepare, sources=[tmp_path / "a.txt"], jsonl_key="text") == (
        "--jsonl_key: must stand beside files .jsonl or .ndjson, got none among the sources\nhint: leave it out"
    )


def test_a_large_file_is_split_by_lines_and_lines_added_later_do_not_move_the_others(train, prepare):
    held_out = []
    for count in (200, 220):
        summary = prepare(lines_of(f"{i:03d}!" for i in range(count)), val_fraction=0.2, overwrite=True)
        assert (summary.train.files, summary.val.files) == (1, 1)
        assert summary.train.documents + summary.val.documents == count
        assert 0.15 < summary.held_out_share < 0.25
        kept, val = (text_of(train.with_name(part)).split(b"\0") for part in ("train", "val"))
        assert sorted(kept + val) == [b"%03d!" % i for i in range(count)]
        held_out.append(val)
    assert held_out[1][: len(held_out[0])] == held_out[0]


def test_where_no_lines_are_near_the_share_the_end_of_the_longest_is_held_out(train, prepare):
    summary = prepare(lines_of(["abcdef", "0123456789", "ghijkl"]), val_fraction=0.1)
    assert (text_of(train), text_of(train.with_name("val"))) == (b"abcdef\x0001234567\0ghijkl", b"89")
    assert (summary.train.documents, summary.val.documents) == (3, 1)


def test_a_text_that_is_too_short_is_named_by_its_line(prepare, error_of):
    assert error_of(prepare, "\n" + lines_of(["abc"]), val_fraction=0.1) == (
        "DIR/lines.jsonl:2: must have at least 4 bytes for its end to be held out, got 3\n"
        "hint: give more text, or hold nothing out with --val_fraction 0"
    )
    rule = "DIR/lines.jsonl:2: the train part must have at least 2 bytes, got fewer\nhint: give more text"
    assert error_of(prepare, "\n" + lines_of(["a"])) == rule


def test_a_character_without_a_token_is_named_by_its_line_and_its_place_in_the_text(tmp_path, prepare, error_of):
    saved = save_words(tmp_path / "tokenizer.json", "[UNK]", **{"a": 0, "[UNK]": 1})
    assert error_of(prepare, lines_of(["a a", "a a é a"]), tokenizer=str(saved)) == (
        "DIR/lines.jsonl:2: the tokenizer must have a token for 'é' at offset 4; it has none\n"
        "hint: --allow_unknown goes on without such characters, and counts them; a tokenizer with all bytes has none"
    )


@pytest.mark.usefixtures("quick_processes")
@pytest.mark.parametrize(("processes", "changes"), [(1, {}), (2, {"train_vocab": 260})], ids=["bytes", "tokens"])
def test_neither_runs_nor_processes_change_the_files(tmp_path, prepare, monkeypatch, processes, changes):
    prepare(output=tmp_path / "straight", **changes)
    monkeypatch.setattr(json_lines, "RUN_BYTES", 70)
    prepare(processes=processes, **changes)
    assert content_of(tmp_path / "text") == content_of(tmp_path / "straight")


def test_lines_are_numbered_across_runs_and_none_is_longer_than_a_run(documents, error_of, monkeypatch):
    monkeypatch.setattr(json_lines, "RUN_BYTES", 40)
    content = lines_of("abcdefgh") + "\n\n" + lines_of("ij")
    numbers = [*range(1, 9), 11, 12]
    assert documents(content) == {f"docs.jsonl:{n}": text for n, text in zip(numbers, "abcdefghij", strict=True)}
    assert error_of(documents, content + "{}\n").startswith("DIR/docs.jsonl:13: must have a text")
    fits = lines_of(["x" * 27])
    assert (len(fits), documents(fits + fits)) == (40, {"docs.jsonl:1": "x" * 27, "docs.jsonl:2": "x" * 27})
    assert error_of(documents, fits + lines_of(["x" * 28])) == (
        "DIR/docs.jsonl:2: a line must have at most 40 bytes, got more\n"
        "hint: cut its text, or give it as a file of text"
    )


@pytest.mark.parametrize("suffix", ["txt", "npy"])
@pytest.mark.parametrize("damage", [None, cut_short, os.unlink])
def test_an_interrupted_preparation_goes_on_from_its_texts(tmp_path, prepare, monkeypatch, suffix, damage):
    monkeypatch.setattr(json_lines, "RUN_BYTES", 70)
    prepare(output=tmp_path / "straight")
    with pytest.raises(Interrupted):
        prepare(progress=interrupt_after(3))  # once before the first run
    texts = tmp_path / ".text.partial" / "texts"
    assert names(texts) == [f"00000_0000{number}.{kind}" for number in range(2) for kind in ("npy", "txt")]
    if damage:
        damage(texts / f"00000_00000.{suffix}")
    written = []
    monkeypatch.setattr(text_work, "write_texts", lambda run: written.append(run.path.stem) or write_texts(run))
    prepare()
    assert written == [*(["00000_00000"] if damage else []), "00000_00002", "00000_00003"]
    assert content_of(tmp_path / "text") == content_of(tmp_path / "straight")


@pytest.mark.parametrize(("changes", "ways"), [({}, 1), ({"train_vocab": 260}, 3)], ids=["bytes", "trained"])
def test_progress_counts_to_the_end(prepare, source, changes, ways):
    told = []
    prepare(progress=lambda *state: told.append(state), **changes)
    total = source.stat().st_size + SIZE_BYTES * ways
    assert (told[0][0], told[-1]) == (0, (total, total))
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_was_made_says_where_it_is_from_and_is_whole(train, prepare):
    prepare(lines_of(TEXTS, key="текст", id=""), jsonl_key="текст")
    record, info = json.loads((train.parent / "prepared.json").read_text()), data_info(train.parent)
    assert (record["jsonl_keys"], record["parts"]["train"]["documents"]) == (["текст"], 5)
    assert info.source == f'{record["sources"][0]}, {SIZE_BYTES} bytes in 5 documents, "текст" of JSON Lines'
    assert check_data(train.parent).findings == []


def test_each_piece_of_a_split_is_read_from_its_own_place(tmp_path, documents):
    documents(lines_of(["abcdef", "0123456789"]))
    (file,) = find_files([tmp_path / "docs.jsonl"])
    found = [*documents_of(cut_lines(file, "text", tmp_path / "00000"))]
    parts = split_text(found[1:], 0.3, 1)
    assert [read_bytes(piece, 0, piece.size_bytes) for (piece,) in parts] == [b"0123456", b"789"]
    places = [(piece.where.rpartition("/")[2], piece.offset(1)) for (piece,) in parts]
    assert places == [("docs.jsonl:2", 1), ("docs.jsonl:2", 8)]
