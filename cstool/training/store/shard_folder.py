"""The shards in a folder: the names of their files, the sets that belong together, the steps that all of a set hold."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cstool.foundation.errors import CheckpointError, StoreError
from cstool.training.store.commit_record import CommitRecord, read_record
from cstool.training.store.file_layout import FILE_NAME, is_store, record_path
from cstool.training.store.folder import names_in
from cstool.training.store.shard_record import Shard

_NAME = re.compile(r"memoryx_[1-9][0-9]*_of_(?P<nodes>[1-9][0-9]*)\.h5")


def shard_name(node: int, nodes: int) -> str:
    """Name of the file of a node, counted from 0: memoryx_1_of_4.h5; memoryx.h5 where there is one node."""
    return FILE_NAME if nodes == 1 else f"memoryx_{node + 1}_of_{nodes}.h5"


def is_shard_name(name: str) -> bool:
    """Say whether a file is called like a shard."""
    return _NAME.fullmatch(name) is not None


def shards_beside(path: Path) -> list[Path]:
    """Return a shard and all shards in its folder that belong to it, by node: whole, damaged, or a record alone.

    Where a record cannot be read the number of shards in the name decides. Another file comes alone.

    Raises:
        OSError: the folder cannot be read
    """
    called = _NAME.fullmatch(path.name)
    if called is None:
        return [path]
    ours, found = _set_of(path), {path}
    for name in {name.removesuffix(record_path(Path()).name) for name in os.listdir(path.parent)}:
        alike, other = _NAME.fullmatch(name), path.with_name(name)
        if alike is not None and alike["nodes"] == called["nodes"] and _is_there(other):
            theirs = _set_of(other)
            if ours is None or theirs is None or theirs == ours:
                found.add(other)
    return sorted(found, key=lambda other: (len(other.name), other.name))


def _is_there(path: Path) -> bool:
    return os.path.lexists(record_path(path)) or is_store(path)


def _set_of(path: Path) -> str | None:
    """Return the set of a shard by its record; None where that cannot be read."""
    with suppress(CheckpointError):
        record = read_record(record_path(path))
        return None if record is None or record.shard is None else record.shard.set
    return None


class ShardFound(NamedTuple):
    """A shard, and its commit record's facts."""

    name: str
    """of the file"""
    node: int
    """from 0"""
    nodes: int
    set: str
    """the same of all shards that belong together"""
    steps: tuple[int, ...]
    """that it holds: of the last commit, and of the one before it if there is one"""
    is_pending: bool = False
    """see `Shard`"""

    @classmethod
    def of(cls, name: str, shard: Shard, record: CommitRecord) -> "ShardFound":
        """Describe the file of a name by its commit record."""
        return cls(name, shard.node, shard.nodes, shard.set, record.steps, shard.is_pending)


def find_shards(folder: Path) -> list[ShardFound]:
    """Return the shards of a folder that were committed, by number of shards and then by node.

    Raises:
        CheckpointError: the folder cannot be read
        StoreError: a file is called like another shard than it is
        DamagedCheckpointError: a commit record is damaged
    """
    suffix = record_path(Path()).name
    called = [name.removesuffix(suffix) for name in names_in(folder) if name.endswith(suffix)]
    found = [_look_at(folder / name) for name in called if is_shard_name(name)]
    return sorted((each for each in found if each is not None), key=lambda each: (each.nodes, each.node))


def _look_at(path: Path) -> ShardFound | None:
    record = read_record(record_path(path))
    if record is None:
        return None
    if record.shard is None:
        raise StoreError(f"{path}: must be a shard of a MemoryX, as it is called, it has a whole one")
    wanted = shard_name(record.shard.node, record.shard.nodes)
    if wanted != path.name:
        raise StoreError(f"{path}: must be called {wanted}, which it is by its commit record")
    return ShardFound.of(path.name, record.shard, record)


class ShardSet(NamedTuple):
    """The shards of a folder that belong together."""

    nodes: int
    """number of shards that there must be"""
    names: tuple[str, ...]
    """of the files that are there, by node"""
    missing: tuple[str, ...]
    """names of the files that are not there"""
    step: int | None
    """the newest that all shards hold; None where there is none, or one is missing"""
    ahead: tuple[str, ...]
    """names of the files whose last commit is of a later step"""


def list_shards(folder: Path) -> list[ShardSet]:
    """Return the shards in a folder, set by set; raises the errors of `find_shards`."""
    found = []
    for shards in sets_of(find_shards(folder)):
        step = max(common_steps(shards), default=None)
        ahead = () if step is None else tuple(shard.name for shard in shards if shard.steps[0] > step)
        names = tuple(shard.name for shard in shards)
        found.append(ShardSet(shards[0].nodes, names, tuple(missing_shards(shards)), step, ahead))
    return found


def sets_of(found: Iterable[ShardFound]) -> list[list[ShardFound]]:
    """Return the shards that belong together, by node, each once; the sets in the order in which they were found."""
    sets: defaultdict[str, dict[ShardFound, None]] = defaultdict(dict)
    for each in found:
        sets[each.set][each] = None
    return [sorted(each, key=lambda shard: shard.node) for each in sets.values()]


def missing_shards(shards: Sequence[ShardFound]) -> list[str]:
    """Return the names of the shards that a set lacks."""
    there = {shard.node for shard in shards}
    return [shard_name(node, shards[0].nodes) for node in range(shards[0].nodes) if node not in there]


def common_steps(shards: Sequence[ShardFound]) -> list[int]:
    """Return the steps that each shard of a set holds, the newest first; none where a shard is missing."""
    if missing_shards(shards):
        return []
    return sorted(set.intersection(*({*shard.steps} for shard in shards)), reverse=True)


def choose_shards(folder: Path, found: Sequence[ShardFound], step: int) -> list[ShardFound]:
    """Return the shards of the set that holds a step, by node.

    Raises:
        StoreError: there is none, or more than one: names the shards in the way
    """
    sets = sets_of(found)
    holding = [shards for shards in sets if step in common_steps(shards)]
    if len(holding) == 1:
        return holding[0]
    if holding:
        raise StoreError(
            f"{folder}: must have one MemoryX of step {step}, got one of {len(holding[0])} shards and one of "
            f"{len(holding[1])}",
            f"cstool checkpoint delete of {holding[0][0].name} or of {holding[1][0].name} removes all shards that "
            "belong to it",
        )
    if not sets:
        raise StoreError(f"{folder}: must have the shards of a MemoryX of step {step}, found none")
    nearest = min(sets, key=lambda shards: len(missing_shards(shards)))
    check_set(folder, nearest, sets)
    held = " and ".join(map(str, common_steps(nearest)))
    raise StoreError(f"{folder}: all shards of MemoryX must hold step {step}, they hold step {held}")


def check_set(folder: Path, shards: Sequence[ShardFound], sets: Iterable[Sequence[ShardFound]]) -> None:
    """Check that none of the shards that belong together is missing, and that all hold a step in common.

    Args:
        folder: that they are in
        shards: of one set
        sets: all that are in the folder

    Raises:
        StoreError: names the shard in the way
    """
    names = {shard.name for others in sets for shard in others if shard.set != shards[0].set}
    for lacking in missing_shards(shards):
        if lacking in names:
            raise StoreError(
                f"{folder}: the shards of MemoryX must be of one run, {shards[0].name} and {lacking} are of different "
                "ones",
                "bring back those that belong together",
            )
        raise StoreError(
            f"{folder}: must have all {shards[0].nodes} shards of MemoryX, {lacking} is not there",
            f"bring it and {record_path(Path(lacking))} here from the model_dir of its node",
        )
    if not common_steps(shards):
        last, first = max(shards, key=lambda shard: shard.steps), min(shards, key=lambda shard: shard.steps)
        held = [f"{shard.name} holds step {' and '.join(map(str, shard.steps))}" for shard in (last, first)]
        raise StoreError(
            f"{folder}: all shards of MemoryX must hold a step in common, {', '.join(held)}",
            "one of them is an older copy: bring back those that belong together",
        )
