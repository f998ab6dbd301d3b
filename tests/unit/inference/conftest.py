"""Fixtures for tests of answers."""

from collections.abc import Iterator

import pytest

from cstool.inference.walk import Walk
from tests.unit.inference.machines import one_token, walking


@pytest.fixture(scope="module")
def walk() -> Iterator[Walk]:
    """A walk over a decoder of two layers, with room for 64 sequences of 16 tokens."""
    with walking(one_token(layers=2, sequence=16), sequences=64, capacity=16) as (made, _):
        yield made
