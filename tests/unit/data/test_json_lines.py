"""Documents in JSON Lines."""

import json
import os

import pytest
from tokenizers import Tokenizer as Loaded
from tokenizers import models, pre_tokenizers

from cstool.data import TextPart, TextRequest, check_data, data_info, json_lines, prepare_text, text_work
from cstool.data.json_lines import cut_lines, documents_of, has_json_lines, text_key, write_texts
from cstool.data.sources import find_files, read_bytes, split_text
from cstool.errors import Interrupted
from tests.unit.data.made import content_of, text_of

TEXTS = ["hello\nworld", 'é "世🎉', "{}", "x" * 50, "a\\tb"]


def lines_of(texts, key="text", **more):
    return "".join(json.dumps({**more, key: text}) + "\n" for text in texts)


@pytest.fixture
def source(tmp_path):
    """The path of a file with `TEXTS`."""
    path = tmp_path / "x.jsonl"
    path.write_text(lines_of(TEXTS))
    return path


@pytest.fixture
def prepare(tmp_path, source):
    """Prepare the source with samples of 4 tokens, nothing held out; what is asked for may be changed."""

    def call(output="text", sources=(), processes=1, overwrite=False, progress=None, **changes):
        request = TextRequest(**{"sequence_length": 4, "val_fraction": 0, **changes})
        how = {"processes": processes, "overwrite": overwrite, "progress": progress}
        return prepare_text([*(sources or [source])], tmp_path / output, request, **how)

    return call


@pytest.fixture
def documents(tmp_path):
    """Write a file and return its documents: names and texts."""

    def call(content, key=None):
        path = tmp_path / "docs.jsonl"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        (file,) = find_files([path])
        runs = cut_lines(file, key or text_key(file), tmp_path / "00000")
        for run in runs:
            write_texts(run)
        return {found.name: read_bytes(found, 0, found.size_bytes).decode() for found in documents_of(runs)}

    return call


def test_each_line_is_a_document_with_a_zero_after_it(tmp_path, prepare):
    summary = prepare()
    assert text_of(tmp_path / "text" / "train") == "\0".join(TEXTS).encode()
    assert (summary.train.files, summary.train.documents, summary.val) == (1, 5, TextPart(0, 0, 0, 0, 0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text", "x.jsonl"]
    assert sorted(path.name for path in (tmp_path / "text").iterdir()) == ["prepared.json", "train"]


@pytest.mark.parametrize("changes", [{}, {"packing": "documents"}, {"train_vocab": 260}, {"shuffle_seed": 1}], ids=str)
def test_lines_make_the_samples_that_files_make(tmp_path, prepare, changes):
    (tmp_path / "files").mkdir()
    for number, content in enumerate(TEXTS):
        (tmp_path / "files" / f"{number}").write_text(content)
    prepare("files_of", [tmp_path / "files"], **changes)
    prepare("lines_of", **changes)
    one, other = content_of(tmp_path / "files_of"), content_of(tmp_path / "lines_of")
    del one["prepared.json"], other["prepared.json"]
    assert one == other


def test_lines_stand_among_files_in_the_order_of_names(tmp_path, prepare):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("first")
    (folder / "b.NDJSON").write_text(lines_of(["second", "third"], key="content"))
    (folder / "c.jsonl").write_text(lines_of(["fourth"], key="body"))
    (folder / "d.json").write_text("{}")
    summary = prepare(sources=[folder])
    assert text_of(tmp_path / "text" / "train") == b"first\0second\0third\0fourth\0{}"
    assert (summary.train.files, summary.train.documents) == (4, 5)


def test_a_link_counts_by_its_own_name(tmp_path):
    (tmp_path / "blob").write_text(lines_of(["a"]))
    (tmp_path / "x.jsonl").symlink_to("blob")
    (tmp_path / "y.txt").symlink_to("x.jsonl")
    assert [has_json_lines(file) for file in find_files([tmp_path / "x.jsonl"])] == [True]
    assert [has_json_lines(file) for file in find_files([tmp_path / "y.txt"])] == [False]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('\n  \n{"text": "a"}\r\n\n{"text": "b"}', {"docs.jsonl:3": "a", "docs.jsonl:5": "b"}),
        ('\ufeff{"text": "a"}\n', {"docs.jsonl:1": "a"}),
        ('{"text": ""}\n{"text": "a"}\n', {"docs.jsonl:2": "a"}),
        ('{"text": "a\\u2028b\u2028c\\ud83c\\udf89"}\n', {"docs.jsonl:1": "a\u2028b\u2028c🎉"}),
        (f'{{"text": "a", "n": {"9" * 5000}, "more": {{"text": 1}}}}\n', {"docs.jsonl:1": "a"}),
        ('{"text": "a"}\n{"text": "b", "content": "c"}\n', {"docs.jsonl:1": "a", "docs.jsonl:2": "b"}),
    ],
    ids=["blank_lines", "byte_order_mark", "empty_text", "separators", "long_number", "other_keys"],
)
def test_what_lines_may_look_like(documents, content, expected):
    assert documents(content) == expected


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ('{"title": "t", "content": "a", "text": "b"}', "text"),
        ('{"title": "t", "raw_content": "a"}', "raw_content"),
        ('{"story": "s", "id": 7}', "story"),
        ('\n{"story": "s"}\n{"text": "t"}', "story"),
    ],
)
def test_the_key_is_a_usual_one_or_that_of_the_only_text_of_the_first_object(tmp_path, content, key):
    (tmp_path / "x.jsonl").write_text(content)
    (file,) = find_files([tmp_path / "x.jsonl"])
    assert text_key(file) == key


def test_another_key_is_named_and_makes_another_data_set(tmp_path, prepare, error_of):
    source = tmp_path / "two.jsonl"
    source.write_text('{"text": "hello", "title": "a title"}\n')
    prepare(sources=[source])
    assert prepare(sources=[source]).already_prepared
    assert error_of(tmp_path, prepare, sources=[source], jsonl_key="title").startswith(
        "DIR/text: must not hold another data set"
    )
    prepare(sources=[source], jsonl_key="title", overwrite=True)
    assert text_of(tmp_path / "text" / "train") == b"a title"


HINT = "\nhint: --jsonl_key names another key"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": oops}', "must be a JSON object, got 'oops}' after 9 characters"),
        (b'{"text":', "must be a JSON object, got its end after 8 characters"),
        (b"[" * 100_000, "must be a JSON object, got one that is nested too deeply"),
        (b'["text"]', "must be a JSON object, got a list"),
        (b'"text"', "must be a JSON object, got a text"),
        (b"7", "must be a JSON object, got a number"),
        (b"false", "must be a JSON object, got true or false"),
        (b"{}", f'must have a text under "text", got an empty object{HINT}'),
        (b'{"id": 1, "b\\u0007": 2}', f'must have a text under "text", got an object with "id", "b\\u0007"{HINT}'),
        (
            json.dumps({f"k{i}": i for i in range(9)} | {"k" * 41: 0}).encode(),
            'must have a text under "text", got an object with "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7" and 2 '
            f"more{HINT}",
        ),
        (b'{"text": null}', f'must have a text under "text", got null there{HINT}'),
        (b'{"text": ["a"]}', f'must have a text under "text", got a list there{HINT}'),
        (b'{"text": {}}', f'must have a text under "text", got an object there{HINT}'),
        (b'{"text": 12}', f'must have a text under "text", got a number there{HINT}'),
        (b'{"text": "a\xff"}', "must be UTF-8, got byte 0xff, 11 bytes after its begin"),
        (
            b'{"text": "ab\\udc00"}',
            "must have a text of whole characters under \"text\", got half of one, '\\udc00', at 2",
        ),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_made(tmp_path, prepare, error_of, line, message):
    source = tmp_path / "wrong.jsonl"
    source.write_bytes(b'{"text": "a"}\n\n' + line + b"\n")
    assert error_of(tmp_path, prepare, sources=[source]) == f"DIR/wrong.jsonl:3: {message}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wrong.jsonl", "x.jsonl"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"id": "7", "my story": "once upon", "n": 1}',
            "DIR/wrong.jsonl:1: must have its text under a usual key (text, content, document, body, raw_content), got "
            'texts under "id", "my story"\nhint: name the key, for example --jsonl_key \'my story\'',
        ),
        ('\n{"a": 1, "b": []}', 'DIR/wrong.jsonl:2: must have a text, got an object with "a", "b"'),
        ("{}", "DIR/wrong.jsonl:1: must have a text, got an empty object"),
        ("no JSON\n", "DIR/wrong.jsonl:1: must be a JSON object, got 'no JSON' after 0 characters"),
        ("\n \n", "DIR/wrong.jsonl: must have a text in one of its lines, got none"),
        ('{"text": ""}\n', "DIR/wrong.jsonl: must have a text in one of its lines, got none"),
    ],
    ids=["several", "none", "empty_object", "no_json", "blank", "empty_texts"],
)
def test_a_first_object_that_does_not_say_where_its_text_is(tmp_path, documents, error_of, content, message):
    assert error_of(tmp_path, documents, content) == message.replace("wrong", "docs")


def test_an_empty_file_is_no_text(tmp_path, prepare, error_of):
    (tmp_path / "empty.jsonl").touch()
    assert error_of(tmp_path, prepare, sources=[tmp_path / "empty.jsonl"]) == (
        "DIR/empty.jsonl: must hold files of text, got none\nhint: give files, or folders with files that are not empty"
    )


def test_a_key_without_json_lines_is_refused(tmp_path, prepare, error_of):
    (tmp_path / "a.txt").write_text("text")
    assert error_of(tmp_path, prepare, sources=[tmp_path / "a.txt"], jsonl_key="text") == (
        "--jsonl_key: must stand beside files .jsonl or .ndjson, got none among the sources\nhint: leave it out"
    )


def test_a_large_file_is_split_by_lines_and_lines_added_later_do_not_move_the_others(tmp_path, prepare):
    source = tmp_path / "large.jsonl"
    held_out = []
    for count in (200, 220):
        source.write_text(lines_of(f"{i:03d}!" for i in range(count)))
        summary = prepare(sources=[source], val_fraction=0.2, overwrite=True)
        assert (summary.train.files, summary.val.files) == (1, 1)
        assert summary.train.documents + summary.val.documents == count
        assert 0.15 < summary.held_out_share < 0.25
        train, val = (text_of(tmp_path / "text" / part).split(b"\0") for part in ("train", "val"))
        assert sorted(train + val) == [b"%03d!" % i for i in range(count)]
        held_out.append(val)
    assert held_out[1][: len(held_out[0])] == held_out[0]


def test_where_no_lines_are_near_the_share_the_end_of_the_longest_is_held_out(tmp_path, prepare):
    source = tmp_path / "two.jsonl"
    source.write_text(lines_of(["abcdef", "0123456789", "ghijkl"]))
    summary = prepare(sources=[source], val_fraction=0.1)
    assert [text_of(tmp_path / "text" / part) for part in ("train", "val")] == [b"abcdef\x0001234567\0ghijkl", b"89"]
    assert (summary.train.documents, summary.val.documents) == (3, 1)


def test_a_text_that_is_too_short_is_named_by_its_line(tmp_path, prepare, error_of):
    source = tmp_path / "short.jsonl"
    source.write_text("\n" + lines_of(["abc"]))
    assert error_of(tmp_path, prepare, sources=[source], val_fraction=0.1) == (
        "DIR/short.jsonl:2: must have at least 4 bytes for its end to be held out, got 3\n"
        "hint: give more text, or hold nothing out with --val_fraction 0"
    )
    source.write_text("\n" + lines_of(["a"]))
    assert error_of(tmp_path, prepare, sources=[source]) == (
        "DIR/short.jsonl:2: the train part must have at least 2 bytes, got fewer\nhint: give more text"
    )


def test_a_character_without_a_token_is_named_by_its_line_and_its_place_in_the_text(tmp_path, prepare, error_of):
    loaded = Loaded(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    loaded.pre_tokenizer = pre_tokenizers.Whitespace()
    loaded.save(str(tmp_path / "tokenizer.json"))
    source = tmp_path / "unknown.jsonl"
    source.write_text(lines_of(["a a", "a a é a"]))
    assert error_of(tmp_path, prepare, sources=[source], tokenizer=str(tmp_path / "tokenizer.json")) == (
        "DIR/unknown.jsonl:2: the tokenizer must have a token for 'é' at offset 4; it has none\n"
        "hint: --allow_unknown goes on without such characters, and counts them; a tokenizer with all bytes has none"
    )


def test_zero_bytes_in_a_text_are_told(tmp_path, prepare):
    source = tmp_path / "zeros.jsonl"
    source.write_text(lines_of(["abc", "d\0e", "f\0"]))
    binary = prepare(sources=[source]).binary
    assert (binary.files, binary.size_bytes, binary.first) == (1, 5, "zeros.jsonl:2")


@pytest.mark.parametrize(("processes", "changes"), [(1, {}), (2, {"train_vocab": 260})], ids=["bytes", "tokens"])
def test_neither_runs_nor_processes_change_the_files(tmp_path, prepare, monkeypatch, processes, changes):
    prepare("straight", **changes)
    monkeypatch.setattr(json_lines, "RUN_BYTES", 70)
    prepare(processes=processes, **changes)
    assert content_of(tmp_path / "text") == content_of(tmp_path / "straight")


def test_lines_are_numbered_across_runs(tmp_path, documents, error_of, monkeypatch):
    monkeypatch.setattr(json_lines, "RUN_BYTES", 40)
    content = lines_of("abcdefgh") + "\n\n" + lines_of("ij")
    numbers = [*range(1, 9), 11, 12]
    assert documents(content) == {f"docs.jsonl:{n}": text for n, text in zip(numbers, "abcdefghij", strict=True)}
    assert error_of(tmp_path, documents, content + "{}\n").startswith("DIR/docs.jsonl:13: must have a text")


def test_a_line_that_is_too_long_is_refused(tmp_path, documents, error_of, monkeypatch):
    monkeypatch.setattr(json_lines, "RUN_BYTES", 40)
    fits = lines_of(["x" * 27])
    assert (len(fits), documents(fits + fits)) == (40, {"docs.jsonl:1": "x" * 27, "docs.jsonl:2": "x" * 27})
    assert error_of(tmp_path, documents, fits + lines_of(["x" * 28])) == (
        "DIR/docs.jsonl:2: a line must have at most 40 bytes, got more\n"
        "hint: cut its text, or give it as a file of text"
    )


def interrupt_after(calls):
    """Return a progress that is interrupted once it was told so often."""
    told = []

    def tell(done, total):
        told.append(done)
        if len(told) == calls:
            raise KeyboardInterrupt

    return tell


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-1])


def leave(path):
    pass


@pytest.mark.parametrize("damage", [leave, cut_short, os.unlink], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("suffix", ["txt", "npy"])
def test_an_interrupted_preparation_goes_on_from_its_texts(tmp_path, prepare, monkeypatch, suffix, damage):
    monkeypatch.setattr(json_lines, "RUN_BYTES", 70)
    prepare("straight")
    with pytest.raises(Interrupted):
        prepare(progress=interrupt_after(3))  # once before the first run
    texts = tmp_path / ".text.partial" / "texts"
    assert sorted(path.name for path in texts.iterdir()) == [
        f"00000_0000{number}.{kind}" for number in range(2) for kind in ("npy", "txt")
    ]
    damage(texts / f"00000_00000.{suffix}")
    written = []
    monkeypatch.setattr(text_work, "write_texts", lambda run: written.append(run.path.stem) or write_texts(run))
    prepare()
    assert written == [*([] if damage is leave else ["00000_00000"]), "00000_00002", "00000_00003"]
    assert content_of(tmp_path / "text") == content_of(tmp_path / "straight")


@pytest.mark.parametrize("changes", [{}, {"train_vocab": 260}], ids=["bytes", "trained"])
def test_progress_counts_to_the_end(prepare, source, changes):
    told = []
    prepare(progress=lambda *state: told.append(state), **changes)
    json_bytes, text_bytes = source.stat().st_size, sum(len(text.encode()) for text in TEXTS)
    total = json_bytes + text_bytes * (3 if changes else 1)
    assert (told[0][0], told[-1]) == (0, (total, total))
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_was_made_says_where_it_is_from_and_is_whole(tmp_path, prepare):
    source = tmp_path / "other.jsonl"
    source.write_text(lines_of(TEXTS, key="текст", id=""))
    prepare(sources=[source], jsonl_key="текст")
    size_bytes = sum(len(text.encode()) for text in TEXTS)
    record = json.loads((tmp_path / "text" / "prepared.json").read_text())
    assert (record["jsonl_keys"], record["parts"]["train"]["documents"]) == (["текст"], 5)
    assert data_info(tmp_path / "text").source == (
        f'{record["sources"][0]}, {size_bytes} bytes in 5 documents, "текст" of JSON Lines'
    )
    assert check_data(tmp_path / "text").findings == []


def test_each_piece_of_a_split_is_read_from_its_own_place(tmp_path, documents):
    documents(lines_of(["abcdef", "0123456789"]))
    (file,) = find_files([tmp_path / "docs.jsonl"])
    found = [*documents_of(cut_lines(file, "text", tmp_path / "00000"))]
    parts = split_text(found[1:], 0.3, 1)
    assert [read_bytes(piece, 0, piece.size_bytes) for (piece,) in parts] == [b"0123456", b"789"]
    assert [(piece.where.rpartition("/")[2], piece.offset(1)) for (piece,) in parts] == [
        ("docs.jsonl:2", 1),
        ("docs.jsonl:2", 8),
    ]
