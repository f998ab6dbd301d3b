"""Odd values, and ways to spoil a file that know what is in it.

Text, JSON, YAML, HDF5, safetensors, arrays of NumPy, programs in CSL, the queue of an appliance, any bytes.
"""

import contextlib
import copy
import functools
import hashlib
import io
import json
import math
import operator
import os
import random
import re
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import yaml

DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]

NUMBERS: list[Any] = [0, -1, 1, 2, 3, 7, 100, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63)]
NUMBERS += [0.0, -0.0, 0.5, 1.5, 1e-30, 1e30, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf]
TEXTS = ["", " ", "a", "x" * 300, "x" * 5000, "é漢😀", "\u202eabc", "../../x", "/", ".", "..", "~", "1", "1e5", "null"]
TEXTS += ["\x00", "none", "a.b", "a/b", "a\nb", "\x1b[31m", "*", "{step}", "%s", "a,b", "-1", "nan", "0x10", "true"]
ODD: list[Any] = [None, True, False, *NUMBERS, *TEXTS, [], [[]], [1], [None], ["a", "a"], {}, {"a": 1}, {"": {}}, DEEP]

PARAMS = ("gpt", "llama", "sparse", "file", "mnist", "legacy", "stopping", "several", "system", "small")
OTHERS = "tokenizer.json prompts.txt prompts.jsonl lines.jsonl artifact.json".split()
NAMED = (*OTHERS, *(f"{name}.yaml" for name in PARAMS))
"""files that commands are given by their names"""

DEEPEST, MOST = 12, 2000
"""values of a tree that are changed"""

Tree = Any
Change = Callable[[Path, random.Random], None]


def odd_text(chance: random.Random) -> str:
    """Return an odd value as one would type it."""
    more = ["[1, 2]", "{a: 1}", "[", "1_000", "é" * 200, "\udcff", "1,2", "1..9", "9GB"]
    return str(chance.choice([*TEXTS, *NUMBERS, *more])).replace("\0", "")


def _places(tree: Tree) -> list[tuple[Any, ...]]:
    """Return where the values of a tree are, the uppermost first; of a large or deep one some."""
    found: list[tuple[tuple[Any, ...], Any]] = [((), tree)]
    for path, value in found:
        entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        if len(path) < DEEPEST and len(found) < MOST:
            found += [((*path, key), below) for key, below in entries]
    return [path for path, _ in found]


def change_tree(tree: Tree, chance: random.Random) -> Tree:
    """Return a tree of plain data with one thing changed; the tree itself is changed, too."""
    path = chance.choice(_places(tree)[1:] or [()])
    if not path:
        return copy.deepcopy(chance.choice(ODD))
    *above, last = path
    parent = functools.reduce(operator.getitem, above, tree)
    value = parent[last]
    match chance.choice(["odd", "odd", "odd", "near", "near", "delete", "rename", "wrap", "copy", "many"]):
        case "delete":
            del parent[last]
        case "rename" if isinstance(parent, dict):
            parent[chance.choice([f"{last}x", str(last)[:-1], str(last).upper(), "", "x" * 300])] = parent.pop(last)
        case "odd":
            parent[last] = copy.deepcopy(chance.choice(ODD))
        case "near":
            parent[last] = _near(value, chance)
        case "wrap":
            parent[last] = chance.choice([[value], {"a": value}, [value] * 3])
        case "copy":
            other = functools.reduce(operator.getitem, chance.choice(_places(tree)), tree)
            parent[last] = json.loads(json.dumps(other, default=str))
        case _:
            parent[last] = [value] * chance.choice([2, 300])
    return tree


def _near(value: Any, chance: random.Random) -> Any:
    """Return another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([value + 1, value - 1, -value, value * 2, value * 10, value // 2, float(value)])
    if isinstance(value, float):
        return chance.choice([-value, value * 1e6, value / 1e6, 1 - value, int(min(max(value, -1e9), 1e9))])
    if isinstance(value, str):
        cut = chance.randrange(len(value) + 1)
        return chance.choice([value[:cut], value + "x", value.upper(), value * 2, f"{value}/", chance.choice(TEXTS)])
    if isinstance(value, list):
        return chance.choice([value[1:], value[::-1], value + value, chance.sample(value, len(value))])
    return copy.deepcopy(chance.choice(ODD))


def change_bytes(content: bytes, chance: random.Random) -> bytes:
    """Return bytes with some flipped, cut, doubled or put in."""
    data = bytearray(content)
    at = chance.randrange(len(data) + 1)
    match chance.choice(["flip", "flip", "flip", "cut", "cut", "insert", "double", "zero", "empty"]):
        case "flip":
            for _ in range(chance.choice([1, 1, 3, 30])):
                if data:
                    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case "cut":
            del data[at:]
        case "insert":
            piece = [b"\x00", b"\xff\xfe", b"\n", b"\t", b"{", b'"', "\u2028é".encode(), os.urandom(0) or b"\x80" * 9]
            data[at:at] = chance.choice(piece)
        case "double":
            data[at:at] = data[max(0, at - 100) : at]
        case "zero":
            data[at : at + 64] = bytes(min(64, len(data) - at))
        case _:
            data.clear()
    return bytes(data)


def spoil_bytes(path: Path, chance: random.Random) -> None:
    path.write_bytes(change_bytes(path.read_bytes(), chance))


def spoil_json(path: Path, chance: random.Random) -> None:
    path.write_text(json.dumps(change_tree(json.loads(path.read_text()), chance)))


def spoil_lines(path: Path, chance: random.Random) -> None:
    """Spoil a line of a file with one JSON document to a line."""
    lines = path.read_text().splitlines()
    at = chance.randrange(len(lines))
    lines[at] = json.dumps(change_tree(json.loads(lines[at]), chance))
    path.write_text("\n".join(lines) + "\n")


def spoil_record(path: Path, chance: random.Random) -> None:
    """Spoil a commit record, and give it the checksum of what it says then."""
    text = json.dumps(change_tree(json.loads(path.read_bytes().partition(b"\n")[0]), chance), separators=(",", ":"))
    path.write_text(f"{text}\n{zlib.crc32(text.encode()):08x}\n")


def spoil_yaml(path: Path, chance: random.Random) -> None:
    """Spoil what a YAML file says, or how: a key twice, an alias, another indentation."""
    tree = yaml.safe_load(path.read_text())
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        tree = change_tree(tree, chance)
    lines = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).splitlines()
    if chance.random() < 0.1 and lines:
        at = chance.randrange(len(lines))
        others = [lines[at], f" {lines[at]}", "a: *a", "a: &a [*a]", "<<: 3", "? [a]\n: b", "!!python/x a"]
        lines.insert(at, chance.choice(others))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")


def spoil_hdf5(path: Path, chance: random.Random) -> None:
    """Change an attribute or a dataset of an HDF5 file."""
    with h5py.File(path, "r+", locking=False) as h5:
        datasets: list[h5py.Dataset] = []
        h5.visititems(lambda _, item: datasets.append(item) if isinstance(item, h5py.Dataset) else None)
        owners = [owner for owner in (h5, *datasets) if len(owner.attrs)]
        if owners and (not datasets or chance.random() < 0.7):
            _spoil_attribute(chance.choice(owners), chance)
        elif datasets:
            _spoil_dataset(h5, chance.choice(datasets), chance)
        if "__digest__" in h5.attrs and chance.random() < 0.8:
            # A file of the format before: no digest stands between what is wrong and who reads it.
            h5.attrs["__version__"] = np.bytes_(b"1.0")
            del h5.attrs["__digest__"]


def _spoil_attribute(owner: Any, chance: random.Random) -> None:
    name = chance.choice(list(owner.attrs))
    value = owner.attrs[name]
    match chance.choice(["json", "json", "json", "odd", "bytes", "delete", "empty", "array"]):
        case "json" if isinstance(value, bytes | str):
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            try:
                tree = change_tree(json.loads(text), chance)
            except ValueError:
                tree = chance.choice(ODD)
            written = json.dumps(tree)[:60_000]
            owner.attrs[name] = np.bytes_(written.encode()) if isinstance(value, bytes) else written
        case "bytes" if isinstance(value, bytes):
            owner.attrs[name] = np.bytes_(change_bytes(value, chance) or b"x")
        case "delete":
            del owner.attrs[name]
        case "empty":
            owner.attrs[name] = h5py.Empty("f")
        case "array":
            owner.attrs[name] = np.arange(chance.choice([0, 1, 5]))
        case _:
            odd = chance.choice([2**31, -1, 1.5, "x", "", np.float16(3), True, b"\xff", [b"a", b"b"], "é"])
            owner.attrs[name] = odd


def _spoil_dataset(h5: h5py.File, dataset: h5py.Dataset, chance: random.Random) -> None:
    name, value, attributes = dataset.name, dataset[()], dict(dataset.attrs)
    if not isinstance(value, np.ndarray):
        value = np.zeros(3, np.float32)
    how = chance.choice(["dtype", "shape", "values", "delete", "group", "link", "chunked", "rename", "soft"])
    del h5[name]
    match how:
        case "dtype":
            kinds = ["float64", "int8", "uint8", "S3", "float16", "complex64", "int64", "bool", ">f4", ">i4"]
            h5[name] = np.zeros(value.shape, chance.choice(kinds))
        case "shape":
            shapes = [
                value.shape[::-1],
                (*value.shape, 1),
                value.shape[:-1],
                (0,),
                (),
                (3, *value.shape[1:]),
                (1, 1, 1),
            ]
            h5[name] = np.ones(chance.choice(shapes), value.dtype)
        case "values":
            numbers = [0, -1, 1, 255, 3e38, math.nan, math.inf, -math.inf, 2**31 - 1]
            spoilt = value.copy().reshape(-1)
            with np.errstate(all="ignore"):
                if spoilt.size:
                    places = slice(chance.randrange(spoilt.size), None, chance.choice([1, 1000]))
                    spoilt[places] = np.array(chance.choice(numbers)).astype(value.dtype)
            h5[name] = spoilt.reshape(value.shape)
        case "group":
            h5.create_group(name)
        case "link":
            h5[name] = h5py.ExternalLink(chance.choice(["/etc/passwd", "nope.h5", str(h5.filename)]), "/x")
        case "soft":
            h5[name] = h5py.SoftLink(chance.choice([name, "/", "/nowhere"]))
        case "chunked" if value.size:
            h5.create_dataset(name, data=value, chunks=True, compression="gzip")
        case "rename":
            h5[f"{name}x"] = value
    if isinstance(h5.get(name), h5py.Dataset):
        for key, attribute in attributes.items():
            h5[name].attrs[key] = attribute


def spoil_safetensors(path: Path, chance: random.Random) -> None:
    """Change the header of a safetensors file, or the length that it says."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + length], content[8 + length :]
    if chance.random() < 0.2:
        lengths = [0, 1, length - 1, length + 1, 2**31, 2**63, 2**64 - 1, len(content)]
        path.write_bytes(chance.choice(lengths).to_bytes(8, "little") + header + data)
        return
    written = json.dumps(change_tree(json.loads(header), chance)).encode()
    path.write_bytes(len(written).to_bytes(8, "little") + written + data)


def spoil_place(path: Path, chance: random.Random) -> None:
    """Put something else where a file or a folder is, or nothing."""
    aside = path.with_name(f"{path.name}.aside")
    if path.is_dir() and not path.is_symlink():
        path.rename(aside)
    else:
        path.unlink(missing_ok=True)
    ways: list[Callable[[], object]] = [
        lambda: None,
        path.mkdir,
        path.touch,
        *(lambda to=to: path.symlink_to(to) for to in (path.name, "nowhere", "/dev/null")),  # type: ignore[misc]
    ]
    if path.name not in NAMED:  # who names a pipe waits for who writes to it
        ways.append(lambda: os.mkfifo(path))
    if aside.exists():
        ways.append(lambda: path.symlink_to(aside.name))
    chance.choice(ways)()


CSL_WORDS = "while for if else comptime param const var fn task layout true false void type inline".split()
CSL_WORDS += (
    "0 1 -1 65536 4294967295 1.5 0x10 1e400 u16 f32 [*] .{} ( ) { } [ ] ; , = + - * / << >> & | ! @ \" ' //".split()
)
CSL_WORDS += "@zeros @range @get_color @set_tile_code @bind_local_task @get_dsd @import_module @as @fadds".split()


def spoil_csl(path: Path, chance: random.Random) -> None:
    """Put words of a program in the place of others."""
    words = re.findall(r"@?\w+|\s+|.", path.read_text(encoding="utf-8", errors="replace"), re.DOTALL)
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(words))
        others = [chance.choice(words), chance.choice(CSL_WORDS), odd_text(chance), "", words[at] * 2]
        words[at] = chance.choice(others)
    path.write_text("".join(words), encoding="utf-8", errors="replace")


def spoil_queue(path: Path, chance: random.Random) -> None:
    """Set columns of a row of a queue to something odd, past all checks of its tables."""
    texts = ["'{'", "'[]'", "'{}'", "'../x'", "9e999", "-9e999", "1e17", "x'00ff'", "-1", "1.5", "''", "'é\x1b[2J'"]
    texts += ["'[1e999]'", "9223372036854775807", "'QUEUED'", "'RUNNING'", "'SUCCEEDED'", "'slurm'", "'NaN'", "NULL"]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as queue:
        queue.execute("PRAGMA ignore_check_constraints = ON")
        table = chance.choice(["jobs", "jobs", "jobs", "events", "settings"])
        columns = [row[1] for row in queue.execute(f"PRAGMA table_info({table})")]
        rows = [row[0] for row in queue.execute(f"SELECT {columns[0]} FROM {table}")]
        for _ in range(chance.choice([1, 1, 2, 4])):
            change = f"UPDATE {table} SET {chance.choice(columns)} = {chance.choice(texts)} WHERE {columns[0]} = ?"
            with contextlib.suppress(sqlite3.Error):
                queue.execute(change, (chance.choice(rows),))


def spoil_arrays(path: Path, chance: random.Random) -> None:
    """Change one of the arrays of a file."""
    with np.load(path, allow_pickle=False) as found:
        arrays = dict(found)
    name = chance.choice([*arrays])
    value = arrays.pop(name)
    with np.errstate(all="ignore"):
        value = value.real
        odd = [value.astype(np.float64), value.reshape(-1), value[:1], value + 100, -value.astype(np.int32) - 5, None]
    new = chance.choice([*odd, np.zeros(0, np.int32), np.array("a"), np.array([1 + 2j])])
    if new is not None:
        arrays[chance.choice([name, name, name, f"{name}9", "x"])] = new
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    path.write_bytes(buffer.getvalue())


def agree(path: Path) -> None:
    """Have the digests of a compiled program say that the files are as they were meant."""
    summary = path.parents[1] / "out.json"
    if path.parent.name == "bin" and summary.is_file() and path.is_file():
        told = json.loads(summary.read_text())
        told["files"][f"bin/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
        summary.write_text(json.dumps(told))


_KNOWING: dict[str, Change] = {
    ".json": spoil_json,
    ".jsonl": spoil_lines,
    ".yaml": spoil_yaml,
    ".mdl": spoil_hdf5,
    ".h5": spoil_hdf5,
    ".commit": spoil_record,
    ".safetensors": spoil_safetensors,
    ".csl": spoil_csl,
    ".db": spoil_queue,
    ".npz": spoil_arrays,
}


def spoil(path: Path, chance: random.Random) -> None:
    """Spoil a file, mostly as one who knows what is in it; a folder by what is in its place."""
    drawn = chance.random()
    if not path.is_file() or drawn < 0.05:  # what was put there before may be a pipe
        spoil_place(path, chance)
    elif drawn < 0.25 or path.suffix not in _KNOWING:
        spoil_bytes(path, chance)
    else:
        _KNOWING[path.suffix](path, chance)
    if chance.random() < 0.7:
        agree(path)
