"""A YAML text becomes plain data in which every key knows its line."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path
from unittest.mock import Mock

import pytest

import cstool
from cstool.foundation.errors import ParamsError
from cstool.foundation.yaml_lines import compose
from cstool.foundation.yaml_lines.document import Document, parse_document, parse_value, read_document


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def _read(content: str | bytes) -> Document:
        Path("x.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_document(Path("x.yaml"))

    return _read


@pytest.fixture
def refusal(read):
    """The whole message with which a text, or the file at a path, is refused."""

    def _refusal(content: str | bytes | Path) -> str:
        with pytest.raises(ParamsError) as caught:
            read_document(content) if isinstance(content, Path) else read(content)
        return str(caught.value)

    return _refusal


INF = float("inf")
INTEGERS = {"1": 1, "-7": -7, "1_000": 1000, "010": 10}
FLOATS = {"1.5": 1.5, "1e-5": 1e-5, "1.0e-05": 1e-5, "6E4": 6e4, ".5": 0.5, "5.": 5.0, ".inf": INF, "-.inf": -INF}
CONSTANTS = {"true": True, "off": False, "Yes": True, "null": None, "~": None, "": None}
TEXTS = {"gpt2": "gpt2", "'12'": "12", "1:30": "1:30", "2024-01-01": "2024-01-01", "e5": "e5"}
SCALARS = INTEGERS | FLOATS | CONSTANTS | TEXTS | {"[1, a]": [1, "a"], "{a: {b: 1}}": {"a": {"b": 1}}}


def test_scalars_are_read_as_yaml_1_2_has_them_plus_yes_and_no():
    found = {text: parse_value(text, "--set a") for text in SCALARS}
    assert {text: (type(value), value) for text, value in found.items()} == {
        text: (type(value), value) for text, value in SCALARS.items()
    }
    got = parse_value(".nan", "--set a")
    assert got != got


@pytest.mark.parametrize(
    ("key", "label"),
    [
        (("a",), "x.yaml:2"),
        (("a", "b"), "x.yaml:3"),
        (("a", "c", 1), "x.yaml:6"),
        (("a", "c", 1, "missing"), "x.yaml:6"),
        (("a", "missing", "below"), "x.yaml:2"),
        (("missing",), "x.yaml:2"),
    ],
)
def test_a_key_has_the_line_it_stands_in_and_a_missing_one_that_of_its_mapping(read, key, label):
    assert read("# comment\na:\n  b: 1\n  c:\n  - 1\n  - 2\n").place(key).label == label


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(read):
    document = read(b"\xef\xbb\xbfa:\r\n  b: text\r\n")
    assert (document.data, document.place(("a", "b")).label) == ({"a": {"b": "text"}}, "x.yaml:2")


def test_an_alias_repeats_the_value_of_its_anchor_as_a_copy_and_a_merge_key_brings_what_is_not_said(read):
    data = read("a: &x {b: 1}\nc: *x\n").data
    data["a"]["b"] = 2
    assert data == {"a": {"b": 2}, "c": {"b": 1}}
    assert read("a: &x {b: 1, c: 1}\nd:\n  b: 2\n  <<: *x\n").data["d"] == {"b": 2, "c": 1}
    # Of several the first wins.
    assert read("a: &x {k: 1}\nb: &y {k: 2, l: 2}\nc:\n  <<: [*x, *y]\n").data["c"] == {"k": 1, "l": 2}


INVALID, END = "not valid YAML", "'<stream end>'"
TWICE, ONE = "is given twice\nhint: the first is in line", "expected a single document in the stream"
TAB = (
    "while scanning for the next token found character '\\t' that cannot start any token\n"
    "hint: indent with spaces; YAML takes no tabs there"
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "x.yaml: must hold a mapping, got an empty file"),
        ("# only a comment\n", "x.yaml: must hold a mapping, got an empty file"),
        ("a: 1\nb: 2\na: 3\n", f"x.yaml:3: a {TWICE} 1"),
        ("a:\n  b: 1\n  b: 2\n", f"x.yaml:3: a.b {TWICE} 2"),
        ("a: [1\n", f"x.yaml:2:1: {INVALID}: while parsing a flow sequence expected ',' or ']', but got {END}"),
        ("a: b: c\n", "x.yaml:1:5: not valid YAML: mapping values are not allowed here"),
        ("a:\n\tb: 1\n", f"x.yaml:2:1: {INVALID}: {TAB}"),
        ("a: 1\n---\nb: 1\n", f"x.yaml:2:1: {INVALID}: {ONE} but found another document"),
        ("a: *x\n", "x.yaml:1:4: not valid YAML: found undefined alias 'x'"),
        ("a: 1\nb: \x01\n", "x.yaml:2: not valid YAML: special characters are not allowed"),
        ("a:\n- b: " + "[" * 3000, "x.yaml:2: must be nested at most 50 deep"),
        ("a:\n  b: " + "[" * 49 + "]" * 49, "x.yaml:2: must be nested at most 50 deep"),
        ("- \n" * 50_001, "x.yaml:50000: must hold at most 50,000 values"),
        ("- &a\n" + "- *a\n" * 50_001, "x.yaml:50000: must hold at most 50,000 values"),
        ("#" * 1_048_577, "x.yaml: must be at most 1,048,576 bytes long, got more"),
        ("a: &a\n  b: *a\n", "x.yaml:1: a.b must not contain itself"),
        ("? [1]\n: 2\n", "x.yaml:1: a key below the file must be text, got a list or mapping"),
        ("a:\n  <<: 3\n", "x.yaml:2: a.<< must be a mapping"),
        ("a: !thing 3\n", "x.yaml:1: a cannot be read as !thing, got '3'"),
        ("a: !!int x\n", "x.yaml:1: a cannot be read as !!int, got 'x'"),
        (b"a: 1\nb: \xff\n", "x.yaml:2: must be UTF-8 text, got byte 0xff"),
        ("a: 1\na: 2\nb: 1\nb: 2\n", f"x.yaml:2: a {TWICE} 1\nx.yaml:4: b {TWICE} 3"),
        (Path("/dev/zero"), "/dev/zero: must be at most 1,048,576 bytes long, got more"),
    ],
)
def test_what_cannot_be_read_is_one_error_with_its_line(refusal, content, message):
    assert refusal(content) == message


def test_anchors_that_multiply_or_nest_are_stopped(refusal):
    levels = "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in itertools.pairwise("abcdefghijklmnopq"))
    assert refusal("a: &a 1\n" + levels) == "x.yaml:15: must hold at most 50,000 values"
    levels = "".join(f"a{n + 1}: &a{n + 1} [*a{n}]\n" for n in range(200))
    assert refusal("a0: &a0 []\n" + levels) == "x.yaml:51: must be nested at most 50 deep"


@pytest.mark.parametrize("content", ["[" * 100_000, "[1," * 49, "- 1\n" * 60_000, "#" * 2_000_000])
def test_beyond_the_limits_nothing_is_composed(read, content, monkeypatch):
    monkeypatch.setattr(compose.yaml, "compose", None)
    with pytest.raises(ParamsError):
        read(content)


@pytest.mark.parametrize("path", sorted(Path(cstool.__file__).parents[1].glob("params/*.yaml")), ids=lambda p: p.name)
def test_both_parsers_read_the_same(path, monkeypatch):
    found = []
    for loader in (compose._FastLoader, compose._Loader):
        monkeypatch.setattr(compose, "_FastLoader", loader)
        document = read_document(path)
        found.append((document.data, document.places))
    assert found[0] == found[1]


def test_text_that_is_no_unicode_is_refused():
    with pytest.raises(ParamsError, match=r"^x\.yaml:1: not valid YAML: special characters are not allowed$"):
        parse_document("a: \udc80\n", "x.yaml")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("params/gpt_tinny.yaml", "there is no such file\nhint: did you mean params/gpt_tiny.yaml?"),
        ("x.yaml", "there is no such file"),
        ("nowhere/x.yaml", "there is no such file\nhint: there is no folder nowhere either"),
        ("params", "must be a YAML file, got a folder"),
    ],
)
def test_a_file_that_is_not_there_is_an_error_that_names_what_is_near(refusal, path, message):
    Path("params").mkdir()
    Path("params/gpt_tiny.yaml").touch()
    assert refusal(Path(path)) == f"{path}: {message}"


def test_an_unreadable_file_is_an_error_with_the_reason(refusal, monkeypatch):
    monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    assert refusal(Path("x.yaml")) == "x.yaml: cannot be read: Permission denied"
