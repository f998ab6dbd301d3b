"""A checkpoint may come from anywhere: nothing in it is followed, trusted or blown up."""

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cstool.foundation.errors import CheckpointError, DamagedCheckpointError
from cstool.training.store.checkpoint_format import DTYPES
from cstool.training.store.checkpoint_layout import read_layout
from tests.contract.refusal import refusal

EARLIER = "take an earlier checkpoint"
DATA = np.arange(6, dtype=np.float32)


def text(value: object) -> np.bytes_:
    return np.bytes_(json.dumps(value).encode())


def describe(dataset: h5py.Dataset) -> None:
    """Give a dataset the attributes of a tensor of its shape with the contents of `DATA`."""
    dataset.attrs["dtype"] = np.bytes_(dataset.dtype.name.encode())
    dataset.attrs["shape"] = text(dataset.shape)
    dataset.attrs["crc32"] = np.uint32(zlib.crc32(DATA.tobytes()))


def plain_tensor(h5: h5py.File) -> None:
    describe(h5.create_dataset("t", data=DATA))


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "a.mdl"


def write(path: Path, add: Callable[[h5py.File], object] = plain_tensor, **changes: object) -> Path:
    """Write a file with one tensor `t` by plain h5py, some attributes changed."""
    plain = {
        "__spec__": text(["t"]),
        "__version__": np.bytes_(b"1.0"),
        "__cstool_version__": np.bytes_(b"1.0.0"),
        "__SUCCESS__": True,
        "t.__metadata__": text({"kind": "tensor"}),
    }
    with h5py.File(path, "w") as h5:
        h5.attrs.update({name: value for name, value in (plain | changes).items() if value is not None})
        add(h5)
    return path


def layout_of(path: Path) -> object:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_layout(path, descriptor)
    finally:
        os.close(descriptor)


TEXT = "a key must be text without slashes, not only dots, got"
LINK = "is damaged: it must be a link to a tensor before it, got"
VERSION = "the version of the checkpoint format must be 1.0 or 1.1, got 0.5"
VENDOR = "versions 0.x are the vendor's own, which `cstool checkpoint convert` reads; others belong to another version "
VENDOR += "of cstool"
OTHER_KIND = "must be a checkpoint, this is an HDF5 file of another kind"
CUT_SHORT = "the checkpoint is damaged or cut short ({size_bytes} bytes)"


def tied(target: object, key: str = "t") -> dict[str, object]:
    return {f"{key}.__metadata__": text({"kind": "link", "target": target})}


KINDS = "t is damaged: its kind must be tensor, link or value, got pickle"


@pytest.mark.parametrize(
    ("changes", "rule", "hint"),
    [
        ({"__version__": None}, OTHER_KIND, "checkpoints of cstool are called checkpoint_{step}.mdl"),
        *(({"__version__": version}, VERSION, VENDOR) for version in (np.bytes_(b"0.5"), "0.5")),
        *(
            ({"__spec__": text([key])}, f"__spec__ is damaged: {TEXT} {key!r}", EARLIER)
            for key in ("t/t", "../t", "/", "a\0b", ".", "..", "")
        ),
        *(
            ({"__spec__": text([key])}, f"__spec__ is damaged: the key {key} is reserved by the format", EARLIER)
            for key in ("__spec__", "t.__metadata__")
        ),
        ({"__spec__": text(["t", "t"])}, "__spec__ is damaged: every key must be in it once", EARLIER),
        ({"t.__metadata__": text({"kind": "pickle"})}, KINDS, EARLIER),
        (tied("gone"), f"t {LINK} gone", EARLIER),
        ({"__spec__": text(["tied", "t"]), **tied("t", "tied")}, f"tied {LINK} t", EARLIER),
        *(
            ({"__spec__": spec}, CUT_SHORT, EARLIER)
            for spec in (None, *map(np.bytes_, (b"[", b"[" * 20_000)), text(["t", "missing"]), text([["t"]]), "as text")
        ),
        *((changes, CUT_SHORT, EARLIER) for changes in ({"t.__metadata__": text({})}, tied(["t"]))),
    ],
)
def test_what_no_writer_makes_is_refused(path, changes, rule, hint):
    write(path, **changes)
    kind = DamagedCheckpointError if hint == EARLIER and "{size" not in rule else CheckpointError
    with refusal(kind, f"{path}: {rule.replace('{size_bytes}', str(path.stat().st_size))}", hint):
        layout_of(path)


def test_a_whole_file_of_plain_h5py_is_a_checkpoint_half_of_one_is_refused(path):
    layout_of(write(path))
    with refusal(CheckpointError, f"Cannot load partially written checkpoint at {path}", EARLIER):
        layout_of(write(path, __SUCCESS__=None))


def _soft(h5: h5py.File) -> None:
    plain_tensor(h5)
    h5.move("t", "other")
    h5["t"] = h5py.SoftLink("/other")


def _external(h5: h5py.File, place: str = "t") -> None:
    with h5py.File(f"{h5.filename}.other", "w") as other:
        plain_tensor(other)
    h5["t"] = h5py.ExternalLink(f"{h5.filename}.other", place)


@pytest.mark.parametrize("name", ["t/t", "../t"])
def test_a_path_through_an_external_link_is_never_followed(path, name):
    write(path, lambda h5: _external(h5, "/"), **{"t.__metadata__": text({"kind": "value", "dataset": name})})
    with refusal(DamagedCheckpointError, f"{path}: {name} is damaged: {BEHIND_A_LINK}", EARLIER):
        layout_of(path)


def _virtual(h5: h5py.File) -> None:
    layout = h5py.VirtualLayout((6,), "float32")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (6,))
    describe(h5.create_virtual_dataset("t", layout))


def _described(*shape: int, **how: Any) -> Callable[[h5py.File], None]:
    return lambda h5: describe(h5.create_dataset("t", shape, **how))


def _mistaken(attribute: str) -> Callable[[h5py.File], None]:
    def add(h5: h5py.File) -> None:
        plain_tensor(h5)
        h5["t"].attrs[attribute] = text("other")

    return add


BEHIND_A_LINK, MISTAKEN = (
    "it must be in the file itself, not behind a link",
    "its dtype and shape must be those of its attributes",
)
NOT_PLAIN = "it must be contiguous, uncompressed and in the file itself"
DTYPE = f"its dtype must be one of {', '.join(DTYPES)} of this machine"
LAYOUTS: dict[str, tuple[Callable[[h5py.File], object], str]] = {
    "soft link": (_soft, BEHIND_A_LINK),
    "external link": (_external, BEHIND_A_LINK),
    "nothing": (lambda _: None, BEHIND_A_LINK),
    "group": (lambda h5: h5.create_group("t"), "it must be a dataset"),
    "virtual": (_virtual, NOT_PLAIN),
    "compressed": (_described(10**9, dtype="float32", chunks=(10**6,), compression="gzip"), NOT_PLAIN),
    "chunked": (_described(6, dtype="float32", chunks=(2,)), NOT_PLAIN),
    "outside": (_described(6, dtype="float32", external="/etc/passwd"), NOT_PLAIN),
    **{f"{dtype}": (_described(2, dtype=dtype), DTYPE) for dtype in ("complex64", ">f4", "S5", h5py.string_dtype())},
    **{f"another {attribute}": (_mistaken(attribute), MISTAKEN) for attribute in ("dtype", "shape")},
    "huge": (
        _described(10**12, dtype="float32"),
        f"its {4 * 10**12} bytes must lie in the file, which has {{size_bytes}}",
    ),
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_tensor_is_plain_bytes_in_the_file(path, kind):
    add, rule = LAYOUTS[kind]
    write(path, add)
    rule = rule.replace("{size_bytes}", str(path.stat().st_size))
    with refusal(CheckpointError, f"{path}: t is damaged: {rule}", EARLIER):
        layout_of(path)


def test_long_json_has_a_checksum(path):
    def add(h5: h5py.File) -> None:
        plain_tensor(h5)
        describe(h5.create_dataset("t.__metadata__", data=np.frombuffer(b'"x"', np.uint8)))

    changes = {"t.__metadata__": text({"kind": "value", "dataset": "t.__metadata__"})}
    crc32, got = zlib.crc32(DATA.tobytes()), zlib.crc32(b'"x"')
    message = f"{path}: t.__metadata__ is damaged: its checksum must be {crc32:08x}, got {got:08x}"
    with refusal(CheckpointError, message, EARLIER):
        layout_of(write(path, add, **changes))
