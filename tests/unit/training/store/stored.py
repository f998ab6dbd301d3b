"""Small MemoryX files, in one or in several shards by hand, with the same numbers after each step; and their damage."""

import json
import multiprocessing
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest

import cstool
from cstool.foundation.errors import DamagedCheckpointError
from cstool.training.store import (
    SHARD,
    SPARSITY,
    CheckpointWriter,
    CommittedStore,
    FileStore,
    ShardFound,
    Store,
    common_steps,
    shard_name,
    write_snapshot,
)
from cstool.training.store.file_layout import record_path
from cstool.training.store.shard_folder import sets_of

Array = np.ndarray[Any, Any]
Ranges = Sequence[tuple[int, int]]
ROOM = 2**20
IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""where waiting for the disk takes no time"""
SET = "0123456789abcdef"


class WeightOf(NamedTuple):
    shape: tuple[int, ...]
    states: Mapping[str, tuple[int, ...]] = {}
    """shapes of its optimizer state"""
    is_sparse: bool = False

    @property
    def room(self) -> int:
        """Numbers that there is room for, of a sparse one."""
        return self.shape[0] * self.shape[1] // 2


def like(shape: tuple[int, ...]) -> WeightOf:
    """A weight with two arrays of optimizer state of its shape."""
    return WeightOf(shape, {"exp_avg": shape, "exp_avg_sq": shape})


MODEL = {
    "embedding": like((7, 3)),
    "layer.bias": like((5,)),
    "layer.weight": like((6, 2, 2)),
    "factored": WeightOf((4, 6), {"rows": (4,), "columns": (6,)}),
    "sparse": WeightOf((6, 8), {"exp_avg": (6, 8)}, is_sparse=True),
}
DEALT: dict[str, list[Ranges]] = {
    "embedding": [[(4, 7)], [(0, 2)], [(2, 4)]],
    "layer.bias": [[], [(0, 5)], []],
    "layer.weight": [[(5, 6), (0, 1)], [(1, 5)], []],
    "factored": [[], [], [(0, 2), (2, 4)]],
    "sparse": [[(0, 6)], [], []],
}
"""by weight: the ranges of rows of each of three nodes"""
STORED = {"weight": WeightOf((6, 3)), "bias": WeightOf((6,))}
"""of a file that is no shard"""
LINKS = {"model.tied": "model.embedding"}

Model = Mapping[str, WeightOf]


def arrays_of(name: str, weight: WeightOf) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of a weight, in the order in which a run creates them."""
    shapes = {f"model.{name}": weight.shape, **{f"optimizer.{name}.{k}": v for k, v in weight.states.items()}}
    if not weight.is_sparse:
        return shapes
    return {**dict.fromkeys(shapes, (weight.room,)), f"model.{name}.indices": (weight.room,)}


def in_order_of_a_checkpoint(model: Model) -> list[str]:
    names = []
    for name, weight in model.items():
        found = [*arrays_of(name, weight)]
        names += [found[-1], *found[:-1]] if weight.is_sparse else found
    return names


def non_zeros(weight: WeightOf, step: int) -> int:
    return weight.room - step % 3


def numbers(array: str, shape: tuple[int, ...], step: int) -> Array:
    """An array after a step; some rows are still as they were after the step before it."""
    rng = np.random.default_rng([step, zlib.crc32(array.encode())])
    if array.endswith(".indices"):
        # By panels, of which each has an order of its own.
        half = shape[0] // 2
        return np.concatenate([rng.permutation(half), half + rng.permutation(shape[0] - half)]).astype(np.uint32)
    found = rng.random(shape, np.float32)
    if step > 1:
        stays = changed_rows(shape[0], step) == 0
        found[stays] = numbers(array, shape, step - 1)[stays]
    return found


def changed_rows(rows: int, step: int) -> Array:
    """Whether each row of an array changes in a step."""
    return (np.arange(rows) // 2 + step) % 2 if step > 1 else np.ones(rows, np.int64)


def values_of(model: Model, step: int) -> dict[str, Any]:
    """What a checkpoint says beside its tensors."""
    sparse = {
        name: {"shape": list(weight.shape), "algorithm": "static", "density": 0.5, "non_zeros": non_zeros(weight, step)}
        for name, weight in model.items()
        if weight.is_sparse
    }
    return {
        "global_step": step,
        "dataloader": {"batches_streamed": step, "batch_size": 2},
        **({SPARSITY: sparse} if sparse else {}),
        "__metadata__": [{"version": cstool.__version__, "model_name": "gpt2", "params": {"seed": 1}}],
    }


def own(array: Array, ranges: Ranges, rows: int) -> Array:
    """Rows of an array that lie in a shard; all of them where the shard has the whole weight."""
    if len(ranges) and [row for start, stop in ranges for row in range(start, stop)] == [*range(rows)]:
        return array
    return np.concatenate([array[:0], *(array[start:stop] for start, stop in ranges)])


def write_file(path, model, steps, ranges=None, values=None, rows_at_once=1):
    """Write a file with a commit for each step, 1, 2, ...; of some rows of each weight, if it is a shard."""
    held = {name: [(0, w.shape[0])] for name, w in model.items()} if ranges is None else ranges
    path.parent.mkdir(exist_ok=True)
    store = FileStore(path, ROOM)
    for step in steps:
        for name, weight in model.items():
            for array, shape in arrays_of(name, weight).items():
                if not len(held.get(name, ())):
                    continue
                rows = own(numbers(array, shape, step), held[name], weight.shape[0])
                changed = own(changed_rows(shape[0], step), held[name], weight.shape[0])
                if array not in store.names():
                    store.create(array, rows.shape, rows.dtype.name)
                    store.write(array, 0, rows)
                elif array.endswith(".indices"):
                    store.write(array, 0, rows)
                for row in np.flatnonzero(changed)[::rows_at_once].tolist():
                    store.write(array, row, rows[row : row + rows_at_once])
        links = {"model.tied": "model.weight"} if model is STORED else LINKS if "embedding" in model else {}
        store.commit({**values_of(model, step), **(values or {})}, links)
    store.close()
    return path


def write_store(path, steps):
    """Write a file with a commit for each step: two arrays, of which only some rows change in a step."""
    return write_file(path, STORED, steps, rows_at_once=2)


def shard_value(model, dealt, node, nodes, name=SET):
    """The value of a commit record that makes it one of a shard."""
    rows = {weight: [list(each) for each in found[node]] for weight, found in dealt.items() if len(found[node])}
    return {"set": name, "node": node, "nodes": nodes, "weights": [*model], "rows": rows}


def write_shards(folder, steps, model=MODEL, dealt=DEALT, name=SET):
    """Write the shards of a model, with commits of the steps 1 to `steps`, of each node or of all; return the files."""
    nodes = len(next(iter(dealt.values())))
    paths = []
    for node in range(nodes):
        last = steps if isinstance(steps, int) else steps[node]
        held = {weight: found[node] for weight, found in dealt.items()}
        shard = {SHARD: shard_value(model, dealt, node, nodes, name)}
        paths.append(write_file(folder / shard_name(node, nodes), model, range(1, last + 1), held, shard))
    return paths


def checkpoint_of_one_file(folder: Path, step: int, model: Model = MODEL) -> bytes:
    """The bytes of the checkpoint that a run with one file writes after a step."""
    file = write_file(folder / "one" / "memoryx.h5", model, range(1, step + 1))
    path = folder / "one" / "snapshot.mdl"
    write_snapshot(path, file, in_order_of_a_checkpoint(model))
    content = path.read_bytes()
    path.unlink()
    return content


def open_all(folder: Path, step: int, nodes: int) -> list[CommittedStore]:
    return [CommittedStore(folder / shard_name(node, nodes), at_step=step) for node in range(nodes)]


def newest_common_step(found: Sequence[ShardFound]) -> int | None:
    """Return the newest step that all shards of a set hold; None where there is none, or a shard is missing.

    Args:
        found: shards of one set; of several, the newest step of any counts
    """
    return max((step for shards in sets_of(found) for step in common_steps(shards)), default=None)


def write_state(
    path: Path, tensors: Mapping[str, Any] = {}, links: Mapping[str, str] = {}, values: Mapping[str, Any] = {}
) -> Path:
    """Write a checkpoint of tensors, then links to them, then values."""
    with CheckpointWriter(path) as writer:
        for key, array in ((key, np.asarray(numbers)) for key, numbers in tensors.items()):
            writer.add_tensor(key, array.shape, array.dtype.name, [array] if array.size else [])
        for key, target in links.items():
            writer.link(key, target)
        for key, value in values.items():
            writer.add_value(key, value)
    return path


def rows_of(store: Store, name: str) -> Array:
    out = np.empty(store.shape(name), store.dtype(name))
    store.read(name, 0, out)
    return out


def committed_arrays(path: Path, *, older: bool = False) -> dict[str, Array]:
    with CommittedStore(path, older=older) as reader:
        return {name: reader.read(name) for name in reader.tensor_names()}


def edit_record(path: Path, change: bytes | Callable[[dict[str, Any]], object]) -> None:
    """Change a commit record, or replace what is in it; the checksum is right afterwards."""
    text = record_path(path).read_bytes().partition(b"\n")[0]
    if isinstance(change, bytes):
        text = change
    else:
        document = json.loads(text)
        change(document)
        text = json.dumps(document).encode()
    record_path(path).write_bytes(text + b"\n%08x\n" % zlib.crc32(text))
    record_path(path).write_bytes(text + b"\n%08x\n" % zlib.crc32(text))


def flip(path: Path, name: str, row: int) -> None:
    """Change a number of the last commit of a file."""
    with CommittedStore(path) as state:
        extent = next(e for e in state.record.arrays[name] if e.start <= row < e.stop)
        offset = state._places[name][extent.slot].at(row)
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def without_digest(path: Path) -> Path:
    """Make of a checkpoint one of the version of the format that had no digest."""
    with h5py.File(path, "r+") as file:
        del file.attrs["__digest__"]
        file.attrs["__version__"] = np.bytes_(b"1.0")
    return path


def forked(work: Callable[[], object]) -> int | None:
    """Do something in a process of its own, and return its exit code, or below 0 the signal that ended it."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    return process.exitcode


@contextmanager
def damage(message: str, hint: str | None = None) -> Iterator[None]:
    """Expect damage to be told with this whole message, where any checksum, of 8 hex digits, is written as CRC."""
    with pytest.raises(DamagedCheckpointError) as caught:
        yield
    assert re.fullmatch(re.escape(message).replace("CRC", "[0-9a-f]{8}"), caught.value.message)
    assert caught.value.hint == hint
