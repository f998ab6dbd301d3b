"""Datasets that are plain bytes at a fixed place of an HDF5 file: made, and found again, with care."""

import math
from typing import NamedTuple

import h5py
import numpy as np

from cstool.training.store.checkpoint_format import DTYPES


class Place(NamedTuple):
    """A dataset and the place of its bytes."""

    shape: tuple[int, ...]
    dtype: str
    offset: int
    """in the file [bytes]; 0 where there are none"""
    crc32: int = 0
    """of the bytes, where the dataset says it"""

    @property
    def nbytes(self) -> int:
        """Size [bytes]."""
        return self.rows * self.row_bytes

    @property
    def rows(self) -> int:
        """Number of rows; a scalar has one."""
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        """Size of a row [bytes]."""
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    def at(self, row: int) -> int:
        """Return the offset of a row in the file [bytes]."""
        return self.offset + row * self.row_bytes


def create_contiguous(group: h5py.Group, name: str, shape: tuple[int, ...], dtype: str) -> h5py.Dataset:
    """Create a dataset whose place in the file is fixed at once; HDF5 itself never writes to it."""
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.CONTIGUOUS)
    layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    layout.set_obj_track_times(False)
    space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    kind = h5py.h5t.py_create(np.dtype(dtype), logical=True)
    return h5py.Dataset(h5py.h5d.create(group.id, name.encode("utf-8"), kind, space, layout))


def place_of(dataset: h5py.h5d.DatasetID) -> Place:
    """Place of a dataset; its offset is 0 where it has no elements."""
    return Place(dataset.shape, dataset.dtype.name, dataset.get_offset() or 0)


def find_contiguous(group: h5py.Group, name: str, file_bytes: int) -> tuple[Place, h5py.h5d.DatasetID]:
    """Find a dataset of a file of some length that may come from anywhere; return its place, and it, open.

    By calls of HDF5 alone: h5py's objects take three times as long, and a checkpoint has hundreds of datasets.

    Raises:
        ValueError: it is not plain bytes inside this file; names the rule
    """
    encoded = name.encode("utf-8")
    # A slash could lead through a link of another name.
    is_here = "/" not in name and encoded in group.id
    if not is_here or group.id.links.get_info(encoded).type != h5py.h5l.TYPE_HARD:
        raise ValueError("it must be in the file itself, not behind a link")
    dataset = h5py.h5o.open(group.id, encoded)
    if not isinstance(dataset, h5py.h5d.DatasetID):
        raise ValueError("it must be a dataset")
    layout = dataset.get_create_plist()
    plain = layout.get_layout() == h5py.h5d.CONTIGUOUS and not layout.get_nfilters()
    if not plain or layout.get_external_count():
        raise ValueError("it must be contiguous, uncompressed and in the file itself")
    is_empty, dtype = dataset.get_space().get_simple_extent_type() == h5py.h5s.NULL, dataset.dtype
    if is_empty or dtype.name not in DTYPES or not dtype.isnative:
        raise ValueError(f"its dtype must be one of {', '.join(DTYPES)} of this machine")
    place = place_of(dataset)
    if (dataset.get_offset() is None and place.nbytes) or place.offset + place.nbytes > file_bytes:
        raise ValueError(f"its {place.nbytes} bytes must lie in the file, which has {file_bytes}")
    return place, dataset
