"""A checkpoint whose tensors a store reads where they lie, in place of a copy."""

import os
from collections.abc import Iterable

from cstool.foundation.errors import CheckpointError
from cstool.training.store.block_file import BlockFile
from cstool.training.store.checkpoint_reader import CheckpointReader


class BaseFile(BlockFile):
    """Tensors of a checkpoint, for a `FileStore` that never changes them.

    Args:
        reader: of the checkpoint; it may be closed afterwards
        names: of the tensors

    Raises:
        CheckpointError: it lacks one of them
    """

    def __init__(self, reader: CheckpointReader, names: Iterable[str]) -> None:
        self.places = {name: reader.place(name) for name in names}
        # The very file that was checked, should another take its name.
        super().__init__(reader.path, os.dup(reader.fileno()))

    def check(self, name: str, checksum: int) -> None:
        """Compare the checksum of all bytes of a tensor with the file's, or raise CheckpointError."""
        wanted = self.places[name].crc32
        if checksum != wanted:
            raise CheckpointError(
                f"{self.path}: {name} is damaged: its checksum must be {wanted:08x}, got {checksum:08x}",
                "MemoryX has no copy of it: bring a whole one back",
            )
