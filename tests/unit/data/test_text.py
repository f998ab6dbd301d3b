"""Making a data set from text."""

import errno
import json
import os
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from cstool.data import Continued, TextPart, TextRequest, TextSummary, hdf5_text, prepare_text, text_work
from cstool.errors import Interrupted
from tests.unit.data.made import content_of, read_all, text_of

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
    """Prepare the source with samples of 4 tokens; arguments and what is asked for may be changed."""
    asked = {field.name for field in fields(TextRequest)}

    def call(**changes):
        request = {"sequence_length": 4, "val_fraction": 0.5}
        request |= {name: value for name, value in changes.items() if name in asked}
        others = {name: value for name, value in changes.items() if name not in asked}
        arguments = {"sources": [source], "output": tmp_path / "text", "request": TextRequest(**request)}
        return prepare_text(**arguments | others)

    return call


def test_each_part_is_its_files_with_zero_bytes_between(tmp_path, prepare):
    prepare()
    assert (text_of(tmp_path / "text" / "train"), text_of(tmp_path / "text" / "val")) == (
        b"hello world\0x",
        b"0123456789",
    )


def test_the_summary_counts_both_parts(tmp_path, prepare):
    summary = prepare()
    assert replace(summary, duration_s=0.0) == TextSummary(
        tmp_path / "text", TextPart(2, 12, 3, 12), TextPart(1, 10, 3, 9), duration_s=0.0, already_prepared=False
    )


def test_long_parts_are_cut_into_files_of_bounded_size(tmp_path, prepare, monkeypatch):
    prepare(output=tmp_path / "one")
    monkeypatch.setattr(text_work, "FILE_SAMPLES", 2)
    prepare()
    names = sorted(path.name for path in (tmp_path / "text" / "train").iterdir())
    assert (names, text_of(tmp_path / "text" / "train")) == (
        ["data_00000.h5", "data_00001.h5"],
        text_of(tmp_path / "one" / "train"),
    )


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


@pytest.mark.parametrize(("changes", "ways"), [({}, 1), ({"train_vocab": 260}, 2)], ids=["bytes", "trained"])
def test_progress_counts_the_bytes_of_the_text_to_the_end(prepare, changes, ways):
    told = []
    prepare(progress=lambda *state: told.append(state), **changes)
    total = sum(len(content) for content in SOURCE.values()) * ways + (12 if changes else 0)
    assert ([t for _, t in told], told[-1][0]) == ([total] * len(told), total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def grow(path):
    path.write_bytes(b"0" * 1000)


def write_to(path):
    path.write_bytes(b"9876543210")
    os.utime(path, ns=(0, 0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (grow, "must not change while it is read, had 10 bytes and now 1,000"),
        (write_to, "must not change while it is read, had 10 bytes and was written to meanwhile"),
        (lambda path: path.unlink(missing_ok=True), "must be readable, got: No such file or directory"),
    ],
    ids=["grows", "changes", "goes"],
)
def test_a_file_that_changes_while_it_is_read_is_reported(tmp_path, source, prepare, error_of, change, message):
    hint = "\nhint: run it again when nobody writes to the file" if "change" in message else ""
    error = error_of(tmp_path, prepare, progress=lambda done, total: change(source / "b"))
    assert error == f"DIR/source/b: {message}{hint}"
    assert not (tmp_path / "text").exists()


@pytest.fixture
def interrupt(prepare):
    """Prepare, and interrupt it after so much of the text; returns the error."""

    def call(part, **changes):
        def tell(done, total):
            if done >= part * total:
                raise KeyboardInterrupt

        with pytest.raises(Interrupted) as raised:
            prepare(progress=tell, **changes)
        return raised.value

    return call


def test_an_interruption_keeps_what_is_finished_and_the_same_command_goes_on(tmp_path, prepare, interrupt):
    prepare(output=tmp_path / "straight")
    error = interrupt(0.1)
    assert str(error) == (
        f"{tmp_path}/text: stopped before it was complete\n"
        "hint: the same command goes on from the files that are finished"
    )
    assert (error.exit_code, (tmp_path / "text").exists()) == (130, False)
    finished = tmp_path / ".text.partial" / "train" / "data_00000.h5"
    number = finished.stat().st_ino
    assert prepare().continued == Continued(1, 2, 0, 0)
    assert (tmp_path / "text" / "train" / "data_00000.h5").stat().st_ino == number
    assert content_of(tmp_path / "text") == content_of(tmp_path / "straight")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "straight", "text"]


def test_a_tokenized_text_goes_on_from_its_tokens_and_its_tokenizer(tmp_path, prepare, interrupt):
    prepare(output=tmp_path / "straight", train_vocab=260)
    interrupt(0.4, train_vocab=260)
    summary = prepare(train_vocab=260)
    assert summary.continued == Continued(0, 2, 1, 2)
    assert content_of(tmp_path / "text") == content_of(tmp_path / "straight")


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-1])


def write_zeros(path):
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [cut_short, write_zeros, os.unlink], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", ["train/data_00000.h5", "tokens/train_00000.npy"])
def test_what_is_damaged_in_the_meantime_is_made_again(tmp_path, prepare, interrupt, name, damage):
    prepare(output=tmp_path / "straight", train_vocab=260)
    interrupt(0.99, train_vocab=260)
    damage(tmp_path / ".text.partial" / name)
    summary = prepare(train_vocab=260)
    assert summary.continued == (Continued(1, 2, 2, 2) if name.startswith("train") else Continued(2, 2, 1, 2))
    assert content_of(tmp_path / "text") == content_of(tmp_path / "straight")


def test_each_of_several_in_one_process_has_a_tokenizer_and_tokens_of_its_own(tmp_path, prepare):
    for vocab in (262, 258):
        prepare(output=tmp_path / f"straight{vocab}", train_vocab=vocab)
        prepare(train_vocab=vocab, overwrite=True)
        assert content_of(tmp_path / "text") == content_of(tmp_path / f"straight{vocab}")
    (tmp_path / "source" / "a").write_bytes(b"other words")
    prepare(train_vocab=258, overwrite=True)
    assert content_of(tmp_path / "text") != content_of(tmp_path / "straight258")


@pytest.mark.parametrize("changes", [{"sequence_length": 5}, {"shuffle_seed": 1}, {"train_vocab": 260}], ids=str)
def test_what_another_command_began_is_not_gone_on_with(tmp_path, prepare, interrupt, changes):
    prepare(output=tmp_path / "straight", **changes)
    interrupt(0.1)
    assert prepare(**changes).continued is None
    assert content_of(tmp_path / "text") == content_of(tmp_path / "straight")


def test_what_was_begun_with_files_of_another_length_is_not_gone_on_with(tmp_path, prepare, interrupt, monkeypatch):
    monkeypatch.setattr(text_work, "FILE_SAMPLES", 1)
    interrupt(0.4)
    monkeypatch.undo()
    assert prepare().continued is None
    assert [path.name for path in sorted((tmp_path / "text").rglob("*.h5"))] == ["data_00000.h5"] * 2


def test_half_written_files_never_count(tmp_path, prepare, interrupt):
    prepare(output=tmp_path / "straight")
    interrupt(0.1)
    for name in ("train/.data_00000.h5.77.partial", "tokenizer.json.1234.tmp"):
        (tmp_path / ".text.partial" / name).write_bytes(b"half")
    prepare()
    assert content_of(tmp_path / "text") == content_of(tmp_path / "straight")


def test_an_interruption_before_anything_is_finished_leaves_nothing(tmp_path, prepare, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(text_work, "do_each", stop)
    with pytest.raises(Interrupted):
        prepare()
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("changes", [{}, {"shuffle_seed": 1}, {"train_vocab": 260, "packing": "documents"}], ids=str)
def test_any_number_of_processes_makes_the_same_files(tmp_path, prepare, monkeypatch, changes):
    prepare(output=tmp_path / "one", **changes)
    prepare(processes=2, **changes)
    assert content_of(tmp_path / "text") == content_of(tmp_path / "one")


def test_a_second_preparation_of_the_same_data_set_is_refused(tmp_path, prepare, error_of):
    messages = []

    def again(done, total):
        messages.append(error_of(tmp_path, prepare))

    prepare(progress=again)
    assert re.sub(r" on \S+ since [-\d]+ [:\d]+", " on HOST since WHEN", messages[0]) == (
        f"DIR/.text.partial: must be used by one preparation at a time, it is in use by process {os.getpid()} on HOST "
        "since WHEN\nhint: wait for it, stop it, or give another --output"
    )
    assert text_of(tmp_path / "text" / "val") == SOURCE["b"]


def test_an_interruption_while_replacing_keeps_the_data_set_before(tmp_path, prepare, interrupt):
    prepare()
    before = content_of(tmp_path / "text")
    interrupt(0, sequence_length=5, overwrite=True)
    assert content_of(tmp_path / "text") == before


def test_a_rename_that_fails_keeps_the_data_set_before(tmp_path, prepare, monkeypatch, error_of):
    prepare()
    before = content_of(tmp_path / "text")
    rename = Path.rename

    def fail(path, target):
        if path.name.endswith(".partial"):
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    assert error_of(tmp_path, prepare, sequence_length=5, overwrite=True) == (
        "DIR/text: must be writable, got: Input/output error\nhint: give another --output"
    )
    assert content_of(tmp_path / "text") == before
    monkeypatch.undo()
    assert prepare(sequence_length=5, overwrite=True).continued == Continued(2, 2, 0, 0)


@pytest.mark.parametrize("replaced", [True, False])
def test_killed_while_one_data_set_replaces_another_either_is_there(tmp_path, prepare, replaced):
    prepare()
    before = content_of(tmp_path / "text")
    (tmp_path / "text").rename(tmp_path / ".text.previous")
    if replaced:
        prepare(sequence_length=5, overwrite=True)
        assert not (tmp_path / ".text.previous").exists()
    else:
        assert prepare(sequence_length=4).already_prepared
        assert content_of(tmp_path) == {f"text/{name}": content for name, content in before.items()} | {
            f"source/{name}": content for name, content in SOURCE.items()
        }


def test_a_full_disk_is_reported_and_the_same_command_goes_on(tmp_path, prepare, monkeypatch, error_of):
    write = hdf5_text.os.fsync
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(descriptor)

    prepare(output=tmp_path / "straight")
    monkeypatch.setattr(os, "fsync", full)
    assert error_of(tmp_path, prepare) == (
        "DIR/text: must fit on its disk, which is full; the data set takes 288 bytes\n"
        "hint: free some space and give the same command, which goes on from what is finished; or give another --output"
    )
    monkeypatch.undo()
    assert not (tmp_path / "text").exists()
    assert prepare().continued == Continued(1, 2, 0, 0)
    assert content_of(tmp_path / "text") == content_of(tmp_path / "straight")


def test_an_output_that_cannot_be_written_is_reported(tmp_path, prepare, monkeypatch, error_of):
    def refuse(path, *args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert error_of(tmp_path, prepare) == (
        "DIR/text: must be writable, got: Permission denied\nhint: give another --output"
    )


@pytest.mark.parametrize("output", ["file", "file/text"])
def test_an_output_that_is_a_file_or_below_one_is_refused(tmp_path, prepare, error_of, output):
    (tmp_path / "file").touch()
    assert error_of(tmp_path, prepare, output=tmp_path / output) == (
        f"DIR/{output}: must be a folder or not exist yet, got a file\nhint: give another --output"
    )


@pytest.mark.parametrize("output", ["source/text", "source", "."])
def test_an_output_inside_or_around_the_sources_is_refused(tmp_path, prepare, error_of, output):
    expected = str(tmp_path / output).rstrip("/.").replace(str(tmp_path), "DIR")
    assert error_of(tmp_path, prepare, output=tmp_path / output) == (
        f"{expected}: must lie apart from the sources, got DIR/source as one\nhint: give another --output"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequence_length": 1}, "--sequence_length: must be from 2 to 1,048,576, got 1"),
        *(
            ({"val_fraction": fraction}, f"--val_fraction: must be at least 0 and less than 1, got {fraction}")
            for fraction in (-0.1, 1.0, float("nan"))
        ),
        ({"sources": ["loop"]}, "DIR/loop: must be a file or a folder, found nothing there"),
        (
            {"sources": ["source/c"], "val_fraction": 0},
            "DIR/source/c: the train part must have at least 2 bytes, got fewer\nhint: give more text",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_asked_for_is_refused(tmp_path, prepare, error_of, changes, message):
    (tmp_path / "loop").symlink_to("loop")
    if "sources" in changes:
        changes = changes | {"sources": [tmp_path / name for name in changes["sources"]]}
    assert error_of(tmp_path, prepare, **changes) == message


def test_the_record_says_what_was_made(tmp_path, prepare):
    prepare()
    record = json.loads((tmp_path / "text" / "prepared.json").read_text())
    assert record.items() >= {"format": 2, "sequence_length": 4, "val_fraction": 0.5, "seed": 1}.items()
