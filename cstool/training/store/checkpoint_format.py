"""The checkpoint format: the names and attributes in a `.mdl` file.

A checkpoint is an HDF5 file (superblock 2, whose metadata carry checksums) without groups:

- a tensor is a contiguous, unfiltered dataset named by its key, dots and all, with the attributes `dtype`,
  `shape` (JSON) and `crc32` (of its bytes);
- every key has a file attribute `{key}.__metadata__` (JSON): `{"kind": "tensor"}`, or
  `{"kind": "link", "target": key}` for a tied weight, which is stored once, before the link, or
  `{"kind": "value", "value": ...}`;
- JSON that is too long for an attribute is a uint8 dataset, named as the attribute that it stands for, which
  then reads `{"dataset": name}` or `{"kind": "value", "dataset": name}`;
- file attributes: `__spec__` (JSON list of all keys in the order of writing), `__version__` (of this format,
  cstool's own: 1.1; the vendor's files count 0.x), `__cstool_version__`, `__digest__` (of all keys, checksums and
  values: see `CheckpointDigest`) and, written last, `__SUCCESS__`.

Files of version 1.0 have no digest: each of their parts has a checksum, but nothing says that they belong together.

Nothing in it is ever executed or followed out of the file.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

FORMAT_VERSION = "1.1"
"""version of cstool's checkpoint format"""
WITHOUT_DIGEST = "1.0"
"""the version before it, which can be read, too"""

SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""first bytes of an HDF5 file"""

SPEC, VERSION, CSTOOL_VERSION, SUCCESS = "__spec__", "__version__", "__cstool_version__", "__SUCCESS__"
DIGEST = "__digest__"

METADATA_SUFFIX = ".__metadata__"

LONGEST_ATTRIBUTE_BYTES = 32 * 1024
"""longest JSON kept in an attribute, half of the limit of HDF5 for an object header message [bytes]"""

SPARSITY = "sparsity"
"""value that has, by the name of each sparse weight, its shape"""
INDICES = ".indices"
"""suffix to the key of a sparse weight, for the positions of its numbers in the weight laid out row by row"""

DTYPES = (
    ("bool", "float16", "float32", "float64")
    + ("int8", "int16", "int32", "int64")
    + ("uint8", "uint16", "uint32", "uint64")
)
"""dtypes of tensors"""

LIBVER = ("v108", "v108")
"""bounds of the HDF5 file format: metadata with checksums, readable by every h5py"""


def check_key(key: str) -> None:
    """Check that a key can name a dataset, or raise ValueError."""
    if not key or "/" in key or "\0" in key or not set(key) - {"."}:
        raise ValueError(f"a key must be text without slashes, not only dots, got {key!r}")
    if key == SPEC or key.endswith(METADATA_SUFFIX):
        raise ValueError(f"the key {key} is reserved by the format")


def metadata_name(key: str) -> str:
    """Return the name of the file attribute that describes a key."""
    return key + METADATA_SUFFIX


class CheckpointDigest:
    """SHA-256 over the keys of a checkpoint in their order, each with its value or link.

    For a tensor, its dtype, its shape and its checksum stand in, so no tensor is read for it.

    Args:
        cstool_version: version of the writer, as in the checkpoint
    """

    def __init__(self, cstool_version: str) -> None:
        self._hash = hashlib.sha256()
        self._add("cstool", cstool_version)

    def add_tensor(self, key: str, shape: Sequence[int], dtype: str, crc32: int) -> None:
        """Add a tensor."""
        self._add(key, "tensor", dtype, [*map(int, shape)], int(crc32))

    def add_link(self, key: str, target: str) -> None:
        """Add a link to a tensor."""
        self._add(key, "link", target)

    def add_value(self, key: str, value: Any) -> None:
        """Add a value, as reading its JSON gives it."""
        self._add(key, "value", value)

    def hex(self) -> str:
        """Return the digest of all that was added, 64 hexadecimal digits."""
        return self._hash.hexdigest()

    def _add(self, *entry: Any) -> None:
        # JSON in one line, in ASCII: where one entry ends is never in doubt.
        self._hash.update(json.dumps(entry).encode("ascii") + b"\n")
