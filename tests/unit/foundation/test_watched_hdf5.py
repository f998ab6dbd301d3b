"""HDF5 files that are damaged where HDF5 itself would go round for ever: an error, whoever reads them."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from cstool.convert.vendor_reader import VendorReader, is_vendor_checkpoint
from cstool.foundation.errors import CstoolError
from cstool.foundation.watched_hdf5 import open_watched
from cstool.training.data.hdf5_rows import dataset_in, inspected
from cstool.training.store.checkpoint_opening import open_checkpoint
from cstool.training.store.file_layout import is_store

NOT_WITHIN = "an object of a global heap must end behind its begin, within the heap"
NOT_ONCE = "a free block of a local heap must be in its list once"
OUTSIDE = "what is in a file must lie within it"
HEAPS = {"objects": b"GCOL", "blocks": b"HEAP"}


@pytest.fixture
def path(tmp_path) -> Path:
    """A file with texts in a global heap and names in a local one: a checkpoint of the vendor's, and a data set."""
    with h5py.File(tmp_path / "x.mdl", "w") as h5:
        h5.attrs["__version__"] = np.float64(0.5)
        h5.attrs["__SUCCESS__"] = True
        h5.attrs["w.__metadata__"] = "{}"
        h5.attrs["kind"] = "a text of any length"
        h5["data"] = np.zeros((2, 3, 4), np.int32)
    return tmp_path / "x.mdl"


def damage(path: Path, kind: str, number: int | None = None) -> None:
    """Spoil a heap: an object without an end, or of another size; a free block that is its own next, or elsewhere."""
    content = bytearray(path.read_bytes())
    place = content.index(HEAPS[kind])
    if kind == "objects":
        content[place + 16 : place + 32] = bytes(8) + (number or 0).to_bytes(8, "little")
    else:
        block, values = (int.from_bytes(content[place + at : place + at + 8], "little") for at in (16, 24))
        content[values + block : values + block + 8] = block.to_bytes(8, "little")
        if number is not None:
            content[place + 24 : place + 32] = number.to_bytes(8, "little")
    path.write_bytes(content)


def error_of(function: Callable[..., object], path: Path, *others: object) -> str:
    with pytest.raises(CstoolError) as raised:
        function(path, *others)
    return str(raised.value).replace(str(path.parent), "DIR")


def look(path: Path, at: Callable[[h5py.File], object]) -> None:
    with inspected(path) as file:
        at(file)


def walk(path: Path) -> None:
    with open_watched(path) as file:
        for name in file.attrs:
            file.attrs[name]
        for name in file:
            file[name][:]


def test_a_file_is_read_as_h5py_reads_it(path):
    with open_watched(path) as file, h5py.File(path) as own:
        assert dict(file.attrs) == dict(own.attrs)
        assert np.array_equal(file["data"], own["data"])
    behind = path.with_name("behind.h5")
    with h5py.File(behind, "w", userblock_size=1024) as h5:
        h5.attrs["a"] = "text"
    walk(behind)


@pytest.mark.parametrize(
    ("kind", "number", "message"),
    [
        ("objects", None, NOT_WITHIN),
        ("objects", 2**63, NOT_WITHIN),
        ("blocks", None, NOT_ONCE),
        ("blocks", 2**63, OUTSIDE),
    ],
)
def test_what_would_have_hdf5_go_round_is_an_error(path, kind, number, message):
    damage(path, kind, number)
    with pytest.raises(OSError, match=f"^{re.escape(message)}$"):
        walk(path)


DAMAGED = "DIR/x.mdl: the checkpoint is damaged or cut short"
NO_WHOLE_FILE = "DIR/x.mdl: must be a whole HDF5 file, got a truncated or damaged one\nhint: make or copy it again"


def test_each_reader_says_that_the_file_is_damaged(path):
    whole = path.read_bytes()
    damage(path, "objects")
    assert is_vendor_checkpoint(path)
    assert error_of(VendorReader, path) == f"{DAMAGED}\nhint: take an earlier checkpoint"
    assert not is_store(path)
    assert error_of(look, path, lambda file: file.attrs["kind"]) == NO_WHOLE_FILE
    with h5py.File(path, "w") as h5:
        h5.attrs["__version__"] = "1.1"
    size = path.stat().st_size
    damage(path, "objects")
    assert error_of(open_checkpoint, path) == f"{DAMAGED} ({size} bytes)\nhint: take an earlier checkpoint"
    path.write_bytes(whole)
    damage(path, "blocks")
    assert error_of(VendorReader, path) == f"{DAMAGED}\nhint: take an earlier checkpoint"
    assert error_of(look, path, lambda file: dataset_in(path, file, "data", "x")) == NO_WHOLE_FILE


def test_no_number_in_a_heap_has_hdf5_go_round(path):
    whole, chance = path.read_bytes(), random.Random(1)
    for head in HEAPS.values():
        first = whole.index(head)
        for place in range(first, first + 160, 8):
            number = chance.choice([0, 1, 8, 16, 2**32, 2**63, 2**64 - 16, 2**64 - 1])
            path.write_bytes(whole[:place] + number.to_bytes(8, "little") + whole[place + 8 :])
            for read in (walk, is_vendor_checkpoint):
                try:
                    read(path)
                except (OSError, RuntimeError, KeyError):
                    continue
