"""Small files that this program reads again, spoilt in many ways: each is read, left out, or refused by one message."""

import contextlib
import hashlib
import io
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cstool.appliance.queue.job_folder import order_of, order_text
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fabric.stats import read_stats, stats_document
from cstool.csl.fabric.trace import Recorder, read_trace
from cstool.csl.fabric.trace_view import chrome_trace
from cstool.csl.sdk.artifact import ProgramError, read_program, read_summary, write_program
from cstool.csl.verbs import used_colors, write_page
from cstool.foundation.errors import CstoolError
from cstool.inference.commands.infer_flags import _of_object
from cstool.training.data.hdf5_contexts import _features_of
from cstool.training.data.hdf5_pairs import _groups
from cstool.training.data.preparation import keep_plan
from cstool.training.data.token_classes import read_label_numbers
from cstool.training.host.rates import load_rates, rates_file
from cstool.training.kernels.sparse.crossover import _read
from cstool.training.store.checkpoint_index import INDEX_NAME, read_index
from tests.fuzz.mutations import change_bytes, change_tree
from tests.unit.appliance.queue.queues import an_order
from tests.unit.csl.sdk.sdk_programs import routed_program

DEEP = b"[" * 100_000
AGAIN = "compile the program again with cslc"


def write_trace(path: Path) -> None:
    recorder = Recorder(routed_program())
    for event in ((1, 0, "task", "main"), (2, 0, "hop", 1, 3, 7, False), (3, 0, "task_end", "main")):
        recorder(*event)
    recorder.save(path)


def read_order(path: Path) -> None:
    try:
        order_of(path.read_bytes())
    except ValueError as error:
        raise CstoolError(str(error)) from error


JSON = {
    "stats.json": (lambda: stats_document(Simulation(routed_program())), read_stats),
    "labels.json": (lambda: {"a": 0, "b": 1}, read_label_numbers),
    "job.json": (lambda: json.loads(order_text(an_order())), read_order),
    "crossover.json": (lambda: {"4x4": {"training": 0.5}}, _read),
    "data_params.json": (lambda: {"train": {"features": ["a"]}}, lambda path: _groups(path.parent)),
    "meta.json": (lambda: {"data_0_features": ["a"]}, lambda path: _features_of(path.parent)),
    "prompt.json": (lambda: {"prompt": "a", "pair": "b"}, lambda path: _of_object("x", 1, path.read_text("latin-1"))),
    "plan.json": (lambda: ["a", 1], lambda path: keep_plan(path.parent, ["a", 1])),
}
"""file -> what it holds, and what reads it"""


def spoilt(content: bytes, tree: Any, seed: int) -> Iterator[bytes]:
    """Yield 60 versions of a file."""
    chance = random.Random(seed)
    yield from (b"", DEEP, b"\xff\xfe", b"null", b"[]", b"{}", b"NaN", b'"a"', b"1e999", b"9" * 5000)
    for _ in range(50):
        if tree is not None and chance.random() < 0.7:
            yield json.dumps(change_tree(json.loads(json.dumps(tree)), chance)).encode()
        else:
            yield change_bytes(content, chance)


def refused_at_most(read: Callable[[Path], object], path: Path) -> None:
    with contextlib.suppress(CstoolError):
        read(path)


@pytest.mark.parametrize("name", JSON)
def test_a_json_file(tmp_path, name):
    made, read = JSON[name]
    tree, folder = made(), tmp_path / "inner"
    for content in spoilt(json.dumps(tree).encode(), tree, len(name)):
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        refused_at_most(read, folder / name)


def test_yaml_files(tmp_path, monkeypatch):
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(tmp_path))
    index = {"checkpoints": [{"step": 1, "file": "a.mdl", "run": None}]}
    rates = {"cpu": "x", "cores": 2, "costs": {"a": {"s": 1.0}}, "update_s": {"AdamW": 1.0}}
    rates_file().parent.mkdir(parents=True, exist_ok=True)
    for tree, path, read in (
        (index, tmp_path / INDEX_NAME, lambda: read_index(tmp_path)),
        (rates, rates_file(), load_rates),
    ):
        for content in spoilt(yaml.safe_dump(tree).encode(), tree, 5):
            path.write_bytes(content[:3000])
            assert read() in (None, [])


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.takes("a page of each of the traces that can still be read")
def test_a_trace(tmp_path):
    path = tmp_path / "a.trace"
    write_trace(path)
    content = path.read_bytes()
    with np.load(path) as found:
        arrays = dict(found)

    def ask(path: Path) -> None:
        trace = read_trace(path)
        chrome_trace(trace, "x", ())
        write_page(path, tmp_path / "a.html", every=1)

    contents = [*spoilt(content, None, 3)]
    odd = (np.zeros(0), np.zeros((2, 2), np.int32), np.array(["a"]), np.array([-1, 2**40]), np.zeros(1, complex))
    contents += [npz(**{**arrays, name: value}) for name in arrays for value in odd]
    about = json.loads(arrays["about"].tobytes())
    chance = random.Random(1)
    for _ in range(40):
        text = json.dumps(change_tree(json.loads(json.dumps(about)), chance)).encode()
        contents.append(npz(**{**arrays, "about": np.frombuffer(text, np.uint8)}))
    for content in contents:
        path.write_bytes(content)
        refused_at_most(ask, path)


@pytest.fixture
def program(tmp_path) -> Path:
    write_program(routed_program(), tmp_path)
    return tmp_path


def put(folder: Path, name: str, content: bytes) -> None:
    """Write a file of a program, and its digest, as somebody who knows of it."""
    (folder / name).write_bytes(content)
    told = json.loads((folder / "out.json").read_text())
    told["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / "out.json").write_text(json.dumps(told))


SHAPE = routed_program().tiles.shape
NO_ARRAYS = {
    "truncated": lambda content: content[: len(content) // 2],
    "no zip": lambda _: b"no zip at all",
    "empty": lambda _: b"",
    "pickled": lambda _: npz(tiles=np.array([{}], object)),
    "one array": lambda _: (buffer := io.BytesIO(), np.save(buffer, np.zeros(3)))[0].getvalue(),
    "no tiles": lambda _: npz(color_1=np.zeros(SHAPE, np.int32)),
    "a name": lambda _: npz(tiles=np.zeros(SHAPE, np.int32), color_x=np.zeros(SHAPE, np.int32)),
}
OTHER_ARRAYS = {
    "dtype": {"tiles": np.zeros(SHAPE, np.float64)},
    "texts": {"tiles": np.full(SHAPE, "a")},
    "shape": {"tiles": np.zeros((9, 9), np.int32)},
    "no such program": {"tiles": np.full(SHAPE, 99, np.int32)},
    "no such config": {"color_1": np.full(SHAPE, 99, np.int32)},
    "no such color": {"color_99": np.zeros(SHAPE, np.int32)},
}


@pytest.mark.parametrize("how", [*NO_ARRAYS, *OTHER_ARRAYS])
def test_the_routes_of_a_program(program, how):
    path = program / "bin" / "fabric.npz"
    content = path.read_bytes()
    if how in NO_ARRAYS:
        where, spoilt = path, NO_ARRAYS[how](content)
    else:
        with np.load(path) as arrays:
            where, spoilt = program, npz(**{**arrays, **OTHER_ARRAYS[how]})
    put(program, "bin/fabric.npz", spoilt)
    with pytest.raises(ProgramError) as refused:
        read_program(program)
    said = f"{where}: must hold a program as this version of cslc writes it"
    assert (refused.value.message, refused.value.hint) == (said, AGAIN)


def test_a_program(program):
    """Every file of it, also where its digest says that it was meant so."""
    before = {name: (program / name).read_bytes() for name in json.loads((program / "out.json").read_text())["files"]}
    told = (program / "out.json").read_bytes()

    def ask(folder: Path) -> None:
        read_summary(folder)
        used_colors(read_program(folder))

    for name, content in before.items():
        tree = json.loads(content) if name.endswith(".json") else None
        for change in spoilt(content, tree, len(name)):
            put(program, name, change)
            refused_at_most(ask, program)
        (program / name).write_bytes(content)
        (program / "out.json").write_bytes(told)
    for change in spoilt(told, json.loads(told), 1):
        (program / "out.json").write_bytes(change)
        refused_at_most(ask, program)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/dev/zero", "bin/../bin/pe_0.py"])
def test_a_file_that_is_none_of_the_program(program, name):
    told = json.loads((program / "out.json").read_text())
    told["files"] = {name: "0" * 64, **told["files"]}
    (program / "out.json").write_text(json.dumps(told))
    with pytest.raises(ProgramError) as refused:
        read_program(program)
    assert str(refused.value) == f"{program / name}: must be a file of the program, it is none\nhint: {AGAIN}"


@pytest.mark.parametrize(
    ("name", "said", "read"),
    [
        ("bin/fabric.npz", "cannot be read, got: it is a pipe or a device", lambda path: read_program(path.parents[1])),
        ("out.json", "cannot be read, got: it is a pipe or a device", lambda path: read_program(path.parent)),
        ("sim_stats.json", "cannot be read, got: it is a pipe or a device", read_stats),
        ("a.trace", "cannot be read: it is a pipe or a device", read_trace),
    ],
)
def test_nobody_waits_for_a_pipe(program, name, said, read):
    (program / name).unlink(missing_ok=True)
    os.mkfifo(program / name)
    with pytest.raises(CstoolError) as refused:
        read(program / name)
    assert refused.value.message == f"{program / name}: {said}"
