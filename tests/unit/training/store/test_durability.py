"""What was committed last is what is there after any crash: the file is compared with a model in memory.

All shards hold a step in common then: the last that all committed, or the next one. A crash is the files as they are at
that moment, or as they might be if the power fails, found by a process that knows nothing else.
"""

import contextlib
import itertools
import os
import random
import shutil
import stat
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import numpy as np
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from cstool.training.store import (
    SHARD,
    CommittedStore,
    FileStore,
    RamStore,
    committed_step,
    find_shards,
    open_shards,
    shard_name,
)
from tests.examples import examples
from tests.unit.training.store.stored import (
    IN_MEMORY,
    ROOM,
    Array,
    like,
    newest_common_step,
    numbers,
    rows_of,
    shard_value,
)

State = dict[str, Array]


class Killed(BaseException):
    """The process is no more."""


class Power:
    """Stands between this process and its files, until `close`.

    It notes which bytes and names the system was told of but not asked to make sure of, and can end the process
    (by `Killed`) at any call: a write half done, another call before or after it.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        """since `kill_at`"""
        self._kill_at: int | None = None
        self._lost_bytes: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        """by the inode: what was there before each write"""
        self._lost_names: dict[Path, bytes | None] = {}
        """what files of these names held before they were replaced"""
        patches = {name: self._guarding(name) for name in ("pwritev", "fdatasync", "fsync", "replace")}
        self._patch = mock.patch.multiple(os, **patches)
        self._patch.start()

    def close(self) -> None:
        self._patch.stop()

    def kill_at(self, number: int | None) -> None:
        """End the process at call `number // 2` from here on; None: let it live."""
        self._kill_at, self.calls = number, []

    def fail(self, folder: Path, copy: Path, lost: Callable[[], bool]) -> None:
        """Copy a folder as it might be after a failure of the power.

        Args:
            folder: with files
            copy: a folder that is not there yet
            lost: says of each thing that nobody made sure of whether it is lost
        """
        shutil.copytree(folder, copy)
        for path, before in self._lost_names.items():
            if path.parent == folder and lost():
                (copy / path.name).unlink()
                if before is not None:
                    (copy / path.name).write_bytes(before)
        for path in copy.iterdir():
            with open(path, "r+b") as file:
                for offset, before in reversed(self._lost_bytes[os.stat(folder / path.name).st_ino]):
                    if lost():
                        os.pwrite(file.fileno(), before, offset)

    def _guarding(self, name: str) -> Callable[..., Any]:
        original, note = getattr(os, name), getattr(self, f"_note_{name}")

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            dies = self._kill_at is not None and len(self.calls) - 1 == self._kill_at // 2
            if dies and name == "pwritev":
                descriptor, (data,), *rest = arguments
                arguments = (descriptor, [data[: len(data) // 2]], *rest)
            elif dies and self._kill_at is not None and self._kill_at % 2 == 0:
                raise Killed
            note(*arguments)
            result = original(*arguments)
            if dies:
                raise Killed
            return result

        return call

    def _note_pwritev(self, descriptor: int, buffers: list[memoryview], offset: int, _flags: int = 0) -> None:
        before = os.pread(descriptor, sum(map(len, buffers)), offset)
        self._lost_bytes[os.fstat(descriptor).st_ino].append((offset, before))

    def _note_fdatasync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self._lost_bytes.pop(found.st_ino, None)
        if stat.S_ISDIR(found.st_mode):
            self._lost_names.clear()

    _note_fsync = _note_fdatasync

    def _note_replace(self, _old: Path, new: Path) -> None:
        self._lost_names[new] = new.read_bytes() if new.exists() else None


class DurableMachine(RuleBasedStateMachine):
    """A file store, and a RAM store that has what the file should."""

    @initialize(
        shapes=st.lists(st.tuples(st.integers(1, 6), st.sampled_from([(), (3,), (2, 2)])), min_size=1, max_size=3)
    )
    def begin(self, shapes: list[tuple[int, tuple[int, ...]]]) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=IN_MEMORY))
        self.numbers = itertools.count()
        self.shapes = {f"model.{k}": (rows, *rest) for k, (rows, rest) in enumerate(shapes)}
        self.committed: tuple[int, State] | None = None
        self.older: tuple[int, State] | None = None
        """until its slots may have been written to"""
        self.steps = itertools.count(1)
        self.power = Power()
        self.start(self.folder / "0" / "memoryx.h5", adopt=False)

    def start(self, path: Path, *, adopt: bool, at_step: int | None = None) -> None:
        """Begin with a new file, or go on from a commit: then everything else is as it was then."""
        path.parent.mkdir(exist_ok=True)
        self.store = FileStore(path, ROOM, adopt=adopt, at_step=at_step)
        self.twin = RamStore()
        for name, shape in self.shapes.items():
            self.store.create(name, shape)
            self.twin.create(name, shape)
            if adopt:
                self.twin.write(name, 0, self.committed[1][name])
        self.store.create("scratch", (3,), scratch=True)
        if adopt:
            assert self.store.record.step == self.committed[0]
            self.store.verify()

    def state(self) -> State:
        return {name: rows_of(self.twin, name) for name in self.shapes}

    @rule(data=st.data(), value=st.integers(0, 99), how=st.sampled_from(["write", "give back", "rewrite"]))
    def write(self, data: st.DataObject, value: int, how: str) -> None:
        self.older = None
        self.change(data, value, how)

    def change(self, data: st.DataObject, value: int, how: str) -> None:
        name = data.draw(st.sampled_from(list(self.shapes)))
        start = data.draw(st.integers(0, self.shapes[name][0] - 1))
        stop = data.draw(st.integers(start + 1, self.shapes[name][0]))

        def add(arrays: list[Array], _first: int, _last: int) -> None:
            arrays[0] += value + 1

        for store in (self.twin, self.store):
            match how:
                case "write":
                    store.write(name, start, np.full((stop - start, *self.shapes[name][1:]), value, np.float32))
                case "give back":
                    rows = store.borrow(name, start, stop, fresh=True)
                    rows[...] = value
                    store.give_back(name, start, stop, rows, changed=True)
                case _:
                    store.rewrite([name], start, stop, add)

    @rule(value=st.integers(0, 99))
    def write_scratch(self, value: int) -> None:
        self.store.write("scratch", 0, np.full(3, value, np.float32))
        assert rows_of(self.store, "scratch").tolist() == [value] * 3

    @rule()
    def commit(self) -> None:
        step = next(self.steps)
        self.store.commit({"global_step": step}, {})
        self.older, self.committed = self.committed, (step, self.state())

    @precondition(lambda self: self.committed is not None)
    @rule()
    def go_on_after_a_stop(self) -> None:
        self.store.close()
        self.start(self.store.path, adopt=True)

    @precondition(lambda self: self.older is not None)
    @rule()
    def go_on_from_the_commit_before(self) -> None:
        self.store.close()
        self.committed, self.older = self.older, None
        self.start(self.store.path, adopt=True, at_step=self.committed[0])

    @precondition(lambda self: self.older is not None)
    @rule(number=st.integers(0, 8), data=st.data(), fails=st.booleans())
    def crash_while_the_last_commit_is_given_up(self, number: int, data: st.DataObject, fails: bool) -> None:
        self.store.close()
        self.power.kill_at(number)
        with contextlib.suppress(Killed):
            self.store = FileStore(self.store.path, ROOM, adopt=True, at_step=self.older[0])
        self.power.kill_at(None)
        path = self.crashed(data, fails)
        self.committed, self.older = self.older, None
        self.start(path, adopt=True, at_step=self.committed[0])

    @rule(data=st.data(), fails=st.booleans())
    def crash(self, data: st.DataObject, fails: bool) -> None:
        self.start(self.crashed(data, fails), adopt=self.committed is not None)

    @rule(number=st.integers(0, 16), data=st.data(), value=st.integers(0, 99), fails=st.booleans())
    def crash_in_the_middle(self, number: int, data: st.DataObject, value: int, fails: bool) -> None:
        """While something is written, or while it is committed."""
        step, before, self.older = next(self.steps), self.committed, None
        self.power.kill_at(number)
        try:
            self.change(data, value, "write")
            self.change(data, value, "rewrite")
            self.store.commit({"global_step": step}, {})
            is_made = True
        except Killed:
            is_made = False
        may_be_made = "replace" in self.power.calls
        self.power.kill_at(None)
        after = (step, self.state())
        path = self.crashed(data, fails)
        if is_made or (may_be_made and committed_step(path) == step):
            self.older, self.committed = before, after
        self.start(path, adopt=self.committed is not None)

    def crashed(self, data: st.DataObject, fails: bool) -> Path:
        """Return where the files are after a crash."""
        folder = self.folder / str(next(self.numbers) + 1)
        lost = data.draw(st.randoms(use_true_random=False)) if fails else None
        self.power.fail(self.store.path.parent, folder, lambda: lost is not None and lost.random() < 0.5)
        # Closing it must do no harm to what others find by then.
        self.store.close()
        return folder / self.store.path.name

    @invariant()
    def holds_what_it_should(self) -> None:
        for name in self.shapes:
            assert rows_of(self.store, name).tobytes() == rows_of(self.twin, name).tobytes()

    @invariant()
    def the_last_commit_and_the_one_before_can_be_read_while_the_run_goes_on(self) -> None:
        for older, expected in ((False, self.committed), (True, self.older)):
            if expected is not None:
                with CommittedStore(self.store.path, older=older, is_ours=True) as reader:
                    reader.verify_all()
                    assert reader.record.step == expected[0]
                    assert {name: reader.read(name).tobytes() for name in reader.tensor_names()} == {
                        name: array.tobytes() for name, array in expected[1].items()
                    }

    def teardown(self) -> None:
        self.power.close()
        self.store.close()
        shutil.rmtree(self.folder)


def test_after_any_crash_the_file_holds_what_was_committed_last():
    run_machine(DurableMachine, settings=examples(25, stateful_step_count=20))


# Several nodes, each with a shard.


ROWS, WIDTH = 6, 3
MODEL = {"weight": like((ROWS, WIDTH))}
ARRAYS = ["model.weight", "optimizer.weight.exp_avg", "optimizer.weight.exp_avg_sq"]
DEALT = {"weight": [[(0, 1), (4, 6)], [(1, 2), (3, 4)], [(2, 3)]]}
NODES = 3


def rows_at(node: int) -> list[int]:
    return [row for start, stop in DEALT["weight"][node] for row in range(start, stop)]


class Nodes:
    """Nodes that commit one step after the other; none commits a step before all have committed that before it."""

    def __init__(self, folder: Path, at_step: int | None, attempt: int) -> None:
        self.folder, self.at_step, self.attempt = folder, at_step, attempt
        self.stores: list[FileStore] = []

    def start(self) -> None:
        """Begin with new files, or go on from a step that all hold."""
        adopt = self.at_step is not None
        for node in range(NODES):
            path = self.folder / shard_name(node, NODES)
            self.stores.append(FileStore(path, ROOM, adopt=adopt, at_step=self.at_step))
            for name in ARRAYS:
                self.stores[-1].create(name, (len(rows_at(node)), WIDTH))

    def write(self, node: int, step: int) -> None:
        for name in ARRAYS:
            self.stores[node].write(name, 0, wanted(name, step, self.attempt)[rows_at(node)])

    def commit(self, node: int, step: int) -> None:
        self.stores[node].commit({"global_step": step, SHARD: shard_value(MODEL, DEALT, node, NODES)}, {})

    def go(self, step: int, order: list[int]) -> None:
        """Take a step: every node writes its rows, and commits."""
        for node in order:
            self.write(node, step)
        for node in order:
            self.commit(node, step)

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
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as temporary:
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


def test_a_step_that_was_given_up_is_not_taken_for_that_of_another_attempt(tmp_path):
    """One node is a step ahead and rolled back; then the others commit that step anew, and it does not."""
    nodes = Nodes(tmp_path, None, attempt=1)
    nodes.start()
    for step in (1, 2):
        nodes.go(step, [0, 1, 2])
    nodes.write(0, 3)
    nodes.commit(0, 3)
    nodes.close()
    assert [shard.steps for shard in find_shards(tmp_path)] == [(3, 2), (2, 1), (2, 1)]
    again = Nodes(tmp_path, 2, attempt=2)
    again.start()
    assert [shard.steps for shard in find_shards(tmp_path)] == [(2,), (2, 1), (2, 1)]
    for node in range(NODES):
        again.write(node, 3)
        if node:
            again.commit(node, 3)
    again.close()
    assert newest_common_step(find_shards(tmp_path)) == 2
    check(tmp_path, 2, 1)
