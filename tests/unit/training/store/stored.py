"""Small stores for the tests of what is durable."""

import json
import multiprocessing
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from cstool.training.store import CommittedStore, FileStore, Store
from cstool.training.store.file_layout import record_path

Array = np.ndarray[Any, Any]


def rows_of(store: Store, name: str) -> Array:
    out = np.empty(store.shape(name), store.dtype(name))
    store.read(name, 0, out)
    return out


def write_store(path: Path, steps: Sequence[int]) -> Path:
    """Write a file with a commit for each step: two arrays, of which only some rows change in a step."""
    path.parent.mkdir(exist_ok=True)
    store = FileStore(path, 2**20)
    store.create("model.weight", (6, 3))
    store.create("model.bias", (6,))
    for step in steps:
        for name in ("model.weight", "model.bias"):
            shape = (step, *store.shape(name)[1:])
            store.write(name, 0, np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + step)
        store.commit(
            {
                "global_step": step,
                "dataloader": {"batches_streamed": step, "batch_size": 2},
                "__metadata__": [{"version": "0.1.0", "model_name": "gpt2", "params": {"seed": 1}}],
            },
            {"model.tied": "model.weight"},
        )
    store.close()
    return path


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
