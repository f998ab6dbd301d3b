"""What the tests of prepared texts look at."""

from pathlib import Path
from typing import Any

import numpy as np

from cstool.data import allocate, open_hdf5_text


def content_of(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files by name."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def read_all(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return all samples of a part."""
    dataset = open_hdf5_text([folder], vocab_size=256)
    out = allocate(dataset.fields, dataset.sample_count)
    dataset.read(np.arange(dataset.sample_count), out)
    dataset.close()
    return out


def text_of(folder: Path) -> bytes:
    """Put the text of a part together again, from its samples."""
    out = read_all(folder)
    return bytes([out["input_ids"][0, 0], *out["labels"][out["mask"] == 1].tolist()])
