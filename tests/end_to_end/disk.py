"""A disk that is as small as a test wants it."""

import contextlib
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest


class Disk:
    """A small file system at a place where nothing is yet."""

    def __init__(self, place: Path, size_bytes: int) -> None:
        self.place = place
        place.mkdir()
        self._mount(f"size={size_bytes}")

    def grow(self, size_bytes: int) -> None:
        self._mount(f"remount,size={size_bytes}")

    def fill(self) -> None:
        """Leave no page to anybody."""
        with contextlib.suppress(OSError), (self.place / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    def _mount(self, options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "cstool-test", str(self.place)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no file system can be mounted here")


class DiskUsage(NamedTuple):
    free: int


@contextlib.contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """Let no file become larger."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
