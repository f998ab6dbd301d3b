"""All shards of a MemoryX are what the same commit in one file is, to the last byte, or an error says what is wrong."""

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from cstool.foundation.errors import CheckpointError, DamagedCheckpointError, StoreError
from cstool.training.store import (
    SHARD,
    CommittedShards,
    CommittedStore,
    FileStore,
    Progress,
    copy_checkpoint,
    diff_checkpoints,
    find_shards,
    open_checkpoint,
    open_shards,
    shard_name,
    write_checkpoint,
)
from cstool.training.store.commit_record import CommitRecord
from cstool.training.store.file_layout import TAKE_OLDER, lock_path, record_path
from cstool.training.store.store_lock import StoreLock
from tests.contract.refusal import refusal
from tests.examples import examples
from tests.unit.training.store.stored import (
    IN_MEMORY,
    LINKS,
    MODEL,
    ROOM,
    Array,
    Model,
    Ranges,
    WeightOf,
    arrays_of,
    checkpoint_of_one_file,
    damage,
    edit_record,
    flip,
    in_order_of_a_checkpoint,
    like,
    newest_common_step,
    non_zeros,
    numbers,
    open_all,
    values_of,
    write_shards,
)

TOGETHER, INDICES = "bring back those that belong together", "model.sparse.indices"


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """A folder of three shards with commits of the steps 1 to 3, which nobody changes."""
    return write_shards(tmp_path_factory.mktemp("kept") / "model_dir", 3)[0].parent


@pytest.fixture
def shards(tmp_path, kept) -> list[Path]:
    shutil.copytree(kept, tmp_path / "model_dir")
    return [tmp_path / "model_dir" / shard_name(node, 3) for node in range(3)]


def expected(model: Model, step: int) -> dict[str, Array]:
    """The tensors of a checkpoint of a model after a step, by plain means."""
    found = {}
    for name, weight in model.items():
        for array, shape in arrays_of(name, weight).items():
            found[array] = numbers(array, shape, step)
            if weight.is_sparse:
                places = numbers(f"model.{name}.indices", (weight.room,), step)[: non_zeros(weight, step)]
                order = sorted(range(len(places)), key=lambda at, places=places: places[at])
                found[array] = np.array([found[array][at] for at in order])
    return found


class FromAfar:
    """A shard behind whoever has it: what a node is asked over a network, from a run that goes on."""

    def __init__(self, path: Path) -> None:
        self.store = FileStore(path, ROOM, adopt=True)
        self.shape, self.dtype = self.store.shape, self.store.dtype
        self.record: CommitRecord = self.store.record
        self.path = Path(f"host:{path.name}")
        self.asked = 0
        self.is_closed = False
        self._committed = CommittedStore(path, is_ours=True)
        for name in self.record.arrays:
            shape, dtype = self.store._places[name][0][:2]
            self.store.create(name, shape, dtype)
            self.store.write(name, 0, np.zeros(shape, dtype))

    def read(self, key: str, out: Array, start: int, stop: int) -> None:
        self.asked += stop - start
        assert len(out) == stop - start
        self._committed.read(key, out, start, stop)

    def verify_all(self, progress: Progress) -> None:
        progress(self.store.committed_bytes, self.store.committed_bytes)

    def close(self) -> None:
        self.is_closed = True
        self._committed.close()
        self.store.close()


def test_shards_have_what_one_file_has(shards):
    with open_checkpoint(shards[1]) as state:
        assert isinstance(state, CommittedShards)
        assert (state.step, state.path, state.paths) == (3, shards[0], tuple(shards))
        assert (state.format_version, state.is_bound, state.cstool_version) == ("MemoryX 1 in 3 shards", True, "1.0.0")
        assert state.keys() == [*in_order_of_a_checkpoint(MODEL), *LINKS, *values_of(MODEL, 3)]
        assert state.tensor_names() == in_order_of_a_checkpoint(MODEL)
        assert state.values() == values_of(MODEL, 3)
        assert {key: state.link_of(key) for key in LINKS} == LINKS
        state.verify_all()
        for name, array in {**expected(MODEL, 3), "model.tied": expected(MODEL, 3)["model.embedding"]}.items():
            assert (state.shape(name), state.dtype(name)) == (array.shape, array.dtype.name)
            assert state.read(name).tobytes() == array.tobytes()
            assert b"".join(piece.tobytes() for piece in state.pieces(name)) == array.tobytes()
            read = state.in_order(name)
            for start in range(len(array)):
                out = np.empty_like(array[start : start + 1])
                read(out, start, start + 1)
                assert out.tobytes() == array[start : start + 1].tobytes()
    with refusal(CheckpointError, f"{shards[0]}: the checkpoint has no tensor model.ties", "the nearest is model.tied"):
        state.shape("model.ties")


@pytest.mark.parametrize("piece", [5, 2**20])
def test_a_checkpoint_of_shards_has_the_bytes_of_one_of_a_single_file(shards, tmp_path, monkeypatch, piece):
    for module in ("committed_store", "saved_state", "shards"):
        monkeypatch.setattr(f"cstool.training.store.{module}.PIECE", piece)
    told: list[tuple[int, int]] = []
    made = copy_checkpoint(shards[2], tmp_path, lambda *state: told.append(state))
    total = sum(array.nbytes for array in expected(MODEL, 3).values())
    assert (made.name, told[-1]) == ("checkpoint_3.mdl", (total, total))
    assert made.read_bytes() == checkpoint_of_one_file(tmp_path, 3)
    older = copy_checkpoint(shards[0], tmp_path, older=True)
    assert older.name == "checkpoint_2.mdl"
    assert older.read_bytes() == checkpoint_of_one_file(tmp_path, 2)


def test_shards_of_nodes_that_go_on_are_read_once_and_not_disturbed(shards, tmp_path):
    sources = [FromAfar(path) for path in shards]
    with CommittedShards(sources) as state:
        write_checkpoint(tmp_path / "made.mdl", state)
        told: list[tuple[int, int]] = []
        state.verify_all(lambda *state: told.append(state))
    assert (tmp_path / "made.mdl").read_bytes() == checkpoint_of_one_file(tmp_path, 3)
    assert [source.is_closed for source in sources] == [True, True, True]
    rows = [sum(extents[-1].stop for extents in source.record.arrays.values()) for source in sources]
    assert (sources[1].asked, sources[2].asked) == (rows[1], rows[2])
    assert sources[0].asked - rows[0] == non_zeros(MODEL["sparse"], 3), "the order of a sparse weight is asked for once"
    assert told[-1][0] == told[-1][1]


@st.composite
def dealings(draw: st.DrawFn) -> tuple[Model, dict[str, list[Ranges]], int]:
    """Models whose rows are dealt in ranges to 1 to 4 nodes in any order, and a number of steps."""
    nodes = draw(st.integers(1, 4))
    model: dict[str, WeightOf] = {}
    dealt: dict[str, list[Ranges]] = {}
    for number in range(draw(st.integers(1, 3))):
        name, rows = f"layer.{number}", draw(st.integers(1, 9))
        model[name] = like((rows, *draw(st.sampled_from([(), (3,), (2, 2)]))))
        cuts = sorted({0, rows, *draw(st.lists(st.integers(1, rows), max_size=4))})
        ranges = draw(st.permutations([*zip(cuts, cuts[1:], strict=False)]))
        owners = [draw(st.integers(0, nodes - 1)) for _ in ranges]
        dealt[name] = [[r for r, owner in zip(ranges, owners, strict=True) if owner == node] for node in range(nodes)]
    for name in ("factored", "sparse"):
        if draw(st.booleans()):
            owner, rows = draw(st.integers(0, nodes - 1)), MODEL[name].shape[0]
            model[name] = MODEL[name]
            dealt[name] = [[(0, 1), (1, rows)] if node == owner else [] for node in range(nodes)]
    order = draw(st.permutations([*model]))
    return {name: model[name] for name in order}, {name: dealt[name] for name in order}, draw(st.integers(1, 3))


@examples(40)
@given(dealing=dealings(), data=st.data())
def test_however_rows_are_dealt_the_shards_are_the_model(dealing, data):
    model, dealt, step = dealing
    nodes = len(next(iter(dealt.values())))
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as temporary:
        folder = Path(temporary)
        write_shards(folder / "shards", step, model, dealt)
        found = find_shards(folder / "shards")
        assert newest_common_step(found) == (None if nodes == 1 else step)
        with CommittedShards(open_all(folder / "shards", step, nodes)) as state:
            state.verify_all()
            write_checkpoint(folder / "made.mdl", state)
            for name, array in expected(model, step).items():
                start = data.draw(st.integers(0, len(array)))
                stop = data.draw(st.integers(start, len(array)))
                assert state.read(name, None, start, stop).tobytes() == array[start:stop].tobytes()
        assert (folder / "made.mdl").read_bytes() == checkpoint_of_one_file(folder, step, model)


def test_shards_of_different_steps_are_opened_at_the_newest_that_all_hold(tmp_path):
    paths = write_shards(tmp_path / "shards", {0: 3, 1: 2, 2: 3})
    found = find_shards(tmp_path / "shards")
    assert newest_common_step(found) == 2
    with open_checkpoint(paths[0]) as state, open_shards(tmp_path / "shards", found, 2) as same:
        assert (state.values()["global_step"], same.step) == (2, 2)
        assert diff_checkpoints(state, same).match
        assert state.read("model.embedding").tobytes() == expected(MODEL, 2)["model.embedding"].tobytes()
    message = f"{tmp_path}/shards: all shards of MemoryX must hold a step before step 2, they do not"
    with refusal(StoreError, message):
        open_checkpoint(paths[0], older=True)
    message = f"{tmp_path}/shards: all shards of MemoryX must hold step 3, they hold step 2"
    with refusal(StoreError, message):
        open_shards(tmp_path / "shards", found, 3)


# What one shard alone is not.


def test_a_shard_without_the_others_is_no_checkpoint(shards, tmp_path):
    for file in (shards[1], record_path(shards[1])):
        shutil.move(file, tmp_path)
    for folder, missing, paths in (
        (shards[0].parent, "memoryx_2_of_3.h5", (shards[0], shards[2])),
        (tmp_path, "memoryx_1_of_3.h5", (tmp_path / shards[1].name,)),
    ):
        message = f"{folder}: must have all 3 shards of MemoryX, {missing} is not there"
        hint = f"bring it and {missing}.commit here from the model_dir of its node"
        for path, read in itertools.product(paths, (open_checkpoint, lambda path: copy_checkpoint(path, tmp_path))):
            with refusal(StoreError, message, hint):
                read(path)


def test_a_shard_that_was_renamed_or_lacks_its_file_is_told(shards, tmp_path):
    other = tmp_path / "mine.h5"
    shutil.copy(shards[1], other)
    shutil.copy(record_path(shards[1]), record_path(other))
    with refusal(StoreError, f"{other}: must be called memoryx_2_of_3.h5, which it is by its commit record"):
        open_checkpoint(other)
    shards[1].unlink()
    message = f"{shards[1]}: must be there, as its commit record is, found nothing"
    with refusal(StoreError, message, f"bring it back, or cstool checkpoint delete {shards[1]} drops what is there"):
        open_checkpoint(shards[0])


def test_shards_that_a_run_uses_are_left_alone(shards):
    lock = StoreLock(lock_path(shards[1]))
    owner = lock_path(shards[1]).read_text().strip()
    message = f"{lock_path(shards[1])}: the MemoryX file must be used by one run at a time, it is in use by {owner}"
    with refusal(StoreError, message, "wait for it, stop it, or choose another --model_dir"):
        open_checkpoint(shards[0])
    found = find_shards(shards[0].parent)
    open_shards(shards[0].parent, found, 3, is_ours=True).close()
    lock.close()
    StoreLock(lock_path(shards[0])).close()


# Sources that do not belong together: whoever has shards on several hosts hands them over one by one.


def rejoined(tmp_path: Path, change: Callable[[dict[str, Any]], object], node: int = 1) -> list[CommittedStore]:
    """Open shards of which one has a changed record."""
    edit_record(tmp_path / "model_dir" / shard_name(node, 3), change)
    return open_all(tmp_path / "model_dir", 3, 3)


def of(key: str, **changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["values"][key].update(changes)


def rows(weight: str, *ranges: list[int]) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["values"][SHARD]["rows"].update({weight: [*ranges]})


def lacking(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["arrays"].pop(name)


def test_sources_of_different_runs_or_steps_are_told_and_closed(shards, tmp_path):
    one, two, three = shards
    other = write_shards(tmp_path / "other", 3, name="another")
    sources = [CommittedStore(path) for path in (one, other[1], three)]
    with refusal(StoreError, f"{other[1]}: must be of the same run as {one}, it is of another", TOGETHER):
        CommittedShards(sources)
    for path in (one, other[1], three):
        StoreLock(lock_path(path)).close()
    older = [CommittedStore(one), CommittedStore(two, older=True), CommittedStore(three)]
    with refusal(StoreError, f"{two}: must be of step 3, as {one}, got step 2", TOGETHER):
        CommittedShards(older)
    message = f"{one}: all 3 shards of its MemoryX must be there, memoryx_2_of_3.h5 is not"
    with refusal(StoreError, message):
        CommittedShards([CommittedStore(one), CommittedStore(three)])
    with refusal(ValueError, "shards must come by node, each once, got [0, 2, 1]"):
        CommittedShards([CommittedStore(one), CommittedStore(three), CommittedStore(two)])
    with refusal(ValueError, "a MemoryX must have shards, got none"):
        CommittedShards([])
    edit_record(three, lambda document: [document["values"].pop(key) for key in (SHARD, "sparsity")])
    with refusal(StoreError, f"{three}: must be a shard of a MemoryX, it has a whole one"):
        CommittedShards([CommittedStore(path) for path in shards])


NOT_ITS_OWN = "must be of a weight that the shard has rows of, it is not"
ORDER = "must lie in one shard in order: it is sparse"
OTHER_SHAPE = "is damaged: it must be 3 x 3 float32, got 2 x 3 float32"
SAME_ARRAYS = "must have the same arrays of embedding as {1}, it has others"
ALL_ROWS, TOO_MANY = "{1}: the shards must have all rows of", "25 numbers must lie in it, it has room for 24"
SPARSE = values_of(MODEL, 3)["sparsity"]["sparse"]


@pytest.mark.parametrize(
    ("node", "change", "message"),
    [
        (1, of(SHARD, nodes=4), "{2}: must be of the same run as {1}, it is of another"),
        (1, of(SHARD, weights=["embedding"], rows={}), "{2}: must be of the same run as {1}, it is of another"),
        (1, rows("embedding", [0, 1]), f"{ALL_ROWS} embedding once, rows 1 to 2 are in none"),
        (1, rows("embedding", [0, 3]), f"{ALL_ROWS} embedding once, row 2 is in two"),
        (1, rows("layer.bias"), f"{ALL_ROWS} layer.bias once, they have none"),
        (1, rows("layer.bias", [0, 4]), "{2}: model.layer.bias is damaged: it must be 4 float32, got 5 float32"),
        (1, rows("embedding", [0, 1], [1, 2], [7, 8]), f"{{2}}: model.embedding {OTHER_SHAPE}"),
        (1, lacking("model.embedding"), "{2}: must have rows of embedding, as its commit record says, it has not"),
        (1, lacking("optimizer.embedding.exp_avg"), f"{{2}}: {SAME_ARRAYS}"),
        (0, rows("sparse", [3, 6], [0, 3]), f"{{1}}: all rows of sparse {ORDER}"),
        (0, lacking(INDICES), f"{{1}}: {INDICES} is damaged: it must be there, sparse is sparse"),
        (0, of("sparsity", sparse={**SPARSE, "non_zeros": 25}), f"{{1}}: {INDICES} is damaged: {TOO_MANY}"),
        (0, of("sparsity", embedding=SPARSE), f"{{1}}: all rows of embedding {ORDER}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_records_that_contradict_each_other_or_their_sparse_weights_are_told(shards, tmp_path, node, change, message):
    sources = rejoined(tmp_path, change, node)
    kind = DamagedCheckpointError if "damaged" in message else StoreError
    with refusal(kind, message.format("", *shards), TOGETHER if "same run" in message else None):
        CommittedShards(sources)


def test_arrays_of_no_weight_that_is_here_are_told(shards, tmp_path):
    edit_record(shards[0], rows("layer.weight", [0, 1], [1, 6]))
    sources = rejoined(tmp_path, lambda document: document["values"][SHARD]["rows"].pop("layer.weight"))
    with refusal(StoreError, f"{shards[1]}: model.layer.weight {NOT_ITS_OWN}"):
        CommittedShards(sources)
    for node, path in enumerate(shards):
        edit_record(path, lambda document: document["links"].clear())
        edit_record(path, of(SHARD, weights=[*MODEL][1:]))
        edit_record(path, lambda document: document["values"][SHARD]["rows"].pop("embedding"))
        if node < 2:
            edit_record(path, rows("layer.weight", *([[5, 6], [0, 1]], [[1, 5]])[node]))
    with refusal(StoreError, f"{shards[0]}: model.embedding {NOT_ITS_OWN}"):
        CommittedShards(open_all(tmp_path / "model_dir", 3, 3))


def test_a_sparse_weight_is_one_row_of_numbers(tmp_path):
    model = {"a": like((2, 3)), "a.indices": like((2, 3))}
    dealt: Mapping[str, Sequence[Ranges]] = dict.fromkeys(model, [[(0, 2)], []])
    paths = write_shards(tmp_path, 1, model, dealt)
    sparsity = {"a": {"shape": [2, 3], "non_zeros": 2}}
    edit_record(paths[0], lambda document: document["values"].update(sparsity=sparsity))
    with refusal(DamagedCheckpointError, f"{paths[0]}: model.a is damaged: it must be one row of numbers"):
        open_checkpoint(paths[1])


# Damage.


@pytest.mark.parametrize(
    ("node", "name", "row"),
    [
        (0, "model.embedding", 1),
        (2, "optimizer.embedding.exp_avg_sq", 0),
        (0, "model.layer.weight", 1),
        (2, "optimizer.factored.columns", 5),
        (0, "model.sparse", 3),
        (0, "optimizer.sparse.exp_avg", 23),
        (0, "model.sparse.indices", 5),
    ],
)
def test_a_flipped_bit_is_found_by_whatever_reads_all(shards, tmp_path, node, name, row):
    flip(shards[node], name, row)
    message = f"{shards[node]}: {name} is damaged: the checksum of rows {row} to {row + 1} must be CRC, got CRC"
    with open_checkpoint(shards[1]) as state:
        for read in (state.verify_all, lambda: [*state.pieces(name)]):
            with damage(message, TAKE_OLDER):
                read()
    with pytest.raises(DamagedCheckpointError):
        copy_checkpoint(shards[1], tmp_path / "made.mdl")
    assert not (tmp_path / "made.mdl").exists()


def test_of_what_is_damaged_not_all_is_yielded(tmp_path):
    """However the extents lie: also where rows of one come from between those of another."""
    model = {"a": like((6,))}
    path = write_shards(tmp_path, 1, model, {"a": [[(4, 5), (0, 1), (2, 3)], [(1, 2), (3, 4), (5, 6)]]})[0]
    for row in range(3):
        flip(path, "model.a", row)
        with open_checkpoint(path) as state:
            seen: list[Array] = []
            with pytest.raises(DamagedCheckpointError):
                seen.extend(state.pieces("model.a"))
            assert sum(map(len, seen)) < 6
        flip(path, "model.a", row)
    open_checkpoint(path).verify_all()


@pytest.mark.parametrize("part", [0, 0.01, 0.5])
def test_a_shard_that_was_cut_short_is_told(shards, part):
    os.truncate(shards[2], int(part * shards[2].stat().st_size))
    with damage(f"{shards[2]}: the MemoryX file is damaged or cut short"):
        open_checkpoint(shards[0])
    # Nobody is kept from the others by that.
    StoreLock(lock_path(shards[0])).close()


def test_a_node_may_have_no_rows_at_all(tmp_path):
    model = {"a": like((2, 3))}
    paths = write_shards(tmp_path, 2, model, {"a": [[(0, 2)], [], []]})
    with open_checkpoint(paths[2]) as state:
        state.verify_all()
        assert state.read("model.a").tobytes() == expected(model, 2)["model.a"].tobytes()
    store = FileStore(paths[1], ROOM, adopt=True, at_step=1)
    store.commit({"global_step": 2}, {})
    store.close()
