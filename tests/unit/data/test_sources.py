"""The files that a text is made of."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.data import sources
from cstool.data.sources import SourceFile, find_files, split_by_file, stream_bytes, stream_length_bytes


def make(folder, **content):
    for name, text in content.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def listed(count):
    return [SourceFile(Path(f"/src/{i}"), f"{i}", 1, "") for i in range(count)]


def test_folders_are_walked_and_files_sorted_by_name(tmp_path):
    make(tmp_path, b=b"2", a__z=b"3", a__b=b"1")
    assert [(file.name, file.size_bytes) for file in find_files([tmp_path])] == [("a/b", 1), ("a/z", 1), ("b", 1)]


def test_hidden_entries_bytecode_and_empty_files_are_left_out(tmp_path):
    make(tmp_path, kept=b"1", empty=b"")
    for name in (".git/config", ".hidden", "__pycache__/a.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    assert [file.name for file in find_files([tmp_path])] == ["kept"]


def test_a_file_given_by_itself_has_its_own_name(tmp_path):
    make(tmp_path, a__b=b"1")
    assert [file.name for file in find_files([tmp_path / "a" / "b"])] == ["b"]


def test_a_file_given_twice_counts_once(tmp_path):
    make(tmp_path, a__b=b"1")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    assert [file.name for file in find_files([tmp_path / "a", tmp_path / "a" / "b", tmp_path / "link"])] == ["b"]


def test_a_name_that_is_not_utf8_is_escaped(tmp_path):
    (tmp_path / os.fsdecode(b"a\xff")).write_bytes(b"1")
    assert [file.name for file in find_files([tmp_path])] == ["a\\udcff"]


def test_the_digest_is_of_the_content(tmp_path):
    make(tmp_path, a=b"1", b=b"1", c=b"2")
    a, b, c = (file.digest for file in find_files([tmp_path]))
    assert (a == b, a == c) == (True, False)


def test_by_default_the_sources_are_those_of_the_standard_library_without_its_tests(tmp_path, monkeypatch):
    make(tmp_path, **dict.fromkeys(("os.py", "json__tool.py", "lib.so", "test__a.py", "site-packages__b.py"), b"1"))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: {"stdlib": str(tmp_path)}[name])
    assert [file.name for file in find_files(None)] == ["json/tool.py", "os.py"]


def test_a_missing_source_is_reported(tmp_path, error_of):
    assert error_of(tmp_path, find_files, [tmp_path / "no"]) == (
        "DIR/no: must be a file or a folder, found nothing there"
    )


def test_a_source_that_is_a_pipe_is_refused(tmp_path, error_of):
    os.mkfifo(tmp_path / "pipe")
    assert error_of(tmp_path, find_files, [tmp_path / "pipe"]) == (
        "DIR/pipe: must be a file or a folder, got something else"
    )


def test_sources_without_text_are_refused(tmp_path, error_of):
    make(tmp_path, a__empty=b"", b__empty=b"")
    assert error_of(tmp_path, find_files, [tmp_path / "a", tmp_path / "b"]) == (
        "DIR/a, DIR/b: must hold files of text, got none\nhint: give files, or folders with files that are not empty"
    )


def test_an_unreadable_file_is_reported(tmp_path, error_of, monkeypatch):
    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    make(tmp_path, a=b"1")
    monkeypatch.setattr("pathlib.Path.open", refuse)
    assert error_of(tmp_path, find_files, [tmp_path]) == "DIR/a: must be readable, got: Permission denied"


def test_an_unreadable_folder_is_reported(tmp_path, error_of, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", os.fspath(path))

    monkeypatch.setattr(os, "scandir", refuse)
    assert error_of(tmp_path, find_files, [tmp_path]) == "DIR: must be a readable folder, got: Permission denied"


def test_about_the_asked_share_of_many_files_is_held_out():
    train, held_out = split_by_file(listed(1000), 0.1, seed=1)
    assert (len(train), len(held_out)) == (903, 97)


@given(count=st.integers(2, 40), fraction=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 5))
def test_each_file_is_in_one_part_and_no_part_is_empty(count, fraction, seed):
    train, held_out = split_by_file(listed(count), fraction, seed)
    assert sorted([*train, *held_out], key=lambda file: int(file.name)) == listed(count)
    assert len(train) > 0
    assert (len(held_out) > 0) == (fraction > 0)


def test_files_that_are_added_do_not_move_the_others():
    before, after = (set(split_by_file(listed(count), 0.3, seed=1)[1]) for count in (50, 60))
    assert before == after & set(listed(50))


def test_each_seed_holds_out_other_files():
    assert split_by_file(listed(50), 0.3, seed=1) != split_by_file(listed(50), 0.3, seed=2)


def test_nothing_is_held_out_of_a_fraction_of_zero():
    assert split_by_file(listed(1), 0, seed=1) == (tuple(listed(1)), ())


def test_one_file_cannot_be_split(tmp_path, error_of):
    assert error_of(tmp_path, split_by_file, listed(1), 0.05, 1) == (
        "/src/0: must be at least two files, since whole files are held out, got one\n"
        "hint: cut it into several, for example with `split --bytes=20k`, or hold nothing out with --val_fraction 0"
    )


def test_the_stream_is_the_files_with_one_zero_byte_between(tmp_path):
    make(tmp_path, a=b"one", b=b"two", c=b"3")
    assert b"".join(stream_bytes(find_files([tmp_path]))) == b"one\0two\x003"


def test_the_stream_comes_in_bounded_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 4)
    make(tmp_path, a=b"0123456789", b=b"x")
    assert list(stream_bytes(find_files([tmp_path]))) == [b"0123", b"4567", b"89", b"\0", b"x"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_length_of_the_stream_is_known_before(tmp_path, count):
    make(tmp_path, **{f"f{i}": b"text" for i in range(3)})
    files = find_files([tmp_path])[:count]
    assert stream_length_bytes(files) == len(b"".join(stream_bytes(files)))


def test_a_file_that_changes_while_it_is_read_is_reported(tmp_path, error_of):
    make(tmp_path, a=b"one")
    files = find_files([tmp_path])
    make(tmp_path, a=b"four")
    assert error_of(tmp_path, list, stream_bytes(files)) == (
        "DIR/a: must not change while it is read, had 3 bytes and now 4\nhint: run it again"
    )
