"""safetensors files: what the library of that name writes is read, what is written it reads, what is bad is refused."""

import json
import os
import struct
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from cstool.convert.safetensors_reader import SafetensorsReader
from cstool.convert.safetensors_writer import SafetensorsWriter
from cstool.foundation.errors import CheckpointError
from tests.contract.refusal import refusal
from tests.reference.hf_models import write_hf, write_raw, write_safetensors

Array = np.ndarray
AGAIN = "get or write the file anew"
DTYPES = "BOOL, U8, I8, F8_E4M3, F8_E5M2, U16, I16, F16, BF16, U32, I32, F32, U64, I64, F64"


def tensors(kind: Any = np.float32) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {"b": (5, 3), "a": (4,), "c.d": (2, 3, 4), "empty": (0, 7)}
    return {name: rng.standard_normal(shape).astype(kind) for name, shape in shapes.items()}


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_what_the_library_writes_is_read(tmp_path, kind):
    expected = tensors(kind)
    safetensors.numpy.save_file(expected, tmp_path / "a.safetensors", metadata={"format": "pt"})
    reader = SafetensorsReader(tmp_path / "a.safetensors")
    assert sorted(reader.names()) == sorted(expected)
    for name, tensor in expected.items():
        reader.check_dtype(name)
        found = reader.rows(name, 0, len(tensor))
        assert (reader.shape(name), found.dtype) == (tensor.shape, np.float32)
        np.testing.assert_array_equal(found, tensor.astype(np.float32))
    reader.close()
    reader.close()


def test_what_is_written_the_library_reads(tmp_path):
    expected = tensors()
    with SafetensorsWriter(tmp_path / "a", {name: tensor.shape for name, tensor in expected.items()}) as writer:
        writer.write_rows("a", 0, expected["a"])
        writer.write_columns("b", 1, expected["b"][:, 1:])
        writer.write_rows("c.d", 1, expected["c.d"][1:])
        writer.write_columns("b", 0, expected["b"][:, :1])
        writer.write_rows("c.d", 0, expected["c.d"][:1])
    found = safetensors.numpy.load_file(tmp_path / "a")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor)
    with safetensors.safe_open(tmp_path / "a", "numpy") as file:
        assert file.metadata() == {"format": "pt"}


@given(st.integers(0, 5), st.integers(0, 5), st.sampled_from(["F32", "F16", "BF16"]))
def test_ranges_are_parts_of_the_whole(tmp_path_factory, a, b, kind):
    start, stop = sorted((a, b))
    whole = np.arange(25, dtype=np.float32).reshape(5, 5) - 7
    bits = (whole.view(np.uint32) >> 16).astype(np.uint16)
    stored = {"F32": ("F32", whole), "F16": ("F16", whole.astype(np.float16)), "BF16": ("BF16", bits)}[kind]
    path = tmp_path_factory.mktemp("ranges") / "a.safetensors"
    write_safetensors(path, {"before": np.ones(3, np.float32), "x": stored})
    with SafetensorsReader(path) as reader:
        np.testing.assert_array_equal(reader.rows("x", start, stop), whole[start:stop])
        np.testing.assert_array_equal(reader.columns("x", start, stop), whole[:, start:stop])


def header_of(**entries: Any) -> bytes:
    return json.dumps(entries).encode()


def entry(dtype: Any = "F32", shape: Any = (4,), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


LIE = "x is damaged: its data must lie in the file, whose 16 bytes of data end before"
HAVE = "x is damaged: its data must have the"
BEGIN, LAST = "is damaged: its data must begin at", "where the last one's end"
COUNTS = "x is damaged: its shape, of few dimensions, and its data_offsets must be counts"
PARTS = "x is damaged: it must have dtype, shape and data_offsets"
ONCE = "its header must be JSON, each name once"
TWICE = b'{"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, "x": {"dtype": "F32"}}'


@pytest.mark.parametrize(
    ("header", "data_bytes", "message"),
    [
        (header_of(x=entry(offsets=(0, 32), shape=(8,))), 16, f"{LIE} 32"),
        (header_of(x=entry(offsets=(2**62, 2**62 + 16))), 16, f"{LIE} {2**62 + 16}"),
        (header_of(x=entry(offsets=(16, 0))), 16, f"{LIE} 0"),
        (header_of(x=entry(shape=(2**40, 2**40))), 16, f"{HAVE} {4 * 2**80} bytes of its shape, got 16"),
        (header_of(x=entry(shape=(3,))), 16, f"{HAVE} 12 bytes of its shape, got 16"),
        (header_of(x=entry(), y=entry(offsets=(8, 24))), 24, f"y {BEGIN} 16, {LAST}, got 8"),
        (header_of(x=entry(offsets=(16, 32))), 32, f"x {BEGIN} 0, {LAST}, got 16"),
        (header_of(x=entry()), 24, "must end where its last tensor does, got 8 more"),
        (header_of(x=entry(dtype="F4")), 16, f"x is damaged: its dtype must be one of {DTYPES}, got F4"),
        (header_of(x=entry(dtype=7)), 16, PARTS),
        (header_of(x=[1]), 16, PARTS),
        (header_of(x=entry(shape=(-4,))), 16, COUNTS),
        (header_of(x=entry(shape=(True, 4))), 16, COUNTS),
        (header_of(x=entry(shape=[1] * 9 + [4])), 16, COUNTS),
        (TWICE, 16, f"{ONCE}, got x twice"),
        *((header, 0, ONCE) for header in (b"[1]", b"{", b"[" * 100_000, b'{"\xff": 1}')),
    ],
)
def test_a_header_that_cannot_be_right_is_refused(tmp_path, header, data_bytes, message):
    path = tmp_path / "a.safetensors"
    write_raw(path, header, bytes(data_bytes))
    with refusal(CheckpointError, f"{path}: {message}", AGAIN):
        SafetensorsReader(path)


@pytest.mark.parametrize(
    ("content", "length", "size_bytes"),
    [
        *((struct.pack("<Q", length) + b"{}", length, 10) for length in (2**62, 2**64 - 1, 100)),
        (struct.pack("<Q", 2**30), 2**30, 2**31),
        (b"", 0, 0),
        (b"\x01\x00", 0, 2),
    ],
)
def test_a_header_longer_than_the_file_or_than_any_is_not_allocated(tmp_path, content, length, size_bytes):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    os.truncate(path, size_bytes)
    rule = f"must begin with the length of its header, which lies in the file, got {length} of {size_bytes} bytes"
    with refusal(CheckpointError, f"{path}: {rule}", "it is no safetensors file, or was cut short"):
        SafetensorsReader(path)


def test_a_file_cut_short_after_it_was_opened_and_numbers_that_float32_does_not_hold_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"double": np.ones(3), "x": np.ones(100, np.float32)})
    with SafetensorsReader(path) as reader:
        with refusal(CheckpointError, f"{path}: the dtype of double must be F32, F16 or BF16, got F64"):
            reader.check_dtype("double")
        os.truncate(path, 200)
        with refusal(CheckpointError, f"{path}: the file was cut short after it was opened", AGAIN):
            reader.rows("x", 0, 100)


FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))


@pytest.mark.parametrize(
    ("weight_map", "message", "hint"),
    [
        *(
            ({"x": name}, f"{{index}}: its weight_map must name files of this folder, got {name!r}", None)
            for name in ("../x.safetensors", "/etc/passwd", "..", "", 7)
        ),
        *(
            (listed, "{index}: must have a weight_map from tensors to files, it has none", None)
            for listed in (None, [], "", "x")
        ),
        ({"w": FIRST}, f"{{given}}: w must be in {FIRST}, as the index says, it is not", AGAIN),
        ({"x": None}, f"{{folder}}/{FIRST}: must have no tensor that the index does not place there, got x", None),
    ],
)
def test_an_index_that_does_not_fit_its_folder_is_refused(tmp_path, weight_map, message, hint):
    write_hf(tmp_path, None, {name: np.ones(3, np.float32) for name in "xyz"}, shards=2)
    index = tmp_path / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    if isinstance(weight_map, dict):
        changed = document["weight_map"] | weight_map
        weight_map = {name: file for name, file in changed.items() if file is not None}
    index.write_text(json.dumps({**document, "weight_map": weight_map}))
    for path in (tmp_path, index):
        with refusal(CheckpointError, message.format(given=path, index=index, folder=tmp_path), hint):
            SafetensorsReader(path)


NEITHER = ": must have model.safetensors or model.safetensors.index.json in it, found neither"
OTHERS = "files of another name can be given themselves; .bin files are Python code, which is never run"


def test_what_is_missing_or_no_file_is_named(tmp_path):
    write_hf(tmp_path, None, {key: np.ones(3, np.float32) for key in "xyz"}, shards=2)
    os.mkfifo(tmp_path / "pipe")
    with refusal(CheckpointError, f"{tmp_path}/pipe: must be a regular file, it is not"):
        SafetensorsReader(tmp_path / "pipe")
    (tmp_path / SECOND).unlink()
    rule = "must be a file that can be read, got: No such file or directory"
    with refusal(CheckpointError, f"{tmp_path}/{SECOND}: {rule}"):
        SafetensorsReader(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    with refusal(CheckpointError, f"{tmp_path}{NEITHER}", OTHERS):
        SafetensorsReader(tmp_path)
