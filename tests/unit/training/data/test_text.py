"""Making a data set from text."""

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cstool.foundation.errors import Interrupted
from cstool.training.data import Continued, TextPart, TextRequest, TextSummary, prepare_text, text_work
from tests.contract.refusal import failing
from tests.unit.training.data.made import (
    ANOTHER,
    FREE_SPACE,
    content_of,
    cut_short,
    names,
    preparer,
    read_all,
    refusals,
    text_of,
    write_files,
)

SOURCE = {"a": b"hello world", "b": b"0123456789", "c": b"x"}
ELSEWHERE = "\nhint: give another --output"


@pytest.fixture
def source(tmp_path):
    """Return a folder with three files; with seed 1 and a half held out, `a` and `c` are train, `b` is held out."""
    write_files(tmp_path / "source", **SOURCE)
    return tmp_path / "source"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "text"


@pytest.fixture
def prepare(source, out):
    """Prepare the source with samples of 4 tokens; arguments and what is asked for may be changed."""
    return preparer(prepare_text, TextRequest, source, out, sequence_length=4, val_fraction=0.5)


@pytest.fixture
def straight(tmp_path, prepare):
    """What a preparation makes that nothing goes wrong with."""

    def call(**changes):
        prepare(output=tmp_path / "straight", overwrite=True, **changes)
        return content_of(tmp_path / "straight")

    return call


def test_each_part_is_its_files_with_zero_bytes_between_and_the_summary_counts_both(prepare, out):
    summary = prepare()
    parts = TextPart(2, 12, 3, 12), TextPart(1, 10, 3, 9)
    assert summary == TextSummary(out, *parts, duration_s=summary.duration_s, already_prepared=False)
    assert (text_of(out / "train"), text_of(out / "val")) == (b"hello world\0x", b"0123456789")
    record = json.loads((out / "prepared.json").read_text())
    assert record.items() >= {"format": 2, "sequence_length": 4, "val_fraction": 0.5, "seed": 1}.items()


def test_long_parts_are_cut_into_files_of_bounded_size(prepare, out, monkeypatch):
    monkeypatch.setattr(text_work, "FILE_SAMPLES", 2)
    prepare()
    assert (names(out / "train"), text_of(out / "train")) == (["data_00000.h5", "data_00001.h5"], b"hello world\0x")


def test_a_folder_prepared_with_the_same_arguments_is_kept_unless_it_lost_a_file(prepare, out):
    first, before, number = prepare(), content_of(out), (out / "prepared.json").stat().st_ino
    second = prepare()
    assert second == replace(first, duration_s=second.duration_s, already_prepared=True)
    assert (out / "prepared.json").stat().st_ino == number
    (out / "val" / "data_00000.h5").unlink()
    assert prepare().already_prepared is False
    record = json.loads((out / "prepared.json").read_text())
    del record["sequence_length"]
    parts = {name: {"samples": part["samples"]} for name, part in record["parts"].items()}
    (out / "prepared.json").write_text(json.dumps({**record, "parts": parts}))
    assert prepare().already_prepared is False
    assert content_of(out) == before


def test_other_arguments_or_other_text_are_refused_without_overwrite(tmp_path, source, prepare, out, error_of):
    prepare()
    before = content_of(out)
    for changes in ({"sequence_length": 5}, {"val_fraction": 0.4}, {"seed": 2}):
        assert error_of(prepare, **changes) == f"DIR/text: {ANOTHER}"
    (source / "b").write_bytes(b"9876543210")
    assert error_of(prepare) == f"DIR/text: {ANOTHER}"
    assert content_of(out) == before
    prepare(sequence_length=5, overwrite=True)
    assert len(read_all(out / "train")["labels"][0]) == 5
    assert names(tmp_path) == ["source", "text"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["thesis.tex", "prepared.json"])
def test_a_folder_with_other_files_is_never_touched(prepare, out, error_of, overwrite, name):
    out.mkdir()
    (out / name).write_text("[]")
    rule = "must be empty or a data set made by this command, got other files"
    assert error_of(prepare, overwrite=overwrite) == f"DIR/text: {rule}{ELSEWHERE}"
    assert content_of(out) == {name: b"[]"}


def test_an_empty_folder_missing_parents_and_a_link_to_a_folder_are_fine(tmp_path, prepare, out):
    out.mkdir()
    assert prepare().path == out
    assert prepare(output=tmp_path / "deep" / "er").path == tmp_path / "deep" / "er"
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    assert prepare(output=tmp_path / "link").path == tmp_path / "disk"
    assert (tmp_path / "link" / "train" / "data_00000.h5").is_file()


def test_nothing_is_held_out_of_a_fraction_of_zero(prepare, out):
    summary = prepare(val_fraction=0)
    assert (summary.val, text_of(out / "train")) == (TextPart(0, 0, 0, 0), b"\0".join(SOURCE.values()))
    assert names(out) == ["prepared.json", "train"]


@pytest.mark.parametrize(("changes", "total"), [({}, 22), ({"train_vocab": 260}, 56)], ids=["bytes", "trained"])
def test_progress_counts_the_bytes_of_the_text_to_the_end(prepare, changes, total):
    told = []
    prepare(progress=lambda *state: told.append(state), **changes)
    assert ({total for _, total in told}, told[-1][0]) == ({total}, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


CHANGED = "must not change while it is read, had 10 bytes and {}\nhint: run it again when nobody writes to the file"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0" * 1000, CHANGED.format("now 1,000")),
        (b"9876543210", CHANGED.format("was written to meanwhile")),
        (None, "must be readable, got: No such file or directory"),
    ],
    ids=["grows", "changes", "goes"],
)
def test_a_file_that_changes_while_it_is_read_is_reported(source, prepare, out, error_of, content, message):
    def change(_done, _total):
        if content is None:
            (source / "b").unlink(missing_ok=True)
        else:
            (source / "b").write_bytes(content)
            os.utime(source / "b", ns=(0, 0))

    assert error_of(prepare, progress=change) == f"DIR/source/b: {message}"
    assert not out.exists()


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


def test_an_interruption_keeps_what_is_done_and_the_same_command_goes_on(tmp_path, prepare, out, straight, interrupt):
    expected, error = straight(), interrupt(0.1)
    hint = "the same command goes on from the files that are finished"
    assert str(error) == f"{out}: stopped before it was complete\nhint: {hint}"
    assert (error.exit_code, out.exists()) == (130, False)
    number = (tmp_path / ".text.partial" / "train" / "data_00000.h5").stat().st_ino
    # Half-written files never count.
    for name in ("train/.data_00000.h5.77.partial", "tokenizer.json.1234.tmp"):
        (tmp_path / ".text.partial" / name).write_bytes(b"half")
    assert prepare().continued == Continued(1, 2, 0, 0)
    assert (out / "train" / "data_00000.h5").stat().st_ino == number
    assert content_of(out) == expected
    assert names(tmp_path) == ["source", "straight", "text"]


def write_zeros(path):
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [cut_short, write_zeros, os.unlink])
@pytest.mark.parametrize(
    ("name", "continued"),
    [("train/data_00000.h5", Continued(1, 2, 2, 2)), ("tokens/train_00000.npy", Continued(2, 2, 1, 2))],
)
def test_what_is_damaged_meanwhile_is_made_anew(tmp_path, prepare, out, straight, interrupt, name, continued, damage):
    expected = straight(train_vocab=260)
    interrupt(0.99, train_vocab=260)
    damage(tmp_path / ".text.partial" / name)
    assert prepare(train_vocab=260).continued == continued
    assert content_of(out) == expected


def test_each_tokenized_text_has_its_own_tokens_and_tokenizer(source, prepare, out, straight, interrupt):
    expected = {vocab: straight(train_vocab=vocab) for vocab in (262, 258)}
    interrupt(0.4, train_vocab=262)
    assert prepare(train_vocab=262).continued == Continued(0, 2, 1, 2)
    assert content_of(out) == expected[262]
    prepare(train_vocab=258, overwrite=True)
    assert content_of(out) == expected[258]
    (source / "a").write_bytes(b"other words")
    prepare(train_vocab=258, overwrite=True)
    assert content_of(out) != expected[258]


@pytest.mark.parametrize("changes", [{"sequence_length": 5}, {"shuffle_seed": 1}, {"train_vocab": 260}], ids=str)
def test_what_another_command_began_is_not_gone_on_with(prepare, out, straight, interrupt, changes):
    expected = straight(**changes)
    interrupt(0.1)
    assert prepare(**changes).continued is None
    assert content_of(out) == expected


def test_what_was_begun_with_files_of_another_length_is_not_gone_on_with(prepare, out, interrupt, monkeypatch):
    monkeypatch.setattr(text_work, "FILE_SAMPLES", 1)
    interrupt(0.4)
    monkeypatch.undo()
    assert prepare().continued is None
    assert [path.name for path in sorted(out.rglob("*.h5"))] == ["data_00000.h5"] * 2


def test_an_interruption_before_anything_is_finished_leaves_nothing(tmp_path, prepare, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(text_work, "do_each", stop)
    with pytest.raises(Interrupted):
        prepare()
    assert names(tmp_path) == ["source"]


@pytest.mark.takes("new processes, which import what they need")
def test_any_number_of_processes_makes_the_same_files(prepare, out, straight, request):
    expected = straight()
    prepare(processes=2)
    assert content_of(out) == expected
    request.getfixturevalue("quick_processes")
    changes = {"train_vocab": 260, "packing": "documents", "shuffle_seed": 1}
    prepare(processes=2, overwrite=True, **changes)
    assert content_of(out) == straight(**changes)


def test_a_second_preparation_of_the_same_data_set_is_refused(prepare, out, error_of):
    messages = []
    prepare(progress=lambda done, total: messages.append(error_of(prepare)))
    assert re.sub(r" on \S+ since [-\d]+ [:\d]+", " on HOST since WHEN", messages[0]) == (
        f"DIR/.text.partial: must be used by one preparation at a time, it is in use by process {os.getpid()} on HOST "
        "since WHEN\nhint: wait for it, stop it, or give another --output"
    )
    assert text_of(out / "val") == SOURCE["b"]


def test_stopped_while_it_replaces_another_that_data_set_is_kept(prepare, out, interrupt, monkeypatch, error_of):
    prepare()
    before, rename = content_of(out), Path.rename
    interrupt(0, sequence_length=5, overwrite=True)
    assert content_of(out) == before

    def fail(path, target):
        if path.name.endswith(".partial"):
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    told = error_of(prepare, sequence_length=5, overwrite=True)
    assert told == f"DIR/text: must be writable, got: Input/output error{ELSEWHERE}"
    assert content_of(out) == before
    monkeypatch.undo()
    assert prepare(sequence_length=5, overwrite=True).continued == Continued(2, 2, 0, 0)


@pytest.mark.parametrize("replaced", [True, False])
def test_killed_while_one_data_set_replaces_another_either_is_there(tmp_path, prepare, out, replaced):
    prepare()
    before = content_of(tmp_path)
    out.rename(tmp_path / ".text.previous")
    if replaced:
        prepare(sequence_length=5, overwrite=True)
        assert not (tmp_path / ".text.previous").exists()
    else:
        assert prepare(sequence_length=4).already_prepared
        assert content_of(tmp_path) == before


def test_a_full_disk_is_reported_and_the_same_command_goes_on(prepare, out, straight, monkeypatch, error_of):
    expected = straight()
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC, 4, os.fsync))
    rule = "must fit on its disk, which is full; the data set takes 288 bytes"
    assert error_of(prepare) == f"DIR/text: {rule}\n{FREE_SPACE}"
    monkeypatch.undo()
    assert not out.exists()
    assert prepare().continued == Continued(1, 2, 0, 0)
    assert content_of(out) == expected


def test_an_output_that_cannot_be_written_is_reported(prepare, monkeypatch, error_of):
    monkeypatch.setattr(Path, "mkdir", failing(errno.EACCES))
    assert error_of(prepare) == f"DIR/text: must be writable, got: Permission denied{ELSEWHERE}"


REFUSED = refusals("""\
{output: file} => DIR/file: must be a folder or not exist yet, got a file\nhint: give another --output
{output: file/text} => DIR/file/text: must be a folder or not exist yet, got a file\nhint: give another --output
{output: source/text} => DIR/source/text: must lie apart from the sources, got DIR/source as one
    hint: give another --output
{output: source} => DIR/source: must lie apart from the sources, got DIR/source as one\nhint: give another --output
{output: ""} => DIR: must lie apart from the sources, got DIR/source as one\nhint: give another --output
{sequence_length: 1} => --sequence_length: must be from 2 to 1,048,576, got 1
{val_fraction: -0.1} => --val_fraction: must be at least 0 and less than 1, got -0.1
{val_fraction: 1.0} => --val_fraction: must be at least 0 and less than 1, got 1.0
{val_fraction: .nan} => --val_fraction: must be at least 0 and less than 1, got nan
{train_vocab: 300, tokenizer: a.json} => --train_tokenizer: must stand without another tokenizer, got --tokenizer a.json
    hint: leave one of the two out
{train_vocab: 256} => --train_tokenizer: must be from 257 to 1,048,576 tokens, got 256
    hint: 256 are the bytes, and one stands between documents
{allow_unknown: true} => --allow_unknown: must stand beside --tokenizer FILE; bytes stand for all there is
    hint: leave it out
{processes: 0} => --processes: must be at least 1, got 0
{sources: [loop]} => DIR/loop: must be a file or a folder, found nothing there
{sources: [source/c], val_fraction: 0} => DIR/source/c: the train part must have at least 2 bytes, got fewer
    hint: give more text
""")


@pytest.mark.parametrize(("asked", "message"), REFUSED)
def test_what_cannot_be_asked_for_is_refused(tmp_path, prepare, error_of, asked, message):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    if "sources" in asked:
        asked = asked | {"sources": [tmp_path / name for name in asked["sources"]]}
    if "output" in asked:
        asked = asked | {"output": tmp_path / asked["output"]}
    assert error_of(prepare, **asked) == message
