"""Commits of MemoryX that a run may go on from: in one file, or in shards on the hosts of several ranks."""

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cstool.foundation.errors import DamagedCheckpointError, StoreError
from cstool.training.machine.ranks.link import ALONE, Link
from cstool.training.store import Ranges, ShardFound, common_steps, find_shards, missing_shards, shard_name
from cstool.training.store.commit_record import read_record
from cstool.training.store.file_layout import record_path


class Committed(NamedTuple):
    """A commit of all nodes of a MemoryX."""

    folder: Path
    """on each host"""
    step: int
    name: str = ""
    """of the set of shards; none of a single file"""
    holders: Sequence[int] = (0,)
    """by node the rank that has its file"""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.holders)

    @property
    def path(self) -> Path:
        """Of the file of the first node."""
        return self.folder / shard_name(0, self.nodes)

    def is_in_place(self, nodes: int) -> bool:
        """Whether a number of nodes have their files at their own ranks."""
        return list(self.holders) == list(range(nodes))


class Broken(NamedTuple):
    """Shards that were a whole MemoryX and are not, since some are missing or hold another step."""

    folder: Path
    step: int
    """the newest that one of them holds"""
    shards: Sequence[ShardFound]
    ranks: int
    strangers: Collection[str]
    """names of the shards of other runs"""

    def error(self) -> StoreError:
        """The error of these shards."""
        missing, path = missing_shards(self.shards), self.folder / self.shards[0].name
        drop = f"cstool checkpoint delete {shlex.quote(str(path))} drops what is there"
        if missing and missing[0] in self.strangers:
            return StoreError(
                f"{self.folder}: the shards of MemoryX must be of one run, {self.shards[0].name} and {missing[0]} are "
                "of different ones",
                f"bring back those that belong together; or {drop}",
            )
        if missing:
            where = f"at one of the {self.ranks} ranks" if self.ranks > 1 else "there"
            return StoreError(
                f"{self.folder / missing[0]}: this shard of MemoryX must be {where}, as {self.shards[0].name} is, "
                "it is not",
                f"run on the hosts that have all {self.shards[0].nodes} of them; or {drop}",
            )
        last, first = (end(self.shards, key=lambda shard: shard.steps) for end in (max, min))
        held = (f"{shard.name} holds step {' and '.join(map(str, shard.steps))}" for shard in (last, first))
        return StoreError(
            f"{self.folder}: the shards of MemoryX must hold a step in common, {', '.join(held)}",
            f"one of them is an older copy: bring back those that belong together; or {drop}",
        )


class LookForShards(NamedTuple):
    """An order to another rank: answer with the shards in a folder of its host."""

    folder: Path


class TellRows(NamedTuple):
    """An order to another rank: answer with the rows that a shard on its host has."""

    path: Path


def rows_of(path: Path) -> Mapping[str, Ranges]:
    """Return the rows of the weights that a shard has.

    Raises:
        DamagedCheckpointError: its commit record is damaged
        StoreError: it is gone, or no shard
    """
    record = read_record(record_path(path))
    if record is None or record.shard is None:
        raise StoreError(f"{path}: must be a shard of a MemoryX, as it was before")
    return record.shard.rows


def dealt_rows(committed: Committed, link: Link = ALONE) -> list[Mapping[str, Ranges]]:
    """Return the rows of the weights at each node, if all nodes are in place."""
    others = range(1, committed.nodes)
    for node in others:
        link.send(node, "order", TellRows(committed.folder / shard_name(node, committed.nodes)))
    return [rows_of(committed.path), *(link.receive(node, "rows") for node in others)]


class Survey(NamedTuple):
    """The state of MemoryX in a folder of all hosts."""

    commits: Sequence[Committed]
    """oldest first"""
    broken: Sequence[Broken]
    files: Sequence[tuple[int, ShardFound]]
    """all shards, with the rank that has them"""


def shards_in(folder: Path) -> list[ShardFound]:
    """Return the shards in a folder of this host; see `find_shards`, whose errors get a way on."""
    try:
        return find_shards(folder)
    except DamagedCheckpointError as error:
        way_on = "bring back a copy of it and of its shard, or have cstool checkpoint delete drop the shard"
        raise DamagedCheckpointError(error.message, way_on) from error


def survey(folder: Path, single: int | None, link: Link = ALONE) -> Survey:
    """Look for commits of MemoryX, here and at the other ranks.

    Args:
        single: the step that a file with all of it holds here; None for no such file

    Raises:
        DamagedCheckpointError: a commit record is damaged
        StoreError: a file is called like another shard than it is
        CheckpointError: the folder cannot be read
    """
    for rank in range(1, link.ranks):
        link.send(rank, "order", LookForShards(folder))
    files = [(0, shard) for shard in shards_in(folder)]
    for rank in range(1, link.ranks):
        files += [(rank, shard) for shard in link.receive(rank, "shards")]
    commits, broken = [], []
    if single is not None:
        commits.append(Committed(folder, single))
    for held in _sets(files):
        shards = [shard for _, shard in held]
        if steps := common_steps(shards):
            commits.append(Committed(folder, steps[0], shards[0].set, tuple(rank for rank, _ in held)))
        elif not all(shard.is_pending for shard in shards):
            newest = max(shard.steps[0] for shard in shards)
            strangers = {shard.name for _, shard in files if shard.set != shards[0].set}
            broken.append(Broken(folder, newest, shards, link.ranks, strangers))
    return Survey(sorted(commits, key=lambda found: found.step), broken, files)


def _sets(files: Sequence[tuple[int, ShardFound]]) -> Iterator[list[tuple[int, ShardFound]]]:
    """The shards that belong together, by node, each where it is newest, and then at the rank of its node if it is."""
    found: defaultdict[str, dict[int, tuple[int, ShardFound]]] = defaultdict(dict)
    for rank, shard in sorted(files, key=lambda each: (each[1].steps, each[0] == each[1].node, -each[0])):
        found[shard.set][shard.node] = rank, shard
    for each in found.values():
        yield [each[node] for node in sorted(each)]
