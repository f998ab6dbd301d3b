"""A checkpoint may come from anywhere: nothing in it is followed, trusted or blown up."""

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from cstool.errors import CheckpointError, DamagedCheckpointError
from cstool.store.checkpoint_layout import read_layout
from cstool.store.contiguous import Place
from tests.contract.refusal import refusal

EARLIER = "take an earlier checkpoint"
DATA = np.arange(6, dtype=np.float32)


def attributes(**changes: object) -> dict[str, object]:
    """Return the attributes of a file with one tensor `t`."""
    plain: dict[str, object] = {
        "__spec__": np.bytes_(b'["t"]'),
        "__version__": np.bytes_(b"1.0"),
        "__cstool_version__": np.bytes_(b"0.1.0"),
        "__SUCCESS__": True,
        "t.__metadata__": np.bytes_(b'{"kind": "tensor"}'),
    }
    return {name: value for name, value in (plain | changes).items() if value is not None}


def describe(dataset: h5py.Dataset) -> None:
    """Give a dataset the attributes of a tensor of its shape with the contents of `DATA`."""
    dataset.attrs["dtype"] = np.bytes_(dataset.dtype.name.encode())
    dataset.attrs["shape"] = np.bytes_(json.dumps(dataset.shape).encode())
    dataset.attrs["crc32"] = np.uint32(zlib.crc32(DATA.tobytes()))


def plain_tensor(h5: h5py.File) -> None:
    describe(h5.create_dataset("t", data=DATA))


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "a.mdl"


def write(path: Path, add: Callable[[h5py.File], object] = plain_tensor, **changes: object) -> Path:
    """Write a file by plain h5py."""
    with h5py.File(path, "w") as h5:
        h5.attrs.update(attributes(**changes))
        add(h5)
    return path


def layout_of(path: Path) -> object:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_layout(path, descriptor)
    finally:
        os.close(descriptor)


def test_a_checkpoint_may_be_written_by_plain_h5py(path):
    layout_of(write(path))


@pytest.mark.parametrize(("shape", "sizes"), [((4, 3), (4, 24, 6)), ((), (1, 2, 2))])
def test_the_place_of_a_tensor_knows_its_sizes(shape, sizes):
    tensor = Place(shape, "float16", 0)
    assert (tensor.rows, tensor.nbytes, tensor.row_bytes) == sizes


def test_hdf5_of_another_kind_is_refused(path):
    message = f"{path}: must be a checkpoint, this is an HDF5 file of another kind"
    with refusal(CheckpointError, message, "checkpoints of cstool are called checkpoint_{step}.mdl"):
        layout_of(write(path, __version__=None))


@pytest.mark.parametrize("version", [np.bytes_(b"0.5"), "0.5"])
def test_another_version_of_the_format_is_refused(path, version):
    message = f"{path}: the version of the checkpoint format must be 1.0 or 1.1, got 0.5"
    hint = (
        "versions 0.x are the vendor's own, which `cstool checkpoint convert` reads; others belong to another version "
        "of cstool"
    )
    with refusal(CheckpointError, message, hint):
        layout_of(write(path, __version__=version))


def test_a_file_without_the_mark_of_success_is_refused(path):
    with refusal(CheckpointError, f"Cannot load partially written checkpoint at {path}", EARLIER):
        layout_of(write(path, __SUCCESS__=None))


@pytest.mark.parametrize(
    "changes",
    [
        {"__spec__": None},
        {"__spec__": np.bytes_(b"[")},
        {"__spec__": np.bytes_(b"[" * 20_000)},
        {"__spec__": np.bytes_(b'["t", "missing"]')},
        {"__spec__": np.bytes_(b'[["t"]]')},
        {"__spec__": "text of variable length"},
        {"t.__metadata__": np.bytes_(b"{}")},
        {"t.__metadata__": np.bytes_(b'{"kind": "link", "target": ["t"]}')},
    ],
)
def test_descriptions_that_make_no_sense_are_refused(path, changes):
    write(path, **changes)
    size_bytes = path.stat().st_size
    with refusal(CheckpointError, f"{path}: the checkpoint is damaged or cut short ({size_bytes} bytes)", EARLIER):
        layout_of(path)


def _soft(h5: h5py.File) -> None:
    plain_tensor(h5)
    h5.move("t", "other")
    h5["t"] = h5py.SoftLink("/other")


def _external(h5: h5py.File) -> None:
    with h5py.File(f"{h5.filename}.other", "w") as other:
        plain_tensor(other)
    h5["t"] = h5py.ExternalLink(f"{h5.filename}.other", "t")


@pytest.mark.parametrize("add", [_soft, _external, lambda _: None])
def test_links_of_hdf5_are_never_followed(path, add):
    message = f"{path}: t is damaged: it must be in the file itself, not behind a link"
    with refusal(CheckpointError, message, EARLIER):
        layout_of(write(path, add))


@pytest.mark.parametrize("metadata", [b'{"kind": "value", "dataset": "t/t"}', b'{"kind": "value", "dataset": "../t"}'])
def test_a_path_through_an_external_link_is_never_followed(path, metadata):
    def add(h5: h5py.File) -> None:
        with h5py.File(f"{h5.filename}.other", "w") as other:
            plain_tensor(other)
        h5["t"] = h5py.ExternalLink(f"{h5.filename}.other", "/")

    name = json.loads(metadata)["dataset"]
    message = f"{path}: {name} is damaged: it must be in the file itself, not behind a link"
    with refusal(DamagedCheckpointError, message, EARLIER):
        layout_of(write(path, add, **{"t.__metadata__": np.bytes_(metadata)}))


@pytest.mark.parametrize(
    ("key", "rule"),
    [
        ("t/t", "a key must be text without slashes, not only dots, got 't/t'"),
        ("../t", "a key must be text without slashes, not only dots, got '../t'"),
        ("..", "a key must be text without slashes, not only dots, got '..'"),
        ("", "a key must be text without slashes, not only dots, got ''"),
        ("__spec__", "the key __spec__ is reserved by the format"),
        ("t.__metadata__", "the key t.__metadata__ is reserved by the format"),
    ],
)
def test_a_key_that_no_writer_takes_is_refused(path, key, rule):
    with refusal(DamagedCheckpointError, f"{path}: __spec__ is damaged: {rule}", EARLIER):
        layout_of(write(path, __spec__=np.bytes_(json.dumps([key]).encode())))


def test_a_key_that_is_there_twice_is_refused(path):
    with refusal(DamagedCheckpointError, f"{path}: __spec__ is damaged: every key must be in it once", EARLIER):
        layout_of(write(path, __spec__=np.bytes_(b'["t", "t"]')))


def test_a_group_is_no_tensor(path):
    with refusal(CheckpointError, f"{path}: t is damaged: it must be a dataset", EARLIER):
        layout_of(write(path, lambda h5: h5.create_group("t")))


def _virtual(h5: h5py.File) -> None:
    layout = h5py.VirtualLayout((6,), "float32")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (6,))
    describe(h5.create_virtual_dataset("t", layout))


def _compressed(h5: h5py.File) -> None:
    describe(h5.create_dataset("t", (10**9,), "float32", chunks=(10**6,), compression="gzip"))


def _chunked(h5: h5py.File) -> None:
    describe(h5.create_dataset("t", data=DATA, chunks=(2,)))


def _outside(h5: h5py.File) -> None:
    describe(h5.create_dataset("t", (6,), "float32", external="/etc/passwd"))


@pytest.mark.parametrize("add", [_virtual, _compressed, _chunked, _outside])
def test_a_tensor_is_plain_bytes_in_the_file(path, add):
    message = f"{path}: t is damaged: it must be contiguous, uncompressed and in the file itself"
    with refusal(CheckpointError, message, EARLIER):
        layout_of(write(path, add))


@pytest.mark.parametrize("dtype", ["complex64", ">f4", "S5", h5py.string_dtype()])
def test_a_tensor_has_a_dtype_of_the_format(path, dtype):
    message = (
        f"{path}: t is damaged: its dtype must be one of bool, float16, float32, float64, int8, int16, int32, int64, "
        "uint8, uint16, uint32, uint64 of this machine"
    )
    with refusal(CheckpointError, message, EARLIER):
        layout_of(write(path, lambda h5: describe(h5.create_dataset("t", (2,), dtype))))


@pytest.mark.parametrize("attribute", ["dtype", "shape"])
def test_a_tensor_is_what_its_attributes_say(path, attribute):
    def add(h5: h5py.File) -> None:
        plain_tensor(h5)
        h5["t"].attrs[attribute] = np.bytes_(b'"other"')

    message = f"{path}: t is damaged: its dtype and shape must be those of its attributes"
    with refusal(CheckpointError, message, EARLIER):
        layout_of(write(path, add))


def test_a_tensor_larger_than_the_file_is_refused(path):
    write(path, lambda h5: describe(h5.create_dataset("t", (10**12,), "float32")))
    size_bytes = path.stat().st_size
    message = f"{path}: t is damaged: its 4000000000000 bytes must lie in the file, which has {size_bytes}"
    with refusal(CheckpointError, message, EARLIER):
        layout_of(path)


def test_an_unknown_kind_is_refused(path):
    message = f"{path}: t is damaged: its kind must be tensor, link or value, got pickle"
    with refusal(CheckpointError, message, EARLIER):
        layout_of(write(path, **{"t.__metadata__": np.bytes_(b'{"kind": "pickle"}')}))


def test_a_link_to_nothing_is_refused(path):
    message = f"{path}: t is damaged: it must be a link to a tensor before it, got gone"
    with refusal(CheckpointError, message, EARLIER):
        layout_of(write(path, **{"t.__metadata__": np.bytes_(b'{"kind": "link", "target": "gone"}')}))


def test_a_link_to_a_tensor_after_it_is_refused(path):
    changes = {
        "__spec__": np.bytes_(b'["tied", "t"]'),
        "tied.__metadata__": np.bytes_(b'{"kind": "link", "target": "t"}'),
    }
    message = f"{path}: tied is damaged: it must be a link to a tensor before it, got t"
    with refusal(DamagedCheckpointError, message, EARLIER):
        layout_of(write(path, **changes))


def test_long_json_has_a_checksum(path):
    def add(h5: h5py.File) -> None:
        plain_tensor(h5)
        describe(h5.create_dataset("t.__metadata__", data=np.frombuffer(b'"x"', np.uint8)))

    changes = {"t.__metadata__": np.bytes_(b'{"kind": "value", "dataset": "t.__metadata__"}')}
    crc32, got = zlib.crc32(DATA.tobytes()), zlib.crc32(b'"x"')
    message = f"{path}: t.__metadata__ is damaged: its checksum must be {crc32:08x}, got {got:08x}"
    with refusal(CheckpointError, message, EARLIER):
        layout_of(write(path, add, **changes))
