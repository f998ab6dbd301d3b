"""Read the vendor's own checkpoints: HDF5 files whose format version is 0.x. Python objects in them are never run.

A tensor is a dataset named by its key, in chunks, compressed (LZ4 by default). Scalars and ties have none: the file
attribute `{key}.__metadata__` describes them. bfloat16 is stored as int16. Source: cerebras_pytorch 2.10.0 and
cerebras_appliance 2.10.0 (storage), facts in our words.
"""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from cstool.convert.safetensors_reader import widen_bfloat16
from cstool.foundation.errors import CheckpointError
from cstool.foundation.watched_hdf5 import open_watched
from cstool.training.store.checkpoint_format import SIGNATURE, SPEC, SUCCESS, VERSION, metadata_name
from cstool.training.store.checkpoint_layout import TAKE_ANOTHER
from cstool.training.store.saved_state import Opened

MOST_CHUNK_BYTES = 32 * 2**20
"""largest HDF5 chunk that is decompressed [bytes]; the vendor's have a megabyte at most"""

_CACHE_BYTES = 64 * 2**20
"""size of a cache of decompressed chunks: a range of rows may end within them [bytes]"""
_FIRST_WITH_SUCCESS = 0.5
_LZ4 = 32004
_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 4: "szip", 32000: "lzf", _LZ4: "LZ4"}
"""by their numbers in HDF5"""

Array = NDArray[Any]


@dataclass(frozen=True)
class _Constant:
    """A tensor that is one number throughout, and so has no dataset."""

    shape: tuple[int, ...]
    number: float


def is_vendor_checkpoint(path: Path) -> bool:
    """Say whether a file is a checkpoint of the vendor's; a file that cannot be read is none."""
    try:
        if not os.path.isfile(path):  # a pipe would keep whoever opens it waiting
            return False
        with open(path, "rb") as file:
            if file.read(len(SIGNATURE)) != SIGNATURE:
                return False
        with open_watched(path) as h5:
            return isinstance(h5.attrs.get(VERSION), np.floating)
    except Exception:
        return False


class VendorReader(Opened):
    """An open checkpoint of the vendor's, a context manager. Raises CheckpointError for a file that is not whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not is_vendor_checkpoint(path):
            raise CheckpointError(
                f"{path}: must be a checkpoint of the vendor's, an HDF5 file whose __version__ is 0.x, it is not"
            )
        with self._reporting():
            self._h5 = open_watched(path, rdcc_nbytes=_CACHE_BYTES)
        with self._or_closed(), self._reporting():
            version = float(self._h5.attrs[VERSION])
            if not 0 < version < 1:
                raise CheckpointError(f"{path}: the version of the vendor's format must be 0.x, got {version:g}")
            if version >= _FIRST_WITH_SUCCESS and not self._h5.attrs.get(SUCCESS, False):
                raise CheckpointError(f"Cannot load partially written checkpoint at {path}", TAKE_ANOTHER)
            self._metadata = self._read_metadata() if version >= _FIRST_WITH_SUCCESS else {}
            self._datasets = {name for name in self._h5 if "/" not in name}

    def close(self) -> None:
        """See `Opened.close`."""
        self._h5.close()

    def keys(self) -> list[str]:
        """Return all keys; in the order of the state that was saved, as far as the file says it."""
        return list(dict.fromkeys([*self.order(), *self._metadata, *sorted(self._datasets)]))

    def order(self) -> list[str]:
        """Return the keys in the order of the state that was saved; none where only a Python object would say it."""
        with self._reporting():
            return list(_flattened(self._structure()))

    def objects(self) -> list[str]:
        """Return the keys of Python objects, which are bytes that only running them would explain."""
        with self._reporting():
            own = (n for n in self._datasets if isinstance(self._h5.get(n, getlink=True), h5py.HardLink))
            return sorted(name for name in own if "__BYTES__" in self._h5[name].attrs)

    def number(self, key: str) -> Any:
        """Return a number, text or truth value that is stored as such; None where it is something else."""
        with self._reporting():
            found = self._leaf(self.target(key))
            return found.get("scalar_value", found.get("string_value"))

    def params(self) -> dict[str, Any] | None:
        """Return the params of the run, which releases that can be read here may have kept; None where they are not."""
        with self._reporting():
            structure = self._structure()
            kept = structure.get("__metadata__") if isinstance(structure, dict) else None
            if not isinstance(kept, list) or not kept or not isinstance(kept[-1], dict):
                return None
            found = self._filled(kept[-1].get("params"), f"__metadata__.{len(kept) - 1}.params")
            return found if isinstance(found, dict) else None

    def _filled(self, structure: Any, key: str) -> Any:
        """Return a part of the state that was saved, numbers and texts where its leaves are."""
        if isinstance(structure, dict):
            return {name: self._filled(entry, f"{key}.{name}") for name, entry in structure.items()}
        if isinstance(structure, list):
            return [self._filled(entry, f"{key}.{number}") for number, entry in enumerate(structure)]
        return self.number(key)

    def target(self, key: str) -> str:
        """Return the key under which a value is stored.

        It is another key where the same Python object stood at several keys: tied weights, and objects that Python has
        once, such as small whole numbers, truth values and null.
        """
        with self._reporting():
            followed = [key]
            while (found := self._leaf(key)).get("__LINKED__"):
                key = str(found["key"])
                if key in followed:
                    raise CheckpointError(f"{self.path}: {followed[0]} must lead to a value, its links go in a circle")
                followed.append(key)
            return key

    def shape(self, key: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor that is stored under a key; None where there is none.

        Raises:
            CheckpointError: it is a Python object, lies outside of the file, or is compressed in a way unknown here
        """
        with self._reporting():
            constant = self._constant(key)
            if constant is not None:
                return constant.shape
            if key not in self._datasets:
                return None
            dataset = self._dataset(key)
            self._check(key, dataset)
            return tuple(dataset.shape)

    def rows(self, key: str, start: int, stop: int) -> Array:
        """Return rows `start` to `stop` of a tensor, (stop - start, ...) float32, or raise CheckpointError."""
        with self._reporting(key):
            constant = self._constant(key)
            if constant is not None:
                return np.full((stop - start, *constant.shape[1:]), constant.number, np.float32)
            dataset = self._dataset(key)
            found = dataset[start:stop]
            if self._is_bfloat16(key, dataset):
                return widen_bfloat16(found.view(np.uint16))
            wide: Array = found.astype(np.float32, copy=False)
            return wide

    def chunk_rows(self, key: str) -> int:
        """Number of rows in a chunk: reading as many at a time decompresses each chunk once."""
        with self._reporting():
            chunks = None if key not in self._datasets else self._dataset(key).chunks
            return 1 if chunks is None else int(chunks[0])

    def _read_metadata(self) -> dict[str, dict[str, Any]]:
        """Metadata of each key."""
        found = {}
        for name in self._h5.attrs:
            key = name.removesuffix(metadata_name(""))
            if key != name and isinstance(described := json.loads(self._h5.attrs[name]), dict):
                found[key] = described
        return found

    def _structure(self) -> Any:
        """Return the state that was saved with "*" for its leaves; None where the file has it as a Python object."""
        spec = self._h5.attrs.get(SPEC)
        described = json.loads(spec) if isinstance(spec, str) and spec.lstrip().startswith("[") else None
        return described[0] if isinstance(described, list) and described else None

    def _leaf(self, key: str) -> dict[str, Any]:
        found = self._metadata.get(key, {}).get(metadata_name(key), {})
        return found if isinstance(found, dict) else {}

    def _constant(self, key: str) -> _Constant | None:
        for described in self._metadata.get(key, {}).values():
            if isinstance(described, dict) and "fill_value" in described:
                return _Constant(tuple(map(int, described["shape"])), float(described["fill_value"]))
        return None

    def _dataset(self, key: str) -> h5py.Dataset:
        if not isinstance(self._h5.get(key, getlink=True), h5py.HardLink):
            raise CheckpointError(f"{self.path}: {key} must be in the file itself, not behind a link")
        dataset = self._h5[key]
        if not isinstance(dataset, h5py.Dataset):
            raise CheckpointError(f"{self.path}: {key} must be a dataset, it is not")
        return dataset

    def _check(self, key: str, dataset: h5py.Dataset) -> None:
        """Check that a dataset holds numbers that can be read in bounded memory, in this file, running nothing."""
        if "__BYTES__" in dataset.attrs or dataset.attrs.get("__H5_TYPE__") == "ObjectH5Type":
            raise CheckpointError(f"{self.path}: {key} must be a tensor, got a Python object, which is never run")
        layout = dataset.id.get_create_plist()
        if dataset.shape is None or dataset.is_virtual or layout.get_external_count():
            raise CheckpointError(f"{self.path}: {key} must be a tensor in the file itself, it is not")
        item_bytes = dataset.dtype.itemsize
        if dataset.chunks is not None and math.prod(dataset.chunks) * item_bytes > MOST_CHUNK_BYTES:
            got = f"got {math.prod(dataset.chunks) * item_bytes}"
            raise CheckpointError(f"{self.path}: the chunks of {key} must have at most {MOST_CHUNK_BYTES} bytes, {got}")
        if dataset.dtype not in (np.float32, np.float16) and not self._is_bfloat16(key, dataset):
            kinds = "float32, float16 or bfloat16"
            raise CheckpointError(f"{self.path}: the dtype of {key} must be {kinds}, got {dataset.dtype}")
        for number in (layout.get_filter(n)[0] for n in range(layout.get_nfilters())):
            if number not in _FILTERS:
                known = ", ".join(_FILTERS.values())
                raise CheckpointError(f"{self.path}: {key} must be compressed by one of {known}, got filter {number}")
            if not _can_decompress(number):
                raise CheckpointError(
                    f"{self.path}: {key} is compressed by {_FILTERS[number]}, which must be installed, it is not",
                    "`pip install 'cstool[lz4]'` installs it" if number == _LZ4 else None,
                )

    def _is_bfloat16(self, key: str, dataset: h5py.Dataset) -> bool:
        """Say whether 16-bit integers stand for bfloat16: the dataset says it, or the file of it."""
        if dataset.dtype not in (np.int16, np.uint16):
            return False
        attributes = dict(dataset.attrs)
        said = [str(name) for name in np.atleast_1d(attributes.get("dtypes", []))]
        for described in self._metadata.get(key, {}).values():
            if isinstance(described, dict):
                said += map(str, described.get("dtypes", []))
                attributes.setdefault("is_bfloat16", described.get("is_bfloat16", False))
        return "torch.bfloat16" in said or bool(attributes.get("is_bfloat16", False))

    @contextmanager
    def _reporting(self, key: str | None = None) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:
            # Any error of HDF5, h5py or JSON here is due to the file.
            what = "the checkpoint" if key is None else key
            raise CheckpointError(f"{self.path}: {what} is damaged or cut short", TAKE_ANOTHER) from error


def _can_decompress(number: int) -> bool:
    if number == _LZ4:
        with suppress(ImportError):
            import hdf5plugin  # noqa: F401 - it registers the filter
    return bool(h5py.h5z.filter_avail(number))


def _flattened(structure: Any, key: str = "") -> Iterator[str]:
    """Yield the keys of the leaves of nested mappings and lists, dots between their names."""
    if isinstance(structure, dict):
        entries = list(structure.items())
    elif isinstance(structure, list):
        entries = [(str(number), entry) for number, entry in enumerate(structure)]
    else:
        if key:
            yield key
        return
    for name, entry in entries:
        yield from _flattened(entry, f"{key}.{name}" if key else name)
