"""Which checkpoint of a folder is the newest: by what it holds."""

import os
from pathlib import Path

import pytest

from cstool.store import newest_checkpoints


def found(folder: Path) -> list[tuple[str, int, bool]]:
    return [(held.entry.path.name, held.step, held.is_misnamed) for held in newest_checkpoints(folder)]


@pytest.mark.parametrize(
    ("holding", "newest"),
    [
        ({}, []),
        ({12: 2, 9: 6, 7: 7}, [(12, 2, True), (9, 6, True), (7, 7, False)]),
        ({9: 20, 10: 6}, [(10, 6, True), (9, 20, True)]),
        ({9: 6, 6: 6}, [(9, 6, True), (6, 6, False)]),
    ],
    ids=["none", "less than their names say", "more than its name says", "the same: the one that is named for it"],
)
def test_the_newest_is_that_which_holds_the_latest_step(tmp_path, write_checkpoint, holding, newest):
    for name, step in holding.items():
        write_checkpoint(f"checkpoint_{name}.mdl", step)
    assert found(tmp_path) == [(f"checkpoint_{name}.mdl", step, misnamed) for name, step, misnamed in newest]


def test_those_whose_names_are_older_are_not_looked_into(tmp_path, write_checkpoint):
    write_checkpoint("checkpoint_7.mdl", 7)
    (tmp_path / "checkpoint_6.mdl").mkdir()
    (tmp_path / "checkpoint_5.mdl").write_text("nothing")
    assert found(tmp_path) == [("checkpoint_7.mdl", 7, False)]


def test_one_that_cannot_be_read_counts_by_its_name(tmp_path, write_checkpoint):
    write_checkpoint("checkpoint_7.mdl", 7)
    os.truncate(write_checkpoint("checkpoint_9.mdl", 9), 100)
    assert found(tmp_path) == [("checkpoint_9.mdl", 9, False)]
