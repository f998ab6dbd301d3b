"""A MemoryX file or a commit record that is not what it was is found, whatever happened to it, and never loaded."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given

from cstool.foundation.errors import CheckpointError, DamagedCheckpointError, StoreError
from cstool.training.store import CommittedStore, FileStore, committed_step, copy_checkpoint
from cstool.training.store.commit_record import read_record
from cstool.training.store.file_layout import TAKE_OLDER, record_path
from tests.contract.refusal import refusal
from tests.examples import examples
from tests.unit.training.store.stored import Array, committed_arrays, damage, edit_record, flip, write_store

CUT_SHORT = "the commit record is damaged or cut short"
FILE_CUT_SHORT = "the MemoryX file is damaged or cut short"
OTHER_KIND = "must be a MemoryX file, this is an HDF5 file of another kind"
ELSEWHERE = "it was written on another kind of machine"
VERSION = "the version of the MemoryX file must be 1, got 2"
ANOTHER_KIND = "must be a commit record of a cstool MemoryX file, version 1, this is of another kind or version"
EXAMPLES = examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """A file with two commits, of steps 3 and 4, which nobody changes."""
    return write_store(tmp_path_factory.mktemp("kept") / "memoryx.h5", steps=(3, 4))


@pytest.fixture
def path(tmp_path, kept) -> Path:
    for file in (kept, record_path(kept)):
        shutil.copy(file, tmp_path)
    return tmp_path / kept.name


def restore(path: Path, kept: Path) -> tuple[bytearray, bytearray]:
    """Bring both files back, and return what is in them."""
    for file in (kept, record_path(kept)):
        shutil.copy(file, path.parent)
    return bytearray(kept.read_bytes()), bytearray(record_path(kept).read_bytes())


def adopt(path: Path) -> dict[str, Array]:
    """Read all of the last commit as a run does that goes on from it."""
    store = FileStore(path, 2**20, adopt=True)
    try:
        store.verify()
        return {name: store.committed_rows(name, 6) for name in store.record.arrays}
    finally:
        store.close()


def read(path: Path) -> dict[str, Array]:
    """Read all of the last commit as a command does."""
    with CommittedStore(path) as reader:
        reader.verify_all()
        return {name: reader.read(name) for name in reader.tensor_names()}


@pytest.fixture(params=[adopt, read])
def reader(request) -> Callable[[Path], dict[str, Array]]:
    found: Callable[[Path], dict[str, Array]] = request.param
    return found


@EXAMPLES
@given(data=st.data())
def test_a_flipped_bit_of_a_committed_array_is_found(path, kept, reader, data):
    content, _ = restore(path, kept)
    with CommittedStore(path) as found:
        name = data.draw(st.sampled_from(found.tensor_names()))
        extent = data.draw(st.sampled_from(found.record.arrays[name]))
        place = found._places[name][extent.slot]
    row_bytes = place.nbytes // place.shape[0]
    offset = data.draw(st.integers(extent.start * row_bytes, extent.stop * row_bytes - 1)) + place.offset
    content[offset] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    rule = f"the checksum of rows {extent.start} to {extent.stop} must be {extent.crc32:08x}, got CRC"
    with damage(f"{path}: {name} is damaged: {rule}", TAKE_OLDER):
        reader(path)


def test_arrays_that_were_exchanged_are_found(path, reader):
    with h5py.File(path, "r+") as file:
        for old, new in (("slot_0", "aside"), ("slot_1", "slot_0"), ("aside", "slot_1")):
            file.move(old, new)
    message = f"{path}: model.weight is damaged: the checksum of rows 0 to 2 must be CRC, got CRC"
    with damage(message, TAKE_OLDER):
        reader(path)


@EXAMPLES
@given(data=st.data())
def test_a_flipped_bit_anywhere_is_found_or_does_not_matter(path, kept, reader, data):
    content, _ = restore(path, kept)
    where = st.integers(0, len(content) - 1)
    content[data.draw(where)] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        found = reader(path)
    except CheckpointError:
        return
    wanted = committed_arrays(kept)
    assert {n: a.tobytes() for n, a in found.items()} == {n: a.tobytes() for n, a in wanted.items()}


@EXAMPLES
@given(data=st.data())
def test_a_file_that_was_cut_short_is_found(path, kept, reader, data):
    content, _ = restore(path, kept)
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with refusal(DamagedCheckpointError, f"{path}: {FILE_CUT_SHORT}"):
        reader(path)


@EXAMPLES
@given(data=st.data())
def test_a_record_that_was_cut_short_or_changed_is_found(path, kept, reader, data):
    _, record = restore(path, kept)
    match data.draw(st.sampled_from(["cut", "flip", "longer", "torn"])):
        case "cut":
            del record[data.draw(st.integers(0, len(record) - 1)) :]
        case "flip":
            record[data.draw(st.integers(0, len(record) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        case "longer":
            record += data.draw(st.binary(min_size=1, max_size=20))
        case _:
            end = data.draw(st.integers(1, len(record)))
            record[-end:] = bytes(end)
    record_path(path).write_bytes(record)
    for read_it in (reader, committed_step):
        with refusal(DamagedCheckpointError, f"{record_path(path)}: {CUT_SHORT}"):
            read_it(path)


@pytest.mark.parametrize("swapped", ["file", "record"])
def test_the_files_of_two_runs_do_not_belong_together(path, tmp_path, reader, swapped):
    other = write_store(tmp_path / "other" / "memoryx.h5", steps=(3, 4))
    identities = [read_record(record_path(path)).identity for path in (path, other)]
    if swapped == "file":
        shutil.copy(other, path)
    else:
        shutil.copy(record_path(other), record_path(path))
        identities.reverse()
    message = f"{path}: the identity of the MemoryX file must be {identities[0]}, got {identities[1]}"
    hint = "the file and its commit record are of different runs: bring back what belongs together, or cstool "
    with refusal(StoreError, message, f"{hint}checkpoint delete {path} drops what is there"):
        reader(path)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


MISSING = "must be there, as its commit record is, found nothing"
BRING = "bring it back, or cstool checkpoint delete {path} drops what is there"


@pytest.mark.parametrize(
    ("spoil", "rule", "hint"),
    [
        (Path.unlink, MISSING, BRING),
        (lambda path: record_path(path).unlink(), "the MemoryX file must have been committed, it has not", None),
        (pipe, "the MemoryX file must be a regular file, this is not one", None),
    ],
    ids=["gone", "without a record", "a pipe, which keeps nobody waiting"],
)
def test_a_file_must_be_there_with_its_record(path, reader, spoil, rule, hint):
    spoil(path)
    with refusal(StoreError, f"{path}: {rule}", hint and hint.format(path=path)):
        reader(path)


def test_where_the_last_commit_is_damaged_the_one_before_it_is_copied(path, kept, tmp_path):
    flip(path, "model.weight", 2)
    with pytest.raises(DamagedCheckpointError):
        copy_checkpoint(path, tmp_path)
    assert not [*tmp_path.glob("*.mdl*")]
    assert copy_checkpoint(path, tmp_path, older=True) == tmp_path / "checkpoint_3.mdl"


@pytest.mark.parametrize(
    ("extents", "rule"),
    [
        ([[1, 6, 0, 7]], " in order, it does not at row 0"),
        ([[0, 2, 0, 7], [3, 6, 0, 7]], " in order, it does not at row 2"),
        ([[0, 2, 0, 7], [1, 6, 0, 7]], " in order, it does not at row 2"),
        ([[0, 6, 2, 7]], " in order, it does not at row 0"),
        ([[0, 6, -1, 7]], " in order, it does not at row 0"),
        ([[0, 3, 0, 7]], ", it ends at 3"),
        ([[0, 10**18, 0, 7]], ", it ends at 1000000000000000000"),
        ([], ", it ends at 0"),
    ],
)
def test_a_record_names_all_rows_of_an_array(path, reader, extents, rule):
    edit_record(path, lambda record: record["arrays"].update({"model.weight": extents}))
    message = f"{path}: model.weight is damaged: the commit record must name all of its rows{rule}"
    with refusal(DamagedCheckpointError, message):
        reader(path)


def renamed(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda r: r["arrays"].update({name: r["arrays"].pop("model.weight")})


NAMES = ("../model.weight", "/model.weight", "/slot_1/model.weight", ".", "", "a\0b", "..", "model.tied")
CHANGES: dict[str, bytes | Callable[[dict[str, Any]], object]] = {
    **{f"array that is called {name!r}": renamed(name) for name in NAMES},
    **{f"{content[:9]!r}": content for content in (b"[" * 10**6, b"null", b"1", b'"x"', b"{}")},
    "of another version": lambda r: r.update(kind="commit record of a cstool MemoryX file, version 2"),
    "without a step": lambda r: r["values"].pop("global_step"),
    "step that is no count": lambda r: r["values"].update(global_step=-1),
    "step that is true": lambda r: r["values"].update(global_step=True),
    "link to nothing": lambda r: r["links"].update({"model.tied": "model.gone"}),
    "link that leaves": lambda r: r["links"].update({"../x": "model.weight"}),
    "value that leaves": lambda r: r["values"].update({"../x": 1}),
    "key twice": lambda r: r["values"].update({"model.weight": 1}),
    "links that are a list": lambda r: r.update(links=["model.tied"]),
    "values that are a number": lambda r: r.update(values=4),
    "arrays that are text": lambda r: r.update(arrays="model.weight"),
    "extent too short": lambda r: r["arrays"].update({"model.weight": [[0, 6, 0]]}),
    "extent without checksum": lambda r: r["arrays"].update({"model.weight": [[0, 6, 0, None]]}),
    "extent without end": lambda r: r["arrays"].update({"model.weight": [[0, float("inf"), 0, 7]]}),
    "sparsity that is a list": lambda r: r["values"].update(sparsity=[]),
    "sparsity without counts": lambda r: r["values"].update(sparsity={"weight": {}}),
    "older that is a list": lambda r: r.update(older=[1]),
    "without older": lambda r: r.pop("older"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_record_of_another_kind_is_refused(path, what):
    edit_record(path, CHANGES[what])
    for reader in (adopt, read, committed_step):
        with refusal(DamagedCheckpointError, f"{record_path(path)}: {ANOTHER_KIND}"):
            reader(path)


@pytest.mark.parametrize(
    ("count", "rule"),
    [
        (7, "model.bias is damaged: 7 numbers must lie in it, it has room for 6"),
        (-1, "model.bias is damaged: -1 numbers must lie in it, it has room for 6"),
        (2, "model.bias.indices is damaged: it must be one row of numbers"),
    ],
)
def test_a_sparse_weight_has_room_for_its_numbers_and_positions(path, count, rule):
    edit_record(path, lambda r: r["values"].update(sparsity={"bias": {"shape": [2, 4], "non_zeros": count}}))
    with refusal(DamagedCheckpointError, f"{path}: {rule}"):
        read(path)


@pytest.mark.parametrize(
    ("what", "rule"),  # what else it may not be is `test_checkpoint_layout`'s
    [
        (h5py.ExternalLink("o.h5", "/x"), "it must be in the file itself, not behind a link"),
        ({"shape": (6, 3), "chunks": (2, 3)}, "it must be contiguous, uncompressed and in the file itself"),
        ({"data": np.zeros((6, 2))}, "its two slots must be alike"),
    ],
    ids=["external link", "chunked", "other shape"],
)
def test_an_array_is_plain_bytes_in_the_file(path, reader, what, rule):
    with h5py.File(path, "r+") as h5:
        del h5["slot_1"]["model.weight"]
        if isinstance(what, dict):
            h5["slot_1"].create_dataset("model.weight", dtype="f4", **what)
        else:
            h5["slot_1"]["model.weight"] = what
    with refusal(DamagedCheckpointError, f"{path}: model.weight is damaged: {rule}"):
        reader(path)


@pytest.mark.parametrize(
    "make",
    [
        lambda h5: h5.__setitem__("slot_1", h5py.ExternalLink("other.h5", "/")),
        lambda h5: h5.__setitem__("slot_1", h5py.SoftLink("/slot_0")),
        lambda h5: h5.create_dataset("slot_1", data=[1]),
        lambda h5: None,
    ],
)
def test_the_slots_are_groups_of_the_file(path, reader, make):
    with h5py.File(path, "r+") as h5:
        del h5["slot_1"]
        make(h5)
    with refusal(DamagedCheckpointError, f"{path}: {FILE_CUT_SHORT}"):
        reader(path)


def test_two_slots_do_not_share_bytes(path):
    with h5py.File(path, "r+") as h5:
        del h5["slot_1"]["model.weight"]
        h5["slot_1"]["model.weight"] = h5["slot_0"]["model.weight"]
    with refusal(DamagedCheckpointError, f"{path}: model.weight is damaged: it must not share bytes with model.weight"):
        adopt(path)


@pytest.mark.parametrize(
    ("key", "value", "rule", "hint"),
    [
        ("version", b"2", VERSION, "it belongs to another version of cstool"),
        ("byteorder", b"big", "the byteorder of the MemoryX file must be little, got big", ELSEWHERE),
        ("slots", b"1", "the slots of the MemoryX file must be 2, got 1", None),
        *(("kind", kind, OTHER_KIND, None) for kind in (None, b"another")),
        *(("identity", each, FILE_CUT_SHORT, None) for each in (np.zeros(4), b"x" * 300, "a text", np.int64(1))),
    ],
)
def test_a_file_is_of_this_kind_version_and_machine(path, key, value, rule, hint):
    with h5py.File(path, "r+") as h5:
        del h5.attrs[key]
        if value is not None:
            h5.attrs[key] = np.bytes_(value) if isinstance(value, bytes) else value
    kind = DamagedCheckpointError if "damaged" in rule else StoreError
    with refusal(kind, f"{path}: {rule}", hint):
        adopt(path)


@pytest.mark.parametrize("make", [pipe, lambda path: os.truncate(path, 2**40)], ids=["pipe", "without end"])
def test_a_record_that_cannot_be_read_to_its_end_keeps_nobody_waiting(path, make):
    make(record_path(path))
    for reads in (adopt, read, committed_step):
        with refusal(DamagedCheckpointError, f"{record_path(path)}: {CUT_SHORT}"):
            reads(path)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("memoryx.h5", FILE_CUT_SHORT),
        ("memoryx.h5.commit", "cannot be read, got: Too many levels of symbolic links"),
        ("memoryx.h5.lock", "cannot be locked, got: Too many levels of symbolic links"),
    ],
)
def test_links_that_go_in_circles_are_not_followed(path, name, rule):
    file = path.with_name(name)
    file.unlink(missing_ok=True)
    file.symlink_to(name)
    with pytest.raises(CheckpointError) as caught:
        adopt(path)
    assert caught.value.message == f"{file}: {rule}"
