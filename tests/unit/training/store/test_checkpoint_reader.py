"""What was written is read back, bit for bit, and damage is found."""

import os
import tempfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import cstool
from cstool.foundation.errors import CheckpointError, DamagedCheckpointError
from cstool.training.store import CheckpointReader, CheckpointWriter
from cstool.training.store.checkpoint_format import DTYPES
from tests.contract.refusal import refusal
from tests.examples import examples
from tests.unit.training.store.stored import forked, write_state

EARLIER = "take an earlier checkpoint"
NOT_HDF5 = "a checkpoint must be an HDF5 file, this one is not"
NAMING = "checkpoints of cstool are called checkpoint_{step}.mdl"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
)


def in_order(reader: CheckpointReader, key: str, rows: int) -> list[np.ndarray[Any, Any]]:
    read, whole = reader.in_order(key), np.empty(reader.shape(key), reader.dtype(key))
    parts = [whole[start : start + rows] for start in range(0, len(whole), rows)]
    for number, part in enumerate(parts):
        read(part, number * rows, number * rows + len(part))
    return parts


@given(array=ARRAYS, rows=st.integers(1, 4))
@examples(60)
def test_a_tensor_comes_back_bit_for_bit_whole_by_rows_and_by_pieces(array, rows):
    array = np.asarray(array)
    chunks = [array[i : i + rows] for i in range(0, len(array), rows)] if array.shape else [array]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("cstool.training.store.saved_state.PIECE", 7)
        path = Path(folder, "a.mdl")
        with CheckpointWriter(path, array.nbytes) as writer:
            writer.add_tensor("t", array.shape, array.dtype.name, chunks)
            writer.link("tied", "t")
        with CheckpointReader(path) as reader:
            for key in ("t", "tied"):
                found = reader.read(key)
                assert (found.shape, found.dtype, found.tobytes()) == (array.shape, array.dtype, array.tobytes())
                again = in_order(reader, key, rows) if array.shape else [found]
                assert [chunk.tobytes() for chunk in again] == [chunk.tobytes() for chunk in chunks]
                pieces = [piece.copy() for piece in reader.pieces(key)]
                assert [piece.size for piece in pieces[:-1]] == [7] * max(0, -(-array.size // 7) - 1)
                assert {piece.dtype for piece in pieces} <= {array.dtype}
                assert b"".join(piece.tobytes() for piece in pieces) == array.tobytes()


@given(values=st.dictionaries(st.from_regex(r"[a-zé.]*[a-zé]", fullmatch=True), JSON, max_size=4))
@examples(30)
def test_values_come_back(values):
    written = partial(write_state, values=values)
    with tempfile.TemporaryDirectory() as folder, CheckpointReader(written(Path(folder, "a.mdl"))) as reader:
        assert (reader.values(), reader.keys()) == (values, list(values))


def test_values_and_keys_beyond_the_limit_of_attributes_come_back(tmp_path):
    values = {f"a.{'long' * 25}.key.{number}": number for number in range(400)} | {"long": ["x" * 70_000, None]}
    transposed = np.arange(12, dtype=np.float32).reshape(4, 3).T
    with CheckpointReader(write_state(tmp_path / "a.mdl", {"t": transposed}, values=values)) as reader:
        assert (reader.values(), reader.keys()) == (values, ["t", *values])
        assert reader.read("t").tolist() == transposed.tolist(), "strided chunks are written in their own order"


@pytest.fixture
def reader(write_checkpoint) -> Any:
    with CheckpointReader(write_checkpoint()) as reader:
        yield reader


def test_a_reader_says_what_is_stored(reader, weight):
    assert reader.keys() == ["model.weight", "model.tied", "optimizer.count", "global_step", "__metadata__"]
    assert reader.tensor_names() == ["model.weight", "optimizer.count"]
    for key in ("model.weight", "model.tied"):
        assert (reader.shape(key), reader.dtype(key), reader.nbytes(key)) == ((4, 3), "float32", 48)
        assert reader.read(key).tobytes() == weight.tobytes()
    assert [reader.link_of(key) for key in ("model.tied", "model.weight")] == ["model.weight", None]
    assert reader.cstool_version == cstool.__version__


def test_values_are_chosen_by_whole_parts_of_their_keys(tmp_path):
    values = {key: key for key in ("a", "a.b", "ab", "a.b.c")}
    with CheckpointReader(write_state(tmp_path / "a.mdl", values=values)) as reader:
        found = [list(reader.values(prefix)) for prefix in ("a", "a.b", "c")]
    assert found == [["a", "a.b", "a.b.c"], ["a.b", "a.b.c"], []]


@pytest.mark.parametrize(("start", "stop", "rows"), [(1, 3, [1, 2]), (2, None, [2, 3]), (None, 1, [0]), (4, 4, [])])
def test_a_range_of_rows_is_read_also_into_an_array_of_the_caller(reader, weight, start, stop, rows):
    out = np.zeros((len(rows), 3), np.float32)
    assert reader.read("model.weight", start=start, stop=stop).tolist() == weight[rows].tolist()
    assert reader.read("model.weight", out, start, stop) is out
    assert out.tolist() == weight[rows].tolist()


ROWS, KEY = np.empty((1, 3), np.float32), "model.weight"
OUT = f"{KEY}: out must be C-contiguous (4, 3) float32, got"


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda of: of.read(KEY, np.zeros((4, 2), np.float32)), f"{OUT} (4, 2) float32, contiguous: True"),
        (lambda of: of.read(KEY, np.zeros((4, 3))), f"{OUT} (4, 3) float64, contiguous: True"),
        (lambda of: of.read(KEY, np.zeros((3, 4), np.float32).T), f"{OUT} (4, 3) float32, contiguous: False"),
        (lambda of: of.read(KEY, stop=5), f"{KEY}: rows must satisfy 0 <= start <= stop <= 4, got 0:5"),
        (lambda of: of.read("optimizer.count", start=0), "optimizer.count: a scalar has no rows to choose from"),
        (lambda of: of.in_order(KEY)(ROWS, 1, 2), f"{KEY}: rows must be read in order, the next is 0, got 1"),
    ],
)
def test_rows_that_cannot_be_had_are_refused(reader, read, message):
    with refusal(ValueError, message):
        read(reader)


def test_what_is_missing_is_named_with_the_nearest(reader):
    message = f"{reader.path}: the checkpoint has no tensor model.weigth"
    with refusal(CheckpointError, message, "the nearest is model.weight"):
        reader.read("model.weigth")
    with refusal(CheckpointError, f"{reader.path}: the checkpoint has no value xyz"):
        reader.value("xyz")
    reader.close()
    reader.close()


# What is no checkpoint.


FILE = "a checkpoint must be a file"
IN_IT = "name one of the .mdl files in it; cstool checkpoint list shows them"
IN_FOLDER = "cstool checkpoint list shows the checkpoints of a folder"


@pytest.mark.parametrize(
    ("make", "rule", "hint"),
    [
        (Path.mkdir, f"{FILE}, this is a folder", IN_IT),
        (lambda path: None, f"{FILE} that can be read, got: No such file or directory", IN_FOLDER),
        (os.mkfifo, "a checkpoint must be a regular file, this is not one", None),
        (lambda path: path.write_bytes(b""), NOT_HDF5, NAMING),
        (lambda path: path.write_bytes(b"not HDF5 at all"), NOT_HDF5, NAMING),
        (lambda path: path.write_bytes(b"\x89HDF"), NOT_HDF5, NAMING),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path, make, rule, hint):
    make(tmp_path / "a.mdl")
    with refusal(CheckpointError, f"{tmp_path}/a.mdl: {rule}", hint):
        CheckpointReader(tmp_path / "a.mdl")


def test_a_file_cut_short_is_refused_and_noticed_while_it_is_open(write_checkpoint):
    path = write_checkpoint()
    with CheckpointReader(path) as reader:
        os.truncate(path, 100)
        with refusal(CheckpointError, f"{path}: the file was cut short after it was opened", EARLIER):
            reader.read("model.weight")
    with refusal(CheckpointError, f"{path}: the checkpoint is damaged or cut short (100 bytes)", EARLIER):
        CheckpointReader(path)


def test_a_truncation_anywhere_is_found_and_the_interpreter_survives(write_checkpoint, tmp_path):
    whole, cut = write_checkpoint().read_bytes(), tmp_path / "cut.mdl"

    def look() -> None:
        for length in [*range(0, len(whole), 97), len(whole) - 1]:
            cut.write_bytes(whole[:length])
            with pytest.raises(CheckpointError):
                CheckpointReader(cut)

    assert len(whole) > 20 * 97
    assert forked(look) == 0


def test_a_bit_flipped_anywhere_in_the_file_is_found_or_harmless(write_checkpoint, tmp_path):
    def contents(path: Path) -> object:
        with CheckpointReader(path) as reader:
            return [(k, reader.shape(k), reader.read(k).tobytes()) for k in reader.tensor_names()], reader.values()

    def look() -> None:
        path, flipped, found = write_checkpoint(), tmp_path / "flipped.mdl", 0
        whole, before = bytearray(path.read_bytes()), contents(path)
        for place in range(0, len(whole), 29):
            whole[place] ^= 1 << place % 8
            flipped.write_bytes(whole)
            whole[place] ^= 1 << place % 8
            try:
                assert contents(flipped) == before, place
            except CheckpointError:
                found += 1
        assert found > 50

    assert forked(look) == 0


# Damaged tensors.


@pytest.mark.parametrize(
    "look",
    [
        lambda reader: reader.read("model.weight"),
        lambda reader: reader.read("model.weight", start=0, stop=4),
        lambda reader: in_order(reader, "model.weight", 3),
        lambda reader: next(reader.pieces("model.weight")),
        lambda reader: reader.verify_all(),
        lambda reader: reader.read("model.tied"),
    ],
    ids=["read", "read_rows", "in_order", "pieces", "verify_all", "link"],
)
def test_every_way_to_see_all_of_a_tensor_verifies_it(write_checkpoint, weight, look):
    path, flipped = _flip(write_checkpoint(), weight.tobytes(), 5, 3), bytearray(weight.tobytes())
    flipped[5] ^= 8
    must, got = zlib.crc32(weight.tobytes()), zlib.crc32(flipped)
    message = f"{path}: model.weight is damaged: its checksum must be {must:08x}, got {got:08x}"
    with CheckpointReader(path) as reader, refusal(DamagedCheckpointError, message, EARLIER):
        look(reader)


def test_damage_is_told_before_the_last_piece_and_a_part_read_as_it_is(write_checkpoint, weight, monkeypatch):
    monkeypatch.setattr("cstool.training.store.saved_state.PIECE", 5)
    path, told = write_checkpoint(), []
    with CheckpointReader(path) as reader:
        reader.verify_all(lambda *state: told.append(state))
    assert told == [(20, 56), (40, 56), (48, 56), (56, 56)]
    with CheckpointReader(_flip(path, weight.tobytes(), 40, 0)) as reader:
        pieces = reader.pieces("model.weight")
        assert [next(pieces).size, next(pieces).size] == [5, 5]
        with pytest.raises(DamagedCheckpointError, match="model.weight is damaged"):
            next(pieces)
        assert reader.read("model.weight", stop=2).tolist() == weight[:2].tolist()


def _flip(path: Path, tensor: bytes, byte: int, bit: int) -> Path:
    contents = bytearray(path.read_bytes())
    assert contents.count(tensor) == 1
    contents[contents.index(tensor) + byte] ^= 1 << bit
    path.write_bytes(contents)
    return path
