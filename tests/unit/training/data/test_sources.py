"""The files that a text is made of."""

import os
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.data.sources import SourceFile, find_files, read_bytes, split_text
from tests.unit.training.data.made import write_files


def names(*sources, **how):
    return [file.name for file in find_files(list(sources), **how)]


def sized(sizes_bytes):
    return [SourceFile(Path(f"/src/{i}"), f"{i}", size, "") for i, size in enumerate(sizes_bytes)]


def size_bytes(part):
    return sum(file.size_bytes for file in part)


def test_folders_are_walked_and_files_sorted_by_name_with_a_digest_of_their_content(tmp_path):
    write_files(tmp_path, b=b"2", a__z=b"31", a__b=b"2")
    found = find_files([tmp_path])
    assert [(file.name, file.size_bytes) for file in found] == [("a/b", 1), ("a/z", 2), ("b", 1)]
    assert (found[0].digest == found[2].digest, found[0].digest == found[1].digest) == (True, False)
    write_files(tmp_path, **{f"f{i}": b"text" * i for i in range(9)})
    assert find_files([tmp_path], threads=3) == find_files([tmp_path])


def test_hidden_entries_bytecode_and_empty_files_are_left_out_and_json_is_source_text(tmp_path):
    write_files(tmp_path, kept=b"1", empty=b"")
    for name in (".git/config", ".hidden", "__pycache__/a.pyc", "package.json", os.fsdecode(b"z\xff")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}\n")
    assert names(tmp_path) == ["kept", "package.json", "z\\udcff"]


def test_a_file_given_by_itself_has_its_own_name_and_given_twice_counts_once(tmp_path):
    write_files(tmp_path, a__b=b"1")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    for sources in (["a/b"], ["a", "a/b", "link"]):
        assert names(*(tmp_path / name for name in sources)) == ["b"]


def test_by_default_the_sources_are_those_of_the_standard_library_without_its_tests(tmp_path, monkeypatch):
    write_files(
        tmp_path, **dict.fromkeys(("os.py", "json__tool.py", "lib.so", "test__a.py", "site-packages__b.py"), b"1")
    )
    monkeypatch.setattr(sysconfig, "get_path", lambda name: {"stdlib": str(tmp_path)}[name])
    assert [file.name for file in find_files(None)] == ["json/tool.py", "os.py"]


JSON = "must be text, got JSON, whose braces and escapes a model would learn\nhint:"
EMPTY = "must hold files of text, got none\nhint: give files, or folders with files that are not empty"


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["no"], "DIR/no: must be a file or a folder, found nothing there"),
        (["pipe"], "DIR/pipe: must be a file or a folder, got something else"),
        (["a", "b"], f"DIR/a, DIR/b: {EMPTY}"),
        (["text.json"], f"DIR/text.json: {JSON} `jq -r .text DIR/text.json > texts.txt` writes its texts alone"),
        (["list.json"], f"DIR/list.json: {JSON} write its texts into files of their own"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, error_of, sources, message):
    write_files(tmp_path, a__empty=b"", b__empty=b"")
    os.mkfifo(tmp_path / "pipe")
    write_files(tmp_path, **{"text.json": '{"id": "7", "text": "a b\\n"}\n', "list.json": "[\n1]\n"})
    assert error_of(find_files, [tmp_path / name for name in sources]) == message


def test_a_file_that_grows_while_it_is_digested_is_reported(tmp_path, error_of, monkeypatch):
    write_files(tmp_path, a=b"one")
    status = os.fstat

    def grow(descriptor):
        found = status(descriptor)
        with (tmp_path / "a").open("ab") as stream:
            stream.write(b"!")
        return found

    monkeypatch.setattr(os, "fstat", grow)
    assert error_of(find_files, [tmp_path]) == (
        "DIR/a: must not change while it is read, had 3 bytes and now 4\n"
        "hint: run it again when nobody writes to the file"
    )


@given(
    sizes_bytes=st.lists(st.integers(4, 10**6), min_size=1, max_size=40),
    fraction=st.floats(0, 1, exclude_max=True),
    seed=st.integers(0, 5),
)
def test_each_byte_is_in_one_part_and_no_part_is_empty(sizes_bytes, fraction, seed):
    files = sized(sizes_bytes)
    train, held_out = split_text(files, fraction, seed)
    assert size_bytes(train) + size_bytes(held_out) == size_bytes(files)
    assert {file.name for file in (*train, *held_out)} == {file.name for file in files}
    assert size_bytes(train) > 0
    assert (size_bytes(held_out) > 0) == (fraction > 0)


@given(
    sizes_bytes=st.lists(st.integers(1000, 10**6), min_size=1, max_size=40),
    fraction=st.floats(0.01, 0.5),
    seed=st.integers(0, 5),
)
def test_whatever_the_sizes_about_the_asked_share_of_the_bytes_is_held_out(sizes_bytes, fraction, seed):
    """But no file that is most of the text is held out whole."""
    _, held_out = split_text(sized(sizes_bytes), fraction, seed)
    assert 0.39 < size_bytes(held_out) / sum(sizes_bytes) / fraction < 2.51
    assert all(file.bytes_before or 2 * file.size_bytes <= sum(sizes_bytes) for file in held_out)


def test_of_many_files_some_are_held_out_which_follows_from_the_seed_and_few_move_when_more_are_added():
    files = sized([100] * 1000)
    train, held_out = split_text(files, 0.1, seed=1)
    assert (len(train), len(held_out)) == (903, 97)
    before, after = (set(split_text(files[:count], 0.3, seed=1)[1]) for count in (50, 60))
    assert before == after & set(files[:50]) != set(split_text(files[:50], 0.3, seed=2)[1])
    assert split_text(files[:1], 0, seed=1) == (tuple(files[:1]), ())


def test_of_few_files_the_small_ones_are_held_out_or_the_end_of_the_largest():
    files = sized([100_000, 1_500, 2_000, 1_800])
    for seed in range(5):
        assert split_text(files, 0.05, seed)[0] == (files[0],)
    (file,) = sized([1000])
    head, tail = replace(file, size_bytes=950, bytes_after=50), replace(file, size_bytes=50, bytes_before=950)
    assert split_text([file], 0.05, 1) == ((head,), (tail,))
    files = sized([1000, 1100, 1000])
    train, held_out = split_text(files, 0.05, 1)
    assert train == (files[0], replace(files[1], size_bytes=945, bytes_after=155), files[2])
    assert held_out == (replace(files[1], size_bytes=155, bytes_before=945),)


def test_a_file_that_is_too_short_cannot_be_cut(error_of):
    assert error_of(split_text, sized([3]), 0.05, 1) == (
        "/src/0: must have at least 4 bytes for its end to be held out, got 3\n"
        "hint: give more text, or hold nothing out with --val_fraction 0"
    )


@given(text=st.text("aé世🎉", min_size=8), fraction=st.floats(0.01, 0.99))
def test_whole_characters_are_cut_between_them(tmp_path_factory, text, fraction):
    folder = tmp_path_factory.mktemp("text")
    write_files(folder, a=text.encode())
    parts = split_text(find_files([folder]), fraction, 1, whole_characters=True)
    assert "".join(read_bytes(piece, 0, piece.size_bytes).decode() for (piece,) in parts) == text


def test_bytes_that_are_no_text_are_cut_anywhere_and_a_range_is_read_of_a_file(tmp_path):
    write_files(tmp_path, a=b"\x80" * 10)
    ((head,), (tail,)) = split_text(find_files([tmp_path]), 0.3, 1, whole_characters=True)
    assert (head.size_bytes, tail.size_bytes) == (7, 3)
    write_files(tmp_path, a=b"0123456789")
    (file,) = find_files([tmp_path])
    for start, stop in ((0, 10), (3, 7), (9, 10), (4, 4)):
        assert read_bytes(file, start, stop) == b"0123456789"[start:stop]
