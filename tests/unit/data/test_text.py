"""Making a data set from text."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.data import TextPart, allocate, open_hdf5_text, prepare_text, text
from cstool.data.text import cut_samples

SOURCE = {"a": b"hello world", "b": b"0123456789", "c": b"x"}


@pytest.fixture
def source(tmp_path):
    """Return a folder with three files; with seed 1 and a half held out, `a` and `c` are train, `b` is held out."""
    folder = tmp_path / "source"
    folder.mkdir()
    for name, content in SOURCE.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def prepare(tmp_path, source):
    """Prepare the source with samples of 4 tokens; arguments may be changed."""

    def call(**changes):
        arguments = {"sources": [source], "output": tmp_path / "text", "sequence_length": 4, "val_fraction": 0.5}
        return prepare_text(**arguments | changes)

    return call


def content_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def read_all(folder):
    dataset = open_hdf5_text([folder], vocab_size=256)
    out = allocate(dataset.fields, dataset.sample_count)
    dataset.read(np.arange(dataset.sample_count), out)
    return out


def text_of(folder):
    """Put the text of a part together again, from its samples."""
    out = read_all(folder)
    counted = out["mask"] == 1
    return bytes([out["input_ids"][0, 0], *out["labels"][counted].tolist()])


def test_inputs_are_the_bytes_and_labels_the_bytes_one_later():
    (block,) = cut_samples(iter([b"abcdef", b"ghi"]), 4, 10)
    assert block.tolist() == [
        [list(b"abcd"), [1, 1, 1, 1], list(b"bcde")],
        [list(b"efgh"), [1, 1, 1, 1], list(b"fghi")],
    ]


def test_the_last_sample_is_padded_with_mask_zero():
    (block,) = cut_samples(iter([b"abc"]), 4, 10)
    assert block.tolist() == [[[97, 98, 0, 0], [1, 1, 0, 0], [98, 99, 0, 0]]]


@given(text=st.binary(max_size=60), length=st.integers(2, 9), block=st.integers(1, 4), cut=st.integers(1, 20))
def test_samples_do_not_depend_on_the_blocks_they_are_made_in(text, length, block, cut):
    pieces = (text[i : i + cut] for i in range(0, len(text), cut))
    whole = list(cut_samples(iter([text]), length, 1000))
    parts = list(cut_samples(pieces, length, block))
    assert all(len(part) == block for part in parts[:-1])
    assert [sample.tolist() for part in parts for sample in part] == [s.tolist() for part in whole for s in part]


def test_each_part_is_its_files_with_zero_bytes_between(tmp_path, prepare):
    prepare()
    assert (text_of(tmp_path / "text" / "train"), text_of(tmp_path / "text" / "val")) == (
        b"hello world\0x",
        b"0123456789",
    )


def test_the_summary_counts_both_parts(tmp_path, prepare):
    summary = prepare()
    assert replace(summary, duration_s=0.0) == text.TextSummary(
        tmp_path / "text", TextPart(2, 12, 3, 12), TextPart(1, 10, 3, 9), duration_s=0.0, already_prepared=False
    )


def test_long_parts_are_cut_into_files_of_bounded_size(tmp_path, prepare, monkeypatch):
    prepare(output=tmp_path / "one")
    monkeypatch.setattr(text, "FILE_SAMPLES", 2)
    prepare()
    names = sorted(path.name for path in (tmp_path / "text" / "train").iterdir())
    assert (names, text_of(tmp_path / "text" / "train")) == (
        ["data_00000.h5", "data_00001.h5"],
        text_of(tmp_path / "one" / "train"),
    )


def test_the_same_text_makes_the_same_bytes(tmp_path, prepare):
    prepare()
    prepare(output=tmp_path / "again")
    assert content_of(tmp_path / "text") == content_of(tmp_path / "again")


def test_a_folder_prepared_with_the_same_arguments_is_kept(tmp_path, prepare):
    first = prepare()
    before = (tmp_path / "text" / "prepared.json").stat().st_ino
    second = prepare()
    assert second == replace(first, duration_s=second.duration_s, already_prepared=True)
    assert (tmp_path / "text" / "prepared.json").stat().st_ino == before


def test_a_prepared_folder_that_lost_a_file_is_made_again(tmp_path, prepare):
    prepare()
    before = content_of(tmp_path / "text")
    (tmp_path / "text" / "val" / "data_00000.h5").unlink()
    assert prepare().already_prepared is False
    assert content_of(tmp_path / "text") == before


@pytest.mark.parametrize("changes", [{"sequence_length": 5}, {"val_fraction": 0.4}, {"seed": 2}], ids=str)
def test_other_arguments_are_refused_without_overwrite(tmp_path, prepare, error_of, changes):
    prepare()
    before = content_of(tmp_path / "text")
    assert error_of(tmp_path, prepare, **changes) == (
        "DIR/text: must not hold another data set, got one made from other text or with other arguments\n"
        "hint: add --overwrite to replace it, or give another --output"
    )
    assert content_of(tmp_path / "text") == before


def test_other_text_of_the_same_length_is_refused_without_overwrite(source, prepare, tmp_path, error_of):
    prepare()
    (source / "b").write_bytes(b"9876543210")
    assert error_of(tmp_path, prepare).startswith("DIR/text: must not hold another data set")


def test_overwrite_replaces_another_data_set(tmp_path, prepare):
    prepare()
    prepare(sequence_length=5, overwrite=True)
    assert read_all(tmp_path / "text" / "train")["labels"].shape[1] == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "text"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["thesis.tex", "prepared.json"])
def test_a_folder_with_other_files_is_never_touched(tmp_path, prepare, error_of, overwrite, name):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / name).write_text("[]")
    assert error_of(tmp_path, prepare, overwrite=overwrite) == (
        "DIR/text: must be empty or a data set made by this command, got other files\nhint: give another --output"
    )
    assert content_of(tmp_path / "text") == {name: b"[]"}


def test_an_empty_folder_and_missing_parents_are_fine(tmp_path, prepare):
    (tmp_path / "text").mkdir()
    assert prepare().path == tmp_path / "text"
    assert prepare(output=tmp_path / "deep" / "er").path == tmp_path / "deep" / "er"


def test_a_link_to_a_folder_is_followed(tmp_path, prepare):
    (tmp_path / "disk").mkdir()
    (tmp_path / "text").symlink_to(tmp_path / "disk")
    assert prepare().path == tmp_path / "disk"
    assert (tmp_path / "text" / "train" / "data_00000.h5").is_file()


def test_nothing_is_held_out_of_a_fraction_of_zero(tmp_path, prepare):
    summary = prepare(val_fraction=0)
    assert (summary.val, text_of(tmp_path / "text" / "train")) == (TextPart(0, 0, 0, 0), b"\0".join(SOURCE.values()))
    assert sorted(p.name for p in (tmp_path / "text").iterdir()) == ["prepared.json", "train"]


def test_progress_counts_the_bytes_of_both_parts_to_the_end(prepare):
    told = []
    prepare(progress=lambda *state: told.append(state))
    total = sum(len(content) for content in SOURCE.values()) + 1
    assert ([t for _, t in told], told[-1][0]) == ([total] * len(told), total)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_progress_comes_to_the_end_when_the_last_sample_is_whole(source, prepare, monkeypatch):
    monkeypatch.setattr(text, "FILE_SAMPLES", 1)
    (source / "b").write_bytes(b"0123456789abcdef+")
    told = []
    prepare(sources=[source / "b"], val_fraction=0, progress=lambda *state: told.append(state))
    assert told == [(17, 17)]


def test_a_file_that_grows_while_it_is_read_is_reported_and_leaves_nothing(tmp_path, source, prepare, error_of):
    def grow(done, total):
        (source / "b").write_bytes(b"0" * 1000)

    assert error_of(tmp_path, prepare, progress=grow) == (
        "DIR/source/b: must not change while it is read, had 10 bytes and now 1,000\nhint: run it again"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_in_the_middle_leaves_nothing(tmp_path, prepare, stop):
    def interrupt(done, total):
        if done > total / 2:
            raise stop

    with pytest.raises(stop):
        prepare(progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_an_interruption_while_replacing_keeps_the_data_set_before(tmp_path, prepare):
    def interrupt(done, total):
        raise KeyboardInterrupt

    prepare()
    before = content_of(tmp_path / "text")
    with pytest.raises(KeyboardInterrupt):
        prepare(sequence_length=5, overwrite=True, progress=interrupt)
    assert content_of(tmp_path / "text") == before


def test_a_rename_that_fails_keeps_the_data_set_before(tmp_path, prepare, monkeypatch, error_of):
    prepare()
    before = content_of(tmp_path / "text")
    rename = text.Path.rename

    def fail(path, target):
        if path.name.endswith(".partial"):
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(text.Path, "rename", fail)
    assert error_of(tmp_path, prepare, sequence_length=5, overwrite=True) == (
        "DIR/text: must be writable, got: Input/output error\nhint: give another --output"
    )
    assert content_of(tmp_path) == {f"text/{n}": c for n, c in before.items()} | {
        f"source/{n}": c for n, c in SOURCE.items()
    }


def test_what_a_killed_process_left_is_removed(tmp_path, prepare):
    dead = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(dead, 0)
    for name in (f".text.{dead}.partial", f".text.{dead}.previous", f".text.{os.getppid()}.partial", ".text.mine"):
        (tmp_path / name / "train").mkdir(parents=True)
    prepare()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f".text.{os.getppid()}.partial", ".text.mine", "source", "text"]
    )


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path, prepare, monkeypatch, error_of):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert error_of(tmp_path, prepare) == (
        "DIR/text: must fit on its disk, which is full; the data set takes 288 bytes\n"
        "hint: free some space, or give another --output"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_an_output_that_cannot_be_written_is_reported(tmp_path, prepare, monkeypatch, error_of):
    def refuse(path, *args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(text.Path, "mkdir", refuse)
    assert error_of(tmp_path, prepare) == (
        "DIR/text: must be writable, got: Permission denied\nhint: give another --output"
    )


def test_an_output_below_a_file_is_reported(tmp_path, prepare, error_of):
    (tmp_path / "file").touch()
    assert error_of(tmp_path, prepare, output=tmp_path / "file" / "text") == (
        "DIR/file/text: must be a folder or not exist yet, got a file\nhint: give another --output"
    )


def test_an_output_that_is_a_file_is_refused(tmp_path, prepare, error_of):
    (tmp_path / "file").touch()
    assert error_of(tmp_path, prepare, output=tmp_path / "file") == (
        "DIR/file: must be a folder or not exist yet, got a file\nhint: give another --output"
    )


@pytest.mark.parametrize("output", ["source/text", "source", "."])
def test_an_output_inside_or_around_the_sources_is_refused(tmp_path, prepare, error_of, output):
    expected = str(tmp_path / output).rstrip("/.").replace(str(tmp_path), "DIR")
    assert error_of(tmp_path, prepare, output=tmp_path / output) == (
        f"{expected}: must lie apart from the sources, got DIR/source as one\nhint: give another --output"
    )


def test_samples_of_one_token_are_refused(tmp_path, prepare, error_of):
    assert error_of(tmp_path, prepare, sequence_length=1) == "sequence_length: must be at least 2, got 1"


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_a_held_out_share_that_is_none_is_refused(tmp_path, prepare, error_of, fraction):
    assert error_of(tmp_path, prepare, val_fraction=fraction) == (
        f"val_fraction: must be at least 0 and less than 1, got {fraction}"
    )


def test_a_part_of_one_byte_is_refused(tmp_path, source, prepare, error_of):
    assert error_of(tmp_path, prepare, sources=[source / "c"], val_fraction=0) == (
        "DIR/source/c: the train part must have at least 2 bytes, got 1\nhint: give more text"
    )


def test_the_record_says_what_was_made(tmp_path, prepare):
    prepare()
    record = json.loads((tmp_path / "text" / "prepared.json").read_text())
    assert {key: record[key] for key in ("format", "sequence_length", "val_fraction", "seed")} == {
        "format": 2,
        "sequence_length": 4,
        "val_fraction": 0.5,
        "seed": 1,
    }
