"""Which checkpoint of a folder is the newest: by what it holds."""

import os
from collections.abc import Callable
from pathlib import Path

from cstool.store import newest_checkpoints

WriteCheckpoint = Callable[..., Path]


def found(folder: Path) -> list[tuple[str, int, bool]]:
    return [(held.entry.path.name, held.step, held.is_misnamed) for held in newest_checkpoints(folder)]


def test_an_empty_folder_has_none(tmp_path):
    assert found(tmp_path) == []


def test_those_whose_names_are_older_are_not_looked_into(tmp_path, write_checkpoint):
    write_checkpoint("checkpoint_7.mdl", 7)
    (tmp_path / "checkpoint_6.mdl").mkdir()
    (tmp_path / "checkpoint_5.mdl").write_text("nothing")
    assert found(tmp_path) == [("checkpoint_7.mdl", 7, False)]


def test_one_that_holds_less_than_its_name_says_is_not_the_newest(tmp_path, write_checkpoint):
    for name, step in (("checkpoint_12.mdl", 2), ("checkpoint_9.mdl", 6), ("checkpoint_7.mdl", 7)):
        write_checkpoint(name, step)
    assert found(tmp_path) == [
        ("checkpoint_12.mdl", 2, True),
        ("checkpoint_9.mdl", 6, True),
        ("checkpoint_7.mdl", 7, False),
    ]


def test_one_that_holds_more_than_its_name_says_is(tmp_path, write_checkpoint):
    write_checkpoint("checkpoint_9.mdl", 20)
    write_checkpoint("checkpoint_10.mdl", 6)
    assert found(tmp_path) == [("checkpoint_10.mdl", 6, True), ("checkpoint_9.mdl", 20, True)]


def test_of_two_that_hold_the_same_the_one_that_is_named_for_it(tmp_path, write_checkpoint):
    write_checkpoint("checkpoint_9.mdl", 6)
    write_checkpoint("checkpoint_6.mdl", 6)
    assert found(tmp_path)[-1] == ("checkpoint_6.mdl", 6, False)


def test_one_that_cannot_be_read_counts_by_its_name(tmp_path, write_checkpoint):
    write_checkpoint("checkpoint_7.mdl", 7)
    os.truncate(write_checkpoint("checkpoint_9.mdl", 9), 100)
    assert found(tmp_path) == [("checkpoint_9.mdl", 9, False)]
