"""A file for what nobody needs when the run is interrupted: it has no name, so it goes with its process."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cstool.store.block_file import PAGE_BYTES, BlockFile
from cstool.store.contiguous import Place


class ScratchFile(BlockFile):
    """Arrays of zeros in an unnamed file.

    Args:
        beside: the file in whose folder it is, and that errors name
        direct: go past the page cache, where that can be

    Raises:
        OSError: it cannot be made
    """

    def __init__(self, beside: Path, *, direct: bool = False) -> None:
        # The name is one that is swept, should the process end between the two lines.
        temporary = beside.with_name(f"{beside.name}.{secrets.token_hex(4)}.tmp")
        super().__init__(
            beside, os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), direct=direct
        )
        os.unlink(temporary)
        self.names: set[str] = set()
        """of the arrays in it"""
        self.end = 0
        """how long it is to be [bytes]"""

    def make(self, name: str, shape: Sequence[int], dtype: str) -> Place:
        """Make room for an array, and return where it is; space for it is to be reserved before its first use."""
        place = Place(tuple(shape), dtype, self.end)
        self.end += -(-place.nbytes // PAGE_BYTES) * PAGE_BYTES
        self.names.add(name)
        return place
