"""The digest of a checkpoint: it binds the parts that were written together, so that none can be of another file."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any


class CheckpointDigest:
    """SHA-256 over the keys of a checkpoint in their order, each with what it stands for.

    Of a tensor that is its dtype, its shape and its checksum, so no tensor is read for it.

    Args:
        cstool_version: that the checkpoint says it was written by
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
