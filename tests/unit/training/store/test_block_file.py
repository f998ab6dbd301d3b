"""Bytes at offsets: the same through the page cache and past it, whatever begins where, and from several threads."""

import errno
import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from cstool.foundation.errors import StoreError
from cstool.training.store.block_file import DIRECT_BYTES, PAGE_BYTES, BlockFile
from tests.contract.refusal import refusal
from tests.examples import examples
from tests.unit.training.store.stored import Array

SIZE = 5 * DIRECT_BYTES + 700
MODES = pytest.mark.parametrize(
    "mode", [{}, {"uncached": True}, {"direct": True}], ids=["cached", "uncached", "direct"]
)
sizes = st.one_of(st.integers(0, SIZE), st.sampled_from([DIRECT_BYTES - 1, DIRECT_BYTES, DIRECT_BYTES + PAGE_BYTES]))
offsets = st.one_of(st.integers(0, SIZE), st.integers(0, SIZE // PAGE_BYTES).map(lambda page: page * PAGE_BYTES))


def open_file(path: Path, **mode: bool) -> BlockFile:
    return BlockFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC), **mode)


def buffer(size_bytes: int, misaligned: int) -> Array:
    return np.frombuffer(mmap.mmap(-1, size_bytes + PAGE_BYTES), np.uint8)[misaligned : misaligned + size_bytes]


@MODES
@given(data=st.data())
@examples(50)
def test_what_was_written_is_read(tmp_path_factory, mode, data):
    file = open_file(tmp_path_factory.mktemp("block") / "file", **mode)
    expected = np.zeros(SIZE, np.uint8)
    file.write(0, expected)
    for number in range(data.draw(st.integers(1, 6))):
        offset, size = data.draw(offsets), data.draw(sizes)
        misaligned = data.draw(st.sampled_from([0, 1, 512, 3072]))
        part = buffer(min(size, SIZE - offset), misaligned)
        if data.draw(st.booleans()):
            part[:] = number + 1
            expected[offset : offset + part.size] = number + 1
            file.write(offset, part)
        file.read(offset, part)
        np.testing.assert_array_equal(part, expected[offset : offset + part.size])
    assert file.path.read_bytes() == expected.tobytes()
    file.close()


@MODES
def test_ranges_side_by_side_are_written_at_the_same_time(tmp_path, mode):
    """Their ends lie within pages that both write to."""
    file = open_file(tmp_path / "file", **mode)
    edges = [0, DIRECT_BYTES + 512, 2 * DIRECT_BYTES + 1000, 3 * DIRECT_BYTES + 5000, SIZE]
    file.write(0, np.zeros(SIZE, np.uint8))
    expected = np.zeros(SIZE, np.uint8)

    def write(number: int) -> None:
        for turn in range(20):
            part = buffer(edges[number + 1] - edges[number], edges[number] % PAGE_BYTES)
            part[:] = 4 * turn + number
            file.write(edges[number], part)
            part[:] = 255
            file.read(edges[number], part)
            assert (part == 4 * turn + number).all()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    for number in range(4):
        expected[edges[number] : edges[number + 1]] = 4 * 19 + number
    assert file.path.read_bytes() == expected.tobytes()
    file.close()


def test_what_goes_past_the_page_cache_does(tmp_path, monkeypatch):
    file = open_file(tmp_path / "file", direct=True)
    if not file._goes_direct:
        pytest.skip("this file system has no O_DIRECT")
    found: list[tuple[bool, int, int]] = []
    spy(monkeypatch, lambda descriptor, size, offset: found.append((descriptor == file._direct, offset, size)))
    file.write(PAGE_BYTES - 512, buffer(DIRECT_BYTES + 1024, PAGE_BYTES - 512))
    assert found == [
        (False, PAGE_BYTES - 512, 512),
        (True, PAGE_BYTES, DIRECT_BYTES),
        (False, PAGE_BYTES + DIRECT_BYTES, 512),
    ]
    file.close()


def test_a_device_with_rules_of_its_own_gets_what_it_can_do(tmp_path, monkeypatch):
    file = open_file(tmp_path / "file", direct=True)

    def refuse(descriptor: int, _size: int, _offset: int) -> None:
        if descriptor == file._direct:
            raise OSError(errno.EINVAL, "Invalid argument")

    spy(monkeypatch, refuse)
    part = buffer(2 * DIRECT_BYTES, 0)
    part[:] = 7
    file.write(0, part)
    assert (tmp_path / "file").read_bytes() == part.tobytes()
    file.close()


@MODES
def test_a_file_that_ends_too_soon(tmp_path, mode):
    file = open_file(tmp_path / "file", **mode)
    file.write(0, np.zeros(DIRECT_BYTES + 100, np.uint8))
    message = f"{file.path}: must have bytes at {DIRECT_BYTES + 100}, it was cut short"
    with refusal(StoreError, message, "take a checkpoint"):
        file.read(0, buffer(2 * DIRECT_BYTES, 0))
    file.close()
    file.close()


def spy(monkeypatch: pytest.MonkeyPatch, look: Callable[[int, int, int], object]) -> None:
    """Have somebody look at every write: descriptor, size and offset."""
    original = os.pwritev

    def call(descriptor: int, buffers: list[Any], offset: int, flags: int = 0) -> int:
        look(descriptor, sum(map(len, buffers)), offset)
        return original(descriptor, buffers, offset, flags)

    monkeypatch.setattr(os, "pwritev", call)
