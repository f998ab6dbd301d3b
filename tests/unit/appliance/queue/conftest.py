"""Fixtures for tests of jobs."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cstool.appliance.queue.root import Root, open_root
from tests.end_to_end.disk import Disk
from tests.unit.appliance.queue.keepers import KeptJob


@pytest.fixture
def job(tmp_path) -> Iterator[KeptJob]:
    with KeptJob(tmp_path / "wsjob-one") as made:
        yield made


@pytest.fixture
def root(tmp_path) -> Root:
    return open_root(tmp_path / "appliance", makes=True)


@pytest.fixture
def make_disk(tmp_path) -> Iterator[Callable[[int], Disk]]:
    place: Path = tmp_path / "disk"
    yield lambda size_bytes: Disk(place, size_bytes)
    subprocess.run(["umount", "--lazy", str(place)], capture_output=True)
