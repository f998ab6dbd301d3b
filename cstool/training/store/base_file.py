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
        self._stamp = self._stamp_now()

    def _stamp_now(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        return found.st_size, found.st_mtime_ns

    def check_unwritten(self) -> None:
        """Check that the file is as it was opened, or raise CheckpointError.

        A file that takes its name changes nothing.
        """
        if self._stamp_now() != self._stamp:
            raise CheckpointError(f"{self.path}: must stay as it is while its weights stream, it was written to")

    def check(self, name: str, checksum: int) -> None:
        """Compare the checksum of all bytes of a tensor with the file's, or raise CheckpointError."""
        wanted = self.places[name].crc32
        if checksum != wanted:
            raise CheckpointError(
                f"{self.path}: {name} is damaged: its checksum must be {wanted:08x}, got {checksum:08x}",
                "MemoryX has no copy of it: bring a whole one back",
            )
