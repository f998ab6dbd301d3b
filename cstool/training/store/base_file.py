"""A checkpoint whose tensors a store reads where they lie, in place of a copy."""

import os
from collections.abc import Iterable

from cstool.training.store.block_file import BlockFile
from cstool.training.store.checkpoint_layout import check_crc32
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
        """Compare the checksum of all bytes of a tensor with the file's, or raise DamagedCheckpointError."""
        check_crc32(self.path, name, self.places[name], checksum)
