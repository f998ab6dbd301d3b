"""After any crash of any nodes, all shards hold a step in common: the last that all committed, or the next one."""

import os
import random
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from cstool.store import SHARD, FileStore, find_shards, open_shards, shard_name
from tests.examples import examples
from tests.unit.store.power import Killed, Power
from tests.unit.store.shard_files import ROOM, Array, like, newest_common_step, numbers, shard_value
from tests.unit.store.test_durability import IN_MEMORY

ROWS, WIDTH = 6, 3
MODEL = {"weight": like((ROWS, WIDTH))}
ARRAYS = ["model.weight", "optimizer.weight.exp_avg", "optimizer.weight.exp_avg_sq"]
DEALT = {"weight": [[(0, 1), (4, 6)], [(1, 2), (3, 4)], [(2, 3)]]}
NODES = 3


def rows_of(node: int) -> list[int]:
    return [row for start, stop in DEALT["weight"][node] for row in range(start, stop)]


class Nodes:
    """Nodes that commit one step after the other; none commits a step before all have committed that before it."""

    def __init__(self, folder: Path, at_step: int | None, attempt: int) -> None:
        self.stores: list[FileStore] = []
        self.folder = folder
        self.at_step = at_step
        self.attempt = attempt

    def start(self) -> None:
        """Begin with new files, or go on from a step that all hold."""
        adopt = self.at_step is not None
        for node in range(NODES):
            path = self.folder / shard_name(node, NODES)
            self.stores.append(FileStore(path, ROOM, adopt=adopt, at_step=self.at_step))
            for name in ARRAYS:
                self.stores[-1].create(name, (len(rows_of(node)), WIDTH))

    def go(self, step: int, order: list[int]) -> None:
        """Take a step: every node writes its rows, and commits."""
        for node in order:
            for name in ARRAYS:
                self.stores[node].write(name, 0, wanted(name, step, self.attempt)[rows_of(node)])
        for node in order:
            shard = {SHARD: shard_value(MODEL, DEALT, node, NODES)}
            self.stores[node].commit({"global_step": step, **shard}, {})

    def close(self) -> None:
        for store in self.stores:
            store.close()


def wanted(name: str, step: int, attempt: int) -> Array:
    """An array after a step; other numbers in every row, and at every attempt at the step."""
    return numbers(name, (ROWS, WIDTH), 1) + np.float32(10 * step + attempt)


def check(folder: Path, step: int, attempt: int) -> None:
    """Check that the shards of a folder hold a step, all of one attempt."""
    with open_shards(folder, find_shards(folder), step, is_ours=True) as state:
        state.verify_all()
        assert state.step == step
        for name in ARRAYS:
            assert state.read(name).tobytes() == wanted(name, step, attempt).tobytes()


@examples(30)
@given(data=st.data())
def test_after_any_crash_there_is_a_step_that_all_shards_hold(data):
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if os.path.isdir(IN_MEMORY) else None) as temporary:
        folder = Path(temporary) / "0"
        folder.mkdir()
        done: int | None = None
        attempts: dict[int, int] = {}
        for crash in range(1, 5):
            # In which call of all those of these steps it ends.
            fails, last = data.draw(st.booleans()), (done or 0) + data.draw(st.integers(1, 2))
            # Files come in any order, so what is lost is not for Hypothesis to say.
            lost, order = random.Random(data.draw(st.integers(0, 999))), data.draw(st.permutations(range(NODES)))
            power, nodes = Power(), Nodes(folder, done, crash)
            power.kill_at(data.draw(st.integers(0, 100)))
            begun = done
            try:
                nodes.start()
                for step in range((done or 0) + 1, last + 1):
                    begun = step
                    nodes.go(step, order)
                    done, attempts[step] = step, crash
            except Killed:
                pass
            power.kill_at(None)
            after = Path(temporary) / str(crash)
            power.fail(folder, after, lambda fails=fails, lost=lost: fails and lost.random() < 0.5)
            power.close()
            nodes.close()
            folder = after
            found = newest_common_step(find_shards(folder))
            assert found == done or (begun is not None and found == begun == (done or 0) + 1)
            if found is not None:
                if found != done:
                    attempts[found] = crash
                check(folder, found, attempts[found])
            else:
                for path in folder.glob("memoryx*"):
                    path.unlink()
            done = found
        shutil.rmtree(folder)


def test_a_step_that_was_given_up_is_not_taken_for_that_of_another_attempt(tmp_path):
    """One node is a step ahead and rolled back; then the others commit that step anew, and it does not."""
    nodes = Nodes(tmp_path, None, attempt=1)
    nodes.start()
    for step in (1, 2):
        nodes.go(step, [0, 1, 2])
    for store in nodes.stores[1:]:
        store.close()
    store = nodes.stores[0]
    for name in ARRAYS:
        store.write(name, 0, wanted(name, 3, 1)[rows_of(0)])
    store.commit({"global_step": 3, SHARD: shard_value(MODEL, DEALT, 0, NODES)}, {})
    store.close()
    assert [shard.steps for shard in find_shards(tmp_path)] == [(3, 2), (2, 1), (2, 1)]
    again = Nodes(tmp_path, 2, attempt=2)
    again.start()
    assert [shard.steps for shard in find_shards(tmp_path)] == [(2,), (2, 1), (2, 1)]
    for node, store in enumerate(again.stores):
        for name in ARRAYS:
            store.write(name, 0, wanted(name, 3, 2)[rows_of(node)])
        if node:
            store.commit({"global_step": 3, SHARD: shard_value(MODEL, DEALT, node, NODES)}, {})
    again.close()
    assert newest_common_step(find_shards(tmp_path)) == 2
    check(tmp_path, 2, 1)
