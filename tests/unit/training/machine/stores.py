"""The stores that MemoryX is tested with: in memory, and in a file with little room in memory and often committed."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from cstool.training.store import FileStore, RamStore, Store

FILE_ROOM = 256 * 2**10
"""for rows in memory: a few panels of the models of these tests [bytes]"""

_makers: list[Callable[[], Store]] = [RamStore]


def make_store() -> Store:
    """Return an empty store of the kind that the test asks for, in memory if it asks for none."""
    return _makers[-1]()


@pytest.fixture(params=["ram", "file"])
def each_store(request, tmp_path) -> Iterator[str]:
    numbers = itertools.count()
    kind: str = request.param
    _makers.append(RamStore if kind == "ram" else lambda: FileStore(tmp_path / f"{next(numbers)}.h5", FILE_ROOM))
    yield kind
    _makers.pop()
