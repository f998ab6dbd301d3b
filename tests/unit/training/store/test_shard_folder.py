"""Which shards are in a folder, which belong together, and which step all of them hold."""

import itertools
import os
import re
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cstool.foundation.errors import CheckpointError, DamagedCheckpointError, StoreError
from cstool.training.store import SHARD, Shard, ShardFound, find_shards, shard_name
from cstool.training.store.file_layout import record_path
from cstool.training.store.shard_folder import choose_shards
from tests.contract.refusal import refusal
from tests.unit.training.store.stored import (
    DEALT,
    MODEL,
    SET,
    edit_record,
    newest_common_step,
    shard_value,
    write_file,
    write_shards,
    write_store,
)

ANOTHER_KIND = "must be a commit record of a cstool MemoryX file, version 1, this is of another kind or version"
FOLDER = Path("folder")


def found(node: int, nodes: int, *steps: int, name: str = SET) -> ShardFound:
    return ShardFound(shard_name(node, nodes), node, nodes, name, steps)


def test_a_shard_is_called_by_its_node_and_how_many_there_are():
    names = ["memoryx.h5", "memoryx_1_of_2.h5", "memoryx_12_of_12.h5"]
    assert [shard_name(0, 1), shard_name(0, 2), shard_name(11, 12)] == names


def test_the_shards_of_a_folder_are_found_by_number(tmp_path):
    dealt = {"layer.bias": [[(0, 5)], *([] for _ in range(10))]}
    write_shards(tmp_path, 1, {"layer.bias": MODEL["layer.bias"]}, dealt)
    write_shards(tmp_path, {0: 1, 1: 3, 2: 2}, name="other")
    write_file(tmp_path / "memoryx.h5", MODEL, [1])
    for name in ("memoryx_1_of_2.h5", "memoryx_0_of_2.h5.commit", "memoryx_1_of_02.h5.commit", "run.log"):
        (tmp_path / name).touch()
    assert find_shards(tmp_path) == [
        found(0, 3, 1, name="other"),
        found(1, 3, 3, 2, name="other"),
        found(2, 3, 2, 1, name="other"),
        *(found(node, 11, 1) for node in range(11)),
    ]


def test_where_there_is_no_folder_there_are_no_shards(tmp_path):
    assert find_shards(tmp_path / "none") == []
    (tmp_path / "file").touch()
    with refusal(CheckpointError, f"{tmp_path}/file: must be a folder that can be read, got: Not a directory"):
        find_shards(tmp_path / "file")


def test_a_record_that_is_damaged_or_of_another_name_is_told(tmp_path):
    path, other = write_shards(tmp_path, 1)[1], tmp_path / "memoryx_2_of_4.h5"
    content = record_path(path).read_bytes()
    os.truncate(record_path(path), 100)
    with refusal(DamagedCheckpointError, f"{record_path(path)}: the commit record is damaged or cut short"):
        find_shards(tmp_path)
    record_path(other).write_bytes(content)
    record_path(path).unlink()
    with refusal(StoreError, f"{other}: must be called memoryx_2_of_3.h5, which it is by its commit record"):
        find_shards(tmp_path)
    path = write_store(tmp_path / "whole" / "memoryx_1_of_2.h5", steps=(1,))
    with refusal(StoreError, f"{path}: must be a shard of a MemoryX, as it is called, it has a whole one"):
        find_shards(path.parent)


CHANGES: list[dict[str, Any]] = [
    *({"node": node} for node in (3, -1, True)),
    *({"nodes": nodes} for nodes in ("3", 2**60)),
    {"set": 5},
    *({"weights": weights} for weights in (["embedding", "embedding"], [5], None)),
    *({"rows": {"embedding": rows}} for rows in ([[0, 2], [1, 3]], [[2, 2]], [[-1, 2]], [[0, 2.0]], [0, 2])),
    *({"rows": rows} for rows in ({"unknown": [[0, 1]]}, [])),
    *({lacks: ...} for lacks in ("set", "node", "nodes", "weights", "rows")),
    {"links": {"model.other": "model.unknown"}},
]
"""of the value of a shard, of which it lacks what is `...`, or of the links of a record"""


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_record_that_makes_no_sense_of_its_shard_is_refused(tmp_path, change):
    def spoil(document: dict[str, Any]) -> None:
        place = document if "links" in change else document["values"][SHARD]
        for key, value in change.items():
            if value is ...:
                del place[key]
            else:
                place[key] = {**place[key], **value} if key == "links" else value

    path = write_shards(tmp_path, 1)[1]
    edit_record(path, spoil)
    with refusal(DamagedCheckpointError, f"{record_path(path)}: {ANOTHER_KIND}"):
        find_shards(tmp_path)


def test_ranges_that_follow_each_other_are_one():
    value = shard_value(MODEL, {**DEALT, "layer.bias": [[(0, 2), (2, 3), (4, 5)]]}, 0, 3)
    shard = Shard.parse(value)
    assert shard.rows["layer.bias"] == ((0, 3), (4, 5))
    assert (shard.row_count("layer.bias"), shard.row_count("factored")) == (4, 0)
    assert Shard.parse(shard.as_value()) == shard
    assert shard.as_value() == {**value, "rows": {**value["rows"], "layer.bias": [[0, 3], [4, 5]]}}


Steps = st.lists(st.integers(0, 4), min_size=1, max_size=2, unique=True)


@given(held=st.lists(Steps, min_size=1, max_size=4), there=st.data())
def test_the_newest_step_of_a_set_is_the_newest_that_each_shard_holds(held, there):
    shards = [found(node, len(held), *steps) for node, steps in enumerate(held)]
    wanted = max((step for step in range(5) if all(step in steps for steps in held)), default=None)
    assert newest_common_step(there.draw(st.permutations(shards))) == wanted
    # Whoever is asked twice counts once; who is missing might hold anything.
    assert newest_common_step([*shards, *shards]) == wanted
    lacking = there.draw(st.integers(0, len(held) - 1))
    assert newest_common_step([shard for shard in shards if shard.node != lacking]) is None


def test_of_several_sets_the_newest_step_counts_and_none_is_mixed():
    old, new = [found(node, 2, 5, 4, name="old") for node in (0, 1)], [found(n, 3, 7, 6, name="new") for n in range(3)]
    assert newest_common_step([*old, *new]) == 7
    assert newest_common_step([*old, *new[1:]]) == 5
    assert newest_common_step([old[0], *new[1:]]) is None
    assert newest_common_step([found(0, 2, 5, name="old"), found(1, 2, 5, name="new")]) is None
    assert newest_common_step([]) is None
    for shards, step in itertools.product([[*old, *new], [*new, *reversed(old)]], (4, 5, 6, 7)):
        assert choose_shards(FOLDER, shards, step) == (old if step < 6 else new)


ALL = "all shards of MemoryX must hold"


@pytest.mark.parametrize(
    ("shards", "message", "hint"),
    [
        ([], "must have the shards of a MemoryX of step 5, found none", None),
        (
            [found(0, 3, 5), found(2, 3, 5)],
            "must have all 3 shards of MemoryX, 2_of_3 is not there",
            "bring it and 2_of_3.commit here from the model_dir of its node",
        ),
        (
            [found(0, 2, 5), found(1, 2, 5, name="other")],
            "the shards of MemoryX must be of one run, 1_of_2 and 2_of_2 are of different ones",
            "bring back those that belong together",
        ),
        (
            [found(0, 2, 3, 2), found(1, 2, 6, 5)],
            f"{ALL} a step in common, 2_of_2 holds step 6 and 5, 1_of_2 holds step 3 and 2",
            "one of them is an older copy: bring back those that belong together",
        ),
        ([found(0, 2, 7, 6), found(1, 2, 8, 7)], f"{ALL} step 5, they hold step 7", None),
        (
            [found(0, 2, 5), found(1, 2, 5), *(found(node, 3, 6, 5, name="other") for node in range(3))],
            "must have one MemoryX of step 5, got one of 2 shards and one of 3",
            "cstool checkpoint delete of 1_of_2 or of 1_of_3 removes all shards that belong to it",
        ),
    ],
    ids=["none", "missing", "mixed", "too far apart", "another step", "twice"],
)
def test_shards_that_do_not_make_up_a_step_are_told(shards, message, hint):
    message, hint = (text and re.sub(r"\d_of_\d", r"memoryx_\g<0>.h5", text) for text in (message, hint))
    with refusal(StoreError, f"folder: {message}", hint):
        choose_shards(FOLDER, shards, 5)
